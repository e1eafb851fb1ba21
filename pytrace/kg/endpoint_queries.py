"""The queries that an endpoint is asked beside its users' own: relations, labels, neighbours, and whether triples are facts.

They keep to what every server of SPARQL 1.1 can do fast, Wikidata's and QLever's too: no property paths, and no relation that
is a variable where it need not be one.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyoxigraph as ox

from pytrace.kg.sparql_tokens import OPENING, tokens_of
from pytrace.kg.terms import ALIASES, LABELS, PROVENANCE

_LABELS, _ALIAS = tuple(map(str, LABELS)), str(ALIASES[0])
# Of more relations than this the rest is so rare that no model would ask for them.
_MOST_RELATIONS = 2_000
# Entities with the same label are told apart by what is around them, and nobody looks at so many.
_NAMESAKES = 200

COUNTED_RELATIONS = (
    f"SELECT ?p (COUNT(*) AS ?n) WHERE {{ ?s ?p ?o }} GROUP BY ?p ORDER BY DESC(?n) LIMIT {_MOST_RELATIONS}"
)
"""The relations with the number of their triples: ``?p`` and ``?n``."""

RELATIONS = f"SELECT DISTINCT ?p WHERE {{ ?s ?p ?o }} LIMIT {_MOST_RELATIONS}"
"""The relations alone, for servers that cannot count them in time: ``?p``."""
_NO_PROVENANCE = f"FILTER({' && '.join(f'!STRSTARTS(STR(?s), {ox.Literal(each)})' for each in PROVENANCE)})"


def without_provenance(query: str) -> str:
    """Return one of the queries for relations that looks at a graph's facts alone, where pytrace wrote where they are from."""
    return query.replace("?s ?p ?o", f"?s ?p ?o {_NO_PROVENANCE}")


def limited(query: str, rows: int) -> str:
    """Return a SELECT query of `rewrite` that gives so many solutions at most."""
    depth, start, last = 0, -1, ""
    for token in tokens_of(query):
        depth += (token.text in OPENING) - (token.text in OPENING.values())
        if not depth and token.word:
            last = token.word
            start = token.offset if start < 0 and last == "SELECT" else start
    if last != "VALUES":
        return f"{query} LIMIT {rows}"
    # LIMIT may not stand behind VALUES.
    return f"{query[:start]}SELECT * WHERE {{ {{ {query[start:]} }} }} LIMIT {rows}"


def states_alternatives(query: str) -> bool:
    """Whether a query has branches or parts that may fail, so that not all its patterns hold in every solution."""
    return any(token.word in ("UNION", "OPTIONAL") for token in tokens_of(query))


def labels_of(nodes: Sequence[str]) -> str:
    """Return a query for the labels, in English or of no language, of IRIs in angle brackets: ``?node`` and ``?label``."""
    english = 'FILTER(LANG(?written) = "" || LANG(?written) = "en")'
    return f"SELECT DISTINCT ?node (?written AS ?label) WHERE {{ {_labelled(nodes, english)} }}"


def foreign_labels_of(nodes: Sequence[str]) -> str:
    """Return a query for one label, in whatever language, of each IRI in angle brackets: ``?node`` and ``?label``."""
    return f"SELECT ?node (MIN(STR(?written)) AS ?label) WHERE {{ {_labelled(nodes, '')} }} GROUP BY ?node"


def _labelled(nodes: Sequence[str], condition: str) -> str:
    """Return the branches of a query for labels."""
    return " UNION ".join(
        f"{{ VALUES ?node {{ {' '.join(nodes)} }} ?node {relation} ?written {condition} }}" for relation in _LABELS
    )


def entities_with(labels: Sequence[str]) -> str:
    """Return a query for entities by exact labels and aliases, in English or of no language."""
    # Its solutions are ``?node``, ``?label``, and ``?alias``, 1 for an alias and 0 for a label.
    values = []
    for label in labels:
        values += [str(ox.Literal(label)), str(ox.Literal(label, language="en"))]
    # The values stand in every branch, because some servers look at a branch before they look at what is around it.
    branches = " UNION ".join(
        f"{{ VALUES ?label {{ {' '.join(values)} }} ?node {relation} ?label BIND({alias} AS ?alias) }}"
        for relation, alias in (*((label, 0) for label in _LABELS), (_ALIAS, 1))
    )
    return f"SELECT DISTINCT ?node ?label ?alias WHERE {{ {branches} }} LIMIT {_NAMESAKES * len(labels)}"


def around(node: str, limit: int, namespaces: Sequence[str] = ()) -> str:
    """Return a query for triples with an IRI, in angle brackets, as head and as tail: ``?s``, ``?p`` and ``?o``."""
    # Texts in a language are left out: they are labels and descriptions in hundreds of them. If there are namespaces,
    # so are triples whose relation begins with none of them.
    useful = 'FILTER(!isLiteral(?o) || LANG(?o) = "")'
    meant = " || ".join(f"STRSTARTS(STR(?p), {ox.Literal(each)})" for each in namespaces)
    meant = f" FILTER({meant})" if meant else ""
    facts_only = f" {_NO_PROVENANCE}" if node.startswith("<urn:pytrace:") else ""
    return (
        f"SELECT ?s ?p ?o WHERE {{ {{ SELECT ?s ?p ?o WHERE {{ VALUES ?s {{ {node} }} ?s ?p ?o {useful}{meant} }} LIMIT {limit} }} "
        f"UNION {{ SELECT ?s ?p ?o WHERE {{ VALUES ?o {{ {node} }} ?s ?p ?o{meant}{facts_only} }} LIMIT {limit} }} }}"
    )


def which_are_facts(triples: Sequence[tuple[str, str, str]]) -> str:
    """Return a query for the places, ``?place``, of the triples that the server has, their terms as queries write them."""
    values = " ".join(f"({number} {' '.join(triple)})" for number, triple in enumerate(triples))
    return f"SELECT DISTINCT ?place WHERE {{ VALUES (?place ?s ?p ?o) {{ {values} }} ?s ?p ?o }}"
