"""The reader that takes an answer out of the evidence, or says yes or no, without a language model.

Candidates are found by rule (`candidates`) and by the small model, where it is installed (`edge_features`). They are told apart by its
scores and by what is said around them (`features`), with learned weights (`python -m benches.train_reader`). Which of two was earlier, later, older or younger is decided by their dates, if the
evidence has these, and whether two come from one country by the countries that it names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from pytrace.models.language_model import LanguageModel
from pytrace.reader.answers import Reader, Reading
from pytrace.reader.spans.certainty import certainty
from pytrace.reader.spans.edge_features import TOP_SPANS, with_edge
from pytrace.reader.spans.features import EntryFacts, Scored, candidates
from pytrace.reader.spans.weights import SpanWeights, edge_weights, shipped_weights
from pytrace.records import Evidence

if TYPE_CHECKING:
    from pytrace.models.edge.edge_model import EdgeModel
    from pytrace.models.edge.reading import EdgeReading

# Score of a rare question word near a name in software. The weights are learned from prose, which has no such names. This value was set
# by hand on 15 questions about one documentation site. It orders the candidates, but does not change their confidence.
_RARE_WORD_SCORE = 2.0

NEAR = 20
MOST_CHARACTERS = 40_000
"""Longer evidence of a question is left to the rules: the small model would take seconds for it."""


class Ranked(NamedTuple):
    """A candidate with its score."""

    candidate: Scored
    score: float


class SpanReader(Reader):
    """Answers with the likeliest span of the evidence, with yes or with no; an empty answer if there is no candidate.

    The language model is asked only where a method made evidence of its own and has none, or reads none by design.

    Parameters
    ----------
    model
        Language model of the method.
    edge
        Opens the small model, whose scores count beside those of the rules; None: the rules alone.
    weights
        Weights instead of those that come with the package.
    **settings
        As for `Reader`.
    """

    def __init__(
        self,
        model: LanguageModel,
        *,
        edge: Callable[[], EdgeModel] | None = None,
        weights: SpanWeights | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(model, **settings)
        self._edge = edge
        self._given = weights

    def _weights(self, read: EdgeReading | None) -> SpanWeights:
        if self._given is not None:
            return self._given
        return shipped_weights() if read is None or self._edge is None else edge_weights(self._edge().directory)

    def with_model(self, model: LanguageModel) -> Reader:
        """Return the same reader with another model."""
        return SpanReader(model, edge=self._edge, weights=self._given, **self._settings)

    def with_edge(self, edge: Callable[[], EdgeModel]) -> Reader:
        """Return the same reader with the small model beside its rules."""
        return SpanReader(self.model, edge=edge, **self._settings)

    def read(self, questions: Sequence[str], evidence: Sequence[Evidence]) -> list[Reading]:
        """Answer every question from its evidence."""
        bare = [number for number, seen in enumerate(evidence) if not seen.context and seen.kind != "documents"]
        written = super().read([questions[number] for number in bare], [evidence[number] for number in bare])
        readings = dict(zip(bare, written, strict=True))
        rest = [number for number in range(len(questions)) if number not in readings]
        asked, seen = [questions[number] for number in rest], [evidence[number] for number in rest]
        found = self.edge_readings(asked, [one.context for one in seen])
        for number, question, one, read in zip(rest, asked, seen, found, strict=True):
            readings[number] = self._reading(question, one, read)
        return [readings[number] for number in range(len(questions))]

    def edge_readings(
        self, questions: Sequence[str], contexts: Sequence[Sequence[str]]
    ) -> Sequence[EdgeReading | None]:
        """Return what the small model reads, all questions in one call; None where there is no such model or the evidence is too long for it."""
        found: list[EdgeReading | None] = [None] * len(questions)
        if self._edge is not None:
            short = [n for n, context in enumerate(contexts) if sum(map(len, context)) <= MOST_CHARACTERS]
            read = self._edge().read([questions[n] for n in short], [contexts[n] for n in short], top=TOP_SPANS)
            for number, one in zip(short, read, strict=True):
                found[number] = one
        return found

    def candidates(self, question: str, evidence: Evidence, read: EdgeReading | None = None) -> list[Scored]:
        """Return the candidates of a question, those of the small model with those of the rules, in the order of the evidence."""
        facts = entry_facts(evidence)
        if read is None:
            return candidates(question, evidence.context, facts)
        near = [(span.passage, span.start, span.end) for span in read.spans[:NEAR]]
        return with_edge(candidates(question, evidence.context, facts, near), read, evidence.context, facts)

    def rank(self, question: str, evidence: Evidence, read: EdgeReading | None = None) -> list[Ranked]:
        """Return the candidates of a question, likeliest first; if a rule decides, only those that it allows."""
        found = self.candidates(question, evidence, read)
        weights = self._weights(read)
        decided = [one for one in found if one.features.get("the one of two") or one.features.get("an identifier")]
        ranked = [Ranked(one, weights.score(one.features)) for one in decided or found]
        # The sort is stable: among equal candidates, the first in the evidence stays first.
        return sorted(ranked, key=_order)

    def _reading(self, question: str, evidence: Evidence, read: EdgeReading | None) -> Reading:
        ranked = self.rank(question, evidence, read)
        if not ranked:
            return Reading("", 0)
        told = certainty(question, evidence, ranked, read)
        best = ranked[0].candidate
        return Reading(best.text, 0, places=best.spans, probability=self._weights(read).probability(told))


def _order(one: Ranked) -> tuple[float, float]:
    features = one.candidate.features
    near = _RARE_WORD_SCORE * features.get("rare shares", 0.0) if features.get("an identifier") else 0.0
    return -features.get("denied", 0.0), -one.score - near


def entry_facts(evidence: Evidence) -> list[EntryFacts]:
    """Return what the search says of each entry of evidence; nothing where no search ranked them."""
    if not evidence.relevance:
        return []
    chain = [unit.document_id for unit in evidence.chains[0].units] if evidence.chains else []
    best = max(evidence.relevance)
    return [
        EntryFacts(relevance / best if best else 0.0, _role(name, chain), evidence.signals.get("hops", 0.0))
        for name, relevance in zip(evidence.document_ids, evidence.relevance, strict=True)
    ]


def _role(name: str, chain: Sequence[str]) -> str:
    return "out" if name not in chain else "last" if name == chain[-1] else "in"
