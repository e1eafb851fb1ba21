"""Plots of a summary as files: the error breakdown, and answers beside reasoning with the gap between them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pytrace.certify.certification_scores import CertificationScores, Quality
from pytrace.evaluation.scores.figure_files import new_figure, save_figure
from pytrace.report.certificates.certificate_charts import ERROR_NAMES
from pytrace.report.page_texts import clean, finite, points

_MEASURES = {"precision": "Precision", "recall": "Recall", "f1": "F1"}
# Where the bars stand, and two colours that stay apart for all eyes and in grey; the second is hatched as well.
_LOOKS = {"answers": (-0.2, "#1c5a9c", ""), "reasoning": (0.2, "#62b59f", "//")}


def save_plots(summary: CertificationScores, directory: Path, *, title: str = "") -> list[Path]:
    """Draw why responses are unfaithful, and precision, recall and F1 of answers beside those of reasoning."""
    # Source: Table 3 and Figure 4 of "Direct Evaluation of Chain-of-Thought in Multi-hop Reasoning with Knowledge
    # Graphs".
    plots = []
    if any(summary.errors.get(error, 0) for error in ERROR_NAMES):
        plots.append(("errors", _draw_errors))
    qualities = [quality for quality in (summary.answer, summary.reasoning) if quality is not None]
    if any(finite(getattr(quality, name).value) is not None for quality in qualities for name in _MEASURES):
        plots.append(("gap", _draw_gap))
    paths: list[Path] = []
    for name, draw in plots:
        figure, axes = new_figure("the plots of certificates", (6.4, 4))
        axes.set_title(_headline(title, draw(axes, summary)), fontsize="medium")
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        paths += save_figure(figure, directory, name, dpi=150)
    return paths


def _draw_errors(axes: Any, summary: CertificationScores) -> str:
    """Draw the breakdown and say what it shows."""
    counts = [summary.errors.get(error, 0) for error in ERROR_NAMES]
    total = sum(counts)
    bars = axes.barh(list(ERROR_NAMES.values()), counts, color=_LOOKS["answers"][1], height=0.6)
    axes.bar_label(bars, [f"{count:,} ({count / total:.1%})" for count in counts], padding=4)
    axes.invert_yaxis()
    # Room for the words behind the longest bar.
    axes.set_xlim(0, 1.25 * max(counts))
    axes.set_xlabel("unfaithful responses")
    return "why reasoning is unfaithful"


def _draw_gap(axes: Any, summary: CertificationScores) -> str:
    """Draw the measures and say what they show."""
    for name, quality in (("answers", summary.answer), ("reasoning", summary.reasoning)):
        if quality is not None:
            _draw_quality(axes, quality, name)
    axes.set_xticks(range(len(_MEASURES)), _MEASURES.values())
    # Above 100 there is room for the legend.
    axes.set_ylim(0, 119)
    axes.set_yticks(range(0, 101, 20))
    axes.set_ylabel("percent")
    axes.grid(visible=True, axis="y", linewidth=0.3)
    axes.set_axisbelow(True)
    axes.legend(fontsize="small", ncols=2, loc="upper left", frameon=False)
    gap = "" if finite(summary.gap.value) is None else f", gap in F1 {points(summary.gap.value)}"
    return f"answers beside reasoning{gap}"


def _draw_quality(axes: Any, quality: Quality, name: str) -> None:
    offset, colour, hatch = _LOOKS[name]
    label = name
    for position, measure in enumerate(_MEASURES):
        estimate = getattr(quality, measure)
        value, low, high = finite(estimate.value), finite(estimate.low), finite(estimate.high)
        if value is None:
            continue
        # A bootstrapped interval may lie beside its figure, and matplotlib refuses a negative bar.
        errors = None if low is None or high is None else [[100 * max(value - low, 0)], [100 * max(high - value, 0)]]
        bars = axes.bar(
            position + offset, 100 * value, width=0.38, color=colour, hatch=hatch, edgecolor="white", label=label,
            yerr=errors, capsize=3, error_kw={"elinewidth": 1},
        )  # fmt: skip
        axes.bar_label(bars, [f"{100 * value:.1f}"], padding=2, fontsize="small")
        label = "_nolegend_"


def _headline(title: str, words: str) -> str:
    # A dollar sign would begin a formula, and a line break a second line.
    title = " ".join(clean(title)[:60].replace("$", r"\$").split())
    return f"{title}: {words}" if title else words[:1].upper() + words[1:]
