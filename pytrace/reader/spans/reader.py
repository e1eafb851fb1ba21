"""The reader that answers with a stretch of the evidence, or with yes or no: its answer always stands somewhere.

Candidates are found by rule (`candidates`), the likeliest 40 of them by what stands around them (`features`), and the language model
scores all of these in one batch: the log-probability of the text and its end behind the evidence and the question, which is evaluated
once. What weighs how much was learned (`weights.json`, docs/measurements.md). Which of two was earlier, later, older or younger is told by
their dates where these are there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from pytrace.models.language_model import LanguageModel, Prompt
from pytrace.reader.answers import FittedContext, Reader, Reading
from pytrace.reader.spans.features import Scored, candidates
from pytrace.reader.spans.question import read_question
from pytrace.reader.spans.weights import SpanWeights, shipped_weights
from pytrace.records import Evidence

MOST_CANDIDATES = 40
"""That the language model scores, a question."""
MOST_TOKENS = 250
"""Of these candidates together."""
_YES_NO = (Scored("yes", {}, ()), Scored("no", {}, ()))


class Ranked(NamedTuple):
    """A candidate with its prior, what the language model gives it (log-probability, tokens), and its final score."""

    candidate: Scored
    prior: float
    log_probability: float
    tokens: int
    score: float


class SpanReader(Reader):
    """Answers from spans of the evidence; where there is no evidence at all, the model writes its own answer.

    How well the model likes a span is its log-probability behind the prompt that it would write behind. `weights` are other ones than those
    that come with the package.
    """

    def __init__(self, model: LanguageModel, *, weights: SpanWeights | None = None, **settings: Any) -> None:
        super().__init__(model, **settings)
        self._weights = weights or shipped_weights()

    def with_model(self, model: LanguageModel) -> SpanReader:
        """Return the same reader with another model."""
        return SpanReader(model, weights=self._weights, **self._settings)

    def read(self, questions: Sequence[str], evidence: Sequence[Evidence]) -> list[Reading]:
        """Answer every question with a span of its evidence, or yes or no."""
        fitted, prompts = self._prompts(questions, evidence)
        spanned = [number for number, shown in enumerate(fitted) if shown.entries]
        free = [number for number, shown in enumerate(fitted) if not shown.entries]
        readings: dict[int, Reading] = dict(
            zip(
                free,
                self._write([prompts[number] for number in free], [fitted[number] for number in free]),
                strict=True,
            )
        )
        ranked = self.rank(
            [questions[number] for number in spanned],
            [fitted[number].entries for number in spanned],
            [prompts[number] for number in spanned],
        )
        for number, candidates_ in zip(spanned, ranked, strict=True):
            readings[number] = self._reading(candidates_, fitted[number], evidence[number].context)
        return [readings[number] for number in range(len(questions))]

    def rank(
        self, questions: Sequence[str], entries: Sequence[Sequence[str]], prompts: Sequence[Prompt]
    ) -> list[list[Ranked]]:
        """Score the likeliest candidates of every question, all in one call; the best first."""
        chosen = [self.candidates(question, shown) for question, shown in zip(questions, entries, strict=True)]
        plain = getattr(self.model, "style", "plain") == "plain"
        scores = self.model.score_continuations(
            prompts,
            [[f" {one.text}\n" if plain else one.text for one, _ in some] for some in chosen],
        )
        ranked = []
        for some, row in zip(chosen, scores, strict=True):
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
        if read_question(question).kind == "yes-no":
            return [(one, 0.0) for one in _YES_NO]
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

    def _reading(self, ranked: Sequence[Ranked], shown: FittedContext, context: Sequence[str]) -> Reading:
        tokens = self.model.count_tokens("\n".join(shown.entries))
        if not ranked:
            return Reading("", tokens, shown.left_out)
        scores = np.array([one.score for one in ranked])
        probability = float(1 / np.exp(scores - scores[0]).sum())
        best = ranked[0].candidate
        # An entry of which only the first sentences fitted has other white space between them.
        places = tuple(
            place for place in best.spans if place[0] < len(context) and _same(place, shown.entries, context)
        )
        return Reading(best.text, tokens, shown.left_out, places, probability)


def _same(place: tuple[int, int, int], shown: Sequence[str], context: Sequence[str]) -> bool:
    entry, start, end = place
    return shown[entry][start:end] == context[entry][start:end]
