"""The tables of a run's page: scores and costs, comparisons, kinds of question, chains, claims and knowledge bases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import quote

from pytrace.evaluation.scores.comparisons import Comparison
from pytrace.evaluation.scores.labels_and_queries import ClaimScores, KnowledgeScores
from pytrace.evaluation.scores.significance import BootstrapTest
from pytrace.evaluation.scores.study import Table
from pytrace.evaluation.scores.summary import MethodSummary
from pytrace.report.drawing import line
from pytrace.report.figures import NOTHING, finite
from pytrace.report.page_texts import shown


class Cell(NamedTuple):
    """A cell: its markup, what it is sorted by (None: after all others), a smaller second line, and whether it is the best."""

    text: str
    key: float | str | None = None
    note: str = ""
    best: bool = False


class Head(NamedTuple):
    """A column's head: its name, what it says in full, and whether a high or a low value is good, where one is."""

    name: str
    full: str = ""
    good: str = ""


def table(caption: str, heads: Sequence[Head], rows: Sequence[Sequence[Cell]], *, kind: str = "sortable") -> str:
    """Write a table that scrolls by itself where the page is narrow; the first cell of a row is its head."""
    head = "".join(
        f'<th scope="col"{f" title={_quoted(one.full)}" if one.full else ""}>{shown(one.name)}</th>' for one in heads
    )
    body = "".join(
        "<tr>"
        + "".join(
            f"<{'td' if place else 'th'}{_key(cell)}{'' if place else _ROW}{_BEST if cell.best else ''}>{cell.text}"
            f"{f'<small>{cell.note}</small>' if cell.note else ''}</{'td' if place else 'th'}>"
            for place, cell in enumerate(row)
        )
        + "</tr>"
        for row in rows
    )
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="Table"><table class="{kind}">'
        f"<caption>{caption}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


_ROW = ' scope="row"'
_BEST = ' class="best"'
_METHOD_HEADS = (
    Head("Method"),
    Head("n", "questions"),
    Head("EM", "exact match, in percent, with its 95 % interval", "high"),
    Head("F1", "F1 of the answers' words, in percent, with its 95 % interval", "high"),
    Head("Support P", "precision of the documents chosen, in percent", "high"),
    Head("Support R", "recall of the supporting documents, in percent", "high"),
    Head("Error rate", "share of the chosen documents that support nothing, in percent", "low"),
    Head("Context", "tokens of evidence that the reader saw, mean", "low"),
    Head("Prompts", "prompts a question, mean", "low"),
    Head("Asked", "prompt tokens asked for a question, mean", "low"),
    Head("Evaluated", "tokens really evaluated a question, mean", "low"),
    Head("Seconds", "wall-clock seconds a question, mean", "low"),
    Head("Failed", "questions without an answer"),
)


def methods_table(methods: Sequence[MethodSummary]) -> str:
    """Write the main table: how good each method is, and what it costs."""
    columns: list[list[tuple[float | None, str, str]]] = [
        [
            (one.n, f"{one.n:,}", ""),
            (one.exact_match, _percent(one.exact_match), _interval(one.exact_match_interval)),
            (one.f1, _percent(one.f1), _interval(one.f1_interval)),
            *(
                (mean.mean, _percent(mean.mean), "")
                for mean in (one.supporting_precision, one.supporting_recall, one.supporting_error_rate)
            ),
            *(
                (quantity.mean, _whole(quantity.mean), "")
                for quantity in (one.context_tokens, one.calls, one.prompt_tokens, one.evaluated_tokens)
            ),
            (one.seconds.mean, NOTHING if one.seconds.mean is None else f"{one.seconds.mean:.2f}", ""),
            (one.failed, f"{one.failed:,}", ""),
        ]
        for one in methods
    ]
    best = []
    for place, head in enumerate(_METHOD_HEADS[1:]):
        known = [row[place][0] for row in columns if row[place][0] is not None]
        pick = {"high": max, "low": min}.get(head.good)
        # Without a contest there is no winner.
        best.append(pick(value for value in known if value is not None) if pick and len(set(known)) > 1 else None)
    rows = [
        [
            method_cell(number, one.method),
            *(
                Cell(text, value, note, best=value is not None and value == best[place])
                for place, (value, text, note) in enumerate(row)
            ),
        ]
        for number, (one, row) in enumerate(zip(methods, columns, strict=True), 1)
    ]
    return table("Scores in percent, costs a question; the best of a column is bold", _METHOD_HEADS, rows)


def comparisons_table(comparisons: Sequence[Comparison], baseline: str, methods: Sequence[str]) -> str:
    """Write how each method differs from the baseline on the questions that both were asked; empty if there is no other."""
    rows = []
    for number, method in enumerate(methods, 1):
        pair = next((one for one in comparisons if {one.first, one.second} == {method, baseline}), None)
        if pair is None or method == baseline:
            continue
        turned = pair.first == baseline
        em, f1 = _turned(pair.exact_match, turned=turned), _turned(pair.f1, turned=turned)
        tested = pair.exact_match_mcnemar
        won, lost = (tested.only_first, tested.only_second)[:: -1 if turned else 1]
        # The address of the questions that one of the two alone answers right.
        link = f'<a href="#a={number}&amp;b={methods.index(baseline) + 1}&amp;outcome='
        rows.append(
            [
                method_cell(number, method),
                Cell(f"{em.n:,}", em.n),
                *_difference(em, pair.adjusted.get("exact_match")),
                *_difference(f1, pair.adjusted.get("f1")),
                Cell(_forest(f1)),
                *_difference(_turned(pair.supporting_recall, turned=turned), pair.adjusted.get("supporting_recall")),
                Cell(f'{link}won">{won:,}</a>', won),
                Cell(f'{link}lost">{lost:,}</a>', lost),
                _p_value(tested.p_value, pair.adjusted.get("exact_match_mcnemar")),
            ]
        )
    if not rows:
        return ""
    heads = (
        Head("Method"),
        Head("n", "questions that both were asked"),
        Head("EM", "difference in points of a percent, with its 95 % interval"),
        Head("p", "paired bootstrap"),
        Head("F1", "difference in points of a percent, with its 95 % interval"),
        Head("p", "paired bootstrap"),
        Head("F1, drawn", "the difference in F1 with its interval, from -100 to 100 points"),
        Head(
            "Support R",
            "difference in recall of the supporting documents, in points of a percent, with its 95 % interval",
        ),
        Head("p", "paired bootstrap"),
        Head("Won", "questions that the method answers right and the baseline wrong"),
        Head("Lost", "questions that the baseline answers right and the method wrong"),
        Head("p, McNemar", "of won and lost questions"),
    )
    return table(f"Less {shown(baseline)}, in points of a percent, question by question", heads, rows)


def kinds_table(methods: Sequence[MethodSummary]) -> str:
    """Write EM and F1 on each kind of question; empty if no question has a kind."""
    kinds = sorted({kind for one in methods for kind in one.by_kind})
    if not kinds:
        return ""
    rows = []
    for number, one in enumerate(methods, 1):
        cells = [method_cell(number, one.method)]
        for kind in kinds:
            own = one.by_kind.get(kind)
            if own is None:
                cells += [Cell(NOTHING), Cell(NOTHING)]
                continue
            note = f"of {own.n:,}"
            cells += [Cell(_percent(own.exact_match), own.exact_match, note), Cell(_percent(own.f1), own.f1, note)]
        rows.append(cells)
    heads = [Head("Method"), *(Head(f"{kind}: {name}") for kind in kinds for name in ("EM", "F1"))]
    return table("EM and F1 by kind of question, in percent", heads, rows)


def ranking_table(methods: Sequence[MethodSummary]) -> str:
    """Write how well the documents chosen are ranked; empty if nothing is known to support an answer."""
    known = [(number, one.method, one.ranking) for number, one in enumerate(methods, 1) if one.ranking is not None]
    depths = list(dict.fromkeys(depth for _, _, own in known for depth in own.recall))
    rows = []
    for number, method, own in known:
        shares = [own.ndcg, *(own.recall.get(depth) for depth in depths)]
        means = [None if share is None else share.mean for share in shares]
        documents = own.documents.mean
        chosen = Cell(NOTHING if documents is None else f"{documents:.1f}", documents)
        rows.append([method_cell(number, method), chosen, *(Cell(_percent(mean), mean) for mean in means)])
    heads = [
        Head("Method"),
        Head("Chosen", "documents that a question's answer rests on, mean"),
        Head("nDCG@10", "of the documents chosen, in their order, in percent"),
        *(
            Head(f"Recall@{depth}", f"share of the supporting documents among the first {depth}, in percent")
            for depth in depths
        ),
    ]
    return table("The documents chosen as a ranking, in percent", heads, rows) if rows else ""


def study_tables_markup(tables: Sequence[Table]) -> str:
    """Write the tables of a study of perturbed evidence."""
    return "".join(
        table(
            shown(one.title),
            [Head(name) for name in one.columns],
            [[Cell(shown(cell)) for cell in row] for row in one.rows],
            kind="plain",
        )
        for one in tables
    )


def claims_tables(claims: Sequence[ClaimScores]) -> str:
    """Write which labels each method gave to the claims of which, and the scores of each label."""
    written = []
    for scores in claims:
        given = list(
            dict.fromkeys([*(one.label for one in scores.labels), *(n for one in scores.labels for n in one.given)])
        )
        heads = [
            Head("Gold"),
            *(Head(f"given {name}") for name in given),
            Head("Precision"),
            Head("Recall"),
            Head("F1"),
        ]
        rows = [
            [
                Cell(shown(one.label), one.label),
                *(
                    Cell(f"{one.given.get(name, 0):,}", one.given.get(name, 0), best=name == one.label)
                    for name in given
                ),
                *(Cell(_percent(value), value) for value in (one.precision, one.recall, one.f1)),
            ]
            for one in scores.labels
        ]
        caption = (
            f"{shown(scores.method)}: labels of {scores.n:,} claims; accuracy {_percent(scores.accuracy)}, "
            f"macro F1 {_percent(scores.macro_f1)}"
        )
        written.append(table(caption, heads, rows, kind="plain"))
    return "".join(written)


def knowledge_table(knowledge: Sequence[KnowledgeScores]) -> str:
    """Write how often each method asked its knowledge base, and how it did where it asked and where not."""
    if not knowledge:
        return ""
    outcomes = list(dict.fromkeys(name for one in knowledge for name in one.queries))
    heads = [
        Head("Method"),
        Head("n", "answered questions"),
        Head("Asked", "questions for which the knowledge base was asked"),
        Head("Got facts", "questions that got a fact"),
        Head("EM, asked", "where it was asked, in percent"),
        Head("EM, not asked", "where it was not, in percent"),
        *(Head(f"Queries {name}") for name in outcomes),
        Head("Refused on the way", "queries tried before the last one"),
    ]
    rows = [
        [
            Cell(shown(one.method), one.method),
            *(Cell(f"{value:,}", value) for value in (one.n, one.asked, one.informed)),
            *(Cell(_percent(value), value) for value in (one.asked_exact_match, one.other_exact_match)),
            *(Cell(f"{one.queries.get(name, 0):,}", one.queries.get(name, 0)) for name in outcomes),
            Cell(f"{one.refused:,}", one.refused),
        ]
        for one in knowledge
    ]
    return table("What was asked of knowledge bases", heads, rows)


def failures_table(methods: Sequence[MethodSummary], most: int = 50) -> str:
    """Write which questions have no answer, and why; empty if all have one."""
    failures = [(one.method, failure) for one in methods for failure in one.failures]
    if not failures:
        return ""
    rows = [
        [
            Cell(shown(method), method),
            Cell(
                f'<a href="#q={quote(one.question_id, errors="replace")}">{shown(one.question_id)}</a>', one.question_id
            ),
            Cell(shown(one.error), one.error),
        ]
        for method, one in failures[:most]
    ]
    more = f" (the first {most} of {len(failures):,})" if len(failures) > most else ""
    heads = (Head("Method"), Head("Question"), Head("Why"))
    return table(f"Questions without an answer{more}", heads, rows, kind="wordy")


def method_cell(number: int, method: str) -> Cell:
    """Write the head of a method's row: the number that it has on all of the page, and its name."""
    return Cell(f'<span class="place">{number}</span> {shown(method)}', method)


def _difference(test: BootstrapTest, adjusted: float | None) -> tuple[Cell, Cell]:
    value, low, high = finite(test.difference), finite(test.low), finite(test.high)
    note = "" if low is None or high is None else f"{_points(low)} to {_points(high)}"
    return Cell(NOTHING if value is None else _points(value), value, note), _p_value(test.p_value, adjusted)


def _p_value(value: float | None, adjusted: float | None) -> Cell:
    """Write a p-value, and below it what Holm's procedure makes of it; bold where what counts is below 0.05."""
    if value is None:
        return Cell(NOTHING)
    decisive = value if adjusted is None else adjusted
    return Cell(_small(value), value, "" if adjusted is None else f"Holm {_small(adjusted)}", best=decisive < 0.05)


def _small(value: float) -> str:
    return "&lt; 0.001" if value < 0.001 else f"{value:.3f}"


def _turned(test: BootstrapTest, *, turned: bool) -> BootstrapTest:
    """Return the test of second less first, if it is to be turned."""
    if not turned:
        return test
    low, high = (None if end is None else -end for end in (test.high, test.low))
    return BootstrapTest(None if test.difference is None else -test.difference, low, high, test.p_value, test.n)


def _forest(test: BootstrapTest) -> str:
    value, low, high = finite(test.difference), finite(test.low), finite(test.high)
    if value is None:
        return NOTHING
    interval = "" if low is None or high is None else line("interval f1", 60 + 58 * low, 8, 60 + 58 * high, 8)
    return (
        f'<svg class="chart forest" viewBox="0 0 120 16" aria-hidden="true">{line("grid", 60, 0, 60, 16)}{interval}'
        f'<rect class="f1" x="{56.5 + 58 * value:.1f}" y="4.5" width="7" height="7"/></svg>'
    )


def _percent(value: float | None) -> str:
    return NOTHING if finite(value) is None else f"{100 * (value or 0):.1f}"


def _points(value: float) -> str:
    rounded = round(100 * value, 1)
    return f"{rounded:+.1f}".replace("-", "−") if rounded else "0.0"


def _whole(value: float | None) -> str:
    return NOTHING if value is None else f"{value:,.1f}" if value < 10 else f"{value:,.0f}"


def _interval(interval: tuple[float, float] | None) -> str:
    return "" if interval is None else f"{100 * interval[0]:.1f}–{100 * interval[1]:.1f}"


def _key(cell: Cell) -> str:
    key = finite(cell.key) if isinstance(cell.key, int | float) else cell.key
    return "" if key is None else f" data-key={_quoted(f'{key:g}' if isinstance(key, float) else str(key))}"


def _quoted(text: str) -> str:
    return f'"{shown(text)}"'
