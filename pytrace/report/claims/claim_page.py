"""The page as a whole: figures written here, the responses as data that the page's own script shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pytrace.certify.claims.checker import CheckedResponse
from pytrace.check_records import CheckedClaim, ClaimEvidence
from pytrace.report.html_page import data_element, make_page, options, settings_list, tiles
from pytrace.report.page_texts import counted, cut, embedded_json, long_text, percent, rounded, shown

LABELS = {"supported": "supported", "contradicted": "contradicted", "not there": "not there"}
# Nobody reads more of one response.
_LONGEST_RESPONSE = 50_000
_MOST_CLAIMS = 300


class NamedResponse(NamedTuple):
    """A checked response and the id that its row has."""

    id: str
    checked: CheckedResponse


def claim_page(
    responses: Sequence[NamedResponse], *, title: str = "", settings: Mapping[str, str] | None = None
) -> str:
    """Write checked responses as one HTML file that needs nothing else: no network, no fonts, no other file.

    Parameters
    ----------
    responses
        In the order in which they are listed.
    title
        The page's heading.
    settings
        What led to the verdicts, shown as it is.

    Returns
    -------
    str
        Without lone surrogates, so that it can be written as UTF-8. The same for the same input.

    Examples
    --------
    >>> page = claim_page([], title="Lakes")
    >>> page.startswith("<!doctype html>"), "<h1>Lakes</h1>" in page, "https:" in page
    (True, True, False)
    """
    labels = Counter(claim.label for one in responses for claim in one.checked.claims)
    whole = sum(all(claim.label == "supported" for claim in one.checked.claims) for one in responses)
    mean = sum(one.checked.score for one in responses) / len(responses) if responses else None
    figures = {"Score": (percent(mean), "mean share of supported claims")}
    figures |= {name.capitalize(): (f"{labels[label]:,}", "claims") for label, name in LABELS.items()}  # type: ignore[index]
    fields = {
        "title": shown(title or "Checked responses"),
        "overline": "Claims beside texts",
        "lead": f"{counted(len(responses), 'response')} with {counted(labels.total(), 'claim')}. <strong>{whole:,} of them "
        f"{'has' if whole == 1 else 'have'} nothing that the texts do not support.</strong>",
        "tiles": tiles(figures),
        "noun": "response",
        "note": "",
        "status": "",
        "settings": settings_list(settings or {}),
        "label_options": options(LABELS),
        "data": data_element("data", embedded_json(list(_rows(responses))), kind="application/json"),
    }
    return make_page(__name__.rpartition(".")[0], fields)


def _rows(responses: Sequence[NamedResponse]) -> Iterator[dict[str, Any]]:
    for name, checked in responses:
        text = checked.text[:_LONGEST_RESPONSE]
        claims = [claim for claim in checked.claims if claim.end <= len(text)][:_MOST_CLAIMS]
        yield {
            "id": cut(name),
            "score": rounded(checked.score),
            "parts": _parts(text, _places(claims)),
            "left": len(checked.text) - len(text),
            "claims": [_claim(claim) for claim in claims],
            "moreClaims": len(checked.claims) - len(claims),
        }


def _places(claims: Sequence[CheckedClaim]) -> list[tuple[int, int]]:
    """Return where claims stand; of several that a model wrote of one place, only the one that is supported least has it."""
    worst: dict[tuple[int, int], int] = {}
    for number, claim in enumerate(claims):
        place = (claim.start, claim.end)
        if place not in worst or claim.supported < claims[worst[place]].supported:
            worst[place] = number
    return [
        (claim.start, claim.end) if worst[claim.start, claim.end] == number else (0, 0)
        for number, claim in enumerate(claims)
    ]


def _parts(text: str, places: Sequence[tuple[int, int]]) -> list[tuple[str, int]]:
    """Cut a text at places, in their order: each piece with the number of its place, -1 where it is in none."""
    # Pieces rather than places: a browser counts a text's characters otherwise than Python does.
    parts: list[tuple[str, int]] = []
    last = 0
    for number, (start, end) in enumerate(places):
        if start < last or end <= start:
            continue
        if start > last:
            parts.append((text[last:start], -1))
        parts.append((text[start:end], number))
        last = end
    return [*parts, (text[last:], -1)] if last < len(text) else parts


def _claim(claim: CheckedClaim) -> dict[str, Any]:
    return {
        "parts": _parts(claim.text, claim.missing),
        "label": claim.label,
        "supported": rounded(claim.supported),
        "contradicted": rounded(claim.contradicted),
        "why": long_text(f"{claim.reason} (as a model wrote it)" if claim.written else claim.reason),
        "subject": cut(claim.subject),
        "evidence": [_evidence(sentence) for sentence in claim.evidence],
        "disagreeing": [{**_evidence(other.evidence), "label": other.label} for other in claim.disagreeing],
    }


def _evidence(sentence: ClaimEvidence) -> dict[str, str]:
    return {
        "title": cut(sentence.title),
        "text": long_text(sentence.text),
        "source": cut(sentence.source or sentence.document),
        "date": cut(sentence.date),
    }
