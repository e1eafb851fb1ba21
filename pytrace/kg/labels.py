"""Entities by any of their labels and aliases: what a store of triples calls them, found in spite of typos."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import numpy as np
from numpy.typing import NDArray

from pytrace.kg.entities import EntityIndex
from pytrace.kg.fact_store import EntityMatch
from pytrace.kg.text_table import TextTable

# Labels that a look-up asks for at first: as many as are scored, so that more cost nothing. They have fewer keys than are
# wanted only where an entity has very many labels that are alike.
_LABELS = 512


class LabelIndex(msgspec.Struct, frozen=True, eq=False):
    """Keys by their labels and aliases; a key may have several labels, and a label several keys."""

    # 10^6 labels of 10^6 keys take 200 MiB. Indexing them takes 11 s and 1.7 GiB, nearly all of it for `EntityIndex.of`
    # (benches/entity_linking.py).
    index: EntityIndex
    labels: TextTable  # all different; label i is entity i of the index
    keys: TextTable
    # Label i has the keys ``owners[ends[i - 1]:ends[i]]``, in the order in which they were given.
    ends: NDArray[np.int64]
    owners: NDArray[np.int32]

    @classmethod
    def of(cls, pairs: Iterable[tuple[str, str]]) -> LabelIndex:
        """Index labels."""
        labels: dict[str, int] = {}
        keys: dict[str, int] = {}
        # Label and key in one integer, so that a pair takes 8 bytes.
        joined = np.fromiter(
            (labels.setdefault(label, len(labels)) << 32 | keys.setdefault(key, len(keys)) for key, label in pairs),
            dtype=np.int64,
        )
        joined = joined[np.sort(np.unique(joined, return_index=True)[1])]
        label_of = joined >> 32
        joined = joined[np.argsort(label_of, kind="stable")]
        table = TextTable.of(keys)
        del keys  # the index needs the memory
        return cls(
            index=EntityIndex.of(labels),
            labels=TextTable.of(labels),
            keys=table,
            ends=np.cumsum(np.bincount(label_of, minlength=len(labels)), dtype=np.int64),
            owners=(joined & 0xFFFFFFFF).astype(np.int32),
        )

    def find(self, mention: str, *, limit: int = 5, cutoff: float = 60.0) -> list[EntityMatch]:
        """Find the entities that a mention may mean."""
        asked = max(limit, _LABELS) if limit > 0 else limit  # the index refuses what is below 1
        while True:
            labels = self.index.find(mention, limit=asked, cutoff=cutoff)
            matches = self._matches(mention, labels, limit)
            if len(matches) == limit or len(labels) < asked:
                return matches
            asked *= 8

    def _matches(self, mention: str, labels: list[tuple[int, float]], limit: int) -> list[EntityMatch]:
        """Return the keys of found labels, each once."""
        same = {label for label, score in labels if score == 100.0 and self.labels[label] == mention}
        ranked = sorted(labels, key=lambda each: (-each[1], each[0] not in same))  # else as the index has them
        matches: dict[int, EntityMatch] = {}
        for label, score in ranked:
            start = int(self.ends[label - 1]) if label else 0
            for number in self.owners[start : int(self.ends[label])].tolist():
                if number not in matches:
                    matches[number] = EntityMatch(self.keys[number], self.labels[label], score)
                    if len(matches) == limit:
                        return list(matches.values())
        return list(matches.values())
