"""The kernel that sums BM25 over postings, beside a sum in plain Python."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrace import _core
from tests import oracles

COUNTS = [np.uint8, np.uint16, np.uint32]


@given(st.integers(0, 10_000), st.sampled_from(COUNTS), st.sampled_from([None, 1, 3]))
def test_scores_are_the_sums_of_all_postings(seed: int, kind: type, threads: int | None) -> None:
    draw = np.random.default_rng(seed)
    rows, words, queries = (int(draw.integers(0, most)) for most in (70, 12, 6))
    held = [sorted(set(draw.integers(0, rows, draw.integers(0, 80)).tolist())) if rows else [] for _ in range(words)]
    ends = np.cumsum([0, *map(len, held)])
    postings = np.array([row for each in held for row in each], dtype=np.uint16)
    counts = draw.integers(1, min(np.iinfo(kind).max, 100_000), len(postings)).astype(kind)
    norms = draw.random(rows).astype(np.float32)
    asked = [draw.integers(0, words, draw.integers(0, 8)).tolist() if words else [] for _ in range(queries)]
    chosen = np.array([word for each in asked for word in each], dtype=np.int64)
    weights = draw.random(len(chosen)).astype(np.float32)
    offsets = np.cumsum([0, *map(len, asked)])
    scores = _core.word_scores(
        postings, counts, norms, ends[chosen], ends[chosen + 1] if words else [], weights, offsets, threads
    )
    assert scores.shape == (queries, rows)
    assert scores.dtype == np.float32
    for query, each in enumerate(asked):
        expected = oracles.word_scores(
            [
                (float(weight), list(zip(held[word], counts[ends[word] : ends[word + 1]].tolist(), strict=True)))
                for word, weight in zip(each, weights[offsets[query] : offsets[query + 1]], strict=True)
            ],
            norms.tolist(),
        )
        np.testing.assert_allclose(scores[query], expected, rtol=1e-5)


def test_scores_do_not_depend_on_threads_or_on_neighbours() -> None:
    draw = np.random.default_rng(0)
    rows = np.sort(draw.integers(0, 1 << 16, (8, 50_000)).astype(np.uint16), axis=1).reshape(-1)
    counts = draw.integers(1, 9, len(rows)).astype(np.uint8)
    norms = draw.random(1 << 16).astype(np.float32)
    starts = np.arange(8) * 50_000
    weights = draw.random(8).astype(np.float32)
    whole = [(rows, counts, norms, starts, starts + 50_000, weights, [0, 3, 8], threads) for threads in (1, 2, 7)]
    first, *others = [_core.word_scores(*call) for call in whole]
    for other in others:
        np.testing.assert_array_equal(first, other)
    alone = _core.word_scores(rows, counts, norms, starts[3:], starts[3:] + 50_000, weights[3:], [0, 5], 1)
    np.testing.assert_array_equal(first[1:], alone)


@given(st.integers(0, 10_000))
def test_live_postings_are_counted(seed: int) -> None:
    draw = np.random.default_rng(seed)
    rows = draw.integers(0, 50, 200).astype(np.uint16)
    live = draw.random(50) < draw.random()
    starts = draw.integers(0, 201, 9)
    ends = np.maximum(starts, draw.integers(0, 201, 9))
    expected = [sum(bool(live[row]) for row in rows[start:end]) for start, end in zip(starts, ends, strict=True)]
    assert _core.live_postings(rows, live, starts, ends).tolist() == expected


def test_rows_that_are_not_there_are_passed_over() -> None:
    rows = np.array([0, 2, 3, 65_535], dtype=np.uint16)
    scores = _core.word_scores(
        rows, np.ones(4, np.uint8), np.ones(3, np.float32), [0], [4], np.ones(1, np.float32), [0, 1], 1
    )
    assert scores.tolist() == [[0.5, 0, 0.5]]
    assert _core.live_postings(rows, np.ones(3, bool), [0], [4]).tolist() == [2]


def test_rows_are_taken_up_to_the_largest() -> None:
    rows = np.array([65_535], dtype=np.uint16)
    scores = _core.word_scores(
        rows, np.ones(1, np.uint8), np.ones(1 << 16, np.float32), [0], [1], np.ones(1, np.float32), [0, 1], 1
    )
    assert Counter(scores[0].tolist()) == {0.0: 65_535, 0.5: 1}
    assert math.isclose(scores[0, -1], 0.5)


@given(st.integers(0, 10_000), st.sampled_from([1, 2, None]))
def test_the_best_rows_of_blocks_are_those_of_all_scores(seed: int, threads: int | None) -> None:
    draw = np.random.default_rng(seed)
    queries, k, words = (int(draw.integers(1, most)) for most in (5, 9, 6))
    weights = draw.choice([0.5, 1, 2], 3 * queries).astype(np.float32)  # few values, so that there are ties
    chosen, offsets = draw.integers(0, words, 3 * queries), np.arange(queries + 1) * 3
    scores = np.full((queries, k), -np.inf, np.float32)
    rows = np.full((queries, k), -1, np.int64)
    whole, allowed_rows, first = [np.empty((queries, 0))], [np.empty(0, bool)], int(draw.integers(0, 1 << 40))
    at = first
    for size in draw.integers(0, 60, 3).tolist():
        held = [np.sort(draw.choice(size, draw.integers(0, size + 1), replace=False)) for _ in range(words)]
        ends = np.cumsum([0, *map(len, held)])
        postings = np.concatenate(held).astype(np.uint16)
        call = (postings, draw.integers(1, 3, len(postings)).astype(np.uint8), np.ones(size, np.float32))
        call = (*call, ends[chosen], ends[chosen + 1], weights, offsets)  # type: ignore[assignment]
        allowed = None if draw.random() < 0.5 else draw.random(size) < 0.7
        before = scores.copy(), rows.copy()
        given = scores, rows
        scores, rows = _core.word_top(*call, allowed, at, scores, rows, threads)  # type: ignore[call-arg]
        assert all(np.array_equal(*pair) for pair in zip(before, given, strict=True))  # what was given stays
        whole.append(_core.word_scores(*call, 1))  # type: ignore[call-arg]
        allowed_rows.append(np.ones(size, bool) if allowed is None else allowed)
        at += size
    everything = np.where(np.concatenate(allowed_rows), np.concatenate(whole, axis=1), 0)
    for query in range(queries):
        order = [row for row in np.argsort(-everything[query], kind="stable")[:k].tolist() if everything[query, row]]
        assert rows[query].tolist() == [first + row for row in order] + [-1] * (k - len(order))
        np.testing.assert_array_equal(scores[query, : len(order)], everything[query, order].astype(np.float32))
        assert np.isneginf(scores[query, len(order) :]).all()


def test_a_wrong_call_for_the_best_rows_is_refused() -> None:
    good = {
        **{name: GOOD[name] for name in GOOD if name != "threads"},
        "allowed": np.ones(3, bool),
        "first": 7,
        "best_scores": np.full((2, 4), -np.inf, np.float32),
        "best_rows": np.full((2, 4), -1),
        "threads": 1,
    }
    assert _core.word_top(*good.values())[1].tolist() == [[7, -1, -1, -1]] * 2  # type: ignore[arg-type]
    for changes, message in (
        ({"allowed": np.ones(2, bool)}, "there are 3 rows, but 2 are allowed or not"),
        ({"first": -1}, "first is -1; it must be at least 0"),
        ({"first": (1 << 63) - 2}, "behind which there is no room for 3 rows"),
        ({"best_scores": np.zeros((3, 4), np.float32)}, r"best_scores is \[3, 4\]; \[2, 4\] is due"),
        ({"best_rows": np.zeros((2, 5), np.int64)}, r"best_rows is \[2, 5\]; \[2, 4\] is due"),
    ):
        with pytest.raises(ValueError, match=message):
            _core.word_top(*(good | changes).values())  # type: ignore[arg-type]


GOOD = {
    "rows": np.zeros(4, np.uint16),
    "counts": np.ones(4, np.uint8),
    "norms": np.ones(3, np.float32),
    "starts": [0, 1],
    "ends": [1, 4],
    "weights": np.ones(2, np.float32),
    "offsets": [0, 1, 2],
    "threads": 1,
}


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"rows": np.zeros(4, np.int64)}, TypeError, "rows holds int64; it must hold uint16"),
        ({"counts": np.ones(4, np.int8)}, TypeError, "counts holds int8; it must hold uint8"),
        ({"counts": np.ones(4, np.float64)}, TypeError, "counts holds float64; it must hold uint32"),
        ({"counts": np.ones(3, np.uint8)}, ValueError, "rows has 4 postings, but counts 3"),
        ({"norms": np.ones((3, 1), np.float32)}, ValueError, "norms has 2 dimensions; it must have 1"),
        ({"ends": [1, 5]}, ValueError, "word 1 has postings 1 to 5 of 4"),
        ({"starts": [2, 1]}, ValueError, "word 0 has postings 2 to 1 of 4"),
        ({"starts": [-1, 1]}, ValueError, "word 0 has postings -1 to 1 of 4"),
        ({"ends": [1]}, ValueError, "there are 2 starts, but 1 ends"),
        ({"weights": np.ones(1, np.float32)}, ValueError, "there are 2 words, but 1 weights"),
        ({"offsets": [0, 3]}, ValueError, "offsets ends at 3, but there are 2 values"),
        ({"offsets": []}, ValueError, "offsets is empty"),
        ({"threads": 0}, ValueError, "threads is 0; it must be at least 1"),
    ],
)
def test_a_call_that_is_wrong_is_refused(changes: dict[str, object], error: type[Exception], message: str) -> None:
    assert _core.word_scores(*GOOD.values()).shape == (2, 3)
    with pytest.raises(error, match=message):
        _core.word_scores(*(GOOD | changes).values())
