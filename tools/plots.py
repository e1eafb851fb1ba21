"""Draw the plots of docs/benchmarks.md of the tables in docs/ and benches/RESULTS.md, so that no figure is written down twice.

python tools/plots.py
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
# Okabe and Ito's colours, which people see apart whatever colours they see.
COLOURS = ("#999999", "#56b4e9", "#e69f00", "#009e73", "#0072b2", "#d55e00")
WIDTH, LEFT, RIGHT = 760, 300, 60


class Bar(NamedTuple):
    """A bar: its label, value, colour, and what is drawn beside it: an interval, or a mark."""

    label: str
    value: float
    colour: str
    low: float | None = None
    high: float | None = None
    mark: float | None = None


def table(page: str, first: str) -> list[list[str]]:
    """Return the rows of the table whose head begins with these words, as texts without marks."""
    lines = (ROOT / page).read_text(encoding="utf-8").splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith(first))
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip().strip("`*") for cell in line.strip("|").split("|")])
    return rows


def text(x: float, y: float, words: str, anchor: str = "start", size: int = 13, weight: str = "normal") -> str:
    """Return a text."""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" font-weight="{weight}">{escape(words)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, colour: str = "#333", width: float = 1) -> str:
    """Return a line."""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" stroke-width="{width}"/>'


def write(name: str, title: str, height: float, parts: Sequence[str]) -> None:
    """Write an SVG file."""
    IMAGES.joinpath(name).write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" role="img" '
        f'font-family="sans-serif" fill="#222"><title>{escape(title)}</title>'
        f'<rect width="{WIDTH}" height="{height:.0f}" fill="#fff"/>\n'
        + "\n".join([text(16, 26, title, size=15, weight="bold"), *parts])
        + "\n</svg>\n",
        encoding="utf-8",
    )


def bars(
    name: str, title: str, rows: Sequence[Bar | None], ticks: Sequence[float], unit: str, *, log: bool = False
) -> None:
    """Draw horizontal bars; a row of nothing is a gap."""
    low, high = ticks[0], ticks[-1]

    def place(value: float) -> float:
        share = math.log(value / low) / math.log(high / low) if log else (value - low) / (high - low)
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    bottom = 50 + sum(22 if row else 10 for row in rows)
    parts = []
    for tick in ticks:
        parts += [
            line(place(tick), 44, place(tick), bottom, "#ddd"),
            text(place(tick), bottom + 16, f"{tick:g}", "middle", 12),
        ]
    parts.append(text((LEFT + WIDTH - RIGHT) / 2, bottom + 36, unit, "middle", 12))
    y = 50.0
    for row in rows:
        if row is None:
            y += 10
            continue
        parts.append(text(LEFT - 8, y + 13, row.label, "end", 12))
        end = place(row.value)
        parts.append(f'<rect x="{LEFT}" y="{y + 2:.1f}" width="{end - LEFT:.1f}" height="15" fill="{row.colour}"/>')
        if row.low is not None and row.high is not None:
            parts.append(line(place(row.low), y + 9.5, place(row.high), y + 9.5, "#222", 1.5))
        if row.mark is not None:
            parts.append(line(place(row.mark), y, place(row.mark), y + 19, "#d55e00", 3))
        behind = place(row.high or row.value)
        if row.mark is not None and 0 <= place(row.mark) - behind < 40:
            behind = place(row.mark)
        worded = f"{row.value:,.0f}" if row.value >= 100 else f"{row.value:g}"
        parts.append(text(behind + 5, y + 13, worded, size=12))
        y += 22
    write(name, title, bottom + 48, parts)


def methods() -> None:
    """F1 of each method with its interval, of docs/measurements.md."""
    rows = []
    for method, _, f1, *_ in table("docs/measurements.md", "| method | EM (95 % interval) | F1"):
        value, low, high = map(float, re.findall(r"[\d.]+", f1))
        colour = COLOURS[4] if method.startswith("trace") else COLOURS[0]
        rows.append(Bar(method, value, colour, low, high))
    rows.sort(key=lambda row: -row.value)
    bars(
        "methods-f1.svg",
        "F1 with 95 % intervals, 108 adversarial questions of HotpotQA",
        rows,
        (0, 10, 20, 30, 40, 50),
        "F1",
    )


def recall() -> None:
    """Recall among five passages, of docs/corpus.md."""
    kinds = ("BM25", "vectors", "RRF", "walk alone", "search across hops")
    rows: list[Bar | None] = []
    for cells in table("docs/corpus.md", "| set | passages | BM25"):
        for kind, cell, colour in zip(kinds, cells[2:7], COLOURS, strict=False):
            rows.append(Bar(f"{cells[0].split(',')[0]}: {kind}", float(cell.strip("*").split()[1]), colour))
        rows.append(None)
    bars(
        "recall-at-5.svg",
        "Share of supporting passages among the first five",
        rows[:-1],
        (0, 20, 40, 60, 80, 100),
        "percent",
    )


def kernels() -> None:
    """How much faster the kernels are than their best peer, where a bar was set, of benches/RESULTS.md."""
    rows = []
    for case, _, _, ratio, bar, _ in table("benches/RESULTS.md", "| case | ours | best peer"):
        if bar:
            top, _, below = bar.partition("/")
            mark = float(top) / float(below or 1)
            label = case.replace(", one call each", "").replace(" at density", ",")
            label = label if len(label) < 46 else label[:44].rpartition(" ")[0] + " …"
            rows.append(Bar(label, float(ratio), COLOURS[3 if float(ratio) >= mark else 2], mark=mark))
    bars(
        "kernels.svg", "Time of the best peer by our time (mark: the bar that was set)", rows, (0.3, 1, 10, 100, 1000), "times, on a logarithmic scale", log=True,
    )  # fmt: skip


def growth() -> None:
    """Milliseconds of a search by the number of passages, of docs/corpus.md."""
    rows = table("docs/corpus.md", "| passages | search, median (95 %)")
    sizes = [float(cells[0].replace(",", "")) for cells in rows]
    series = {
        "one question": [float(cells[1].split()[0]) for cells in rows],
        "64 together, each": [float(cells[2].split()[0]) for cells in rows],
    }
    top, bottom, left, right = 44, 330, 90, 170

    def x(size: float) -> float:
        return left + math.log10(size / sizes[0]) / math.log10(sizes[-1] / sizes[0]) * (WIDTH - left - right)

    def y(value: float) -> float:
        return bottom - math.log10(value) / 2.3 * (bottom - top)

    parts = [
        line(left, y(tick), WIDTH - right, y(tick), "#ddd") + text(left - 8, y(tick) + 4, f"{tick} ms", "end", 12)
        for tick in (1, 3, 10, 30, 100)
    ]
    parts += [text(x(size), bottom + 20, f"{size:,.0f}", "middle", 12) for size in sizes]
    parts.append(text((left + WIDTH - right) / 2, bottom + 42, "passages", "middle", 12))
    for (label, values), colour in zip(series.items(), (COLOURS[4], COLOURS[3]), strict=True):
        points = [(x(size), y(value)) for size, value in zip(sizes, values, strict=True)]
        joined = " ".join(f"{a:.1f},{b:.1f}" for a, b in points)
        parts.append(f'<polyline points="{joined}" fill="none" stroke="{colour}" stroke-width="2.5"/>')
        for (a, b), value in zip(points, values, strict=True):
            parts.append(
                f'<circle cx="{a:.1f}" cy="{b:.1f}" r="4" fill="{colour}"/>'
                + text(a + 4, b - 9, f"{value:g}", "start", 12)
            )
        parts.append(text(points[-1][0] + 12, points[-1][1] + 4, label))
    write("search-growth.svg", "A search by the size of the index, two threads", bottom + 56, parts)


def main() -> None:
    """Draw all plots."""
    IMAGES.mkdir(exist_ok=True)
    for draw in (methods, recall, kernels, growth):
        draw()


if __name__ == "__main__":
    main()
