"""The page of a run as a whole: figures, tables and plots written here, the questions as data that the page's script shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pytrace.evaluation.run.run_store import RunStore
from pytrace.evaluation.scores.study import study_tables
from pytrace.evaluation.scores.summary import MethodSummary, Report
from pytrace.report.figures import NOTHING, percent
from pytrace.report.html_page import counted, make_page, settings_list, tiles
from pytrace.report.page_texts import packed_json, shown
from pytrace.report.runs.chain_table import chains_table
from pytrace.report.runs.question_rows import PageData, page_data
from pytrace.report.runs.run_charts import (
    agreement_chart,
    context_chart,
    scores_chart,
    seconds_chart,
    stage_key,
    support_chart,
    tokens_chart,
)
from pytrace.report.runs.run_tables import (
    claims_tables,
    comparisons_table,
    failures_table,
    kinds_table,
    knowledge_table,
    methods_table,
    ranking_table,
    study_tables_markup,
)
from pytrace.storage.files import atomic_output

_LONGEST_LIST = 2_000


def report_page(report: Report, store: RunStore, *, title: str, baseline: str | None = None) -> str:
    """Write a run as one HTML file that needs nothing else: no network, no fonts, no other file.

    Parameters
    ----------
    report
        The run's scores.
    store
        The run itself, for its questions. Read it in one `RunStore.snapshot` with the scores, so that both tell the same.
    title
        The page's heading.
    baseline
        The method that the others are compared with; the report's own, or else the first.

    Returns
    -------
    str
        Without lone surrogates, so that it can be written as UTF-8; the same for the same run. 5,000 questions asked of 10
        methods make some 30 MB, of which a browser unpacks the list alone until a question is opened.

    Raises
    ------
    StoreError
        The run cannot be read.

    Examples
    --------
    >>> from pytrace.evaluation.scores.summary import score_run
    >>> with RunStore(":memory:") as store:
    ...     store.open_run({"model": "tiny"})
    ...     page = report_page(score_run(store), store, title="Nothing yet")
    >>> page.startswith("<!doctype html>"), "<h1>Nothing yet</h1>" in page, "https:" in page
    (True, True, False)
    """
    methods = report.methods
    names = [one.method for one in methods]
    against = baseline or report.baseline or (names[0] if names else "")
    data = page_data(store, names)
    fields = {
        "title": shown(title),
        "lead": _lead(report, data, store),
        "tiles": _tiles(report),
        "methods": methods_table(methods),
        "plots": _plots(methods, data),
        "comparisons": _section(
            "compared", f"Each method beside {against}", comparisons_table(report.comparisons, against, names)
        ),
        "kinds": _section("kinds", "By kind of question", kinds_table(methods)),
        "ranking": _section("ranking", "Documents as a ranking", ranking_table(methods)),
        "chains": _section("chains", "Chains and graphs", chains_table(methods)),
        "studies": _section(
            "studies",
            "Imperfect evidence",
            study_tables_markup([one for study in report.studies for one in study_tables(study)]),
        ),
        "claims": _section("claims", "Claims", claims_tables(report.claims)),
        "knowledge": _section("knowledge", "Knowledge bases", knowledge_table(report.knowledge)),
        "failures": _section("failures", "Failed", failures_table(methods)),
        "settings": settings_list(_settings(report, store)),
        "kind_options": _kind_options(data),
        "first_options": _options(names, 0),
        "second_options": _options(names, names.index(against) if against in names[1:] else 1),
        "right_options": "".join(
            f'<option value="{number}">{number} of {len(names)}</option>' for number in range(len(names) + 1)
        ),
        "documents": ""
        if any(True for _ in store.questions())
        else "<p>This run is of an older version, which did not keep the documents; their titles and sentences are missing.</p>",
        "data": packed_json(data.index),
        "blocks": "".join(
            f'<script type="text/plain" id="block-{number}">{block}</script>'
            for number, block in enumerate(data.blocks)
        ),
    }
    return make_page(__name__.rpartition(".")[0], "report", fields, scripts=("chains", "drilldown"))


def write_report_page(path: Path, report: Report, store: RunStore, *, title: str, baseline: str | None = None) -> None:
    """Write a run as one HTML file, in one step: there is the whole page or what was there before.

    Parameters
    ----------
    path
        The file.
    report, store, title, baseline
        See `report_page`.

    Raises
    ------
    StoreError
        The run cannot be read, or the file not be written.
    """
    page = report_page(report, store, title=title, baseline=baseline)
    with atomic_output(path) as stream:
        stream.write(page.encode())


def _lead(report: Report, data: PageData, store: RunStore) -> str:
    answers = sum(one is not None for column in data.index["results"] for one in column)
    total = report.questions * len(report.methods)
    missing = "" if answers >= total else f" The run is not complete: {total - answers:,} answers are still to come."
    pool = report.pool
    given = (
        ""
        if pool is None or pool.recall.mean is None
        else f" Of the supporting documents, methods are given {percent(pool.recall.mean)}."
    )
    started = shown(store.started.replace("T", " ").replace("+00:00", " UTC"))
    return (
        f"{counted(report.questions, 'question')} asked of {counted(len(report.methods), 'method')}, "
        f"{counted(answers, 'answer')}.{missing}{given} The run was begun on {started}."
    )


def _tiles(report: Report) -> str:
    methods = report.methods

    def best(values: Sequence[tuple[str, float | None]], *, low: bool = False) -> tuple[str, str]:
        known = [(value, name) for name, value in values if value is not None]
        if not known:
            return NOTHING, "not known"
        value = (min if low else max)(value for value, _ in known)
        winners = [name for own, name in known if own == value]
        names = ", ".join(winners[:2]) + (f" and {len(winners) - 2} more" if len(winners) > 2 else "")
        return percent(value), shown(names)

    cheapest = [(one.evaluated_tokens.mean, one.method) for one in methods if one.evaluated_tokens.mean is not None]
    tokens, cheap = min(cheapest, default=(None, "not known"))
    return tiles(
        {
            "Best exact match": best([(one.method, one.exact_match) for one in methods]),
            "Best F1": best([(one.method, one.f1) for one in methods]),
            "Best recall of support": best([(one.method, one.supporting_recall.mean) for one in methods]),
            "Least error rate": best([(one.method, one.supporting_error_rate.mean) for one in methods], low=True),
            "Fewest tokens evaluated": (NOTHING if tokens is None else f"{tokens:,.0f}", shown(cheap)),
        }
    )


def _plots(methods: Sequence[MethodSummary], data: PageData) -> str:
    if not methods:
        return ""
    right = [sum(bool(one[1]) for one in row if one is not None) for row in zip(*data.index["results"], strict=True)]
    key = (
        '<p class="key" aria-hidden="true"><span><i class="key-em"></i>EM</span><span><i class="key-f1"></i>F1</span>'
        '<span><i class="key-interval"></i>95 % interval</span></p>'
    )
    stages = f'<p class="key" aria-hidden="true">{stage_key(methods)}</p>'
    figures = (
        ("EM and F1", scores_chart(methods) + key),
        ("What F1 costs in context", context_chart(methods)),
        ("Recall against error rate", support_chart(methods)),
        (
            "Who is right?",
            agreement_chart(right, len(methods)) + "<figcaption>Choose a column to see its questions.</figcaption>",
        ),
        ("Seconds a question", seconds_chart(methods) + stages),
        ("Tokens evaluated a question", tokens_chart(methods) + stages),
    )
    return "".join(f"<figure><h3>{title}</h3>{drawing}</figure>" for title, drawing in figures)


def _section(name: str, title: str, content: str) -> str:
    if not content:
        return ""
    return f'<section aria-labelledby="{name}-heading"><h2 id="{name}-heading">{shown(title)}</h2>{content}</section>'


def _settings(report: Report, store: RunStore) -> dict[str, str]:
    """Name what an answer depends on; of the settings of methods, those of the methods that were asked."""
    used = {one.method.partition(":")[0] for one in report.methods}
    told = {"begun": store.started}
    for name, value in (*report.notes.items(), *report.settings.items()):
        if name == "settings" and isinstance(value, dict):
            for method, own in value.items():
                if method in used or not used:
                    told |= dict(_flat(method, own))
        else:
            told |= dict(_flat(name, value))
    return told


def _flat(name: str, value: Any) -> list[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        return [entry for key, own in value.items() for entry in _flat(f"{name} · {key}", own)]
    words = "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    return [(name, words[:_LONGEST_LIST])]


def _options(names: Sequence[str], chosen: int) -> str:
    return "".join(
        f'<option value="{place + 1}"{" selected" if place == chosen else ""}>{place + 1} {shown(name)}</option>'
        for place, name in enumerate(names)
    )


def _kind_options(data: PageData) -> str:
    kinds = [one[2] for one in data.index["questions"]]
    return "".join(
        f'<option value="{shown(kind)}">{shown(kind)} ({kinds.count(kind):,})</option>'
        for kind in sorted(set(kinds) - {""})
    )
