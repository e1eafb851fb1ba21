"""PDF to blocks: lines in reading order, columns one after the other, without what every page repeats."""

from __future__ import annotations

import ctypes
import itertools
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import pypdfium2 as pdfium
import pypdfium2.raw as c

from pytrace.documents.formats.ocr import recognised
from pytrace.documents.passages import Block, Extracted
from pytrace.documents.sentences import clean_text
from pytrace.errors import DataError

# A gap between two pieces of a line that is wider than so many times its height separates columns or cells.
_GAP = 1.6
# Columns of text are at least so many lines of on average so many characters; what is less is a table, read row by row.
_COLUMN_LINES, _COLUMN_LENGTH = 4, 18
# Of a page in columns at most this share of the lines, such as titles, crosses the gap between them.
_CROSSING = 0.2
# Lines of a paragraph stand at most so many times their height apart.
_LEADING = 1.75
# A heading is so much larger than the text, and no longer than so many words.
_LARGER, _HEADING_WORDS = 1.12, 16
# What stands in the same place of so many pages, and of so large a share of them, is a header or footer: so far from the edge.
_REPEATED, _SHARE, _MARGIN = 3, 0.4, 0.12
# A line there that is a page's number, or begins or ends with one beside words, is one on fewer pages too: chapters have others.
_NUMBERED = re.compile(r"#|# .*[^\W\d_].*|.*[^\W\d_].* #")
# What stands before an item of a list.
_BULLET = re.compile(r"[^\w\s]{1,2}|\(?\w{1,3}[.)]")
_NUMBER = re.compile(r"[0-9]+|\b[ivxlc]+\b", re.IGNORECASE)
_HYPHEN = re.compile(r"(?<=\w)[\u00ad\u2010\ufffe\x02-]$")
_USELESS_TITLE = re.compile(
    r"^(\(?(untitled|anonymous|unspecified|unknown)\)?|microsoft word.*|.*\.(docx?|tex|dvi|indd|qxd|pptx?|odt|fm))$",
    re.IGNORECASE,
)
_RECOGNISE = ": --ocr names a command that recognises it"
_METADATA = {"Author": "author", "CreationDate": "date", "Subject": "subject", "Keywords": "keywords"}
_buffer = (ctypes.c_ushort * 4_096)()
_DATE = re.compile(r"D:(\d{4})(\d{2})?(\d{2})?")


class _Line(NamedTuple):
    """A piece of a line: its text, its box in points from the page's upper left corner, and the size of its font."""

    text: str
    left: float
    top: float
    right: float
    bottom: float
    size: float
    page: int

    @property
    def height(self) -> float:
        return max(self.bottom - self.top, 1.0)


def read_pdf(path: Path, ocr: str = "") -> Extracted:
    """Read a PDF that holds text; pages that are images alone by the command `ocr`, where one is given."""
    try:
        document = pdfium.PdfDocument(path)
    except pdfium.PdfiumError as error:
        if "password" in str(error).lower():
            raise DataError("is locked by a password; save a copy without one", path=path) from None
        raise DataError(f"is no PDF that can be read ({error}); save it anew", path=path) from None
    pages = [_page(document, number) for number in range(len(document))]
    scanned = [number for number, page in enumerate(pages) if not page.lines and _has_objects(document[number])]
    if not ocr and not any(page.lines for page in pages):
        raise DataError(
            f"has no text on its {len(pages)} pages ({'scanned?' if scanned else 'empty'}){_RECOGNISE if scanned else ''}",
            path=path,
        )
    kept = _without_repeated(pages)
    # The size of most of the text, by characters.
    sizes = Counter[float]()
    for line in itertools.chain.from_iterable(kept):
        sizes[line.size] += len(line.text)
    body = sizes.most_common(1)[0][0] if sizes else 0.0
    blocks = list(_blocks([line for page in kept for line in _ordered(page)], body))
    if ocr:
        read = [block for number in scanned for block in recognised(document[number], number + 1, ocr)]
        blocks = sorted([*blocks, *read], key=lambda block: block.page or 0)
        if not blocks:
            raise DataError(f"has no text on its {len(pages)} pages, recognised or not", path=path)
        scanned = []
    fields = document.get_metadata_dict(skip_empty=True)
    title = clean_text(fields.get("Title", ""))
    return Extracted(
        "" if _USELESS_TITLE.match(title) else title,
        blocks,
        metadata=_metadata(fields),
        warnings=[f"{len(scanned)} of its {len(pages)} pages have no text (scanned?){_RECOGNISE}"] if scanned else [],
    )


def _has_objects(page: Any) -> bool:
    found: bool = c.FPDFPage_CountObjects(page) > 0
    page.close()
    return found


def _metadata(fields: dict[str, str]) -> dict[str, Any]:
    known = {name: clean_text(fields.get(field, "")) for field, name in _METADATA.items()}
    known = {name: value for name, value in known.items() if value and not _USELESS_TITLE.match(value)}
    if match := _DATE.match(known.get("date", "")):
        known["date"] = "-".join(filter(None, match.groups()))
    return known


class _Page(NamedTuple):
    """The lines of a page and its height in points."""

    lines: list[_Line]
    height: float


def _page(document: Any, number: int) -> _Page:
    """Read the pieces of lines of a page, as PDFium finds them, those that touch joined."""
    page = document[number]
    text = page.get_textpage()
    height = page.get_height()
    pieces: list[_Line] = []
    for index in range(text.count_rects()):
        left, bottom, right, top = text.get_rect(index)
        # Once, into a buffer that holds any line: the wrapper would have PDFium look for the text twice.
        length = c.FPDFText_GetBoundedText(text, left, top, right, bottom, _buffer, len(_buffer))
        content = bytes(_buffer)[: 2 * min(length, len(_buffer))].decode("utf-16-le", "replace").rstrip("\0")
        if content.strip():
            at = c.FPDFText_GetCharIndexAtPos(text, (left + right) / 2, (top + bottom) / 2, 4.0, 4.0)
            size = c.FPDFText_GetFontSize(text, at) if at >= 0 else top - bottom
            pieces.append(_Line(content, left, height - top, right, height - bottom, round(size, 1), number + 1))
    text.close()
    page.close()
    return _Page(_joined(pieces), height)


def _joined(pieces: Sequence[_Line]) -> list[_Line]:
    """Join the pieces that stand on one line without a wide gap between them."""
    lines: list[_Line] = []
    for piece in pieces:
        before = lines[-1] if lines else None
        if before is not None and _same_line(before, piece) and -1.0 < piece.left - before.right < _GAP * before.height:
            space = " " if piece.left - before.right > 0.12 * before.height else ""
            lines[-1] = before._replace(
                text=before.text + space + piece.text,
                right=max(before.right, piece.right),
                top=min(before.top, piece.top),
                bottom=max(before.bottom, piece.bottom),
                size=max(before.size, piece.size),
            )
        else:
            lines.append(piece)
    return [line._replace(text=clean) for line in lines if (clean := " ".join(line.text.split()))]


def _same_line(first: _Line, second: _Line) -> bool:
    overlap = min(first.bottom, second.bottom) - max(first.top, second.top)
    return overlap > 0.5 * min(first.height, second.height)


def _without_repeated(pages: Sequence[_Page]) -> list[list[_Line]]:
    """Leave out headers and footers: lines at a page's edge that others have too, but for their numbers."""
    counts: Counter[tuple[str, bool]] = Counter()
    edges = []
    for page in pages:
        margin = _MARGIN * page.height
        at_edge = {
            index: (_NUMBER.sub("#", line.text), line.top < margin)
            for index, line in enumerate(page.lines)
            if line.bottom < margin or line.top > page.height - margin
        }
        counts.update(set(at_edge.values()))
        edges.append(at_edge)
    repeated = {
        key
        for key, count in counts.items()
        if count >= _REPEATED and (count >= _SHARE * len(pages) or _NUMBERED.fullmatch(key[0]))
    }
    return [
        [line for index, line in enumerate(page.lines) if at_edge.get(index) not in repeated]
        for page, at_edge in zip(pages, edges, strict=True)
    ]


def _ordered(lines: Sequence[_Line]) -> Iterator[_Line]:
    """Iterate over the lines of a page in reading order: columns of text one after the other, all else row by row."""
    if gutter := _gutter(lines):
        # What crosses the gutter, such as a title, parts what is above it from what is below.
        crossing = sorted((line for line in lines if line.left < gutter < line.right), key=lambda line: line.top)
        rest = [line for line in lines if not line.left < gutter < line.right]
        for line in [*crossing, None]:
            above = [other for other in rest if line is None or other.top < line.top]
            rest = [other for other in rest if other not in above] if line is not None else []
            yield from _ordered([other for other in above if other.right <= gutter])
            yield from _ordered([other for other in above if other.left >= gutter])
            if line is not None:
                yield line
        return
    for row in _rows(lines):
        if len(row) == 1:
            yield row[0]
        else:
            text = "; ".join(line.text for line in row)
            if _BULLET.fullmatch(row[0].text):
                text = f"{row[0].text} {'; '.join(line.text for line in row[1:])}"
            yield row[0]._replace(text=text, right=row[-1].right, bottom=max(line.bottom for line in row))


def _rows(lines: Sequence[_Line]) -> Iterator[list[_Line]]:
    row: list[_Line] = []
    for line in sorted(lines, key=lambda line: (line.top + line.bottom, line.left)):
        if row and not _same_line(row[-1], line):
            yield sorted(row, key=lambda line: line.left)
            row = []
        row.append(line)
    if row:
        yield sorted(row, key=lambda line: line.left)


def _gutter(lines: Sequence[_Line]) -> float:
    """Return where the page's widest gap between two columns of text is; 0 if there are no columns."""
    if len(lines) < 2 * _COLUMN_LINES:
        return 0.0
    lefts, rights = (np.array([getattr(line, side) for line in lines]) for side in ("left", "right"))
    lengths = np.array([len(line.text) for line in lines])
    best = (0.0, 0.0)
    for right in np.unique(rights).tolist():
        before, beyond = rights <= right, lefts > right
        crossing = (lefts < right + 0.5) & (rights > right + 0.5)
        if crossing.mean() > _CROSSING or not beyond.any():
            continue
        gap = float(lefts[beyond].min()) - right
        sides = [side.sum() >= _COLUMN_LINES and lengths[side].mean() >= _COLUMN_LENGTH for side in (before, beyond)]
        if gap > best[0] and all(sides):
            best = (gap, right + gap / 2)
    return best[1] if best[0] > 0.5 * median(line.height for line in lines) else 0.0


def _blocks(lines: Sequence[_Line], body: float) -> Iterator[Block]:
    """Put lines together to paragraphs and headings."""
    sizes = sorted({line.size for line in lines if _is_heading(line, body)}, reverse=True)
    group: list[_Line] = []
    for line in lines:
        if group and not _goes_on(group[-1], line, body):
            yield _block(group, sizes, body)
            group = []
        group.append(line)
    if group:
        yield _block(group, sizes, body)


def _is_heading(line: _Line, body: float) -> bool:
    return line.size >= _LARGER * body and len(line.text.split()) <= _HEADING_WORDS


def _goes_on(before: _Line, line: _Line, body: float) -> bool:
    """Whether a line goes on with the paragraph of the one before it."""
    if _is_heading(before, body) != _is_heading(line, body):
        return False
    if _is_heading(line, body):
        return line.size == before.size and 0 <= line.top - before.bottom < before.height
    if line.page != before.page or line.top < before.top:  # the next page or column: a sentence may go on there
        return not before.text.rstrip().endswith((".", "!", "?", ":")) and line.text[:1].islower()
    return line.top - before.top < _LEADING * max(before.height, line.height)


def _block(lines: Sequence[_Line], sizes: Sequence[float], body: float) -> Block:
    text = ""
    for line in lines:
        if _HYPHEN.search(text) and line.text[:1].islower():
            text = text[:-1] + line.text
        else:
            text = f"{text} {line.text}" if text else line.text
    level = 1 + sizes.index(lines[0].size) if _is_heading(lines[0], body) else 0
    return Block(clean_text(text), level=level, page=lines[0].page)
