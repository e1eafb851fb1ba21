"""Intervals and tests of significance against SciPy, all resamples and values by hand."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from pytrace.errors import InputError
from pytrace.evaluation.scores.significance import (
    BootstrapTest,
    McNemarTest,
    bootstrap_interval,
    holm,
    mcnemar,
    paired_bootstrap,
)


class TestIntervals:
    def test_an_interval_agrees_with_scipys_percentile_bootstrap(self) -> None:
        values = np.random.default_rng(3).random(200) ** 3
        oracle = stats.bootstrap((values,), np.mean, n_resamples=20_000, method="percentile", rng=5).confidence_interval
        assert bootstrap_interval(values) == pytest.approx((oracle.low, oracle.high), abs=2e-3)

    def test_few_values_against_all_resamples(self) -> None:
        values = np.array([0.0, 1.0, 1.0, 0.5])
        every = np.array(np.meshgrid(*[values] * 4)).reshape(4, -1).mean(axis=0)
        assert bootstrap_interval(values, resamples=100_000, confidence=0.8) == tuple(np.quantile(every, [0.1, 0.9]))

    def test_the_seed_alone_decides(self) -> None:
        values = np.random.default_rng(0).random(50)
        assert bootstrap_interval(values, seed=3) == bootstrap_interval(values, seed=3)
        assert bootstrap_interval(values, seed=3) != bootstrap_interval(values, seed=4)

    def test_one_value_has_no_interval_and_equal_ones_a_point(self) -> None:
        assert bootstrap_interval([]) is None
        assert bootstrap_interval([0.5]) is None
        assert bootstrap_interval([1.0] * 9) == (1.0, 1.0)

    def test_misuse_is_told(self) -> None:
        with pytest.raises(InputError, match="finite"):
            bootstrap_interval([1, math.inf])
        with pytest.raises(InputError, match=r"\(2, 1\)"):
            bootstrap_interval([[1], [2]])
        with pytest.raises(InputError, match="confidence"):
            bootstrap_interval([1, 2], confidence=0)


class TestHolm:
    def test_by_hand(self) -> None:
        # In order .01, .02, .03, .5: times 4, 3, 2, 1, and never below the one before.
        assert holm([0.02, 0.5, 0.01, 0.03]) == pytest.approx([0.06, 0.5, 0.04, 0.06])
        assert holm([0.9, 0.8]) == [1.0, 1.0]
        assert holm([None, 0.04, None]) == [None, 0.04, None]
        assert holm([]) == []

    @given(st.lists(st.floats(0, 1), max_size=12))
    def test_it_rejects_what_the_step_down_procedure_rejects(self, p_values: list[float]) -> None:
        adjusted = holm(p_values)
        for level in (0.01, 0.05, 0.3):
            order = sorted(range(len(p_values)), key=lambda place: p_values[place])
            rejected: set[int] = set()
            for rank, place in enumerate(order):
                if p_values[place] * (len(order) - rank) > level:
                    break
                rejected.add(place)
            assert {place for place, p in enumerate(adjusted) if p is not None and p <= level} == rejected

    def test_misuse_is_told(self) -> None:
        with pytest.raises(InputError, match="from 0 to 1"):
            holm([0.5, math.nan])


class TestBootstrap:
    def test_the_interval_and_p_value_agree_with_scipys_normal_theory(self) -> None:
        rng = np.random.default_rng(7)
        a = rng.random(400)
        b = a + rng.normal(-0.02, 0.2, 400)
        test = paired_bootstrap(a, b)
        exact = stats.ttest_rel(a, b)
        interval = exact.confidence_interval()
        assert test.difference == pytest.approx((a - b).mean())
        assert (test.low, test.high) == pytest.approx((interval.low, interval.high), abs=2e-3)
        assert test.p_value == pytest.approx(exact.pvalue, abs=0.02)

    def test_few_questions_against_all_resamples(self) -> None:
        d = np.array([1.0, 0.0, 1.0, -1.0])
        every = np.array(np.meshgrid(*[d] * 4)).reshape(4, -1).mean(axis=0)
        test = paired_bootstrap(d, np.zeros(4), resamples=100_000)
        assert test.p_value == pytest.approx((np.abs(every - 0.25) >= 0.25).mean(), abs=0.01)
        assert (test.low, test.high) == (np.quantile(every, 0.025), np.quantile(every, 0.975))

    def test_the_seed_alone_decides_the_draws(self) -> None:
        a, b = np.random.default_rng(0).random((2, 50))
        assert paired_bootstrap(a, b, seed=3) == paired_bootstrap(a, b, seed=3)
        assert paired_bootstrap(a, b, seed=3) != paired_bootstrap(a, b, seed=4)
        swapped = paired_bootstrap(b, a, seed=3)
        assert swapped.p_value == paired_bootstrap(a, b, seed=3).p_value

    def test_equal_methods_do_not_differ(self) -> None:
        assert paired_bootstrap([0.1] * 9, [0.1] * 9) == BootstrapTest(0.0, 0.0, 0.0, 1.0, 9)

    def test_no_p_value_is_zero(self) -> None:
        assert paired_bootstrap([1.0] * 50, [0.0] * 50, resamples=99) == BootstrapTest(1.0, 1.0, 1.0, 0.01, 50)

    def test_too_few_questions_are_undefined_and_never_nan(self) -> None:
        assert paired_bootstrap([], []) == BootstrapTest(None, None, None, None, 0)
        assert paired_bootstrap([1], [0]) == BootstrapTest(1.0, None, None, None, 1)

    def test_a_data_set_of_thousands_takes_a_moment(self) -> None:
        rng = np.random.default_rng(1)
        assert paired_bootstrap(rng.random(7_405), rng.random(7_405), resamples=2_000).n == 7_405

    def test_misuse_is_told(self) -> None:
        with pytest.raises(InputError, match=r"shapes \(2,\) and \(3,\)"):
            paired_bootstrap([1, 2], [1, 2, 3])
        with pytest.raises(InputError, match="not finite"):
            paired_bootstrap([1, math.nan], [1, 2])
        with pytest.raises(InputError, match="resamples"):
            paired_bootstrap([1, 2], [1, 2], resamples=0)
        with pytest.raises(InputError, match="confidence"):
            paired_bootstrap([1, 2], [1, 2], confidence=1.0)


def exact(fewer: int, count: int) -> float:
    """Return the two-sided p-value of a fair coin, in whole numbers until the last division."""
    term = total = 1
    for number in range(fewer):
        term = term * (count - number) // (number + 1)
        total += term
    return float(min(Fraction(2 * total, 2**count), Fraction(1)))


class TestMcNemar:
    def test_hand_computed(self) -> None:
        # 6 against 1: 2 * (C(7,0) + C(7,1)) / 2**7 = 16 / 128.
        assert mcnemar([True] * 6 + [False], [False] * 6 + [True]) == McNemarTest(6, 1, 0.125, 7)
        assert mcnemar([True, False], [True, False]) == McNemarTest(0, 0, 1.0, 2)
        assert mcnemar([], []) == McNemarTest(0, 0, None, 0)

    @given(st.integers(0, 3_000), st.integers(0, 3_000))
    def test_equals_the_binomial_test(self, first: int, second: int) -> None:
        a = np.array([True] * first + [False] * second, dtype=bool)
        p_value = mcnemar(a, ~a).p_value
        if first + second:
            assert p_value == pytest.approx(exact(min(first, second), first + second), rel=1e-9, abs=1e-300)
            # SciPy's own is a product that underflows far below what anybody tells apart.
            assert p_value == pytest.approx(stats.binomtest(first, first + second).pvalue, rel=1e-9, abs=1e-280)
        else:
            assert p_value is None

    def test_misuse_is_told(self) -> None:
        with pytest.raises(InputError, match="1 and 2"):
            mcnemar([True], [True, False])
