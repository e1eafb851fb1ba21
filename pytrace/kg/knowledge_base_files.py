"""The files of a knowledge base: plain arrays that are mapped as they are, and a manifest that says what they are.

A directory holds ``base.columns`` (all arrays of `Columns`, each at the place that the manifest gives), ``base.vectors``
(float32 rows), for a large base ``base.sketch`` (float16 rows, then float32 directions: see `pytrace.kg.triple_search`),
and ``base.json``, the manifest: format, encoder, what is where, sizes and CRC-32 checksums. What is there never changes;
`pytrace.kg.building` makes it.
"""

from __future__ import annotations

import mmap
import os
import weakref
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

import msgspec
import numpy as np
from numpy.typing import NDArray

from pytrace.errors import StoreError
from pytrace.kg.columns import Columns
from pytrace.kg.triple_search import Sketch
from pytrace.models.encoders.encoder import Encoder
from pytrace.storage.files import check_file
from pytrace.storage.text import storable

FORMAT = 1
MANIFEST = "base.json"
COLUMNS, VECTORS, SKETCH = "base.columns", "base.vectors", "base.sketch"

_REMEDY = "build the knowledge base anew"
# Vectors that take less are searched as they are mapped. Rows of more are copied from the file: a mapped page brings the
# whole of what the system cached in one piece into the process's memory, which may be 2 MiB for a row of 1.5 KiB.
_KEPT_BYTES = 256 << 20

_Kind = TypeVar("_Kind", bound=msgspec.Struct)
Array = NDArray[Any]
Rows = NDArray[np.int64]
Vectors = NDArray[np.float32]


class ArrayEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where an array lies in ``base.columns``: bytes from its start, type of number and shape."""

    offset: int
    dtype: str
    shape: tuple[int, ...]


class FileEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The size and CRC-32 of a file."""

    bytes: int
    checksum: int


class SketchEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What ``base.sketch`` holds: see `pytrace.kg.triple_search.Sketch`."""

    directions: int
    rounding: float
    longest: float


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a knowledge base's files are; `arrays` and `numbers` are the fields of `Columns` by their dotted names."""

    format: int
    encoder: str
    fingerprint: str
    dimension: int
    triples: int
    arrays: dict[str, ArrayEntry]
    numbers: dict[str, int]
    files: dict[str, FileEntry]
    sketch: SketchEntry | None = None


class BaseFiles:
    """The files of a knowledge base, mapped and open for reading.

    Opening reads the manifest and maps the rest, so that its time does not depend on their sizes. Whatever asks for
    `columns` or `vectors` has their files looked at first: reading a mapped file that became shorter would kill the process.
    """

    def __init__(self, directory: str | os.PathLike[str], encoder: Encoder | None) -> None:
        self.directory = Path(directory)
        self.manifest = read_manifest(self.directory)
        if encoder is not None:
            _check_encoder(self.directory, self.manifest, encoder)
        entries = self.manifest.files
        self._mapped = {name: _MappedFile(self.directory / name, entries[name].bytes) for name in entries}
        try:
            self._columns = self._map_columns()
            self._vectors = self._mapped[VECTORS].array(0, np.float32, (self.manifest.triples, self.manifest.dimension))
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
    def vectors(self) -> NDArray[np.float32]:
        """The vectors, mapped."""
        self._mapped[VECTORS].check()
        return self._vectors

    @property
    def sketch(self) -> Sketch | None:
        """The sketch, mapped, if there is one."""
        if self._sketch is not None:
            self._mapped[SKETCH].check()
        return self._sketch

    @property
    def read_vectors(self) -> Callable[[Rows], Vectors] | None:
        """What copies rows of the vectors from their file; None where they are so few that they may stay in memory."""
        return self._copied_vectors if self._vectors.nbytes > _KEPT_BYTES else None

    def _copied_vectors(self, rows: Rows) -> Vectors:
        return self._mapped[VECTORS].rows(rows, self.manifest.dimension)

    def verify(self) -> None:
        """Read all files and compare their checksums."""
        for name, entry in self.manifest.files.items():
            self._mapped[name].check()
            check_file(self.directory / name, entry.bytes, entry.checksum, remedy=_REMEDY)

    def _map_columns(self) -> Columns:
        mapped = self._mapped[COLUMNS]
        arrays = {
            name: mapped.array(entry.offset, entry.dtype, entry.shape) for name, entry in self.manifest.arrays.items()
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
            mapped.array(0, np.float16, rows),
            mapped.array(2 * rows[0] * rows[1], np.float32, (self.manifest.dimension, entry.directions)),
            entry.rounding,
            entry.longest,
        )


class _MappedFile:
    """A file mapped for reading, which must stay as long as it is."""

    def __init__(self, path: Path, size: int) -> None:
        self._path = path
        self._size = size
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            weakref.finalize(self, os.close, self._descriptor)
            there = os.fstat(self._descriptor).st_size
            if there != size:
                raise self._wrong(there)
            self._map = mmap.mmap(self._descriptor, size, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise StoreError(
                f"{path} cannot be mapped ({reason}), and the knowledge base needs it; {_REMEDY}"
            ) from None

    def check(self) -> None:
        """Raise StoreError if the file has another length now."""
        there = self._map.size()  # of the file, not of the map
        if there != self._size:
            raise self._wrong(there)

    def array(self, offset: int, dtype: Any, shape: tuple[int, ...]) -> Array:
        """Return a read-only array at a place of the file; ValueError if it does not fit in."""
        kind = np.dtype(dtype)
        count = int(np.prod(shape, dtype=np.float64))
        if min((offset, *shape)) < 0 or offset + count * kind.itemsize > self._size:
            raise ValueError(
                f"an array of shape {list(shape)} at byte {offset:,} where {self._path} has {self._size:,}"
            )
        if not count:
            return np.empty(shape, dtype=kind)
        return np.frombuffer(self._map, dtype=kind, count=count, offset=offset).reshape(shape)

    def rows(self, numbers: Rows, length: int) -> Vectors:
        """Copy float32 rows of so many numbers each, without mapping them; rows that follow each other are read as one."""
        made = np.empty((len(numbers), length), dtype=np.float32)
        content = made.reshape(-1).view(np.uint8).data
        size = 4 * length
        firsts = np.flatnonzero(np.diff(numbers, prepend=-2) != 1)
        places = (firsts * size).tolist()
        for start, end, row in zip(places, [*places[1:], made.nbytes], numbers[firsts].tolist(), strict=True):
            if os.preadv(self._descriptor, [content[start:end]], row * size) != end - start:
                raise self._wrong(os.fstat(self._descriptor).st_size)
        return made

    def _wrong(self, there: int) -> StoreError:
        reason = "the file was cut off" if there < self._size else "something was added to the file"
        return StoreError(f"{self._path} has {there:,} bytes where {self._size:,} are due; {reason}: {_REMEDY}")


def is_knowledge_base(path: str | os.PathLike[str]) -> bool:
    """Tell whether a directory holds a knowledge base, be it of any encoder or damaged.

    Examples
    --------
    >>> import tempfile
    >>> is_knowledge_base(tempfile.mkdtemp())
    False
    """
    return (Path(path) / MANIFEST).exists()


def read_manifest(directory: Path) -> Manifest:
    """Read the manifest of a knowledge base."""
    path = directory / MANIFEST
    try:
        manifest = msgspec.json.decode(path.read_bytes(), type=Manifest)
    except (FileNotFoundError, NotADirectoryError):
        what = "a file" if directory.is_file() else "no knowledge base"
        raise StoreError(
            f"{directory} is {what}, where the directory of a knowledge base is due; "
            "make one with `pytrace kg index SOURCE --out DIR`"
        ) from None
    except OSError as error:
        raise StoreError(f"{path} cannot be read ({error.strerror}); correct the path or its permissions") from None
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{path} is damaged or of another version ({error}); {_REMEDY}") from None
    wanted = {COLUMNS, VECTORS} if manifest.sketch is None else {COLUMNS, VECTORS, SKETCH}
    if (
        manifest.format != FORMAT
        or min(manifest.triples, manifest.dimension) < 1
        or set(manifest.files) != wanted
        or manifest.files[VECTORS].bytes != 4 * manifest.triples * manifest.dimension
    ):
        raise StoreError(
            f"{path} has format {manifest.format}, {manifest.triples:,} triples of dimension {manifest.dimension} and files "
            f"{', '.join(sorted(manifest.files))[:200]}, which no knowledge base of format {FORMAT} has; {_REMEDY}"
        )
    return manifest


def _check_encoder(directory: Path, manifest: Manifest, encoder: Encoder) -> None:
    mine = (storable(encoder.fingerprint), encoder.dimension)
    if (manifest.fingerprint, manifest.dimension) != mine:
        raise StoreError(
            f"{directory} was made with encoder {manifest.encoder!r} (fingerprint {manifest.fingerprint[:16]}, dimension "
            f"{manifest.dimension}), not with {encoder.name!r} (fingerprint {mine[0][:16]}, dimension {mine[1]}); open it "
            "with that encoder, or build another knowledge base"
        )


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
