"""The plots of a run: scores with intervals, scores against cost, evidence against noise, and what the cost is made of."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from pytrace.evaluation.scores.summary import MethodSummary
from pytrace.report.drawing import WIDTH, circle, drawing, estimate, label, line, link, rect, share_axis, titled
from pytrace.report.html_page import key
from pytrace.report.page_texts import cut, finite, percent, shown

# Room around a plot with two axes for their figures, and how high it may be beside a plot with a line a method.
_LEFT, _RIGHT, _TOP = 34, 10, 22
_ROOM = WIDTH - _LEFT - _RIGHT
_LEAST_HEIGHT, _MOST_HEIGHT = 214, 330
_RADIUS = 8.0
# How wide a letter of a name is, rather too much than too little.
_LETTER = 6.0
# There are colours for so many stages; those after them share the last.
_STAGES = 8
# Where a disc goes if another is in its place, nearest first, in its own diameters.
_AROUND = (
    (0, 0), (0, -1), (0, 1), (1, 0), (-1, 0), (1, -1), (-1, -1), (1, 1), (-1, 1), (0, -2), (0, 2), (2, 0), (-2, 0),
)  # fmt: skip

# A method, where it stands on both axes as shares, and that in words.
_Point = tuple[str, float | None, float | None, str]


def scores_chart(methods: Sequence[MethodSummary]) -> str:
    """Draw EM (rings) and F1 (squares) of each method on one axis, with their 95 % intervals."""
    bottom = 44 * len(methods) + 6
    parts, texts = share_axis(4, bottom, bottom + 14), []
    for row, summary in enumerate(methods):
        y = 16 + 44 * row
        words = f"EM {percent(summary.exact_match)} · F1 {percent(summary.f1)}"
        texts.append(f"{summary.method}: {words}")
        parts += titled(y, f"{row + 1}  {cut(summary.method, 26)}", words, ("on-grid", "value on-grid"))
        parts += estimate("em", summary.exact_match, summary.exact_match_interval, y + 9, ring=True, size=8)
        parts += estimate("f1", summary.f1, summary.f1_interval, y + 18, ring=False, size=8)
    return drawing("scores", "EM and F1 by method", texts, bottom + 20, parts)


def context_chart(methods: Sequence[MethodSummary]) -> str:
    """Draw F1 against the mean number of context tokens."""
    most = _nice(max((summary.context_tokens.mean or 0 for summary in methods), default=0))
    points: list[_Point] = []
    for summary in methods:
        tokens = summary.context_tokens.mean
        words = f"F1 {percent(summary.f1)} with {tokens or 0:,.0f} context tokens"
        points.append((summary.method, None if tokens is None else tokens / most, summary.f1, words))
    ticks = [f"{most * step / 4:,.0f}" for step in range(5)]
    return _scatter("context", "F1 against context tokens", points, ticks, ("context tokens", "F1"))


def support_chart(methods: Sequence[MethodSummary]) -> str:
    """Draw recall of the supporting documents against the error rate of the chosen ones."""
    points: list[_Point] = []
    for summary in methods:
        error_rate, recall = summary.supporting_error_rate.mean, summary.supporting_recall.mean
        points.append(
            (summary.method, error_rate, recall, f"recall {percent(recall)}, error rate {percent(error_rate)}")
        )
    ticks = [f"{25 * step}%" for step in range(5)]
    return _scatter("support", "Recall against error rate", points, ticks, ("error rate", "recall"))


def seconds_chart(methods: Sequence[MethodSummary]) -> str:
    """Draw the seconds that a question costs, by stage."""
    return _stacks(
        "seconds", "Seconds a question, by stage", methods, [summary.seconds_by_stage for summary in methods], "s"
    )


def tokens_chart(methods: Sequence[MethodSummary]) -> str:
    """Draw the tokens that the model really evaluates for a question, by stage."""
    costs = [{stage: usage.evaluated_tokens for stage, usage in summary.usage_by_stage.items()} for summary in methods]
    return _stacks("tokens", "Tokens evaluated a question, by stage", methods, costs, "")


def _stages(methods: Sequence[MethodSummary]) -> dict[str, str]:
    """Return the class of each stage of all methods, in the order of their first appearance."""
    names = dict.fromkeys(
        stage for summary in methods for stage in (*summary.seconds_by_stage, *summary.usage_by_stage)
    )
    return {stage: f"s{min(number, _STAGES)}" for number, stage in enumerate(names, 1)}


def agreement_chart(right: Sequence[int], methods: int) -> str:
    """Draw how many questions are answered right by none, by one … by all methods."""
    counts = [right.count(number) for number in range(methods + 1)]
    step = _ROOM / len(counts)
    floor = _height(methods) - 32
    parts, texts = [line("axis", _LEFT, floor, WIDTH - _RIGHT, floor)], []
    for number, count in enumerate(counts):
        height = (floor - _TOP - 12) * count / max((*counts, 1))
        x = _LEFT + step * number
        # What no method answers is worth a look first; what all answer tells nothing between them.
        kind = "bad" if number == 0 else "good" if number == methods else "some"
        texts.append(f"{count} questions answered right by {number} of {methods} methods")
        column = [
            rect("target", x, _TOP, step, floor - _TOP),
            rect(f"column {kind}", x + step * 0.12, floor - height, step * 0.76, height, rx=2),
            label(x + step / 2, floor - height - 5, f"{count:,}", "value", anchor="middle"),
            label(x + step / 2, floor + 14, str(number), "tick", anchor="middle"),
        ]
        parts.append(link(f"right={number}", texts[-1], column))
    parts.append(label(_LEFT + _ROOM / 2, floor + 29, "methods that are right", "tick", anchor="middle"))
    return drawing("agreement", "Questions by methods that are right", texts, _height(methods), parts, role="group")


def _scatter(name: str, title: str, points: Sequence[_Point], ticks: Sequence[str], axes: tuple[str, str]) -> str:
    """Draw numbered discs at shares of both axes; where two would cover each other, one steps aside on a line."""
    floor = _height(len(points)) - 40
    height = floor - _TOP
    parts = []
    for step, words in enumerate(ticks):
        x, y = _LEFT + _ROOM * step / 4, floor - height * step / 4
        parts += [line("grid", x, _TOP, x, floor), line("grid", _LEFT, y, WIDTH - _RIGHT, y)]
        parts.append(label(x, floor + 14, words, "tick", anchor="end" if step == 4 else "middle"))
        parts.append(label(_LEFT - 5, y + 3.5, f"{25 * step}%", "tick", anchor="end"))
    parts += [label(_LEFT + _ROOM / 2, floor + 29, axes[0], "tick", anchor="middle"), label(0, 11, axes[1], "tick")]
    placed: dict[str, tuple[float, float]] = {}
    discs, texts = [], []
    for number, (method, across, up, words) in enumerate(points, 1):
        if finite(across) is None or finite(up) is None:
            texts.append(f"{method}: not defined")
            continue
        texts.append(f"{method}: {words}")
        x, y = _LEFT + _ROOM * min(across or 0, 1.0), floor - height * (up or 0)
        spots = [(x + 2.1 * _RADIUS * dx, y + 2.1 * _RADIUS * dy) for dx, dy in _AROUND]
        inside = [
            spot for spot in spots if spot == (x, y) or (_LEFT < spot[0] < WIDTH - _RADIUS and _TOP <= spot[1] <= floor)
        ]
        # The free place that is nearest, or the one farthest from its neighbours if none is free.
        others = list(placed.values())
        at = max(inside, key=lambda spot: min(2 * _RADIUS, *(math.dist(spot, other) for other in others), math.inf))
        placed[method] = at
        if at != (x, y):
            parts += [line("leader", x, y, *at), circle(x, y, 2.5, "true")]
        rank = label(at[0], at[1] + 3.5, str(number), "number", anchor="middle")
        discs.append(f'<g class="disc"><title>{shown(texts[-1])}</title>{circle(*at, _RADIUS)}{rank}</g>')
    return drawing(name, title, texts, _height(len(points)), [*parts, *discs, *_names(placed)])


def _names(placed: Mapping[str, tuple[float, float]]) -> list[str]:
    """Write the names of the discs beside them where they cover nothing; the others have their number alone."""
    boxes = [(x - _RADIUS, y - _RADIUS, x + _RADIUS, y + _RADIUS) for x, y in placed.values()]
    parts = []
    for method, (x, y) in placed.items():
        text = cut(method, 22)
        width = len(text) * _LETTER
        beside, over = _RADIUS + 3, _RADIUS + 7
        spots = ((x + beside, y), (x - beside - width, y), (x - width / 2, y - over), (x - width / 2, y + over))
        for start, level in spots:
            box = (start, level - 6, start + width, level + 6)
            free = all(box[2] < b[0] or box[0] > b[2] or box[3] < b[1] or box[1] > b[3] for b in boxes)
            if free and box[0] > _LEFT and box[2] < WIDTH:
                boxes.append(box)
                parts.append(label(start + width / 2, level + 3.5, text, "name", anchor="middle"))
                break
    return parts


def _stacks(
    name: str, title: str, methods: Sequence[MethodSummary], costs: Sequence[Mapping[str, float]], unit: str
) -> str:
    """Draw what an answered question costs on average as a bar of its stages, and say below which colour is which."""
    stages = _stages(methods)
    # A failed question tells no cost, and the means of the tables are of the answered ones, too.
    means = [
        {stage: cost.get(stage, 0.0) / max(summary.n - summary.failed, 1) for stage in stages}
        for summary, cost in zip(methods, costs, strict=True)
    ]
    most = max((sum(mean.values()) for mean in means), default=0.0) or 1.0
    parts, texts = [], []
    for row, (summary, mean) in enumerate(zip(methods, means, strict=True)):
        y, x = 40 * row, 0.0
        words = _amount(sum(mean.values()), unit)
        shares = ", ".join(f"{stage} {_amount(value, unit)}" for stage, value in mean.items() if value)
        texts.append(f"{summary.method}: {words} ({shares})")
        parts += titled(y + 16, f"{row + 1}  {cut(summary.method, 30)}", words, ("label", "value"))
        parts.append(rect("track", 0, y + 22, WIDTH, 9, rx=2))
        for stage, value in mean.items():
            width = WIDTH * value / most
            # A thinner one is nothing to see.
            if width > 0.05:
                stage_title = f"<title>{shown(stage)} {_amount(value, unit)}</title>"
                parts.append(rect(stages[stage], x, y + 22, width, 9, inner=stage_title))
            x += width
    return drawing(name, title, texts, 40 * len(means), parts) + key([(kind, stage) for stage, kind in stages.items()])


def _amount(value: float, unit: str) -> str:
    number = f"{value:,.0f}" if value >= 100 or not unit else f"{value:.1f}" if value >= 1 else f"{value:.2f}"
    return f"{number} {unit}".strip()


def _height(methods: int) -> float:
    """Return how high a plot is that stands beside one with a line a method."""
    return min(max(44.0 * methods + 26, _LEAST_HEIGHT), _MOST_HEIGHT)


def _nice(value: float) -> float:
    """Return a round number that is not below a value, whose quarters are whole."""
    if value <= 4:
        return 4.0
    scale: float = 10.0 ** math.floor(math.log10(value))
    return next(factor * scale for factor in (1, 2, 4, 6, 8, 10, 12) if factor * scale >= value)
