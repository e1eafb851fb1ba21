"""Many short texts in two arrays, so that they can be mapped from a file and are decoded only when asked for."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

import msgspec
import numpy as np
from numpy.typing import NDArray


class TextTable(msgspec.Struct, frozen=True, eq=False):
    """Texts by number: text i is the UTF-8 in ``data[ends[i - 1]:ends[i]]`` (lone surrogates kept).

    `data` is uint8 and `ends` int64 [n]; both may be mapped from files.
    """

    data: NDArray[np.uint8]
    ends: NDArray[np.int64]

    @classmethod
    def of(cls, texts: Iterable[str]) -> TextTable:
        """Put texts into a table."""
        encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
        ends = np.cumsum(np.fromiter(map(len, encoded), dtype=np.int64, count=len(encoded)), dtype=np.int64)
        return cls(np.frombuffer(b"".join(encoded), dtype=np.uint8), ends)

    def __len__(self) -> int:
        """Count the texts."""
        return len(self.ends)

    def __getitem__(self, number: int) -> str:
        """Return one text."""
        if not 0 <= number < len(self.ends):
            raise IndexError(f"there is no text {number}; there are {len(self.ends)}")
        start = int(self.ends[number - 1]) if number else 0
        return self.data[start : int(self.ends[number])].tobytes().decode("utf-8", "surrogatepass")

    def __iter__(self) -> Iterator[str]:
        """Iterate over the texts in order."""
        return map(self.__getitem__, range(len(self)))


class KeyIndex(msgspec.Struct, frozen=True, eq=False):
    """Finds a text of a table: `hashes` uint64 [n] ascending, and `rows` int32 [n], the texts' numbers beside them."""

    hashes: NDArray[np.uint64]
    rows: NDArray[np.int32]

    @classmethod
    def of(cls, texts: Iterable[str]) -> KeyIndex:
        """Index texts, all different."""
        hashes = np.array([text_hash(text) for text in texts], dtype=np.uint64)
        order = np.argsort(hashes, kind="stable")
        return cls(hashes[order], order.astype(np.int32))

    def find(self, table: TextTable, text: str) -> int | None:
        """Return the number of a text, or None if the table does not have it."""
        wanted = np.uint64(text_hash(text))
        row = int(np.searchsorted(self.hashes, wanted))
        while row < len(self.hashes) and self.hashes[row] == wanted:
            if table[int(self.rows[row])] == text:
                return int(self.rows[row])
            row += 1
        return None


def text_hash(text: str) -> int:
    """Return 64 bits that are the same for the same text in every process and on every machine."""
    # Python's own hash differs from process to process, and these are kept in files.
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")
