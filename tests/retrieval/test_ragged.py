"""Lists of numbers in one array, and numbers that are looked up, beside lists and dictionaries."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pytrace.retrieval.passages.ragged import Lists, Lookup, grouped, narrow, places_among, ranges, starts_of

PAIRS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 2**31 - 1) | st.integers(0, 4)), max_size=40)


@given(PAIRS)
def test_pairs_are_grouped_each_once_and_rising(pairs: list[tuple[int, int]]) -> None:
    owners, values = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    lists = grouped(owners, values, 7)
    expected = [sorted({value for owner, value in pairs if owner == number}) for number in range(7)]
    assert [each.tolist() for each in np.split(lists.values, lists.offsets[1:-1])] == expected
    assert lists.owners.tolist() == [number for number, each in enumerate(expected) for _ in each]
    assert lists.sizes(np.array([6, 0])).tolist() == [len(expected[6]), len(expected[0])]
    taken = lists.take(np.array([3, 3, 0]))
    assert taken.values.tolist() == [*expected[3], *expected[3], *expected[0]]
    same = Lists.of([np.array(each, dtype=np.int64) for each in expected])
    assert (same.offsets.tolist(), same.values.tolist()) == (lists.offsets.tolist(), lists.values.tolist())


@given(st.lists(st.integers(0, 9), max_size=30), st.lists(st.integers(0, 12), max_size=8))
def test_every_place_of_a_hash_is_found(held: list[int], wanted: list[int]) -> None:
    numbers, places = Lookup(np.array(held, dtype=np.uint64)).find(np.array(wanted, dtype=np.uint64))
    expected = [
        (number, place) for number, one in enumerate(wanted) for place, other in enumerate(held) if one == other
    ]
    assert [*zip(numbers.tolist(), places.tolist(), strict=True)] == expected
    rising = np.unique(np.array(held, dtype=np.uint64))
    found = places_among(rising, np.array(wanted, dtype=np.uint64))
    assert [rising[place] if place >= 0 else None for place in found] == [
        one if one in held else None for one in wanted
    ]


def test_offsets_are_as_wide_as_they_must_be() -> None:
    assert narrow(np.array([0, 2**32 - 1])).dtype == np.uint32
    assert narrow(np.array([0, 2**32])).tolist() == [0, 2**32]
    assert narrow(np.empty(0, dtype=np.int64)).dtype == np.uint32
    assert starts_of([2, 0, 3]).tolist() == [0, 2, 2, 5]


def test_ranges_of_a_damaged_file_stay_within_it() -> None:
    starts, ends = np.array([0, 9, 3, 5], dtype=np.uint32), np.array([2, 12, 1, 4_000_000_000], dtype=np.uint32)
    offsets, places = ranges(starts, ends, 7)
    assert offsets.tolist() == [0, 2, 2, 2, 4]
    assert places.tolist() == [0, 1, 5, 6]
