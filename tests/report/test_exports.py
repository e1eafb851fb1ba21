from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytrace.evaluation.run.run_store import RunRow, RunStore
from pytrace.records import Document, Question
from pytrace.report.exports import write_exports
from pytrace.results import Findings, Result, Source
from tests.report.test_report_cli import call, run  # noqa: F401 (a fixture)

# The fields that ragas 0.4's SingleTurnSample has, and the keys of DeepEval 4's test cases.
RAGAS = {
    "user_input", "retrieved_contexts", "retrieved_context_ids", "reference_contexts", "reference_context_ids", "response",
    "reference",
}  # fmt: skip
DEEPEVAL = {"input", "actual_output", "expected_output", "context", "retrieval_context"}


def stored(path: Path, rows: list[RunRow]) -> RunStore:
    store = RunStore(path)
    store.open_run({"data": "x"})
    documents = (Document("a", "Ada", ("Ada Foah is a town.",)), Document("b", "Keta", ("Keta is another.",)))
    store.keep_questions(
        [Question("1", "Where?", ("Ghana", "the Republic"), documents, ("a", "gone")), Question("2", "Why?", (), ())]
    )
    for row in rows:
        store.save(row.method, row.question_id, row)
    return store


def answered(method: str, number: str, text: str) -> RunRow:
    source = Source(id="a", document="a", title="Ada", text="Ada Foah is a town.", read=True)
    answers, gold = (("Ghana", "the Republic"), ("a", "gone")) if number == "1" else ((), ())
    question = "Where?" if number == "1" else "Why?"
    result = Result(question=question, answer=text, evidence=Findings(kind="documents", sources=(source,)))
    return RunRow(method, number, question, answers, gold, result=result)


@pytest.fixture
def store(tmp_path):
    failed = RunRow("trace", "2", "Why?", (), error="no")
    with stored(
        tmp_path / "run.sqlite", [answered("trace", "1", "Ghana"), failed, answered("ks-llm:top=1", "2", "\u2028")]
    ) as store:
        yield store


def test_ragas_s_rows_have_its_fields_and_what_was_found(store, tmp_path):
    first, second = write_exports(tmp_path, store, "ragas")
    assert (first.name, second.name) == ("ragas-0-trace.jsonl", "ragas-1-ks-llm-top-1.jsonl")
    (row,) = map(json.loads, first.read_text(encoding="utf-8").split("\n")[:-1])
    assert row == {
        "user_input": "Where?",
        "retrieved_contexts": ["[Ada] Ada Foah is a town."],
        "retrieved_context_ids": ["a"],
        "reference_contexts": ["[Ada] Ada Foah is a town."],
        "reference_context_ids": ["a", "gone"],
        "response": "Ghana",
        "reference": "Ghana",
    }
    assert row.keys() == RAGAS
    (other,) = map(json.loads, second.read_text(encoding="utf-8").split("\n")[:-1])
    assert (other["response"], other["reference"], other["reference_contexts"]) == ("\u2028", None, [])


def test_deepeval_s_cases_are_one_list(store, tmp_path):
    first, second = write_exports(tmp_path, store, "deepeval")
    (case,) = json.loads(first.read_bytes())
    assert case.keys() == DEEPEVAL
    assert (case["input"], case["actual_output"], case["expected_output"]) == ("Where?", "Ghana", "Ghana")
    assert len(json.loads(second.read_bytes())) == 1


def test_a_method_that_answered_nothing_has_an_empty_file(tmp_path):
    with stored(tmp_path / "run.sqlite", [RunRow("trace", "2", "Why?", (), error="no")]) as store:
        assert json.loads(write_exports(tmp_path, store, "deepeval")[0].read_bytes()) == []
        assert write_exports(tmp_path, store, "ragas")[0].read_bytes() == b""


def test_the_command_writes_them_beside_the_report(run, capsys):  # noqa: F811
    assert call(run, "--export", "ragas") == 0
    said = capsys.readouterr().out
    files = sorted(run.glob("ragas-*.jsonl"))
    assert files
    for file in files:
        assert f"written: {file}" in said
        for line in file.read_bytes().rstrip(b"\n").split(b"\n"):  # no other line end is one
            assert json.loads(line).keys() == RAGAS
    assert call(run, "--verify", "--export", "ragas") == 2
