"""`pytrace bench`: its arithmetic on clocks that are made up, its verifications on wrong answers, its command for real."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from pytrace import kernels
from pytrace.bench import (
    KERNELS,
    alignment,
    bags,
    beam,
    fuzzy,
    late_interaction,
    machine,
    names,
    plots,
    set_cover,
    similarity,
    spans,
    stopwatch,
    suite,
    walk,
)
from pytrace.bench import (
    bench_report as report,
)
from pytrace.bench import (
    sample_texts as texts,
)
from pytrace.bench.context import Bench, Contest, require_close
from pytrace.bench.measurements import (
    Achieved,
    Check,
    Comparison,
    Kernel,
    Limits,
    Settings,
    Sweep,
    Work,
    count_bars,
    slope,
)
from pytrace.bench.peers import PEERS, Peers
from pytrace.bench.stopwatch import MIN_READING, SETTLE, Stopwatch
from pytrace.bench.suite import Run, command
from pytrace.cli import common, program
from pytrace.errors import DataError, InputError, VerificationError
from pytrace.kernels.set_cover import Cover
from pytrace.models import child
from tests import oracles


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

    def bench(self, limits: Limits | None = None, *, repetitions: int = 1, quick: bool = False) -> Bench:
        bench = Bench(Settings(threads=1, repetitions=repetitions, quick=quick), Peers([]), limits, lambda _: None)
        bench.stopwatch = self.stopwatch()
        return bench


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
    found = fake.bench(repetitions=3).compare(
        "case", fake.call("ours", lambda: next(ours)), {"peer": fake.call("peer", lambda: next(theirs))}, bar=2.0
    )
    assert found.ratios["peer"] == pytest.approx(2.0)  # of 3, 1 and 2; the ratio of the medians would be 1.5
    assert (found.best_peer, found.reached) == ("peer", True)
    assert found.ours.median == pytest.approx(0.2)
    assert (found.ours.low, found.ours.high) == pytest.approx((0.15, 0.3))
    assert (found.ours.fastest, found.ours.repetitions) == (pytest.approx(0.1), 3)


def compared(bar: float | None, bar_peers: tuple[str, ...] | None) -> Any:
    fake = FakeTime()
    peers = {"fast": fake.call("fast", 0.05), "slow": fake.call("slow", 0.3)}
    return fake.bench(Limits(4e10, 1e11)).compare(
        "case", fake.call("ours", 0.1), peers, bar=bar, bar_peers=bar_peers, work=Work(2e9, 1e9)
    )


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
    assert (memory.limit, memory.shares) == ("memory", pytest.approx({"memory": 0.5, "arithmetic": 0.1}))
    assert Achieved.of(Work(1e6, 5e9), 0.1, limits).limit == "arithmetic"
    cells = Achieved.of(Work(0, 5e9, "cell"), 0.1, limits)
    assert (cells.limit, cells.shares, cells.gigabytes_per_second) == (None, {}, None)
    assert compared(2.0, None).achieved.shares["memory"] == pytest.approx(0.5)
    cached = Achieved.of(Work(2e9, 1e9), 0.01, limits)
    assert report.rate(cached) == "200 GB/s, 100 GFLOP/s, from cache, 100% of the limit of arithmetic"


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

    def prepare(size: int) -> Contest:
        peers = {"late": fake.call("late", 0.1)} if size >= 100 else {}
        peers["peer"] = fake.call("peer", peer * size)
        return Contest(fake.call("ours", 1e-3 * size**power), peers, {"recall": 1.0} if size < 100 else {})

    return fake.bench(quick=quick).sweep("case", "items", [1, 10, 100, 1_000], prepare, growth=1, bar=True)


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
        checks=[Check("wrong", 1, "", "at most", 0), Check("unknown", None, "", "at least", 0)],
        sweeps=[swept(1.0), swept(2.0), swept(2.0, quick=True)],
    )
    bars = count_bars({"k": kernel})
    assert (bars.met, bars.of) == (2, 5)
    assert bars.missed == ["k: case", "k: wrong", "k: case, linear"]
    assert bars.unmeasured == ["k: case", "k: unknown"]


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


def lighter_nodes_first(*arguments: Any, **options: Any) -> kernels.Ranking:
    right = kernels.personalised_pagerank(*arguments, **options)
    return right._replace(nodes=right.nodes[::-1].copy())


def one_name_too_few(task: Any) -> kernels.FoundNames:
    right = task.table.find(task.texts)
    return right._replace(offsets=np.maximum(right.offsets - 1, 0), names=right.names[1:], starts=right.starts[1:])


WRONG = [
    (similarity, "top_k", second_best_twice),
    (fuzzy.fuzzy, "cdist", lambda rows, columns, **_: np.full((len(rows), len(columns)), 50.0)),
    (alignment, "alignment_score", lambda *_, **__: 1e6),
    (set_cover, "minimum_cover", a_set_too_few),
    (beam, "expand", parents_mixed_up),
    (walk, "personalised_pagerank", lighter_nodes_first),
    (names, "ours", one_name_too_few),
    (late_interaction, "max_sim", lambda *_, document_offsets, **__: np.zeros(len(document_offsets) - 1, np.float32)),
    (bags, "embedding_bag", lambda table, _, offsets: np.ones((len(offsets) - 1, table.shape[1]), np.float32)),
    (spans, "top_spans", lambda *arrays, **options: kernels.top_spans(*arrays, **(options | {"max_tokens": 2}))),
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


def test_the_benches_own_plain_answers_are_those_of_the_oracles() -> None:
    """Without peers they are what a kernel is verified with."""
    random_ = np.random.default_rng(1)
    chance = random.Random(1)
    for _ in range(150):
        a, b = ("".join(chance.choices("ab c", k=chance.randint(0, 7))) for _ in range(2))
        assert fuzzy.plain_ratio(a, b) == pytest.approx(oracles.ratio(a, b))
        assert fuzzy.plain_partial_ratio(a, b) == pytest.approx(oracles.partial_ratio(a, b)), (a, b)
        first, second = (random_.integers(0, 3, random_.integers(1, 6)).astype(np.int32) for _ in range(2))
        gap_open = int(random_.integers(-4, 0))
        expected = oracles.best_alignment_score(
            len(first), len(second), lambda i, j, x=first, y=second: 1.0 if x[i] == y[j] else -1.0, -1.0, gap_open
        )
        assert alignment.table_score(alignment.Pair(first, second, "", ""), gap_open) == expected
        judged = [random_.random(shape) < 0.3 for shape in ((6,), (6, 3), (6, 2))]
        assert set_cover.three_phases(*judged) == oracles.three_phases(*(part.tolist() for part in judged))
        matrix = random_.random((6, 5)) < 0.4
        sets = [frozenset(np.flatnonzero(row).tolist()) for row in matrix]
        least = int(oracles.least_cover(sets, [1.0] * 6))
        assert not set_cover.smaller_exists(matrix, least)
        assert set_cover.smaller_exists(matrix, least + 1)
    step = beam.Step.random(random_, 3, 4)
    expected_rows = oracles.expand(
        step.scores.tolist(), step.logits.tolist(), step.finished.tolist(), step.offsets.tolist(),
        beams=beam.BEAMS, chains=beam.CHAINS,
    )  # fmt: skip
    assert [(parent, option) for parent, option, _ in beam.plain_step(step)] == [
        (row[0], row[1]) for question in expected_rows for row in question
    ]


@pytest.mark.parametrize("kernel", ["similarity", "alignment", "set_cover", "fuzzy"])
def test_without_any_peer_a_kernel_is_verified_and_timed_all_the_same(
    kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for peer in PEERS.values():
        for name in {peer.module, peer.module.partition(".")[0]}:
            monkeypatch.setitem(sys.modules, name, None)
    bench = bench_for(kernel)
    packages = {peer.package for peer in PEERS.values() if kernel in peer.kernels}
    assert set(bench.peers.missing) == packages
    monkeypatch.setattr(similarity, "SHAPES", similarity.SHAPES[:2])
    timed: list[str] = []
    comparison = compared(2.0, ())
    monkeypatch.setattr(Bench, "compare", lambda _, case, *__, **___: timed.append(case) or comparison)
    module: Any = {"similarity": similarity, "alignment": alignment, "set_cover": set_cover, "fuzzy": fuzzy}[kernel]
    rows = list(module.rows(bench))
    assert len(timed) >= 4
    assert all(row.reached is None for row in rows if isinstance(row, Check) and "CP-SAT" in row.case)


def test_texts_are_the_folders_own_and_a_folder_without_any_is_an_error(tmp_path: Path) -> None:
    chance = random.Random(0)
    row = {"context": [["Ostrel", ["Ostrel is a port.", "It has a tower."]], ["Vann", ["Vann is a river."]]]}
    folder = tmp_path / "multihop"
    with pytest.raises(InputError, match=r"has no \*.jsonl file"):
        texts.read(tmp_path, chance)
    folder.mkdir()
    (folder / "dev.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    for place in (tmp_path, folder):
        found = texts.read(place, chance)
        assert (found.entities, len(found.sentences)) == (["Ostrel", "Vann"], 3)
        assert found.origin == "3 real sentences, 2 real titles"
    (folder / "dev.jsonl").write_text(json.dumps(row) + '\n{"question": 1}\n', encoding="utf-8")
    with pytest.raises(DataError, match=r"dev\.jsonl:2: is no question"):
        texts.read(tmp_path, chance)


def test_without_data_words_are_drawn_at_random_and_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTRACE_DATA", str(tmp_path))
    found = texts.read(None, random.Random(0))
    assert len(found.sentences) >= 1000
    assert "random words" in found.origin
    assert found == texts.read(None, random.Random(0))


@pytest.fixture
def small_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make measuring the machine a matter of milliseconds."""
    monkeypatch.setattr(machine, "READ_BYTES", 2**20)
    monkeypatch.setattr(machine, "PRODUCT", 64)


@pytest.mark.usefixtures("small_measure")
def test_the_machines_facts_and_limits_are_plausible() -> None:
    facts = machine.facts(2)
    assert facts["cores"] == machine.cores() >= 1
    assert facts["instruction_set"] in facts["instruction_sets"]  # type: ignore[operator]
    limits = machine.measure(2)
    assert 1e7 < limits.bytes_per_second < 1e13
    assert 1e7 < limits.flops_per_second < 1e14


def test_the_command_to_run_it_again_says_all_that_was_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTRACE_ISA", "baseline")
    monkeypatch.delenv("PYTRACE_DATA", raising=False)
    settings = Settings(threads=3, repetitions=9, seed=4, quick=True, sweeps=False, data=Path("a folder"))
    assert command(["beam"], settings) == (
        "PYTRACE_ISA=baseline pytrace bench beam --threads 3 --repetitions 9 --seed 4 --quick --no-sweeps "
        "--data 'a folder'"
    )
    assert command(KERNELS, Settings(threads=2)).endswith("pytrace bench --threads 2 --repetitions 7 --seed 0")


def test_a_run_warns_of_load_of_too_few_repetitions_and_of_missing_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "load", lambda: [99.0, 1.0, 1.0])
    monkeypatch.setitem(sys.modules, "faiss", None)
    warnings = Run(["similarity"], Settings(threads=1, repetitions=6)).document.warnings
    assert any("load average is 99" in warning for warning in warnings)
    assert any("6 repetitions are below 7" in warning for warning in warnings)
    (peers,) = (warning for warning in warnings if "peers left out" in warning)
    assert "faiss-cpu" in peers
    assert "pip install 'pytrace-rag[bench]'" in peers
    monkeypatch.setattr(machine, "load", lambda: [0.0, 0.0, 0.0])
    assert Run(["beam"], Settings(threads=1)).document.warnings == []


def test_rows_are_run_again_in_a_process_held_to_avx2_and_stand_below_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[tuple[Any, ...]] = []

    def run(function: Any, *arguments: Any, environment: dict[str, str], **_: Any) -> list[Comparison]:
        calls.append((function, *arguments, environment))
        return [compared(2.0, None)]

    monkeypatch.setattr(suite.child, "run", run)
    monkeypatch.setattr(machine, "measure", lambda _: None)
    monkeypatch.setattr(suite._core, "active_isa", lambda: "avx512")
    monkeypatch.setattr(beam, "rows", lambda _: iter([compared(2.0, None)]))
    settings = Settings(threads=1, sweeps=False)
    with Run(["beam"], settings).started() as measure:
        kernel = measure("beam")
    ((function, name, changed, environment),) = calls
    assert (function, name) == (suite.rows_of, "beam")
    assert changed == msgspec.structs.replace(settings, avx2=False)
    assert environment["PYTRACE_ISA"] == "avx2"
    assert environment["OPENBLAS_CORETYPE"] == "Haswell"
    (table,) = report.tables("beam", kernel)
    assert [row[0] for row in table.rows] == ["case", "case, AVX2"]
    assert table.notes[-1].startswith("AVX2: with this library, OpenBLAS")
    for other in (msgspec.structs.replace(settings, avx2=False), msgspec.structs.replace(settings, quick=True)):
        with Run(["beam"], other).started() as measure:
            assert measure("beam").avx2_rows == []
    assert len(calls) == 1


def test_a_row_that_fails_on_avx2_ends_the_bench(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> list[Comparison]:
        raise child.ChildFailedError("pytrace.errors.VerificationError: scores differ", crashed=False)

    monkeypatch.setattr(suite.child, "run", fail)
    with pytest.raises(VerificationError, match=r"beam on AVX2: pytrace\.errors\.VerificationError: scores differ"):
        suite.rows_on_avx2("beam", Settings(threads=1))


def test_a_child_is_started_in_the_environment_that_holds_it_to_an_instruction_set() -> None:
    assert child.run(os.getenv, "PYTRACE_ISA", returns=str, timeout=60, environment=suite.AVX2) == "avx2"


def test_rows_are_those_that_a_run_of_their_own_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "measure", lambda _: None)
    monkeypatch.setattr(beam, "rows", lambda bench: iter([compared(float(bench.settings.repetitions), None)]))
    settings = msgspec.to_builtins(Settings(threads=1, repetitions=3, sweeps=False, avx2=False))
    assert suite.rows_of("beam", settings) == [compared(3.0, None)]


def test_tables_and_the_summary_name_what_was_missed_with_its_roofline() -> None:
    kernel = Kernel(rows=[compared(2.0, None)], checks=[Check("memory", 1.5, "x", "at most", 1.2)], sweeps=[swept(2)])
    run = Run(["beam"], Settings(threads=1))
    run.document.kernels["beam"] = kernel
    run.document.bars = count_bars(run.document.kernels)
    rows, checks, sweep = report.tables("beam", kernel)
    assert rows.rows[0][2:7] == ("fast", "50 ms", "0.50", "2", "NO")
    assert rows.notes == []
    (other,) = next(report.tables("beam", Kernel(rows=[compared(2.0, ("slow",))]))).notes
    assert other == "case: fast takes 50 ms, ratio 0.50; the bar does not count it"
    assert checks.rows == [("memory", "1.5 x", "at most 1.2", "NO")]
    assert [row[0] for row in sweep.rows] == ["1", "10", "100", "1,000", "slope"]
    assert sweep.notes == ["pytrace grows MORE than linearly in the upper half of the sizes (slope 2.00)"]
    summary = list(report.summary(run.document))
    assert summary[0] == "0 of 3 bars met; missed:"
    assert summary[1] == "  beam: case: 0.50 of 2; 20 GB/s, 10 GFLOP/s, 50% of the limit of memory"
    assert summary[2] == "  beam: memory: 1.5, at most 1.2 wanted"
    assert summary[3] == "  beam: case, linear: slope 2.00"


@pytest.mark.parametrize(
    ("value", "worded"),
    [(1.5, "1.5 s"), (0.0123456, "12.3 ms"), (0.9999e-3, "1 ms"), (5.01e-8, "50.1 ns"), (20, "20 s")],
)
def test_times_are_worded_with_their_unit(value: float, worded: str) -> None:
    assert report.seconds(value) == worded


def test_plots_are_written_as_png_and_svg_with_labelled_axes(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib draws the plots; it comes with the extra bench")
    kernel = Kernel(sweeps=[swept(1.0), swept(2.0)])
    png, svg = plots.draw("beam", kernel, tmp_path, "about this machine")
    assert png.read_bytes().startswith(b"\x89PNG")
    assert svg.read_text(encoding="utf-8").count("<!-- items -->") == 2
    for text in ("seconds a call", "pytrace", "peer", "about this machine"):
        assert text in svg.read_text(encoding="utf-8")
    assert plots.draw("beam", Kernel(), tmp_path, "") == []


def test_a_quick_run_prints_one_json_document_and_writes_the_same_to_the_output(tmp_path: Path) -> None:
    output = tmp_path / "bench.json"
    result = cli("beam", "--quick", "--repetitions", "1", "--threads", "1", "--json", "--output", str(output))
    assert result.returncode == 0, result.stderr
    document = json.loads(result.stdout)
    assert json.loads(output.read_text(encoding="utf-8")) == document
    assert [path.name for path in tmp_path.iterdir()] == ["bench.json"]
    assert document["complete"]
    assert document["command"].endswith("pytrace bench beam --threads 1 --repetitions 1 --seed 0 --quick")
    assert {
        "processor",
        "cores",
        "memory_bytes",
        "caches",
        "kernel",
        "python",
        "pytrace",
        "instruction_set",
        "versions",
    } <= (document["machine"].keys())
    assert document["limits"]["bytes_per_second"] > 0
    assert document["seconds"] > 0
    found = document["kernels"]["beam"]
    assert [row["bar"] for row in found["rows"]] == [20.0, 3.0, None]
    for row in found["rows"]:
        assert row["ours"]["low"] <= row["ours"]["median"] <= row["ours"]["high"]
        assert row["ratios"]["NumPy"] == pytest.approx(row["peers"]["NumPy"]["median"] / row["ours"]["median"])
        assert row["reached"] is (None if row["bar"] is None else row["ratio"] >= row["bar"])
        assert row["achieved"]["gigabytes_per_second"] > 0
    assert found["checks"][0]["reached"]
    assert [sweep["sizes"] for sweep in found["sweeps"]] == [[1, 10, 100, 1000]] * 2
    assert all(len(column) == 4 for sweep in found["sweeps"] for column in sweep["series"].values())
    assert document["bars"]["met"] + len(document["bars"]["missed"]) == document["bars"]["of"] == 3
    assert "pytrace: beam: 1,000 questions" in result.stderr


@pytest.mark.usefixtures("heeding_interrupts")
def test_an_interrupt_keeps_the_rows_that_were_done(tmp_path: Path) -> None:
    output = tmp_path / "bench.json"
    arguments = ["bench", "beam", "--no-sweeps", "--repetitions", "100000", "--output", str(output)]
    with subprocess.Popen(
        [sys.executable, "-c", f"from pytrace.cli import main; main({arguments})"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        assert any("1 question x" in line for line in iter(process.stderr.readline, ""))
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        shown, rest = process.communicate(timeout=30)
    assert process.returncode == 130
    assert rest.strip() == "pytrace: interrupted"
    kept = json.loads(output.read_text(encoding="utf-8"))
    assert not kept["complete"]
    assert kept["kernels"]["beam"]["checks"][0]["reached"]
    assert "beam: checks" in shown


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("frob",), "'frob' is not one of 'similarity', 'fuzzy', 'alignment', 'set_cover', 'beam'"),
        (("--repetitions", "0"), "0 is not in the range x>=1"),
        (("--threads", "0"), "0 is not in the range 1<=x<=1024"),
        (("--no-rows", "--no-sweeps"), "leave one out"),
        (("--plots", "PLACE", "--no-sweeps"), "leave --no-sweeps out"),
        (("--output", "FOLDER"), "is a directory; name a file"),
        (("--output", "FOLDER/none/bench.json"), "there is no directory"),
        (("--data", "FOLDER/none"), "does not exist"),
        (("fuzzy", "--quick", "--data", "FOLDER"), "has no *.jsonl file"),
    ],
)
def test_wrong_use_of_bench_is_one_sentence_and_exit_status_2(
    arguments: tuple[str, ...], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = common.run(program, ["bench", *(argument.replace("FOLDER", str(tmp_path)) for argument in arguments)])
    shown = capsys.readouterr()
    assert (status, shown.out) == (2, "")
    assert said in shown.err
    assert shown.err.startswith("pytrace: ")
    assert shown.err.count("\n") == 1


def test_a_file_in_the_way_of_plots_and_missing_matplotlib_are_said_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hide = "import sys; sys.modules['matplotlib.figure'] = None; "
    code = f"{hide}from pytrace.cli import main; main(['bench', 'beam', '--plots', {str(tmp_path / 'p')!r}])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == "pytrace: drawing sweeps needs matplotlib: pip install 'pytrace-rag[bench]'\n"
    pytest.importorskip("matplotlib", reason="matplotlib draws the plots; it comes with the extra bench")
    (tmp_path / "file").touch()
    for place in ("file", "file/below"):
        assert common.run(program, ["bench", "beam", "--plots", str(tmp_path / place)]) == 2
        assert "a file is in the way" in capsys.readouterr().err


def in_this_process(*arguments: str) -> int:
    return common.run(program, ["bench", "beam", "--quick", "--repetitions", "1", "--no-sweeps", *arguments])


@pytest.mark.usefixtures("small_measure")
def test_text_shows_facts_and_tables_and_strict_fails_where_a_bar_is_missed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def slow(*arguments: Any, **options: Any) -> kernels.Expansion:
        time.sleep(0.005)
        return kernels.expand(*arguments, **options)

    monkeypatch.setattr(beam, "expand", slow)
    assert in_this_process() == 0
    shown = capsys.readouterr().out
    for text in ("again: ", "beam: rows", "CASE", "NumPy", "beam: checks", "1 of 3 bars met; missed:", "load average"):
        assert text in shown
    assert in_this_process("--strict") == 1
    assert capsys.readouterr().out.endswith("at the end\n")


@pytest.mark.usefixtures("small_measure")
def test_a_wrong_answer_is_one_sentence_and_exit_status_1_and_the_output_says_it_is_not_complete(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(beam, "expand", parents_mixed_up)
    output = tmp_path / "bench.json"
    assert in_this_process("--output", str(output)) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert said == "pytrace: a random step: the chains chosen differ from those found by trying everything"
    assert not json.loads(output.read_text(encoding="utf-8"))["complete"]
