"""Queries to one endpoint: many at once, each only if nobody asked it before."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence

from pytrace import __version__
from pytrace.errors import InputError, ServerError, StoreError
from pytrace.kg.answer_cache import AnswerCache
from pytrace.kg.endpoint_answers import MEDIA_TYPE, Row, read_rows
from pytrace.models.servers.http_client import HttpClient

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
