"""`ask`, `eval` and `kg build` as a user meets them: results on stdout, remarks on stderr, and what survives a kill."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytrace import cli
from pytrace.cli import common
from pytrace.engine import loading
from pytrace.evaluation.run.runner import RunStore
from pytrace.models.scripted import HashEncoder, ScriptedModel
from pytrace.storage.question_hashes import question_hash
from pytrace.triples.graph import TripleStore

QUESTION = "In which town was the founder of Orrin Head born?"
ROWS = [
    {"id": "ferry", "title": "Pellisk Ferry", "text": "The ferry leaves at noon. It carries mail."},
    {"id": "obs", "title": "Orrin Head", "text": "Orrin Head was founded by Isaura Venn. It was built in 1871."},
    {"id": "venn", "title": "Isaura Venn", "text": "Isaura Venn was born in Quillhaven. She kept bees."},
]
# Settings that ask as little as possible of a model.
# The tiny profile takes phrases as triples and leaves the model out of the selection.
WRITTEN = ("--set", "extraction=written")
FEW = (
    "--set",
    "scoring=pmi",
    "--set",
    "unit=sentence",
    "--set",
    "candidates=3",
    "--set",
    "demonstrations=1",
    "--set",
    "length=1",
)

# What loads a model; the fixture `run` puts a scripted one in its place.
ENGINE = loading.Engine.__dict__["model"]

needs_engine = pytest.mark.skipif(
    importlib.util.find_spec("llama_cpp") is None, reason="llama-cpp-python is not installed"
)


def write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "docs.jsonl", ROWS)


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    rows = [
        {
            "_id": f"q{number}",
            "question": f"Who founded House {number}?",
            "answer": f"Founder{number}",
            "type": "bridge",
            "context": [
                [f"House {number}", [f"House {number} was founded by Founder{number}.", "It has a roof."]],
                ["Rain", ["Rain is wet."]],
            ],
            "supporting_facts": [[f"House {number}", 0]],
        }
        for number in range(6)
    ]
    path = tmp_path / "questions.json"
    path.write_text(json.dumps(rows), encoding="utf-8")
    return path


def script(prompt: str) -> str:
    if re.search(r"<(?:[^<>;]*;)?$", prompt):
        text = prompt.rpartition("\nText: ")[2].partition("\nTriples:")[0]
        head = f"{text.split()[0]};" if prompt.endswith("<") else ""
        return f"{head} says; {text}>"
    context = prompt.rpartition("Context:")[2]
    found = re.search(r"Founder\d+|Quillhaven", context)
    return found[0] if found else "unknown"


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command in this process, with scripted models."""
    monkeypatch.setattr(loading.Engine, "model", ScriptedModel(script))
    monkeypatch.setattr(loading.Engine, "encoder", HashEncoder(dimension=4096))
    monkeypatch.delenv("PYTRACE_DEBUG", raising=False)

    def call(*arguments: object) -> tuple[int, str, str]:
        capfd.readouterr()
        status = common.run(cli.program, list(map(str, arguments)))
        return (status, *capfd.readouterr())

    return call


def process(*arguments: object, code: str = "from pytrace.cli import main; main()", **environment: str) -> list[Any]:
    return [
        [sys.executable, "-c", code, *map(str, arguments)],
        {"text": True, "env": {**os.environ, "COLUMNS": "80", **environment}},
    ]


def finish(*arguments: object, **options: str) -> subprocess.CompletedProcess[str]:
    command, how = process(*arguments, **options)
    return subprocess.run(command, capture_output=True, timeout=500, check=False, **how)


def remarks(result: subprocess.CompletedProcess[str]) -> list[str]:
    """Return what is on stderr beside the lines that a slow machine sees of progress."""
    return [line for line in result.stderr.splitlines() if not re.match(r"pytrace: [\w ]+: \d+ of \d+, ", line)]


def check_answer(told: dict[str, Any], *, method: str) -> None:
    assert (told["version"], told["question"], told["method"]) == (1, QUESTION, method)
    assert told["answer"]
    assert not told["abstained"]
    assert told["notes"] == []
    assert set(told["usage"]) <= set(told["seconds"])
    titles = {row["title"]: row["text"] for row in ROWS}
    sources = told["evidence"]["sources"]
    assert {source["title"] for source in sources} <= set(titles)
    for chain in told["evidence"]["chains"]:
        for step in chain["steps"]:
            assert step["sentence"] in (sources[step["source"]]["title"], *titles.values()) or any(
                step["sentence"] in text for text in titles.values()
            )
    last = told["evidence"]["chains"][0]["steps"][-1]
    assert told["answer"] in last["sentence"]


@pytest.mark.parametrize(
    "method", ["hops", "trace", "trace:unit=triple", "trace-doc", "rag", "dense:top=2", "ks-q:titles=false"]
)
def test_ask_prints_one_json_document_and_nothing_else(method: str, docs: Path, run: Run) -> None:
    status, output, errors = run("ask", QUESTION, "--docs", docs, "--method", method, "--json", "--min-confidence", 0)
    assert (status, errors) == (0, "")
    told = json.loads(output)
    check_answer(told, method=method)
    assert told["answer"] == "Quillhaven"
    read = [source["title"] for source in told["evidence"]["sources"] if source.get("read")]
    # Sentences of a document are read as such; triples stand for it.
    assert bool(read) == (method != "trace:unit=triple")


def test_ask_in_a_pipe_is_plain_text_with_numbered_sources(docs: Path, run: Run) -> None:
    status, output, errors = run("ask", QUESTION, "--docs", docs, "--min-confidence", 0)
    assert (status, errors) == (0, "")
    lines = output.splitlines()
    assert lines[0] == "Answer: Quillhaven"
    assert re.fullmatch(r"Confidence: (high|medium|low) \(\d+ %\)", lines[1])
    assert "\x1b" not in output
    assert re.search(r"^ +\d\. Isaura Venn  .*:\d+$", output, re.MULTILINE)
    assert "     Isaura Venn was born in Quillhaven." in output
    assert not re.search("probability|characters|Votes", output)


def test_below_the_confidence_that_is_asked_for_there_is_no_answer(docs: Path, run: Run) -> None:
    status, output, _ = run("ask", QUESTION, "--docs", docs, "--min-confidence", 1)
    assert status == 0
    assert output.startswith("No answer found in these documents. Closest passages:\n  1. ")
    assert "Answer" not in output
    status, output, _ = run("ask", "Thanks!", "--docs", docs)
    assert (status, output) == (0, "That is not a question; ask something about the documents.\n")


def test_explain_adds_all_chains_votes_and_costs(docs: Path, run: Run) -> None:
    arguments = ("--method", "trace", "--explain", "--set", "unit=triple", "--set", "chains=2", "--min-confidence", 0)
    status, output, _ = run("ask", QUESTION, "--docs", docs, *arguments)
    assert status == 0
    assert re.search(r"^Chain 2 \(probability \d\.\d{3}\)$", output, re.MULTILINE)
    assert re.search(r"^  1\. .*<.*> .*p=\d\.\d{3}$", output, re.MULTILINE)
    assert re.search(r"^VOTES +DOCUMENT$", output, re.MULTILINE)
    stages = [line.split()[0] for line in output.splitlines() if re.match(r"(triples|rank|select|read) +\d", line)]
    assert stages == ["triples", "rank", "select", "read"]
    assert "TOKENS COMPUTED" in output


FEATURES = '{"intent": "town of birth", "nodes": ["founder", "Orrin Head"], "relations": []}'


def test_scope_coe_tells_which_snippet_holds_which_feature(
    docs: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(prompt: str) -> str:
        return FEATURES if prompt.startswith("Take the question apart") else script(prompt)

    monkeypatch.setattr(loading.Engine, "model", ScriptedModel(write))
    arguments = (
        "ask",
        QUESTION,
        "--docs",
        docs,
        "--method",
        "scope-coe:snippet=document",
        "--min-confidence",
        0,
        "--explain",
    )
    status, output, _ = run(*arguments)
    assert status == 0
    assert re.search(r"^KIND +FEATURE +COVERED BY$", output, re.MULTILINE)
    assert re.search(r"^node +Orrin Head +.*Orrin Head p=0\.\d\d", output, re.MULTILINE)
    assert re.search(r"^features +\d", output, re.MULTILINE)
    _, output, _ = run(*arguments, "--json")
    told = json.loads(output)
    coverage = told["evidence"]["details"]["coverage"]
    assert [(one["feature"]["kind"], one["feature"]["text"]) for one in coverage] == [
        ("intent", "town of birth"),
        ("node", "founder"),
        ("node", "Orrin Head"),
    ]
    node = coverage[2]
    assert node["covered_by"]
    assert len(node["probabilities"]) == len(ROWS)


def test_a_question_without_documents_is_answered_only_by_methods_that_need_none(run: Run) -> None:
    status, output, _ = run("ask", QUESTION, "--method", "ks-llm", "--json", "--explain")
    assert status == 0
    told = json.loads(output)
    assert "sources" not in told["evidence"]
    assert "the question has no document; the model wrote one" in told["notes"]
    status, _, errors = run("ask", QUESTION, "--method", "dense")
    assert status == 2
    assert "dense has nothing to answer from; give --docs FILE|FOLDER, --index DIR or --kg DIR" in errors


def test_ks_llm_selects_from_an_index_that_is_kept_and_extended(docs: Path, run: Run, tmp_path: Path) -> None:
    index = tmp_path / "index"
    arguments = ("ask", QUESTION, "--method", "ks-q", "--sentence-index", index, "--json", "--min-confidence", 0)
    first = run(*arguments, "--docs", docs)
    assert first[0] == 0, first[2]
    told = json.loads(first[1])
    assert len(told["evidence"]["context"]) == 2
    assert any("[Orrin Head] Orrin Head was founded by Isaura Venn." in entry for entry in told["evidence"]["context"])
    # Without documents the sentences are those on the disk; with more, those are added.
    assert json.loads(run(*arguments)[1])["evidence"]["context"] == told["evidence"]["context"]
    more = write_rows(tmp_path / "more.jsonl", [{"id": "new", "title": "News", "text": QUESTION}])
    told = json.loads(run(*arguments, "--docs", more)[1])
    assert f"[News] {QUESTION}" in told["evidence"]["context"]
    assert f"[News] {QUESTION}" in json.loads(run(*arguments)[1])["evidence"]["context"]
    status, _, errors = run("ask", QUESTION, "--method", "ks-q", "--sentence-index", tmp_path / "none")
    assert status == 2
    assert "there is no sentence index at" in errors
    status, _, errors = run("ask", QUESTION, "--method", "dense", "--sentence-index", index, "--docs", docs)
    assert status == 2
    assert "dense has no use for an index of sentences" in errors
    status, _, errors = run("ask", QUESTION, "--method", "ks-t", "--sentence-index", index, "--docs", docs)
    assert status == 2
    assert "ks-t selects no sentences and has no use for an index" in errors


def test_eval_compares_a_method_with_itself_under_other_settings(questions: Path, run: Run) -> None:
    methods = ("dense:top=1", "dense:top=2", "rag", "bm25:top=1")
    status, output, _ = run("eval", *methods, "--data", questions, "--limit", 2)
    assert status == 0
    lines = output.splitlines()
    assert [line.split()[0] for line in lines if line.split() and line.split()[0] in methods][:4] == list(methods)
    # Of four methods each is compared with the first one; of few, all with all.
    assert sum(line.startswith("dense:top=1 - ") for line in lines) == 3
    assert not any(line.startswith("rag - ") for line in lines)
    _, output, _ = run("eval", *methods, "--data", questions, "--limit", 2, "--json")
    told = {one["method"]: one for one in json.loads(output)["methods"]}
    assert told["dense:top=1"]["supporting_precision"]["mean"] == 1.0
    assert told["dense:top=2"]["supporting_precision"]["mean"] == 0.5
    status, _, errors = run("eval", "rag:top=3", "--data", questions)
    assert status == 2
    assert "'top=3' of rag is not name=value" in errors


def test_eval_names_mixed_readers_and_seen_questions(
    questions: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = frozenset(question_hash(f"Who founded House {number}?") for number in (0, 1, 3))
    monkeypatch.setattr("pytrace.evaluation.scores.seen_questions.extractor_questions", lambda: known)
    arguments = ("rag", "bm25:top=1", "--data", questions, "--limit", 4)
    status, output, _ = run("eval", *arguments, "--out", tmp_path / "run")
    assert status == 0
    lines = output.splitlines()
    assert lines[1] == (
        "3 of 4 questions were used to train the answer extractor's weights; figures of the 1 unseen question are shown next to "
        "those of all"
    )
    assert "EM UNSEEN" in output
    assert "READER" not in output
    # A run that goes on with more methods and questions has all of them in its report.
    more = ("rag", "cot", "--data", questions, "--out", tmp_path / "run", "--resume")
    assert run("eval", *more)[0] == 0
    told = json.loads(run("report", tmp_path / "run", "--json")[1])
    assert [one["method"] for one in told["methods"]] == ["rag", "bm25:top=1", "cot"]
    assert (told["questions"], told["unseen"]) == (6, 3)
    assert [one["unseen"]["n"] for one in told["methods"]] == [3, 1, 3]
    assert [one["reader"]["reading"] for one in told["methods"]] == ["span", "span", "thoughts"]
    assert [(one["name"], one["methods"], one["seen"]) for one in told["learned"]] == [
        ("answer extractor", ["rag", "bm25:top=1"], 3)
    ]
    assert [one["readers_differ"] for one in told["comparisons"]] == [False, True]
    assert "learned from" not in told["notes"]
    assert "(rag, bm25:top=1: span, 4 demonstrations; cot: thoughts, 3 demonstrations)" in told["notices"][0]
    # Nothing that was learned is in use where all write freely.
    _, output, _ = run("eval", *arguments, "--set", "reading=free")
    assert not any(word in output for word in ("train", "UNSEEN", "READER"))


def test_gold_reads_the_supporting_documents_and_no_others(questions: Path, run: Run, tmp_path: Path) -> None:
    status, output, _ = run("eval", "gold", "rag", "--data", questions, "--pad", 4, "--json")
    assert status == 0
    gold, rag = json.loads(output)["methods"]
    assert (gold["supporting_precision"]["mean"], gold["supporting_recall"]["mean"]) == (1.0, 1.0)
    assert (rag["supporting_precision"]["mean"], rag["supporting_recall"]["mean"]) == (0.25, 1.0)
    assert gold["context_tokens"]["mean"] < rag["context_tokens"]["mean"]
    bare = write_rows(
        tmp_path / "bare.jsonl", [{"id": "b", "question": "Where?", "answer": "Ghana", "documents": ROWS}]
    )
    refused(run("eval", "rag", "gold", "--data", bare), "1 of 1 questions (such as 'b') have none")
    refused(run("ask", QUESTION, "--docs", bare, "--method", "gold"), "only 'pytrace eval' knows")


def test_eval_pads_questions_with_documents_of_others(questions: Path, run: Run, tmp_path: Path) -> None:
    def context(*options: object) -> float:
        status, output, _ = run("eval", "rag", "--data", questions, "--limit", 1, "--json", *options)
        assert status == 0
        [method] = json.loads(output)["methods"]
        return float(method["context_tokens"]["mean"])

    assert context() == context("--pad", 2) < context("--pad", 4)
    status, _, errors = run("eval", "rag", "--data", questions, "--limit", 1, "--pad", 9, "--out", tmp_path / "run")
    assert status == 0
    assert "1 of 1 questions have fewer than 9 documents" in errors
    refused(run("eval", "rag", "--data", questions, "--pad-seed", 1), "give --pad N too")
    again = ("eval", "rag", "--data", questions, "--out", tmp_path / "run", "--resume")
    refused(run(*again), 'padding was {"documents": 9')
    refused(
        run(*again, "--pad", 4, "--pad-seed", 1),
        "padding.documents was 9 and is now 4",
        "padding.seed was 0 and is now 1",
    )


def test_ask_uses_the_documents_nearest_to_the_question(docs: Path, run: Run) -> None:
    _, output, _ = run("ask", QUESTION, "--docs", docs, "--method", "rag", "--retrieve", 1, "--json")
    assert [source["title"] for source in json.loads(output)["evidence"]["sources"]] == ["Orrin Head"]


def test_ask_reads_all_documents_that_are_named(docs: Path, run: Run, tmp_path: Path) -> None:
    more = write_rows(tmp_path / "more.jsonl", [{"title": "Rain", "text": "Rain is wet."}, *ROWS])
    asked = ("ask", QUESTION, "--docs", docs, "--docs", more, "--method", "rag", "--retrieve", 20, "--json")
    titles = [source["title"] for source in json.loads(run(*asked)[1])["evidence"]["sources"]]
    assert sorted(titles) == sorted(["Rain", *(row["title"] for row in ROWS)])


def test_ask_reads_from_a_graph(docs: Path, run: Run, tmp_path: Path) -> None:
    some = write_rows(tmp_path / "some.jsonl", ROWS[1:])
    graph = tmp_path / "graph"
    assert run("kg", "build", "--docs", some, "--out", graph)[0] == 0
    for arguments in (("--kg", graph), ("--kg", graph, "--docs", some)):
        asked = ("ask", QUESTION, *arguments, "--method", "trace", "--min-confidence", 0, "--json")
        told = json.loads(run(*asked)[1])
        assert "triples" not in told["usage"]
        assert any("triple" in step for chain in told["evidence"]["chains"] for step in chain["steps"])
    assert run("ask", QUESTION, "--kg", graph, "--docs", docs, "--method", "rag")[0] == 0


def refused(result: tuple[int, str, str], *said: str) -> None:
    status, output, errors = result
    assert (status, output) == (2, ""), errors
    assert errors.startswith("pytrace: ")
    assert errors.count("\n") == 1
    assert "Traceback" not in errors
    for words in said:
        assert words in errors


@pytest.mark.parametrize("command", ["ask", "kg", "eval"])
def test_files_that_cannot_be_read_are_refused_with_place_and_remedy(command: str, run: Run, tmp_path: Path) -> None:
    def given(path: Path) -> tuple[int, str, str]:
        if command == "ask":
            return run("ask", QUESTION, "--docs", path)
        if command == "kg":
            return run("kg", "build", "--docs", path, "--out", tmp_path / "graph")
        return run("eval", "rag", "--data", path)

    refused(given(tmp_path / "missing.jsonl"), f"{tmp_path}/missing.jsonl", "no such file", "check the path")
    binary = tmp_path / "binary.jsonl"
    binary.write_bytes(b"\x00\x01\xff\xfe" * 100)
    refused(given(binary), str(binary))
    if os.geteuid() != 0:
        secret = write_rows(tmp_path / "secret.jsonl", ROWS)
        secret.chmod(0)
        refused(given(secret), str(secret), "permission")
    good: list[dict[str, Any]] = ROWS
    if command == "eval":
        good = [{"id": "q", "question": "Q?", "answers": ["a"], "documents": [{"title": "T", "text": "Text."}]}]
    lines = [json.dumps({**good[0], "id": str(number)}) for number in range(16)]
    broken = tmp_path / "broken.jsonl"
    broken.write_text("\n".join([*lines, '{"title": "T", "text": ', *lines]), encoding="utf-8")
    refused(given(broken), f"{broken}:17: ", "JSON")


def test_a_row_without_text_is_refused_with_its_line(run: Run, tmp_path: Path) -> None:
    path = write_rows(tmp_path / "docs.jsonl", [*ROWS, {"title": "No words", "body": "x"}])
    for arguments in (("ask", QUESTION, "--docs", path), ("kg", "build", "--docs", path, "--out", tmp_path / "kg")):
        refused(run(*arguments), f"{path}:4: ", "text")


def test_a_build_that_is_refused_leaves_no_document_behind(run: Run, tmp_path: Path) -> None:
    path = write_rows(tmp_path / "docs.jsonl", [*ROWS, {"title": "No words"}])
    refused(run("kg", "build", "--docs", path, "--out", tmp_path / "kg"))
    write_rows(path, ROWS)
    assert run("kg", "build", "--docs", path, "--out", tmp_path / "kg")[0] == 0


def test_documents_without_text_are_named_and_the_rest_goes_on(run: Run, tmp_path: Path) -> None:
    path = write_rows(tmp_path / "docs.jsonl", [ROWS[0], {"title": "Silence", "text": " "}, *ROWS[1:]])
    named = f"pytrace: skipped {path}:2 (Silence): it has no text\n"
    status, output, errors = run("ask", QUESTION, "--docs", path, "--json")
    assert (status, errors, json.loads(output)["answer"]) == (0, named, "Quillhaven")
    status, output, errors = run("kg", "build", "--docs", path, "--out", tmp_path / "kg", "--json")
    assert (status, errors) == (0, named)
    assert json.loads(output)["skipped"][0]["title"] == "Silence"
    only = write_rows(tmp_path / "only.jsonl", [{"title": "Silence", "text": ""}])
    refused(run("ask", QUESTION, "--docs", only), "no document was found: 1 had no text")


def test_questions_settings_and_places_that_cannot_be_are_refused(docs: Path, run: Run, tmp_path: Path) -> None:
    refused(run("ask", " ", "--docs", docs), "the question is empty; ask something")
    refused(run("ask", QUESTION), "give --docs FILE|FOLDER, --index DIR or --kg DIR")
    refused(run("ask", QUESTION, "--kg", tmp_path / "none"), str(tmp_path / "none"))
    refused(
        run("ask", QUESTION, "--docs", docs, "--method", "guess"),
        "there is no method 'guess'; choose one of hops, trace,",
    )
    refused(run("ask", QUESTION, "--docs", docs, "--set", "chain=3"), "'chain=3' of hops is not name=value")
    refused(run("ask", QUESTION, "--docs", docs, "--set", "passages=0"), "`int` >= 1", "passages")
    refused(
        run("ask", QUESTION, "--docs", docs, "--method", "trace", "--set", "scoring=letters", "--set", "candidates=60"),
        "letters can tell",
    )
    refused(run("ask", QUESTION, "--docs", docs, "--retrieve", "0"), "0 is not in the range")
    refused(run("eval", "--data", docs), "no METHOD was named", "--system MODULE:CALLABLE")
    refused(run("eval", "rag", "--data", docs, "--resume"), "--resume needs --out")
    refused(run("eval", "rag", "--data", docs, "--format", "frob"), "frob")


@needs_engine
def test_models_that_are_no_models_are_refused(docs: Path, tmp_path: Path) -> None:
    notes = tmp_path / "notes.gguf"
    notes.write_text("this is no model", encoding="utf-8")

    def ask(llm: object, **environment: str) -> tuple[int, str, str]:
        # Spans are read without a language model.
        result = finish(
            "ask", QUESTION, "--docs", docs, "--method", "rag", "--set", "reading=free", "--llm", llm, **environment
        )
        return result.returncode, result.stdout, result.stderr

    refused(ask(notes), str(notes), "GGUF")
    refused(ask(tmp_path / "none.gguf"), "none.gguf")
    home = tmp_path / "home"
    refused(ask("tiny", PYTRACE_HOME=str(home)), "pytrace models pull")
    damaged = home / "models" / "smollm2-135m" / "SmolLM2-135M-Instruct.Q4_1.gguf"
    damaged.parent.mkdir(parents=True)
    damaged.write_bytes(b"GGUF" + bytes(100))
    refused(ask("tiny", PYTRACE_HOME=str(home)), "pytrace models pull")


@pytest.mark.parametrize(("words", "count"), [(100_000, 1), (120, 25)])
def test_a_long_document_is_split_and_nothing_of_it_is_lost(words: int, count: int, run: Run, tmp_path: Path) -> None:
    sentences = [f"Line {number} of the long book names the word w{number}." for number in range(300)]
    path = write_rows(tmp_path / "long.jsonl", [{"title": "Book", "text": " ".join(sentences)}])
    arguments = ("--docs", path, "--passage-words", words, "--out", tmp_path / "kg", "--json")
    status, output, errors = run("kg", "build", *WRITTEN, *arguments)
    assert (status, errors) == (0, "")
    assert json.loads(output)["usage"]["calls"] > 4
    with TripleStore.open(tmp_path / "kg", mode="read") as graph:
        documents = list(graph.documents())
        said = " ".join(triple.tail for triple in graph.triples())
    assert len(documents) == count
    assert [sentence for document in documents for sentence in document.sentences] == sentences
    assert all(re.search(rf"\bw{number}\b", said) for number in range(300))


def test_a_build_follows_its_documents_and_does_nothing_twice(docs: Path, run: Run, tmp_path: Path) -> None:
    graph = tmp_path / "kg"
    status, output, errors = run("kg", "build", *WRITTEN, "--docs", docs, "--out", graph)
    assert (status, errors) == (0, "")
    assert output.startswith(f"{graph}: 3 documents, 3 triples, ")
    assert "3 documents extracted now, 0 known before, 0 removed" in output
    refused(run("kg", "build", *WRITTEN, "--docs", docs, "--out", graph), str(graph), "--resume")
    status, output, _ = run("kg", "build", *WRITTEN, "--docs", docs, "--out", graph, "--resume", "--json")
    told = json.loads(output)
    assert (status, told["extracted"], told["changes"]["unchanged"]) == (0, 0, 3)
    write_rows(docs, [ROWS[0], {**ROWS[1], "text": "Orrin Head was sold."}, {"title": "New", "text": "It is new."}])
    told = json.loads(run("kg", "build", *WRITTEN, "--docs", docs, "--out", graph, "--resume", "--json")[1])
    assert told["extracted"] == 2
    assert (told["changes"]["changed_ids"], told["changes"]["removed_ids"]) == (["obs"], ["venn"])
    assert [told["changes"][name] for name in ("added", "changed", "removed", "unchanged")] == [1, 1, 1, 1]
    refused(
        run("kg", "build", *WRITTEN, "--docs", docs, "--out", graph, "--resume", "--set", "grounding=50"),
        "grounding is 80.0 there",
    )


def test_what_failed_is_named_and_retried_on_request(
    docs: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading.Engine, "model", ScriptedModel(["nonsense"]))
    told = json.loads(run("kg", "build", *WRITTEN, "--docs", docs, "--out", tmp_path / "kg", "--json")[1])
    assert [line.partition(":")[0] for line in told["failures"]] == ["Pellisk Ferry", "Orrin Head", "Isaura Venn"]
    _, output, _ = run("kg", "show", tmp_path / "kg", "--json")
    assert [triple["relation"] for triple in json.loads(output)["triples"]] == [""] * 6
    monkeypatch.setattr(loading.Engine, "model", ScriptedModel(script))
    assert (
        json.loads(run("kg", "build", *WRITTEN, "--docs", docs, "--out", tmp_path / "kg", "--resume", "--json")[1])[
            "extracted"
        ]
        == 0
    )
    _, output, _ = run(
        "kg", "build", *WRITTEN, "--docs", docs, "--out", tmp_path / "kg", "--resume", "--retry", "--json"
    )
    told = json.loads(output)
    assert (told["extracted"], told["failures"], told["statistics"]["failures"]) == (3, [], 0)


def check_report(told: dict[str, Any], *, questions: int) -> dict[str, Any]:
    assert told["questions"] == questions
    summary: dict[str, Any] = told["methods"][0]
    assert (summary["n"], summary["failed"]) == (questions, 0)
    for name in ("exact_match", "f1"):
        assert 0 <= summary[name] <= 1
    for name in ("precision", "recall", "f1", "error_rate"):
        assert 0 <= summary[f"supporting_{name}"]["mean"] <= 1
    for name in ("context_tokens", "seconds"):
        assert summary[name]["total"] > 0
        assert summary[name]["median"] > 0
    assert summary["generated_tokens"]["total"] == 0, "spans are chosen, not written"
    assert summary["usage_by_stage"].keys() <= summary["seconds_by_stage"].keys()
    assert summary["seconds_by_stage"]["read"] > 0
    return summary


@needs_engine
def test_eval_reports_scores_and_costs_of_each_method(questions: Path, run: Run) -> None:
    written = "rag:reading=free"  # what the script says is the answer
    status, output, errors = run("eval", "trace", written, written, "--data", questions, "--limit", 4, "--json")
    assert (status, errors) == (0, "")
    told = json.loads(output)
    check_report(told, questions=4)
    assert [one["method"] for one in told["methods"]] == ["trace", written]
    trace, rag = told["methods"]
    assert rag["exact_match"] == 1.0
    assert (rag["supporting_precision"]["mean"], rag["supporting_recall"]["mean"]) == (0.5, 1.0)
    assert rag["supporting_error_rate"]["mean"] == 0.5
    assert rag["seconds_by_stage"].keys() == {"read"}
    assert trace["seconds_by_stage"].keys() == {"triples", "rank", "select", "read"}
    assert rag["by_kind"]["bridge"]["n"] == 4
    assert (told["comparisons"][0]["first"], told["comparisons"][0]["second"]) == ("trace", written)
    status, output, errors = run("eval", "rag", "--data", questions, "--limit", 2, "--set", "reading=free")
    assert (status, errors) == (0, "")
    lines = output.splitlines()
    assert lines[0] == "2 questions"
    assert lines[1].split()[:3] == ["METHOD", "EM", "F1"]
    assert lines[2].replace(" (100.0–100.0)", "").split()[:6] == ["rag", "100.0", "100.0", "50.0", "100.0", "50.0"]
    assert lines[3].startswith("rag: seconds by stage: read ")


class Counting(ScriptedModel):
    """Remembers how many prompts each call brought."""

    def __init__(self, *, deterministic: bool) -> None:
        super().__init__(script)
        self.sizes: list[int] = []
        self._deterministic = deterministic

    @property
    def deterministic(self) -> bool:
        return self._deterministic

    def generate(self, prompts: Any, **options: Any) -> Any:
        self.sizes.append(len(prompts))
        return super().generate(prompts, **options)


@needs_engine
@pytest.mark.parametrize(
    ("options", "deterministic", "sizes"),
    [(["--batch", 4], False, [4, 2]), (["--batch", 4], True, [4, 2]), ([], False, [6]), ([], True, [1] * 6)],
    ids=str,
)
def test_questions_are_asked_in_batches_with_the_same_answers(
    options: list[object],
    deterministic: bool,
    sizes: list[int],
    questions: Path,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = Counting(deterministic=deterministic)
    monkeypatch.setattr(loading.Engine, "model", model)
    status, out, _ = run("eval", "rag:reading=free", "--data", questions, "--json", *options)
    assert status == 0
    assert model.sizes == sizes
    assert json.loads(out)["methods"][0]["exact_match"] == 1.0


@needs_engine
@pytest.mark.parametrize("flags", [["--deterministic"], []], ids=str)
def test_an_answer_says_whether_its_model_ran_deterministically(
    flags: list[str], docs: Path, run: Run, random_gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading.Engine, "model", ENGINE)
    status, out, _ = run(
        "ask",
        QUESTION,
        "--docs",
        docs,
        "--method",
        "rag",
        "--set",
        "reading=free",
        "--llm",
        random_gguf,
        "--llm-style",
        "plain",
        "--json",
        *flags,
    )
    assert status == 0
    assert json.loads(out)["deterministic"] == bool(flags)


@needs_engine
def test_a_run_is_gone_on_with_only_on_request_and_with_the_same_settings(
    questions: Path, run: Run, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    assert run("eval", "rag", "--data", questions, "--limit", 2, "--out", out)[0] == 0
    refused(run("eval", "rag", "--data", questions, "--limit", 2, "--out", out), "run.sqlite")
    refused(
        run("eval", "rag", "--data", questions, "--out", out, "--resume", "--set", "reader-demonstrations=3"),
        "run.sqlite",
    )
    status, output, _ = run(
        "eval", "rag", "trace-doc", "--data", questions, "--limit", 3, "--out", out, "--resume", "--json"
    )
    assert (status, [one["n"] for one in json.loads(output)["methods"]]) == (0, [3, 3])


SLOW = """
import os, re, time
from pathlib import Path
from pytrace.cli import main
from pytrace.engine import loading
from pytrace.models.scripted import HashEncoder, ScriptedModel

def answer(prompt):
    with Path(os.environ["TEST_LOG"]).open("a") as file:
        file.write(re.findall("House ([0-9]+)", prompt)[-1] + "\\n")
    time.sleep(float(os.environ["TEST_PAUSE"]))
    return " has; a roof>" if prompt.endswith(";") else "Founder" + re.findall("House ([0-9]+)", prompt)[-1]

loading.Engine.model = ScriptedModel(answer)
loading.Engine.encoder = HashEncoder()
main()
"""


class Killed:
    """Runs a command again and again with a slow model, and kills it where it is told to."""

    def __init__(self, log: Path) -> None:
        self._log = log

    def asked(self) -> list[int]:
        return [int(line) for line in self._log.read_text(encoding="utf-8").split()] if self._log.exists() else []

    def run(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        return finish(*arguments, code=SLOW, TEST_LOG=str(self._log), TEST_PAUSE="0")

    def kill(self, *arguments: object, after: int) -> None:
        command, how = process(*arguments, code=SLOW, TEST_LOG=str(self._log), TEST_PAUSE="0.05")
        running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **how)
        deadline = time.monotonic() + 120
        while len(self.asked()) < after:
            assert running.poll() is None, running.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.005)
        running.send_signal(signal.SIGKILL)
        running.communicate()


def test_a_killed_build_goes_on_without_losing_or_repeating_a_document(tmp_path: Path) -> None:
    rows = [{"id": f"h{n}", "title": f"House {n}", "text": f"House {n} has a roof."} for n in range(40)]
    docs, graph = write_rows(tmp_path / "docs.jsonl", rows), tmp_path / "kg"
    arguments = ("kg", "build", "--docs", docs, "--out", graph, *WRITTEN, "--set", "triple_demonstrations=0", "--json")
    killed = Killed(tmp_path / "log")
    killed.kill(*arguments, after=18)
    before = len(killed.asked())
    with TripleStore.open(graph, mode="read") as stored:
        assert len(stored) == 40
        kept = 40 - sum(1 for _ in stored.pending())
    assert 16 <= kept < 40
    result = killed.run(*arguments, "--resume")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["extracted"] == 40 - kept
    assert killed.asked()[before:] == list(range(kept, 40))
    assert json.loads(killed.run(*arguments, "--resume").stdout)["extracted"] == 0
    with TripleStore.open(graph, mode="read") as stored:
        assert [triple.text for triple in stored.triples()] == [f"<House {n}; has; a roof>" for n in range(40)]


@needs_engine
def test_a_killed_evaluation_goes_on_without_asking_a_question_twice(questions: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    arguments = ("eval", "rag:reading=free", "--data", questions, "--out", out, "--json")
    killed = Killed(tmp_path / "log")
    killed.kill(*arguments, after=3)
    before = len(killed.asked())
    with RunStore(out / "run.sqlite") as store:
        kept = len(store.done("rag:reading=free"))
    assert 2 <= kept < 6
    result = killed.run(*arguments, "--resume")
    assert result.returncode == 0, result.stderr
    told = json.loads(result.stdout)
    assert (told["questions"], told["methods"][0]["exact_match"]) == (6, 1.0)
    assert killed.asked()[before:] == list(range(kept, 6))


@needs_engine
@pytest.mark.models
@pytest.mark.usefixtures("tiny_models")
def test_the_tiny_models_answer_on_the_command_line(docs: Path) -> None:
    few = ("--method", "trace", *FEW, "--min-confidence", "0")
    result = finish("ask", QUESTION, "--docs", docs, *few, "--context", "1024", "--json")
    assert (result.returncode, remarks(result)) == (0, [])
    told = json.loads(result.stdout)
    check_answer(told, method="trace")
    assert told["usage"]["select"]["evaluated_tokens"] > 0


@needs_engine
@pytest.mark.models
@pytest.mark.usefixtures("tiny_models")
def test_the_tiny_model_writes_triples_for_a_graph(docs: Path, tmp_path: Path) -> None:
    few = (*WRITTEN, "--set", "triple_demonstrations=1", "--set", "spans=true")
    result = finish("kg", "build", "--docs", docs, "--out", tmp_path / "kg", *few, "--context", "1024", "--json")
    assert (result.returncode, remarks(result)) == (0, [])
    told = json.loads(result.stdout)
    assert told["extracted"] == 3
    assert told["statistics"]["triples"] >= 3
    assert told["statistics"]["without_triples"] == 0
    with TripleStore.open(tmp_path / "kg", mode="read") as graph:
        for triple in graph.triples():
            assert triple.tail in graph.document(triple.document_id).sentences[triple.sentence]


@needs_engine
@pytest.mark.models
@pytest.mark.usefixtures("tiny_models")
def test_the_tiny_model_is_evaluated_in_two_goes(questions: Path, tmp_path: Path) -> None:
    arguments = ("eval", "rag", "--data", questions, "--out", tmp_path, "--context", "1024", "--json")
    first = finish(*arguments, "--limit", "1")
    assert (first.returncode, remarks(first)) == (0, [])
    check_report(json.loads(first.stdout), questions=1)
    second = finish(*arguments, "--limit", "2", "--resume")
    assert (second.returncode, remarks(second)) == (0, [])
    # Spans are read without a call.
    assert check_report(json.loads(second.stdout), questions=2)["calls"]["total"] == 0


@needs_engine
@pytest.mark.models
@pytest.mark.data
@pytest.mark.usefixtures("tiny_models")
def test_the_shared_questions_can_be_evaluated(shared_data: Path) -> None:
    data = shared_data / "multihop" / "advhotpot10-dev.jsonl"
    result = finish("eval", "rag", "--data", data, "--limit", "1", "--json")
    assert (result.returncode, remarks(result)) == (0, [])
    check_report(json.loads(result.stdout), questions=1)


def test_explain_names_the_parts_of_the_paper_that_are_replaced(docs: Path, run: Run) -> None:
    line = "Replaced for this language model: units are sentences instead of written triples"
    assert line in run("ask", QUESTION, "--docs", docs, "--method", "trace", "--explain")[1]
    assert line not in run("ask", QUESTION, "--docs", docs, "--method", "trace")[1]
