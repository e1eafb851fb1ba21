"""The tables of a run's page: scores and costs, comparisons, kinds of question, chains, claims and knowledge bases.

Where a row is a record and a column one of its figures, the columns stand in `tables.json`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import resources
from typing import Literal
from urllib.parse import quote

import msgspec

from pytrace.evaluation.scores.comparisons import Comparison
from pytrace.evaluation.scores.labels_and_queries import ClaimScores, KnowledgeScores
from pytrace.evaluation.scores.readers_in_use import reader_texts
from pytrace.evaluation.scores.significance import BootstrapTest
from pytrace.evaluation.scores.study import Table
from pytrace.evaluation.scores.summary import MethodSummary
from pytrace.report.drawing import line, rect
from pytrace.report.html_page import Cell, table
from pytrace.report.page_texts import NOTHING, finite, shown, value_at

_WORDS: Mapping[str, Callable[[float], str]] = {
    "percent": lambda value: f"{100 * value:.1f}",
    "count": "{:,}".format,
    # Of what is small each tenth counts; of thousands of tokens none does.
    "amount": lambda value: f"{value:,.1f}" if value < 10 else f"{value:,.0f}",
    "tenths": "{:.1f}".format,
    "seconds": "{:.2f}".format,
    "decimal": "{:,.2f}".format,
}


class _Column(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A column: its name, what it says in full, where in a record its value and interval stand, and which value is best."""

    name: str
    full: str = ""
    value: tuple[str, ...] = ()
    words: Literal["percent", "count", "amount", "tenths", "seconds", "decimal"] = "percent"
    interval: tuple[str, ...] = ()
    best: Literal["", "high", "low"] = ""

    def cells(self, records: Sequence[object]) -> list[Cell]:
        """Write this column's cell of each record; the best is marked if there is a contest."""
        # What a record does not count, such as an outcome that no query had, it has none of.
        missing = 0 if self.words == "count" else None
        values = [finite(value_at(record, self.value)) for record in records]
        values = [missing if value is None else value for value in values]
        known = {value for value in values if value is not None}
        best = None if len(known) < 2 or not self.best else max(known) if self.best == "high" else min(known)
        cells = []
        for record, value in zip(records, values, strict=True):
            ends = value_at(record, self.interval) if self.interval else None
            note = "" if ends is None else f"{100 * ends[0]:.1f}–{100 * ends[1]:.1f}"
            cells.append(Cell(_word(value, self.words), value, note, best=value is not None and value == best))
        return cells


class _Columns(msgspec.Struct, frozen=True):
    caption: str
    columns: tuple[_Column, ...]


_TABLES = msgspec.json.decode((resources.files(__package__) / "tables.json").read_bytes(), type=dict[str, _Columns])


def _word(value: float | None, words: str = "percent") -> str:
    return NOTHING if value is None else _WORDS[words](value)


def _record_table(
    caption: str,
    columns: Sequence[_Column],
    rows: Sequence[tuple[Cell, object]],
    texts: tuple[tuple[str, str], Sequence[str]] | None = None,
) -> str:
    """Write a table of records, each with the head of its row; `texts` are the head and the cells of a second column."""
    cells = [column.cells([record for _, record in rows]) for column in columns]
    heads = _heads(columns)
    if texts is not None:
        heads.insert(1, texts[0])
        cells.insert(0, [Cell(shown(text), text) for text in texts[1]])
    written = [[head, *row] for (head, _), row in zip(rows, zip(*cells, strict=True), strict=True)]
    return table(caption, heads, written)


def _heads(columns: Iterable[_Column]) -> list[tuple[str, str]]:
    return [("Method", ""), *((column.name, column.full) for column in columns)]


def _method_cell(number: int, method: str) -> Cell:
    """Write the head of a method's row: the number that it has on all of the page, and its name."""
    return Cell(f'<span class="place">{number}</span> {shown(method)}', method)


def methods_table(methods: Sequence[MethodSummary]) -> str:
    """Write the main table: how good each method is, and what it costs; with readers and unseen questions where there are such."""
    rows = [(_method_cell(number, one.method), one) for number, one in enumerate(methods, 1)]
    some_unseen = any(one.unseen is not None for one in methods)
    columns = [column for column in _TABLES["methods"].columns if some_unseen or column.value[0] != "unseen"]
    readers = reader_texts({one.method: one.reader for one in methods})
    texts = (("Reader", "how answers are read"), list(readers.values())) if readers else None
    return _record_table(_TABLES["methods"].caption, columns, rows, texts)


def comparisons_table(comparisons: Sequence[Comparison], baseline: str, methods: Sequence[str]) -> str:
    """Write how each method differs from the baseline on the questions that both were asked; empty if there is no other."""
    rows = []
    for number, method in enumerate(methods, 1):
        pair = next((one for one in comparisons if {one.first, one.second} == {method, baseline}), None)
        if pair is None or method == baseline:
            continue
        # Where a report compares every two methods, the baseline may be the first of a pair.
        sign = -1 if pair.first == baseline else 1
        em, f1, support = (_signed(test, sign) for test in (pair.exact_match, pair.f1, pair.supporting_recall))
        tested = pair.exact_match_mcnemar
        won, lost = (tested.only_first, tested.only_second)[::sign]
        # The address of the questions that one of the two alone answers right.
        link = f'<a href="#a={number}&amp;b={methods.index(baseline) + 1}&amp;outcome='
        note = "read in another way" if pair.readers_differ else ""
        rows.append(
            [
                _method_cell(number, method)._replace(note=note),
                Cell(f"{pair.exact_match.n:,}", pair.exact_match.n),
                _difference(*em),
                _p_value(pair.exact_match.p_value, pair.adjusted.get("exact_match")),
                _difference(*f1),
                _p_value(pair.f1.p_value, pair.adjusted.get("f1")),
                Cell(_forest(*f1)),
                _difference(*support),
                _p_value(pair.supporting_recall.p_value, pair.adjusted.get("supporting_recall")),
                Cell(f'{link}won">{won:,}</a>', won),
                Cell(f'{link}lost">{lost:,}</a>', lost),
                _p_value(tested.p_value, pair.adjusted.get("exact_match_mcnemar")),
            ]
        )
    named = _TABLES["comparisons"]
    return table(named.caption.format(baseline=shown(baseline)), _heads(named.columns), rows) if rows else ""


def kinds_table(methods: Sequence[MethodSummary]) -> str:
    """Write EM and F1 on each kind of question; empty if no question has a kind."""
    kinds = sorted({kind for one in methods for kind in one.by_kind})
    rows = []
    for number, one in enumerate(methods, 1):
        scores = [one.by_kind.get(kind) for kind in kinds]
        rows.append([_method_cell(number, one.method)])
        for score in scores:
            note = "" if score is None else f"of {score.n:,}"
            for value in (None, None) if score is None else (score.exact_match, score.f1):
                rows[-1].append(Cell(_word(value), value, note))
    heads = [("Method", ""), *((f"{kind}: {name}", "") for kind in kinds for name in ("EM", "F1"))]
    return table("EM and F1 by kind of question, in percent", heads, rows) if kinds else ""


def ranking_table(methods: Sequence[MethodSummary]) -> str:
    """Write how well the documents chosen are ranked; empty if nothing is known to support an answer."""
    ranked = [(_method_cell(number, one.method), one.ranking) for number, one in enumerate(methods, 1) if one.ranking]
    depths = dict.fromkeys(depth for _, ranking in ranked for depth in ranking.recall)
    share = "share of the supporting documents among the first {}, in percent"
    recall = [_Column(f"Recall@{depth}", share.format(depth), ("recall", depth, "mean")) for depth in depths]
    columns = [*_TABLES["ranking"].columns, *recall]
    return _record_table(_TABLES["ranking"].caption, columns, ranked) if ranked else ""


def chains_table(methods: Sequence[MethodSummary]) -> str:
    """Write the chains and the graphs that they were searched in; what no method has is left out (TRACE, Table 5)."""
    rows = [(_method_cell(number, one.method), one.chains) for number, one in enumerate(methods, 1) if one.chains]
    known = [
        one for one in _TABLES["chains"].columns if any(finite(value_at(row, one.value)) is not None for _, row in rows)
    ]
    return _record_table(_TABLES["chains"].caption, known, rows) if known else ""


def knowledge_table(knowledge: Sequence[KnowledgeScores]) -> str:
    """Write how often each method asked its knowledge base, and how it did where it asked and where not."""
    *columns, refused = _TABLES["knowledge"].columns
    outcomes = dict.fromkeys(name for one in knowledge for name in one.queries)
    rows = [(Cell(shown(one.method), one.method), one) for one in knowledge]
    queries = [_Column(f"Queries {name}", value=("queries", name), words="count") for name in outcomes]
    return _record_table(_TABLES["knowledge"].caption, [*columns, *queries, refused], rows) if rows else ""


def study_tables_markup(tables: Sequence[Table]) -> str:
    """Write the tables of a study of perturbed evidence."""
    return "".join(
        table(
            shown(one.title),
            [(name, "") for name in one.columns],
            [[Cell(shown(cell)) for cell in row] for row in one.rows],
            kind="plain",
        )
        for one in tables
    )


def claims_tables(claims: Sequence[ClaimScores]) -> str:
    """Write which labels each method gave to the claims of which, and the scores of each label."""
    tables = []
    for scores in claims:
        labels = [one.label for one in scores.labels]
        columns = list(dict.fromkeys([*labels, *(name for one in scores.labels for name in one.given)]))
        heads = ["Gold", *(f"given {name}" for name in columns), "Precision", "Recall", "F1"]
        rows = []
        for one in scores.labels:
            counts = [(name, one.given.get(name, 0)) for name in columns]
            given = [Cell(f"{count:,}", count, best=name == one.label) for name, count in counts]
            measured = [Cell(_word(value), value) for value in (one.precision, one.recall, one.f1)]
            rows.append([Cell(shown(one.label), one.label), *given, *measured])
        caption = (
            f"{shown(scores.method)}: labels of {scores.n:,} claims; accuracy {_word(scores.accuracy)}, "
            f"macro F1 {_word(scores.macro_f1)}"
        )
        tables.append(table(caption, [(head, "") for head in heads], rows, kind="plain"))
    return "".join(tables)


def failures_table(methods: Sequence[MethodSummary], most: int = 50) -> str:
    """Write which questions have no answer, and why; empty if all have one."""
    failures = [(one.method, failure) for one in methods for failure in one.failures]
    rows = []
    for method, one in failures[:most]:
        address = quote(one.question_id, errors="replace")
        link = Cell(f'<a href="#q={address}">{shown(one.question_id)}</a>', one.question_id)
        rows.append([Cell(shown(method), method), link, Cell(shown(one.error), one.error)])
    more = f" (the first {most} of {len(failures):,})" if len(failures) > most else ""
    heads = [("Method", ""), ("Question", ""), ("Why", "")]
    return table(f"Questions without an answer{more}", heads, rows, kind="wordy") if rows else ""


def _signed(test: BootstrapTest, sign: int) -> tuple[float | None, float | None, float | None]:
    """Return a difference and its interval, of second less first if the sign is negative."""
    value, low, high = (
        None if finite(end) is None else sign * (end or 0) for end in (test.difference, test.low, test.high)
    )
    return (value, low, high) if sign > 0 else (value, high, low)


def _difference(value: float | None, low: float | None, high: float | None) -> Cell:
    note = "" if low is None or high is None else f"{_points(low)} to {_points(high)}"
    return Cell(NOTHING if value is None else _points(value), value, note)


def _p_value(value: float | None, adjusted: float | None) -> Cell:
    """Write a p-value, and below it what Holm's procedure makes of it; bold where what counts is below 0.05."""
    if value is None:
        return Cell(NOTHING)
    # Of many comparisons some are below 0.05 by chance alone, so the adjusted one counts where there is one.
    decisive = value if adjusted is None else adjusted
    return Cell(_small(value), value, "" if adjusted is None else f"Holm {_small(adjusted)}", best=decisive < 0.05)


def _small(value: float) -> str:
    return "&lt; 0.001" if value < 0.001 else f"{value:.3f}"


def _forest(value: float | None, low: float | None, high: float | None) -> str:
    if value is None:
        return NOTHING
    interval = "" if low is None or high is None else line("interval f1", 60 + 58 * low, 8, 60 + 58 * high, 8)
    # The cell beside it says the same in figures, so that nobody need hear it twice.
    return (
        f'<svg class="chart forest" viewBox="0 0 120 16" aria-hidden="true">{line("grid", 60, 0, 60, 16)}{interval}'
        f"{rect('f1', 56.5 + 58 * value, 4.5, 7, 7)}</svg>"
    )


def _points(value: float) -> str:
    rounded = round(100 * value, 1)
    # A true minus sign is as wide as a plus; a difference that rounds to nothing has no sign.
    return f"{rounded:+.1f}".replace("-", "−") if rounded else "0.0"
