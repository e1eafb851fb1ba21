"""Whether a query could be run: read as it will be, before anything is learned from it."""

from __future__ import annotations

from urllib.parse import quote

from pytrace.kg.queries import Query, parse_query, replace_names, write_query
from pytrace.kg.sparql import rewrite


def check_query(query: Query) -> None:
    """Read a query as a program will that runs it, with IRIs made up for its names."""
    parsed = parse_query(write_query(query))
    # Half of a surrogate pair has no place in an IRI, but names with one are refused before.
    rewrite(replace_names(parsed, entity=_iri, relation=_iri))


def _iri(name: str) -> str:
    return f"<urn:name:{quote(name, safe='', errors='replace')}>"
