"""What the features of a span count, and what tells that an answer is right: linear scores, learned from questions with their evidence.

`benches.readers` learns them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec

from pytrace.storage.question_hashes import load_question_hashes

ChoosingName = Literal["span", "grammar", "agreement"]
_SHIPPED = Path(__file__).with_name("weights.json")
_BY_SHARE = {"log-odds": 1.0}  # of what no other certainty was learned: its share


class SpanWeights(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Weights by which the candidates are taken that the language model is asked about, and by which the best of these is chosen.

    `candidates` weighs features, `choice` features and what the model says of a candidate, `agreement` that score ("span") and what tells
    of the model's own answer, `certainty` what tells that an answer is right, by how answers are read. What has no weight counts nothing.
    """

    candidates: dict[str, float]
    choice: dict[str, float]
    agreement: dict[str, float] = {}
    certainty: dict[ChoosingName, dict[str, float]] = {}

    def prior(self, features: Mapping[str, float]) -> float:
        """Return the score of a candidate before the language model has seen it."""
        return _weighed(self.candidates, features)

    def total(
        self, reading: Literal["span", "agreement"], features: Mapping[str, float], told: Mapping[str, float]
    ) -> float:
        """Return the score of a candidate by its features and what the model says of it (`told`)."""
        score = _weighed(self.choice, features) + _weighed(self.choice, told)
        return score if reading == "span" else _weighed(self.agreement, {**told, "span": score})

    def probability(self, reading: ChoosingName, certainty: Mapping[str, float]) -> float:
        """Return how likely an answer is right, by what `pytrace.reader.certainty` tells."""
        score = _weighed(self.certainty.get(reading, _BY_SHARE), certainty)
        return 1 / (1 + math.exp(-max(-30.0, min(score, 30.0))))


def _weighed(weights: Mapping[str, float], values: Mapping[str, float]) -> float:
    return sum(weights.get(name, 0.0) * value for name, value in values.items())


@cache
def shipped_weights() -> SpanWeights:
    """Return the weights that come with the package."""
    return msgspec.json.decode(_SHIPPED.read_bytes(), type=SpanWeights)


def learned_questions() -> frozenset[str] | None:
    """Return the hashes of the questions that the weights that come with the package were learned from."""
    return load_question_hashes(_SHIPPED, remedy="install pytrace again")
