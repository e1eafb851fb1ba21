"""`pytrace bench`: its arithmetic on clocks that are made up, its verifications on wrong answers, its command for real."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pytrace import kernels
from pytrace.bench import (
    KERNELS,
    alignment,
    beam,
    fuzzy,
    set_cover,
    similarity,
    stopwatch,
)
from pytrace.bench.context import Bench, Contest, require_close
from pytrace.bench.peers import Peers
from pytrace.bench.records import (
    Achieved,
    Check,
    Kernel,
    Limits,
    Settings,
    Sweep,
    Work,
    count_bars,
    slope,
)
from pytrace.bench.stopwatch import MIN_READING, SETTLE, Stopwatch, compare
from pytrace.errors import VerificationError
from pytrace.kernels.set_cover import Cover


class FakeTime:
    """A clock that only calls and sleeps move on, and that writes down what happens."""

    def __init__(self) -> None:
        self.now = 0.0
        self.events: list[str] = []

    def call(self, name: str, seconds: Callable[[], float] | float) -> Callable[[], None]:
        def run() -> None:
            self.events.append(name)
            self.now += seconds() if callable(seconds) else seconds

        return run

    def sleep(self, seconds: float) -> None:
        self.events.append(f"sleep {seconds}")
        self.now += seconds

    def stopwatch(self) -> Stopwatch:
        return Stopwatch(lambda: self.now, self.sleep)


def bench_for(kernel: str, **changes: Any) -> Bench:
    settings = Settings(**{"threads": 2, "repetitions": 1, "quick": True, **changes})
    return Bench(settings, Peers([kernel]), None, lambda _: None)


def cli(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from pytrace.cli import main; main()", "bench", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "COLUMNS": "80", **environment},
    )


def one_sentence(result: subprocess.CompletedProcess[str]) -> str:
    assert "Traceback" not in result.stderr
    return result.stderr.splitlines()[-1]


# ---------------------------------------------------------------------------------------------------- the stopwatch


def test_every_reading_follows_a_pause_and_one_call_that_is_not_counted() -> None:
    fake = FakeTime()
    calls = [fake.call("a", 0.02), fake.call("b", 0.05)]
    readings = fake.stopwatch().readings(calls, 2)
    pause = f"sleep {SETTLE}"
    found_out = [pause, "a", "a", pause, "b", "b"]  # how many calls make a reading
    repetition = [pause, "a", "a", pause, "b", "b"]  # warm-up, reading
    assert fake.events == found_out + repetition * 2
    assert readings == [pytest.approx([0.02] * 2), pytest.approx([0.05] * 2)]


def test_a_fast_call_is_repeated_until_a_reading_is_long_enough_and_a_long_one_needs_no_warm_up() -> None:
    fake = FakeTime()
    (reading,) = fake.stopwatch().readings([fake.call("fast", 1e-6)], 1)
    assert reading == pytest.approx([1e-6])
    last = len(fake.events) - 1 - fake.events[::-1].index(f"sleep {SETTLE}")
    assert (len(fake.events) - last - 2) * 1e-6 >= MIN_READING * 0.999

    fake = FakeTime()
    fake.stopwatch().readings([fake.call("slow", stopwatch.LONG_CALL)], 3)
    assert fake.events.count("slow") == 4


def test_a_ratio_is_the_median_of_the_ratios_within_each_repetition() -> None:
    fake = FakeTime()
    # Three repetitions of warm-up and reading; the first two values find out how many calls make a reading.
    ours = iter([0.1, 0.1, 0.1, 0.1, 0.1, 0.2, 0.1, 0.4])
    theirs = iter([0.1, 0.1, 0.1, 0.3, 0.1, 0.2, 0.1, 0.8])
    found = compare(
        "case", fake.call("ours", lambda: next(ours)), {"peer": fake.call("peer", lambda: next(theirs))}, 3,
        bar=2.0, stopwatch=fake.stopwatch(),
    )  # fmt: skip
    assert found.ratios["peer"] == pytest.approx(2.0)  # of 3, 1 and 2; the ratio of the medians would be 1.5
    assert (found.best_peer, found.reached) == ("peer", True)
    assert found.ours.median == pytest.approx(0.2)
    assert (found.ours.low, found.ours.high) == pytest.approx((0.15, 0.3))
    assert (found.ours.fastest, found.ours.repetitions) == (pytest.approx(0.1), 3)


def compared(bar: float | None, bar_peers: tuple[str, ...] | None) -> Any:
    fake = FakeTime()
    peers = {"fast": fake.call("fast", 0.05), "slow": fake.call("slow", 0.3)}
    return compare(
        "case", fake.call("ours", 0.1), peers, 1, bar=bar, bar_peers=bar_peers, stopwatch=fake.stopwatch(),
        work=Work(2e9, 1e9), limits=Limits(4e10, 1e11),
    )  # fmt: skip


def test_a_bar_counts_the_worst_of_its_own_peers_and_none_without_them() -> None:
    assert (compared(2.0, None).best_peer, compared(2.0, None).reached) == ("fast", False)
    assert (compared(2.0, ("slow",)).best_peer, compared(2.0, ("slow",)).reached) == ("slow", True)
    absent = compared(2.0, ("not installed",))
    assert (absent.best_peer, absent.ratio, absent.reached) == ("fast", pytest.approx(0.5), None)
    assert compared(None, None).reached is None


def test_what_was_achieved_is_held_against_the_limit_that_binds() -> None:
    limits = Limits(bytes_per_second=4e10, flops_per_second=1e11)
    memory = Achieved.of(Work(2e9, 1e9), 0.1, limits)
    assert (memory.gigabytes_per_second, memory.giga_operations_per_second) == pytest.approx((20.0, 10.0))
    assert (memory.limit, memory.share) == ("memory", pytest.approx(0.5))
    assert Achieved.of(Work(1e6, 5e9), 0.1, limits).limit == "arithmetic"
    cells = Achieved.of(Work(0, 5e9, "cell"), 0.1, limits)
    assert (cells.limit, cells.share, cells.gigabytes_per_second) == (None, None, None)
    assert compared(2.0, None).achieved.share == pytest.approx(0.5)


# -------------------------------------------------------------------------------------------------- sweeps and bars


def test_the_slope_is_that_of_the_upper_half_of_the_sizes() -> None:
    sizes = [10, 100, 1_000, 10_000, 100_000]
    overhead_then_linear = [1.0, 1.0, 1.0, 10.0, 100.0]
    assert slope(sizes, overhead_then_linear) == pytest.approx(1.0)
    assert slope(sizes, [size**2 for size in sizes]) == pytest.approx(2.0)
    assert slope(sizes, [None, None, 1.0, None, 10.0]) == pytest.approx(None)
    assert slope(sizes, [None, 3.0, 1.0, 10.0, None]) == pytest.approx(1.0)
    assert slope([1], [1.0]) is None


def swept(power: float, *, quick: bool = False, peer: float = 1e-5) -> Sweep:
    fake = FakeTime()
    bench = Bench(Settings(threads=1, repetitions=1, quick=quick), Peers([]), None, lambda _: None)
    bench.stopwatch = fake.stopwatch()

    def prepare(size: int) -> Contest:
        peers = {"late": fake.call("late", 0.1)} if size >= 100 else {}
        peers["peer"] = fake.call("peer", peer * size)
        return Contest(fake.call("ours", 1e-3 * size**power), peers, {"recall": 1.0} if size < 100 else {})

    return bench.sweep("case", "items", [1, 10, 100, 1_000], prepare, growth=1, bar=True)


def test_a_sweep_says_whether_growth_is_linear_and_keeps_its_columns_in_line() -> None:
    linear, quadratic = swept(1.0), swept(2.0)
    assert (linear.linear, linear.slopes["pytrace"]) == (True, pytest.approx(1.0))
    assert (quadratic.linear, quadratic.slopes["pytrace"]) == (False, pytest.approx(2.0))
    assert [timing is None for timing in linear.series["late"]] == [True, True, False, False]
    assert linear.extra["recall"] == [1.0, 1.0, None, None]
    assert {len(column) for column in linear.series.values()} == {4}


def test_a_peer_leaves_a_sweep_before_it_takes_too_long_and_the_sweep_says_so() -> None:
    sweep = swept(1.0, peer=0.02)  # 2 s at 100, so 20 s at 1,000
    assert [timing is None for timing in sweep.series["peer"]] == [False, False, False, True]
    assert sweep.notes == ["peer stops before 1,000 items: a call would take about 20.0 s"]


def test_bars_are_counted_over_rows_checks_and_sweeps_and_quick_sweeps_are_no_bars() -> None:
    kernel = Kernel(
        rows=[compared(2.0, None), compared(2.0, ("slow",)), compared(None, None), compared(2.0, ("absent",))],
        checks=[Check.of("wrong", 1, "", "at most", 0), Check.of("unknown", None, "", "at least", 0)],
        sweeps=[swept(1.0), swept(2.0), swept(2.0, quick=True)],
    )
    bars = count_bars({"k": kernel})
    assert (bars.met, bars.of) == (2, 5)
    assert bars.missed == ["k: case", "k: wrong", "k: case, linear"]
    assert bars.unmeasured == ["k: case", "k: unknown"]


# ------------------------------------------------------------------------------------------------------ verification


def test_one_wrong_value_in_an_array_is_found_and_named() -> None:
    require_close([1.0, np.inf, 2.0], [1.0, np.inf, 2.0 + 1e-9], 1e-6, "scores")
    for wrong in ([1.0, np.inf, 2.1], [np.nan, np.inf, 2.0], [1.0, 3.0, 2.0]):
        with pytest.raises(VerificationError, match=r"^scores: 1 of 3 values are wrong; the first, at \("):
            require_close(wrong, [1.0, np.inf, 2.0], 1e-6, "scores")
    with pytest.raises(VerificationError, match=r"shape is \(2,\) and should be \(3,\)"):
        require_close([1.0, 2.0], [1.0, 2.0, 3.0], 1e-6, "scores")


def second_best_twice(queries: Any, items: Any, k: int, **options: Any) -> Any:
    scores, indices = kernels.top_k(queries, items, k, **options)
    scores[:, 0], indices[:, 0] = scores[:, 1], indices[:, 1]
    return scores, indices


def a_set_too_few(*_: Any, **__: Any) -> Cover:
    return Cover((), 0.0, optimal=True, bound=0.0, uncovered=())


def parents_mixed_up(*arguments: Any, **options: Any) -> kernels.Expansion:
    right = kernels.expand(*arguments, **options)
    return right._replace(parents=right.parents[::-1].copy())


WRONG = [
    (similarity, "top_k", second_best_twice),
    (fuzzy.fuzzy, "cdist", lambda rows, columns, **_: np.full((len(rows), len(columns)), 50.0)),
    (alignment, "alignment_score", lambda *_, **__: 1e6),
    (set_cover, "minimum_cover", a_set_too_few),
    (beam, "expand", parents_mixed_up),
]


@pytest.mark.parametrize(("module", "name", "wrong"), WRONG, ids=KERNELS)
def test_a_wrong_answer_ends_the_bench_before_anything_is_timed(
    module: Any, name: str, wrong: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, name, wrong)
    monkeypatch.setattr(Bench, "compare", lambda _, case, *__, **___: pytest.fail(f"{case} was timed"))
    kernel = KERNELS[[entry[0] for entry in WRONG].index(module)]
    bench = bench_for(kernel)
    bench_module: Any = fuzzy if module is fuzzy.fuzzy else module
    rows = alignment.long_sequences if kernel == "alignment" else bench_module.rows
    with pytest.raises(VerificationError):
        list(rows(bench))
