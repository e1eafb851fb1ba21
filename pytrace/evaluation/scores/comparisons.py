"""Whether two methods differ on the questions that both were asked, in answers, evidence and context."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence

import msgspec

from pytrace.errors import InputError
from pytrace.evaluation.scores.significance import BootstrapTest, McNemarTest, holm, mcnemar, paired_bootstrap


class QuestionScore(msgspec.Struct, frozen=True):
    """How a method did on one question; what is not defined is None."""

    exact_match: float | None
    f1: float | None
    supporting_recall: float | None
    supporting_error_rate: float | None
    ndcg: float | None
    context_tokens: float | None


class Comparison(msgspec.Struct, frozen=True):
    """How two methods differ on the questions that both were asked; differences are first minus second.

    Each measure is compared on the questions where both have one. `adjusted` has, where the report compares more than one pair,
    the p-values by measure that Holm's procedure makes of those of all its pairs.
    """

    first: str
    second: str
    exact_match: BootstrapTest
    f1: BootstrapTest
    exact_match_mcnemar: McNemarTest
    supporting_recall: BootstrapTest
    supporting_error_rate: BootstrapTest
    ndcg: BootstrapTest
    context_tokens: BootstrapTest
    adjusted: dict[str, float | None] = {}


# The measures of a comparison that carry a p-value.
_TESTED: dict[str, Callable[[Comparison], BootstrapTest | McNemarTest]] = {
    "exact_match": lambda one: one.exact_match,
    "f1": lambda one: one.f1,
    "exact_match_mcnemar": lambda one: one.exact_match_mcnemar,
    "supporting_recall": lambda one: one.supporting_recall,
    "supporting_error_rate": lambda one: one.supporting_error_rate,
    "ndcg": lambda one: one.ndcg,
    "context_tokens": lambda one: one.context_tokens,
}


def compare_methods(
    scores: Mapping[str, Mapping[str, QuestionScore]], *, baseline: str | None = None, seed: int = 0
) -> tuple[Comparison, ...]:
    """Compare every two methods, or every other one with a baseline."""
    # Paired bootstrap and McNemar's test as in `pytrace.evaluation.scores.significance`; Holm (1979) over the pairs,
    # measure by measure.
    if baseline is not None and baseline not in scores:
        raise InputError(
            f"the baseline {baseline!r} is none of the methods; choose one of {', '.join(scores) or '(no methods)'}"
        )
    pairs = (
        list(itertools.combinations(scores, 2))
        if baseline is None
        else [(method, baseline) for method in scores if method != baseline]
    )
    compared = [_compare(first, scores[first], second, scores[second], seed) for first, second in pairs]
    if len(compared) < 2:
        return tuple(compared)
    adjusted = {name: holm([test(one).p_value for one in compared]) for name, test in _TESTED.items()}
    return tuple(
        msgspec.structs.replace(one, adjusted={name: values[place] for name, values in adjusted.items()})
        for place, one in enumerate(compared)
    )


def _compare(
    first: str, own: Mapping[str, QuestionScore], second: str, other: Mapping[str, QuestionScore], seed: int
) -> Comparison:
    common = [(own[question], other[question]) for question in own if question in other]

    def both(measure: Callable[[QuestionScore], float | None]) -> tuple[Sequence[float], Sequence[float]]:
        values = [(measure(one), measure(another)) for one, another in common]
        defined = [(one, another) for one, another in values if one is not None and another is not None]
        return [one for one, _ in defined], [another for _, another in defined]

    def test(measure: Callable[[QuestionScore], float | None]) -> BootstrapTest:
        return paired_bootstrap(*both(measure), seed=seed)

    right = [[bool(score) for score in scores] for scores in both(lambda one: one.exact_match)]
    return Comparison(
        first,
        second,
        exact_match=test(lambda one: one.exact_match),
        f1=test(lambda one: one.f1),
        exact_match_mcnemar=mcnemar(*right),
        supporting_recall=test(lambda one: one.supporting_recall),
        supporting_error_rate=test(lambda one: one.supporting_error_rate),
        ndcg=test(lambda one: one.ndcg),
        context_tokens=test(lambda one: one.context_tokens),
    )
