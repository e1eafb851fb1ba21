"""The front door: what a newcomer types works as README says, and nothing is loaded before it is used."""

from __future__ import annotations

import contextlib
import io
import math
import re
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import pytest

import pytrace
from pytrace.cli import common
from pytrace.cli.commands import Command, click_command
from pytrace.cli.shared_options import MODELS
from pytrace.engine import loading
from pytrace.engine.inputs import read_corpus
from pytrace.engine.questions import read_questions
from pytrace.errors import DataError, InputError, ModelFileError
from pytrace.methods.catalog import parse_method
from pytrace.models.scripted import HashEncoder, ScriptedModel
from pytrace.triples.extraction import sentence_units
from pytrace.triples.graph import Recipe, TripleStore

CHECKOUT = Path(__file__).parents[2]
DOCUMENTS = [
    pytrace.Document("1", "Ada Foah", ("Ada Foah is a town in Ghana.",)),
    pytrace.Document("2", "Ghana", ("The capital of Ghana is Accra.",)),
    pytrace.Document("3", "Bread", ("Bread is baked.",)),
]
QUESTION = "What is the capital of the country of Ada Foah?"


def scripted(*texts: str) -> pytrace.Engine:
    engine = pytrace.Engine()
    vars(engine).update(model=ScriptedModel(list(texts)), encoder=HashEncoder())
    return engine


@pytest.mark.models
def test_the_example_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (CHECKOUT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert len([line for line in code.splitlines() if line.strip()]) <= 5
    # The example leaves an index where it is run.
    (tmp_path / "examples").symlink_to(CHECKOUT / "examples")
    monkeypatch.chdir(tmp_path)
    with contextlib.redirect_stdout(io.StringIO()) as output:
        exec(code, {})  # noqa: S102 - the example itself is what is tested
    assert "Matthias Garrow" in output.getvalue().splitlines()[-1]


def test_a_corpus_is_searched_without_a_language_model(tmp_path: Path) -> None:
    engine = pytrace.load(str(tmp_path / "missing.gguf"))
    vars(engine)["encoder"] = HashEncoder()
    found = engine.search(QUESTION, DOCUMENTS, chains=2).evidence
    assert 1 <= len(found.chains) <= 2
    assert {source.id for source in found.sources} == {"1", "2", "3"}
    selected = engine.search(QUESTION, DOCUMENTS, method="rag").evidence
    assert [source.id for source in selected.sources] == ["1", "2", "3"]
    with pytest.raises(ModelFileError, match=r"missing\.gguf"):
        engine.ask(QUESTION, DOCUMENTS, method="rag")


def test_a_question_is_asked_of_documents_a_folder_or_a_corpus(tmp_path: Path) -> None:
    (tmp_path / "town.txt").write_text("Ada Foah is a town in Ghana.", encoding="utf-8")
    for corpus in (DOCUMENTS, pytrace.Corpus(DOCUMENTS), tmp_path, str(tmp_path)):
        result = scripted("Accra").ask(QUESTION, corpus, method="rag", settings=["reading=free"])
        assert (result.answer, result.method) == ("Accra", "rag")


def test_documents_are_chosen_by_what_they_say_of_themselves(tmp_path: Path) -> None:
    for name, author in (("a", "Venn"), ("b", "Rook")):
        text = f"---\ntitle: Town {name}\nauthor: {author}\n---\nIt lies on the coast.\n"
        (tmp_path / f"{name}.md").write_text(text, encoding="utf-8")
    assert [document.title for document in pytrace.Corpus.read(tmp_path, where=("author=venn",))] == ["Town a"]
    with TripleStore.open(tmp_path / "graph", recipe=Recipe("sentence"), mode="create") as graph:
        for document in pytrace.Corpus.read(tmp_path):
            graph.add(document, sentence_units(document))
    asked = parse_method("trace")
    chosen = read_corpus((), tmp_path / "graph", needed=asked, where=("author!=venn",))
    assert [document.title for document in chosen] == ["Town b"], "a graph keeps what documents say of themselves"


def test_from_a_larger_corpus_the_nearest_documents_are_read() -> None:
    many = [pytrace.Document(str(n), f"Bread {n}", ("It is baked.",)) for n in range(40)]
    result = scripted("Accra").ask("What is baked?", many, method="rag", min_confidence=0.0)
    assert len([source for source in result.evidence.sources if source.read]) == 20


def test_models_are_loaded_once_while_something_else_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []
    begun, may_go_on = threading.Event(), threading.Event()

    def encoder(*_: object, **__: object) -> HashEncoder:
        loaded.append("encoder")
        begun.set()
        assert may_go_on.wait(10)
        return HashEncoder()

    def model(*_: object) -> ScriptedModel:
        loaded.append("model")
        return ScriptedModel(["Accra"])

    monkeypatch.setattr(loading, "load_encoder", encoder)
    monkeypatch.setattr(loading.Engine, "_load_model", model)
    engine = pytrace.Engine()
    engine.preload()
    assert begun.wait(10)
    threading.Timer(0.05, may_go_on.set).start()  # who asks meanwhile waits
    assert engine.encoder.dimension == HashEncoder().dimension
    assert engine.ask(QUESTION, DOCUMENTS, method="rag:reading=free").answer == "Accra"
    assert sorted(loaded) == ["encoder", "model"]


def test_a_model_that_cannot_be_loaded_is_told_where_it_is_used(tmp_path: Path) -> None:
    engine = pytrace.load(str(tmp_path / "missing.gguf"), encoder=str(tmp_path / "missing"))
    engine.preload()
    for thread in threading.enumerate():
        if thread.name == "loading models":
            thread.join(10)
            assert not thread.is_alive()
    with pytest.raises(ModelFileError, match=r"missing\.gguf"):
        engine.model.count_tokens("a")
    with pytest.raises(InputError, match="missing"):
        _ = engine.encoder


def test_models_are_loaded_only_once_there_is_a_document(tmp_path: Path) -> None:
    calls: list[int] = []
    asked = parse_method("rag")
    with pytest.raises(DataError, match="no such file"):
        read_corpus([tmp_path / "missing"], None, needed=asked, at_first=lambda: calls.append(1))
    assert calls == []
    for name in ("a", "b"):
        (tmp_path / f"{name}.txt").write_text(f"Ada Foah {name} is a town.", encoding="utf-8")
    assert len(read_corpus([tmp_path], None, needed=asked, at_first=lambda: calls.append(1))) == 2
    assert calls == [1]


def test_reasoning_is_certified_against_a_file_of_facts(tmp_path: Path) -> None:
    facts = tmp_path / "facts.tsv"
    facts.write_text("Corfu\tpart of\tGreece\nGreece\tlanguage\tGreek\n", encoding="utf-8")
    response = pytrace.Response(
        "1",
        "What is spoken on Corfu?",
        "1. Corfu part of Greece. 2. Greece language Greek. So the answer is (Greek).",
        ("Greek",),
    )
    (certificate,) = scripted("unused").certify([response], facts)
    assert len(certificate.steps) == 2


def test_options_that_are_none_are_refused() -> None:
    with pytest.raises(InputError, match="there is no option 'temperature'; choose among api_key_env"):
        pytrace.load(temperature=1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"encoder_name": "tiny"}, "there is no option 'encoder_name'"),
        ({"device": "tpu"}, "there is no device 'tpu'; choose cpu or cuda"),
        ({"threads": "two"}, "threads is 'two'; give a number from 1"),
        ({"threads": 0}, "threads is 0; give a number from 1"),
        ({"min_confidence": 7}, "min_confidence is 7; give a number from 0 to 1"),
        ({"min_confidence": math.nan}, "min_confidence is nan; give a number from 0 to 1"),
        ({"min_confidence": "x"}, "min_confidence is 'x'; give a number from 0 to 1"),
    ],
)
def test_options_of_wrong_values_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        pytrace.load(**options)


@pytest.mark.parametrize(
    ("documents", "message"),
    [
        (["Ada was born in Ghana."], "'Ada was born in Ghana.' is not a document; make one with pytrace.Document"),
        (3, "3 is not a list of documents; give Document records, or a path"),
    ],
)
def test_what_is_no_document_is_refused(documents: Any, message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        scripted("unused").ask("Where was Ada born?", documents)


def test_importing_the_package_loads_no_library() -> None:
    code = "import pytrace, sys; print([m for m in ('numpy', 'llama_cpp', 'onnxruntime', 'click') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=CHECKOUT)
    assert done.stdout.strip() == "[]"


@pytest.mark.models
@pytest.mark.parametrize(("encoder", "advised"), [("tiny", True), ("gemma", True), ("small", False)])
def test_a_large_language_model_with_the_tiny_encoder_gets_one_line_of_advice(
    monkeypatch: pytest.MonkeyPatch, encoder: str, advised: bool
) -> None:
    monkeypatch.setattr(loading, "LARGE", 100_000_000)
    engine = pytrace.load("tiny", encoder=encoder, threads=1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert engine.model.count_tokens("one") == 1
    assert [str(one.message).startswith("tiny has 0.1 billion parameters") for one in caught] == [True] * advised
    engine.close()


@pytest.mark.parametrize(
    ("options", "encoder"),
    [
        ([], "tiny"),
        (["--llm", "small"], "small"),
        (["--llm", "model.gguf"], "tiny"),
        (["--llm", "small", "--encoder", "tiny"], "tiny"),
    ],
)
def test_a_profile_named_on_the_command_line_brings_its_encoder(options: list[str], encoder: str) -> None:
    chosen: list[pytrace.Engine] = []

    class Chosen(Command):
        models: pytrace.Engine = MODELS

        def run(self) -> None:
            chosen.append(self.models)

    assert common.run(click_command(Chosen), options) == 0
    assert [one.encoder_name for one in chosen] == [encoder]


def test_questions_of_a_file_are_read_as_documents_are(tmp_path: Path) -> None:
    path = tmp_path / "questions.jsonl"
    path.write_text('\ufeff{"question": "Is \u2028 a line\'s end?"}\r\n\n{"question": "No?"}', encoding="utf-8")
    assert read_questions(path) == ["Is \u2028 a line's end?", "No?"]
