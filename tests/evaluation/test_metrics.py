"""Scores of answers and rankings against hand-computed values and independent definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrace.errors import InputError
from pytrace.evaluation.scores.metrics import (
    Mean,
    SupportScore,
    exact_match,
    f1_score,
    mean_of,
    ndcg,
    normalise_answer,
    recall_at,
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


class TestRankings:
    def test_ndcg_by_hand(self) -> None:
        # Gains 1, 0, 2 at ranks 1, 2, 3: 1/1 + 2/2 = 2; at best 2/1 + 1/log2(3).
        assert ndcg(["b", "x", "a"], {"a": 2, "b": 1}) == pytest.approx(2 / (2 + 1 / math.log2(3)))
        assert ndcg(["a", "b"], {"a": 2, "b": 1, "x": 0, "y": -1}) == 1.0
        assert ndcg(["x", "y"], {"a": 2, "y": -1}) == 0.0
        # Only two of the three relevant ones can stand among the first two.
        assert ndcg(["a", "b"], dict.fromkeys("abc", 1), depth=2) == 1.0
        assert ndcg(["a", "a", "b"], dict.fromkeys("ab", 1), depth=2) == 1.0, "a repeated document takes no place"

    def test_ndcg_needs_something_relevant(self) -> None:
        assert ndcg(["a"], {}) is None
        assert ndcg(["a"], {"a": 0}) is None
        assert ndcg([], {"a": 1}) == 0.0

    @given(
        st.lists(st.integers(0, 30), max_size=30, unique=True),
        st.dictionaries(st.integers(0, 30), st.integers(-2, 4), max_size=30),
        st.integers(1, 35),
    )
    def test_ndcg_is_the_gain_over_that_of_the_best_order(
        self, ranked: list[int], grades: dict[int, int], depth: int
    ) -> None:
        def gain(order: list[int]) -> float:
            discounts = 1 / np.log2(np.arange(2, len(order[:depth]) + 2))
            return float(np.clip([grades.get(one, 0) for one in order[:depth]], 0, None) @ discounts)

        best = gain(sorted(grades, key=lambda one: -grades[one]))
        score = ndcg([str(one) for one in ranked], {str(one): grade for one, grade in grades.items()}, depth=depth)
        assert score == (pytest.approx(gain(ranked) / best) if best else None)

    def test_recall_of_the_first_documents(self) -> None:
        ranked = ["a", "a", "x", "b", "c"]
        assert [recall_at(ranked, {"a", "b", "d"}, depth) for depth in (1, 2, 3, 9)] == [1 / 3, 1 / 3, 2 / 3, 2 / 3]
        assert recall_at(ranked, [], 3) is None
        assert recall_at([], ["a"], 3) == 0.0

    def test_misuse_is_told(self) -> None:
        with pytest.raises(InputError, match="depth is 0"):
            ndcg(["a"], {"a": 1}, depth=0)
        with pytest.raises(InputError, match="depth is -1"):
            recall_at(["a"], ["a"], -1)
        with pytest.raises(InputError, match="not finite"):
            ndcg(["a"], {"a": math.nan})
