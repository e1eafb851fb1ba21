"""Few sets that cover everything: greedy, exact minimum, and the three-phase search of ScopeCoE.

The sets are snippets and the universe the features of a question (its intent, relations and nodes) in ScopeCoE, but
any hashable features will do, or a boolean matrix. Features that nobody covers are reported, never an error. Bits in
the compiled core, without the GIL; many questions go in one call and run side by side.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterable, Sequence
from typing import Any, Literal, TypeAlias

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from pytrace import _core
from pytrace.kernels.devices import thread_limit

Sets: TypeAlias = Sequence[Collection[Hashable]] | NDArray[np.bool_]
Problem: TypeAlias = tuple[Sets, Collection[Hashable] | None]


class Cover(msgspec.Struct, frozen=True):
    """A choice of sets that covers every feature which can be covered.

    `sets` are indices: ascending for a minimum cover, in the order taken for a greedy one. No cover weighs less than
    `bound`, and if `optimal` is true none weighs less than `weight`. `uncovered` are the features that no set has
    (column numbers if the sets were a matrix).
    """

    sets: tuple[int, ...]
    weight: float
    optimal: bool
    bound: float
    uncovered: tuple[Any, ...]


class ScopeCover(msgspec.Struct, frozen=True):
    """The snippets that ScopeCoE keeps, in the order taken, and the features that no snippet has."""

    snippets: tuple[int, ...]
    intent: bool
    uncovered_relations: tuple[int, ...]
    uncovered_nodes: tuple[int, ...]

    @property
    def complete(self) -> bool:
        """Whether intent, all relations and all nodes are covered: the snippets form a chain of evidence."""
        return self.intent and not self.uncovered_relations and not self.uncovered_nodes


def greedy_cover(
    sets: Sets, universe: Collection[Hashable] | None = None, *, weights: ArrayLike | None = None
) -> Cover:
    """Take the set with the least weight per newly covered feature, until nothing more can be covered.

    Parameters
    ----------
    sets
        n collections of hashable features, or a boolean matrix [n, features].
    universe
        The features to cover; others in the sets do not count. Left out, all features of the sets (or all columns).
    weights
        float64 [n], each between 0 and 1e15; left out, every set weighs 1.

    Returns
    -------
    Cover
        `bound` is the weight over H(d), d the size of the largest set: the greedy cover's guarantee.

    Raises
    ------
    ValueError, TypeError
        Weights that do not fit the sets, are negative or not finite; a matrix that has not 2 dimensions; a set that is no
        collection (a string counts as none), or a feature that is not hashable.

    Notes
    -----
    Ties: the lower index. V. Chvátal, "A greedy heuristic for the set-covering problem", 1979.

    Examples
    --------
    >>> greedy_cover([{"a", "b"}, {"b", "c"}, {"c"}], ["a", "b", "c", "d"]).uncovered
    ('d',)
    """
    return _covers([(sets, universe)], [weights], exact=False, threads=1)[0]


def minimum_cover(
    sets: Sets,
    universe: Collection[Hashable] | None = None,
    *,
    weights: ArrayLike | None = None,
    ties: Literal["any", "earliest"] = "any",
    time_limit: float | None = None,
) -> Cover:
    """Find a cover of least weight, and prove that it is.

    Parameters
    ----------
    sets, universe, weights
        As in `greedy_cover`.
    ties
        Of the covers that weigh least, "any" one (always the same), or the "earliest": the one whose indices sum to the
        least, so that of equal snippets the better ranked wins. "earliest" needs whole-number weights.
    time_limit
        Seconds of search after which the best cover found so far is returned, with `optimal` false and a `bound` that
        holds; left out, the search ends with a proof. The answer is repeatable unless the limit strikes.

    Returns
    -------
    Cover
        With whole-number weights the proof is exact; with others, to within one part in 10^9.

    Raises
    ------
    ValueError, TypeError
        As in `greedy_cover`; a negative time limit; weights that are no whole numbers with ``ties="earliest"``.

    Notes
    -----
    Branch and bound: essential sets, dominated sets and dominated features are reduced at every node, the bound is
    Lagrangian with fixing by reduced costs (J. Beasley, "An algorithm for set covering problem", 1987). Exponential at
    worst; 30 sets of 16 features take microseconds. Ctrl-C interrupts it.

    Examples
    --------
    >>> minimum_cover([{1, 2, 3, 4}, {1, 3, 5}, {2, 4, 6}], range(1, 7)).sets
    (1, 2)
    """
    # "earliest" changes the weights and takes the way of many problems.
    if ties != "any":
        return minimum_covers([(sets, universe)], weights=[weights], ties=ties, time_limit=time_limit, threads=1)[0]
    # Not through _covers: its lists cost as much as the search among ten sets.
    seconds = _seconds(time_limit)
    return Cover(*_core.covers([(_sets(sets, universe), universe, weights)], True, seconds, 1)[0])


def greedy_covers(
    problems: Sequence[Problem],
    *,
    weights: Sequence[ArrayLike | None] | None = None,
    threads: int | None = None,
) -> list[Cover]:
    """Do `greedy_cover` for many problems of (sets, universe) in one call; the result does not depend on `threads`.

    Examples
    --------
    >>> [cover.sets for cover in greedy_covers([([{1}, {1, 2}], None), ([{3}], None)])]
    [(1,), (0,)]
    """
    return _covers(problems, weights, exact=False, threads=threads)


def minimum_covers(
    problems: Sequence[Problem],
    *,
    weights: Sequence[ArrayLike | None] | None = None,
    ties: Literal["any", "earliest"] = "any",
    time_limit: float | None = None,
    threads: int | None = None,
) -> list[Cover]:
    """Do `minimum_cover` for many problems of (sets, universe) in one call, side by side.

    Arguments, answers and errors are those of `minimum_cover` for each problem, `time_limit` too; unless it strikes, the
    result does not depend on `threads`.

    Examples
    --------
    >>> [cover.weight for cover in minimum_covers([([{1}, {1, 2}], None), ([{3}, {4}], None)])]
    [1.0, 2.0]
    """
    if ties not in {"any", "earliest"}:
        raise ValueError(f"ties must be 'any' or 'earliest', not {ties!r}")
    if ties == "any":
        return _covers(problems, weights, exact=True, time_limit=time_limit, threads=threads)
    return _earliest(problems, weights, time_limit, threads)


def scope_cover(intent: ArrayLike, relations: ArrayLike, nodes: ArrayLike, *, recheck: bool = False) -> ScopeCover:
    """Search for few snippets that hold a chain of evidence, in the paper's three phases.

    Every snippet that has the intent is taken; then for each relation not covered yet, the first snippet that has it;
    then the same for the nodes.

    Parameters
    ----------
    intent
        Boolean [n]: whether each snippet, by retrieval rank, has the intent.
    relations, nodes
        Boolean [n, r] and [n, k]: whether each snippet has each relation and node. Shapes [n, 0] and an empty list
        mean that there are none.
    recheck
        The paper lists what is uncovered once, at the beginning of a phase, so that a relation which came along with
        a snippet of the same phase still adds its own first snippet. True skips it: never more snippets.

    Returns
    -------
    ScopeCover
        Snippets in the order taken, and what no snippet has.

    Raises
    ------
    ValueError, TypeError
        Numbers of snippets or of dimensions that do not fit; judgements that are not yes or no (boolean, or 0 and 1).

    Notes
    -----
    "What External Knowledge is Preferred by LLMs? Characterizing and Exploring Chain of Evidence in Imperfect Context",
    section 8.1.2 and algorithm 1 (appendix E). For the fewest snippets use `minimum_cover`.

    Examples
    --------
    >>> scope_cover([0, 1, 0], [[1], [0], [1]], [[1, 0], [0, 0], [0, 1]]).snippets
    (1, 0, 2)
    """
    # Threads share questions out, of which there is one.
    return scope_covers([(intent, relations, nodes)], recheck=recheck, threads=1)[0]


def scope_covers(
    questions: Iterable[tuple[ArrayLike, ArrayLike, ArrayLike]], *, recheck: bool = False, threads: int | None = None
) -> list[ScopeCover]:
    """Do `scope_cover` for many questions of (intent, relations, nodes) in one call; sizes may differ between them.

    Arguments, answers and errors (with the question's number) are those of `scope_cover`; the result does not depend on
    `threads`.

    Examples
    --------
    >>> [cover.complete for cover in scope_covers([([1], [[1]], [[1]]), ([0], [[1]], [[1]])])]
    [True, False]
    """
    judged = [
        (
            _judgements(intent, f"question {number}: intent"),
            _judgements(relations, f"question {number}: relations"),
            _judgements(nodes, f"question {number}: nodes"),
        )
        for number, (intent, relations, nodes) in enumerate(questions)
    ]
    return [ScopeCover(*fields) for fields in _core.scope_covers(judged, recheck, thread_limit(threads))]


def _covers(
    problems: Sequence[Problem],
    weights: Sequence[ArrayLike | None] | None,
    *,
    exact: bool,
    time_limit: float | None = None,
    threads: int | None,
) -> list[Cover]:
    seconds = _seconds(time_limit)
    each = _each_weights(problems, weights)
    packed = [
        (_sets(sets, universe), universe, weight) for (sets, universe), weight in zip(problems, each, strict=True)
    ]
    return [Cover(*fields) for fields in _core.covers(packed, exact, seconds, thread_limit(threads))]


def _seconds(time_limit: float | None) -> float:
    """Return the limit as the core takes it: below 0 stands for none."""
    if time_limit is None:
        return -1.0
    if not time_limit >= 0:  # and not "< 0", which NaN would pass
        raise ValueError(f"time_limit is {time_limit}; it must be a number of seconds of at least 0, or None")
    return float(time_limit)


def _earliest(
    problems: Sequence[Problem],
    weights: Sequence[ArrayLike | None] | None,
    time_limit: float | None,
    threads: int | None,
) -> list[Cover]:
    """Weigh set i as ``weight * scale + i``, with a scale above any sum of indices: the least such sum breaks ties."""
    scaled: list[tuple[NDArray[np.float64], int]] = []
    ranked: list[ArrayLike | None] = []
    for number, ((sets, _), given) in enumerate(zip(problems, _each_weights(problems, weights), strict=True)):
        count = len(sets)
        each = np.ones(count) if given is None else np.asarray(given, dtype=np.float64)
        scale = count * (count - 1) // 2 + 1
        # The core takes weights up to 1e15, below which float64 holds every whole number.
        if not bool(np.all(each == np.floor(each))) or float(np.sum(each)) * scale > 1e15:
            raise ValueError(
                f"problem {number}: ties='earliest' needs whole-number weights with a sum below {1e15 / scale:g}"
            )
        scaled.append((each, scale))
        # Weights that are wrong otherwise go on as they are, so that the core's own message names them.
        ranked.append(each * scale + np.arange(count) if each.ndim == 1 and bool(np.all(each >= 0)) else each)
    minima = _covers(problems, ranked, exact=True, time_limit=time_limit, threads=threads)
    covers = []
    for cover, (each, scale) in zip(minima, scaled, strict=True):
        weight = float(sum(each[i] for i in cover.sets))
        # No cover weighs less than bound, of which at most scale - 1 are indices. Weights are whole, so the rest is rounded
        # up, less what a division in float64 may be above the whole number that it stands for.
        bound = weight if cover.optimal else max(0.0, float(math.ceil((cover.bound - (scale - 1)) / scale - 1e-9)))
        covers.append(Cover(cover.sets, weight, cover.optimal, min(bound, weight), cover.uncovered))
    return covers


def _each_weights(
    problems: Sequence[Problem], weights: Sequence[ArrayLike | None] | None
) -> Sequence[ArrayLike | None]:
    if weights is None:
        return [None] * len(problems)
    if len(weights) != len(problems):
        raise ValueError(f"there are weights for {len(weights)} problems, but {len(problems)} problems")
    return weights


def _sets(sets: Sets, universe: Collection[Hashable] | None) -> Sets:
    # Collections go on as they are: the core numbers their features itself.
    if not isinstance(sets, np.ndarray):
        return sets
    if universe is not None:
        raise ValueError("a matrix of sets has its columns as universe; leave universe out")
    return _judgements(sets, "sets")


def _judgements(values: ArrayLike, name: str) -> NDArray[np.bool_]:
    array = values if type(values) is np.ndarray else np.asarray(values)
    # The way of small covers, which take microseconds: nothing is copied.
    if array.dtype == np.bool_ and array.flags.c_contiguous:
        return array
    if array.dtype != np.bool_:
        # Sums or probabilities taken for judgements would be a mistake that shows nowhere else.
        if array.size and (array.dtype.kind not in "iuf" or not bool(np.isin(array, (0, 1)).all())):
            raise TypeError(f"{name} must be yes or no (boolean, or 0 and 1), not {array.dtype} of other values")
        array = array.astype(np.bool_)
    return np.ascontiguousarray(array)
