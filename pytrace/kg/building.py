"""How the files of a knowledge base come into being: all at once, and without encoding anything twice.

They are made in a directory beside the one wanted, ``.NAME.building``, which takes its name in one step when all of it is
on the disk. So a process that is killed, a full disk or a power cut leaves no half knowledge base. Columns are compiled
anew each time that a build is started. Vectors are appended batch by batch, and after each ``building.json`` records how
many there are, of which encoder, and of which columns. A build goes on behind them if encoder and columns are the same,
that is if the source has the same triples in the same order with the same names; else it begins anew.
"""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from pytrace.errors import StoreError
from pytrace.kg.columns import Columns
from pytrace.kg.knowledge_base_files import (
    COLUMNS,
    FORMAT,
    MANIFEST,
    SKETCH,
    VECTORS,
    ArrayEntry,
    Manifest,
    SketchEntry,
    VectorType,
    leaves,
    row_type,
)
from pytrace.kg.triple_search import make_sketch
from pytrace.models.encoders.encoder import Encoder
from pytrace.storage.files import checksum, flush, replace_file
from pytrace.storage.foreign_json import read_json
from pytrace.storage.locks import take_lock
from pytrace.storage.mapped_arrays import FileEntry, int8_rows, save_manifest, write_pieces
from pytrace.storage.text import storable

_RECORD = "building.json"
_LOCK = "building.lock"
# An array starts at a multiple of it: a cache line, and more than any type of number asks for.
_ALIGNMENT = 64


class _Progress(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What of ``base.vectors`` counts: `rows` of them with a CRC-32, of an encoder and of columns by their hash."""

    format: int
    fingerprint: str
    dimension: int
    columns: str
    rows: int
    checksum: int
    vectors: VectorType = "float32"


class Building:
    """A knowledge base that is being built; a context manager that holds the lock on its unfinished files."""

    def __init__(self, directory: str | os.PathLike[str], encoder: Encoder, *, vectors: VectorType = "float32") -> None:
        self.directory = Path(os.path.abspath(directory))  # noqa: PTH100 - resolve() would follow the last link
        self.unfinished = self.directory.parent / f".{self.directory.name[:200]}.building"
        self._encoder = encoder
        self._kind = vectors
        self._row = row_type(vectors, encoder.dimension)
        self._arrays: dict[str, ArrayEntry] = {}
        self._numbers: dict[str, int] = {}
        self._files: dict[str, FileEntry] = {}
        self._refuse_what_is_there()
        self._lock = self._take_lock()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Let others build here; without vectors to keep, nothing is left lying there."""
        if not (self.unfinished / _RECORD).exists():
            with suppress(OSError):  # it does not count anyway
                for name in (COLUMNS, VECTORS, SKETCH, _LOCK):
                    (self.unfinished / name).unlink(missing_ok=True)
                self.unfinished.rmdir()
        self._lock.close()

    def begin(self, columns: Columns) -> int:
        """Write the columns, and return how many vectors of them are there from a build that did not come to its end."""
        with self._writing():
            self._progress = self._resumable(self._write_columns(columns))
            if not self._progress.rows:
                (self.unfinished / _RECORD).unlink(missing_ok=True)
            path = self.unfinished / VECTORS
            path.touch()
            os.truncate(path, self._row.itemsize * self._progress.rows)
        return self._progress.rows

    def append(self, vectors: NDArray[np.float32]) -> None:
        """Add the vectors of the next triples, float32 [n, dimension]; they count once this returns."""
        content = _rows(vectors, self._row).tobytes()
        with self._writing():
            with (self.unfinished / VECTORS).open("ab") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
            progress = msgspec.structs.replace(
                self._progress,
                rows=self._progress.rows + len(vectors),
                checksum=zlib.crc32(content, self._progress.checksum),
            )
            replace_file(self.unfinished / _RECORD, msgspec.json.encode(progress))
        self._progress = progress

    def finish(self) -> None:
        """Sketch the vectors, write the manifest, and let the directory take its name."""
        with self._writing():
            self._files[VECTORS] = FileEntry((self.unfinished / VECTORS).stat().st_size, self._progress.checksum)
            sketch = self._write_sketch()
            manifest = Manifest(
                FORMAT,
                storable(self._encoder.name),
                storable(self._encoder.fingerprint),
                self._encoder.dimension,
                self._progress.rows,
                self._arrays,
                self._numbers,
                self._files,
                sketch,
            )
            save_manifest(self.unfinished / MANIFEST, manifest)
            self.unfinished.rename(self.directory)  # takes the place of an empty directory, and of nothing else
            flush(self.directory.parent)
        with suppress(OSError):  # what is left lying there harms nobody
            (self.directory / _RECORD).unlink(missing_ok=True)
            (self.directory / _LOCK).unlink()

    def _refuse_what_is_there(self) -> None:
        if not self.directory.name:
            raise StoreError(f"{self.directory} cannot become a knowledge base; name a directory below it")
        try:
            if self.directory.is_symlink() or self.directory.exists():
                held = (self.directory / MANIFEST).exists()
                if held or not self.directory.is_dir() or self.directory.is_symlink() or any(self.directory.iterdir()):
                    what = "a knowledge base is there" if held else "something else is there"
                    raise StoreError(f"cannot build {self.directory}: {what}; remove it, or name another directory")
        except OSError as error:
            raise StoreError(
                f"{self.directory} cannot be looked at ({error.strerror}); correct its permissions"
            ) from None

    def _take_lock(self) -> IO[bytes]:
        try:
            self.unfinished.mkdir(parents=True, exist_ok=True)
            return take_lock(
                self.unfinished / _LOCK,
                f"{self.directory} is being built by another process; wait for it, or name another directory",
            )
        except OSError as error:
            raise StoreError(
                f"{self.unfinished} cannot be written ({error.strerror}); name another directory"
            ) from None

    def _write_columns(self, columns: Columns) -> str:
        """Write the columns, remember what is where, and return their hash."""
        digest = hashlib.blake2b(digest_size=16)

        def pieces() -> Iterator[bytes]:
            offset = 0
            for name, value in leaves(columns):
                if isinstance(value, int):
                    self._numbers[name] = value
                    continue
                content = value.astype(value.dtype.newbyteorder("<"), copy=False).tobytes()
                content += b"\0" * (-len(content) % _ALIGNMENT)
                self._arrays[name] = ArrayEntry(offset, value.dtype.newbyteorder("<").str, value.shape)
                digest.update(content)
                offset += len(content)
                yield content

        self._files[COLUMNS] = write_pieces(self.unfinished / COLUMNS, pieces())
        digest.update(msgspec.json.encode((self._arrays, self._numbers)))
        return digest.hexdigest()

    def _resumable(self, digest: str) -> _Progress:
        """Return how far an earlier build came, if it was of the same columns and encoder and its vectors are whole."""
        fresh = _Progress(
            FORMAT, storable(self._encoder.fingerprint), self._encoder.dimension, digest, 0, 0, self._kind
        )
        try:
            record = read_json(self.unfinished / _RECORD, _Progress)
        except (OSError, ValueError):
            return fresh
        if msgspec.structs.replace(record, rows=0, checksum=0) != fresh or record.rows < 0:
            return fresh
        size = self._row.itemsize * record.rows
        intact = (self.unfinished / VECTORS).exists() and checksum(self.unfinished / VECTORS, size) == (
            record.checksum,
            size,
        )
        return record if intact else fresh

    def _write_sketch(self) -> SketchEntry | None:
        shape = (self._progress.rows, self._encoder.dimension)
        path = self.unfinished / SKETCH
        # A sketch of int8 rows would be two thirds of their size.
        sketch = None
        if self._kind == "float32":
            sketch = make_sketch(np.asarray(np.memmap(self.unfinished / VECTORS, dtype="<f4", mode="r", shape=shape)))
        if sketch is None:
            path.unlink(missing_ok=True)
            return None
        arrays = (sketch.rows.astype("<f2", copy=False), sketch.directions.astype("<f4", copy=False))
        self._files[SKETCH] = write_pieces(path, (np.ascontiguousarray(array).data.cast("B") for array in arrays))
        return SketchEntry(sketch.directions.shape[1], sketch.rounding, sketch.longest)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StoreError(
                f"{self.directory} cannot be built ({error.strerror or error}); nothing is there yet, and {self.unfinished} keeps "
                "what was encoded: free some room or correct the permissions, and build again"
            ) from None


def _rows(vectors: NDArray[np.float32], row: np.dtype[Any]) -> NDArray[Any]:
    """Return vectors as they are kept."""
    if row.names is None:
        return np.ascontiguousarray(vectors, dtype="<f4")
    rows = np.empty(len(vectors), dtype=row)
    rows["vector"], rows["scale"] = int8_rows(vectors)
    return rows
