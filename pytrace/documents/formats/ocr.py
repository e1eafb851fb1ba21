"""The text of scanned pages, recognised by a command that the user names."""

from __future__ import annotations

import shlex
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from pytrace.documents.passages import Block
from pytrace.documents.plain import read_plain
from pytrace.documents.text_files import encoding_of
from pytrace.errors import DataError

# What recognition programs are made for, and the time that they have for a page.
_DPI, _SECONDS = 300, 120
_POINTS = 72
# A page of any size is an image of at most so many pixels a side.
_MOST_PIXELS = 6_000


def recognised(page: Any, number: int, command: str) -> list[Block]:
    """Return the blocks of a page of a PDF, as the command writes the text of its image, for which ``{}`` stands, on its stdout."""
    scale = min(_DPI / _POINTS, _MOST_PIXELS / max(page.get_size()))
    with tempfile.TemporaryDirectory(prefix="pytrace-") as folder:
        image = Path(folder) / "page.png"
        page.render(scale=scale, grayscale=True).to_pil().save(image)
        arguments = [part.replace("{}", str(image)) for part in shlex.split(command)]
        try:
            run = subprocess.run(
                arguments, stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            raise DataError(f"took more than {_SECONDS} seconds to recognise page {number}") from None
        except OSError as error:
            raise DataError(f"was not recognised: {arguments[0]} cannot be run ({error.strerror or error})") from None
    if run.returncode:
        said = run.stderr.decode("utf-8", "replace").strip().splitlines()
        reason = f" ({said[-1]})" if said else ""
        raise DataError(
            f"was not recognised: {arguments[0]} ended with status {run.returncode} on page {number}{reason}"
        )
    read = read_plain(run.stdout.decode(encoding_of(run.stdout)[0], "replace"))
    blocks = [Block(read.title, level=1), *read.blocks] if read.title else list(read.blocks)
    return [block._replace(page=number) for block in blocks]
