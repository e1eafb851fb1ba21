"""What the page and the plots need of a summary, and how they word its figures."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Protocol

KIND_NAMES: Mapping[str, str] = {
    "faithful": "Faithful",
    "unfaithful": "Unfaithful",
    "abstained": "Abstained",
    "unstructured": "Unstructured",
}
ERROR_NAMES: Mapping[str, str] = {
    "factual": "Factual error",
    "incoherent": "Incoherence",
    "answer": "Answer error",
}
NOTHING = "–"


class Estimate(Protocol):
    """A share from 0 to 1 with its confidence interval; each None where there is nothing to count."""

    @property
    def value(self) -> float | None:
        """The share."""

    @property
    def low(self) -> float | None:
        """The lower end of the interval."""

    @property
    def high(self) -> float | None:
        """The upper end of the interval."""


class Scores(Protocol):
    """Precision, recall and F1 of answers, or of reasoning."""

    @property
    def precision(self) -> Estimate:
        """The share of the judged responses that are right."""

    @property
    def recall(self) -> Estimate:
        """The share of all responses that are right."""

    @property
    def f1(self) -> Estimate:
        """The harmonic mean of precision and recall."""


class Average(Protocol):
    """A mean, None of nothing."""

    @property
    def mean(self) -> float | None:
        """The mean."""


class PageSummary(Protocol):
    """The figures of one set of certificates, as `pytrace.certify.scores.CertificationScores` has them.

    Any record with these attributes will do. Counts that are missing are 0, and figures that are None or no finite number
    are shown as a dash.
    """

    @property
    def kinds(self) -> Mapping[str, int]:
        """Responses by `ResponseKind`."""

    @property
    def errors(self) -> Mapping[str, int]:
        """Unfaithful responses by `ErrorKind`."""

    @property
    def steps(self) -> Mapping[str, int]:
        """Steps by `StepStatus`."""

    @property
    def quadrants(self) -> Mapping[str, int]:
        """Responses by answer and reasoning: "right faithful", "right unfaithful", "wrong faithful", "wrong unfaithful"."""

    @property
    def answer(self) -> Scores | None:
        """How often the answers are right; None without gold answers."""

    @property
    def reasoning(self) -> Scores:
        """How often the reasoning is faithful."""

    @property
    def gap(self) -> Estimate:
        """F1 of the answers less F1 of the reasoning, from -1 to 1."""

    @property
    def edit_rate(self) -> Average:
        """The edit rate to the nearest gold path, from 0 to 1."""


def finite(value: float | None) -> float | None:
    """Return a number, or None for what is not one.

    Examples
    --------
    >>> finite(0.25), finite(float("nan")), finite(None)
    (0.25, None, None)
    """
    return value if value is not None and math.isfinite(value) else None


def percent(value: float | None) -> str:
    """Word a share.

    Examples
    --------
    >>> percent(0.5432), percent(None)
    ('54.3%', '–')
    """
    return NOTHING if finite(value) is None else f"{100 * (value or 0):.1f}%"


def points(value: float | None) -> str:
    """Word a difference of two shares, in points of a percent.

    Examples
    --------
    >>> points(0.1576), points(-0.02), points(None)
    ('15.8 points', '−2.0 points', '–')
    """
    return NOTHING if finite(value) is None else f"{100 * (value or 0):.1f} points".replace("-", "−")


def interval(estimate: Estimate) -> str:
    """Word the interval of an estimate; empty if it has none.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> interval(SimpleNamespace(value=0.5, low=0.4, high=0.6)), interval(SimpleNamespace(value=0.5, low=None, high=None))
    ('40.0–60.0%', '')
    """
    low, high = finite(estimate.low), finite(estimate.high)
    return "" if low is None or high is None else f"{100 * low:.1f}–{100 * high:.1f}%"


def undecided_share(summary: PageSummary) -> float | None:
    """Return the share of steps that the graph cannot decide, None without steps.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> undecided_share(SimpleNamespace(steps={"supported": 3, "undecided": 1}))
    0.25
    """
    total = sum(summary.steps.values())
    return summary.steps.get("undecided", 0) / total if total else None
