"""Prefixes that left llama.cpp's cells but not the machine: their keys and values, in the process's own memory.

Cells are few; copying a prefix out and back costs far less than evaluating it (`python -m benches.engine_cells` measures
both). So what has to leave its cells is put here, and comes back when a prompt begins with it again. What an earlier process
kept on disk (`pytrace.models.llama.prompt_cache`) is put here, too.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

import numpy as np
from numpy.typing import NDArray

from pytrace.models.llama.prefix_trie import Tokens, common_prefix

State = NDArray[np.uint8]


class EvictedPrefixes:
    """Saved keys and values by the tokens they stand for, the least recently used first to go; threads may share it."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.bytes = 0
        self._kept: OrderedDict[bytes, tuple[Tokens, State]] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """How many prefixes there are."""
        return len(self._kept)

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._kept.clear()
            self.bytes = 0

    def put(self, tokens: Tokens, state: State) -> bool:
        """Keep the state of a prefix, in place of those that it continues; false if there is no room for it."""
        if state.nbytes > self.budget:
            return False
        with self._lock:
            for key, (known, _) in list(self._kept.items()):
                if common_prefix(known, tokens) == len(known):
                    self._remove(key)
            self._kept[tokens.tobytes()] = (tokens, state)
            self.bytes += state.nbytes
            while self.bytes > self.budget:
                self._remove(next(iter(self._kept)))
        return True

    def knows(self, tokens: Tokens) -> bool:
        """Whether a prefix is kept, by itself or as a part of a longer one."""
        with self._lock:
            return any(common_prefix(known, tokens) == len(tokens) for known, _ in self._kept.values())

    def longest(self, tokens: Tokens) -> tuple[int, Tokens, State] | None:
        """Return what is kept that shares most with the beginning of `tokens`, and how much; None if nothing does."""
        best, size = None, 0
        with self._lock:
            for key, (known, _) in self._kept.items():
                shared = common_prefix(known, tokens)
                if shared > size:
                    best, size = key, shared
            if best is None:
                return None
            self._kept.move_to_end(best)
            return (size, *self._kept[best])

    def _remove(self, key: bytes) -> None:
        self.bytes -= self._kept.pop(key)[1].nbytes
