"""Retrievers by name, for one corpus or for many questions with a few documents each."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import Literal

from pytrace.errors import InputError
from pytrace.kernels.similarity import top_k
from pytrace.models.encoders.encoder import Encoder, encode
from pytrace.records import Document
from pytrace.retrieval.bm25 import Bm25Retriever
from pytrace.retrieval.dense import DenseRetriever, Sentences
from pytrace.retrieval.fusion import FusedRetriever, fuse
from pytrace.retrieval.retriever import Hit, OriginalOrderRetriever, Retriever, check_queries

RetrieverName = Literal["given", "dense", "bm25", "rrf"]

# Whether each retriever needs an encoder; what it is stands in `make_retriever`.
_NEEDS_ENCODER: dict[str, bool] = {"given": False, "dense": True, "bm25": False, "rrf": True}


def make_retriever(name: RetrieverName, documents: Sequence[Document], encoder: Encoder | None) -> Retriever:
    """Make a retriever over a corpus by its name; the corpus is encoded now.

    Parameters
    ----------
    name
        "given": the corpus's own order; "dense": nearest sentences; "bm25": shared words; "rrf": the last two fused. A
        document that shares no word with the query gets nothing from BM25 there, since where it stands is chance.
    documents
        The corpus.
    encoder
        For "dense" and "rrf"; None will do for the others.

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
    name, encoder
        As in `make_retriever`, and so are the errors.
    questions
        The questions' texts.
    documents_of_each
        One list of documents a question, some ten of them; `ValueError` if there are more questions or more lists.
    count
        At least 1.
    whole_documents
        For "dense" and "rrf": encode each document as one passage, cut to the encoder's length, in place of its sentences.

    Returns
    -------
    list of list of Hit
        At most `count` a question, best first, ties in the order of its documents ("rrf": as `FusedRetriever` has them).

    Examples
    --------
    >>> from pytrace.models.scripted import HashEncoder
    >>> from pytrace.records import Document
    >>> from pytrace.retrieval import rank_each
    >>> bread, ferry = Document("1", "Bread", ("It is baked.",)), Document("2", "Ferries", ("One ferry carries mail.",))
    >>> rankings = rank_each("dense", ["Which ferry?", "Bread?"], [[bread, ferry], [bread]], HashEncoder(), 1)
    >>> [[hit.document.id for hit in hits] for hits in rankings]
    [['2'], ['1']]
    """
    check_retriever(name, encoder)
    check_queries(questions, count)
    if len(questions) != len(documents_of_each):
        raise ValueError(f"there are {len(questions)} questions but {len(documents_of_each)} lists of documents")
    if not questions:
        return []
    pairs = list(zip(questions, documents_of_each, strict=True))
    if not _NEEDS_ENCODER[name]:
        return [make_retriever(name, documents, None).retrieve([question], count)[0] for question, documents in pairs]
    # For fusion all documents are ranked: a rank behind `count` adds to a document's sum, too.
    depth = count if name == "dense" else max(1, *map(len, documents_of_each))
    near = _nearest(questions, documents_of_each, _needed(encoder), depth, whole_documents)
    if name == "dense":
        return near
    shared = [
        Bm25Retriever(documents, unmatched=False).retrieve([question], max(len(documents), 1))[0]
        for question, documents in pairs
    ]
    return [fuse(rankings, count) for rankings in zip(near, shared, strict=True)]


def _nearest(
    questions: Sequence[str],
    documents_of_each: Sequence[Sequence[Document]],
    encoder: Encoder,
    count: int,
    whole: bool,
) -> list[list[Hit]]:
    sentences = Sentences(documents_of_each, whole=whole)
    # Ragged: each question sees the sentences of its own documents alone, all in one call of the kernel.
    scores, rows = top_k(
        encode(encoder, questions, "query"),
        encode(encoder, sentences.texts, "passage"),
        sentences.enough(count),
        offsets=sentences.offsets,
    )
    corpora = range(len(questions))
    return list(map(sentences.hits, corpora, rows.tolist(), scores.tolist(), repeat(count)))


def check_retriever(name: str, encoder: Encoder | None) -> None:
    """Refuse, by `InputError`, a retriever that there is not, or that lacks its encoder."""
    if name not in _NEEDS_ENCODER:
        raise InputError(f"there is no retriever {name!r}; choose one of {', '.join(_NEEDS_ENCODER)}")
    if encoder is None and _NEEDS_ENCODER[name]:
        raise InputError(f"the retriever {name!r} needs an encoder, but there is none; give one or use bm25")


def _needed(encoder: Encoder | None) -> Encoder:
    assert encoder is not None  # check_retriever saw to it
    return encoder
