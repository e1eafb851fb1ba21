"""How sure a mean or a share is, and whether two methods really differ on the same questions.

Nothing here is ever NaN: what too few questions cannot tell is None.
"""

from __future__ import annotations

import importlib
import math
import statistics
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from pytrace.errors import InputError, MissingDependencyError

# So many draws are in memory at once, 8 MB of indices: thousands of questions times 10,000 resamples would not fit.
_DRAWS_AT_ONCE = 1 << 20
# The normal distribution lies within so many standard deviations with probability 0.95.
_Z = 1.959963984540054


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


class Spread(msgspec.Struct, frozen=True):
    """How values are spread; `standard_deviation` is the sample's, with one value less in its denominator."""

    mean: float
    standard_deviation: float
    minimum: float
    maximum: float


def spread_of(values: Sequence[float]) -> Spread:
    """Sum up at least two values."""
    # The standard library's means are exact before they are rounded, as those of NumPy are not.
    return Spread(statistics.fmean(values), statistics.stdev(values), min(values), max(values))


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
    means = resampled_means(differences, resamples, seed)
    # A margin of rounding: equal means summed in another order must count as equal.
    margin = 1e-12 * max(1.0, float(np.abs(differences).max()))
    extreme = int((np.abs(means - observed) >= abs(observed) - margin).sum())
    low, high = percentiles(means, (1 - confidence) / 2, (1 + confidence) / 2)
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
    if scores.size < 2:
        return None
    return percentiles(resampled_means(scores, resamples, seed), (1 - confidence) / 2, (1 + confidence) / 2)


def _check_options(resamples: int, confidence: float) -> None:
    if resamples < 1 or not 0 < confidence < 1:
        raise InputError(
            f"resamples must be at least 1 and confidence between 0 and 1, not {resamples} and {confidence}"
        )


def resampled_means(values: NDArray[np.float64], resamples: int, seed: int) -> NDArray[np.float64]:
    """Return the means of as many values drawn with replacement, again and again."""
    rng = np.random.default_rng(seed)
    means = np.empty(resamples)
    at_once = max(1, _DRAWS_AT_ONCE // values.size)
    for start in range(0, resamples, at_once):
        size = min(at_once, resamples - start)
        means[start : start + size] = values[rng.integers(0, values.size, size=(size, values.size))].mean(axis=1)
    return means


def percentiles(draws: NDArray[np.float64], low: float = 0.025, high: float = 0.975) -> tuple[float, float]:
    """Return where a bootstrap's draws lie: by default the middle 95 %."""
    # (1 - 0.95) / 2 is not quite 0.025, and the interpolated percentile shows it in its last digit: so callers say both.
    lower, upper = np.quantile(draws, (low, high))
    return float(lower), float(upper)


def wilson_interval(right: int, of: int) -> tuple[float, float]:
    """Return where a share lies with a confidence of 95 %."""
    # Wilson, "Probable inference, the law of succession, and statistical inference" (JASA 1927): unlike the usual
    # interval it holds for few trials and for shares of 0 and 1.
    share = right / of
    middle = share + _Z * _Z / (2 * of)
    width = _Z * math.sqrt((share * (1 - share) + _Z * _Z / (4 * of)) / of)
    scale = 1 + _Z * _Z / of
    return max(0.0, (middle - width) / scale), min(1.0, (middle + width) / scale)


def share_with_interval(right: int, of: int) -> tuple[float | None, float | None, float | None]:
    """Return a share and the ends of its 95 % interval by Wilson; all None where there are no trials."""
    return (right / of, *wilson_interval(right, of)) if of else (None, None, None)


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Adjust the p-values of several comparisons, so that chance makes none of them small more often than one alone."""
    # Source: Holm, A Simple Sequentially Rejective Multiple Test Procedure (Scandinavian Journal of Statistics, 1979).
    tested = [(p, index) for index, p in enumerate(p_values) if p is not None]
    if not all(0 <= p <= 1 for p, _ in tested):
        raise InputError(f"p-values must be from 0 to 1, not {[p for p, _ in tested]}")
    adjusted: list[float | None] = [None] * len(p_values)
    highest = 0.0
    for rank, (p, index) in enumerate(sorted(tested)):
        highest = max(highest, min(1.0, (len(tested) - rank) * p))
        adjusted[index] = highest
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
    return McNemarTest(only_first, only_second, _two_sided_sign_test(only_first, only_second) if n else None, n)


def _two_sided_sign_test(a: int, b: int) -> float:
    if a == b:
        return 1.0
    # In whole numbers, since 2 ** -n is 0 as a float from 1075 questions on.
    n, ways, tail = a + b, 1, 0
    for k in range(min(a, b) + 1):
        tail += ways
        ways = ways * (n - k) // (k + 1)
    return min(1.0, 2 * tail / (1 << n))


def mann_whitney(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Return the p-value of a two-sided Mann–Whitney U test; None if a list is empty, or all scores are the same."""
    if not first or not second or len({*first, *second}) < 2:
        return None
    try:
        stats: Any = importlib.import_module("scipy.stats")
    except ImportError as error:
        raise MissingDependencyError(
            "the Mann-Whitney tests of a study need SciPy: pip install 'pytrace-rag[eval]'"
        ) from error
    value = float(stats.mannwhitneyu(first, second, alternative="two-sided").pvalue)
    return value if math.isfinite(value) else None
