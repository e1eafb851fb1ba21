"""What an RDF store says of its relations and of single entities: counts, names, neighbours. None of it runs a user's query."""

from __future__ import annotations

from collections.abc import Iterator

import pyoxigraph as ox

from pytrace.kg.names import entity_name, relation_name
from pytrace.kg.terms import ALIASES, LABELS, NAMING, PROVENANCE, is_foreign, key_of, named_by, node_of

_TYPE = ox.NamedNode("http://www.w3.org/1999/02/22-rdf-syntax-ns#type")
_DOCUMENT = ox.NamedNode("urn:pytrace:vocabulary:Document")


class Lookups:
    """Looks things up in an RDF store."""

    def __init__(self, store: ox.Store) -> None:
        self._store = store

    def relations(self) -> list[tuple[str, str, int]]:
        """Return key, name and number of triples of every relation but those to names, the most frequent first."""
        query = "SELECT ?p (COUNT(*) AS ?n) { ?s ?p ?o %s } GROUP BY ?p"
        of_us = next(self._store.quads_for_pattern(None, _TYPE, _DOCUMENT), None) is not None
        left_out = " && ".join(f'!STRSTARTS(STR(?s), "{prefix}")' for prefix in PROVENANCE)
        rows = self._store.query(query % (f"FILTER({left_out})" if of_us else ""))
        assert isinstance(rows, ox.QuerySolutions)
        relations = []
        for row in rows:
            node, count = row[0], row[1]
            if isinstance(node, ox.NamedNode) and node not in NAMING and (key := key_of(node)).strip():
                name = self._label(node) or self._label(ox.NamedNode(named_by(node.value))) or relation_name(key)
                relations.append((key, name, int(key_of(count))))
        return sorted(relations, key=lambda relation: (-relation[2], relation[0]))

    def names(self, keys: list[str]) -> list[str]:
        """Return the first label of each, else the key in words if the store has such an entity, else the key."""
        return [self._name(key) for key in keys]

    def _name(self, key: str) -> str:
        node = _node(key)
        label = self._label(node)
        if label:
            return label
        known = any(
            next(self._store.quads_for_pattern(*pattern), None) for pattern in ((node, None, None), (None, None, node))
        )
        return entity_name(key) if known else key

    def _label(self, node: ox.NamedNode | ox.BlankNode) -> str:
        """Return a label without a language or in English before any other, the first by the alphabet."""
        labels = [
            (is_foreign(quad.object), text)
            for relation in LABELS
            for quad in self._store.quads_for_pattern(node, relation, None)
            if isinstance(quad.object, ox.Literal) and (text := " ".join(quad.object.value.split()))
        ]
        return min(labels, default=(False, ""))[1]

    def around(self, keys: list[str], limit: int) -> list[list[tuple[str, str, str]]]:
        """Return for each key the first triples that it is the head of, then those that it is the tail of."""
        return [[triple for triple, _ in zip(self._about(key), range(limit), strict=False)] for key in keys]

    def _about(self, key: str) -> Iterator[tuple[str, str, str]]:
        node = _node(key)
        for pattern in ((node, None, None), (None, None, node)):
            for quad in self._store.quads_for_pattern(*pattern):
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
        for quad in self._store:
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
            for quad in self._store.quads_for_pattern(None, relation, None):
                if isinstance(quad.object, ox.Literal) and quad.subject in seen:
                    text = " ".join(quad.object.value.split())
                    if text:
                        yield key_of(quad.subject), text


def _node(key: str) -> ox.NamedNode | ox.BlankNode:
    if key.startswith("_:"):
        try:
            return ox.BlankNode(key.removeprefix("_:"))
        except ValueError:  # it only looks like one
            pass
    return node_of(key)


def _is_provenance(node: object) -> bool:
    return isinstance(node, ox.NamedNode) and node.value.startswith(PROVENANCE)
