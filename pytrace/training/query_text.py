"""The text of a query with names: its tokens and triple patterns, whether it can run, and where its question writes its names.

Unlike `pytrace.kg.sparql`, `split_query` reads names in the place of IRIs and leaves whatever it does not understand as it
is, for its users change a part of a text and keep the rest.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple, cast
from urllib.parse import quote

from pytrace.errors import InputError
from pytrace.kernels.fuzzy import partial_ratio_alignment, ratio
from pytrace.kg.names import normal_form
from pytrace.kg.names import tokens as name_tokens
from pytrace.kg.queries import Query, TripletQuery, parse_query, replace_names, write_query
from pytrace.kg.queries.query_records import SOUGHT
from pytrace.kg.sparql import rewrite

TokenKind = Literal["entity", "relation", "variable", "iri", "string", "word", "mark"]

# What relations are called that lead from an entity to its class.
_TYPES = frozenset({"type", "instance of", "is a", "a"})
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

# Below it, half of what is found in LC-QuAD's questions is another name; above, misspelt ones are missed.
_CUTOFF = 80.0
_WORD = re.compile(r"[^\W_]+")
_POSSESSIVE = re.compile(r"['’]s?$")
# What tells a name from others of the same words, which questions often leave out: (river), or the county of a town.
_REMARK = re.compile(r"\s*\([^()]*\)$")
_REGION = re.compile(r",.*$")


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


class Span(NamedTuple):
    """A part of a text, ``text[start:end]``."""

    start: int
    end: int


def split_query(text: str) -> list[Token]:
    """Split a SPARQL query with names into its tokens; white space and comments are none."""
    tokens: list[Token] = []
    for match in _TOKENS.finditer(text):
        if match["skip"] is None:
            name = re.sub(r"\\(.)", r"\1", match["name"], flags=re.DOTALL).strip() if match["kind"] else ""
            # The groups of the pattern are called as the kinds are.
            tokens.append(Token(cast(TokenKind, match["kind"] or match.lastgroup), match[0], *match.span(), name))
    return tokens


def find_clauses(tokens: Sequence[Token]) -> list[Clause]:
    """Find the triple patterns that stand alone between points or braces."""
    clauses: list[Clause] = []
    begin: int | None = None
    for index, token in enumerate(tokens):
        if token.kind != "mark" or token.text not in {"{", "}", "."}:
            continue
        if begin is not None and index - begin == 3 and _is_pattern(*tokens[begin:index]):
            clauses.append(Clause(begin, begin + 1, begin + 2))
        begin = index + 1 if token.text != "}" else None
    return clauses


def _is_pattern(subject: Token, predicate: Token, value: Token) -> bool:
    return (
        subject.kind in _TERMS
        and (predicate.kind in {"relation", "variable", "iri"} or predicate.text == "a")
        and (value.kind in _TERMS or (value.kind == "word" and ":" in value.text) or value.text.isdecimal())
    )


def names_class(tokens: Sequence[Token], clause: Clause) -> bool:
    """Say whether a triple pattern names the class of its subject."""
    predicate = tokens[clause.predicate]
    return tokens[clause.object].kind == "entity" and normal_form(predicate.name or predicate.text) in _TYPES


def query_entities(query: Query) -> tuple[str, ...]:
    """Return the entities that a query names, each once in order, without the classes that it names."""
    if isinstance(query, TripletQuery):
        return tuple(dict.fromkeys(part for part in (query.head, query.tail) if part != SOUGHT))
    tokens = split_query(query.text)
    classes = {clause.object for clause in find_clauses(tokens) if names_class(tokens, clause)}
    named = (token.name for index, token in enumerate(tokens) if token.kind == "entity" and index not in classes)
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
    text = text.strip()
    end, pieces = 0, []
    for token in split_query(text):
        pieces.append(f" {token.text}" if 0 < end < token.start else token.text)
        end = token.end
    return "".join(pieces)


def triplet_form(query: Query) -> TripletQuery:
    """Write a query as a triplet, where it is a single triple pattern of which one part is asked for."""
    if isinstance(query, TripletQuery):
        return query
    tokens = split_query(query.text)
    clauses = find_clauses(tokens)
    words = [token.text.lower() for token in tokens if token.kind == "word"]
    plain = [word for word in words if word not in {"distinct", "where"}] == ["select"]
    if len(clauses) != 1 or not plain or sum(token.text == "{" for token in tokens) != 1:
        raise InputError(
            f"the query {query.text[:80]!a} asks for more than one part of one triple; use the form sparql"
        )
    parts = ["?" if tokens[index].kind == "variable" else tokens[index].name for index in clauses[0]]
    if parts.count("?") != 1 or not all(parts) or any(";" in part for part in parts):
        raise InputError(
            f"the query {query.text[:80]!a} does not ask for one part of a triple of names; use the form sparql"
        )
    return TripletQuery(*parts)


def check_query(query: Query) -> None:
    """Read a query as a program will that runs it, with IRIs made up for its names, before anything is learned from it."""

    def iri(name: str) -> str:
        # Half of a surrogate pair has no place in an IRI, but names with one are refused before.
        return f"<urn:name:{quote(name, safe='', errors='replace')}>"

    rewrite(replace_names(parse_query(write_query(query)), entity=iri, relation=iri))


def find_mentions(question: str, names: Sequence[str]) -> list[tuple[Span, ...]]:
    """Find the spans at which a question writes names, word for word or nearly so."""
    # A name stands where its words do, whatever their case and what is between them; one with a remark in brackets or
    # behind a comma also stands where it does without. A name that stands nowhere is looked for by the best partial
    # alignment, whole words only. Longer names go first, so that one within another does not take its words.
    taken: list[Span] = []
    mentions: list[tuple[Span, ...]] = [()] * len(names)
    for index in sorted(range(len(names)), key=lambda number: -len(names[number])):
        plain = _REMARK.sub("", names[index])
        for written in dict.fromkeys((names[index], plain, _REGION.sub("", plain))):
            mentions[index] = mentions[index] or _free(_exact(question, written), taken)
        taken.extend(mentions[index])
    for index, name in enumerate(names):
        if not mentions[index]:
            mentions[index] = _free(_nearly(question, _REMARK.sub("", name)), taken)
            taken.extend(mentions[index])
    return mentions


def mention_texts(question: str, query: Query) -> tuple[str, ...]:
    """Return the entities of a query as its question writes them, those that it does not write left out."""
    mentions = find_mentions(question, query_entities(query))
    return tuple(question[spans[0].start : spans[0].end] for spans in mentions if spans)


def _free(spans: Sequence[Span], taken: Sequence[Span]) -> tuple[Span, ...]:
    return tuple(s for s in spans if all(s.end <= other.start or other.end <= s.start for other in taken))


def _exact(question: str, name: str) -> list[Span]:
    words = _WORD.findall(name)
    if not words:
        return []
    # Where a script puts no space between words, a name may begin within a run of letters.
    apart = len(name_tokens(name)) == len(words)
    before, after = (r"(?<![^\W_])", r"(?![^\W_])") if apart else ("", "")
    pattern = before + r"[\W_]+".join(map(re.escape, words)) + after
    closing = re.search(r"[\W_]*$", name)
    sign = closing[0] if closing else ""  # the point of "jr.", say, where the question has it too
    return [
        Span(match.start(), match.end() + len(sign) * question.startswith(sign, match.end()))
        for match in re.finditer(pattern, question, re.IGNORECASE)
    ]


def _nearly(question: str, name: str) -> list[Span]:
    name, lowered = name.lower(), question.lower()
    if len(lowered) != len(question) or not 0 < len(name) <= len(question):
        return []  # offsets in the lower-case text would not be those of the question
    window = partial_ratio_alignment(lowered, name, score_cutoff=_CUTOFF)
    if window is None:
        return []
    # The window ends anywhere; a word belongs to the mention if at least half of it lies within.
    covered = [
        match.span()
        for match in _WORD.finditer(lowered)
        if 2 * (min(match.end(), window.src_end) - max(match.start(), window.src_start)) >= match.end() - match.start()
    ]
    if not covered:
        return []
    start, end = covered[0][0], covered[-1][1]
    if not _POSSESSIVE.search(name):
        end = start + len(_POSSESSIVE.sub("", lowered[start:end]))
    return [Span(start, end)] if ratio(lowered[start:end], name, score_cutoff=_CUTOFF) else []
