"""Methods over an index: they search all of it, for the question and for what they think, beyond the passages that they are given."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from pytrace.engine.corpus import Corpus, IndexedCorpus
from pytrace.engine.loading import Engine
from pytrace.methods.base import Method
from pytrace.methods.catalog import make_method
from pytrace.models.scripted import HashEncoder, ScriptedModel
from pytrace.records import Document, Origin
from pytrace.retrieval.hops import PassageRanking
from pytrace.retrieval.passages import IndexWriter

ENCODER = HashEncoder(dimension=1024)
FERRY = Document("ferry", "Marigold Tern", ("The Marigold Tern is a ferry of Brackwater.",))
COMPANY = Document("company", "Brackwater", ("Brackwater was founded by Tobias Rook.",))
FOUNDER = Document("rook", "Tobias Rook", ("Tobias Rook was born in Quillhaven.",))
OTHERS = [Document(f"other {number}", f"Loaf {number}", (f"Loaf {number} is baked at dawn.",)) for number in range(40)]
QUESTION = "Who owns the Marigold Tern?"


class Models(Engine):
    """An engine of scripted models, which nothing is loaded for."""

    model = ScriptedModel(["unasked"])  # type: ignore[assignment]
    encoder = ENCODER  # type: ignore[assignment]


@pytest.fixture
def corpus(tmp_path: Path) -> Iterator[Corpus]:
    with IndexWriter(tmp_path / "index", ENCODER, create=True) as writer:
        writer.add([*OTHERS, FERRY, COMPANY, FOUNDER])
        writer.commit()
    opened = Corpus.open(tmp_path / "index")
    yield opened
    opened.close()


def method(corpus: Corpus, name: str, said: Any, *, where: Sequence[str] = ()) -> Method:
    search = corpus.finder(Models(), where=where)
    return make_method(name, ScriptedModel(said), lambda: ENCODER, search=search)


@pytest.mark.parametrize("name", ["dense", "bm25", "rrf"])
def test_a_baseline_retrieves_from_the_whole_index(corpus: Corpus, name: str) -> None:
    (answer,) = method(corpus, f"{name}:top=1", ["x"]).answer(["Where was Tobias Rook born?"], [OTHERS[:3]])
    assert answer.evidence.document_ids == ("rook",)


@pytest.mark.parametrize("name", ["dense", "bm25", "rrf", "given"])
def test_each_retriever_finds_what_its_parts_find(corpus: Corpus, name: Any) -> None:
    queries = ["Where was Tobias Rook born?", "Which loaf is baked?", "xyzzy"]
    finder = corpus.finder(Models())
    assert finder is not None
    found = finder(queries, name, 5)
    assert [len(row) for row in found] == ([2, 5, 0] if name == "bm25" else [5, 5, 5])
    assert found[0][0] == FOUNDER
    assert all(document in OTHERS for document in found[1])
    assert [finder([query], name, 5)[0] for query in queries] == found
    assert finder([], name, 5) == []


def test_each_thought_of_ircot_is_looked_for_in_the_whole_index(corpus: Corpus) -> None:
    said = [
        "Brackwater owns the Marigold Tern.",
        "Tobias Rook founded Brackwater.",
        "So the answer is Quillhaven.",
        "x",
    ]
    model = method(corpus, "ircot:top=1,retriever=bm25,demonstrations=0", said)
    (answer,) = model.answer([QUESTION], [OTHERS[:3]])
    assert answer.evidence.document_ids == ("ferry", "company", "rook")
    assert answer.evidence.reasoning.rationale == tuple(said[:2])


def test_the_search_of_ircot_ends_at_the_most_documents(corpus: Corpus) -> None:
    said = [f"Loaf {number} is baked." for number in range(30)]
    (answer,) = method(corpus, "ircot:most=7,steps=20", said).answer([QUESTION], [OTHERS[:3]])
    assert len(answer.evidence.document_ids) == 7


def test_verify_and_edit_looks_for_each_verifying_question_in_the_whole_index(corpus: Corpus) -> None:
    def say(prompt: str) -> str:
        end = prompt.rpartition("\n\n")[2]
        if end.endswith("Thoughts:"):
            return f"Tobias Rook was born in Rome. So the answer is {next(doubts)}."
        if end.endswith("Verifying question:"):
            return "Where was Tobias Rook born?"
        return "Quillhaven." if end.endswith("So the answer is") else "Tobias Rook was born in Quillhaven."

    doubts = iter(range(5))
    (answer,) = method(corpus, "verify-and-edit:sentences=1,top=1", say).answer([QUESTION], [OTHERS[:3]])
    assert answer.evidence.document_ids == ("rook",)
    assert answer.text == "Quillhaven"


def test_filters_hold_for_what_is_looked_for_while_thinking(tmp_path: Path) -> None:
    made = [
        Document(
            f"{year}#0",
            "Report",
            (f"The mayor spoke in {year}.",),
            "r.txt",
            Origin(str(year), "R", metadata={"y": year}),
        )
        for year in (2019, 2020, 2021)
    ]
    with IndexWriter(tmp_path / "years", ENCODER, create=True) as writer:
        writer.add(made)
        writer.commit()
    corpus = Corpus.open(tmp_path / "years")
    (answer,) = method(corpus, "rrf", ["x"], where=["y>=2020"]).answer(["Which mayor spoke?"], [made])
    assert sorted(answer.evidence.document_ids) == ["2020#0", "2021#0"]
    corpus.close()


def test_a_corpus_in_memory_has_no_more_than_a_method_is_given() -> None:
    assert Corpus(OTHERS).finder(Models()) is None


@pytest.mark.parametrize(("chains", "read"), [("chains=2", 2), ("chains=2,passage_chains=1", 1)])
def test_over_an_index_as_many_chains_are_read_as_their_setting_says(corpus: Corpus, chains: str, read: int) -> None:
    settings = f"unit=sentence,scoring=ranker,candidates=8,passages=3,{chains}"
    (answer,) = method(corpus, f"trace:{settings}", ["x"]).answer([QUESTION], [OTHERS[:3]])
    assert len(answer.evidence.chains) == read


@pytest.mark.parametrize("most", [1, 2, 4])
def test_chains_go_through_the_passages_that_answer_together(corpus: Corpus, most: int) -> None:
    settings = f"unit=sentence,scoring=ranker,new_documents=true,candidates=8,chains=1,passages={most}"
    (answer,) = method(corpus, f"trace:{settings}", ["x"]).answer([QUESTION], [OTHERS[:3]])
    assert isinstance(corpus, IndexedCorpus)
    (ranking,) = corpus.rank([QUESTION], Models(), most)
    together = corpus.index.passages(ranking.together(most))
    assert 1 <= len(together) <= most
    assert together[0] in (FERRY, COMPANY)
    (chain,) = answer.evidence.chains
    assert {unit.document_id for unit in chain.units} == {passage.id for passage in together}
    # Without the setting, chains go through the passages that are given.
    (answer,) = method(corpus, "trace:unit=sentence,scoring=ranker", ["x"]).answer([QUESTION], [OTHERS[:3]])
    assert set(answer.evidence.document_ids) <= {passage.id for passage in OTHERS[:3]}


def test_passages_answer_together_that_are_not_much_less_likely_than_the_first() -> None:
    ranking = PassageRanking((7, 3, 9, 4, 1), (0.4, 0.2, 0.09, 0.07, 0.01), (), 1.0)
    assert ranking.together(4) == (7, 3, 9)
    assert ranking.together(2) == (7, 3)
    assert PassageRanking((), (), (), 0.0).together(4) == ()
