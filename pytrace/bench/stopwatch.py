"""The stopwatch: interleaved repetitions, each reading after a pause, medians and spreads.

Repetition r times every contender once before repetition r + 1 starts, so that a noisy neighbour hits all of them. A
ratio is the median over repetitions of peer time / our time within the same repetition.

The thread pools of OpenMP and OpenBLAS spin for tens of milliseconds after a call, on the very cores that the next
contender wants. So before each reading the stopwatch waits until they sleep, and then makes one call that is not
counted, which wakes the contender's own pool and fills the caches with its data. All contenders are treated alike.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from pytrace.bench.measurements import Achieved, Comparison, Limits, Timing, Work

Call: TypeAlias = Callable[[], object]

SETTLE = 0.06
"""Seconds to wait before a reading: OpenBLAS spins for up to 2^26 clock ticks (about 25 ms), libgomp for less."""

MIN_READING = 0.01
"""Seconds; ten thousand times the clock's resolution, and short beside a scheduler's bad moments."""

LONG_CALL = 0.5
"""Seconds from which a call needs no warm-up before a reading: waking threads is less than a thousandth of it."""


class _Loop(NamedTuple):
    calls: int
    warm_up: bool


class Stopwatch:
    """Reads how long calls take."""

    def __init__(
        self, clock: Callable[[], float] = time.perf_counter, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._clock = clock
        self._sleep = sleep

    def readings(self, calls: Sequence[Call], repetitions: int) -> list[list[float]]:
        """Read every call once a repetition, in turn; returns the seconds a call takes, a list for each."""
        loops = [self._loop(call) for call in calls]
        readings: list[list[float]] = [[] for _ in calls]
        for _ in range(repetitions):
            for call, loop, mine in zip(calls, loops, readings, strict=True):
                self._sleep(SETTLE)
                if loop.warm_up:
                    call()
                mine.append(self._read(call, loop.calls))
        return readings

    def _read(self, call: Call, count: int) -> float:
        start = self._clock()
        for _ in range(count):
            call()
        return (self._clock() - start) / count

    def _loop(self, call: Call) -> _Loop:
        """Find how many calls make one reading, and whether a call needs a warm-up."""
        self._sleep(SETTLE)
        first = self._read(call, 1)
        if first >= LONG_CALL:
            return _Loop(1, warm_up=False)
        count = 1
        while True:
            seconds = self._read(call, count) * count
            if seconds >= MIN_READING:
                return _Loop(count, warm_up=True)
            count = max(count * 2, int(count * MIN_READING / max(seconds, 1e-9)))


def compare(
    case: str,
    ours: Call,
    peers: Mapping[str, Call],
    repetitions: int,
    *,
    bar: float | None = None,
    bar_peers: Sequence[str] | None = None,
    note: str = "",
    work: Work | None = None,
    limits: Limits | None = None,
    extra: Mapping[str, float] | None = None,
    stopwatch: Stopwatch | None = None,
) -> Comparison:
    """Time `ours` and every peer in interleaved repetitions; verify before calling this."""
    mine, *others = (stopwatch or Stopwatch()).readings([ours, *peers.values()], repetitions)
    theirs = dict(zip(peers, others, strict=True))
    ratios = {
        name: statistics.median(peer / our for peer, our in zip(readings, mine, strict=True))
        for name, readings in theirs.items()
    }
    counted = tuple(peers) if bar_peers is None else tuple(name for name in bar_peers if name in peers)
    best = min(counted or peers, key=lambda name: ratios[name], default=None)
    ratio = None if best is None else ratios[best]
    timing = Timing.of(mine)
    return Comparison(
        case=case,
        ours=timing,
        peers={name: Timing.of(readings) for name, readings in theirs.items()},
        ratios=ratios,
        best_peer=best,
        ratio=ratio,
        bar=bar,
        bar_peers=() if bar is None else counted,
        reached=None if bar is None or ratio is None or not counted else ratio >= bar,
        note=note,
        work=work,
        achieved=None if work is None else Achieved.of(work, timing.median, limits),
        extra=dict(extra or {}),
    )
