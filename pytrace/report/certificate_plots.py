"""Plots of a summary as files: the error breakdown, and answers beside reasoning with the gap between them."""

from __future__ import annotations

import importlib
import warnings
from pathlib import Path
from typing import Any

from pytrace.errors import MissingDependencyError, StoreError
from pytrace.report.certificates.page_summary import ERROR_NAMES, PageSummary, Scores
from pytrace.report.figures import Estimate, finite, points
from pytrace.report.page_texts import clean
from pytrace.storage.files import atomic_output

FORMATS = ("png", "svg")
_MEASURES = ("Precision", "Recall", "F1")
# Where the bars stand, and two colours that stay apart for all eyes and in grey; the second is hatched as well.
_LOOKS = {"answers": (-0.2, "#1c5a9c", ""), "reasoning": (0.2, "#62b59f", "//")}


def save_plots(summary: PageSummary, directory: Path, *, title: str = "") -> list[Path]:
    """Draw why responses are unfaithful, and precision, recall and F1 of answers beside those of reasoning."""
    # Source: Table 3 and Figure 4 of "Direct Evaluation of Chain-of-Thought in Multi-hop Reasoning with Knowledge
    # Graphs".
    figures = []
    if any(summary.errors.get(error, 0) for error in ERROR_NAMES):
        figures.append(("errors", _draw_errors))
    if any(finite(one.value) is not None for _, scores in _both(summary) for one in _estimates(scores)):
        figures.append(("gap", _draw_gap))
    if not figures:
        return []
    try:
        matplotlib: Any = importlib.import_module("matplotlib.figure")  # draws without a display
    except ImportError as error:
        raise MissingDependencyError(
            "drawing the plots of certificates needs matplotlib: pip install 'pytrace-rag[eval]'"
        ) from error
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"cannot make the folder {directory}: {error.strerror or error}; name another one for the plots"
        ) from error
    paths: list[Path] = []
    for name, draw in figures:
        figure = matplotlib.Figure(figsize=(6.4, 4), layout="constrained")
        axes = figure.subplots()
        axes.set_title(_headline(title, draw(axes, summary)), fontsize="medium")
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        for extension in FORMATS:
            paths.append(directory / f"{name}.{extension}")
            with atomic_output(paths[-1]) as stream, warnings.catch_warnings():
                # A title in a script that the font lacks is drawn as boxes, which anyone sees.
                warnings.filterwarnings("ignore", message="Glyph .* missing from font")
                figure.savefig(stream, dpi=150, format=extension)
    return paths


def _draw_errors(axes: Any, summary: PageSummary) -> str:
    """Draw the breakdown and say what it shows."""
    counts = [summary.errors.get(error, 0) for error in ERROR_NAMES]
    total = sum(counts)
    bars = axes.barh(list(ERROR_NAMES.values()), counts, color=_LOOKS["answers"][1], height=0.6)
    axes.bar_label(bars, [f"{count:,} ({count / total:.1%})" for count in counts], padding=4)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.25 * max(counts))
    axes.set_xlabel("unfaithful responses")
    return "why reasoning is unfaithful"


def _draw_gap(axes: Any, summary: PageSummary) -> str:
    """Draw the measures and say what they show."""
    for name, scores in _both(summary):
        _draw_scores(axes, scores, name)
    axes.set_xticks(range(len(_MEASURES)), _MEASURES)
    axes.set_ylim(0, 119)
    axes.set_yticks(range(0, 101, 20))
    axes.set_ylabel("percent")
    axes.grid(visible=True, axis="y", linewidth=0.3)
    axes.set_axisbelow(True)
    axes.legend(fontsize="small", ncols=2, loc="upper left", frameon=False)
    gap = "" if finite(summary.gap.value) is None else f", gap in F1 {points(summary.gap.value)}"
    return f"answers beside reasoning{gap}"


def _draw_scores(axes: Any, scores: Scores, name: str) -> None:
    offset, colour, hatch = _LOOKS[name]
    label = name
    for place, estimate in enumerate(_estimates(scores)):
        value, low, high = finite(estimate.value), finite(estimate.low), finite(estimate.high)
        if value is None:
            continue
        errors = None if low is None or high is None else [[100 * max(value - low, 0)], [100 * max(high - value, 0)]]
        bars = axes.bar(
            place + offset, 100 * value, width=0.38, color=colour, hatch=hatch, edgecolor="white", label=label,
            yerr=errors, capsize=3, error_kw={"elinewidth": 1},
        )  # fmt: skip
        axes.bar_label(bars, [f"{100 * value:.1f}"], padding=2, fontsize="small")
        label = "_nolegend_"


def _both(summary: PageSummary) -> list[tuple[str, Scores]]:
    return [
        (name, scores)
        for name, scores in (("answers", summary.answer), ("reasoning", summary.reasoning))
        if scores is not None
    ]


def _estimates(scores: Scores) -> tuple[Estimate, Estimate, Estimate]:
    return scores.precision, scores.recall, scores.f1


def _headline(title: str, words: str) -> str:
    # A dollar sign would begin a formula, and a line break a second line.
    title = " ".join(clean(title)[:60].replace("$", r"\$").split())
    return f"{title}: {words}" if title else words[:1].upper() + words[1:]
