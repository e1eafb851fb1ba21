"""An encoder's vectors, looked at before anything is stored, ranked or compared by them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pytrace.errors import ModelError
from pytrace.models.encoders.encoder import Encoder, Kind, Vectors

# Squared differences of numbers up to this, over any dimension below 10^8, still fit float32.
_LARGEST = 1e15


def encode(encoder: Encoder, texts: Sequence[str], kind: Kind) -> Vectors:
    """Encode texts and check what comes back, so that nothing broken is stored or ranked."""
    vectors = np.asarray(encoder.encode(texts, kind=kind), dtype=np.float32)
    if vectors.shape != (len(texts), encoder.dimension):
        raise ModelError(
            f"encoder {encoder.name!r} gives vectors {list(vectors.shape)} for {len(texts)} texts where "
            f"[{len(texts)}, {encoder.dimension}] is due; re-export the encoder"
        )
    good = (np.abs(vectors) <= _LARGEST).all(axis=1)  # false for NaN too
    if not good.all():
        row = int(np.argmin(good))
        raise ModelError(
            f"encoder {encoder.name!r} gives NaN, infinity or numbers above {_LARGEST:.0e} for {int((~good).sum())} of "
            f"{len(texts)} texts, first for number {row}, {texts[row][:60]!a}; re-export the encoder or leave the text out"
        )
    return vectors
