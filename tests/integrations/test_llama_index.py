from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from llama_index.core import VectorStoreIndex
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.llms import ChatMessage
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import MetadataMode, NodeWithScore, TextNode

import pytrace
from pytrace.engine import Engine
from pytrace.errors import InputError
from pytrace.integrations.llama_index import PytraceLLM, PytracePostprocessor, PytraceRetriever
from tests.integrations.stories import PASSAGES, QUESTION, require_no_language_model

pytestmark = pytest.mark.models


@pytest.fixture(scope="module")
def reading_engine(engine) -> Iterator[Engine]:
    """An engine whose language model is asked; of the other one it never is."""
    reading = pytrace.load(threads=1)
    reading.encoder = engine.encoder
    yield reading
    reading.close()


def nodes() -> list[NodeWithScore]:
    return [
        NodeWithScore(
            node=TextNode(
                id_=passage.id, text=passage.text, metadata=dict(passage.metadata), excluded_llm_metadata_keys=["year"]
            ),
            score=0.5,
        )
        for passage in PASSAGES
    ]


def test_a_postprocessor_selects_and_leaves_what_it_was_given(engine):
    given = nodes()
    found = PytracePostprocessor(engine=engine).postprocess_nodes(given, query_str=QUESTION)
    assert {one.node_id for one in found[:2]} == {"ship", "foundry"}
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
    first = found[0].node
    chains = first.metadata["pytrace_chains"]
    assert {step["id"] for chain in chains for step in chain["steps"]} <= {passage.id for passage in PASSAGES}
    assert first.metadata["title"] in {"Lady Addle", "Orrin Bell Foundry"}
    # What language models and encoders see of it is what they saw before.
    before = next(one for one in given if one.node_id == first.node_id)
    for mode in (MetadataMode.LLM, MetadataMode.EMBED):
        seen = first.get_content(metadata_mode=mode)
        assert "pytrace_chains" not in seen
        if mode == MetadataMode.LLM:
            assert seen == before.node.get_content(metadata_mode=mode)
    assert [one.model_dump() for one in given] == [one.model_dump() for one in nodes()]
    require_no_language_model(engine)


def test_a_postprocessor_fills_up_goes_async_and_comes_back_from_a_dictionary(engine):
    selector = PytracePostprocessor(engine=engine, top_n=4)
    found = selector.postprocess_nodes(nodes(), query_str=QUESTION)
    assert len(found) == 4
    again = asyncio.run(selector.apostprocess_nodes(nodes(), query_str=QUESTION))
    assert [one.node_id for one in again] == [one.node_id for one in found]
    made = PytracePostprocessor(method="dense", settings=[], top_n=2, threads=1)
    copy = PytracePostprocessor.from_dict(made.to_dict())
    assert copy.to_dict() == made.to_dict()
    assert (copy.method, copy.top_n, copy.threads) == ("dense", 2, 1)
    assert len(copy.postprocess_nodes(nodes(), query_str=QUESTION)) == 2
    assert selector.postprocess_nodes([], query_str=QUESTION) == []
    with pytest.raises(InputError, match="a query is needed"):
        selector.postprocess_nodes(nodes())


def test_a_retriever_searches_an_index_across_hops(engine, index):
    retriever = PytraceRetriever(str(index), 3, engine=engine)
    found = retriever.retrieve(QUESTION)
    assert len(found) == 3
    texts = " ".join(one.text for one in found[:2])
    assert "Lady Addle" in texts
    assert "Matthias Garrow" in texts
    assert found[0].node.metadata["source"]
    assert found[0].node.metadata["pytrace_chains"][0]["steps"]
    assert "pytrace_chains" not in found[0].get_content(metadata_mode=MetadataMode.LLM)
    assert [one.node_id for one in asyncio.run(retriever.aretrieve(QUESTION))] == [one.node_id for one in found]
    batch = retriever.retrieve_batch([QUESTION, "When was the Treaty of Nethercove signed?"])
    assert [one.node_id for one in batch[0]] == [one.node_id for one in found]
    require_no_language_model(engine)


class Embedding(BaseEmbedding):
    """The engine's encoder as LlamaIndex's."""

    _engine: Engine = PrivateAttr()

    def __init__(self, engine: Engine) -> None:
        super().__init__()
        self._engine = engine

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._engine.encoder.encode([text], kind="passage")[0].tolist()

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._engine.encoder.encode([query], kind="query")[0].tolist()

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_query_embedding(query)


def test_a_pipeline_becomes_multi_hop_by_one_line(engine, reading_engine):
    embedding = Embedding(engine)
    store = VectorStoreIndex([one.node for one in nodes()], embed_model=embedding)
    llm = PytraceLLM(engine=reading_engine, max_tokens=24)
    query_engine = RetrieverQueryEngine.from_args(
        store.as_retriever(similarity_top_k=5, embed_model=embedding),
        llm=llm,
        node_postprocessors=[PytracePostprocessor(engine=engine, top_n=2)],  # the line
    )
    calls = reading_engine.model.usage.calls
    response = query_engine.query(QUESTION)
    assert {one.node_id for one in response.source_nodes} == {"ship", "foundry"}
    # The tiny model reads both, but does not always choose the right name.
    assert "Orrin Bell Foundry" in str(response) or "Garrow" in str(response)
    assert reading_engine.model.usage.calls == calls + 1


def test_each_of_several_threads_gets_the_completion_of_its_own_prompt(reading_engine):
    # Threads share decode rounds, and rounding depends on what is evaluated together: later words, where two are almost
    # equally likely, may differ from those of a prompt alone. The first are far from that.
    llm = PytraceLLM(engine=reading_engine, max_tokens=2)
    capitals = {"France": " Paris", "Italy": " Rome", "Spain": " Madrid", "Germany": " Berlin"}
    countries = list(capitals) * 2
    with ThreadPoolExecutor(8) as pool:
        said = list(pool.map(llm.complete, [f"The capital of {country} is" for country in countries]))
    assert [one.text[: len(capitals[country])] for one, country in zip(said, countries, strict=True)] == [
        capitals[country] for country in countries
    ]


def test_the_engine_s_language_model_completes_chats_and_streams(reading_engine):
    llm = PytraceLLM(engine=reading_engine, max_tokens=5)
    prompt = "The capital of France is"
    whole = llm.complete(prompt)
    assert "Paris" in whole.text
    assert whole.additional_kwargs["tokens"] <= 5
    assert "".join(piece.delta for piece in llm.stream_complete(prompt)) == whole.text
    assert asyncio.run(llm.acomplete(prompt)).text == whole.text
    assert llm.chat([ChatMessage(content=prompt)]).message.content
    assert llm.complete(prompt, max_tokens=1).additional_kwargs["tokens"] == 1
    assert llm.metadata.context_window == reading_engine.model.context_tokens
    copy = PytraceLLM.from_dict(PytraceLLM(model="tiny", threads=1, max_tokens=7).to_dict())
    assert (copy.max_tokens, copy.threads) == (7, 1)
