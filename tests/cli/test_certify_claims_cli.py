"""`pytrace certify` against texts: contexts in rows, documents and an index, its exit status, and clear refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import pytrace
from pytrace import Corpus, Document
from pytrace.cli import common, program

LAKE = "Lake Volta was made in 1965. It lies in Ghana."
ROWS = [
    {"id": "right", "response": "Lake Volta lies in Ghana.", "retrieved_contexts": [LAKE]},
    {"input": "When?", "actual_output": "Lake Volta was made in 1975.", "retrieval_context": ["Geese fly.", LAKE]},
    {"answer": "Lake Volta lies in Ghana. It was painted blue by sailors.", "contexts": LAKE},
]


@pytest.fixture
def run(capfd, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTRACE_DEBUG", raising=False)
    Path("rows.jsonl").write_text("\n".join(map(json.dumps, ROWS)), "utf-8")
    Path("docs").mkdir()
    Path("docs/lake.md").write_text(f"# Lake Volta\n\n{LAKE}\n", "utf-8")

    def call(*arguments: object) -> tuple[int, str, str]:
        capfd.readouterr()
        status = common.run(program, ["certify", "--responses", "rows.jsonl", *map(str, arguments)])
        return (status, *capfd.readouterr())

    return call


def labels(out: str) -> list[list[str]]:
    return [[claim["label"] for claim in row["claims"]] for row in json.loads(out)["responses"]]


EXPECTED = [["supported"], ["contradicted"], ["supported", "not there"]]


def test_rows_are_checked_against_their_own_contexts(run):
    status, out, err = run("--json")
    assert (status, labels(out)) == (0, EXPECTED), err
    found = json.loads(out)
    assert found["score"] == pytest.approx(0.5)
    assert found["claims"] == {"supported": 2, "contradicted": 1, "not there": 1}
    assert [row["id"] for row in found["responses"]] == ["right", "2", "3"]
    evidence = found["responses"][1]["claims"][0]["evidence"][0]
    assert evidence["source"] == "rows.jsonl:2, retrieval_context[1]"


def test_documents_take_the_place_of_contexts(run):
    status, out, err = run("--docs", "docs", "--json", "--out", "checked.jsonl")
    assert (status, labels(out)) == (0, EXPECTED), err
    written = [json.loads(line) for line in Path("checked.jsonl").read_text("utf-8").splitlines()]
    assert written == json.loads(out)["responses"]
    assert written[0]["claims"][0]["evidence"][0]["source"].startswith("docs/lake.md")


@pytest.mark.models
def test_so_does_an_index(run, tiny_models):  # noqa: ARG001 (they must be pulled)
    engine = pytrace.load(threads=1)
    documents = [Document("lake", "Lake Volta", ("Lake Volta was made in 1965.", "It lies in Ghana."))]
    documents += [Document(f"v{k}", f"Village {k}", (f"Village {k} has {k} wells.",)) for k in range(20)]
    Corpus.build("lake.index", documents, engine).close()
    status, out, err = run("--index", "lake.index", "--json")
    assert (status, labels(out)) == (0, EXPECTED), err


def test_a_score_that_is_too_low_is_status_3(run):
    status, out, err = run("--fail-under", "0.6", "--explain")
    assert status == 3
    assert "the score is 0.500, below --fail-under 0.6" in err
    assert "- Lake Volta was made in 1975." in out
    assert "contradicted" in out
    assert "3 responses, 4 claims: 2 supported, 1 contradicted, 1 not there" in out
    assert run("--fail-under", "0.5")[0] == 0


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ('{"response": "a"}', "response 1 (1) has no contexts, and neither --docs nor --index"),
        ('{"question": "a"}', "rows.jsonl:1: the row has no response"),
        ('{"response": 5}', "rows.jsonl:1: `response` must be a string, not 5"),
        ('{"response": "a", "contexts": [5]}', "rows.jsonl:1: `contexts` must be a list of strings, not [5]"),
        ("", "holds no response"),
        ("{", "rows.jsonl:1"),
    ],
)
def test_rows_that_cannot_be_checked_are_refused_with_their_line(run, rows, said):
    Path("rows.jsonl").write_text(rows, "utf-8")
    status, out, err = run()
    assert (status, out) == (2, "")
    assert said in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--docs", "docs", "--kg", "kg.tsv"), "leave out --kg"),
        (("--docs", "docs", "--index", "i"), "not both"),
        (("--docs", "docs", "--plots", "plots"), "are for a graph"),
        (("--docs", "none"), "none"),
        (("--index", "none"), "none"),
        (("--fail-under", "1.5"), "1.5"),
    ],
)
def test_options_that_do_not_belong_together_are_refused(run, arguments, said):
    status, out, err = run(*arguments)
    assert status in (1, 2)
    assert out == ""
    assert said in err
