"""Certificates as the rows that the page's script shows: plain data, cleaned of what no HTML file can hold, and bounded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from pytrace.certify.certificate_records import Certificate, CertifiedStep, Match
from pytrace.certify.wording import named_path
from pytrace.kg import KnowledgeBase
from pytrace.records import Triple
from pytrace.report.certificates.picture import draw
from pytrace.report.page_texts import cut, long_text, rounded

# A browser reads a page of some ten million characters in about a second; twice that is the most that responses may take,
# after which each is cut to what tells whether to look for it elsewhere.
_LONGEST_RESPONSE = 100_000
_ALL_RESPONSES = 20_000_000
_SHORT_RESPONSE = 2_000
# Steps, and answers, triples or names of one response: more than these nobody reads.
_MOST_STEPS = 100
_MOST_ENTRIES = 50


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
