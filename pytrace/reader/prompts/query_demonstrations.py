"""What a model that writes queries is shown: questions with the relations that there are, and a query of each.

===================  ========================  ==================================================================
file                 loaded by                 shows
===================  ========================  ==================================================================
``queries.jsonl``    `query_demonstrations`    a question, relations, the triplet or SPARQL query that it becomes
===================  ========================  ==================================================================
"""

from __future__ import annotations

import os
import re
from typing import Literal, get_args

import msgspec

from pytrace.errors import DataError, InputError
from pytrace.reader.prompts import load_demonstrations, require_text

DemonstratedForm = Literal["triplet", "sparql"]

_NAME = re.compile(r"(entity|relation):/((?:\\.|[^/\\])*)/")


class QueryDemonstration(msgspec.Struct, frozen=True):
    """A question, the relations that its query is chosen from, and the query, of one form."""

    form: DemonstratedForm
    question: str
    relations: tuple[str, ...]
    query: str


def query_demonstrations(
    form: DemonstratedForm, *, path: str | os.PathLike[str] | None = None
) -> tuple[QueryDemonstration, ...]:
    """Labelled questions for the query generator."""
    # Li et al., "Chain of Knowledge" (2023), section 4. The paper trains its generators; a prompted one has to be
    # shown.
    if form not in get_args(DemonstratedForm):
        raise InputError(f'the form must be "triplet" or "sparql", not {form!r}')
    rows = load_demonstrations(path, _QueryRow, _query, _QUERY_SHAPE, shipped="queries.jsonl")
    chosen = tuple(row for row in rows if row.form == form)
    if not chosen:
        raise DataError(f'has no demonstration of form "{form}" among its {len(rows)}; add at least one', path=path)
    return chosen


class _QueryRow(msgspec.Struct, forbid_unknown_fields=True):
    form: DemonstratedForm
    question: str
    relations: list[str]
    query: str


_QUERY_SHAPE = '{"form": "triplet" or "sparql", "question": text, "relations": [text, ...], "query": text}'


def _query(row: _QueryRow) -> QueryDemonstration:
    require_text("question", row.question, forbidden="\n\r")
    require_text("query", row.query, forbidden="\n\r")
    if not row.relations:
        raise ValueError(
            f"the question {row.question[:80]!r} has no relation; list those that its query is chosen from"
        )
    for relation in row.relations:
        require_text("relation", relation, forbidden=";\n\r")
    entities, relations = (_triplet_names if row.form == "triplet" else _sparql_names)(row.query)
    for name in relations:
        if name not in row.relations:
            raise ValueError(
                f"the query's relation {name!r} is not among the {len(row.relations)} that are listed; list it"
            )
    for name in entities:
        if name not in row.question:
            raise ValueError(
                f"the query's entity {name!r} is no part of the question; copy it from there letter by letter"
            )
    return QueryDemonstration(row.form, row.question, tuple(row.relations), row.query)


def _triplet_names(query: str) -> tuple[list[str], list[str]]:
    parts = [part.strip() for part in query.removeprefix("<").removesuffix(">").split(";")]
    if not (query.startswith("<") and query.endswith(">") and len(parts) == 3 and all(parts) and parts.count("?") == 1):
        raise ValueError(
            f"the query {query[:80]!r} is no triplet; write it as <head; relation; tail> with a ? for one of the three"
        )
    head, relation, tail = parts
    return [part for part in (head, tail) if part != "?"], [relation] if relation != "?" else []


def _sparql_names(query: str) -> tuple[list[str], list[str]]:
    found = [(kind, re.sub(r"\\(.)", r"\1", name)) for kind, name in _NAME.findall(query)]
    if not re.match(r"(?i)(select|ask)\b.*\{.*\}$", query) or not found:
        raise ValueError(
            f"the query {query[:80]!r} is no SPARQL with names; write it as "
            "select ?x where { entity:/name/ relation:/name/ ?x } or ask { ... }"
        )
    return [name for kind, name in found if kind == "entity"], [name for kind, name in found if kind == "relation"]
