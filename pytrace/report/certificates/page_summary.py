"""What the page and the plots need of a summary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from pytrace.report.figures import Estimate

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
    """The figures of one set of certificates, as `pytrace.certify.certification_scores.CertificationScores` has them.

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


def undecided_share(summary: PageSummary) -> float | None:
    """Return the share of steps that the graph cannot decide, None without steps."""
    total = sum(summary.steps.values())
    return summary.steps.get("undecided", 0) / total if total else None
