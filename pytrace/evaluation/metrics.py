"""Scores of answers and of the documents chosen for them, and whether two methods really differ.

Nothing here is ever NaN: a score that is not defined (the precision of an empty choice, the mean of nothing) is None.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from pytrace.answers import normalise_answer
from pytrace.errors import InputError

__all__ = [
    "F1",
    "BootstrapTest",
    "McNemarTest",
    "Mean",
    "SupportScore",
    "exact_match",
    "f1_score",
    "mcnemar",
    "mean_of",
    "normalise_answer",
    "paired_bootstrap",
    "support_score",
]

_EXACT_ONLY = frozenset({"yes", "no", "noanswer"})
_DRAWS_AT_ONCE = 1 << 20


class F1(NamedTuple):
    """F1 with the precision and recall that it is the harmonic mean of."""

    f1: float
    precision: float
    recall: float


class SupportScore(msgspec.Struct, frozen=True):
    """How well the chosen documents are the supporting ones; None where a value is not defined.

    `precision` and `error_rate` need a chosen document, `recall` a supporting one; `f1` needs both, and is 0 if something
    supports but nothing was chosen.
    """

    precision: float | None
    recall: float | None
    f1: float | None
    error_rate: float | None


class Mean(msgspec.Struct, frozen=True):
    """Mean and median over the `n` values that are defined; None if there is none."""

    mean: float | None
    median: float | None
    n: int


class BootstrapTest(msgspec.Struct, frozen=True):
    """The difference of two methods' means over the same questions, its interval, and how easily chance makes it.

    `low`, `high` and `p_value` are None for fewer than two questions, `difference` for none.
    """

    difference: float | None
    low: float | None
    high: float | None
    p_value: float | None
    n: int


class McNemarTest(msgspec.Struct, frozen=True):
    """How often only the first or only the second method was right, and how easily chance makes that."""

    only_first: int
    only_second: int
    p_value: float | None
    n: int


def exact_match(prediction: str, answers: str | Sequence[str]) -> float:
    """Score 1 if the prediction has the normal form of one of the gold answers, else 0.

    Parameters
    ----------
    prediction
        The answer to score.
    answers
        The gold answer, or several of which the best counts.

    Returns
    -------
    float
        0.0 or 1.0.

    Raises
    ------
    InputError
        There is no gold answer.

    Notes
    -----
    Source: `exact_match_score` of HotpotQA's evaluation script (Yang et al., 2018).

    Examples
    --------
    >>> exact_match("the Greater Accra region", ["Greater Accra Region", "Accra"])
    1.0
    """
    normal = normalise_answer(prediction)
    return float(any(normal == normalise_answer(answer) for answer in _gold(answers)))


def f1_score(prediction: str, answers: str | Sequence[str]) -> F1:
    """Score the words that the prediction shares with the gold answer for which F1 is best.

    Where the normal form of either is "yes", "no" or "noanswer", only the same form scores. As in the original, two
    answers without a word (say, "the" and "a") have F1 0, though they match exactly.

    Parameters
    ----------
    prediction
        The answer to score.
    answers
        The gold answer, or several.

    Returns
    -------
    F1
        F1, precision and recall, each from 0 to 1.

    Raises
    ------
    InputError
        There is no gold answer.

    Notes
    -----
    Source: `f1_score` of HotpotQA's evaluation script (Yang et al., 2018).

    Examples
    --------
    >>> f1_score("Accra city", ["Kumasi", "the Accra Region"])
    F1(f1=0.5, precision=0.5, recall=0.5)
    """
    return max(_f1(normalise_answer(prediction), normalise_answer(answer)) for answer in _gold(answers))


def _gold(answers: str | Sequence[str]) -> Sequence[str]:
    gold = [answers] if isinstance(answers, str) else answers
    if not gold:
        message = "there is no gold answer to score against; give at least one"
        raise InputError(message)
    return gold


def _f1(prediction: str, answer: str) -> F1:
    nothing = F1(0.0, 0.0, 0.0)
    if prediction != answer and (prediction in _EXACT_ONLY or answer in _EXACT_ONLY):
        return nothing
    predicted, gold = prediction.split(), answer.split()
    shared = (Counter(predicted) & Counter(gold)).total()
    if not shared:
        return nothing
    precision, recall = shared / len(predicted), shared / len(gold)
    return F1(2 * precision * recall / (precision + recall), precision, recall)


def support_score(chosen: Collection[str], supporting: Collection[str]) -> SupportScore:
    """Compare the documents that a method chose with the gold supporting ones.

    Parameters
    ----------
    chosen
        Ids of the documents in the evidence; repeats count once.
    supporting
        Ids of the gold supporting documents.

    Returns
    -------
    SupportScore
        Precision, recall, F1, and the error rate: the share of chosen documents that do not support.

    Notes
    -----
    With no gold document at all nothing can be said, and all four are None.

    Examples
    --------
    >>> support_score(["a", "b", "c", "d"], ["a", "e"])
    SupportScore(precision=0.25, recall=0.5, f1=0.3333333333333333, error_rate=0.75)
    """
    chosen_set, gold = set(chosen), set(supporting)
    if not gold:
        return SupportScore(None, None, None, None)
    hits = len(chosen_set & gold)
    recall = hits / len(gold)
    if not chosen_set:
        return SupportScore(None, recall, 0.0, None)
    precision = hits / len(chosen_set)
    f1 = 2 * hits / (len(chosen_set) + len(gold))
    return SupportScore(precision, recall, f1, 1.0 - precision)


def mean_of(values: Iterable[float | None]) -> Mean:
    """Average the values that are defined.

    Parameters
    ----------
    values
        Numbers; None and NaN are left out.

    Returns
    -------
    Mean
        Mean, median and count of what is left.

    Examples
    --------
    >>> mean_of([1.0, None, 2.0, 6.0])
    Mean(mean=3.0, median=2.0, n=3)
    """
    defined = np.array([value for value in values if value is not None and not math.isnan(value)], dtype=np.float64)
    if not defined.size:
        return Mean(None, None, 0)
    return Mean(float(defined.mean()), float(np.median(defined)), defined.size)


def paired_bootstrap(
    first: ArrayLike, second: ArrayLike, *, resamples: int = 10_000, confidence: float = 0.95, seed: int = 0
) -> BootstrapTest:
    """Test whether the mean score of one method differs from another's on the same questions.

    Questions are drawn with replacement. The interval is that of percentiles; the p-value is two-sided, the share of
    resamples whose mean difference lies as far from the observed one as that lies from 0, the observed one included
    (so it is never 0).

    Parameters
    ----------
    first, second
        `[n]` scores, question by question; finite.
    resamples
        How many times n questions are drawn; time and not memory grows with it.
    confidence
        Share of the resamples inside the interval.
    seed
        Makes the draws; the same seed gives the same result.

    Returns
    -------
    BootstrapTest
        `difference` is mean(first) - mean(second).

    Raises
    ------
    InputError
        The two differ in length or are not one-dimensional, a score is not finite, or an option is out of range.

    Notes
    -----
    Source: Efron and Tibshirani, An Introduction to the Bootstrap (1993), sections 13.3 and 16.4.

    Examples
    --------
    >>> test = paired_bootstrap([1, 1, 1, 0, 1, 1], [0, 1, 0, 0, 0, 1])
    >>> test.difference, test.low <= 0.5 <= test.high, 0 < test.p_value < 0.2
    (0.5, True, True)
    """
    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if a.ndim != 1 or a.shape != b.shape:
        message = f"the scores must be two lists of one length, not of shapes {a.shape} and {b.shape}"
        raise InputError(message)
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        message = "a score is not finite; leave out, in both lists, the questions without a score"
        raise InputError(message)
    if resamples < 1 or not 0 < confidence < 1:
        message = f"resamples must be at least 1 and confidence between 0 and 1, not {resamples} and {confidence}"
        raise InputError(message)
    differences = a - b
    n = differences.size
    if n < 2:
        return BootstrapTest(float(differences[0]) if n else None, None, None, None, n)
    observed = float(differences.mean())
    rng = np.random.default_rng(seed)
    means = np.empty(resamples)
    at_once = max(1, _DRAWS_AT_ONCE // n)
    for start in range(0, resamples, at_once):
        size = min(at_once, resamples - start)
        means[start : start + size] = differences[rng.integers(0, n, size=(size, n))].mean(axis=1)
    # A margin of rounding: equal means summed in another order must count as equal.
    extreme = int((np.abs(means - observed) >= abs(observed) - 1e-12).sum())
    low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2])
    return BootstrapTest(observed, float(low), float(high), (extreme + 1) / (resamples + 1), n)


def mcnemar(first: Sequence[bool] | np.ndarray, second: Sequence[bool] | np.ndarray) -> McNemarTest:
    """Test whether one method is right more often than another on the same questions.

    The exact two-sided test: under chance, each question that only one of them has right falls to either with
    probability one half.

    Parameters
    ----------
    first, second
        `[n]` whether each method was right, question by question.

    Returns
    -------
    McNemarTest
        The two counts and the p-value: 1 if the counts are equal, None if there is no question.

    Raises
    ------
    InputError
        The two differ in length.

    Notes
    -----
    Source: McNemar (1947); exact form as in Dietterich (1998), section 3.1.

    Examples
    --------
    >>> mcnemar([True] * 6 + [False], [False] * 6 + [True])
    McNemarTest(only_first=6, only_second=1, p_value=0.125, n=7)
    """
    if len(first) != len(second):
        message = f"the two lists must have one length, not {len(first)} and {len(second)}"
        raise InputError(message)
    n = len(first)
    only_first = sum(bool(a) and not b for a, b in zip(first, second, strict=True))
    only_second = sum(bool(b) and not a for a, b in zip(first, second, strict=True))
    p_value = _two_sided_sign_test(only_first, only_second) if n else None
    return McNemarTest(only_first, only_second, p_value, n)


def _two_sided_sign_test(a: int, b: int) -> float:
    if a == b:
        return 1.0
    n, ways, tail = a + b, 1, 0
    for k in range(min(a, b) + 1):
        tail += ways
        ways = ways * (n - k) // (k + 1)
    return min(1.0, 2 * tail / (1 << n))
