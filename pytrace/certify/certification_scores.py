"""Certificates summed up: how many responses answer and reason rightly, the gap between the two, and what goes wrong."""

# Source: sections 4 and 5 and appendix C.3 of the paper.

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import get_args

import msgspec
import numpy as np
from numpy.typing import NDArray

from pytrace.check_records import Certificate, ErrorKind, ResponseKind, StepStatus
from pytrace.evaluation.scores.metrics import Mean, mean_of
from pytrace.evaluation.scores.significance import percentiles

_DRAWS = 2000


class Interval(msgspec.Struct, frozen=True):
    """A figure with its 95 % bootstrap interval; all None where it is not defined."""

    value: float | None
    low: float | None
    high: float | None


class Quality(msgspec.Struct, frozen=True):
    """Precision, recall and their harmonic mean, from 0 to 1.

    Precision is of the structured responses, recall of all: who abstains or writes no steps loses recall alone
    (Equations 3 and 4). Of reasoning, both leave out undecided responses: that the graph is silent is no fault of theirs.
    """

    precision: Interval
    recall: Interval
    f1: Interval


class CertificationScores(msgspec.Struct, frozen=True):
    """What the certificates of a file say together."""

    n: int
    kinds: dict[str, int]  # responses by kind
    errors: dict[str, int]  # unfaithful ones by error
    steps: dict[str, int]  # by status
    answer: Quality | None  # None where no gold answers are known
    reasoning: Quality
    gap: Interval  # the answers' F1 less the reasoning's, both of the responses that are not undecided
    faithful_share: Interval  # of structured responses; `low` if no undecided one were faithful, `high` if all were
    quadrants: dict[
        str, int
    ]  # structured responses that are not undecided by answer and reasoning, as "right faithful"
    edit_distance: Mean  # to the nearest gold path
    edit_rate: Mean


# What a response can be, for the bootstrap: right and faithful are counted of structured responses alone.
_RIGHT, _FAITHFUL, _STRUCTURED, _UNDECIDED, _RIGHT_UNDECIDED = range(5)


def score_certificates(certificates: Iterable[Certificate], *, seed: int = 0) -> CertificationScores:
    """Sum up certificates."""
    # Equations 3 and 4; the gap is that of Table 3. Intervals are of responses drawn anew with replacement, the same
    # draws for answers and reasoning.
    kinds: Counter[str] = Counter(dict.fromkeys(get_args(ResponseKind), 0))
    errors: Counter[str] = Counter(dict.fromkeys(get_args(ErrorKind), 0))
    statuses: Counter[str] = Counter(dict.fromkeys(get_args(StepStatus), 0))
    quadrants = Counter({f"{a} {r}": 0 for a in ("right", "wrong") for r in ("faithful", "unfaithful")})
    # Responses of one pattern are alike, so a draw is of counts and a file of any length is held as a few of them.
    patterns: Counter[tuple[bool, ...]] = Counter()
    edits: list[tuple[int, float]] = []
    answered = False
    for certificate in certificates:
        kinds[certificate.kind] += 1
        if certificate.error is not None:
            errors[certificate.error] += 1
        statuses.update(step.status for step in certificate.steps)
        right, undecided = bool(certificate.answer_correct), certificate.kind == "undecided"
        structured = certificate.kind in ("faithful", "unfaithful", "undecided")
        patterns[right, certificate.kind == "faithful", structured, undecided, right and undecided] += 1
        answered = answered or bool(certificate.answers)
        if structured and not undecided and certificate.answer_correct is not None:
            quadrants[f"{'right' if certificate.answer_correct else 'wrong'} {certificate.kind}"] += 1
        if certificate.edit_distance is not None and certificate.edit_rate is not None:
            edits.append((certificate.edit_distance, certificate.edit_rate))
    n = sum(kinds.values())
    rows = np.array(list(patterns), dtype=np.int64).reshape(-1, 5)
    counts = np.array(list(patterns.values()), dtype=np.int64)
    drawn = np.random.default_rng(seed).multinomial(n, counts / n, size=_DRAWS) if n else np.zeros((_DRAWS, 0))
    # The counts in the first row, and those of each draw below: one computation gives a figure and its interval.
    table = np.vstack([counts, drawn]).astype(np.int64) @ rows
    rights, faithful, structured_counts = table[:, _RIGHT], table[:, _FAITHFUL], table[:, _STRUCTURED]
    undecided_counts = table[:, _UNDECIDED]
    everything = np.full(len(table), n)
    judged, decided = structured_counts - undecided_counts, everything - undecided_counts
    gap = share = Interval(None, None, None)
    if answered and decided[0]:
        right_decided = rights - table[:, _RIGHT_UNDECIDED]
        gap = _interval(_ratio(2 * right_decided, judged + decided) - _ratio(2 * faithful, judged + decided))
    if structured_counts[0]:
        low, among = int(faithful[0]), int(structured_counts[0])
        share = Interval(
            low / int(judged[0]) if judged[0] else None, low / among, (low + int(undecided_counts[0])) / among
        )
    return CertificationScores(
        n=n,
        kinds=dict(kinds),
        errors=dict(errors),
        steps=dict(statuses),
        answer=_quality(rights, structured_counts, everything) if answered else None,
        reasoning=_quality(faithful, judged, decided),
        gap=gap,
        faithful_share=share,
        quadrants=dict(quadrants),
        edit_distance=mean_of(distance for distance, _ in edits),
        edit_rate=mean_of(rate for _, rate in edits),
    )


def _quality(good: NDArray[np.int64], structured: NDArray[np.int64], n: NDArray[np.int64]) -> Quality:
    none = Interval(None, None, None)
    return Quality(
        precision=_interval(_ratio(good, structured)) if structured[0] else none,
        recall=_interval(_ratio(good, n)) if n[0] else none,
        # The harmonic mean of good / structured and good / n. As often as nothing is structured, nothing is right either.
        f1=_interval(_ratio(2 * good, structured + n)) if n[0] else none,
    )


def _ratio(over: NDArray[np.int64], under: NDArray[np.int64]) -> NDArray[np.float64]:
    return np.divide(over, under, out=np.zeros(len(over)), where=under > 0)


def _interval(values: NDArray[np.float64]) -> Interval:
    """Return the first value with the interval of the others, which are its draws."""
    return Interval(float(values[0]), *percentiles(values[1:]))
