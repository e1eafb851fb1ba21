from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

import pytrace
from pytrace.errors import InputError
from pytrace.integrations.rankers import CrossEncoder, Ranker, RerankRequest
from pytrace.integrations.selection import (
    IndexSearch,
    Passage,
    PassageSelector,
    lock_of,
    passage_metadata,
    shared_engine,
)
from tests.integrations.stories import PASSAGES, QUESTION, require_no_language_model

pytestmark = pytest.mark.models


@pytest.fixture(scope="module")
def selector(engine) -> PassageSelector:
    return PassageSelector(engine=engine)


def test_the_passages_that_answer_together_come_first_with_their_chain(selector, engine):
    (selected,) = selector.select([QUESTION], [PASSAGES])
    assert {PASSAGES[one.place].id for one in selected[:2]} == {"ship", "foundry"}
    assert 0 < len(selected) < len(PASSAGES)
    assert [one.score for one in selected] == sorted((one.score for one in selected), reverse=True)
    assert all(0 < one.score <= 1 for one in selected)
    assert selected[0].chains[0] == selected[1].chains[0]
    first, second = selected[0].chains[0]["steps"]
    assert (first["id"], second["id"], first["link"]) == ("ship", "foundry", "")
    assert second["link"] == "Orrin Bell Foundry"
    for step in (first, second):
        source = next(passage for passage in PASSAGES if passage.id == step["id"])
        assert step["text"] in source.text
        assert step["title"] == source.metadata["title"]
    for one in selected:
        for chain in one.chains:
            assert PASSAGES[one.place].id in {step["id"] for step in chain["steps"]}
    require_no_language_model(engine)


def test_a_search_across_hops_ranks_as_many_passages_as_are_wanted(selector):
    alone, ranked, two = (selector.select([QUESTION], [PASSAGES], count)[0] for count in (None, len(PASSAGES), 2))
    assert [one.place for one in ranked[: len(alone)]] == [one.place for one in alone]
    assert [one.place for one in ranked[:2]] == [one.place for one in two]
    assert sorted(one.place for one in ranked) == list(range(len(PASSAGES)))
    assert all(one.score > 0 for one in ranked)
    settings = PassageSelector(settings=["passages=1"], engine=selector._engine)
    assert settings.select([QUESTION], [PASSAGES]) == [settings.select([QUESTION], [PASSAGES], 1)[0]]


def test_top_n_is_filled_with_the_others_as_they_were_given(engine):
    selector = PassageSelector("trace-doc", engine=engine)
    alone, filled, one = (selector.select([QUESTION], [PASSAGES], count)[0] for count in (None, len(PASSAGES), 1))
    assert 0 < len(alone) < len(PASSAGES)
    assert alone[0].chains
    assert filled[: len(alone)] == alone
    rest = filled[len(alone) :]
    assert [one.place for one in rest] == sorted(set(range(len(PASSAGES))) - {one.place for one in alone})
    assert all((one.score, one.chains) == (0.0, []) for one in rest)
    assert one == alone[:1]


def test_more_passages_are_ranked_than_a_search_lists_by_default(selector):
    many = [Passage(str(number), f"Village {number} has {number} wells.", {}) for number in range(40)] + PASSAGES
    (selected,) = selector.select([QUESTION], [many], 30)
    assert {many[one.place].id for one in selected[:2]} == {"ship", "foundry"}
    assert len(selected) == 30


def test_a_batch_selects_what_each_question_selects_alone(selector):
    questions = [QUESTION, "When was the Treaty of Nethercove signed?", "What of nothing?"]
    passages = [PASSAGES, PASSAGES[::-1], []]
    together = selector.select(questions, passages)
    alone = [selector.select([question], [some])[0] for question, some in zip(questions, passages, strict=True)]
    assert [[one.place for one in found] for found in together] == [[one.place for one in found] for found in alone]
    assert together[2] == []


@pytest.mark.parametrize("method", ["hops", "trace", "trace-doc", "dense", "bm25", "rrf"])
def test_any_method_selects(engine, method):
    (selected,) = PassageSelector(method, engine=engine).select([QUESTION], [PASSAGES], 3)
    assert len(selected) == 3
    assert len({one.place for one in selected}) == 3
    assert {PASSAGES[one.place].id for one in selected} & {"ship", "foundry"}


def test_odd_passages_are_selected_among(selector):
    odd = [
        Passage("same", "", {}),
        Passage("same", "\x00\ud800", {"title": None}),
        Passage("x", "a" * 50_000, {"title": 3}),
    ]
    (selected,) = selector.select([QUESTION], [odd], 3)
    assert sorted(one.place for one in selected) == [0, 1, 2]


def test_a_passage_without_a_title_has_that_of_its_file_or_its_beginning(selector):
    for metadata, title in (
        ({"title": "Lady Addle", "file_name": "x.txt"}, "Lady Addle"),
        ({"title": "", "name": "Addle"}, "Addle"),
        ({"file_name": "docs/lady-addle_2.md"}, "lady addle 2"),
        ({"source": "/a/lady addle.pdf", "title": None}, "lady addle"),
        ({}, "Her bell came from the Orrin Bell Foundry"),
    ):
        passage = Passage("own", "Her bell came from the Orrin Bell Foundry.", metadata)
        (selected,) = selector.select([QUESTION], [[passage]])
        assert selected[0].chains[0]["steps"][0]["title"].startswith(title)


def test_what_cannot_be_selected_is_refused(selector, engine, tmp_path):
    with pytest.raises(InputError, match="1 questions but 2 lists"):
        selector.select([QUESTION], [PASSAGES, PASSAGES])
    with pytest.raises(InputError, match="top_n is 0"):
        selector.select([QUESTION], [PASSAGES], 0)
    with pytest.raises(InputError, match="empty"):
        selector.select([" "], [PASSAGES])
    with pytest.raises(InputError, match="no such"):
        PassageSelector("no such", engine=engine)
    with pytest.raises(InputError, match="the setting 'a=1' of hops"):
        PassageSelector("hops", ["a=1"], engine=engine)
    with pytest.raises(pytrace.PytraceError):
        IndexSearch(str(tmp_path), engine=engine)


def test_an_index_is_searched_with_chains_and_where_each_passage_stands(index, engine):
    search = IndexSearch(str(index), 4, engine=engine)
    ((first, *rest),) = search.search([QUESTION])
    document, selected = first
    assert len(rest) == 3
    assert "Lady Addle" in document.text or "Orrin Bell Foundry" in document.text
    assert selected.chains[0]["steps"][0]["id"]
    known = passage_metadata(document)
    assert known["source"]
    assert known["end"] > known["start"]
    assert [len(found) for found in search.search([QUESTION, "When was the Treaty of Nethercove signed?"], 2)] == [2, 2]
    search.close()
    require_no_language_model(engine)


def test_a_search_for_no_passage_is_refused(index, engine):
    with pytest.raises(InputError, match="top_n is 0"):
        IndexSearch(str(index), 0, engine=engine)
    search = IndexSearch(str(index), engine=engine)
    for wrong in (0, -3):
        with pytest.raises(InputError, match=f"top_n is {wrong}"):
            search.search([QUESTION], wrong)


def test_adapters_of_one_engine_hold_one_lock(engine):
    lock = lock_of(engine)
    assert PassageSelector(engine=engine)._lock is PassageSelector("dense", engine=engine)._lock is lock
    assert lock_of(pytrace.load(threads=1)) is not lock


def test_a_cross_encoder_s_shape(engine):
    ranker = CrossEncoder(engine=engine)
    texts = [passage.text for passage in PASSAGES]
    ranked = ranker.rank(QUESTION, texts)
    assert sorted(row["corpus_id"] for row in ranked) == list(range(len(texts)))
    top = ranker.rank(QUESTION, texts, top_k=2, return_documents=True)
    assert [row["text"] for row in top] == [texts[row["corpus_id"]] for row in top]
    assert top[0].keys() == {"corpus_id", "score", "text", "pytrace_chains"}
    assert ranker.rank(QUESTION, []) == []


def test_flashrank_s_shape(engine):
    given = [{"id": k, "text": passage.text, "meta": passage.metadata, "own": k} for k, passage in enumerate(PASSAGES)]
    ranked = Ranker(engine=engine).rerank(RerankRequest(QUESTION, given))
    assert sorted(row["own"] for row in ranked) == list(range(len(PASSAGES)))
    assert {PASSAGES[row["id"]].id for row in ranked[:2]} == {"ship", "foundry"}
    assert ranked[0].keys() == {"id", "text", "meta", "own", "score", "pytrace_chains"}
    assert "score" not in given[0]
    assert Ranker(engine=engine).rerank(RerankRequest(QUESTION, [])) == []


def test_engines_of_the_same_models_are_one_in_a_process():
    assert PassageSelector(threads=1)._engine is PassageSelector("dense", threads=1)._engine


def test_threads_that_ask_at_once_share_one_engine():
    with ThreadPoolExecutor(8) as pool:
        engines = list(pool.map(lambda _: shared_engine("tiny", None, 7), range(16)))
    assert len({*map(id, engines)}) == 1


def test_nothing_imports_a_framework_before_its_adapter_is_imported():
    code = """
import sys, pytrace
from pytrace.integrations import rankers, selection
pytrace.load, pytrace.Corpus
names = {name.partition(".")[0] for name in sys.modules}
assert not names & {"llama_index", "langchain_core", "haystack", "rapidfuzz", "faiss"}, names
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_no_host_is_looked_up_as_adapters_of_what_brings_litellm_are_imported() -> None:
    code = """
import socket
def refuse(host, *_, **__):
    print("looked up", host)
    raise socket.gaierror("refused")
socket.getaddrinfo = refuse
import pytrace.integrations.dspy, pytrace.integrations.rerankers
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True, timeout=300
    )
    assert "looked up" not in done.stdout
