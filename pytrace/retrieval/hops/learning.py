"""Learn what the features of a pair count, and how sure the best pair must be, from questions whose passages are known."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from pytrace.errors import InputError, MissingDependencyError
from pytrace.retrieval.hops.features import FEATURES, Floats, Pairs
from pytrace.retrieval.hops.weights import Weights, softmax, sureness


class KnownQuestion(NamedTuple):
    """A question whose passages are known: its pairs, of its passages the seeds' scores and which are right, and right pairs.

    A question that one passage answers has no right pairs.
    """

    pairs: Pairs
    right: NDArray[np.bool_]
    right_pairs: NDArray[np.bool_]


def known_question(pairs: Pairs, owners: Sequence[str], supporting: Collection[str]) -> KnownQuestion:
    """Tell which pairs of a question are right, by the document of each passage and the ids of those that support its answer."""
    names = np.array(owners, dtype=object)
    right = np.array([owner in supporting for owner in owners], dtype=bool)
    other = (names[pairs.firsts] != names[pairs.seconds]).astype(bool)
    return KnownQuestion(pairs, right, right[pairs.firsts] & right[pairs.seconds] & other)


def learn(
    questions: Sequence[KnownQuestion],
    single: Sequence[KnownQuestion] = (),
    *,
    penalty: float = 0.01,
    towards: Weights | None = None,
    made_by: str = "",
) -> Weights:
    """Learn weights.

    Parameters
    ----------
    questions
        Questions of two hops or more. Those without a right or a wrong pair teach nothing.
    single
        Questions that one passage answers. From them and the others is learned how sure the best pair must be, how much the seeds'
        scores say, and how far pairs lead on; without any, the numbers of `Weights` hold.
    penalty
        What large weights cost, of features scaled to a variance of 1.
    towards
        Weights that are known to be good elsewhere: what differs from them costs, in the place of what is large, and their other numbers
        hold where `single` is empty.
    made_by
        What is noted of how they were made.

    Returns
    -------
    Weights
        Those under which right pairs are the likeliest: logistic, each right pair against the wrong ones of its question.

    Raises
    ------
    InputError
        No question has a right and a wrong pair.
    MissingDependencyError
        scipy is not installed.
    """
    useful = [
        (each.pairs.features, each.right_pairs)
        for each in questions
        if each.right_pairs.any() and not each.right_pairs.all()
    ]
    if not useful:
        raise InputError(f"none of {len(questions)} questions has a right and a wrong pair to learn from")
    scale = np.concatenate([features for features, _ in useful]).std(axis=0)
    scale[scale == 0] = 1
    scaled = [(features / scale, right) for features, right in useful]

    known = np.zeros(len(scale)) if towards is None else towards.vector() * scale

    def loss(weights: Floats) -> tuple[float, Floats]:
        off = weights - known
        total, slope = penalty * float(off @ off), 2 * penalty * off
        for features, right in scaled:
            scores = features @ weights
            highest = scores.max()
            spread = np.exp(scores[~right] - highest)
            share = np.exp(scores[right] - highest)
            sums = spread.sum() + share
            total += float(np.mean(np.log(sums) + highest - scores[right])) / len(scaled)
            expected = (spread @ features[~right] + share[:, None] * features[right]) / sums[:, None]
            slope = slope + (expected - features[right]).mean(axis=0) / len(scaled)
        return total, slope

    learned = _least(loss, known) / scale
    features = dict(zip(FEATURES, learned.tolist(), strict=True))
    weights = msgspec.structs.replace(towards or Weights(features={}), features=features, made_by=made_by)
    if not single:
        return weights
    surest, sharpness = _length(
        weights.vector(), [features for features, _ in useful], [each.pairs.features for each in single]
    )
    weights = msgspec.structs.replace(
        weights, surest=surest, sharpness=sharpness, seed_sharpness=_seed_sharpness(single)
    )
    return msgspec.structs.replace(weights, onward=_onward(weights, questions, single))


def _length(vector: Floats, several: Sequence[Floats], single: Sequence[Floats]) -> tuple[float, float]:
    """Learn how sure the best pair is where questions take several passages, and where they take one (logistic)."""
    kinds = [(features, 1.0) for features in several] + [(features, 0.0) for features in single]
    surest = np.log([sureness(features @ vector) for features, _ in kinds if len(features)])
    hops = np.array([kind for features, kind in kinds if len(features)])
    # Both kinds count alike, however many there are of each.
    counts = np.where(hops > 0, 0.5 / max(hops.sum(), 1), 0.5 / max((1 - hops).sum(), 1))

    def loss(numbers: Floats) -> tuple[float, Floats]:
        scores = numbers[0] + numbers[1] * surest
        wrong = 1 / (1 + np.exp(-scores)) - hops
        total = float(counts @ (np.logaddexp(0, scores) - hops * scores))
        return total, np.array([counts @ wrong, counts @ (wrong * surest)])

    start, sharpness = _least(loss, np.array([1.0, 1.0])).tolist()
    return float(np.exp(-start / sharpness)), sharpness


def _onward(weights: Weights, *kinds: Sequence[KnownQuestion]) -> float:
    """Learn how much goes a step further so that right passages are the likeliest; both kinds of questions count alike."""
    staying, going, shares = [], [], []
    for kind in kinds:
        for each in kind:
            if each.right.any():
                scores = [
                    msgspec.structs.replace(weights, onward=onward)
                    .score(each.pairs.features, each.pairs.firsts, each.pairs.seconds, each.pairs.seed_scores)
                    .passages[each.right]
                    for onward in (0.0, 1.0)
                ]
                staying.append(scores[0])
                going.append(scores[1] - scores[0])
                shares.append(np.full(len(scores[0]), 1 / len(scores[0]) / len(kind)))
    base, slope, counts = np.concatenate(staying), np.concatenate(going), np.concatenate(shares)

    def loss(onward: Floats) -> tuple[float, Floats]:
        scores = base + onward[0] * slope + 1e-12
        return -float(counts @ np.log(scores)), np.array([-float(counts @ (slope / scores))])

    return float(_least(loss, np.array([0.5]), bounds=[(0.0, 1.0)])[0])


def _seed_sharpness(single: Sequence[KnownQuestion]) -> float:
    """Learn how far the seeds' scores are to be spread so that right passages are the likeliest."""
    useful = [(each.pairs.seed_scores, each.right) for each in single if each.right.any() and not each.right.all()]

    def loss(sharpness: Floats) -> tuple[float, Floats]:
        total = slope = 0.0
        for scores, right in useful:
            shares, of_right = softmax(sharpness[0] * scores), softmax(sharpness[0] * scores[right])
            total -= float(np.log(shares[right].sum())) / len(useful)
            slope += float(shares @ scores - of_right @ scores[right]) / len(useful)
        return total, np.array([slope])

    return float(_least(loss, np.array([10.0]))[0]) if useful else Weights(features={}).seed_sharpness


def _least(
    loss: Callable[[Floats], tuple[float, Floats]], start: Floats, bounds: list[tuple[float, float]] | None = None
) -> Floats:
    """Return where a convex function is least."""
    try:
        optimize: Any = importlib.import_module("scipy.optimize")
    except ImportError as error:
        raise MissingDependencyError(
            "scipy is needed to learn weights; install it with \"pip install 'pytrace-rag[eval]'\""
        ) from error
    found: Floats = optimize.minimize(
        loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 500}
    ).x
    return found
