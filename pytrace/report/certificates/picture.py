"""A response's corner of the graph as a small drawing: steps and gold path from top to bottom, other facts at the sides."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from pytrace.certify.certificate_records import Certificate, StepStatus
from pytrace.kg import KnowledgeBase
from pytrace.report.certificates.layout import Layout, Link, lay_out
from pytrace.report.page_texts import cut

# In pixels, as the page shows it; a letter is about half as wide as it is high.
_LETTER = 6.6
_LONGEST_LABEL = 22
_BOX = 28
_WIDEST = _LONGEST_LABEL * _LETTER + 20
_LABEL_HEIGHT = 16
_COLUMN = _WIDEST + 56
_ROW = 78
_LEAF = 40
_BEND = 60.0


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

    curve: tuple[float, float, float, float, float, float]
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
    found = lay_out(certificate, base)
    if not found.links:
        return None
    boxes, gaps = _places(found)
    columns = max(place.column for place in found.places.values()) + 1
    leaves, leaf_edges = _leaves(found, boxes, columns)
    edges = [*_edges(found, boxes, [*boxes.values(), *leaves], gaps), *leaf_edges]
    nodes = [
        Node(box.x, box.y, box.width, shortened(found.names[node]), cut(found.names[node]), leaf=False)
        for node, box in boxes.items()
    ]
    nodes += [
        Node(box.x, box.y, box.width, shortened(leaf.name), cut(leaf.name), leaf=True)
        for box, leaf in zip(leaves, found.leaves, strict=True)
    ]
    return _fitted(nodes, edges)


def text_width(text: str) -> float:
    """Estimate how wide a text of 12 pixels is."""
    return sum(2 * _LETTER if unicodedata.east_asian_width(letter) in "WF" else _LETTER for letter in text)


def shortened(text: str) -> str:
    """Cut a text to what fits into a box."""
    if text_width(text) <= _LONGEST_LABEL * _LETTER:
        return text
    kept = text[:_LONGEST_LABEL]
    while text_width(kept) > (_LONGEST_LABEL - 1) * _LETTER:
        kept = kept[:-1]
    return kept + "…"


def _places(found: Layout) -> tuple[dict[int, Box], list[float]]:
    """Put the nodes of the paths on a grid whose rows leave room for the labels between them."""
    ranks = max(place.rank for place in found.places.values()) + 1
    labels = [0] * ranks
    for link in found.links:
        labels[min(found.places[link.head].rank, found.places[link.tail].rank)] += 1
    tops = [0.0]
    for count in labels:
        tops.append(tops[-1] + _ROW + (_LABEL_HEIGHT + 4) * max(count - 1, 0))
    boxes = {
        node: Box(place.column * _COLUMN, tops[place.rank], text_width(shortened(found.names[node])) + 20, _BOX)
        for node, place in found.places.items()
    }
    return boxes, tops


def _leaves(found: Layout, boxes: dict[int, Box], columns: int) -> tuple[list[Box], list[Edge]]:
    """Put the facts around the paths in a column at the left and one at the right, each level with its entity."""
    sides: dict[int, list[int]] = {-1: [], 1: []}
    for number, leaf in enumerate(found.leaves):
        column = found.places[leaf.node].column
        if columns == 1:
            sides[1 if len(sides[1]) <= len(sides[-1]) else -1].append(number)
        else:
            sides[-1 if column < columns / 2 else 1].append(number)
    placed: dict[int, Box] = {}
    for side, numbers in sides.items():
        numbers.sort(key=lambda number: (boxes[found.leaves[number].node].y, number))
        x = -_COLUMN if side < 0 else columns * _COLUMN
        levels: list[float] = []
        wanted: list[float] = []
        for number in numbers:
            own = [other for other in numbers if found.leaves[other].node == found.leaves[number].node]
            level = boxes[found.leaves[number].node].y + (own.index(number) - (len(own) - 1) / 2) * _LEAF
            wanted.append(level)
            levels.append(max(level, levels[-1] + _LEAF) if levels else level)
        # Stacking moves facts down only; the column goes up by as much on average, to stand around its entities.
        drift = sum(levels) - sum(wanted)
        for number, level in zip(numbers, levels, strict=True):
            leaf = found.leaves[number]
            width = max(text_width(shortened(leaf.name)), text_width(shortened(leaf.relation))) + 12
            placed[number] = Box(x, level - drift / len(levels), width, _LEAF - 4)
    edges = []
    for number, leaf in enumerate(found.leaves):
        box, node = placed[number], boxes[leaf.node]
        side = -1 if box.x < node.x else 1
        inner = (node.x + side * node.width / 2, node.y)
        outer = (box.x - side * box.width / 2, box.y)
        middle = ((inner[0] + outer[0]) / 2, outer[1])
        ends = (*inner, *middle, *outer) if leaf.outgoing else (*outer, *middle, *inner)
        edges.append(Edge(ends, shortened(leaf.relation), cut(leaf.relation), box.x, box.y - 8, None, gold=False))
    return [placed[number] for number in range(len(found.leaves))], edges


def _edges(found: Layout, boxes: dict[int, Box], taken: Sequence[Box], tops: Sequence[float]) -> list[Edge]:
    """Draw the triples of the paths, each label where it covers least of what is there already."""
    pairs: dict[tuple[int, int], list[Link]] = {}
    for link in found.links:
        pairs.setdefault((min(link.head, link.tail), max(link.head, link.tail)), []).append(link)
    curves: list[tuple[Link, tuple[float, float, float, float, float, float]]] = []
    for links in pairs.values():
        for number, link in enumerate(links):
            bend = (number - (len(links) - 1) / 2) * 2 * _BEND
            curves.append((link, _curve(boxes[link.head], boxes[link.tail], bend, number)))
    obstacles = list(taken)
    edges = []
    for link, curve in curves:
        text = shortened(link.label)
        width = text_width(text) + 6
        upper = min(boxes[link.head].y, boxes[link.tail].y)
        below = next(top for top in tops if top > upper)
        spots = [Box(*spot, width, _LABEL_HEIGHT) for spot in _spots(curve, upper + _BOX, below - _BOX)]
        best = min(spots, key=lambda spot: sum(spot.overlap(other) for other in obstacles))
        obstacles.append(best)
        edges.append(Edge(curve, text, cut(link.label), best.x, best.y, link.status, gold=link.gold))
    return edges


def _curve(head: Box, tail: Box, bend: float, number: int) -> tuple[float, float, float, float, float, float]:
    """Join two boxes: from one's bottom to the other's top, below both in the same row, or around one."""
    if head == tail:
        edge = head.x + head.width / 2
        return (edge, head.y - 8, edge + 48 + 24 * number, head.y, edge, head.y + 8)
    middle = (head.x + tail.x) / 2
    if head.y == tail.y:
        bottom = head.y + _BOX / 2
        return (head.x, bottom, middle, bottom + 44 + 36 * number, tail.x, bottom)
    down = 1 if tail.y > head.y else -1
    return (
        head.x, head.y + down * _BOX / 2,
        middle + bend, (head.y + tail.y) / 2,
        tail.x, tail.y - down * _BOX / 2,
    )  # fmt: skip


def _spots(curve: Sequence[float], top: float, bottom: float) -> Iterable[tuple[float, float]]:
    """Return places for a label, best first: along the curve, then beside it, all between two rows."""
    for aside in (0, 36, -36, 72, -72):
        for share in (0.5, 0.65, 0.35, 0.8, 0.2):
            x, y = (
                (1 - share) ** 2 * curve[axis] + 2 * share * (1 - share) * curve[axis + 2] + share**2 * curve[axis + 4]
                for axis in (0, 1)
            )
            yield x + aside, min(max(y, top), max(bottom, top))


def _fitted(nodes: Sequence[Node], edges: Sequence[Edge]) -> Picture:
    """Move the drawing so that it begins at the margin, and measure it."""
    boxes = [Box(node.x, node.y, node.width, _LEAF if node.leaf else _BOX) for node in nodes]
    boxes += [Box(edge.x, edge.y, text_width(edge.label) + 6, _LABEL_HEIGHT) for edge in edges]
    left = min(box.x - box.width / 2 for box in boxes) - 8
    top = min(box.y - box.height / 2 for box in boxes) - 8
    right = max(box.x + box.width / 2 for box in boxes) + 8
    bottom = max(box.y + box.height / 2 for box in boxes) + 8
    shift = (left, top) * 3
    return Picture(
        round(right - left),
        round(bottom - top),
        tuple(
            msgspec.structs.replace(
                node, x=round(node.x - left, 1), y=round(node.y - top, 1), width=round(node.width, 1)
            )
            for node in nodes
        ),
        tuple(
            msgspec.structs.replace(
                edge,
                curve=tuple(round(value - off, 1) for value, off in zip(edge.curve, shift, strict=True)),
                x=round(edge.x - left, 1),
                y=round(edge.y - top, 1),
            )
            for edge in edges
        ),
    )
