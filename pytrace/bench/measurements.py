"""What a bench says: timings, comparisons, checks, sweeps, and the document that holds them all."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

# Of the JSON document; a reader can tell by it what to expect.
FORMAT = 1

# Fewer repetitions than this make a figure that is no record.
RECORD_REPETITIONS = 7

# Slopes of log time over log size that count as linear growth.
LINEAR = (0.85, 1.15)


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What every case of a bench is run with; `quick` asks for smaller cases, `scale` for that share of a card's.

    With `avx2` rows are timed on AVX2, too, where this library uses AVX-512, unless they are `quick`.
    """

    threads: int
    repetitions: int = RECORD_REPETITIONS
    seed: int = 0
    quick: bool = False
    rows: bool = True
    sweeps: bool = True
    avx2: bool = True
    data: Path | None = None
    device: Literal["cpu", "cuda"] = "cpu"
    scale: float = 1.0


class Timing(msgspec.Struct, frozen=True):
    """Seconds a call: the median over repetitions, the quartiles as spread, and the fastest."""

    median: float
    low: float
    high: float
    fastest: float
    repetitions: int

    @staticmethod
    def of(readings: Sequence[float]) -> Timing:
        """Summarise the readings of all repetitions."""
        # Quartiles need two readings; the single one of a cut-off search is its own spread.
        several = readings if len(readings) > 1 else [*readings, *readings]
        low, median, high = statistics.quantiles(several, n=4, method="inclusive")
        return Timing(median, low, high, min(readings), len(readings))


class Limits(msgspec.Struct, frozen=True):
    """What the machine itself does at best with the threads given: bytes read and arithmetic a second, as measured.

    For a card, the bytes are those that a copy within its memory reads and writes, and arithmetic may be unknown.
    """

    bytes_per_second: float
    flops_per_second: float | None


class Work(msgspec.Struct, frozen=True):
    """What one call must do at least: bytes read and written once, and operations of some unit.

    Only ``"FLOP"`` can be held against the machine's arithmetic; other units give a rate alone.
    """

    # Least figures: what a call does more than this (copies, packing) is its own loss against the roofline.
    bytes: float = 0.0
    operations: float = 0.0
    unit: str = "FLOP"


class Achieved(msgspec.Struct, frozen=True, kw_only=True):
    """How much of its work a call did in a second, and what share of the machine's limits that is (the roofline).

    `shares` are the least times that ``"memory"`` and ``"arithmetic"`` allow over the time taken, and `limit` names the
    larger, which binds. A share of memory above 1 says that the data stayed in a cache near the core.
    """

    gigabytes_per_second: float | None
    giga_operations_per_second: float | None
    unit: str
    limit: str | None
    shares: dict[str, float]

    @staticmethod
    def of(work: Work, seconds: float, limits: Limits | None) -> Achieved:
        """Hold the work of a call that took so many seconds against the machine's limits."""
        shares: dict[str, float] = {}
        if limits is not None and work.bytes:
            shares["memory"] = work.bytes / limits.bytes_per_second / seconds
        if limits is not None and limits.flops_per_second and work.operations and work.unit == "FLOP":
            shares["arithmetic"] = work.operations / limits.flops_per_second / seconds
        return Achieved(
            gigabytes_per_second=work.bytes / seconds / 1e9 if work.bytes else None,
            giga_operations_per_second=work.operations / seconds / 1e9 if work.operations else None,
            unit=work.unit,
            limit=max(shares, key=lambda name: shares[name], default=None),
            shares=shares,
        )


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """One case: our timing, the peers' timings, and the ratio of each (above 1: we are faster).

    `bar` is the ratio that every peer in `bar_peers` must show; `best_peer` is the one of them (or of all, where there
    is none of them) with the lowest ratio, and `ratio` that ratio. `reached` is None where there is no bar, or none of
    the bar's peers is installed.
    """

    case: str
    ours: Timing
    peers: dict[str, Timing]
    ratios: dict[str, float]
    best_peer: str | None
    ratio: float | None
    bar: float | None
    bar_peers: tuple[str, ...]
    reached: bool | None
    note: str
    work: Work | None
    achieved: Achieved | None
    extra: dict[str, float]


class Check(msgspec.Struct, frozen=True):
    """One value that is no timing, held against a bar; `reached` is None where it could not be measured, and `note` says why."""

    case: str
    value: float | None
    unit: str
    sense: Literal["at most", "at least"]
    bar: float
    note: str = ""
    extra: dict[str, float] = {}
    reached: bool | None = None

    def __post_init__(self) -> None:
        """Hold the value against its bar."""
        if self.value is not None:
            reached = self.value <= self.bar if self.sense == "at most" else self.value >= self.bar
            msgspec.structs.force_setattr(self, "reached", reached)


Row: TypeAlias = Comparison | Check


class Sweep(msgspec.Struct, frozen=True, kw_only=True):
    """One case over growing sizes: a timing (or None) a size for us, under ``"pytrace"``, and for each peer.

    `slopes` are those of log time over log size in the upper half of the sizes: 1 is linear growth. `linear` says
    whether ours lies in `LINEAR`, for work that itself grows linearly; `bar` says whether that counts as a bar.
    """

    title: str
    axis: str
    sizes: list[int]
    series: dict[str, list[Timing | None]]
    slopes: dict[str, float]
    linear: bool | None
    bar: bool
    extra: dict[str, list[float | None]]
    notes: list[str]


class Kernel(msgspec.Struct, kw_only=True):
    """What one kernel's bench has said so far; `avx2_rows` are those of `rows` with all that can be held to AVX2."""

    rows: list[Comparison] = []
    avx2_rows: list[Comparison] = []
    checks: list[Check] = []
    sweeps: list[Sweep] = []
    seconds: float = 0.0


class Bars(msgspec.Struct, frozen=True):
    """How many bars were met, which were missed, and which had no peer to be measured with."""

    met: int
    of: int
    missed: list[str]
    unmeasured: list[str]


class Document(msgspec.Struct, kw_only=True):
    """All that a run said; `complete` is false until it has ended."""

    format: int = FORMAT
    complete: bool = False
    command: str
    settings: Settings
    machine: dict[str, object]
    limits: Limits | None = None
    missing_peers: dict[str, str]
    warnings: list[str]
    kernels: dict[str, Kernel] = {}
    bars: Bars = Bars(0, 0, [], [])
    load_at_start: list[float] | None = None
    load_at_end: list[float] | None = None
    seconds: float = 0.0


def slope(sizes: Sequence[int], seconds: Sequence[float | None]) -> float | None:
    """Fit log time over log size by least squares in the upper half of the sizes that were timed."""
    timed = [(math.log(size), math.log(time)) for size, time in zip(sizes, seconds, strict=True) if time is not None]
    # At the small end the cost of a call itself hides how the work grows.
    upper = timed[len(timed) // 2 :]
    if len(upper) < 2:
        return None
    x, y = zip(*upper, strict=True)
    return statistics.linear_regression(x, y).slope


def count_bars(kernels: dict[str, Kernel]) -> Bars:
    """Count what was met and missed so far."""
    verdicts: list[tuple[str, bool | None]] = []
    for name, kernel in kernels.items():
        verdicts += [(f"{name}: {row.case}", row.reached) for row in kernel.rows if row.bar is not None]
        verdicts += [(f"{name}: {check.case}", check.reached) for check in kernel.checks]
        verdicts += [(f"{name}: {sweep.title}, linear", sweep.linear) for sweep in kernel.sweeps if sweep.bar]
    met, missed, unmeasured = (
        [case for case, reached in verdicts if reached is verdict] for verdict in (True, False, None)
    )
    return Bars(len(met), len(met) + len(missed), missed, unmeasured)
