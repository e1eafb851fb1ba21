"""The page as a whole: figures and plots written here, the responses as data that the page's own script shows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from pytrace.certify.certification_scores import CertificationScores
from pytrace.certify.wording import named_path
from pytrace.check_records import Certificate, CertifiedStep, Match
from pytrace.errors import InputError
from pytrace.kg import KnowledgeBase
from pytrace.records import Triple
from pytrace.report.certificates.certificate_charts import ERROR_NAMES, KIND_NAMES, bars, gap_chart, quadrants_chart
from pytrace.report.certificates.picture import draw
from pytrace.report.html_page import Cell, data_element, make_page, options, settings_list, table, tiles
from pytrace.report.page_texts import (
    NOTHING,
    counted,
    cut,
    embedded_json,
    finite,
    interval,
    long_text,
    percent,
    points,
    rounded,
    shown,
)

# A picture takes some 3 kB of the page, more than all else that a short response has.
PICTURES = 500
# A browser reads a page of some ten million characters in about a second; twice that is the most that responses may take,
# after which each is cut to what tells whether to look for it elsewhere.
_LONGEST_RESPONSE = 100_000
_ALL_RESPONSES = 20_000_000
_SHORT_RESPONSE = 2_000
# Steps, and answers, triples or names of one response: more than these nobody reads.
_MOST_STEPS = 100
_MOST_ENTRIES = 50


def certificate_page(
    certificates: Sequence[Certificate],
    summary: CertificationScores,
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
    data = {
        "rows": list(page_rows(certificates, base, pictures=pictures)),
        "pictures": pictures,
        "threshold": _number(settings.get("threshold")),
        "entityThreshold": _number(settings.get("entity_threshold")),
    }
    few = f"The graph is drawn for the first {pictures:,} responses only."
    fields = {
        "title": shown(title or "Certified responses"),
        "overline": "Certificates of reasoning",
        "lead": _lead(certificates, summary, base),
        "tiles": _tiles(summary),
        "noun": "response",
        "note": "",
        "status": "",
        "data": data_element("data", embedded_json(data), kind="application/json"),
        "measures": _measures(summary),
        "settings": settings_list(settings),
        "kinds": bars("kinds", "Responses by kind", KIND_NAMES, summary.kinds),
        "errors": bars("errors", "Unfaithful responses by error", ERROR_NAMES, summary.errors),
        "gap": gap_chart(summary),
        "gap_words": _gap_words(summary.gap.value),
        "quadrants": quadrants_chart(summary),
        "left_out": _left_out(len(certificates) - sum(summary.quadrants.values())),
        "kind_options": _options(KIND_NAMES, [one.kind for one in certificates]),
        "error_options": _options(ERROR_NAMES, [one.error for one in certificates]),
        "pictured": few if pictures < len(certificates) else "",
    }
    return make_page(__name__.rpartition(".")[0], fields)


# Settings come as the words that the page shows, and only numbers can be marked on a bar.
def _number(text: str | None) -> float | None:
    try:
        return finite(float(text)) if text is not None else None
    except ValueError:
        return None


def _lead(certificates: Sequence[Certificate], summary: CertificationScores, base: KnowledgeBase) -> str:
    total = len(certificates)
    if not total:
        return f"There is no response to certify. The graph has {counted(len(base), 'triple')}."
    faithful = sum(one.kind == "faithful" for one in certificates)
    known = [one.answer_correct for one in certificates if one.answer_correct is not None]
    words = [
        f"{counted(total, 'response')} checked step by step against a graph of {counted(len(base), 'triple')}.",
        f"<strong>{faithful:,} reason{'s' if faithful == 1 else ''} faithfully.</strong>",
    ]
    if known:
        words.append(f"The answer is right in {sum(known):,} of the {len(known):,} with gold answers.")
    open_responses = sum(one.kind == "undecided" for one in certificates)
    if open_responses:
        words.append(
            f"The graph cannot decide {open_responses:,} of them, which count for answers but not for reasoning and gap."
        )
    if _undecided(summary) is not None:
        words.append(f"The graph cannot decide {percent(_undecided(summary))} of the steps.")
    return " ".join(words)


def _undecided(summary: CertificationScores) -> float | None:
    """Return the share of steps that the graph cannot decide, None without steps."""
    total = sum(summary.steps.values())
    return summary.steps.get("undecided", 0) / total if total else None


def _tiles(summary: CertificationScores) -> str:
    answers, reasoning = summary.answer.f1 if summary.answer else None, summary.reasoning.f1
    answered = interval(answers) if answers else ""
    return tiles(
        {
            "Answers, F1": (percent(answers.value if answers else None), answered or "no gold answers"),
            "Reasoning, F1": (percent(reasoning.value), interval(reasoning) or "nothing to judge"),
            "Gap": (points(summary.gap.value), "answers less reasoning, F1"),
            "Edit rate": (percent(summary.edit_rate.mean), "mean, to the nearest gold path"),
            "Undecided": (percent(_undecided(summary)), "of the steps"),
        }
    )


def _measures(summary: CertificationScores) -> str:
    rows = []
    for name, scores in (("Answers", summary.answer), ("Reasoning", summary.reasoning)):
        cells = [Cell(NOTHING)] * 3
        if scores:
            measured = (scores.precision, scores.recall, scores.f1)
            cells = [Cell(percent(one.value), note=interval(one) or NOTHING) for one in measured]
        rows.append([Cell(name), *cells])
    heads = [(name, "") for name in ("", "Precision", "Recall", "F1")]
    caption = "Precision, recall and F1, with their confidence intervals"
    return table(caption, heads, rows, kind="plain", scrolls=False)


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
    return f"Without {count:,} that are undecided, abstain, have no structure, or have no gold answer to compare with."


def _options(names: Mapping[str, str], values: Sequence[str | None]) -> str:
    return options({kind: f"{name} ({values.count(kind):,})" for kind, name in names.items()})


def page_rows(certificates: Sequence[Certificate], base: KnowledgeBase, *, pictures: int) -> Iterator[dict[str, Any]]:
    """Turn certificates into the page's rows."""
    room = _ALL_RESPONSES
    for number, one in enumerate(certificates):
        text = one.text[: min(_LONGEST_RESPONSE, max(room, _SHORT_RESPONSE))]
        room -= len(text)
        yield {
            "id": cut(one.id),
            "question": long_text(one.question),
            "text": text,
            "left": len(one.text) - len(text),
            "kind": one.kind,
            "error": one.error,
            "right": one.answer_correct,
            "answer": long_text(one.answer),
            "gold": [cut(answer) for answer in one.answers[:_MOST_ENTRIES]],
            "moreGold": max(len(one.answers) - _MOST_ENTRIES, 0),
            "reached": cut(one.reached),
            "distance": one.edit_distance,
            "rate": rounded(one.edit_rate),
            "why": long_text(one.reason),
            "steps": [_step(step) for step in one.steps[:_MOST_STEPS]],
            "moreSteps": max(len(one.steps) - _MOST_STEPS, 0),
            "path": [_parts(triple) for triple in named_path(base, one.gold_path[:_MOST_ENTRIES])],
            "picture": msgspec.to_builtins(draw(one, base)) if number < pictures else None,
        }


def _step(step: CertifiedStep) -> dict[str, Any]:
    return {
        "text": long_text(step.text),
        "status": step.status,
        "follows": step.follows,
        "why": long_text(step.reason),
        "entities": [cut(entity) for entity in step.entities[:_MOST_ENTRIES]],
        "match": _match(step.match),
        "runnerUp": _match(step.runner_up),
    }


def _match(match: Match | None) -> dict[str, Any] | None:
    if match is None:
        return None
    return {
        "triple": _parts(match.triple),
        "score": rounded(match.score),
        "cosine": rounded(match.cosine),
        "head": rounded(match.head_ratio),
        "tail": rounded(match.tail_ratio),
        "headFound": match.head_found,
        "tailFound": match.tail_found,
        "relation": rounded(match.relation_cosine),
        "otherRelation": "" if match.relation_found else cut(match.nearest_relation),
        "otherCosine": rounded(match.nearest_cosine),
    }


def _parts(triple: Triple) -> list[str]:
    return [cut(triple.head), cut(triple.relation), cut(triple.tail)]
