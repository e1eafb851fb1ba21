"""Methods for the engines' tests, made by functions that another process can import."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from pytrace.errors import ContextOverflowError, DataError, ModelFileError, PytraceError
from pytrace.evaluation.run.runner import Batched, Method, RunRow, RunStore
from pytrace.records import Question
from pytrace.results import Findings, Result, Source

QUESTIONS = [Question(f"q{i}", f"Question {i}?", (f"{i} \ud800",), supporting_documents=("d",)) for i in range(11)]
SIZES = {"one": 1, "four": 4}
# Seconds in which anything should have happened.
WAIT = 180.0


class Unpicklable(PytraceError):
    """Cannot be made anew from its message alone."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} and {second}")


ERRORS: dict[str, Exception] = {
    "model": ModelFileError("m.gguf is no model; pull it"),
    "value": ValueError("a fault of the method"),
    "memory": MemoryError(),
    "unpicklable": Unpicklable("this", "that"),
    "place": DataError("has no id; add one", path="rows.jsonl", line=7),
}


def read(text: str, *documents: str) -> Findings:
    """Return the evidence of an answer that was read from a text of some documents."""
    sources = tuple(Source(id=name, document=name, title="", text="", read=True) for name in documents)
    return Findings(kind="documents", sources=sources, context=(text,))


def say(method: str, question: Question) -> Result:
    """Answer with what the question holds; the third question is too long."""
    if question.id == "q2":
        raise ContextOverflowError("the prompt has 9,000 tokens and the context 2,048")
    evidence = read(question.question, "d", f"{question.id}-{method}")
    return Result(
        question=question.question, answer=question.answers[0], method=method, evidence=evidence, seconds={"read": 0.25}
    )


def make(log: Path | None = None, *, seconds: float = 0.0, crew: int = 1) -> dict[str, Method]:
    """Make the methods of `SIZES` once as many processes as the crew has do so.

    Each batch is logged with its process before it is answered.
    """
    if log is not None:
        here = log.with_name(f"{log.name}-crew")
        here.mkdir(exist_ok=True)
        (here / str(os.getpid())).touch()
        while len(list(here.iterdir())) < crew:
            time.sleep(0.01)

    def tell(method: str, questions: Sequence[Question]) -> list[Result]:
        if log is not None:
            with log.open("a") as stream:
                stream.write(f"{os.getpid()} {method} {' '.join(question.id for question in questions)}\n")
        time.sleep(seconds)
        return [say(method, question) for question in questions]

    return {"one": lambda question: tell("one", [question])[0], "four": Batched(lambda some: tell("four", some), 4)}


def make_none(kind: str) -> dict[str, Method]:
    """Fail to make any."""
    raise ERRORS[kind]


def make_failing(kind: str, where: str = "q5") -> dict[str, Method]:
    """Make a method that fails at a question, or kills its own process ("killed") or ends it ("ended") there."""

    def ask(question: Question) -> Result:
        if question.id == where:
            time.sleep(2)  # another process that started later answers what it was given before
        if question.id == where and kind == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if question.id == where and kind == "ended":
            os._exit(3)
        if question.id == where:
            raise ERRORS[kind]
        return say("one", question)

    return {"one": ask}


def kept(store: RunStore) -> dict[tuple[str, str], RunRow]:
    """Return all rows without what a clock says, by method and question."""
    return {
        (method, row.question_id): row
        if row.result is None
        else msgspec.structs.replace(row, result=msgspec.structs.replace(row.result, seconds={}, usage={}))
        for method in store.methods()
        for row in store.rows(method)
    }


def until(condition: Callable[[], bool]) -> None:
    """Wait for something that comes, or fail."""
    deadline = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def lines(log: Path) -> list[list[str]]:
    """Return what `make` logged: process, method, and ids of the questions."""
    return [line.split() for line in log.read_text().splitlines()] if log.exists() else []


def alive(pid: int) -> bool:
    """Whether a process is at work: one that has ended and that nobody has asked for yet is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
