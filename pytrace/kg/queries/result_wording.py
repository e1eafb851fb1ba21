"""Puts what a query computes into a sentence: the number of a COUNT, the yes or no of an ASK, which no triple states.

Source: Li et al., "Chain of Knowledge" (2023), section 3.2: what comes back from the knowledge base is shown to the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytrace.kg.sparql_tokens import Token, tokens_of, without_prologue


def ask_sentence(sparql: str, names: Mapping[str, str], *, holds: bool) -> str:
    """Say that a knowledge base has what an ASK query asks for, or that it does not.

    Parameters
    ----------
    sparql
        The query, with IRIs.
    names
        What each IRI is called; the angle brackets belong to it.
    holds
        The store's answer. A store need not know all that is true, so that no is worded as what it does not say.

    Examples
    --------
    >>> ask_sentence("ask { <urn:g> <urn:b> ?x }", {"<urn:g>": "Ghana", "<urn:b>": "borders"}, holds=True)
    'The knowledge base says, for some x, that Ghana borders x.'
    """
    tokens = without_prologue(tokens_of(sparql))
    conditions = _conditions(tokens, names)
    if not conditions:
        return f"The knowledge base answers {'yes' if holds else 'no'} to the query: {_named(tokens, names)}"
    variables = ", ".join(dict.fromkeys(token.text[1:] for token in tokens if token.kind == "variable"))
    some = f", for {'some' if holds else 'any'} {variables}," if variables else ""
    return f"The knowledge base {'says' if holds else 'does not say'}{some} that {conditions}."


def count_sentence(sparql: str, names: Mapping[str, str], *, number: int, counted: str, once: bool) -> str:
    """Say how many values of a variable (none: how many solutions) a COUNT query found; see `ask_sentence`.

    Examples
    --------
    >>> query = "select (count(distinct ?x) as ?n) { <urn:g> <urn:b> ?x }"
    >>> count_sentence(query, {"<urn:g>": "Ghana", "<urn:b>": "borders"}, number=3, counted="x", once=True)
    'The knowledge base knows 3 different x such that Ghana borders x.'
    """
    tokens = without_prologue(tokens_of(sparql))
    conditions = _conditions(tokens, names)
    if not conditions:
        return f"The knowledge base answers {number} to the query: {_named(tokens, names)}"
    what = f"{'different ' if once else ''}{counted}" if counted else "solutions"
    return f"The knowledge base knows {number} {what} such that {conditions}."


def _conditions(tokens: Sequence[Token], names: Mapping[str, str]) -> str:
    """Word a query's triples; empty if its braces hold anything else, such as a FILTER, which is no list of conditions."""
    body = next(index for index, token in enumerate(tokens) if token.text == "{")
    if tokens[-1].text != "}":
        return ""
    conditions: list[list[str]] = [[]]
    for token in tokens[body + 1 : -1]:
        if token.text == ".":
            conditions.append([])
        elif token.kind in ("iri", "variable"):
            conditions[-1].append(_word(token, names))
        else:
            return ""
    if not conditions[-1]:  # a full stop may end the last one, too
        conditions.pop()
    plain = all(len(condition) == 3 for condition in conditions)
    return " and ".join(map(" ".join, conditions)) if plain else ""


def _named(tokens: Sequence[Token], names: Mapping[str, str]) -> str:
    return " ".join(_word(token, names) if token.kind == "iri" else token.text for token in tokens)


def _word(token: Token, names: Mapping[str, str]) -> str:
    if token.kind == "variable":
        return token.text[1:]
    return " ".join(names.get(token.text, token.text).split())
