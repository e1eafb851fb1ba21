"""A SPARQL endpoint on 127.0.0.1: pyoxigraph behind the SPARQL 1.1 Protocol, and trouble on request."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pyoxigraph as ox

from tests.local_server import LocalServer, served

PATH = "/towns/sparql"
JSON = "application/sparql-results+json"
Trouble = Callable[["Handler", str], bool]


class SparqlServer(LocalServer):
    """The server: `trouble` is asked before each query and may answer it, `seen` keeps queries and headers."""

    def __init__(self, store: ox.Store) -> None:
        super().__init__(Handler)
        self.store = store
        self.seen: list[tuple[str, dict[str, str]]] = []
        self.trouble: Trouble = lambda *_: False

    @property
    def url(self) -> str:
        return super().url + PATH

    @property
    def queries(self) -> list[str]:
        return [query for query, _ in self.seen]


def sparql_server(turtle: str) -> AbstractContextManager[SparqlServer]:
    """Serve some Turtle."""
    store = ox.Store()
    store.load(turtle.encode(), format=ox.RdfFormat.TURTLE)
    return served(SparqlServer(store))


class Handler(BaseHTTPRequestHandler):
    disable_nagle_algorithm = True  # as in `tests/server_double.py`
    protocol_version = "HTTP/1.1"
    server: SparqlServer

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._answer(parse_qs(urlsplit(self.path).query))

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"])).decode()
        form = self.headers["content-type"] == "application/x-www-form-urlencoded"
        self._answer(parse_qs(body) if form else {"query": [body]})

    def _answer(self, fields: dict[str, list[str]]) -> None:
        server = self.server
        query = fields["query"][0]
        with server.lock:
            server.seen.append((query, {name.lower(): value for name, value in self.headers.items()}))
        with server.counted():
            if not server.trouble(self, query):
                self._run(query)

    def _run(self, query: str) -> None:
        if urlsplit(self.path).path != PATH:
            return self.reply(b"Not here", 404, "text/plain")
        try:
            found = self.server.store.query(query)
        except (SyntaxError, ValueError) as error:
            return self.reply(str(error).encode(), 400, "text/plain")
        assert not isinstance(found, ox.QueryTriples)
        return self.reply(found.serialize(format=ox.QueryResultsFormat.JSON) or b"")

    def reply(self, data: bytes, status: int = 200, kind: str = JSON, **headers: str) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(data)

    def cut_off(self) -> None:
        """Promise more than is sent."""
        self.send_response(200)
        self.send_header("content-type", JSON)
        self.send_header("content-length", "1000")
        self.end_headers()
        self.wfile.write(b'{"head": {"vars": ["x"]}, "resu')
        self.close_connection = True


def times(count: int, answer: Callable[[Handler], object]) -> Trouble:
    """Answer the next queries in another way."""
    left = [count]

    def meddle(handler: Handler, _: str) -> bool:
        with handler.server.lock:
            if not left[0]:
                return False
            left[0] -= 1
        answer(handler)
        return True

    return meddle


def hang(seconds: float) -> Callable[[Handler], object]:
    """Say nothing for some time, then that there is nothing."""

    def answer(handler: Handler) -> None:
        time.sleep(seconds)
        handler.reply(b'{"head": {"vars": []}, "results": {"bindings": []}}')

    return answer
