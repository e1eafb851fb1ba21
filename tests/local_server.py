"""What the servers of tests have in common: a free port of 127.0.0.1, a thread, and a count of those who ask at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeVar

_Server = TypeVar("_Server", bound="LocalServer")


class LocalServer(ThreadingHTTPServer):
    """A server for one test; `busiest` is the most requests that were under way together."""

    daemon_threads = True

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self.lock = threading.Lock()
        self.busy = self.busiest = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count a request as long as it is under way."""
        with self.lock:
            self.busy += 1
            self.busiest = max(self.busiest, self.busy)
        try:
            yield
        finally:
            with self.lock:
                self.busy -= 1

    def handle_error(self, *_: Any) -> None:
        """Keep quiet: clients that go away in the middle belong to the tests."""


@contextmanager
def served(server: _Server) -> Iterator[_Server]:
    """Let a server answer until the end of the block."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
