"""Answer spans against their naive twin: what the small model read with before there was a kernel."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from pytrace.bench import spans as bench
from pytrace.kernels import top_spans


class Windows(NamedTuple):
    """The arrays of a call."""

    starts: NDArray[np.float32]
    ends: NDArray[np.float32]
    pairs: NDArray[np.float32]
    owners: NDArray[np.int32]
    offsets: NDArray[np.int32]

    @staticmethod
    def random(random: np.random.Generator, windows: int, tokens: int, width: int, *, whole: bool) -> Windows:
        """Draw passages of 1 to 40 tokens with separators between them; `whole` makes ties and exact sums."""
        values = [
            random.integers(-2, 3, shape) if whole else random.standard_normal(shape)
            for shape in ((windows, tokens), (windows, tokens), (windows, tokens, 2 * width))
        ]
        owners = np.full((windows, tokens), -1, np.int32)
        offsets = np.full((windows, tokens, 2), -1, np.int32)
        for window in range(windows):
            at, owner = int(random.integers(1, 6)), 0
            while at < tokens:
                size = int(random.integers(1, random.choice([2, 10, 41])))
                place = range(at, min(at + size, tokens))
                begins = np.cumsum(random.integers(1, 25, len(place)))
                # A title stands before the middle of a long text.
                begins[len(place) // 4 :] += int(random.choice([0, 0, 500]))
                owners[window, place] = owner
                offsets[window, place, 0] = begins
                offsets[window, place, 1] = begins + random.integers(0, 9, len(place))
                at, owner = at + size + int(random.integers(0, 2)), owner + int(random.integers(1, 3))
        return Windows(*(array.astype(np.float32) for array in values), owners, offsets)


def oracle(
    windows: Windows, window: int, top: int, max_tokens: int = 30, max_characters: int = 300
) -> list[tuple[float, int, int]]:
    """Score, first and last token of a window's best spans, one end at a time in float64."""
    starts, ends, pairs, owners, offsets = (array[window].tolist() for array in windows)
    tokens = range(len(starts))
    if not tokens or not math.isfinite(starts[0]):
        return []
    width = windows.pairs.shape[2] // 2
    tried = sorted((-starts[t], t) for t in tokens if owners[t] >= 0 and math.isfinite(starts[t]))[: 4 * top]
    spans = []
    for _, first in tried:
        logits = {}
        for last in tokens[first:]:
            if owners[last] == owners[first]:
                product = sum(a * b for a, b in zip(pairs[first][:width], pairs[last][width:], strict=True))
                logits[last] = ends[last] + product / math.sqrt(width or 1)
        logits = {last: logit for last, logit in logits.items() if math.isfinite(logit)}
        if not logits:
            continue
        most = max(logits.values())
        total = math.log(math.fsum(math.exp(logit - most) for logit in logits.values()))
        near = [
            (-logit, last)
            for last, logit in logits.items()
            if last < first + max_tokens and offsets[last][1] - offsets[first][0] <= max_characters
        ]
        spans += [
            (starts[first] + (-minus - most - total) - starts[0], first, last) for minus, last in sorted(near)[:top]
        ]
    return sorted(spans, key=lambda span: (-span[0], span[1:]))[:top]


def found(windows: Windows, top: int, **options: int) -> list[list[tuple[float, int, int]]]:
    """Return the kernel's spans of each window, and hold its filling to what is documented."""
    spans = top_spans(*windows, top=top, **options)
    assert [array.dtype for array in spans] == [np.float32, np.int32, np.int32]
    assert {array.shape for array in spans} == {(len(windows.starts), top)}
    there = spans.first >= 0
    assert (np.sort(~there, axis=1) == ~there).all()
    assert (spans.last[~there] == -1).all()
    assert (spans.scores[~there] == -np.inf).all()
    assert np.isfinite(spans.scores[there]).all()
    return [
        [(float(score), int(first), int(last)) for score, first, last in zip(*row, strict=True) if first >= 0]
        for row in zip(*spans, strict=True)
    ]


def assert_same(ours: list[tuple[float, int, int]], right: list[tuple[float, int, int]]) -> None:
    """Compare spans; those whose scores differ by rounding alone may change places."""
    assert len(ours) == len(right)
    np.testing.assert_allclose([span[0] for span in ours], [span[0] for span in right], rtol=1e-5, atol=1e-5)
    last = right[-1][0] + 1e-4 if right else 0.0
    assert {span[1:] for span in ours if span[0] > last} == {span[1:] for span in right if span[0] > last}


@given(
    windows=st.integers(0, 3),
    tokens=st.integers(0, 70),
    width=st.sampled_from([0, 1, 2, 4, 15, 16, 17, 64]),
    top=st.integers(0, 25),
    max_tokens=st.sampled_from([1, 2, 30, 2**62]),
    max_characters=st.sampled_from([0, 20, 300, 2**62]),
    seed=st.integers(0, 2**32),
)
def test_the_best_spans_equal_the_oracles(windows, tokens, width, top, max_tokens, max_characters, seed):
    drawn = Windows.random(np.random.default_rng(seed), windows, tokens, width, whole=False)
    options = {"max_tokens": max_tokens, "max_characters": max_characters}
    for window, ours in enumerate(found(drawn, top, **options)):
        assert_same(ours, oracle(drawn, window, top, **options))


@given(tokens=st.integers(1, 60), width=st.sampled_from([0, 1, 4]), top=st.integers(1, 12), seed=st.integers(0, 2**32))
def test_equal_scores_rank_by_first_then_by_last_token(tokens, width, top, seed):
    random = np.random.default_rng(seed)
    drawn = Windows.random(random, 2, tokens, width, whole=True)
    # Ends of one logit each: all spans of starts with as many ends have the same score.
    drawn = drawn._replace(ends=np.zeros_like(drawn.ends), pairs=np.zeros_like(drawn.pairs))
    for window, ours in enumerate(found(drawn, top)):
        right = oracle(drawn, window, top)
        assert [span[1:] for span in ours] == [span[1:] for span in right]
        np.testing.assert_allclose([span[0] for span in ours], [span[0] for span in right], rtol=1e-6)


def test_of_equal_starts_the_first_are_tried():
    # A passage of nine tokens, then one of a single token. The last token of each is its only end: log P is 0.
    starts, nothing = np.array([[0.0, *[1.0] * 10]]), np.zeros((1, 11))
    windows = Windows(
        starts, nothing, np.zeros((1, 11, 0)), np.array([[-1, *[0] * 9, 1]]), np.zeros((1, 11, 2), np.int32)
    )
    for top, best in ((1, [(4, 4)]), (2, [(8, 8), (8, 9)]), (3, [(9, 9), (10, 10), (8, 8)])):
        (ours,) = found(windows, top)
        assert [span[1:] for span in ours] == best
        assert_same(ours, oracle(windows, 0, top))


def test_a_passage_that_is_cut_apart_is_one_passage():
    owners = np.array([[-1, 0, 0, -1, 1, -1, 0, 0]], np.int32)
    ends = np.array([[0, 0, 0, 9, 9, 9, 3, 2]], np.float32)
    starts = np.array([[0, 5, 0, 9, 0, 9, 0, 0]], np.float32)
    windows = Windows(starts, ends, np.zeros((1, 8, 8), np.float32), owners, np.zeros((1, 8, 2), np.int32))
    (ours,) = found(windows, 2)
    assert [span[1:] for span in ours] == [(1, 6), (1, 7)]
    assert_same(ours, oracle(windows, 0, 2))


def test_no_span_is_longer_than_allowed_but_all_ends_count():
    starts, ends = np.array([[0, 0, 0, 0]]), np.array([[0, 0, 0, 5]])
    owners, offsets = np.array([[-1, 0, 0, 0]]), np.array([[[0, 0], [0, 4], [4, 9], [9, 15]]])
    sure = math.log(math.exp(0) / (2 * math.exp(0) + math.exp(5)))
    for limits in ({"max_tokens": 2}, {"max_characters": 9}):
        spans = top_spans(starts, ends, np.zeros((1, 4, 0)), owners, offsets, top=20, **limits)
        there = [pair for pair in zip(spans.first[0].tolist(), spans.last[0].tolist(), strict=True) if pair[0] >= 0]
        assert set(there) == {(1, 1), (1, 2), (2, 2), (3, 3)} | ({(2, 3)} if "max_tokens" in limits else set())
        assert spans.scores[0, there.index((1, 1))] == pytest.approx(sure)


def test_characters_that_go_back_count_as_short():
    offsets = np.array([[[0, 0], [2**31 - 1, 4], [-(2**31), 2**31 - 1], [5, -(2**31)]]], np.int32)
    windows = Windows(
        np.zeros((1, 4), np.float32), np.zeros((1, 4), np.float32), np.zeros((1, 4, 2), np.float32),
        np.array([[-1, 0, 0, 0]], np.int32), offsets,
    )  # fmt: skip
    (ours,) = found(windows, 9)
    assert {span[1:] for span in ours} == {(1, 1), (1, 2), (1, 3), (2, 3), (3, 3)}
    assert_same(ours, oracle(windows, 0, 9))


def test_windows_without_passages_or_tokens_have_no_spans():
    drawn = Windows.random(np.random.default_rng(1), 3, 40, 4, whole=False)
    for owners in (np.full((3, 40), -1, np.int32), np.full((3, 40), -(2**31), np.int32)):
        assert found(drawn._replace(owners=owners), 5) == [[], [], []]
    assert found(Windows(*(array[:, :0] for array in drawn)), 5) == [[], [], []]
    assert found(Windows(*(array[:0] for array in drawn)), 5) == []
    assert found(drawn, 0) == [[], [], []]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["starts", "ends", "pairs"])
def test_logits_that_are_not_finite_count_as_minus_infinity(name, bad):
    random = np.random.default_rng(2)
    drawn = Windows.random(random, 1, 60, 4, whole=False)
    array = getattr(drawn, name)
    array[random.random(array.shape) < 0.1] = bad
    drawn.starts[0, 0] = 0.5
    (ours,) = found(drawn, 20)
    assert ours
    assert_same(ours, oracle(drawn, 0, 20))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_window_whose_first_start_is_not_finite_has_no_spans(bad):
    drawn = Windows.random(np.random.default_rng(3), 2, 30, 4, whole=False)
    drawn.starts[0, 0] = bad
    first, second = found(drawn, 5)
    assert first == []
    assert second


def test_logits_near_the_limits_of_float32_give_finite_scores():
    most = float(np.finfo(np.float32).max)
    drawn = Windows.random(np.random.default_rng(4), 1, 40, 2, whole=False)
    drawn.starts[:] = most
    drawn.ends[0, ::2], drawn.ends[0, 1::2] = most, -most
    drawn.pairs[0, ::3] = 1e30
    drawn.starts[0, 0] = -most
    (ours,) = found(drawn, 30)
    assert len(ours) == 30
    assert ours[0][0] == most


def test_spans_do_not_depend_on_threads_batch_or_layout():
    drawn = Windows.random(np.random.default_rng(5), 9, 200, 64, whole=False)
    right = top_spans(*drawn, top=20, threads=1)
    for threads in (2, 5):
        for ours, expected in zip(top_spans(*drawn, top=20, threads=threads), right, strict=True):
            np.testing.assert_array_equal(ours, expected)
    alone = top_spans(*(array[4:5] for array in drawn), top=20)
    for ours, expected in zip(alone, right, strict=True):
        np.testing.assert_array_equal(ours[0], expected[4])
    layouts = (
        [np.asfortranarray(array) for array in drawn],
        [np.repeat(array, 2, axis=1)[:, ::2] for array in drawn],
        [array[::-1].copy()[::-1] for array in drawn],
        [array.astype(array.dtype.newbyteorder(">")) for array in drawn],
        [array.astype("f8" if array.dtype.kind == "f" else "i8") for array in drawn],
        [array.tolist() for array in drawn],
    )
    for layout in layouts:
        for ours, expected in zip(top_spans(*layout, top=20), right, strict=True):
            np.testing.assert_array_equal(ours, expected)


def test_padding_does_not_change_spans():
    drawn = Windows.random(np.random.default_rng(6), 3, 50, 16, whole=False)
    right = top_spans(*drawn, top=10)
    wider = [
        np.concatenate([array, np.full_like(array, -1 if array is drawn.owners else 7)], axis=1) for array in drawn
    ]
    for ours, expected in zip(top_spans(*wider, top=10), right, strict=True):
        np.testing.assert_array_equal(ours, expected)


@pytest.mark.parametrize("whole", [False, True])
def test_the_benches_numpy_finds_the_oracles_spans(whole):
    drawn = Windows.random(np.random.default_rng(7), 4, 80, 64, whole=whole)
    task = bench.Task(*drawn)
    for window in range(4):
        assert_same(bench.numpy_spans(task, window), oracle(drawn, window, bench.TOP))


GOOD = Windows(
    np.zeros((2, 3), np.float32), np.zeros((2, 3), np.float32), np.zeros((2, 3, 4), np.float32),
    np.zeros((2, 3), np.int32), np.zeros((2, 3, 2), np.int32),
)  # fmt: skip


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"starts": np.zeros(3)}, "starts has 1 dimensions; it must have 2"),
        ({"pairs": np.zeros((2, 3))}, "pairs has 2 dimensions; it must have 3"),
        ({"ends": np.zeros((2, 4))}, r"ends has the shape \(2, 4\), but starts has \(2, 3\)"),
        ({"ends": np.zeros((3, 3))}, r"ends has the shape \(3, 3\), but starts has \(2, 3\)"),
        ({"pairs": np.zeros((2, 3, 5))}, r"pairs has the shape \(2, 3, 5\).* must be \[windows, tokens, 2 \* width\]"),
        ({"pairs": np.zeros((2, 2, 4))}, r"pairs has the shape \(2, 2, 4\)"),
        ({"owners": np.zeros((2, 2), int)}, r"owners has the shape \(2, 2\)"),
        ({"offsets": np.zeros((2, 3, 3), int)}, r"offsets has the shape \(2, 3, 3\).* must be \[windows, tokens, 2\]"),
        ({"owners": np.full((2, 3), 2**31)}, "owners holds 2147483648; it must fit int32"),
        ({"owners": np.full((2, 3), -(2**31) - 1)}, "owners holds -2147483649; it must fit int32"),
        ({"offsets": np.full((2, 3, 2), 2**64 - 1, np.uint64)}, "offsets holds 18446744073709551615; it must fit"),
        ({"starts": [[1.0], [1.0, 2.0]]}, "starts is no array of numbers"),
        ({"top": -1}, "top is -1; it must be at least 0"),
        ({"top": 2**62}, "top is 4611686018427387904 for 2 windows; that many spans have no room in memory"),
        ({"top": 2**64}, "top is 18446744073709551616; it must be below 9223372036854775808"),
        ({"max_tokens": 0}, "max_tokens is 0; it must be at least 1"),
        ({"max_characters": -1}, "max_characters is -1; it must be at least 0"),
        ({"threads": 0}, "threads is 0; it must be at least 1"),
    ],
)
def test_misuse_is_a_sentence_with_the_numbers(change, message):
    arguments = GOOD._asdict() | {"top": 1} | change
    with pytest.raises(ValueError, match=message):
        top_spans(**arguments)


def test_arrays_of_other_kinds_are_refused():
    for name in ("owners", "offsets"):
        for kind in (np.float32, np.bool_):
            arrays = GOOD._replace(**{name: getattr(GOOD, name).astype(kind)})
            with pytest.raises(TypeError, match=f"{name} holds {np.dtype(kind)}; it must hold whole numbers"):
                top_spans(*arrays, top=1)
    for name in ("starts", "ends", "pairs"):
        with pytest.raises(TypeError, match=f"{name} holds complex64; it must hold real numbers"):
            top_spans(*GOOD._replace(**{name: getattr(GOOD, name).astype(np.complex64)}), top=1)
    with pytest.raises(TypeError, match="'float' object cannot be interpreted as an integer"):
        top_spans(*GOOD, top=1.0)  # type: ignore[arg-type]
