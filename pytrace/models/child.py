"""Runs a function in a process of its own, because a crash in native code ends the process and cannot be caught."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from pytrace import processes

_T = TypeVar("_T")
_START = (
    "import sys; sys.path[:] = sys.argv[5:]; from pytrace import processes; processes.end_with(int(sys.argv[4])); "
    "from pytrace.models.child import _serve; _serve(*sys.argv[1:4])"
)

# Signals by which others end a process: Ctrl-C reaches the child too, and a machine without memory kills whom it likes.
_FROM_OUTSIDE = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)


class ChildFailedError(Exception):
    """A child gave no result; `crashed` if native code ended it, which would have ended this process too."""

    def __init__(self, message: str, *, crashed: bool) -> None:
        super().__init__(message)
        self.crashed = crashed


def run(
    function: Callable[..., _T],
    /,
    *arguments: Any,
    returns: type[_T],
    timeout: float,
    processor_seconds: float | None = None,
    memory: int | None = None,
    environment: Mapping[str, str] | None = None,
) -> _T:
    """Call a function of a module in a fresh Python process and return what it returns.

    `memory` bounds the address space in bytes, beyond what Python and the function's module take; `environment` is added to
    this process's own.
    """
    # Not by msgspec, which refuses the names of files that are no UTF-8.
    call = json.dumps([processor_seconds, memory, msgspec.to_builtins(arguments)])
    try:
        with tempfile.TemporaryFile() as result:
            names, descriptors = (function.__module__, function.__qualname__), (result.fileno(), processes.lifeline())
            command = [sys.executable, "-c", _START, *names, *map(str, descriptors), *sys.path]
            done = subprocess.run(
                command, input=call, capture_output=True, text=True, errors="replace", pass_fds=descriptors,
                timeout=timeout, check=False, env={**os.environ, **(environment or {})},
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
            crashed=-done.returncode not in _FROM_OUTSIDE,
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
    seconds, memory, arguments = json.load(sys.stdin)
    if seconds is not None:
        _, hard = resource.getrlimit(resource.RLIMIT_CPU)
        resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), hard))  # the signal of the soft limit says why
    if memory is not None:
        processes.limit_memory(memory)
    result = function(*arguments)
    with os.fdopen(int(writer), "wb") as stream:
        stream.write(msgspec.json.encode(result))
