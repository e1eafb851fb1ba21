"""The stopwatch: interleaved repetitions, each reading after a pause and a call that is not counted."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

Call: TypeAlias = Callable[[], Any]

# Seconds to wait before a reading: OpenBLAS spins for up to 2^26 clock ticks (about 25 ms), libgomp for less.
SETTLE = 0.06

# Seconds; ten thousand times the clock's resolution, and short beside a scheduler's bad moments.
MIN_READING = 0.01

# Seconds from which a call needs no warm-up before a reading: waking threads is less than a thousandth of it.
LONG_CALL = 0.5


class Stopwatch:
    """Reads how long calls take."""

    def __init__(
        self, clock: Callable[[], float] = time.perf_counter, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._clock = clock
        self._sleep = sleep

    def readings(self, calls: Sequence[Call], repetitions: int) -> list[list[float]]:
        """Read every call once a repetition, in turn; returns the seconds a call takes, a list for each."""
        counts = [self._calls_a_reading(call) for call in calls]
        readings: list[list[float]] = [[] for _ in calls]
        # Repetition r reads every contender once before repetition r + 1 starts, so that a noisy neighbour hits all of them.
        for _ in range(repetitions):
            for call, count, seconds in zip(calls, counts, readings, strict=True):
                # The thread pools of OpenMP and OpenBLAS spin for tens of milliseconds after a call, on the very cores that
                # the next contender wants. So each reading waits until they sleep, and then makes one call that is not
                # counted, which wakes the contender's own pool and fills the caches with its data.
                self._sleep(SETTLE)
                if count:
                    call()
                seconds.append(self._read(call, count or 1))
        return readings

    def _read(self, call: Call, count: int) -> float:
        start = self._clock()
        for _ in range(count):
            call()
        return (self._clock() - start) / count

    def _calls_a_reading(self, call: Call) -> int:
        """Find how many calls make one reading; 0 stands for one that needs no warm-up."""
        self._sleep(SETTLE)
        if self._read(call, 1) >= LONG_CALL:
            return 0
        count = 1
        while (seconds := self._read(call, count) * count) < MIN_READING:
            # At least doubled, so that an estimate from a first, slow call is corrected in a few rounds.
            count = max(count * 2, int(count * MIN_READING / max(seconds, 1e-9)))
        return count
