"""What the small model says of candidates: a score for each, and spans of its own beside those that rules find."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pytrace.models.edge.reading import EdgeReading, ReadSpan
from pytrace.reader.answers import normalise_answer
from pytrace.reader.spans.candidates import read_entries
from pytrace.reader.spans.features import EntryFacts, Scored

TOP_SPANS = 30
"""Spans of the small model that are looked at."""

_OWN_SPANS = 8  # that become candidates where no rule found them
_BELOW = 2.0  # nats below the last of its spans: what a candidate has that is none of them
_LOWEST = -12.0  # nats below its best span; what is lower is as unlikely
_MAY_END_A_SENTENCE = re.compile(r"[^\w\s,]\s|[。！？]|\n")


def with_edge(
    found: Sequence[Scored], read: EdgeReading, entries: Sequence[str], facts: Sequence[EntryFacts] = ()
) -> list[Scored]:
    """Return candidates with the small model's scores among their features, and its own best spans as candidates, too.

    Spans over two sentences are left out, since a chain ends at the sentence that holds the answer.

    Parameters
    ----------
    found
        Candidates that rules found.
    read
        What the small model read in the same evidence, with `TOP_SPANS` spans.
    entries
        The evidence.
    facts
        What a search says of each entry; none if no search ranked them.
    """
    if found and not found[0].spans:
        return list(found)  # yes and no, which rules tell apart better
    scores: dict[str, float] = {}
    for span in read.spans:
        scores.setdefault(normalise_answer(span.text), span.score)
    best = max(scores.values(), default=0.0)
    lowest = min(scores.values(), default=0.0) - _BELOW
    own = []
    known = {normalise_answer(one.text) for one in found}
    for span in read.spans[:_OWN_SPANS]:
        form = normalise_answer(span.text)
        if form and form not in known and _is_in_one_sentence(span, entries[span.passage]):
            known.add(form)
            entry = facts[span.passage].features if facts else {"unranked": 1.0}
            place = (span.passage, span.start, span.end)
            own.append(Scored(span.text, {"edge only": 1.0, **entry}, (place,)))
    scored = []
    for one in (*found, *own):
        score = scores.get(normalise_answer(one.text), lowest)
        features = {**one.features, "edge": max(score - best, _LOWEST), "edge best": float(score == best)}
        scored.append(one._replace(features=features))
    return scored


def _is_in_one_sentence(span: ReadSpan, entry: str) -> bool:
    if not _MAY_END_A_SENTENCE.search(span.text):
        return True
    return any(one.start <= span.start and span.end <= one.start + len(one.text) for one in read_entries([entry]))
