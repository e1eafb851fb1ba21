"""Texts sorted by length into batches: little padding, batches that fit the cache, work for every thread."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

# What starting one more batch costs, counted in tokens: the operators' own overhead, and products of few rows, which run
# slower a row. On MiniLM one text of 12 tokens takes about as long as 25 more tokens in a batch of 500.
_OVERHEAD = 32
# Batches are not cut smaller than this for the sake of idle threads.
_LEAST = 64


def plan(
    lengths: Sequence[int], *, batch_tokens: int, most_rows: int | None = None, threads: int = 1
) -> list[list[int]]:
    """Sort texts into batches, each padded to its longest."""
    # A batch ends where the next text would take it over `batch_tokens`, or would bring its padding over what one more
    # batch costs. Where all texts are fewer tokens than `threads` batches hold, batches are smaller, so that no thread
    # is idle. Takes O(n log n) for n texts.
    order = np.argsort(np.asarray(lengths, dtype=np.int64), kind="stable").tolist()
    most = max(1, most_rows or len(order))
    tokens = min(batch_tokens, max(_LEAST, -(-sum(lengths) // threads)))
    batches: list[list[int]] = []
    batch: list[int] = []
    used = 0
    for index in order:
        # Sorted by length, the newest text of a batch is its longest: it sets the padded width of all.
        padded = (len(batch) + 1) * lengths[index]
        if batch and (padded > tokens or padded - used - lengths[index] > _OVERHEAD or len(batch) == most):
            batches.append(batch)
            batch, used = [], 0
        batch.append(index)
        used += lengths[index]
    if batch:
        batches.append(batch)
    return batches[::-1]
