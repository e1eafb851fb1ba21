"""Which triples a response's picture shows, and in which row and column their entities stand."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

from pytrace.certify.wording import named_path
from pytrace.check_records import Certificate, StepStatus
from pytrace.kg import KnowledgeBase
from pytrace.kg.paths import neighbourhood
from pytrace.records import Triple

# More triples of steps and gold path, or facts around them, than a reader takes in at a look.
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
        self.base = base
        self.names: list[str] = []
        self.by_name: dict[str, int] = {}
        self.by_entity: dict[int, int] = {}

    def of(self, name: str, entity: int | None = None) -> int:
        node = self.by_name.get(name) if entity is None else self.by_entity.get(entity)
        if node is not None:
            return node
        node = self.by_name.get(name)
        # A node that is another entity already is only a namesake.
        if node is None or node in self.by_entity.values():
            node = len(self.names)
            self.names.append(name)
            self.by_name.setdefault(name, node)
        if entity is not None:
            self.by_entity[entity] = node
        return node

    def ends(self, number: int | None, named: Triple) -> tuple[int, str, int]:
        """Return the nodes of a triple and its relation's name; without a number they are known by their names alone."""
        if number is None:
            return self.of(named.head), named.relation, self.of(named.tail)
        names = self.base.columns.entity_names
        head, _, tail = self.base.columns.triples[number].tolist()
        return self.of(names[head], head), named.relation, self.of(names[tail], tail)


def lay_out(certificate: Certificate, base: KnowledgeBase) -> Layout:
    """Collect the triples of a response's picture."""
    nodes = _Nodes(base)
    shown: dict[tuple[int, str, int], tuple[list[int], StepStatus | None, bool]] = {}
    drawn: set[int | None] = {None}
    for triple in certificate.gold_path[:_MOST_TRIPLES]:
        number = base.number(triple)
        (named,) = named_path(base, (triple,))
        shown[nodes.ends(number, named)] = ([], None, True)
        drawn.add(number)
    for count, step in enumerate(certificate.steps[:_MOST_TRIPLES], 1):
        match = step.match
        if match is None:
            continue
        # Certificates may come from a file, and this be another graph than theirs.
        there = 0 <= match.number < len(base) and base.named(match.number) == match.triple
        number = match.number if there else None
        ends = nodes.ends(number, match.triple)
        steps, status, gold = shown.get(ends, ([], step.status, False))
        # A triple that two steps share is shown as the better of them: it is a fact that one of them states.
        better = "supported" if "supported" in (status, step.status) else step.status
        shown[ends] = ([*steps, count], better, gold)
        drawn.add(number)
    links = tuple(
        Link(head, tail, f"{', '.join(map(str, steps)) or 'gold'}: {relation}", status, gold)
        for (head, relation, tail), (steps, status, gold) in shown.items()
    )
    return Layout(tuple(nodes.names), _places(links), links, tuple(_facts(nodes, len(drawn) - 1)))


def _places(links: tuple[Link, ...]) -> dict[int, Place]:
    """Put each node as many rows below the start as it is links away; what hangs together nowhere else goes to the right."""
    neighbours: dict[int, list[int]] = {}
    for link in links:
        neighbours.setdefault(link.head, []).append(link.tail)
        neighbours.setdefault(link.tail, []).append(link.head)
    places: dict[int, Place] = {}
    for link, after in itertools.zip_longest(links, links[1:]):
        # The end at which a path that begins with this link starts is the one that the next link does not share.
        shared = (after.head, after.tail) if after is not None else ()
        start = link.tail if link.head in shared and link.tail not in shared else link.head
        if start in places:
            continue
        places[start] = Place(0, 1 + max((place.column for place in places.values()), default=-1))
        queue = [start]
        for node in queue:
            for other in neighbours[node]:
                if other in places:
                    continue
                rank, column = places[node].rank + 1, places[node].column
                while Place(rank, column) in places.values():
                    column += 1
                places[other] = Place(rank, column)
                queue.append(other)
    return places


def _facts(nodes: _Nodes, drawn: int) -> Iterator[Leaf]:
    """Choose facts around the nodes; no entity comes twice, so that each stands by itself."""
    base, known = nodes.base, nodes.by_entity
    leaves: set[int] = set()
    counts = [0] * len(nodes.names)
    # More than are shown, for some lead to entities that are there already.
    entities = sorted(known, key=known.__getitem__)
    numbers = neighbourhood(base, entities, limit=4 * _MOST_FACTS + drawn)[0] if known else ()
    for number in numbers:
        head, _, tail = base.columns.triples[number].tolist()
        outgoing = head in known
        node, other = (known[head], tail) if outgoing else (known[tail], head)
        full = len(leaves) == _MOST_FACTS or counts[node] == _MOST_FACTS_OF_ONE
        if other in known or other in leaves or full:
            continue
        leaves.add(other)
        counts[node] += 1
        named = base.named(number)
        yield Leaf(node, named.relation, named.tail if outgoing else named.head, outgoing)
