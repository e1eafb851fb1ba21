"""Haystack (``haystack-ai``): a ranker that selects, and a retriever over an index.

>>> from haystack import Document
>>> ranker = PytraceRanker(threads=1)
>>> documents = [Document(content="Geese fly south."), Document(content="Ada Foah is a town in Ghana.")]
>>> ranker.run(query="Where is Ada Foah?", documents=documents)["documents"][0].content
'Ada Foah is a town in Ghana.'
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from haystack import Document, component, default_from_dict, default_to_dict

from pytrace.engine import Engine
from pytrace.errors import InputError
from pytrace.integrations.selection import CHAINS, IndexSearch, Passage, PassageSelector, passage_metadata


@component
class PytraceRanker:
    """Keeps the documents that answer a question together, best first, each with its chains in ``meta["pytrace_chains"]``.

    Parameters
    ----------
    method, settings
        Any method of pytrace, and its `name=value` settings.
    top_k
        Documents to return: selected ones, then others as given. None: selected ones alone.
    llm, encoder, threads
        As for `pytrace.load`.
    engine
        An engine of one's own in place of these; it is not serialised.
    """

    def __init__(
        self,
        method: str = "hops",
        settings: list[str] | None = None,
        top_k: int | None = None,
        llm: str = "tiny",
        encoder: str | None = None,
        threads: int | None = None,
        engine: Engine | None = None,
    ) -> None:
        self.method = method
        self.settings = settings or []
        self.top_k = top_k
        self.llm = llm
        self.encoder = encoder
        self.threads = threads
        self._engine = engine
        self._selector: PassageSelector | None = None

    def warm_up(self) -> None:
        """Read the encoder."""
        self._ready().warm_up()

    def close(self) -> None:
        """Let go of the selector; its models stay, for others of this process may share them."""
        self._selector = None

    def to_dict(self) -> dict[str, Any]:
        """Serialise what the component was made with."""
        return default_to_dict(
            self, method=self.method, settings=self.settings, top_k=self.top_k, llm=self.llm, encoder=self.encoder,
            threads=self.threads,
        )  # fmt: skip

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> PytraceRanker:
        """Make the component anew."""
        made: PytraceRanker = default_from_dict(cls, data)
        return made

    @component.output_types(documents=list[Document])
    def run(self, query: str, documents: list[Document], top_k: int | None = None) -> dict[str, list[Document]]:
        """Select among documents for a question.

        Raises `InputError` for a document without text.
        """
        for place, found in enumerate(documents):
            if found.content is None:
                raise InputError(f"documents[{place}] has no text; only texts can be ranked")
        passages = [Passage(found.id, found.content or "", found.meta) for found in documents]
        (selected,) = self._ready().select([query], [passages], self.top_k if top_k is None else top_k)
        return {
            "documents": [
                replace(documents[place], score=score, meta={**documents[place].meta, CHAINS: chains})
                for place, score, chains in selected
            ]
        }

    @component.output_types(documents=list[Document])
    async def run_async(
        self, query: str, documents: list[Document], top_k: int | None = None
    ) -> dict[str, list[Document]]:
        """Select in a thread, while others go on."""
        found: dict[str, list[Document]] = await asyncio.to_thread(self.run, query, documents, top_k)
        return found

    def _ready(self) -> PassageSelector:
        if self._selector is None:
            self._selector = PassageSelector(
                self.method,
                self.settings,
                llm=self.llm,
                encoder=self.encoder,
                threads=self.threads,
                engine=self._engine,
            )
        return self._selector


@component
class PytraceRetriever:
    """Searches an index across hops: documents with their chains, source, page and headings in ``meta``.

    Parameters
    ----------
    index
        The directory that ``pytrace index build`` made.
    top_k
        Documents a question.
    llm, encoder, threads, engine
        As for `PytraceRanker`; the encoder must be the one of the index.
    """

    def __init__(
        self,
        index: str,
        top_k: int = 5,
        llm: str = "tiny",
        encoder: str | None = None,
        threads: int | None = None,
        engine: Engine | None = None,
    ) -> None:
        self.index = index
        self.top_k = top_k
        self.llm = llm
        self.encoder = encoder
        self.threads = threads
        self._engine = engine
        self._search: IndexSearch | None = None

    def warm_up(self) -> None:
        """Open the index."""
        self._ready()

    def close(self) -> None:
        """Close the index."""
        if self._search is not None:
            self._search.close()
            self._search = None

    def to_dict(self) -> dict[str, Any]:
        """Serialise what the component was made with."""
        return default_to_dict(
            self, index=self.index, top_k=self.top_k, llm=self.llm, encoder=self.encoder, threads=self.threads
        )

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> PytraceRetriever:
        """Make the component anew."""
        made: PytraceRetriever = default_from_dict(cls, data)
        return made

    @component.output_types(documents=list[Document])
    def run(self, query: str, top_k: int | None = None) -> dict[str, list[Document]]:
        """Search for a question."""
        return {
            "documents": [
                Document(
                    id=document.id,
                    content=document.text,
                    meta={**passage_metadata(document), CHAINS: selected.chains},
                    score=selected.score,
                )
                for document, selected in self._ready().search([query], top_k)[0]
            ]
        }

    @component.output_types(documents=list[Document])
    async def run_async(self, query: str, top_k: int | None = None) -> dict[str, list[Document]]:
        """Search in a thread, while others go on."""
        found: dict[str, list[Document]] = await asyncio.to_thread(self.run, query, top_k)
        return found

    def _ready(self) -> IndexSearch:
        if self._search is None:
            self._search = IndexSearch(
                self.index, self.top_k, llm=self.llm, encoder=self.encoder, threads=self.threads, engine=self._engine
            )
        return self._search
