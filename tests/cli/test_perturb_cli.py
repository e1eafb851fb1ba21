"""`pytrace perturb` as a user meets it: rows that `pytrace eval` can ask, a count of what was checked, and no half file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytrace.cli import common
from pytrace.cli.commands import click_group
from pytrace.cli.perturb import Perturb
from pytrace.engine import loading
from pytrace.evaluation.data.datasets import read_questions
from pytrace.models.scripted import HashEncoder, ScriptedModel
from pytrace.perturb.perturbations import check_row

FILLER = [f"There is a market on day {day} of the month, where rope and tar are sold to sailors." for day in range(12)]


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    rows = [
        {
            "_id": f"q{number}",
            "question": f"In which year was Fort Ostra{number} built?",
            "answer": str(1700 + number),
            "context": [
                [f"Ostra{number}", [f"Fort Ostra{number} stands on a cliff.", f"It was built in {1700 + number}."]],
                [f"Market {number}", FILLER],
            ],
            "supporting_facts": [[f"Ostra{number}", 0], [f"Ostra{number}", 1]],
        }
        for number in range(3)
    ]
    path = tmp_path / "questions.json"
    path.write_text(json.dumps(rows), encoding="utf-8")
    return path


def script(prompt: str) -> str:
    asked = prompt.rpartition("\n\n")[2]
    if asked.startswith("Question: In which year was"):
        node = asked.partition("was ")[2].partition(" built")[0]
        return json.dumps({"intent": "", "nodes": [node], "relations": []})
    return "-"


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run the command in this process, with scripted models."""
    monkeypatch.setattr(loading.Engine, "model", ScriptedModel(script))
    monkeypatch.setattr(loading.Engine, "encoder", HashEncoder(dimension=4096))
    monkeypatch.delenv("PYTRACE_DEBUG", raising=False)
    group = click_group("Break chains.", Perturb)

    def call(*arguments: object) -> tuple[int, str, str]:
        capfd.readouterr()
        status = common.run(group, ["perturb", *map(str, arguments)])
        return (status, *capfd.readouterr())

    return call


def told(run: Run, *arguments: object) -> dict[str, Any]:
    status, out, _ = run(*arguments, "--json")
    assert status == 0
    found: dict[str, Any] = json.loads(out)
    return found


def test_rows_are_written_checked_and_can_be_read_back(run: Run, questions: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "rows.jsonl"
    kinds = ("--kind", "coe", "--kind", "senp", "--kind", "wordp")
    report = told(run, "--data", questions, "--out", out, "--judge", "text", *kinds, "--ratio", 0, "--ratio", 0.5)
    rows = list(read_questions(out))
    assert len(rows) == report["rows"] == report["checked"] == 3 * 3 * 3 * 2
    assert (report["questions"], report["chains"], report["unsound"], report["refusals"]) == (3, 3, 0, [])
    assert all(check_row(row) == [] for row in rows)
    seen = {(row.perturbation.kind, row.perturbation.noise, row.perturbation.ratio) for row in rows if row.perturbation}
    assert len(seen) == 3 * 3 * 2
    assert {(one["kind"], one["rows"]) for one in report["by_kind"]} == {("coe", 6), ("senp", 6), ("wordp", 6)}
    assert [path.name for path in out.parent.iterdir()] == ["rows.jsonl"]
    assert out.stat().st_mode & 0o400


def test_the_defaults_are_all_kinds_noises_and_ratios(run: Run, questions: Path, tmp_path: Path) -> None:
    out = tmp_path / "rows.jsonl"
    report = told(run, "--data", questions, "--out", out, "--judge", "text", "--limit", 1)
    rows = list(read_questions(out))
    ratios = {row.perturbation.ratio for row in rows if row.perturbation}
    assert ratios == {0.0, 0.25, 0.5, 0.75}
    # The questions have neither relations nor intents here, which is told and not passed over.
    assert {refusal["kind"] for refusal in report["refusals"] if not refusal["noise"]} == {"erp", "intentp"}
    assert report["questions"] == 1


def test_people_see_a_table_and_what_was_left_out(run: Run, questions: Path, tmp_path: Path) -> None:
    out = tmp_path / "rows.jsonl"
    options = ("--judge", "text", "--noise", "irrelevant", "--ratio", 0.5, "--kind", "coe", "--kind", "erp")
    status, stdout, stderr = run("--data", questions, "--out", out, *options)
    assert status == 0
    lines = stdout.splitlines()
    assert lines[0] == "3 of 3 questions have a chain of evidence"
    assert lines[1:4] == ["KIND  IRRELEVANT", "coe   3", "erp   0"]
    assert lines[4].startswith("checked 3 rows against what they claim: 3 sound ones written to ")
    assert "pytrace: left out: q0 (erp): no relation between two nodes" in stderr


def test_the_seed_decides_and_nothing_else(run: Run, questions: Path, tmp_path: Path) -> None:
    options = ("--data", questions, "--judge", "text", "--kind", "senp", "--ratio", 0.5)
    written = []
    for number, seed in enumerate((1, 1, 2)):
        out = tmp_path / f"{number}.jsonl"
        told(run, *options, "--out", out, "--seed", seed)
        written.append(out.read_bytes())
    assert written[0] == written[1]
    assert written[0] != written[2]


def test_the_other_judges_and_retrievers_can_be_chosen(run: Run, questions: Path, tmp_path: Path) -> None:
    for judge in ("model", "fused"):
        status, _, stderr = run(
            "--data", questions, "--out", tmp_path / judge, "--judge", judge, "--kind", "coe", "--threshold", 0
        )
        assert (status, stderr) == (0, "")
    for retriever in ("bm25", "rrf"):
        report = told(
            run, "--data", questions, "--out", tmp_path / retriever, "--judge", "text", "--retriever", retriever, "--kind", "coe",
            "--ratio", 0.5,
        )  # fmt: skip
        assert report["rows"] > 0


def test_a_run_that_gives_no_row_leaves_an_older_file_as_it_was(run: Run, questions: Path, tmp_path: Path) -> None:
    out = tmp_path / "rows.jsonl"
    out.write_text("older", encoding="utf-8")
    status, stdout, stderr = run("--data", questions, "--out", out, "--judge", "text", "--kind", "erp")
    assert (status, stdout) == (2, "")
    assert stderr.startswith("pytrace: none of 3 questions gave a row, so nothing was written (q0: no relation")
    assert out.read_text(encoding="utf-8") == "older"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["questions.json", "rows.jsonl"]


def test_a_fault_on_the_way_leaves_no_half_file(
    run: Run, questions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pytrace.perturb import perturbed_rows as rows

    whole = rows.row_line
    count = iter(range(100))

    def failing(row: Any) -> bytes:
        if next(count) == 2:
            raise OSError(28, "No space left on device")
        return whole(row)

    monkeypatch.setattr(rows, "row_line", failing)
    status, _, stderr = run("--data", questions, "--out", tmp_path / "rows.jsonl", "--judge", "text", "--kind", "coe")
    assert status == 1
    assert "No space left" in stderr
    assert [path.name for path in tmp_path.iterdir()] == ["questions.json"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--ratio", "1"), "--ratio 1.0 is no share that can be injected"),
        (("--ratio", "nan"), "nan is not a number"),
        (("--ratio", "-0.1"), "--ratio -0.1 is no share"),
        (("--kind", "other"), "'other' is not one of"),
        (("--noise", "other"), "'other' is not one of"),
        (("--judge", "other"), "'other' is not one of"),
        (("--limit", "0"), "0 is not in the range"),
        (("--data", "nowhere.jsonl"), "nowhere.jsonl"),
        (("--out", "."), "is a folder"),
    ],
)
def test_wrong_options_get_one_sentence_and_status_2(
    run: Run, questions: Path, tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    status, stdout, stderr = run("--data", questions, "--out", tmp_path / "rows.jsonl", *arguments)
    assert (status, stdout) == (2, "")
    assert words in stderr
    assert len(stderr.splitlines()) == 1
    assert not (tmp_path / "rows.jsonl").exists()


def test_broken_unicode_in_the_data_is_a_clear_error_and_a_replacement_character_is_no_trouble(
    run: Run, tmp_path: Path
) -> None:
    data = tmp_path / "odd.jsonl"
    row = {
        "question": "In which year was Fort \ud800 built?", "answers": ["1784"],
        "documents": [{"title": "\ud800", "sentences": ["Fort \ud800 was built in 1784."], "supporting": True}],
    }  # fmt: skip
    options = ("--data", data, "--out", tmp_path / "rows", "--judge", "text", "--ratio", 0, "--kind", "coe")
    data.write_text(json.dumps(row), encoding="utf-8")
    status, _, stderr = run(*options)
    assert status == 2
    assert "odd.jsonl:1: not JSON" in stderr
    data.write_text(json.dumps(row).replace("\\ud800", "\\ufffd"), encoding="utf-8")
    assert told(run, *options, "--threshold", 0)["rows"] == 3


@pytest.mark.models
@pytest.mark.usefixtures("tiny_models")
def test_the_tiny_models_perturb_on_the_command_line(
    capfd: pytest.CaptureFixture[str], questions: Path, tmp_path: Path
) -> None:
    group = click_group("Break chains.", Perturb)
    out = tmp_path / "rows.jsonl"
    options = (
        "--judge",
        "text",
        "--threshold",
        "0",
        "--limit",
        "1",
        "--kind",
        "coe",
        "--ratio",
        "0.5",
        "--context",
        "1024",
    )
    status = common.run(group, ["perturb", "--data", str(questions), "--out", str(out), *options, "--json"])
    printed = capfd.readouterr().out
    assert status == 0
    assert json.loads(printed)["unsound"] == 0
    assert all(check_row(row) == [] for row in read_questions(out))
