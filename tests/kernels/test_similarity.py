"""The similarity kernel against its naive twin, on every instruction set."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pytrace import _core
from pytrace.kernels import normalize, top_k
from pytrace.kernels.similarity import similarity
from tests import oracles
from tests.similarity_checks import METRICS, check_random_floats, check_top_k, exact_searches, hostile_calls, tolerance

# Around the lanes of every instruction set (4, 8, 16), and their multiples.
WIDTHS = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 384)
# Around the register blocks (2, 3, 6, 8 items; 1, 2, 4 queries) and the tiles.
COUNTS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 24, 25, 239, 240, 241)

pytestmark = pytest.mark.usefixtures("isa")


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("width", WIDTHS)
def test_every_width_gives_the_true_scores(metric, width):
    rng = np.random.default_rng(width)
    queries = rng.standard_normal((7, width)).astype(np.float32)
    items = rng.standard_normal((29, width)).astype(np.float32)
    scores, indices = top_k(queries, items, 5, metric=metric)
    check_top_k(scores, indices, queries, items, 5, metric, [range(29)] * 7, tolerance(metric, width, 4))


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("n_queries", [1, 2, 3, 4, 5, 9])
def test_every_block_remainder_gives_the_true_scores(metric, count, n_queries):
    rng = np.random.default_rng(count)
    queries = rng.integers(-3, 4, (n_queries, 5)).astype(np.float32)
    items = rng.integers(-3, 4, (count, 5)).astype(np.float32)
    scores, indices = top_k(queries, items, 4, metric=metric)
    check_top_k(scores, indices, queries, items, 4, metric, [range(count)] * n_queries, tolerance(metric, 5, 4))


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("metric", ["ip", "l2"])
@given(search=exact_searches())
def test_exact_scores_and_ties_equal_the_oracle(metric, threads, search):
    queries, items, k, offsets, query_offsets, exclude, visible = search
    scores, indices = top_k(
        queries, items, k, metric=metric, offsets=offsets, query_offsets=query_offsets, exclude=exclude, threads=threads
    )
    expected = oracles.top_k(queries.tolist(), items.tolist(), k, metric, visible)
    for row, best in enumerate(expected):
        assert indices[row].tolist() == [index for _, index in best] + [-1] * (k - len(best))
        if metric == "ip":
            assert scores[row, : len(best)].tolist() == [score for score, _ in best]
    check_top_k(scores, indices, queries, items, k, metric, visible, 1e-5)


@pytest.mark.parametrize("metric", METRICS)
@given(seed=st.integers(0, 2**32), k=st.integers(1, 40), ragged=st.booleans())
def test_cosine_and_floats_equal_the_oracle_within_rounding(metric, seed, k, ragged):
    check_random_floats(metric, seed, k, ragged)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize(("n_queries", "n_items"), [(1, 40_000), (33, 4_000), (2_000, 100), (1_500, 1_000)])
def test_results_do_not_depend_on_threads_tiles_or_neighbours(metric, n_queries, n_items):
    rng = np.random.default_rng(5)
    # Few distinct rows, so that the k-th place is always tied.
    items = rng.standard_normal((50, 40)).astype(np.float32)[rng.integers(0, 50, n_items)]
    queries = rng.standard_normal((n_queries, 40)).astype(np.float32)
    one = top_k(queries, items, 30, metric=metric, threads=1)
    for threads in (2, 3, 7):
        many = top_k(queries, items, 30, metric=metric, threads=threads)
        np.testing.assert_array_equal(one[0], many[0])
        np.testing.assert_array_equal(one[1], many[1])
    for row in (0, n_queries // 2, n_queries - 1):
        alone = top_k(queries[row], items, 30, metric=metric)
        np.testing.assert_array_equal(one[0][row], alone[0])
        np.testing.assert_array_equal(one[1][row], alone[1])
    whole = similarity(queries, items, metric=metric, threads=3)
    np.testing.assert_array_equal(np.take_along_axis(whole, one[1], 1), one[0])


@pytest.mark.parametrize("metric", METRICS)
def test_a_large_ragged_batch_equals_one_search_a_question(metric):
    rng = np.random.default_rng(6)
    sizes = rng.integers(0, 90, 200)
    sizes[70] = 30_000
    offsets = np.array([0, *np.cumsum(sizes)])
    items = rng.standard_normal((offsets[-1], 64)).astype(np.float32)
    queries = rng.standard_normal((400, 64)).astype(np.float32)
    query_offsets = np.arange(0, 401, 2)
    scores, indices = top_k(queries, items, 9, metric=metric, offsets=offsets, query_offsets=query_offsets, threads=2)
    for question in range(200):
        first, last = offsets[question], offsets[question + 1]
        rows = slice(2 * question, 2 * question + 2)
        alone = top_k(queries[rows], items[first:last], 9, metric=metric)
        np.testing.assert_array_equal(scores[rows], alone[0])
        np.testing.assert_array_equal(indices[rows], np.where(alone[1] < 0, -1, alone[1] + first))


@pytest.mark.parametrize("order", ["rising", "falling", "equal"])
@pytest.mark.parametrize("k", [1, 10, 300, 5_000, 20_000])
def test_selection_survives_every_order_of_items(order, k):
    values = {"rising": np.arange(9_000), "falling": np.arange(9_000)[::-1], "equal": np.ones(9_000)}[order]
    scores, indices = top_k(np.ones(1, dtype=np.float32), values.astype(np.float32)[:, None], k)
    expected = np.argsort(-values, kind="stable")[:k]
    np.testing.assert_array_equal(indices[: len(expected)], expected)
    np.testing.assert_array_equal(scores[: len(expected)], values[expected])
    assert (indices[len(expected) :] == -1).all()


def test_negative_zero_ties_with_zero():
    items = np.array([[0.0], [-0.0], [0.0], [-0.0]], dtype=np.float32)
    for metric in METRICS:
        scores, indices = top_k(np.array([-1.0 if metric == "ip" else 0.0]), items, 4, metric=metric)
        assert indices.tolist() == [0, 1, 2, 3]
        assert not np.signbit(scores).any()


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("width", [3, 8, 21, 384])
def test_half_precision_items_score_as_their_float32_values(metric, width):
    rng = np.random.default_rng(width)
    items = rng.standard_normal((300, width)).astype(np.float16)
    items[:, 0] = rng.choice(np.array([0, -0.0, 6e-8, -6e-8, 6.1e-5, 65504, -65504, 1e-4], dtype=np.float16), 300)
    queries = rng.standard_normal((6, width)).astype(np.float32)
    half = top_k(queries, items, 20, metric=metric)
    single = top_k(queries, items.astype(np.float32), 20, metric=metric)
    np.testing.assert_array_equal(half[1], single[1])
    np.testing.assert_array_equal(half[0], single[0])


def test_every_finite_half_is_read_exactly():
    halves = np.arange(65536, dtype=np.uint16).view(np.float16)
    halves = halves[np.isfinite(halves)]
    np.testing.assert_array_equal(similarity(np.ones(1, dtype=np.float32), halves[:, None]), halves.astype(np.float32))
    rows = np.resize(halves, (len(halves) // 64 + 1, 64))
    picked = similarity(np.eye(64, dtype=np.float32), rows).T
    np.testing.assert_array_equal(picked, rows.astype(np.float32))


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("width", [3, 8, 21, 384])
@pytest.mark.parametrize("per_row", [False, True])
def test_int8_items_score_as_their_scaled_values(metric, width, per_row):
    rng = np.random.default_rng(width)
    items = rng.integers(-128, 127, (300, width), endpoint=True).astype(np.int8)
    scale = rng.uniform(0.01, 0.03, 300).astype(np.float32) if per_row else 0.02
    queries = rng.standard_normal((6, width)).astype(np.float32)
    scores, indices = top_k(queries, items, 20, metric=metric, scale=scale)
    true = items * (scale[:, None] if per_row else np.float64(np.float32(scale)))
    check_top_k(scores, indices, queries, true, 20, metric, [range(300)] * 6, tolerance(metric, width, 4))
    unscaled = top_k(queries, items, 20, metric=metric)
    plain = top_k(queries, items.astype(np.float32), 20, metric=metric)
    np.testing.assert_array_equal(unscaled[1], plain[1])


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int8])
def test_every_layout_gives_the_same_result(metric, dtype):
    rng = np.random.default_rng(8)
    items = rng.integers(-9, 9, (40, 19)).astype(dtype)
    queries = rng.integers(-9, 9, (5, 19)).astype(np.float32)
    expected = top_k(queries, items, 7, metric=metric)
    readonly = items.copy()
    readonly.flags.writeable = False
    padded = np.zeros((80, 40), dtype)
    padded[::2, :38:2] = items
    unaligned = np.frombuffer(b"\0" + items.tobytes(), dtype=np.uint8)[1:].view(dtype).reshape(items.shape)
    layouts = {
        "fortran": np.asfortranarray(items),
        "readonly": readonly,
        "every second row of a wider array": np.hstack([np.repeat(items, 2, axis=0)] * 2)[::2, :19],
        "every second column": padded[::2, :38:2],
        "reversed twice": items[::-1].copy()[::-1],
        "columns reversed twice": items[:, ::-1].copy()[:, ::-1],
        "foreign byte order": items.astype(np.dtype(dtype).newbyteorder()),
        "unaligned": unaligned,
    }
    for name, layout in layouts.items():
        scores, indices = top_k(queries, layout, 7, metric=metric)
        np.testing.assert_array_equal(indices, expected[1], err_msg=name)
        np.testing.assert_array_equal(scores, expected[0], err_msg=name)
        if dtype == np.float32:
            np.testing.assert_array_equal(
                similarity(layout, queries, metric=metric), similarity(items, queries, metric=metric), err_msg=name
            )
    repeated = np.broadcast_to(items[:1], (6, 19))
    assert top_k(queries, repeated, 6, metric=metric)[1].tolist() == [[0, 1, 2, 3, 4, 5]] * 5
    backwards = top_k(queries, items[::-1], 40, metric=metric)
    np.testing.assert_array_equal(backwards[0], top_k(queries, items, 40, metric=metric)[0])


@pytest.mark.parametrize("dtype", [np.float64, np.float16, np.int32, np.uint8, np.int64, bool])
def test_other_real_types_are_converted(dtype):
    queries = np.array([[1, 0, 1]], dtype)
    items = np.array([[1, 1, 0], [1, 0, 1]], dtype)
    scores, indices = top_k(queries, items, 2)
    assert scores.tolist() == [[2.0, 1.0]]
    assert indices.tolist() == [[1, 0]]
    assert top_k(queries.tolist(), items.tolist(), 2)[0].tolist() == [[2.0, 1.0]]


def test_one_query_gives_vectors():
    scores, indices = top_k([1.0, 0.0], [[1.0, 0.0], [2.0, 0.0]], 1)
    assert scores.shape == indices.shape == (1,)
    assert similarity([1.0, 0.0], [[1.0, 0.0], [2.0, 0.0]]).tolist() == [1.0, 2.0]
    assert normalize([3.0, 4.0]).shape == (2,)


@pytest.mark.parametrize("metric", METRICS)
def test_nothing_to_search_is_not_an_error(metric):
    empty = np.zeros((0, 8), dtype=np.float32)
    some = np.ones((3, 8), dtype=np.float32)
    assert top_k(empty, some, 2, metric=metric)[0].shape == (0, 2)
    scores, indices = top_k(some, empty, 2, metric=metric)
    assert indices.tolist() == [[-1, -1]] * 3
    assert (scores == (np.inf if metric == "l2" else -np.inf)).all()
    assert top_k(some, some, 0, metric=metric)[1].shape == (3, 0)
    assert similarity(empty, some, metric=metric).shape == (0, 3)
    assert similarity(some, empty, metric=metric).shape == (3, 0)
    assert top_k(np.ones((2, 0)), np.ones((3, 0)), 2, metric=metric)[1].tolist() == [[0, 1]] * 2
    assert top_k(empty, empty, 2, metric=metric, offsets=[0])[1].shape == (0, 2)


@pytest.mark.parametrize("metric", METRICS)
def test_an_item_is_nearest_to_itself(metric):
    rng = np.random.default_rng(9)
    items = (rng.standard_normal((200, 33)) * 1e3).astype(np.float32)
    if metric == "ip":
        items = normalize(items)
    scores, indices = top_k(items, items, 1, metric=metric)
    assert indices[:, 0].tolist() == list(range(200))
    if metric == "l2":
        assert (scores == 0).all()
    else:
        np.testing.assert_allclose(scores, 1, atol=1e-6)
        assert metric == "ip" or (scores <= 1).all()


def test_cosine_of_a_zero_vector_is_zero():
    scores, indices = top_k([[0.0, 0.0], [1.0, 0.0]], [[1.0, 1.0], [0.0, 0.0]], 2, metric="cosine")
    assert scores[0].tolist() == [0, 0]
    assert indices[0].tolist() == [0, 1]
    assert scores[1, 1] == 0


def test_exclude_in_all_its_forms():
    queries = np.ones((3, 1), dtype=np.float32)
    items = np.array([[5], [4], [3], [2]], dtype=np.float32)
    expected = [[1, 2, 3], [0, 1, 2], [2, -1, -1]]
    forms = [
        np.array([[0, -1, -1, 0], [-1, -1, -1, -1], [0, 1, 3, 3]]),
        [[0], [], np.array([3, 1, 0])],
        ([0, 0, 1, 3], [0, 1, 1, 4]),
        (np.array([0, -1, 3, 1, 0], dtype=np.int32), np.array([0, 2, 2, 5])),
    ]
    for form in forms:
        assert top_k(queries, items, 3, exclude=form)[1].tolist() == expected
    everything = top_k(queries, items, 2, exclude=[[0, 1, 2, 3]] * 3, metric="l2")
    assert everything[1].tolist() == [[-1, -1]] * 3
    assert (everything[0] == np.inf).all()


def test_bad_input_is_refused_with_the_numbers():
    for error, message, arguments, options in hostile_calls():
        with pytest.raises(error, match=message):
            top_k(*arguments, **options)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("width", [1, 8, 21])
def test_nan_and_infinity_are_found_wherever_they_stand(metric, bad, width):
    rng = np.random.default_rng(0)
    for position in {0, width // 2, width - 1}:
        for row in (0, 7, 40):
            items = rng.standard_normal((41, width)).astype(np.float32)
            items[row, position] = bad
            with pytest.raises(ValueError, match=rf"items\[{row}, {position}\]"):
                top_k(np.zeros((3, width)), items, 1, metric=metric)
            with pytest.raises(ValueError, match=rf"items\[{row}, {position}\]"):
                similarity(np.zeros((3, width)), items, metric=metric)
            with pytest.raises(ValueError, match=rf"queries\[{row}, {position}\]"):
                top_k(items, np.zeros((3, width)), 1, metric=metric)
            with pytest.raises(ValueError, match=rf"vectors\[{row}, {position}\]"):
                normalize(items)


@given(seed=st.integers(0, 2**32), magnitude=st.sampled_from([1e-40, 1e-30, 1.0, 1e30]))
@example(seed=0, magnitude=1e-40)
def test_normalize_keeps_directions_of_any_length(seed, magnitude):
    rng = np.random.default_rng(seed)
    vectors = (rng.standard_normal((rng.integers(1, 5), rng.integers(1, 40))) * magnitude).astype(np.float32)
    vectors[0] = 0
    true = vectors.astype(np.float64)
    lengths = np.linalg.norm(true, axis=1, keepdims=True)
    expected = np.divide(true, lengths, out=np.zeros_like(true), where=lengths > 0)
    np.testing.assert_allclose(normalize(vectors), expected, rtol=1e-6, atol=1e-45)
    np.testing.assert_array_equal(normalize(np.asfortranarray(vectors)), normalize(vectors))
    unaligned = np.frombuffer(b"\0" + vectors.tobytes(), dtype=np.uint8)[1:].view(np.float32).reshape(vectors.shape)
    np.testing.assert_array_equal(normalize(unaligned), normalize(vectors))


def test_calls_from_many_threads_agree():
    rng = np.random.default_rng(3)
    queries, items = rng.standard_normal((20, 64)), rng.standard_normal((30_000, 64)).astype(np.float32)
    expected = top_k(queries, items, 10)
    results = [None] * 6

    def work(slot):
        results[slot] = top_k(queries, items, 10, threads=2)

    workers = [threading.Thread(target=work, args=(slot,)) for slot in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for result in results:
        np.testing.assert_array_equal(result[0], expected[0])
        np.testing.assert_array_equal(result[1], expected[1])


def test_instruction_sets_agree_within_rounding():
    rng = np.random.default_rng(4)
    queries, items = rng.standard_normal((9, 100)), rng.standard_normal((500, 100))
    before = _core.active_isa()
    try:
        results = []
        for name in _core.available_isas():
            _core.set_active_isa(name)
            results.append(similarity(queries, items, metric="cosine"))
    finally:
        _core.set_active_isa(before)
    for result in results[1:]:
        np.testing.assert_allclose(result, results[0], atol=1e-6)


def scanned_search(rng, width, *, kind="float32", spread=1.0):
    """Queries and items enough for the kernel to scan before it scores."""
    queries = rng.standard_normal((rng.integers(12, 70), width)).astype(np.float32)
    items = (rng.standard_normal((rng.integers(1024, 3000), width)) * spread).astype(np.float32)
    # Some items twice, some close to a query, some empty.
    items[rng.integers(0, len(items), 40)] = items[rng.integers(0, len(items), 40)]
    items[rng.integers(0, len(items), 40)] = queries[rng.integers(0, len(queries), 40)] * 0.9
    items[rng.integers(0, len(items), 5)] = 0
    queries[rng.integers(0, len(queries), 2)] = 0
    if kind == "float16":
        return queries, items.astype(np.float16)
    if kind == "int8":
        return queries, np.clip(np.rint(items * 30), -127, 127).astype(np.int8)
    return queries, items


@pytest.mark.parametrize("kind", ["float32", "float16", "int8"])
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("width", [1, 3, 4, 17, 64, 384])
def test_a_scan_gives_what_one_query_alone_gives(metric, width, kind):
    rng = np.random.default_rng(width)
    queries, items = scanned_search(rng, width, kind=kind)
    k = int(rng.integers(1, 40))
    scale = rng.uniform(0.01, 0.1, len(items)).astype(np.float32) if kind == "int8" else None
    exclude = [rng.integers(-1, len(items), rng.integers(0, 30)) for _ in queries]
    for threads in (1, 2):
        scores, indices = top_k(queries, items, k, metric=metric, scale=scale, exclude=exclude, threads=threads)
        for row, query in enumerate(queries):
            alone = top_k(query, items, k, metric=metric, scale=scale, exclude=[exclude[row]], threads=1)
            np.testing.assert_array_equal(indices[row], alone[1])
            np.testing.assert_array_equal(scores[row], alone[0])


@pytest.mark.parametrize("kind", ["float32", "float16"])
@pytest.mark.parametrize("metric", ["ip", "cosine"])
@pytest.mark.parametrize("width", [1, 5, 7, 8, 15, 16, 17, 33, 768])
def test_scores_in_panels_are_those_of_one_query_alone(metric, width, kind):
    """Many queries are multiplied across items and one along its dimensions: both add up in one order."""
    rng = np.random.default_rng(width)
    queries = rng.standard_normal((int(rng.integers(32, 80)), width)).astype(np.float32)
    items = rng.standard_normal((int(rng.integers(257, 700)), width)).astype(kind)
    items[rng.integers(0, len(items), 20)] = items[rng.integers(0, len(items), 20)]
    items[5] = 0
    exclude = [rng.integers(-1, len(items), rng.integers(0, 30)) for _ in queries]
    for k in (1, 20, len(items)):
        for threads in (1, 3):
            scores, indices = top_k(queries, items, k, metric=metric, exclude=exclude, threads=threads)
            for row in range(0, len(queries), 5):
                alone = top_k(queries[row], items, k, metric=metric, exclude=[exclude[row]], threads=1)
                np.testing.assert_array_equal(indices[row], alone[1])
                np.testing.assert_array_equal(scores[row], alone[0])


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_scores_in_panels_find_values_that_have_no_order(value):
    rng = np.random.default_rng(2)
    queries = rng.standard_normal((40, 24)).astype(np.float32)
    items = rng.standard_normal((300, 24)).astype(np.float32)
    items[271, 3] = value
    with pytest.raises(ValueError, match=r"items\[271, 3\] is"):
        top_k(queries, items, 5)
    with pytest.raises(ValueError, match=r"queries\[0, 3\] is"):
        top_k(items[271:].repeat(40, axis=0), queries.repeat(10, axis=0), 5)


@pytest.mark.parametrize("metric", METRICS)
def test_a_scan_equals_the_oracle(metric):
    rng = np.random.default_rng(5)
    queries, items = scanned_search(rng, 24)
    scores, indices = top_k(queries, items, 7, metric=metric)
    check_top_k(
        scores, indices, queries, items, 7, metric, [range(len(items))] * len(queries), tolerance(metric, 24, 6)
    )


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("spread", [1e-30, 1e-18, 1e-9, 1e6, 1e16])
def test_a_scan_of_tiny_and_huge_items_gives_what_one_query_alone_gives(metric, spread):
    rng = np.random.default_rng(6)
    queries, items = scanned_search(rng, 40)
    items[::3] *= np.float32(spread)
    scores, indices = top_k(queries, items, 9, metric=metric)
    for row, query in enumerate(queries):
        alone = top_k(query, items, 9, metric=metric)
        np.testing.assert_array_equal(indices[row], alone[1])
        np.testing.assert_array_equal(scores[row], alone[0])


@pytest.mark.parametrize("metric", METRICS)
def test_nearly_equal_items_are_all_told_apart(metric):
    """The scan's rounding differs from the scores': whatever lies within it must be scored."""
    rng = np.random.default_rng(7)
    one = rng.standard_normal(384).astype(np.float32)
    items = np.repeat(one[None], 2000, axis=0)
    items[np.arange(2000), rng.integers(0, 384, 2000)] *= np.float32(1 + 2e-7)
    queries = (one + rng.standard_normal((16, 384)) * 0.01).astype(np.float32)
    scores, indices = top_k(queries, items, 12, metric=metric)
    for row, query in enumerate(queries):
        alone = top_k(query, items, 12, metric=metric)
        np.testing.assert_array_equal(indices[row], alone[1])
        np.testing.assert_array_equal(scores[row], alone[0])


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("width", [5, 130, 384])
@pytest.mark.parametrize("unit", [1e-9, 1.0, 1e9])
def test_a_scan_in_bytes_misses_nothing_that_queries_lose_by_it(metric, width, unit):
    """One large value leaves a query's others without digits: of items that lack it the order is decided by what was lost."""
    rng = np.random.default_rng(width)
    queries = rng.standard_normal((16, width)).astype(np.float32)
    queries[:, 0] = 1000 * rng.choice([-1, 1], 16)
    items = rng.integers(-128, 128, (3000, width)).astype(np.int8)
    items[:, 0] = 0
    items[::50, 0] = rng.integers(-1, 2, 60)
    scale = (unit * rng.uniform(0.5, 2, len(items))).astype(np.float32)
    scores, indices = top_k(queries, items, 12, metric=metric, scale=scale)
    for row, query in enumerate(queries):
        alone = top_k(query, items, 12, metric=metric, scale=scale)
        np.testing.assert_array_equal(indices[row], alone[1])
        np.testing.assert_array_equal(scores[row], alone[0])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_scan_finds_values_that_have_no_order(value):
    rng = np.random.default_rng(8)
    queries, items = scanned_search(rng, 32)
    for array, name in ((items, "items"), (queries, "queries")):
        row, column = len(array) - 3, 30
        before = array[row, column]
        array[row, column] = value
        with pytest.raises(ValueError, match=rf"{name}\[{row}, {column}\] is NaN or infinite"):
            top_k(queries, items, 3)
        array[row, column] = before


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("width", [16, 48, 50, 384])
@pytest.mark.parametrize("n_queries", [1, 5])
def test_where_an_array_lies_in_memory_changes_no_bit(metric, width, n_queries):
    rng = np.random.default_rng(width)
    queries = rng.standard_normal((n_queries, width)).astype(np.float32)
    items = rng.standard_normal((70, width)).astype(np.float32)
    room = np.empty(items.size + 32, dtype=np.float32)
    first = top_k(queries, items, 20, metric=metric)
    for start in range(17):
        moved = room[start : start + items.size].reshape(items.shape)
        moved[:] = items
        found = top_k(queries, moved, 20, metric=metric)
        np.testing.assert_array_equal(found[0], first[0])
        np.testing.assert_array_equal(found[1], first[1])


def test_rows_without_dimensions_cost_nothing_however_many():
    assert normalize(np.zeros((2**58, 0), dtype=np.float32)).shape == (2**58, 0)
