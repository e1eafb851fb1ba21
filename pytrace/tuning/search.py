"""A search over a method's settings: one choice after the other, each option measured on the same questions.

Coordinate ascent with racing: an option that is surely worse than the best so far is not asked the remaining questions.
The winner is then compared with the start on questions that had no part in the search, for a search always finds
something, and some of it is chance.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, get_args

import msgspec
import numpy as np

from pytrace.errors import InputError
from pytrace.evaluation.run.run_store import Result, RunStore
from pytrace.evaluation.run.runner import Batched, evaluate
from pytrace.evaluation.scores.metrics import score_result
from pytrace.evaluation.scores.significance import BootstrapTest, paired_bootstrap, resampled_means
from pytrace.methods.catalog import MethodName, method_settings
from pytrace.records import Question
from pytrace.tuning.spaces import Choice, Option

Objective = Literal["f1", "em", "support", "f1+support"]
# An option is asked no further once a better mean of the best so far is this sure (one-sided paired bootstrap).
_GIVE_UP = 0.02
_FIRST_BLOCK = 24
_PASSES = 3


class Trial(msgspec.Struct, frozen=True):
    """What one setting was worth: means over the `n` questions that it was asked, of `of`.

    `changed` is what differs from where the search began; `outcome` says what the search made of it.
    """

    method: str
    changed: tuple[str, ...]
    n: int
    of: int
    objective: float
    exact_match: float
    f1: float
    support_recall: float | None
    support_error_rate: float | None
    context_tokens: float
    outcome: Literal["start", "better", "no better", "given up"]


class Tuned(msgspec.Struct, frozen=True):
    """What a search found: the settings that differ from the start, every trial, and the comparison on held-out questions.

    `method` names the winner so that 'pytrace eval' takes it. `held_out` is the winner minus the start by the objective, None
    without held-out questions; `held_out_scores` has the means of both there: (EM, F1) of the start, then of the winner.
    """

    method: str
    settings: tuple[str, ...]
    objective: Objective
    questions: int
    held_out_questions: int
    trials: tuple[Trial, ...]
    held_out: BootstrapTest | None = None
    held_out_scores: tuple[tuple[float, float], tuple[float, float]] | None = None


def tune(
    method: MethodName,
    make: Callable[[MethodName], Batched],
    space: Sequence[Choice],
    questions: Sequence[Question],
    *,
    llm: str,
    store: RunStore,
    objective: Objective = "f1+support",
    held_out: Sequence[Question] = (),
    passes: int = _PASSES,
    told: Callable[[Trial], None] | None = None,
    seed: int = 0,
) -> Tuned:
    """Search for the settings of a method that do best on questions.

    Parameters
    ----------
    method
        Where the search begins: a method with the settings of its own, if any.
    make
        Makes the method with given settings; called once a trial. A model that remembers what it was asked
        (`pytrace.models.response_cache`) makes most trials nearly free.
    space
        What to choose, in this order.
    questions
        What the search is scored on.
    llm
        The language model as the user named it, for the settings that a method has by default.
    store
        A run opened for writing; every answer is kept as it is there, and trials that are in it are not asked again.
    objective
        "f1" or "em" of answers, "support" (F1 of the supporting documents), or the mean of "f1" and "support", which is far
        less at the mercy of chance where evidence is chosen.
    held_out
        Questions for the comparison of the winner with the start.
    passes
        Go over the space at most so often; a pass that changes nothing is the last.
    told
        Called with each trial.
    seed
        For the bootstrap.

    Returns
    -------
    Tuned
        An option replaces the best so far only if its mean is higher; among equals the earlier wins.

    Raises
    ------
    InputError
        There are no questions or choices, or a question has no supporting documents where the objective needs them.
    StoreError
        The store cannot be used.
    """
    _check(space, questions, objective, passes)
    search = _Search(method, make, questions, llm, store, objective, seed)
    best = Option()
    known = {_canonical(method, llm, best): search.measured(best, None)}
    start = search.trial(best, known[_canonical(method, llm, best)], "start")
    trials = [start]
    if told is not None:
        told(start)
    for _ in range(passes):
        before = best
        for choice in space:
            for option in choice.options:
                tried = _merged(best, option)
                key = _canonical(method, llm, tried)
                if key in known:
                    continue
                leader = known[_canonical(method, llm, best)]
                known[key] = search.measured(tried, leader)
                complete = len(known[key]) == len(questions)
                better = complete and _mean(known[key]) > _mean(leader) + 1e-12
                trial = search.trial(tried, known[key], "better" if better else "no better" if complete else "given up")
                trials.append(trial)
                if told is not None:
                    told(trial)
                if better:
                    best = tried
        if best == before:
            break
    compared = _compared(search, best, held_out) if held_out and best else (None, None)
    return Tuned(
        method=search.named(best).label,
        settings=best,
        objective=objective,
        questions=len(questions),
        held_out_questions=len(held_out),
        trials=tuple(trials),
        held_out=compared[0],
        held_out_scores=compared[1],
    )


def _check(space: Sequence[Choice], questions: Sequence[Question], objective: str, passes: int) -> None:
    if objective not in get_args(Objective):
        raise InputError(f"there is no objective {objective!r}; choose one of {', '.join(get_args(Objective))}")
    if not questions or not space or passes < 1:
        raise InputError(
            f"a search needs questions, choices and a pass, and got {len(questions)}, {len(space)} and {passes}"
        )
    without = [question.id for question in questions if not question.supporting_documents]
    if without and "support" in objective:
        raise InputError(
            f"{len(without)} of {len(questions)} questions (such as {without[0]!r}) name no supporting documents, by which "
            f"the objective {objective!r} scores; use --objective f1"
        )


class _Search:
    """Asks trials, and scores what they answered."""

    def __init__(
        self,
        method: MethodName,
        make: Callable[[MethodName], Batched],
        questions: Sequence[Question],
        llm: str,
        store: RunStore,
        objective: Objective,
        seed: int,
    ) -> None:
        self._method = method
        self._make = make
        self._questions = questions
        self._llm = llm
        self._store = store
        self._objective = objective
        self.seed = seed

    def named(self, settings: Option) -> MethodName:
        """Name the method with some settings changed."""
        return MethodName(self._method.name, _merged(self._method.overrides, settings))

    def measured(self, settings: Option, leader: Mapping[str, float] | None) -> dict[str, float]:
        """Ask a trial the questions, block by block, until it is surely worse than the leader."""
        label = self.named(settings).label
        method = self._make(self.named(settings))
        scores: dict[str, float] = {}
        size = _FIRST_BLOCK
        for start in _blocks(len(self._questions)):
            block = self._questions[start : start + size]
            size *= 2
            evaluate({label: method}, block, store=self._store, seed=self.seed)
            scores = self.scores(label, self._questions)
            if leader is not None and len(scores) < len(self._questions) and self._worse(scores, leader):
                break
        return scores

    def scores(self, label: str, questions: Sequence[Question]) -> dict[str, float]:
        """Return the objective of each question that a trial has been asked."""
        ids = {question.id for question in questions}
        return {row.question_id: self._score(row) for row in self._store.rows(label) if row.question_id in ids}

    def trial(
        self,
        settings: Option,
        scores: Mapping[str, float],
        outcome: Literal["start", "better", "no better", "given up"],
    ) -> Trial:
        """Sum up a trial."""
        label = self.named(settings).label
        rows = [row for row in self._store.rows(label) if row.question_id in scores]
        scored = [score_result(row) for row in rows]
        support = [one.support for one in scored]
        return Trial(
            method=label,
            changed=settings,
            n=len(rows),
            of=len(self._questions),
            objective=_mean(scores),
            exact_match=_average([one.exact_match or 0.0 for one in scored]) or 0.0,
            f1=_average([one.f1 or 0.0 for one in scored]) or 0.0,
            support_recall=_average([one.recall for one in support if one.recall is not None]),
            support_error_rate=_average([one.error_rate for one in support if one.error_rate is not None]),
            context_tokens=_average([float(row.answer.context_tokens) for row in rows if row.answer is not None])
            or 0.0,
            outcome=outcome,
        )

    def _worse(self, scores: Mapping[str, float], leader: Mapping[str, float]) -> bool:
        shared = [question for question in scores if question in leader]
        own = np.array([scores[question] - leader[question] for question in shared])
        if own.mean() >= 0:
            return False
        return bool((resampled_means(own, 2000, self.seed) >= 0).mean() < _GIVE_UP)

    def _score(self, row: Result) -> float:
        scored = score_result(row)
        support, f1 = scored.support.f1 or 0.0, scored.f1 or 0.0
        by_objective = {"em": scored.exact_match or 0.0, "f1": f1, "support": support, "f1+support": (f1 + support) / 2}
        return by_objective[self._objective]

    def asked(self, settings: Option, questions: Sequence[Question]) -> list[Result]:
        """Ask a trial all of some questions, in their order."""
        label = self.named(settings).label
        evaluate({label: self._make(self.named(settings))}, questions, store=self._store, seed=self.seed)
        rows = {row.question_id: row for row in self._store.rows(label)}
        return [rows[question.id] for question in questions]

    def compared(
        self, first: Sequence[Result], second: Sequence[Result]
    ) -> tuple[BootstrapTest, tuple[tuple[float, float], tuple[float, float]]]:
        """Compare two lists of results by the objective, first minus second."""
        test = paired_bootstrap(
            [self._score(row) for row in first], [self._score(row) for row in second], seed=self.seed
        )
        own, other = (
            (
                _average([score_result(row).exact_match or 0.0 for row in rows]) or 0.0,
                _average([score_result(row).f1 or 0.0 for row in rows]) or 0.0,
            )
            for rows in (first, second)
        )
        return test, (other, own)


def _compared(
    search: _Search, best: Option, held_out: Sequence[Question]
) -> tuple[BootstrapTest, tuple[tuple[float, float], tuple[float, float]]]:
    return search.compared(search.asked(best, held_out), search.asked(Option(), held_out))


def _blocks(count: int) -> list[int]:
    """Return where blocks begin that double in size."""
    starts, start, size = [], 0, _FIRST_BLOCK
    while start < count:
        starts.append(start)
        start += size
        size *= 2
    return starts


def _merged(settings: Option, option: Option) -> Option:
    """Return settings with an option's in the place of those of the same name."""
    names = {one.partition("=")[0] for one in option}
    return (*(one for one in settings if one.partition("=")[0] not in names), *option)


def _canonical(method: MethodName, llm: str, settings: Option) -> bytes:
    """Return all settings in one form, so that what is spelt in two ways is tried once."""
    return msgspec.json.encode(method_settings(MethodName(method.name, _merged(method.overrides, settings)), llm))


def _mean(scores: Mapping[str, float]) -> float:
    return sum(scores.values()) / len(scores) if scores else 0.0


def _average(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
