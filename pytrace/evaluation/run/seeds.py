"""Methods that differ in their seed only, summed up: how far what is drawn decides their scores."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Protocol

import msgspec

_SEED = "seed"


class Spread(msgspec.Struct, frozen=True):
    """How a score is spread over seeds; `standard_deviation` is the sample's, with one seed less in its denominator."""

    mean: float
    standard_deviation: float
    minimum: float
    maximum: float


class SeedSummary(msgspec.Struct, frozen=True):
    """A method's scores over its seeds; `method` is its label without them."""

    method: str
    seeds: tuple[str, ...]
    exact_match: Spread
    f1: Spread


class Scored(Protocol):
    """A method's label and scores, as `pytrace.evaluation.scores.summary.MethodSummary` has them."""

    @property
    def method(self) -> str:
        """The label: ``NAME:setting=value,…``."""
        ...

    @property
    def exact_match(self) -> float | None:
        """Between 0 and 1; None if nothing was asked."""
        ...

    @property
    def f1(self) -> float | None:
        """Between 0 and 1; None if nothing was asked."""
        ...


def seed_summaries(methods: Iterable[Scored]) -> tuple[SeedSummary, ...]:
    """Sum up the methods that differ in the setting `seed` only, where two or more do."""
    groups: dict[str, dict[str, tuple[float, float]]] = {}
    for one in methods:
        base, seed = without_seed(one.method)
        if seed is not None and one.exact_match is not None and one.f1 is not None:
            groups.setdefault(base, {})[seed] = (one.exact_match, one.f1)
    return tuple(
        SeedSummary(
            base,
            tuple(scores),
            _spread([exact_match for exact_match, _ in scores.values()]),
            _spread([f1 for _, f1 in scores.values()]),
        )
        for base, scores in groups.items()
        if len(scores) > 1
    )


def without_seed(label: str) -> tuple[str, str | None]:
    """Split a method's label into the label without its seed, and the seed; None if it names none."""
    name, _, rest = label.partition(":")
    settings = [part.partition("=") for part in rest.split(",") if part]
    seeds = [value for key, _, value in settings if key == _SEED]
    others = ",".join("".join(part) for part in settings if part[0] != _SEED)
    return f"{name}:{others}" if others else name, seeds[-1] if seeds else None


def _spread(values: Sequence[float]) -> Spread:
    return Spread(statistics.fmean(values), statistics.stdev(values), min(values), max(values))
