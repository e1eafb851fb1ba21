"""The page as a whole: figures and plots written here, the responses as data that the page's own script shows."""

from __future__ import annotations

import base64
import hashlib
import unicodedata
from collections.abc import Mapping, Sequence
from html import escape
from importlib import resources
from pathlib import Path
from string import Template

from pytrace.certify.page.charts import errors_chart, gap_chart, kinds_chart, quadrants_chart
from pytrace.certify.page.rows import page_rows
from pytrace.certify.page.summary import (
    ERROR_NAMES,
    KIND_NAMES,
    NOTHING,
    PageSummary,
    finite,
    interval,
    percent,
    points,
    undecided_share,
)
from pytrace.certify.page.texts import clean, embedded_json
from pytrace.certify.records import Certificate
from pytrace.errors import InputError
from pytrace.graph.exchange import atomic_output
from pytrace.knowledge_base import KnowledgeBase

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
    >>> from pytrace.certify.scores import score_certificates
    >>> from pytrace.models.scripted import HashEncoder
    >>> from pytrace.records import Triple
    >>> base = KnowledgeBase.in_memory([Triple("Corfu", "part of", "Greece")], HashEncoder())
    >>> page = certificate_page([], score_certificates([]), base, title="Islands")
    >>> page.startswith("<!doctype html>"), "<h1>Islands</h1>" in page, "https:" in page
    (True, True, False)
    """
    settings = settings or {}
    if pictures < 0:
        message = f"a page cannot have {pictures} pictures; give 0 or more"
        raise InputError(message)
    files = resources.files(__name__.rpartition(".")[0])
    style, script, frame = (
        (files / name).read_text(encoding="utf-8") for name in ("page.css", "page.js", "page.html")
    )  # fmt: skip
    data = embedded_json(
        {
            "rows": list(page_rows(certificates, base, pictures=pictures)),
            "pictures": pictures,
            "threshold": _number(settings.get("threshold")),
            "entityThreshold": _number(settings.get("entity_threshold")),
        }
    )
    left_out = len(certificates) - sum(summary.quadrants.values())
    page = Template(frame).substitute(
        policy=f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)};"
        " base-uri 'none'; form-action 'none'",
        style=style,
        script=script,
        data=data,
        title=_shown(title or "Certified responses"),
        lead=_lead(certificates, summary, base),
        tiles=_tiles(summary),
        measures=_measures(summary),
        settings=_settings(settings),
        kinds=kinds_chart(summary),
        errors=errors_chart(summary),
        gap=gap_chart(summary),
        gap_words=_gap_words(summary.gap.value),
        quadrants=quadrants_chart(summary),
        left_out=_left_out(left_out),
        kind_options=_options(KIND_NAMES, [one.kind for one in certificates]),
        error_options=_options(ERROR_NAMES, [one.error for one in certificates]),
        pictured=""
        if pictures >= len(certificates)
        else f"The graph is drawn for the first {pictures:,} responses only.",
    )
    return clean(page)


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


def _hash(text: str) -> str:
    """Return the source of a Content-Security-Policy that lets this inline text through and no other."""
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"


def _shown(text: str) -> str:
    """Escape a text for the page, without control characters, which HTML forbids."""
    kept = "".join(" " if unicodedata.category(letter) == "Cc" else letter for letter in clean(text))
    return escape(" ".join(kept.split()))


def _number(text: str | None) -> float | None:
    try:
        return finite(float(text)) if text is not None else None
    except ValueError:
        return None


def _lead(certificates: Sequence[Certificate], summary: PageSummary, base: KnowledgeBase) -> str:
    total = len(certificates)
    if not total:
        return f"There is no response to certify. The graph has {_count(len(base), 'triple')}."
    faithful = sum(one.kind == "faithful" for one in certificates)
    known = [one.answer_correct for one in certificates if one.answer_correct is not None]
    answers = f" The answer is right in {sum(known):,} of the {len(known):,} with gold answers." if known else ""
    steps = (
        ""
        if undecided_share(summary) is None
        else f" The graph cannot decide {percent(undecided_share(summary))} of the steps."
    )
    return (
        f"{_count(total, 'response')} checked step by step against a graph of {_count(len(base), 'triple')}."
        f" <strong>{faithful:,} reason{'s' if faithful == 1 else ''} faithfully.</strong>{answers}{steps}"
    )


def _count(number: int, name: str) -> str:
    return f"{number:,} {name}{'' if number == 1 else 's'}"


def _tiles(summary: PageSummary) -> str:
    answers, reasoning = summary.answer.f1 if summary.answer else None, summary.reasoning.f1
    tiles = (
        (
            "Answers, F1",
            percent(answers.value if answers else None),
            (interval(answers) if answers else "") or "no gold answers",
        ),
        ("Reasoning, F1", percent(reasoning.value), interval(reasoning) or "nothing to judge"),
        ("Gap", points(summary.gap.value), "answers less reasoning, F1"),
        ("Edit rate", percent(summary.edit_rate.mean), "mean, to the nearest gold path"),
        ("Undecided", percent(undecided_share(summary)), "of the steps"),
    )
    return "".join(f"<div><dt>{name}</dt><dd>{value}<small>{note}</small></dd></div>" for name, value, note in tiles)


def _measures(summary: PageSummary) -> str:
    rows = []
    for name, scores in (("Answers", summary.answer), ("Reasoning", summary.reasoning)):
        estimates = (scores.precision, scores.recall, scores.f1) if scores else ()
        written = [f"<td>{percent(one.value)}<small>{interval(one) or NOTHING}</small></td>" for one in estimates]
        cells = "".join(written) or f"<td>{NOTHING}</td>" * 3
        rows.append(f'<tr><th scope="row">{name}</th>{cells}</tr>')
    return "".join(rows)


def _settings(settings: Mapping[str, str]) -> str:
    rows = [f"<div><dt>{_shown(name)}</dt><dd>{_shown(value)}</dd></div>" for name, value in settings.items()]
    return "".join(rows) or "<div><dt>none</dt><dd>given</dd></div>"


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
