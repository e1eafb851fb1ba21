"""Answering in Ray's processes: the rows of one process, failed rows kept, errors as they are, nothing lost at a kill."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from pytrace.errors import InputError, MissingDependencyError, WorkerError
from pytrace.evaluation.run.ray_cluster import ray_folder
from pytrace.evaluation.run.ray_engine import RayEngine
from pytrace.evaluation.run.runner import RunStore, evaluate
from tests.scripted_methods import (
    ERRORS,
    QUESTIONS,
    SIZES,
    WAIT,
    alive,
    kept,
    lines,
    make,
    make_failing,
    make_none,
    until,
)

# Ray uses what Ray itself calls outdated.
pytestmark = pytest.mark.filterwarnings(r"ignore::DeprecationWarning:ray\.")


@pytest.mark.usefixtures("ray")
def test_ray_gives_the_rows_of_one_process_failed_ones_too(tmp_path: Path) -> None:
    with RunStore(":memory:") as store:
        store.open_run({})
        alone = evaluate(make(), QUESTIONS, store=store)
        expected = kept(store)
    with RunStore(":memory:") as store:
        store.open_run({})
        engine = RayEngine(partial(make, tmp_path / "log", seconds=0.1, crew=2), SIZES, processes=2)
        report = evaluate(engine, QUESTIONS, store=store)
        assert kept(store) == expected
    assert report == alone
    assert report.methods[0].failures[0].error.startswith("ContextOverflowError: the prompt")
    assert len({line[0] for line in lines(tmp_path / "log")}) == 2
    assert ["four", "q4", "q5", "q6", "q7"] in [line[1:] for line in lines(tmp_path / "log")]


@pytest.mark.usefixtures("ray")
@pytest.mark.parametrize("kind", ["model", "value", "unpicklable"])
def test_errors_of_the_set_up_end_the_run_as_they_do_in_one_process(kind: str) -> None:
    kinds = RuntimeError if kind == "unpicklable" else type(ERRORS[kind])
    with pytest.raises(kinds, match=str(ERRORS[kind])) as caught:
        evaluate(RayEngine(partial(make_none, kind), {"one": 1}, processes=1), QUESTIONS)
    assert type(caught.value) is kinds


@pytest.mark.usefixtures("ray")
def test_an_error_in_the_middle_keeps_what_was_answered() -> None:
    with RunStore(":memory:") as store:
        store.open_run({})
        with pytest.raises(ValueError, match="a fault of the method"):
            evaluate(RayEngine(partial(make_failing, "value", "q9"), {"one": 1}, processes=1), QUESTIONS, store=store)
        assert {f"q{i}" for i in range(8)} <= store.done("one")
        assert "q9" not in store.done("one")


@pytest.mark.usefixtures("ray")
def test_a_batch_that_ends_its_processes_ends_the_run_in_one_sentence(capfd: pytest.CaptureFixture[str]) -> None:
    with RunStore(":memory:") as store:
        store.open_run({})
        with pytest.raises(WorkerError, match="2 Ray processes ended while answering 1 questions with one") as caught:
            evaluate(RayEngine(partial(make_failing, "killed"), {"one": 1}, processes=1), QUESTIONS, store=store)
        assert "\n" not in str(caught.value)
        assert {f"q{i}" for i in range(4)} <= store.done("one")
        report = evaluate(RayEngine(make, {"one": 1}, processes=1), QUESTIONS, store=store)
        assert (report.methods[0].n, report.methods[0].failed) == (11, 1)
    output, errors = capfd.readouterr()
    assert (output, own(errors)) == ("", []), "Ray says nothing by itself"


def test_what_cannot_be_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="0 processes of 1 threads"):
        RayEngine(make, SIZES, processes=0)
    with pytest.raises(InputError, match="cannot be sent to another process"):
        RayEngine(lambda: make(seconds=1.0), SIZES)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'pytrace-rag\[ray\]'"):
        RayEngine(make, SIZES)


def test_what_a_killed_process_left_is_removed_and_nothing_that_is_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytrace.evaluation.run.ray_cluster._LONGEST_FOLDER", len(str(tmp_path)))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "pytrace-ray-other").mkdir()  # who owns it, it does not say
    held = "import time; from pytrace.evaluation.run import ray_cluster as one; one._LONGEST_FOLDER = 999\n"
    held += "with one.ray_folder() as folder: print(folder, flush=True); time.sleep(600)"
    command = [sys.executable, "-c", held]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(tmp_path)}
    ) as process:
        assert process.stdout is not None
        left = Path(process.stdout.readline().strip())
        (left / "session").mkdir()
        try:
            with ray_folder():
                assert left.is_dir()
        finally:
            process.kill()
    with ray_folder() as folder:
        assert sorted(tmp_path.iterdir()) == sorted([tmp_path / "pytrace-ray-other", Path(folder)])
    assert [*tmp_path.iterdir()] == [tmp_path / "pytrace-ray-other"]


RUN = """
import sys
from functools import partial
from pathlib import Path
from pytrace.evaluation.run.ray_engine import RayEngine
from pytrace.evaluation.run.runner import RunStore, evaluate
from tests.scripted_methods import QUESTIONS, SIZES, make

folder = Path(sys.argv[1])
with RunStore(folder / "run.sqlite") as store:
    store.open_run({}, resume=True)
    engine = RayEngine(partial(make, folder / 'first', seconds=float(sys.argv[2])), SIZES, processes=2)
    evaluate(engine, QUESTIONS, store=store)
print("finished")
"""


def start(folder: Path, seconds: float) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", RUN, str(folder), str(seconds)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


def said(process: subprocess.Popen[str]) -> tuple[str, list[str]]:
    """Wait for the end."""
    output, errors = process.communicate(timeout=WAIT)
    return output, own(errors)


def own(errors: str) -> list[str]:
    """Leave out what Ray's native code remarks once a process: that it would have its actors' arguments elsewhere."""
    # It could be silenced by RAY_BACKEND_LOG_LEVEL alone, whose being set it remarks instead.
    return [line for line in errors.splitlines() if "core_worker.cc" not in line]


def stored(path: Path) -> int:
    if not path.exists():
        return 0
    with sqlite3.connect(path) as connection:
        tables = connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'result'").fetchone()[0]
        count = connection.execute("SELECT count(*) FROM result").fetchone()[0] if tables else 0
    connection.close()
    return int(count)


@pytest.mark.usefixtures("ray")
def test_a_kill_loses_what_was_in_flight_and_the_run_goes_on_in_another_ray(tmp_path: Path) -> None:
    process = start(tmp_path, 0.4)
    until(lambda: stored(tmp_path / "run.sqlite") >= 3 or process.poll() is not None)
    process.kill()
    assert said(process) == ("", [])
    with RunStore(tmp_path / "run.sqlite") as store:
        before = kept(store)
    assert 3 <= len(before) < 22
    pids = {int(line[0]) for line in lines(tmp_path / "first")}

    with RunStore(tmp_path / "run.sqlite") as store:
        store.open_run({}, resume=True)
        evaluate(RayEngine(partial(make, tmp_path / "second"), SIZES, processes=2), QUESTIONS, store=store)
    again = {(method, question) for _, method, *questions in lines(tmp_path / "second") for question in questions}
    assert again
    assert not again & before.keys(), "a stored answer was asked for again"
    with RunStore(tmp_path / "run.sqlite") as store, RunStore(":memory:") as other:
        other.open_run({})
        evaluate(make(), QUESTIONS, store=other)
        assert kept(store) == kept(other)
    until(lambda: not any(map(alive, pids)))
