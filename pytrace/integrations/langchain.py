"""LangChain (``langchain-core``): a document compressor that selects, and a retriever over an index.

>>> from langchain_core.documents import Document
>>> compressor = PytraceCompressor(threads=1)
>>> documents = [Document("Geese fly south."), Document("Ada Foah is a town in Ghana.")]
>>> compressor.compress_documents(documents, "Where is Ada Foah?")[0].page_content
'Ada Foah is a town in Ghana.'
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.callbacks import CallbackManagerForRetrieverRun, Callbacks
from langchain_core.documents import BaseDocumentCompressor, Document
from langchain_core.retrievers import BaseRetriever
from pydantic import Field, PrivateAttr

from pytrace.engine import Engine
from pytrace.integrations.selection import CHAINS, IndexSearch, Passage, PassageSelector, passage_metadata


class PytraceCompressor(BaseDocumentCompressor):
    """Keeps the documents that answer a question together, best first.

    What is returned are copies with ``pytrace_chains`` and ``pytrace_score`` in their metadata.
    """

    method: str = "hops"
    settings: list[str] = Field(default_factory=list)
    top_n: int | None = None
    llm: str = "tiny"
    encoder: str | None = None
    threads: int | None = None
    _selector: PassageSelector | None = PrivateAttr(default=None)
    _engine: Engine | None = PrivateAttr(default=None)

    def __init__(self, *, engine: Engine | None = None, **data: Any) -> None:
        super().__init__(**data)
        self._engine = engine

    def compress_documents(
        self,
        documents: Sequence[Document],
        query: str,
        callbacks: Callbacks | None = None,  # noqa: ARG002 (no model is called)
    ) -> Sequence[Document]:
        """Select among documents for a question."""
        if self._selector is None:
            self._selector = PassageSelector(
                self.method,
                self.settings,
                llm=self.llm,
                encoder=self.encoder,
                threads=self.threads,
                engine=self._engine,
            )
        passages = [
            Passage(found.id or str(k), found.page_content, found.metadata) for k, found in enumerate(documents)
        ]
        (selected,) = self._selector.select([query], [passages], self.top_n)
        return [
            documents[place].model_copy(
                update={"metadata": {**documents[place].metadata, "pytrace_score": score, CHAINS: chains}}
            )
            for place, score, chains in selected
        ]


class PytraceRetriever(BaseRetriever):
    """Searches an index across hops: documents with their chains, score, source, page and headings in the metadata."""

    index: str
    top_n: int = 5
    llm: str = "tiny"
    encoder: str | None = None
    threads: int | None = None
    _search: IndexSearch | None = PrivateAttr(default=None)
    _engine: Engine | None = PrivateAttr(default=None)

    def __init__(self, *, engine: Engine | None = None, **data: Any) -> None:
        super().__init__(**data)
        self._engine = engine

    def _get_relevant_documents(
        self,
        query: str,
        *,
        run_manager: CallbackManagerForRetrieverRun,  # noqa: ARG002 (no model is called)
    ) -> list[Document]:
        if self._search is None:
            self._search = IndexSearch(
                self.index, self.top_n, llm=self.llm, encoder=self.encoder, threads=self.threads, engine=self._engine
            )
        return [
            Document(
                document.text,
                id=document.id,
                metadata={**passage_metadata(document), "pytrace_score": selected.score, CHAINS: selected.chains},
            )
            for document, selected in self._search.search([query])[0]
        ]
