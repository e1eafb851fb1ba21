"""Vectors find documents: a document is as near as its nearest sentence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import repeat

import numpy as np

from pytrace.kernels.device_vectors import DeviceVectors
from pytrace.models.encoders.encoder import Encoder, device_of, encode
from pytrace.records import Document
from pytrace.retrieval.retriever import Hit, check_count, check_queries

# Numbers in the kernel's answer to a block of queries: 4 Mi scores and indices take 48 MiB.
_ANSWERS = 1 << 22


class DenseRetriever:
    """Ranks documents by the inner product of a query with their nearest sentence, title in front.

    A long document is not punished for what else it tells. The corpus is encoded once, when the retriever is made.

    Parameters
    ----------
    documents
        The corpus.
    encoder
        Encodes every sentence as `[title] sentence`, and the queries; on a card if its device is one, the corpus is kept
        and searched there. `ModelError` if it gives NaN or vectors of another shape.

    References
    ----------
    TRACE, section 3.3 and Appendix B.2: the same bi-encoder and inner product rank its sentences and triples.

    Examples
    --------
    >>> from pytrace.models.scripted import HashEncoder
    >>> from pytrace.records import Document
    >>> from pytrace.retrieval import DenseRetriever
    >>> corpus = [Document("1", "Bread", ("It is baked.",)), Document("2", "Ferries", ("One ferry carries mail.",))]
    >>> [hit.document.id for hit in DenseRetriever(corpus, HashEncoder()).retrieve(["Which ferry?"], 1)[0]]
    ['2']
    """

    def __init__(self, documents: Sequence[Document], encoder: Encoder) -> None:
        self._corpus = Sentences([documents])
        self._encoder = encoder
        self._vectors = DeviceVectors(encode(encoder, self._corpus.texts, "passage"), device_of(encoder))

    def retrieve(self, queries: Sequence[str], count: int) -> list[list[Hit]]:
        """Rank the corpus by each query; documents without sentences come last, with score minus infinity."""
        check_queries(queries, count)
        if not queries:
            return []
        vectors = encode(self._encoder, queries, "query")
        wanted = self._corpus.enough(count)
        block = max(_ANSWERS // max(wanted, 1), 1)
        hits: list[list[Hit]] = []
        for start in range(0, len(queries), block):
            scores, rows = self._vectors.top_k(vectors[start : start + block], wanted)
            hits += map(self._corpus.hits, repeat(0), rows.tolist(), scores.tolist(), repeat(count))
        return hits


def nearest_documents(question: str, documents: Sequence[Document], encoder: Encoder, count: int) -> list[Document]:
    """Return the `count` documents nearest to a question, as `DenseRetriever` ranks them; all, as given, if there are no more.

    The papers take a question's documents as given by a retriever; this is that retriever for a folder of one's own.
    `ValueError` if `count` is below 1, `ModelError` as of `DenseRetriever`.

    Examples
    --------
    >>> from pytrace.models.scripted import HashEncoder
    >>> from pytrace.records import Document
    >>> from pytrace.retrieval import nearest_documents
    >>> corpus = [Document("1", "Bread", ("It is baked.",)), Document("2", "Ferries", ("One ferry carries mail.",))]
    >>> [document.title for document in nearest_documents("Which ferry?", corpus, HashEncoder(), 1)]
    ['Ferries']
    """
    check_count("count", count)
    # Where there is nothing to choose, nothing is encoded.
    if len(documents) <= count:
        return list(documents)
    return [hit.document for hit in DenseRetriever(documents, encoder).retrieve([question], count)[0]]


class Sentences:
    """The sentences of several corpora in one list, each with the document that it belongs to."""

    def __init__(self, corpora: Sequence[Sequence[Document]], *, whole: bool = False) -> None:
        self.corpora = [tuple(documents) for documents in corpora]
        self.texts: list[str] = []
        self._owners: list[int] = []
        self._lengths: list[list[int]] = []
        for documents in self.corpora:
            lengths = []
            for number, document in enumerate(documents):
                # A whole document without a sentence is no passage either: its title alone says nothing.
                passages = (document.text,) * bool(document.sentences) if whole else document.sentences
                # The title in front, as TRACE embeds its sentences: many of them name their subject only by "it".
                self.texts += [f"[{document.title}] {passage}" for passage in passages]
                self._owners += [number] * len(passages)
                lengths.append(len(passages))
            self._lengths.append(lengths)
        self.offsets = np.cumsum([0, *map(sum, self._lengths)], dtype=np.int64)

    def enough(self, count: int) -> int:
        """Return how many of the nearest sentences surely hold `count` documents, in every corpus that has them."""
        most = 0
        for lengths in self._lengths:
            # At worst the longest documents have the nearest sentences, all of them, and one more is of another document.
            longest = sorted(lengths, reverse=True)
            most = max(most, min(sum(longest[: count - 1]) + 1, sum(longest)))
        return most

    def hits(self, corpus: int, rows: Sequence[int], scores: Sequence[float], count: int) -> list[Hit]:
        """Turn the nearest sentences of a corpus, best first and filled up with -1, into its `count` best documents."""
        best: dict[int, float] = {}
        for row, score in zip(rows, scores, strict=True):
            if row < 0 or len(best) == count:
                break
            best.setdefault(self._owners[row], score)
        documents = self.corpora[corpus]
        # Documents without sentences, where there are too few others: what is ranked is the whole corpus.
        for number in range(len(documents) if len(best) < count else 0):
            if len(best) == count:
                break
            best.setdefault(number, -math.inf)
        return [Hit(documents[number], score) for number, score in best.items()]
