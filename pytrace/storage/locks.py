"""Locks among processes, which the operating system gives back when a process ends, however it ends."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from pytrace.errors import LockedError


def take_lock(path: Path, taken: str) -> BinaryIO:
    """Open a file for appending and lock it until it is closed; `taken` is the error where another process holds it."""
    stream = path.open("a+b")
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException as error:
        stream.close()
        if isinstance(error, BlockingIOError):
            raise LockedError(taken) from None
        raise
    return stream


def take_writer_lock(path: Path, what: str) -> BinaryIO:
    """Lock a file as `take_lock` does and leave this process's number in it, which others are told while it holds the lock."""
    holder = ""
    with suppress(OSError, ValueError):
        holder = f" (number {int(path.read_bytes())})"
    stream = take_lock(path, f"{what} is being written by another process{holder}; wait until it has ended")
    stream.truncate(0)
    stream.write(f"{os.getpid()}\n".encode())
    stream.flush()
    return stream


@contextmanager
def locked(path: Path, on_wait: Callable[[], None] | None) -> Iterator[bool]:
    """Hold a lock, once another process gives it back; without `on_wait` do not wait, and yield whether it is held."""
    # The file is opened each time, since a forked process shares the lock of an open file.
    with path.open("ab") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if on_wait is None:
                yield False
                return
            on_wait()
            fcntl.flock(stream, fcntl.LOCK_EX)
        try:
            yield True
        finally:
            fcntl.flock(stream, fcntl.LOCK_UN)  # a process that was forked meanwhile would hold it on
