"""Paths between entities are all that there are, in one order, and a hub of many triples neither hides nor multiplies them."""

from __future__ import annotations

import random
import time

import numpy as np
import pytest

from pytrace.errors import InputError
from pytrace.kg import KnowledgeBase, compile_triples, paths
from pytrace.kg.paths import find_paths, list_paths, neighbourhood
from pytrace.records import Triple


def base_of(*triples: tuple[str, str, str]) -> KnowledgeBase:
    columns = compile_triples(Triple(*triple) for triple in triples)
    return KnowledgeBase(columns, np.zeros((len(columns.triples), 0), dtype=np.float32))


def numbers(base: KnowledgeBase, *keys: str) -> list[int]:
    return [number for key in keys if (number := base.entity(key)) is not None]


def paths_by_trying(base: KnowledgeBase, sources: list[int], targets: list[int], hops: int) -> list[tuple[int, ...]]:
    """All simple paths by trying every triple at every step."""
    triples = base.columns.triples.tolist()
    found: set[tuple[int, ...]] = set()

    def go(at: int, seen: frozenset[int], path: tuple[int, ...]) -> None:
        if path and at in targets:
            found.add(path)
        if len(path) == hops:
            return
        for number, (head, _, tail) in enumerate(triples):
            for start, end in ((head, tail), (tail, head)):
                if start == at and end not in seen:
                    go(end, seen | {end}, (*path, number))

    for source in sources:
        go(source, frozenset([source]), ())
    return sorted(found, key=lambda path: (len(path), path))


@pytest.mark.parametrize("listed", [paths._LISTED_WALKS, 0], ids=["listed", "one by one"])
def test_paths_are_those_found_by_trying_everything(listed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "_LISTED_WALKS", listed)
    draw = random.Random(7)
    most = 0
    for _ in range(300):
        names = [str(number) for number in range(draw.randint(2, 8))]
        count = draw.randint(1, 16)
        base = base_of(*((draw.choice(names), draw.choice("rs"), draw.choice(names)) for _ in range(count)))
        there = range(len(base.columns.entity_keys))
        sources = draw.sample(there, min(len(there), draw.randint(1, 3)))
        targets = draw.sample(there, min(len(there), draw.randint(1, 3)))
        hops = draw.randint(1, 5)
        wanted = paths_by_trying(base, sources, targets, hops)
        found = find_paths(base, sources, targets, max_hops=hops, limit=100_000)
        assert found.numbers == tuple(wanted)
        assert found.complete
        assert found.paths == tuple(tuple(map(base.triple, path)) for path in wanted)
        limit = draw.randint(1, 5)
        first = find_paths(base, sources, targets, max_hops=hops, limit=limit)
        assert first.numbers == tuple(wanted[:limit])
        assert first.complete == (len(wanted) <= limit)
        most = max(most, len(wanted))
    assert most > 50  # else nothing much was tried


def test_triples_are_walked_either_way_and_kept_as_stated() -> None:
    base = base_of(("ghana", "capital", "accra"), ("ada", "in", "ghana"), ("togo", "near", "ghana"))
    [path] = find_paths(base, numbers(base, "accra"), numbers(base, "togo")).paths
    assert path == (Triple("ghana", "capital", "accra"), Triple("togo", "near", "ghana"))


def test_several_relations_between_two_entities_make_several_paths() -> None:
    base = base_of(("a", "r", "b"), ("a", "s", "b"), ("b", "t", "a"), ("b", "u", "c"))
    assert find_paths(base, numbers(base, "a"), numbers(base, "c")).numbers == ((0, 3), (1, 3), (2, 3))


def test_an_entity_has_no_path_to_itself_and_loops_are_on_none() -> None:
    base = base_of(("a", "r", "a"), ("a", "r", "b"), ("b", "r", "a"))
    assert find_paths(base, numbers(base, "a"), numbers(base, "a")).numbers == ()
    assert find_paths(base, numbers(base, "a"), numbers(base, "b")).numbers == ((1,), (2,))


def test_no_more_hops_than_asked_for() -> None:
    base = base_of(*((str(at), "next", str(at + 1)) for at in range(9)))
    ends = numbers(base, "0"), numbers(base, "5")
    assert find_paths(base, *ends).numbers == ()
    assert find_paths(base, *ends, max_hops=5).numbers == ((0, 1, 2, 3, 4),)
    assert find_paths(base, *ends, max_hops=10**9).numbers == ((0, 1, 2, 3, 4),)


def test_a_hub_of_many_triples_gives_the_first_paths_soon_and_says_that_there_are_more() -> None:
    spokes = 20_000
    base = base_of(
        *(("left", "has", f"n{at}") for at in range(spokes)), *((f"n{at}", "of", "right") for at in range(spokes))
    )
    start = time.perf_counter()
    found = find_paths(base, numbers(base, "left"), numbers(base, "right"), limit=3)
    assert time.perf_counter() - start < 5
    assert found.numbers == ((0, spokes), (1, spokes + 1), (2, spokes + 2))
    assert not found.complete


def test_walks_that_lead_nowhere_end_the_search_and_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "_LISTED_WALKS", 0)
    monkeypatch.setattr(paths, "_MOST_STEPS", 100)
    # Every way from a to z of five triples comes through b twice.
    base = base_of(("a", "r", "b"), *(("b", "r", f"n{at}") for at in range(200)), ("b", "r", "c"), ("c", "r", "z"))
    found = find_paths(base, numbers(base, "a"), numbers(base, "z"), max_hops=5)
    assert found.numbers == ((0, 201, 202),)
    assert not found.complete


@pytest.mark.parametrize(("sources", "targets"), [([], [0]), ([0], []), ([], [])])
def test_nothing_to_start_from_or_to_reach_gives_no_path(sources: list[int], targets: list[int]) -> None:
    found = find_paths(base_of(("a", "r", "b")), sources, targets)
    assert (found.paths, found.numbers, found.complete) == ((), (), True)


def test_a_base_of_one_entity_has_no_path() -> None:
    assert find_paths(base_of(("a", "r", "a")), [0], [0]).paths == ()


@pytest.mark.parametrize("number", [-1, 2, 10**12])
def test_entities_that_are_not_there_are_an_error(number: int) -> None:
    base = base_of(("a", "r", "b"))
    with pytest.raises(InputError, match=f"there is no entity {number}; the knowledge base has 2"):
        find_paths(base, [number], [0])
    with pytest.raises(InputError, match=f"there is no entity {number}"):
        neighbourhood(base, [number])


def test_limits_below_one_are_an_error() -> None:
    base = base_of(("a", "r", "b"))
    with pytest.raises(InputError, match="max_hops is 0"):
        find_paths(base, [0], [1], max_hops=0)
    with pytest.raises(InputError, match="limit is 0"):
        find_paths(base, [0], [1], limit=0)
    with pytest.raises(InputError, match="hops is -1"):
        neighbourhood(base, [0], hops=-1)


def test_a_few_edges_give_their_paths_by_length() -> None:
    edges = [(5, 1, 2), (6, 2, 3), (7, 3, 1), (8, 2, 2)]
    assert list_paths(edges, [1], [3], max_hops=2) == [(7,), (5, 6)]
    assert list_paths(edges, [1, 1], [3, 3], max_hops=1) == [(7,)]
    assert list_paths(edges, [4], [1], max_hops=3) == list_paths([], [1], [1], max_hops=3) == []


def test_the_neighbourhood_of_one_hop_is_the_triples_that_touch_the_entities() -> None:
    draw = random.Random(3)
    base = base_of(*((str(draw.randrange(20)), "r", str(draw.randrange(20))) for _ in range(60)))
    for entities in ([0], [1, 5], [2, 3, 4]):
        found, complete = neighbourhood(base, entities)
        rows = base.columns.triples
        touching = np.isin(rows[:, 0], entities) | np.isin(rows[:, 2], entities)
        assert complete
        assert sorted(found) == np.flatnonzero(touching).tolist()
        assert len(set(found)) == len(found)


def test_the_neighbourhood_grows_hop_by_hop_from_the_nearest() -> None:
    base = base_of(*((str(at), "next", str(at + 1)) for at in range(6)))
    assert neighbourhood(base, numbers(base, "0"), hops=1)[0] == (0,)
    assert neighbourhood(base, numbers(base, "0"), hops=3)[0] == (0, 1, 2)
    assert neighbourhood(base, numbers(base, "3"), hops=2)[0] == (2, 3, 1, 4)


def test_a_full_neighbourhood_leaves_room_for_every_entity_and_says_that_it_is_cut() -> None:
    base = base_of(*(("hub", "r", f"n{at}") for at in range(500)), ("small", "r", "x"))
    found, complete = neighbourhood(base, numbers(base, "hub", "small"), limit=5)
    assert found == (0, 500, 1, 2, 3)
    assert not complete
    assert neighbourhood(base, numbers(base, "small"), limit=1) == ((500,), True)
    assert neighbourhood(base, [], hops=2) == ((), True)
