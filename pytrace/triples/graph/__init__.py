"""The knowledge graph: documents, the triples found in them, and where each triple came from, on disk or in memory.

`TripleStore` is a store of one extraction per distinct content (title and sentences), so that work on a document is
done once, survives a kill, and follows the corpus when documents are added, edited or deleted.
"""

from pytrace.triples.graph.graph_reader import GraphReader
from pytrace.triples.graph.graph_records import (
    ExtractionStatistics,
    GraphStatistics,
    Recipe,
    SyncReport,
    describe_triples,
)
from pytrace.triples.graph.triple_store import TripleStore

__all__ = [
    "ExtractionStatistics",
    "GraphReader",
    "GraphStatistics",
    "Recipe",
    "SyncReport",
    "TripleStore",
    "describe_triples",
]
