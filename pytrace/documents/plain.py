"""Plain text to blocks: an empty line ends one, and a short line by itself that ends without a full stop is a heading."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pytrace.documents.passages import Block, Extracted
from pytrace.documents.sentences import clean_text

# The words of a heading, at most, and what it does not end in: a clause goes on, and a sentence is no heading.
_HEADING_WORDS = 10
_NO_HEADING = re.compile(r"[.!?;,:…；，：؟،؛۔।]$|[。！？][」』”’）]?$|^[-*•–—|]|^\W*$")
# A line of one character below a line is that line's underline.
_UNDERLINE = re.compile(r"([=~*^\"#-])\1{2,}")


def read_plain(source: str) -> Extracted:
    """Turn a text into blocks; its title is a heading that it begins with."""
    paragraphs = list(_paragraphs(source))
    blocks = [
        Block(" ".join(lines), level=int(_is_heading(lines, paragraphs[index + 1 : index + 2])))
        for index, lines in enumerate(paragraphs)
    ]
    if len(blocks) > 1 and blocks[0].level:
        return Extracted(blocks[0].text, blocks[1:], level=1)
    return Extracted("", blocks)


def _paragraphs(source: str) -> Iterator[list[str]]:
    lines: list[str] = []
    for line in source.splitlines():
        cleaned = clean_text(line)
        if lines and _UNDERLINE.fullmatch(cleaned):
            yield lines
            lines = []
        elif cleaned:
            lines.append(cleaned)
        elif lines:
            yield lines
            lines = []
    if lines:
        yield lines


def _is_heading(lines: list[str], following: list[list[str]]) -> bool:
    """Whether a paragraph is a heading: one short line without an end, before one that is more than that."""
    if len(lines) > 1 or not following or not _could_be_heading(lines[0]):
        return False
    return len(following[0]) > 1 or not _could_be_heading(following[0][0])


def _could_be_heading(line: str) -> bool:
    return len(line.split()) <= _HEADING_WORDS and not _NO_HEADING.search(line) and not line[0].islower()
