"""Which of a question's documents a baseline reads: the first ones by some retriever's order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pytrace.models.encoder import Encoder
from pytrace.records import Document
from pytrace.retrieval import RetrieverName, check_retriever, rank_each

Rank = Callable[[Sequence[str], Sequence[Sequence[Document]], int], list[list[Document]]]
"""From questions, the documents of each, and a count to at most so many documents of each, best first."""


def rank_by(retriever: RetrieverName, encoder: Encoder | None) -> Rank:
    """Return a function that ranks each question's own documents.

    Parameters
    ----------
    retriever
        "dense" (nearest sentence), "bm25" (shared words), "rrf" (both, by reciprocal rank fusion), or "given" (the
        documents' own order).
    encoder
        For "dense" and "rrf".

    Returns
    -------
    Rank
        Takes questions, the documents of each, and how many of them to return at most, best first.

    Raises
    ------
    InputError
        If there is no such retriever, or it needs an encoder and there is none.

    Examples
    --------
    >>> from pytrace.models.scripted import HashEncoder
    >>> ferry, bread = Document("1", "Ferry", ("It carries mail.",)), Document("2", "Bread", ("It is baked.",))
    >>> rank = rank_by("dense", HashEncoder())
    >>> [document.id for document in rank(["What is baked?"], [[ferry, bread]], 1)[0]]
    ['2']
    """
    check_retriever(retriever, encoder)

    def rank(questions: Sequence[str], documents: Sequence[Sequence[Document]], count: int) -> list[list[Document]]:
        found = rank_each(retriever, questions, documents, encoder, count)
        return [[hit.document for hit in hits] for hits in found]

    return rank
