"""Steps beside the triples of a knowledge base: which one says most nearly what a step says, and whether it is near enough."""

# Source: section 3.2.1, Equation 2 and Algorithm 1 of the paper.

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from pytrace.certify.certificate_records import Match, StepStatus
from pytrace.kernels.device_vectors import DeviceVectors
from pytrace.kernels.fuzzy import cpdist, partial_ratio, partial_ratio_alignment
from pytrace.kg import KnowledgeBase, Mention, normal_form, verbalise
from pytrace.models.encoders.encoder import Encoder, Vectors, device_of

Span = tuple[int, int]
"""Where something stands in a step's normal form: ``form[start:end]``."""

Share = Annotated[float, msgspec.Meta(ge=0, le=1)]

# Letters that a word may have beyond an entity's name: a plural's or a genitive's.
_ENDING = 2
_HEAD, _TAIL = "X", "Y"

_ENTITY_THRESHOLDS = {"strict": 0.8, "paper": 0.0}


class GroundingSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """When a step counts as a fact of the graph.

    Attributes
    ----------
    rule
        ``"paper"``: the score alone counts. It lets four of five steps with a wrong entity pass, and every one with a
        wrong relation (benches/RESULTS.md), since names are alike in most of their letters, and two full ratios leave the
        cosine 0.1 to be. ``"strict"``: a step must also name head and tail at two places of their own, neither of them
        (part of) another entity's name, and must not sound more like another relation.
    top
        How many triples are compared with a step: those whose sentences have the highest cosine (the paper: 10).
    threshold
        The least score, the mean of cosine, head ratio and tail ratio (the paper: 0.7).
    entity_threshold
        The least ratio of head and of tail, each by itself; by default 0.8, and 0 for the paper's rule, whose authors'
        program has 0.5.
    relation_margin
        For the strict rule: by how much the cosine of another relation may be higher than that of the triple's (both of
        the step with X and Y for its entities). 2 lets every relation pass.
    """

    rule: Literal["strict", "paper"] = "strict"
    top: Annotated[int, msgspec.Meta(ge=1)] = 10
    threshold: Share = 0.7
    entity_threshold: Share | None = None
    relation_margin: Annotated[float, msgspec.Meta(ge=0, le=2)] = 0.2

    @property
    def least_ratio(self) -> float:
        """The entity threshold that is in force."""
        return _ENTITY_THRESHOLDS[self.rule] if self.entity_threshold is None else self.entity_threshold


class Grounding(NamedTuple):
    """What the graph says of a step: the best triple, the next best, its status, and the entities that it mentions."""

    status: StepStatus
    match: Match | None
    runner_up: Match | None
    mentioned: tuple[int, ...]


class Grounder:
    """Finds the triples of steps, all steps in one batch."""

    def __init__(self, base: KnowledgeBase, encoder: Encoder, settings: GroundingSettings | None = None) -> None:
        self.settings = settings or GroundingSettings()
        self._base = base
        self._encoder = encoder
        self._relations = RelationReader(base, encoder)

    def ground(self, steps: Sequence[str]) -> list[Grounding]:
        """Find the triple of every step."""
        texts = list(dict.fromkeys(steps))
        if not texts:
            return []
        cosines, numbers = self._base.search(self._encoder.encode(texts, kind="query"), self.settings.top)
        mentions = self._base.columns.mentions.find(texts)
        candidates = _Candidates(self._base, list(map(normal_form, texts)), mentions, cosines, numbers, self.settings)
        if self.settings.rule == "strict":
            self._read_relations(candidates)
        order = candidates.order()
        grounded = {
            text: self._decide(candidates, step, best_two, mentioned)
            for step, (text, best_two, mentioned) in enumerate(zip(texts, order.tolist(), mentions, strict=True))
        }
        return [grounded[step] for step in steps]

    def _read_relations(self, candidates: _Candidates) -> None:
        """Take back what is near enough but for its relation, of all steps in one call."""
        near_enough = np.argwhere(candidates.enough).tolist()
        texts = [
            masked(candidates.forms[step], *candidates.spans_of_ends(step, number))
            for (step, _), number in zip(near_enough, candidates.numbers[candidates.enough], strict=True)
        ]
        relations = self._base.columns.triples[candidates.numbers[candidates.enough], 1].tolist()
        for (step, rank), telling in zip(near_enough, self._relations.read(texts, relations), strict=True):
            candidates.relations[step, rank] = telling
            near = telling.cosine >= telling.nearest_cosine - self.settings.relation_margin
            candidates.enough[step, rank] = near

    def _decide(
        self, candidates: _Candidates, step: int, order: Sequence[int], mentions: Sequence[Mention]
    ) -> Grounding:
        mentioned = tuple(dict.fromkeys(mention.entities[0] for mention in mentions))
        matches = [self._match(candidates, step, rank) for rank in order if candidates.numbers[step, rank] >= 0]
        if matches and candidates.enough[step, order[0]]:
            status: StepStatus = "supported"
        else:
            status = "unsupported" if len(mentioned) > 1 else "undecided"
        return Grounding(status, matches[0] if matches else None, matches[1] if len(matches) > 1 else None, mentioned)

    def _match(self, candidates: _Candidates, step: int, rank: int) -> Match:
        head_ratio, tail_ratio = candidates.ratios[step, rank].tolist()
        head_found, tail_found = candidates.found[step, rank].tolist()
        number = int(candidates.numbers[step, rank])
        telling = candidates.relations.get((step, rank))
        return Match(
            number=number,
            triple=self._base.named(number),
            score=float(candidates.scores[step, rank]),
            cosine=float(candidates.cosines[step, rank]),
            head_ratio=head_ratio,
            tail_ratio=tail_ratio,
            head_found=head_found,
            tail_found=tail_found,
            relation_found=telling is None or bool(candidates.enough[step, rank]),
            relation_cosine=None if telling is None else telling.cosine,
            nearest_relation="" if telling is None else self._base.columns.relation_names[telling.nearest],
            nearest_cosine=None if telling is None else telling.nearest_cosine,
        )


class _Candidates:
    """The triples beside all steps, as arrays [steps, k], and how the steps name their heads and tails.

    `ratios` [steps, k, 2] are the partial ratios of Equation 2, from 0 to 1, of the normal forms of step and head, and of step
    and tail (0 where there is no candidate), and `found`, of the same shape, tells whether that names the entity. `scores`
    are by Equation 2, and `enough` tells which triples count as facts.
    """

    def __init__(
        self,
        base: KnowledgeBase,
        forms: Sequence[str],
        mentions: Sequence[Sequence[Mention]],
        cosines: Vectors,
        numbers: NDArray[np.int64],
        settings: GroundingSettings,
    ) -> None:
        self.forms, self.numbers = forms, numbers
        self.relations: dict[tuple[int, int], Telling] = {}
        self._triples, self._mentions = base.columns.triples, mentions
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

    def spans_of_ends(self, step: int, number: int) -> tuple[Sequence[Span], Sequence[Span]]:
        """Return where a step names a triple's head, and where its tail, both of which it names (strict rule)."""
        head, _, tail = self._triples[number].tolist()
        return self._spans(step, head), self._spans(step, tail)

    def _spans(self, step: int, entity: int) -> Sequence[Span]:
        nearly = self._nearly.get((step, entity))
        if nearly is not None:
            return (nearly,)
        return [(mention.start, mention.end) for mention in self._mentions[step] if entity in mention.entities]

    def order(self) -> NDArray[np.int64]:
        """Return the ranks of the best two of each step."""
        # Those that count as facts come first, then those that lack but the relation; equal ones keep the order of
        # cosines.
        near = np.zeros(self.numbers.shape, dtype=np.bool_)
        if self.relations:
            near[tuple(np.array(list(self.relations)).T)] = True
        best: NDArray[np.int64] = np.lexsort((-self.scores, ~near, ~self.enough, self.numbers < 0), axis=1)[:, :2]
        return best


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


class Telling(NamedTuple):
    """How near a step is to a relation, and the relation of the graph that it is nearest to: cosines, and a number."""

    cosine: float
    nearest: int
    nearest_cosine: float


class RelationReader:
    """Compares steps with relations, both without their entities.

    A step's cosine with a triple is mostly that of their entities: whatever relation a step tells of, it is near every
    fact of the two that it names. With X and Y in their places, what is left is the relation.
    """

    def __init__(self, base: KnowledgeBase, encoder: Encoder) -> None:
        self._base = base
        self._encoder = encoder
        self._vectors: DeviceVectors | None = None

    def read(self, texts: Sequence[str], relations: Sequence[int]) -> list[Telling]:
        """Compare masked steps with relations."""
        if not texts:
            return []
        if self._vectors is None:
            names = [verbalise(_HEAD, name, _TAIL) for name in self._base.columns.relation_names]
            self._vectors = DeviceVectors(self._encoder.encode(names, kind="passage"), device_of(self._encoder))
        rows_by_text = {text: row for row, text in enumerate(dict.fromkeys(texts))}
        steps = self._encoder.encode(list(rows_by_text), kind="query")
        best, nearest = self._vectors.top_k(steps, 1)
        rows = [rows_by_text[text] for text in texts]
        cosines = np.einsum("ij,ij->i", steps[rows], self._vectors.vectors[list(relations)])
        return [
            Telling(cosine, int(nearest[row, 0]), float(best[row, 0]))
            for row, cosine in zip(rows, cosines.tolist(), strict=True)
        ]


def masked(form: str, heads: Sequence[Span], tails: Sequence[Span]) -> str:
    """Put X and Y for a step's head and tail."""
    spans = sorted([(*span, _HEAD) for span in heads] + [(*span, _TAIL) for span in tails])
    parts = []
    at = 0
    for start, end, letter in spans:
        if start < at:  # a name within a name, or one that is head and tail
            continue
        parts += [form[at:start], letter]
        at = end
    return "".join([*parts, form[at:]])
