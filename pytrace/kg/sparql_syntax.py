"""Whether a text is valid SPARQL, found out without evaluating any of it.

The parser below us evaluates what it has parsed, and even on no data a query can use up the memory: four VALUES of 300 rows each
are 8 billion solutions. So what is to be parsed is put where it is never evaluated.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import pyoxigraph as ox

from pytrace.errors import InputError
from pytrace.kg.sparql_tokens import Token, tokens_of, without_prologue

# Where an error is tells nothing: the text stands within another one, and is not the user's own.
_POSITION = re.compile(r"error at \d+:\d+: ")
_FORMS = ("SELECT", "ASK", "CONSTRUCT")


def check_syntax(query: str) -> None:
    """Parse a query, and evaluate nothing of it."""
    tokens = without_prologue(tokens_of(query))
    if not tokens or tokens[0].word not in _FORMS:
        begin = repr(tokens[0].text[:20]) if tokens else "nothing"
        raise InputError(f"the SPARQL query begins with {begin}; begin it with SELECT, ASK or CONSTRUCT")
    try:
        for guarded in _unevaluated(query, tokens):
            ox.Store().query(guarded)
    except (SyntaxError, ValueError) as error:
        reason = _POSITION.sub("", str(error))[:120]
        raise InputError(f"the SPARQL query cannot be read ({reason}); correct it") from error


def _unevaluated(query: str, tokens: Sequence[Token]) -> Iterator[str]:
    """Yield queries that are valid if a query is, and that are evaluated at once."""
    # What stands in a FILTER EXISTS is looked at only for a solution of what is filtered, and an empty store has none.
    prologue, form, rest = query[: tokens[0].offset], tokens[0].word, tokens[1:]
    if form == "CONSTRUCT" and rest and rest[0].text == "{":
        end = _closing(rest)
        yield f"{prologue}CONSTRUCT {query[rest[0].offset : rest[end].offset + 1]} WHERE {{}}"
        rest = rest[end + 1 :]
    select = "SELECT" if form == "SELECT" else "SELECT (1 AS ?pytrace)"
    yield f"{prologue}ASK {{ ?s ?p ?o FILTER EXISTS {{ {{ {select} {_without_dataset(query, rest)}\n}} }} }}"


def _without_dataset(query: str, tokens: Sequence[Token]) -> str:
    """Return the text of some tokens without its FROM, which no sub-query has."""
    text = ""
    at = 0
    while at < len(tokens) and tokens[at].text != "{":
        if tokens[at].word == "FROM":
            at += 3 if tokens[at + 1 : at + 2] and tokens[at + 1].word == "NAMED" else 2
            continue
        following = tokens[at + 1].offset if at + 1 < len(tokens) else len(query)
        text += query[tokens[at].offset : following]
        at += 1
    return text + (query[tokens[at].offset :] if at < len(tokens) else "")


def _closing(tokens: Sequence[Token]) -> int:
    """Return the index of the bracket that closes the first token."""
    depth = 0
    for index, token in enumerate(tokens):
        depth += (token.text == "{") - (token.text == "}")
        if not depth:
            return index
    return len(tokens) - 1
