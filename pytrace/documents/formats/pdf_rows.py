"""Rows of pieces on a page of a PDF to lines: tables with heads in bold letters, items of lists, and all other rows as they are."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from pytrace.documents.formats.pdf_blocks import LEADING, Line

# What stands before an item of a list.
_BULLET = re.compile(r"[^\w\s]{1,2}|\(?\w{1,3}[.)]")


def same_line(first: Line, second: Line) -> bool:
    """Whether two pieces stand on one line."""
    overlap = min(first.bottom, second.bottom) - max(first.top, second.top)
    return overlap > 0.5 * min(first.height, second.height)


def lines_of_rows(pieces: Sequence[Line]) -> Iterator[Line]:
    """Iterate over pieces row by row, each row as one line; a table's names the heads of its columns, ``Head: cell; Head: cell``."""
    rows = list(_rows(pieces))
    heads: list[Line] = []
    table: list[dict[int, Line]] = []  # the rows read so far, their cells by column
    for index, row in enumerate(rows):
        cells = _cells(heads, row)
        bottom = max(cell.bottom for cell in table[-1].values()) if table else 0.0
        if cells and 0 not in cells and table and row[0].top - bottom < (LEADING - 1) * row[0].height:
            for column, cell in cells.items():  # what did not fit the line above
                before = table[-1].get(column)
                table[-1][column] = cell if before is None else _put_together([before, cell], " ")
        elif cells and len(row) > 1:
            table.append(cells)
        else:
            yield from _table_lines(heads, table)
            heads, table = [], []
            following = rows[index + 1] if index + 1 < len(rows) else []
            if len(row) > 1 and all(head.bold for head in row) and len(following) > 1 and _cells(row, following):
                heads = [] if all(cell.bold for cell in following) else row
            if not heads:
                yield _put_together(row, " " if _BULLET.fullmatch(row[0].text) and len(row) == 2 else "; ")
    yield from _table_lines(heads, table)


def _rows(pieces: Sequence[Line]) -> Iterator[list[Line]]:
    row: list[Line] = []
    for piece in sorted(pieces, key=lambda piece: (piece.top + piece.bottom, piece.left)):
        if row and not same_line(row[-1], piece):
            yield sorted(row, key=lambda piece: piece.left)
            row = []
        row.append(piece)
    if row:
        yield sorted(row, key=lambda piece: piece.left)


def _cells(heads: Sequence[Line], row: Sequence[Line]) -> dict[int, Line]:
    """Return the pieces of a row by the column that each stands in; none if they are not below the heads, one below each."""
    cells: dict[int, Line] = {}
    for piece in row:
        below = [column for column, head in enumerate(heads) if piece.left < head.right and piece.right > head.left]
        if len(below) != 1 or below[0] in cells:
            return {}
        cells[below[0]] = piece
    return cells


def _table_lines(heads: Sequence[Line], rows: Sequence[dict[int, Line]]) -> Iterator[Line]:
    for row in rows:
        cells = [cell._replace(text=f"{heads[column].text}: {cell.text}") for column, cell in sorted(row.items())]
        yield _put_together(cells, "; ")._replace(is_row=True, bold=False)


def _put_together(row: Sequence[Line], between: str) -> Line:
    if len(row) == 1:
        return row[0]
    return row[0]._replace(
        text=between.join(piece.text for piece in row),
        right=max(piece.right for piece in row),
        bottom=max(piece.bottom for piece in row),
    )
