"""A page of a PDF file as a picture: drawn by a process of its own, which a hostile file may end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from pytrace import processes
from pytrace.errors import DataError, MissingDependencyError

_SECONDS = 20.0
_MEGABYTES = 1_024
# Pixels across: a page is read on a screen.
_WIDTH = 1_000
# A page of any shape has no more.
_MOST_PIXELS = 4_000_000
_MOST_BYTES = 32 << 20
# What the drawing process says of itself by its exit status.
_NO_PAGE, _NO_LIBRARY, _UNREADABLE = 3, 4, 5


def page_picture(path: Path, page: int) -> bytes:
    """Draw a page.

    Parameters
    ----------
    path
        The PDF file.
    page
        Which, from 1.

    Returns
    -------
    bytes
        A PNG, 1,000 pixels across.

    Raises
    ------
    DataError
        The file cannot be read, or has no such page.
    MissingDependencyError
        The extra `docs` is not installed.
    """
    command = [sys.executable, "-m", "pytrace.documents.formats.page_picture", str(path.absolute()), str(page)]
    try:
        drawn = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS, check=False, close_fds=True
        )
    except subprocess.TimeoutExpired:
        raise DataError(f"page {page} took more than {_SECONDS:g} seconds to draw; read its text", path=path) from None
    if drawn.returncode == _NO_PAGE:
        raise DataError(f"has no page {page}; the first is 1", path=path)
    if drawn.returncode == _NO_LIBRARY:
        raise MissingDependencyError("to draw pages a package is needed: pip install 'pytrace-rag[docs]'")
    if drawn.returncode or not 0 < len(drawn.stdout) <= _MOST_BYTES:
        raise DataError(f"page {page} cannot be drawn; read its text", path=path)
    return drawn.stdout


def _draw(path: str, page: int) -> int:
    try:
        import PIL.Image  # noqa: F401  # what pypdfium2 makes pictures with
        import pypdfium2
    except ImportError:
        return _NO_LIBRARY
    processes.limit_memory(_MEGABYTES << 20)
    try:
        document = pypdfium2.PdfDocument(path)
        if not 1 <= page <= len(document):
            return _NO_PAGE
        sheet = document[page - 1]
        width, height = sheet.get_size()
        scale = min(_WIDTH / width, (_MOST_PIXELS / (width * height)) ** 0.5)
        sheet.render(scale=scale).to_pil().convert("RGB").save(sys.stdout.buffer, "PNG")
    except Exception:  # noqa: BLE001  # whatever a broken file makes the library raise
        return _UNREADABLE
    return 0


if __name__ == "__main__":
    sys.exit(_draw(sys.argv[1], int(sys.argv[2])))
