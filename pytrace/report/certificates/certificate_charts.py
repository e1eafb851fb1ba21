"""The plots of certificates, on their page and as files: what kinds they are, why they fail, how answers and reasoning differ."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytrace.certify.certification_scores import CertificationScores, Quality
from pytrace.evaluation.scores.figure_files import new_figure, save_figure
from pytrace.report.drawing import WIDTH, at_share, drawing, estimate, label, line, link, rect, share_axis, titled
from pytrace.report.page_texts import clean, finite, percent, points

KIND_NAMES = {
    "faithful": "Faithful",
    "unfaithful": "Unfaithful",
    "undecided": "Undecided",
    "abstained": "Abstained",
    "unstructured": "Unstructured",
}
# In the order in which they are looked for: the first failing reason counts.
ERROR_NAMES = {"factual": "Factual error", "incoherent": "Incoherence", "answer": "Answer error"}
_MEASURES = {"precision": "Precision", "recall": "Recall", "f1": "F1"}
# Where the bars stand, and two colours that stay apart for all eyes and in grey; the second is hatched as well.
_LOOKS = {"answers": (-0.2, "#1c5a9c", ""), "reasoning": (0.2, "#62b59f", "//")}


def bars(name: str, title: str, names: Mapping[str, str], counts: Mapping[str, int]) -> str:
    """Draw how many responses are of which kind or error as bars; those of errors are Figure 4 of the paper."""
    total = sum(counts.get(kind, 0) for kind in names)
    parts, texts = [], []
    for row, (kind, word) in enumerate(names.items()):
        count, y = counts.get(kind, 0), 44 * row
        words = f"{count:,} · {percent(count / total if total else None)}"
        texts.append(f"{word}: {words}")
        parts += [*titled(y + 18, word, words, ("label", "value")), rect("track", 0, y + 26, WIDTH, 8, rx=4)]
        if count:
            # One response of ten thousand is still a mark that can be seen.
            parts.append(rect(f"bar {kind}", 0, y + 26, max(WIDTH * count / total, 3), 8, rx=4))
    return drawing(name, title, texts, 44 * len(names), parts)


def gap_chart(summary: CertificationScores) -> str:
    """Draw precision, recall and F1 of answers (rings) and reasoning (squares) on one axis, and the gap between them."""
    parts, texts = share_axis(10, 172, 188), []
    for row, (name, measure) in enumerate((("Precision", "precision"), ("Recall", "recall"), ("F1", "f1"))):
        y = 34 + 54 * row
        answers = getattr(summary.answer, measure, None)
        reasoning = getattr(summary.reasoning, measure)
        first, second = finite(answers.value if answers else None), finite(reasoning.value)
        words = f"answers {percent(first)} · reasoning {percent(second)}"
        texts.append(f"{name}: {words}")
        parts += titled(y - 12, name, words, ("on-grid", "value on-grid"))
        if first is not None and second is not None:
            parts.append(line("gap", at_share(first), y + 8, at_share(second), y + 8))
        if answers:
            parts += estimate("answers", answers.value, (answers.low, answers.high), y + 4, ring=True, size=10)
        parts += estimate("reasoning", reasoning.value, (reasoning.low, reasoning.high), y + 12, ring=False, size=9)
    texts.append(f"gap in F1: {points(summary.gap.value)}")
    return drawing("gap", "Answers beside reasoning", texts, 196, parts)


def quadrants_chart(summary: CertificationScores) -> str:
    """Draw the four quadrants of answer and reasoning; each leads to its responses."""
    cells = [(answer, kind) for answer in ("right", "wrong") for kind in ("faithful", "unfaithful")]
    total = sum(summary.quadrants.get(f"{answer} {kind}", 0) for answer, kind in cells)
    heads = (
        (138, 14, "reasoning faithful", "middle"), (252, 14, "unfaithful", "middle"), (70, 58, "answer", "end"),
        (70, 74, "right", "end"), (70, 136, "answer", "end"), (70, 152, "wrong", "end"),
    )  # fmt: skip
    parts, texts = [label(x, y, words, "tick", anchor=anchor) for x, y, words, anchor in heads], []
    for row, (answer, kind) in enumerate(cells):
        count = summary.quadrants.get(f"{answer} {kind}", 0)
        share = count / total if total else None
        texts.append(f"answer {answer} and reasoning {kind}: {count}")
        x, y = 82 + 114 * (row % 2), 24 + 78 * (row // 2)
        # The quadrant that the paper is about: right for the wrong reasons.
        lucky = " lucky" if (answer, kind) == ("right", "unfaithful") else ""
        box = f'x="{x}" y="{y}" width="112" height="76" rx="4"'
        field = [
            f'<rect class="quadrant{lucky}" {box}/>',
            f'<rect class="quadrant-fill{lucky}" {box} fill-opacity="{0.45 * (share or 0):.3f}"/>',
            label(x + 56, y + 38, f"{count:,}", "count", anchor="middle"),
            label(x + 56, y + 58, percent(share), "tick", anchor="middle"),
        ]
        name = f"{count} responses with the answer {answer} and the reasoning {kind}"
        parts.append(link(f"answer={answer}&amp;kind={kind}", name, field))
    return drawing("quadrants", "Answer and reasoning", texts, 184, parts, role="group")


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
