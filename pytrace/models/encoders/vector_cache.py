"""Vectors of texts met before, on disk: found by key, read through a memory map, appended to and never changed.

Each model has two files in the cache's directory, named after its fingerprint. ``NAME.vectors`` is nothing but float32
rows, so that it can be mapped as it is. ``NAME.keys`` is a header and 32 bytes for each row: the text's key, a checksum of
the row, and a checksum of the entry that also depends on the model and on the row's number.

A row counts once its entry is there and both checksums hold, and rows are written before their entries. So a process
that is killed, a full disk or a power cut leaves at worst a tail without valid entries, which no reader takes for vectors
and which the next writer cuts off; a row that went bad later reads as absent, and is encoded and appended again. Nothing
is flushed to the disk on purpose: what a power cut takes is encoded again.

A writer holds a lock for one append. A process that finds it taken goes without writing: its vectors are lost to the
cache, not to the caller. Readers take no lock, and see what other processes append. Files may be deleted at any time.

Why not a library: in SQLite or LMDB a row cannot be mapped as an array of vectors (LMDB splits 4 KiB pages and gives half
of them away at 384 dimensions), both want to write a lock or a log beside a file that is only read, neither notices by
itself that bytes of a value have changed, and a truncated LMDB file kills whoever reads it. Appending fixed-size rows that
can be made anew at any time needs neither transactions nor a tree.
"""

from __future__ import annotations

import errno
import hashlib
import os
import threading
import warnings
import zlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytrace.errors import StoreError
from pytrace.storage.locks import locked
from pytrace.storage.mapped_arrays import MappedFile

KEY_BYTES = 16
_MAGIC = b"pytrace vectors 1\n"
_HEADER_BYTES = 64
_ENTRY = np.dtype([("key", "<u8", 2), ("crc", "<u8"), ("check", "<u8")])
# Odd, so that multiplication loses nothing: an entry with any one field changed never passes for a valid one.
_MIX = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93], dtype=np.uint64)
# Entries that came since the index was last sorted; sorting anew at a quarter of its size keeps the cost linear.
_RECENT = 4096

Vectors = NDArray[np.float32]


class VectorCache:
    """One model's vectors in a directory that several processes may share."""

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        fingerprint: str,
        dimension: int,
        max_bytes: int = 4 << 30,
    ) -> None:
        self.directory = Path(directory)
        self._dimension = dimension
        self._max_bytes = max_bytes
        self._row_bytes = 4 * dimension
        identity = hashlib.sha256(_MAGIC + f"{dimension} {fingerprint}".encode()).digest()
        self._header = _MAGIC + identity  # and 14 random bytes, which tell a file from the one that it replaced
        self._salt = np.frombuffer(identity, dtype="<u8", count=1)
        name = self.directory / identity.hex()[:32]
        self._keys_path, self._vectors_path, self._lock_path = map(name.with_suffix, (".keys", ".vectors", ".lock"))
        self._lock = threading.Lock()
        self._warned: set[str] = set()
        self._forget()
        self.writable = self._prepare()
        """Whether this process may write: the directory lets it, and no write has failed."""
        with self._lock:
            self._refresh()

    def __len__(self) -> int:
        """Count the rows that can be read."""
        with self._lock:
            self._refresh()
            return len(self._sorted) + len(self._recent)

    def get(self, keys: Sequence[bytes]) -> tuple[NDArray[np.bool_], Vectors]:
        """Look keys up."""
        with self._lock:
            known, vectors = self._read(keys)
            # A row that does not match may be that of a file which replaced the one known here.
            if not known.all() and self._refresh():
                known, vectors = self._read(keys)
            return known, vectors

    def put(self, keys: Sequence[bytes], vectors: Vectors) -> bool:
        """Append rows for keys that are not there yet."""
        vectors = np.ascontiguousarray(vectors, dtype="<f4")
        if vectors.shape != (len(keys), self._dimension) or any(len(key) != KEY_BYTES for key in keys):
            raise ValueError(
                f"{len(keys)} keys of {KEY_BYTES} bytes want vectors [{len(keys)}, {self._dimension}], "
                f"not {list(vectors.shape)}"
            )
        with self._lock:
            if not self.writable:
                return False
            try:
                with locked(self._lock_path, None) as free:
                    return free and self._append(keys, vectors)
            except OSError as error:
                self.writable = False
                self._warn(
                    f"the vector cache {self.directory} cannot be written ({error.strerror}); vectors are no longer kept "
                    "there; free some room or correct its permissions"
                )
                return False

    def clear(self) -> None:
        """Forget all vectors of this model, in this process and in all others."""
        with self._lock:
            try:
                with locked(self._lock_path, lambda: None):
                    # The entries first: rows without entries are nothing.
                    self._keys_path.unlink(missing_ok=True)
                    self._vectors_path.unlink(missing_ok=True)
            except OSError as error:
                raise StoreError(
                    f"the vector cache {self.directory} cannot be cleared ({error.strerror}); correct its permissions"
                ) from error
            self._forget()
            self._warned.clear()

    def _prepare(self) -> bool:
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(
                f"the vector cache {self.directory} cannot be made ({error.strerror}); name another directory"
            ) from error
        try:
            with self._lock_path.open("ab"):
                pass
            writable = True
        except OSError as error:
            if not self._keys_path.exists():
                raise StoreError(
                    f"the vector cache {self.directory} cannot be written ({error.strerror}) and holds no vectors of this "
                    "model; name a directory that can"
                ) from error
            writable = False
        for path in (self._keys_path, self._vectors_path):
            try:
                with path.open("rb"):
                    pass
            except FileNotFoundError:
                pass
            except OSError as error:
                raise StoreError(
                    f"the vector cache {path} cannot be read ({error.strerror}); name another directory"
                ) from error
        return writable

    def _forget(self) -> None:
        self._file = b""  # the header of the file of keys, empty where there is none of this format and model
        self._rows = 0  # rows up to the last valid entry
        self._map: Vectors = np.empty((0, self._dimension), dtype=np.float32)
        self._map_file: int | None = None
        self._sorted = np.empty(0, dtype=[("key", "<u8", 2), ("crc", "<u8"), ("row", "<i8")])
        self._first_words = np.empty(0, dtype=np.uint64)  # of the sorted keys
        self._recent: dict[bytes, tuple[int, int]] = {}

    def _refresh(self) -> bool:
        """Take in what was appended since, or all of a file that replaced the one known; returns whether there was any."""
        try:
            with self._keys_path.open("rb") as stream:
                size, header = os.fstat(stream.fileno()).st_size, stream.read(_HEADER_BYTES)
                if header != self._file or size < self._end(self._rows):
                    self._forget()
                if len(header) < _HEADER_BYTES or not header.startswith(self._header):
                    return False
                self._file = header
                stream.seek(self._end(self._rows))
                data = stream.read()
        except OSError:  # cleared by another process, or made unreadable: either way there is nothing to read
            self._forget()
            return False
        entries = np.frombuffer(data, dtype=_ENTRY, count=len(data) // _ENTRY.itemsize)
        numbers = np.arange(self._rows, self._rows + len(entries))
        valid = self._checks(entries, numbers) == entries["check"]
        # Entries after the last valid one may be half written: they are looked at again, or cut off by a writer.
        if not valid.any():
            return False
        self._rows = int(numbers[valid][-1]) + 1
        self._add(entries[valid], numbers[valid])
        return True

    def _add(self, entries: NDArray[Any], numbers: NDArray[np.int64]) -> None:
        if len(entries) + len(self._recent) <= max(_RECENT, len(self._sorted) // 4):
            keys = np.ascontiguousarray(entries["key"]).tobytes()
            for index, (number, crc) in enumerate(zip(numbers.tolist(), entries["crc"].tolist(), strict=True)):
                self._recent[keys[index * KEY_BYTES : (index + 1) * KEY_BYTES]] = (number, crc)
            return
        fresh = np.empty(len(self._recent) + len(entries), dtype=self._sorted.dtype)
        recent = len(self._recent)
        fresh["key"][:recent] = _words(list(self._recent))
        fresh["row"][:recent] = [number for number, _ in self._recent.values()]
        fresh["crc"][:recent] = [crc for _, crc in self._recent.values()]
        fresh["key"][recent:], fresh["row"][recent:], fresh["crc"][recent:] = entries["key"], numbers, entries["crc"]
        together = np.concatenate([self._sorted, fresh])
        # Stable, so that of two rows for a key (the first went bad) the later one comes last.
        self._sorted = together[np.argsort(together["key"][:, 0], kind="stable")]
        self._first_words = np.ascontiguousarray(self._sorted["key"][:, 0])
        self._recent = {}

    def _find(self, keys: Sequence[bytes]) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
        """Return the row and checksum of each key, and row -1 for one that is not there."""
        words = _words(keys)
        rows = np.full(len(keys), -1, dtype=np.int64)
        sums = np.zeros(len(keys), dtype=np.uint64)
        if len(self._sorted):
            positions = np.searchsorted(self._first_words, words[:, 0], side="right") - 1
            there = (self._sorted["key"][positions] == words).all(axis=1)
            rows[there], sums[there] = self._sorted["row"][positions[there]], self._sorted["crc"][positions[there]]
        if self._recent:
            for index, key in enumerate(keys):
                if (entry := self._recent.get(key)) is not None:
                    rows[index], sums[index] = entry
        return rows, sums

    def _read(self, keys: Sequence[bytes]) -> tuple[NDArray[np.bool_], Vectors]:
        rows, sums = self._find(keys)
        mapped = self._mapped(int(rows.max(initial=-1)) + 1)
        known = (rows >= 0) & (rows < len(mapped))
        vectors = mapped[rows[known]]
        # About a microsecond for a row of 384.
        good = np.array([zlib.crc32(row) for row in vectors], dtype=np.uint64) == sums[known]
        known[known] = good
        return known, vectors[good]

    def _mapped(self, rows: int) -> Vectors:
        """Return the rows on disk, mapped; fewer than asked for where the file is shorter."""
        try:
            status = self._vectors_path.stat()
        except OSError:
            return self._map[:0]
        # A map of another file is as good as none, and touching one beyond its file's end would kill the process.
        if status.st_ino != self._map_file or status.st_size < self._map.nbytes or rows > len(self._map):
            self._map, self._map_file = self._map[:0], None
            count = status.st_size // self._row_bytes
            with suppress(StoreError):  # deleted, or shorter by now
                file = MappedFile(
                    self._vectors_path, count * self._row_bytes, what="the vector cache", remedy="clear it", grows=True
                )
                self._map, self._map_file = file.array("<f4", (count, self._dimension)), file.inode
        return self._map

    def _append(self, keys: Sequence[bytes], vectors: Vectors) -> bool:
        self._refresh()
        index_of = {key: index for index, key in enumerate(keys)}
        rows, sums = self._find(list(index_of))
        mapped = self._mapped(int(rows.max(initial=-1)) + 1)
        chosen = [
            index
            for index, row, crc in zip(index_of.values(), rows.tolist(), sums.tolist(), strict=True)
            # Also where the row there went bad: the later one counts.
            if not 0 <= row < len(mapped) or zlib.crc32(mapped[row]) != crc
        ]
        room = self._max_bytes // self._row_bytes - self._rows
        if len(chosen) > room:
            self._warn(
                f"the vector cache {self.directory} is full ({self._rows:,} vectors of {self._row_bytes:,} bytes, limit "
                f"{self._max_bytes:,} bytes); new ones are not kept; delete its files to start anew"
            )
            return False
        if chosen:
            self._write(vectors[chosen], _words([keys[index] for index in chosen]))
        return True

    def _write(self, vectors: Vectors, keys: NDArray[np.uint64]) -> None:
        numbers = np.arange(self._rows, self._rows + len(vectors))
        entries = np.zeros(len(vectors), dtype=_ENTRY)
        entries["key"] = keys
        entries["crc"] = [zlib.crc32(row) for row in vectors]
        entries["check"] = self._checks(entries, numbers)
        begin = not self._file
        if begin:
            self._keys_path.unlink(missing_ok=True)
            self._vectors_path.unlink(missing_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        vectors_file = os.open(self._vectors_path, flags, 0o666)
        try:
            _write_all(vectors_file, vectors.tobytes(), self._rows * self._row_bytes)
        finally:
            os.close(vectors_file)
        keys_file = os.open(self._keys_path, flags, 0o666)
        try:
            # What a killed writer left behind the last valid entry.
            os.ftruncate(keys_file, 0 if begin else self._end(self._rows))
            header = self._header + os.urandom(_HEADER_BYTES - len(self._header)) if begin else self._file
            _write_all(keys_file, header, 0)
            try:
                _write_all(keys_file, entries.tobytes(), self._end(self._rows))
            except OSError:
                os.ftruncate(keys_file, self._end(self._rows))
                raise
        finally:
            os.close(keys_file)
        self._file = header
        self._rows += len(vectors)
        self._add(entries, numbers)

    def _checks(self, entries: NDArray[Any], numbers: NDArray[np.int64]) -> NDArray[np.uint64]:
        key = entries["key"] * _MIX[:2]
        mixed = self._salt ^ key[:, 0] ^ key[:, 1] ^ (entries["crc"] * _MIX[2])
        checks: NDArray[np.uint64] = mixed ^ ((numbers.astype(np.uint64) + np.uint64(1)) * _MIX[3])
        return checks

    @staticmethod
    def _end(rows: int) -> int:
        return _HEADER_BYTES + rows * _ENTRY.itemsize

    def _warn(self, message: str) -> None:
        kind = message.partition(" (")[0]
        if kind not in self._warned:
            self._warned.add(kind)
            warnings.warn(message, RuntimeWarning, stacklevel=4)


def _words(keys: Sequence[bytes]) -> NDArray[np.uint64]:
    return np.frombuffer(b"".join(keys), dtype="<u8").reshape(len(keys), 2)


def _write_all(file: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(file, view, offset)
        if written == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        view, offset = view[written:], offset + written
