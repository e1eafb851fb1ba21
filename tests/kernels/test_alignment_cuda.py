"""Batched alignment on a card, emulated or real, against the processor's kernel: the same bits and the same paths."""

from __future__ import annotations

import ctypes
import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytrace.kernels import devices
from pytrace.kernels.alignment import Ragged, align_batch
from pytrace.kernels.devices import to_device
from tests import oracles
from tests.alignment_checks import BAD_BATCHES, GOOD, MISTYPED_BATCHES, VALUES, equality, ragged

few = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

FIELDS = ("best", "scores", "matches", "lengths", "candidate_steps", "reference_steps", "offsets")


def assert_same(found, expected, fields=FIELDS):
    for field in fields:
        left, right = getattr(found, field), getattr(expected, field)
        if right is not None:
            assert left.dtype == right.dtype, field
            np.testing.assert_array_equal(left, right, err_msg=field)


def both(card, candidates, references, groups=None, **options):
    """Align on the card, with steps and without, and hold it against the processor."""
    found = align_batch(candidates, references, groups, device=card, steps=True, **options)
    expected = align_batch(candidates, references, groups, device="cpu", steps=True, **options)
    assert_same(found, expected)
    assert_same(align_batch(candidates, references, groups, device=card, **options), expected, FIELDS[:4])
    return found


paths = st.lists(st.integers(0, 3), max_size=11)
batches = st.lists(st.tuples(paths, st.lists(paths, max_size=3)), max_size=6)
scores = st.integers(-4, 4)


@few
@given(batches, scores, scores, scores, st.integers(0, 3), st.sampled_from([1, 0.25, 0.3]))
def test_a_batch_equals_the_processor_and_the_oracle(card, questions, match, mismatch, gap, opening, scale):
    candidates = [candidate for candidate, _ in questions]
    references = [reference for _, group in questions for reference in group]
    groups = np.cumsum([0, *(len(group) for _, group in questions)])
    gaps = {"gap": gap * scale, "gap_open": (gap - opening) * scale}
    options = {"match": match * scale, "mismatch": mismatch * scale, **gaps}
    found = both(card, ragged(candidates), ragged(references), groups, **options)
    for i, (candidate, group) in enumerate(questions):
        if not group:
            assert (found.best[i], found.scores[i], found.matches[i], found.lengths[i]) == (-1, -math.inf, 0, 0)
            continue
        reference = references[found.best[i]]
        pair = equality(candidate, reference, options["match"], options["mismatch"])
        columns = slice(found.offsets[i], found.offsets[i + 1])
        aligned = zip(found.candidate_steps[columns].tolist(), found.reference_steps[columns].tolist(), strict=True)
        assert oracles.score_columns(aligned, pair, **gaps) == pytest.approx(found.scores[i], abs=1e-9)
        best = max(
            oracles.best_alignment_score(
                len(candidate), len(other), equality(candidate, other, options["match"], options["mismatch"]), **gaps
            )
            for other in group
        )
        assert found.scores[i] == pytest.approx(best, abs=1e-9)


LENGTHS = [0, 1, 3, 4, 5, 8, 9, 31, 32, 33, 63, 64, 65, 130]


def lengths_around_the_lanes(seed, kinds=3):
    random = np.random.default_rng(seed)
    candidates = [random.integers(0, kinds, n).tolist() for n in LENGTHS]
    references = [random.integers(0, kinds, m).tolist() for n in LENGTHS for m in (max(0, n - 2), n, 40)]
    return ragged(candidates), ragged(references), np.arange(len(LENGTHS) + 1) * 3


@pytest.mark.parametrize(("gap", "gap_open"), [(-1, -1), (-1, -3), (0, -2), (1, 1), (-0.7, -0.7), (-0.1, -0.3)])
def test_lengths_around_lanes_and_strips_equal_the_processor(card, gap, gap_open):
    both(card, *lengths_around_the_lanes(7), match=2, gap=gap, gap_open=gap_open)


@pytest.mark.parametrize("gap_open", [-1, -2.5])
@pytest.mark.parametrize("memory", [1, 20_000, 60_000])
def test_little_memory_keeps_some_rows_alone_and_finds_the_same_paths(card, monkeypatch, gap_open, memory):
    batch = lengths_around_the_lanes(8)
    whole = align_batch(*batch, gap_open=gap_open, steps=True)
    monkeypatch.setenv("PYTRACE_CUDA_MEMORY", str(memory))
    assert_same(align_batch(*batch, gap_open=gap_open, steps=True, device=card), whole)


@pytest.mark.parametrize("gap_open", [-1, -4])
def test_a_longer_pair_in_many_slabs_equals_the_processor(card, monkeypatch, gap_open):
    random = np.random.default_rng(5)
    a = random.integers(0, 3, 330).astype(np.int32)
    b = np.concatenate([a[:40], random.integers(0, 3, 60).astype(np.int32), a[200:]])
    one = [Ragged(x, np.array([0, len(x)])) for x in (a, b)]
    expected = align_batch(*one, gap_open=gap_open, steps=True)
    for memory in ("1", "1000000"):
        monkeypatch.setenv("PYTRACE_CUDA_MEMORY", memory)
        assert_same(align_batch(*one, gap_open=gap_open, steps=True, device=card), expected)


@pytest.mark.parametrize("largest", [100, 200_000, 999_999, 4_000_000])
def test_whole_numbers_of_every_size_are_exact(card, largest):
    batch = lengths_around_the_lanes(9)
    both(card, *batch, match=largest, mismatch=-largest, gap=-1, gap_open=-largest)


@pytest.mark.parametrize("gap_open", [-0.5, -0.8])
def test_a_matrix_by_symbol_equals_the_processor(card, gap_open):
    random = np.random.default_rng(4)
    similarity = random.normal(size=(20, 30))
    similarity[random.random((20, 30)) < 0.2] = -np.inf
    candidates = ragged([random.integers(0, 20, n).tolist() for n in LENGTHS])
    references = ragged([random.integers(0, 30, n + 1).tolist() for n in LENGTHS])
    options = {"gap": -0.5, "gap_open": gap_open}
    expected = both(card, candidates, references, score=similarity, **options)
    both(card, candidates, references, score=np.repeat(similarity, 2, axis=1)[:, ::2], **options)
    there = align_batch(candidates, references, score=to_device(similarity, card), steps=True, **options)
    assert_same(type(there)(*(getattr(there, field).numpy() for field in FIELDS)), expected)


@few
@given(batches, st.sampled_from([-1, -2.5]), st.sampled_from([1, 300, 800, 2000]), st.booleans())
def test_parts_of_any_size_give_the_results_of_the_whole(card, questions, gap_open, memory, matrix):
    candidates = ragged([candidate for candidate, _ in questions])
    references = ragged([reference for _, group in questions for reference in group])
    groups = np.cumsum([0, *(len(group) for _, group in questions)])
    options = {"gap_open": gap_open} | ({"score": np.arange(16.0).reshape(4, 4) % 5 - 2} if matrix else {})
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("PYTRACE_CUDA_MEMORY", str(memory))
        both(card, candidates, references, groups, **options)


@pytest.mark.parametrize("memory", [1, 3000, 12_000])
def test_a_candidate_whose_references_are_in_many_parts_keeps_the_first_best(card, monkeypatch, memory):
    random = np.random.default_rng(2)
    references = [random.integers(0, 3, random.integers(0, 12)).tolist() for _ in range(120)]
    # Equal bests far apart, and candidates without references between, before and after.
    references[17] = references[60] = references[118] = [1, 2, 1, 0, 2, 1]
    candidates = [[], [1, 2, 1, 0, 2, 1], [2], [0, 0, 1], []]
    groups = [0, 0, 119, 119, 120, 120]
    monkeypatch.setenv("PYTRACE_CUDA_MEMORY", str(memory))
    found = both(card, ragged(candidates), ragged(references), groups, gap_open=-2)
    assert found.best.tolist() == [-1, 17, -1, 119, -1]


@pytest.mark.parametrize("card", ["emulated"], indirect=True)
def test_more_symbols_than_the_card_holds_are_aligned_in_parts(card, monkeypatch):
    random = np.random.default_rng(6)
    batch = [Ragged(random.integers(0, 4, 16_000).astype(np.int32), np.arange(0, 16_001, 20)) for _ in range(2)]
    devices.empty_cache()
    monkeypatch.setenv("PYTRACE_EMULATED_MEMORY", "100000")
    both(card, *batch)
    with pytest.raises(MemoryError, match="the card has no room"):
        to_device(np.concatenate([one.values for one in batch]), card)


def test_sequences_of_anything_hashable_are_numbered_first(card):
    found = align_batch(["ab", "", "xyz"], ["abc", "", "y"], match=0, device=card)
    assert found.scores.tolist() == [-1, 0, -2]
    assert found.identity.tolist() == [2 / 3, 1, 1 / 3]
    assert align_batch([], [], device=card).best.shape == (0,)
    wide, one = np.array([2**40, 5]), np.array([0, 2])
    assert align_batch(Ragged(wide, one), Ragged(wide[::-1], one), device=card).matches.tolist() == [1]


def test_equal_references_fall_to_the_first_of_them(card):
    found = both(card, ragged([[1, 2], [3]]), ragged([[9]] + [[1, 2]] * 70 + [[3]] * 3), [0, 71, 74])
    assert found.best.tolist() == [1, 71]


def test_arrays_on_a_card_stay_there(card):
    candidates, references, groups = lengths_around_the_lanes(3)
    expected = align_batch(candidates, references, groups, steps=True)
    first = Ragged(to_device(candidates.values, card), to_device(candidates.offsets, card))
    second = Ragged(to_device(references.values, card), references.offsets)
    wide = Ragged(references.values.astype(np.int64), references.offsets)
    for a, b, c in (
        (first, second, groups),
        (first, wide, to_device(groups, card)),
        (candidates, second, groups),
    ):
        found = align_batch(a, b, c, steps=True)
        for field in FIELDS:
            assert type(getattr(found, field)) is type(first.values), field
        assert_same(type(found)(*(getattr(found, field).numpy() for field in FIELDS)), expected)
        assert align_batch(a, b, c).scores.numpy().tolist() == expected.scores.tolist()


def test_what_a_card_cannot_take_is_refused_with_a_remedy(card):
    function = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_int32, ctypes.c_int32)(lambda _x, _y: 0.0)
    with pytest.raises(TypeError, match="compute a matrix of its values first"):
        align_batch(GOOD, GOOD, score=function, device=card)
    there = Ragged(to_device(VALUES.astype(np.int64), card), GOOD.offsets)
    with pytest.raises(TypeError, match="candidates' values on a card must hold int32, not int64"):
        align_batch(there, GOOD)
    there = Ragged(to_device(VALUES, card), GOOD.offsets)
    with pytest.raises(ValueError, match="references' values must fit in 32 bits"):
        align_batch(there, Ragged(VALUES.astype(np.int64) + 2**40, GOOD.offsets))
    with pytest.raises(ValueError, match="device is 'cpu', but an array lies on a card"):
        align_batch(there, GOOD, device="cpu")


@pytest.mark.parametrize(("candidates", "groups", "options", "message"), BAD_BATCHES)
def test_a_bad_batch_is_refused_as_on_the_processor(card, candidates, groups, options, message):
    with pytest.raises(ValueError, match=message):
        align_batch(candidates, GOOD, groups, device=card, **options)


@pytest.mark.parametrize(("candidates", "options", "message"), MISTYPED_BATCHES)
def test_a_batch_of_the_wrong_type_is_refused_as_on_the_processor(card, candidates, options, message):
    with pytest.raises(TypeError, match=message):
        align_batch(candidates, GOOD, device=card, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"match": math.nan}, "match is nan"),
        ({"gap": -1e200}, "gap is -1"),
        ({"gap": -2, "gap_open": -1}, r"gap_open \(-1.* is above gap \(-2"),
        ({"score": np.zeros(3)}, "score has 1 dimensions, not 2"),
        ({"score": np.full((6, 6), math.nan)}, r"score\[0, 0\] is nan"),
    ],
)
def test_bad_parameters_are_refused_with_their_values(card, options, message):
    with pytest.raises(ValueError, match=message):
        align_batch(GOOD, GOOD, device=card, **options)
    with pytest.raises(TypeError, match="match must be a number, not '1'"):
        align_batch(GOOD, GOOD, device=card, match="1")
