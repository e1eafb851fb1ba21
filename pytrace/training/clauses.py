"""The parts of a query's text: its words and signs, and where its triple patterns stand.

Unlike `pytrace.kg.sparql`, this reads names in the place of IRIs and leaves whatever it does not understand as it
is, for its users change a part of a text and keep the rest.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

from pytrace.kg.names import normal_form
from pytrace.kg.queries import Query, TripletQuery, write_query
from pytrace.kg.queries.query_records import SOUGHT

TokenKind = Literal["entity", "relation", "variable", "iri", "string", "word", "mark"]

TYPES = frozenset({"type", "instance of", "is a", "a"})
"""What relations are called that lead from an entity to its class."""

_TOKENS = re.compile(
    r"""
    (?P<skip>\s+|\#[^\n]*)
    |\b(?P<kind>entity|relation):/(?P<name>(?:\\.|[^/\\\n])*)/
    |(?P<string>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
    |(?P<iri><[^<>"{}|^`\\\s]*>)
    |(?P<variable>[?$]\w+)
    |(?P<word>[@\w](?:[\w:.\-]*[\w:])?)
    |(?P<mark>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_TERMS = {"entity", "variable", "iri", "string"}


class Token(NamedTuple):
    """A word, sign or name of a query, ``text[start:end]``; `name` is the name as it is called, else empty."""

    kind: TokenKind
    text: str
    start: int
    end: int
    name: str = ""


class Clause(NamedTuple):
    """A triple pattern: the numbers of its three tokens, which stand one behind the other."""

    subject: int
    predicate: int
    object: int


def split_query(text: str) -> list[Token]:
    """Split a SPARQL query with names into its tokens; white space and comments are none."""
    tokens: list[Token] = []
    for match in _TOKENS.finditer(text):
        if match["skip"] is not None:
            continue
        kind = match["kind"] or match.lastgroup
        name = re.sub(r"\\(.)", r"\1", match["name"], flags=re.DOTALL).strip() if match["kind"] else ""
        tokens.append(Token(_kind(kind), match[0], *match.span(), name))
    return tokens


def _kind(group: str | None) -> TokenKind:
    match group:
        case "entity" | "relation" | "variable" | "iri" | "string" | "word":
            return group
        case _:
            return "mark"


def find_clauses(tokens: Sequence[Token]) -> list[Clause]:
    """Find the triple patterns that stand alone between points or braces."""
    clauses: list[Clause] = []
    begin: int | None = None
    for at, token in enumerate(tokens):
        if token.kind != "mark" or token.text not in {"{", "}", "."}:
            continue
        if begin is not None and at - begin == 3 and _is_pattern(tokens[begin:at]):
            clauses.append(Clause(begin, begin + 1, begin + 2))
        begin = at + 1 if token.text != "}" else None
    return clauses


def _is_pattern(tokens: Sequence[Token]) -> bool:
    subject, predicate, value = tokens
    return (
        subject.kind in _TERMS
        and (predicate.kind in {"relation", "variable", "iri"} or predicate.text == "a")
        and (value.kind in _TERMS or (value.kind == "word" and ":" in value.text) or value.text.isdecimal())
    )


def names_class(tokens: Sequence[Token], clause: Clause) -> bool:
    """Say whether a triple pattern names the class of its subject."""
    predicate = tokens[clause.predicate]
    return tokens[clause.object].kind == "entity" and normal_form(predicate.name or predicate.text) in TYPES


def query_entities(query: Query) -> tuple[str, ...]:
    """Return the entities that a query names, each once in order, without the classes that it names."""
    if isinstance(query, TripletQuery):
        return tuple(dict.fromkeys(part for part in (query.head, query.tail) if part != SOUGHT))
    tokens = split_query(query.text)
    classes = {clause.object for clause in find_clauses(tokens) if names_class(tokens, clause)}
    named = (token.name for at, token in enumerate(tokens) if token.kind == "entity" and at not in classes)
    return tuple(dict.fromkeys(named))


def query_shape(query: Query) -> str:
    """Say in a word or two what a query looks like, so that examples of a kind can be counted."""
    if isinstance(query, TripletQuery):
        parts = (query.head, query.relation, query.tail)
        return f"triplet {('head', 'relation', 'tail')[parts.index(SOUGHT)]}"
    tokens = split_query(write_query(query))
    words = [token.text.lower() for token in tokens if token.kind == "word"]
    form = "ask" if words[:1] == ["ask"] else "count" if "count" in words else "select"
    clauses = find_clauses(tokens)
    classes = sum(names_class(tokens, clause) for clause in clauses)
    return f"{form} {len(clauses) - classes}" + (" of a class" if classes else "")


def one_line(text: str) -> str:
    """Write a query on one line, without comments, and with one space where there was white space."""
    tokens = split_query(text.strip())
    pieces: list[str] = []
    for at, token in enumerate(tokens):
        apart = at > 0 and tokens[at - 1].end < token.start
        pieces.append(f" {token.text}" if apart else token.text)
    return "".join(pieces)
