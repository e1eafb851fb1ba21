"""What the features of a span count, and what tells that an answer is right: linear scores, learned from questions with their evidence.

`benches.readers` learns them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Literal

import msgspec

ChoosingName = Literal["span", "grammar", "agreement"]
_BY_SHARE = {"log-odds": 1.0}  # of what no other certainty was learned: its share


class SpanWeights(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Weights of the features by which candidates are chosen; of what the language model says of those; of what tells that one is right.

    The last two by how answers are read. A feature without a weight counts nothing.
    """

    features: dict[str, float]
    model: dict[Literal["span", "agreement"], dict[str, float]]
    certainty: dict[ChoosingName, dict[str, float]] = {}

    def prior(self, features: Mapping[str, float]) -> float:
        """Return the score of a candidate before the language model has seen it."""
        return _weighed(self.features, features)

    def total(self, reading: Literal["span", "agreement"], told: Mapping[str, float]) -> float:
        """Return the score of a candidate by its prior and what the model says of it (`told`)."""
        return _weighed(self.model[reading], told)

    def probability(self, reading: ChoosingName, certainty: Mapping[str, float]) -> float:
        """Return how likely an answer is right, by what `pytrace.reader.certainty` tells."""
        score = _weighed(self.certainty.get(reading, _BY_SHARE), certainty)
        return 1 / (1 + math.exp(-max(-30.0, min(score, 30.0))))


def _weighed(weights: Mapping[str, float], values: Mapping[str, float]) -> float:
    return sum(weights.get(name, 0.0) * value for name, value in values.items())


@cache
def shipped_weights() -> SpanWeights:
    """Return the weights that come with the package."""
    return msgspec.json.decode(resources.files(__package__).joinpath("weights.json").read_bytes(), type=SpanWeights)
