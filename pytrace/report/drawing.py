"""Plots as inline SVG: no script, no style of their own, and every figure also written as text."""

from __future__ import annotations

from collections.abc import Sequence

from pytrace.report.page_texts import finite, shown

# How wide a plot is, in units of the drawing, which the page scales to the width it has.
WIDTH = 320
# The first and the last tick of an axis stay within the drawing.
_ANCHORS = {0: "start", 100: "end"}


def drawing(
    name: str, title: str, texts: Sequence[str], height: float, parts: Sequence[str], *, role: str = "img"
) -> str:
    """Wrap a plot: it is announced by its title, and its figures are texts in words."""
    # Shapes say nothing to who hears the page, so the plot is described by the same words that stand in it.
    return (
        f'<svg class="chart" viewBox="0 0 {WIDTH} {height:g}" role="{role}" aria-labelledby="{name}-title {name}-told">'
        f'<title id="{name}-title">{shown(title)}</title><desc id="{name}-told">{shown("; ".join(texts))}</desc>'
        f"{''.join(parts)}</svg>"
    )


def label(x: float, y: float, text: str, kind: str, *, anchor: str = "start") -> str:
    """Write a text of one line at a point; `kind` is its class, `anchor` which part of it stands there."""
    return f'<text class="{kind}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{shown(text)}</text>'


def line(kind: str, x1: float, y1: float, x2: float, y2: float) -> str:
    """Draw a straight line."""
    return f'<line class="{kind}" x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}"/>'


def rect(kind: str, x: float, y: float, width: float, height: float, *, rx: float = 0, inner: str = "") -> str:
    """Draw a rectangle, to a tenth of a unit, which may hold its title."""
    # Finer than a tenth nobody sees, and shorter numbers keep pages of many plots small.
    corner = f' rx="{rx:g}"' if rx else ""
    size = f'x="{round(x, 1):g}" y="{round(y, 1):g}" width="{round(width, 1):g}" height="{round(height, 1):g}"{corner}'
    return f'<rect class="{kind}" {size}>{inner}</rect>' if inner else f'<rect class="{kind}" {size}/>'


def circle(x: float, y: float, radius: float, kind: str = "") -> str:
    """Draw a circle, to a tenth of a unit."""
    name = f'class="{kind}" ' if kind else ""
    return f'<circle {name}cx="{round(x, 1):g}" cy="{round(y, 1):g}" r="{radius:g}"/>'


def link(address: str, name: str, parts: Sequence[str]) -> str:
    """Make a part of a plot lead to the rows that it counts."""
    return f'<a href="#{address}" aria-label="{name}: show them">{"".join(parts)}</a>'


def titled(y: float, name: str, words: str, kinds: tuple[str, str]) -> list[str]:
    """Write a row's name at the left and its figures at the right, each of its own class."""
    return [label(0, y, name, kinds[0]), label(WIDTH, y, words, kinds[1], anchor="end")]


def at_share(share: float) -> float:
    """Return where a share stands on an axis of shares."""
    return round(4 + (WIDTH - 8) * min(max(share, 0.0), 1.0), 1)


def share_axis(top: float, bottom: float, words: float) -> list[str]:
    """Draw the grid of an axis of shares, with its figures at a height."""
    parts = []
    for tick in range(0, 101, 25):
        x = at_share(tick / 100)
        parts += [line("grid", x, top, x, bottom)]
        parts += [label(x, words, f"{tick}%", "tick", anchor=_ANCHORS.get(tick, "middle"))]
    return parts


def estimate(
    kind: str, value: float | None, ends: tuple[float | None, float | None] | None, y: float, *, ring: bool, size: float
) -> list[str]:
    """Draw a share and its interval on an axis of shares, as a ring or a square; nothing for what is not defined."""
    value, low, high = finite(value), *map(finite, ends or (None, None))
    if value is None:
        return []
    parts = [] if low is None or high is None else [line(f"interval {kind}", at_share(low), y, at_share(high), y)]
    x = at_share(value)
    return [*parts, circle(x, y, size / 2, kind) if ring else rect(kind, x - size / 2, y - size / 2, size, size)]
