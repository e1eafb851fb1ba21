"""Files that must be whole or not there: flushed to the disk, replaced in one step, and compared with a checksum."""

from __future__ import annotations

import os
import zlib
from pathlib import Path

from pytrace.errors import StoreError

_CHUNK = 1 << 22


def flush(path: Path) -> None:
    """Have the system write a file or directory to the disk now."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_file(path: Path, content: bytes) -> None:
    """Put a file in the place of the one before, in one step."""
    new = path.with_name(f"{path.name}.new")
    with new.open("wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    new.replace(path)
    flush(path.parent)  # so that the new name outlives a power cut


def checksum(path: Path, most: int) -> tuple[int, int]:
    """Return the CRC-32 of a file's first `most` bytes, and how many of them there are."""
    found, left = 0, most
    with path.open("rb") as stream:
        while left and (data := stream.read(min(_CHUNK, left))):
            found, left = zlib.crc32(data, found), left - len(data)
    return found, most - left


def check_file(path: Path, size: int, due: int, *, remedy: str) -> None:
    """Compare the first `size` bytes of a file with the checksum that they should have."""
    try:
        found, there = checksum(path, size)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise StoreError(f"{path} cannot be read ({error.strerror}); correct its permissions") from None
    if there < size or found != due:
        raise StoreError(
            f"{path} is damaged: {there:,} of {size:,} bytes are there, with checksum {found:08x} where {due:08x} is due; "
            f"{remedy}"
        )


def storable(text: str) -> str:
    """Escape lone surrogates, which no UTF-8 file can hold."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
