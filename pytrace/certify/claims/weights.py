"""What the features of a claim count: two logistic scores, learned from labelled claims."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import msgspec
import numpy as np

from pytrace.certify.claims.features import FEATURES, Floats
from pytrace.errors import InputError
from pytrace.storage.question_hashes import load_question_hashes

_SHIPPED = Path(__file__).with_name("weights.json")


class Logistic(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A weight for each feature, and the score without any."""

    features: dict[str, float]
    bias: float

    def __post_init__(self) -> None:
        """Refuse weights of other features."""
        if unknown := {*self.features} ^ {*FEATURES}:
            raise InputError(f"the weights lack, or have besides, the features {', '.join(sorted(unknown))}")

    def probabilities(self, features: Floats) -> Floats:
        """Return the probability of each row of ``[n, n_features]``."""
        # Not a matrix product, whose rounding depends on how many rows there are.
        scores = (features * np.array([self.features[name] for name in FEATURES])).sum(axis=1) + self.bias
        probabilities: Floats = 1 / (1 + np.exp(-np.clip(scores, -50, 50)))
        return probabilities


class ClaimWeights(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How likely a claim is supported, and how likely one that is not is contradicted; `made_by` is the command that learned both."""

    supported: Logistic
    contradicted: Logistic
    made_by: str = ""

    @staticmethod
    @cache
    def shipped() -> ClaimWeights:
        """Return the weights of this version."""
        return msgspec.json.decode(_SHIPPED.read_bytes(), type=ClaimWeights)


def learned_claims() -> frozenset[str] | None:
    """Return the hashes of the labelled claims that the weights of this version were learned from."""
    return load_question_hashes(_SHIPPED, remedy="install pytrace again")
