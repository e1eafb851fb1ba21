"""Several rankings become one: reciprocal rank fusion."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import TypeVar

from pytrace.records import Document
from pytrace.retrieval.retriever import Hit, Retriever, check_count, check_queries

DEPTH = 100
"""A hundred hits of each ranking count: beyond them a rank adds less than 1/160, half of what the first one adds."""

Key = TypeVar("Key", bound=Hashable)


def fuse(rankings: Sequence[Sequence[Hit]], count: int, *, k: int = 60) -> list[Hit]:
    """Add up 1 / (k + rank) over rankings; only ranks count, scores do not.

    Parameters
    ----------
    rankings
        Hits, best first; a document is met by its id, and its first place in a ranking counts.
    count
        At least 1.
    k
        How much the first ranks are levelled; the paper's 60.

    Returns
    -------
    list of Hit
        At most `count`, best first; ties in the order in which documents are met, the first ranking first.

    References
    ----------
    Cormack, Clarke and Büttcher, "Reciprocal Rank Fusion outperforms Condorcet and individual Rank Learning Methods"
    (SIGIR 2009), section 2.

    Examples
    --------
    >>> from pytrace.records import Document
    >>> a, b = (Hit(Document(name, name, ("text",)), 1.0) for name in "ab")
    >>> [(hit.document.id, round(hit.score, 4)) for hit in fuse([[a, b], [b]], 2)]
    [('b', 0.0325), ('a', 0.0164)]
    """
    documents: dict[str, Document] = {}
    for ranking in rankings:
        for hit in ranking:
            documents.setdefault(hit.document.id, hit.document)
    scores = reciprocal_ranks([[hit.document.id for hit in ranking] for ranking in rankings], k=k)
    return [Hit(documents[name], score) for name, score in list(scores.items())[:count]]


def reciprocal_ranks(rankings: Iterable[Iterable[Key]], *, k: int = 60) -> dict[Key, float]:
    """Return the sums of 1 / (k + rank) of all that is ranked, best first; see `fuse`."""
    scores: dict[Key, float] = {}
    for ranking in rankings:
        for rank, name in enumerate(dict.fromkeys(ranking), 1):
            scores[name] = scores.get(name, 0.0) + 1 / (k + rank)
    # sorted keeps the order of equal sums, which is that of the dictionary: as they were met.
    return dict(sorted(scores.items(), key=lambda pair: -pair[1]))


class FusedRetriever:
    """Ranks documents by what several retrievers say, whatever the scale of their scores.

    Parameters
    ----------
    retrievers
        Each is asked for the same queries; at least one.
    k
        As in `fuse`; 0 or more.
    depth
        How many hits of each retriever count; as many as are asked for, and at least 100, if None. At least 1.

    Examples
    --------
    >>> from pytrace.models.scripted import HashEncoder
    >>> from pytrace.records import Document
    >>> from pytrace.retrieval import Bm25Retriever, DenseRetriever, FusedRetriever
    >>> corpus = [Document("1", "Bread", ("It is baked.",)), Document("2", "Ferries", ("One ferry carries mail.",))]
    >>> fused = FusedRetriever([DenseRetriever(corpus, HashEncoder()), Bm25Retriever(corpus)])
    >>> [hit.document.id for hit in fused.retrieve(["Which ferry?"], 2)[0]]
    ['2', '1']
    """

    def __init__(self, retrievers: Sequence[Retriever], *, k: int = 60, depth: int | None = None) -> None:
        if not retrievers:
            raise ValueError("there is no retriever to fuse; give at least one")
        if k < 0:
            raise ValueError(f"k must be at least 0, not {k}")
        if depth is not None:
            check_count("depth", depth)
        self._retrievers = tuple(retrievers)
        self._k = k
        self._depth = depth

    def retrieve(self, queries: Sequence[str], count: int) -> list[list[Hit]]:
        """Rank documents by the sums of their reciprocal ranks; ties fall in the order in which documents are met."""
        check_queries(queries, count)
        depth = max(count, DEPTH) if self._depth is None else self._depth
        rankings = [retriever.retrieve(queries, depth) for retriever in self._retrievers]
        # A retriever may give more than it was asked for.
        return [fuse([ranking[:depth] for ranking in row], count, k=self._k) for row in zip(*rankings, strict=True)]
