"""Markup that is text all through (chapters, e-mail) to blocks, by its elements."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import lxml.html

from pytrace.documents.passages import Block
from pytrace.documents.sentences import clean_text
from pytrace.documents.tables import table_blocks
from pytrace.documents.text_files import encoding_of

_HEADING = re.compile("h([1-6])")
_PASSED_OVER = frozenset(("head", "script", "style", "template", "noscript", "nav", "svg", "math", "iframe", "object"))
# Elements within a sentence; every other ends a block.
_INLINE = frozenset(
    ("a", "abbr", "b", "bdi", "bdo", "cite", "code", "data", "del", "dfn", "em", "font", "i", "ins", "kbd", "label", "mark", "q",
     "ruby", "s", "samp", "small", "span", "strike", "strong", "sub", "sup", "time", "tt", "u", "var", "wbr")
)  # fmt: skip


# Where a page names its encoding; what a text that is decoded already must not have.
_ENCODING = re.compile(rb"(?:charset|encoding)\s*=", re.IGNORECASE)
_DECLARATION = re.compile(r"\A\s*<\?xml[^>]*>")


def markup_blocks(data: bytes | str) -> list[Block]:
    """Return the blocks of HTML or XHTML; its encoding is the one that it names, or the likeliest."""
    if isinstance(data, bytes) and not _ENCODING.search(data, 0, 1024):
        data = data.decode(encoding_of(data)[0], "replace")
    if isinstance(data, str):
        data = _DECLARATION.sub("", data)
    if not data.strip():
        return []
    tree = lxml.html.document_fromstring(data, parser=lxml.html.HTMLParser(no_network=True))
    return [block for block in _blocks(tree) if block.text]


def _blocks(root: Any) -> Iterator[Block]:
    # Without recursion: hostile pages nest thousands of elements.
    level = 0
    parts: list[str] = []
    open_elements: list[tuple[Any, Iterator[Any], int]] = []

    def ended() -> Block:
        block = Block(clean_text("".join(parts)), level=level)
        parts.clear()
        return block

    element: Any = root
    while True:
        if element is not None:
            name = element.tag.lower() if isinstance(element.tag, str) else ""
            if not name or name in _PASSED_OVER or name in ("table", "pre"):
                if name in ("table", "pre"):
                    yield ended()
                    yield from _table(element) if name == "table" else _lines(element)
                parts.append(element.tail or "")
            else:
                outer = level
                if name not in _INLINE:
                    yield ended()
                    heading = _HEADING.fullmatch(name)
                    level = int(heading[1]) if heading else level
                parts.append(element.text or "")
                open_elements.append((element, iter(element), outer))
        if not open_elements:
            yield ended()
            return
        element = next(open_elements[-1][1], None)
        if element is None:
            closed, _, outer = open_elements.pop()
            if closed.tag.lower() not in _INLINE:
                yield ended()
            level = outer
            parts.append((closed.tail or "") if open_elements else "")


def _table(table: Any) -> list[Block]:
    rows = [["".join(cell.itertext()) for cell in row.iter("td", "th")] for row in table.iter("tr")]
    # Tables that only lay out a page have one column.
    if max(map(len, rows), default=0) < 2:
        return [Block(clean_text(cell)) for row in rows for cell in row]
    return table_blocks(rows)


def _lines(element: Any) -> list[Block]:
    return [Block(clean_text(line), whole=True) for line in "".join(element.itertext()).splitlines()]
