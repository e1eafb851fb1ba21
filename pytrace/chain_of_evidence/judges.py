"""Judges of whether a text holds a feature: a language model by yes or no, and several judges fused.

The judge that needs no model stands in `pytrace.chain_of_evidence.text_judge`.

Source: "What External Knowledge is Preferred by LLMs? Characterizing and Exploring Chain of Evidence in Imperfect Context",
section 3.2 and appendix H. The paper reads a verdict from generated text; here it is the log-probabilities of the two
answers, so that a verdict is a probability, and all of a question's verdicts are one batch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from pytrace.chain_of_evidence.features import Inquiry, Judge, JudgementDemonstration, Probability
from pytrace.errors import LogitsUnavailableError
from pytrace.models.language_model import LanguageModel, OptionScores, Prompt
from pytrace.records import Feature

__all__ = ["FusedJudge", "Judge", "ModelJudge", "sigmoid"]

INSTRUCTION = "Read the text and say whether it tells what is asked. Answer yes or no."
# What the same question is asked about to find how much a model likes to say yes.
CONTENT_FREE = "[N/A] N/A"

_ANSWERS = ("yes", "no")
# With less probability than this for yes and no together the model talks of something else, and its lean says nothing.
_UNDECIDED_BELOW = 1e-4


class ModelJudge:
    """Lets a language model judge, by the log-probabilities of "yes" and "no" at the next token.

    The text stands before the feature in a prompt, so that a text is evaluated once for all of its question's features.
    """

    def __init__(
        self,
        model: LanguageModel,
        *,
        calibrated: bool = True,
        demonstrations: int = 6,
        bias: float = 0.0,
        labelled: Sequence[JudgementDemonstration] | None = None,
    ) -> None:
        if not model.gives_logits:
            raise LogitsUnavailableError(
                f"{model.name} gives no log-probabilities; use the judge without a model (judge='text')"
            )
        self._model = model
        self._calibrated = calibrated
        shown = JudgementDemonstration.last(demonstrations, labelled)
        self._pairs = tuple((_question(row.text, row.feature), row.answer) for row in shown)
        self._bias = bias

    def judge(self, inquiries: Sequence[Inquiry]) -> list[list[list[Probability]]]:
        """Return the probability that each text holds each feature; None where the model talks of something else."""
        prompts: dict[tuple[str, Feature], Prompt] = {}
        for inquiry in inquiries:
            texts = (*inquiry.texts, CONTENT_FREE) if self._calibrated else inquiry.texts
            for text in texts:
                for feature in inquiry.features:
                    prompts.setdefault((text, feature), Prompt(INSTRUCTION, self._pairs, _question(text, feature)))
        scores = self._model.score_options(list(prompts.values()), [_ANSWERS] * len(prompts)) if prompts else []
        odds = {key: _log_odds(score) for key, score in zip(prompts, scores, strict=True)}

        def probability(text: str, feature: Feature) -> Probability:
            value, free = odds[text, feature], odds.get((CONTENT_FREE, feature))
            if value is None or (self._calibrated and free is None):
                return None
            return sigmoid(value - (free or 0.0) + self._bias)

        return [
            [[probability(text, feature) for feature in inquiry.features] for text in inquiry.texts]
            for inquiry in inquiries
        ]


def _question(text: str, feature: Feature) -> str:
    asked = {
        "intent": f"Does the text tell this: {feature.statement}?",
        "relation": f"Does the text say that {feature.statement}?",
        "node": f"Does the text speak of {feature.statement}?",
    }[feature.kind]
    return f"Text: {text}\n{asked}"


def _log_odds(score: OptionScores) -> float | None:
    """Return log p(yes) - log p(no); None if it cannot be told."""
    yes, no = (float(value) for value in score.log_probabilities)
    if all(score.bounded) and score.bounded:
        return None  # a server told neither
    if not (math.isfinite(yes) or math.isfinite(no)) or np.logaddexp(yes, no) < math.log(_UNDECIDED_BELOW):
        return None
    return min(max(yes - no, -100.0), 100.0)


def sigmoid(value: float) -> float:
    """Return 1 / (1 + exp(-value)), for any finite value."""
    return 1.0 / (1.0 + math.exp(-value)) if value > -700 else 0.0


class FusedJudge:
    """Adds up the log-odds of several judges, each with its weight.

    Where one is undecided the others decide; where all are, so is this one.
    """

    def __init__(self, judges: Sequence[tuple[Judge, float]], *, bias: float = 0.0) -> None:
        self._judges = list(judges)
        self._bias = bias

    def judge(self, inquiries: Sequence[Inquiry]) -> list[list[list[Probability]]]:
        """Return the fused probabilities."""
        judged = [(judge.judge(inquiries), weight) for judge, weight in self._judges]
        return [
            [
                [
                    self._fuse([(rows[at][text][place], weight) for rows, weight in judged])
                    for place in range(len(inquiry.features))
                ]
                for text in range(len(inquiry.texts))
            ]
            for at, inquiry in enumerate(inquiries)
        ]

    def _fuse(self, values: Sequence[tuple[Probability, float]]) -> Probability:
        decided = [(value, weight) for value, weight in values if value is not None]
        if not decided:
            return None
        return round(sigmoid(self._bias + sum(weight * _logit(value) for value, weight in decided)), 12)


def _logit(probability: float) -> float:
    kept = min(max(probability, 1e-9), 1 - 1e-9)
    return math.log(kept) - math.log1p(-kept)
