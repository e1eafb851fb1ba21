"""Lists of numbers of any length, one behind the other in one array, and looking numbers up."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray

_Number = TypeVar("_Number", np.uint64, np.int64)

LOW = (1 << 32) - 1


class Lists(NamedTuple):
    """List `i` is ``values[offsets[i]:offsets[i + 1]]``; offsets ``[n + 1]``, of any kind of whole numbers."""

    offsets: NDArray[Any]
    values: NDArray[Any]

    @classmethod
    def of(cls, lists: Sequence[NDArray[np.int64]]) -> Lists:
        """Put lists one behind the other."""
        return cls(starts_of([len(each) for each in lists]), np.concatenate([np.empty(0, np.int64), *lists]))

    @property
    def owners(self) -> NDArray[np.int64]:
        """The list that each value is in."""
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))

    def take(self, numbers: NDArray[np.integer[Any]]) -> Lists:
        """Return some of the lists, in the order of `numbers`."""
        offsets, places = ranges(self.offsets[numbers], self.offsets[numbers + 1], len(self.values))
        return Lists(offsets, self.values[places])

    def sizes(self, numbers: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
        """Return how long some of the lists are."""
        sizes: NDArray[np.int64] = self.offsets[numbers + 1].astype(np.int64) - self.offsets[numbers]
        return sizes


def grouped(owners: NDArray[np.int64], values: NDArray[np.integer[Any]], count: int) -> Lists:
    """Return the values of each of `count` owners, rising, each once; all are below 2^31."""
    # One number a pair, since numbers are sorted several times as fast as rows.
    pairs = np.sort(paired(owners, values))
    pairs = pairs[np.diff(pairs, prepend=-1) != 0]
    return Lists(starts_of(np.bincount(pairs >> 32, minlength=count)), pairs & LOW)


def paired(owners: NDArray[np.int64], values: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    """Return a number for each pair of two, ordered as the pairs are."""
    return owners << 32 | values


def starts_of(sizes: npt.ArrayLike) -> NDArray[np.int64]:
    """Return where lists of these sizes begin, one behind the other, and where the last ends."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64)])


def narrow(rising: NDArray[np.int64]) -> NDArray[np.integer[Any]]:
    """Return numbers that rise from 0 in half the room, if they fit."""
    fits = not len(rising) or int(rising[-1]) < 1 << 32
    return rising.astype(np.uint32) if fits else rising


def ranges(
    starts: NDArray[np.integer[Any]], ends: NDArray[np.integer[Any]], most: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return offsets of ranges that are put one behind the other, and all the numbers that are in them.

    Numbers are from 0 to `most`; what lies beyond, in a damaged file, is left out.
    """
    begun = np.clip(starts.astype(np.int64), 0, most)
    sizes = np.clip(ends.astype(np.int64), begun, most) - begun
    offsets = starts_of(sizes)
    return offsets, np.repeat(begun - offsets[:-1], sizes) + np.arange(int(offsets[-1]))


def places_among(rising: NDArray[_Number], wanted: NDArray[_Number]) -> NDArray[np.int64]:
    """Return where numbers stand among others that rise, -1 where they do not."""
    if not len(rising):
        return np.full(len(wanted), -1, dtype=np.int64)
    at = np.minimum(np.searchsorted(rising, wanted), len(rising) - 1)
    return np.where(rising[at] == wanted, at, -1)


class Lookup:
    """Finds hashes in an array of them, which is sorted when it is first searched.

    Parameters
    ----------
    hashes
        Uint64 ``[n]``, in any order.
    """

    def __init__(self, hashes: NDArray[np.uint64]) -> None:
        self._hashes = hashes

    @cached_property
    def _order(self) -> NDArray[np.int64]:
        return np.argsort(self._hashes, kind="stable")

    @cached_property
    def _sorted(self) -> NDArray[np.uint64]:
        return self._hashes[self._order]

    def find(self, wanted: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return pairs of a number in `wanted` and a place where that hash stands, one for every place."""
        starts = np.searchsorted(self._sorted, wanted)
        offsets, places = ranges(starts, np.searchsorted(self._sorted, wanted, side="right"), len(self._hashes))
        return np.repeat(np.arange(len(wanted)), np.diff(offsets)), self._order[places]
