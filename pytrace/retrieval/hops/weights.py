"""What the features of a pair count: a linear score, learned from questions whose passages are known.

The shipped numbers stand in ``weights.json`` with the command that made them; `pytrace.retrieval.hops.learning` makes others.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from pytrace.errors import DataError, InputError
from pytrace.retrieval.hops.features import FEATURES, Floats
from pytrace.storage.files import atomic_output
from pytrace.storage.foreign_json import read_json
from pytrace.storage.question_hashes import load_question_hashes, save_question_hashes

OWN_WEIGHTS = "weights.json"
"""In an index's directory: the weights that were learned for it."""

_SHIPPED = Path(__file__).with_name("weights.json")
# In pools of two passages, 10 and 15 give gold passages the highest likelihood, and 10 loses less where both are gold
# (python -m benches.small_pools).
MIN_PAIRS = 10
"""Pairs that the best one is compared with at least: its share of fewer would be high whatever its score."""


class Scored(NamedTuple):
    """The probability of each pair, that of each passage alone, the score of each, and how likely the question takes two."""

    pairs: Floats
    alone: Floats
    passages: Floats
    hops: float


class Weights(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A weight for each feature, how sure the best pair must be, and how far pairs lead on.

    `surest` is the probability of the best pair at which a question is taken for one of several hops as likely as for one of one;
    `sharpness` how fast that changes, `seed_sharpness` how much the seeds' scores differ in probability. `onward` is the share of
    a question of several hops that goes a step further, from each passage that leads to others. `made_by` says how they were
    learned.
    """

    features: dict[str, float]
    surest: float = 0.2
    sharpness: float = 4.0
    seed_sharpness: float = 10.0
    onward: float = 0.0
    made_by: str = ""
    # Of all the rest, where weights were learned for an index.
    checksum: str = ""

    def vector(self) -> Floats:
        """Return the weights in the order of `FEATURES`."""
        if unknown := {*self.features} ^ {*FEATURES}:
            raise InputError(
                f"the weights lack, or have besides, the features {', '.join(sorted(unknown))}; fit them anew"
            )
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
            with the seeds' where no pair stands out; and a share of each that is the first of pairs goes to their seconds, as
            likely as each is among them. So the third passage of a chain is found, and a fourth.
        """
        by_seed = softmax(self.seed_sharpness * seed_scores)
        if not len(features):
            return Scored(np.empty(0), by_seed, by_seed, 0.0)
        pair_scores = features @ self.vector()
        pairs = softmax(pair_scores)
        count = len(seed_scores)
        in_pairs = np.bincount(firsts, pairs, count) + np.bincount(seconds, pairs, count)
        # The logistic function, which overflows nowhere in this form.
        hops = 0.5 + 0.5 * math.tanh(self.sharpness * math.log(sureness(pair_scores) / self.surest) / 2)
        passages = hops * in_pairs / 2 + (1 - hops) * by_seed
        leaving = self.onward * hops * passages
        leads = np.bincount(firsts, pairs, count)
        leaving[leads == 0] = 0
        arriving = np.bincount(seconds, (leaving / np.where(leads > 0, leads, 1))[firsts] * pairs, count)
        return Scored(pairs, by_seed, passages - leaving + arriving, hops)


def load_weights(directory: Path | None = None) -> Weights:
    """Read the weights that were learned for an index, or if there are none, the shipped ones."""
    own = None if directory is None else directory / OWN_WEIGHTS
    try:
        if own is not None and own.is_file():
            weights = read_json(own, Weights)
            # Those of earlier versions have none.
            if weights.checksum and weights.checksum != _checksum(weights):
                raise ValueError(f"it is damaged: its checksum is not {weights.checksum!r}")
            return weights
        return msgspec.json.decode(_SHIPPED.read_bytes(), type=Weights)
    except (OSError, ValueError) as error:
        remedy = "install pytrace again" if own is None else "remove it, or learn anew with 'pytrace index learn'"
        raise DataError(f"holds no weights ({error}); {remedy}", path=str(own or "weights.json")) from None


def save_weights(directory: Path, weights: Weights, questions: Iterable[str]) -> None:
    """Store weights for an index, and next to them the hashes of the questions that they and the shipped ones were learned from."""
    with atomic_output(directory / OWN_WEIGHTS) as stream:
        checked = msgspec.structs.replace(weights, checksum=_checksum(weights))
        stream.write(msgspec.json.format(msgspec.json.encode(checked), indent=2) + b"\n")
    earlier = learned_questions() or ()
    save_question_hashes(directory / OWN_WEIGHTS, questions, made_by=weights.made_by, earlier=earlier)


def learned_questions(directory: Path | None = None) -> frozenset[str] | None:
    """Return the hashes of the questions that the weights of `load_weights` were learned from; None if they are not listed."""
    own = None if directory is None else directory / OWN_WEIGHTS
    if own is not None and own.is_file():
        return load_question_hashes(own, remedy="learn the weights again with 'pytrace index learn'")
    return load_question_hashes(_SHIPPED, remedy="install pytrace again")


def _checksum(weights: Weights) -> str:
    content = msgspec.json.encode(msgspec.structs.replace(weights, checksum=""), order="deterministic")
    return f"{zlib.crc32(content):08x}"


def sureness(scores: Floats) -> float:
    """Return the best pair's share of all pairs; of fewer than `MIN_PAIRS`, the missing ones have the mean score of the others."""
    spread = np.exp(scores - scores.max())
    missing = max(MIN_PAIRS - len(scores), 0)
    return float(1 / (spread.sum() + missing * np.exp(scores.mean() - scores.max())))


def softmax(scores: Floats) -> Floats:
    """Return shares of 1 by the exponentials of scores; none of none."""
    if not len(scores):
        return np.empty(0)
    spread = np.exp(scores - scores.max())
    shares: Floats = spread / spread.sum()
    return shares
