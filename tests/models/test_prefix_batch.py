"""What a round decodes: every token of every sequence once, nothing twice, nothing that llama.cpp refuses."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from pytrace.models.llama.prefix_batch import Work, plan_round, sort_key
from pytrace.models.llama.prefix_trie import common_prefix
from tests import oracles

# Few different tokens, so that beginnings collide; some wider than a byte, so that the order of the keys is tried.
TOKENS = st.lists(st.sampled_from([0, 1, 256, 65_537]), min_size=1, max_size=8)
WORKS = st.lists(TOKENS.flatmap(lambda tokens: st.tuples(st.just(tokens), st.integers(0, len(tokens) - 1))), max_size=9)
RESIDENTS = st.lists(TOKENS, max_size=7)


def array(tokens: list[int]) -> np.ndarray:
    return np.array(tokens, dtype=np.int32)


def sorted_works(drawn: list[tuple[list[int], int]]) -> list[Work]:
    works = [Work(array(tokens), first_wanted) for tokens, first_wanted in drawn]
    return sorted(works, key=lambda work: work.key)


def sources_of(works: list[Work], residents: list[list[int]]) -> list[tuple[int, int]]:
    """Return what the plan is given: for each work a sequence with the longest beginning that it may take over."""
    sources = []
    for work in works:
        tokens = work.tokens.tolist()
        size = oracles.longest_take_over(tokens, work.first_wanted, residents)
        shared = [oracles.shared_beginning(tokens, resident) for resident in residents]
        sources.append((100 + shared.index(max(shared)), size) if size else (-1, 0))
    return sources


@given(TOKENS, TOKENS)
def test_keys_order_sequences_as_their_tokens_do(first: list[int], second: list[int]) -> None:
    assert (sort_key(array(first)) < sort_key(array(second))) == (first < second)


@given(TOKENS, TOKENS)
def test_common_prefix_equals_the_twin(first: list[int], second: list[int]) -> None:
    assert common_prefix(array(first), array(second)) == oracles.shared_beginning(first, second)


@given(WORKS, RESIDENTS)
@example([([1, 1], 1), ([1, 1], 1), ([1, 1, 0], 2)], [[1, 1, 0, 0]])
@example([([0, 1, 0], 0), ([0, 1, 1], 2)], [])
def test_a_round_covers_every_token_once(drawn: list[tuple[list[int], int]], resident_tokens: list[list[int]]) -> None:
    works = sorted_works(drawn)
    by_sequence = {100 + index: tokens for index, tokens in enumerate(resident_tokens)}
    plan = plan_round(works, sources_of(works, resident_tokens))
    covered: dict[tuple[int, int], int] = {}
    for segment in plan.segments:
        owner = works[segment.owner].tokens.tolist()
        assert segment.owner in segment.members
        assert len(set(segment.members)) == len(segment.members)
        assert segment.start < segment.end
        for member in segment.members:
            tokens = works[member].tokens.tolist()
            assert oracles.shared_beginning(owner, tokens) >= segment.end
            # llama.cpp refuses to decode a token for sequences of which one is longer in memory.
            assert plan.sources[member][1] == plan.sources[segment.owner][1]
            for position in range(segment.start, segment.end):
                assert (member, position) not in covered
                covered[member, position] = owner[position]
    expected = {}
    for index, (work, (sequence, size)) in enumerate(zip(works, plan.sources, strict=True)):
        assert size <= work.first_wanted
        tokens = work.tokens.tolist()
        assert size == 0 or by_sequence[sequence][:size] == tokens[:size]
        expected |= {(index, position): tokens[position] for position in range(size, len(tokens))}
    assert covered == expected


@given(WORKS, RESIDENTS)
@example([([0, 0, 0], 2), ([0, 0, 0, 1], 3), ([0, 0, 0, 1, 1], 0)], [[0, 0, 0, 0]])  # lowered from behind
def test_a_round_takes_over_all_it_may_and_decodes_no_beginning_twice(
    drawn: list[tuple[list[int], int]], resident_tokens: list[list[int]]
) -> None:
    works = sorted_works(drawn)
    tokens = [work.tokens.tolist() for work in works]
    plan = plan_round(works, sources_of(works, resident_tokens))
    longest = [
        oracles.longest_take_over(one, work.first_wanted, resident_tokens)
        for one, work in zip(tokens, works, strict=True)
    ]
    lengths = oracles.equal_take_overs(tokens, longest)
    assert [size for _, size in plan.sources] == lengths
    assert sum(segment.end - segment.start for segment in plan.segments) == oracles.distinct_beginnings(tokens, lengths)


@given(WORKS, RESIDENTS)
def test_the_positions_of_a_sequence_come_in_order(
    drawn: list[tuple[list[int], int]], resident_tokens: list[list[int]]
) -> None:
    works = sorted_works(drawn)
    plan = plan_round(works, sources_of(works, resident_tokens))
    reached = [size for _, size in plan.sources]
    for segment in plan.segments:
        for member in segment.members:
            assert reached[member] == segment.start
            reached[member] = segment.end
    assert reached == [len(work.tokens) for work in works]


def test_duplicates_cost_one_sequence_and_nothing_costs_nothing() -> None:
    works = sorted_works([([1, 0, 1], 2)] * 4)
    plan = plan_round(works, [(-1, 0)] * 4)
    assert sum(segment.end - segment.start for segment in plan.segments) == 3
    assert [segment.members for segment in plan.segments] == [[0, 1, 2, 3]]
    empty = plan_round([], [])
    assert (empty.segments, empty.sources) == ([], [])
