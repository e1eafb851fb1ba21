"""Vectors of texts that were encoded before, so that only new ones are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pytrace.models.encoders.encoder import Encoder, Vectors, encode
from pytrace.retrieval.passages.ragged import Lookup
from pytrace.retrieval.passages.segment import Segment


class KnownVectors:
    """Finds the vectors of passages among those of segments, by a hash of their texts.

    Parameters
    ----------
    segments
        Where to look; they stay open.
    """

    def __init__(self, segments: Sequence[Segment]) -> None:
        self._segments = [(segment, Lookup(segment["contents"])) for segment in segments]

    def encode(self, texts: Sequence[str], contents: NDArray[np.uint64], encoder: Encoder) -> tuple[Vectors, int]:
        """Return the vectors of texts, whose hashes are given, and how many of them had to be encoded."""
        vectors = np.empty((len(texts), encoder.dimension), dtype=np.float32)
        new = np.ones(len(texts), dtype=bool)
        for segment, lookup in self._segments:
            numbers, rows = lookup.find(contents)
            vectors[numbers] = segment.vectors_of(rows)
            new[numbers] = False
        if new.any():
            places = np.flatnonzero(new)
            vectors[places] = encode(encoder, [texts[place] for place in places.tolist()], "passage")
        return vectors, int(new.sum())
