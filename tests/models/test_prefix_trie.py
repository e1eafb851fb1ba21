"""The trie of what is in memory: its books beside a naive twin that keeps whole sequences, and what goes first."""

from __future__ import annotations

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from pytrace.models.llama.prefix_trie import Node, PrefixTrie

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

    @rule(tokens=TOKENS.filter(bool))
    def come_back(self, tokens: list[int]) -> None:
        """Bring a beginning back that was put aside: a sequence with cells of its own, also for what is known."""
        while not self.trie.free_sequences:
            if not self.trie.evict():
                return
        before = self.known()
        sequence = self.trie.take()
        self.cells.held[sequence] = list(tokens)
        self.trie.add_copy(array(tokens), sequence)
        assert self.known() == before | {tuple(tokens[:size]) for size in range(1, len(tokens) + 1)}

    @rule()
    def settle(self) -> None:
        self.trie.settle()
        assert self.trie.cells - self.trie.pinned_cells() <= 9

    @rule()
    def evict(self) -> None:
        idle = len(self.known()) - self.trie.pinned_cells()
        assert self.trie.evict() == (idle > 0)

    @invariant()
    def books_are_true(self) -> None:
        known = self.known()
        # Every token once, and a second time what a sequence that came back has for itself.
        assert self.trie.cells == len(known) + sum(self.trie._surplus.values())
        assert set(self.trie._surplus) <= {node.sequence for node in self.trie.root.below()}
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


def test_what_was_used_least_recently_goes_first_and_what_it_shared_stays() -> None:
    trie = PrefixTrie(sequences=8, budget=10, forget=lambda *_: None)
    use(trie, [1, 2, 3, 4, 5])
    use(trie, [1, 2, 3, 6, 7])
    assert use(trie, [1, 2, 3, 4, 9]) == 4
    use(trie, [8, 8])  # 10 cells hold 1 2 3, 4, 5 or 9, 6 7 and 8 8: of the first text the end goes
    assert use(trie, [1, 2, 3, 6, 0]) == 4
    assert trie.cells <= 10
