"""What an endpoint is asked beside its users' queries, and what its answers mean.

The queries for relations, labels, neighbours and facts keep to what every server of SPARQL 1.1 can do fast, Wikidata's and
QLever's too: no property paths, and no relation that is a variable where it need not be one. Source of the answers: SPARQL 1.1
Query Results JSON Format (W3C, 2013).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec
import pyoxigraph as ox

from pytrace.errors import ServerError
from pytrace.kg.entities import score
from pytrace.kg.fact_store import EntityMatch
from pytrace.kg.names import normal_form
from pytrace.kg.sparql import GraphQuery
from pytrace.kg.sparql_store import Solution, Solutions
from pytrace.kg.sparql_tokens import OPENING, tokens_of
from pytrace.kg.terms import ALIASES, LABELS, PROVENANCE, key_of_iri
from pytrace.records import Triple
from pytrace.storage.foreign_json import decode_json

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


MEDIA_TYPE = "application/sparql-results+json"

Written = tuple[str, str, str]
"""A triple whose terms are written as in queries."""


class Term(msgspec.Struct, frozen=True):
    """A value of a variable; `type` is "uri", "bnode", "literal" (some say "typed-literal"), or one that we cannot use."""

    type: str
    value: object
    language: str | None = msgspec.field(default=None, name="xml:lang")
    datatype: str | None = None

    @property
    def text(self) -> str | None:
        """Its text, if it is a term that we can use."""
        # "typed-literal" is a word of the format's note of 2007, which older servers still send.
        known = self.type in ("uri", "bnode", "literal", "typed-literal")
        return self.value if known and isinstance(self.value, str) else None

    @property
    def key(self) -> str | None:
        """The key that stands for it, if it is a term that we can use."""
        text = self.text
        if text is None:
            return None
        if self.type == "uri":
            return key_of_iri(text)
        return f"_:{text.removeprefix('_:')}" if self.type == "bnode" else text

    def written(self) -> str | None:
        """Return how a query writes it; None for a blank node, which no query can name, and for what is none of RDF."""
        text = self.text
        if text is None or self.type == "bnode":
            return None
        try:
            if self.type == "uri":
                return str(ox.NamedNode(text))
            if self.language:
                return str(ox.Literal(text, language=self.language))
            return str(ox.Literal(text, datatype=ox.NamedNode(self.datatype)) if self.datatype else ox.Literal(text))
        except ValueError:
            return None


Row = dict[str, Term]


class _Bindings(msgspec.Struct):
    bindings: list[Row]


class _Table(msgspec.Struct):
    results: _Bindings


def read_rows(data: bytes, where: str) -> list[Row]:
    """Read an endpoint's answer to a SELECT query."""
    try:
        return decode_json(data, _Table).results.bindings
    except ValueError as error:
        begin = " ".join(data[:300].decode("utf-8", "replace").split())[:100]
        raise ServerError(
            f"{where}: {len(data):,} bytes that are no SPARQL results in JSON ({error}), beginning {begin!a}; see whether the "
            "address is that of a SPARQL endpoint, or ask for less if the answer was cut off",
            status=200,
        ) from error


def key_at(row: Row, name: str) -> str:
    """Return the key of a variable's value; empty if it has none that we can use."""
    term = row.get(name)
    return (term.key or "") if term is not None else ""


def forms_of(mention: str) -> list[str]:
    """Return how a label may write a mention: as it is, with a capital first, with capitals throughout; nothing if it is empty."""
    text = " ".join(mention.encode("utf-8", "ignore").decode().split())
    return list(dict.fromkeys((text, text[:1].upper() + text[1:], text.title()))) if normal_form(text) else []


def matches_of(
    mention: str, forms: Sequence[str], by_label: Mapping[str, Mapping[str, bool]], cutoff: float
) -> list[EntityMatch]:
    """Return the entities with any of the labels; `by_label` says of each whether it is only an alias."""
    ranked: dict[str, tuple[float, bool, int, str, str]] = {}
    labels = [label for label in forms if label in by_label]
    scores = score(normal_form(mention), [normal_form(label) for label in labels]).tolist() if labels else []
    for label, value in zip(labels, scores, strict=True):
        for key, alias in by_label[label].items():
            rank = (-value, alias, len(key), key, label)
            ranked[key] = min(rank, ranked.get(key, rank))
    return [EntityMatch(key, label, -value) for value, _, _, key, label in sorted(ranked.values()) if -value >= cutoff]


def statements(row: Row, query: GraphQuery) -> Iterator[tuple[Triple, Written | None]]:
    """Iterate over what the patterns of a query say in a solution: by keys, and as queries write it if they can."""
    for pattern in query.patterns:
        terms = [row[name] for name in pattern if name in row]
        keys = [term.key for term in terms]
        if len(keys) < 3 or None in keys or terms[1].type != "uri" or terms[0].type not in ("uri", "bnode"):
            continue
        written = [term.written() for term in terms]
        head, relation, tail = (key or "" for key in keys)
        first, second, third = (term or "" for term in written)
        yield Triple(head, relation, tail), None if None in written else (first, second, third)


def solutions_of(rows: Sequence[Row], query: GraphQuery, most: int, facts: set[Written] | None) -> Solutions:
    """Make solutions of rows; where `facts` are given, only triples among them are any."""
    solutions = []
    for row in rows[:most]:
        triples = [triple for triple, written in statements(row, query) if facts is None or written in facts]
        values = {name: key for name, term in row.items() if (key := term.key) is not None}
        solutions.append(Solution(tuple(dict.fromkeys(triples)), values))
    return Solutions(tuple(solutions), f"more than {most} solutions" if len(rows) > most else "")
