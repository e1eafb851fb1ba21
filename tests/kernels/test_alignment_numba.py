"""Scores compiled by numba, called by the alignment kernel as plain C functions."""

from __future__ import annotations

import numpy as np
import pytest

from pytrace.kernels.alignment import Ragged, align_batch, alignment_score, needleman_wunsch

numba = pytest.importorskip("numba", reason="numba is not installed (extra numba)")


@pytest.fixture(scope="module")
def near():
    """Score 2 for the same symbol, less the further two symbols are apart."""

    @numba.cfunc("float64(int32, int32)")
    def near(a, b):
        return 2.0 - 0.5 * abs(a - b)

    return near


@pytest.mark.parametrize("opening", [None, -1.5])
def test_a_compiled_score_gives_what_its_matrix_gives(near, opening):
    rng = np.random.default_rng(4)
    for _ in range(20):
        a, b = (rng.integers(0, 9, rng.integers(0, 40)).astype(np.int32) for _ in "ab")
        matrix = 2.0 - 0.5 * np.abs(a[:, None] - b[None, :].astype(np.float64))
        by_function = needleman_wunsch(a, b, score=near, gap=-0.7, gap_open=opening)
        by_matrix = needleman_wunsch(a, b, score=matrix, gap=-0.7, gap_open=opening)
        assert by_function.score == pytest.approx(by_matrix.score, abs=1e-12)
        np.testing.assert_array_equal(by_function.a_indices, by_matrix.a_indices)
        np.testing.assert_array_equal(by_function.b_indices, by_matrix.b_indices)
        assert alignment_score(a, b, score=near, gap=-0.7, gap_open=opening) == pytest.approx(
            by_matrix.score, abs=1e-12
        )


def test_a_batch_calls_it_too_from_all_threads(near):
    rng = np.random.default_rng(5)
    offsets = np.arange(2_001, dtype=np.int64) * 4
    paths = [Ragged(rng.integers(0, 9, 8_000).astype(np.int32), offsets) for _ in "ab"]
    one = align_batch(*paths, score=near, gap=-1, threads=1)
    two = align_batch(*paths, score=near, gap=-1, threads=2)
    np.testing.assert_array_equal(one.scores, two.scores)
    for pair in range(0, 2_000, 97):
        a, b = (side.values[4 * pair : 4 * pair + 4] for side in paths)
        assert one.scores[pair] == alignment_score(a, b, score=near, gap=-1)


def test_a_python_function_is_refused_with_the_remedy():
    with pytest.raises(TypeError, match=r"numba\.cfunc"):
        needleman_wunsch([1], [2], score=lambda _a, _b: 0.0)
