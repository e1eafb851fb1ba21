"""The alignment kernel against its naive twins: alignments are scored again rather than compared column by column."""

from __future__ import annotations

import ctypes
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrace import _core
from pytrace.kernels import alignment
from pytrace.kernels.alignment import Ragged, align_batch, alignment_score, edit_distance, needleman_wunsch
from tests import oracles
from tests.alignment_checks import BAD_BATCHES, GOOD, MISTYPED_BATCHES, equality, ragged
from tests.gil import leaves_others_running

C_SCORE = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_int32, ctypes.c_int32)

symbols = st.lists(st.integers(0, 3), max_size=14)
tiny = st.lists(st.integers(0, 2), max_size=4)
whole_scores = st.integers(-4, 4)
quarter_scores = st.integers(-9, 9).map(lambda x: x / 4)


def columns_of(found: alignment.Alignment) -> list[tuple[int, int]]:
    return list(zip(found.a_indices.tolist(), found.b_indices.tolist(), strict=True))


def assert_sound(found: alignment.Alignment, a: list[Any], b: list[Any]) -> None:
    """Every symbol stands once and in order, blanks never face each other, and the counts are right."""
    columns = columns_of(found)
    assert [i for i, _ in columns if i >= 0] == list(range(len(a)))
    assert [j for _, j in columns if j >= 0] == list(range(len(b)))
    assert (-1, -1) not in columns
    assert found.a == [None if i < 0 else a[i] for i, _ in columns]
    assert found.b == [None if j < 0 else b[j] for _, j in columns]
    assert found.matches == sum(i >= 0 and j >= 0 and a[i] == b[j] for i, j in columns)
    assert found.identity == (found.matches / len(columns) if columns else 1.0)


def random_pair(n: int, m: int, seed: int, kinds: int = 4) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    a = random.integers(0, kinds, n).astype(np.int32)
    b = random.integers(0, kinds, m).astype(np.int32)
    shared = min(n, m) // 2
    b[:shared] = a[:shared]
    return a, b


@given(tiny, tiny, quarter_scores, quarter_scores, quarter_scores, st.integers(0, 8))
def test_no_alignment_scores_better_than_the_one_returned(a, b, match, mismatch, gap, opening):
    gap_open = gap - opening / 4
    pair = equality(a, b, match, mismatch)
    found = needleman_wunsch(a, b, match=match, mismatch=mismatch, gap=gap, gap_open=gap_open)
    assert_sound(found, a, b)
    best = max(oracles.score_columns(c, pair, gap, gap_open) for c in oracles.all_alignments(len(a), len(b)))
    assert found.score == best == oracles.score_columns(columns_of(found), pair, gap, gap_open)


@given(tiny, tiny, whole_scores, whole_scores, whole_scores)
def test_ties_fall_diagonal_then_up_then_left_from_the_end(a, b, match, mismatch, gap):
    pair = equality(a, b, match, mismatch)
    found = needleman_wunsch(a, b, match=match, mismatch=mismatch, gap=gap)
    ranked = [
        [0 if i >= 0 and j >= 0 else 1 if i >= 0 else 2 for i, j in reversed(columns)]
        for columns in oracles.all_alignments(len(a), len(b))
        if oracles.score_columns(columns, pair, gap, gap) == found.score
    ]
    steps = [0 if i >= 0 and j >= 0 else 1 if i >= 0 else 2 for i, j in reversed(columns_of(found))]
    assert steps == min(ranked)


@given(symbols, symbols, whole_scores, whole_scores, whole_scores, st.integers(0, 3), st.booleans())
def test_longer_sequences_score_as_the_naive_twin(a, b, match, mismatch, gap, opening, fractional):
    scale = 0.3 if fractional else 1.0
    match, mismatch, gap, gap_open = match * scale, mismatch * scale, gap * scale, (gap - opening) * scale
    pair = equality(a, b, match, mismatch)
    options = {"match": match, "mismatch": mismatch, "gap": gap, "gap_open": gap_open}
    found = needleman_wunsch(a, b, **options)
    assert_sound(found, a, b)
    expected = oracles.best_alignment_score(len(a), len(b), pair, gap, gap_open)
    assert found.score == pytest.approx(expected, abs=1e-9)
    assert oracles.score_columns(columns_of(found), pair, gap, gap_open) == pytest.approx(expected, abs=1e-9)
    assert alignment_score(a, b, **options) == found.score


LENGTHS = [1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 65, 100]


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize(("gap", "gap_open"), [(-1, -1), (-2, -2), (-1, -3), (0, -2), (1, 1)])
def test_vectors_agree_with_rows_in_double_around_the_lane_counts(isa, n, gap, gap_open):
    """A change of one tiny fraction moves the work from whole-number vectors to double rows, and no result."""
    for m in (3, n - 1, n, n + 1, 40):
        a, b = random_pair(n, m, seed=n * 101 + m)
        whole = needleman_wunsch(a, b, match=2, mismatch=-1, gap=gap, gap_open=gap_open)
        matrix = np.where(a[:, None] == b[None, :], 2.0, -1.0)
        rows = needleman_wunsch(a, b, gap=gap, gap_open=gap_open, score=matrix)
        assert whole.score == rows.score, (isa, n, m)
        assert columns_of(whole) == columns_of(rows), (isa, n, m)
        assert alignment_score(a, b, match=2, mismatch=-1, gap=gap, gap_open=gap_open) == rows.score


@pytest.mark.parametrize("largest", [100, 5_000, 200_000, 999_999])
def test_every_width_of_whole_numbers_is_exact(isa, largest):
    a, b = random_pair(60, 70, seed=largest)
    for gap, gap_open in ((-largest, -largest), (-1, -largest), (-largest + 1, -largest)):
        options = {"match": largest, "mismatch": -largest, "gap": gap, "gap_open": gap_open}
        pair = equality(a.tolist(), b.tolist(), largest, -largest)
        found = needleman_wunsch(a, b, **options)
        assert found.score == oracles.best_alignment_score(60, 70, pair, gap, gap_open), isa
        assert oracles.score_columns(columns_of(found), pair, gap, gap_open) == found.score
        assert alignment_score(a, b, **options) == found.score


@given(symbols, symbols, quarter_scores, st.integers(0, 6), st.sampled_from([0, 50, 200, 900]))
def test_divide_and_conquer_finds_the_very_same_alignment(a, b, gap, opening, trace_bytes):
    random = np.random.default_rng(len(a) * 31 + len(b))
    for matrix in (random.normal(size=(len(a), len(b))), random.integers(-1, 2, size=(len(a), len(b)))):
        options = {"gap": gap, "gap_open": gap - opening / 4, "score": matrix}
        kept = needleman_wunsch(a, b, **options)
        divided = needleman_wunsch(a, b, trace_bytes=trace_bytes, **options)
        assert divided.score == kept.score
        assert columns_of(divided) == columns_of(kept)


@pytest.mark.parametrize("gap_open", [-1, -2.5])
def test_divide_and_conquer_of_a_larger_problem_equals_the_whole_table(gap_open):
    a, b = random_pair(700, 450, seed=5, kinds=3)
    kept = needleman_wunsch(a, b, gap_open=gap_open)
    divided = needleman_wunsch(a, b, gap_open=gap_open, trace_bytes=10_000)
    assert divided.score == kept.score == alignment_score(a, b, gap_open=gap_open)
    assert columns_of(divided) == columns_of(kept)


def test_a_matrix_may_forbid_pairs():
    forbidden = np.full((3, 3), -math.inf)
    found = needleman_wunsch("abc", "abc", score=forbidden)
    assert found.score == -6
    assert found.matches == 0
    assert needleman_wunsch("abc", "abc", score=forbidden, trace_bytes=0).a == found.a


def test_a_c_function_scores_as_the_matrix_of_its_values():
    @C_SCORE
    def near(x: int, y: int) -> float:
        return 1.0 - abs(x - y) / 2

    a, b = random_pair(37, 52, seed=3, kinds=7)
    matrix = 1.0 - np.abs(a[:, None].astype(float) - b[None, :]) / 2
    expected = needleman_wunsch(a, b, gap=-0.7, score=matrix)

    class Compiled:
        address = ctypes.cast(near, ctypes.c_void_p).value

    for score in (near, Compiled()):
        for trace_bytes in (0, 1000, alignment.TRACE_BYTES):
            found = needleman_wunsch(a, b, gap=-0.7, score=score, trace_bytes=trace_bytes)
            assert columns_of(found) == columns_of(expected)
            assert found.score == expected.score
        assert needleman_wunsch(a.tolist(), b.tolist(), gap=-0.7, score=score).score == expected.score
        assert alignment_score(a, b, gap=-0.7, score=score) == expected.score


@pytest.mark.parametrize("trace_bytes", [0, alignment.TRACE_BYTES])
@pytest.mark.parametrize("gap_open", [-1, -2])
def test_a_score_function_that_changes_its_mind_still_yields_an_alignment(trace_bytes, gap_open):
    answers = np.random.default_rng(0)

    @C_SCORE
    def fickle(_x: int, _y: int) -> float:
        return float(answers.normal())

    a, b = list(range(30)), list(range(5, 45))
    found = needleman_wunsch(a, b, gap_open=gap_open, score=fickle, trace_bytes=trace_bytes)
    assert_sound(found, a, b)


def test_a_score_function_that_returns_nan_is_reported_with_its_symbols():
    function = C_SCORE(lambda x, y: math.nan if (x, y) == (3, 5) else 0.0)
    with pytest.raises(ValueError, match=r"score\(3, 5\) returned"):
        needleman_wunsch([1, 3], [5, 6], score=function)
    values = np.array([3], dtype=np.int32)
    with pytest.raises(ValueError, match=r"score\(3, 5\) returned"):
        align_batch(Ragged(values, np.array([0, 1])), Ragged(values + 2, np.array([0, 1])), score=function)


@given(st.lists(st.integers(0, 5), max_size=150), st.lists(st.integers(0, 5), max_size=150))
def test_edit_distance_is_the_textbook_table(a, b):
    assert edit_distance(a, b) == oracles.levenshtein(a, b)


@pytest.mark.parametrize("n", [1, 63, 64, 65, 127, 128, 129, 200])
def test_edit_distance_across_blocks(n):
    for m in (1, 64, n, n + 70):
        a, b = random_pair(n, m, seed=n + m)
        b = b[::-1].copy()
        expected = oracles.levenshtein(a.tolist(), b.tolist())
        assert edit_distance(a, b) == edit_distance(b, a) == expected
        assert -alignment_score(a, b, match=0) == expected


def test_symbols_may_be_anything_hashable():
    assert edit_distance("kitten", "sitting") == 3
    assert edit_distance("", "") == 0
    assert edit_distance("\ud800x", "x\udfff") == 2
    assert edit_distance([("a", 1), frozenset("b"), None, 2.5], (("a", 1), frozenset("b"), 2.5)) == 1
    assert needleman_wunsch([1, True, "1"], [1.0]).matches == 1
    wide = np.array([2**40, -(2**50), 7])
    assert needleman_wunsch(wide, wide[1:]).a == wide.tolist()
    assert edit_distance(wide, wide[::-1]) == 2
    assert edit_distance(np.array([2**64 - 1], dtype=np.uint64), np.array([-1])) == 1
    assert edit_distance(np.array(["a", "b"]), ["a", "b"]) == 0


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int32, np.int64, np.uint64])
def test_integer_arrays_of_any_kind_and_stride_are_read(dtype):
    a, b = random_pair(40, 50, seed=8)
    expected = needleman_wunsch(a.tolist(), b.tolist())
    for x, y in (
        (a.astype(dtype), b.astype(dtype)),
        (np.repeat(a.astype(dtype), 2)[::2], b.astype(dtype)[::-1].copy()[::-1]),
        (a.astype(dtype), b.astype(np.int64).astype(">i8")),
    ):
        found = needleman_wunsch(x, y)
        assert (found.score, found.a) == (expected.score, expected.a)


def test_a_score_matrix_of_any_type_and_stride_is_read():
    random = np.random.default_rng(1)
    matrix = random.integers(-3, 4, size=(5, 6))
    expected = needleman_wunsch("abcde", "abcdef", score=matrix.astype(float))
    wide = np.repeat(matrix, 2, axis=1)[:, ::2]
    for same in (matrix, matrix.astype(np.float32), np.asfortranarray(matrix), wide, matrix[::-1].copy()[::-1]):
        assert needleman_wunsch("abcde", "abcdef", score=same).score == expected.score
    assert needleman_wunsch([], [], score=np.zeros((0, 0))).score == 0
    assert needleman_wunsch([], "ab", score=np.zeros((0, 2))).score == -2


def test_the_blank_may_be_chosen():
    assert needleman_wunsch("ab", "b", blank="-").b == ["-", "b"]


# Batches.


paths = st.lists(st.lists(st.integers(0, 4), max_size=7), max_size=6)


@given(st.lists(st.tuples(st.lists(st.integers(0, 4), max_size=7), paths), max_size=8), st.sampled_from([-1, -2.5]))
def test_a_batch_keeps_the_best_reference_of_every_candidate(questions, gap_open):
    candidates = [candidate for candidate, _ in questions]
    references = [reference for _, group in questions for reference in group]
    groups = np.cumsum([0, *(len(group) for _, group in questions)])
    found = align_batch(ragged(candidates), ragged(references), groups, gap_open=gap_open, steps=True)
    listed = align_batch(candidates, references, groups, gap_open=gap_open)
    for i, (candidate, group) in enumerate(questions):
        assert listed.best[i] == found.best[i]
        assert listed.scores[i] == found.scores[i]
        columns = list(
            zip(
                found.candidate_steps[found.offsets[i] : found.offsets[i + 1]].tolist(),
                found.reference_steps[found.offsets[i] : found.offsets[i + 1]].tolist(),
                strict=True,
            )
        )
        assert len(columns) == found.lengths[i]
        if not group:
            assert (found.best[i], found.scores[i], found.matches[i]) == (-1, -math.inf, 0)
            assert found.identity[i] == 0
            continue
        alone = [needleman_wunsch(candidate, reference, gap_open=gap_open) for reference in group]
        best = max(range(len(group)), key=lambda k: alone[k].score)  # the first of equals
        assert found.best[i] == groups[i] + best
        assert found.scores[i] == alone[best].score
        assert found.matches[i] == alone[best].matches
        assert found.identity[i] == alone[best].identity
        assert columns == columns_of(alone[best])


def test_a_batch_is_the_same_on_every_instruction_set_and_thread_count(isa):
    random = np.random.default_rng(2)
    lengths = random.integers(0, 60, 300)
    candidates = [random.integers(0, 5, n).tolist() for n in lengths]
    references = [random.integers(0, 5, max(0, n + d)).tolist() for n in lengths for d in (-2, 0, 3)]
    groups = np.arange(301) * 3
    expected = align_batch(ragged(candidates), ragged(references), groups, gap=-0.999999, threads=1)
    whole = align_batch(ragged(candidates), ragged(references), groups, steps=True, threads=1)
    assert np.allclose(whole.scores, expected.scores, atol=1e-3), isa
    for threads in (2, 3, 8):
        again = align_batch(ragged(candidates), ragged(references), groups, steps=True, threads=threads)
        for field in ("best", "scores", "matches", "lengths", "candidate_steps", "reference_steps", "offsets"):
            assert np.array_equal(getattr(again, field), getattr(whole, field)), (isa, threads, field)


def test_a_batch_reads_a_matrix_by_symbol_and_a_c_function_from_every_thread():
    random = np.random.default_rng(4)
    similarity = random.normal(size=(20, 30))
    candidates = [random.integers(0, 20, 5).tolist() for _ in range(200)]
    references = [random.integers(0, 30, 6).tolist() for _ in range(400)]
    groups = np.arange(201) * 2
    by_matrix = align_batch(ragged(candidates), ragged(references), groups, gap=-0.5, score=similarity)
    function = C_SCORE(lambda x, y: float(similarity[x, y]))
    by_function = align_batch(ragged(candidates), ragged(references), groups, gap=-0.5, score=function, threads=2)
    assert np.array_equal(by_matrix.best, by_function.best)
    assert np.array_equal(by_matrix.scores, by_function.scores)
    for i in (0, 77, 199):
        pair = needleman_wunsch(
            candidates[i],
            references[by_matrix.best[i]],
            gap=-0.5,
            score=similarity[np.ix_(candidates[i], references[by_matrix.best[i]])],
        )
        assert pair.score == by_matrix.scores[i]


class Word(str):
    """A string by another name, equal to it."""


TEXTS = [
    "",
    "a",
    "b",
    "é",
    "б",
    "😀",
    "\ud800",
    "\x00",
    "a\x00",
    "relation 1",
    "relation 2",
    "a" * 8,
    "a" * 9,
    "б" * 40,
]
MIXED = [*TEXTS, Word("a"), Word("relation 1"), 1, 1.0, True, None, ("a", 1), b"a", frozenset("a")]


@pytest.mark.parametrize("symbols", [TEXTS, MIXED], ids=["strings", "mixed"])
def test_symbols_are_numbered_as_a_dictionary_would(symbols):
    """Lists of strings have a way of their own, which must tell apart and take for one what Python does."""
    random = np.random.default_rng(5)

    def paths(count):
        drawn = [random.integers(0, len(symbols), random.integers(0, 12)) for _ in range(count)]
        # Each string anew, so that none is found by its address.
        return [[eval(repr(s)) if type(s) is str else s for s in (symbols[i] for i in path)] for path in drawn]

    candidates, references = paths(60), [*paths(59), "aбé😀"]
    table: dict[object, int] = {}
    numbers = [[[table.setdefault(s, len(table)) for s in path] for path in side] for side in (candidates, references)]
    expected = align_batch(*map(ragged, numbers))
    for sides in ((candidates, references), (tuple(map(tuple, candidates)), references)):
        found = align_batch(*sides)
        assert np.array_equal(found.scores, expected.scores)
        assert np.array_equal(found.matches, expected.matches)
    for candidate, reference, matches in zip(candidates, references, expected.matches.tolist(), strict=True):
        assert needleman_wunsch(candidate, reference).matches == matches


def test_many_different_strings_are_told_apart():
    words = [f"relation {number}" for number in range(5000)]
    assert edit_distance(words, [*words[1:], words[0]]) == 2
    others = [f"relation {number}" for number in range(5000)]
    assert align_batch([words], [others]).matches.tolist() == [5000]
    # The same objects again and equal ones, more than are remembered by where they are.
    assert align_batch([words, words, others], [words, others + words, words]).matches.tolist() == [5000] * 3


def test_a_batch_is_iterated_candidate_by_candidate():
    paths, gold = [["a", "b"], ["c"], [], []], [["a", "x", "b"], ["b"], ["d"], ["e"]]
    found = align_batch(paths, gold, [0, 2, 3, 4, 4], match=0, steps=True)
    assert len(found) == 4
    rows = list(found)
    assert [row[:5] for row in rows] == [
        (0, -1.0, 2, 3, 2 / 3), (2, -1.0, 0, 1, 0.0), (3, -1.0, 0, 1, 0.0), (-1, -np.inf, 0, 0, 0.0)
    ]  # fmt: skip
    assert [type(value) for value in rows[0][:5]] == [int, float, int, int, float]
    assert [row.candidate_steps.tolist() for row in rows] == [[0, -1, 1], [0], [-1], []]
    assert [row.reference_steps.tolist() for row in rows] == [[0, 1, 2], [0], [0], []]
    alone = list(align_batch(paths, gold, [0, 2, 3, 4, 4], match=0))
    assert [row[:5] for row in alone] == [row[:5] for row in rows]
    assert {row[5:] for row in alone} == {(None, None)}
    for empty in (align_batch([], []), align_batch([], [], steps=True)):
        assert len(empty) == 0
        assert list(empty) == []


def test_a_batch_without_groups_aligns_pair_by_pair():
    found = align_batch(["ab", "", "xyz"], ["abc", "", "y"], match=0)
    assert found.scores.tolist() == [-1, 0, -2]
    assert found.identity.tolist() == [2 / 3, 1, 1 / 3]
    assert align_batch([], []).best.shape == (0,)
    wide = np.array([2**40, 5])
    one = np.array([0, 2])
    assert align_batch(Ragged(wide, one), Ragged(wide[::-1], one)).matches.tolist() == [1]
    assert align_batch(Ragged(wide, one), Ragged(wide.astype(np.uint64), one)).matches.tolist() == [2]


def test_the_gil_is_released_while_a_long_alignment_runs():
    a, b = random_pair(6000, 6000, seed=1)
    assert leaves_others_running(lambda: needleman_wunsch(a, b, gap=-1.25))


# Misuse.


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"match": math.nan}, "match is nan"),
        ({"mismatch": math.inf}, "mismatch is inf"),
        ({"gap": -1e200}, "gap is -1"),
        ({"gap": -2, "gap_open": -1}, r"gap_open \(-1.* is above gap \(-2"),
        ({"score": np.zeros((3, 2))}, r"score has shape \(3, 2\), but the sequences have lengths 2 and 3"),
        ({"score": np.zeros(3)}, "score has 1 dimensions, not 2"),
        ({"score": np.array([[0, 0, math.nan], [0, 0, 0]])}, r"score\[0, 2\] is nan"),
        ({"score": np.array([[0, 0, 0], [0, math.inf, 0]])}, r"score\[1, 1\] is inf"),
        ({"trace_bytes": -1}, "trace_bytes is -1"),
    ],
)
def test_bad_parameters_are_refused_with_their_values(options, message):
    with pytest.raises(ValueError, match=message):
        needleman_wunsch("ab", "abc", **options)


@pytest.mark.parametrize(
    ("a", "options", "message"),
    [
        ([["x"]], {}, "symbol 0 of a is a list, which is not hashable"),
        (7, {}, "a must be a sequence"),
        ({1, 2}, {}, "a must be a sequence"),
        ("ab", {"match": "1"}, "match must be a number"),
        ("ab", {"gap": None}, "gap must be a number"),
        ("ab", {"score": max}, "not a Python function"),
        ("ab", {"score": "similar"}, "score must be an array of numbers"),
        ("ab", {"score": C_SCORE(lambda _x, _y: 0.0)}, "symbol 0 of a is no 32-bit integer"),
        ([2**40], {"score": C_SCORE(lambda _x, _y: 0.0)}, "symbol 0 of a is no 32-bit integer"),
        ([1], {"score": ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_int32)(lambda _x: 0.0)}, "two int32"),
    ],
)
def test_bad_symbols_and_scores_are_refused(a, options, message):
    with pytest.raises(TypeError, match=message):
        needleman_wunsch(a, [1, 2], **options)


def test_a_null_function_and_a_matrix_of_sequences_are_refused():
    class Null:
        address = 0

    with pytest.raises(ValueError, match="which is no function"):
        needleman_wunsch([1], [2], score=Null())
    with pytest.raises(ValueError, match="a has 2 dimensions, not 1"):
        needleman_wunsch(np.zeros((2, 2), dtype=int), [1])
    with pytest.raises(ValueError, match="fit in 32 bits"):
        needleman_wunsch(np.array([2**40]), np.array([1]), score=C_SCORE(lambda _x, _y: 0.0))


def test_a_symbol_whose_hash_raises_passes_its_own_error_on():
    class Broken:
        def __hash__(self) -> int:
            raise RuntimeError("no hash today")

    with pytest.raises(RuntimeError, match="no hash today"):
        edit_distance([Broken()], [1])


def test_a_symbol_that_shrinks_its_sequence_does_no_harm():
    class Hostile:
        def __hash__(self) -> int:
            victim.clear()
            return 1

    victim: list[object] = [1, Hostile(), 3, 4]
    with pytest.raises(ValueError, match="changed its length"):
        needleman_wunsch(victim, [1, 2, 3])


@pytest.mark.parametrize(("candidates", "groups", "options", "message"), BAD_BATCHES)
def test_a_bad_batch_is_refused_with_its_numbers(candidates, groups, options, message):
    with pytest.raises(ValueError, match=message):
        align_batch(candidates, GOOD, groups, **options)


@pytest.mark.parametrize(("candidates", "options", "message"), MISTYPED_BATCHES)
def test_a_batch_of_the_wrong_type_is_refused(candidates, options, message):
    with pytest.raises(TypeError, match=message):
        align_batch(candidates, GOOD, **options)


def test_an_unhashable_step_in_a_batch_is_named():
    with pytest.raises(TypeError, match="symbol 1 of path 2 is a dict"):
        align_batch([[1], [], [2, {}]], [[1], [], []])
    with pytest.raises(TypeError, match="path 1 must be a sequence"):
        align_batch([[1], 5], [[1], []])
    with pytest.raises(TypeError, match="must be Ragged integer arrays"):
        align_batch([[1]], [[1]], score=np.zeros((2, 2)))


def test_the_core_is_told_about_no_instruction_set_that_is_missing():
    with pytest.raises(ValueError, match="choose one of"):
        _core.set_active_isa("mmx")


def test_a_score_matrix_may_lie_at_any_address():
    matrix = np.array([[2.0, -1.0], [-3.0, 4.0]])
    shifted = np.zeros(matrix.nbytes + 1, dtype=np.uint8)[1:].view(np.float64).reshape(2, 2)
    shifted[:] = matrix
    assert not shifted.flags.aligned
    assert alignment_score([0, 1], [0, 1], score=shifted) == alignment_score([0, 1], [0, 1], score=matrix) == 6.0
