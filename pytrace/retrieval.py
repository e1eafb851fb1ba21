"""A large corpus becomes the few documents that a question is answered from.

The papers take a question's documents as given by a retriever; this is that retriever for a folder of one's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from pytrace.kernels.similarity import top_k
from pytrace.models.encoder import Encoder
from pytrace.records import Document


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
    """
    if count < 1:
        message = f"count must be at least 1, not {count}"
        raise ValueError(message)
    if len(documents) <= count:
        return list(documents)
    owners = [number for number, document in enumerate(documents) for _ in document.sentences]
    texts = [f"[{document.title}] {sentence}" for document in documents for sentence in document.sentences]
    ranked: list[int] = []
    if texts:
        _, order = top_k(encoder.encode([question], kind="query"), encoder.encode(texts, kind="passage"), len(texts))
        ranked = [owners[row] for row in order[0].tolist()]
    found = dict.fromkeys([*ranked, *range(len(documents))])
    return [documents[number] for number in islice(found, count)]
