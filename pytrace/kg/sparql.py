"""From a SPARQL query that asks for answers to one that returns the triples that they follow from.

`SELECT` becomes `CONSTRUCT` as appendix A of the paper on evaluating chain-of-thought has it. ``CONSTRUCT WHERE`` would
forbid filters, so the triples are stated twice: as the template, and where they stood. What is found out by reading:

- The template has the triples of the query's groups, also those within OPTIONAL, UNION, GRAPH and nested groups, and of
  sub-queries where all that they name leaves the sub-query. It has none of MINUS and FILTER (NOT) EXISTS.
- Blank nodes become variables, for a template would make new ones. So do the inner nodes of paths ``a/b`` and ``^a``;
  ``a|b`` becomes a variable with two values. Other paths (``a*``, ``a+``, ``a?``, ``!a``) only filter: what lies on them
  cannot be returned.
- DISTINCT and ORDER BY alone change nothing about the triples and are dropped. Where LIMIT, OFFSET or HAVING choose among
  the answers, the whole query stands in the new one as a sub-query, so that only triples of those answers come back.
- FROM is dropped, for there is one graph.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from pytrace.errors import InputError
from pytrace.kg.sparql_tokens import Token, TokenReader, check_syntax, read_prefixes, tokens_of, without_prologue

# The time to plan a query grows with the cube of its patterns.
_MOST_PATTERNS = 200

_TYPE = "<http://www.w3.org/1999/02/22-rdf-syntax-ns#type>"
_LIST = "<http://www.w3.org/1999/02/22-rdf-syntax-ns#%s>"
_ESCAPED = re.compile(r"\\(.)")
_AGGREGATES = {"COUNT", "SUM", "MIN", "MAX", "AVG", "SAMPLE", "GROUP_CONCAT"}
_MODIFIERS = {"GROUP", "HAVING", "ORDER", "LIMIT", "OFFSET"}
_NARROWING = {"LIMIT", "OFFSET", "HAVING"}


class GraphQuery(msgspec.Struct, frozen=True):
    """What a query became."""

    construct: str  # returns the triples of all solutions together
    rows: str  # a SELECT that returns them solution by solution
    # Of each pattern the variables of `rows` that have its three terms; unbound ones are of an OPTIONAL or another branch.
    patterns: tuple[tuple[str, str, str], ...]
    constants: tuple[
        str, ...
    ]  # of those names the entities that the query names, as subject or object but not as a class
    answers: tuple[str, ...]  # the variables that the query itself returned, without ``?``
    left_out: tuple[str, ...]  # the property paths whose triples cannot be returned


def rewrite(query: str) -> GraphQuery:
    """Turn a SELECT or ASK query into one that returns the triples behind its answers."""
    # Nguyen et al., "Direct Evaluation of Chain-of-Thought in Multi-hop Reasoning with Knowledge Graphs" (2024),
    # appendix A.
    rewritten = _Parser(tokens_of(query)).query()
    check_syntax(rewritten.construct)
    check_syntax(rewritten.rows)
    return rewritten


def written_out(query: str) -> str:
    """Return a query that only reads without comments and prefixes."""
    plain = _Parser(tokens_of(query)).all()
    check_syntax(plain)
    return plain


class _Path(NamedTuple):
    """A property path: "iri" with its text, "sequence", "alternative" and "inverse" of others, or "other" with its text."""

    kind: str
    text: str
    parts: tuple[_Path, ...] = ()


class _Select(NamedTuple):
    """A SELECT taken apart; `variables` is None for ``*``."""

    clause: str
    variables: tuple[str, ...] | None
    where: str
    modifiers: str
    values: str
    narrowed: bool


_Pattern = tuple[str, str, str]


class _Parser(TokenReader):
    """Reads a query by recursive descent and writes it anew, with flat triples and without blank nodes."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        start = len(tokens) - len(without_prologue(tokens))
        super().__init__(tokens[start:])
        self._prefixes, self._base = read_prefixes(tokens[:start])
        self._used = {token.text[1:] for token in tokens if token.kind == "variable"}
        self._blank: dict[str, str] = {}
        self._left_out: list[str] = []

    def _fresh(self) -> str:
        number = len(self._used)
        while f"node{number}" in self._used:
            number += 1
        self._used.add(f"node{number}")
        return f"?node{number}"

    def _written(self, tokens: Sequence[Token], *, labels: bool = False) -> str:
        """Write tokens as they are, but for prefixed names and the labels of blank nodes."""
        text = before = ""
        for token in tokens:
            # The parser below us takes no space between these two functions and their arguments.
            called = token.text == "(" and before in ("CONCAT", "COALESCE")
            joined = called or token.kind == "language" or token.text == "^^" or text.endswith("^^")
            before = token.word
            written = token.text if labels and token.kind == "blank" else self._plain(token)
            text += ("" if joined or not text else " ") + written
        return text

    def _plain(self, token: Token) -> str:
        if token.kind == "prefixed":
            # Written out, because the parser below us does not take names of three parts, such as Freebase's.
            prefix, _, local = token.text.partition(":")
            if f"{prefix}:" not in self._prefixes:
                self.refuse(token, f"the prefix {prefix}: is not declared")
            local = _ESCAPED.sub(lambda match: match[1], local)
            return f"<{self._prefixes[prefix + ':']}{local}>"
        if token.kind != "blank":
            return token.text
        if token.text not in self._blank:
            self._blank[token.text] = self._fresh()
        return self._blank[token.text]

    def all(self) -> str:
        """Write all of it as it is."""
        return self._base + self._written(self.tokens, labels=True)

    def query(self) -> GraphQuery:
        """Read all of it."""
        form = self.peek()
        patterns: list[_Pattern] = []
        if form.word == "SELECT":
            select = self._select(patterns)
        elif form.word == "ASK":
            self.next()
            where = self._where(patterns)
            self._modifiers()
            select = _Select("", (), where, "", "", narrowed=False)
        else:
            self.refuse(form, "SELECT or ASK is due")
        if self.peek().kind != "end":
            self.refuse(self.peek(), "the query should end")
        patterns = list(dict.fromkeys(patterns))
        if not patterns:
            raise InputError("the SPARQL query states no triples that could be returned; give it a pattern of triples")
        where = select.where
        if select.narrowed:
            chosen = " ".join(filter(None, (select.clause, "WHERE", where, select.modifiers, select.values)))
            where = f"{{ {{ {chosen} }} {where} }}"
        values = f" {select.values}" if select.values else ""
        template = " ".join(f"{' '.join(pattern)} ." for pattern in patterns)
        columns, names = self._columns(patterns)
        # What stands behind rdf:type is a class, and no entity.
        parts = (term for s, p, o in patterns for term in ((s,) if p == _TYPE else (s, o)))
        constants = dict.fromkeys(term for term in parts if term[0] == "<")
        return GraphQuery(
            construct=f"{self._base}CONSTRUCT {{ {template} }} WHERE {where}{values}",
            rows=f"{self._base}SELECT {columns} WHERE {where}{values}",
            patterns=tuple((names[s], names[p], names[o]) for s, p, o in patterns),
            constants=tuple(names[term] for term in constants),
            answers=self._variables_of(patterns) if select.variables is None else select.variables,
            left_out=tuple(dict.fromkeys(self._left_out)),
        )

    def _columns(self, patterns: list[_Pattern]) -> tuple[str, dict[str, str]]:
        """Return what to select for the terms of patterns, and the name that each has there."""
        names: dict[str, str] = {}
        selected: list[str] = []
        for term in dict.fromkeys(term for pattern in patterns for term in pattern):
            if term[0] in "?$":
                names[term] = term[1:]
                selected.append(f"?{term[1:]}")
            else:
                variable = self._fresh()
                names[term] = variable[1:]
                selected.append(f"({term} AS {variable})")
        return " ".join(dict.fromkeys(selected)), names

    @staticmethod
    def _variables_of(patterns: list[_Pattern]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(term[1:] for pattern in patterns for term in pattern if term[0] in "?$"))

    def _select(self, patterns: list[_Pattern]) -> _Select:
        start = self.at
        self.next()
        star, single = False, False
        variables: list[str] = []
        while (token := self.peek()).text != "{" and token.word not in ("WHERE", "FROM"):
            if token.text == "(":
                inner = self.balanced()
                single = single or any(each.word in _AGGREGATES for each in inner)
                if len(inner) > 2 and inner[-3].word == "AS":
                    variables.append(inner[-2].text[1:])
                continue
            single = single or token.word in _AGGREGATES
            star = star or token.text == "*"
            if token.kind == "variable":
                variables.append(token.text[1:])
            self.next()
        clause = self._written(self.tokens[start : self.at])
        where = self._where(patterns)
        modifiers, words = self._modifiers()
        values = self._values() if self.peek().word == "VALUES" else ""
        # An aggregate over all solutions is one row: there is nothing that could be left out.
        narrowed = bool(words & _NARROWING) and not (single and "GROUP" not in words)
        return _Select(clause, None if star else tuple(variables), where, modifiers, values, narrowed)

    def _where(self, patterns: list[_Pattern]) -> str:
        while self.accept("FROM"):
            self.accept("NAMED")
            self.next()
        self.accept("WHERE")
        return self._group(patterns)

    def _modifiers(self) -> tuple[str, set[str]]:
        start = self.at
        words: set[str] = set()
        while (token := self.peek()).kind != "end" and token.text != "}" and token.word != "VALUES":
            if token.text == "(":
                self.balanced()
                continue
            begun = bool(words & _MODIFIERS)
            words.add(self.next().word)
            strange = token.text in ("{", "(", "[", ";", ".") or token.word in ("SELECT", "ASK", "WHERE", "CONSTRUCT")
            if strange or not (begun or token.word in _MODIFIERS):
                self.refuse(token, "the query should end")
        return self._written(self.tokens[start : self.at]), words

    def _group(self, patterns: list[_Pattern]) -> str:
        """Read a group and return it written anew; its triples go to `patterns`."""
        self.expect("{")
        parts: list[str] = []
        if self.peek().word == "SELECT":
            inner: list[_Pattern] = []
            select = self._select(inner)
            seen = set(self._variables_of(inner) if select.variables is None else select.variables)
            patterns += [pattern for pattern in inner if seen.issuperset(self._variables_of([pattern]))]
            parts += [select.clause, "WHERE", select.where, select.modifiers, select.values]
        else:
            while self.peek().text != "}":
                parts.append(self._part(patterns))
        self.expect("}")
        return " ".join(filter(None, ("{", *parts, "}")))

    def _part(self, patterns: list[_Pattern]) -> str:
        token = self.peek()
        if self.accept("."):
            return ""
        if token.text == "{":
            branches = [self._group(patterns)]
            while self.accept("UNION"):
                branches.append(self._group(patterns))
            return " UNION ".join(branches)
        if token.word in ("OPTIONAL", "MINUS"):
            self.next()
            return f"{token.word} {self._group(patterns if token.word == 'OPTIONAL' else [])}"
        if token.word == "GRAPH":
            return f"{self._written([self.next(), self.next()])} {self._group(patterns)}"
        if token.word == "VALUES":
            return self._values()
        if token.word in ("FILTER", "BIND"):
            taken = [self.next()]
            while self.peek().text not in ("(", "{"):
                taken.append(self.next())
            return self._written(taken + self.balanced())
        return self._triples(patterns)

    def _values(self) -> str:
        taken = [self.next()]
        taken += self.balanced() if self.peek().text == "(" else [self.next()]
        if self.peek().text != "{":
            self.refuse(self.peek(), "'{' is due")
        return self._written(taken + self.balanced())

    def _triples(self, patterns: list[_Pattern]) -> str:
        lines: list[str] = []
        bracketed = self.peek().text == "["  # then it may have no properties behind it
        subject = self._node(patterns, lines)
        if not bracketed or self.peek().text not in (".", "}"):
            self._properties(subject, patterns, lines)
        if len(patterns) > _MOST_PATTERNS:
            raise InputError(f"the SPARQL query states more than {_MOST_PATTERNS} triples; make it shorter")
        return " ".join(lines)

    def _properties(self, subject: str, patterns: list[_Pattern], lines: list[str]) -> None:
        while True:
            path = _Path("iri", self.next().text) if self.peek().kind == "variable" else self._path()
            self._state(subject, path, self._node(patterns, lines), patterns, lines)
            while self.accept(","):
                self._state(subject, path, self._node(patterns, lines), patterns, lines)
            if not self.accept(";"):
                return
            while self.accept(";"):
                pass
            if self.peek().text in (".", "}", "]"):
                return

    def _node(self, patterns: list[_Pattern], lines: list[str]) -> str:
        token = self.next()
        if token.kind in ("variable", "iri", "prefixed", "number", "blank"):
            return self._plain(token)
        if token.kind == "string":
            taken = [token]
            if self.peek().kind == "language":
                taken.append(self.next())
            elif self.peek().text == "^^":
                taken += [self.next(), self.next()]
            return self._written(taken)
        if token.word in ("TRUE", "FALSE"):
            return token.text
        if token.text == "[":
            node = self._fresh()
            if self.peek().text != "]":
                self._properties(node, patterns, lines)
            self.expect("]")
            return node
        if token.text != "(":
            self.refuse(token, "an entity, a variable or a value is due")
        return self._list(patterns, lines)

    def _list(self, patterns: list[_Pattern], lines: list[str]) -> str:
        if self.accept(")"):
            return _LIST % "nil"
        first = node = self._fresh()
        while True:
            self._state(node, _Path("iri", _LIST % "first"), self._node(patterns, lines), patterns, lines)
            last = self.accept(")")
            rest = _LIST % "nil" if last else self._fresh()
            self._state(node, _Path("iri", _LIST % "rest"), rest, patterns, lines)
            if last:
                return first
            node = rest

    def _state(self, subject: str, path: _Path, target: str, patterns: list[_Pattern], lines: list[str]) -> None:
        """Write a pattern down, a path by its steps where they can be told."""
        if path.kind == "iri":
            patterns.append((subject, path.text, target))
            lines.append(f"{subject} {path.text} {target} .")
        elif path.kind == "inverse":
            self._state(target, path.parts[0], subject, patterns, lines)
        elif path.kind == "sequence":
            nodes = [subject, *(self._fresh() for _ in path.parts[1:]), target]
            for step, start, end in zip(path.parts, nodes, nodes[1:], strict=False):
                self._state(start, step, end, patterns, lines)
        elif path.kind == "alternative" and all(part.kind == "iri" for part in path.parts):
            relation = self._fresh()
            lines.append(f"VALUES {relation} {{ {' '.join(part.text for part in path.parts)} }}")
            self._state(subject, _Path("iri", relation), target, patterns, lines)
        else:
            self._left_out.append(path.text)
            lines.append(f"{subject} {path.text} {target} .")

    def _path(self) -> _Path:
        return self._joined("alternative", "|", lambda: self._joined("sequence", "/", self._step))

    def _joined(self, kind: str, mark: str, part: Callable[[], _Path]) -> _Path:
        parts = [part()]
        while self.accept(mark):
            parts.append(part())
        if len(parts) == 1:
            return parts[0]
        return _Path(kind, f"({mark.join(each.text for each in parts)})", tuple(parts))

    def _step(self) -> _Path:
        token = self.next()
        if token.text == "^":
            inner = self._step()
            return _Path("inverse", f"(^{inner.text})", (inner,))
        if token.text == "!":
            negated = self.balanced() if self.peek().text == "(" else [self.next()]
            return _Path("other", f"!{self._written(negated)}")
        if token.text == "(":
            path = self._path()
            self.expect(")")
        elif token.text == "a":
            path = _Path("iri", _TYPE)
        elif token.kind in ("iri", "prefixed"):
            path = _Path("iri", self._plain(token))
        else:
            self.refuse(token, "a relation is due")
        if self.peek().text in ("*", "+", "?"):
            path = _Path("other", f"({path.text}){self.next().text}")
        return path
