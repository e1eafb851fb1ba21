"""HTML to blocks: the main text of a page, without what surrounds it (trafilatura)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import trafilatura
from lxml import etree

from pytrace.documents.formats.markup import block_text, cell_text, markup_blocks
from pytrace.documents.lists import ListDepth
from pytrace.documents.passages import Block, Extracted
from pytrace.documents.sentences import clean_text
from pytrace.documents.tables import table_blocks
from pytrace.documents.unbroken import as_code
from pytrace.errors import DataError

_HEADING = re.compile(r"h([1-6])")
# Elements of what trafilatura finds that are within a sentence; every other ends a block.
_INLINE = frozenset(("code", "del", "graphic", "hi", "lb", "ref"))

# Of pages with less text than this none is found to be the main one; all of it is taken then.
_LITTLE = 250


def read_html(path: Path) -> Extracted:
    """Read a page; its encoding is the one that it names, or the likeliest."""
    data = path.read_bytes()
    found: Any = trafilatura.bare_extraction(
        data,
        favor_recall=True,
        include_comments=False,
        include_tables=True,
        with_metadata=True,
        deduplicate=False,
    )
    blocks = [] if found is None or found.body is None else [block for block in _blocks(found.body) if block.text]
    if sum(len(block.text) for block in blocks) < _LITTLE:
        blocks = markup_blocks(data) or blocks
    if not blocks:
        raise DataError("has no text that could be found", path=path)
    if found is None:
        found = trafilatura.extract_metadata(data)
    title = block_text(found.title or "", 1)
    level = 0
    if blocks and blocks[0].level and blocks[0].text == title:
        level, blocks = blocks[0].level, blocks[1:]
    fields = {"author": found.author, "date": found.date, "site": found.sitename, "url": found.url}
    return Extracted(title, blocks, level, {name: clean_text(value) for name, value in fields.items() if value})


def _blocks(body: Any) -> Iterator[Block]:
    # Without recursion: hostile pages nest thousands of elements.
    items = ListDepth()
    parts: list[str] = []
    level = 0

    def ended() -> Iterator[Block]:
        text = block_text("".join(parts), level)
        parts.clear()
        if text:
            yield Block(text, level=level, depth=items.next())

    walk = etree.iterwalk(body, events=("start", "end", "comment", "pi"))
    for event, element in walk:
        if event in ("comment", "pi"):
            parts.append(element.tail or "")
        elif event == "start":
            text = "".join(element.itertext()) if element.tag in ("code", "table") else ""
            if element.tag == "code" and "\n" not in text.strip() and element.getparent() is not body:
                parts.append(as_code(clean_text(text)))
                walk.skip_subtree()
            elif text:
                yield from ended()
                found = _table(element) if element.tag == "table" else _lines(text)
                depth = items.next()
                yield from (block._replace(depth=depth) for block in found)
                walk.skip_subtree()
            else:
                if element.tag not in _INLINE:
                    yield from ended()
                if element.tag == "item":
                    items.open(begun=(element.get("rend") or "").startswith("dd"))
                elif element.tag == "head":
                    heading = _HEADING.fullmatch(element.get("rend") or "")
                    level = int(heading[1]) if heading else 2
                parts.append(" " if element.tag == "lb" else element.text or "")
        else:
            if element.tag not in _INLINE:
                yield from ended()
            if element.tag == "item":
                items.close()
            elif element.tag == "head":
                level = 0
            parts.append(element.tail or "")
    yield from ended()


def _table(table: Any) -> list[Block]:
    return table_blocks([[cell_text(cell) for cell in row.iter("cell")] for row in table.iter("row")])


def _lines(text: str) -> list[Block]:
    return [Block(clean_text(line), whole=True) for line in text.splitlines()]
