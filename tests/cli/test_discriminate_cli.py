"""`pytrace certify discriminate` as a user meets it: a table or JSON, rows that a killed run keeps, and clear refusals."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytrace.certify.validity import MODES
from pytrace.cli import common
from pytrace.cli.certify_discriminate import _MODES, Discriminate
from pytrace.cli.commands import click_group
from pytrace.engine import loading
from pytrace.kg import KnowledgeBase
from pytrace.models.scripted import HashEncoder, ScriptedModel
from pytrace.records import Triple

FACTS = [(f"town{n}", "country", f"land{n}") for n in range(4)] + [
    (f"land{n}", "language", f"tongue{n}") for n in range(4)
]
ROWS = [
    f"what is spoken in town{n} ?\ttongue{n}(tongue{n}/)\ttown{n}#country#land{n}#language#tongue{n}#<end>#tongue{n}"
    for n in range(4)
]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "questions.txt"
    path.write_text("\n".join(ROWS) + "\n", encoding="utf-8")
    return path


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, data: Path) -> Run:
    """Run the command in this process, with a scripted model and a graph in memory."""
    monkeypatch.setattr(loading.Engine, "model", ScriptedModel(["It is. Verdict: Yes"]))
    monkeypatch.delenv("PYTRACE_DEBUG", raising=False)
    base = KnowledgeBase.in_memory((Triple(*fact) for fact in FACTS), HashEncoder())
    monkeypatch.setattr(loading.Engine, "encoder", HashEncoder())
    monkeypatch.setattr(KnowledgeBase, "load", lambda *_, **__: base)
    group = click_group("Certify.", Discriminate)

    def call(*arguments: object) -> tuple[int, str, str]:
        capfd.readouterr()
        status = common.run(group, ["discriminate", "--kg", "kg", "--data", str(data), *map(str, arguments)])
        return (status, *capfd.readouterr())

    return call


def told(run: Run, *arguments: object) -> dict[str, Any]:
    status, out, _ = run(*arguments, "--json")
    assert status == 0
    found: dict[str, Any] = json.loads(out)
    return found


def test_the_modes_of_the_command_are_those_of_the_evaluation() -> None:
    assert _MODES == MODES


def test_all_modes_are_asked_unless_some_are_named(run: Run) -> None:
    report = told(run)
    assert [one["mode"] for one in report["modes"]] == list(MODES)
    assert (report["questions"], report["paths"], len(report["rows"])) == (4, 16, 64)
    report = told(run, "--mode", "few-shot-cot", "--mode", "zero-shot-cot", "--limit", 2, "--seed", 7)
    assert [one["mode"] for one in report["modes"]] == ["few-shot-cot", "zero-shot-cot"]
    assert (report["questions"], report["seed"], report["modes"][0]["balanced_accuracy"]) == (2, 7, 0.5)
    assert [kind["accuracy"] for kind in report["modes"][0]["kinds"]] == [1.0, 0.0, 0.0, 0.0]


def test_people_see_a_table_with_intervals_and_what_was_left_out(run: Run, data: Path) -> None:
    short = "where is town0 ?\tland0(land0/)\ttown0#country#land0#<end>#land0"
    data.write_text("\n".join([short, *ROWS[1:]]), encoding="utf-8")
    status, out, err = run("--mode", "zero-shot-cot")
    assert status == 0
    lines = out.splitlines()
    assert lines[0] == "15 paths of 4 questions, judged by scripted"
    assert lines[1].split() == [
        "MODE", "VALID", "FACTUAL", "INCOHERENT", "MISGUIDED", "ALL", "BALANCED", "YES", "UNDECIDED", "ASKED",
        "EVALUATED", "SECONDS",
    ]  # fmt: skip
    assert lines[2].split()[:9] == [
        "zero-shot-cot", "100.0", "(51-100)", "0.0", "(0-49)", "0.0", "(0-56)", "0.0", "(0-49)",
    ]  # fmt: skip
    assert lines[-1] == "no incoherent path: 1 of 4 questions"
    assert err == "pytrace: left out: questions:1 (incoherent): a path of one triple has no other order\n"


def test_a_run_is_written_mode_by_mode_and_resumed(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "rows.jsonl"
    first = told(run, "--mode", "zero-shot", "--out", out)
    status, _, err = run("--mode", "zero-shot", "--out", out)
    assert status == 2
    assert "is there already; resume it (--resume), or name another file" in err
    again = told(run, "--mode", "zero-shot", "--mode", "few-shot", "--out", out, "--resume")
    assert again["modes"][0] == first["modes"][0]
    assert len(out.read_text(encoding="utf-8").splitlines()) == 1 + 2 * 16
    status, _, err = run("--mode", "zero-shot", "--out", out, "--resume", "--calibrated")
    assert status == 2
    assert "other settings (calibrated was False and is now True)" in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--mode", "one-shot"), "'one-shot' is not one of"),
        (("--limit", "0"), "0 is not in the range"),
        (("--seed", "x"), "'x' is not a valid integer"),
        (("--resume",), "--resume needs --out"),
        (("--out", "."), "is a directory"),
    ],
)
def test_wrong_options_get_one_sentence_and_status_2(run: Run, arguments: tuple[str, ...], words: str) -> None:
    status, out, err = run(*arguments)
    assert (status, out) == (2, "")
    assert words in err
    assert len(err.splitlines()) == 1


def test_questions_that_do_not_fit_the_graph_are_an_error_that_names_one(run: Run, data: Path) -> None:
    data.write_text("who ?\tx(x/)\ta#b#c#d#x#<end>#x\n", encoding="utf-8")
    status, out, err = run()
    assert (status, out) == (2, "")
    assert (
        "none of 1 questions has a gold path that the graph bears out (questions:1: a gold path holds <a; b; c>" in err
    )


@pytest.mark.models
@pytest.mark.usefixtures("tiny_models")
def test_the_tiny_models_judge_on_the_command_line(
    capfd: pytest.CaptureFixture[str], data: Path, tmp_path: Path
) -> None:
    graph = tmp_path / "graph.tsv"
    graph.write_text("".join("\t".join(fact) + "\n" for fact in FACTS), encoding="utf-8")
    arguments = ["--kg", str(graph), "--data", str(data), "--mode", "zero-shot", "--limit", "1", "--context", "1024"]
    status = common.run(click_group("Certify.", Discriminate), ["discriminate", *arguments, "--json"])
    printed = capfd.readouterr().out
    assert status == 0
    (mode,) = json.loads(printed)["modes"]
    assert (mode["overall"]["paths"], mode["overall"]["undecided"]) == (4, 0)
