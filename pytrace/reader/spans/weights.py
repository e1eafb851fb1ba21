"""Learned weights: what the features of a span count, and what tells that an answer is right.

`python -m benches.train_reader` learns them from the training questions, none of which is evaluated.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import msgspec

from pytrace.errors import ModelFileError
from pytrace.models.edge.edge_model import GRAPH, shipped_edge
from pytrace.storage.question_hashes import load_question_hashes

_SHIPPED = Path(__file__).with_name("weights.json")
BESIDE_EDGE = "reading.json"
"""Weights in the folder of a small model: what its scores count, and the features beside them."""


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
    """Return the weights of the rules alone, which come with the package."""
    return msgspec.json.decode(_SHIPPED.read_bytes(), type=SpanWeights)


@cache
def edge_weights(directory: Path) -> SpanWeights:
    """Return the weights that lie with a small model.

    Raises
    ------
    ModelFileError
        They are missing or broken.
    """
    path = directory / BESIDE_EDGE
    try:
        return msgspec.json.decode(path.read_bytes(), type=SpanWeights)
    except (OSError, ValueError) as error:  # msgspec raises UnicodeDecodeError, too
        raise ModelFileError(f"{path} cannot be read ({error}); install the small model again") from None


def learned_questions() -> frozenset[str] | None:
    """Return the hashes of the questions that the weights in use, and the small model, were learned from."""
    edge = shipped_edge()
    files = [_SHIPPED] if edge is None else [edge / BESIDE_EDGE, edge / GRAPH]
    found: set[str] = set()
    for path in files:
        hashes = load_question_hashes(path, remedy="install pytrace again")
        if hashes is None:
            return None
        found |= hashes
    return frozenset(found)
