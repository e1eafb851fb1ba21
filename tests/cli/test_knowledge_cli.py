"""`ask` and `eval` with a knowledge base and with claims: what is opened, refused, remembered, judged and told."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_type_hints

import pytest

from pytrace import cli
from pytrace.cli import common
from pytrace.cli.result_text import print_result
from pytrace.engine import loading
from pytrace.engine.evaluation_jobs import Asker
from pytrace.engine.findings import answer_result
from pytrace.engine.knowledge import KnowledgeOptions
from pytrace.errors import StoreError
from pytrace.kg.fact_store import Relation
from pytrace.kg.queries import few_shot
from pytrace.kg.queries.query_records import Grammar, QueryForm
from pytrace.methods.catalog import parse_method
from pytrace.models.scripted import HashEncoder, ScriptedModel
from pytrace.records import Answer, Evidence, Fact, KnowledgeQuery, Question, Reasoning, Triple, Usage
from pytrace.results import Result
from tests.cli.test_ask_eval_cli import Run, needs_engine, refused, write_rows
from tests.reader.test_claims import Verdicts, by_claim

CLAIMS = [
    {"id": 1, "claim": "good", "label": "SUPPORTS", "evidence": [[[1, 2, "X", 0]]]},
    {"id": 2, "claim": "bad", "label": "REFUTES", "verifiable": "VERIFIABLE"},
    {"id": 3, "claim": "odd", "label": "SUPPORTS"},
]
BY_WORDS = ("--set", "claim-scoring=words")


RELATIONS = (Relation("country", "country", 1),)


def engine(threads: int | None, deterministic: bool = False) -> dict[str, object]:
    return {"threads": threads, "deterministic": deterministic}


class FakeStore:
    """A knowledge base of nothing that tells what was asked of it."""

    name = "towns.tsv"

    def __init__(self, fingerprint: str = "one") -> None:
        self.fingerprint = fingerprint
        self.closed = 0

    def relations(self) -> tuple[Relation, ...]:
        return RELATIONS

    def close(self) -> None:
        self.closed += 1


class Opened:
    """Stands in for the modules that open a store and make a generator and a linker; keeps what each was given."""

    def __init__(self) -> None:
        self.fingerprint = "one"
        self.generator = "few-shot"
        self.stores: list[FakeStore] = []
        self.calls: list[tuple[Any, ...]] = []
        self.shown: dict[str, Any] = {}

    def open_store(self, source: str, **options: object) -> FakeStore:
        self.calls.append(("store", source, options))
        self.stores.append(FakeStore(self.fingerprint))
        return self.stores[-1]

    def few_shot(
        self, model: ScriptedModel, relations: Sequence[Relation], *, encoder: object, grammar: object, **shown: Any
    ) -> object:
        self.calls.append(("few-shot", relations, type(encoder), grammar))
        self.shown = shown
        return SimpleNamespace(name=self.generator, model=model)

    def load(self, path: Path, *, relations: object, encoder: object, grammar: object, **engine: object) -> object:
        self.calls.append(("trained", path, relations, type(encoder), grammar, engine))
        return SimpleNamespace(name="trained", model=ScriptedModel())

    def linker(self, store: FakeStore, encoder: object) -> object:
        self.calls.append(("linker", store.fingerprint, type(encoder)))
        return SimpleNamespace()


class Cok:
    """A method that opens its knowledge base and knows one answer."""

    def __init__(self, knowledge: Any) -> None:
        self.knowledge = knowledge()

    def answer(self, questions: Sequence[str], documents: Sequence[object]) -> list[Answer]:
        return [
            Answer(one, "Founder0", "cok", Evidence("none", (), ()))
            for one, _ in zip(questions, documents, strict=True)
        ]


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command in this process, with scripted models."""
    monkeypatch.setattr(loading.Engine, "model", Verdicts(by_claim))
    monkeypatch.setattr(loading.Engine, "encoder", HashEncoder())
    monkeypatch.delenv("PYTRACE_DEBUG", raising=False)

    def call(*arguments: object) -> tuple[int, str, str]:
        capfd.readouterr()
        status = common.run(cli.program, list(map(str, arguments)))
        return (status, *capfd.readouterr())

    return call


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Opened:
    """Put doubles in the place of all that a knowledge base opens, and of the method that asks it."""
    from pytrace.methods import catalog

    doubles, make = Opened(), catalog.make_method
    monkeypatch.setattr("pytrace.engine.knowledge.open_store", doubles.open_store)
    for name, module in {
        "pytrace.kg.linking": SimpleNamespace(EntityLinker=doubles.linker),
        "pytrace.kg.queries.few_shot": SimpleNamespace(
            FewShotGenerator=doubles.few_shot, FEW=few_shot.FEW, read_examples=few_shot.read_examples
        ),
        "pytrace.kg.queries.trained": SimpleNamespace(TrainedGenerator=SimpleNamespace(load=doubles.load)),
    }.items():
        monkeypatch.setitem(sys.modules, name, module)  # type: ignore[arg-type]

    def made(method: Any, *arguments: Any, **options: Any) -> Any:
        return Cok(options["knowledge"]) if method.name == "cok" else make(method, *arguments, **options)

    monkeypatch.setattr(catalog, "make_method", made)
    return doubles


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    return write_rows(
        tmp_path / "questions.jsonl", [{"question": f"Who founded House {n}?", "answer": f"Founder{n}"} for n in (0, 1)]
    )


@pytest.fixture
def claims(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "claims.jsonl", CLAIMS)


def test_cok_without_a_knowledge_base_is_refused_before_anything_is_written(
    run: Run, questions: Path, tmp_path: Path
) -> None:
    said = "cok asks a knowledge base, and there is none; give --kb FILE|URL"
    refused(run("ask", "Who?", "--method", "cok"), said)
    refused(run("eval", "cot", "cok", "--data", questions, "--out", tmp_path / "out"), said)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--kb-format", "tsv"),
        ("--kb-labels", "names.tsv"),
        ("--kb-predicates", "names.tsv"),
        ("--kb-cache", "cache"),
        ("--user-agent", "me"),
        ("--query-generator", "few-shot"),
        ("--query-form", "sparql"),
    ],
)
def test_an_option_of_a_knowledge_base_needs_one(run: Run, questions: Path, option: str, value: str) -> None:
    said = f"{option} is of a knowledge base, and there is none; give --kb FILE|URL"
    refused(run("ask", "Who?", "--method", "ks-llm", option, value), said)
    refused(run("eval", "cot", "--data", questions, option, value), said)


def test_a_method_that_asks_no_knowledge_base_is_given_none(run: Run, opened: Opened) -> None:
    said = "ks-llm asks no knowledge base; leave --kb out, or use cok"
    refused(run("ask", "Who?", "--method", "ks-llm", "--kb", "towns.tsv"), said)
    assert opened.stores == []


def test_all_options_reach_what_they_are_for_and_the_store_is_closed_in_the_end(
    run: Run, opened: Opened, tmp_path: Path
) -> None:
    options = (
        "--kb-format",
        "tsv",
        "--kb-labels",
        tmp_path / "l",
        "--kb-predicates",
        tmp_path / "p",
        "--kb-cache",
        tmp_path,
        "--kb-timeout",
        9,
    )
    base = ("ask", "Who?", "--method", "cok", "--json")
    status, output, errors = run(*base, "--kb", "http://kb/sparql", *options, "--user-agent", "me@example.org")
    assert (status, errors) == (0, "")
    assert json.loads(output)["answer"] == "Founder0"
    given = {
        "format": "tsv",
        "labels": tmp_path / "l",
        "predicates": tmp_path / "p",
        "cache_directory": tmp_path,
        "timeout": 9.0,
        "user_agent": "me@example.org",
    }
    assert opened.calls == [
        ("store", "http://kb/sparql", given),
        ("linker", "one", HashEncoder),
        ("few-shot", RELATIONS, HashEncoder, "words"),
    ]
    assert [store.closed for store in opened.stores] == [1]
    opened.calls.clear()
    assert run(*base, "--kb", "towns.tsv", "--query-generator", tmp_path, "--threads", 1)[0] == 0
    assert opened.calls[0] == ("store", "towns.tsv", dict.fromkeys(given))
    assert opened.calls[2] == ("trained", tmp_path / "query-generator.gguf", RELATIONS, HashEncoder, None, engine(1))
    opened.calls.clear()
    own = ["--query-generator", tmp_path / "own.gguf", "--deterministic", "--query-grammar", "relations"]
    assert run(*base, "--kb", "towns.tsv", *own)[0] == 0
    assert opened.calls[2] == (
        "trained",
        tmp_path / "own.gguf",
        RELATIONS,
        HashEncoder,
        "relations",
        engine(None, True),
    )
    opened.calls.clear()
    assert run(*base, "--kb", "towns.tsv", "--query-grammar", "none")[0] == 0
    assert opened.calls[2][-1] == "none"


EXAMPLE = {
    "form": "sparql",
    "question": "How many towns has Ghana?",
    "relations": ["country"],
    "query": "select (count(?x) as ?n) where { ?x relation:/country/ entity:/Ghana/ }",
}


def test_the_model_is_shown_examples_of_the_callers_own_in_their_form(run: Run, opened: Opened, tmp_path: Path) -> None:
    base = ("ask", "Who?", "--method", "cok", "--kb", "towns.tsv")
    assert run(*base)[0] == 0
    assert [opened.shown[name] for name in ("form", "demonstrations")] == ["triplet", 5]
    assert run(*base, "--query-form", "sparql")[0] == 0
    assert opened.shown["form"] == "sparql"
    assert {row.form for row in opened.shown["labelled"]} == {"sparql"}
    own = tmp_path / "own.jsonl"
    write_rows(own, [{**EXAMPLE, "question": f"{number}. {EXAMPLE['question']}"} for number in range(7)])
    assert run(*base, "--query-examples", own)[0] == 0
    assert [opened.shown[name] for name in ("form", "demonstrations")] == ["sparql", 7]
    assert [row.question[0] for row in opened.shown["labelled"]] == list("0123456")


def test_examples_that_cannot_be_used_are_refused_before_anything_is_opened(
    run: Run, opened: Opened, tmp_path: Path
) -> None:
    base = ("ask", "Who?", "--method", "cok", "--kb", "towns.tsv")
    own = tmp_path / "own.jsonl"
    write_rows(own, [EXAMPLE, {**EXAMPLE, "query": "select ?x where { ?x relation:/in/ entity:/Ghana/ }"}])
    refused(
        run(*base, "--query-examples", own), f"{own}:2: the query's relation 'in' is not among the 1 that are listed"
    )
    write_rows(own, [EXAMPLE])
    refused(run(*base, "--query-examples", own, "--query-form", "triplet"), 'no demonstration of form "triplet"')
    refused(run(*base, "--query-examples", tmp_path / "none"), "cannot read the demonstrations")
    for option in (("--query-examples", own), ("--query-form", "sparql")):
        refused(
            run(*base, *option, "--query-generator", tmp_path), f"{option[0]} is for a model that is shown examples"
        )
    assert opened.stores == []


def test_the_store_is_closed_when_the_command_fails(run: Run, opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> list[Answer]:
        raise StoreError("the store went away")

    monkeypatch.setattr(Cok, "answer", fail)
    refused(run("ask", "Who?", "--method", "cok", "--kb", "towns.tsv"), "the store went away")
    assert [store.closed for store in opened.stores] == [1]


def test_closing_what_was_not_opened_opens_nothing(opened: Opened) -> None:
    options = KnowledgeOptions("towns.tsv", *[None] * 8)
    options.close()
    assert opened.calls == []
    options.check([parse_method("cok")])


@needs_engine
def test_a_run_is_not_gone_on_with_beside_another_knowledge_base_or_generator(
    run: Run, opened: Opened, questions: Path, tmp_path: Path
) -> None:
    labels = tmp_path / "labels.tsv"
    labels.write_text("ghana\tGold Coast\n", encoding="utf-8")
    base = ("eval", "cok", "--data", questions, "--kb", "towns.tsv", "--out", tmp_path / "run")
    assert run(*base, "--kb-labels", labels)[0] == 0
    assert run(*base, "--kb-labels", labels, "--resume")[0] == 0
    refused(run(*base, "--resume"), "run.sqlite")
    refused(run(*base, "--kb-labels", labels, "--query-generator", tmp_path, "--resume"), "run.sqlite")
    labels.write_text("ghana\tGhana\n", encoding="utf-8")
    refused(run(*base, "--kb-labels", labels, "--resume"), "run.sqlite")
    labels.write_text("ghana\tGold Coast\n", encoding="utf-8")
    opened.fingerprint = "two"
    refused(run(*base, "--kb-labels", labels, "--resume"), "run.sqlite")
    opened.fingerprint, opened.generator = "one", "few-shot sparql"
    refused(run(*base, "--kb-labels", labels, "--resume"), "run.sqlite")
    assert all(store.closed == 1 for store in opened.stores)


@needs_engine
def test_several_methods_share_one_knowledge_base(run: Run, opened: Opened, questions: Path) -> None:
    status, output, _ = run("eval", "cok", "cok:samples=3", "--data", questions, "--kb", "towns.tsv", "--json")
    assert status == 0
    assert [call[0] for call in opened.calls] == ["store", "linker", "few-shot"]
    told = json.loads(output)
    assert [one["exact_match"] for one in told["methods"]] == [0.5, 0.5]
    assert told["settings"]["knowledge base"]["store"] == "one"
    assert told["settings"]["knowledge base"]["generator"] == "few-shot"


def test_ask_checks_a_claim(run: Run) -> None:
    status, output, errors = run("ask", "bad", "--claim", *BY_WORDS)
    assert (status, errors) == (0, "")
    lines = output.splitlines()
    assert lines[:2] == ["Answer: REFUTES", "Note: SUPPORTS 11%, REFUTES 79%, NOT ENOUGH INFO 11%"]
    status, output, _ = run("ask", "odd", "--claim", "--method", "standard:claim-scoring=words", "--json")
    assert (status, json.loads(output)["answer"]) == (0, "NOT ENOUGH INFO")
    refused(run("ask", "bad", "--claim", "--method", "ks-llm"), "ks-llm cannot judge claims; use standard, cot")
    refused(run("ask", "bad", "--claim", "--certify"), "--certify checks how an answer was reached")
    refused(run("ask", " ", "--claim"), "empty")


def test_a_claim_with_a_knowledge_base_is_for_cok(run: Run, opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    def judge(_: Cok, claims: Sequence[str], __: object) -> list[Answer]:
        return [Answer(one, "REFUTES", "cok", Evidence("none", (), ())) for one in claims]

    monkeypatch.setattr(Cok, "judge", judge, raising=False)
    status, output, _ = run("ask", "bad", "--claim", "--kb", "towns.tsv")
    assert (status, output.splitlines()[0]) == (0, "Answer: REFUTES")
    assert len(opened.stores) == 1


@needs_engine
def test_eval_reports_the_accuracy_of_labels_and_which_was_given_to_which(run: Run, claims: Path) -> None:
    status, output, errors = run("eval", "standard", "--data", claims, *BY_WORDS)
    assert (status, errors) == (0, "")
    lines = output.splitlines()
    assert lines[2].split()[:2] == ["standard", "66.7"]
    table = next(place for place, line in enumerate(lines) if line.startswith("standard: labels of 3 claims"))
    assert "accuracy 66.7, macro F1 55.6" in lines[table]
    assert lines[table + 1].split() == [
        "GOLD",
        "SUPPORTS",
        "REFUTES",
        "NOT",
        "ENOUGH",
        "INFO",
        "PRECISION",
        "RECALL",
        "F1",
    ]
    assert lines[table + 2].split() == ["SUPPORTS", "1", "0", "1", "100.0", "50.0", "66.7"]
    assert lines[table + 4].split() == ["NOT", "ENOUGH", "INFO", "0", "0", "0", "0.0", "-", "0.0"]
    status, output, _ = run("eval", "standard", "--data", claims, *BY_WORDS, "--json")
    told = json.loads(output)
    assert told["methods"][0]["exact_match"] == told["claims"][0]["accuracy"] == pytest.approx(2 / 3)
    assert told["methods"][0]["by_kind"]["claim"]["n"] == 3


@needs_engine
def test_methods_that_cannot_judge_are_refused_claims_before_anything_is_asked(
    run: Run, claims: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    refused(
        run("eval", "standard", "ks-llm", "--data", claims, "--out", out),
        "ks-llm cannot judge claims, which 3 of the 3 questions are; use standard, cot",
    )
    assert not (out / "run.sqlite").exists()


@needs_engine
def test_methods_that_think_judge_claims_too(run: Run, claims: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def says(prompt: str) -> str:
        return f"It is so. So the answer is {'false' if 'bad' in prompt.splitlines()[-2] else 'true'}."

    monkeypatch.setattr(loading.Engine, "model", ScriptedModel(says))
    methods = ("cot", "cot-sc", "verify-and-edit")
    status, output, _ = run("eval", *methods, "--data", claims, "--json")
    assert status == 0
    assert {one["method"]: one["accuracy"] for one in json.loads(output)["claims"]} == dict.fromkeys(methods, 1.0)


def test_claims_among_questions_are_judged_and_the_order_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    class Both:
        def answer(self, questions: Sequence[str], documents: Sequence[object]) -> list[Answer]:
            assert len(questions) == len(documents)
            return [Answer(one, f"answer {one}", "m", Evidence("none", (), ())) for one in questions]

        def judge(self, claims: Sequence[str], documents: Sequence[object]) -> list[Answer]:
            assert len(claims) == len(documents)
            return [Answer(one, f"label {one}", "m", Evidence("none", (), ())) for one in claims]

    monkeypatch.setattr(loading.Engine, "method", lambda *_, **__: Both())
    asked = [Question(str(n), str(n), ("x",), kind="claim" if n in (1, 2) else "") for n in range(4)]
    found = Asker(loading.Engine(), parse_method("standard"))(asked)
    assert [one.answer for one in found] == ["answer 0", "label 1", "label 2", "answer 3"]


@needs_engine
def test_rows_of_pathquestion_are_asked_and_their_answers_compared_in_words(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = tmp_path / "PQ.txt"
    rows.write_text(
        "what is ada_foah 's country 's name ?\tgold_coast(gold_coast/ghana/)\tada_foah#country#x#name#gold_coast#<end>#gold_coast\n"
    )
    monkeypatch.setattr(loading.Engine, "model", ScriptedModel(["The Gold Coast."]))
    status, output, _ = run("eval", "standard", "--data", rows, "--json")
    assert status == 0
    [method] = json.loads(output)["methods"]
    assert (method["exact_match"], list(method["by_kind"])) == (1.0, ["2hop"])


ASKED = KnowledgeQuery(
    place=1,
    question="In which country is Ada Foah?",
    store="towns.tsv",
    written="<Ada Foah; country; ?>",
    sparql="select distinct ?x where { <urn:ada> <urn:country> ?x }",
    links=(("Ada Foah", "urn:ada", 0.934),),
    refused=(("<Ada; Foah>", "the query is no triplet"), ("", "nothing was written")),
    values=("Ghana",),
    facts=(Fact(Triple("urn:ada", "urn:country", "urn:ghana", "towns.tsv"), "Ada Foah's country is Ghana."),),
    outcome="answered",
)
STOPPED = KnowledgeQuery(-1, "Where\x1b[2J\nis it?", "towns.tsv", outcome="stopped", reason="more than 5 seconds")


def answered(*queries: KnowledgeQuery) -> Result:
    facts = tuple(fact.text for query in queries for fact in query.facts)
    evidence = Evidence("facts" if facts else "none", facts, (), derivation=Reasoning((), queries))
    return answer_result(Answer("Where?", "Ghana", "cok", evidence, {"query": Usage()}, {"query": 0.5}), {})


def test_explain_tells_what_the_knowledge_base_was_asked_and_what_it_said(capsys: pytest.CaptureFixture[str]) -> None:
    print_result(answered(ASKED, STOPPED), explain=True)
    lines = capsys.readouterr().out.splitlines()
    start = lines.index("Queries to the knowledge base")
    assert lines[start + 1 : start + 10] == [
        "  1. In which country is Ada Foah? (thought 2)",
        "     refused: <Ada; Foah>: the query is no triplet",
        "     refused: (nothing): nothing was written",
        "     written: <Ada Foah; country; ?>",
        "     linked: Ada Foah to urn:ada (0.93)",
        "     run: select distinct ?x where { <urn:ada> <urn:country> ?x } on towns.tsv",
        "     outcome: answered: Ghana",
        "     fact: Ada Foah's country is Ghana.  <urn:ada; urn:country; urn:ghana>",
        "  2. Where\\x1b[2J\\nis it? (the question itself)",
    ]
    assert lines[start + 10] == "     outcome: stopped (more than 5 seconds)"


def test_without_explain_the_facts_are_told_and_where_they_are_from(capsys: pytest.CaptureFixture[str]) -> None:
    print_result(answered(ASKED))
    assert capsys.readouterr().out.splitlines() == [
        "Answer: Ghana",
        "  Ada Foah's country is Ghana.",
        "Facts from towns.tsv.",
    ]


def test_many_values_are_cut_and_counted(capsys: pytest.CaptureFixture[str]) -> None:
    many = KnowledgeQuery(0, "Which?", "towns.tsv", values=tuple(map(str, range(1000))), outcome="answered")
    print_result(answered(many), explain=True)
    assert "outcome: answered: 0, 1, 2" in (told := capsys.readouterr().out)
    assert "18, 19 and 980 more\n" in told


def test_json_has_all_of_every_query() -> None:
    told = json.loads(common.json_bytes(answered(ASKED, STOPPED)))
    first, second = told["evidence"]["details"]["queries"]
    assert first["links"] == [["Ada Foah", "urn:ada", 0.934]]
    assert first["facts"][0]["triple"]["tail"] == "urn:ghana"
    assert (first["place"], first["outcome"], second["reason"]) == (1, "answered", "more than 5 seconds")


def test_every_grammar_can_be_chosen() -> None:
    assert get_type_hints(KnowledgeOptions)["query_grammar"] == Grammar | None
    assert get_type_hints(KnowledgeOptions)["query_form"] == QueryForm | None
