"""The sentences nearest to a query, for many queries with sentences of their own in one search.

Source: KS-LLM, section 3.2, equations 2 and 3: query and sentences are embedded, and the k sentences at the smallest
Euclidean distance are the evidence.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain as concatenate

import numpy as np

from pytrace.kernels.similarity import top_k
from pytrace.models.encoders.encoder import Encoder


def nearest_sentences(
    queries: Sequence[str],
    sentences_of_each: Sequence[Sequence[str]],
    encoder: Encoder,
    count: int,
    *,
    owners: Sequence[int] | None = None,
) -> list[list[int]]:
    """Find the sentences nearest to each query in Euclidean distance, exactly and in one call of the kernel."""
    # KS-LLM, section 3.2. Time is linear in sentences times dimensions.
    if count < 1:
        raise ValueError(f"count must be at least 1, not {count}")
    own = np.arange(len(queries)) if owners is None else np.asarray(owners, dtype=np.int64)
    if owners is None and len(queries) != len(sentences_of_each):
        raise ValueError(f"there are {len(queries)} queries but {len(sentences_of_each)} lists of sentences")
    if len(own) != len(queries) or (np.diff(own) < 0).any() or not ((own >= 0) & (own < len(sentences_of_each))).all():
        raise ValueError(
            f"owners must name one of {len(sentences_of_each)} lists for each of {len(queries)} queries, in ascending order"
        )
    offsets = np.cumsum([0, *map(len, sentences_of_each)], dtype=np.int64)
    if not len(queries) or not offsets[-1]:
        return [[] for _ in queries]
    _, rows = top_k(
        encoder.encode(queries, kind="query"),
        encoder.encode(list(concatenate(*sentences_of_each)), kind="passage"),
        min(count, max(map(len, sentences_of_each))),
        metric="l2",
        offsets=offsets,
        query_offsets=np.searchsorted(own, np.arange(len(sentences_of_each) + 1)),
    )
    starts = offsets[own].tolist()
    # In the order of the text, not of distance: they are read as a passage.
    return [
        sorted(row - start for row in nearest if row >= 0) for nearest, start in zip(rows.tolist(), starts, strict=True)
    ]
