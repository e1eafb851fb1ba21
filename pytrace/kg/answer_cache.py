"""A server's answers on disk, so that a run that is repeated asks for nothing again."""

from __future__ import annotations

import hashlib
import os
import sqlite3
import threading
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pytrace.errors import StoreError
from pytrace.storage import sqlite

_NAME = "answers.sqlite"
_VERSION = 1
_TABLE = "CREATE TABLE answers (key BLOB PRIMARY KEY, content BLOB NOT NULL, checksum BLOB NOT NULL) WITHOUT ROWID"
_REMEDY = "delete it, and what it held is asked for again"


class AnswerCache:
    """Answers by what was asked, in a directory that several processes may share.

    An answer is there as a whole or not at all, whenever a process was killed. One that has changed since it was written is
    told of and not given.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._path = Path(directory) / _NAME
        self._lock = threading.Lock()
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(
                f"the cache's directory {directory} cannot be made ({error.strerror}); name another"
            ) from error
        with self._errors():
            self._connection = sqlite.connect(str(self._path), isolation_level=None, check_same_thread=False)
        try:
            with self._errors():
                self._prepare()
        except StoreError:
            self._connection.close()
            raise

    def _prepare(self) -> None:
        [page] = self._connection.execute("PRAGMA page_size").fetchone()
        if (size := self._path.stat().st_size) % page:  # SQLite takes what lies behind the last whole page for empty
            raise StoreError(self._damaged(f"it ends in the middle, after {size:,} bytes"))
        sqlite.prepare(
            self._connection,
            _TABLE,
            version=_VERSION,
            foreign=f"the cache {self._path} is not of version {_VERSION}; delete it, or name another",
        )
        # What a power cut takes is asked for again, so nothing waits for the disk.
        self._connection.execute("PRAGMA synchronous = NORMAL")

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

    def get(self, request: Sequence[str]) -> bytes | None:
        """Return the answer to what was asked, or None if it is not there."""
        key = _key(request)
        with self._lock, self._errors():
            row = self._connection.execute("SELECT content, checksum FROM answers WHERE key = ?", (key,)).fetchone()
        if row is None:
            return None
        content, checksum = row
        if _checksum(key, content) != checksum:
            raise StoreError(self._damaged("an answer does not fit its checksum"))
        return zlib.decompress(content)

    def put(self, request: Sequence[str], answer: bytes) -> None:
        """Keep an answer."""
        key, content = _key(request), zlib.compress(answer, 1)
        with self._lock, self._errors():
            self._connection.execute(
                "INSERT OR REPLACE INTO answers VALUES (?, ?, ?)", (key, content, _checksum(key, content))
            )

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            with sqlite.translated(f"the cache {self._path}", "cache of answers", _REMEDY):
                yield
        except StoreError as error:
            if isinstance(error.__cause__, sqlite3.ProgrammingError):
                raise StoreError(f"the cache {self._path} is closed; open it anew") from error
            raise

    def _damaged(self, reason: str) -> str:
        return f"the cache {self._path} is damaged ({reason}); {_REMEDY}"


def _key(request: Sequence[str]) -> bytes:
    digest = hashlib.sha256()
    for part in request:
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.digest()


def _checksum(key: bytes, content: object) -> bytes:
    # A file in which someone wrote another type is as damaged as one with another byte.
    return hashlib.blake2b(content if isinstance(content, bytes) else b"", digest_size=16, key=key).digest()
