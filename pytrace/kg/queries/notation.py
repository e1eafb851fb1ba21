r"""How queries are written as text, so that a model can write them and a program can read them.

A triplet query is ``<Ada Foah; country; ?>``. A SPARQL query has names where IRIs would be: ``entity:/Ada Foah/`` is an entity
or a class, ``relation:/country/`` a relation; a slash within a name is ``\/``, a backslash ``\\``. All else is SPARQL 1.1.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from pytrace.errors import InputError
from pytrace.kg.queries.query_records import SOUGHT, Query, SparqlQuery, TripletQuery

# Longer than any query that a person writes; what is longer is a model that does not stop.
_LONGEST = 4_000
_NAME = re.compile(r"\b(entity|relation):/((?:\\.|[^/\\\n])*)/")
# Names count only outside of strings, IRIs and comments.
_SCANNED = re.compile(
    r"""("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|<[^<>"{}|^`\\\s]*>|\#[^\n]*)|""" + _NAME.pattern, re.DOTALL
)
_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")


def write_name(kind: str, name: str) -> str:
    """Write a name as it stands in a SPARQL query."""
    if not name.strip() or _FORBIDDEN.search(name):
        raise InputError(f"the {kind} {name[:80]!a} cannot stand in a query; give it a name of one line")
    escaped = name.strip().replace("\\", "\\\\").replace("/", "\\/")
    return f"{kind}:/{escaped}/"


def parse_query(text: str) -> Query:
    """Read a query of either form; a SPARQL query is not parsed, but each name in it is."""
    text = text.strip()
    if len(text) > _LONGEST:
        raise InputError(f"the query has {len(text):,} characters, more than {_LONGEST:,}; make it shorter")
    if text.startswith("<"):
        return parse_triplet(text)
    if not re.match(r"(?i)(select|ask)\b", text):
        raise InputError(
            f"the query {text[:80]!a} is neither a triplet like <Ghana; capital; ?> nor begins with SELECT or ASK"
        )
    query = SparqlQuery(text)
    query_names(query)
    return query


def parse_triplet(text: str) -> TripletQuery:
    """Read a triplet query; exactly one of its parts is asked for."""
    text = text.strip()
    parts = [part.strip() for part in text.removeprefix("<").removesuffix(">").split(";")]
    if not (text.startswith("<") and text.endswith(">")) or len(parts) != 3:
        raise InputError(f"the query {text[:80]!a} is no triplet; write it as <head; relation; tail>")
    if sum(part == SOUGHT for part in parts) != 1:
        raise InputError(f"the triplet {text[:80]!a} must have a {SOUGHT} in one of its three places, and only there")
    if not all(parts) or _FORBIDDEN.search(text):
        raise InputError(f"a part of the triplet {text[:80]!a} is blank or no name; fill it in")
    return TripletQuery(*parts)


def write_query(query: Query) -> str:
    """Return a query's text, which `parse_query` reads.

    Examples
    --------
    >>> write_query(TripletQuery("Ghana", "capital", "?"))
    '<Ghana; capital; ?>'
    """
    return query.text


def sparql_form(query: Query) -> SparqlQuery:
    """Return a query as SPARQL; what a triplet asks for is ``?x``."""
    if isinstance(query, SparqlQuery):
        return query
    kinds = ("entity", "relation", "entity")
    parts = (
        "?x" if part == SOUGHT else write_name(kind, part)
        for kind, part in zip(kinds, (query.head, query.relation, query.tail), strict=True)
    )
    return SparqlQuery(f"select distinct ?x where {{ {' '.join(parts)} }}")


def query_names(query: Query) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the entities and the relations that a query names, each once, in order."""
    names: dict[str, dict[str, None]] = {"entity": {}, "relation": {}}

    def keep(kind: str) -> Callable[[str], str]:
        return lambda name: names[kind].setdefault(name) or ""

    replace_names(query, entity=keep("entity"), relation=keep("relation"))
    return tuple(names["entity"]), tuple(names["relation"])


def replace_names(query: Query, *, entity: Callable[[str], str], relation: Callable[[str], str]) -> str:
    """Return the SPARQL of a query with what the functions give for its names, such as IRIs in angle brackets, in their place."""
    text = sparql_form(query).text

    def replaced(match: re.Match[str]) -> str:
        if match[2] is None:
            return match[0]
        name = re.sub(r"\\(.)", r"\1", match[3], flags=re.DOTALL).strip()
        if not name or _FORBIDDEN.search(name):
            raise InputError(f"the query names a blank {match[2]} at character {match.start() + 1}; fill it in")
        return (entity if match[2] == "entity" else relation)(name)

    return _SCANNED.sub(replaced, text)
