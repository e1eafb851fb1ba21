"""Which documents of a segment stay while a writer changes an index: found by the hashes of their ids, as numbers in arrays."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pytrace.retrieval.passages.ragged import Lookup
from pytrace.retrieval.passages.segment import Segment


class LiveSegment:
    """A segment with marks on its documents: `live` are those that stay, `seen` those that the writer was given.

    Parameters
    ----------
    segment
        The segment; it is closed with this.
    seen
        Whether its documents come from the writer itself.
    """

    def __init__(self, segment: Segment, *, seen: bool = False) -> None:
        self.segment = segment
        self.live = np.ones(segment.documents, dtype=bool)
        self.seen = np.full(segment.documents, seen)
        self._lookup = Lookup(segment.ids)

    @property
    def rows(self) -> NDArray[np.bool_]:
        """Which passages stay."""
        rows: NDArray[np.bool_] = self.live[self.segment["passages"]]
        return rows

    def find(self, ids: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return pairs of a number in hashes of ids and a document that stays; hashes may be equal where ids are not."""
        numbers, documents = self._lookup.find(ids)
        stays = self.live[documents]
        return numbers[stays], documents[stays]

    def holds(self, document: int, name: str) -> bool:
        """Tell whether a document has an id."""
        return self.segment.entry_of(document).id == name

    def close(self) -> None:
        """Close the segment."""
        self.segment.close()
