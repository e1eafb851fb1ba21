"""Ask methods every question of a data set, keep each answer as soon as it is there, and report."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from typing import Protocol

import msgspec

from pytrace.errors import (
    DeviceUnavailableError,
    InputError,
    LogitsUnavailableError,
    MissingDependencyError,
    ModelFileError,
    PytraceError,
    StoreError,
)
from pytrace.evaluation.run.run_store import RunRow, RunStore
from pytrace.evaluation.scores.matching import Matcher
from pytrace.evaluation.scores.summary import Report, score_run
from pytrace.records import Question
from pytrace.results import Result

# These tell of the set-up and not of the question: the next question would fail in the same way.
_FATAL = (StoreError, MissingDependencyError, ModelFileError, DeviceUnavailableError, LogitsUnavailableError)


class Batched(msgspec.Struct, frozen=True):
    """A method that answers several questions in one call, so that their model work can be batched.

    `answer` gives one result for each question, in order; at most `size` questions are in flight, and their results are
    stored together when the call returns.
    """

    answer: Callable[[Sequence[Question]], Sequence[Result]]
    size: int = 8


class Progress(msgspec.Struct, frozen=True):
    """How far an evaluation is: `done` of `total` questions of `method`, `resumed` of them in an earlier process."""

    method: str
    done: int
    total: int
    resumed: int
    failed: int


Method = Callable[[Question], Result] | Batched


class Batch(msgspec.Struct, frozen=True):
    """Questions that a method is asked together."""

    method: str
    questions: tuple[Question, ...]


class Engine(Protocol):
    """Who answers in the place of this process: `pytrace.evaluation.run.workers`, `pytrace.evaluation.run.ray_engine`."""

    @property
    def sizes(self) -> Mapping[str, int]:
        """How many questions each method is asked together, by its name, in the order of the report."""

    def results(self, batches: Sequence[Batch]) -> Generator[tuple[Batch, Sequence[RunRow]]]:
        """Answer every batch as `answer_batch` does, and yield each as soon as it is there, in any order.

        What works for it has ended when the generator has, or was closed.
        """


def evaluate(
    methods: Mapping[str, Method] | Engine,
    questions: Sequence[Question],
    *,
    store: RunStore | None = None,
    progress: Callable[[Progress], None] | None = None,
    retry_failed: bool = False,
    seed: int = 0,
    matcher: Matcher | None = None,
    baseline: str | None = None,
) -> Report:
    """Ask every method every question that the store has no answer to yet, and report on all of them.

    Each answer is committed as soon as it is there. A question at which a method raises a `PytraceError` is kept as
    failed, with the message, and counts as wrong; if a whole batch raises, its questions are asked one by one. Errors
    of the set-up (a missing package, model, device or log-probabilities, an unusable store) and all other exceptions
    end the evaluation; the answers so far are safe, and the next call goes on behind them.

    Parameters
    ----------
    methods
        By name, what answers one question, or a `Batched` that answers several; or an engine, which has others answer.
        The questions are divided into the same batches, handed out in the same order, whoever answers.
    questions
        What to ask; ids must be unique.
    store
        A store with a run opened by `RunStore.open_run`; memory if not given. This process alone writes it.
    progress
        Is called once for each method before the first question, and after each question or batch.
    retry_failed
        Ask again the questions that failed in an earlier process.
    seed
        For the bootstrap.
    matcher
        For studies of perturbed evidence: see `pytrace.evaluation.scores.summary.score_run`.
    baseline
        The method that the others are compared with.

    Returns
    -------
    Report
        On these methods and these questions, what earlier processes answered included.

    Raises
    ------
    InputError
        There is no method or question, two questions have one id, a batch size is below 1, or the baseline is no method.
    StoreError
        The store cannot be used, or its answer to an id is to another question.
    WorkerError
        A process of an engine ended before its time.

    Examples
    --------
    >>> from pytrace.results import Findings
    >>> question = Question("q1", "Where is Ada Foah?", ("Ghana",))
    >>> guess = lambda asked: Result(question=asked.question, answer="Ghana", evidence=Findings(kind="none"))
    >>> report = evaluate({"guess": guess}, [question])
    >>> report.methods[0].exact_match
    1.0
    """
    engine = _Here(methods) if isinstance(methods, Mapping) else methods
    _check(engine.sizes, questions, baseline)
    if store is None:
        store = RunStore(":memory:")
        store.open_run({})
    states: dict[str, Progress] = {}
    batches: list[Batch] = []
    for name, size in engine.sizes.items():
        waiting, states[name] = _waiting(name, questions, store, retry_failed=retry_failed)
        batches += [Batch(name, tuple(waiting[start : start + size])) for start in range(0, len(waiting), size)]
    store.keep_questions(questions)
    note = progress or (lambda _: None)
    for state in states.values():
        note(state)
    if batches:
        # Closed also where an answer cannot be saved, so that an engine's processes do not outlive the run.
        with closing(engine.results(batches)) as answered:
            for batch, rows in answered:
                for row in rows:
                    store.save(batch.method, row.question_id, row)
                state = states[batch.method]
                failed = state.failed + sum(row.result is None for row in rows)
                state = msgspec.structs.replace(state, done=state.done + len(rows), failed=failed)
                states[batch.method] = state
                note(state)
    return score_run(store, methods=list(engine.sizes), gold=questions, seed=seed, matcher=matcher, baseline=baseline)


def batch_sizes(methods: Mapping[str, Method]) -> dict[str, int]:
    """Return how many questions each method is asked together, for engines."""
    return {name: method.size if isinstance(method, Batched) else 1 for name, method in methods.items()}


def answer_batch(methods: Mapping[str, Method], batch: Batch) -> list[RunRow]:
    """Ask a method the questions of a batch; a question that it cannot answer has a row too."""
    name, method = batch.method, methods[batch.method]
    if isinstance(method, Batched):
        answers = _answers(name, method.answer, batch.questions)
    else:
        ask = method
        answers = [_answers(name, lambda asked: [ask(*asked)], [question])[0] for question in batch.questions]
    return [_row(name, question, answer) for question, answer in zip(batch.questions, answers, strict=True)]


class _Here:
    """Answers in this process, one batch after another."""

    def __init__(self, methods: Mapping[str, Method]) -> None:
        self._methods = methods
        self.sizes = batch_sizes(methods)

    def results(self, batches: Sequence[Batch]) -> Generator[tuple[Batch, Sequence[RunRow]]]:
        for batch in batches:
            yield batch, answer_batch(self._methods, batch)


def _check(sizes: Mapping[str, int], questions: Sequence[Question], baseline: str | None) -> None:
    if not sizes or not questions:
        raise InputError(
            f"{len(sizes)} methods and {len(questions)} questions were given; an evaluation needs one of each"
        )
    seen: set[str] = set()
    for question in questions:
        if question.id in seen:
            raise InputError(f"question id {question.id!r} occurs twice; give each question an id of its own")
        seen.add(question.id)
        if not question.answers and not question.supporting_documents:
            raise InputError(
                f"question {question.id!r} has no gold answer and no supporting document, so nothing can be scored; leave it out"
            )
    for name, size in sizes.items():
        if size < 1:
            raise InputError(f"the batch size of {name} is {size}; it must be at least 1")
    if baseline is not None and baseline not in sizes:
        raise InputError(f"the baseline {baseline!r} is none of the methods; choose one of {', '.join(sizes)}")


def _waiting(
    name: str, questions: Sequence[Question], store: RunStore, *, retry_failed: bool
) -> tuple[list[Question], Progress]:
    """Return the questions that a method has still to be asked, and how far it is."""
    by_id = {question.id: question for question in questions}
    failed = 0
    done: set[str] = set()
    for row in store.rows(name):
        if row.question_id not in by_id:
            continue
        if row.question != by_id[row.question_id].question:
            raise StoreError(
                f"{store.path} answers another question under the id {row.question_id!r}; "
                "evaluate these questions into another file"
            )
        if row.result is None and retry_failed:
            continue
        done.add(row.question_id)
        failed += row.result is None
    waiting = [question for question in questions if question.id not in done]
    return waiting, Progress(name, len(done), len(questions), len(done), failed)


def _answers(
    name: str, ask: Callable[[Sequence[Question]], Sequence[Result]], questions: Sequence[Question]
) -> Sequence[Result | PytraceError]:
    try:
        answers = ask(questions)
    except _FATAL:
        raise
    except PytraceError as error:
        if len(questions) == 1:
            return [error]
        # One by one, so that only the question that is at fault has no answer.
        return [_answers(name, ask, [question])[0] for question in questions]
    if len(answers) != len(questions):
        raise ValueError(f"method {name} gave {len(answers)} answers to {len(questions)} questions")
    return answers


def _row(name: str, question: Question, answer: object) -> RunRow:
    if not isinstance(answer, Result | PytraceError):
        raise TypeError(f"method {name} gave a {type(answer).__name__} and not a Result to question {question.id!r}")
    return RunRow(
        method=name,
        question_id=question.id,
        question=question.question,
        answers=question.answers,
        supporting_documents=question.supporting_documents,
        kind=question.kind,
        result=answer if isinstance(answer, Result) else None,
        error="" if isinstance(answer, Result) else f"{type(answer).__name__}: {answer}",
        perturbation=question.perturbation,
    )
