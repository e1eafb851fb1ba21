"""A search over a method's settings: one choice after the other, each option measured on the same questions.

Coordinate ascent with racing: an option that is surely worse than the best so far is not asked the remaining questions.
The winner is then compared with the start on questions that had no part in the search, for a search always finds
something, and some of it is chance.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import msgspec
import numpy as np

from pytrace.errors import InputError
from pytrace.evaluation.run.run_store import RunRow, RunStore
from pytrace.evaluation.run.runner import Batched, evaluate
from pytrace.evaluation.scores.metrics import score_row
from pytrace.evaluation.scores.significance import BootstrapTest, paired_bootstrap, resampled_means
from pytrace.methods.abilities import CAPABLE, ModelAbilities
from pytrace.methods.base import READER_CHOICE, Choice, Option, choice
from pytrace.methods.catalog import MethodName, method_row, method_settings
from pytrace.records import Question

Objective = Literal["f1", "em", "support", "f1+support"]
Outcome = Literal["start", "better", "no better", "given up"]
_Pair = tuple[float, float]

# An option is asked no further once a better mean of the best so far is this sure (one-sided paired bootstrap).
_GIVE_UP = 0.02
# Whether an option is given up is looked at after so many questions, and then whenever their number has more than doubled: every
# look is a chance to be wrong.
_FIRST_BLOCK = 24
# Settings depend on each other, so that what one pass turned down may win in the next.
_PASSES = 3


class Trial(msgspec.Struct, frozen=True):
    """What one setting was worth: means over the questions that it was asked."""

    method: str
    changed: tuple[str, ...]  # what differs from where the search began
    n: int  # questions that were asked, fewer than `of` if it was given up
    of: int
    objective: float
    exact_match: float
    f1: float
    support_recall: float | None
    support_error_rate: float | None
    context_tokens: float
    outcome: Outcome


class Tuned(msgspec.Struct, frozen=True):
    """What a search found: the settings that differ from the start, every trial, and the comparison on held-out questions."""

    method: str  # the winner, as 'pytrace eval' takes it
    settings: tuple[str, ...]
    objective: Objective
    questions: int
    held_out_questions: int
    trials: tuple[Trial, ...]
    held_out: BootstrapTest | None = None  # the winner minus the start by the objective, if anything was held out
    held_out_scores: tuple[_Pair, _Pair] | None = None  # mean EM and F1 there: of the start, then of the winner


def tune(
    method: MethodName,
    make: Callable[[MethodName], Batched],
    space: Sequence[Choice],
    questions: Sequence[Question],
    *,
    abilities: ModelAbilities,
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
    abilities
        What the language model can do, for the settings that a method has by default.
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
    search = _Search(method, make, questions, store, objective, seed)
    best = Option()
    # Scores by canonical settings: what is spelt in two ways is tried once.
    known = {_canonical(method, abilities, best): search.measured(best, None)}
    trials: list[Trial] = []

    def report(settings: Option, scores: Mapping[str, float], outcome: Outcome) -> None:
        trials.append(search.trial(settings, scores, outcome))
        if told is not None:
            told(trials[-1])

    report(best, known[_canonical(method, abilities, best)], "start")
    for _ in range(passes):
        before = best
        for option in itertools.chain.from_iterable(each.options for each in space):
            candidate = _merged(best, option)
            key = _canonical(method, abilities, candidate)
            if key in known:
                continue
            leader = known[_canonical(method, abilities, best)]
            scores = known[key] = search.measured(candidate, leader)
            complete = len(scores) == len(questions)
            # Equal sums in another order may differ in the last bits, and the earlier setting is to win then.
            better = complete and _mean(scores) > _mean(leader) + 1e-12
            report(candidate, scores, "better" if better else "no better" if complete else "given up")
            if better:
                best = candidate
        if best == before:
            break
    test, held_out_scores = search.compared(best, held_out) if held_out and best else (None, None)
    return Tuned(
        method=search.named(best).label,
        settings=best,
        objective=objective,
        questions=len(questions),
        held_out_questions=len(held_out),
        trials=tuple(trials),
        held_out=test,
        held_out_scores=held_out_scores,
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


@dataclass(frozen=True)
class _Search:
    """Asks trials, and scores what they answered."""

    method: MethodName
    make: Callable[[MethodName], Batched]
    questions: Sequence[Question]
    store: RunStore
    objective: Objective
    seed: int

    def named(self, settings: Option) -> MethodName:
        """Name the method with some settings changed."""
        return MethodName(self.method.name, _merged(self.method.overrides, settings))

    def measured(self, settings: Option, leader: Mapping[str, float] | None) -> dict[str, float]:
        """Ask a trial the questions, block by block, until it is surely worse than the leader."""
        label = self.named(settings).label
        method = self.make(self.named(settings))
        scores: dict[str, float] = {}
        start, size = 0, _FIRST_BLOCK
        while start < len(self.questions):
            evaluate({label: method}, self.questions[start : start + size], store=self.store, seed=self.seed)
            scores = self.scores(label)
            if leader is not None and len(scores) < len(self.questions) and self._worse(scores, leader):
                break
            start, size = start + size, 2 * size
        return scores

    def scores(self, label: str) -> dict[str, float]:
        """Return the objective of each question that a trial has been asked."""
        # The store may hold answers to other questions, of the comparison on held-out ones or of an earlier search.
        ids = {question.id for question in self.questions}
        return {row.question_id: self._score(row) for row in self.store.rows(label) if row.question_id in ids}

    def trial(self, settings: Option, scores: Mapping[str, float], outcome: Outcome) -> Trial:
        """Sum up a trial."""
        label = self.named(settings).label
        rows = [row for row in self.store.rows(label) if row.question_id in scores]
        scored = [score_row(row) for row in rows]
        support = [score.support for score in scored]
        return Trial(
            method=label,
            changed=settings,
            n=len(rows),
            of=len(self.questions),
            objective=_mean(scores),
            exact_match=_average([score.exact_match or 0.0 for score in scored]) or 0.0,
            f1=_average([score.f1 or 0.0 for score in scored]) or 0.0,
            support_recall=_average([each.recall for each in support if each.recall is not None]),
            support_error_rate=_average([each.error_rate for each in support if each.error_rate is not None]),
            context_tokens=_average([float(row.result.context_tokens) for row in rows if row.result is not None])
            or 0.0,
            outcome=outcome,
        )

    def _worse(self, scores: Mapping[str, float], leader: Mapping[str, float]) -> bool:
        shared = [question for question in scores if question in leader]
        gains = np.array([scores[question] - leader[question] for question in shared])
        if gains.mean() >= 0:
            return False
        return bool((resampled_means(gains, 2000, self.seed) >= 0).mean() < _GIVE_UP)

    def _score(self, row: RunRow) -> float:
        scored = score_row(row)
        support, f1 = scored.support.f1 or 0.0, scored.f1 or 0.0
        by_objective = {"em": scored.exact_match or 0.0, "f1": f1, "support": support, "f1+support": (f1 + support) / 2}
        return by_objective[self.objective]

    def compared(self, best: Option, questions: Sequence[Question]) -> tuple[BootstrapTest, tuple[_Pair, _Pair]]:
        """Compare a setting with the start on questions: by the objective, and by the means of both."""
        winner, start = (self._rows(settings, questions) for settings in (best, Option()))
        test = paired_bootstrap(list(map(self._score, winner)), list(map(self._score, start)), seed=self.seed)
        return test, (_answer_scores(start), _answer_scores(winner))

    def _rows(self, settings: Option, questions: Sequence[Question]) -> list[RunRow]:
        """Ask a trial all of some questions, in their order."""
        label = self.named(settings).label
        evaluate({label: self.make(self.named(settings))}, questions, store=self.store, seed=self.seed)
        rows = {row.question_id: row for row in self.store.rows(label)}
        return [rows[question.id] for question in questions]


def _answer_scores(rows: Sequence[RunRow]) -> _Pair:
    scored = [score_row(row) for row in rows]
    exact_match = _average([score.exact_match or 0.0 for score in scored]) or 0.0
    return exact_match, _average([score.f1 or 0.0 for score in scored]) or 0.0


def _merged(settings: Option, option: Option) -> Option:
    """Return settings with an option's in the place of those of the same name."""
    names = {change.partition("=")[0] for change in option}
    return (*(change for change in settings if change.partition("=")[0] not in names), *option)


def _canonical(method: MethodName, abilities: ModelAbilities, settings: Option) -> bytes:
    """Return all settings in one form, so that what is spelt in two ways is tried once."""
    named = MethodName(method.name, _merged(method.overrides, settings))
    return msgspec.json.encode(method_settings(named, abilities))


def _mean(scores: Mapping[str, float]) -> float:
    return sum(scores.values()) / len(scores) if scores else 0.0


def _average(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def default_space(method: str) -> tuple[Choice, ...]:
    """Return what the search for a method's settings tries if nobody says.

    Parameters
    ----------
    method
        The method's name.

    Returns
    -------
    tuple of Choice
        For a method without a space of its own, the numbers of shown answers and of documents, where it has them.

    Raises
    ------
    InputError
        There is no such method, or nothing about it can be chosen.

    Examples
    --------
    >>> [choice.name for choice in default_space("dense")]
    ['top', 'reader_demonstrations']
    """
    # In the search's order: what decides on the evidence comes before what depends on it, how the answer is read last. The
    # values are those that the papers ablate or tune, and those that small models need.
    if space := method_row(method).space:
        return space
    fields = method_row(method).settings.__struct_fields__
    choices = (choice("top", 1, 2, 3, 5), choice("sentences", 1, 2, 3, 4, 5), READER_CHOICE)
    # Retrieval baselines have no space of their own, and differ in which of these they know.
    usable = tuple(choice for choice in choices if choice.name in fields)
    if not usable:
        raise InputError(f"{method} has no space of its own; name what to try: --try NAME=VALUE,VALUE")
    return usable


def parse_choice(text: str, method: MethodName) -> Choice:
    """Read ``NAME=VALUE,VALUE,…``, or ``NAME=VALUE+NAME=VALUE,…`` where settings must change together.

    Raises
    ------
    InputError
        It is no such list, or the method has no such setting, or a value cannot be one.

    Examples
    --------
    >>> parse_choice("chains=1,2", MethodName("trace"))
    Choice(name='chains', options=(('chains=1',), ('chains=2',)))
    >>> parse_choice("unit=sentence,unit=triple+extraction=phrases", MethodName("trace")).options[1]
    ('unit=triple', 'extraction=phrases')
    """
    name, equals, values = text.partition("=")
    name = name.strip().replace("-", "_")
    options: list[Option] = []
    for value in values.split(","):
        parts = [part.strip() for part in value.split("+")]
        # The first part may leave the name out, since it stands before the list.
        if "=" not in parts[0]:
            parts[0] = f"{name}={parts[0]}"
        options.append(tuple(parts))
    if not equals or not name or not values.strip():
        raise InputError(f"{text!r} does not say what to try; write NAME=VALUE,VALUE")
    for option in options:
        method_settings(MethodName(method.name), CAPABLE, option)
    return Choice(name, tuple(dict.fromkeys(options)))
