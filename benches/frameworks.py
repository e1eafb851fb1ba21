"""Recall of frameworks' usual retrievers, with pytrace's selection behind them, and with its search across hops in their place.

    python -m benches.frameworks [--data FOLDER] [--count 20] [--method hops]

FOLDER has `corpus.jsonl` and `questions.jsonl` (by default the hotpotqa-train of the evaluation data). Every framework gets the same passages,
title and text, and where it searches by vectors those of pytrace's own encoder, so that it is the retrieval that is compared. Behind: the
first `--count` of the usual retriever go through the framework's adapter, which returns five. In its place: the framework's adapter
for an index of the same passages, which returns five. Recall is the share of a question's supporting passages among the five; its
interval, of 95 %, is a bootstrap over questions. The adapters' own time is that of a call through the framework less that of the same
call of `PassageSelector` or `IndexSearch`, medians of calls in turns.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"

import pytrace
from examples import peers
from pytrace.documents import read_documents
from pytrace.integrations import haystack, langchain, llama_index
from pytrace.integrations.selection import IndexSearch, Passage, PassageSelector
from pytrace.records import Document

DATA = Path(__file__).parents[2] / "shared" / "data" / "open" / "hotpotqa-train"
TOP = 5
TIMED = 60  # questions that the adapters are timed with


def recall(found: Sequence[Sequence[str]], gold: Sequence[Sequence[str]]) -> str:
    """Word the mean recall, with its interval."""
    values = np.array([len({*some} & {*of}) / len({*of}) for some, of in zip(found, gold, strict=True)])
    drawn = np.random.default_rng(0).choice(values, (10_000, len(values))).mean(axis=1)
    low, high = np.percentile(drawn, [2.5, 97.5])
    return f"{100 * values.mean():.1f} ({100 * low:.1f}–{100 * high:.1f})"


def in_turns(calls: Sequence[Callable[[int], object]], count: int) -> list[list[float]]:
    """Return the seconds of each call for each question, the calls of a question one behind the other and each first in turn."""
    seconds: list[list[float]] = [[] for _ in calls]
    for k in range(count):
        for place in range(len(calls)):
            which = (k + place) % len(calls)
            begun = time.perf_counter()
            calls[which](k)
            seconds[which].append(time.perf_counter() - begun)
    return seconds


class Framework(ABC):
    """A framework's documents, and its two adapters."""

    name: str
    usual: dict[str, type[peers.Retriever]]

    @abstractmethod
    def __init__(self, engine: Any, index: Path, method: str) -> None:
        """Make the adapters."""

    @abstractmethod
    def document(self, passage: Document) -> Any:
        """Return a passage as the framework has it."""

    @abstractmethod
    def behind(self, question: str, documents: list[Any]) -> list[str]:
        """Return the ids that are selected among documents."""

    @abstractmethod
    def in_place(self, question: str) -> list[str]:
        """Return the ids that are found in the index."""


class LlamaIndex(Framework):
    """LlamaIndex's nodes."""

    name = "LlamaIndex"
    usual = {"VectorStoreIndex": peers.LlamaIndexVectors}  # noqa: RUF012

    def __init__(self, engine: Any, index: Path, method: str) -> None:
        self._behind = llama_index.PytracePostprocessor(engine=engine, method=method, top_n=TOP)
        self._in_place = llama_index.PytraceRetriever(str(index), TOP, engine=engine)

    def document(self, passage: Document) -> Any:
        from llama_index.core.schema import NodeWithScore, TextNode

        return NodeWithScore(node=TextNode(id_=passage.id, text=passage.text, metadata={"title": passage.title}))

    def behind(self, question: str, documents: list[Any]) -> list[str]:
        return [found.node_id for found in self._behind.postprocess_nodes(documents, query_str=question)]

    def in_place(self, question: str) -> list[str]:
        return [found.node_id for found in self._in_place.retrieve(question)]


class LangChain(Framework):
    """LangChain's documents."""

    name = "LangChain"
    usual = {"InMemoryVectorStore": peers.LangChainVectors}  # noqa: RUF012

    def __init__(self, engine: Any, index: Path, method: str) -> None:
        self._behind = langchain.PytraceCompressor(engine=engine, method=method, top_n=TOP)
        self._in_place = langchain.PytraceRetriever(engine=engine, index=str(index), top_n=TOP)

    def document(self, passage: Document) -> Any:
        from langchain_core.documents import Document as LangChainDocument

        return LangChainDocument(passage.text, id=passage.id, metadata={"title": passage.title})

    def behind(self, question: str, documents: list[Any]) -> list[str]:
        return [str(found.id) for found in self._behind.compress_documents(documents, question)]

    def in_place(self, question: str) -> list[str]:
        return [str(found.id) for found in self._in_place.invoke(question)]


class Haystack(Framework):
    """Haystack's documents."""

    name = "Haystack"
    usual = {"InMemoryBM25Retriever": peers.HaystackBm25}  # noqa: RUF012

    def __init__(self, engine: Any, index: Path, method: str) -> None:
        self._behind = haystack.PytraceRanker(engine=engine, method=method, top_k=TOP)
        self._in_place = haystack.PytraceRetriever(str(index), TOP, engine=engine)

    def document(self, passage: Document) -> Any:
        from haystack import Document as HaystackDocument

        return HaystackDocument(id=passage.id, content=passage.text, meta={"title": passage.title})

    def behind(self, question: str, documents: list[Any]) -> list[str]:
        return [found.id for found in self._behind.run(query=question, documents=documents)["documents"]]

    def in_place(self, question: str) -> list[str]:
        return [found.id for found in self._in_place.run(query=question)["documents"]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--method", default="hops")
    options = parser.parse_args()
    engine = pytrace.load(threads=1)
    peers.encoder = lambda: engine.encoder  # type: ignore[assignment]  # one encoder for all, so that it is loaded once
    passages = list(read_documents(options.data / "corpus.jsonl"))
    rows = [json.loads(line) for line in (options.data / "questions.jsonl").open(encoding="utf-8")]
    questions, gold = [row["question"] for row in rows], [row["gold"] for row in rows]
    with tempfile.TemporaryDirectory() as name:
        index = Path(name) / "index"
        pytrace.Corpus.build(index, passages, engine).close()
        own = [passage.origin.document if passage.origin else passage.id for passage in passages]
        of_passage = {passage.id: document for passage, document in zip(passages, own, strict=True)}
        by_id = {passage.id: passage for passage in passages}
        print(f"{options.data.name}: {len(passages):,} passages, {len(questions)} questions, recall at {TOP} in %, the usual one's first "
              f"{options.count} through {options.method}\n")  # fmt: skip
        print(
            "| framework | usual retriever | alone | pytrace behind it | pytrace in its place | the adapters' own ms a call |"
        )
        print("| --- | --- | --- | --- | --- | --- |", flush=True)
        direct = PassageSelector(options.method, engine=engine)
        search = IndexSearch(str(index), TOP, engine=engine)
        for kind in (LlamaIndex, LangChain, Haystack):
            framework = kind(engine, index, options.method)
            for usual, make in framework.usual.items():
                retriever = make()
                retriever.index(passages)
                found = [retriever.search(question, options.count) for question in questions]
                given = [[framework.document(by_id[name]) for name in names] for names in found]
                plain = [
                    [Passage(name, by_id[name].text, {"title": by_id[name].title}) for name in names] for names in found
                ]
                behind = [framework.behind(question, some) for question, some in zip(questions, given, strict=True)]
                in_place = [framework.in_place(question) for question in questions]
                timed = in_turns(
                    [
                        lambda k, f=framework, g=given: f.behind(questions[k], g[k]),
                        lambda k, p=plain: direct.select([questions[k]], [p[k]], TOP),
                        lambda k, f=framework: f.in_place(questions[k]),
                        lambda k: search.search([questions[k]]),
                    ],
                    min(TIMED, len(questions)),
                )
                apart = [
                    statistics.median(a - b for a, b in zip(timed[k], timed[k + 1], strict=True)) * 1e3 for k in (0, 2)
                ]
                whole = [statistics.median(timed[k]) * 1e3 for k in (0, 2)]
                cells = [recall([[of_passage[one] for one in some] for some in side], gold) for side in
                         ([names[:TOP] for names in found], behind, in_place)]  # fmt: skip
                cost = ", ".join(f"{own:.2f} of {of:.1f}" for own, of in zip(apart, whole, strict=True))
                print(f"| {framework.name} | {usual} | {' | '.join(cells)} | {cost} |", flush=True)


if __name__ == "__main__":
    main()
