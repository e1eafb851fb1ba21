"""Ask methods every question of a data set, keep each answer as soon as it is there, and report."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

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
from pytrace.evaluation.report import Report, score_run
from pytrace.evaluation.store import Result, RunStore, file_settings
from pytrace.evaluation.study import Matcher
from pytrace.records import Answer, Question

__all__ = ["Batched", "Progress", "Result", "RunStore", "evaluate", "file_settings"]

# These tell of the set-up and not of the question: the next question would fail in the same way.
_FATAL = (StoreError, MissingDependencyError, ModelFileError, DeviceUnavailableError, LogitsUnavailableError)


class Batched(msgspec.Struct, frozen=True):
    """A method that answers several questions in one call, so that their model work can be batched.

    `answer` gives one answer for each question, in order; at most `size` questions are in flight, and their answers are
    kept together when the call returns.
    """

    answer: Callable[[Sequence[Question]], Sequence[Answer]]
    size: int = 8


class Progress(msgspec.Struct, frozen=True):
    """How far an evaluation is: `done` of `total` questions of `method`, `resumed` of them in an earlier process."""

    method: str
    done: int
    total: int
    resumed: int
    failed: int


Method = Callable[[Question], Answer] | Batched


def evaluate(
    methods: Mapping[str, Method],
    questions: Sequence[Question],
    *,
    store: RunStore | None = None,
    progress: Callable[[Progress], None] | None = None,
    retry_failed: bool = False,
    seed: int = 0,
    matcher: Matcher | None = None,
) -> Report:
    """Ask every method every question that the store has no answer to yet, and report on all of them.

    Each answer is committed as soon as it is there. A question at which a method raises a `PytraceError` is kept as
    failed, with the message, and counts as wrong; if a whole batch raises, its questions are asked one by one. Errors
    of the set-up (a missing package, model, device or log-probabilities, an unusable store) and all other exceptions
    end the evaluation; the answers so far are safe, and the next call goes on behind them.

    Parameters
    ----------
    methods
        By name, what answers one question, or a `Batched` that answers several.
    questions
        What to ask; ids must be unique.
    store
        A store with a run opened by `RunStore.open_run`; memory if not given.
    progress
        Is called once when a method begins, and after each question or batch.
    retry_failed
        Ask again the questions that failed in an earlier process.
    seed
        For the bootstrap.
    matcher
        For studies of perturbed evidence: see `pytrace.evaluation.report.score_run`.

    Returns
    -------
    Report
        On these methods and these questions, what earlier processes answered included.

    Raises
    ------
    InputError
        There is no method or question, two questions have one id, or a batch size is below 1.
    StoreError
        The store cannot be used, or its answer to an id is to another question.

    Examples
    --------
    >>> from pytrace.records import Evidence
    >>> question = Question("q1", "Where is Ada Foah?", ("Ghana",))
    >>> report = evaluate({"guess": lambda q: Answer(q.question, "Ghana", "guess", Evidence("documents", (), ()))}, [question])
    >>> report.methods[0].exact_match
    1.0
    """
    _check(methods, questions)
    if store is None:
        store = RunStore(":memory:")
        store.open_run({})
    ids = [question.id for question in questions]
    for name, method in methods.items():
        _run_method(name, method, questions, store, progress, retry_failed=retry_failed)
    return score_run(store, methods=list(methods), questions=ids, seed=seed, matcher=matcher)


def _check(methods: Mapping[str, Method], questions: Sequence[Question]) -> None:
    if not methods or not questions:
        message = f"{len(methods)} methods and {len(questions)} questions were given; an evaluation needs one of each"
        raise InputError(message)
    seen: set[str] = set()
    for question in questions:
        if question.id in seen:
            message = f"question id {question.id!r} occurs twice; give each question an id of its own"
            raise InputError(message)
        seen.add(question.id)
        if not question.answers:
            message = f"question {question.id!r} has no gold answer, so nothing can be scored; leave it out"
            raise InputError(message)
    for name, method in methods.items():
        if isinstance(method, Batched) and method.size < 1:
            message = f"the batch size of {name} is {method.size}; it must be at least 1"
            raise InputError(message)


def _run_method(
    name: str,
    method: Method,
    questions: Sequence[Question],
    store: RunStore,
    progress: Callable[[Progress], None] | None,
    *,
    retry_failed: bool,
) -> None:
    by_id = {question.id: question for question in questions}
    failed = 0
    done: set[str] = set()
    for row in store.rows(name):
        if row.question_id not in by_id:
            continue
        if row.question != by_id[row.question_id].question:
            message = (
                f"{store.path} answers another question under the id {row.question_id!r}; "
                "evaluate these questions into another file"
            )
            raise StoreError(message)
        if row.answer is None and retry_failed:
            continue
        done.add(row.question_id)
        failed += row.answer is None
    open_questions = [question for question in questions if question.id not in done]
    finished = resumed = len(done)

    def tell() -> None:
        if progress is not None:
            progress(Progress(name, finished, len(questions), resumed, failed))

    tell()
    size = method.size if isinstance(method, Batched) else 1
    for start in range(0, len(open_questions), size):
        for result in _results(name, method, open_questions[start : start + size]):
            store.save(name, result.question_id, result)
            finished += 1
            failed += result.answer is None
        tell()


def _results(name: str, method: Method, questions: Sequence[Question]) -> Iterator[Result]:
    if isinstance(method, Batched):
        for question, answer in zip(questions, _answers(name, method, questions), strict=True):
            yield _result(name, question, answer)
        return
    for question in questions:
        yield _result(name, question, _answer(method, question))


def _answer(method: Callable[[Question], Answer], question: Question) -> Answer | PytraceError:
    try:
        return method(question)
    except _FATAL:
        raise
    except PytraceError as error:
        return error


def _answers(name: str, method: Batched, questions: Sequence[Question]) -> Sequence[Answer | PytraceError]:
    try:
        answers = method.answer(questions)
    except _FATAL:
        raise
    except PytraceError as error:
        if len(questions) == 1:
            return [error]
        return [answer for question in questions for answer in _answers(name, method, [question])]
    if len(answers) != len(questions):
        message = f"method {name} gave {len(answers)} answers to {len(questions)} questions"
        raise ValueError(message)
    return answers


def _result(name: str, question: Question, answer: object) -> Result:
    if not isinstance(answer, Answer | PytraceError):
        message = f"method {name} gave a {type(answer).__name__} and not an Answer to question {question.id!r}"
        raise TypeError(message)
    return Result(
        method=name,
        question_id=question.id,
        question=question.question,
        answers=question.answers,
        supporting_documents=question.supporting_documents,
        kind=question.kind,
        answer=answer if isinstance(answer, Answer) else None,
        error="" if isinstance(answer, Answer) else f"{type(answer).__name__}: {answer}",
        perturbation=question.perturbation,
    )
