"""Runs a function in a process of its own, because a crash in native code ends the process and cannot be caught."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from pytrace import processes

_T = TypeVar("_T")
_START = (
    "import sys; sys.path[:] = sys.argv[5:]; from pytrace import processes; processes.end_with(int(sys.argv[4])); "
    "from pytrace.models.llama.child import _serve; _serve(*sys.argv[1:4])"
)


class ChildFailedError(Exception):
    """A child gave no result; `crashed` if native code ended it, which would have ended this process too."""

    def __init__(self, message: str, *, crashed: bool) -> None:
        super().__init__(message)
        self.crashed = crashed


def run(function: Callable[..., _T], /, *arguments: Any, returns: type[_T], timeout: float) -> _T:
    """Call a function of a module in a fresh Python process and return what it returns."""
    call = msgspec.json.encode(arguments).decode()
    try:
        with tempfile.TemporaryFile() as result:
            names, descriptors = (function.__module__, function.__qualname__), (result.fileno(), processes.lifeline())
            command = [sys.executable, "-c", _START, *names, *map(str, descriptors), *sys.path]
            done = subprocess.run(
                command, input=call, capture_output=True, text=True, errors="replace", pass_fds=descriptors,
                timeout=timeout, check=False,
            )  # fmt: skip
            result.seek(0)
            answer = result.read()
    except subprocess.TimeoutExpired as error:
        raise ChildFailedError(f"took more than {timeout:g} s", crashed=False) from error
    except OSError as error:
        raise ChildFailedError(f"no process could be started ({error.strerror})", crashed=False) from error
    if done.returncode == 0:
        return msgspec.json.decode(answer, type=returns)
    if done.returncode < 0:
        raise ChildFailedError(
            f"was ended by signal {-done.returncode} ({signal.strsignal(-done.returncode)})",
            crashed=-done.returncode != signal.SIGINT,  # Ctrl-C reaches the child too, and is no crash
        )
    # Python ends a traceback with the exception itself.
    lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
    raise ChildFailedError(lines[-1], crashed=False)


def _serve(module: str, name: str, writer: str) -> None:
    """Be the child: what the function, or native code below it, prints must not mix with the result."""
    import importlib
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    function = getattr(importlib.import_module(module), name)
    result = function(*msgspec.json.decode(sys.stdin.buffer.read()))
    with os.fdopen(int(writer), "wb") as stream:
        stream.write(msgspec.json.encode(result))
