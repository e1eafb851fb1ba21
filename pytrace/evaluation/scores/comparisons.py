"""Whether two methods differ on the questions that both were asked, and how far what is drawn decides a method's scores."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import msgspec

from pytrace.errors import InputError
from pytrace.evaluation.scores.significance import (
    BootstrapTest,
    McNemarTest,
    Spread,
    holm,
    mcnemar,
    paired_bootstrap,
    spread_of,
)

if TYPE_CHECKING:
    from pytrace.evaluation.scores.summary import MethodSummary

_SEED = "seed"


class QuestionScore(msgspec.Struct, frozen=True):
    """How a method did on one question; what is not defined is None."""

    exact_match: float | None
    f1: float | None
    supporting_recall: float | None
    supporting_error_rate: float | None
    ndcg: float | None
    context_tokens: float | None


class Comparison(msgspec.Struct, frozen=True):
    """How two methods differ, first minus second, on the questions where both have a measure."""

    first: str
    second: str
    exact_match: BootstrapTest
    f1: BootstrapTest
    exact_match_mcnemar: McNemarTest
    supporting_recall: BootstrapTest
    supporting_error_rate: BootstrapTest
    ndcg: BootstrapTest
    context_tokens: BootstrapTest
    adjusted: dict[
        str, float | None
    ] = {}  # p-values by Holm's procedure over all pairs of the report, if it compares more than one
    readers_differ: bool = False  # then the difference is not of the methods' evidence alone


# Those fields of a comparison that carry a p-value: all between the methods' names and the adjusted values.
_TESTED = Comparison.__struct_fields__[2 : Comparison.__struct_fields__.index("adjusted")]


class SeedSummary(msgspec.Struct, frozen=True):
    """A method's scores over its seeds; `method` is its label without them."""

    method: str
    seeds: tuple[str, ...]
    exact_match: Spread
    f1: Spread


def compare_methods(
    scores: Mapping[str, Mapping[str, QuestionScore]], *, baseline: str | None = None, seed: int = 0
) -> tuple[Comparison, ...]:
    """Compare every two methods, or every other one with a baseline."""
    if baseline is not None and baseline not in scores:
        raise InputError(
            f"the baseline {baseline!r} is none of the methods; choose one of {', '.join(scores) or '(no methods)'}"
        )
    pairs = (
        list(itertools.combinations(scores, 2))
        if baseline is None
        else [(method, baseline) for method in scores if method != baseline]
    )
    compared = [_compare(first, second, scores, seed) for first, second in pairs]
    if len(compared) < 2:
        return tuple(compared)
    # Holm (1979) over the pairs, measure by measure: each measure is a question of its own.
    adjusted = {name: holm([getattr(pair, name).p_value for pair in compared]) for name in _TESTED}
    return tuple(
        msgspec.structs.replace(pair, adjusted={name: values[index] for name, values in adjusted.items()})
        for index, pair in enumerate(compared)
    )


def _compare(first: str, second: str, scores: Mapping[str, Mapping[str, QuestionScore]], seed: int) -> Comparison:
    common = [
        (score, scores[second][question]) for question, score in scores[first].items() if question in scores[second]
    ]
    tests: dict[str, BootstrapTest] = {}
    for measure in QuestionScore.__struct_fields__:
        values = [(getattr(a, measure), getattr(b, measure)) for a, b in common]
        # What only one of them has is left out of both lists, so that each pair is one question.
        defined = [(a, b) for a, b in values if a is not None and b is not None]
        tests[measure] = paired_bootstrap([a for a, _ in defined], [b for _, b in defined], seed=seed)
    right = [
        (bool(a.exact_match), bool(b.exact_match))
        for a, b in common
        if a.exact_match is not None and b.exact_match is not None
    ]
    test = mcnemar([a for a, _ in right], [b for _, b in right])
    return Comparison(first, second, exact_match_mcnemar=test, **tests)  # type: ignore[arg-type]


def seed_summaries(methods: Iterable[MethodSummary]) -> tuple[SeedSummary, ...]:
    """Sum up the methods that differ in the setting `seed` only, where two or more do."""
    groups: dict[str, dict[str, tuple[float, float]]] = {}
    for method in methods:
        base, seed = without_seed(method.method)
        if seed is not None and method.exact_match is not None and method.f1 is not None:
            groups.setdefault(base, {})[seed] = (method.exact_match, method.f1)
    return tuple(
        SeedSummary(base, tuple(scores), *(spread_of(values) for values in zip(*scores.values(), strict=True)))
        for base, scores in groups.items()
        if len(scores) > 1
    )


def without_seed(label: str) -> tuple[str, str | None]:
    """Split a method's label into the label without its seed, and the seed; None if it names none."""
    name, _, options = label.partition(":")
    settings = [part.partition("=") for part in options.split(",") if part]
    seeds = [value for key, _, value in settings if key == _SEED]
    others = ",".join("".join(part) for part in settings if part[0] != _SEED)
    return f"{name}:{others}" if others else name, seeds[-1] if seeds else None
