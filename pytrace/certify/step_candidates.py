"""Steps beside the triples that are nearest to them: which heads and tails they name, and where."""

# Source: Equation 2 of the paper.

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pytrace.certify.relation_reading import Reading, Span, Telling
from pytrace.certify.step_reading import cuts
from pytrace.check_records import Match
from pytrace.kernels.fuzzy import cpdist, partial_ratio, partial_ratio_alignment
from pytrace.kg import KnowledgeBase, Mention, normal_form
from pytrace.kg.names import tokens
from pytrace.kg.values import Value, find_values, tells, value_of
from pytrace.models.encoders.encoder import Vectors

if TYPE_CHECKING:
    from pytrace.certify.grounding import GroundingSettings

# Letters that a word may have beyond an entity's name: a plural's or a genitive's.
_ENDING = 2


class StepCandidates:
    """The triples beside all steps, as arrays [steps, k], and how the steps name their heads and tails.

    `ratios` [steps, k, 2] are the partial ratios of Equation 2, from 0 to 1, of the normal forms of step and head, and of step
    and tail (0 where there is no candidate), and `found`, of the same shape, tells whether that names the entity. `scores`
    are by Equation 2, and `enough` tells which triples count as facts.
    """

    def __init__(
        self,
        base: KnowledgeBase,
        texts: Sequence[str],
        mentions: Sequence[Sequence[Mention]],
        cosines: Vectors,
        numbers: NDArray[np.int64],
        settings: GroundingSettings,
    ) -> None:
        forms = list(map(normal_form, texts))
        self.forms, self.numbers = forms, numbers
        self.relations: dict[tuple[int, int], Telling] = {}
        self.objections: dict[tuple[int, int], str] = {}
        self.also: dict[tuple[int, int], tuple[Match, ...]] = {}
        self._texts = texts
        self._stops: dict[int, frozenset[int]] = {}
        self._values: dict[int, list[Value]] = {}
        self._columns, self._triples, self._mentions = base.columns, base.columns.triples, mentions
        self._nearly: dict[tuple[int, int], Span] = {}
        strict = settings.rule == "strict"
        ends = self._triples[numbers][:, :, [0, 2]].astype(np.int64)  # those of -1 are put right below
        steps = np.broadcast_to(np.arange(len(forms))[:, None, None], ends.shape)
        # Each entity of a step once: a pair is one number, and so is a word for word mention.
        count = len(base.columns.entity_keys)
        pairs, inverse = np.unique(steps * count + ends, return_inverse=True)
        named = [
            step * count + entity for step, row in enumerate(mentions) for mention in row for entity in mention.entities
        ]
        found = np.isin(pairs, np.array(named, dtype=np.int64))
        ratios = np.where(found, 1.0, 0.0)
        left = np.flatnonzero(~found)
        left_steps, entities = (pairs[left] // count).tolist(), (pairs[left] % count).tolist()
        names = {entity: normal_form(base.columns.entity_names[entity]) for entity in set(entities)}
        scores = cpdist(
            [forms[step] for step in left_steps],
            [names[entity] for entity in entities],
            scorer=partial_ratio,
            dtype=np.float64,
            workers=-1,
        )
        sizes = np.array([len(names[entity]) for entity in entities], dtype=np.float64)
        shares = np.array([len(forms[step]) for step in left_steps], dtype=np.float64) / np.maximum(sizes, 1)
        # A step shorter than a name counts for its share of it, since any syllable is found in some name.
        ratios[left] = scores / 100 * np.minimum(shares, 1) * (sizes > 0)
        near = ratios[left] >= settings.least_ratio
        found[left] = near & (not strict)
        for index in np.flatnonzero(near & (ratios[left] > 0)).tolist() if strict else ():
            step, entity = left_steps[index], entities[index]
            span = _span(names[entity], forms[step])
            if not _of_another(span, mentions[step]) and (scores[index] < 100 or _whole_words(forms[step], span)):
                found[left[index]] = True
                self._nearly[step, entity] = span
        if strict:
            self._compare_values(base, pairs, count, ratios, found)
        there = numbers >= 0
        self.ratios = np.where(there[:, :, None], ratios[inverse.reshape(ends.shape)], 0.0)
        self.found = found[inverse.reshape(ends.shape)] & there[:, :, None]
        if strict:
            # A tail that a step names only where it names the head is not named.
            for step, rank in np.argwhere(self.found.all(axis=2)).tolist():
                self.found[step, rank, 1] = _apart(*self.spans_of_ends(step, numbers[step, rank]))
        self.cosines = np.where(there, cosines, -1.0).astype(np.float64)
        self.scores = (self.cosines + self.ratios[:, :, 0] + self.ratios[:, :, 1]) / 3
        self.enough = self.found.all(axis=2) & (self.scores >= settings.threshold)

    def _compare_values(
        self,
        base: KnowledgeBase,
        pairs: NDArray[np.int64],
        count: int,
        ratios: NDArray[np.float64],
        found: NDArray[np.bool_],
    ) -> None:
        """Find ends that are dates or numbers by their values, and take back names that differ from a step's in a number."""
        steps_by_entity: dict[int, list[int]] = {}
        for row, entity in enumerate((pairs % count).tolist()):
            steps_by_entity.setdefault(entity, []).append(row)
        for entity, rows in steps_by_entity.items():
            name = base.columns.entity_names[entity]
            if not any(map(str.isdigit, name)):
                continue
            known = value_of(name)
            for row in rows:
                step = int(pairs[row]) // count
                if known is None:
                    span = self._nearly.get((step, entity))
                    if span is not None and _numbers(name) != _numbers(self.forms[step][slice(*span)]):
                        found[row] = False
                    continue
                said = next((value for value in self.values(step) if tells(value, known)), None)
                found[row] = said is not None
                if said is not None:
                    ratios[row] = 1.0
                    text = self._texts[step]
                    start = len(normal_form(text[: said.start] + "x")) - 1
                    self._nearly[step, entity] = (start, start + len(normal_form(text[said.start : said.end])))

    def values(self, step: int) -> list[Value]:
        """Return the dates and numbers of a step."""
        if step not in self._values:
            self._values[step] = find_values(self._texts[step])
        return self._values[step]

    def reading(self, step: int, number: int) -> Reading:
        """Return a step in words beside a triple, both ends of which it names."""
        if step not in self._stops:
            self._stops[step] = cuts(self._texts[step], self.forms[step])
        heads, tails = self.spans_of_ends(step, number)
        # A name of one word may be one of the relation's: "English" in "English translation".
        others = [
            (mention.start, mention.end)
            for mention in self._mentions[step]
            if " " in self.forms[step][mention.start : mention.end]
        ]
        return Reading.of(self.forms[step], self._stops[step], heads, tails, others)

    def spans_of_ends(self, step: int, number: int) -> tuple[Sequence[Span], Sequence[Span]]:
        """Return where a step names a triple's head, and where its tail, both of which it names (strict rule)."""
        head, _, tail = self._triples[number].tolist()
        return self._spans(step, head), self._spans(step, tail)

    def _spans(self, step: int, entity: int) -> Sequence[Span]:
        nearly = self._nearly.get((step, entity))
        if nearly is not None:
            return (nearly,)
        return [(mention.start, mention.end) for mention in self._mentions[step] if entity in mention.entities]

    def alike(self, step: int, best: int) -> tuple[int, ...]:
        """Return the triples that count as facts and have the same relation and, of head and tail, the same names as the best."""
        names = self._columns.entity_names

        def worded(number: int) -> tuple[str, int, str]:
            head, relation, tail = self._triples[number].tolist()
            return normal_form(names[head]), relation, normal_form(names[tail])

        chosen = int(self.numbers[step, best])
        others = [number for number in self.numbers[step][self.enough[step]].tolist() if number != chosen]
        wanted = worded(chosen) if others else None
        return (chosen, *(number for number in others if worded(number) == wanted))

    def order(self) -> NDArray[np.int64]:
        """Return the ranks of the best two of each step."""
        # Those that count as facts come first, then those that lack but the relation; equal ones keep the order of
        # cosines.
        near = np.zeros(self.numbers.shape, dtype=np.bool_)
        if self.relations:
            near[tuple(np.array(list(self.relations)).T)] = True
        best: NDArray[np.int64] = np.lexsort((-self.scores, ~near, ~self.enough, self.numbers < 0), axis=1)[:, :2]
        return best


def _numbers(text: str) -> list[str]:
    """Return the words of a text that have digits."""
    return [word for word in tokens(text) if any(map(str.isdigit, word))]


def _apart(first: Sequence[Span], second: Sequence[Span]) -> bool:
    """Say whether there is a span of each such that neither lies within the other."""
    return any(not ((a[0] <= b[0] and b[1] <= a[1]) or (b[0] <= a[0] and a[1] <= b[1])) for a in first for b in second)


def _span(name: str, form: str) -> Span:
    """Return the window of a step that is most like a name."""
    aligned = partial_ratio_alignment(name, form)
    if aligned is None or len(form) < len(name):
        return 0, len(form)
    return aligned.dest_start, aligned.dest_end


def _of_another(span: Span, mentions: Sequence[Mention]) -> bool:
    """Say whether most of a span is (part of) the name of an entity that the step names word for word."""
    start, end = span
    return any(2 * (min(end, mention.end) - max(start, mention.start)) > end - start for mention in mentions)


def _whole_words(form: str, span: Span) -> bool:
    """Say whether a span is whole words but for an ending: "german" in "germans", not "male" in "female"."""
    start, end = span
    return (start == 0 or form[start - 1] == " ") and len(form[end:].partition(" ")[0]) <= _ENDING
