"""The words and signs of SPARQL queries that only read, and whether a query is valid, found out without evaluating any of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple, NoReturn

import pyoxigraph as ox

from pytrace.errors import InputError

# The parser below us recurses and has no check of its own; what people write has a tenth of this.
_DEEPEST = 50
_MOST_TOKENS = 5_000

_LOCAL = r"(?:[\w:.\-\u00b7]|%[0-9A-Fa-f]{2}|\\[_~.\-!$&'()*+,;=/?#@%])"
_TOKENS = re.compile(
    rf"""
    (?P<skip>\s+|\#[^\n\r]*)
    |(?P<string>\"\"\"(?:"{{0,2}}(?:[^"\\]|\\.))*\"\"\"|'''(?:'{{0,2}}(?:[^'\\]|\\.))*'''
        |"(?:[^"\\\n\r]|\\.)*"|'(?:[^'\\\n\r]|\\.)*')
    |(?P<iri><(?![?$=])(?:[^<>"{{}}|^`\\\x00-\x20]|\\u[0-9A-Fa-f]{{4}}|\\U[0-9A-Fa-f]{{8}})*>)
    |(?P<language>@[A-Za-z]+(?:-[A-Za-z0-9]+)*)
    |(?P<blank>_:\w(?:[\w.\-\u00b7]*[\w\-\u00b7])?)
    |(?P<variable>[?$][\w\u00b7]+)
    |(?P<prefixed>(?:[^\W\d_](?:[\w.\-\u00b7]{{0,200}}[\w\-\u00b7])?)?:(?:{_LOCAL}*(?<!\.))?)
    |(?P<number>[+-]?(?:\d+\.\d*[eE][+-]?\d+|\.?\d+[eE][+-]?\d+|\d*\.\d+|\d+))
    |(?P<word>[A-Za-z]\w*)
    |(?P<mark>\^\^|&&|\|\||!=|<=|>=|<<|>>|[{{}}()\[\];,.=<>+\-*/|^!?~])
    """,
    re.VERBOSE | re.DOTALL,
)
OPENING = {"{": "}", "(": ")", "[": "]"}
_UPDATES = {"INSERT", "DELETE", "LOAD", "CLEAR", "DROP", "CREATE", "ADD", "MOVE", "COPY", "WITH"}


class Token(NamedTuple):
    """A word of a query: its kind by the names of the tokenizer's groups, its text, and where it begins."""

    kind: str
    text: str
    offset: int

    @property
    def word(self) -> str:
        """A keyword in upper case; empty for all else."""
        return self.text.upper() if self.kind == "word" else ""


END = Token("end", "", -1)
"""What stands behind the last token."""


class TokenReader:
    """Goes through the tokens of a query, and says where one does not fit."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self.tokens = tokens
        self.at = 0

    def peek(self) -> Token:
        """Return the next token and stay before it."""
        return self.tokens[self.at] if self.at < len(self.tokens) else END

    def next(self) -> Token:
        """Take the next token."""
        token = self.peek()
        if token.kind == "end":
            raise InputError("the SPARQL query ends too early; complete it")
        self.at += 1
        return token

    def accept(self, text: str) -> bool:
        """Take the next token if it is this sign, or this keyword in upper case, and tell whether it was."""
        accepted = text in (self.peek().text, self.peek().word)
        self.at += accepted
        return accepted

    def expect(self, text: str) -> None:
        """Take the next token, which must be this sign."""
        token = self.next()
        if token.text != text:
            self.refuse(token, f"{text!r} is due")

    def balanced(self) -> list[Token]:
        """Take all from an opening bracket to its end."""
        taken = [self.next()]
        depth = 1
        while depth:
            taken.append(self.next())
            depth += (taken[-1].text in OPENING) - (taken[-1].text in OPENING.values())
        return taken

    @staticmethod
    def refuse(token: Token, reason: str) -> NoReturn:
        """Say what is due where a token stands."""
        if token.kind == "end":
            raise InputError(f"the SPARQL query ends too early: {reason}; complete it")
        raise InputError(
            f"the SPARQL query has {token.text[:40]!a} at character {token.offset + 1}, where {reason}; correct the query"
        )


def tokens_of(query: str) -> list[Token]:
    """Split a query that only reads into its tokens."""
    tokens: list[Token] = []
    open_: list[str] = []
    signs = offset = 0
    while offset < len(query):
        match = _TOKENS.match(query, offset)
        if match is None or not match.group():
            _wrong(query, offset)
        kind, text = str(match.lastgroup), match.group()
        if kind != "skip":
            token = Token(kind, text, offset)
            tokens.append(token)
            signs = signs + 1 if text in ("!", "^", "-", "+") else 0
            if text in OPENING:
                open_.append(OPENING[text])
            elif text in ("}", ")", "]") and (not open_ or open_.pop() != text):
                _wrong(query, offset)
            if len(open_) + signs > _DEEPEST:
                raise InputError(f"the SPARQL query is nested more than {_DEEPEST} deep; make it flatter")
            if len(tokens) > _MOST_TOKENS:
                raise InputError(f"the SPARQL query has more than {_MOST_TOKENS} words and signs; make it shorter")
        offset = match.end()
    if open_:
        raise InputError(f"the SPARQL query ends before {open_[-1]!r}; close what it opens")
    _check_reads(tokens)
    return tokens


def _check_reads(tokens: Sequence[Token]) -> None:
    first = next((token.word for token in without_prologue(tokens)), "")
    if first in _UPDATES:
        raise InputError(f"the SPARQL query begins with {first}, which changes data; only queries that read are run")
    # The parser below us wants no space between words: trueSERVICE and SERVICESILENT are two words each to it.
    if any("SERVICE" in token.word for token in tokens):
        raise InputError("the SPARQL query calls another server (SERVICE), and none is asked; leave that part out")


def without_prologue(tokens: Sequence[Token]) -> Sequence[Token]:
    """Return what follows the PREFIX and BASE lines."""
    index = 0
    while index < len(tokens) and tokens[index].word in ("PREFIX", "BASE"):
        index += 3 if tokens[index].word == "PREFIX" else 2
    return tokens[index:]


def read_prefixes(tokens: Sequence[Token]) -> tuple[dict[str, str], str]:
    """Return what a prologue says of prefixes, each with its colon, and its BASE as it stands, or nothing."""
    prefixes: dict[str, str] = {}
    base = ""
    words = iter(tokens)
    for token in words:
        name, iri = (next(words, END), next(words, END)) if token.word == "PREFIX" else (None, next(words, END))
        if iri.kind != "iri" or (name is not None and (name.kind != "prefixed" or not name.text.endswith(":"))):
            raise InputError(
                f"the SPARQL query has a {token.word} at character {token.offset + 1} without name or IRI; correct it"
            )
        if name is None:
            base = f"BASE {iri.text} "
        else:
            prefixes[name.text] = iri.text[1:-1]
    return prefixes, base


def _wrong(query: str, offset: int) -> NoReturn:
    text = (query[offset : offset + 20].split(maxsplit=1) or [query[offset]])[0]
    raise InputError(f"the SPARQL query has {text!a} at character {offset + 1}, which fits nothing there; correct it")


# Where an error is tells nothing: the text stands within another one, and is not the user's own.
_POSITION = re.compile(r"error at \d+:\d+: ")
_FORMS = ("SELECT", "ASK", "CONSTRUCT")


def check_syntax(query: str) -> None:
    """Parse a query, and evaluate nothing of it."""
    # The parser below us evaluates what it has parsed, and even on no data a query can use up the memory: four VALUES of
    # 300 rows each are 8 billion solutions. So what is to be parsed is put where it is never evaluated.
    tokens = without_prologue(tokens_of(query))
    if not tokens or tokens[0].word not in _FORMS:
        begin = repr(tokens[0].text[:20]) if tokens else "nothing"
        raise InputError(f"the SPARQL query begins with {begin}; begin it with SELECT, ASK or CONSTRUCT")
    try:
        for guarded in _unevaluated(query, tokens):
            ox.Store().query(guarded)
    except (SyntaxError, ValueError) as error:
        reason = " ".join(_POSITION.sub("", str(error)).split())[:120]
        raise InputError(f"the SPARQL query cannot be read ({reason}); correct it") from error


def _unevaluated(query: str, tokens: Sequence[Token]) -> Iterator[str]:
    """Yield queries that are valid if a query is, and that are evaluated at once."""
    # What stands in a FILTER EXISTS is looked at only for a solution of what is filtered, and an empty store has none.
    prologue, form, body = query[: tokens[0].offset], tokens[0].word, tokens[1:]
    if form == "CONSTRUCT" and body and body[0].text == "{":
        end = _closing(body)
        yield f"{prologue}CONSTRUCT {query[body[0].offset : body[end].offset + 1]} WHERE {{}}"
        body = body[end + 1 :]
    select = "SELECT" if form == "SELECT" else "SELECT (1 AS ?pytrace)"
    yield f"{prologue}ASK {{ ?s ?p ?o FILTER EXISTS {{ {{ {select} {_without_dataset(query, body)}\n}} }} }}"


def _without_dataset(query: str, tokens: Sequence[Token]) -> str:
    """Return the text of some tokens without its FROM, which no sub-query has."""
    text = ""
    index = 0
    while index < len(tokens) and tokens[index].text != "{":
        if tokens[index].word == "FROM":
            index += 3 if tokens[index + 1 : index + 2] and tokens[index + 1].word == "NAMED" else 2
            continue
        following = tokens[index + 1].offset if index + 1 < len(tokens) else len(query)
        text += query[tokens[index].offset : following]
        index += 1
    return text + (query[tokens[index].offset :] if index < len(tokens) else "")


def _closing(tokens: Sequence[Token]) -> int:
    """Return the index of the bracket that closes the first token."""
    depth = 0
    for index, token in enumerate(tokens):
        depth += (token.text == "{") - (token.text == "}")
        if not depth:
            return index
    return len(tokens) - 1
