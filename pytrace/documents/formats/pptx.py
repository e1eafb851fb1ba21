"""Slides to blocks: a slide's title is a heading, what stands on it and in its notes are paragraphs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import pptx
from pptx.exc import PackageNotFoundError

from pytrace.documents.formats.archives import check_archive
from pytrace.documents.passages import Block, Extracted
from pytrace.documents.sentences import clean_text
from pytrace.documents.tables import table_blocks
from pytrace.errors import DataError

# PowerPoint and python-pptx name a presentation so that nobody named; its other fields are the template's, too.
_TEMPLATE = "PowerPoint Presentation"


def read_pptx(path: Path) -> Extracted:
    """Read a presentation; pages are slides."""
    check_archive(path)
    try:
        presentation = pptx.Presentation(str(path))
    except (PackageNotFoundError, BadZipFile, KeyError, ValueError) as error:
        raise DataError(f"is no presentation that can be read ({error}); save it anew as .pptx", path=path) from None
    blocks: list[Block] = []
    for number, slide in enumerate(presentation.slides, start=1):
        title = slide.shapes.title
        if title is not None and clean_text(title.text_frame.text):
            blocks.append(Block(clean_text(title.text_frame.text), level=1, page=number))
        for shape in _shapes(slide.shapes):
            if title is not None and shape.shape_id == title.shape_id:
                continue
            if shape.has_text_frame:
                paragraphs = shape.text_frame.paragraphs
                blocks += [Block(clean_text(each.text), page=number, depth=each.level) for each in paragraphs]
            elif getattr(shape, "has_table", False):
                rows = [[cell.text for cell in row.cells] for row in shape.table.rows]
                blocks += [block._replace(page=number) for block in table_blocks(rows)]
        if slide.has_notes_slide and slide.notes_slide.notes_text_frame is not None:
            notes = slide.notes_slide.notes_text_frame.paragraphs
            blocks += [Block(clean_text(each.text), page=number) for each in notes]
    core = presentation.core_properties
    named = clean_text(core.title or "")
    if named == _TEMPLATE:
        return Extracted("", blocks)
    fields = {
        "author": clean_text(core.author or ""),
        "date": core.created.date().isoformat() if core.created is not None else "",
        "subject": clean_text(core.subject or ""),
        "keywords": clean_text(core.keywords or ""),
    }
    return Extracted(named, blocks, metadata={name: value for name, value in fields.items() if value})


def _shapes(shapes: Any) -> Iterator[Any]:
    """Iterate over shapes from top to bottom, groups opened."""
    for shape in sorted(shapes, key=lambda shape: (shape.top or 0, shape.left or 0)):
        if hasattr(shape, "shapes"):
            yield from _shapes(shape.shapes)
        else:
            yield shape
