"""Tables to lines that can be read alone, each cell beside the head of its column; and CSV files, whose rows may be documents."""

from __future__ import annotations

import csv
import io
import itertools
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from pytrace.documents.passages import Block, Extracted
from pytrace.documents.rows import Row, beginning_of
from pytrace.documents.sentences import clean_text
from pytrace.documents.text_files import MOST_BYTES, Place, encoding_of, open_file, peek_text, suffix_of
from pytrace.errors import DataError

# A quote that is never closed would make one field of all the rest.
_LONGEST_FIELD = 10_000_000
_LONGEST_LINE = 2 * _LONGEST_FIELD
_SAMPLE = 1 << 20  # from which encoding and delimiter are told
_DELIMITERS = ",;\t|"
_NUMBER = re.compile(r"[-+]?[\d.,\s]*\d%?")
# Columns with a meaning, in lower case; all others are metadata.
_FIELDS = ("text", "title", "id")


def table_blocks(rows: Sequence[Sequence[str]]) -> list[Block]:
    """Return a block a row, ``Head: cell; Head: cell``, whose heads are the first row's; alone that row is one block."""
    cells = [[clean_text(cell) for cell in row] for row in rows]
    if len(cells) < 2:
        return [Block("; ".join(filter(None, row)), whole=True) for row in cells if any(row)]
    lines = [_line(cells[0], row) for row in cells[1:]]
    return [Block(line, whole=True) for line in lines if line]


def _line(heads: list[str], cells: list[str]) -> str:
    named = zip(heads + [""] * (len(cells) - len(heads)), cells, strict=False)
    # A cell that spans columns comes once for each of them.
    return "; ".join(dict.fromkeys(f"{head}: {cell}" if head else cell for head, cell in named if cell))


class CsvFile(NamedTuple):
    """The heads of a file's columns (none if a number stands in its first row), its rows with their places, and warnings."""

    heads: list[str]
    rows: Iterator[tuple[Place, list[str]]]
    warnings: list[str]

    @property
    def holds_documents(self) -> bool:
        """Whether each row is a document: a column is named `text`."""
        return "text" in map(str.lower, self.heads)

    def documents(self) -> Iterator[tuple[Place, Row]]:
        """Iterate over the rows as documents: `text`, `title` and `id` by their columns, all others as metadata."""
        for place, cells in self.rows:
            row: Row = {"metadata": {}}
            for head, cell in zip(self.heads, cells, strict=False):
                if head.lower() in _FIELDS:
                    row.setdefault(head.lower(), cell)
                elif head and cell.strip():
                    row["metadata"][head] = clean_text(cell)
            row.setdefault("text", "")
            row["title"] = clean_text(row.get("title", "")) or beginning_of(row["text"]) or place.path.stem
            if not row.get("id", "").strip():
                row.pop("id", None)
            yield place, row

    def extracted(self, path: Path) -> Extracted:
        """Return the table as one document, a line a row."""
        blocks: list[Block] = []
        size = 0
        for _, cells in self.rows:
            line = _line(self.heads, [clean_text(cell) for cell in cells])
            if line:  # none of a row without a readable character
                blocks.append(Block(line, whole=True))
            size += len(line)
            if size > MOST_BYTES:
                raise DataError(
                    f"has more than {MOST_BYTES:,} characters, the most that is read of one table; split it, or name the "
                    "column of its texts `text`: then each row is a document",
                    path=path,
                )
        return Extracted("", blocks or table_blocks([self.heads]), warnings=self.warnings)


@contextmanager
def open_csv(path: Path) -> Iterator[CsvFile]:
    """Open a table with commas, semicolons, tabs or bars between its cells."""
    csv.field_size_limit(max(csv.field_size_limit(), _LONGEST_FIELD))
    with open_file(path) as stream:
        peek_text(stream, path, only_utf8=False)
        sample = stream.read(_SAMPLE)
        stream.seek(0)
        encoding, warning = encoding_of(sample, whole=len(sample) < _SAMPLE)
        text = io.TextIOWrapper(stream, encoding=encoding, errors="replace", newline="")
        rows = _rows(
            csv.reader(_lines(text, path), delimiter=_delimiter(sample.decode(encoding, "replace"), path)), path
        )
        first = next(rows, None)
        heads = [] if first is None else [clean_text(cell) for cell in first[1]]
        if first is not None and any(map(_NUMBER.fullmatch, heads)):
            heads, rows = [], itertools.chain([first], rows)
        yield CsvFile(heads, rows, [warning] if warning else [])


def _lines(text: io.TextIOWrapper, path: Path) -> Iterator[str]:
    for number, line in enumerate(iter(lambda: text.readline(_LONGEST_LINE + 1), ""), start=1):
        if len(line) > _LONGEST_LINE:
            raise DataError(
                f"has more than {_LONGEST_LINE:,} characters in a line; is it a table?", path=path, line=number
            )
        yield line


def _delimiter(sample: str, path: Path) -> str:
    """Return what parts the cells of the first line: the commonest of those that there are."""
    line = next(filter(str.strip, sample.splitlines()), "")
    return "\t" if suffix_of(path) == ".tsv" else max(_DELIMITERS, key=line.count)


def _rows(reader: Any, path: Path) -> Iterator[tuple[Place, list[str]]]:
    while True:
        place = Place(path, reader.line_num + 1)
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise place.error(f"no row can be read here ({error}); is a quote not closed?") from None
        if any(map(str.strip, row)):
            yield place, row
