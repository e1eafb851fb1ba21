"""Vectors of texts that were encoded before, so that only new ones are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pytrace.models.encoders.encoder import Encoder, Vectors, encode
from pytrace.records import Document
from pytrace.retrieval.passages.segment import Segment, encoded_text, hash_texts


class KnownVectors:
    """Finds the vectors of passages among those of segments, by a hash of their texts.

    Parameters
    ----------
    segments
        Where to look; they stay open.
    """

    def __init__(self, segments: Sequence[Segment]) -> None:
        self._segments = segments
        contents = [np.empty(0, np.uint64), *(segment["contents"] for segment in segments)]
        joined = np.concatenate(contents)
        self._order = np.argsort(joined, kind="stable")
        self._contents = joined[self._order]
        self._starts = np.cumsum([len(each) for each in contents])

    def encode(self, passages: Sequence[Document], encoder: Encoder) -> tuple[Vectors, int]:
        """Return the vectors of passages, and how many of them had to be encoded."""
        texts = [encoded_text(passage) for passage in passages]
        hashes = hash_texts(texts)
        vectors = np.empty((len(texts), encoder.dimension), dtype=np.float32)
        at = np.minimum(np.searchsorted(self._contents, hashes), max(len(self._contents) - 1, 0))
        found = self._contents[at] == hashes if len(self._contents) else np.zeros(len(texts), dtype=bool)
        for number in np.flatnonzero(found).tolist():
            row = int(self._order[at[number]])
            source = int(np.searchsorted(self._starts, row, side="right")) - 1
            vectors[number] = self._segments[source].vectors_of(np.array([row - self._starts[source]]))[0]
        new = np.flatnonzero(~found)
        if len(new):
            vectors[new] = encode(encoder, [texts[number] for number in new.tolist()], "passage")
        return vectors, len(new)
