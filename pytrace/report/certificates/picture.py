"""A response's corner of the graph as a small drawing: steps and gold path from top to bottom, other facts at the sides."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from pytrace.check_records import Certificate, StepStatus
from pytrace.kg import KnowledgeBase
from pytrace.report.certificates.layout import Layout, Link, lay_out
from pytrace.report.page_texts import cut

# In pixels, as the page shows it; a letter of 12 pixels is about half as wide as it is high.
_LETTER = 6.6
_LONGEST_LABEL = 22
_BOX = 28
_WIDEST = _LONGEST_LABEL * _LETTER + 20
_LABEL_HEIGHT = 16
# Between two columns there is room for a curve, between two rows for a label.
_COLUMN = _WIDEST + 56
_ROW = 78
# Of a fact around the paths its entity and its relation stand in two lines.
_LEAF = 40
# How far apart two curves between the same entities run.
_BEND = 60.0

Curve = tuple[float, float, float, float, float, float]


class Node(msgspec.Struct, frozen=True, rename={"leaf": "isLeaf"}):
    """An entity: the middle of its box, the box's width, its name as shown and in full; `leaf`: it is on no path."""

    x: float
    y: float
    width: float
    label: str
    name: str
    leaf: bool


class Edge(msgspec.Struct, frozen=True):
    """A triple: a quadratic curve from its head to its tail (x and y of start, control point and end) and its label's middle.

    `status` is that of the step whose nearest triple it is, None if it is no step's; `gold`: it is on the gold path.
    """

    curve: Curve
    label: str
    name: str
    x: float
    y: float
    status: StepStatus | None
    gold: bool


class Picture(msgspec.Struct, frozen=True):
    """A drawing of so many pixels, with its nodes and edges."""

    width: float
    height: float
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]


class Box(NamedTuple):
    """A rectangle by its middle and size."""

    x: float
    y: float
    width: float
    height: float

    def overlap(self, other: Box) -> float:
        """Return the area that two boxes share."""
        across = (self.width + other.width) / 2 - abs(self.x - other.x)
        down = (self.height + other.height) / 2 - abs(self.y - other.y)
        return max(across, 0.0) * max(down, 0.0)


def draw(certificate: Certificate, base: KnowledgeBase) -> Picture | None:
    """Draw the triples of a response's steps, its gold path and some facts around them."""
    layout = lay_out(certificate, base)
    if not layout.links:
        return None
    boxes, tops = _grid(layout)
    leaves, leaf_edges = _leaves(layout, boxes)
    edges = [*_edges(layout, boxes, [*boxes.values(), *leaves], tops), *leaf_edges]
    named = [(box, layout.names[node], False) for node, box in boxes.items()]
    named += [(box, leaf.name, True) for box, leaf in zip(leaves, layout.leaves, strict=True)]
    # The drawing is moved so that it begins at the margin, and rounded, for ten thousand pictures are most of a page.
    covered = [*boxes.values(), *(leaf._replace(height=_LEAF) for leaf in leaves)]
    covered += [Box(edge.x, edge.y, text_width(edge.label) + 6, _LABEL_HEIGHT) for edge in edges]
    left = min(box.x - box.width / 2 for box in covered) - 8
    top = min(box.y - box.height / 2 for box in covered) - 8
    right = max(box.x + box.width / 2 for box in covered) + 8
    bottom = max(box.y + box.height / 2 for box in covered) + 8

    def at(x: float, y: float) -> tuple[float, float]:
        return round(x - left, 1), round(y - top, 1)

    return Picture(
        round(right - left),
        round(bottom - top),
        tuple(
            Node(*at(box.x, box.y), round(box.width, 1), shortened(name), cut(name), leaf) for box, name, leaf in named
        ),
        tuple(
            msgspec.structs.replace(
                edge,
                curve=(*at(*edge.curve[:2]), *at(*edge.curve[2:4]), *at(*edge.curve[4:])),
                **dict(zip("xy", at(edge.x, edge.y), strict=True)),
            )
            for edge in edges
        ),
    )


def text_width(text: str) -> float:
    """Estimate how wide a text of 12 pixels is."""
    return sum(2 * _LETTER if unicodedata.east_asian_width(letter) in "WF" else _LETTER for letter in text)


def shortened(text: str) -> str:
    """Cut a text to what fits into a box."""
    if text_width(text) <= _LONGEST_LABEL * _LETTER:
        return text
    shorter = text[:_LONGEST_LABEL]
    while text_width(shorter) > (_LONGEST_LABEL - 1) * _LETTER:
        shorter = shorter[:-1]
    return shorter + "…"


def _grid(layout: Layout) -> tuple[dict[int, Box], list[float]]:
    """Put the nodes of the paths on a grid whose rows leave room for the labels between them."""
    places = layout.places
    above = [min(places[link.head].rank, places[link.tail].rank) for link in layout.links]
    tops = [0.0]
    for rank in range(max(place.rank for place in places.values()) + 1):
        tops.append(tops[-1] + _ROW + (_LABEL_HEIGHT + 4) * max(above.count(rank) - 1, 0))
    boxes = {
        node: Box(place.column * _COLUMN, tops[place.rank], text_width(shortened(layout.names[node])) + 20, _BOX)
        for node, place in places.items()
    }
    return boxes, tops


def _leaves(layout: Layout, boxes: dict[int, Box]) -> tuple[list[Box], list[Edge]]:
    """Put the facts around the paths in a column at the left and one at the right, each level with its entity."""
    columns = max(place.column for place in layout.places.values()) + 1
    sides: dict[int, list[int]] = {-1: [], 1: []}
    for number, leaf in enumerate(layout.leaves):
        # A single column has facts on both sides by turns.
        left = len(sides[1]) > len(sides[-1]) if columns == 1 else layout.places[leaf.node].column < columns / 2
        sides[-1 if left else 1].append(number)
    placed: dict[int, Box] = {}
    edges: dict[int, Edge] = {}
    for side, numbers in sides.items():
        numbers.sort(key=lambda number: (boxes[layout.leaves[number].node].y, number))
        beside = [layout.leaves[number].node for number in numbers]
        wanted = [
            boxes[node].y + (beside[:index].count(node) - (beside.count(node) - 1) / 2) * _LEAF
            for index, node in enumerate(beside)
        ]
        levels: list[float] = []
        for level in wanted:
            levels.append(max(level, levels[-1] + _LEAF) if levels else level)
        # Stacking moves facts down only; the column goes up by as much on average, to stand around its entities.
        drift = (sum(levels) - sum(wanted)) / max(len(levels), 1)
        for number, level in zip(numbers, levels, strict=True):
            leaf, node = layout.leaves[number], boxes[layout.leaves[number].node]
            width = max(text_width(shortened(leaf.name)), text_width(shortened(leaf.relation))) + 12
            box = placed[number] = Box(-_COLUMN if side < 0 else columns * _COLUMN, level - drift, width, _LEAF - 4)
            inner = (node.x + side * node.width / 2, node.y)
            outer = (box.x - side * box.width / 2, box.y)
            middle = ((inner[0] + outer[0]) / 2, outer[1])
            curve = (*inner, *middle, *outer) if leaf.outgoing else (*outer, *middle, *inner)
            name = leaf.relation
            edges[number] = Edge(curve, shortened(name), cut(name), box.x, box.y - 8, None, gold=False)
    return [placed[number] for number in sorted(placed)], [edges[number] for number in sorted(edges)]


def _edges(layout: Layout, boxes: dict[int, Box], taken: Sequence[Box], tops: Sequence[float]) -> list[Edge]:
    """Draw the triples of the paths, each label where it covers least of what is there already."""
    pairs: dict[tuple[int, int], list[Link]] = {}
    for link in layout.links:
        pairs.setdefault((min(link.head, link.tail), max(link.head, link.tail)), []).append(link)
    obstacles = list(taken)
    edges = []
    for number, count, link in ((n, len(links), link) for links in pairs.values() for n, link in enumerate(links)):
        head, tail = boxes[link.head], boxes[link.tail]
        curve = _curve(head, tail, (number - (count - 1) / 2) * 2 * _BEND, number)
        text = shortened(link.label)
        upper = min(head.y, tail.y)
        below = next(top for top in tops if top > upper)
        places = _label_places(curve, upper + _BOX, below - _BOX)
        spots = [Box(*place, text_width(text) + 6, _LABEL_HEIGHT) for place in places]
        best = min(spots, key=lambda spot: sum(spot.overlap(other) for other in obstacles))
        obstacles.append(best)
        edges.append(Edge(curve, text, cut(link.label), best.x, best.y, link.status, gold=link.gold))
    return edges


def _curve(head: Box, tail: Box, bend: float, number: int) -> Curve:
    """Join two boxes: from one's bottom to the other's top, below both in the same row, or around one."""
    if head == tail:
        edge = head.x + head.width / 2
        return (edge, head.y - 8, edge + 48 + 24 * number, head.y, edge, head.y + 8)
    middle = (head.x + tail.x) / 2
    if head.y == tail.y:
        # Below both, so that it crosses no box between them.
        bottom = head.y + _BOX / 2
        return (head.x, bottom, middle, bottom + 44 + 36 * number, tail.x, bottom)
    down = 1 if tail.y > head.y else -1
    return (
        head.x, head.y + down * _BOX / 2,
        middle + bend, (head.y + tail.y) / 2,
        tail.x, tail.y - down * _BOX / 2,
    )  # fmt: skip


def _label_places(curve: Sequence[float], top: float, bottom: float) -> Iterable[tuple[float, float]]:
    """Return places for a label, best first: along the curve, then beside it, all between two rows."""
    for aside in (0, 36, -36, 72, -72):
        for share in (0.5, 0.65, 0.35, 0.8, 0.2):
            x, y = (
                (1 - share) ** 2 * curve[axis] + 2 * share * (1 - share) * curve[axis + 2] + share**2 * curve[axis + 4]
                for axis in (0, 1)
            )
            yield x + aside, min(max(y, top), max(bottom, top))
