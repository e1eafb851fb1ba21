"""Named arrays in one file that is written once, whole or not at all, and mapped for reading."""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Self

import msgspec
import numpy as np
from numpy.typing import DTypeLike, NDArray

from pytrace.errors import StoreError
from pytrace.storage.closing import Closing
from pytrace.storage.files import atomic_output, flush
from pytrace.storage.mapped_arrays import MappedFile

_MAGIC = b"pytarray"
_FORMAT = 1
# Magic, format, bytes of the JSON that follows, CRC-32 of all three and the JSON.
_PREFIX = struct.Struct("<8sIII")
# A cache line, and the widest vector register: rows that begin there are read at full speed.
_ALIGNMENT = 64
_CHUNK = 1 << 22
_MOST_HEADER = 1 << 20
_MOST_DIMENSIONS = 8
_MOST_BYTES = 1 << 62
_TYPES = frozenset(
    np.dtype(name)
    for name in (
        *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float16", "float32", "float64"),
    )
)
_TYPE_NAMES = frozenset(dtype.name for dtype in _TYPES)


class ArrayFileEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a manifest says of a file of arrays: its size, and its header's CRC-32, which covers those of all arrays."""

    bytes: int
    checksum: int


@dataclass(frozen=True)
class ArrayPieces:
    """An array that is written piece by piece, so that it never has to be in memory as a whole.

    Parameters
    ----------
    dtype
        Its type; pieces are converted to it.
    shape
        Its final shape.
    pieces
        Arrays that follow each other along the first axis; read once, in order.
    """

    dtype: DTypeLike
    shape: tuple[int, ...]
    pieces: Iterable[NDArray[Any]]


class _Array(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An array in the header; where it begins follows from the sizes of those before it."""

    name: str
    dtype: str
    shape: Annotated[tuple[Annotated[int, msgspec.Meta(ge=0, lt=_MOST_BYTES)], ...], msgspec.Meta(max_length=8)]
    # As hexadecimal digits, so that the header's length does not depend on what is only known once all is written.
    crc32: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{8}$")]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * _stored(self.dtype).itemsize


def write_arrays(path: Path, arrays: Mapping[str, NDArray[Any] | ArrayPieces]) -> ArrayFileEntry:
    """Write arrays to one file, which has its name only once all of it is on the disk.

    Parameters
    ----------
    path
        The file. One that is there is replaced in one step, and whoever has it open keeps what was there.
    arrays
        By name: arrays of booleans, integers or floating-point numbers of up to 64 bits (mapped ones are never copied as a
        whole), or their pieces.

    Returns
    -------
    ArrayFileEntry
        The file's size in bytes and its checksum, for `ArrayFile.open`.

    Raises
    ------
    StoreError
        The file cannot be written; nothing is left of it.
    TypeError, ValueError
        An array has a type that is not stored, or its pieces do not make up its shape.
    """
    described = [_describe(name, array) for name, array in arrays.items()]
    with atomic_output(path) as stream:
        at = stream.write(_header(described))
        for number, (array, entry) in enumerate(zip(arrays.values(), described, strict=True)):
            crc = size = 0
            for data in _bytes_of(array, entry):
                stream.write(data)
                size, crc = size + len(data), zlib.crc32(data, crc)
            if size != entry.nbytes:
                raise ValueError(
                    f"array {entry.name!r} of shape {list(entry.shape)} takes {entry.nbytes:,} bytes, and its pieces had "
                    f"{size:,}"
                )
            padding = bytes(-size % _ALIGNMENT)
            at += stream.write(padding) + size
            described[number] = msgspec.structs.replace(entry, crc32=f"{zlib.crc32(padding, crc):08x}")
        header = _header(described)
        stream.seek(0)
        stream.write(header)
    try:
        flush(path.parent)  # so that the new name outlives a power cut
    except OSError as error:
        raise StoreError(
            f"{path} is written, but {path.parent} cannot be flushed to the disk ({error.strerror})"
        ) from None
    return ArrayFileEntry(at, _PREFIX.unpack_from(header)[3])


class ArrayFile(Closing):
    """A file of named arrays, mapped for reading.

    Arrays stay readable after the file is closed, replaced or deleted.
    """

    def __init__(self, path: Path, mapped: MappedFile, header: bytes, arrays: list[_Array], remedy: str) -> None:
        self.path = path
        self._mapped = mapped
        self._header = header
        self._remedy = remedy
        self._arrays: dict[str, tuple[_Array, int]] = {}
        self._views: dict[str, NDArray[Any]] = {}
        offset = len(header)
        for array in arrays:
            self._arrays[array.name] = (array, offset)
            offset += _padded(array.nbytes)

    @classmethod
    def open(cls, path: Path, *, what: str, remedy: str, entry: ArrayFileEntry | None = None) -> Self:
        """Map a file and check its size and header, at a cost that does not grow with its arrays.

        Parameters
        ----------
        path
            The file.
        what
            What needs it, for errors: "the index".
        remedy
            What to do where it is damaged, for errors: "delete the index and build it again".
        entry
            What `write_arrays` returned for it; any other file in its place is refused.

        Raises
        ------
        StoreError
            The file is missing, cannot be read, is damaged, or is another one.
        """
        try:
            size = path.stat().st_size if entry is None else entry.bytes
        except OSError as error:
            raise StoreError(f"{path} cannot be read ({error.strerror}), and {what} needs it; {remedy}") from None
        mapped = MappedFile(path, size, what=what, remedy=remedy)
        try:
            header = _read_header(mapped, size)
            checksum = _PREFIX.unpack_from(header)[3]
            if entry is not None and checksum != entry.checksum:
                raise ValueError(f"its checksum is {checksum:08x} where {entry.checksum:08x} is due")
            arrays = _decode(header, size)
        except (ValueError, RecursionError, OSError) as error:
            mapped.close()
            raise StoreError(f"{path} is damaged or no file of arrays ({error}); {remedy}") from None
        return cls(path, mapped, header, arrays, remedy)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the arrays, in the order in which they were written."""
        return tuple(self._arrays)

    def __getitem__(self, name: str) -> NDArray[Any]:
        """Return an array, mapped and read-only; `StoreError` if there is none of that name."""
        if name in self._views:
            return self._views[name]
        try:
            array, offset = self._arrays[name]
        except KeyError:
            raise StoreError(
                f"{self.path} holds no array {name!r}, only {', '.join(map(repr, self.names)) or 'none at all'}; {self._remedy}"
            ) from None
        view = self._mapped.array(_stored(array.dtype), array.shape, offset=offset)
        view.flags.writeable = False  # that of an empty one is not mapped
        self._views[name] = view
        return view

    def check(self) -> None:
        """Raise `StoreError` if the file has become shorter: reading what was mapped would kill the process."""
        self._mapped.check()

    def verify(self, names: Collection[str] | None = None) -> None:
        """Read the whole file, or the arrays of some names, and raise `StoreError` with the names of those whose bytes have changed."""
        self.check()
        try:
            changed = [] if self._mapped.read(0, len(self._header)) == self._header else ["the header"]
            for array, offset in self._arrays.values():
                if names is not None and array.name not in names:
                    continue
                crc = 0
                for at in range(0, _padded(array.nbytes), _CHUNK):
                    piece = self._mapped.read(offset + at, min(_CHUNK, _padded(array.nbytes) - at))
                    crc = zlib.crc32(piece, crc)
                if f"{crc:08x}" != array.crc32:
                    changed.append(f"array {array.name!r} (checksum {crc:08x} where {array.crc32} is due)")
        except OSError as error:
            raise StoreError(
                f"{self.path} cannot be read ({error.strerror}); check the disk, or {self._remedy}"
            ) from None
        if changed:
            raise StoreError(f"{self.path} is damaged in {', '.join(changed)}; {self._remedy}")

    def close(self) -> None:
        """Close the file; arrays that were taken from it stay readable."""
        self._mapped.close()


def _describe(name: str, array: NDArray[Any] | ArrayPieces) -> _Array:
    dtype = np.dtype(array.dtype)
    if dtype.newbyteorder("=") not in _TYPES:
        raise TypeError(f"array {name!r} holds {dtype}; only booleans and numbers of up to 64 bits are stored")
    shape = tuple(map(int, array.shape))
    if len(shape) > _MOST_DIMENSIONS or min(shape, default=0) < 0:
        raise ValueError(f"array {name!r} has shape {list(shape)}; at most {_MOST_DIMENSIONS} dimensions are stored")
    return _Array(name, dtype.name, shape, f"{0:08x}")


def _stored(dtype: str) -> np.dtype[Any]:
    return np.dtype(dtype).newbyteorder("<")


def _padded(size: int) -> int:
    return size + -size % _ALIGNMENT


def _header(arrays: list[_Array]) -> bytes:
    content = msgspec.json.encode(arrays)
    content += b" " * (-(_PREFIX.size + len(content)) % _ALIGNMENT)
    if len(content) > _MOST_HEADER:
        raise ValueError(
            f"the header of {len(arrays):,} arrays takes {len(content):,} bytes, and {_MOST_HEADER:,} are most"
        )
    prefix = _PREFIX.pack(_MAGIC, _FORMAT, len(content), 0)[:-4]
    return prefix + struct.pack("<I", zlib.crc32(content, zlib.crc32(prefix))) + content


def _bytes_of(array: NDArray[Any] | ArrayPieces, entry: _Array) -> Iterator[memoryview]:
    dtype = _stored(entry.dtype)
    for piece in array.pieces if isinstance(array, ArrayPieces) else (array,):
        if piece.shape[1:] != entry.shape[1:]:
            raise ValueError(f"array {entry.name!r} of shape {list(entry.shape)} has a piece of {list(piece.shape)}")
        if not piece.size:
            continue
        rows = piece if piece.ndim else piece.reshape(1)
        # Some rows at a time: what is mapped or of another layout is not copied as a whole.
        step = max(1, _CHUNK * len(rows) // max(1, rows.size * dtype.itemsize))
        for start in range(0, len(rows), step):
            block = np.ascontiguousarray(rows[start : start + step], dtype=dtype)
            yield block.reshape(-1).view(np.uint8).data


def _read_header(mapped: MappedFile, size: int) -> bytes:
    prefix = mapped.read(0, _PREFIX.size)
    if len(prefix) < _PREFIX.size or not prefix.startswith(_MAGIC):
        raise ValueError(f"it has {size:,} bytes and does not begin as one")
    _, version, length, due = _PREFIX.unpack(prefix)
    if version != _FORMAT:
        raise ValueError(f"format {version} where {_FORMAT} is known")
    if length > min(_MOST_HEADER, size - len(prefix)):
        raise ValueError(f"a header of {length:,} bytes in a file of {size:,}")
    content = mapped.read(len(prefix), length)
    crc = zlib.crc32(content, zlib.crc32(prefix[:-4]))
    if len(content) < length or crc != due:
        raise ValueError(f"its header has checksum {crc:08x} where {due:08x} is due")
    return prefix + content


def _decode(header: bytes, size: int) -> list[_Array]:
    arrays = msgspec.json.decode(header[_PREFIX.size :], type=list[_Array])
    end = len(header)
    for array in arrays:
        if array.dtype not in _TYPE_NAMES:
            raise ValueError(f"array {array.name!r} is of type {array.dtype!r}, which is none that is stored")
        # Not only its bytes: NumPy refuses even an empty array whose other dimensions are too large.
        if math.prod(max(1, length) for length in array.shape) * 8 > _MOST_BYTES:
            raise ValueError(f"array {array.name!r} has shape {list(array.shape)}")
        end += _padded(array.nbytes)
    if len({array.name for array in arrays}) < len(arrays):
        raise ValueError("two arrays of one name")
    if end != size or len(header) % _ALIGNMENT:
        raise ValueError(f"its header tells of {end:,} bytes where it has {size:,}")
    return arrays
