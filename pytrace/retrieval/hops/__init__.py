"""Search across hops: passages that answer a question together, found over a whole index."""

from pytrace.retrieval.hops.evidence import chain_evidence
from pytrace.retrieval.hops.search import HopSearch, PassageChain, PassageRanking, SearchSettings
from pytrace.retrieval.hops.weights import Weights, load_weights

__all__ = ["HopSearch", "PassageChain", "PassageRanking", "SearchSettings", "Weights", "chain_evidence", "load_weights"]
