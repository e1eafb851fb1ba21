"""A kernel's sweeps as a figure: time over size, on logarithmic axes, with the peers."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from pytrace.bench.measurements import Kernel, Sweep
from pytrace.errors import MissingDependencyError

FORMATS = ("png", "svg")


def load() -> Any:
    """Return matplotlib's module of figures, which needs no display."""
    try:
        # Not pyplot: it would choose a back end that may want a display.
        return importlib.import_module("matplotlib.figure")
    except ImportError as error:
        raise MissingDependencyError("--plots needs matplotlib: pip install 'pytrace-rag[bench]'") from error


def draw(name: str, kernel: Kernel, directory: Path, about: str) -> list[Path]:
    """Draw a kernel's sweeps side by side and return the files, one a format."""
    if not kernel.sweeps:
        return []
    figure = load().Figure(figsize=(7 * len(kernel.sweeps), 5.5), layout="constrained")
    for axes, sweep in zip(figure.subplots(1, len(kernel.sweeps), squeeze=False)[0], kernel.sweeps, strict=True):
        _draw_sweep(axes, sweep)
    figure.suptitle(f"pytrace {name} beside its peers (less is faster)")
    figure.supxlabel(about, fontsize="x-small")
    paths = [directory / f"{name}.{kind}" for kind in FORMATS]
    for path in paths:
        figure.savefig(path, dpi=120)
    return paths


def _draw_sweep(axes: Any, sweep: Sweep) -> None:
    for name, column in sweep.series.items():
        timed = [(size, timing) for size, timing in zip(sweep.sizes, column, strict=True) if timing is not None]
        sizes = [size for size, _ in timed]
        ours = name == "pytrace"
        axes.plot(
            sizes, [timing.median for _, timing in timed], marker="o", markersize=4, label=name,
            linewidth=2.5 if ours else 1.2, color="black" if ours else None, zorder=3 if ours else 2,
        )  # fmt: skip
        low, high = ([getattr(timing, side) for _, timing in timed] for side in ("low", "high"))
        axes.fill_between(sizes, low, high, alpha=0.2, color="black" if ours else axes.lines[-1].get_color())
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel(sweep.axis)
    axes.set_ylabel("seconds a call (median; band: quartiles)")
    axes.set_title(sweep.title, fontsize="medium")
    axes.grid(visible=True, which="both", linewidth=0.3)
    axes.legend(fontsize="small")
