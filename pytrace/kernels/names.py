"""Stand-in until the compiled kernel is merged: exact look-up of many names in many texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Found(NamedTuple):
    offsets: NDArray[np.int64]
    names: NDArray[np.int64]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]


class NameTable:
    def __init__(self, hashes: NDArray[np.uint64], text: NDArray[np.uint8], offsets: NDArray[np.int64]) -> None:
        self.hashes, self.text, self.offsets = hashes, text, offsets
        self._rows: dict[str, int] | None = None

    def __len__(self) -> int:
        return len(self.hashes)

    @classmethod
    def build(cls, names: Sequence[str]) -> tuple[NameTable, NDArray[np.int64]]:
        import hashlib

        hashes = {
            name: int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little") for name in names
        }
        ordered = sorted(hashes, key=hashes.__getitem__)
        blob = [name.encode() for name in ordered]
        rows = {name: row for row, name in enumerate(ordered)}
        table = cls(
            np.array([hashes[name] for name in ordered], dtype=np.uint64),
            np.frombuffer(b"".join(blob), dtype=np.uint8),
            np.cumsum([0, *map(len, blob)], dtype=np.int64),
        )
        return table, np.array([rows[name] for name in names], dtype=np.int64)

    def name(self, row: int) -> str:
        return self.text[self.offsets[row] : self.offsets[row + 1]].tobytes().decode()

    def find(self, texts: Sequence[str], *, threads: Any = None) -> Found:
        if self._rows is None:
            self._rows = {self.name(row): row for row in range(len(self))}
        rows = self._rows
        offsets, names, starts, ends = [0], [], [], []
        for text in texts:
            words = text.split()
            at = 0
            while at < len(words):
                for size in range(min(16, len(words) - at), 0, -1):
                    row = rows.get(" ".join(words[at : at + size]))
                    if row is not None:
                        names.append(row)
                        starts.append(at)
                        ends.append(at + size)
                        at += size
                        break
                else:
                    at += 1
            offsets.append(len(names))
        return Found(*(np.array(each, dtype=np.int64) for each in (offsets, names, starts, ends)))
