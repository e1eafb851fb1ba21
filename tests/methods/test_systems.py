from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from examples import peers
from pytrace.errors import InputError, ModelError
from pytrace.methods.abilities import UNABLE
from pytrace.methods.baselines import RetrievalSettings
from pytrace.methods.catalog import add_system, make_method, method_row
from pytrace.methods.systems import System
from pytrace.models.scripted import ScriptedModel
from pytrace.records import Document

DOCUMENTS = [
    Document(name, name.title(), (f"{name} is a town.", f"It lies by {river}."))
    for name, river in (("accra", "the Odaw"), ("ada", "the Volta"), ("keta", "a lagoon"))
]
QUESTION = "Which town lies by the Volta?"


def backwards(_: str, documents: list[Document]) -> list[str]:
    return [document.id for document in reversed(documents)]


def answering(question: str, documents: list[Document]) -> dict[str, object]:
    return {"answer": "Ada", "ids": ["ada", "ada"], "context": [f"{question} {len(documents)}"]}


class Counting:
    """Knows what it was given."""

    indexed = 0

    def index(self, documents: list[Document]) -> None:
        self.indexed += len(documents)

    def __call__(self, question: str, documents: list[Document]) -> str:
        return f"{self.indexed} {len(documents)} {len(question)}"


def made(system, *, corpus=None, **settings) -> System:
    model = ScriptedModel(lambda prompt: "read " + ("yes" if "Keta" in prompt else "no"))
    return System(model, system, RetrievalSettings(**settings), name="s", corpus=corpus)


def test_the_first_documents_that_a_retriever_ranks_are_read():
    (answer,) = made(backwards, top=2).answer([QUESTION], [DOCUMENTS])
    assert answer.evidence.document_ids == ("keta", "ada")
    assert answer.text == "read yes"
    assert answer.usage["read"].calls == 1
    assert set(answer.seconds) == {"system", "read"}
    (evidence,) = made(backwards, top=1).select([QUESTION], [DOCUMENTS])
    assert evidence.document_ids == ("keta",)


def test_an_answer_of_its_own_is_not_read_anew():
    answers = made(answering).answer([QUESTION, "Why?"], [DOCUMENTS, DOCUMENTS[:2]])
    assert [answer.text for answer in answers] == ["Ada", "Ada"]
    assert answers[0].evidence.document_ids == ("ada",)
    assert answers[1].evidence.context == ("Why? 2",)
    assert all(answer.usage["read"].calls == 0 for answer in answers)
    mixed = made(lambda question, documents: "own" if question == "Why?" else backwards(question, documents))
    assert [answer.text for answer in mixed.answer([QUESTION, "Why?"], [DOCUMENTS] * 2)] == ["read yes", "own"]


def test_a_class_is_made_once_and_indexes_the_corpus_if_there_is_one():
    system = made(Counting)
    assert [answer.text for answer in system.answer(["ab", "abc"], [DOCUMENTS, []])] == ["0 3 2", "0 0 3"]
    searching = made(Counting, corpus=DOCUMENTS)
    assert [answer.text for answer in searching.answer(["ab"], [DOCUMENTS])] == ["3 0 2"]


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (["nowhere"], "'nowhere', which none of its 3 documents has"),
        ([3], "ids with one of type int"),
        (3, "ids of type int"),
        (None, "ids of type NoneType"),
        ({"answers": "x"}, "a mapping with 'answers'"),
        ({"answer": 3}, "an answer of type int"),
        ({"answer": "x", "context": "text"}, "context of type str"),
    ],
)
def test_what_a_system_must_not_return_is_told_with_the_question(returned, message):
    with pytest.raises(ModelError, match="Volta") as raised:
        made(lambda *_: returned).answer([QUESTION], [DOCUMENTS])
    assert message in str(raised.value)


def test_what_a_system_raises_is_the_question_s_own_fault():
    with pytest.raises(ModelError, match="ZeroDivisionError when it was asked 'Which town"):
        made(lambda *_: 1 / 0).answer([QUESTION], [DOCUMENTS])


def test_what_a_system_raises_as_it_is_made_or_indexes_is_its_own_fault():
    class Unmade:
        def __init__(self) -> None:
            raise KeyError("OPENAI_BASE_URL")

    class Unread:
        def index(self, documents: list[Document]) -> None:
            raise RuntimeError(f"{len(documents)} are too many")

        def __call__(self, *_: object) -> list[str]:
            return []

    with pytest.raises(ModelError, match="raised KeyError when it was made: 'OPENAI_BASE_URL'"):
        made(Unmade)
    with pytest.raises(ModelError, match="raised RuntimeError when it indexed 3 passages: 3 are too many"):
        made(Unread, corpus=DOCUMENTS)


def test_a_module_that_cannot_be_run_is_told(tmp_path, monkeypatch):
    tmp_path.joinpath("broken_peer.py").write_text("1 / 0\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        InputError, match=r"broken_peer:search cannot be imported \(ZeroDivisionError: division by zero\)"
    ):
        add_system("broken_peer:search")


def test_a_system_is_known_once_it_was_added_and_never_by_name_alone():
    with pytest.raises(InputError, match="there is no method"):
        method_row("os.getenv")
    named = add_system("tests.methods.test_systems:backwards:top=1")
    assert named.label == "tests.methods.test_systems.backwards:top=1"
    model = ScriptedModel(lambda _: "x")
    method = make_method(named, model, lambda: None, UNABLE)
    assert method.select([QUESTION], [DOCUMENTS])[0].document_ids == ("keta",)
    assert method.name == named.label
    for wrong, message in (
        ("nowhere.at.all:search", "cannot be imported"),
        ("tests.methods.test_systems:nothing", "no callable 'nothing'"),
        ("tests.methods.test_systems:QUESTION", "no callable 'QUESTION'"),
        ("backwards", "not MODULE:CALLABLE"),
        ("a:b c", "not MODULE:CALLABLE"),
        ("tests.methods.test_systems:backwards:top", "not MODULE:CALLABLE"),
    ):
        with pytest.raises(InputError, match=message):
            add_system(wrong)
    with pytest.raises(InputError, match="the setting 'no=1'"):
        make_method(add_system("tests.methods.test_systems:backwards:no=1"), model, lambda: None, UNABLE)


@pytest.mark.models
@pytest.mark.parametrize("peer", ["Bm25s", "LlamaIndexVectors", "LangChainVectors", "HaystackBm25"])
def test_the_examples_find_what_a_question_is_about(tiny_models, peer):  # noqa: ARG001 (it must be pulled)
    retriever = getattr(peers, peer)()
    assert retriever(QUESTION, DOCUMENTS)[0] == "ada"
    retriever.index(DOCUMENTS[::-1])
    assert sorted(retriever("What lies by a lagoon?", [])) == ["accra", "ada", "keta"]
    assert len(set(retriever("of the", DOCUMENTS))) == len(retriever("of the", DOCUMENTS)) <= 3


@pytest.mark.models
@pytest.mark.parametrize("processes", [1, 2])
def test_the_command_asks_and_scores_a_system_beside_methods(tiny_models, tmp_path, processes):  # noqa: ARG001
    rows = [
        {
            "_id": str(k),
            "question": f"Where does {name} lie?",
            "answer": "x",
            "supporting_facts": [[name.title(), 1]],
            "context": [[document.title, list(document.sentences)] for document in DOCUMENTS],
        }
        for k, name in enumerate(("accra", "ada", "keta"))
    ]
    data = tmp_path / "questions.json"
    data.write_text(json.dumps(rows))
    command = [
        sys.executable,
        "-m",
        "pytrace",
        "eval",
        "bm25:top=1",
        "--system",
        "examples.peers:Bm25s:top=1",
        "--data",
        str(data),
        "--format",
        "hotpotqa",
        "--json",
        "--threads",
        "1",
        "--processes",
        str(processes),
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2], check=False)
    assert done.returncode == 0, done.stderr
    recalls = {row["method"]: row["supporting_recall"]["mean"] for row in json.loads(done.stdout)["methods"]}
    assert recalls == {"bm25:top=1": 1.0, "examples.peers.Bm25s:top=1": 1.0}
    refused = subprocess.run([*command[:4], "--data", str(data)], capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "no METHOD was named" in refused.stderr
