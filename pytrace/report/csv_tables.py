"""A run's scores as CSV files that spreadsheets and programs read, safe against texts that a spreadsheet would take for formulas."""

from __future__ import annotations

import csv
import io
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from importlib import resources
from pathlib import Path

import msgspec

from pytrace.evaluation.run.run_store import RunRow, RunStore
from pytrace.evaluation.scores.metrics import score_row
from pytrace.evaluation.scores.summary import Report
from pytrace.records import Usage
from pytrace.report.page_texts import clean, value_at
from pytrace.storage.files import atomic_output

# What begins a formula in some spreadsheet, the wide forms of the East included.
_FORMULA = "=+\\-@\t\r\n＝＋－＠"
# Spreadsheets pass over spaces at the beginning, and over marks that cannot be seen.
_UNSEEN = " \u00a0\u200b\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff"
# A spreadsheet set to another separator begins a cell behind each semicolon, tab or line end.
_BEGINNING = re.compile(f"(^|[;\t\r\n])(?=[{_UNSEEN}]*[{_FORMULA}])")

# The columns of each table, and where in a record their values stand.
COLUMNS = msgspec.json.decode(
    (resources.files(__package__) / "csv_columns.json").read_bytes(), type=dict[str, dict[str, str]]
)

Value = str | float | Sequence[str] | None


def write_csv_tables(directory: Path, report: Report, store: RunStore) -> list[Path]:
    """Write `methods.csv`, `comparisons.csv` and `questions.csv`, each in one step."""
    # Scores lie between 0 and 1, costs are means of a question, and what is not defined is empty. Several values of a
    # cell stand with " | " between them. A text that a spreadsheet would take for a formula has an apostrophe before
    # it.
    tables: dict[str, Iterable[object]] = {
        "methods": report.methods,
        "comparisons": report.comparisons,
        "questions": (_question(row) for one in report.methods for row in store.rows(one.method)),
    }
    paths = []
    for name, records in tables.items():
        places = [place.split(".") for place in COLUMNS[name].values()]
        rows = ([value_at(record, place) for place in places] for record in records)
        paths.append(directory / f"{name}.csv")
        with atomic_output(paths[-1]) as stream:
            for line in csv_lines(list(COLUMNS[name]), rows):
                stream.write(line.encode())
    return paths


def csv_lines(columns: Sequence[str], rows: Iterable[Sequence[Value]]) -> Iterator[str]:
    """Write a table as CSV (RFC 4180), a line at a time."""
    # A line at a time, so that a table may be longer than the memory.
    for row in itertools.chain([columns], rows):
        line = io.StringIO()
        csv.writer(line).writerow([_cell(value) for value in row])
        yield line.getvalue()


def _cell(value: Value) -> str | float | None:
    if value is None or isinstance(value, int | float):
        return int(value) if isinstance(value, bool) else value
    text = clean(value if isinstance(value, str) else " | ".join(value)).replace("\0", "\ufffd")
    return _BEGINNING.sub(r"\1'", text)


def _question(row: RunRow) -> dict[str, object]:
    result = row.result
    return {
        "row": row,
        "score": score_row(row),
        "result": result,
        "chains": None if result is None else len(result.evidence.method_chains),
        "usage": None if result is None else sum(result.usage.values(), Usage()),
        "seconds": None if result is None else sum(result.seconds.values()),
    }
