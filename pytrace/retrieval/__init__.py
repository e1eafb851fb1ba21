"""Retrieval: a question finds its documents by words, by vectors or by both, and its nearest sentences in an index."""

from pytrace.retrieval.bm25 import Bm25Retriever
from pytrace.retrieval.choose import RetrieverName, check_retriever, make_retriever, rank_each
from pytrace.retrieval.dense import DenseRetriever, nearest_documents
from pytrace.retrieval.fusion import FusedRetriever, fuse
from pytrace.retrieval.retriever import CallableRetriever, Hit, OriginalOrderRetriever, Retriever
from pytrace.retrieval.sentence_index import SentenceHit, SentenceIndex

__all__ = [
    "Bm25Retriever",
    "CallableRetriever",
    "DenseRetriever",
    "FusedRetriever",
    "Hit",
    "OriginalOrderRetriever",
    "Retriever",
    "RetrieverName",
    "SentenceHit",
    "SentenceIndex",
    "check_retriever",
    "fuse",
    "make_retriever",
    "nearest_documents",
    "rank_each",
]
