"""Plain text to blocks: an empty line ends one, an item of a list is one, and a short line by itself without a full stop is a heading."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from pytrace.documents.passages import Block, Extracted
from pytrace.documents.sentences import clean_text

# The words of a heading, at most, and what it does not end in: a clause goes on, and a sentence is no heading.
_HEADING_WORDS = 10
_NO_HEADING = re.compile(r"[.!?;,:…；，：؟،؛۔।]$|[。！？][」』”’）]?$|^[-*•–—|]|^\W*$")
# A line that begins an item, behind the spaces by which items are nested; its bullet is no text, its number is.
_ITEM = re.compile(r"(\s*)(?:([-*+•])\s+|\d{1,3}[.)]\s)(?=\s*\S)")
# A line of one character below a line is that line's underline.
_UNDERLINE = re.compile(r"([=~*^\"#-])\1{2,}")


def read_plain(source: str) -> Extracted:
    """Turn a text into blocks; its title is a heading that it begins with."""
    paragraphs = list(_paragraphs(source))
    blocks: list[Block] = []
    for index, lines in enumerate(paragraphs):
        if _is_heading(lines, paragraphs[index + 1 : index + 2]):
            blocks.append(Block(clean_text(lines[0]), level=1))
        else:
            blocks += _blocks(lines)
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
            lines.append(line)
        elif lines:
            yield lines
            lines = []
    if lines:
        yield lines


def _blocks(lines: Sequence[str]) -> Iterator[Block]:
    """Iterate over a paragraph as one block, or its lists as an item a block."""
    marks = [_ITEM.match(line) for line in lines]
    # A single line of a paragraph may begin so by chance: "in the year\n- or so they say".
    listed = marks[0] is not None or sum(mark is not None for mark in marks) > 1
    firsts = {number: mark for number, mark in enumerate(marks) if mark is not None and listed}
    indents: list[int] = []
    for first, last in pairwise(dict.fromkeys((0, *firsts, len(lines)))):
        mark = firsts.get(first)
        text = " ".join(map(clean_text, lines[first:last]))
        if mark is None:
            yield Block(text)
            continue
        while indents and indents[-1] >= len(mark[1]):
            indents.pop()
        indents.append(len(mark[1]))
        yield Block(text[2:].lstrip() if mark[2] else text, depth=len(indents))


def _is_heading(lines: list[str], following: list[list[str]]) -> bool:
    """Whether a paragraph is a heading: one short line without an end, before one that is more than that."""
    if len(lines) > 1 or not following or not _could_be_heading(lines[0]):
        return False
    return len(following[0]) > 1 or not _could_be_heading(following[0][0])


def _could_be_heading(line: str) -> bool:
    line = clean_text(line)
    return len(line.split()) <= _HEADING_WORDS and not _NO_HEADING.search(line) and not line[0].islower()
