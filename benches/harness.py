"""The stopwatch: interleaved repetitions, medians and spreads, and the facts that make a figure repeatable.

A bench module has one function `run(settings) -> Iterator[Comparison]` that verifies its answers, then yields
`compare(...)` for each case, and ends with::

    if __name__ == "__main__":
        sys.exit(harness.main({"similarity": run}))

Repetition r times every contender once before repetition r + 1 starts, so that a noisy neighbour hits all of them.
One reading repeats a fast call until it lasts `MIN_READING` seconds; a ratio is the median over repetitions of peer
time / our time within the same repetition.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import shlex
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path

import pytrace
from pytrace import _core

MIN_READING = 0.01
"""Seconds; ten thousand times the clock's resolution, and short beside a scheduler's bad moments."""

PEERS = (
    "faiss-cpu",
    "numpy",
    "rapidfuzz",
    "sequence-align",
    "parasail",
    "minineedle",
    "ortools",
    "onnxruntime",
    "llama-cpp-python",
)

Call = Callable[[], object]


@dataclass(frozen=True)
class Settings:
    """What every case of a bench is run with; `quick` asks for smaller cases."""

    threads: int
    repetitions: int = 7
    seed: int = 0
    quick: bool = False


@dataclass(frozen=True)
class Timing:
    """Seconds a call: the median over repetitions, the quartiles as spread, and the fastest."""

    median: float
    low: float
    high: float
    fastest: float
    repetitions: int

    @staticmethod
    def of(readings: list[float]) -> Timing:
        """Summarise the readings of all repetitions."""
        quartiles = statistics.quantiles(readings, n=4, method="inclusive") if len(readings) > 1 else [readings[0]] * 3
        return Timing(statistics.median(readings), quartiles[0], quartiles[2], min(readings), len(readings))


@dataclass(frozen=True)
class Comparison:
    """One case: our timing, the peers' timings, the ratio of each (above 1: we are faster), and the bar to reach."""

    case: str
    ours: Timing
    peers: dict[str, Timing]
    ratios: dict[str, float]
    bar: float | None = None
    note: str = ""
    extra: dict[str, float] = field(default_factory=dict)

    @property
    def reached(self) -> bool | None:
        """Whether the slowest ratio reaches the bar; None where there is no bar or no peer."""
        return None if self.bar is None or not self.ratios else min(self.ratios.values()) >= self.bar


def compare(
    case: str,
    ours: Call,
    peers: Mapping[str, Call],
    settings: Settings,
    *,
    bar: float | None = None,
    note: str = "",
    extra: dict[str, float] | None = None,
) -> Comparison:
    """Time `ours` and every peer in interleaved repetitions; verify before calling this."""
    contenders = [ours, *peers.values()]
    loops = [_loops(call) for call in contenders]
    readings: list[list[float]] = [[] for _ in contenders]
    for _ in range(settings.repetitions):
        for index, (call, count) in enumerate(zip(contenders, loops, strict=True)):
            readings[index].append(_read(call, count))
    mine = readings[0]
    ratios = {
        name: statistics.median(peer / our for peer, our in zip(theirs, mine, strict=True))
        for name, theirs in zip(peers, readings[1:], strict=True)
    }
    timings = {name: Timing.of(theirs) for name, theirs in zip(peers, readings[1:], strict=True)}
    return Comparison(case, Timing.of(mine), timings, ratios, bar, note, extra or {})


def _read(call: Call, count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - start) / count


def _loops(call: Call) -> int:
    """Warm the call up and find how many of it make one reading."""
    call()
    count = 1
    while True:
        seconds = _read(call, count) * count
        if seconds >= MIN_READING:
            return count
        count = max(count * 2, int(count * MIN_READING / max(seconds, 1e-9)))


@contextlib.contextmanager
def limited_threads(threads: int) -> Iterator[str]:
    """Hold pytrace and the peers' thread pools to `threads`; yields how the peers were held."""
    before = _core.num_threads()
    _core.set_num_threads(threads)
    try:
        try:
            from threadpoolctl import threadpool_limits
        except ImportError:
            yield "peers keep their own default (threadpoolctl is not installed)"
        else:
            with threadpool_limits(limits=threads):
                yield "peers held by threadpoolctl"
    finally:
        _core.set_num_threads(before)


def machine() -> dict[str, object]:
    """Collect the facts about this machine and these versions that a figure needs."""
    processor = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                processor = line.partition(":")[2].strip()
                break
    versions = {}
    for name in PEERS:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return {
        "processor": processor,
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "pytrace": pytrace.__version__,
        "isa": _core.active_isa(),
        "versions": versions,
    }


def main(benches: Mapping[str, Callable[[Settings], Iterator[Comparison]]]) -> int:
    """Run the benches that the command line names (all by default) and print a table or, with --json, one document."""
    parser = argparse.ArgumentParser(description="Verify, then time beside the installed peers.")
    if len(benches) > 1:
        parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(benches)} (default: all)")
    parser.add_argument("--json", action="store_true", help="print one JSON document on standard output")
    parser.add_argument("--quick", action="store_true", help="smaller cases")
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=_core.num_threads())
    arguments = parser.parse_args()
    names = getattr(arguments, "names", None) or list(benches)
    if unknown := [name for name in names if name not in benches]:
        parser.error(f"no bench {', '.join(unknown)}; there are {', '.join(benches)}")
    if arguments.repetitions < 1 or arguments.threads < 1:
        parser.error("--repetitions and --threads must be at least 1")
    settings = Settings(arguments.threads, arguments.repetitions, arguments.seed, arguments.quick)

    with limited_threads(settings.threads) as held:
        facts = {
            **machine(),
            **asdict(settings),
            "peer_threads": held,
            "command": shlex.join(["python", "-m", _module(), *sys.argv[1:]]),
        }
        if not arguments.json:
            _print_facts(facts)
        document: dict[str, list[dict[str, object]]] = {}
        for name in names:
            if not arguments.json:
                print(f"\n{name}")
            document[name] = []
            for comparison in benches[name](settings):
                document[name].append({**asdict(comparison), "reached": comparison.reached})
                if not arguments.json:
                    _print_comparison(comparison)
    if arguments.json:
        print(json.dumps({"machine": facts, "results": document}, indent=2))
    return 0


def _module() -> str:
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return "benches" if spec is None else spec.name.removesuffix(".__main__")


def _print_facts(facts: Mapping[str, object]) -> None:
    versions = facts["versions"]
    assert isinstance(versions, dict)
    print(f"{facts['processor']}, {facts['cores']} cores, {facts['system']}, instruction set {facts['isa']}")
    print(
        f"pytrace {facts['pytrace']}, Python {facts['python']}, "
        + ", ".join(f"{name} {version}" for name, version in versions.items())
    )
    print(
        f"{facts['threads']} threads ({facts['peer_threads']}), {facts['repetitions']} repetitions, seed {facts['seed']}"
    )
    print(f"again: {facts['command']}")


def _print_comparison(comparison: Comparison) -> None:
    print(f"  {comparison.case}{': ' + comparison.note if comparison.note else ''}")
    print(f"    {'pytrace':<28}{_describe(comparison.ours)}")
    for name, timing in comparison.peers.items():
        print(f"    {name:<28}{_describe(timing)}  {comparison.ratios[name]:6.2f}x")
    for name, value in comparison.extra.items():
        print(f"    {name}: {value:g}")
    if comparison.reached is not None:
        print(f"    bar {comparison.bar:g}x: {'reached' if comparison.reached else 'not reached'}")


def _describe(timing: Timing) -> str:
    return f"{_seconds(timing.median):>10}  [{_seconds(timing.low)} to {_seconds(timing.high)}]"


def _seconds(value: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if value * scale >= 1:
            return f"{value * scale:.3g} {unit}"
    return f"{value * 1e9:.3g} ns"
