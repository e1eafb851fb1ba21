"""Learned weights: what the features of a span count, and what tells that an answer is right.

`python -m benches.train_reader` learns them from the training questions, none of which is evaluated.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import msgspec

from pytrace.storage.question_hashes import load_question_hashes

_SHIPPED = Path(__file__).with_name("weights.json")


class SpanWeights(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Weights of features; a feature without a weight counts nothing.

    `choice` scores a candidate, `certainty` gives the log-odds that the best one is right. `made_by` is the command that learned them.
    """

    choice: dict[str, float]
    certainty: dict[str, float]
    made_by: str = ""

    def score(self, features: Mapping[str, float]) -> float:
        """Return the score of a candidate."""
        return _weighed(self.choice, features)

    def probability(self, certainty: Mapping[str, float]) -> float:
        """Return the calibrated probability that an answer is right, by what `certainty` tells."""
        score = _weighed(self.certainty, certainty)
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
