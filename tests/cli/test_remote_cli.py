"""`ask`, `eval` and `kg build` with `--llm URL`: on a running llama-server, and on a double where a server lacks something."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytrace import cli
from pytrace.cli import common
from pytrace.engine import loading
from pytrace.methods.abilities import CAPABLE
from pytrace.models.scripted import HashEncoder
from tests.remote_servers import llama_server
from tests.server_double import double

QUESTION = "Who founded the owner of the Tern?"
ROWS = [
    {"title": "Tern", "text": "The Tern is owned by Brack. It is a ferry."},
    {"title": "Brack", "text": "Brack was founded by Tobias Rook. It has ships."},
]
FEW = ["unit=sentence", "candidates=2", "demonstrations=1", "length=1", "chains=1", "reader_demonstrations=0"]
SETTINGS = [word for setting in FEW for word in ("--set", setting)]

MEASURED = vars(loading.Engine)["abilities"]
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    path = tmp_path / "docs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS), encoding="utf-8")
    return path


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command in this process, with an encoder that needs no file."""
    monkeypatch.setattr(loading.Engine, "encoder", HashEncoder())
    monkeypatch.setattr(loading.Engine, "abilities", CAPABLE)
    monkeypatch.delenv("PYTRACE_DEBUG", raising=False)
    monkeypatch.delenv("PYTRACE_API_KEY", raising=False)

    def call(*arguments: object) -> tuple[int, str, str]:
        capfd.readouterr()
        status = common.run(cli.program, list(map(str, arguments)))
        return (status, *capfd.readouterr())

    return call


@pytest.fixture(scope="module")
def url(random_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with llama_server(random_gguf, tmp_path_factory.mktemp("logs") / "server.txt") as address:
        yield address


@pytest.mark.parametrize("scoring", ["letters", "pmi", "likelihood", "black-box"])
def test_ask_answers_with_every_scoring(run: Run, docs: Path, url: str, scoring: str) -> None:
    status, output, errors = run(
        "ask", QUESTION, "--docs", docs, "--llm", url, "--llm-style", "plain", "--method", "trace", *SETTINGS,
        "--set", f"scoring={scoring}",
        "--json",
    )  # fmt: skip
    assert (status, errors) == (0, "")
    answer = json.loads(output)
    assert answer["question"] == QUESTION
    assert sum(spent["calls"] for spent in answer["usage"].values()) > 1


def test_eval_measures_and_names_the_model_in_its_settings(run: Run, tmp_path: Path, url: str) -> None:
    rows = [
        {
            "_id": "q",
            "question": QUESTION,
            "answer": "Tobias Rook",
            "type": "bridge",
            "context": [[row["title"], row["text"].split(". ")] for row in ROWS],
            "supporting_facts": [["Tern", 0]],
        }
    ]
    data = tmp_path / "questions.json"
    data.write_text(json.dumps(rows), encoding="utf-8")
    out = tmp_path / "run"
    status, output, _ = run("eval", "rag", "trace", "--data", data, "--llm", url, *SETTINGS, "--out", out, "--json")
    assert status == 0
    assert {method["method"] for method in json.loads(output)["methods"]} == {"rag", "trace"}
    stored = (out / "run.sqlite").read_bytes()
    assert b"remote-llama-server-" in stored
    assert url.encode() not in stored


def test_kg_build_stores_every_document(run: Run, tmp_path: Path, docs: Path, url: str) -> None:
    status, output, errors = run(
        "kg", "build", "--docs", docs, "--out", tmp_path / "kg", "--llm", url, "--llm-style", "plain", "--concurrency", 2,
        "--set", "spans=true", "--json",
    )  # fmt: skip
    assert status == 0, errors
    built = json.loads(output)
    assert built["usage"]["calls"] == 2
    assert built["statistics"]["documents"] == 2


def test_what_cannot_be_is_refused_in_one_sentence(run: Run, docs: Path, url: str) -> None:
    def ask(*arguments: object) -> tuple[int, str]:
        status, output, errors = run("ask", QUESTION, "--docs", docs, "--method", "rag", *arguments)
        assert output == ""
        assert len(errors.strip().splitlines()) == 1
        return status, errors

    status, errors = ask("--llm", "http://127.0.0.1:1")
    assert status == 1
    assert "no server answers at http://127.0.0.1:1" in errors
    status, errors = ask("--llm", "http://me:secret@127.0.0.1:1")
    assert status == 2
    assert "secret" not in errors
    status, errors = ask("--llm", url, "--gpu-layers", "3")
    assert status == 2
    assert "--gpu-layers is for models inside this process" in errors
    status, errors = ask("--llm", url, "--deterministic")
    assert status == 2
    assert "--deterministic is for models inside this process" in errors
    status, errors = ask("--llm", url, "--llm-model", "other")
    assert status == 2
    assert "no model 'other', but:" in errors


@pytest.mark.filterwarnings("default:testing how well")
@pytest.mark.parametrize("logprobs", [True, False])
def test_what_a_server_s_model_can_do_is_tested_once(
    run: Run, docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logprobs: bool
) -> None:
    monkeypatch.setattr(loading.Engine, "abilities", MEASURED)
    monkeypatch.setenv("PYTRACE_HOME", str(tmp_path / "home"))
    with double("openai", logprobs=logprobs) as server:
        said = []
        for _ in range(2):
            status, _, errors = run("ask", QUESTION, "--docs", docs, "--llm", server.url, "--method", "trace", "--json")
            assert status == 0, errors
            said.append(errors.count("testing how well"))
    assert said == [2, 0]


def test_a_server_without_log_probabilities_needs_the_black_box_and_gets_by_with_it(run: Run, docs: Path) -> None:
    with double("openai", logprobs=False) as server:
        asked = ["ask", QUESTION, "--docs", docs, "--method", "trace", "--llm", server.url, *SETTINGS]
        for scoring in ("letters", "pmi"):
            status, output, errors = run(*asked, "--set", f"scoring={scoring}")
            assert (status, output) == (1, "")
            assert "scoring='black-box'" in errors
        status, output, errors = run(*asked, "--set", "scoring=black-box", "--json")
        assert (status, errors) == (0, "")
        assert json.loads(output)["question"] == QUESTION


def test_a_key_is_taken_from_the_variable_that_is_named(run: Run, docs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUR_KEY", "sesame-42")
    with double("openai") as server:
        status, output, errors = run(
            "ask",
            QUESTION,
            "--docs",
            docs,
            "--method",
            "rag",
            "--llm",
            server.url,
            "--api-key-env",
            "OUR_KEY",
            "--json",
        )
        assert status == 0, errors
        assert {headers["authorization"] for _, _, headers in server.seen} == {"Bearer sesame-42"}
        assert "sesame" not in output + errors
