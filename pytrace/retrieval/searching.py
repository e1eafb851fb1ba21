"""How methods search: by a retriever of one hop, or across hops."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

from pytrace.records import Document
from pytrace.retrieval.choose import RetrieverName
from pytrace.retrieval.hops.search import PassageChain, PassageRanking

SearchName: TypeAlias = RetrieverName | Literal["together"]
Search = Callable[[Sequence[str], SearchName, int], list[list[Document]]]
"""From queries, the name of a retriever and a count to at most that many passages of a corpus per query, best first.

"given" searches across hops; "together" gives only those passages of it that answer together.
"""


class Found(NamedTuple):
    """What a search across hops found for a question: the ranking, and its passages by row."""

    ranking: PassageRanking
    passages: Mapping[int, Document]

    def of(self, rows: Sequence[int]) -> list[Document]:
        """Return passages in the order of rows."""
        return [self.passages[row] for row in rows]

    def chain_passages(self, chain: PassageChain) -> list[Document]:
        """Return the passages of a chain."""
        return self.of(chain.rows)


HopSearcher = Callable[[Sequence[str], Sequence[Sequence[Document]]], list[Found]]
"""From questions, and the documents of each where there is no corpus, to what a search across hops finds for each."""
