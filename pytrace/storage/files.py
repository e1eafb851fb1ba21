"""Files that must be whole or not there: flushed to the disk, replaced in one step, and compared with a checksum."""

from __future__ import annotations

import errno
import os
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import BinaryIO

from pytrace.errors import StoreError

_CHUNK = 1 << 22

_DURABLE: ContextVar[bool] = ContextVar("durable", default=True)

SMALL = 16 << 20
"""Bytes that are compared with their checksum, in some twenty milliseconds, whenever a file of so many is opened."""


@contextmanager
def temporary_files() -> Iterator[None]:
    """Do not wait for the disk inside: for files in a temporary directory, which are worth nothing after a crash."""
    token = _DURABLE.set(False)
    try:
        yield
    finally:
        _DURABLE.reset(token)


def sync(descriptor: int) -> None:
    """Have the system write an open file to the disk now, unless it is one of `temporary_files`."""
    if _DURABLE.get():
        os.fsync(descriptor)


def flush(path: Path) -> None:
    """Have the system write a file or directory to the disk now, as `sync` does."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        sync(descriptor)
    finally:
        os.close(descriptor)


def replace_file(path: Path, content: bytes) -> None:
    """Put a file in the place of the one before, in one step."""
    new = path.with_name(f"{path.name}.new")
    with new.open("wb") as stream:
        stream.write(content)
        stream.flush()
        sync(stream.fileno())
    new.replace(path)
    flush(path.parent)  # so that the new name outlives a power cut


def checksum(path: Path, most: int) -> tuple[int, int]:
    """Return the CRC-32 of a file's first `most` bytes, and how many of them there are."""
    crc, left = 0, most
    with path.open("rb") as stream:
        while left and (data := stream.read(min(_CHUNK, left))):
            crc, left = zlib.crc32(data, crc), left - len(data)
    return crc, most - left


def check_file(path: Path, size: int, due: int, *, remedy: str) -> None:
    """Compare the first `size` bytes of a file with the checksum that they should have."""
    try:
        crc, there = checksum(path, size)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise StoreError(f"{path} cannot be read ({error.strerror}); correct its permissions") from None
    if there < size or crc != due:
        raise StoreError(
            f"{path} is damaged: {there:,} of {size:,} bytes are there, with checksum {crc:08x} where {due:08x} is due; "
            f"{remedy}"
        )


def real_path(path: Path) -> Path:
    """Follow links as far as they lead: one that leads to itself stays, for whoever opens it to tell."""
    return Path(os.path.realpath(path))


@contextmanager
def atomic_output(path: Path) -> Iterator[BinaryIO]:
    """Open a file that takes the place of `path` only when all of it is written and on the disk."""
    partial = None
    try:
        if path.exists() and not stat.S_ISREG(path.stat().st_mode):
            if path.is_dir():
                raise StoreError(f"{path} is a directory; name a file")
            with path.open("wb") as stream:  # a pipe or device
                yield stream
            return
        path = real_path(path)  # replace what a link points to, not the link
        partial = path.with_name(f".{path.name[:200]}.{os.getpid()}.partial")
        with partial.open("wb") as stream:
            yield stream
            stream.flush()
            sync(stream.fileno())
        partial.replace(path)
        with suppress(PermissionError):  # a directory may be written and not read
            flush(path.parent)  # so that the new name outlives a power cut
    except OSError as error:
        failure = StoreError(f"cannot write {path}: {error.strerror or error}; nothing was changed there")
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
            failure.exit_code = 1  # nothing that was asked for is wrong
        raise failure from error
    finally:
        if partial is not None:
            with suppress(OSError):  # such as that of a place that cannot be written
                partial.unlink(missing_ok=True)
