"""Retrievers by name, for one corpus or for many questions with a few documents each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

from pytrace.errors import InputError
from pytrace.kernels.similarity import top_k
from pytrace.models.encoders.checked_vectors import encode
from pytrace.models.encoders.encoder import Encoder
from pytrace.records import Document
from pytrace.retrieval.bm25 import Bm25Retriever
from pytrace.retrieval.dense import DenseRetriever, Sentences
from pytrace.retrieval.fusion import FusedRetriever, fuse
from pytrace.retrieval.original_order import OriginalOrderRetriever
from pytrace.retrieval.retriever import Hit, Retriever, check_queries

RetrieverName = Literal["given", "dense", "bm25", "rrf"]


def make_retriever(name: RetrieverName, documents: Sequence[Document], encoder: Encoder | None) -> Retriever:
    """Make a retriever over a corpus by its name.

    Parameters
    ----------
    name
        "given": the corpus's own order; "dense": nearest sentences; "bm25": shared words; "rrf": the last two fused. A
        document that shares no word with the query gets nothing from BM25 there, since where it stands is chance.
    documents
        The corpus.
    encoder
        For "dense" and "rrf"; None will do for the others.

    Returns
    -------
    Retriever
        Ready to be asked; the corpus is encoded now.

    Raises
    ------
    InputError
        There is no retriever of this name, or it needs an encoder and there is none.
    MissingDependencyError
        bm25s is not installed, for "bm25" and "rrf".

    Examples
    --------
    >>> from pytrace.models.scripted import HashEncoder
    >>> from pytrace.records import Document
    >>> from pytrace.retrieval import make_retriever
    >>> corpus = [Document("1", "Bread", ("It is baked.",)), Document("2", "Ferries", ("One ferry carries mail.",))]
    >>> [hit.document.id for hit in make_retriever("rrf", corpus, HashEncoder()).retrieve(["Which ferry?"], 2)[0]]
    ['2', '1']
    """
    check_retriever(name, encoder)
    if name == "given":
        return OriginalOrderRetriever(documents)
    if name == "bm25":
        return Bm25Retriever(documents)
    dense = DenseRetriever(documents, _needed(encoder))
    return dense if name == "dense" else FusedRetriever([dense, Bm25Retriever(documents, unmatched=False)])


def rank_each(
    name: RetrieverName,
    questions: Sequence[str],
    documents_of_each: Sequence[Sequence[Document]],
    encoder: Encoder | None,
    count: int,
    *,
    whole_documents: bool = False,
) -> list[list[Hit]]:
    """Rank each question's own documents: what `make_retriever` would find for each, in one batch.

    The encoder is called once for all questions and once for all sentences, and one kernel call ranks them.

    Parameters
    ----------
    name
        As in `make_retriever`.
    questions
        The questions' texts.
    documents_of_each
        One list of documents a question, some ten of them.
    encoder
        For "dense" and "rrf"; None will do for the others.
    count
        At least 1.
    whole_documents
        For "dense" and "rrf": encode each document as one passage, cut to the encoder's length, in place of its sentences.

    Returns
    -------
    list of list of Hit
        At most `count` a question, best first, ties in the order of its documents ("rrf": as `FusedRetriever` has them).

    Raises
    ------
    InputError
        There is no retriever of this name, or it needs an encoder and there is none.
    TypeError
        `questions` are no strings.
    ValueError
        `count` is below 1, or there are more questions or more lists.
    ModelError
        The encoder gives NaN or vectors of another shape.
    MissingDependencyError
        bm25s is not installed, for "bm25" and "rrf".

    Examples
    --------
    >>> from pytrace.models.scripted import HashEncoder
    >>> from pytrace.records import Document
    >>> from pytrace.retrieval import rank_each
    >>> bread, ferry = Document("1", "Bread", ("It is baked.",)), Document("2", "Ferries", ("One ferry carries mail.",))
    >>> found = rank_each("dense", ["Which ferry?", "Bread?"], [[bread, ferry], [bread]], HashEncoder(), 1)
    >>> [[hit.document.id for hit in hits] for hits in found]
    [['2'], ['1']]
    """
    check_retriever(name, encoder)
    check_queries(questions, count)
    if len(questions) != len(documents_of_each):
        raise ValueError(f"there are {len(questions)} questions but {len(documents_of_each)} lists of documents")
    if not questions:
        return []
    if name == "dense":
        return _nearest(questions, documents_of_each, _needed(encoder), count, whole_documents)
    if name == "rrf":
        depth = max(map(len, documents_of_each))
        near = _nearest(questions, documents_of_each, _needed(encoder), max(depth, 1), whole_documents)
        shared = [
            Bm25Retriever(own, unmatched=False).retrieve([question], max(len(own), 1))[0]
            for question, own in zip(questions, documents_of_each, strict=True)
        ]
        return [fuse(pair, count) for pair in zip(near, shared, strict=True)]
    return [
        make_retriever(name, own, encoder).retrieve([question], count)[0]
        for question, own in zip(questions, documents_of_each, strict=True)
    ]


def _nearest(
    questions: Sequence[str],
    documents_of_each: Sequence[Sequence[Document]],
    encoder: Encoder,
    count: int,
    whole: bool,
) -> list[list[Hit]]:
    sentences = Sentences(documents_of_each, whole=whole)
    scores, rows = top_k(
        encode(encoder, questions, "query"),
        encode(encoder, sentences.texts, "passage"),
        sentences.enough(count),
        offsets=sentences.offsets,
    )
    return [
        sentences.hits(number, own, found, count)
        for number, (own, found) in enumerate(zip(rows.tolist(), scores.tolist(), strict=True))
    ]


def check_retriever(name: str, encoder: Encoder | None) -> None:
    """Refuse a retriever that there is not, or that lacks its encoder.

    Raises
    ------
    InputError
        There is no retriever of this name, or it needs an encoder and there is none.
    """
    if name not in get_args(RetrieverName):
        raise InputError(f"there is no retriever {name!r}; choose one of {', '.join(get_args(RetrieverName))}")
    if encoder is None and name in {"dense", "rrf"}:
        raise InputError(f"the retriever {name!r} needs an encoder, but there is none; give one or use bm25")


def _needed(encoder: Encoder | None) -> Encoder:
    assert encoder is not None  # check_retriever saw to it
    return encoder
