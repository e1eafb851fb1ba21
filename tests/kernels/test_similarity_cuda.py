"""The searches of a card against their naive twin, and against themselves in other shapes."""

from __future__ import annotations

import ctypes
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytrace.kernels import devices, top_k
from pytrace.kernels.similarity import similarity
from tests import oracles
from tests.similarity_checks import METRICS, check_random_floats, check_top_k, exact_searches, hostile_calls, tolerance

# Around the 16-byte packs of every type (4, 8, 16 values) and eight of them, and a usual width.
WIDTHS = (1, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 384)
# Around what a block takes at once (64, 128 or 256 rows) and three times that.
COUNTS = (1, 2, 63, 64, 65, 127, 128, 129, 255, 256, 257, 700)


class Bfloat16Rows:
    """A card's array of uint16 that says by DLPack that it holds bfloat16, as PyTorch's do."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, *, stream=None):
        capsule = self.array.__dlpack__(stream=stream)
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        # After the data's address (8 bytes), the device (8) and the rank (4).
        ctypes.c_uint8.from_address(pointer(capsule, b"dltensor") + 20).value = 4
        return capsule

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def strided(array, first, shape, strides):
    """Return what describes a part of a card's array, strides in elements."""
    size = np.dtype(array.dtype).itemsize
    interface = dict(array.__cuda_array_interface__)
    interface["data"] = (interface["data"][0] + first * size, False)
    interface["shape"] = shape
    interface["strides"] = tuple(step * size for step in strides)
    return type("Part", (), {"__cuda_array_interface__": interface, "array": array})()


def on_host(array):
    return array if isinstance(array, np.ndarray) else array.numpy()


def to_bfloat16(values):
    """Cut float32 to the bits of bfloat16; return them and the values that they stand for."""
    bits = (values.view(np.uint32) >> 16).astype(np.uint16)
    return bits, (bits.astype(np.uint32) << 16).view(np.float32)


def test_every_width_gives_the_true_scores(card):
    for metric in METRICS:
        for width in WIDTHS:
            rng = np.random.default_rng(width)
            queries = rng.standard_normal((5, width)).astype(np.float32)
            items = rng.standard_normal((29, width)).astype(np.float32)
            scores, indices = top_k(queries, items, 5, metric=metric, device=card)
            check_top_k(scores, indices, queries, items, 5, metric, [range(29)] * 5, tolerance(metric, width, 4))


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("n_queries", [1, 2, 4, 5, 9])
def test_every_block_remainder_gives_the_processors_result(card, metric, n_queries):
    for count in COUNTS:
        rng = np.random.default_rng(count)
        queries = rng.integers(-3, 4, (n_queries, 5)).astype(np.float32)
        items = rng.integers(-3, 4, (count, 5)).astype(np.float32)
        scores, indices = top_k(queries, items, 4, metric=metric, device=card)
        expected = top_k(queries, items, 4, metric=metric)
        if metric != "cosine":
            np.testing.assert_array_equal(indices, expected[1])
        np.testing.assert_allclose(scores, expected[0], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("metric", ["ip", "l2"])
@settings(max_examples=15)
@given(search=exact_searches(), memory=st.sampled_from(["", "2000", "9000"]))
def test_exact_scores_and_ties_equal_the_oracle(card, metric, search, memory):
    queries, items, k, offsets, query_offsets, exclude, visible = search
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTRACE_CUDA_MEMORY", memory)
        scores, indices = top_k(
            queries, items, k, metric=metric, offsets=offsets, query_offsets=query_offsets, exclude=exclude, device=card
        )
    expected = oracles.top_k(queries.tolist(), items.tolist(), k, metric, visible)
    for row, best in enumerate(expected):
        assert indices[row].tolist() == [index for _, index in best] + [-1] * (k - len(best))
    check_top_k(scores, indices, queries, items, k, metric, visible, 1e-5)


@pytest.mark.parametrize("metric", METRICS)
@settings(max_examples=10)
@given(seed=st.integers(0, 2**32), k=st.integers(1, 40), ragged=st.booleans())
def test_floats_equal_the_oracle_within_rounding(card, metric, seed, k, ragged):
    check_random_floats(metric, seed, k, ragged, device=card)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("kind", ["float32", "float16", "int8"])
@pytest.mark.parametrize("width", [40, 19])
def test_scores_do_not_depend_on_batch_tiles_or_path(card, metric, kind, width, monkeypatch):
    rng = np.random.default_rng(5)
    # Few distinct rows, so that the k-th place is always tied.
    items = (rng.standard_normal((50, width)) * 20).astype(kind)[rng.integers(0, 50, 600)]
    queries = rng.standard_normal((11, width)).astype(np.float32)
    scale = rng.uniform(0.1, 0.2, 600).astype(np.float32) if kind == "int8" else None
    scores, indices = top_k(queries, items, 30, metric=metric, scale=scale, device=card)
    whole = similarity(queries, items, metric=metric, scale=scale, device=card)
    np.testing.assert_array_equal(np.take_along_axis(whole, indices, 1), scores)
    order = np.argsort(whole if metric == "l2" else -whole, axis=1, kind="stable")[:, :30]
    np.testing.assert_array_equal(indices, order)
    for some in (slice(0, 1), slice(3, 6), slice(1, 8)):
        part = top_k(queries[some], items, 30, metric=metric, scale=scale, device=card)
        np.testing.assert_array_equal(part[0], scores[some])
        np.testing.assert_array_equal(part[1], indices[some])
    one = top_k(queries[2], items, 30, metric=metric, scale=scale, device=card)
    np.testing.assert_array_equal(one[0], scores[2])
    for memory in ("30000", "90000"):
        monkeypatch.setenv("PYTRACE_CUDA_MEMORY", memory)
        tiled = top_k(queries, items, 30, metric=metric, scale=scale, device=card)
        np.testing.assert_array_equal(tiled[0], scores)
        np.testing.assert_array_equal(tiled[1], indices)
        np.testing.assert_array_equal(similarity(queries, items, metric=metric, scale=scale, device=card), whole)


@pytest.fixture
def both_ways(monkeypatch):
    """Return a search that goes both ways, by the scan and by the tensor cores, and must find the same bits."""

    def search(*arguments, **options):
        found = []
        for way in ("scan", "product"):
            monkeypatch.setenv("PYTRACE_CUDA_SEARCH", way)
            found.append(top_k(*arguments, **options))
        np.testing.assert_array_equal(on_host(found[0][1]), on_host(found[1][1]))
        np.testing.assert_array_equal(on_host(found[0][0]), on_host(found[1][0]))
        return found[1]

    return search


@pytest.mark.parametrize("kind", ["float32", "float16", "int8"])
@pytest.mark.parametrize("metric", METRICS)
def test_tensor_cores_and_the_scan_find_the_same_bits(card, both_ways, metric, kind):
    rng = np.random.default_rng(7)
    for count, width, k in ((1500, 40, 10), (700, 33, 1), (20, 8, 30)):
        queries = rng.standard_normal((19, width)).astype(np.float32)
        items = (rng.standard_normal((count, width)) * 20).astype(kind)
        options = {"scale": rng.random(count) + 0.1} if kind == "int8" else {}
        exclude = [rng.integers(-1, count, 5) for _ in range(19)]
        scores, indices = both_ways(queries, items, k, metric=metric, exclude=exclude, device=card, **options)
        expected = top_k(queries, items, k, metric=metric, exclude=exclude, **options)
        found = np.isfinite(expected[0])
        np.testing.assert_allclose(scores[found], expected[0][found], rtol=1e-4, atol=1e-4)
        assert (indices[~found] == -1).all()


def test_tensor_cores_take_tiles_and_one_group_of_a_batch(card, both_ways, monkeypatch):
    rng = np.random.default_rng(8)
    queries = rng.integers(-2, 3, (16, 64)).astype(np.float32)
    items = rng.integers(-2, 3, (5000, 64)).astype(np.float16)
    exclude = [rng.integers(0, 5000, 3) for _ in range(16)]
    whole = both_ways(queries, items, 7, exclude=exclude, device=card)
    # Queries 0 and 1 see nothing.
    part = both_ways(queries, items, 7, offsets=[0, 0, 5000], query_offsets=[0, 2, 16], exclude=exclude, device=card)
    np.testing.assert_array_equal(part[1][2:], whole[1][2:])
    assert (part[1][:2] == -1).all()
    # Half of it is room for the lists of hits (some 370 kB); of the items' 640 kB a quarter is there at a time.
    monkeypatch.setenv("PYTRACE_CUDA_MEMORY", "800000")
    np.testing.assert_array_equal(both_ways(queries, items, 7, exclude=exclude, device=card)[1], whole[1])


def test_tensor_cores_refuse_what_is_not_finite(card, monkeypatch):
    monkeypatch.setenv("PYTRACE_CUDA_SEARCH", "product")
    items = np.ones((600, 8), np.float16)
    items[577, 3] = np.nan
    with pytest.raises(ValueError, match=r"items\[577, 3\] is NaN or infinite"):
        top_k(np.ones((20, 8), np.float32), items, 2, device=card)
    with pytest.raises(ValueError, match="overflows float32"):
        top_k(np.full((20, 8), 3e38, np.float32), np.ones((600, 8), np.float32), 2, device=card)


def test_a_way_that_is_none_is_refused(card, monkeypatch):
    monkeypatch.setenv("PYTRACE_CUDA_SEARCH", "fast")
    with pytest.raises(ValueError, match="PYTRACE_CUDA_SEARCH is 'fast'; it must be auto, scan or product"):
        top_k(np.ones((2, 8), np.float32), np.ones((6, 8), np.float32), 2, device=card)


def test_rows_that_are_not_aligned_score_as_those_that_are(card):
    rng = np.random.default_rng(2)
    for kind, width in (("float32", 33), ("float16", 40), ("int8", 48)):
        items = (rng.standard_normal((70, width)) * 9).astype(kind)
        queries = rng.standard_normal((3, width)).astype(np.float32)
        expected = similarity(queries, devices.to_device(items, card), metric="cosine").numpy()
        wide = np.zeros((70, width + 1), kind)
        wide[:, 1:] = items
        there = strided(devices.to_device(wide, card), 1, items.shape, (width + 1, 1))
        np.testing.assert_array_equal(similarity(queries, there, metric="cosine").numpy(), expected)


@pytest.mark.parametrize("n_queries", [1, 9])
@pytest.mark.parametrize("order", ["rising", "falling", "equal"])
@pytest.mark.parametrize("k", [1, 10, 300, 2000])
def test_selection_survives_every_order_of_items(card, n_queries, order, k):
    values = {"rising": np.arange(1500), "falling": np.arange(1500)[::-1], "equal": np.ones(1500)}[order]
    queries = np.ones((n_queries, 1), dtype=np.float32)
    scores, indices = top_k(queries, values.astype(np.float32)[:, None], k, device=card)
    expected = np.argsort(-values, kind="stable")[:k]
    for row in range(n_queries):
        np.testing.assert_array_equal(indices[row, : len(expected)], expected)
        np.testing.assert_array_equal(scores[row, : len(expected)], values[expected])
        assert (indices[row, len(expected) :] == -1).all()


@pytest.mark.parametrize("memory", ["", "200000"])
def test_a_k_beyond_shared_memory_sorts_all_scores(card, memory, monkeypatch):
    monkeypatch.setenv("PYTRACE_CUDA_MEMORY", memory)
    rng = np.random.default_rng(3)
    items = rng.integers(-50, 50, (5000, 2)).astype(np.float32)
    queries = rng.integers(-9, 9, (2, 2)).astype(np.float32)
    for metric in ("ip", "l2"):
        found = top_k(queries, items, 4500, metric=metric, exclude=[[4, 5, 6], [-1]], device=card)
        expected = top_k(queries, items, 4500, metric=metric, exclude=[[4, 5, 6], [-1]])
        np.testing.assert_array_equal(found[1], expected[1])
        np.testing.assert_allclose(found[0], expected[0], rtol=1e-6)
    ragged = top_k(queries, items, 6000, offsets=[0, 300, 5000], device=card)
    expected = top_k(queries, items, 6000, offsets=[0, 300, 5000])
    np.testing.assert_array_equal(ragged[1], expected[1])
    np.testing.assert_array_equal(ragged[0], expected[0])


def test_queries_too_wide_for_shared_memory_are_read_where_they_lie(card):
    rng = np.random.default_rng(4)
    queries = rng.integers(-2, 3, (3, 26_000)).astype(np.float32)
    items = rng.integers(-2, 3, (9, 26_000)).astype(np.float16)
    for metric in METRICS:
        found = similarity(queries, items, metric=metric, device=card)
        np.testing.assert_allclose(found, similarity(queries, items, metric=metric), rtol=1e-5, atol=1e-6)
        scores, indices = top_k(queries, items, 4, metric=metric, device=card)
        np.testing.assert_array_equal(np.take_along_axis(found, indices, 1), scores)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("width", [3, 8, 21])
def test_sixteen_bits_score_as_their_values(card, metric, width):
    rng = np.random.default_rng(width)
    items = rng.standard_normal((60, width)).astype(np.float32)
    items[:, 0] = rng.choice(np.array([0, -0.0, 6e-8, -6e-8, 6.1e-5, 65504, -65504, 1e-4], dtype=np.float32), 60)
    bits, rounded = to_bfloat16(items)
    queries = rng.standard_normal((4, width)).astype(np.float16)
    query_bits, query_values = to_bfloat16(queries.astype(np.float32))
    half = items.astype(np.float16)

    def close(found, true):
        np.testing.assert_allclose(found, true, rtol=2e-5, atol=tolerance(metric, width, 4))

    close(similarity(queries, half, metric=metric, device=card), similarity(queries, half, metric=metric))
    there = Bfloat16Rows(devices.to_device(bits, card))
    close(similarity(queries, there, metric=metric).numpy(), similarity(queries, rounded, metric=metric))
    brain_queries = Bfloat16Rows(devices.to_device(query_bits, card))
    found = similarity(brain_queries, there, metric=metric).numpy()
    close(found, similarity(query_values, rounded, metric=metric))
    np.testing.assert_array_equal(found, similarity(query_values, there, metric=metric).numpy())
    scores, indices = (part.numpy() for part in top_k(brain_queries, there, 9, metric=metric))
    np.testing.assert_array_equal(np.take_along_axis(found, indices, 1), scores)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("per_row", [False, True])
def test_int8_items_score_as_their_scaled_values(card, metric, per_row):
    for width in (3, 16, 130):
        rng = np.random.default_rng(width)
        items = rng.integers(-128, 127, (60, width), endpoint=True).astype(np.int8)
        scale = rng.uniform(0.01, 0.03, 60).astype(np.float32) if per_row else 0.02
        queries = rng.standard_normal((3, width)).astype(np.float32)
        scores, indices = top_k(queries, items, 20, metric=metric, scale=scale, device=card)
        true = items * (scale[:, None] if per_row else np.float64(np.float32(scale)))
        check_top_k(scores, indices, queries, true, 20, metric, [range(60)] * 3, tolerance(metric, width, 4))


def test_every_finite_half_is_read_exactly(card):
    halves = np.arange(0, 65536, 7, dtype=np.uint16).view(np.float16)
    halves = halves[np.isfinite(halves)]
    found = similarity(np.ones(1, dtype=np.float32), halves[:, None], device=card)
    np.testing.assert_array_equal(found, halves.astype(np.float32))


def test_every_layout_gives_the_same_result(card):
    rng = np.random.default_rng(8)
    for dtype in (np.float32, np.float16, np.int8):
        items = rng.integers(-9, 9, (40, 19)).astype(dtype)
        queries = rng.integers(-9, 9, (5, 19)).astype(np.float32)
        expected = top_k(queries, items, 7, metric="l2", device=card)
        layouts = {
            "fortran": np.asfortranarray(items),
            "every second row of a wider array": np.hstack([np.repeat(items, 2, axis=0)] * 2)[::2, :19],
            "every second column": np.repeat(items, 2, axis=1)[:, ::2],
            "reversed twice": items[::-1].copy()[::-1],
            "foreign byte order": items.astype(np.dtype(dtype).newbyteorder()),
            "on the card": devices.to_device(items, card),
            "reversed on the card": strided(
                devices.to_device(items[::-1].copy(), card), 39 * 19, items.shape, (-19, 1)
            ),
        }
        for name, layout in layouts.items():
            scores, indices = top_k(queries, layout, 7, metric="l2", device=card)
            np.testing.assert_array_equal(on_host(indices), expected[1], err_msg=name)
            np.testing.assert_array_equal(on_host(scores), expected[0], err_msg=name)
        repeated = np.broadcast_to(items[:1], (6, 19))
        assert top_k(queries, repeated, 6, device=card)[1].tolist() == [[0, 1, 2, 3, 4, 5]] * 5
        repeated = strided(devices.to_device(items, card), 0, (6, 19), (0, 1))
        assert top_k(queries, repeated, 6)[1].numpy().tolist() == [[0, 1, 2, 3, 4, 5]] * 5


@pytest.mark.parametrize("dtype", [np.float64, np.float16, np.int32, np.uint8, bool])
def test_other_real_types_are_converted(card, dtype):
    queries = np.array([[1, 0, 1]], dtype)
    items = np.array([[1, 1, 0], [1, 0, 1]], dtype)
    scores, indices = top_k(queries, items, 2, device=card)
    assert scores.tolist() == [[2.0, 1.0]]
    assert indices.tolist() == [[1, 0]]
    assert top_k(queries.tolist(), items.tolist(), 2, device=card)[0].tolist() == [[2.0, 1.0]]


def test_results_live_where_the_input_lives(card):
    rng = np.random.default_rng(0)
    queries, items = rng.standard_normal((3, 6)).astype(np.float32), rng.standard_normal((9, 6)).astype(np.float32)
    expected = top_k(queries, items, 4, device=card)
    assert all(isinstance(part, np.ndarray) for part in expected)
    q, x = devices.to_device(queries, card), devices.to_device(items, card)
    for given_queries, given_items in ((q, x), (queries, x), (q, items)):
        found = top_k(given_queries, given_items, 4)
        assert [devices.on_card(part) for part in found] == [True, True]
        for part, true in zip(found, expected, strict=True):
            assert part.dtype == true.dtype.name
            np.testing.assert_array_equal(part.numpy(), true)
        whole = similarity(given_queries, given_items)
        np.testing.assert_array_equal(whole.numpy(), similarity(queries, items, device=card))
    assert top_k(queries[0], x, 4)[0].shape == (4,)
    assert similarity(queries[0], items, device=card).shape == (9,)
    with pytest.raises(TypeError, match=r"items on a card must hold float32, float16, bfloat16 or int8, not float64"):
        top_k(queries, devices.to_device(items.astype(np.float64), card), 1)
    with pytest.raises(TypeError, match="queries on a card must hold float32, float16 or bfloat16, not int32"):
        top_k(devices.to_device(queries.astype(np.int32), card), items, 1)
    with pytest.raises(ValueError, match="device is 'cpu', but an array lies on a card"):
        similarity(q, items, device="cpu")


@pytest.mark.parametrize("metric", METRICS)
def test_nothing_to_search_is_not_an_error(card, metric):
    empty = np.zeros((0, 8), dtype=np.float32)
    some = np.ones((3, 8), dtype=np.float32)
    assert top_k(empty, some, 2, metric=metric, device=card)[0].shape == (0, 2)
    scores, indices = top_k(some, empty, 2, metric=metric, device=card)
    assert indices.tolist() == [[-1, -1]] * 3
    assert (scores == (np.inf if metric == "l2" else -np.inf)).all()
    assert top_k(some, some, 0, metric=metric, device=card)[1].shape == (3, 0)
    assert similarity(empty, some, metric=metric, device=card).shape == (0, 3)
    assert similarity(some, empty, metric=metric, device=card).shape == (3, 0)
    assert top_k(np.ones((2, 0)), np.ones((3, 0)), 2, metric=metric, device=card)[1].tolist() == [[0, 1]] * 2
    assert top_k(empty, empty, 2, metric=metric, offsets=[0], device=card)[1].shape == (0, 2)


def test_exclude_in_all_its_forms(card):
    queries = np.ones((3, 1), dtype=np.float32)
    items = np.array([[5], [4], [3], [2]], dtype=np.float32)
    expected = [[1, 2, 3], [0, 1, 2], [2, -1, -1]]
    matrix = np.array([[0, -1, -1, 0], [-1, -1, -1, -1], [0, 1, 3, 3]])
    forms = [
        matrix,
        devices.to_device(matrix, card),
        [[0], [], np.array([3, 1, 0])],
        [[0], [], devices.to_device(np.array([3, 1, 0]), card)],
        ([0, 0, 1, 3], [0, 1, 1, 4]),
        (devices.to_device(np.array([0, -1, 3, 1, 0], dtype=np.int32), card), np.array([0, 2, 2, 5])),
    ]
    for form in forms:
        assert top_k(queries, items, 3, exclude=form, device=card)[1].tolist() == expected
    everything = top_k(queries, items, 2, exclude=[[0, 1, 2, 3]] * 3, metric="l2", device=card)
    assert everything[1].tolist() == [[-1, -1]] * 3
    assert (everything[0] == np.inf).all()


def test_offsets_on_the_card_are_read(card):
    items = np.arange(6, dtype=np.float32)[:, None]
    offsets = devices.to_device(np.array([0, 2, 6]), card)
    found = top_k(np.ones((2, 1)), items, 2, offsets=offsets, device=card)
    assert found[1].tolist() == [[1, 0], [5, 4]]


@pytest.mark.parametrize(("metric", "memory"), [("ip", ""), ("cosine", "60000"), ("l2", "60000")])
def test_a_ragged_batch_equals_one_search_a_question(card, metric, memory, monkeypatch):
    monkeypatch.setenv("PYTRACE_CUDA_MEMORY", memory)
    rng = np.random.default_rng(6)
    sizes = rng.integers(0, 40, 7)
    sizes[3] = 300
    offsets = np.array([0, *np.cumsum(sizes)])
    items = rng.standard_normal((offsets[-1], 24)).astype(np.float32)
    query_offsets = np.array([0, *np.cumsum(rng.integers(0, 4, 7))])
    query_offsets[4:] += 9
    queries = rng.standard_normal((query_offsets[-1], 24)).astype(np.float32)
    exclude = [rng.integers(-1, len(items), 40) for _ in queries]
    scores, indices = top_k(
        queries, items, 9, metric=metric, offsets=offsets, query_offsets=query_offsets, exclude=exclude, device=card
    )
    monkeypatch.delenv("PYTRACE_CUDA_MEMORY")
    for question in range(7):
        first, last = offsets[question], offsets[question + 1]
        for query in range(query_offsets[question], query_offsets[question + 1]):
            gone = exclude[query] - first
            gone[(gone < 0) | (gone >= last - first)] = -1
            alone = top_k(queries[query], items[first:last], 9, metric=metric, exclude=[gone], device=card)
            np.testing.assert_array_equal(scores[query], alone[0])
            np.testing.assert_array_equal(indices[query], np.where(alone[1] < 0, -1, alone[1] + first))


def test_bad_input_is_refused_with_the_processors_sentences(card):
    for error, message, arguments, options in hostile_calls():
        if "threads" in options:
            continue
        with pytest.raises(error, match=message):
            top_k(*arguments, **options, device=card)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize(("bad", "memory"), [(np.nan, ""), (np.inf, ""), (-np.inf, "6000")])
def test_nan_and_infinity_are_found_wherever_they_stand(card, metric, bad, memory, monkeypatch):
    monkeypatch.setenv("PYTRACE_CUDA_MEMORY", memory)
    rng = np.random.default_rng(0)
    for width, places in ((1, [(7, 0)]), (21, [(0, 0), (7, 10), (40, 20)])):
        for row, position in places:
            items = rng.standard_normal((41, width)).astype(np.float32)
            items[row, position] = bad
            zeros = np.zeros((3, width), dtype=np.float32)
            for place in (items, devices.to_device(items, card)):
                for call in (lambda q, x: top_k(q, x, 1, metric=metric, device=card),
                             lambda q, x: similarity(q, x, metric=metric, device=card)):  # fmt: skip
                    with pytest.raises(ValueError, match=rf"items\[{row}, {position}\] is NaN or infinite"):
                        call(zeros, place)
                    with pytest.raises(ValueError, match=rf"queries\[{row}, {position}\] is NaN or infinite"):
                        call(place, zeros)


def test_overflows_are_refused_in_every_type(card):
    big = np.full((2, 3), 3e38, dtype=np.float32)
    for metric in METRICS:
        with pytest.raises(ValueError, match="overflows float32"):
            top_k(big, -big, 1, metric=metric, device=card)
        with pytest.raises(ValueError, match="overflows float32"):
            similarity(big, -big, metric=metric, device=card)
    queries, items = np.ones((3, 2), dtype=np.float32), np.ones((6, 2), dtype=np.float32)
    queries[1] = items[4] = 1e30
    with pytest.raises(ValueError, match=r"queries\[1\] against items\[4\] or one soon after overflows"):
        top_k(queries, items, 1, device=card)


def test_cosine_of_a_zero_vector_is_zero(card):
    scores, indices = top_k([[0.0, 0.0], [1.0, 0.0]], [[1.0, 1.0], [0.0, 0.0]], 2, metric="cosine", device=card)
    assert scores[0].tolist() == [0, 0]
    assert indices[0].tolist() == [0, 1]
    assert scores[1, 1] == 0


def test_negative_zero_ties_with_zero(card):
    items = np.array([[0.0], [-0.0], [0.0], [-0.0]], dtype=np.float32)
    for metric in METRICS:
        query = np.array([-1.0 if metric == "ip" else 0.0])
        scores, indices = top_k(query, items, 4, metric=metric, device=card)
        assert indices.tolist() == [0, 1, 2, 3]
        assert not np.signbit(scores).any()
        assert not np.signbit(similarity(query, items, metric=metric, device=card)).any()


@pytest.mark.parametrize("metric", METRICS)
def test_an_item_is_nearest_to_itself(card, metric):
    rng = np.random.default_rng(9)
    items = (rng.standard_normal((40, 33)) * 1e3).astype(np.float32)
    if metric == "ip":
        items /= np.linalg.norm(items, axis=1, keepdims=True)
    scores, indices = top_k(items, items, 1, metric=metric, device=card)
    assert indices[:, 0].tolist() == list(range(40))
    if metric == "l2":
        assert (scores == 0).all()
    else:
        np.testing.assert_allclose(scores, 1, atol=1e-6)
        assert metric == "ip" or (scores <= 1).all()


def test_calls_from_many_threads_agree(card):
    rng = np.random.default_rng(3)
    queries, items = rng.standard_normal((3, 20)), rng.standard_normal((300, 20)).astype(np.float32)
    expected = top_k(queries, items, 10, device=card)
    results = [None] * 4

    def work(slot):
        results[slot] = top_k(queries, items, 10, device=card)

    workers = [threading.Thread(target=work, args=(slot,)) for slot in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for result in results:
        np.testing.assert_array_equal(result[0], expected[0])
        np.testing.assert_array_equal(result[1], expected[1])
