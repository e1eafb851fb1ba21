"""Exact look-up of many names in many texts at once, the longest first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pytrace import _core
from pytrace.kernels.strings import joined

LONGEST = 64
"""Words of a name, at most."""

# From so many words of text for each name on, tables are built first; a look-up then costs a tenth.
_WORDS_A_NAME = 1 / 16
# A word, with the space behind it: only to choose a way.
_BYTES_A_WORD = 6


class FoundNames(NamedTuple):
    """The names in each text, by where they begin.

    Attributes
    ----------
    offsets
        Int64 ``[n_texts + 1]``: those of text i are ``offsets[i]`` to ``offsets[i + 1]``.
    names
        Int64: their rows in the table.
    starts, ends
        Int64: the words that each takes within its text, from 0, the end exclusive.
    """

    offsets: NDArray[np.int64]
    names: NDArray[np.int64]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]


class NameTable:
    """Names that are looked up again and again: arrays, which may be mapped from a file and are used where they lie.

    Names and texts are words with single spaces between them, in whatever normal form the caller compares them.

    Parameters
    ----------
    hashes
        Uint64 ``[n_names]``, rising: the names' hashes.
    text, offsets
        Uint8, and int64 ``[n_names + 1]``: the names in UTF-8, in that order.
    firsts, lengths
        Uint64 ``[n_first_words]``: hashes of names' first words, rising, and for each a bit for every length in words that such
        names have.

    Raises
    ------
    ValueError, TypeError
        Lengths or types do not go together; what is inside of the arrays is checked where it is read.

    Examples
    --------
    >>> table, rows = NameTable.build(["ada foah", "ada", "lake volta"])
    >>> found = table.find(["the town ada foah near lake volta", "ada"])
    >>> [table.name(row) for row in found.names], found.offsets.tolist()
    (['ada foah', 'lake volta', 'ada'], [0, 2, 3])
    >>> found.starts.tolist(), found.ends.tolist()
    ([2, 5, 0], [4, 7, 1])
    """

    def __init__(
        self,
        hashes: NDArray[np.uint64],
        text: NDArray[np.uint8],
        offsets: NDArray[np.int64],
        firsts: NDArray[np.uint64],
        lengths: NDArray[np.uint64],
    ) -> None:
        if len(offsets) != len(hashes) + 1:
            raise ValueError(f"{len(hashes):,} hashes need {len(hashes) + 1:,} offsets, not {len(offsets):,}")
        if len(firsts) != len(lengths):
            raise ValueError(f"there are {len(firsts):,} first words, but lengths of {len(lengths):,}")
        self.hashes = hashes
        self.text = text
        self.offsets = offsets
        self.firsts = firsts
        self.lengths = lengths

    @classmethod
    def build(cls, names: Sequence[str], *, threads: int | None = None) -> tuple[NameTable, NDArray[np.int64]]:
        """Make a table of names.

        Parameters
        ----------
        names
            The names; one that stands twice has one row.
        threads
            Threads to use at most.

        Returns
        -------
        NameTable, ndarray
            The table, and the row in it of each name that was given, int64 ``[n_names]``.

        Raises
        ------
        ValueError
            A name has no word, or more than 64.
        """
        return cls.of(*joined(names), threads=threads)

    @classmethod
    def of(
        cls, text: NDArray[np.uint8], offsets: NDArray[np.int64], *, threads: int | None = None
    ) -> tuple[NameTable, NDArray[np.int64]]:
        """Make a table of names in UTF-8 that stand one behind the other, as `build` does."""
        hashes, names, ends, firsts, lengths, rows = _core.build_names(text, offsets, threads)
        return cls(hashes, names, ends, firsts, lengths), rows

    def __len__(self) -> int:
        """Count the names."""
        return len(self.hashes)

    def name(self, row: int) -> str:
        """Return a name; `IndexError` if there is no such row, `ValueError` if its bytes are damaged."""
        if not 0 <= row < len(self):
            raise IndexError(f"there is no name {row} among {len(self):,}")
        start, end = int(self.offsets[row]), int(self.offsets[row + 1])
        if not 0 <= start <= end <= len(self.text):
            raise ValueError(f"name {row} lies at bytes {start} to {end} of {len(self.text):,}")
        return self.text[start:end].tobytes().decode("utf-8", "surrogatepass")

    def find(
        self, texts: Sequence[str | bytes], *, threads: int | None = None, index: bool | None = None
    ) -> FoundNames:
        """Find the names in texts: at each word the longest that begins there, and then on behind it.

        Parameters
        ----------
        texts
            The texts, or their UTF-8.
        threads
            Threads to use at most; default `pytrace._core.num_threads()`.
        index
            Whether tables of all names are built first, which pays for much text; chosen by the sizes if left out. What is found
            is the same.

        Returns
        -------
        FoundNames
            The same whatever the batch and the threads.

        Raises
        ------
        ValueError, TypeError
            Arrays of the table are damaged, or of other types.
        """
        content, offsets = joined(texts)
        if index is None:
            index = len(content) / _BYTES_A_WORD > _WORDS_A_NAME * len(self)
        arrays = (self.hashes, self.text, self.offsets, self.firsts, self.lengths)
        return FoundNames(*_core.find_names(*arrays, content, offsets, index, threads))
