"""The reader that answers with a stretch of the evidence, or with yes or no: its answer always stands somewhere.

Candidates are found by rule (`candidates`), the likeliest 40 of them by what stands around them (`features`), and the language model
scores all of these in one batch: the log-probability of the text and its end behind the evidence and the question, which is evaluated
once. What weighs how much was learned (`weights.json`, docs/measurements.md). Which of two was earlier, later, older or younger is told by
their dates where these are there, and whether two come from one country by the countries that their evidence names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from pytrace.models.language_model import LanguageModel, Prompt
from pytrace.reader.choosing import Chosen, ChoosingReader, as_answers
from pytrace.reader.spans.features import Scored, candidates
from pytrace.reader.spans.weights import SpanWeights, shipped_weights

MOST_CANDIDATES = 40
"""That the language model scores, a question."""
MOST_TOKENS = 250
"""Of these candidates together."""


class Ranked(NamedTuple):
    """A candidate with its prior, what the language model gives it (log-probability, tokens), and its final score."""

    candidate: Scored
    prior: float
    log_probability: float
    tokens: int
    score: float


class SpanReader(ChoosingReader):
    """Answers from spans of the evidence.

    How well the model likes a span is its log-probability behind the prompt that it would write behind. `weights` are other ones than those
    that come with the package.
    """

    def __init__(self, model: LanguageModel, *, weights: SpanWeights | None = None, **settings: Any) -> None:
        super().__init__(model, **settings)
        self._weights = weights or shipped_weights()

    @property
    def _settings(self) -> dict[str, Any]:
        return {**super()._settings, "weights": self._weights}

    def choose(
        self, questions: Sequence[str], entries: Sequence[Sequence[str]], prompts: Sequence[Prompt]
    ) -> list[Chosen]:
        """Choose the best candidate of every question."""
        ranked = self.rank(questions, entries, prompts)
        return [
            self._chosen("span", question, shown, one)
            for question, shown, one in zip(questions, entries, ranked, strict=True)
        ]

    def rank(
        self, questions: Sequence[str], entries: Sequence[Sequence[str]], prompts: Sequence[Prompt]
    ) -> list[list[Ranked]]:
        """Score the likeliest candidates of every question, all in one call; the best first."""
        chosen = [self.candidates(question, shown) for question, shown in zip(questions, entries, strict=True)]
        return self._rank(chosen, prompts)

    def _rank(self, chosen: Sequence[Sequence[tuple[Scored, float]]], prompts: Sequence[Prompt]) -> list[list[Ranked]]:
        texts = [as_answers(self.model, [one.text for one, _ in some]) for some in chosen]
        ranked = []
        for some, row in zip(chosen, self.model.score_continuations(prompts, texts), strict=True):
            found = [
                Ranked(
                    one,
                    prior,
                    score.log_probability,
                    score.tokens,
                    self._weights.total(prior, score.log_probability, score.tokens),
                )
                for (one, prior), score in zip(some, row, strict=True)
            ]
            ranked.append(sorted(found, key=lambda one: -one.score))
        return ranked

    def candidates(self, question: str, entries: Sequence[str]) -> list[tuple[Scored, float]]:
        """Return the candidates that are scored, with their priors: one by rule, or the likeliest by features, within 250 tokens."""
        found = candidates(question, entries)
        decided = [one for one in found if one.features.get("the one of two")]
        order = sorted(
            ((self._weights.prior(one.features), -place) for place, one in enumerate(decided or found)), reverse=True
        )
        chosen: list[tuple[Scored, float]] = []
        left = MOST_TOKENS
        for prior, place in order[:MOST_CANDIDATES]:
            one = (decided or found)[-place]
            left -= self.model.count_tokens(one.text) + 1
            if chosen and left < 0:
                break
            chosen.append((one, prior))
        return chosen

    def _chosen(self, reading: str, question: str, entries: Sequence[str], ranked: Sequence[Ranked]) -> Chosen:
        if not ranked:
            return Chosen("", 0.0, ())
        best = ranked[0]
        share = float(1 / np.exp([one.score - best.score for one in ranked]).sum())
        probability = self._weights.probability(reading, certainty(question, entries, best, share))
        return Chosen(best.candidate.text, probability, best.candidate.spans)
