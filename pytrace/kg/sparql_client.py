"""Queries to one endpoint: many at once, each only if nobody asked it before, in this process or in an earlier run."""

from __future__ import annotations

import hashlib
import os
import sqlite3
import threading
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pytrace import __version__
from pytrace.errors import InputError, ServerError, StoreError
from pytrace.kg.endpoint_queries import MEDIA_TYPE, Row, read_rows
from pytrace.models.servers.http_client import HttpClient
from pytrace.storage import sqlite

# An answer of 1,000 solutions with 20 IRIs each takes 2 MB.
_LARGEST_ANSWER = 64 << 20
# Each query brings its own limit, so that no other may end it.
_LONGEST_WAIT = 31_536_000.0
# What is remembered of answers within this process.
_REMEMBERED = 64 << 20


class SparqlClient:
    """Asks one endpoint, and remembers what it said."""

    # SPARQL 1.1 Protocol (W3C, 2013), section 2.1.2: query via POST with URL-encoded parameters.

    def __init__(
        self,
        url: str,
        *,
        user_agent: str | None = None,
        cache_directory: str | os.PathLike[str] | None = None,
        concurrency: int = 4,
    ) -> None:
        self._http = HttpClient(
            url,
            concurrency=concurrency,
            read_timeout=_LONGEST_WAIT,
            user_agent=_user_agent(user_agent),
            kind="SPARQL endpoint",
            largest_answer=_LARGEST_ANSWER,
        )
        self.name = self._http.origin + self._http.parts.path
        self._lock = threading.Lock()
        self._remembered: dict[str, bytes] = {}
        self._remembered_bytes = 0
        self._cache: AnswerCache | None = None
        if cache_directory is not None:
            try:
                self._cache = AnswerCache(cache_directory)
            except StoreError:
                self._http.close()
                raise

    @property
    def requests(self) -> int:
        """How often the server was asked."""
        return self._http.requests

    def close(self) -> None:
        """Close the connections and the cache; any later call fails."""
        self._http.close()
        if self._cache is not None:
            self._cache.close()

    def rows(self, queries: Sequence[str], seconds: float) -> list[list[Row] | Exception]:
        """Return the solutions of SELECT queries."""
        answers: dict[str, list[Row] | Exception] = {}
        missing = []
        for query in dict.fromkeys(queries):
            data = self._known(query)
            if data is None:
                missing.append(query)
            else:
                answers[query] = read_rows(data, self.name)

        async def fetch(index: int) -> bytes | Exception:
            try:
                return await self._http.post_form({"query": missing[index]}, accept=MEDIA_TYPE, seconds=seconds)
            except (ServerError, TimeoutError) as error:
                return error

        for index, answer in self._http.each(fetch, len(missing)):
            query = missing[index]
            if isinstance(answer, Exception):
                answers[query] = answer
                continue
            try:
                answers[query] = read_rows(answer, self.name)
            except ServerError as error:
                answers[query] = error
                continue
            self._keep(query, answer)
        return [answers[query] for query in queries]

    def _known(self, query: str) -> bytes | None:
        with self._lock:
            data = self._remembered.get(query)
        if data is None and self._cache is not None:
            data = self._cache.get([self.name, query])
        return data

    def _keep(self, query: str, answer: bytes) -> None:
        if self._cache is not None:
            self._cache.put([self.name, query], answer)
        with self._lock:
            self._remembered_bytes += len(answer) - len(self._remembered.pop(query, b""))
            self._remembered[query] = answer
            while self._remembered_bytes > _REMEMBERED:
                self._remembered_bytes -= len(self._remembered.pop(next(iter(self._remembered))))


def _user_agent(user: str | None) -> str:
    """Return what a server is told of who asks."""
    if user is None:
        return f"pytrace/{__version__}"
    if not user.strip() or not user.isascii() or not user.isprintable():
        raise InputError(
            f"the user agent {user[:80]!a} is not some printable ASCII; give an address, such as you@example.org"
        )
    return f"pytrace/{__version__} ({user.strip()})"


_NAME = "answers.sqlite"
_VERSION = 1
_TABLE = "CREATE TABLE IF NOT EXISTS answers (key BLOB PRIMARY KEY, content BLOB NOT NULL, checksum BLOB NOT NULL) WITHOUT ROWID"
# How long another process may write before this one gives up.
_PATIENCE = 30.0
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
            self._connection = sqlite3.connect(
                self._path, timeout=_PATIENCE, isolation_level=None, check_same_thread=False
            )
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

    def get(self, asked: Sequence[str]) -> bytes | None:
        """Return the answer to what was asked, or None if it is not there."""
        key = _key(asked)
        with self._lock, self._errors():
            row = self._connection.execute("SELECT content, checksum FROM answers WHERE key = ?", (key,)).fetchone()
        if row is None:
            return None
        content, checksum = row
        if _checksum(key, content) != checksum:
            raise StoreError(self._damaged("an answer does not fit its checksum"))
        return zlib.decompress(content)

    def put(self, asked: Sequence[str], answer: bytes) -> None:
        """Keep an answer."""
        key, content = _key(asked), zlib.compress(answer, 1)
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


def _key(asked: Sequence[str]) -> bytes:
    digest = hashlib.sha256()
    for part in asked:
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.digest()


def _checksum(key: bytes, content: object) -> bytes:
    # A file in which someone wrote another type is as damaged as one with another byte.
    return hashlib.blake2b(content if isinstance(content, bytes) else b"", digest_size=16, key=key).digest()
