"""What rows of an endpoint's answers mean: the entities that a mention may mean, and the facts behind a query's solutions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pytrace.kg.entities import score
from pytrace.kg.fact_store import EntityMatch
from pytrace.kg.names import normal_form
from pytrace.kg.sparql import GraphQuery
from pytrace.kg.sparql_results import Row
from pytrace.kg.sparql_store import Solution, Solutions
from pytrace.records import Triple

Written = tuple[str, str, str]
"""A triple whose terms are written as in queries."""


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
