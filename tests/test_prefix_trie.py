"""The trie of what is in memory: its books beside a naive twin that keeps whole sequences, and what goes first."""

from __future__ import annotations

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from pytrace.models.prefix_trie import Node, PrefixTrie
from tests import oracles

TOKENS = st.lists(st.sampled_from([0, 1, 256]), max_size=7)
SEQUENCES = 6


def array(tokens: list[int]) -> np.ndarray:
    return np.array(tokens, dtype=np.int32)


class Cells:
    """What llama.cpp would hold: for every sequence the tokens whose cells it has."""

    def __init__(self) -> None:
        self.held: dict[int, list[int]] = {}

    def forget(self, sequence: int, start: int) -> None:
        self.held[sequence] = self.held.get(sequence, [])[:start]


class TrieMachine(RuleBasedStateMachine):
    """Prompts come, rest on what is known, and go, in any order, with little room."""

    progress = Bundle("progress")

    def __init__(self) -> None:
        super().__init__()
        self.cells = Cells()
        self.trie = PrefixTrie(sequences=SEQUENCES, budget=9, forget=self.cells.forget)
        self.pinned: dict[int, list[int]] = {}

    def known(self) -> set[tuple[int, ...]]:
        """Return every beginning in memory, by walking the nodes."""
        beginnings = set()
        stack: list[tuple[Node, tuple[int, ...]]] = [(self.trie.root, ())]
        while stack:
            node, above = stack.pop()
            path = above + tuple(node.tokens.tolist())
            assert len(path) == node.end
            beginnings |= {path[:size] for size in range(len(above) + 1, len(path) + 1)}
            stack += [(child, path) for child in node.children.values()]
        return beginnings

    @rule(target=progress, tokens=TOKENS, keep=st.integers(0, 7))
    def enter(self, tokens: list[int], keep: int) -> tuple[Node, int] | None:
        while not self.trie.free_sequences:
            if not self.trie.evict():
                return None
        before = self.known()
        limit = max(len(tokens) - 1, 0)
        source = self.trie.match(array(tokens), limit)
        longest = max((len(one) for one in before if one == tuple(tokens[: len(one)])), default=0)
        assert source.end == min(longest, limit)
        assert self.known() == before
        if source.end:
            assert self.cells.held[source.holder()][: source.end] == tokens[: source.end]
        sequence = self.trie.take()
        self.cells.held[sequence] = [*tokens, 99, 99]  # with what was written after the prompt
        node = self.trie.insert(array(tokens[:keep]), sequence)
        assert self.known() == before | {tuple(tokens[:size]) for size in range(1, len(tokens[:keep]) + 1)}
        self.pinned[sequence] = tokens[:keep]
        return node, sequence

    @rule(one=consumes(progress))
    def leave(self, one: tuple[Node, int] | None) -> None:
        if one is not None:
            del self.pinned[one[1]]
            self.trie.release(*one)

    @rule()
    def settle(self) -> None:
        self.trie.settle()
        assert self.trie.cells - self.trie.pinned_cells() <= 9

    @rule()
    def evict(self) -> None:
        idle = self.trie.cells - self.trie.pinned_cells()
        assert self.trie.evict() == (idle > 0)

    @invariant()
    def books_are_true(self) -> None:
        known = self.known()
        assert self.trie.cells == len(known)
        rested_on = {tuple(tokens[:size]) for tokens in self.pinned.values() for size in range(1, len(tokens) + 1)}
        assert rested_on <= known
        assert self.trie.pinned_cells() == len(rested_on)
        leaves = [node for node in self.trie.root.below() if not node.children and node.end]
        holders = [leaf.sequence for leaf in leaves]
        assert len(set(holders)) == len(holders)
        assert all(node.sequence == -1 for node in self.trie.root.below() if node.children)
        # Every sequence is free and empty, or in progress, or holds one leaf and nothing more.
        assert self.trie.free_sequences + len(set(holders) | set(self.pinned)) == SEQUENCES
        for sequence, tokens in self.cells.held.items():
            if sequence not in self.pinned and sequence not in holders:
                assert tokens == []
        for leaf in leaves:
            held = self.cells.held[leaf.sequence]
            assert held[: leaf.end] == path_of(leaf)
            assert len(held) == leaf.end or leaf.sequence in self.pinned


def path_of(node: Node) -> list[int]:
    tokens: list[int] = []
    above: Node | None = node
    while above is not None:
        tokens = above.tokens.tolist() + tokens
        above = above.parent
    return tokens


TestTrie = TrieMachine.TestCase
TestTrie.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


def use(trie: PrefixTrie, tokens: list[int]) -> int:
    """Send one prompt through and return how many of its tokens were known."""
    source = trie.match(array(tokens), len(tokens) - 1)
    source.pins += 1
    sequence = trie.take()
    source.pins -= 1
    known = source.end
    trie.release(trie.insert(array(tokens), sequence), sequence)
    trie.settle()
    return known


def test_demonstrations_outlive_what_passes_through_beside_them() -> None:
    trie = PrefixTrie(sequences=16, budget=60, forget=lambda *_: None)
    demonstrations = list(range(1000, 1030))
    for question in range(4):
        use(trie, [*demonstrations, *range(question, question + 10)])
    for other in range(50):  # prompts that share nothing, each of them more recent than the demonstrations
        use(trie, list(range(2000 + 20 * other, 2020 + 20 * other)))
    assert use(trie, [*demonstrations, 5]) == len(demonstrations)


def test_demonstrations_that_nobody_uses_any_more_make_room_for_new_ones() -> None:
    trie = PrefixTrie(sequences=16, budget=60, forget=lambda *_: None)
    old, new = list(range(1000, 1050)), list(range(3000, 3040))
    for question in range(3):
        use(trie, [*old, question])
    for question in range(3):
        use(trie, [*new, question])
    assert use(trie, [*new, 9]) == len(new)
    assert trie.cells <= 60


def test_of_a_text_that_goes_the_shared_beginning_stays() -> None:
    trie = PrefixTrie(sequences=4, budget=10, forget=lambda *_: None)
    use(trie, [1, 2, 3, 4, 5, 6])
    use(trie, [1, 2, 3, 7, 8, 9])
    use(trie, [4, 4, 4, 4])
    assert oracles.shared_beginning([1, 2, 3], path_of(trie.match(array([1, 2, 3, 0]), 3))) == 3
    assert trie.cells <= 10
