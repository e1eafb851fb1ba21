"""The page as a whole: figures and plots written here, the responses as data that the page's own script shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from pytrace.certify.certificate_records import Certificate
from pytrace.errors import InputError
from pytrace.kg import KnowledgeBase
from pytrace.report.certificates.certificate_charts import errors_chart, gap_chart, kinds_chart, quadrants_chart
from pytrace.report.certificates.page_summary import ERROR_NAMES, KIND_NAMES, PageSummary, undecided_share
from pytrace.report.certificates.response_rows import page_rows
from pytrace.report.figures import NOTHING, finite, interval, percent, points
from pytrace.report.html_page import counted, make_page, settings_list, tiles
from pytrace.report.page_texts import embedded_json, shown
from pytrace.storage.files import atomic_output

PICTURES = 500


def certificate_page(
    certificates: Sequence[Certificate],
    summary: PageSummary,
    base: KnowledgeBase,
    *,
    title: str,
    settings: Mapping[str, str] | None = None,
    pictures: int = PICTURES,
) -> str:
    """Write certificates as one HTML file that needs nothing else: no network, no fonts, no other file.

    Parameters
    ----------
    certificates
        In the order in which they are listed. Those of 10,000 make some 20 MB; each is drawn when it is opened.
    summary
        Their figures.
    base
        The graph that they were certified by; its facts around a response's entities are drawn.
    title
        The page's heading.
    settings
        What led to the certificates, shown as it is. `threshold` and `entity_threshold`, the least score and the least
        ratio of head and tail, are marked on the bars of the steps where they are numbers.
    pictures
        How many responses, from the first, get a picture of their corner of the graph. Said on the page.

    Returns
    -------
    str
        Without lone surrogates, so that it can be written as UTF-8. The same for the same input.

    Raises
    ------
    InputError
        `pictures` is negative.

    Examples
    --------
    >>> from pytrace.certify.certification_scores import score_certificates
    >>> from pytrace.models.scripted import HashEncoder
    >>> from pytrace.records import Triple
    >>> base = KnowledgeBase.in_memory([Triple("Corfu", "part of", "Greece")], HashEncoder())
    >>> page = certificate_page([], score_certificates([]), base, title="Islands")
    >>> page.startswith("<!doctype html>"), "<h1>Islands</h1>" in page, "https:" in page
    (True, True, False)
    """
    settings = settings or {}
    if pictures < 0:
        raise InputError(f"a page cannot have {pictures} pictures; give 0 or more")
    data = embedded_json(
        {
            "rows": list(page_rows(certificates, base, pictures=pictures)),
            "pictures": pictures,
            "threshold": _number(settings.get("threshold")),
            "entityThreshold": _number(settings.get("entity_threshold")),
        }
    )
    left_out = len(certificates) - sum(summary.quadrants.values())
    fields = {
        "data": data,
        "title": shown(title or "Certified responses"),
        "lead": _lead(certificates, summary, base),
        "tiles": _tiles(summary),
        "measures": _measures(summary),
        "settings": settings_list(settings),
        "kinds": kinds_chart(summary),
        "errors": errors_chart(summary),
        "gap": gap_chart(summary),
        "gap_words": _gap_words(summary.gap.value),
        "quadrants": quadrants_chart(summary),
        "left_out": _left_out(left_out),
        "kind_options": _options(KIND_NAMES, [one.kind for one in certificates]),
        "error_options": _options(ERROR_NAMES, [one.error for one in certificates]),
        "pictured": ""
        if pictures >= len(certificates)
        else f"The graph is drawn for the first {pictures:,} responses only.",
    }
    return make_page(__name__.rpartition(".")[0], "page", fields)


def write_page(
    path: Path,
    certificates: Sequence[Certificate],
    summary: PageSummary,
    base: KnowledgeBase,
    *,
    title: str,
    settings: Mapping[str, str] | None = None,
    pictures: int = PICTURES,
) -> None:
    """Write certificates as one HTML file, in one step: there is the whole page or what was there before.

    Parameters
    ----------
    path
        The file.
    certificates, summary, base, title, settings, pictures
        See `certificate_page`.

    Raises
    ------
    InputError
        `pictures` is negative.
    StoreError
        The file cannot be written.
    """
    page = certificate_page(certificates, summary, base, title=title, settings=settings, pictures=pictures)
    with atomic_output(path) as stream:
        stream.write(page.encode())


def _number(text: str | None) -> float | None:
    try:
        return finite(float(text)) if text is not None else None
    except ValueError:
        return None


def _lead(certificates: Sequence[Certificate], summary: PageSummary, base: KnowledgeBase) -> str:
    total = len(certificates)
    if not total:
        return f"There is no response to certify. The graph has {counted(len(base), 'triple')}."
    faithful = sum(one.kind == "faithful" for one in certificates)
    known = [one.answer_correct for one in certificates if one.answer_correct is not None]
    answers = f" The answer is right in {sum(known):,} of the {len(known):,} with gold answers." if known else ""
    steps = (
        ""
        if undecided_share(summary) is None
        else f" The graph cannot decide {percent(undecided_share(summary))} of the steps."
    )
    return (
        f"{counted(total, 'response')} checked step by step against a graph of {counted(len(base), 'triple')}."
        f" <strong>{faithful:,} reason{'s' if faithful == 1 else ''} faithfully.</strong>{answers}{steps}"
    )


def _tiles(summary: PageSummary) -> str:
    answers, reasoning = summary.answer.f1 if summary.answer else None, summary.reasoning.f1
    return tiles(
        {
            "Answers, F1": (
                percent(answers.value if answers else None),
                (interval(answers) if answers else "") or "no gold answers",
            ),
            "Reasoning, F1": (percent(reasoning.value), interval(reasoning) or "nothing to judge"),
            "Gap": (points(summary.gap.value), "answers less reasoning, F1"),
            "Edit rate": (percent(summary.edit_rate.mean), "mean, to the nearest gold path"),
            "Undecided": (percent(undecided_share(summary)), "of the steps"),
        }
    )


def _measures(summary: PageSummary) -> str:
    rows = []
    for name, scores in (("Answers", summary.answer), ("Reasoning", summary.reasoning)):
        estimates = (scores.precision, scores.recall, scores.f1) if scores else ()
        written = [f"<td>{percent(one.value)}<small>{interval(one) or NOTHING}</small></td>" for one in estimates]
        cells = "".join(written) or f"<td>{NOTHING}</td>" * 3
        rows.append(f'<tr><th scope="row">{name}</th>{cells}</tr>')
    return "".join(rows)


def _gap_words(gap: float | None) -> str:
    number = finite(gap)
    if number is None:
        return "There is no gap to tell: answers or reasoning could not be judged."
    if number > 0:
        return f"Answers are {points(number)} of F1 ahead of the reasoning that leads to them."
    return f"Answers are not ahead of reasoning: the gap in F1 is {points(number)}."


def _left_out(count: int) -> str:
    if count <= 0:
        return "All responses are counted."
    return f"Without {count:,} that abstain, have no structure, or have no gold answer to compare with."


def _options(names: Mapping[str, str], values: Sequence[str | None]) -> str:
    return "".join(
        f'<option value="{key}">{label} ({values.count(key):,})</option>' for key, label in names.items()
    )  # fmt: skip
