"""What every retriever does, and the checks that all of them share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from pytrace.errors import ModelError
from pytrace.models.encoder import Encoder, Kind
from pytrace.records import Document

Vectors = NDArray[np.float32]

# Squared differences of numbers up to this, over any dimension below 10^8, still fit float32.
_LARGEST = 1e15


class Hit(msgspec.Struct, frozen=True):
    """A document that was found and its score: larger is better, and scores of two retrievers are no one scale."""

    document: Document
    score: float


class Retriever(Protocol):
    """Anything that finds documents for questions; deterministic, so that a run can be repeated."""

    def retrieve(self, queries: Sequence[str], count: int) -> list[list[Hit]]:
        """Return at most `count` documents a query, best first, ties in the corpus's order."""


def check_queries(queries: Sequence[str], count: int) -> None:
    """Refuse what is no list of texts, and counts below 1.

    Raises
    ------
    TypeError
        `queries` is one string, or holds something that is none.
    ValueError
        `count` is below 1.
    """
    if isinstance(queries, str | bytes):
        message = f"queries must be a sequence of strings, not one {type(queries).__name__}; put it in a list"
        raise TypeError(message)
    given: Sequence[object] = queries
    for number, query in enumerate(given):
        if not isinstance(query, str):
            message = f"queries must be strings, but item {number} is of type {type(query).__name__}"
            raise TypeError(message)
    check_count("count", count)


def check_count(name: str, count: int) -> None:
    """Refuse a count below 1.

    Raises
    ------
    ValueError
        `count` is below 1.
    """
    if count < 1:
        message = f"{name} must be at least 1, not {count}"
        raise ValueError(message)


def encode(encoder: Encoder, texts: Sequence[str], kind: Kind) -> Vectors:
    """Encode texts and check what comes back, so that nothing broken is stored or ranked.

    Parameters
    ----------
    encoder
        Any encoder.
    texts
        Any number of them.
    kind
        What the texts are.

    Returns
    -------
    float32 array [n, dimension]
        One row a text.

    Raises
    ------
    ModelError
        The encoder gives vectors of another shape, NaN, infinity, or numbers too large for distances in float32.
    """
    vectors = np.asarray(encoder.encode(texts, kind=kind), dtype=np.float32)
    if vectors.shape != (len(texts), encoder.dimension):
        message = (
            f"encoder {encoder.name!r} gives vectors {list(vectors.shape)} for {len(texts)} texts where "
            f"[{len(texts)}, {encoder.dimension}] is due; mend the encoder"
        )
        raise ModelError(message)
    good = (np.abs(vectors) <= _LARGEST).all(axis=1)  # false for NaN too
    if not good.all():
        row = int(np.argmin(good))
        message = (
            f"encoder {encoder.name!r} gives NaN, infinity or numbers above {_LARGEST:.0e} for {int((~good).sum())} of "
            f"{len(texts)} texts, first for number {row}, {texts[row][:60]!a}; mend the encoder or leave the text out"
        )
        raise ModelError(message)
    return vectors
