"""Exact look-up of many names in many texts at once, the longest first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pytrace import _core

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
        given = [" ".join(filter(None, name.split(" "))) for name in names]
        distinct = list(dict.fromkeys(given))
        numbers = {name: number for number, name in enumerate(distinct)}
        encoded = [name.encode("utf-8", "surrogatepass") for name in distinct]
        text, offsets = _joined(encoded)
        hashes, firsts, words = _core.hash_names(text, offsets, threads)
        if len(words) and not (words.min() > 0 and words.max() <= LONGEST):
            wrong = int(np.flatnonzero((words < 1) | (words > LONGEST))[0])
            raise ValueError(
                f"name {distinct[wrong][:60]!a} has {words[wrong]:,} words; a name has from 1 to {LONGEST}"
            )
        order = np.argsort(hashes, kind="stable")
        if len(hashes) > 1 and (np.diff(hashes[order]) == 0).any():
            # Names that share a hash stand by their bytes, whatever order they were given in.
            order = np.array(
                sorted(range(len(encoded)), key=lambda row: (int(hashes[row]), encoded[row])), dtype=np.int64
            )
        rows = np.empty(len(order), dtype=np.int64)
        rows[order] = np.arange(len(order))
        begun, places = np.unique(firsts, return_inverse=True)
        lengths = np.zeros(len(begun), dtype=np.uint64)
        np.bitwise_or.at(lengths, places, np.uint64(1) << (words - 1).astype(np.uint64))
        text, offsets = _joined([encoded[row] for row in order.tolist()])
        return cls(hashes[order], text, offsets, begun, lengths), rows[
            np.array([numbers[name] for name in given], dtype=np.int64)
        ]

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

    def find(self, texts: Sequence[str], *, threads: int | None = None, index: bool | None = None) -> FoundNames:
        """Find the names in texts: at each word the longest that begins there, and then on behind it.

        Parameters
        ----------
        texts
            The texts.
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
        content, offsets = _joined([text.encode("utf-8", "surrogatepass") for text in texts])
        if index is None:
            index = len(content) / _BYTES_A_WORD > _WORDS_A_NAME * len(self)
        arrays = (self.hashes, self.text, self.offsets, self.firsts, self.lengths)
        return FoundNames(*_core.find_names(*arrays, content, offsets, index, threads))


def _joined(pieces: Sequence[bytes]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    offsets = np.zeros(len(pieces) + 1, dtype=np.int64)
    np.cumsum([len(piece) for piece in pieces], out=offsets[1:])
    return np.frombuffer(b"".join(pieces), dtype=np.uint8), offsets
