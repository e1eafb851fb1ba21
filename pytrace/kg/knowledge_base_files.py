"""The files of a knowledge base: plain arrays that are mapped as they are, and a manifest that says what they are.

A directory holds ``base.columns`` (all arrays of `Columns`, each at the place that the manifest gives), ``base.vectors``
(rows of float32, or of int8 with a float32 scale behind each, as the file's size tells), for a large base of float32 ``base.sketch`` (float16 rows, then float32 directions: see `pytrace.kg.triple_search`),
and ``base.json``, the manifest: format, encoder, what is where, sizes and CRC-32 checksums, of itself too. What is there never changes;
`pytrace.kg.building` makes it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_type_hints

import msgspec
import numpy as np
from numpy.typing import NDArray

from pytrace.errors import StoreError
from pytrace.kg.columns import Columns
from pytrace.kg.triple_search import Sketch
from pytrace.models.encoders.encoder import Encoder
from pytrace.storage.files import SMALL
from pytrace.storage.mapped_arrays import FileEntry, MappedFile, VectorsManifest, load_manifest

FORMAT = 2
# Format 1 has no checksum of the manifest itself.
_FORMATS = (1, FORMAT)
MANIFEST = "base.json"
COLUMNS, VECTORS, SKETCH = "base.columns", "base.vectors", "base.sketch"

_REMEDY = "build the knowledge base anew"
# Vectors that take less are searched as they are mapped. Rows of more are copied from the file: a mapped page brings the
# whole of what the system cached in one piece into the process's memory, which may be 2 MiB for a row of 1.5 KiB.
_KEPT_BYTES = 256 << 20

_Kind = TypeVar("_Kind", bound=msgspec.Struct)
Array = NDArray[Any]
Rows = NDArray[np.int64]


class ArrayEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where an array lies in ``base.columns``: bytes from its start, type of number and shape."""

    offset: int
    dtype: str
    shape: tuple[int, ...]


class SketchEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What ``base.sketch`` holds: see `pytrace.kg.triple_search.Sketch`."""

    directions: int
    rounding: float
    longest: float


VectorType = Literal["float32", "int8"]
"""How the vectors of triples are kept."""


def row_type(kind: VectorType, dimension: int) -> np.dtype[Any]:
    """Return the type of a row of ``base.vectors``; one of int8 is a vector once it is multiplied with its scale."""
    if kind == "float32":
        return np.dtype(("<f4", (dimension,)))
    return np.dtype([("vector", "i1", (dimension,)), ("scale", "<f4")])


class Manifest(VectorsManifest, frozen=True, forbid_unknown_fields=True):
    """What a knowledge base's files are; `arrays` and `numbers` are the fields of `Columns` by their dotted names."""

    triples: int
    arrays: dict[str, ArrayEntry]
    numbers: dict[str, int]
    files: dict[str, FileEntry]
    sketch: SketchEntry | None = None

    @property
    def vectors(self) -> VectorType:
        """How vectors are kept, which the size of their file tells."""
        return "float32" if self.files[VECTORS].bytes == 4 * self.triples * self.dimension else "int8"


class BaseFiles:
    """The files of a knowledge base, mapped and open for reading.

    Opening reads the manifest, maps the rest, and compares the columns and what is small with their checksums. Whatever asks for
    `columns` or `vectors` has their files looked at first: reading a mapped file that became shorter would kill the process.
    """

    def __init__(self, directory: str | os.PathLike[str], encoder: Encoder | None) -> None:
        self.directory = Path(directory)
        self.manifest = read_manifest(self.directory)
        if encoder is not None:
            self.manifest.check_encoder(
                self.directory, encoder.name, encoder.fingerprint, encoder.dimension, what="knowledge base"
            )
        self._mapped = {
            name: MappedFile(self.directory / name, entry.bytes, what="the knowledge base", remedy=_REMEDY)
            for name, entry in self.manifest.files.items()
        }
        # Numbers in columns are places in other columns: a wrong one might ask for any amount of memory.
        self._mapped[COLUMNS].verify(self.manifest.files[COLUMNS].checksum)
        for name in self._mapped.keys() - {COLUMNS}:
            self._mapped[name].verify(self.manifest.files[name].checksum, most=SMALL)
        try:
            self._columns = self._map_columns()
            row = row_type(self.manifest.vectors, self.manifest.dimension)
            self._vectors = self._mapped[VECTORS].array(row.base, (self.manifest.triples, *row.shape))
            self._sketch = self._map_sketch()
        except (KeyError, ValueError, TypeError, OverflowError) as error:
            raise StoreError(
                f"{self.directory / MANIFEST} does not fit the files beside it ({error}); {_REMEDY}"
            ) from None

    @property
    def columns(self) -> Columns:
        """The columns, mapped."""
        self._mapped[COLUMNS].check()
        return self._columns

    @property
    def vectors(self) -> NDArray[Any]:
        """The rows of the vectors, mapped: see `row_type`."""
        self._mapped[VECTORS].check()
        return self._vectors

    @property
    def sketch(self) -> Sketch | None:
        """The sketch, mapped, if there is one."""
        if self._sketch is not None:
            self._mapped[SKETCH].check()
        return self._sketch

    @property
    def read_vectors(self) -> Callable[[Rows], NDArray[Any]] | None:
        """What copies rows of the vectors from their file; None where they are so few that they may stay in memory."""
        if self._vectors.nbytes <= _KEPT_BYTES:
            return None
        return partial(self._mapped[VECTORS].read_rows, kind=row_type(self.manifest.vectors, self.manifest.dimension))

    def verify(self) -> None:
        """Read all files and compare their checksums."""
        for name, entry in self.manifest.files.items():
            self._mapped[name].verify(entry.checksum)

    def _map_columns(self) -> Columns:
        mapped = self._mapped[COLUMNS]
        arrays = {
            name: mapped.array(entry.dtype, entry.shape, offset=entry.offset)
            for name, entry in self.manifest.arrays.items()
        }
        columns = restored(Columns, arrays, self.manifest.numbers)
        if columns.triples.shape != (self.manifest.triples, 3):
            raise ValueError(f"triples of shape {list(columns.triples.shape)} where {self.manifest.triples} are due")
        return columns

    def _map_sketch(self) -> Sketch | None:
        entry = self.manifest.sketch
        if entry is None:
            return None
        rows = (self.manifest.triples, entry.directions + 1)
        mapped = self._mapped[SKETCH]
        return Sketch(
            mapped.array(np.float16, rows),
            mapped.array(np.float32, (self.manifest.dimension, entry.directions), offset=2 * rows[0] * rows[1]),
            entry.rounding,
            entry.longest,
        )


def is_knowledge_base(path: str | os.PathLike[str]) -> bool:
    """Tell whether a directory holds a knowledge base, be it of any encoder or damaged."""
    return (Path(path) / MANIFEST).exists()


def read_manifest(directory: Path) -> Manifest:
    """Read the manifest of a knowledge base."""
    path = directory / MANIFEST
    what = "a file" if directory.is_file() else "no knowledge base"
    missing = (
        f"{directory} is {what}, where the directory of a knowledge base is due; "
        "make one with `pytrace kg index SOURCE --out DIR`"
    )
    manifest = load_manifest(path, Manifest, newest=FORMAT, missing=missing, remedy=_REMEDY, unchecked=(1,))
    wanted = {COLUMNS, VECTORS} if manifest.sketch is None else {COLUMNS, VECTORS, SKETCH}
    if (
        manifest.format not in _FORMATS
        or min(manifest.triples, manifest.dimension) < 1
        or set(manifest.files) != wanted
        or manifest.files[VECTORS].bytes
        not in {manifest.triples * row_type(kind, manifest.dimension).itemsize for kind in get_args(VectorType)}
    ):
        raise StoreError(
            f"{path} has format {manifest.format}, {manifest.triples:,} triples of dimension {manifest.dimension} and files "
            f"{', '.join(sorted(manifest.files))[:200]}, which no knowledge base of format {FORMAT} has; {_REMEDY}"
        )
    return manifest


def leaves(record: msgspec.Struct, prefix: str = "") -> Iterator[tuple[str, Array | int]]:
    """Iterate over the arrays and numbers of a record and of the records in it, by their dotted names."""
    for name in record.__struct_fields__:
        value = getattr(record, name)
        if isinstance(value, msgspec.Struct):
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def restored(kind: type[_Kind], arrays: Mapping[str, Array], numbers: Mapping[str, int], prefix: str = "") -> _Kind:
    """Put a record together from its `leaves`."""
    values: dict[str, object] = {}
    for name, hint in get_type_hints(kind).items():
        if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
            values[name] = restored(hint, arrays, numbers, f"{prefix}{name}.")
        elif hint is int:
            values[name] = numbers[prefix + name]
        else:
            array = arrays[prefix + name]
            (due,) = get_args(get_args(hint)[1])  # of NDArray[due]
            if array.dtype != due:
                raise ValueError(f"{prefix}{name} holds {array.dtype} where {np.dtype(due)} is due")
            values[name] = array
    return kind(**values)
