"""Markup that is text all through (chapters, e-mail) to blocks, by its elements."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import lxml.html

from pytrace.documents.lists import ListDepth
from pytrace.documents.passages import Block
from pytrace.documents.sentences import clean_text
from pytrace.documents.tables import table_blocks
from pytrace.documents.text_files import encoding_of
from pytrace.documents.unbroken import as_code

_HEADING = re.compile("h([1-6])")
_PASSED_OVER = frozenset(("head", "script", "style", "template", "noscript", "nav", "svg", "math", "iframe", "object"))
# Elements within a sentence; every other ends a block.
_INLINE = frozenset(
    ("a", "abbr", "b", "bdi", "bdo", "cite", "data", "del", "dfn", "em", "font", "i", "ins", "label", "mark", "q",
     "ruby", "s", "small", "span", "strike", "strong", "sub", "sup", "time", "u", "var", "wbr")
)  # fmt: skip
_CODE = frozenset(("code", "kbd", "samp", "tt"))
_ITEMS = frozenset(("li", "dt", "dd"))
# What generators of sites put behind a heading or a term: a link to itself.
_ANCHOR = "\u200b\u00b6\U0001f517 \t\r\n"

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


def block_text(text: str, level: int = 0) -> str:
    """Return the text of a block without a link to itself; that of a heading without the marks of code."""
    text = text.rstrip(_ANCHOR)
    return clean_text(text.replace("`", "") if level else text)


def cell_text(cell: Any) -> str:
    """Return the text of a cell of a table, in which code is marked."""
    for code in [*cell.iter(*_CODE)]:
        text = as_code(clean_text("".join(code.itertext())))
        for child in [*code]:
            code.remove(child)
        code.text = text
    return "".join(cell.itertext())


def _blocks(root: Any) -> Iterator[Block]:
    # Without recursion: hostile pages nest thousands of elements.
    level = 0
    items = ListDepth()
    parts: list[str] = []
    open_elements: list[tuple[Any, Iterator[Any], int]] = []

    def ended() -> Block:
        text = block_text("".join(parts), level)
        parts.clear()
        return Block(text, level=level, depth=items.next() if text else 0)

    element: Any = root
    while True:
        if element is not None:
            name = element.tag.lower() if isinstance(element.tag, str) else ""
            if not name or name in _PASSED_OVER or name in _CODE or name in ("table", "pre"):
                if name in ("table", "pre"):
                    yield ended()
                    depth = items.next()
                    found = _table(element) if name == "table" else _lines(element)
                    yield from (block._replace(depth=depth) for block in found)
                elif name in _CODE:
                    parts.append(as_code(clean_text("".join(element.itertext()))))
                parts.append(element.tail or "")
            else:
                outer = level
                if name not in _INLINE:
                    yield ended()
                    heading = _HEADING.fullmatch(name)
                    level = int(heading[1]) if heading else level
                    if name in _ITEMS:
                        items.open(begun=name == "dd")
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
                if closed.tag.lower() in _ITEMS:
                    items.close()
            level = outer
            parts.append((closed.tail or "") if open_elements else "")


def _table(table: Any) -> list[Block]:
    rows = [[cell_text(cell) for cell in row.iter("td", "th")] for row in table.iter("tr")]
    # Tables that only lay out a page have one column.
    if max(map(len, rows), default=0) < 2:
        return [Block(clean_text(cell)) for row in rows for cell in row]
    return table_blocks(rows)


def _lines(element: Any) -> list[Block]:
    return [Block(clean_text(line), whole=True) for line in "".join(element.itertext()).splitlines()]
