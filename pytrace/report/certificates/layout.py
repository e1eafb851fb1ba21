"""Which triples a response's picture shows, and in which row and column their entities stand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pytrace.certify.certificate_records import Certificate, Match, StepStatus
from pytrace.certify.wording import named_path
from pytrace.kg import KnowledgeBase
from pytrace.kg.paths import neighbourhood
from pytrace.records import Triple

_MOST_TRIPLES = 8
_MOST_FACTS = 12
_MOST_FACTS_OF_ONE = 4


class Link(NamedTuple):
    """A triple of a step or of the gold path between two nodes, with what is written on it."""

    head: int
    tail: int
    label: str
    status: StepStatus | None
    gold: bool


class Leaf(NamedTuple):
    """A fact of the graph that starts (`outgoing`) or ends at a node of a path; `name` is its other entity's."""

    node: int
    relation: str
    name: str
    outgoing: bool


class Place(NamedTuple):
    """Where a node stands: `rank` counts the triples from the start, `column` the nodes beside it."""

    rank: int
    column: int


class Layout(NamedTuple):
    """The nodes of a response's paths by number, with their names and places, the links between them and facts around."""

    names: tuple[str, ...]
    places: dict[int, Place]
    links: tuple[Link, ...]
    leaves: tuple[Leaf, ...]


class _Nodes:
    """Entities of a picture: by number where the graph has them, else by name, so that both meet in one node."""

    def __init__(self, base: KnowledgeBase) -> None:
        self._base = base
        self._numbers: dict[int | str, int] = {}
        self.names: list[str] = []
        self.entities: list[int | None] = []

    def of(self, entity: int | None, name: str) -> int:
        known = self._numbers.get(name if entity is None else entity)
        if known is None and entity is not None and self._without_entity(name):
            known = self._numbers[name]
            self.entities[known] = entity
            self._numbers[entity] = known
        if known is None:
            known = len(self.names)
            self.names.append(name)
            self.entities.append(entity)
            self._numbers.setdefault(name, known)
            if entity is not None:
                self._numbers[entity] = known
        return known

    def _without_entity(self, name: str) -> bool:
        return name in self._numbers and self.entities[self._numbers[name]] is None

    def entity(self, number: int) -> int:
        name = self._base.columns.entity_names[number]
        return self.of(number, name)


def lay_out(certificate: Certificate, base: KnowledgeBase) -> Layout:
    """Collect the triples of a response's picture."""
    nodes = _Nodes(base)
    shown: dict[tuple[int, str, int], tuple[list[int], StepStatus | None, bool]] = {}
    drawn: set[int] = set()
    for triple in certificate.gold_path[:_MOST_TRIPLES]:
        number = base.number(triple)
        (named,) = named_path(base, (triple,))
        key = _ends(nodes, base, number, named)
        shown[key] = ([], None, True)
        drawn |= set() if number is None else {number}
    for place, step in enumerate(certificate.steps[:_MOST_TRIPLES], 1):
        if step.match is None:
            continue
        number = _known(base, step.match)
        key = _ends(nodes, base, number, step.match.triple)
        steps, status, gold = shown.get(key, ([], step.status, False))
        # A triple that two steps share is shown as the better of them: it is a fact that one of them states.
        better = "supported" if "supported" in (status, step.status) else step.status
        shown[key] = ([*steps, place], better, gold)
        drawn |= set() if number is None else {number}
    links = tuple(
        Link(head, tail, _label(relation, steps, gold=gold), status, gold)
        for (head, relation, tail), (steps, status, gold) in shown.items()
    )
    return Layout(tuple(nodes.names), _places(links), links, tuple(_facts(nodes, base, drawn)))


def _ends(nodes: _Nodes, base: KnowledgeBase, number: int | None, named: Triple) -> tuple[int, str, int]:
    """Return the nodes of a triple and its relation's name; without a number they are known by their names alone."""
    if number is None:
        return nodes.of(None, named.head), named.relation, nodes.of(None, named.tail)
    head, _, tail = base.columns.triples[number].tolist()
    return nodes.entity(head), named.relation, nodes.entity(tail)


def _known(base: KnowledgeBase, match: Match) -> int | None:
    """Return a match's number if this graph has that triple there: certificates may come from a file."""
    there = 0 <= match.number < len(base) and base.named(match.number) == match.triple
    return match.number if there else None


def _label(relation: str, steps: list[int], *, gold: bool) -> str:
    if steps:
        return f"{', '.join(map(str, steps))}: {relation}"
    return f"gold: {relation}" if gold else relation


def _places(links: tuple[Link, ...]) -> dict[int, Place]:
    """Put each node as many rows below the start as it is links away; what hangs together nowhere else goes to the right."""
    neighbours: dict[int, list[int]] = {}
    for link in links:
        neighbours.setdefault(link.head, []).append(link.tail)
        neighbours.setdefault(link.tail, []).append(link.head)
    places: dict[int, Place] = {}
    for link in links:
        first = 1 + max((place.column for place in places.values()), default=-1)
        start = _start(link, links)
        queue = [] if start in places else [start]
        places.update(dict.fromkeys(queue, Place(0, first)))
        for node in queue:
            for other in neighbours[node]:
                if other in places:
                    continue
                rank = places[node].rank + 1
                used = {place.column for place in places.values() if place.rank == rank}
                column = places[node].column
                while column in used:
                    column += 1
                places[other] = Place(rank, column)
                queue.append(other)
    return places


def _start(link: Link, links: tuple[Link, ...]) -> int:
    """Return the end of a link at which a path that begins with it starts: the one that the next link does not share."""
    place = links.index(link)
    after = links[place + 1] if place + 1 < len(links) else None
    return link.tail if after is not None and link.head in (after.head, after.tail) and link.tail not in (
        after.head, after.tail
    ) else link.head  # fmt: skip


def _facts(nodes: _Nodes, base: KnowledgeBase, drawn: set[int]) -> Iterator[Leaf]:
    """Choose facts around the nodes; no entity comes twice, so that each stands by itself."""
    places = {entity: node for node, entity in enumerate(nodes.entities) if entity is not None}
    if not places:
        return
    leaves: set[int] = set()
    counts = [0] * len(nodes.names)
    # More than are shown, for some lead to entities that are there already.
    numbers, _ = neighbourhood(base, list(places), limit=4 * _MOST_FACTS + len(drawn))
    for number in numbers:
        head, _, tail = base.columns.triples[number].tolist()
        outgoing = head in places
        node, other = (places[head], tail) if outgoing else (places[tail], head)
        full = len(leaves) == _MOST_FACTS or counts[node] == _MOST_FACTS_OF_ONE
        if other in places or other in leaves or full:
            continue
        leaves.add(other)
        counts[node] += 1
        named = base.named(number)
        yield Leaf(node, named.relation, named.tail if outgoing else named.head, outgoing)
