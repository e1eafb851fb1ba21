"""Lines of a PDF in reading order to blocks: headings by their letters, paragraphs, and words that a line's end parts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pytrace.documents.passages import Block
from pytrace.documents.sentences import clean_text

LEADING = 1.75
"""Lines of a paragraph stand at most so many times their height apart."""

# A heading in bold letters has so much above it.
_ABOVE = 1.5
# A heading is so much larger than the text, or in bold letters, and no longer than so many words.
_LARGER, _HEADING_WORDS, _BOLD_WORDS = 1.12, 16, 10
# Sizes of letters that differ by less are one.
_SAME_SIZE = 0.06
_NO_HEADING = re.compile(r"[.,;:!?]$|^\W*$")
# A word that a line's end parts: by a hyphen that may be the word's own, or by one that is there for the line's end alone.
# PDFium marks either kind as U+FFFE or U+0002.
_PARTED = re.compile(r"(?<![\w-])([\w-]*\w)(?:([-\u2010\ufffe\x02])|\u00ad)$")
_WORD = re.compile(r"\w+(?:[-\u2010]\w+)*")


class Line(NamedTuple):
    """A piece of a line: its text, its box in points from the page's upper left corner, and its letters' size and weight."""

    text: str
    left: float
    top: float
    right: float
    bottom: float
    size: float
    page: int
    bold: bool = False
    is_row: bool = False  # of a table, with the heads of its columns

    @property
    def height(self) -> float:
        """Its height, at least a point."""
        return max(self.bottom - self.top, 1.0)


def blocks_of(lines: Sequence[Line]) -> list[Block]:
    """Put lines together to paragraphs and headings."""
    # The size of most of the text, by characters.
    sizes = Counter[float]()
    for line in lines:
        sizes[line.size] += len(line.text)
    body = sizes.most_common(1)[0][0] if sizes else 0.0
    levels = _levels(size for size in sizes if size >= _LARGER * body)
    words = Counter(word.casefold() for line in lines for word in _WORD.findall(line.text.rpartition(" ")[0]))
    groups: list[tuple[int, list[Line]]] = []
    for index, line in enumerate(lines):
        level = levels.get(line.size, 0) if _could_be_heading(line.text) else 0
        following = lines[index + 1] if index + 1 < len(lines) else None
        if (
            not level
            and following is not None
            and _is_bold_heading(lines[index - 1] if index else None, line, following)
        ):
            level = 1 + max(levels.values(), default=0)
        before = groups[-1][1][-1] if groups and groups[-1][0] == level else None
        if before is not None and not line.is_row and not before.is_row and _goes_on(before, line, heading=level > 0):
            groups[-1][1].append(line)
        else:
            groups.append((level, [line]))
    return [
        Block(_text(group, words), whole=group[0].is_row, level=level, page=group[0].page) for level, group in groups
    ]


def _levels(sizes: Iterable[float]) -> dict[float, int]:
    """Return the level of each size of a heading's letters, 1 for the largest; those that hardly differ have one."""
    levels: dict[float, int] = {}
    largest = 0.0
    level = 0
    for size in sorted(set(sizes), reverse=True):
        if size < (1 - _SAME_SIZE) * largest or not level:
            largest, level = size, level + 1
        levels[size] = level
    return levels


def _could_be_heading(text: str) -> bool:
    words = len(text.split())
    return words <= _HEADING_WORDS and not (words > 3 and text.endswith((".", ",", ";")))


def _is_bold_heading(before: Line | None, line: Line, following: Line) -> bool:
    """Whether a short line in bold letters stands by itself above a paragraph that is not bold."""
    if not line.bold or following.bold or len(line.text.split()) > _BOLD_WORDS or _NO_HEADING.search(line.text):
        return False
    if following.page != line.page or following.top < line.top:
        return False
    return before is None or before.page != line.page or not 0 <= line.top - before.top < _ABOVE * line.height


def _goes_on(before: Line, line: Line, *, heading: bool) -> bool:
    """Whether a line goes on with the paragraph or heading of the one before it."""
    if heading:
        return line.size == before.size and 0 <= line.top - before.bottom < before.height
    if line.page != before.page or line.top < before.top:  # the next page or column: a sentence may go on there
        return not before.text.rstrip().endswith((".", "!", "?", ":")) and line.text[:1].islower()
    return line.top - before.top < LEADING * max(before.height, line.height)


def _text(lines: Sequence[Line], words: Counter[str]) -> str:
    """Join lines, and words that their ends part; a hyphen stays if the text has the word with it more often elsewhere."""
    text = ""
    for line in lines:
        parted = _PARTED.search(text.rpartition(" ")[2]) if line.text[:1].islower() else None
        if parted is None:
            text = f"{text} {line.text}" if text else line.text
            continue
        first = _WORD.match(line.text)
        rest = first[0].casefold() if first else ""
        with_hyphen = (
            bool(parted[2]) and words[f"{parted[1]}-{rest}".casefold()] > words[f"{parted[1]}{rest}".casefold()]
        )
        text = text[:-1] + "-" * with_hyphen + line.text
    return clean_text(text)
