"""METHODs times settings times seeds, scores over seeds, and several processes: `pytrace eval` as a user meets them."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytrace import cli
from pytrace.cli import common
from pytrace.cli.evaluate import baseline_label, expand
from pytrace.engine import loading
from pytrace.engine.evaluation_jobs import graph_settings
from pytrace.errors import ContextOverflowError, InputError, StoreError
from pytrace.evaluation.run.runner import RunStore
from pytrace.evaluation.scores.comparisons import seed_summaries, without_seed
from pytrace.methods.catalog import parse_method
from pytrace.models.scripted import HashEncoder, ScriptedModel
from pytrace.records import Document, Triple
from pytrace.triples.graph import TripleStore
from tests.scripted_methods import alive, kept, until

needs_engine = pytest.mark.skipif(
    importlib.util.find_spec("llama_cpp") is None, reason="llama-cpp-python is not installed"
)


def labels(methods: list[str], *sweeps: str, seeds: str | None = None, settings: tuple[str, ...] = ()) -> list[str]:
    return [one.label for one in expand([*map(parse_method, methods)], sweeps, seeds, settings)]


class TestExpansion:
    def test_every_combination_in_a_stable_order_the_last_option_fastest(self) -> None:
        assert labels(["trace", "rag"], "candidates=8,16", "beams=2,4") == [
            "trace:candidates=8,beams=2",
            "trace:candidates=8,beams=4",
            "trace:candidates=16,beams=2",
            "trace:candidates=16,beams=4",
            "rag",
        ]

    def test_seeds_are_for_methods_that_draw_and_change_fastest(self) -> None:
        assert labels(["cot-sc", "dense"], "top=2,3", seeds="0, 7") == [
            "cot-sc:top=2,seed=0",
            "cot-sc:top=2,seed=7",
            "cot-sc:top=3,seed=0",
            "cot-sc:top=3,seed=7",
            "dense:top=2",
            "dense:top=3",
        ]

    def test_what_a_method_names_itself_is_not_swept_and_nothing_is_asked_twice(self) -> None:
        assert labels(["dense:top=2", "dense", "bm25"], "top=2,3,2") == [
            "dense:top=2",
            "dense:top=3",
            "bm25:top=2",
            "bm25:top=3",
        ]
        assert labels(["trace:beams=2,candidates=8", "trace:candidates=8", "rag", "rag"], "beams=2") == [
            "trace:beams=2,candidates=8",
            "rag",
        ]
        assert labels(["trace"], "reader-documents=2,none") == [
            "trace:reader_documents=2",
            "trace:reader_documents=none",
        ]
        assert labels(["rag", "rag"]) == ["rag"]

    @pytest.mark.parametrize(
        ("arguments", "says"),
        [
            ({"sweeps": ["tops=2,3"]}, "--sweep tops changes nothing: none of dense:top=2, rag has a setting 'tops'"),
            ({"sweeps": ["top=2,3"]}, "--sweep top changes nothing"),
            ({"seeds": "0,1"}, "--seeds changes nothing: none of dense:top=2, rag has a setting 'seed'"),
            ({"sweeps": ["top"]}, "is not NAME=V1,V2"),
            ({"sweeps": ["top=2,,3"]}, "is not NAME=V1,V2"),
            ({"sweeps": ["top=2", "top=3"]}, "given twice"),
            ({"sweeps": ["reader_demonstrations=1,many"]}, "a setting of dense cannot be used"),
            ({"sweeps": ["reader-demonstrations=1,2"], "settings": ["reader_demonstrations=3"]}, "both set"),
            ({"seeds": "0,-1"}, "no list of whole numbers"),
            ({"seeds": ""}, "no list of whole numbers"),
            ({"seeds": "0", "sweeps": ["seed=1"]}, "say the same"),
        ],
        ids=str,
    )
    def test_sweeps_that_cannot_be_are_refused(self, arguments: dict[str, Any], says: str) -> None:
        given: dict[str, Any] = {"sweeps": [], "seeds": None, **arguments}
        methods = [parse_method("dense:top=2"), parse_method("rag")]
        with pytest.raises(InputError) as caught:
            expand(methods, given["sweeps"], given["seeds"], given.get("settings", ()))
        assert says in str(caught.value)

    def test_a_baseline_is_found_however_it_is_written(self) -> None:
        methods = [parse_method("rag"), parse_method("trace:beams=2,reader_documents=3")]
        assert baseline_label(parse_method("trace:reader-documents=3,beams=2"), methods) == methods[1].label
        assert baseline_label(None, methods) is None
        with pytest.raises(InputError, match="trace is none of the methods; choose one of rag, trace:beams=2"):
            baseline_label(parse_method("trace"), methods)


class Score:
    def __init__(self, method: str, exact_match: float | None, f1: float | None) -> None:
        self.method, self.exact_match, self.f1 = method, exact_match, f1


class TestSeeds:
    def test_hand_computed_spread(self) -> None:
        scores = [
            Score("cot-sc:samples=3,seed=0", 0.2, 0.5),
            Score("rag", 1.0, 1.0),
            Score("cok:seed=1", 0.5, 0.5),
            Score("cot-sc:samples=3,seed=1", 0.4, 0.5),
            Score("cot-sc:seed=2,samples=3", 0.9, 0.8),
            Score("cot-sc:samples=5,seed=0", 0.1, 0.1),
        ]
        [one] = seed_summaries(scores)
        assert (one.method, one.seeds) == ("cot-sc:samples=3", ("0", "1", "2"))
        assert one.exact_match.mean == pytest.approx(0.5)
        # Squared distances from 0.5 are 0.09, 0.01 and 0.16, over one seed less.
        assert one.exact_match.standard_deviation == pytest.approx(0.13**0.5)
        assert (one.exact_match.minimum, one.exact_match.maximum) == (0.2, 0.9)
        assert one.f1.mean == pytest.approx(0.6)

    def test_one_seed_alone_and_methods_without_scores_are_left_out(self) -> None:
        assert (
            seed_summaries([Score("cot:seed=0", 0.5, 0.5), Score("cot:seed=1", None, None), Score("cot", 1, 1)]) == ()
        )
        assert without_seed("cot") == ("cot", None)
        assert without_seed("cot:seed=3") == ("cot", "3")


def test_a_graph_is_known_by_its_content_and_not_by_its_place() -> None:
    def made(tail: str, *, head: str = "Ada", documents: int = 1) -> dict[str, Any]:
        with TripleStore() as graph:
            for number in range(documents):
                graph.add(Document(f"d{number}", "T", (f"Sentence {number}.",)), [Triple(head, "born in", tail)])
            return graph_settings(graph)

    one = made("London")
    assert one == made("London")
    assert (one["documents"], one["triples"], one["waiting"]) == (1, 1, 0)
    different = [made("Paris"), made("London", documents=2), made("ondon", head="AdaL")]
    assert len({one["sha256"], *(other["sha256"] for other in different)}) == 4


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    rows = [
        {
            "_id": f"q{number}",
            "question": f"Who founded House {number}?",
            "answer": f"Founder{number}",
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


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command in this process, with scripted models."""

    def script(prompt: str) -> str:
        found = re.search(r"Founder\d+", prompt.rpartition("Context:")[2])
        return found[0] if found else "unknown"

    monkeypatch.setattr(loading.Engine, "model", ScriptedModel(script))
    monkeypatch.setattr(loading.Engine, "encoder", HashEncoder(dimension=256))
    monkeypatch.delenv("PYTRACE_DEBUG", raising=False)

    def call(*arguments: object) -> tuple[int, str, str]:
        capfd.readouterr()
        status = common.run(cli.program, list(map(str, arguments)))
        return (status, *capfd.readouterr())

    return call


@needs_engine
def test_eval_sweeps_sums_up_seeds_and_compares_with_a_baseline(questions: Path, run: Run) -> None:
    options = ("--data", questions, "--limit", 3, "--sweep", "top=1,2", "--seeds", "0,1", "--set", "samples=2")
    status, output, errors = run("eval", "cot-sc:top=1", "dense", *options, "--baseline", "dense:top=1", "--json")
    assert (status, errors) == (0, "pytrace: --sweep and --seeds make 4 methods of 2\n")
    told = json.loads(output)
    assert [one["method"] for one in told["methods"]] == [
        "cot-sc:top=1,seed=0", "cot-sc:top=1,seed=1", "dense:top=1", "dense:top=2",
    ]  # fmt: skip
    [seeds] = told["seeds"]
    assert (seeds["method"], seeds["seeds"], seeds["exact_match"]["standard_deviation"]) == (
        "cot-sc:top=1",
        ["0", "1"],
        0.0,
    )
    assert told["baseline"] == "dense:top=1"
    assert all("dense:top=1" in (pair["first"], pair["second"]) for pair in told["comparisons"])
    assert len(told["comparisons"]) == 3
    assert (told["notes"]["engine"], told["notes"]["processes"]) == ("local", 1)
    assert {"numpy", "pytrace", "llama-cpp-python", "onnxruntime"} <= told["settings"]["versions"].keys()
    status, output, _ = run("eval", "cot-sc:top=1", "dense", *options)
    assert status == 0
    table = output.splitlines()
    at = table.index("Over seeds: mean, standard deviation, minimum–maximum")
    assert table[at + 2].split()[:2] == ["cot-sc:top=1", "2"]


@needs_engine
def test_threads_are_a_setting_where_they_decide_and_processes_never(
    questions: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def evaluated(*options: object) -> tuple[int, str]:
        status, _, errors = run(
            "eval", "rag", "--data", questions, "--limit", 1, "--out", tmp_path, "--resume", *options
        )
        return status, errors

    class Loose(ScriptedModel):
        @property
        def deterministic(self) -> bool:
            return False

    exact = vars(loading.Engine)["model"]
    monkeypatch.setattr(loading.Engine, "model", Loose(["Founder1"]))
    assert evaluated("--threads", 1)[0] == evaluated("--threads", 2)[0] == 0
    with RunStore(tmp_path / "run.sqlite") as store:
        assert store.settings["threads"] is None
    (tmp_path / "run.sqlite").unlink()
    monkeypatch.setattr(loading.Engine, "model", exact)
    assert evaluated("--threads", 1) == (0, "")
    status, errors = evaluated("--threads", 2)
    assert (status, "threads was 1 and is now 2" in errors) == (2, True)
    assert evaluated("--threads", 1, "--processes", 3) == (0, ""), "nothing is open, so that none is started"


@needs_engine
def test_failed_questions_are_asked_again_on_the_command_line(
    questions: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    troubles = [True]

    def script(prompt: str) -> str:
        if troubles and "House 1?" in prompt.rpartition("Question:")[2]:
            raise ContextOverflowError("the prompt has 9,000 tokens and the context 2,048")
        return "Founder1"

    def failed(*options: str) -> int:
        status, output, errors = run(
            "eval", "rag:reading=free", "--data", questions, "--out", tmp_path / "run", "--json", *options
        )
        assert status == 0, errors
        return int(json.loads(output)["methods"][0]["failed"])

    monkeypatch.setattr(loading.Engine, "model", ScriptedModel(script))
    assert failed() == 1
    troubles.clear()
    assert failed("--resume") == 1
    assert failed("--resume", "--retry-failed") == 0


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--ray-address", "auto"), "is of --engine ray"),
        (("--baseline", "dense"), "the baseline dense is none of the methods; choose one of rag"),
        (("--retry-failed",), "give --out and --resume too"),
        (("--processes", "0"), "0 is not in the range"),
        (("--sweep", "top=1"), "--sweep top changes nothing"),
    ],
    ids=str,
)
def test_options_that_do_not_belong_together_are_refused(
    options: tuple[str, ...], says: str, questions: Path, run: Run
) -> None:
    status, output, errors = run("eval", "rag", "--data", questions, *options)
    assert (status, output) == (2, "")
    assert errors.startswith("pytrace: ")
    assert errors.count("\n") == 1
    assert says in errors


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-c", "from pytrace.cli import main; main()", "eval", *map(str, arguments)]


def finish(*arguments: object) -> dict[str, Any]:
    done = subprocess.run(command(*arguments), capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def children(pid: int) -> set[int]:
    """Return the processes that a process has started."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == pid:
                found.add(int(stat.parent.name))
    return found


@needs_engine
@pytest.mark.models
@pytest.mark.usefixtures("tiny_models")
def test_the_tiny_models_give_the_same_rows_however_many_processes_answer(questions: Path, tmp_path: Path) -> None:
    job = (
        "rag", "dense", "--sweep", "top=1", "--set", "reader_demonstrations=1", "--data", questions, "--limit", 3,
        "--deterministic", "--threads", 1, "--context", 1024, "--json",
    )  # fmt: skip
    told, rows = [], []
    for name, how in {"one": (), "two": ("--processes", 2), "ray": ("--processes", 2, "--engine", "ray")}.items():
        told.append(finish(*job, "--out", tmp_path / name, *how))
        with RunStore(tmp_path / name / "run.sqlite") as store:
            rows.append(kept(store))
    assert len(rows[0]) == 6
    assert rows[0] == rows[1] == rows[2]
    assert told[0]["settings"] == told[1]["settings"] == told[2]["settings"]
    assert told[0]["comparisons"] == told[1]["comparisons"] == told[2]["comparisons"]


@needs_engine
@pytest.mark.models
@pytest.mark.usefixtures("tiny_models")
def test_a_killed_evaluation_in_two_processes_goes_on_in_one(questions: Path, tmp_path: Path) -> None:
    job = (
        "rag", "--sweep", "reader_demonstrations=1,2", "--data", questions, "--batch", 1, "--context", 1024,
        "--out", tmp_path, "--resume", "--json",
    )  # fmt: skip

    def done() -> int:
        if not (tmp_path / "run.sqlite").exists():
            return 0
        with contextlib.suppress(StoreError), RunStore(tmp_path / "run.sqlite") as store:
            return sum(len(store.done(method)) for method in store.methods())
        return 0

    with subprocess.Popen(command(*job, "--processes", 2), stderr=subprocess.DEVNULL) as killed:
        try:
            until(lambda: done() >= 3 or killed.poll() is not None)
            pids = children(killed.pid)
        finally:
            killed.kill()
    assert len(pids) >= 2
    until(lambda: not any(map(alive, pids)))
    before = done()
    assert 3 <= before < 12
    assert [one["n"] for one in finish(*job)["methods"]] == [6, 6]
    assert done() == 12
