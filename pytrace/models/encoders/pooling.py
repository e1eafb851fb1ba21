"""From the vectors of a text's tokens to one vector, as sentence-transformers' module Pooling does it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]
Mask = NDArray[np.bool_]

# Below any sum of weights but that of no token.
_LEAST_WEIGHT = np.float32(1e-9)


def pool(hidden: Vectors, mask: Mask, modes: tuple[str, ...], *, skip: int = 0) -> Vectors:
    """Return float32 [n, dimension x modes]: one vector a text, those of several modes one behind the other.

    Parameters
    ----------
    hidden
        float32 [n, length, dimension], a vector for every token, padding behind them.
    mask
        bool [n, length], true where a token is none of padding.
    modes
        Names among `MODES`.
    skip
        How many tokens at the beginning of each text do not count; where these are all, the vector is zero, by "cls" the
        first token's.

    Notes
    -----
    Reimers and Gurevych, "Sentence-BERT" (EMNLP 2019), section 3; weighted by position: Muennighoff, "SGPT" (2022), section 3.
    """
    counted = mask
    if skip:
        counted = mask.copy()
        counted[:, :skip] = False
    return np.concatenate([_POOLS[mode](hidden, counted) for mode in modes], axis=1, dtype=np.float32)


def _first(hidden: Vectors, mask: Mask) -> Vectors:
    return np.asarray(hidden[np.arange(len(hidden)), np.argmax(mask, axis=1)])


def _last(hidden: Vectors, mask: Mask) -> Vectors:
    last = hidden[np.arange(len(hidden)), mask.shape[1] - 1 - np.argmax(mask[:, ::-1], axis=1)]
    return np.where(mask.any(axis=1, keepdims=True), last, np.float32(0))


def _largest(hidden: Vectors, mask: Mask) -> Vectors:
    largest = np.where(mask[..., None], hidden, np.float32(-np.inf)).max(axis=1)
    return np.where(mask.any(axis=1, keepdims=True), largest, np.float32(0))


def _mean(hidden: Vectors, mask: Mask) -> Vectors:
    return _weighted(hidden, mask.astype(np.float32))


def _mean_by_root(hidden: Vectors, mask: Mask) -> Vectors:
    return _weighted(hidden, mask.astype(np.float32), np.sqrt)


def _mean_by_position(hidden: Vectors, mask: Mask) -> Vectors:
    return _weighted(hidden, np.where(mask, np.arange(1, mask.shape[1] + 1, dtype=np.float32), np.float32(0)))


def _weighted(hidden: Vectors, weights: Vectors, of_total: Callable[[Any], Any] = lambda total: total) -> Vectors:
    # Added up token after token, the sum does not change with the amount of padding, to the last bit; what has no weight may
    # be NaN.
    kept = np.where(weights[..., None] > 0, hidden * weights[..., None], np.float32(0))
    total = weights.sum(axis=1, keepdims=True, dtype=np.float32)
    return np.asarray(np.add.reduce(kept, axis=1) / of_total(np.maximum(total, _LEAST_WEIGHT)), dtype=np.float32)


_POOLS: dict[str, Callable[[Vectors, Mask], Vectors]] = {
    "cls": _first,
    "max": _largest,
    "mean": _mean,
    "mean_sqrt_len_tokens": _mean_by_root,
    "weightedmean": _mean_by_position,
    "lasttoken": _last,
}
MODES = tuple(_POOLS)
"""The names of the ways, in the order in which sentence-transformers puts them behind each other."""
