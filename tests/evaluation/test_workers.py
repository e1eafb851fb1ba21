"""Answering in several processes: the rows of one process, nothing lost at a kill, no process left behind."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from pytrace.errors import DataError, InputError, MissingDependencyError, ServerError, WorkerError
from pytrace.evaluation.run.runner import Batch, Engine, Progress, RunStore, evaluate
from pytrace.evaluation.run.workers import Workers, portable
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


@pytest.mark.parametrize(("processes", "count"), [(1, 11), (2, 11), (30, 4)])
def test_workers_give_the_rows_of_one_process_in_the_same_batches(processes: int, count: int, tmp_path: Path) -> None:
    questions, batches = QUESTIONS[:count], count + -(-count // 4)
    with RunStore(":memory:") as store:
        store.open_run({})
        alone = evaluate(make(tmp_path / "here"), questions, store=store)
        expected = kept(store)
    seen: list[Progress] = []
    with RunStore(":memory:") as store:
        store.open_run({})
        there = partial(make, tmp_path / "there", seconds=0.05, crew=min(processes, 2))
        workers = Workers(there, SIZES, processes=processes)
        report = evaluate(workers, questions, store=store, progress=seen.append)
        assert kept(store) == expected
    assert report == alone
    one, several = ([line[1:] for line in lines(tmp_path / name)] for name in ("here", "there"))
    assert sorted(one) == sorted(several)
    assert one == several or processes > 1
    assert len(list((tmp_path / "there-crew").iterdir())) <= min(processes, batches), "no more than there are batches"
    assert len({line[0] for line in lines(tmp_path / "there")}) == processes or processes == 30
    assert [(p.method, p.done) for p in seen[:2]] == [("one", 0), ("four", 0)]
    assert max((p.method, p.done, p.failed) for p in seen) == ("one", count, 1)
    assert ("four", count, 1) in [(p.method, p.done, p.failed) for p in seen]


def test_a_later_run_asks_only_what_is_open_and_starts_nothing_if_nothing_is(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with RunStore(tmp_path / "run.sqlite") as store:
        store.open_run({})
        evaluate(Workers(make, SIZES, processes=2), QUESTIONS[:5], store=store)
        evaluate(Workers(partial(make, log), SIZES, processes=2), QUESTIONS, store=store)
        assert sorted(line[1:] for line in lines(log)) == sorted(
            [*(["one", f"q{i}"] for i in range(5, 11)), ["four", "q5", "q6", "q7", "q8"], ["four", "q9", "q10"]]
        )
        nothing = Workers(partial(make_none, "value"), SIZES, processes=2)
        assert evaluate(nothing, QUESTIONS, store=store).methods[0].n == 11
        evaluate(Workers(partial(make, log), SIZES, processes=2), QUESTIONS, store=store, retry_failed=True)
    assert sorted(line[1:] for line in lines(log)[8:]) == [["four", "q2"], ["one", "q2"]]


@pytest.mark.parametrize("kind", ["model", "value", "memory", "place"])
def test_what_making_the_methods_raises_ends_the_run_as_it_is(kind: str) -> None:
    with pytest.raises(type(ERRORS[kind])) as caught:
        evaluate(Workers(partial(make_none, kind), {"one": 1}, processes=2), QUESTIONS)
    assert (type(caught.value), str(caught.value)) == (type(ERRORS[kind]), str(ERRORS[kind]))


@pytest.mark.parametrize("kind", ["model", "value"])
def test_errors_of_the_set_up_end_the_run_as_they_do_in_one_process(kind: str, tmp_path: Path) -> None:
    told = []
    for engine in (make_failing(kind), Workers(partial(make_failing, kind), {"one": 1}, processes=2)):
        with RunStore(tmp_path / f"{len(told)}.sqlite") as store:
            store.open_run({})
            with pytest.raises(type(ERRORS[kind])) as caught:
                evaluate(engine, QUESTIONS, store=store)
            told.append((type(caught.value), str(caught.value)))
            assert {"q0", "q1", "q2", "q3"} <= store.done("one")
            assert "q5" not in store.done("one")
    assert told[0] == told[1]
    if kind == "value":
        assert "in ask\n" in caught.value.__notes__[0], "the traceback in the worker is told"


def test_an_error_that_cannot_travel_is_told_in_its_words() -> None:
    with pytest.raises(RuntimeError, match="Unpicklable: this and that"):
        evaluate(Workers(partial(make_none, "unpicklable"), {"one": 1}, processes=1), QUESTIONS)


@pytest.mark.parametrize(
    "error",
    [
        DataError("is no JSON", path="a.jsonl", line=3),
        DataError("is missing", path="a.jsonl"),
        DataError("is empty"),
        ServerError("refuses", status=503),
        MissingDependencyError("ray is not installed"),
        InputError("no"),
    ],
    ids=lambda error: f"{type(error).__name__} {error}",
)
def test_errors_of_pytrace_survive_the_way_to_another_process(error: Exception) -> None:
    back = pickle.loads(pickle.dumps(portable(error)))
    assert (type(back), str(back), vars(back)) == (type(error), str(error), vars(error))


@pytest.mark.parametrize(("kind", "says"), [("killed", "signal 9"), ("ended", "status 3")])
def test_a_dead_worker_is_told_in_one_sentence_and_the_run_goes_on_later(kind: str, says: str, tmp_path: Path) -> None:
    with RunStore(tmp_path / "run.sqlite") as store:
        store.open_run({})
        with pytest.raises(
            WorkerError, match=rf"worker \d of 2 \(process \d+\) .*{says}.* answering 1 questions"
        ) as caught:
            evaluate(Workers(partial(make_failing, kind), {"one": 1}, processes=2), QUESTIONS, store=store)
        assert "\n" not in str(caught.value)
        assert ("memory runs out" in str(caught.value)) == (kind == "killed")
        assert {"q0", "q1", "q2", "q3"} <= store.done("one")
        report = evaluate(Workers(make, {"one": 1}, processes=2), QUESTIONS, store=store)
        assert (report.methods[0].n, report.methods[0].failed) == (11, 1)


def test_misuse_is_told() -> None:
    with pytest.raises(InputError, match="0 processes"):
        Workers(make, SIZES, processes=0)
    with pytest.raises(InputError, match="cannot be sent to another process"):
        Workers(lambda: make(seconds=1.0), SIZES, processes=1)
    with pytest.raises(InputError, match="batch size of one is 0"):
        evaluate(Workers(make, {"one": 0}, processes=1), QUESTIONS)


def test_processes_end_with_the_loop_that_asked_them(tmp_path: Path) -> None:
    log = tmp_path / "log"
    engine: Engine = Workers(partial(make, log, seconds=0.05, crew=2), {"one": 1}, processes=2)
    results = engine.results([Batch("one", (question,)) for question in QUESTIONS])
    next(results)
    until(lambda: len({line[0] for line in lines(log)}) == 2)
    pids = {int(line[0]) for line in lines(log)}
    assert all(map(alive, pids))
    results.close()
    assert not any(map(alive, pids))


RUN = """
import sys
from functools import partial
from pathlib import Path
from pytrace.evaluation.run.runner import RunStore, evaluate
from pytrace.evaluation.run.workers import Workers
from tests.scripted_methods import QUESTIONS, SIZES, make

if __name__ == "__main__":
    folder, seconds = Path(sys.argv[1]), float(sys.argv[2])
    with RunStore(folder / "run.sqlite") as store:
        store.open_run({}, resume=True)
        evaluate(Workers(partial(make, folder / "log", seconds=seconds, crew=2), SIZES, processes=2), QUESTIONS, store=store)
    print("finished")
"""


def start(folder: Path, seconds: float) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", RUN, str(folder), str(seconds)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


def stored(folder: Path) -> int:
    with RunStore(folder / "run.sqlite") as store:
        return len(kept(store))


@pytest.mark.parametrize("victim", ["parent", "worker"])
def test_a_kill_loses_what_was_in_flight_and_nothing_else(victim: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = start(tmp_path, 0.2)
    # Not while an answer is on its way to the store: that one would be lost beside those in flight.
    until(lambda: (asked := len(lines(log))) >= 5 and stored(tmp_path) >= asked - 2)
    pids = {int(line[0]) for line in lines(log)}
    assert len(pids) == 2
    os.kill(process.pid if victim == "parent" else max(pids), signal.SIGKILL)
    _, errors = process.communicate(timeout=WAIT)
    if victim == "worker":
        assert process.returncode == 1
        assert "signal 9" in errors
    until(lambda: not any(map(alive, pids)))
    asked = lines(log)
    with RunStore(tmp_path / "run.sqlite") as store:
        before = kept(store)
    assert len(asked) - 2 <= len(before) <= len(asked)

    finished = start(tmp_path, 0.0)
    assert finished.communicate(timeout=WAIT)[0] == "finished\n"
    again = {(method, question) for _, method, *questions in lines(log)[len(asked) :] for question in questions}
    assert not again & before.keys(), "a stored answer was asked for again"
    with RunStore(tmp_path / "run.sqlite") as store, RunStore(":memory:") as other:
        other.open_run({})
        evaluate(make(), QUESTIONS, store=other)
        assert kept(store) == kept(other)


def test_workers_end_in_the_middle_of_a_batch_when_the_parent_is_gone(tmp_path: Path) -> None:
    process = start(tmp_path, 3600)
    until(lambda: len(lines(tmp_path / "log")) == 2)
    pids = {int(line[0]) for line in lines(tmp_path / "log")}
    process.kill()
    process.communicate()
    until(lambda: not any(map(alive, pids)))


@pytest.mark.usefixtures("heeding_interrupts")
def test_an_interrupt_ends_all_promptly_and_without_a_word_of_the_workers(tmp_path: Path) -> None:
    process = start(tmp_path, 3600)
    until(lambda: len(lines(tmp_path / "log")) == 2)
    pids = {int(line[0]) for line in lines(tmp_path / "log")}
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all of them
    _, errors = process.communicate(timeout=10)
    assert not any(map(alive, pids))
    assert errors.count("Traceback") == 1, errors
    assert errors.rstrip().endswith("KeyboardInterrupt")
