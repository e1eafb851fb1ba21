"""The plots of a run: scores with intervals, scores against cost, evidence against noise, and what the cost is made of."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from pytrace.evaluation.scores.summary import MethodSummary
from pytrace.report.drawing import WIDTH, drawing, label, line
from pytrace.report.figures import finite, percent
from pytrace.report.page_texts import cut, shown

_LEFT, _RIGHT, _TOP = 34, 10, 22
_LEAST_HEIGHT, _MOST_HEIGHT = 214, 330
_RADIUS = 8.0
_LETTER = 6.0
_ANCHORS = {0: "start", 100: "end"}
_STAGES = 8
# Where a disc goes if another is in its place, nearest first, in its own diameters.
_AROUND = (
    (0, 0),
    (0, -1),
    (0, 1),
    (1, 0),
    (-1, 0),
    (1, -1),
    (-1, -1),
    (1, 1),
    (-1, 1),
    (0, -2),
    (0, 2),
    (2, 0),
    (-2, 0),
)


def scores_chart(methods: Sequence[MethodSummary]) -> str:
    """Draw EM (rings) and F1 (squares) of each method on one axis, with their 95 % intervals."""
    bottom = 44 * len(methods) + 6
    parts, told = [], []
    for tick in range(0, 101, 25):
        x = _share(tick / 100)
        parts.append(line("grid", x, 4, x, bottom))
        parts.append(label(x, bottom + 14, f"{tick}%", "tick", anchor=_ANCHORS.get(tick, "middle")))
    for place, one in enumerate(methods):
        y = 16 + 44 * place
        words = f"EM {percent(one.exact_match)} · F1 {percent(one.f1)}"
        told.append(f"{one.method}: {words}")
        parts.append(label(0, y, f"{place + 1}  {cut(one.method, 26)}", "on-grid"))
        parts.append(label(WIDTH, y, words, "value on-grid", anchor="end"))
        rows = (("em", one.exact_match, one.exact_match_interval, y + 9), ("f1", one.f1, one.f1_interval, y + 18))
        for kind, value, interval, level in rows:
            if value is None:
                continue
            if interval is not None:
                parts.append(line(f"interval {kind}", _share(interval[0]), level, _share(interval[1]), level))
            x = _share(value)
            parts.append(
                f'<circle class="em" cx="{x:g}" cy="{level}" r="4"/>'
                if kind == "em"
                else f'<rect class="f1" x="{x - 4:g}" y="{level - 4}" width="8" height="8"/>'
            )
    return drawing("scores", "EM and F1 by method", "; ".join(told), bottom + 20, parts)


def context_chart(methods: Sequence[MethodSummary]) -> str:
    """Draw F1 against the mean number of context tokens."""
    most = _nice(max((one.context_tokens.mean or 0 for one in methods), default=0))
    points = [
        (one, None if one.context_tokens.mean is None else one.context_tokens.mean / most, one.f1) for one in methods
    ]
    ticks = [(step / 4, f"{most * step / 4:,.0f}") for step in range(5)]
    return _scatter(
        "context", "F1 against context tokens", points, ticks, ("context tokens", "F1"),
        lambda one: f"{one.method}: F1 {percent(one.f1)} with {one.context_tokens.mean or 0:,.0f} context tokens",
    )  # fmt: skip


def support_chart(methods: Sequence[MethodSummary]) -> str:
    """Draw recall of the supporting documents against the error rate of the chosen ones."""
    points = [(one, one.supporting_error_rate.mean, one.supporting_recall.mean) for one in methods]
    ticks = [(step / 4, f"{25 * step}%") for step in range(5)]
    return _scatter(
        "support", "Recall against error rate", points, ticks, ("error rate", "recall"),
        lambda one: (
            f"{one.method}: recall {percent(one.supporting_recall.mean)}, "
            f"error rate {percent(one.supporting_error_rate.mean)}"
        ),
    )  # fmt: skip


def seconds_chart(methods: Sequence[MethodSummary]) -> str:
    """Draw the seconds that a question costs, by stage."""
    costs = {one.method: one.seconds_by_stage for one in methods}
    return _stacks("seconds", "Seconds a question, by stage", methods, costs, "s")


def tokens_chart(methods: Sequence[MethodSummary]) -> str:
    """Draw the tokens that the model really evaluates for a question, by stage."""
    costs = {
        one.method: {stage: float(usage.evaluated_tokens) for stage, usage in one.usage_by_stage.items()}
        for one in methods
    }
    return _stacks("tokens", "Tokens evaluated a question, by stage", methods, costs, "")


def stages(methods: Sequence[MethodSummary]) -> list[str]:
    """List the stages of all methods in the order of their first appearance; the first eight have a colour of their own."""
    return list(dict.fromkeys(stage for one in methods for stage in (*one.seconds_by_stage, *one.usage_by_stage)))


def stage_key(methods: Sequence[MethodSummary]) -> str:
    """Write what colour stands for which stage."""
    return "".join(
        f'<span><i class="s{min(place, _STAGES)}"></i>{shown(stage)}</span>'
        for place, stage in enumerate(stages(methods), 1)
    )


def agreement_chart(right: Sequence[int], methods: int) -> str:
    """Draw how many questions are answered right by none, by one … by all methods."""
    counts = [right.count(number) for number in range(methods + 1)]
    most = max((*counts, 1))
    room = WIDTH - _LEFT - _RIGHT
    step = room / len(counts)
    floor = _height(methods) - 32
    parts, told = [line("axis", _LEFT, floor, WIDTH - _RIGHT, floor)], []
    for number, count in enumerate(counts):
        height = (floor - _TOP - 12) * count / most
        x = _LEFT + step * number
        kind = "bad" if number == 0 else "good" if number == methods else "some"
        name = f"{count} questions answered right by {number} of {methods} methods"
        told.append(name)
        parts.append(
            f'<a href="#right={number}" aria-label="{name}: show them"><rect class="target" x="{x:g}" y="{_TOP}" '
            f'width="{step:g}" height="{floor - _TOP}"/><rect class="column {kind}" x="{x + step * 0.12:.1f}" '
            f'y="{floor - height:.1f}" width="{step * 0.76:.1f}" height="{height:.1f}" rx="2"/>'
            + label(x + step / 2, floor - height - 5, f"{count:,}", "value", anchor="middle")
            + label(x + step / 2, floor + 14, str(number), "tick", anchor="middle")
            + "</a>"
        )
    parts.append(label(_LEFT + room / 2, floor + 29, "methods that are right", "tick", anchor="middle"))
    return drawing(
        "agreement", "Questions by methods that are right", "; ".join(told), _height(methods), parts, role="group"
    )


def _scatter(
    name: str,
    title: str,
    points: Sequence[tuple[MethodSummary, float | None, float | None]],
    ticks: Sequence[tuple[float, str]],
    axes: tuple[str, str],
    word: Callable[[MethodSummary], str],
) -> str:
    """Draw numbered discs at shares of both axes; where two would cover each other, one steps aside on a line."""
    room, floor = WIDTH - _LEFT - _RIGHT, _height(len(points)) - 40
    height = floor - _TOP
    parts = []
    for at, words in ticks:
        x = _LEFT + room * at
        parts.append(line("grid", x, _TOP, x, floor))
        parts.append(label(x, floor + 14, words, "tick", anchor="end" if at == 1 else "middle"))
    for step in range(5):
        y = floor - height * step / 4
        parts.append(line("grid", _LEFT, y, WIDTH - _RIGHT, y))
        parts.append(label(_LEFT - 5, y + 3.5, f"{25 * step}%", "tick", anchor="end"))
    parts.append(label(_LEFT + room / 2, floor + 29, axes[0], "tick", anchor="middle"))
    parts.append(label(0, 11, axes[1], "tick"))
    placed: list[tuple[float, float]] = []
    discs, told = [], []
    for number, (one, across, up) in enumerate(points, 1):
        across, up = finite(across), finite(up)  # noqa: PLW2901
        if across is None or up is None:
            told.append(f"{one.method}: not defined")
            continue
        told.append(word(one))
        x, y = _LEFT + room * min(across, 1.0), floor - height * up
        spots = [(x + 2.1 * _RADIUS * dx, y + 2.1 * _RADIUS * dy) for dx, dy in _AROUND]
        inside = [
            (sx, sy) for sx, sy in spots if (sx, sy) == (x, y) or (_LEFT < sx < WIDTH - _RADIUS and _TOP <= sy <= floor)
        ]
        # The free place that is nearest, or the one farthest from its neighbours if none is free.
        spot = max(inside, key=lambda own: min(2 * _RADIUS, _distance(own, placed)))
        placed.append(spot)
        if spot != (x, y):
            parts += [line("leader", x, y, *spot), f'<circle class="true" cx="{x:.1f}" cy="{y:.1f}" r="2.5"/>']
        discs.append(
            f'<g class="disc"><title>{shown(word(one))}</title><circle cx="{spot[0]:.1f}" cy="{spot[1]:.1f}" '
            f'r="{_RADIUS}"/>' + label(spot[0], spot[1] + 3.5, str(number), "number", anchor="middle") + "</g>"
        )
    return drawing(name, title, "; ".join(told), _height(len(points)), [*parts, *discs, *_names(points, placed)])


def _names(
    points: Sequence[tuple[MethodSummary, float | None, float | None]], placed: Sequence[tuple[float, float]]
) -> list[str]:
    """Write the names of the discs beside them where they cover nothing; the others have their number alone."""
    defined = [one for one, across, up in points if finite(across) is not None and finite(up) is not None]
    boxes = [(x - _RADIUS, y - _RADIUS, x + _RADIUS, y + _RADIUS) for x, y in placed]
    parts = []
    for one, (x, y) in zip(defined, placed, strict=True):
        text = cut(one.method, 22)
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


def _distance(spot: tuple[float, float], others: Sequence[tuple[float, float]]) -> float:
    return min((math.dist(spot, other) for other in others), default=math.inf)


def _stacks(
    name: str, title: str, methods: Sequence[MethodSummary], costs: Mapping[str, Mapping[str, float]], unit: str
) -> str:
    """Draw what an answered question costs on average as a bar of its stages."""
    means = {
        one.method: {stage: costs[one.method].get(stage, 0.0) / max(one.n - one.failed, 1) for stage in stages(methods)}
        for one in methods
    }
    most = max((sum(own.values()) for own in means.values()), default=0.0) or 1.0
    parts, told = [], []
    for place, (method, own) in enumerate(means.items()):
        y, x = 40 * place, 0.0
        total = sum(own.values())
        words = _amount(total, unit)
        told.append(
            f"{method}: {words} ({', '.join(f'{stage} {_amount(own[stage], unit)}' for stage in own if own[stage])})"
        )
        parts.append(label(0, y + 16, f"{place + 1}  {cut(method, 30)}", "label"))
        parts.append(label(WIDTH, y + 16, words, "value", anchor="end"))
        parts.append(f'<rect class="track" x="0" y="{y + 22}" width="{WIDTH}" height="9" rx="2"/>')
        for number, (stage, value) in enumerate(own.items(), 1):
            width = WIDTH * value / most
            if width > 0.05:
                parts.append(
                    f'<rect class="s{min(number, _STAGES)}" x="{x:.1f}" y="{y + 22}" width="{width:.1f}" height="9">'
                    f"<title>{shown(stage)} {_amount(value, unit)}</title></rect>"
                )
            x += width
    return drawing(name, title, "; ".join(told), 40 * len(means), parts)


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


def _share(share: float) -> float:
    return round(4 + (WIDTH - 8) * min(max(share, 0.0), 1.0), 1)
