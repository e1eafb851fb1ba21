"""HTML to blocks: the main text of a page, without what surrounds it (trafilatura)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import trafilatura

from pytrace.documents.formats.markup import markup_blocks
from pytrace.documents.passages import Block, Extracted
from pytrace.documents.sentences import clean_text
from pytrace.documents.tables import table_blocks
from pytrace.errors import DataError

_HEADING = re.compile(r"h([1-6])")

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
    blocks = [] if found is None or found.body is None else _blocks(found.body)
    if sum(len(block.text) for block in blocks) < _LITTLE:
        blocks = markup_blocks(data) or blocks
    if not blocks:
        raise DataError("has no text that could be found", path=path)
    if found is None:
        found = trafilatura.extract_metadata(data)
    title = clean_text(found.title or "")
    level = 0
    if blocks and blocks[0].level and blocks[0].text == title:
        level, blocks = blocks[0].level, blocks[1:]
    fields = {"author": found.author, "date": found.date, "site": found.sitename, "url": found.url}
    return Extracted(title, blocks, level, {name: clean_text(value) for name, value in fields.items() if value})


def _blocks(body: Any) -> list[Block]:
    blocks: list[Block] = []
    for line_break in body.iter("lb"):
        line_break.tail = f" {line_break.tail or ''}"
    for element in body.iterchildren():
        if element.tag == "table":
            rows = [["".join(cell.itertext()) for cell in row.iter("cell")] for row in element.iter("row")]
            blocks += table_blocks(rows)
        elif element.tag == "list":
            blocks += [Block(clean_text(" ".join(item.itertext()))) for item in element.iter("item")]
        elif element.tag == "head":
            heading = _HEADING.fullmatch(element.get("rend") or "")
            blocks.append(Block(clean_text(" ".join(element.itertext())), level=int(heading[1]) if heading else 2))
        elif element.tag == "code":
            blocks += [Block(clean_text(line), whole=True) for line in "".join(element.itertext()).splitlines()]
        else:
            blocks.append(Block(clean_text("".join(element.itertext()))))
    return blocks
