"""A LlamaIndex pipeline that becomes multi-hop by one line (``pip install 'pytrace-rag[cpu,llama-index]'``).

    python examples/llama_index_multi_hop.py ["QUESTION"]

Ships and companies are read by LlamaIndex, searched by its own vector store with pytrace's encoder, and what that finds goes through
pytrace's selection before it is read.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import Any

from llama_index.core import SimpleDirectoryReader, VectorStoreIndex
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import TextNode

import pytrace
from pytrace.integrations.llama_index import PytraceLLM, PytracePostprocessor

DOCS = Path(__file__).parent / "docs"
QUESTION = "Who founded the foundry that cast the bell of the Lady Addle?"

engine = pytrace.load()


class Embedding(BaseEmbedding):
    """pytrace's encoder as LlamaIndex's; keep the one that you have."""

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._get_text_embeddings([text])[0]

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return engine.encoder.encode(texts, kind="passage").tolist()

    def _get_query_embedding(self, query: str) -> list[float]:
        return engine.encoder.encode([query], kind="query")[0].tolist()

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_query_embedding(query)


def main(question: str) -> None:
    """Ask a question with the line and without."""
    nodes: list[Any] = SimpleDirectoryReader(str(DOCS / "companies")).load_data()
    with (DOCS / "ships.csv").open(encoding="utf-8") as rows:
        nodes += [TextNode(text=row["text"], metadata={"title": row["title"]}) for row in csv.DictReader(rows)]
    embedding = Embedding()
    retriever = VectorStoreIndex(nodes, embed_model=embedding).as_retriever(similarity_top_k=10, embed_model=embedding)
    llm = PytraceLLM(engine=engine, max_tokens=24)
    for name, postprocessors in (
        ("the first two by vectors", []),
        ("two selected of ten", [PytracePostprocessor(engine=engine, top_n=2)]),  # the line
    ):
        if not postprocessors:
            retriever.similarity_top_k = 2
        pipeline = RetrieverQueryEngine.from_args(retriever, llm=llm, node_postprocessors=postprocessors)
        response = pipeline.query(question)
        retriever.similarity_top_k = 10
        print(f"{name}: {str(response).strip()}")
        for found in response.source_nodes:
            print(f"  {found.metadata.get('title') or found.metadata['file_name']}")
            for chain in found.metadata.get("pytrace_chains", [])[:1]:
                print("    " + " -> ".join(step["text"] for step in chain["steps"]))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else QUESTION)
