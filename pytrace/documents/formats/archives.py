"""Formats that are zip archives: what they would unpack to is looked at before anything is unpacked."""

from __future__ import annotations

import zipfile
from pathlib import Path

from pytrace.errors import DataError

# A document of 10,000 pages unpacks to some 100 MB; text hardly ever shrinks to less than a hundredth.
MOST_BYTES = 512 << 20
_MOST_RATIO, _SMALL = 200, 8 << 20


def check_archive(path: Path) -> None:
    """Refuse what is no zip archive, and one that is made to fill the memory."""
    try:
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(entry.file_size for entry in archive.infolist())
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise DataError(f"is damaged ({error}); save or fetch it again", path=path) from None
    packed = path.stat().st_size
    if unpacked > MOST_BYTES or (unpacked > _SMALL and unpacked > _MOST_RATIO * packed):
        raise DataError(
            f"would unpack from {packed:,} to {unpacked:,} bytes; at most {MOST_BYTES:,} are read, and no more than "
            f"{_MOST_RATIO} times its size: save it anew, or in parts",
            path=path,
        )
