"""Where a question writes the names of its query, word for word or nearly so."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from pytrace.kernels.fuzzy import partial_ratio_alignment, ratio
from pytrace.kg.names import tokens
from pytrace.kg.queries import Query
from pytrace.training.clauses import query_entities

# Below it, half of what is found in LC-QuAD's questions is another name; above, misspelt ones are missed.
_CUTOFF = 80.0
_WORD = re.compile(r"[^\W_]+")
_POSSESSIVE = re.compile(r"['’]s?$")
# What tells a name from others of the same words, which questions often leave out: (river), or the county of a town.
_REMARK = re.compile(r"\s*\([^()]*\)$")
_PLACE = re.compile(r",.*$")


class Span(NamedTuple):
    """A part of a text, ``text[start:end]``."""

    start: int
    end: int


def find_mentions(question: str, names: Sequence[str]) -> list[tuple[Span, ...]]:
    """Find the places at which a question writes names."""
    # A name stands where its words do, whatever their case and what is between them; one with a remark in brackets or
    # behind a comma also stands where it does without. A name that stands nowhere is looked for by the best partial
    # alignment, whole words only.
    taken: list[Span] = []
    found: list[tuple[Span, ...]] = [()] * len(names)
    for at in sorted(range(len(names)), key=lambda number: -len(names[number])):
        plain = _REMARK.sub("", names[at])
        for written in dict.fromkeys((names[at], plain, _PLACE.sub("", plain))):
            found[at] = found[at] or tuple(_free(_exact(question, written), taken))
        taken.extend(found[at])
    for at, name in enumerate(names):
        if not found[at]:
            found[at] = tuple(_free(_nearly(question, _REMARK.sub("", name)), taken))
            taken.extend(found[at])
    return found


def mention_texts(question: str, query: Query) -> tuple[str, ...]:
    """Return the entities of a query as its question writes them, those that it does not write left out."""
    places = find_mentions(question, query_entities(query))
    return tuple(question[spans[0].start : spans[0].end] for spans in places if spans)


def _free(spans: Sequence[Span], taken: Sequence[Span]) -> list[Span]:
    return [span for span in spans if all(span.end <= other.start or other.end <= span.start for other in taken)]


def _exact(question: str, name: str) -> list[Span]:
    words = _WORD.findall(name)
    if not words:
        return []
    # Where a script puts no space between words, a name may begin within a run of letters.
    apart = len(tokens(name)) == len(words)
    before, after = (r"(?<![^\W_])", r"(?![^\W_])") if apart else ("", "")
    pattern = before + r"[\W_]+".join(map(re.escape, words)) + after
    places = [match.span() for match in re.finditer(pattern, question, re.IGNORECASE)]
    closing = re.search(r"[\W_]*$", name)
    sign = closing[0] if closing else ""
    return [Span(start, end + len(sign) * question.startswith(sign, end)) for start, end in places]


def _nearly(question: str, name: str) -> list[Span]:
    name = name.lower()
    lowered = question.lower()
    if len(lowered) != len(question) or not 0 < len(name) <= len(question):
        return []  # its places would not be those of the question
    window = partial_ratio_alignment(lowered, name, score_cutoff=_CUTOFF)
    if window is None:
        return []
    covered = [
        match.span()
        for match in _WORD.finditer(lowered)
        if 2 * (min(match.end(), window.src_end) - max(match.start(), window.src_start)) >= match.end() - match.start()
    ]
    if not covered:
        return []
    start, end = covered[0][0], covered[-1][1]
    if not _POSSESSIVE.search(name):
        end -= len(lowered[start:end]) - len(_POSSESSIVE.sub("", lowered[start:end]))
    return [Span(start, end)] if ratio(lowered[start:end], name, score_cutoff=_CUTOFF) else []
