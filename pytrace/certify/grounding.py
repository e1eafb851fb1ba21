"""Steps beside the triples of a knowledge base: which one says most nearly what a step says, and whether it is near enough.

Source: section 3.2.1, Equation 2 and Algorithm 1 of "Direct Evaluation of Chain-of-Thought in Multi-hop Reasoning with
Knowledge Graphs".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, NamedTuple

import msgspec

from pytrace.certify.naming import Naming, apart, name_entities
from pytrace.certify.records import Match, StepStatus
from pytrace.certify.relations import RelationReader, Telling, masked
from pytrace.knowledge_base import KnowledgeBase, Mention, normal_form
from pytrace.models.encoder import Encoder

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


class _Candidate(NamedTuple):
    """A triple beside a step, before it is known whether it is the best."""

    number: int
    cosine: float
    head: Naming
    tail: Naming
    score: float
    enough: bool
    telling: Telling | None = None


class Grounder:
    """Finds the triples of steps, all steps in one batch.

    Parameters
    ----------
    base
        The knowledge base.
    encoder
        The one that made its vectors.
    settings
        When a step counts as a fact.

    Examples
    --------
    >>> from pytrace.models.scripted import HashEncoder
    >>> from pytrace.records import Triple
    >>> encoder = HashEncoder()
    >>> base = KnowledgeBase.in_memory([Triple("Corfu", "part of", "Greece"), Triple("Greece", "speaks", "Greek")], encoder)
    >>> found = Grounder(base, encoder).ground(["Corfu is part of Greece.", "Corfu speaks Greek."])
    >>> [one.status for one in found]
    ['supported', 'unsupported']
    """

    def __init__(self, base: KnowledgeBase, encoder: Encoder, settings: GroundingSettings | None = None) -> None:
        self.settings = settings or GroundingSettings()
        self._base = base
        self._encoder = encoder
        self._relations = RelationReader(base, encoder)

    def ground(self, steps: Sequence[str]) -> list[Grounding]:
        """Find the triple of every step.

        Parameters
        ----------
        steps
            Their texts; equal ones are compared once.

        Returns
        -------
        list of Grounding
            One a step.
        """
        texts = list(dict.fromkeys(steps))
        if not texts:
            return []
        strict = self.settings.rule == "strict"
        scores, numbers = self._base.search(self._encoder.encode(texts, kind="query"), self.settings.top)
        mentions = self._base.columns.mentions.find(texts)
        forms = [normal_form(text) for text in texts]
        namings = name_entities(
            self._base, forms, mentions, numbers, threshold=self.settings.least_ratio, strict=strict
        )
        candidates = [
            self._candidates(own_numbers, own_scores, naming)
            for own_numbers, own_scores, naming in zip(numbers.tolist(), scores.tolist(), namings, strict=True)
        ]
        if strict:
            self._read_relations(forms, candidates)
        found = [self._decide(own, mentioned) for own, mentioned in zip(candidates, mentions, strict=True)]
        places = {text: place for place, text in enumerate(texts)}
        return [found[places[step]] for step in steps]

    def _candidates(
        self, numbers: Sequence[int], cosines: Sequence[float], namings: Mapping[int, Naming]
    ) -> list[_Candidate]:
        """Score a step's triples by Equation 2."""
        candidates = []
        for number, cosine in zip(numbers, cosines, strict=True):
            if number < 0:
                break
            head, _, tail = self._base.columns.triples[number].tolist()
            first, second = namings[head], namings[tail]
            if self.settings.rule == "strict" and first.found and second.found and not apart(first, second):
                second = second._replace(found=False)
            score = (cosine + first.ratio + second.ratio) / 3
            enough = score >= self.settings.threshold and first.found and second.found
            candidates.append(_Candidate(number, cosine, first, second, score, enough))
        return candidates

    def _read_relations(self, forms: Sequence[str], candidates: Sequence[list[_Candidate]]) -> None:
        """Take back what is near enough but for its relation, of all steps in one call."""
        asked = [
            (own, place, masked(form, one.head.places, one.tail.places))
            for form, own in zip(forms, candidates, strict=True)
            for place, one in enumerate(own)
            if one.enough
        ]
        relations = [int(self._base.columns.triples[own[place].number, 1]) for own, place, _ in asked]
        told = self._relations.read([text for _, _, text in asked], relations)
        for (own, place, _), telling in zip(asked, told, strict=True):
            near = telling.cosine >= telling.nearest_cosine - self.settings.relation_margin
            own[place] = own[place]._replace(telling=telling, enough=near)

    def _decide(self, candidates: Sequence[_Candidate], mentions: Sequence[Mention]) -> Grounding:
        # Those that count as facts come first, then those that lack but the relation; equal ones keep the order of cosines.
        ranked = sorted(candidates, key=lambda one: (one.enough, one.telling is not None, one.score), reverse=True)
        mentioned = tuple(dict.fromkeys(mention.entities[0] for mention in mentions))
        if ranked and ranked[0].enough:
            status: StepStatus = "supported"
        else:
            status = "unsupported" if len(mentioned) > 1 else "undecided"
        best, runner_up = (self._match(ranked[place]) if len(ranked) > place else None for place in (0, 1))
        return Grounding(status, best, runner_up, mentioned)

    def _match(self, one: _Candidate) -> Match:
        telling = one.telling
        return Match(
            number=one.number,
            triple=self._base.named(one.number),
            score=one.score,
            cosine=one.cosine,
            head_ratio=one.head.ratio,
            tail_ratio=one.tail.ratio,
            head_found=one.head.found,
            tail_found=one.tail.found,
            relation_found=telling is None or one.enough,
            relation_cosine=None if telling is None else telling.cosine,
            nearest_relation="" if telling is None else self._base.columns.relation_names[telling.nearest],
            nearest_cosine=None if telling is None else telling.nearest_cosine,
        )
