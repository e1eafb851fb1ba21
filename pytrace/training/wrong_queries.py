"""Wrong queries beside a correct one, made by five rules, so that a generator learns what a query must not be.

Source: Chain of Knowledge, section 4.3 and appendix A.1.1, which shows five kinds of mistakes in its example: an entity without
its prefix, the wrong class, a misspelt entity, and, in the wording of queries 2 and 4, a part dropped and parts exchanged.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from typing import Literal, TypeVar

import msgspec

from pytrace.errors import InputError
from pytrace.kg.names import normal_form
from pytrace.kg.queries import Query, TripletQuery
from pytrace.kg.queries.notation import write_name
from pytrace.kg.queries.query_records import SOUGHT
from pytrace.training.examples import QueryExample
from pytrace.training.query_text import Clause, Token, TokenKind, find_clauses, names_class, split_query

WrongRule = Literal["missing-prefix", "wrong-class", "misspelt-entity", "swapped-arguments", "dropped-clause"]
"""The five rules by which a correct query becomes a wrong one (Chain of Knowledge, appendix A.1.1)."""

WRONG_QUERIES = 4
"""How many wrong queries stand beside a correct one (section 4.3)."""

# Where few other names or spellings exist, a draw often gives the right one again; after so many there is none.
_ATTEMPTS = 20
_Item = TypeVar("_Item")


class WrongQuery(msgspec.Struct, frozen=True):
    """A query that does not answer its question, as text, since it may be no query at all, and the rule that made it."""

    text: str
    rule: WrongRule


def wrong_queries(
    example: QueryExample,
    *,
    seed: int = 0,
    relations: Sequence[str] = (),
    names: Collection[str] = (),
    classes: Sequence[str] = (),
) -> tuple[WrongQuery, ...]:
    """Make wrong queries out of the correct one.

    `relations` and `classes` may take the place of the right ones; no misspelling is one of `names`. The rules are taken in
    random order, each once, and again where some do not apply.
    """
    # Each example has a stream of its own, so that its wrong queries do not depend on the examples before it.
    key = "\0".join((str(seed), example.id, example.query.text)).encode("utf-8", "surrogatepass")
    chance = random.Random(key)
    rules = _Maker(example.query, chance, relations, names, classes).rules()
    order = list(rules)
    chance.shuffle(order)
    meanings = {_meaning(example.query.text)}
    wrong: list[WrongQuery] = []
    for _ in range(_ATTEMPTS):
        for rule in order:
            text = rules[rule]()
            if text is None or (meaning := _meaning(text)) in meanings:
                continue
            meanings.add(meaning)
            wrong.append(WrongQuery(text, rule))
            if len(wrong) == WRONG_QUERIES:
                return tuple(wrong)
    return tuple(wrong)


class _Maker:
    """Makes a query wrong by changing a part of its text; what a rule cannot change gives None."""

    def __init__(
        self,
        query: Query,
        chance: random.Random,
        relations: Sequence[str],
        names: Collection[str],
        classes: Sequence[str],
    ) -> None:
        self.text = query.text
        self.is_triplet = isinstance(query, TripletQuery)
        self.chance = chance
        self.relations, self.names, self.classes = relations, names, classes
        self.tokens = _triplet_tokens(query) if isinstance(query, TripletQuery) else split_query(query.text)
        self.clauses = [] if self.is_triplet else find_clauses(self.tokens)
        self.class_clauses = [clause for clause in self.clauses if names_class(self.tokens, clause)]
        self.fact_clauses = [clause for clause in self.clauses if clause not in self.class_clauses]
        class_tokens = {clause.object for clause in self.class_clauses}
        entities = (index for index, token in enumerate(self.tokens) if token.kind == "entity")
        self.entities = [self.tokens[index] for index in entities if index not in class_tokens]

    def rules(self) -> dict[WrongRule, Callable[[], str | None]]:
        # Their order counts: it is what the seed shuffles.
        if self.is_triplet:
            return {
                "wrong-class": lambda: self._other_relation(self.tokens[1]),
                "misspelt-entity": self._misspelt_entity,
                "swapped-arguments": lambda: self._swapped(self.tokens[0], self.tokens[2]),
                "dropped-clause": self._dropped_part,
            }
        return {
            "missing-prefix": self._missing_prefix,
            "wrong-class": self._wrong_class,
            "misspelt-entity": self._misspelt_entity,
            "swapped-arguments": self._swapped_arguments,
            "dropped-clause": self._dropped_clause,
        }

    def _draw(self, items: Sequence[_Item]) -> _Item | None:
        return self.chance.choice(items) if items else None

    def _renamed(self, token: Token, name: str | None) -> str | None:
        """Return the text with another name in the place of a token's."""
        if name is None:
            return None
        written = name
        if not self.is_triplet:
            try:
                written = write_name(token.kind, name)
            except InputError:
                written = f"{token.kind}://"  # a name that no query can hold is wrong all the more
        return self.text[: token.start] + written + self.text[token.end :]

    def _missing_prefix(self) -> str | None:
        """Let an entity stand without ``entity:/…/``; a triplet has none."""
        entity = self._draw(self.entities)
        return None if entity is None else self.text[: entity.start] + entity.name + self.text[entity.end :]

    def _wrong_class(self) -> str | None:
        # Where a query names no class, what its answers are is decided by the relation that leads to them.
        clause = self._draw(self.class_clauses)
        if clause is not None:
            token = self.tokens[clause.object]
            text = self._renamed(token, self._other(token.name, self.classes))
            if text is not None:
                return text
        clause = self._draw(self._last_clauses())
        return None if clause is None else self._other_relation(self.tokens[clause.predicate])

    def _last_clauses(self) -> list[Clause]:
        """Return the clauses whose relation leads to what is asked for, or all if nothing is."""
        named = [clause for clause in self.fact_clauses if self.tokens[clause.predicate].kind == "relation"]
        sought = next((token.text for token in self.tokens if token.kind == "variable"), "")
        last = [c for c in named if sought in {self.tokens[c.subject].text, self.tokens[c.object].text}]
        return last or named

    def _other_relation(self, token: Token) -> str | None:
        other = self._other(token.name, self.relations)
        return None if token.kind == "variable" else self._renamed(token, other)

    def _other(self, name: str, choices: Sequence[str]) -> str | None:
        """Return one of the choices that is another name, if there is one."""
        form = normal_form(name)
        for _ in range(_ATTEMPTS if choices else 0):
            choice = self.chance.choice(choices)
            if choice.strip() and normal_form(choice) != form:
                return choice
        return None

    def _misspelt_entity(self) -> str | None:
        entity = self._draw(self.entities)
        return None if entity is None else self._renamed(entity, self._misspelt(entity.name))

    def _misspelt(self, name: str) -> str | None:
        """Return a name with one mistake that changes its words, and is no other entity's name."""
        for _ in range(_ATTEMPTS if name else 0):
            wrong = self._edited(name)
            if wrong.strip() and normal_form(wrong) != normal_form(name) and wrong not in self.names:
                return wrong
        return None

    def _edited(self, name: str) -> str:
        index = self.chance.randrange(len(name))
        match self.chance.choice(("drop", "double", "swap", "join")):
            case "drop":
                return name[:index] + name[index + 1 :]
            case "double":
                return name[: index + 1] + name[index:]
            case "swap":
                return name[:index] + name[index : index + 2][::-1] + name[index + 2 :]
            case _:
                space = self._draw([offset for offset, sign in enumerate(name) if sign == " "])
                return name if space is None else name[:space] + name[space + 1 :]

    def _swapped_arguments(self) -> str | None:
        clause = self._draw(self.fact_clauses)
        return None if clause is None else self._swapped(self.tokens[clause.subject], self.tokens[clause.object])

    def _swapped(self, first: Token, last: Token) -> str:
        between = self.text[first.end : last.start]
        return self.text[: first.start] + last.text + between + first.text + self.text[last.end :]

    def _dropped_part(self) -> str | None:
        """Leave a name out of a triplet."""
        dropped = self._draw([token for token in self.tokens if token.kind != "variable"])
        parts = [token.text for token in self.tokens if token is not dropped]
        return None if dropped is None else f"<{'; '.join(parts)}>"

    def _dropped_clause(self) -> str | None:
        """Leave a triple pattern out; of a query with one alone, all from its `where`."""
        clause = self._draw(self.clauses)
        if clause is None:
            return None
        if len(self.clauses) == 1:
            where = [t for t in self.tokens if t.text == "{" or (t.kind == "word" and t.text.lower() == "where")]
            return self.text[: where[0].start].strip() if where else None
        first, last = clause.subject, clause.object
        # A point goes with the clause: the one behind it or, of the last clause, the one before.
        if self.tokens[last + 1].text == ".":
            last += 1
        elif self.tokens[first - 1].text == ".":
            first -= 1
        before, after = self.text[: self.tokens[first].start], self.text[self.tokens[last].end :]
        return f"{before.rstrip()} {after.lstrip()}"


def _triplet_tokens(query: TripletQuery) -> list[Token]:
    """Split a triplet as `split_query` does SPARQL; what is asked for is its variable."""
    tokens: list[Token] = []
    start = len("<")
    kinds: tuple[TokenKind, ...] = ("entity", "relation", "entity")
    for kind, part in zip(kinds, (query.head, query.relation, query.tail), strict=True):
        tokens.append(Token("variable" if part == SOUGHT else kind, part, start, start + len(part), part))
        start += len(part) + len("; ")
    return tokens


def _meaning(text: str) -> tuple[object, ...]:
    """Return what two queries share that differ only in white space, case of words or names, or order of clauses."""
    tokens = split_query(text)
    plain = [(token.kind, normal_form(token.name) if token.name else token.text.lower()) for token in tokens]
    clauses = find_clauses(tokens)
    in_clauses = {index for clause in clauses for index in clause}
    others = tuple(word for index, word in enumerate(plain) if index not in in_clauses and word != ("mark", "."))
    return frozenset(tuple(plain[index] for index in clause) for clause in clauses), others
