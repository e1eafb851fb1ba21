"""Sum up results: how good each method's answers and evidence are, what they cost, and whether methods differ."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from pytrace.evaluation.claim_scores import ClaimScores, claim_scores
from pytrace.evaluation.knowledge_scores import KnowledgeScores, knowledge_scores
from pytrace.evaluation.metrics import (
    BootstrapTest,
    McNemarTest,
    Mean,
    SupportScore,
    exact_match,
    f1_score,
    mcnemar,
    mean_of,
    paired_bootstrap,
    support_score,
)
from pytrace.evaluation.store import Result, RunStore
from pytrace.evaluation.study import Matcher, Study, study_results
from pytrace.records import Usage


class Quantity(msgspec.Struct, frozen=True):
    """Something that adds up over the `n` answered questions; mean and median are None if there is none."""

    total: float
    mean: float | None
    median: float | None
    n: int


class Failure(msgspec.Struct, frozen=True):
    """A question without an answer, and why."""

    question_id: str
    error: str


class KindScore(msgspec.Struct, frozen=True):
    """The answer scores on the questions of one kind."""

    n: int
    exact_match: float
    f1: float


class MethodSummary(msgspec.Struct, frozen=True):
    """How one method did on `n` questions.

    A failed question counts as a wrong answer: EM and F1 0, no document chosen. Costs are of the answered questions,
    for a failed one tells none. Scores lie between 0 and 1; what is not defined is None.

    `evaluated_share` is evaluated over asked-for tokens, of all questions together, and `evaluated_share_by_question`
    the mean and median of each question's own. `seconds_by_stage` and `usage_by_stage` are totals.
    """

    method: str
    n: int
    failed: int
    exact_match: float | None
    f1: float | None
    supporting_precision: Mean
    supporting_recall: Mean
    supporting_f1: Mean
    supporting_error_rate: Mean
    context_tokens: Quantity
    calls: Quantity
    prompt_tokens: Quantity
    evaluated_tokens: Quantity
    generated_tokens: Quantity
    evaluated_share: float | None
    evaluated_share_by_question: Mean
    seconds: Quantity
    seconds_by_stage: dict[str, float]
    usage_by_stage: dict[str, Usage]
    by_kind: dict[str, KindScore]
    failures: tuple[Failure, ...] = ()


class Comparison(msgspec.Struct, frozen=True):
    """How two methods differ on the questions that both were asked; differences are first minus second."""

    first: str
    second: str
    exact_match: BootstrapTest
    f1: BootstrapTest
    exact_match_mcnemar: McNemarTest


class Report(msgspec.Struct, frozen=True):
    """The outcome of an evaluation: settings, a summary of each method, and every pair of methods compared.

    `studies` has each method's study of perturbed evidence, where the questions were perturbed, and `claims` its labels, where
    all questions are claims; `knowledge` has what each method asked a knowledge base, where it asked one.
    """

    questions: int
    methods: tuple[MethodSummary, ...]
    comparisons: tuple[Comparison, ...] = ()
    settings: dict[str, Any] = {}
    notes: dict[str, Any] = {}
    studies: tuple[Study, ...] = ()
    claims: tuple[ClaimScores, ...] = ()
    knowledge: tuple[KnowledgeScores, ...] = ()


def score_run(
    store: RunStore,
    *,
    methods: Sequence[str] | None = None,
    questions: Iterable[str] | None = None,
    seed: int = 0,
    matcher: Matcher | None = None,
) -> Report:
    """Score the answers that a store holds; no model is needed, unless one is to match the answers of a study.

    Parameters
    ----------
    store
        A run, finished or not.
    methods
        Which methods to report, in this order; all of them if not given.
    questions
        Ids of the questions to score; all that are stored if not given.
    seed
        For the bootstrap.
    matcher
        Tells for a study of perturbed evidence whether two answers are the same; by words if not given.

    Returns
    -------
    Report
        Made anew from the stored answers and gold.

    Raises
    ------
    StoreError
        There is no run, or it cannot be read.
    """
    wanted = None if questions is None else set(questions)
    results = {
        method: [row for row in store.rows(method) if wanted is None or row.question_id in wanted]
        for method in (store.methods() if methods is None else methods)
    }
    return make_report(results, settings=store.settings, notes=store.notes, seed=seed, matcher=matcher)


def make_report(
    results: Mapping[str, Sequence[Result]],
    *,
    settings: Mapping[str, Any] | None = None,
    notes: Mapping[str, Any] | None = None,
    seed: int = 0,
    matcher: Matcher | None = None,
) -> Report:
    """Summarise the results of each method, and compare every two methods on their common questions.

    Parameters
    ----------
    results
        Each method's results.
    settings, notes
        Are copied into the report.
    seed
        For the bootstrap.
    matcher
        For studies of perturbed evidence: see `score_run`.

    Returns
    -------
    Report
        With finite numbers and None only, so that it is valid JSON.
    """
    scores = {method: {row.question_id: _answer_score(row) for row in rows} for method, rows in results.items()}
    comparisons = [
        _compare(first, scores[first], second, scores[second], seed)
        for first, second in itertools.combinations(scores, 2)
    ]
    return Report(
        questions=len({question for own in scores.values() for question in own}),
        methods=tuple(_summarise(method, rows, scores[method]) for method, rows in results.items()),
        comparisons=tuple(comparisons),
        settings=dict(settings or {}),
        notes=dict(notes or {}),
        studies=tuple(
            study
            for study in (study_results(method, rows, matcher=matcher) for method, rows in results.items())
            if study is not None
        ),
        claims=tuple(
            scored for scored in (claim_scores(method, rows) for method, rows in results.items()) if scored is not None
        ),
        knowledge=tuple(
            asked for asked in (knowledge_scores(method, rows) for method, rows in results.items()) if asked is not None
        ),
    )


class _AnswerScore(msgspec.Struct, frozen=True):
    exact_match: float
    f1: float


def _answer_score(result: Result) -> _AnswerScore:
    if result.answer is None:
        return _AnswerScore(0.0, 0.0)
    text = result.answer.text
    return _AnswerScore(exact_match(text, result.answers), f1_score(text, result.answers).f1)


def _support(result: Result) -> SupportScore:
    chosen = () if result.answer is None else result.answer.evidence.document_ids
    return support_score(chosen, result.supporting_documents)


def _summarise(method: str, results: Sequence[Result], scores: Mapping[str, _AnswerScore]) -> MethodSummary:
    support = [_support(result) for result in results]
    answers = [result.answer for result in results if result.answer is not None]
    usages = [sum(answer.usage.values(), Usage()) for answer in answers]

    def quantity(count: Callable[[Usage], int]) -> Quantity:
        return _quantity([count(usage) for usage in usages])

    prompt, evaluated = quantity(lambda usage: usage.prompt_tokens), quantity(lambda usage: usage.evaluated_tokens)
    usage_by_stage: dict[str, Usage] = {}
    seconds_by_stage: dict[str, float] = {}
    for answer in answers:
        for stage, usage in answer.usage.items():
            usage_by_stage[stage] = usage_by_stage.get(stage, Usage()) + usage
        for stage, seconds in answer.seconds.items():
            seconds_by_stage[stage] = seconds_by_stage.get(stage, 0.0) + seconds
    return MethodSummary(
        method=method,
        n=len(results),
        failed=len(results) - len(answers),
        exact_match=mean_of(score.exact_match for score in scores.values()).mean,
        f1=mean_of(score.f1 for score in scores.values()).mean,
        supporting_precision=mean_of(score.precision for score in support),
        supporting_recall=mean_of(score.recall for score in support),
        supporting_f1=mean_of(score.f1 for score in support),
        supporting_error_rate=mean_of(score.error_rate for score in support),
        context_tokens=_quantity([answer.context_tokens for answer in answers]),
        calls=quantity(lambda usage: usage.calls),
        prompt_tokens=prompt,
        evaluated_tokens=evaluated,
        generated_tokens=quantity(lambda usage: usage.generated_tokens),
        evaluated_share=evaluated.total / prompt.total if prompt.total else None,
        evaluated_share_by_question=mean_of(
            usage.evaluated_tokens / usage.prompt_tokens if usage.prompt_tokens else None for usage in usages
        ),
        seconds=_quantity([sum(answer.seconds.values()) for answer in answers]),
        seconds_by_stage=seconds_by_stage,
        usage_by_stage=usage_by_stage,
        by_kind=_by_kind(results, scores),
        failures=tuple(Failure(result.question_id, result.error) for result in results if result.answer is None),
    )


def _quantity(values: Sequence[float]) -> Quantity:
    mean = mean_of(values)
    return Quantity(sum(values), mean.mean, mean.median, mean.n)


def _by_kind(results: Sequence[Result], scores: Mapping[str, _AnswerScore]) -> dict[str, KindScore]:
    groups: dict[str, list[_AnswerScore]] = {}
    for result in results:
        if result.kind:
            groups.setdefault(result.kind, []).append(scores[result.question_id])
    return {
        kind: KindScore(
            len(own), sum(score.exact_match for score in own) / len(own), sum(score.f1 for score in own) / len(own)
        )
        for kind, own in sorted(groups.items())
    }


def _compare(
    first: str, own: Mapping[str, _AnswerScore], second: str, other: Mapping[str, _AnswerScore], seed: int
) -> Comparison:
    common = [question for question in own if question in other]
    em = ([own[question].exact_match for question in common], [other[question].exact_match for question in common])
    f1 = ([own[question].f1 for question in common], [other[question].f1 for question in common])
    return Comparison(
        first,
        second,
        exact_match=paired_bootstrap(*em, seed=seed),
        f1=paired_bootstrap(*f1, seed=seed),
        exact_match_mcnemar=mcnemar([bool(score) for score in em[0]], [bool(score) for score in em[1]]),
    )
