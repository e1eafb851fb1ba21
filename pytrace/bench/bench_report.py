"""A run's document as tables and lines of text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from pytrace.bench.measurements import Achieved, Check, Comparison, Document, Kernel, Sweep, Timing


class Table(NamedTuple):
    """A title, the columns' names, rows of cells, and remarks."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]
    notes: list[str]


def seconds(value: float) -> str:
    """Word a time with three figures and its unit."""
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        rounded = float(f"{value * scale:.3g}")
        if rounded >= 1:
            return f"{rounded:g} {unit}"
    return f"{value * 1e9:.3g} ns"


def spread(timing: Timing) -> str:
    """Word a timing: the median and, in brackets, the quartiles."""
    return f"{seconds(timing.median)} [{seconds(timing.low)} to {seconds(timing.high)}]"


def rate(achieved: Achieved | None) -> str:
    """Word what was achieved, and the share of the machine's limit."""
    if achieved is None:
        return ""
    words = []
    if achieved.gigabytes_per_second is not None:
        words.append(f"{achieved.gigabytes_per_second:.3g} GB/s")
    if achieved.giga_operations_per_second is not None:
        words.append(_operations(achieved.giga_operations_per_second * 1e9, achieved.unit))
    shares = dict(achieved.shares)
    if shares.get("memory", 0.0) > 1:
        del shares["memory"]
        words.append("from cache")
    if shares:
        limit = max(shares, key=lambda name: shares[name])
        words.append(f"{shares[limit]:.0%} of the limit of {limit}")
    return ", ".join(words)


def _operations(value: float, unit: str) -> str:
    if unit == "FLOP":
        return f"{value / 1e9:.3g} GFLOP/s"  # the unit in which processors' peaks are given
    for prefix, scale in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= scale:
            return f"{value / scale:.3g} {prefix} {unit}s/s"
    return f"{value:.3g} {unit}s/s"


def verdict(reached: bool | None) -> str:
    """Word whether a bar was reached."""
    return "not measured" if reached is None else "yes" if reached else "NO"


def heading(document: Document) -> Iterator[str]:
    """Word the facts that a figure needs."""
    facts, limits = document.machine, document.limits
    memory, caches, versions = facts["memory_bytes"], facts["caches"], facts["versions"]
    size = f", {memory / 2**30:.0f} GiB" if isinstance(memory, int) else ""
    yield f"{facts['processor']}, {facts['cores']} cores{size}, {facts['system']} {facts['kernel']}"
    if isinstance(caches, dict) and caches:
        yield "caches of the first core: " + ", ".join(f"{name} {value}" for name, value in caches.items())
    yield f"pytrace {facts['pytrace']}, instruction set {facts['instruction_set']}, Python {facts['python']}"
    if isinstance(versions, dict):
        yield "peers: " + ", ".join(f"{name} {value}" for name, value in versions.items())
    settings = document.settings
    yield f"threads {settings.threads}, repetitions {settings.repetitions}, seed {settings.seed}"
    card = facts.get("card")
    if isinstance(card, dict):
        yield from _card(card)
    if limits is not None and isinstance(card, dict):
        flops = limits.flops_per_second
        multiplies = "" if flops is None else f", and multiplies and adds {flops / 1e12:.3g} TFLOP/s (float16, torch)"
        yield f"this card reads and writes {limits.bytes_per_second / 1e9:.3g} GB/s in a copy within its memory{multiplies}"
    elif limits is not None and limits.flops_per_second is not None:
        yield (
            f"this machine reads {limits.bytes_per_second / 1e9:.3g} GB/s and multiplies and adds "
            f"{limits.flops_per_second / 1e9:.3g} GFLOP/s (float32)"
        )
    yield f"again: {document.command}"
    yield from (f"note: {warning}" for warning in document.warnings)


def _card(card: dict[str, object]) -> Iterator[str]:
    """Word what a card is, and what its driver tells of it."""
    memory = card["memory_bytes"]
    size = f", {memory / 2**30:.0f} GiB" if isinstance(memory, int) else ""
    yield (
        f"{card['name']}, compute capability {card['compute_capability']}, {card['multiprocessors']} multiprocessors{size}"
        + (" (emulated: no figure here says anything about a card)" if card["emulated"] else "")
    )
    yield f"driver for CUDA {card['driver_serves_cuda']}, module built with CUDA {card['module_built_with_cuda']}"
    known = ("name", "compute_capability", "multiprocessors", "memory_bytes", "emulated")
    more = {key: value for key, value in card.items() if key not in known and not key.endswith("_cuda")}
    if more:
        yield ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in more.items())


def tables(name: str, kernel: Kernel) -> Iterator[Table]:
    """Make a kernel's tables: its rows, what was checked, and each sweep."""
    if kernel.rows:
        columns = ("CASE", "OURS [QUARTILES]", "BEST PEER", "ITS TIME", "RATIO", "BAR", "REACHED", "ACHIEVED")
        notes = list(dict.fromkeys(row.note for row in kernel.rows if row.note))
        notes += [_extra(row) for row in kernel.rows if row.extra]
        notes += [note for row in kernel.rows for note in _faster_peers(row)]
        on_avx2 = {row.case: msgspec.structs.replace(row, case=f"{row.case}, AVX2") for row in kernel.avx2_rows}
        if on_avx2:
            notes.append("AVX2: with this library, OpenBLAS, NumPy and faiss held to it, in a process of their own")
        rows = [part for row in kernel.rows for part in (row, on_avx2.get(row.case)) if part is not None]
        yield Table(f"{name}: rows", columns, [_row(row) for row in rows], notes)
    if kernel.checks:
        notes = list(dict.fromkeys(f"{check.case}: {check.note}" for check in kernel.checks if check.note))
        notes += [_extra(check) for check in kernel.checks if check.extra]
        yield Table(
            f"{name}: checks", ("CHECK", "VALUE", "BAR", "REACHED"), [_check(check) for check in kernel.checks], notes
        )
    for sweep in kernel.sweeps:
        yield _sweep(name, sweep)


def _row(row: Comparison) -> tuple[str, ...]:
    peer = row.best_peer
    return (
        row.case,
        spread(row.ours),
        peer or "-",
        "-" if peer is None else seconds(row.peers[peer].median),
        "-" if row.ratio is None else f"{row.ratio:.2f}",
        "-" if row.bar is None else f"{row.bar:.3g}",
        "-" if row.bar is None else verdict(row.reached),
        rate(row.achieved),
    )


def _faster_peers(row: Comparison) -> Iterator[str]:
    """Name the peers that are faster than the best of those that the bar counts."""
    for peer, ratio in row.ratios.items():
        if row.ratio is not None and ratio < row.ratio:
            yield f"{row.case}: {peer} takes {seconds(row.peers[peer].median)}, ratio {ratio:.2f}; the bar does not count it"


def _extra(row: Comparison | Check) -> str:
    return f"{row.case}: " + ", ".join(f"{key} {value:,.6g}" for key, value in row.extra.items())


def _check(check: Check) -> tuple[str, ...]:
    value = "-" if check.value is None else f"{check.value:.3g} {check.unit}".rstrip()
    return check.case, value, f"{check.sense} {check.bar:g}", verdict(check.reached)


def _sweep(name: str, sweep: Sweep) -> Table:
    columns = (sweep.axis.upper(), *sweep.series, *sweep.extra)
    rows = [
        (
            f"{size:,}",
            *("-" if (timing := column[i]) is None else seconds(timing.median) for column in sweep.series.values()),
            *("-" if (value := column[i]) is None else f"{value:.3g}" for column in sweep.extra.values()),
        )
        for i, size in enumerate(sweep.sizes)
    ]
    slopes = (f"{sweep.slopes[key]:.2f}" if key in sweep.slopes else "-" for key in sweep.series)
    rows.append(("slope", *slopes, *("" for _ in sweep.extra)))
    notes = list(sweep.notes)
    if sweep.bar:
        slope = sweep.slopes.get("pytrace", 0.0)
        growth = "linearly" if sweep.linear else "MORE than linearly" if slope > 1 else "LESS than linearly"
        notes.append(f"pytrace grows {growth} in the upper half of the sizes (slope {slope:.2f})")
    return Table(f"{name}: {sweep.title}", columns, rows, notes)


def summary(document: Document) -> Iterator[str]:
    """Word how many bars were met; each missed one with what it achieved."""
    bars = document.bars
    if bars.of:
        yield f"{bars.met} of {bars.of} bars met" + ("; missed:" if bars.missed else "")
    results: dict[str, str] = {}
    for name, kernel in document.kernels.items():
        for row in kernel.rows:
            if row.ratio is not None and row.bar is not None:
                results[f"{name}: {row.case}"] = f"{row.ratio:.2f} of {row.bar:.3g}; {rate(row.achieved)}"
        for check in kernel.checks:
            if check.value is not None:
                results[f"{name}: {check.case}"] = f"{check.value:.3g}, {check.sense} {check.bar:g} wanted"
        for sweep in kernel.sweeps:
            if "pytrace" in sweep.slopes:
                results[f"{name}: {sweep.title}, linear"] = f"slope {sweep.slopes['pytrace']:.2f}"
    yield from (f"  {case}: {results.get(case, '')}" for case in bars.missed)
    if bars.unmeasured:
        yield f"not measured, for want of the peer or the means: {len(bars.unmeasured)}"
        yield from (f"  {case}" for case in bars.unmeasured)
    load = [("start", document.load_at_start), ("end", document.load_at_end)]
    loads = ", ".join(f"{value[0]:g} at the {when}" for when, value in load if value is not None)
    yield f"{document.seconds:.0f} s" + (f"; load average {loads}" if loads else "")
