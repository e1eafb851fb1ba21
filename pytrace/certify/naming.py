"""How steps name entities: word for word, nearly, or only as part of another entity's name."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pytrace.kernels.fuzzy import cpdist, partial_ratio, partial_ratio_alignment
from pytrace.kg import KnowledgeBase, Mention, normal_form

# Letters that a word may have beyond an entity's name: a plural's or a genitive's.
_ENDING = 2

Place = tuple[int, int]
"""Where something stands in a step's normal form: ``form[start:end]``."""


class Namings:
    """How steps name the heads and tails of their candidate triples.

    Attributes
    ----------
    ratios
        Float64 [steps, k, 2]: the partial ratio of Equation 2, from 0 to 1, of the normal forms of step and head, and of step
        and tail. A step shorter than a name counts for its share of it, since any syllable is found in some name. 0 where
        there is no candidate.
    found
        Bool, same shape: whether that names the entity.
    """

    def __init__(
        self,
        base: KnowledgeBase,
        forms: Sequence[str],
        mentions: Sequence[Sequence[Mention]],
        numbers: NDArray[np.int64],
        *,
        threshold: float,
        strict: bool,
    ) -> None:
        self._mentions = mentions
        self._nearly: dict[tuple[int, int], Place] = {}
        ends = base.columns.triples[numbers][:, :, [0, 2]].astype(np.int64)  # those of -1 are put right below
        steps = np.broadcast_to(np.arange(len(forms))[:, None, None], ends.shape)
        # Each entity of a step once: a pair is one number, and so is a word for word mention.
        count = len(base.columns.entity_keys)
        pairs, places = np.unique(steps * count + ends, return_inverse=True)
        named = np.array(
            [step * count + entity for step, own in enumerate(mentions) for one in own for entity in one.entities],
            dtype=np.int64,
        )
        found = np.isin(pairs, named)
        ratios = np.where(found, 1.0, 0.0)
        left = np.flatnonzero(~found)
        own_steps, entities = (pairs[left] // count).tolist(), (pairs[left] % count).tolist()
        names = {entity: normal_form(base.columns.entity_names[entity]) for entity in set(entities)}
        scores = cpdist(
            [forms[step] for step in own_steps],
            [names[entity] for entity in entities],
            scorer=partial_ratio,
            dtype=np.float64,
            workers=-1,
        )
        sizes = np.array([len(names[entity]) for entity in entities], dtype=np.float64)
        shares = np.array([len(forms[step]) for step in own_steps], dtype=np.float64) / np.maximum(sizes, 1)
        ratios[left] = scores / 100 * np.minimum(shares, 1) * (sizes > 0)
        near = ratios[left] >= threshold
        found[left] = near & (not strict)
        for place in np.flatnonzero(near & (ratios[left] > 0)).tolist() if strict else ():
            step, entity = own_steps[place], entities[place]
            where = _place(names[entity], forms[step])
            if not _of_another(where, mentions[step]) and (scores[place] < 100 or _whole(forms[step], where)):
                found[left[place]] = True
                self._nearly[step, entity] = where
        there = (numbers >= 0)[:, :, None]
        self.ratios = np.where(there, ratios[places.reshape(ends.shape)], 0.0)
        self.found = found[places.reshape(ends.shape)] & there

    def places(self, step: int, entity: int) -> tuple[Place, ...]:
        """Return where a step names an entity that it names, if it was to be looked for (`strict`)."""
        nearly = self._nearly.get((step, entity))
        if nearly is not None:
            return (nearly,)
        return tuple((one.start, one.end) for one in self._mentions[step] if entity in one.entities)


def apart(first: Sequence[Place], second: Sequence[Place]) -> bool:
    """Say whether there is a place of each such that neither lies within the other."""
    return any(not ((a[0] <= b[0] and b[1] <= a[1]) or (b[0] <= a[0] and a[1] <= b[1])) for a in first for b in second)


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
