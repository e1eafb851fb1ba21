from __future__ import annotations

import asyncio

import pytest
from haystack import Document, Pipeline
from haystack.components.retrievers.in_memory import InMemoryBM25Retriever
from haystack.document_stores.in_memory import InMemoryDocumentStore

from pytrace.errors import InputError
from pytrace.integrations.haystack import PytraceRanker, PytraceRetriever
from tests.integrations.stories import PASSAGES, QUESTION, require_no_language_model

pytestmark = pytest.mark.models
OURS = "pytrace.integrations.haystack"  # Haystack loads components of modules alone that it is told to trust


def documents() -> list[Document]:
    return [Document(id=passage.id, content=passage.text, meta=dict(passage.metadata)) for passage in PASSAGES]


def test_a_ranker_selects_and_leaves_what_it_was_given(engine):
    ranker, given = PytraceRanker(engine=engine), documents()
    ranker.warm_up()
    found = ranker.run(query=QUESTION, documents=given)["documents"]
    assert {one.id for one in found[:2]} == {"ship", "foundry"}
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
    assert given == documents()
    for one in found:
        before = next(document for document in given if document.id == one.id)
        assert one.content == before.content
        assert one.meta.keys() - before.meta.keys() == {"pytrace_chains"}
    assert len(ranker.run(query=QUESTION, documents=given, top_k=4)["documents"]) == 4
    assert asyncio.run(ranker.run_async(query=QUESTION, documents=given))["documents"] == found
    assert ranker.run(query=QUESTION, documents=[]) == {"documents": []}
    with pytest.raises(InputError, match="top_n is 0"):
        ranker.run(query=QUESTION, documents=given, top_k=0)
    with pytest.raises(InputError, match=r"documents\[0\] has no text"):
        ranker.run(query=QUESTION, documents=[Document(content=None)])
    require_no_language_model(engine)
    ranker.close()


def test_a_pipeline_is_written_read_and_run_with_a_ranker_behind_its_own_retriever():
    store = InMemoryDocumentStore()
    store.write_documents(documents())
    pipeline = Pipeline()
    pipeline.add_component("retriever", InMemoryBM25Retriever(store, top_k=5))
    pipeline.add_component("ranker", PytraceRanker(top_k=2, threads=1))
    pipeline.connect("retriever", "ranker")
    ranker = Pipeline.loads(pipeline.dumps(), allowed_modules=[OURS]).get_component("ranker")
    assert ranker.to_dict() == pipeline.get_component("ranker").to_dict()
    found = pipeline.run({"retriever": {"query": QUESTION}, "ranker": {"query": QUESTION}})["ranker"]["documents"]
    assert {one.id for one in found} == {"ship", "foundry"}


def test_a_retriever_searches_an_index_across_hops_in_a_pipeline(index, engine):
    alone = PytraceRetriever(str(index), 3, engine=engine)
    found = alone.run(query=QUESTION)["documents"]
    texts = " ".join(one.content for one in found[:2])
    assert len(found) == 3
    assert "Lady Addle" in texts
    assert "Matthias Garrow" in texts
    assert found[0].meta["source"]
    assert found[0].meta["pytrace_chains"][0]["steps"]
    assert asyncio.run(alone.run_async(query=QUESTION, top_k=1))["documents"][0].id == found[0].id
    alone.close()
    require_no_language_model(engine)
    pipeline = Pipeline()
    pipeline.add_component("retriever", PytraceRetriever(str(index), top_k=3, threads=1))
    copy = Pipeline.loads(pipeline.dumps(), allowed_modules=[OURS])
    result = copy.run({"retriever": {"query": QUESTION}})["retriever"]["documents"]
    assert [one.id for one in result] == [one.id for one in found]
