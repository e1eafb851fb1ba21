"""How sure a mean is, and whether two methods really differ on the same questions.

Nothing here is ever NaN: what too few questions cannot tell is None.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from pytrace.errors import InputError

_DRAWS_AT_ONCE = 1 << 20


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


def paired_bootstrap(
    first: ArrayLike, second: ArrayLike, *, resamples: int = 10_000, confidence: float = 0.95, seed: int = 0
) -> BootstrapTest:
    """Test whether the mean score of one method differs from another's on the same questions."""
    # Questions are drawn with replacement. The interval is that of percentiles; the p-value is two-sided, the share of
    # resamples whose mean difference lies as far from the observed one as that lies from 0, the observed one included
    # (so it is never 0).
    # Source: Efron and Tibshirani, An Introduction to the Bootstrap (1993), sections 13.3 and 16.4.
    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if a.ndim != 1 or a.shape != b.shape:
        raise InputError(f"the scores must be two lists of one length, not of shapes {a.shape} and {b.shape}")
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        raise InputError("a score is not finite; leave out, in both lists, the questions without a score")
    _check_options(resamples, confidence)
    differences = a - b
    n = differences.size
    if n < 2:
        return BootstrapTest(float(differences[0]) if n else None, None, None, None, n)
    observed = float(differences.mean())
    means = _resampled_means(differences, resamples, seed)
    # A margin of rounding: equal means summed in another order must count as equal.
    margin = 1e-12 * max(1.0, float(np.abs(differences).max()))
    extreme = int((np.abs(means - observed) >= abs(observed) - margin).sum())
    low, high = _percentiles(means, confidence)
    return BootstrapTest(observed, low, high, (extreme + 1) / (resamples + 1), n)


def bootstrap_interval(
    values: ArrayLike, *, resamples: int = 10_000, confidence: float = 0.95, seed: int = 0
) -> tuple[float, float] | None:
    """Return the percentile interval of a mean, by drawing questions with replacement."""
    # Source: Efron and Tibshirani, An Introduction to the Bootstrap (1993), section 13.3.
    scores = np.asarray(values, dtype=np.float64)
    if scores.ndim != 1 or not np.isfinite(scores).all():
        raise InputError(f"the scores must be one list of finite numbers; their shape is {scores.shape}")
    _check_options(resamples, confidence)
    return _percentiles(_resampled_means(scores, resamples, seed), confidence) if scores.size > 1 else None


def _check_options(resamples: int, confidence: float) -> None:
    if resamples < 1 or not 0 < confidence < 1:
        raise InputError(
            f"resamples must be at least 1 and confidence between 0 and 1, not {resamples} and {confidence}"
        )


def _resampled_means(values: NDArray[np.float64], resamples: int, seed: int) -> NDArray[np.float64]:
    rng = np.random.default_rng(seed)
    means = np.empty(resamples)
    at_once = max(1, _DRAWS_AT_ONCE // values.size)
    for start in range(0, resamples, at_once):
        size = min(at_once, resamples - start)
        means[start : start + size] = values[rng.integers(0, values.size, size=(size, values.size))].mean(axis=1)
    return means


def _percentiles(means: NDArray[np.float64], confidence: float) -> tuple[float, float]:
    low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Adjust the p-values of several comparisons, so that chance makes none of them small more often than one alone."""
    # Source: Holm, A Simple Sequentially Rejective Multiple Test Procedure (Scandinavian Journal of Statistics, 1979).
    tested = [(p, place) for place, p in enumerate(p_values) if p is not None]
    if not all(0 <= p <= 1 for p, _ in tested):
        raise InputError(f"p-values must be from 0 to 1, not {[p for p, _ in tested]}")
    adjusted: list[float | None] = [None] * len(p_values)
    highest = 0.0
    for rank, (p, place) in enumerate(sorted(tested)):
        highest = max(highest, min(1.0, (len(tested) - rank) * p))
        adjusted[place] = highest
    return adjusted


def mcnemar(first: Sequence[bool] | np.ndarray, second: Sequence[bool] | np.ndarray) -> McNemarTest:
    """Test whether one method is right more often than another on the same questions."""
    # The exact two-sided test: under chance, each question that only one of them has right falls to either with
    # probability one half.
    # Source: McNemar (1947); exact form as in Dietterich (1998), section 3.1.
    if len(first) != len(second):
        raise InputError(f"the two lists must have one length, not {len(first)} and {len(second)}")
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
