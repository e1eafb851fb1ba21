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
    """Find the sentences nearest to each query in Euclidean distance, exactly and in one call of the kernel.

    Parameters
    ----------
    queries
        The queries' texts. What is longer than the encoder reads counts up to there.
    sentences_of_each
        Lists of sentences, perhaps empty; one a query unless `owners` says otherwise.
    encoder
        Embeds queries and sentences, each kind in one call.
    count
        k, at least 1.
    owners
        Which list each query searches, never decreasing: so several queries share a list, which is embedded once.

    Returns
    -------
    list of list of int
        At most `count` places in its list for each query, in the order of the list; among equally near ones the first win.

    Raises
    ------
    ValueError
        `count` is below 1, or queries, lists and owners do not belong together.

    Notes
    -----
    KS-LLM, section 3.2. Time is linear in sentences times dimensions.

    Examples
    --------
    >>> from pytrace.models.scripted import HashEncoder
    >>> sentences = ["Bread is baked.", "The ferry leaves at noon.", "A ferry carries mail."]
    >>> nearest_sentences(["When leaves the ferry?"], [sentences], HashEncoder(), 2)
    [[1, 2]]
    """
    if count < 1:
        message = f"count must be at least 1, not {count}"
        raise ValueError(message)
    own = np.arange(len(queries)) if owners is None else np.asarray(owners, dtype=np.int64)
    if owners is None and len(queries) != len(sentences_of_each):
        message = f"there are {len(queries)} queries but {len(sentences_of_each)} lists of sentences"
        raise ValueError(message)
    if len(own) != len(queries) or (np.diff(own) < 0).any() or not ((own >= 0) & (own < len(sentences_of_each))).all():
        message = f"owners must name one of {len(sentences_of_each)} lists for each of {len(queries)} queries, in ascending order"
        raise ValueError(message)
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
    return [
        sorted(row - start for row in found if row >= 0) for found, start in zip(rows.tolist(), starts, strict=True)
    ]
