"""The plots of certificates: what kinds they are, why they fail, and how answers and reasoning differ."""

from __future__ import annotations

from collections.abc import Mapping

from pytrace.report.certificates.page_summary import ERROR_NAMES, KIND_NAMES, PageSummary
from pytrace.report.drawing import WIDTH, drawing, label
from pytrace.report.figures import Estimate, finite, percent, points

# The first and the last tick of the axis stay within the drawing.
_ANCHORS = {0: "start", 100: "end"}


def kinds_chart(summary: PageSummary) -> str:
    """Draw how many responses are of which kind, as bars."""
    return _bars("kinds", "Responses by kind", KIND_NAMES, summary.kinds)


def errors_chart(summary: PageSummary) -> str:
    """Draw why responses are unfaithful, as bars (Figure 4 of the paper)."""
    return _bars("errors", "Unfaithful responses by error", ERROR_NAMES, summary.errors)


def gap_chart(summary: PageSummary) -> str:
    """Draw precision, recall and F1 of answers and of reasoning on one axis, with their intervals and the gap in F1."""
    answer, reasoning = summary.answer, summary.reasoning
    rows = (
        ("Precision", answer.precision if answer else None, reasoning.precision),
        ("Recall", answer.recall if answer else None, reasoning.recall),
        ("F1", answer.f1 if answer else None, reasoning.f1),
    )
    parts = []
    told = []
    for tick in range(0, 101, 25):
        parts.append(f'<line class="grid" x1="{_at(tick / 100)}" x2="{_at(tick / 100)}" y1="10" y2="172"/>')
        parts.append(label(_at(tick / 100), 188, f"{tick}%", "tick", anchor=_ANCHORS.get(tick, "middle")))
    for place, (name, *estimates) in enumerate(rows):
        y = 34 + 54 * place
        first, second = (finite(one.value) if one else None for one in estimates)
        words = f"answers {percent(first)} · reasoning {percent(second)}"
        told.append(f"{name}: {words}")
        parts += [label(0, y - 12, name, "on-grid"), label(WIDTH, y - 12, words, "value on-grid", anchor="end")]
        if first is not None and second is not None:
            parts.append(_line("gap", first, second, y + 8))
        for one, kind, level in zip(estimates, ("answers", "reasoning"), (y + 4, y + 12), strict=True):
            parts += _point(one, kind, level) if one else []
    told.append(f"gap in F1: {points(summary.gap.value)}")
    return drawing("gap", "Answers beside reasoning", "; ".join(told), 196, parts)


def _point(estimate: Estimate, kind: str, y: float) -> list[str]:
    """Draw a figure and its interval: answers are rings, reasoning squares."""
    value, low, high = finite(estimate.value), finite(estimate.low), finite(estimate.high)
    if value is None:
        return []
    parts = [] if low is None or high is None else [_line(f"interval {kind}", low, high, y)]
    if kind == "answers":
        return [*parts, f'<circle class="answers" cx="{_at(value)}" cy="{y}" r="5"/>']
    return [*parts, f'<rect class="reasoning" x="{_at(value) - 4.5:.1f}" y="{y - 4.5}" width="9" height="9"/>']


def _line(kind: str, start: float, end: float, y: float) -> str:
    return f'<line class="{kind}" x1="{_at(start)}" x2="{_at(end)}" y1="{y}" y2="{y}"/>'


def quadrants_chart(summary: PageSummary) -> str:
    """Draw the four quadrants of answer and reasoning; each leads to its responses."""
    cells = [
        (answer, kind, summary.quadrants.get(f"{answer} {kind}", 0))
        for answer in ("right", "wrong")
        for kind in ("faithful", "unfaithful")
    ]
    total = sum(count for _, _, count in cells)
    parts = [
        label(138, 14, "reasoning faithful", "tick", anchor="middle"),
        label(252, 14, "unfaithful", "tick", anchor="middle"),
        label(70, 58, "answer", "tick", anchor="end"),
        label(70, 74, "right", "tick", anchor="end"),
        label(70, 136, "answer", "tick", anchor="end"),
        label(70, 152, "wrong", "tick", anchor="end"),
    ]
    for place, (answer, kind, count) in enumerate(cells):
        x, y = 82 + 114 * (place % 2), 24 + 78 * (place // 2)
        share = count / total if total else None
        lucky = " lucky" if (answer, kind) == ("right", "unfaithful") else ""
        name = f"{count} responses with the answer {answer} and the reasoning {kind}: show them"
        parts.append(
            f'<a href="#answer={answer}&amp;kind={kind}" aria-label="{name}">'
            f'<rect class="quadrant{lucky}" x="{x}" y="{y}" width="112" height="76" rx="4"/>'
            f'<rect class="quadrant-fill{lucky}" x="{x}" y="{y}" width="112" height="76" rx="4"'
            f' fill-opacity="{0.45 * (share or 0):.3f}"/>'
            + label(x + 56, y + 38, f"{count:,}", "count", anchor="middle")
            + label(x + 56, y + 58, percent(share), "tick", anchor="middle")
            + "</a>"
        )
    told = "; ".join(f"answer {answer} and reasoning {kind}: {count}" for answer, kind, count in cells)
    return drawing("quadrants", "Answer and reasoning", told, 184, parts, role="group")


def _bars(name: str, title: str, names: Mapping[str, str], counts: Mapping[str, int]) -> str:
    total = sum(counts.get(key, 0) for key in names)
    parts = []
    told = []
    for place, (key, word) in enumerate(names.items()):
        count = counts.get(key, 0)
        share = count / total if total else None
        y = 44 * place
        words = f"{count:,} · {percent(share)}"
        told.append(f"{word}: {words}")
        width = WIDTH * (share or 0)
        parts.append(label(0, y + 18, word, "label") + label(WIDTH, y + 18, words, "value", anchor="end"))
        parts.append(f'<rect class="track" x="0" y="{y + 26}" width="{WIDTH}" height="8" rx="4"/>')
        if count:
            parts.append(f'<rect class="bar {key}" x="0" y="{y + 26}" width="{max(width, 3):.1f}" height="8" rx="4"/>')
    return drawing(name, title, "; ".join(told), 44 * len(names), parts)


def _at(share: float) -> float:
    """Return where a share stands on the axis of the gap."""
    return round(4 + (WIDTH - 8) * min(max(share, 0.0), 1.0), 1)
