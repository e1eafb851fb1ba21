"""Certificates summed up: how many responses answer and reason rightly, the gap between the two, and what goes wrong.

Source: sections 4 and 5 and appendix C.3 of "Direct Evaluation of Chain-of-Thought in Multi-hop Reasoning with Knowledge
Graphs".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import get_args

import msgspec
import numpy as np
from numpy.typing import NDArray

from pytrace.certify.certificate_records import Certificate, ErrorKind, ResponseKind, StepStatus
from pytrace.evaluation.scores.metrics import Mean, mean_of

_DRAWS = 2000


class Interval(msgspec.Struct, frozen=True):
    """A figure with its 95 % bootstrap interval; all None where it is not defined."""

    value: float | None
    low: float | None
    high: float | None


class Quality(msgspec.Struct, frozen=True):
    """Precision, recall and their harmonic mean, from 0 to 1.

    Precision is of the structured responses, recall of all: who abstains or writes no steps loses recall alone
    (Equations 3 and 4).
    """

    precision: Interval
    recall: Interval
    f1: Interval


class CertificationScores(msgspec.Struct, frozen=True):
    """What the certificates of a file say together.

    `kinds`, `errors` and `steps` count responses by kind, unfaithful ones by error, and steps by status. `answer` is None
    where no gold answers are known, and with it `gap`, the answers' F1 less the reasoning's. `quadrants` counts structured
    responses by "right" or "wrong" answer and "faithful" or "unfaithful" reasoning, as "right faithful". The edit
    distances are to the nearest gold path (None: there are none).
    """

    n: int
    kinds: dict[str, int]
    errors: dict[str, int]
    steps: dict[str, int]
    answer: Quality | None
    reasoning: Quality
    gap: Interval
    quadrants: dict[str, int]
    edit_distance: Mean
    edit_rate: Mean


# What a response can be, for the bootstrap: right and faithful are counted of structured responses alone.
_RIGHT, _FAITHFUL, _STRUCTURED = range(3)


def score_certificates(certificates: Iterable[Certificate], *, seed: int = 0) -> CertificationScores:
    """Sum up certificates."""
    # Equations 3 and 4; the gap is that of Table 3. Intervals are of responses drawn anew with replacement, the same
    # draws for answers and reasoning.
    kinds: Counter[str] = Counter(dict.fromkeys(get_args(ResponseKind), 0))
    errors: Counter[str] = Counter(dict.fromkeys(get_args(ErrorKind), 0))
    statuses: Counter[str] = Counter(dict.fromkeys(get_args(StepStatus), 0))
    quadrants = Counter({f"{a} {r}": 0 for a in ("right", "wrong") for r in ("faithful", "unfaithful")})
    patterns: Counter[tuple[bool, bool, bool]] = Counter()
    distances: list[int] = []
    rates: list[float] = []
    answered = False
    for one in certificates:
        kinds[one.kind] += 1
        if one.error is not None:
            errors[one.error] += 1
        statuses.update(step.status for step in one.steps)
        structured = one.kind in ("faithful", "unfaithful")
        patterns[bool(one.answer_correct), one.kind == "faithful", structured] += 1
        answered = answered or bool(one.answers)
        if structured and one.answer_correct is not None:
            quadrants[f"{'right' if one.answer_correct else 'wrong'} {one.kind}"] += 1
        if one.edit_distance is not None and one.edit_rate is not None:
            distances.append(one.edit_distance)
            rates.append(one.edit_rate)
    n = sum(kinds.values())
    rows = np.array(list(patterns), dtype=np.int64).reshape(-1, 3)
    counts = np.array(list(patterns.values()), dtype=np.int64)
    draws = _draw(counts, n, seed) @ rows
    totals = counts @ rows
    right = _quality(totals[_RIGHT], totals[_STRUCTURED], n, draws[:, _RIGHT], draws[:, _STRUCTURED])
    faithful = _quality(totals[_FAITHFUL], totals[_STRUCTURED], n, draws[:, _FAITHFUL], draws[:, _STRUCTURED])
    gap = Interval(None, None, None)
    if answered and right.f1.value is not None and faithful.f1.value is not None:
        gap = _interval(
            right.f1.value - faithful.f1.value,
            _f1(draws[:, _RIGHT], draws[:, _STRUCTURED], n) - _f1(draws[:, _FAITHFUL], draws[:, _STRUCTURED], n),
        )
    return CertificationScores(
        n=n,
        kinds=dict(kinds),
        errors=dict(errors),
        steps=dict(statuses),
        answer=right if answered else None,
        reasoning=faithful,
        gap=gap,
        quadrants=dict(quadrants),
        edit_distance=mean_of(distances),
        edit_rate=mean_of(rates),
    )


def _draw(counts: NDArray[np.int64], n: int, seed: int) -> NDArray[np.int64]:
    """Draw as many responses as there are, again and again: how many of each pattern each time."""
    if not n:
        return np.zeros((_DRAWS, len(counts)), dtype=np.int64)
    return np.random.default_rng(seed).multinomial(n, counts / n, size=_DRAWS)


def _quality(
    good: int, structured: int, n: int, good_draws: NDArray[np.int64], structured_draws: NDArray[np.int64]
) -> Quality:
    none = Interval(None, None, None)
    if not n:
        return Quality(none, none, none)
    return Quality(
        precision=_interval(good / structured, _ratio(good_draws, structured_draws)) if structured else none,
        recall=_interval(good / n, good_draws / n),
        # As often as nothing is structured, nothing is right either.
        f1=_interval(float(_f1(np.array([good]), np.array([structured]), n)[0]), _f1(good_draws, structured_draws, n)),
    )


def _f1(good: NDArray[np.int64], structured: NDArray[np.int64], n: int) -> NDArray[np.float64]:
    """Return the harmonic mean of good / structured and good / n."""
    return _ratio(2 * good, structured + n)


def _ratio(over: NDArray[np.int64], under: NDArray[np.int64]) -> NDArray[np.float64]:
    return np.divide(over, under, out=np.zeros(len(over)), where=under > 0)


def _interval(value: float, draws: NDArray[np.float64]) -> Interval:
    low, high = np.quantile(draws, (0.025, 0.975))
    return Interval(float(value), float(low), float(high))
