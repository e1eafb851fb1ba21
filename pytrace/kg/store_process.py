"""The caller's end of the process that holds a store: starts it, asks it, and starts it anew when it was ended."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from pytrace.errors import DataError, InputError, StoreError
from pytrace.kg.query_process import FAILURE, PIECE, Link

_START = "import sys; sys.path[:] = sys.argv[2:]; from pytrace.kg.query_process import serve; serve(int(sys.argv[1]))"
# NumPy's linear algebra would start threads, and a process with threads must not fork.
_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
# A process that was told to end does so at once; one that does not is ended.
_PATIENCE = 2.0


class ProcessEndedError(StoreError):
    """The process that holds a store ended while it was asked; the next call starts another."""


class StoreProcess:
    """A process of its own that holds a store."""

    def __init__(self, path: str | os.PathLike[str], *, format: str | None = None) -> None:
        self._path = Path(path)
        self._format = format
        self._lock = threading.Lock()
        self._closed = False
        self._running: _Running | None = None
        with self._lock:
            self.fingerprint, self.triples = self._start()

    def close(self) -> None:
        """End the process; any later call fails."""
        self._closed = True
        self._stop()

    def ask(self, verb: str, *arguments: Any, on_piece: Callable[[Any], object] = lambda _: None) -> Any:
        """Send a request and return its result; one caller at a time."""
        with self._lock:
            if self._closed:
                raise StoreError(f"the knowledge base {self._path} is closed; open it anew")
            if self._running is None and self._start()[0] != self.fingerprint:
                self._stop()
                raise StoreError(f"{self._path} was changed while it was open; open it anew")
            return self._exchange((verb, *arguments), on_piece)

    def _start(self) -> tuple[str, int]:
        ours, theirs = socket.socketpair()
        said = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the process
        command = [sys.executable, "-c", _START, str(theirs.fileno()), *sys.path]
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=said, pass_fds=[theirs.fileno()],
                env={**os.environ, **_ENVIRONMENT}, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            ours.close()
            said.close()
            raise StoreError(
                f"no process for the knowledge base {self._path} can be started ({error.strerror}); free some memory"
            ) from error
        finally:
            theirs.close()
        self._running = _Running(process, ours, said)
        fingerprint, triples = self._exchange(("load", str(self._path), self._format), lambda _: None)
        return fingerprint, triples

    def _exchange(self, request: tuple[Any, ...], on_piece: Callable[[Any], object]) -> Any:
        running = self._running
        assert running is not None
        try:
            running.link.send(request)
            while True:
                kind, *content = running.link.receive()
                if kind == PIECE:
                    on_piece(content[0])
                elif kind == FAILURE:
                    raise _error(*content)
                else:
                    return content[0]
        except (EOFError, ConnectionError) as error:
            self._running = None
            raise ProcessEndedError(
                f"the process that holds {self._path} ended ({running.end()}); see whether the memory suffices"
            ) from error
        except BaseException:
            # Whoever waited is interrupted: what the process still sends would be taken for the next answer.
            self._stop()
            raise

    def _stop(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            running.end()


class _Running:
    """A process with its socket and what it says; it is ended with the object, or with this process."""

    def __init__(self, process: subprocess.Popen[bytes], connection: socket.socket, said: IO[bytes]) -> None:
        self.link = Link(connection)
        self.end = weakref.finalize(self, _end, process, connection, said)


def _end(process: subprocess.Popen[bytes], connection: socket.socket, said: IO[bytes]) -> str:
    """End a process and return how it ended, in words."""
    connection.close()
    try:
        process.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    with contextlib.closing(said):
        said.seek(0)
        lines = said.read()[-2_000:].decode("utf-8", "replace").strip().splitlines()
    if process.returncode < 0:
        return f"signal {-process.returncode}, {signal.strsignal(-process.returncode)}"
    return lines[-1] if lines else f"exit status {process.returncode}"


def _error(kind: str, message: str, path: str | None, line: int | None) -> Exception:
    if path is not None:
        error = DataError(message)
        error.path, error.line = Path(path), line
        return error
    return InputError(message) if kind == "input" else StoreError(message)
