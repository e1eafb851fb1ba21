"""HTML to blocks: the main text of a page, without what surrounds it (trafilatura)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import trafilatura

from pytrace.documents.formats.tables import table_blocks
from pytrace.documents.passages import Block, Extracted
from pytrace.documents.sentences import clean_text
from pytrace.errors import DataError

_HEADING = re.compile(r"h([1-6])")


def read_html(path: Path) -> Extracted:
    """Read a page; its encoding is the one that it names, or the likeliest."""
    found: Any = trafilatura.bare_extraction(
        path.read_bytes(),
        favor_recall=True,
        include_comments=False,
        include_tables=True,
        with_metadata=True,
        deduplicate=False,
    )
    if found is None or found.body is None:
        raise DataError("has no text that could be found", path=path)
    blocks = _blocks(found.body)
    if not any(block.text for block in blocks):
        raise DataError("has no text that could be found", path=path)
    title = clean_text(found.title or "")
    level = 0
    if blocks and blocks[0].level and blocks[0].text == title:
        level, blocks = blocks[0].level, blocks[1:]
    fields = {"author": found.author, "date": found.date, "site": found.sitename, "url": found.url}
    return Extracted(title, blocks, level, {name: clean_text(value) for name, value in fields.items() if value})


def _blocks(body: Any) -> list[Block]:
    blocks: list[Block] = []
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
