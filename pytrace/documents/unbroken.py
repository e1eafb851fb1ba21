"""What no cut goes through: code spans, dotted names, addresses of the web and of mail, numbers."""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import cached_property
from itertools import accumulate, pairwise

from pytrace.documents.languages import UNSPACED

CODE_SPAN = re.compile(r"(?<![0-9A-Za-z`])(`{1,2})([^\s`](?:[^`]{0,198}[^\s`])?)\1(?!`)")
"""A code span; its second group is the code. Quotes such as ``this'' and `this' are none."""

_MAX_CODE = 200
# Only the parts that a full stop, a comma, "?" or "!" could cut: a name in front of one, calls and numbers included.
_TOKEN = re.compile(
    rf"""
    (?<![A-Za-z0-9])(?:[A-Za-z][A-Za-z0-9+.-]{{1,15}}://|www\.)[^\s<>"`{UNSPACED}。、，！？…]+
    | (?<![\w.+-])[\w.+-]{{1,64}}@[\w-]{{1,63}}(?:\.[\w-]{{1,63}})+
    | (?<![\w.,])\d+(?:[.,]\d+)+(?:[-+.]?[A-Za-z]\w*)*
    | (?<!\w)[^\W\d]\w*(?:\([^\s()]{{0,40}}\))?(?:(?:\.|::|/)\w+(?:\([^\s()]{{0,40}}\))?)+
    """,
    re.VERBOSE,
)
# The number of an item, at the beginning of a text.
_NUMBER = re.compile(r"\(?\d{1,3}[.)]\s+(?=\S)")
# Next to white space, or to a character of a script that has none, no word is cut.
_OPEN = re.compile(rf"[\s{UNSPACED}。！？…]")


def as_code(text: str) -> str:
    """Return a text as a code span; as it is if it cannot be one."""
    return f"`{text}`" if text and "`" not in text and len(text) <= _MAX_CODE else text


def code_as_words(text: str) -> str:
    """Return a text of the same length in which each code span is one word with a capital."""
    # A splitter of sentences knows nothing of code: it takes what stands in it for punctuation.
    return CODE_SPAN.sub(lambda span: "X" + "x" * (len(span[0]) - 1), text) if "`" in text else text


class Unbroken:
    """The dotted names, addresses and numbers of a text, and the number that it begins with."""

    def __init__(self, text: str) -> None:
        self._text = text
        number = _NUMBER.match(text)
        self._begins = 0 if number is None else number.end()

    @cached_property
    def _spans(self) -> tuple[list[int], list[int]]:
        spans = [match.span() for match in _TOKEN.finditer(self._text)]
        return [start for start, _ in spans], [end for _, end in spans]

    def allows(self, cut: int) -> bool:
        """Whether the text may be cut before a character: not the first, and not within a name, address or number."""
        if cut <= self._begins:
            return False
        # Most cuts are at a space, so that the text is seldom searched.
        if _OPEN.match(self._text[cut - 1]) or self._text[cut].isspace():
            return True
        starts, ends = self._spans
        before = bisect_right(starts, cut - 1) - 1
        return before < 0 or ends[before] <= cut

    def joined(self, pieces: list[str], start: int) -> list[str]:
        """Join again what was parted within a name, address or number: pieces of the text, the first of which begins at `start`."""
        borders = list(accumulate(map(len, pieces), initial=start))
        kept = [borders[0], *filter(self.allows, borders[1:-1]), borders[-1]]
        return [self._text[first:last] for first, last in pairwise(kept)]
