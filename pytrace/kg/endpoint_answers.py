"""What an endpoint's answers in JSON mean: terms, the entities a mention may mean, and the facts behind a query's solutions.

Source: SPARQL 1.1 Query Results JSON Format (W3C, 2013).
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
from pytrace.kg.terms import key_of_iri
from pytrace.records import Triple

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
        return msgspec.json.decode(data, type=_Table).results.bindings
    except (msgspec.DecodeError, RecursionError) as error:
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
