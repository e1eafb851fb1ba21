"""The shapes of rerankers that need no package of theirs: sentence-transformers' `CrossEncoder` and FlashRank's `Ranker`.

>>> ranker = CrossEncoder(threads=1)
>>> ranker.rank("Where is Ada Foah?", ["Geese fly south.", "Ada Foah is a town in Ghana."], top_k=1)[0]["corpus_id"]
1
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pytrace.integrations.selection import CHAINS, Passage, PassageSelector

if TYPE_CHECKING:
    from pytrace.engine import Engine


class CrossEncoder:
    """Ranks as ``sentence_transformers.CrossEncoder.rank`` does, by a method that sees all documents together.

    Parameters
    ----------
    method, settings, llm, encoder, threads, engine
        As for `pytrace.integrations.selection.PassageSelector`.
    """

    def __init__(
        self,
        method: str = "hops",
        settings: Sequence[str] = (),
        *,
        llm: str = "tiny",
        encoder: str | None = None,
        threads: int | None = None,
        engine: Engine | None = None,
    ) -> None:
        self._selector = PassageSelector(method, settings, llm=llm, encoder=encoder, threads=threads, engine=engine)

    def rank(
        self, query: str, documents: Sequence[str], top_k: int | None = None, *, return_documents: bool = False
    ) -> list[dict[str, Any]]:
        """Return ``{"corpus_id", "score", "pytrace_chains"}`` of the documents, best first, with ``"text"`` on request.

        Without `top_k` all documents come: what is selected, then the others as given, with a score of 0.
        """
        passages = [Passage(str(k), text, {}) for k, text in enumerate(documents)]
        (selected,) = self._selector.select(
            [query], [passages], len(documents) if top_k is None and documents else top_k
        )
        return [
            {
                "corpus_id": place,
                "score": score,
                CHAINS: chains,
                **({"text": documents[place]} if return_documents else {}),
            }
            for place, score, chains in selected
        ]


@dataclass
class RerankRequest:
    """A query and its passages, each ``{"text": …}`` with what else it has, as FlashRank's request of the same name."""

    query: str | None = None
    passages: list[dict[str, Any]] = field(default_factory=list)


class Ranker:
    """Ranks as ``flashrank.Ranker.rerank`` does; the parameters are those of `CrossEncoder`."""

    def __init__(self, method: str = "hops", settings: Sequence[str] = (), **options: Any) -> None:
        self._selector = PassageSelector(method, settings, **options)

    def rerank(self, request: RerankRequest) -> list[dict[str, Any]]:
        """Return all passages as they came, with ``"score"`` and ``"pytrace_chains"``, best first."""
        given: list[Mapping[str, Any]] = list(request.passages)
        passages = [
            Passage(str(passage.get("id", k)), passage["text"], dict(passage.get("meta") or {}))
            for k, passage in enumerate(given)
        ]
        (selected,) = self._selector.select([request.query or ""], [passages], len(given) or None)
        return [{**given[place], "score": score, CHAINS: chains} for place, score, chains in selected]
