"""What the searches of the processor and of cards are held against."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from pytrace.kernels import top_k
from tests import oracles

METRICS = ("ip", "cosine", "l2")


def tolerance(metric, width, magnitude):
    """Bound the rounding of a float32 sum of `width` terms, generously."""
    if metric == "cosine":
        return 1e-6 * max(width, 8)
    if metric == "l2":
        return 1e-6 * max(width, 8) * magnitude
    return 1e-7 * max(width, 8) * magnitude**2 * 4


def check_top_k(scores, indices, queries, items, k, metric, visible, slack):
    """Hold a result against the oracle; where scores are within rounding of each other, any order will do."""
    assert scores.shape == indices.shape == (len(queries), k)
    assert scores.dtype == np.float32
    assert indices.dtype == np.int64
    sign = 1 if metric == "l2" else -1
    for row, expected in enumerate(oracles.top_k(queries.tolist(), items.tolist(), k, metric, visible)):
        count = len(expected)
        found = indices[row, :count].tolist()
        assert len(set(found)) == count
        assert set(found) <= set(visible[row])
        np.testing.assert_allclose(scores[row, :count], [score for score, _ in expected], rtol=0, atol=slack)
        for score, index in zip(scores[row, :count], found, strict=True):
            true = oracles.pair_score(queries[row].tolist(), items[index].tolist(), metric)
            assert abs(float(score) - true) <= slack
        keys = [(sign * float(score), index) for score, index in zip(scores[row, :count], found, strict=True)]
        assert keys == sorted(keys)
        assert (indices[row, count:] == -1).all()
        assert (scores[row, count:] == sign * np.inf).all()


def check_random_floats(metric, seed, k, ragged, **where):
    """Search random rows, grouped at random if asked to, and hold the results against the oracle's within rounding."""
    rng = np.random.default_rng(seed)
    n_items, n_queries, width = rng.integers(1, 60), rng.integers(1, 8), rng.integers(1, 50)
    queries = rng.standard_normal((n_queries, width)).astype(np.float32)
    items = rng.standard_normal((n_items, width)).astype(np.float32)
    offsets, visible = None, [range(n_items)] * n_queries
    if ragged:
        offsets = np.array([0, *np.sort(rng.integers(0, n_items, n_queries - 1, endpoint=True)), n_items])
        visible = [range(offsets[i], offsets[i + 1]) for i in range(n_queries)]
    scores, indices = top_k(queries, items, k, metric=metric, offsets=offsets, **where)
    check_top_k(scores, indices, queries, items, k, metric, visible, tolerance(metric, width, 5))


@st.composite
def exact_searches(draw):
    """Small whole numbers, so that float32 is exact and ties are common."""
    width = draw(st.integers(0, 40))
    n_queries = draw(st.integers(0, 9))
    n_items = draw(st.integers(0, 60))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    limit = draw(st.integers(1, 3))
    queries = rng.integers(-limit, limit, (n_queries, width), endpoint=True).astype(np.float32)
    items = rng.integers(-limit, limit, (n_items, width), endpoint=True).astype(np.float32)
    questions = draw(st.booleans())
    offsets = query_offsets = None
    visible = [list(range(n_items)) for _ in range(n_queries)]
    if questions:
        n_questions = draw(st.integers(1, 4))
        cuts = np.sort(rng.integers(0, n_items, n_questions - 1, endpoint=True))
        query_cuts = np.sort(rng.integers(0, n_queries, n_questions - 1, endpoint=True))
        offsets = np.array([0, *cuts, n_items])
        query_offsets = np.array([0, *query_cuts, n_queries])
        for question in range(n_questions):
            for query in range(query_offsets[question], query_offsets[question + 1]):
                visible[query] = list(range(offsets[question], offsets[question + 1]))
    exclude = None
    if draw(st.booleans()):
        exclude = [rng.integers(-1, n_items, rng.integers(0, 6)) for _ in range(n_queries)]
        visible = [[i for i in seen if i not in gone] for seen, gone in zip(visible, exclude, strict=True)]
    return queries, items, draw(st.integers(0, 70)), offsets, query_offsets, exclude, visible


def hostile_calls():
    """Calls that must be refused, with a part of what they must say."""
    q, x = np.ones((2, 4), dtype=np.float32), np.ones((3, 4), dtype=np.float32)
    nan_items, nan_queries = x.copy(), q.copy()
    nan_items[2, 1] = np.nan
    nan_queries[1, 3] = np.inf
    half = x.astype(np.float16)
    half[0, 2] = np.nan
    eight = x.astype(np.int8)
    value, kind = ValueError, TypeError
    return [
        (value, r"4 dimensions, but items have 5", (q, np.ones((3, 5)), 1), {}),
        (value, "k is -1", (q, x, -1), {}),
        (value, r"k is \d+", (q, x, 2**63), {}),
        (value, r"k is \d+", (q, x, 2**62), {}),
        (kind, "integer", (q, x, 1.0), {}),
        (value, "metric is 'dot'", (q, x, 1), {"metric": "dot"}),
        (value, "metric is None", (q, x, 1), {"metric": None}),
        (value, "metric is", (q, x, 1), {"metric": "\ud800"}),
        (value, r"items\[2, 1\] is NaN or infinite", (q, nan_items, 1), {}),
        (value, r"items\[0, 2\] is NaN or infinite", (q, half, 1), {}),
        (value, r"queries\[1, 3\] is NaN or infinite", (nan_queries, x, 1), {}),
        (value, "overflows float32", (q * 1e30, x * 1e30, 1), {}),
        (value, "3 dimensions; it must have 2", (np.ones((1, 2, 3)), x, 1), {}),
        (value, "1 dimensions; it must have 2", (q, np.ones(4), 1), {}),
        (value, "0 dimensions; it must have 2", (np.float32(1), x, 1), {}),
        (value, "no array of numbers", ([[1, 2], [3]], x, 1), {}),
        (kind, "real numbers", (q + 1j, x, 1), {}),
        (kind, "real numbers", (q, np.array([["a"] * 4]), 1), {}),
        (kind, "real numbers", (q, np.array([[None] * 4]), 1), {}),
        (kind, "real numbers", (None, x, 1), {}),
        (value, r"offsets goes back at 2: 3 then 1", (np.ones((3, 4)), x, 1), {"offsets": [0, 3, 1, 3]}),
        (value, r"offsets\[0\] is 1", (q, x, 1), {"offsets": [1, 2, 3]}),
        (value, "offsets ends at 2, but there are 3", (q, x, 1), {"offsets": [0, 1, 2]}),
        (value, "ends at 9223372036854775807", (q, x, 1), {"offsets": [0, 1, 2**63 - 1]}),
        (value, "offsets has 2 values, but 2 queries need 3", (q, x, 1), {"offsets": [0, 3]}),
        (value, "offsets is empty", (q, x, 1), {"offsets": []}),
        (kind, "whole numbers", (q, x, 1), {"offsets": [0.0, 1.0, 3.0]}),
        (value, "2 dimensions; it must have 1", (q, x, 1), {"offsets": [[0, 1, 3]]}),
        (value, "without offsets", (q, x, 1), {"query_offsets": [0, 1, 2]}),
        (value, "query_offsets ends at 3", (q, x, 1), {"offsets": [0, 3], "query_offsets": [0, 3]}),
        (value, "query_offsets has 3", (q, x, 1), {"offsets": [0, 3], "query_offsets": [0, 1, 2]}),
        (value, "exclude holds 3, but items has 3 rows", (q, x, 1), {"exclude": [[3], []]}),
        (value, "exclude holds -2", (q, x, 1), {"exclude": [[-2], []]}),
        (value, "exclude has 1 rows, but there are 2", (q, x, 1), {"exclude": [[0]]}),
        (value, "exclude is a tuple of 3", (q, x, 1), {"exclude": ([0], [0, 1, 1], 0)}),
        (value, "exclude's offsets ends at 2", (q, x, 1), {"exclude": ([0], [0, 1, 2])}),
        (value, "exclude's offsets have 2 values", (q, x, 1), {"exclude": ([0], [0, 1])}),
        (kind, "exclude must be", (q, x, 1), {"exclude": 3}),
        (kind, "exclude must be", (q, x, 1), {"exclude": "ab"}),
        (kind, "whole numbers", (q, x, 1), {"exclude": np.ones((2, 2))}),
        (value, "threads is 0", (q, x, 1), {"threads": 0}),
        (value, "scale is for int8 items", (q, x, 1), {"scale": 1.0}),
        (value, r"scale\[0\] is 0", (q, eight, 1), {"scale": 0.0}),
        (value, r"scale\[1\] is nan", (q, eight, 1), {"scale": [1, np.nan, 1]}),
        (value, "scale has 2 values", (q, eight, 1), {"scale": [1.0, 1.0]}),
    ]
