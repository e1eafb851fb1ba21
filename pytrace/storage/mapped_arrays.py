"""Plain arrays in files that are mapped as they are, and the manifest beside them: their encoder, sizes and checksums."""

from __future__ import annotations

import json
import mmap
import os
import weakref
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from pytrace.errors import PytraceError, StoreError
from pytrace.storage.files import check_file, replace_file, sync
from pytrace.storage.foreign_json import decode_json, read_bounded
from pytrace.storage.text import dump_json, storable

_Manifest = TypeVar("_Manifest", bound="VectorsManifest")


class FileEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The size and CRC-32 of a file."""

    bytes: int
    checksum: int


class _Checked(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What all manifests end with: the checksum of the rest, which `save_manifest` fills in."""

    checksum: str = ""


class _Versioned(msgspec.Struct, frozen=True):
    """What is read of a manifest of any format."""

    format: int


class VectorsManifest(_Checked, frozen=True, forbid_unknown_fields=True):
    """What all manifests of vectors begin with."""

    format: int
    encoder: str
    fingerprint: str
    dimension: int

    def check_encoder(self, directory: Path, name: str, fingerprint: str, dimension: int, *, what: str) -> None:
        """Refuse an encoder other than the one that the vectors are of."""
        fingerprint = storable(fingerprint)
        if (self.fingerprint, self.dimension) != (fingerprint, dimension):
            raise StoreError(
                f"{directory} was made with encoder {self.encoder!r} (fingerprint {self.fingerprint[:16]}, dimension "
                f"{self.dimension}), not with {name!r} (fingerprint {fingerprint[:16]}, dimension {dimension}); open it "
                f"with that encoder, or build another {what}"
            )


def load_manifest(
    path: Path, kind: type[_Manifest], *, newest: int, missing: str, remedy: str, unchecked: Sequence[int] = ()
) -> _Manifest:
    """Read a manifest of the format `newest` or one before.

    `missing` is the error where there is none, and those of the formats `unchecked` may lack a checksum.
    """
    try:
        content = read_bounded(path)
        given = decode_json(content, _Versioned, surrogates=True).format
        if given > newest:
            raise StoreError(
                f"{path} has format {given}, of a newer pytrace, and this one knows {newest} at most; update pytrace, or {remedy}"
            )
        manifest = decode_json(content, kind, surrogates=True)
    except (FileNotFoundError, NotADirectoryError):
        raise StoreError(missing) from None
    except OSError as error:
        raise StoreError(f"{path} cannot be read ({error.strerror}); correct the path or its permissions") from None
    except ValueError as error:
        raise StoreError(f"{path} is damaged or of another version ({error}); {remedy}") from None
    if (manifest.checksum or manifest.format not in unchecked) and manifest.checksum != _checksum(manifest):
        raise StoreError(f"{path} is damaged: its checksum is not {manifest.checksum!r}; {remedy}")
    return manifest


def save_manifest(path: Path, manifest: VectorsManifest) -> None:
    """Put a manifest in the place of the one before, in one step, with its checksum."""
    checked = msgspec.structs.replace(manifest, checksum=_checksum(manifest))
    # In ASCII, for paths among it may hold what is no UTF-8.
    replace_file(path, json.dumps(msgspec.to_builtins(checked), indent=2).encode())


def _checksum(manifest: VectorsManifest) -> str:
    content = dump_json(msgspec.to_builtins(msgspec.structs.replace(manifest, checksum=""), order="deterministic"))
    return f"{zlib.crc32(content.encode()):08x}"


@contextmanager
def damage_told(verify: Callable[[], None]) -> Iterator[None]:
    """Where what is done with files fails as it may if they hold other numbers than were written, compare them with their checksums."""
    try:
        yield
    except PytraceError:
        raise
    except (ArithmeticError, IndexError, MemoryError, ValueError):
        verify()
        raise


def write_pieces(path: Path, pieces: Iterable[bytes | memoryview]) -> FileEntry:
    """Write a file and flush it to the disk."""
    size = crc = 0
    with path.open("wb") as stream:
        for piece in pieces:
            stream.write(piece)
            size, crc = size + len(piece), zlib.crc32(piece, crc)
        stream.flush()
        sync(stream.fileno())
    return FileEntry(size, crc)


def int8_rows(vectors: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Return vectors in a quarter of their room, [n, dimension], and a scale for each, by which its largest number becomes 127."""
    scales = np.abs(vectors).max(axis=1, initial=0) / np.float32(127)
    scales[scales == 0] = 1
    return np.rint(vectors / scales[:, None]).astype(np.int8), scales.astype(np.float32)


class MappedFile:
    """The first `size` bytes of a file, mapped for reading; with `grows` more may follow them."""

    def __init__(self, path: Path, size: int, *, what: str, remedy: str, due: str = "", grows: bool = False) -> None:
        self._path = path
        self._size = size
        self._due = due or f"{size:,} are due"
        self._remedy = remedy
        self._grows = grows
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            # Arrays keep the map alive, which needs no descriptor; this one is for checks and for what is copied.
            self.close = weakref.finalize(self, os.close, self._descriptor)
            status = os.fstat(self._descriptor)
            self._check(status.st_size)
            self.inode = status.st_ino
            # Nothing is no map: the system refuses to map an empty file.
            self._map = mmap.mmap(self._descriptor, size, access=mmap.ACCESS_READ) if size else b""
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise StoreError(f"{path} cannot be read ({reason}), and {what} needs it; {remedy}") from None

    def check(self) -> None:
        """Raise StoreError if the file has become shorter: reading what was mapped would kill the process."""
        self._check(os.fstat(self._descriptor).st_size)

    def verify(self, checksum: int, *, most: int | None = None) -> None:
        """Read the file and compare its checksum; with `most` only if it has at most so many bytes."""
        self.check()
        if most is not None and self._size > most:
            return
        check_file(self._path, self._size, checksum, remedy=self._remedy)

    def array(self, dtype: Any, shape: tuple[int, ...], *, offset: int = 0) -> NDArray[Any]:
        """Return a read-only array at an offset; ValueError if it does not fit in."""
        kind = np.dtype(dtype)
        count = int(np.prod(shape, dtype=np.float64))  # a damaged manifest may give more than integers hold
        if min((offset, *shape)) < 0 or offset + count * kind.itemsize > self._size:
            raise ValueError(
                f"an array of shape {list(shape)} at byte {offset:,} where {self._path} has {self._size:,}"
            )
        if not count:
            return np.empty(shape, dtype=kind)
        return np.frombuffer(self._map, dtype=kind, count=count, offset=offset).reshape(shape)

    def read(self, offset: int, size: int) -> bytes:
        """Copy bytes without mapping them; fewer where the file is shorter by now."""
        return os.pread(self._descriptor, size, offset)

    def read_rows(self, numbers: NDArray[np.int64], kind: np.dtype[Any]) -> NDArray[Any]:
        """Copy rows of a type without mapping them; rows that follow each other are read as one."""
        rows = np.empty(len(numbers), dtype=kind)
        size = kind.itemsize
        content = rows.reshape(-1).view(np.uint8).data
        firsts = np.flatnonzero(np.diff(numbers, prepend=-2) != 1)
        starts = (firsts * size).tolist()
        for start, end, row in zip(starts, [*starts[1:], rows.nbytes], numbers[firsts].tolist(), strict=True):
            if os.preadv(self._descriptor, [content[start:end]], row * size) != end - start:
                raise self._wrong(os.fstat(self._descriptor).st_size)
        return rows

    def _check(self, there: int) -> None:
        if there < self._size or (there > self._size and not self._grows):
            raise self._wrong(there)

    def _wrong(self, there: int) -> StoreError:
        reason = "the file was cut off" if there < self._size else "something was added to the file"
        return StoreError(f"{self._path} has {there:,} bytes where {self._due}; {reason}: {self._remedy}")
