"""Scores against hand-computed values, and tests of significance against independent definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from pytrace.errors import InputError
from pytrace.evaluation.metrics import (
    BootstrapTest,
    McNemarTest,
    Mean,
    SupportScore,
    exact_match,
    f1_score,
    mcnemar,
    mean_of,
    normalise_answer,
    paired_bootstrap,
    support_score,
)


class TestAnswers:
    @pytest.mark.parametrize(
        ("text", "normal"),
        [
            ("The  Greater-Accra Region.", "greateraccra region"),
            ("a an the", ""),
            ("Theatre an' Anne", "theatre anne"),
            ("  ", ""),
            ("«Ñandú»", "«ñandú»"),
            ("U.S.A.", "usa"),
            ("a.b", "ab"),
        ],
    )
    def test_normal_forms(self, text: str, normal: str) -> None:
        assert normalise_answer(text) == normal

    @pytest.mark.parametrize(
        ("prediction", "answers", "em", "f1", "precision", "recall"),
        [
            ("Greater Accra", "the greater accra.", 1, 1, 1, 1),
            ("Accra", "Greater Accra Region", 0, 0.5, 1, 1 / 3),
            # 2 of 4 words are shared with 2 of 3.
            ("Accra Region in Ghana", "the Greater Accra Region", 0, 4 / 7, 0.5, 2 / 3),
            # A word counts as often as both have it: new new york / new york york share 2.
            ("new new york", "new york york", 0, 2 / 3, 2 / 3, 2 / 3),
            ("Paris", "London", 0, 0, 0, 0),
            ("", "London", 0, 0, 0, 0),
            ("the", "a", 1, 0, 0, 0),
            ("yes", "Yes.", 1, 1, 1, 1),
            ("yes it is", "yes", 0, 0, 0, 0),
            ("no", "no man", 0, 0, 0, 0),
            ("noanswer", "noanswer here", 0, 0, 0, 0),
            ("yes sir", "no sir", 0, 0.5, 0.5, 0.5),
            ("Accra", ["Kumasi", "Accra city", "The Accra"], 1, 1, 1, 1),
            ("big Accra", ["Kumasi", "Accra"], 0, 2 / 3, 0.5, 1),
        ],
    )
    def test_hand_computed(
        self, prediction: str, answers: str | list[str], em: float, f1: float, precision: float, recall: float
    ) -> None:
        assert exact_match(prediction, answers) == em
        assert f1_score(prediction, answers) == pytest.approx((f1, precision, recall))

    def test_scoring_against_nothing_is_refused(self) -> None:
        for score in (exact_match, f1_score):
            with pytest.raises(InputError, match="no gold answer"):
                score("x", [])

    @given(st.text(max_size=30), st.lists(st.text(max_size=30), min_size=1, max_size=4))
    def test_any_text_scores_between_0_and_1(self, prediction: str, answers: list[str]) -> None:
        f1 = f1_score(prediction, answers)
        assert all(0 <= value <= 1 for value in f1)
        if exact_match(prediction, answers) and normalise_answer(prediction):
            assert f1.f1 == 1
        assert f1.f1 == max(f1_score(prediction, answer).f1 for answer in answers)


class TestSupport:
    @pytest.mark.parametrize(
        ("chosen", "gold", "score"),
        [
            ("abcd", "ae", SupportScore(0.25, 0.5, 1 / 3, 0.75)),
            ("ab", "ab", SupportScore(1.0, 1.0, 1.0, 0.0)),
            ("aab", "a", SupportScore(0.5, 1.0, 2 / 3, 0.5)),
            ("cd", "ab", SupportScore(0.0, 0.0, 0.0, 1.0)),
            ("", "ab", SupportScore(None, 0.0, 0.0, None)),
            ("ab", "", SupportScore(None, None, None, None)),
            ("", "", SupportScore(None, None, None, None)),
        ],
    )
    def test_hand_computed(self, chosen: str, gold: str, score: SupportScore) -> None:
        assert support_score(list(chosen), list(gold)) == score

    def test_means_leave_out_what_is_not_defined(self) -> None:
        assert mean_of([1.0, None, 2.0, 6.0, math.nan]) == Mean(3.0, 2.0, 3)
        assert mean_of([None]) == mean_of([]) == Mean(None, None, 0)


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
            assert p_value == pytest.approx(stats.binomtest(first, first + second).pvalue, rel=1e-9, abs=1e-300)
        else:
            assert p_value is None

    def test_misuse_is_told(self) -> None:
        with pytest.raises(InputError, match="1 and 2"):
            mcnemar([True], [True, False])
