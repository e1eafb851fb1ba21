"""An RDF store within the process that answers SPARQL: triples of a file, or of any knowledge graph, and nothing else."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pyoxigraph as ox

from pytrace.documents.text_files import suffix_of
from pytrace.errors import DataError, InputError
from pytrace.kg.graph_sources import read_source
from pytrace.kg.names import entity_name, relation_name
from pytrace.kg.sparql import GraphQuery
from pytrace.kg.terms import ALIASES, LABELS, NAMING, PROVENANCE, VOCABULARY, is_foreign, key_of, named_by, node_of
from pytrace.records import Triple
from pytrace.triples.graph.exchange import input_errors
from pytrace.triples.graph.rdf_parsing import open_rdf, unreadable

_TYPE = ox.NamedNode("http://www.w3.org/1999/02/22-rdf-syntax-ns#type")
_DOCUMENT = ox.NamedNode(f"{VOCABULARY}Document")
_FORMATS = {".nt": ox.RdfFormat.N_TRIPLES, ".ttl": ox.RdfFormat.TURTLE}


class Solution(msgspec.Struct, frozen=True):
    """The triples that one solution of a query rests on, and its variables' values as keys, unbound ones left out."""

    triples: tuple[Triple, ...]
    values: dict[str, str]


class Solutions(msgspec.Struct, frozen=True):
    """Solutions in the order of the query; `stopped` says which limit ended it early, empty where these are all."""

    solutions: tuple[Solution, ...]
    stopped: str


class KnowledgeStore:
    """Triples that SPARQL queries are asked of, in memory.

    Keys are those of `pytrace.kg.graph_sources`: an IRI as it is, a literal's text, ``_:`` and the label of a blank
    node. Keys that are no IRIs stand in the store as ``urn:pytrace:entity:`` or ``urn:pytrace:relation:`` and the key,
    percent-encoded.
    """

    def __init__(self, store: ox.Store) -> None:
        self.store = store

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, format: str | None = None) -> KnowledgeStore:
        """Load a file, all of it or nothing."""
        path = Path(path)
        suffix = {"ntriples": ".nt", "turtle": ".ttl", None: suffix_of(path)}.get(format, "")
        if suffix not in _FORMATS or path.is_dir():
            return cls.of_triples(read_source(path, format=format).triples, path=path)
        store = ox.Store()
        with input_errors(path), open_rdf(path) as stream:
            try:
                store.bulk_load(stream, format=_FORMATS[suffix])
            except SyntaxError as error:
                raise unreadable(error, path) from error
        return cls._filled(store, path)

    @classmethod
    def of_triples(cls, triples: Iterable[Triple], *, path: object = None) -> KnowledgeStore:
        """Take the triples of a knowledge graph."""
        store = ox.Store()
        store.bulk_extend(
            ox.Quad(node_of(triple.head), node_of(triple.relation, relation=True), node_of(triple.tail))
            for triple in triples
        )
        return cls._filled(store, path)

    @classmethod
    def _filled(cls, store: ox.Store, path: object) -> KnowledgeStore:
        if not len(store):
            raise DataError(
                "there is no triple in the knowledge graph; nothing can be asked of an empty graph", path=path
            )
        return cls(store)

    def __len__(self) -> int:
        """Count the triples."""
        return len(self.store)

    def names(self, key: str) -> tuple[str, ...]:
        """Return what an entity is called: its labels in the store, then its key in words."""
        node = node_of(key)
        labels = [key_of(quad.object) for label in LABELS for quad in self.store.quads_for_pattern(node, label, None)]
        return (*sorted(labels), entity_name(key))

    def all_names(self, keys: list[str]) -> list[tuple[str, ...]]:
        """Return what each of some entities is called."""
        return [self.names(key) for key in keys]

    def relations(self) -> list[tuple[str, str, int]]:
        """Return key, name and number of triples of every relation but those to names, the most frequent first."""
        query = "SELECT ?p (COUNT(*) AS ?n) { ?s ?p ?o %s } GROUP BY ?p"
        of_us = next(self.store.quads_for_pattern(None, _TYPE, _DOCUMENT), None) is not None
        left_out = " && ".join(f'!STRSTARTS(STR(?s), "{prefix}")' for prefix in PROVENANCE)
        rows = self.store.query(query % (f"FILTER({left_out})" if of_us else ""))
        assert isinstance(rows, ox.QuerySolutions)
        relations = []
        for row in rows:
            node, count = row[0], row[1]
            if isinstance(node, ox.NamedNode) and node not in NAMING and (key := key_of(node)).strip():
                name = self._label(node) or self._label(ox.NamedNode(named_by(node.value))) or relation_name(key)
                relations.append((key, name, int(key_of(count))))
        return sorted(relations, key=lambda relation: (-relation[2], relation[0]))

    def first_names(self, keys: list[str]) -> list[str]:
        """Return the first label of each, else the key in words if the store has such an entity, else the key."""
        return [self._name(key) for key in keys]

    def _name(self, key: str) -> str:
        node = _node(key)
        label = self._label(node)
        if label:
            return label
        known = any(
            next(self.store.quads_for_pattern(*pattern), None) for pattern in ((node, None, None), (None, None, node))
        )
        return entity_name(key) if known else key

    def _label(self, node: ox.NamedNode | ox.BlankNode) -> str:
        """Return a label without a language or in English before any other, the first by the alphabet."""
        labels = [
            (is_foreign(quad.object), text)
            for relation in LABELS
            for quad in self.store.quads_for_pattern(node, relation, None)
            if isinstance(quad.object, ox.Literal) and (text := " ".join(quad.object.value.split()))
        ]
        return min(labels, default=(False, ""))[1]

    def around(self, keys: list[str], limit: int) -> list[list[tuple[str, str, str]]]:
        """Return for each key the first triples that it is the head of, then those that it is the tail of."""
        return [[triple for triple, _ in zip(self._about(key), range(limit), strict=False)] for key in keys]

    def _about(self, key: str) -> Iterator[tuple[str, str, str]]:
        node = _node(key)
        for pattern in ((node, None, None), (None, None, node)):
            for quad in self.store.quads_for_pattern(*pattern):
                if quad.predicate in NAMING or _is_provenance(quad.subject):
                    continue
                if quad.subject == quad.object and pattern[2] is not None:  # it came as the head already
                    continue
                triple = (key_of(quad.subject), key_of(quad.predicate), key_of(quad.object))
                if all(part.strip() for part in triple):
                    yield triple

    def labels(self) -> Iterator[tuple[str, str]]:
        """Iterate over the entities' keys with the keys in words, then with their labels in all languages and aliases."""
        seen: set[object] = set()
        for quad in self.store:
            named = quad.predicate in NAMING and isinstance(quad.object, ox.Literal)
            # What only has a label, such as a relation, is no entity that a query could say anything of.
            if named or _is_provenance(quad.subject):
                continue
            for node in (quad.subject, quad.object):
                if isinstance(node, ox.NamedNode) and node not in seen:
                    seen.add(node)
                    if (key := key_of(node)).strip():
                        yield key, entity_name(key)
        for relation in (*LABELS, *ALIASES):
            for quad in self.store.quads_for_pattern(None, relation, None):
                if isinstance(quad.object, ox.Literal) and quad.subject in seen:
                    text = " ".join(quad.object.value.split())
                    if text:
                        yield key_of(quad.subject), text

    def solutions(self, query: GraphQuery, *, limit: int = 100_000, seconds: float = 10.0) -> Solutions:
        """Return the triples that the answers of a query follow from, solution by solution."""
        if limit < 1 or not seconds > 0:
            raise InputError(f"limit is {limit} and seconds {seconds}; both must be above 0")
        deadline = time.monotonic() + seconds
        solutions: list[Solution] = []
        stopped = ""
        for solution in self.each_solution(query):
            if len(solutions) == limit:
                stopped = f"more than {limit} solutions"
                break
            solutions.append(solution)
            if time.monotonic() > deadline:
                stopped = f"more than {seconds:g} seconds"
                break
        return Solutions(tuple(solutions), stopped)

    def each_solution(self, query: GraphQuery) -> Iterator[Solution]:
        """Iterate over what `solutions` returns, without limits."""
        with _query_errors():
            rows = self.store.query(query.rows)
            assert isinstance(rows, ox.QuerySolutions)
            columns = {variable.value: column for column, variable in enumerate(rows.variables)}
            patterns = [[columns[name] for name in pattern] for pattern in query.patterns]
            for row in rows:
                triples = (self._fact(*(row[column] for column in pattern)) for pattern in patterns)
                values = {name: key_of(value) for name, value in zip(columns, row, strict=True) if value is not None}
                yield Solution(tuple(dict.fromkeys(filter(None, triples))), values)

    def _fact(self, subject: object, relation: object, target: object) -> Triple | None:
        """Return a statement by its keys if the graph has it."""
        if not isinstance(subject, ox.NamedNode | ox.BlankNode) or not isinstance(relation, ox.NamedNode):
            return None
        if not isinstance(target, ox.NamedNode | ox.BlankNode | ox.Literal):
            return None
        if ox.Quad(subject, relation, target) not in self.store:
            return None
        return Triple(key_of(subject), key_of(relation), key_of(target))


@contextmanager
def _query_errors() -> Iterator[None]:
    """Say of a query that it cannot be run."""
    try:
        yield
    except InputError:
        raise
    except (SyntaxError, ValueError, OSError) as error:
        raise InputError(
            f"the SPARQL query cannot be run ({' '.join(str(error).split())[:120]}); correct it"
        ) from error


def _node(key: str) -> ox.NamedNode | ox.BlankNode:
    if key.startswith("_:"):
        try:
            return ox.BlankNode(key.removeprefix("_:"))
        except ValueError:  # it only looks like one
            pass
    return node_of(key)


def _is_provenance(node: object) -> bool:
    return isinstance(node, ox.NamedNode) and node.value.startswith(PROVENANCE)
