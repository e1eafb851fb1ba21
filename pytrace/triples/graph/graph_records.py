"""What a knowledge graph is told and what it tells: recipe, statistics of one extraction, of the graph, and of a sync."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from pytrace.records import Document, TextUnit, Triple, Unit


class Recipe(msgspec.Struct, frozen=True):
    """How the triples of a graph are extracted: triples of two recipes never mix in one store.

    `model` and `prompt` are the hashes of the model file and of the prompt (template and demonstrations); `options` any
    JSON values that change the triples (temperature, number of demonstrations, token limit, ...).
    """

    extractor: str
    model: str = ""
    prompt: str = ""
    options: dict[str, object] = {}

    @property
    def hash(self) -> str:
        """SHA-256 of the recipe in canonical JSON, in hexadecimal."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def to_json(self) -> str:
        """Canonical JSON: keys sorted, ASCII only."""
        return json.dumps(msgspec.to_builtins(self), sort_keys=True)

    def differences(self, other: Recipe) -> list[str]:
        """Name each setting in which `other` differs, with both values."""
        pairs = [(name, getattr(self, name), getattr(other, name)) for name in ("extractor", "model", "prompt")]
        for name in sorted({*self.options, *other.options}):
            pairs.append((name, self.options.get(name, "(not set)"), other.options.get(name, "(not set)")))
        return [f"{name} is {ours!r} there and {theirs!r} here" for name, ours, theirs in pairs if ours != theirs]


BY_HAND = Recipe("by hand")


class ExtractionStatistics(msgspec.Struct, frozen=True, omit_defaults=True):
    """How the extraction of one document went.

    Of the `lines` that the extractor wrote, `parsed` became triples, `repeated` said again what was said, and `dropped`
    were unsound. `truncated` is true if the output was cut off; `failure` says why nothing could be extracted.
    """

    lines: int = 0
    parsed: int = 0
    dropped: int = 0
    repeated: int = 0
    truncated: bool = False
    failure: str = ""


class StoredDocument(NamedTuple):
    """A document as a graph holds it: its statistics, None while it waits, and its triples, read as they are asked for."""

    document: Document
    statistics: ExtractionStatistics | None
    edited: bool
    triples: Iterator[Unit]


class GraphStatistics(msgspec.Struct, frozen=True):
    """A knowledge graph in numbers, as in Table 5 of the TRACE paper, and how its extraction went.

    Entities are the distinct heads and the distinct tails of triples that have a relation (a triple without one is a
    sentence or a document, and its tail is text). `edges` counts ordered pairs of different entities that some triple
    connects, and `density` is ``edges / (entities * (entities - 1))``: 0 if nothing is connected, 1 if all is.
    `triples` counts what `TripleStore.triples` gives. `waiting` documents have not been extracted yet and are not
    among those `without_triples`; `contents` counts distinct texts, each extracted once.
    """

    documents: int = 0
    contents: int = 0
    waiting: int = 0
    without_triples: int = 0
    edited: int = 0
    triples: int = 0
    entities: int = 0
    relations: int = 0
    edges: int = 0
    density: float = 0.0
    lines: int = 0
    parsed: int = 0
    dropped: int = 0
    repeated: int = 0
    truncated: int = 0
    failures: int = 0


class SyncReport(msgspec.Struct, frozen=True):
    """What `TripleStore.sync` did: how many documents it added, changed, removed, left as they were, or met again.

    The tuples name the first thousand of those added, changed and removed, so that a report does not grow with a corpus.
    """

    added: int = 0
    changed: int = 0
    removed: int = 0
    unchanged: int = 0
    repeated: int = 0
    added_ids: tuple[str, ...] = ()
    changed_ids: tuple[str, ...] = ()
    removed_ids: tuple[str, ...] = ()


def density(entities: int, edges: int) -> float:
    """Share of the possible directed edges between different entities that are there."""
    return edges / (entities * (entities - 1)) if entities > 1 else 0.0


def row_of(unit: Unit) -> tuple[str, str, str, int, float]:
    """Return what graphs and their files hold of a unit: head, relation, tail, sentence and support."""
    # A sentence or a document has its title as head, no relation and its words as tail; it supports itself.
    if isinstance(unit, TextUnit):
        return unit.title, "", unit.body, unit.sentence, 100.0
    return unit.head, unit.relation, unit.tail, unit.sentence, unit.support


def unit_of(
    head: str, relation: str, tail: str, document_id: str = "", sentence: int = -1, support: float = 0.0
) -> Unit:
    """Return the unit that a row holds: see `row_of`."""
    if not relation:
        return TextUnit(head, tail, document_id, sentence)
    return Triple(head, relation, tail, document_id, sentence, support)


def describe_triples(triples: Iterable[Unit]) -> GraphStatistics:
    """Count entities, relations, edges, density and document ids of some triples, such as one question's.

    Source
    ------
    TRACE, Appendix C.3, Table 5, where density is averaged over the questions.

    Examples
    --------
    >>> from pytrace.records import Triple
    >>> describe_triples([Triple("a", "r", "b"), Triple("b", "r", "c")]).density
    0.3333333333333333
    """
    count = 0
    entities: set[str] = set()
    relations: set[str] = set()
    edges: set[tuple[str, str]] = set()
    documents: set[str] = set()
    for triple in triples:
        count += 1
        documents.add(triple.document_id)
        head, relation, tail, _, _ = row_of(triple)
        entities.add(head)
        if relation:
            entities.add(tail)
            relations.add(relation)
            if head != tail:
                edges.add((head, tail))
    return GraphStatistics(
        documents=len(documents),
        triples=count,
        entities=len(entities),
        relations=len(relations),
        edges=len(edges),
        density=density(len(entities), len(edges)),
    )
