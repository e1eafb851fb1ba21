"""How steps name entities: word for word, nearly, or only as part of another entity's name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pytrace.kernels.fuzzy import cpdist, partial_ratio, partial_ratio_alignment
from pytrace.knowledge_base import KnowledgeBase, Mention, normal_form

# Letters that a word may have beyond an entity's name: a plural's or a genitive's.
_ENDING = 2

Place = tuple[int, int]
"""Where something stands in a step's normal form: ``form[start:end]``."""


class Naming(NamedTuple):
    """How a step names an entity: its ratio from 0 to 1, whether that is well enough, and where."""

    ratio: float
    found: bool
    places: tuple[Place, ...]


def name_entities(
    base: KnowledgeBase,
    forms: Sequence[str],
    mentions: Sequence[Sequence[Mention]],
    numbers: NDArray[np.int64],
    *,
    threshold: float,
    strict: bool,
) -> list[dict[int, Naming]]:
    """Say how each step names the heads and tails of its candidate triples.

    Parameters
    ----------
    base
        The knowledge base.
    forms, mentions
        The steps' normal forms, and the entities that they name word for word.
    numbers
        Int64 [steps, k]: the candidate triples of each step; -1 for none.
    threshold
        The ratio from which an entity counts as named.
    strict
        Whether a name must be a place of its own: whole words, and not part of another entity's name.

    Returns
    -------
    list of dict
        For each step, by entity number. The ratio is the partial ratio of Equation 2, from 0 to 1, of normal forms; a
        step shorter than a name counts for its share of it, since any syllable is found in some name.
    """
    triples = base.columns.triples
    names: dict[int, str] = {}
    rows: list[dict[int, Naming]] = []
    steps: list[int] = []
    entities: list[int] = []
    for step, own in enumerate(numbers):
        word_for_word: dict[int, list[Place]] = {}
        for mention in mentions[step]:
            for entity in mention.entities:
                word_for_word.setdefault(entity, []).append((mention.start, mention.end))
        row: dict[int, Naming] = {}
        for entity in dict.fromkeys(triples[own[own >= 0]][:, [0, 2]].ravel().tolist()):
            if entity in word_for_word:
                row[entity] = Naming(1.0, True, tuple(word_for_word[entity]))
                continue
            if entity not in names:
                names[entity] = normal_form(base.columns.entity_names[entity])
            steps.append(step)
            entities.append(entity)
        rows.append(row)
    scores = cpdist(
        [forms[step] for step in steps],
        [names[entity] for entity in entities],
        scorer=partial_ratio,
        dtype=np.float64,
        workers=-1,
    )
    for step, entity, score in zip(steps, entities, scores.tolist(), strict=True):
        name, form = names[entity], forms[step]
        ratio = score / 100 * min(1.0, len(form) / len(name)) if name else 0.0
        if ratio == 0 or ratio < threshold:
            rows[step][entity] = Naming(ratio, False, ())
            continue
        place = _place(name, form)
        own_place = not strict or not (_of_another(place, mentions[step]) or (score == 100 and not _whole(form, place)))
        rows[step][entity] = Naming(ratio, own_place, (place,))
    return rows


def apart(first: Naming, second: Naming) -> bool:
    """Say whether a step names two entities at two places, neither of which lies within the other."""
    return any(
        not ((a[0] <= b[0] and b[1] <= a[1]) or (b[0] <= a[0] and a[1] <= b[1]))
        for a in first.places
        for b in second.places
    )


def _place(name: str, form: str) -> Place:
    """Return the window of a step that is most like a name."""
    aligned = partial_ratio_alignment(name, form)
    if aligned is None or len(form) < len(name):
        return 0, len(form)
    return aligned.dest_start, aligned.dest_end


def _of_another(place: Place, mentions: Sequence[Mention]) -> bool:
    """Say whether most of a place is (part of) the name of an entity that the step names word for word."""
    start, end = place
    return any(2 * (min(end, mention.end) - max(start, mention.start)) > end - start for mention in mentions)


def _whole(form: str, place: Place) -> bool:
    """Say whether a place is whole words but for an ending: "german" in "germans", not "male" in "female"."""
    start, end = place
    return (start == 0 or form[start - 1] == " ") and len(form[end:].partition(" ")[0]) <= _ENDING
