"""Plots as inline SVG: no script, no style of their own, and every figure also written as text."""

from __future__ import annotations

from collections.abc import Sequence

from pytrace.report.page_texts import shown

WIDTH = 320
"""How wide a plot is, in units of the drawing, which the page scales to the width it has."""


def drawing(name: str, title: str, told: str, height: float, parts: Sequence[str], *, role: str = "img") -> str:
    """Wrap a plot: it is announced by its title, and its figures are told in words."""
    return (
        f'<svg class="chart" viewBox="0 0 {WIDTH} {height:g}" role="{role}" aria-labelledby="{name}-title {name}-told">'
        f'<title id="{name}-title">{shown(title)}</title><desc id="{name}-told">{shown(told)}</desc>'
        f"{''.join(parts)}</svg>"
    )


def label(x: float, y: float, text: str, kind: str, *, anchor: str = "start") -> str:
    """Write a text of one line at a point; `kind` is its class, `anchor` which part of it stands there."""
    return f'<text class="{kind}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{shown(text)}</text>'


def line(kind: str, x1: float, y1: float, x2: float, y2: float) -> str:
    """Draw a straight line."""
    return f'<line class="{kind}" x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}"/>'
