"""What tells how likely a span is right: how far it is ahead of others, what the search says of its passage, and what the evidence lacks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pytrace.models.edge.reading import KINDS, EdgeReading
from pytrace.reader.answers import normalise_answer
from pytrace.reader.spans.question import read_question
from pytrace.reader.spans.words import content_stems, words
from pytrace.records import Evidence

if TYPE_CHECKING:
    from pytrace.reader.spans.features import Scored
    from pytrace.reader.spans.reader import Ranked

_BOUND = 1e-4
_MOST_NATS = 10.0


def certainty(
    question: str, evidence: Evidence, ranked: Sequence[Ranked], read: EdgeReading | None = None
) -> dict[str, float]:
    """Return what speaks for the first of some candidates being right, by name.

    Parameters
    ----------
    question, evidence
        What was asked, and the evidence.
    ranked
        The candidates, the likeliest first, with scores in log-probabilities up to a constant.
    read
        What the small model read, if there is one.
    """
    best = ranked[0]
    form = f" {normalise_answer(best.candidate.text)} "
    # A longer or shorter form of the same answer is no rival.
    rivals = [
        one.score
        for one in ranked[1:]
        if (other := f" {normalise_answer(one.candidate.text)} ") not in form and form not in other
    ]
    share = 1 / (1 + sum(math.exp(score - best.score) for score in rivals))
    bounded = min(max(share, _BOUND), 1 - _BOUND)
    asked = read_question(question)
    seen = content_stems(words(" ".join(evidence.context)))
    names = {word.stem for word in words(question)[1:] if word.kind in ("name", "number")} & asked.stems
    if names and not names & seen:
        return {"no name seen": 1.0}  # the texts are about something else, so other features mislead
    by_edge = {} if read is None else edge_says(read, best.candidate)
    features = best.candidate.features
    told = {
        "always": 1.0,
        "share": 1 / sum(math.exp(one.score - best.score) for one in ranked),
        "log-odds": math.log(bounded / (1 - bounded)),
        "score": max(-10.0, min(best.score, 10.0)),
        "ruled": float(bool(features.get("the one of two"))),
        "yes or no": float(asked.kind == "yes-no"),
        "words unseen": 1 - len(asked.stems & seen) / max(len(asked.stems), 1),
        "names unseen": 1 - len(names & seen) / len(names) if names else 0.0,
        "words of the question": features.get("words of the question", 0.0),
        "near shares": features.get("near shares", 0.0),
        "again": features.get("again", 0.0),
        "focus": features.get("focus share", 0.0),
        "unranked": float(not evidence.relevance),
    }
    return told | signals(evidence.signals, features) | by_edge


def edge_says(read: EdgeReading, best: Scored) -> dict[str, float]:
    """Return what the small model says of the first candidate, and of there being an answer at all."""
    top = max(-_MOST_NATS, min(read.spans[0].score if read.spans else -_MOST_NATS, _MOST_NATS))
    return {
        "edge answerable": top if best.spans else 0.0,
        "edge none": read.kinds[KINDS.index("none")],
        "edge behind": -best.features.get("edge", 0.0),
        "edge best": best.features.get("edge best", 0.0),
        "edge only": best.features.get("edge only", 0.0),
    }


def signals(searched: Mapping[str, float], features: Mapping[str, float]) -> dict[str, float]:
    """Return what a search says of the evidence and of the answer's passage; nothing if there was no search."""
    if not searched:
        return {}
    return {
        **{f"search {name}": value for name, value in searched.items()},
        "answer relevance": features.get("relevance", 0.0),
        "answer in the chain": float("chain last" in features or "chain in" in features),
        "answer last in the chain": float("chain last" in features),
    }
