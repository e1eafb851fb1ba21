"""Passages for an index, known by the entities too that a graph of triples says they tell of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from pytrace.errors import InputError
from pytrace.records import Document, Origin, Triple


def name_passages(passages: Iterable[Document], graph: Path | None) -> Iterator[Document]:
    """Give passages the heads of their triples as names, by which others may link to them.

    Parameters
    ----------
    passages
        Passages as they are read; of those that the graph does not know nothing is changed.
    graph
        The directory of a graph of the same passages, made by 'pytrace kg build'; None: they stay as they are.

    Raises
    ------
    InputError
        The graph has triples of none of them.
    StoreError
        There is no graph, or it is damaged.
    """
    if graph is None:
        yield from passages
        return
    from pytrace.triples.graph import TripleStore

    count = named = 0
    with TripleStore.open(graph, mode="read") as store:
        for passage in passages:
            count += 1
            if store.missing([passage]):
                yield passage
                continue
            heads = {unit.head: None for unit in store.iterate_triples([passage]) if isinstance(unit, Triple)}
            named += bool(heads)
            # Where letters have capitals, a head without one is a thing of its sentence alone: "the firm".
            names = [head for head in heads if head != passage.title and (head != head.lower() or head == head.upper())]
            if not names:
                yield passage
                continue
            origin = passage.origin or Origin(passage.id, passage.title)
            yield msgspec.structs.replace(passage, origin=msgspec.structs.replace(origin, names=tuple(names)))
    if count and not named:
        raise InputError(
            f"the graph in {graph} has no triples of any of {count:,} passages; build it from the same documents, with passages of the "
            "same length: 'pytrace kg build --docs PATH --out DIR --set unit=triple'"
        )
