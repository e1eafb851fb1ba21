"""PDF to blocks: lines in reading order, columns one after the other, without what every page repeats."""

from __future__ import annotations

import ctypes
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import pypdfium2 as pdfium
import pypdfium2.raw as c

from pytrace.documents.formats.ocr import recognised
from pytrace.documents.formats.pdf_blocks import Line, blocks_of
from pytrace.documents.formats.pdf_rows import lines_of_rows, same_line
from pytrace.documents.passages import Extracted
from pytrace.documents.sentences import clean_text
from pytrace.errors import DataError

# A gap between two pieces of a line that is wider than so many times its height separates columns or cells.
_GAP = 1.6
# Columns of text are at least so many lines of on average so many characters; what is less is a table, read row by row.
_COLUMN_LINES, _COLUMN_LENGTH = 4, 18
# Of a page in columns at most this share of the lines, such as titles, crosses the gap between them.
_CROSSING = 0.2
# What stands in the same place of so many pages, and of so large a share of them, is a header or footer: so far from the edge.
_REPEATED, _SHARE, _MARGIN = 3, 0.4, 0.12
# A line there that is a page's number, or begins or ends with one beside words, is one on fewer pages too: chapters have others.
_NUMBERED = re.compile(r"#|# .*[^\W\d_].*|.*[^\W\d_].* #")
# A word; behind a hyphen at a line's end, which PDFium marks, begins another.
_SPACED = re.compile(r"[^\s\0\x02\ufffe]+[\x02\ufffe]?|[\x02\ufffe]")
_NUMBER = re.compile(r"[0-9]+|\b[ivxlc]+\b", re.IGNORECASE)
# Entries of a table of contents or an index: leaders of dots, and the numbers of pages.
_LEADERS = re.compile(r"(?:\.\s?){4,}\s*[\divxlc][\s\d,ivxlc–-]*$|(?:\.\s?){8,}$")
_BOLD = re.compile("bold|black|heavy|demi", re.IGNORECASE)
_USELESS_TITLE = re.compile(
    r"^(\(?(untitled|anonymous|unspecified|unknown)\)?|microsoft word.*|.*\.(docx?|tex|dvi|indd|qxd|pptx?|odt|fm))$",
    re.IGNORECASE,
)
_RECOGNISE = ": --ocr names a command that recognises it"
_METADATA = {"Author": "author", "CreationDate": "date", "Subject": "subject", "Keywords": "keywords"}
_name = (ctypes.c_char * 128)()
_first, _last = c.FS_RECTF(), c.FS_RECTF()
_DATE = re.compile(r"D:(\d{4})(\d{2})?(\d{2})?")


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
    lines = [line for page in _without_repeated(pages) for line in _ordered(page)]
    blocks = blocks_of(lines)
    if ocr:
        read = [block for number in scanned for block in recognised(document[number], number + 1, ocr)]
        blocks = sorted([*blocks, *read], key=lambda block: block.page or 0)
        if not blocks:
            raise DataError(f"has no text on its {len(pages)} pages, recognised or not", path=path)
        scanned = []
    fields = document.get_metadata_dict(skip_empty=True)
    title, level = clean_text(fields.get("Title", "")), 0
    if not title or _USELESS_TITLE.match(title):
        title = ""
        if blocks and blocks[0].level == 1 and blocks[0].page == 1:
            title, level, blocks = blocks[0].text, 1, blocks[1:]
    return Extracted(
        title,
        blocks,
        level,
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

    lines: list[Line]
    height: float


def _page(document: Any, number: int) -> _Page:
    """Read the lines of a page, one that a wide gap parts as several pieces."""
    page = document[number]
    text = page.get_textpage()
    height = page.get_height()
    characters = "".join(map(chr, map(partial(c.FPDFText_GetUnicode, text), range(text.count_chars()))))
    pieces: list[Line] = []
    end = 0
    for word in _SPACED.finditer(characters):
        _, top, right, bottom = box = _box(text, word, height)
        between = characters[end : word.start()]
        end = word.end()
        if pieces and "\n" not in between and _follows(pieces[-1], box):
            before = pieces[-1]
            pieces[-1] = before._replace(
                text=f"{before.text}{' ' if between else ''}{word[0]}",
                right=max(right, before.right),
                top=min(top, before.top),
                bottom=max(bottom, before.bottom),
            )
        else:
            size = round(c.FPDFText_GetFontSize(text, word.start()), 1)
            pieces.append(Line(word[0], *box, size, number + 1, _is_bold(text, word.start())))
    lines = _joined(pieces)
    text.close()
    page.close()
    return _Page([line for line in lines if not _LEADERS.search(line.text)], height)


def _box(text: Any, word: re.Match[str], height: float) -> tuple[float, float, float, float]:
    """Return left, top, right and bottom of a word, from the upper left corner of a page of this height."""
    # By the letters' advance, not their ink, so that they stand side by side.
    c.FPDFText_GetLooseCharBox(text, word.start(), _first)
    c.FPDFText_GetLooseCharBox(text, word.end() - 1, _last)
    return (
        min(_first.left, _last.left),
        height - max(_first.top, _last.top),
        max(_first.right, _last.right),
        height - min(_first.bottom, _last.bottom),
    )


def _follows(piece: Line, box: tuple[float, float, float, float]) -> bool:
    """Whether a word stands on the line of a piece, without a wide gap."""
    left, top, _, bottom = box
    height = max(bottom - top, 1.0)
    return min(bottom, piece.bottom) > max(top, piece.top) and -_GAP * height < left - piece.right < _GAP * height


def _is_bold(text: Any, at: int) -> bool:
    c.FPDFText_GetFontInfo(text, at, _name, len(_name), None)
    return _BOLD.search(_name.value.decode("latin-1")) is not None


def _joined(pieces: Sequence[Line]) -> list[Line]:
    """Join the pieces that stand on one line without a wide gap between them."""
    lines: list[Line] = []
    for piece in pieces:
        before = lines[-1] if lines else None
        if before is not None and same_line(before, piece) and -1.0 < piece.left - before.right < _GAP * before.height:
            space = " " if piece.left - before.right > 0.12 * before.height else ""
            lines[-1] = before._replace(
                text=before.text + space + piece.text,
                right=max(before.right, piece.right),
                top=min(before.top, piece.top),
                bottom=max(before.bottom, piece.bottom),
                size=max(before.size, piece.size),
                bold=before.bold and piece.bold,
            )
        else:
            lines.append(piece)
    return [line._replace(text=clean) for line in lines if (clean := " ".join(line.text.split()))]


def _without_repeated(pages: Sequence[_Page]) -> list[list[Line]]:
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


def _ordered(lines: Sequence[Line]) -> Iterator[Line]:
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
    yield from lines_of_rows(lines)


def _gutter(lines: Sequence[Line]) -> float:
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
