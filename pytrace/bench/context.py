"""What a kernel's bench is given: settings, peers, the stopwatch, and checks that end the run on a wrong answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from pytrace.bench import stopwatch
from pytrace.bench.measurements import LINEAR, Comparison, Limits, Settings, Sweep, Timing, Work, slope
from pytrace.bench.peers import Peers
from pytrace.bench.stopwatch import Call
from pytrace.errors import VerificationError

if TYPE_CHECKING:
    from pytrace.bench.cuda.card import Card

QUICK_SCALE = 0.1
"""The share of a card's cases that a quick run leaves."""

PEER_SECONDS = 3.0
"""A peer leaves a sweep before a size at which one call of it would take longer."""


class Contest(NamedTuple):
    """One size of a sweep: what to call, figures to tell along, and how many readings if not the usual number."""

    ours: Call
    peers: Mapping[str, Call]
    extra: Mapping[str, float] = {}
    repetitions: int | None = None


class Bench:
    """Compares and sweeps with the same settings throughout."""

    def __init__(
        self,
        settings: Settings,
        peers: Peers,
        limits: Limits | None,
        tell: Callable[[str], None],
        *,
        card: Card | None = None,
    ) -> None:
        self.settings = settings
        self.peers = peers
        self.limits = limits
        self.tell = tell
        self.card = card
        self.stopwatch = stopwatch.Stopwatch()

    def scaled(self, count: int, *, least: int) -> int:
        """Return a card's usual size, or the share of it that the settings ask for."""
        share = self.settings.scale * (QUICK_SCALE if self.settings.quick else 1)
        return max(int(count * share), least)

    def compare(
        self,
        case: str,
        ours: Call,
        peers: Mapping[str, Call],
        *,
        bar: float | None = None,
        bar_peers: Sequence[str] | None = None,
        note: str = "",
        work: Work | None = None,
        extra: Mapping[str, float] | None = None,
    ) -> Comparison:
        """Time one case: see `stopwatch.compare`."""
        self.tell(case)
        return stopwatch.compare(
            case, ours, peers, self.settings.repetitions, bar=bar, bar_peers=bar_peers, note=note, work=work,
            limits=self.limits, extra=extra, stopwatch=self.stopwatch,
        )  # fmt: skip

    def sweep(
        self,
        title: str,
        axis: str,
        sizes: Sequence[int],
        prepare: Callable[[int], Contest],
        *,
        growth: float,
        bar: bool = False,
        notes: list[str] | None = None,
    ) -> Sweep:
        """Time one case at growing sizes."""
        timings: dict[str, list[Timing | None]] = {"pytrace": []}
        extra: dict[str, list[float | None]] = {}
        told = [] if notes is None else notes
        left: set[str] = set()
        for position, size in enumerate(sizes):
            self.tell(f"{title}: {size:,} {axis}")
            contest = prepare(size)
            for name in set(timings) - left - {"pytrace"}:
                last = timings[name][-1]
                expected = 0.0 if last is None else last.median * (size / sizes[position - 1]) ** growth
                if name in contest.peers and expected > PEER_SECONDS:
                    left.add(name)
                    told.append(f"{name} stops before {size:,} {axis}: a call would take about {expected:.1f} s")
            calls = {"pytrace": contest.ours} | {name: call for name, call in contest.peers.items() if name not in left}
            readings = self.stopwatch.readings(list(calls.values()), contest.repetitions or self.settings.repetitions)
            found = dict(zip(calls, readings, strict=True))
            for name in [*timings, *(name for name in calls if name not in timings)]:
                column = timings.setdefault(name, [None] * position)
                column.append(Timing.of(found[name]) if name in found else None)
            for name in [*extra, *(name for name in contest.extra if name not in extra)]:
                extra.setdefault(name, [None] * position).append(contest.extra.get(name))
        slopes = {
            name: fitted
            for name, column in timings.items()
            if (fitted := slope(sizes, [None if timing is None else timing.median for timing in column])) is not None
        }
        ours = slopes.get("pytrace")
        linear = None if growth != 1 or ours is None else LINEAR[0] <= ours <= LINEAR[1]
        return Sweep(
            title=title, axis=axis, sizes=list(sizes), series=timings, slopes=slopes, linear=linear,
            bar=bar and not self.settings.quick, extra=extra, notes=told,
        )  # fmt: skip


def require(condition: object, message: str) -> None:
    """Raise VerificationError unless the condition holds."""
    if not condition:
        raise VerificationError(message)


def require_close(found: ArrayLike, expected: ArrayLike, tolerance: float, what: str) -> None:
    """Raise VerificationError, with the first place, where two arrays differ by more than `tolerance`."""
    mine, theirs = np.asarray(found, dtype=np.float64), np.asarray(expected, dtype=np.float64)
    require(mine.shape == theirs.shape, f"{what}: the shape is {mine.shape} and should be {theirs.shape}")
    with np.errstate(invalid="ignore"):
        wrong = ~((np.abs(mine - theirs) <= tolerance) | (mine == theirs))
    if wrong.any():
        place = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise VerificationError(
            f"{what}: {int(wrong.sum())} of {wrong.size} values are wrong; the first, at {place}, is {mine[place]!r} and "
            f"should be {theirs[place]!r}"
        )
