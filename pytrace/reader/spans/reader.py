"""The reader that answers with a stretch of the evidence, or with yes or no: its answer always stands somewhere.

Candidates are found by rule (`candidates`). The likeliest 40 of them, by what stands around them (`features`) and how well the model likes
their first words, it scores whole, all in one batch: the log-probability of the text and that of the line's end behind it, after the
evidence and the question, which are evaluated once. What weighs how much was learned (`weights.json`, docs/measurements.md). Which of two
was earlier, later, older or younger is told by their dates where these are there, and whether two come from one country by the countries
that their evidence names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal, NamedTuple

from pytrace.models.language_model import LanguageModel, Prompt
from pytrace.reader.certainty import certainty
from pytrace.reader.choosing import ChoosingReader, Chosen, as_answers, is_plain
from pytrace.reader.spans.candidates import opening_of
from pytrace.reader.spans.features import Scored, candidates
from pytrace.reader.spans.weights import SpanWeights, shipped_weights

MOST_OPENINGS = 150
"""Candidates whose first words the language model scores, a question."""
MOST_CANDIDATES = 40
"""That it scores whole."""
MOST_TOKENS = 250
"""Of these together."""
# What the log-probability of a first word counts beside the prior: 0.2 to 0.3 take a right candidate among the 40 most often, and as often
# as a weight that is learned together with the features.
_OPENING = 0.25


Candidate = tuple[Scored, dict[str, float]]
"""A candidate with what is told of it before the model has seen it."""


class Ranked(NamedTuple):
    """A candidate with what is told of it (its prior, and what the model gives it), and its final score."""

    candidate: Scored
    told: dict[str, float]
    score: float


class SpanReader(ChoosingReader):
    """Answers from spans of the evidence.

    How well the model likes a span is its log-probability behind the prompt that it would write behind. `weights` are other ones than those
    that come with the package.
    """

    reading: ClassVar[Literal["span", "agreement"]] = "span"

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
        return [self._best(*one) for one in zip(questions, entries, ranked, strict=True)]

    def rank(
        self, questions: Sequence[str], entries: Sequence[Sequence[str]], prompts: Sequence[Prompt]
    ) -> list[list[Ranked]]:
        """Score the likeliest candidates of all questions, in one call for their first words and one for the whole texts; the best first."""
        return [self._ranked(some) for some in self._scored(self.candidates(questions, entries, prompts), prompts)]

    def candidates(
        self, questions: Sequence[str], entries: Sequence[Sequence[str]], prompts: Sequence[Prompt]
    ) -> list[list[Candidate]]:
        """Return the candidates that are scored whole, with their priors: one by rule, or the likeliest, within 250 tokens."""
        found = [self._by_prior(question, shown) for question, shown in zip(questions, entries, strict=True)]
        many = [place for place, some in enumerate(found) if len(some) > MOST_CANDIDATES]
        openings = [
            list(dict.fromkeys(opening_of(one.text) for one, _ in found[place][:MOST_OPENINGS])) for place in many
        ]
        spaced = " " if is_plain(self.model) else ""
        rows = self.model.score_continuations(
            [prompts[place] for place in many], [[spaced + word for word in words] for words in openings]
        )
        for place, words, row in zip(many, openings, rows, strict=True):
            liked = {word: score.log_probability for word, score in zip(words, row, strict=True)}
            # Of equals the first in the evidence stays first.
            found[place] = sorted(
                found[place][:MOST_OPENINGS],
                key=lambda one, liked=liked: -one[1]["prior"] - _OPENING * liked[opening_of(one[0].text)],  # type: ignore[misc]
            )
        return [self._within(some) for some in found]

    def _by_prior(self, question: str, entries: Sequence[str]) -> list[Candidate]:
        """Return the candidates of a question, the likeliest by features first; only one where a rule decides."""
        found = candidates(question, entries)
        decided = [one for one in found if one.features.get("the one of two")]
        priors = ((one, {"prior": self._weights.prior(one.features)}) for one in decided or found)
        return sorted(priors, key=lambda one: -one[1]["prior"])

    def _within(self, found: Sequence[Candidate]) -> list[Candidate]:
        """Return as many of the first candidates as the model is asked about."""
        chosen: list[Candidate] = []
        left = MOST_TOKENS
        for one in found[:MOST_CANDIDATES]:
            left -= self.model.count_tokens(one[0].text) + 1
            if chosen and left < 0:
                break
            chosen.append(one)
        return chosen

    def _scored(self, chosen: Sequence[Sequence[Candidate]], prompts: Sequence[Prompt]) -> list[list[Candidate]]:
        """Return candidates with what the model says of them, and how many tokens each has."""
        texts = [as_answers(self.model, [one.text for one, _ in some]) for some in chosen]
        ends = is_plain(self.model)
        scored: list[list[Candidate]] = []
        for some, row in zip(chosen, self.model.score_continuations(prompts, texts), strict=True):
            scored.append([])
            for (one, told), score in zip(some, row, strict=True):
                end = float(score.token_log_probabilities[-1]) if ends and score.tokens > 1 else 0.0
                said = {
                    "log-probability": score.log_probability - end,
                    "end": end,
                    "mean log-probability": score.log_probability / max(score.tokens, 1),
                    "tokens": float(score.tokens),
                }
                scored[-1].append((one, {**told, **said}))
        return scored

    def _ranked(self, scored: Sequence[Candidate]) -> list[Ranked]:
        ranked = [Ranked(one, told, self._weights.total(self.reading, one.features, told)) for one, told in scored]
        return sorted(ranked, key=lambda one: -one.score)

    def _best(self, question: str, entries: Sequence[str], ranked: Sequence[Ranked]) -> Chosen:
        if not ranked:
            return Chosen("", 0.0, ())
        best = ranked[0]
        told = certainty_of(question, entries, ranked)
        return Chosen(best.candidate.text, self._weights.probability(self.reading, told), best.candidate.spans)


def certainty_of(question: str, entries: Sequence[str], ranked: Sequence[Ranked]) -> dict[str, float]:
    """Return what tells how likely the best of some candidates is right."""
    best = ranked[0]
    ruled = bool(best.candidate.features.get("the one of two"))
    scores = [one.score for one in ranked]
    return certainty(question, entries, scores, best.told["mean log-probability"], ruled=ruled)
