"""Passages on disk: indexed once, searched by every question."""

from pytrace.retrieval.passages.index import Neighbour, PassageIndex
from pytrace.retrieval.passages.manifest import VectorType
from pytrace.retrieval.passages.writer import Changes, IndexWriter

__all__ = ["Changes", "IndexWriter", "Neighbour", "PassageIndex", "VectorType"]
