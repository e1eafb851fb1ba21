"""AnswerDotAI's ``rerankers``: a ranker with their interface, which sees all documents of a query together.

>>> ranker = PytraceRanker(threads=1)
>>> ranker.rank("Where is Ada Foah?", ["Geese fly south.", "Ada Foah is a town in Ghana."])[0].doc_id
1
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

# Else LiteLLM, which comes with `rerankers`, fetches a list of prices as it is imported.
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")

from rerankers.documents import Document
from rerankers.models.ranker import BaseRanker
from rerankers.results import RankedResults, Result
from rerankers.utils import prep_docs

from pytrace.engine import Engine
from pytrace.errors import InputError
from pytrace.integrations.selection import CHAINS, Passage, PassageSelector


class PytraceRanker(BaseRanker):  # type: ignore[misc]  # the package has no types
    """Ranks by a method: what it selects first, then the others as given, with a score of 0.

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

    def score(self, query: str, doc: str) -> float:
        """Return the score of one document alone: 1 if it is selected."""
        (selected,) = self._selector.select([query], [[Passage("0", doc, {})]], 1)
        return selected[0].score

    def rank(
        self,
        query: str,
        docs: str | list[str] | Document | list[Document],
        doc_ids: list[str] | list[int] | None = None,
        metadata: list[dict[str, Any]] | None = None,
    ) -> RankedResults:
        """Rank documents; each result's metadata is its document's with ``pytrace_chains``.

        Raises `InputError` for a document that is no text.
        """
        given: list[Document] = prep_docs(docs, doc_ids, metadata) if docs else []
        for place, document in enumerate(given):
            if document.document_type != "text":
                raise InputError(f"docs[{place}] is of type {document.document_type}; only texts can be ranked")
        passages = [Passage(str(document.doc_id), document.text, document.metadata) for document in given]
        (selected,) = self._selector.select([query], [passages], len(given) or None)
        results = []
        for rank, (place, score, chains) in enumerate(selected, 1):
            document = given[place]
            copy = Document(document.text, document.doc_id, {**document.metadata, CHAINS: chains})
            results.append(Result(copy, score=score, rank=rank))
        return RankedResults(results, query, has_scores=True)
