"""A kernel's sweeps as a figure: time over size, on logarithmic axes, with the peers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from pytrace.bench.measurements import Kernel, Sweep
from pytrace.evaluation.scores.figure_files import new_figure, save_figure


def draw(name: str, kernel: Kernel, directory: Path, about: str) -> list[Path]:
    """Draw a kernel's sweeps side by side and return the files, one a format."""
    if not kernel.sweeps:
        return []
    figure, columns = new_figure("sweeps", (7 * len(kernel.sweeps), 5.5), len(kernel.sweeps))
    for axes, sweep in zip(np.atleast_1d(columns), kernel.sweeps, strict=True):
        _draw_sweep(axes, sweep)
    figure.suptitle(f"pytrace {name} beside its peers (less is faster)")
    figure.supxlabel(about, fontsize="x-small")
    return save_figure(figure, directory, name, dpi=120)


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
