"""A large corpus becomes the few documents that a question is answered from.

The papers take a question's documents as given by a retriever; this is that retriever for a folder of one's own.
"""

from __future__ import annotations

from collections.abc import Sequence

from pytrace.models.encoders.encoder import Encoder
from pytrace.records import Document
from pytrace.retrieval.dense import DenseRetriever
from pytrace.retrieval.retriever import check_count


def nearest_documents(question: str, documents: Sequence[Document], encoder: Encoder, count: int) -> list[Document]:
    """Return the `count` documents nearest to a question, best first; all of them, as given, if there are no more.

    A document is as near as its nearest sentence, so that a long document is not punished for what else it tells.

    Parameters
    ----------
    question
        The question's text.
    documents
        The corpus.
    encoder
        Encodes the question and every sentence, title in front.
    count
        At least 1.

    Returns
    -------
    list of Document
        `count`, or all if there are fewer; ties keep the corpus's order, and documents without text come last.

    Raises
    ------
    ValueError
        `count` is below 1.
    ModelError
        The encoder gives NaN or vectors of another shape.

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
    if len(documents) <= count:
        return list(documents)
    return [hit.document for hit in DenseRetriever(documents, encoder).retrieve([question], count)[0]]
