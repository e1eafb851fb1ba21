"""Steps beside the triples of a knowledge base: which one says most nearly what a step says, and whether it is near enough.

Source: section 3.2.1, Equation 2 and Algorithm 1 of "Direct Evaluation of Chain-of-Thought in Multi-hop Reasoning with
Knowledge Graphs".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from pytrace.certify.certificate_records import Match, StepStatus
from pytrace.certify.naming import Namings, apart
from pytrace.certify.relation_checks import RelationReader, Telling, masked
from pytrace.kg import KnowledgeBase, Mention, normal_form
from pytrace.models.encoders.encoder import Encoder, Vectors

Share = Annotated[float, msgspec.Meta(ge=0, le=1)]

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
        scores, numbers = self._base.search(self._encoder.encode(texts, kind="query"), self.settings.top)
        mentions = self._base.columns.mentions.find(texts)
        forms = [normal_form(text) for text in texts]
        strict = self.settings.rule == "strict"
        namings = Namings(self._base, forms, mentions, numbers, threshold=self.settings.least_ratio, strict=strict)
        candidates = _Candidates(scores, numbers, namings)
        if strict:
            self._part_names(candidates)
        candidates.enough = candidates.found.all(axis=2) & (candidates.scores >= self.settings.threshold)
        if strict:
            self._read_relations(forms, candidates)
        order = candidates.order()
        found = [
            self._decide(candidates, step, own, mentioned)
            for step, (own, mentioned) in enumerate(zip(order.tolist(), mentions, strict=True))
        ]
        places = {text: place for place, text in enumerate(texts)}
        return [found[places[step]] for step in steps]

    def _part_names(self, candidates: _Candidates) -> None:
        """Take back a tail that a step names only where it names the head."""
        for step, place in np.argwhere(candidates.found.all(axis=2)).tolist():
            head, _, tail = self._base.columns.triples[candidates.numbers[step, place]].tolist()
            if not apart(candidates.namings.places(step, head), candidates.namings.places(step, tail)):
                candidates.found[step, place, 1] = False

    def _read_relations(self, forms: Sequence[str], candidates: _Candidates) -> None:
        """Take back what is near enough but for its relation, of all steps in one call."""
        asked = np.argwhere(candidates.enough).tolist()
        texts = []
        relations = []
        for step, place in asked:
            head, relation, tail = self._base.columns.triples[candidates.numbers[step, place]].tolist()
            heads, tails = candidates.namings.places(step, head), candidates.namings.places(step, tail)
            texts.append(masked(forms[step], heads, tails))
            relations.append(relation)
        for (step, place), telling in zip(asked, self._relations.read(texts, relations), strict=True):
            candidates.told[step, place] = telling
            near = telling.cosine >= telling.nearest_cosine - self.settings.relation_margin
            candidates.enough[step, place] = near

    def _decide(
        self, candidates: _Candidates, step: int, order: Sequence[int], mentions: Sequence[Mention]
    ) -> Grounding:
        mentioned = tuple(dict.fromkeys(mention.entities[0] for mention in mentions))
        matches = [self._match(candidates, step, place) for place in order if candidates.numbers[step, place] >= 0]
        if matches and candidates.enough[step, order[0]]:
            status: StepStatus = "supported"
        else:
            status = "unsupported" if len(mentioned) > 1 else "undecided"
        return Grounding(status, matches[0] if matches else None, matches[1] if len(matches) > 1 else None, mentioned)

    def _match(self, candidates: _Candidates, step: int, place: int) -> Match:
        head_ratio, tail_ratio = candidates.namings.ratios[step, place].tolist()
        head_found, tail_found = candidates.found[step, place].tolist()
        number = int(candidates.numbers[step, place])
        telling = candidates.told.get((step, place))
        return Match(
            number=number,
            triple=self._base.named(number),
            score=float(candidates.scores[step, place]),
            cosine=float(candidates.cosines[step, place]),
            head_ratio=head_ratio,
            tail_ratio=tail_ratio,
            head_found=head_found,
            tail_found=tail_found,
            relation_found=telling is None or bool(candidates.enough[step, place]),
            relation_cosine=None if telling is None else telling.cosine,
            nearest_relation="" if telling is None else self._base.columns.relation_names[telling.nearest],
            nearest_cosine=None if telling is None else telling.nearest_cosine,
        )


class _Candidates:
    """The triples beside all steps, as arrays [steps, k]: scores by Equation 2, and which of them count as facts."""

    def __init__(self, cosines: Vectors, numbers: NDArray[np.int64], namings: Namings) -> None:
        self.numbers = numbers
        self.namings = namings
        self.found = namings.found.copy()
        self.cosines = np.where(numbers >= 0, cosines, -1.0).astype(np.float64)
        self.scores = (self.cosines + namings.ratios[:, :, 0] + namings.ratios[:, :, 1]) / 3
        self.enough = np.zeros(numbers.shape, dtype=np.bool_)
        self.told: dict[tuple[int, int], Telling] = {}

    def order(self) -> NDArray[np.int64]:
        """Return the places of the best two of each step."""
        # Those that count as facts come first, then those that lack but the relation; equal ones keep the order of
        # cosines.
        near = np.zeros(self.numbers.shape, dtype=np.bool_)
        if self.told:
            near[tuple(np.array(list(self.told)).T)] = True
        ranks = np.lexsort((-self.scores, ~near, ~self.enough, self.numbers < 0), axis=1)
        best: NDArray[np.int64] = ranks[:, :2]
        return best
