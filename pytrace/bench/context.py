"""What a kernel's bench is given: settings, peers, the stopwatch, and checks that end the run on a wrong answer."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from pytrace.bench.card import DEVICE
from pytrace.bench.measurements import LINEAR, Achieved, Comparison, Limits, Settings, Sweep, Timing, Work, slope
from pytrace.bench.peers import Peers
from pytrace.bench.stopwatch import Call, Stopwatch
from pytrace.errors import VerificationError
from pytrace.kernels import devices

T = TypeVar("T")

# The share of a card's cases that a quick run leaves.
QUICK_SCALE = 0.1

# A peer leaves a sweep before a size at which one call of it would take longer.
PEER_SECONDS = 3.0


class Contest(NamedTuple):
    """One size of a sweep: what to call, figures to report along, and how many readings if not the usual number."""

    ours: Call
    peers: Mapping[str, Call]
    extra: Mapping[str, float] = {}
    repetitions: int | None = None


@dataclass
class Bench:
    """Compares and sweeps with the same settings throughout."""

    settings: Settings
    peers: Peers
    limits: Limits | None
    tell: Callable[[str], None]
    stopwatch: Stopwatch = field(default_factory=Stopwatch)

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
        extra: Mapping[str, float] = {},
    ) -> Comparison:
        """Time `ours` and every peer in interleaved repetitions; verify before calling this."""
        self.tell(case)
        our_readings, *others = self.stopwatch.readings([ours, *peers.values()], self.settings.repetitions)
        readings = dict(zip(peers, others, strict=True))
        # A noisy neighbour slows all that is read within one repetition, so ratios are taken there and not of medians.
        ratios = {
            name: statistics.median(their / our for their, our in zip(seconds, our_readings, strict=True))
            for name, seconds in readings.items()
        }
        counted = tuple(peers) if bar_peers is None else tuple(name for name in bar_peers if name in peers)
        # The bar is held against the fastest of the peers that it names; where none of them is here, any peer is shown.
        best = min(counted or peers, key=lambda name: ratios[name], default=None)
        ratio = None if best is None else ratios[best]
        timing = Timing.of(our_readings)
        return Comparison(
            case=case,
            ours=timing,
            peers={name: Timing.of(seconds) for name, seconds in readings.items()},
            ratios=ratios,
            best_peer=best,
            ratio=ratio,
            bar=bar,
            bar_peers=() if bar is None else counted,
            reached=None if bar is None or ratio is None or not counted else ratio >= bar,
            note=note,
            work=work,
            achieved=None if work is None else Achieved.of(work, timing.median, self.limits),
            extra=dict(extra),
        )

    def compare_on_card(
        self,
        case: str,
        on_card: Call,
        from_numpy: Call,
        inputs: Sequence[NDArray[Any]],
        peers: Mapping[str, Call],
        *,
        verify: Callable[[Any, str], None],
        arrays: Callable[[Any], Iterable[Any]] = tuple,
        work: Work,
        bar: float | None = None,
        bar_peers: Sequence[str] | None = None,
    ) -> Iterator[Comparison]:
        """Verify a call from arrays on the card and from NumPy's, then time both, and by themselves the ways there and back."""
        for call, how in ((on_card, "on the card"), (from_numpy, "from NumPy")):
            verify(call(), f"{case}, {how}")
        yield self.compare(case, on_card, peers, work=work, bar=bar, bar_peers=bar_peers)
        results = [array for array in arrays(on_card()) if devices.on_card(array)]
        size = sum(array.nbytes for array in inputs)
        back = sum(devices.to_host(array).nbytes for array in results)
        ways: list[Call] = [
            lambda: [devices.to_device(array, DEVICE) for array in inputs],
            lambda: [devices.to_host(array) for array in results],
        ]
        row = self.compare(f"{case}, from NumPy", from_numpy, {"pytrace, arrays on the card": on_card})
        going, coming = map(statistics.median, self.stopwatch.readings(ways, self.settings.repetitions))
        kernel = row.peers["pytrace, arrays on the card"].median
        extra = {
            "seconds to the card": going,
            "GB/s to the card": size / going / 1e9,
            "seconds back": coming,
            "GB/s back": back / coming / 1e9,
            "share of the call that is transfer": max(0.0, 1 - kernel / row.ours.median),
        }
        yield msgspec.structs.replace(row, extra=extra)

    def sweep(
        self,
        title: str,
        axis: str,
        sizes: Sequence[int],
        prepare: Callable[[int], Contest],
        *,
        growth: float,
        bar: bool = False,
        notes: Sequence[str] = (),
    ) -> Sweep:
        """Time one case at growing sizes; `notes` may grow while it is prepared."""
        timings: dict[str, list[Timing | None]] = {"pytrace": []}
        extra: dict[str, list[float | None]] = {}
        stopped: dict[str, str] = {}
        for position, size in enumerate(sizes):
            self.tell(f"{title}: {size:,} {axis}")
            contest = prepare(size)
            # Before the size, not after it: one call too long would take longer than all the sweep.
            for name in (name for name in contest.peers if name in timings and name not in stopped):
                last = timings[name][-1]
                expected = 0.0 if last is None else last.median * (size / sizes[position - 1]) ** growth
                if expected > PEER_SECONDS:
                    stopped[name] = f"{name} stops before {size:,} {axis}: a call would take about {expected:.1f} s"
            calls = {"pytrace": contest.ours} | {k: call for k, call in contest.peers.items() if k not in stopped}
            readings = self.stopwatch.readings(list(calls.values()), contest.repetitions or self.settings.repetitions)
            read = dict(zip(calls, map(Timing.of, readings), strict=True))
            _add_to_columns(timings, read, position)
            _add_to_columns(extra, contest.extra, position)
        slopes = {
            name: fitted
            for name, column in timings.items()
            if (fitted := slope(sizes, [None if timing is None else timing.median for timing in column])) is not None
        }
        ours = slopes.get("pytrace")
        # Work that grows faster by itself (a table of two lengths) can be no proof of linear growth.
        linear = None if growth != 1 or ours is None else LINEAR[0] <= ours <= LINEAR[1]
        return Sweep(
            title=title, axis=axis, sizes=list(sizes), series=timings, slopes=slopes, linear=linear,
            bar=bar and not self.settings.quick, extra=extra, notes=[*notes, *stopped.values()],
        )  # fmt: skip


def _add_to_columns(columns: dict[str, list[T | None]], values: Mapping[str, T], row: int) -> None:
    """Add a row to a table: None where a column has no value in it, and in the rows before a column that is new."""
    for name in [*columns, *(name for name in values if name not in columns)]:
        columns.setdefault(name, [None] * row).append(values.get(name))


def require(condition: object, message: str) -> None:
    """Raise VerificationError unless the condition holds."""
    if not condition:
        raise VerificationError(message)


def require_close(result: ArrayLike, expected: ArrayLike, tolerance: float, what: str) -> None:
    """Raise VerificationError, with the first place, where two arrays differ by more than `tolerance`."""
    ours, right = np.asarray(result, dtype=np.float64), np.asarray(expected, dtype=np.float64)
    require(ours.shape == right.shape, f"{what}: the shape is {ours.shape} and should be {right.shape}")
    with np.errstate(invalid="ignore"):  # two infinities differ by NaN, and are equal
        wrong = ~((np.abs(ours - right) <= tolerance) | (ours == right))
    if wrong.any():
        first = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise VerificationError(
            f"{what}: {int(wrong.sum())} of {wrong.size} values are wrong; the first, at {first}, is {ours[first]!r} and "
            f"should be {right[first]!r}"
        )
