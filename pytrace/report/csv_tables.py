"""A run's scores as CSV files that spreadsheets and programs read, safe against texts that a spreadsheet would take for formulas."""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from pytrace.evaluation.run.run_store import Result, RunStore
from pytrace.evaluation.scores.comparisons import Comparison
from pytrace.evaluation.scores.metrics import score_result
from pytrace.evaluation.scores.significance import BootstrapTest
from pytrace.evaluation.scores.summary import MethodSummary, Report
from pytrace.records import Usage
from pytrace.report.page_texts import clean
from pytrace.storage.files import atomic_output

# What begins a formula in some spreadsheet, the wide forms of the East included.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
_LIST = " | "

Value = str | float | None

METHOD_COLUMNS = (
    "method", "questions", "failed", "exact_match", "exact_match_low", "exact_match_high", "f1", "f1_low", "f1_high",
    "supporting_precision", "supporting_recall", "supporting_f1", "supporting_error_rate", "context_tokens", "prompts",
    "tokens_asked", "tokens_evaluated", "tokens_evaluated_median", "tokens_generated", "evaluated_share", "seconds",
    "seconds_total",
)  # fmt: skip
# Each with difference, interval, p and the p that Holm's procedure makes of it.
_COMPARED = ("exact_match", "f1", "supporting_recall", "supporting_error_rate", "ndcg", "context_tokens")
COMPARISON_COLUMNS = (
    "first", "second", "questions", "only_first_right", "only_second_right", "mcnemar_p", "mcnemar_p_holm",
    *(f"{name}_{part}" for name in _COMPARED for part in ("n", "difference", "low", "high", "p", "p_holm")),
)  # fmt: skip
QUESTION_COLUMNS = (
    "method", "question_id", "kind", "question", "gold_answers", "answer", "exact_match", "f1", "supporting_precision",
    "supporting_recall", "supporting_f1", "supporting_error_rate", "supporting_documents", "chosen_documents", "chains",
    "context_tokens", "prompts", "tokens_asked", "tokens_evaluated", "tokens_generated", "seconds", "deterministic",
    "notes", "error",
)  # fmt: skip


def write_csv_tables(directory: Path, report: Report, store: RunStore) -> list[Path]:
    """Write `methods.csv`, `comparisons.csv` and `questions.csv`, each in one step."""
    # Scores lie between 0 and 1, costs are means of a question, and what is not defined is empty. Several values of a
    # cell stand with " | " between them. A text that a spreadsheet would take for a formula has an apostrophe before
    # it.
    tables: dict[str, tuple[Sequence[str], Iterable[Sequence[Value]]]] = {
        "methods": (METHOD_COLUMNS, map(_method, report.methods)),
        "comparisons": (COMPARISON_COLUMNS, map(_comparison, report.comparisons)),
        "questions": (
            QUESTION_COLUMNS,
            (_question(row) for one in report.methods for row in store.rows(one.method)),
        ),
    }
    paths = []
    for name, (columns, rows) in tables.items():
        path = directory / f"{name}.csv"
        with atomic_output(path) as stream:
            for line in csv_lines(columns, rows):
                stream.write(line.encode())
        paths.append(path)
    return paths


def csv_lines(columns: Sequence[str], rows: Iterable[Sequence[Value]]) -> Iterator[str]:
    """Write a table as CSV (RFC 4180), a line at a time."""
    for row in itertools.chain([columns], rows):
        line = io.StringIO()
        csv.writer(line).writerow([_cell(value) for value in row])
        yield line.getvalue()


def _cell(value: Value) -> Value:
    if not isinstance(value, str):
        return value
    text = clean(value).replace("\0", "\ufffd")
    # Spreadsheets pass over spaces at the beginning, and over marks that cannot be seen.
    seen = text.lstrip(" \u00a0\u200b\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff")
    return f"'{text}" if seen.startswith(_FORMULA) else text


def _method(one: MethodSummary) -> tuple[Value, ...]:
    em, f1 = one.exact_match_interval or (None, None), one.f1_interval or (None, None)
    return (
        one.method, one.n, one.failed, one.exact_match, *em, one.f1, *f1, one.supporting_precision.mean,
        one.supporting_recall.mean, one.supporting_f1.mean, one.supporting_error_rate.mean, one.context_tokens.mean,
        one.calls.mean, one.prompt_tokens.mean, one.evaluated_tokens.mean, one.evaluated_tokens.median,
        one.generated_tokens.mean, one.evaluated_share, one.seconds.mean, one.seconds.total,
    )  # fmt: skip


def _comparison(pair: Comparison) -> tuple[Value, ...]:
    tested, row = pair.exact_match_mcnemar, list[Value]()
    for name in _COMPARED:
        test: BootstrapTest = getattr(pair, name)
        row += [test.n, test.difference, test.low, test.high, test.p_value, pair.adjusted.get(name)]
    adjusted = pair.adjusted.get("exact_match_mcnemar")
    return (pair.first, pair.second, tested.n, tested.only_first, tested.only_second, tested.p_value, adjusted, *row)


def _question(row: Result) -> tuple[Value, ...]:
    score = score_result(row)
    support = score.support
    known: tuple[Value, ...] = (
        row.method, row.question_id, row.kind, row.question, _LIST.join(row.answers),
        "" if row.answer is None else row.answer.text, score.exact_match, score.f1,
        support.precision, support.recall, support.f1, support.error_rate, _LIST.join(row.supporting_documents),
    )  # fmt: skip
    if row.answer is None:
        return (*known, *[None] * (len(QUESTION_COLUMNS) - len(known) - 1), row.error)
    answer, usage = row.answer, sum(row.answer.usage.values(), Usage())
    return (
        *known, _LIST.join(answer.evidence.document_ids), len(answer.evidence.chains), answer.context_tokens, usage.calls,
        usage.prompt_tokens, usage.evaluated_tokens, usage.generated_tokens, sum(answer.seconds.values()),
        int(answer.deterministic), _LIST.join(answer.notes), "",
    )  # fmt: skip
