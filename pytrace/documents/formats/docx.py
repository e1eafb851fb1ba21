"""Word documents to blocks: paragraphs, headings by their style, and tables a row a line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import docx
from docx.opc.exceptions import PackageNotFoundError
from docx.oxml.ns import qn
from docx.table import Table
from docx.text.paragraph import Paragraph

from pytrace.documents.formats.archives import check_archive
from pytrace.documents.passages import Block, Extracted
from pytrace.documents.sentences import clean_text
from pytrace.documents.tables import table_blocks
from pytrace.errors import DataError

_LIBRARY = "python-docx"
_HEADING = re.compile(r"heading ([1-9])", re.IGNORECASE)
_LIST = re.compile(r"list (?:bullet|number|continue)(?: ([2-9]))?$", re.IGNORECASE)


def read_docx(path: Path) -> Extracted:
    """Read a Word document."""
    check_archive(path)
    try:
        document = docx.Document(str(path))
    except (PackageNotFoundError, BadZipFile, KeyError, ValueError) as error:
        raise DataError(f"is no Word document that can be read ({error}); save it anew as .docx", path=path) from None
    blocks: list[Block] = []
    title, level = "", 0
    for item in _inner(document, document.element.body):
        if isinstance(item, Table):
            blocks += table_blocks([[cell.text for cell in row.cells] for row in item.rows])
            continue
        text = clean_text(item.text)
        style = item.style.name if item.style is not None else ""
        heading = _HEADING.match(style or "")
        if style == "Title" and not title:
            title = text
        elif heading and not title and not blocks:
            title, level = text, int(heading[1])
        else:
            depth = 0 if heading else _depth(item, style or "")
            blocks.append(Block(text, level=int(heading[1]) if heading else 0, depth=depth))
    core = document.core_properties
    named = clean_text(core.title or "")
    if named and not title:
        title, level = named, 0
    return Extracted(title, blocks, level, _metadata(core))


def _depth(paragraph: Paragraph, style: str) -> int:
    """Return how deep in lists a paragraph stands, by its own numbering or its style's name."""
    numbering = None if paragraph._p.pPr is None else paragraph._p.pPr.numPr
    if numbering is not None:
        return 1 + (0 if numbering.ilvl is None else numbering.ilvl.val)
    listed = _LIST.match(style)
    return 0 if listed is None else int(listed[1] or 1)


def _inner(document: Any, element: Any) -> Iterator[Any]:
    """Iterate over paragraphs and tables in order, those within content controls too."""
    for child in element.iterchildren():
        if child.tag == qn("w:p"):
            yield Paragraph(child, document)
        elif child.tag == qn("w:tbl"):
            yield Table(child, document)
        elif child.tag in (qn("w:sdt"), qn("w:sdtContent"), qn("w:ins")):
            yield from _inner(document, child)


def _metadata(core: Any) -> dict[str, Any]:
    if core.author == _LIBRARY:  # its template's fields, not the document's
        return {}
    fields = {
        "author": clean_text(core.author or ""),
        "date": core.created.date().isoformat() if core.created is not None else "",
        "subject": clean_text(core.subject or ""),
        "keywords": clean_text(core.keywords or ""),
    }
    return {name: value for name, value in fields.items() if value}
