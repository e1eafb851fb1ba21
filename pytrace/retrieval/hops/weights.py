"""What the features of a pair count: a linear score, learned from questions whose passages are known.

The shipped numbers stand in ``weights.json`` with the command that made them; `fit` makes others.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from pytrace.errors import DataError, InputError
from pytrace.retrieval.hops.features import FEATURES, Floats


class Scored(NamedTuple):
    """The probability of each pair, the score of each passage, and how likely the question takes two passages."""

    pairs: Floats
    passages: Floats
    hops: float


class Weights(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A weight for each feature, and how sure the best pair must be.

    `surest` is the probability of the best pair at which a question is taken for one of two hops as likely as for one of one;
    `sharpness` how fast that changes, `seed_sharpness` how much the seeds' scores differ in probability. `made_by` says how they
    were learned.
    """

    features: dict[str, float]
    surest: float = 0.2
    sharpness: float = 4.0
    seed_sharpness: float = 10.0
    made_by: str = ""

    def vector(self) -> Floats:
        """Return the weights in the order of `FEATURES`."""
        if unknown := {*self.features} ^ {*FEATURES}:
            raise InputError(f"the weights lack, or have besides, the features {', '.join(sorted(unknown))}; fit them anew")
        return np.array([self.features[name] for name in FEATURES])

    def score(
        self, features: Floats, firsts: NDArray[np.int64], seconds: NDArray[np.int64], seed_scores: Floats
    ) -> Scored:
        """Score the pairs and passages of a question.

        Parameters
        ----------
        features
            Of the pairs, float64 ``[n_pairs, len(FEATURES)]``.
        firsts, seconds
            The passages of each pair.
        seed_scores
            The seeds' scores of all passages, float64 ``[n_passages]``.

        Returns
        -------
        Scored
            Probabilities of pairs add up to 1, and so do those of passages: half of what the pairs give that they are in, mixed
            with the seeds' where no pair stands out.
        """
        by_seed = _softmax(self.seed_sharpness * seed_scores)
        if not len(features):
            return Scored(np.empty(0), by_seed, 0.0)
        pairs = _softmax(features @ self.vector())
        in_pairs = np.bincount(firsts, pairs, len(seed_scores)) + np.bincount(seconds, pairs, len(seed_scores))
        hops = 1 / (1 + (self.surest / float(pairs.max())) ** self.sharpness)
        return Scored(pairs, hops * in_pairs / 2 + (1 - hops) * by_seed, hops)


def load_weights() -> Weights:
    """Read the shipped weights."""
    path = resources.files(__package__) / "weights.json"
    try:
        return msgspec.json.decode(path.read_bytes(), type=Weights)
    except msgspec.DecodeError as error:
        raise DataError(f"holds no weights ({error}); install pytrace again", path=str(path)) from None


def fit(questions: Sequence[tuple[Floats, NDArray[np.bool_]]], *, penalty: float = 0.01) -> dict[str, float]:
    """Learn a weight for each feature.

    Parameters
    ----------
    questions
        For each question its pairs' features and whether each pair is right. Those without a right or a wrong pair teach nothing.
    penalty
        How much large weights cost, of features scaled to a variance of 1.

    Returns
    -------
    dict
        By feature: the weights under which right pairs are the likeliest (logistic, each against the question's wrong ones).
    """
    from scipy.optimize import minimize

    useful = [(features, right) for features, right in questions if right.any() and not right.all()]
    if not useful:
        raise InputError("there is no question with a right and a wrong pair to learn from")
    together = np.concatenate([features for features, _ in useful])
    scale = together.std(axis=0)
    scale[scale == 0] = 1
    scaled = [(features / scale, right) for features, right in useful]

    def loss(weights: Floats) -> tuple[float, Floats]:
        total, slope = 0.0, np.zeros(len(weights))
        for features, right in scaled:
            scores = features @ weights
            wrong, rest = features[~right], scores[~right]
            most = scores.max()
            spread = np.exp(rest - most)
            sum_wrong, slope_wrong = spread.sum(), spread @ wrong
            share = np.exp(scores[right] - most)
            sums = sum_wrong + share
            total += float(np.mean(np.log(sums) + most - scores[right]))
            slope += ((slope_wrong + share[:, None] * features[right]) / sums[:, None] - features[right]).mean(axis=0)
        count = len(scaled)
        return total / count + penalty * float(weights @ weights), slope / count + 2 * penalty * weights

    found = minimize(loss, np.zeros(len(scale)), jac=True, method="L-BFGS-B", options={"maxiter": 500})
    return dict(zip(FEATURES, (found.x / scale).tolist(), strict=True))


def _softmax(scores: Floats) -> Floats:
    if not len(scores):
        return np.empty(0)
    spread = np.exp(scores - scores.max())
    shares: Floats = spread / spread.sum()
    return shares
