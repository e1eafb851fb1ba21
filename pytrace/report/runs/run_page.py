"""The page of a run as a whole: figures, tables and plots written here, the questions as data that the page's script shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pytrace.evaluation.run.run_store import RunStore
from pytrace.evaluation.scores.study import study_tables
from pytrace.evaluation.scores.summary import MethodSummary, Report
from pytrace.report.html_page import data_element, figures, key, make_page, options, section, settings_list, tiles
from pytrace.report.page_texts import NOTHING, counted, packed_json, percent, shown
from pytrace.report.runs import run_charts, run_tables
from pytrace.report.runs.question_rows import PageData, page_data

# Of a setting, such as a list of files, the page shows so many characters.
_LONGEST_SETTING = 2_000
_OLD_RUN = (
    "<p>This run is of an older version, which did not keep the documents; their titles and sentences are missing.</p>"
)


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
    # Methods go by their number on the page and in its addresses, for a name may hold anything.
    studies = [one for study in report.studies for one in study_tables(study)]
    compared = run_tables.comparisons_table(report.comparisons, against, names)
    kinds = [one[2] for one in data.index["questions"]]
    blocks = [data_element(f"block-{number}", block) for number, block in enumerate(data.blocks)]
    numbered = {str(number): f"{number} {name}" for number, name in enumerate(names, 1)}
    fields = {
        "title": shown(title),
        "overline": "Evaluation of question answering",
        "lead": _lead(report, data, store),
        "tiles": _tiles(report.methods),
        "noun": "question",
        "note": "" if any(True for _ in store.questions()) else _OLD_RUN,
        "status": "Reading the questions …",
        "data": "\n".join(["".join(blocks), data_element("data", packed_json(data.index))]),
        "notices": "".join(f'<p class="notice">{shown(notice)}.</p>' for notice in map(_sentence, report.notices)),
        "methods": run_tables.methods_table(methods),
        "settings": settings_list(_settings(report, store)),
        "plots": _plots(methods, data),
        "comparisons": section("compared", f"Each method beside {against}", compared),
        "kinds": section("kinds", "By kind of question", run_tables.kinds_table(methods)),
        "ranking": section("ranking", "Documents as a ranking", run_tables.ranking_table(methods)),
        "chains": section("chains", "Chains and graphs", run_tables.chains_table(methods)),
        "studies": section("studies", "Imperfect evidence", run_tables.study_tables_markup(studies)),
        "claims": section("claims", "Claims", run_tables.claims_tables(report.claims)),
        "knowledge": section("knowledge", "Knowledge bases", run_tables.knowledge_table(report.knowledge)),
        "failures": section("failures", "Failed", run_tables.failures_table(methods)),
        "first_options": options(numbered, "1"),
        # The baseline stands beside the first method, or the second method if the baseline is the first.
        "second_options": options(numbered, str(names.index(against) + 1) if against in names[1:] else "2"),
        "right_options": options({str(number): f"{number} of {len(names)}" for number in range(len(names) + 1)}),
        "kind_options": options({kind: f"{kind} ({kinds.count(kind):,})" for kind in sorted(set(kinds) - {""})}),
    }
    return make_page(__name__.rpartition(".")[0], fields, scripts=("chains", "drilldown", "page"))


def _lead(report: Report, data: PageData, store: RunStore) -> str:
    answers = sum(one is not None for column in data.index["results"] for one in column)
    missing = report.questions * len(report.methods) - answers
    questions, methods = counted(report.questions, "question"), counted(len(report.methods), "method")
    words = [f"{questions} asked of {methods}, {counted(answers, 'answer')}."]
    if missing > 0:
        words.append(f"The run is not complete: {missing:,} answers are still to come.")
    if report.pool is not None and report.pool.recall.mean is not None:
        words.append(f"Of the supporting documents, methods are given {percent(report.pool.recall.mean)}.")
    started = store.started.replace("T", " ").replace("+00:00", " UTC")
    return " ".join([*words, f"The run was begun on {shown(started)}."])


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _tiles(methods: Sequence[MethodSummary]) -> str:
    def best(values: Sequence[float | None], *, low: bool = False) -> tuple[str, str]:
        known = [value for value in values if value is not None]
        if not known:
            return NOTHING, "not known"
        value = min(known) if low else max(known)
        winners = [one.method for one, score in zip(methods, values, strict=True) if score == value]
        more = f" and {len(winners) - 2} more" if len(winners) > 2 else ""
        return percent(value), shown(", ".join(winners[:2]) + more)

    evaluated = [(one.evaluated_tokens.mean, one.method) for one in methods if one.evaluated_tokens.mean is not None]
    tokens, cheapest = min(evaluated, default=(None, "not known"))
    return tiles(
        {
            "Best exact match": best([one.exact_match for one in methods]),
            "Best F1": best([one.f1 for one in methods]),
            "Best recall of support": best([one.supporting_recall.mean for one in methods]),
            "Least error rate": best([one.supporting_error_rate.mean for one in methods], low=True),
            "Fewest tokens evaluated": (NOTHING if tokens is None else f"{tokens:,.0f}", shown(cheapest)),
        }
    )


def _plots(methods: Sequence[MethodSummary], data: PageData) -> str:
    if not methods:
        return ""
    right = [sum(bool(one[1]) for one in row if one is not None) for row in zip(*data.index["results"], strict=True)]
    marks = key([("key-em", "EM"), ("key-f1", "F1"), ("key-interval", "95 % interval")])
    choose = "<figcaption>Choose a column to see its questions.</figcaption>"
    return figures(
        {
            "EM and F1": run_charts.scores_chart(methods) + marks,
            "What F1 costs in context": run_charts.context_chart(methods),
            "Recall against error rate": run_charts.support_chart(methods),
            "Who is right?": run_charts.agreement_chart(right, len(methods)) + choose,
            "Seconds a question": run_charts.seconds_chart(methods),
            "Tokens evaluated a question": run_charts.tokens_chart(methods),
        }
    )


def _settings(report: Report, store: RunStore) -> dict[str, str]:
    """Name what an answer depends on; of the settings of methods, those of the methods that were asked."""
    # A method may be asked in variants, as "trace:beams=5", that share the settings of its name.
    used = {one.method.partition(":")[0] for one in report.methods}
    listed = {"begun": store.started}
    for name, value in (*report.notes.items(), *report.settings.items()):
        if name == "settings" and isinstance(value, dict):
            for method, chosen in value.items():
                if method in used or not used:
                    listed |= _flat(method, chosen)
        else:
            listed |= _flat(name, value)
    return listed


def _flat(name: str, value: Any) -> dict[str, str]:
    """Name each setting by the path that leads to it."""
    if isinstance(value, Mapping) and value:
        return {path: words for key, part in value.items() for path, words in _flat(f"{name} · {key}", part).items()}
    words = "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    return {name: words[:_LONGEST_SETTING]}
