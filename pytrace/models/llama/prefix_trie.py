"""What is in memory already, as a trie of tokens: every prefix that prompts share is held once.

A path from the root is a prefix whose keys and values are in llama.cpp's cells. A leaf names the sequence that holds its
path; an inner node is held by any leaf below it. When room is short the leaf that was used least recently goes, and what it
shared with others stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Tokens = NDArray[np.int32]


def common_prefix(first: Tokens, second: Tokens) -> int:
    """Return how many tokens two sequences share from the beginning."""
    size = min(len(first), len(second))
    different = np.flatnonzero(first[:size] != second[:size])
    return int(different[0]) if len(different) else size


@dataclass(slots=True, eq=False)
class Node:
    """The tokens between two branching points.

    `end` counts the tokens from the root to the last of these; `used` orders nodes by last use; `pins` counts the prompts in
    progress that rest on it. `sequence` is -1 except in a leaf.
    """

    tokens: Tokens
    end: int
    parent: Node | None = None
    children: dict[int, Node] = field(default_factory=dict)
    used: int = 0
    pins: int = 0
    sequence: int = -1

    def path(self) -> Tokens:
        """Return all tokens from the root to this node's last."""
        parts, node = [self.tokens], self.parent
        while node is not None:
            parts.append(node.tokens)
            node = node.parent
        return np.concatenate(parts[::-1])

    def holder(self) -> int:
        """Return a sequence that holds this node's path; -1 for the root of an empty trie."""
        node = self
        while node.children:
            node = next(iter(node.children.values()))
        return node.sequence

    def below(self) -> Iterator[Node]:
        """Yield this node and all below it, each before its children."""
        stack = [self]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(node.children.values())


class PrefixTrie:
    """The prefixes in memory and the sequences that hold them."""

    def __init__(
        self,
        *,
        sequences: int,
        budget: int,
        forget: Callable[[int, int], object],
        leaving: Callable[[Node], object] = lambda _: None,
    ) -> None:
        self._sequences = sequences
        self._budget = budget
        self._forget = forget
        self._leaving = leaving
        self.reset()

    def reset(self) -> None:
        """Empty the trie; the caller has emptied the cells."""
        self.root = Node(np.empty(0, dtype=np.int32), 0)
        self.cells = 0
        self._clock = 0
        self._free = list(range(self._sequences))
        self._taken: set[int] = set()
        self._surplus: dict[int, int] = {}

    @property
    def free_sequences(self) -> int:
        """How many sequences can be taken."""
        return len(self._free)

    def take(self) -> int:
        """Take a free sequence for a prompt in progress; `give_back` or `release` ends it."""
        sequence = self._free.pop()
        self._taken.add(sequence)
        return sequence

    def give_back(self, sequence: int) -> None:
        """End a sequence whose tokens are not to be kept."""
        self._taken.discard(sequence)
        self._drop(sequence)

    def match(self, tokens: Tokens, limit: int) -> Node:
        """Return the node at whose end the longest known prefix of `tokens` ends, at most `limit` tokens of it."""
        # The trie is split there, so that exactly this prefix can be pinned. The root stands for nothing known.
        self._clock += 1
        node = self.root
        while node.end < limit and (child := self._child(node, tokens[node.end : limit])) is not None:
            node = child
        return node

    def insert(self, tokens: Tokens, sequence: int) -> Node:
        """Add a prefix that `sequence` holds and return its last node, pinned until `release`."""
        self._clock += 1
        node = self.root
        while node.end < len(tokens):
            rest = tokens[node.end :]
            child = self._child(node, rest)
            if child is None:
                if node.sequence >= 0:  # a leaf until now: the longer sequence holds its tokens, too
                    self._supersede(node)
                child = Node(rest, len(tokens), node, used=self._clock, sequence=sequence)
                self.cells += len(rest)
                node.children[int(rest[0])] = child
            node = child
        node.pins += 1
        return node

    def release(self, node: Node, sequence: int) -> None:
        """End the prompt in progress that `insert` pinned at `node`; its tokens stay as long as there is room."""
        node.pins -= 1
        self._taken.discard(sequence)
        if node.sequence == sequence:
            self._forget(sequence, node.end)
        else:
            self._drop(sequence)

    def add_copy(self, tokens: Tokens, sequence: int) -> None:
        """Add a prefix whose cells `sequence` has by itself, also those of what the trie knew of it already."""
        known = self.match(tokens, len(tokens)).end
        self._surplus[sequence] = known
        self.cells += known
        self.release(self.insert(tokens, sequence), sequence)

    def settle(self) -> None:
        """Evict what is over the budget."""
        while self.cells - self.pinned_cells() > self._budget and self.evict():
            pass

    def evict(self) -> bool:
        """Forget the leaf that was used least recently and that nothing in progress rests on; false if there is none."""
        leaves = [node for node in self.root.below() if not node.children and not node.pins and node is not self.root]
        if not leaves:
            return False
        leaf = min(leaves, key=lambda node: node.used)
        self._leaving(leaf)
        parent = leaf.parent
        assert parent is not None
        del parent.children[int(leaf.tokens[0])]
        self.cells -= len(leaf.tokens)
        if parent.children or parent is self.root:
            self._drop(leaf.sequence)
        else:
            self._forget(leaf.sequence, parent.end)
            parent.sequence = leaf.sequence
        return True

    def pinned_cells(self) -> int:
        """Count the cells that prompts in progress rest on."""
        pinned: set[int] = set()
        cells = 0
        for node in reversed(list(self.root.below())):  # children before their parents
            if node.pins or id(node) in pinned:
                pinned.add(id(node.parent))
                cells += len(node.tokens)
        return cells

    def _child(self, node: Node, rest: Tokens) -> Node | None:
        """Return the child of a node that begins as `rest` does, split where the two part; None if there is none."""
        child = node.children.get(int(rest[0]))
        if child is not None:
            size = common_prefix(child.tokens, rest)
            if size < len(child.tokens):
                child = self._split(child, size)
            child.used = self._clock
        return child

    def _split(self, node: Node, size: int) -> Node:
        """Cut a node in two after `size` tokens and return the upper part."""
        assert node.parent is not None
        upper = Node(node.tokens[:size], node.end - len(node.tokens) + size, node.parent, used=node.used)
        node.parent.children[int(node.tokens[0])] = upper
        upper.children[int(node.tokens[size])] = node
        node.parent, node.tokens = upper, node.tokens[size:]
        return upper

    def _supersede(self, leaf: Node) -> None:
        sequence, leaf.sequence = leaf.sequence, -1
        if sequence not in self._taken:  # one in progress goes on until its release
            self._drop(sequence)

    def _drop(self, sequence: int) -> None:
        self._forget(sequence, 0)
        self.cells -= self._surplus.pop(sequence, 0)
        self._free.append(sequence)
