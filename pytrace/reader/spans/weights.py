"""What the features of a span count: two linear scores, learned from questions with their evidence (`benches.span_reader`)."""

from __future__ import annotations

from functools import cache
from importlib import resources

import msgspec

from pytrace.reader.spans.features import Features


class SpanWeights(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A weight for each feature by which candidates are chosen, and for what the language model says of those.

    A feature without a weight counts nothing.
    """

    features: dict[str, float]
    model: dict[str, float]

    def prior(self, features: Features) -> float:
        """Return the score of a candidate before the language model has seen it."""
        return sum(self.features.get(name, 0.0) * value for name, value in features.items())

    def total(self, prior: float, log_probability: float, tokens: int) -> float:
        """Return the score of a candidate: its prior, and the log-probability of its text and its end, in all and a token."""
        return (
            self.model["prior"] * prior
            + self.model["log-probability"] * log_probability
            + self.model["mean log-probability"] * log_probability / max(tokens, 1)
        )


@cache
def shipped_weights() -> SpanWeights:
    """Return the weights that come with the package."""
    return msgspec.json.decode(resources.files(__package__).joinpath("weights.json").read_bytes(), type=SpanWeights)
