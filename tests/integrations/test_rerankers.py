"""The ranker for `rerankers`. What imports that is in the tests, which one of xdist's processes runs: it takes 12 seconds."""

from __future__ import annotations

import asyncio
import doctest

import pytest

from pytrace.errors import InputError
from tests.integrations.stories import PASSAGES, QUESTION, require_no_language_model

pytestmark = pytest.mark.models


def test_the_module_s_example_is_true(engine):  # noqa: ARG001 (the tiny models must be pulled)
    from pytrace.integrations import rerankers

    tried = doctest.testmod(rerankers)
    assert tried.attempted >= 2
    assert tried.failed == 0


def test_documents_are_ranked_with_their_ids_metadata_and_chains(engine):
    from rerankers.documents import Document

    from pytrace.integrations.rerankers import PytraceRanker

    given = [Document(passage.text, passage.id, dict(passage.metadata)) for passage in PASSAGES]
    found = PytraceRanker(engine=engine).rank(QUESTION, given)
    assert {result.doc_id for result in found[:2]} == {"ship", "foundry"}
    assert sorted(result.doc_id for result in found) == sorted(passage.id for passage in PASSAGES)
    assert [result.rank for result in found] == [1, 2, 3, 4, 5]
    assert [result.score for result in found] == sorted((result.score for result in found), reverse=True)
    assert found[0].metadata["pytrace_chains"][0]["steps"]
    assert found[0].metadata["title"] in {"Lady Addle", "Orrin Bell Foundry"}
    assert all("pytrace_chains" not in document.metadata for document in given)
    assert {result.doc_id for result in found.top_k(2)} == {"ship", "foundry"}
    require_no_language_model(engine)


def test_texts_have_the_ids_that_are_given_or_their_places(engine):
    from rerankers.documents import Document

    from pytrace.integrations.rerankers import PytraceRanker

    ranker, texts = PytraceRanker(engine=engine), [passage.text for passage in PASSAGES]
    assert {result.doc_id for result in ranker.rank(QUESTION, texts)[:2]} == {1, 3}
    named = ranker.rank(QUESTION, texts, doc_ids=list("abcde"))
    assert {result.doc_id for result in named[:2]} == {"b", "d"}
    assert [result.doc_id for result in asyncio.run(ranker.rank_async(QUESTION, texts))] == [
        result.doc_id for result in ranker.rank(QUESTION, texts)
    ]
    assert ranker.rank(QUESTION, texts[0])[0].doc_id == 0
    assert ranker.rank(QUESTION, []).results_count() == 0
    assert ranker.score(QUESTION, texts[1]) == 1.0
    with pytest.raises(InputError, match=r"docs\[0\] is of type image"):
        ranker.rank(QUESTION, [Document(document_type="image", image_path="x.png", doc_id=1)])
