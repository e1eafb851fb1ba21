"""The covers against an exhaustive twin, an independent integer program, and the paper's algorithm line by line."""

from __future__ import annotations

import math
import signal
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import Bounds, LinearConstraint, milp

from pytrace.kernels.set_cover import (
    Cover,
    ScopeCover,
    greedy_cover,
    greedy_covers,
    minimum_cover,
    minimum_covers,
    scope_cover,
    scope_covers,
)
from tests import oracles
from tests.gil import leaves_others_running

small_sets = st.lists(st.frozensets(st.integers(0, 6), max_size=5), max_size=9)
kinds_of_weight = st.sampled_from(["one", "whole", "even", "zero", "real"])


def weights_of(kind: str, count: int, seed: int = 0) -> np.ndarray | None:
    random = np.random.default_rng(seed)
    if kind == "one":
        return None
    if kind == "real":
        return random.random(count)
    whole = random.integers(1, 9, count).astype(float)
    return whole * 2 if kind == "even" else whole - 1 if kind == "zero" else whole


def wide(matrix: np.ndarray) -> np.ndarray:
    """The same problem with every feature many times, so that it leaves the search for single words."""
    return np.tile(matrix, (1, 65))


def assert_covers(cover: Cover, matrix: np.ndarray, weights: np.ndarray | None) -> None:
    """The chosen sets cover all that can be covered, and weight and bound say so."""
    everything = matrix.any(axis=0)
    covered = matrix[list(cover.sets)].any(axis=0) if cover.sets else np.zeros_like(everything)
    assert np.array_equal(covered, everything)
    assert cover.uncovered == tuple(np.flatnonzero(~everything).tolist())
    each = np.ones(len(matrix)) if weights is None else weights
    assert cover.weight == pytest.approx(float(each[list(cover.sets)].sum()))
    assert 0 <= cover.bound <= cover.weight
    assert cover.optimal == (cover.bound == cover.weight)
    assert len(set(cover.sets)) == len(cover.sets)


def solve_by_milp(matrix: np.ndarray, weights: np.ndarray | None) -> float:
    """Solve the same problem with HiGHS."""
    coverable = matrix[:, matrix.any(axis=0)].T.astype(float)
    if not coverable.size:
        return 0.0
    each = np.ones(len(matrix)) if weights is None else weights
    answer = milp(
        each,
        constraints=LinearConstraint(coverable, lb=1),
        integrality=np.ones(len(matrix)),
        bounds=Bounds(0, 1),
        options={"mip_rel_gap": 0},
    )
    return float(answer.fun)


@settings(max_examples=150)
@given(small_sets, kinds_of_weight)
def test_no_choice_of_sets_is_lighter_than_the_minimum_cover(sets, kind):
    weights = weights_of(kind, len(sets), len(sets))
    cover = minimum_cover(sets, weights=weights)
    each = [1.0] * len(sets) if weights is None else weights.tolist()
    assert cover.optimal
    assert cover.weight == pytest.approx(oracles.least_cover(sets, each))
    copied = minimum_cover([[(f, copy) for f in members for copy in range(65)] for members in sets], weights=weights)
    assert copied.optimal
    assert copied.weight == pytest.approx(cover.weight)
    assert frozenset().union(*(sets[s] for s in cover.sets)) == frozenset().union(*sets)
    assert cover.sets == tuple(sorted(set(cover.sets)))


@given(small_sets, kinds_of_weight)
def test_the_greedy_cover_takes_the_cheapest_set_again_and_again(sets, kind):
    weights = weights_of(kind, len(sets), 3)
    cover = greedy_cover(sets, weights=weights)
    each = [1.0] * len(sets) if weights is None else weights.tolist()
    assert list(cover.sets) == oracles.greedy_choice(sets, each)
    assert cover.bound <= oracles.least_cover(sets, each) + 1e-9
    assert not cover.optimal or cover.weight == pytest.approx(oracles.least_cover(sets, each))


@pytest.mark.parametrize("kind", ["one", "whole", "real"])
def test_a_greedy_cover_of_many_sets_is_the_naive_one_too(kind):
    random = np.random.default_rng(9)
    sets = [frozenset(random.choice(200, random.integers(0, 9)).tolist()) for _ in range(300)]
    weights = weights_of(kind, 300)
    each = [1.0] * 300 if weights is None else weights.tolist()
    assert list(greedy_cover(sets, weights=weights).sets) == oracles.greedy_choice(sets, each)


@pytest.mark.parametrize("kind", ["one", "whole", "even", "zero", "real"])
def test_minimum_covers_weigh_what_an_independent_integer_program_finds(kind):
    random = np.random.default_rng(11)
    for number in range(60):
        shape = (int(random.integers(1, 31)), int(random.integers(1, 17)))
        matrix = random.random(shape) < random.uniform(0.05, 0.5)
        weights = weights_of(kind, shape[0], number)
        cover = minimum_cover(matrix, weights=weights)
        assert cover.optimal
        assert_covers(cover, matrix, weights)
        assert cover.weight == pytest.approx(solve_by_milp(matrix, weights), abs=1e-6), (number, shape)
        copied = minimum_cover(wide(matrix), weights=weights)
        assert copied.optimal
        assert_covers(copied, wide(matrix), weights)
        assert copied.weight == pytest.approx(cover.weight), (number, shape)


@pytest.mark.parametrize("features", [63, 64, 65, 128, 130])
def test_universes_that_straddle_words_are_covered_exactly(features):
    for sets in (20, 64, 65):
        matrix = np.random.default_rng(features + sets).random((sets, features)) < 0.12
        weights = weights_of("whole", sets)
        cover = minimum_cover(matrix, weights=weights)
        assert cover.optimal
        assert_covers(cover, matrix, weights)
        assert cover.weight == pytest.approx(solve_by_milp(matrix, weights), abs=1e-6)


@pytest.mark.parametrize("sets", [63, 64, 65])
def test_a_problem_too_hard_for_the_search_by_single_words_goes_on_in_the_full_one(sets):
    matrix = np.random.default_rng(sets).random((sets, 64)) < 0.1
    for kind in ("one", "real"):
        weights = weights_of(kind, sets)
        cover = minimum_cover(matrix, weights=weights)
        assert_covers(cover, matrix, weights)
        assert cover.optimal
        assert cover.weight == pytest.approx(solve_by_milp(matrix, weights), abs=1e-6)


def test_weights_near_the_limit_are_summed_without_harm():
    weights = np.array([1e15, 1e15 - 1, 1e15, 3])
    cover = minimum_cover([{1, 2}, {1, 2}, {1}, {3}], weights=weights)
    assert cover.sets == (1, 3)
    assert cover.weight == 1e15 + 2


def test_a_hard_problem_is_proved():
    matrix = np.random.default_rng(0).random((100, 64)) < 0.08
    cover = minimum_cover(matrix)
    assert_covers(cover, matrix, None)
    assert (cover.optimal, cover.weight) == (True, 13)  # 13 by HiGHS too


def steiner_triples(size: int) -> list[tuple[int, ...]]:
    """Blocks of the Steiner triple system on 3 ** size points, whose covering problems are notoriously hard."""
    points = [tuple(int(d) for d in np.base_repr(p, 3).zfill(size)) for p in range(3**size)]
    index = {point: p for p, point in enumerate(points)}
    blocks = set()
    for x in range(len(points)):
        for y in range(x):
            third = tuple((-a - b) % 3 for a, b in zip(points[x], points[y], strict=True))
            blocks.add(tuple(sorted({x, y, index[third]})))
    return sorted(blocks)


def test_the_steiner_triple_problem_of_27_points_has_its_known_minimum():
    blocks = steiner_triples(3)
    assert len(blocks) == 117
    cover = minimum_cover([[b for b, block in enumerate(blocks) if point in block] for point in range(27)])
    assert (cover.weight, cover.optimal) == (18, True)


@pytest.mark.parametrize("seconds", [0, 0.2])
def test_a_time_limit_gives_the_best_found_with_a_bound_that_holds(seconds):
    blocks = steiner_triples(4)  # 81 points, minimum 61 (known since 2010 only)
    matrix = np.zeros((81, len(blocks)), dtype=bool)
    for b, block in enumerate(blocks):
        matrix[list(block), b] = True
    start = time.monotonic()
    cover = minimum_cover(matrix, time_limit=seconds)
    assert time.monotonic() - start < seconds + 20  # a loaded machine is slow; no limit would take hours
    assert_covers(cover, matrix, None)
    assert not cover.optimal
    assert cover.bound <= 61 <= cover.weight
    assert cover.bound == math.ceil(cover.bound)


def test_large_sparse_problems_respect_the_time_limit():
    random = np.random.default_rng(1)
    sets = [random.choice(2000, 12, replace=False).tolist() for _ in range(3000)]
    start = time.monotonic()
    cover = minimum_cover(sets, time_limit=0.5)
    assert time.monotonic() - start < 30
    assert set().union(*(sets[s] for s in cover.sets)) == set().union(*map(set, sets))
    assert 2000 * 0.9 / 12 <= cover.bound <= cover.weight <= greedy_cover(sets).weight


def test_features_that_nobody_has_are_reported_and_others_ignored():
    cover = minimum_cover([{"a", "x"}, {"b"}, set()], ["a", "b", "c", "a"])
    assert (cover.sets, cover.uncovered, cover.weight, cover.optimal) == ((0, 1), ("c",), 2, True)
    assert greedy_cover([], ["a", "b"]) == Cover((), 0, True, 0, ("a", "b"))
    assert minimum_cover([], []) == Cover((), 0, True, 0, ())
    assert minimum_cover(np.zeros((3, 2), dtype=bool)).uncovered == (0, 1)
    assert minimum_cover(np.zeros((0, 2), dtype=bool)).uncovered == (0, 1)
    assert minimum_cover(np.zeros((3, 0), dtype=bool)).sets == ()
    assert minimum_cover([{1}, {1}], {1}, weights=[0, 0]).weight == 0


def test_matrices_of_any_layout_and_collections_of_any_kind_are_read():
    matrix = np.random.default_rng(2).random((12, 9)) < 0.3
    expected = minimum_cover(matrix)
    strided = np.repeat(matrix, 2, axis=1)[:, ::2]
    for same in (
        np.asfortranarray(matrix),
        strided,
        matrix[::-1].copy()[::-1],
        matrix.astype(int),
        matrix.astype(float),
    ):
        assert minimum_cover(same) == expected
    listed = [np.flatnonzero(row).tolist() for row in matrix]
    for kind in (list, tuple, set, frozenset, dict.fromkeys):
        assert minimum_cover([kind(row) for row in listed], range(9)) == expected


@settings(max_examples=40)
@given(small_sets)
def test_earliest_takes_the_least_sum_of_indices_among_the_minimum_covers(sets):
    weights = weights_of("whole", len(sets), 5)
    cover = minimum_cover(sets, weights=weights, ties="earliest")
    ranked = [weight * 1000 + s for s, weight in enumerate(weights.tolist())]
    assert sum(ranked[s] for s in cover.sets) == pytest.approx(oracles.least_cover(sets, ranked))
    assert cover.weight == cover.bound == oracles.least_cover(sets, weights.tolist())
    assert cover.optimal


def test_earliest_under_a_time_limit_still_has_a_bound_that_holds():
    matrix = np.random.default_rng(5).random((90, 70)) < 0.06
    best = minimum_cover(matrix)
    cover = minimum_cover(matrix, ties="earliest", time_limit=0)
    assert cover.bound <= best.weight <= cover.weight


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_a_batch_gives_the_same_covers_on_any_number_of_threads(threads):
    random = np.random.default_rng(6)
    problems: list[Any] = [
        (random.random((int(random.integers(0, 40)), int(random.integers(0, 70)))) < 0.2, None) for _ in range(50)
    ]
    problems.append(([{"x"}, {"x", "y"}], list("xyz")))
    weights = [weights_of("whole", len(sets), i) if i % 2 else None for i, (sets, _) in enumerate(problems)]
    found = minimum_covers(problems, weights=weights, threads=threads)
    assert found == [minimum_cover(s, u, weights=w) for (s, u), w in zip(problems, weights, strict=True)]
    greedy = greedy_covers(problems, weights=weights, threads=threads)
    assert greedy == [greedy_cover(s, u, weights=w) for (s, u), w in zip(problems, weights, strict=True)]
    assert found[-1].uncovered == ("z",)
    assert minimum_covers([]) == []


def hard() -> np.ndarray:
    matrix = np.zeros((81, 1080), dtype=bool)
    for b, block in enumerate(steiner_triples(4)):
        matrix[list(block), b] = True
    return matrix


def test_the_gil_is_released_while_a_search_runs():
    problem = hard()
    assert leaves_others_running(lambda: minimum_cover(problem, time_limit=1.0))


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs an interval timer to send the signal")
def test_a_signal_interrupts_a_search_without_limit():
    class Struck(Exception):
        pass

    def strike(_number: int, _frame: object) -> None:
        raise Struck

    before = signal.signal(signal.SIGALRM, strike)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with pytest.raises(Struck):
            minimum_covers([(hard(), None), (hard(), None), (hard(), None)], threads=2)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# ScopeCoE.


@st.composite
def judged(draw: st.DrawFn) -> tuple[list[bool], list[list[bool]], list[list[bool]]]:
    snippets = draw(st.integers(0, 8))

    def table(width: int) -> list[list[bool]]:
        row = st.lists(st.booleans(), min_size=width, max_size=width)
        return draw(st.lists(row, min_size=snippets, max_size=snippets))

    intent = draw(st.lists(st.booleans(), min_size=snippets, max_size=snippets))
    return intent, table(draw(st.integers(0, 4))), table(draw(st.integers(0, 5)))


def as_arrays(question: tuple[Any, Any, Any]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    count = len(question[0])
    return (
        np.array(question[0], dtype=bool),
        np.array(question[1], dtype=bool).reshape(count, -1 if count else 0),
        np.array(question[2], dtype=bool).reshape(count, -1 if count else 0),
    )


@given(st.lists(judged(), max_size=6), st.sampled_from([1, 3]))
def test_scope_cover_is_the_papers_algorithm(questions, threads):
    arrays = [as_arrays(question) for question in questions]
    for question, found in zip(arrays, scope_covers(arrays, threads=threads), strict=True):
        intent, relations, nodes = question
        assert list(found.snippets) == oracles.three_phases(intent.tolist(), relations.tolist(), nodes.tolist())
        assert found.intent == bool(intent.any())
        assert found.uncovered_relations == tuple(np.flatnonzero(~relations.any(axis=0)).tolist())
        assert found.uncovered_nodes == tuple(np.flatnonzero(~nodes.any(axis=0)).tolist())
        assert found == scope_cover(*question)
        shorter = scope_cover(*question, recheck=True)
        assert len(shorter.snippets) <= len(found.snippets)
        covered = np.hstack([relations, nodes])[list(shorter.snippets)].any(axis=0)
        assert np.array_equal(covered, np.hstack([relations, nodes]).any(axis=0))


def test_scope_cover_takes_the_phases_in_order():
    found = scope_cover([0, 0, 1, 1], [[1, 1], [1, 0], [0, 0], [0, 0]], [[0, 0], [1, 0], [0, 0], [0, 0]])
    assert found == ScopeCover((2, 3, 0, 1), True, (), (1,))
    assert not found.complete
    assert scope_cover([1], [[1]], [[1]]).complete
    assert scope_cover([1, 0], np.zeros((2, 0)), np.zeros((2, 0))).complete


def test_a_relation_that_came_along_is_taken_twice_by_the_paper_and_once_with_recheck():
    relations = [[0, 1], [1, 1]]
    assert scope_cover([0, 0], relations, np.zeros((2, 0))).snippets == (1, 0)
    assert scope_cover([0, 0], relations, np.zeros((2, 0)), recheck=True).snippets == (1,)


# Misuse.


@pytest.mark.parametrize(
    ("sets", "options", "message"),
    [
        ([{1}, {2}], {"weights": [1]}, "there are 1 weights for 2 sets"),
        ([{1}, {2}], {"weights": [1, -2]}, "weight 1 is -2; weights must be between 0 and 1e15"),
        ([{1}, {2}], {"weights": [math.nan, 1]}, "weight 0 is nan"),
        ([{1}, {2}], {"weights": [math.inf, 1]}, "weight 0 is inf"),
        ([{1}, {2}], {"weights": [[1, 1]]}, "weights has 2 dimensions, not 1"),
        ([{1}], {"time_limit": -1}, "time_limit is -1"),
        ([{1}], {"time_limit": math.nan}, "time_limit is nan"),
        ([{1}], {"ties": "latest"}, "ties must be 'any' or 'earliest'"),
        ([{1}], {"ties": "earliest", "weights": [0.5]}, "needs whole-number weights"),
        ([{1}], {"ties": "earliest", "weights": [math.nan]}, "needs whole-number weights"),
        (np.ones(3, dtype=bool), {}, "sets has 1 dimensions, not 2"),
    ],
)
def test_bad_problems_are_refused_with_their_numbers(sets, options, message):
    with pytest.raises(ValueError, match=message):
        minimum_cover(sets, **options)


@pytest.mark.parametrize(
    ("sets", "universe", "message"),
    [
        ([{1}, "ab"], None, "set 1 must be a collection of hashable features, not str"),
        ([{1}, 7], None, "set 1 must be a collection of hashable features, not int"),
        ([[[1]]], None, "a feature of set 0 is a list, which is not hashable"),
        ([{1}], [{}], "a feature of universe is a dict"),
        ([{1}], 5, "universe must be a collection"),
        (5, None, "sets must be a collection"),
        (np.full((2, 2), 0.5), None, "sets must be yes or no"),
        (np.full((2, 2), math.nan), None, "sets must be yes or no"),
        (np.array([["a"]]), None, "sets must be yes or no"),
    ],
)
def test_sets_that_are_none_are_refused(sets, universe, message):
    with pytest.raises(TypeError, match=message):
        minimum_cover(sets, universe)


def test_misfits_in_a_batch_are_refused():
    with pytest.raises(ValueError, match="weights for 2 problems, but 1 problems"):
        minimum_covers([([{1}], None)], weights=[None, None])
    with pytest.raises(ValueError, match="threads must be at least 1, not 0"):
        minimum_covers([([{1}], None)], threads=0)
    with pytest.raises(ValueError, match="leave universe out"):
        minimum_cover(np.ones((2, 2), dtype=bool), [0])
    with pytest.raises(ValueError, match="question 1: intent judges 2 snippets, relations 3 and nodes 2"):
        scope_covers([([1], [[1]], [[1]]), ([1, 0], np.ones((3, 1)), np.ones((2, 1)))])
    with pytest.raises(ValueError, match="question 0: intent, relations and nodes have 1, 1 and 2 dimensions"):
        scope_cover([1], [1], [[1]])
    with pytest.raises(TypeError, match="question 0: nodes must be yes or no"):
        scope_cover([1], [[1]], [[0.7]])


def test_a_feature_whose_hash_raises_passes_its_own_error_on():
    class Broken:
        def __hash__(self) -> int:
            raise RuntimeError("no hash today")

    with pytest.raises(RuntimeError, match="no hash today"):
        minimum_cover([[Broken()]])


def test_more_bits_than_memory_should_hold_are_refused():
    with pytest.raises(ValueError, match="need more than 4 GiB of bits"):
        greedy_cover([()] * 600_000, range(64_000))
