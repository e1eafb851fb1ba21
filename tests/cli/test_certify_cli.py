"""`pytrace certify` as a user meets it: figures, certificates, pages, runs that go on, and clear refusals."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytrace.cli import common, program
from pytrace.engine import loading
from pytrace.models.scripted import HashEncoder, ScriptedModel

FACTS = "Corfu\tpart of\tGreece\nGreece\tspeaks\tGreek\nRome\tpart of\tItaly\nItaly\tspeaks\tItalian\n"
RIGHT = "1. Corfu is part of Greece.\n2. Greece speaks Greek.\nSo the answer is (Greek)."
WRONG = "1. Corfu is part of Italy.\n2. Italy speaks Italian.\nSo the answer is (Italian)."
QUESTION = {"question": "What is spoken on Corfu?", "answers": ["Greek"]}
GOLD = {"gold_paths": [[["Corfu", "part of", "Greece"], ["Greece", "speaks", "Greek"]]]}

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Run a command in this process in a folder with a graph, responses and questions, with scripted models."""
    monkeypatch.setattr(loading.Engine, "encoder", HashEncoder())
    monkeypatch.setattr(loading.Engine, "model", ScriptedModel([RIGHT, WRONG]))
    monkeypatch.delenv("PYTRACE_DEBUG", raising=False)
    monkeypatch.chdir(tmp_path)
    Path("kg.tsv").write_text(FACTS)
    rows = [
        {**QUESTION, **GOLD, "id": name, "response": text} for name, text in (("a", RIGHT), ("b", WRONG), ("c", "no"))
    ]
    Path("responses.jsonl").write_text("\n".join(map(json.dumps, rows)))
    questions = [{**QUESTION, **GOLD, "id": f"q{n}", "question": f"What is spoken on Corfu? ({n})"} for n in range(3)]
    Path("questions.jsonl").write_text("\n".join(map(json.dumps, questions)))

    def call(*arguments: object) -> tuple[int, str, str]:
        capfd.readouterr()
        status = common.run(program, [*map(str, arguments)])
        return (status, *capfd.readouterr())

    return call


def told(run: Run, *arguments: object) -> dict[str, Any]:
    status, out, err = run(*arguments, "--json")
    assert status == 0, err
    found: dict[str, Any] = json.loads(out)
    return found


CERTIFY = ("certify", "--kg", "kg.tsv", "--responses", "responses.jsonl")


def test_certify_tells_figures_and_certificates(run):
    found = told(run, *CERTIFY)
    assert found["scores"]["kinds"] == {
        "faithful": 1,
        "unfaithful": 1,
        "undecided": 0,
        "abstained": 0,
        "unstructured": 1,
    }
    assert [(one["id"], one["kind"], one["error"]) for one in found["certificates"]] == [
        ("a", "faithful", None),
        ("b", "unfaithful", "factual"),
        ("c", "unstructured", None),
    ]
    assert found["settings"]["rule"] == "strict"


def test_certify_words_every_step(run):
    status, out, _ = run(*CERTIFY, "--explain")
    assert status == 0
    assert "a: What is spoken on Corfu?\nfaithful: all 2 steps are facts" in out
    assert "  + 1. Corfu is part of Greece.\n       says the fact Corfu – part of – Greece" in out
    assert "unfaithful (factual error): step 1 of 2: no fact of the graph says so" in out
    assert "reasoning  50.0" in out
    assert "gap between answers and reasoning: 0.0" in out


def test_certify_writes_certificates_page_and_plots(run):
    status, _, err = run(*CERTIFY, "--out", "out.jsonl", "--page", "page.html", "--plots", "plots")
    assert status == 0, err
    assert [json.loads(line)["id"] for line in Path("out.jsonl").read_text().splitlines()] == ["a", "b", "c"]
    page = Path("page.html").read_text()
    assert "Responses of responses.jsonl" in page
    assert "https:" not in page
    assert {path.name for path in Path("plots").iterdir()} >= {"errors.png", "gap.svg"}


def test_settings_change_what_counts_as_a_fact(run):
    found = told(run, *CERTIFY, "--set", "threshold=1", "--set", "rule=paper")
    assert found["scores"]["kinds"]["faithful"] == 0
    status, _, err = run(*CERTIFY, "--set", "margin=1")
    assert (status, "'margin=1' of certify is not name=value with a name among" in err) == (2, True)
    assert run(*CERTIFY, "--set", "threshold=2")[0] == 2


@pytest.mark.parametrize("vectors", ["float32", "int8"])
def test_certify_reads_a_compiled_knowledge_base(run, vectors):
    assert run("kg", "index", "kg.tsv", "--out", "kb", "--vectors", vectors)[0] == 0
    found = told(run, "certify", "--kg", "kb", "--responses", "responses.jsonl")
    assert found["scores"]["kinds"]["faithful"] == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("certify",), "give --kg PATH and --responses FILE"),
        (("certify", "--kg", "kg.tsv"), "give --kg PATH and --responses FILE"),
        (("certify", "--kg", "no.tsv", "--responses", "responses.jsonl"), "no.tsv"),
        (("certify", "--kg", "kg.tsv", "--responses", "no.jsonl"), "no.jsonl"),
        (("certify", "--kg", "empty.tsv", "--responses", "responses.jsonl"), "empty"),
        (("certify", "--kg", "broken.ttl", "--responses", "responses.jsonl"), "broken.ttl:2"),
        (("certify", "--kg", "kg.tsv", "--responses", "kg.tsv"), "kg.tsv:1"),
    ],
)
def test_what_cannot_be_used_is_one_sentence(run, arguments, message):
    Path("empty.tsv").write_text("")
    Path("broken.ttl").write_text("<urn:a> <urn:b> <urn:c> .\n<urn:a> <urn:b> .\n")
    status, out, err = run(*arguments)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert message in err
    assert "Traceback" not in err


def test_generate_certifies_what_a_model_writes(run):
    found = told(run, "certify", "generate", "--kg", "kg.tsv", "--data", "questions.jsonl", "--out", "runs")
    assert set(found["promptings"]) == {"cot", "cot-plan", "cot-sc"}
    assert found["promptings"]["cot"]["scores"]["kinds"]["faithful"] == 2
    assert found["promptings"]["cot-sc"]["scores"]["n"] == 3
    for prompting in ("cot", "cot-plan", "cot-sc"):
        assert {f"responses-{prompting}.jsonl", f"certificates-{prompting}.jsonl", f"{prompting}.html"} <= {
            path.name for path in Path("runs").iterdir()
        }
    again = told(run, "certify", "--kg", "kg.tsv", "--responses", "runs/responses-cot.jsonl")
    assert again["scores"] == found["promptings"]["cot"]["scores"]


def test_generate_goes_on_where_it_was(run, monkeypatch):
    arguments = (
        "certify",
        "generate",
        "--kg",
        "kg.tsv",
        "--data",
        "questions.jsonl",
        "--out",
        "runs",
        "--prompting",
        "cot",
    )
    assert told(run, *arguments, "--limit", 2)["promptings"]["cot"]["scores"]["n"] == 2
    model = ScriptedModel(RIGHT)
    monkeypatch.setattr(loading.Engine, "model", model)
    assert told(run, *arguments)["promptings"]["cot"]["scores"]["n"] == 3
    assert len(model.prompts) == 1
    status, _, err = run(*arguments, "--set", "temperature=0.5")
    assert (status, "other settings" in err) == (2, True)
    Path("questions.jsonl").write_text(Path("questions.jsonl").read_text().replace("Corfu? (0)", "Rhodes?"))
    status, _, err = run(*arguments)
    assert (status, "another question of the id 'q0'" in err) == (2, True)


def test_generate_leaves_out_questions_with_the_same_path(run):
    arguments = ("--kg", "kg.tsv", "--data", "questions.jsonl", "--out", "runs", "--prompting", "cot", "--distinct")
    assert told(run, "certify", "generate", *arguments)["promptings"]["cot"]["scores"]["n"] == 1


def test_generate_refuses_settings_that_nobody_has(run):
    arguments = ("certify", "generate", "--kg", "kg.tsv", "--data", "questions.jsonl", "--out", "runs")
    assert run(*arguments, "--set", "samples=0")[0] == 2
    assert run(*arguments, "--set", "nonsense=1")[0] == 2
    assert run(*arguments, "--set", "threshold=0.9", "--set", "samples=2", "--set", "facts=3")[0] == 0


def test_runs_of_models_stand_side_by_side(run, monkeypatch):
    given = ("--kg", "kg.tsv", "--data", "questions.jsonl")
    for name, text in (("right", RIGHT), ("silent", "I do not know.")):
        monkeypatch.setattr(loading.Engine, "model", ScriptedModel(text))
        told(run, "certify", "generate", *given, "--out", f"runs/{name}", "--prompting", "cot")
        told(run, "certify", "discriminate", *given, "--out", f"{name}.jsonl", "--mode", "zero-shot")
    tables = told(run, "certify", "table", "right.jsonl", "silent.jsonl", "runs/right", "runs/silent")
    assert [row["run"] for row in tables["judged"]] == ["right", "silent"]
    assert [row["run"] for row in tables["generated"]] == ["right", "silent"]
    right, silent = (row["scores"] for row in tables["generated"])
    assert (right["answer"]["f1"]["value"], silent["answer"]["f1"]["value"]) == (1.0, 0.0)
    status, out, _ = run("certify", "table", "runs/right", "right.jsonl")
    assert status == 0
    assert [line.split()[:2] for line in out.splitlines() if line.startswith("right")] == [
        ["right", "zero-shot"],
        ["right", "cot"],
    ]
    assert run("certify", "table", "kg.tsv")[0] == run("certify", "table", ".")[0] == run("certify", "table")[0] == 2


def test_questions_are_chosen_by_their_hops(run, monkeypatch):
    monkeypatch.setattr(loading.Engine, "model", ScriptedModel(RIGHT))
    arguments = (
        "certify",
        "generate",
        "--kg",
        "kg.tsv",
        "--data",
        "questions.jsonl",
        "--out",
        "runs",
        "--prompting",
        "cot",
    )
    for hops in (("--min-hops", 2), ("--max-hops", 2), ("--min-hops", 1, "--max-hops", 4)):
        assert told(run, *arguments, *hops)["promptings"]["cot"]["scores"]["n"] == 3
    for hops in (("--min-hops", 3), ("--max-hops", 1)):
        status, _, err = run(*arguments, *hops)
        assert (status, "no question has a gold path of so many hops (there are 3 of 2)" in err) == (2, True)


def test_ask_needs_certify_for_facts(run):
    status, _, err = run("ask", "Where?", "--docs", ".", "--facts", "kg.tsv")
    assert (status, "give both" in err) == (2, True)


def test_ask_certifies_thoughts_by_a_given_graph(run, monkeypatch):
    monkeypatch.setattr(
        loading.Engine,
        "model",
        ScriptedModel("Corfu is part of Greece. Greece speaks Greek. So the answer is Greek."),
    )
    arguments = ("ask", "What is spoken on Corfu?", "--method", "cot", "--certify")
    found = told(run, *arguments, "--facts", "kg.tsv")
    assert [(one["id"], one["kind"]) for one in found["check"]["certificates"]] == [("thoughts", "faithful")]
    status, out, _ = run(*arguments, "--facts", "kg.tsv")
    assert (status, "faithful: all 2 steps are facts" in out) == (0, True)
    status, _, err = run(*arguments)
    assert (status, "nothing to certify the answer of cot by" in err) == (2, True)


def test_ask_certifies_thoughts_by_texts(run, monkeypatch):
    Path("corfu.jsonl").write_text('{"title": "Corfu", "text": "Corfu is an island of Greece."}\n')
    monkeypatch.setattr(
        loading.Engine, "model", ScriptedModel("Corfu is an island of Italy. So the answer is Italian.")
    )
    arguments = ("ask", "What is spoken on Corfu?", "--method", "cot", "--certify", "--docs", "corfu.jsonl")
    found = told(run, *arguments)
    assert [(claim["text"], claim["label"]) for claim in found["check"]["claims"]] == [
        ("Corfu is an island of Italy.", "contradicted"),
        ("Italian is spoken on Corfu.", "not there"),
    ]
    assert found["check"]["claims"][0]["evidence"][0]["text"] == "Corfu is an island of Greece."
    assert "certificates" not in found["check"]
    status, out, _ = run(*arguments)
    assert (status, "  - Corfu is an island of Italy." in out) == (0, True)


def test_ask_judges_claims_by_texts_without_a_language_model(run, monkeypatch):
    Path("corfu.jsonl").write_text('{"title": "Corfu", "text": "Corfu is an island of Greece. It is green."}\n')

    def refuse(_self):
        raise AssertionError("the language model was asked for")

    monkeypatch.setattr(loading.Engine, "model", property(refuse))
    for claim, verdict in (
        ("Corfu is an island of Greece.", "SUPPORTS"),
        ("Corfu is not an island of Greece.", "REFUTES"),
        ("Corfu is an island of Greece, and its mayor plays the lute.", "NOT ENOUGH INFO"),
    ):
        found = told(run, "ask", claim, "--claim", "--docs", "corfu.jsonl")
        assert (found["answer"], found["method"]) == (verdict, "checker (the small model)")
    status, _, err = run("ask", "Corfu is green.", "--claim", "--docs", "corfu.jsonl", "--checker", "no-such-model")
    assert (status, "no-such-model" in err) == (2, True)
    status, _, err = run("ask", "Corfu is green.", "--claim", "--docs", "corfu.jsonl", "--set", "samples=2")
    assert (status, "texts judge this claim" in err) == (2, True)
    Path("claims.txt").write_text("Corfu is an island of Greece.\nCorfu is not green.\n")
    both = told(run, "ask", "--claim", "--questions", "claims.txt", "--docs", "corfu.jsonl")["results"]
    assert [one["answer"] for one in both] == ["SUPPORTS", "REFUTES"]
    status, _, err = run("ask", "Corfu is green.", "--claim", "--checker", "lm")
    assert (status, "--checker judges claims against texts" in err) == (2, True)


@pytest.mark.models
def test_chains_of_documents_are_certified_by_their_own_graph(capfd, tiny_models, tmp_path):
    del tiny_models
    (tmp_path / "docs.jsonl").write_text(json.dumps({"title": "Corfu", "text": "Corfu is an island of Greece."}))
    arguments = [
        "ask",
        "Of which country is Corfu an island?",
        "--docs",
        str(tmp_path / "docs.jsonl"),
        "--certify",
        "--json",
    ]
    # The tiny model's chains are made of sentences, which need no graph; what is answered is checked against the document.
    assert common.run(program, [*arguments, "--threads", "1"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert "certificates" not in found["check"]
    assert [claim["evidence"][0]["text"] for claim in found["check"]["claims"]] == ["Corfu is an island of Greece."]
    assert (
        common.run(
            program,
            [*arguments, "--method", "trace", "--set", "unit=triple", "--min-confidence", "0", "--threads", "1"],
        )
        == 0
    )
    found = json.loads(capfd.readouterr().out)["check"]
    assert [one["id"] for one in found["certificates"]] == [
        f"chain {n}" for n in range(1, len(found["certificates"]) + 1)
    ]
    assert all(step["status"] == "supported" for one in found["certificates"] for step in one["steps"])
