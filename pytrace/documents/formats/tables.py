"""Tables to lines that can be read alone: each row says its cells beside the heads of their columns."""

from __future__ import annotations

from collections.abc import Sequence

from pytrace.documents.passages import Block
from pytrace.documents.sentences import clean_text


def table_blocks(rows: Sequence[Sequence[str]]) -> list[Block]:
    """Return a block a row, ``Head: cell; Head: cell``, whose heads are the first row's; alone that row is one block."""
    cells = [[clean_text(cell) for cell in row] for row in rows]
    if len(cells) < 2:
        return [Block("; ".join(filter(None, row)), whole=True) for row in cells]
    heads = cells[0]
    lines = []
    for row in cells[1:]:
        named = zip(heads + [""] * (len(row) - len(heads)), row, strict=False)
        # A cell that spans columns comes once for each of them.
        lines.append("; ".join(dict.fromkeys(f"{head}: {cell}" if head else cell for head, cell in named if cell)))
    return [Block(line, whole=True) for line in lines if line]
