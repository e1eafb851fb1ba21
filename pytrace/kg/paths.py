"""Paths between the entities of a knowledge base, and the triples around them."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Iterator, Sequence

import msgspec
import numpy as np
import rustworkx as rx
from numpy.typing import NDArray

from pytrace.errors import InputError
from pytrace.kg.knowledge_base import KnowledgeBase
from pytrace.records import Triple

# rustworkx lists all paths at once and cannot be stopped. Up to so many walks (a bound on its work, of a microsecond each)
# it is asked; beyond, paths are looked for one by one, shortest first, until there are enough.
_LISTED_WALKS = 100_000
# After so many steps of that search, about a second, nearly all walks must be leading back to where they have been.
_MOST_STEPS = 1_000_000

# Distances are held in 16 bits.
_LONGEST = 30_000

_Numbers = NDArray[np.int64]
# An edge as it is walked: the triple's number, where it leads from, where to.
_Edge = tuple[int, int, int]


class FoundPaths(msgspec.Struct, frozen=True):
    """Paths, and whether they are all that there are.

    `numbers` are the triples' numbers in the knowledge base, `paths` the same by their keys. `complete` is false where a
    limit ended the search; the paths are the first ones then.
    """

    paths: tuple[tuple[Triple, ...], ...]
    numbers: tuple[tuple[int, ...], ...]
    complete: bool


def find_paths(
    base: KnowledgeBase,
    sources: Iterable[int],
    targets: Iterable[int],
    *,
    max_hops: int = 4,
    limit: int = 1000,
) -> FoundPaths:
    """Find the simple paths from some entities to others, whichever way the triples on them point.

    No path comes to an entity twice, and none is empty, also where a source is a target. Two triples between the same
    entities make two paths. Only what lies within `max_hops` of both ends is looked at, so that an entity with very many
    triples does no harm. Paths come by length, then by the triples' numbers: with a smaller limit the first of them.
    Source: Nguyen et al., "Direct Evaluation of Chain-of-Thought in Multi-hop Reasoning with Knowledge Graphs" (2024),
    appendix A.
    """
    _positive(max_hops=max_hops, limit=limit)
    starts, ends = _entities(base, sources), _entities(base, targets)
    max_hops = min(max_hops, len(base.columns.entity_keys) - 1, _LONGEST)  # a simple path cannot be longer
    if max_hops < 1 or not len(starts) or not len(ends):
        return FoundPaths((), (), complete=True)
    triples, left = _between(base, starts, ends, max_hops)
    rows = base.columns.triples[triples]
    if _walks(rows, starts, len(left), max_hops) <= _LISTED_WALKS:
        edges = list(zip(triples.tolist(), rows[:, 0].tolist(), rows[:, 2].tolist(), strict=True))
        numbers = list_paths(edges, starts.tolist(), ends.tolist(), max_hops=max_hops)
        complete = len(numbers) <= limit
    else:
        numbers, complete = _first_paths(base, starts, ends, left, max_hops, limit)
    first = tuple(numbers[:limit])
    return FoundPaths(tuple(tuple(map(base.triple, path)) for path in first), first, complete)


def neighbourhood(
    base: KnowledgeBase, entities: Iterable[int], *, hops: int = 1, limit: int = 200
) -> tuple[tuple[int, ...], bool]:
    """Return the numbers of the triples around some entities, nearest first, and whether they are all.

    One hop gives the triples that touch them, two also those that touch an entity of these, and so on. At each hop every
    entity gives one triple in turn, so that one with very many leaves room for the others.
    """
    _positive(hops=hops, limit=limit)
    frontier = _entities(base, entities).tolist()
    seen = set(frontier)
    numbers: dict[int, None] = {}
    for _ in range(hops):
        around: set[int] = set()
        # One triple more than there is room for tells that some are left out.
        rows = [_touching(base, entity, limit + 1 + len(numbers)) for entity in frontier]
        for round_ in itertools.zip_longest(*rows):
            for number in round_:
                if number is None or number in numbers:
                    continue
                if len(numbers) == limit:
                    return tuple(numbers), False
                numbers[number] = None
                head, _, tail = base.columns.triples[number].tolist()
                around.update((head, tail))
        frontier = sorted(around - seen)
        seen |= around
    return tuple(numbers), True


def list_paths(
    edges: Sequence[_Edge], sources: Iterable[int], targets: Iterable[int], *, max_hops: int
) -> list[tuple[int, ...]]:
    """List all simple paths through a few edges, whichever way they point."""
    between: dict[tuple[int, int], list[int]] = {}
    nodes_of: dict[int, int] = {}
    for number, head, tail in edges:
        if head != tail:
            key = (nodes_of.setdefault(head, len(nodes_of)), nodes_of.setdefault(tail, len(nodes_of)))
            between.setdefault((min(key), max(key)), []).append(number)
    graph: rx.PyGraph[int, None] = rx.PyGraph()
    graph.add_nodes_from(list(nodes_of))
    graph.add_edges_from_no_data(list(between))
    wanted = [nodes_of[target] for target in dict.fromkeys(targets) if target in nodes_of]
    paths: set[tuple[int, ...]] = set()
    for source in dict.fromkeys(sources):
        if source not in nodes_of or not wanted:
            continue
        for nodes in rx.all_simple_paths(graph, nodes_of[source], wanted, cutoff=max_hops):
            steps = (between[min(pair), max(pair)] for pair in itertools.pairwise(nodes))
            paths.update(itertools.product(*steps))
    return sorted(paths, key=lambda path: (len(path), path))


def _positive(**numbers: int) -> None:
    for name, number in numbers.items():
        if number < 1:
            raise InputError(f"{name} is {number}; it must be at least 1")


def _entities(base: KnowledgeBase, numbers: Iterable[int]) -> _Numbers:
    count = len(base.columns.entity_keys)
    entities = sorted(set(numbers))
    for number in entities:
        if not 0 <= number < count:
            raise InputError(f"there is no entity {number}; the knowledge base has {count}, counted from 0")
    return np.array(entities, dtype=np.int64)


def _touching(base: KnowledgeBase, entity: int, limit: int) -> list[int]:
    """Return the first triples that an entity is head or tail of, by number."""
    rows = np.concatenate([base.with_head(entity)[:limit], base.with_tail(entity)[:limit]])
    numbers: list[int] = np.unique(rows)[:limit].tolist()
    return numbers


def _between(
    base: KnowledgeBase, starts: _Numbers, ends: _Numbers, max_hops: int
) -> tuple[_Numbers, NDArray[np.int16]]:
    """Return the triples that lie on a walk of at most `max_hops` from a start to an end, and all entities' way to go."""
    # Both ends are searched for half of the hops; what is farther from one must be among what was found near the other.
    count = len(base.columns.entity_keys)
    far = np.int16(max_hops + 1)
    gone, left = np.full(count, far, dtype=np.int16), np.full(count, far, dtype=np.int16)
    half = max_hops // 2
    fronts = [
        _search(base, gone, starts, range(1, half + 1), None),
        _search(base, left, ends, range(1, max_hops - half + 1), None),
    ]
    _search(base, gone, fronts[0], range(half + 1, max_hops + 1), left)
    _search(base, left, fronts[1], range(max_hops - half + 1, max_hops + 1), gone)
    on_walk = np.flatnonzero(gone.astype(np.int32) + left <= max_hops)
    triples = np.unique(np.concatenate([_around(base, on_walk, by_head=True), _around(base, on_walk, by_head=False)]))
    heads, tails = base.columns.triples[triples, 0], base.columns.triples[triples, 2]
    forth = gone[heads].astype(np.int32) + left[tails] + 1 <= max_hops
    back = gone[tails].astype(np.int32) + left[heads] + 1 <= max_hops
    return triples[(forth | back) & (heads != tails)], left


def _search(
    base: KnowledgeBase, distances: NDArray[np.int16], frontier: _Numbers, hops: range, other: NDArray[np.int16] | None
) -> _Numbers:
    """Go on with a breadth-first search; with `other`, only to where its distance and ours come to no more than all hops."""
    if hops.start == 1:
        distances[frontier] = 0
    for hop in hops:
        if not len(frontier):
            break
        triples = base.columns.triples
        reached = np.concatenate(
            [
                triples[_around(base, frontier, by_head=True), 2],
                triples[_around(base, frontier, by_head=False), 0],
            ]
        )
        reached = reached[distances[reached] > hop]
        if other is not None:
            reached = reached[other[reached].astype(np.int32) + hop <= hops.stop - 1]
        frontier = np.unique(reached).astype(np.int64)
        distances[frontier] = hop
    return frontier


def _around(base: KnowledgeBase, entities: _Numbers, *, by_head: bool) -> _Numbers:
    """Return the triples of many entities at once, one entity's after the other's."""
    columns = base.columns
    order, ends = (columns.by_head, columns.head_ends) if by_head else (columns.by_tail, columns.tail_ends)
    upper = np.asarray(ends[entities], dtype=np.int64)
    lower = np.where(entities > 0, ends[np.maximum(entities - 1, 0)], 0)
    sizes = upper - lower
    positions = np.repeat(upper - np.cumsum(sizes), sizes) + np.arange(int(sizes.sum()))
    return np.asarray(order[positions], dtype=np.int64)


def _walks(rows: NDArray[np.int32], starts: _Numbers, entities: int, max_hops: int) -> float:
    """Count the walks of up to `max_hops` triples from the starts, an upper bound of the paths that begin there."""
    reached: NDArray[np.float64] = np.zeros(entities)
    reached[starts] = 1
    total = 0.0
    for _ in range(max_hops):
        ahead = np.bincount(rows[:, 2], weights=reached[rows[:, 0]], minlength=entities)
        back = np.bincount(rows[:, 0], weights=reached[rows[:, 2]], minlength=entities)
        reached = np.asarray(ahead + back, dtype=np.float64)
        total += float(reached.sum())
        if total > _LISTED_WALKS or not reached.any():
            break
    return total


def _first_paths(
    base: KnowledgeBase, sources: _Numbers, targets: _Numbers, left: NDArray[np.int16], max_hops: int, limit: int
) -> tuple[list[tuple[int, ...]], bool]:
    """Find the first paths in the order of `list_paths`, and tell whether they are all."""
    ways = _Ways(base, left)
    wanted = set(targets.tolist())
    paths: dict[tuple[int, ...], None] = {}
    try:
        for hops in range(1, max_hops + 1):
            first = sorted({edge for source in sources.tolist() for edge in ways.onward(source, hops)})
            for _, same in itertools.groupby(first, key=lambda edge: edge[0]):
                # A triple between two sources begins paths in either direction.
                begun = [_paths_after(edge, hops, ways, wanted) for edge in same]
                for path in heapq.merge(*begun):
                    paths[path] = None
                    if len(paths) > limit:
                        return list(paths), False
    except _TooManyStepsError:
        return list(paths), False
    return list(paths), True


class _TooManyStepsError(Exception):
    pass


class _Ways:
    """The edges that lead on from an entity to where a target is near enough, read when a path first comes there."""

    def __init__(self, base: KnowledgeBase, left: NDArray[np.int16]) -> None:
        self.steps = itertools.count(1)
        self._base = base
        self._left = left
        self._known: dict[tuple[int, int], list[_Edge]] = {}

    def onward(self, entity: int, hops: int) -> list[_Edge]:
        """Return the edges, by number, whose end is at most ``hops - 1`` from a target."""
        key = (entity, hops)
        if key not in self._known:
            ahead, back = self._base.with_head(entity), self._base.with_tail(entity)
            triples = self._base.columns.triples
            numbers = np.concatenate([ahead, back])
            ends = np.concatenate([triples[ahead, 2], triples[back, 0]])
            near = np.flatnonzero((self._left[ends] < hops) & (ends != entity))
            near = near[np.argsort(numbers[near], kind="stable")]
            self._known[key] = [
                (number, entity, end) for number, end in zip(numbers[near].tolist(), ends[near].tolist(), strict=True)
            ]
        return self._known[key]


def _paths_after(first: _Edge, hops: int, ways: _Ways, targets: set[int]) -> Iterator[tuple[int, ...]]:
    """Iterate over the paths that begin with an edge and have so many, in the order of their numbers."""
    path: list[_Edge] = []
    stack = [iter([first])]
    while stack:
        edge = next(stack[-1], None)
        if edge is None:
            stack.pop()
            if path:
                path.pop()
            continue
        if next(ways.steps) > _MOST_STEPS:
            raise _TooManyStepsError
        number, _, end = edge
        if end == first[1] or any(end == at for _, _, at in path):
            continue
        if len(path) + 1 < hops:
            path.append(edge)
            stack.append(iter(ways.onward(end, hops - len(path))))
        elif end in targets:
            yield (*(before for before, _, _ in path), number)
