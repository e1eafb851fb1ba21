"""Other libraries' retrievers as systems that ``pytrace eval --system`` asks, each over the passages of an index or a question's own.

    pytrace eval dense rrf --system examples.peers:Bm25s --system examples.peers:LlamaIndexVectors --data questions.jsonl --index papers.index

Those that search by vectors get pytrace's own encoder, so that it is the retrieval that is compared. HippoRAG and LightRAG make graphs
with a language model: that of the OpenAI-compatible server at ``OPENAI_BASE_URL``, which is asked for ``OPENAI_MODEL``.
"""

from __future__ import annotations

import importlib
import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cache, partial
from typing import Any

from pytrace import Document, load

COUNT = 20
MODEL = os.environ.get("OPENAI_MODEL", "local")
WRITTEN = 400  # tokens that a language model may write at once; small ones do not end by themselves


@cache
def encoder() -> Any:
    return load(threads=1).encoder


def vectors(texts: Sequence[str], kind: str) -> list[list[float]]:
    return encoder().encode(list(texts), kind=kind).tolist()


def text_of(document: Document) -> str:
    return f"{document.title}. {document.text}"


class Retriever(ABC):
    """A retriever over all passages, or over a question's own, which it then indexes first."""

    @abstractmethod
    def index(self, documents: Sequence[Document]) -> None:
        """Take documents in the place of those before."""

    @abstractmethod
    def search(self, question: str, count: int) -> list[str]:
        """Return the ids of the first documents, best first."""

    def __call__(self, question: str, documents: Sequence[Document]) -> list[str]:
        if documents:
            self.index(documents)
        return self.search(question, COUNT)


class Bm25s(Retriever):
    """bm25s, as its README has it."""

    def index(self, documents: Sequence[Document]) -> None:
        import bm25s

        self.ids = [document.id for document in documents]
        self.bm25 = bm25s.BM25()
        tokens = bm25s.tokenize([text_of(document) for document in documents], stopwords="en", show_progress=False)
        self.bm25.index(tokens, show_progress=False)

    def search(self, question: str, count: int) -> list[str]:
        import bm25s

        tokens = bm25s.tokenize([question], stopwords="en", show_progress=False)
        if not tokens.vocab:
            return self.ids[:count]
        rows, _ = self.bm25.retrieve(tokens, k=min(count, len(self.ids)), show_progress=False)
        return [self.ids[row] for row in rows[0]]


class LlamaIndexVectors(Retriever):
    """LlamaIndex's VectorStoreIndex in memory."""

    def index(self, documents: Sequence[Document]) -> None:
        from llama_index.core import VectorStoreIndex
        from llama_index.core.schema import TextNode

        nodes = [TextNode(id_=document.id, text=text_of(document)) for document in documents]
        for node, vector in zip(nodes, vectors([node.text for node in nodes], "passage"), strict=True):
            node.embedding = vector
        self.store = VectorStoreIndex(nodes, embed_model=_llama_index_embedding())

    def search(self, question: str, count: int) -> list[str]:
        retriever = self.store.as_retriever(similarity_top_k=count, embed_model=_llama_index_embedding())
        return [found.node_id for found in retriever.retrieve(question)]


@cache
def _llama_index_embedding() -> Any:
    from llama_index.core.base.embeddings.base import BaseEmbedding

    class Embedding(BaseEmbedding):
        def _get_text_embedding(self, text: str) -> list[float]:
            return vectors([text], "passage")[0]

        def _get_query_embedding(self, query: str) -> list[float]:
            return vectors([query], "query")[0]

        async def _aget_query_embedding(self, query: str) -> list[float]:
            return self._get_query_embedding(query)

    return Embedding()


class LangChainVectors(Retriever):
    """LangChain's InMemoryVectorStore."""

    def index(self, documents: Sequence[Document]) -> None:
        from langchain_core.documents import Document as LangChainDocument
        from langchain_core.embeddings import Embeddings
        from langchain_core.vectorstores import InMemoryVectorStore

        class Own(Embeddings):
            def embed_documents(self, texts: list[str]) -> list[list[float]]:
                return vectors(texts, "passage")

            def embed_query(self, text: str) -> list[float]:
                return vectors([text], "query")[0]

        self.store = InMemoryVectorStore(Own())
        self.store.add_documents([LangChainDocument(text_of(document), id=document.id) for document in documents])

    def search(self, question: str, count: int) -> list[str]:
        return [found.id for found in self.store.similarity_search(question, k=count)]


class HaystackBm25(Retriever):
    """Haystack's InMemoryBM25Retriever."""

    def index(self, documents: Sequence[Document]) -> None:
        from haystack import Document as HaystackDocument
        from haystack.components.retrievers.in_memory import InMemoryBM25Retriever
        from haystack.document_stores.in_memory import InMemoryDocumentStore

        store = InMemoryDocumentStore()
        store.write_documents([HaystackDocument(id=document.id, content=text_of(document)) for document in documents])
        self.retriever = InMemoryBM25Retriever(store)

    def search(self, question: str, count: int) -> list[str]:
        return [found.id for found in self.retriever.run(query=question, top_k=count)["documents"]]


class Txtai(Retriever):
    """txtai's Embeddings with its own index of vectors (``pip install txtai``)."""

    def index(self, documents: Sequence[Document]) -> None:
        from txtai import Embeddings

        self.embeddings = Embeddings(
            method="external", transform=lambda texts: encoder().encode(list(texts), kind="passage")
        )
        self.embeddings.index((document.id, text_of(document), None) for document in documents)

    def search(self, question: str, count: int) -> list[str]:
        return [name for name, _ in self.embeddings.search(question, count)]


class HippoRag(Retriever):
    """HippoRAG 2 (``pip install hipporag 'pyarrow<20'``): facts that a language model extracts and chooses from, and walks on their graph.

    It calls `eval` on what the model writes, which follows what your documents say: run it on texts that you trust.
    """

    def index(self, documents: Sequence[Document]) -> None:
        hipporag = importlib.import_module("hipporag.HippoRAG")
        settings = importlib.import_module("hipporag.utils.config_utils").BaseConfig(max_new_tokens=WRITTEN)
        # It knows encoders by a few names only.
        hipporag._get_embedding_model_class = lambda **_: _HippoRagEncoder
        self.ids = {text_of(document): document.id for document in documents}
        self.rag = hipporag.HippoRAG(
            settings,
            save_dir=tempfile.mkdtemp(),
            llm_model_name=MODEL,
            llm_base_url=os.environ["OPENAI_BASE_URL"],
            embedding_model_name="pytrace",
        )
        self.rag.index(list(self.ids))

    def search(self, question: str, count: int) -> list[str]:
        return [self.ids[text] for text in self.rag.retrieve([question], num_to_retrieve=count)[0].docs]


class _HippoRagEncoder:
    def __init__(self, **_: Any) -> None: ...

    def batch_encode(self, texts: str | list[str], instruction: str = "", **_: Any) -> Any:
        return encoder().encode(
            [texts] if isinstance(texts, str) else texts, kind="query" if instruction else "passage"
        )


class LightRag(Retriever):
    """LightRAG (``pip install lightrag-hku openai``): a graph of what a language model extracts, and the passages' vectors."""

    mode = "mix"

    def index(self, documents: Sequence[Document]) -> None:
        from lightrag import LightRAG
        from lightrag.llm.openai import openai_complete_if_cache
        from lightrag.utils import EmbeddingFunc, Tokenizer, always_get_an_event_loop

        async def embed(texts: list[str], context: str = "document") -> Any:
            return encoder().encode(list(texts), kind="query" if context == "query" else "passage")

        passages = {text_of(document): document.id for document in documents}  # it refuses a text that it has
        self.ids = list(passages.values())
        self.rag = LightRAG(
            working_dir=tempfile.mkdtemp(),
            llm_model_func=partial(openai_complete_if_cache, MODEL, base_url=os.environ["OPENAI_BASE_URL"]),
            llm_model_kwargs={"max_tokens": WRITTEN, "temperature": 0},
            default_llm_timeout=600,
            entity_extraction_use_json=True,
            embedding_func=EmbeddingFunc(encoder().dimension, embed, supports_asymmetric=True),
            tokenizer=Tokenizer("pieces", _Pieces()),
        )
        loop = always_get_an_event_loop()
        loop.run_until_complete(self.rag.initialize_storages())
        self.rag.insert(list(passages), file_paths=[f"{i}.txt" for i in range(len(passages))])
        # It does not raise what goes wrong with a passage.
        states = loop.run_until_complete(self.rag.get_processing_status())
        if states.get("processed") != len(passages):
            raise RuntimeError(f"LightRAG took in only some of {len(passages)} passages: {states}")

    def search(self, question: str, count: int) -> list[str]:
        from lightrag import QueryParam

        found = self.rag.query_data(question, QueryParam(mode=self.mode, chunk_top_k=count, enable_rerank=False))
        chunks = found.get("data", {}).get("chunks", [])
        return list(dict.fromkeys(self.ids[int(chunk["file_path"].removesuffix(".txt"))] for chunk in chunks))


class LightRagHybrid(LightRag):
    """LightRAG's graph alone."""

    mode = "hybrid"


class _Pieces:
    """Tokens of four characters each: LightRAG would download its own tokenizer."""

    def encode(self, content: str) -> list[int]:
        pieces = (content[start : start + 4] for start in range(0, len(content), 4))
        return [int.from_bytes(piece.encode("utf-32-le"), "little") for piece in pieces]

    def decode(self, tokens: list[int]) -> str:
        return "".join(token.to_bytes(16, "little").decode("utf-32-le").rstrip("\0") for token in tokens)
