"""Steps beside the triples of a knowledge base: which one says most nearly what a step says, and whether it is near enough."""

# Source: section 3.2.1, Equation 2 and Algorithm 1 of the paper.

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple

import msgspec
import numpy as np

from pytrace.certify.graph_silence import silent_steps
from pytrace.certify.relation_reading import RelationReader
from pytrace.certify.step_candidates import StepCandidates
from pytrace.check_records import Match, StepStatus
from pytrace.kg import KnowledgeBase, Mention
from pytrace.kg.values import find_values, value_of
from pytrace.models.encoders.encoder import Encoder

Share = Annotated[float, msgspec.Meta(ge=0, le=1)]

# A piece of a step belongs to the fact if without it the step is so much less near to the relation.
_NEEDED = 0.02

_ENTITY_THRESHOLDS = {"strict": 0.8, "paper": 0.0}


class GroundingSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """When a step counts as a fact of the graph.

    Attributes
    ----------
    rule
        ``"paper"``: the score alone counts. It lets four of five steps with a wrong entity pass, and every one with a
        wrong relation (benches/RESULTS.md), since names are alike in most of their letters, and two full ratios leave the
        cosine 0.1 to be. ``"strict"``: a step must also name head and tail at two places of their own, neither of them
        (part of) another entity's name; must not sound more like another relation, nor name one; must not exchange the roles of
        head and tail (of relations that are not symmetric, as far as its words tell: `pytrace.certify.step_reading`), deny the
        fact, give another number or date (`pytrace.kg.values`), nor say something else behind, before or within it.
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
    """What the graph says of a step: the best triple, the next best, its status, and the entities that it mentions.

    `also` are the triples of what else a supported step says, `alike` the numbers of triples that its words fit as well, of
    entities with the same names, the best one's first.
    """

    status: StepStatus
    match: Match | None
    runner_up: Match | None
    mentioned: tuple[int, ...]
    also: tuple[Match, ...] = ()
    alike: tuple[int, ...] = ()


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
        candidates = StepCandidates(self._base, texts, mentions, cosines, numbers, self.settings)
        if self.settings.rule == "strict":
            self._read_relations(candidates)
        order = candidates.order()
        grounded = {
            text: self._decide(candidates, step, best_two, mentioned)
            for step, (text, best_two, mentioned) in enumerate(zip(texts, order.tolist(), mentions, strict=True))
        }
        if self.settings.rule == "strict":
            # What a fact's own words speak against is denied in any case.
            denied = {
                text: named
                for text, named in zip(texts, mentions, strict=True)
                if grounded[text].status == "unsupported" and len(named) > 1 and not _objects(grounded[text])
            }
            silent = silent_steps(
                self._base,
                self._relations,
                denied,
                threshold=self.settings.threshold,
                margin=self.settings.relation_margin,
            )
            grounded |= {text: grounded[text]._replace(status="undecided") for text in silent}
        return [grounded[step] for step in steps]

    def _read_relations(self, candidates: StepCandidates) -> None:
        """Take back what is near enough but for what the step says of it, of all steps in one call."""
        near_enough = np.argwhere(candidates.enough).tolist()
        numbers = candidates.numbers[candidates.enough]
        relations = self._base.columns.triples[numbers, 1].tolist()
        readings = [
            candidates.reading(step, number) for (step, _), number in zip(near_enough, numbers.tolist(), strict=True)
        ]
        texts = [reading.text() for reading in readings]
        objections = [
            self._relations.objection(reading.words, relation)
            for reading, relation in zip(readings, relations, strict=True)
        ]
        # What may be left out is compared with and without it.
        cut = [
            (row, piece)
            for row, (reading, relation) in enumerate(zip(readings, relations, strict=True))
            if not objections[row]
            for piece in self._relations.doubtful(reading, relation)
        ]
        shorter = [readings[row].text(without=piece) for row, piece in cut]
        told = self._relations.read([*texts, *shorter], [*relations, *(relations[row] for row, _ in cut)])
        extra = [
            (row, piece)
            for (row, piece), without in zip(cut, told[len(texts) :], strict=True)
            if told[row].cosine - without.cosine <= _NEEDED
        ]
        facts = self._further_facts([readings[row].sentence(piece) for row, piece in extra])
        for (row, piece), fact in zip(extra, facts, strict=True):
            if not fact:
                objections[row] = objections[row] or f"the step also says {readings[row].said(piece)!r}"
            step, rank = near_enough[row]
            candidates.also[step, rank] = (*candidates.also.get((step, rank), ()), *fact)
        for (step, rank), telling, objection in zip(near_enough, told, objections, strict=False):
            candidates.relations[step, rank] = telling
            candidates.objections[step, rank] = objection
            near = telling.cosine >= telling.nearest_cosine - self.settings.relation_margin
            candidates.enough[step, rank] = near and not objection

    def _further_facts(self, sentences: Sequence[str]) -> list[tuple[Match, ...]]:
        """Return the facts that sentences state which were pieces of steps; none of what is no fact."""
        asked = [text for text in dict.fromkeys(sentences) if text]
        # A piece is a fact only if it names a second entity, or a value.
        several = [
            text
            for text, named in zip(asked, self._base.columns.mentions.find(asked), strict=True)
            if len(named) > 1 or (named and find_values(text))
        ]
        facts: dict[str, tuple[Match, ...]] = {}
        for text, found in zip(several, self.ground(several), strict=True):
            if found.status == "supported" and found.match is not None:
                facts[text] = (found.match, *found.also)
        return [facts.get(text, ()) for text in sentences]

    def _decide(
        self, candidates: StepCandidates, step: int, order: Sequence[int], mentions: Sequence[Mention]
    ) -> Grounding:
        mentioned = tuple(dict.fromkeys(mention.entities[0] for mention in mentions))
        matches = [self._match(candidates, step, rank) for rank in order if candidates.numbers[step, rank] >= 0]
        if matches and candidates.enough[step, order[0]]:
            status: StepStatus = "supported"
        else:
            known = len(mentioned) > 1 or self._other_value(candidates, step)
            status = "unsupported" if known else "undecided"
        best, runner_up = (*matches, None, None)[:2]
        if status != "supported" or self.settings.rule != "strict":
            return Grounding(status, best, runner_up, mentioned)
        also = candidates.also.get((step, order[0]), ())
        return Grounding(status, best, runner_up, mentioned, also, candidates.alike(step, order[0]))

    def _other_value(self, candidates: StepCandidates, step: int) -> bool:
        """Say whether the graph has a fact of a date or a number, of which a step names the head and relation, and another value."""
        if self.settings.rule != "strict" or not candidates.values(step):
            return False
        columns = self._base.columns
        for rank in np.flatnonzero(candidates.found[step, :, 0] & ~candidates.found[step, :, 1]).tolist():
            _, relation, tail = columns.triples[candidates.numbers[step, rank]].tolist()
            if value_of(columns.entity_names[tail]) and self._relations.said(candidates.forms[step].split(), relation):
                return True
        return False

    def _match(self, candidates: StepCandidates, step: int, rank: int) -> Match:
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
            relation_found=telling is None or telling.cosine >= telling.nearest_cosine - self.settings.relation_margin,
            relation_cosine=None if telling is None else telling.cosine,
            nearest_relation="" if telling is None else self._base.columns.relation_names[telling.nearest],
            nearest_cosine=None if telling is None else telling.nearest_cosine,
            objection=candidates.objections.get((step, rank), ""),
        )


def _objects(grounding: Grounding) -> bool:
    return grounding.match is not None and bool(grounding.match.objection)
