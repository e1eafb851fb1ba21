"""How processes end: this one within half a second of a signal, and those that it started no later than it does."""

from __future__ import annotations

import functools
import os
import resource
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import NoReturn

from pytrace.errors import InputError

# Of the half second, what is left to the orderly way: `finally` clauses, in Python, between native calls.
_ORDERLY = 0.35
_WORDS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}

_received: list[int] = []


def received() -> int:
    """Return the signal that is ending this process, or 0."""
    return _received[0] if _received else 0


def take_stream_numbers() -> None:
    """Open what there is of 0 to 2 that is closed, or the next file or pipe would be taken for a standard stream."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # which gets the lowest number that is free


def end_at_once_on_signals() -> None:
    """Let SIGINT and SIGTERM end this process where it stands, which has begun nothing yet."""
    for number in _WORDS:
        # What a shell or `nohup` told us to ignore stays ignored.
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _end_at_once)


def unwind_on_signals() -> None:
    """Let SIGINT and SIGTERM raise `SystemExit` in the main thread, and end the process natively where that takes too long."""
    from pytrace import _core

    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    _core.end_on_signals(reader, _ORDERLY)
    for number in _WORDS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _unwind)


def leave(status: int) -> NoReturn:
    """End this process: with its status, or by the signal that it received."""
    from pytrace import _core

    if number := received():
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):
                stream.flush()
        _core.end_now(number)
    for number in _WORDS:
        if signal.getsignal(number) != signal.SIG_IGN:
            # All is done. Python would run no handler any more while it takes itself apart, or print a traceback of it.
            signal.signal(number, signal.SIG_DFL)
            _core.end_quietly_on_signal(number)
    try:
        sys.stderr.flush()
    except OSError:
        # Nobody hears what is left in it, and Python, which tries once more at exit, would end with a status of its own.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    sys.exit(status)


def last_words(words: str) -> None:
    """Have a signal that ends this process say, too, what is stored and how to go on."""
    from pytrace import _core

    _core.set_last_words(f"; {words}")


def _end_at_once(number: int, _: FrameType | None) -> NoReturn:
    with suppress(OSError):
        os.write(2, f"pytrace: {_WORDS[signal.Signals(number)]}\n".encode())
    os._exit(128 + number)


def _unwind(number: int, _: FrameType | None) -> None:
    if _received:  # it is on its way, and must not be interrupted in turn
        return
    _received.append(number)
    # Where the exception falls into a callback or a destructor Python would print that it is lost.
    sys.unraisablehook = lambda _: None
    raise SystemExit(128 + number)


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Hold interrupts back: a process that is just starting, which inherits this, would die of one with a traceback."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def be_a_worker() -> None:
    """Leave SIGINT, which a terminal sends to all, to the process that `multiprocessing` started this one from, and end with it."""
    import multiprocessing

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    parent = multiprocessing.parent_process()
    assert parent is not None
    end_with(parent.sentinel)


def useful_threads(wanted: int | None) -> int:
    """Return how many threads a library gets that starts them itself: no more than there are processors, where they only wait."""
    return min(wanted or len(os.sched_getaffinity(0)), os.cpu_count() or 1)


def check_count(processes: int) -> None:
    """Refuse so many processes on this machine, each with models of its own, that it would come to a standstill."""
    most = max(64, 4 * (os.cpu_count() or 1))
    if not 1 <= processes <= most:
        raise InputError(f"{processes} processes were asked for on this machine; ask for 1 to {most}")


def limit_memory(more: int) -> None:
    """Let this process take so many bytes of addresses beyond those that it has."""
    with suppress(OSError):  # there is no /proc
        # Where the machine itself has no memory left, this process is the one to go.
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
        used = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (min(used + more, hard % (1 << 64)), hard))  # -1 stands for no limit


def lifeline() -> int:
    """Return a descriptor that children inherit, who give it to `end_with`; it is one for all of them."""
    return _pipe()[0]


@functools.cache
def _pipe() -> tuple[int, int]:
    return os.pipe()


def end_with(descriptor: int) -> None:
    """Let the kernel end this process, and those of its group if it leads one, when the other end of a pipe is closed.

    Nothing is ever written to the pipe, which closes when the process that made it is gone, however it went. No thread of ours
    waits for that: one would need the GIL, which native code may hold, and a process with threads must not fork.
    """
    import fcntl
    import select

    # Opened anew, since the owner of a signal belongs to what was opened, which all children of one parent share.
    own = os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY | os.O_NONBLOCK)
    process = os.getpid()
    fcntl.fcntl(own, fcntl.F_SETOWN, -process if os.getpgrp() == process else process)
    fcntl.fcntl(own, fcntl.F_SETFL, fcntl.fcntl(own, fcntl.F_GETFL) | os.O_ASYNC)  # SIGIO, of which a process dies
    if select.select([descriptor], [], [], 0)[0]:
        os._exit(1)
