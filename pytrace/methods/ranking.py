"""Which of a question's documents a baseline reads: the first ones by the order of a retriever or a cross-encoder."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from pytrace.errors import InputError
from pytrace.methods.base import Documents
from pytrace.models.encoders.cross_encoder import CrossEncoder, checked_scores
from pytrace.models.encoders.encoder import Encoder
from pytrace.records import Document
from pytrace.retrieval import RetrieverName, check_retriever, rank_each
from pytrace.retrieval.searching import Search

NO_CROSS_ENCODER = "a cross-encoder is to read question and passage together, but none was named; give --cross-encoder"
Rank = Callable[[Sequence[str], Documents, int], list[list[Document]]]
"""From questions, the documents of each, and a count to at most so many documents of each, best first."""


def rank_by(
    retriever: RetrieverName,
    encoder: Encoder | None,
    *,
    whole_documents: bool = False,
    search: Search | None = None,
) -> Rank:
    """Return a function that ranks each question's own documents, or if there is a search, all that it finds."""
    if search is not None:
        return lambda queries, _documents, count: search(queries, retriever, count)
    check_retriever(retriever, encoder)

    def rank(questions: Sequence[str], documents: Documents, count: int) -> list[list[Document]]:
        ranked = rank_each(retriever, questions, documents, encoder, count, whole_documents=whole_documents)
        return [[hit.document for hit in hits] for hits in ranked]

    return rank


def rank_by_cross_encoder(cross_encoder: CrossEncoder) -> Rank:
    """Return a function that ranks each question's own documents by reading them together with the question."""
    # TRACE, section 4.1 and appendix C.2.

    def rank(questions: Sequence[str], documents: Documents, count: int) -> list[list[Document]]:
        pairs = [
            (question, ". ".join(part for part in (document.title, document.text) if part))
            for question, candidates in zip(questions, documents, strict=True)
            for document in candidates
        ]
        scores = checked_scores(cross_encoder, pairs)
        ends = np.cumsum([len(candidates) for candidates in documents], dtype=np.int64)[:-1]
        orders = (np.argsort(-some, kind="stable") for some in np.split(scores, ends)) if documents else ()
        return [[ranked[i] for i in order[:count].tolist()] for ranked, order in zip(documents, orders, strict=True)]

    return rank


def required(cross_encoder: Callable[[], CrossEncoder] | None) -> CrossEncoder:
    """Return the cross-encoder that a method or a setting of one cannot do without."""
    if cross_encoder is None:
        raise InputError(NO_CROSS_ENCODER)
    return cross_encoder()
