from __future__ import annotations

import asyncio

import pytest
from langchain_core.documents import Document
from langchain_core.load import dumps
from langchain_core.runnables import RunnableLambda, RunnablePassthrough

from pytrace.integrations.langchain import PytraceCompressor, PytraceRetriever
from tests.integrations.stories import PASSAGES, QUESTION, require_no_language_model

pytestmark = pytest.mark.models


def documents() -> list[Document]:
    return [Document(passage.text, id=passage.id, metadata=dict(passage.metadata)) for passage in PASSAGES]


def test_a_compressor_selects_and_leaves_what_it_was_given(engine):
    given = documents()
    found = PytraceCompressor(engine=engine).compress_documents(given, QUESTION)
    assert {one.id for one in found[:2]} == {"ship", "foundry"}
    assert given == documents()
    for one in found:
        before = next(document for document in given if document.id == one.id)
        assert one.page_content == before.page_content
        assert before.metadata.items() <= one.metadata.items()
        assert one.metadata.keys() - before.metadata.keys() == {"pytrace_score", "pytrace_chains"}
        assert {step["id"] for chain in one.metadata["pytrace_chains"] for step in chain["steps"]} <= {
            document.id for document in given
        }
    require_no_language_model(engine)


def test_a_compressor_goes_async_fills_up_and_comes_back_from_json(engine):
    compressor = PytraceCompressor(engine=engine, top_n=4)
    found = compressor.compress_documents(documents(), QUESTION)
    assert len(found) == 4
    assert asyncio.run(compressor.acompress_documents(documents(), QUESTION)) == found
    assert compressor.compress_documents([], QUESTION) == []
    without_ids = [Document(passage.text) for passage in PASSAGES]
    assert len(compressor.compress_documents(without_ids, QUESTION)) == 4
    copy = PytraceCompressor.model_validate_json(
        PytraceCompressor(method="dense", top_n=2, threads=1).model_dump_json()
    )
    assert (copy.method, copy.top_n, copy.threads) == ("dense", 2, 1)
    assert len(copy.compress_documents(documents(), QUESTION)) == 2


def test_a_retriever_searches_an_index_across_hops_and_takes_part_in_chains(engine, index):
    retriever = PytraceRetriever(index=str(index), top_n=3, engine=engine)
    found = retriever.invoke(QUESTION)
    assert len(found) == 3
    texts = " ".join(one.page_content for one in found[:2])
    assert "Lady Addle" in texts
    assert "Matthias Garrow" in texts
    assert found[0].metadata["source"]
    assert found[0].metadata["pytrace_chains"][0]["steps"]
    assert asyncio.run(retriever.ainvoke(QUESTION)) == found
    assert retriever.batch([QUESTION, QUESTION]) == [found, found]
    chain = {"context": retriever, "question": RunnablePassthrough()} | RunnableLambda(
        lambda given: f"{given['question']} {given['context'][0].page_content}"
    )
    assert chain.invoke(QUESTION) == f"{QUESTION} {found[0].page_content}"
    assert "Lady Addle" in dumps(found)
    require_no_language_model(engine)
