"""Lists of numbers of any length, one behind the other in one array, and looking numbers up."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Lists(NamedTuple):
    """List `i` is ``values[offsets[i]:offsets[i + 1]]``; offsets int64 ``[n + 1]``."""

    offsets: NDArray[np.int64]
    values: NDArray[Any]

    def take(self, numbers: NDArray[np.int64]) -> Lists:
        """Return some of the lists, in the order of `numbers`."""
        starts, ends = self.offsets[numbers], self.offsets[numbers + 1]
        offsets, places = ranges(starts, ends, len(self.values))
        return Lists(offsets, self.values[places])


def ranges(
    starts: NDArray[np.integer[Any]], ends: NDArray[np.integer[Any]], most: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return offsets of ranges that are put one behind the other, and all the numbers that are in them.

    Numbers are from 0 to `most`; what lies beyond, in a damaged file, is left out.
    """
    begun = np.clip(starts.astype(np.int64), 0, most)
    sizes = np.clip(ends.astype(np.int64), begun, most) - begun
    offsets = np.zeros(len(sizes) + 1, dtype=np.int64)
    np.cumsum(sizes, out=offsets[1:])
    return offsets, np.repeat(begun - offsets[:-1], sizes) + np.arange(int(offsets[-1]))


def places_among(rising: NDArray[np.uint64], wanted: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return where numbers stand among others that rise, -1 where they do not."""
    if not len(rising):
        return np.full(len(wanted), -1, dtype=np.int64)
    at = np.minimum(np.searchsorted(rising, wanted), len(rising) - 1)
    return np.where(rising[at] == wanted, at, -1)
