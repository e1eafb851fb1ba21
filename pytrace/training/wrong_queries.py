"""Wrong queries beside a correct one, made by five rules, so that a generator learns what a query must not be.

Source: Chain of Knowledge, section 4.3 and appendix A.1.1, which shows five kinds of mistakes in its example: an entity without
its prefix, the wrong class, a misspelt entity, and, in the wording of queries 2 and 4, a part dropped and parts exchanged.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple, TypeVar

from pytrace.errors import InputError
from pytrace.kg.names import normal_form
from pytrace.kg.queries import Query, TripletQuery
from pytrace.kg.queries.notation import write_name
from pytrace.kg.queries.query_records import SOUGHT
from pytrace.training.clauses import Clause, Token, find_clauses, names_class, split_query
from pytrace.training.training_records import QueryExample, WrongQuery, WrongRule

WRONG_QUERIES = 4
"""How many wrong queries stand beside a correct one (section 4.3)."""

_ATTEMPTS = 20
_Item = TypeVar("_Item")


class _Vocabulary(NamedTuple):
    """The names that a wrong query may take, and those that no misspelling may hit."""

    relations: Sequence[str]
    names: Collection[str]
    classes: Sequence[str]


def wrong_queries(
    example: QueryExample,
    *,
    seed: int = 0,
    relations: Sequence[str] = (),
    names: Collection[str] = (),
    classes: Sequence[str] = (),
) -> tuple[WrongQuery, ...]:
    """Make wrong queries out of the correct one.

    The rules are taken in random order, each once, and again where some do not apply:

    - missing-prefix: an entity stands without ``entity:/…/``. A triplet has none.
    - wrong-class: another class takes the place of the one that the query names. Where it names none, what its answers are is
      decided by the relation that leads to them, so another relation takes that one's place.
    - misspelt-entity: a space or letter of an entity is dropped, doubled or swapped with the next, so that its words differ.
    - swapped-arguments: subject and object of a triple change places.
    - dropped-clause: a triple pattern is left out; of a query with one alone, all from its `where`; of a triplet, a name.
    """
    # Chain of Knowledge, section 4.3 and appendix A.1.1.
    key = "\0".join((str(seed), example.id, example.query.text)).encode("utf-8", "surrogatepass")
    chance = random.Random(key)
    maker = _TripletMaker if isinstance(example.query, TripletQuery) else _SparqlMaker
    rules = maker(example.query, chance, _Vocabulary(relations, names, classes)).rules()
    order = list(rules)
    chance.shuffle(order)
    meanings = {_meaning(example.query.text)}
    found: list[WrongQuery] = []
    for _ in range(_ATTEMPTS):
        for rule in order:
            text = rules[rule]()
            if text is None or (meaning := _meaning(text)) in meanings:
                continue
            meanings.add(meaning)
            found.append(WrongQuery(text, rule))
            if len(found) == WRONG_QUERIES:
                return tuple(found)
    return tuple(found)


_Rules = dict[WrongRule, Callable[[], str | None]]


class _Maker:
    """What the rules for both forms share."""

    def __init__(self, chance: random.Random, vocabulary: _Vocabulary) -> None:
        self.chance = chance
        self.vocabulary = vocabulary

    def other(self, name: str, choices: Sequence[str]) -> str | None:
        """Return one of the choices that is another name, if there is one."""
        form = normal_form(name)
        for _ in range(_ATTEMPTS if choices else 0):
            choice = self.chance.choice(choices)
            if choice.strip() and normal_form(choice) != form:
                return choice
        return None

    def one_of(self, items: Sequence[_Item]) -> _Item | None:
        return self.chance.choice(items) if items else None

    def misspelt(self, name: str) -> str | None:
        """Return a name with one mistake that changes its words, and is no other entity's name."""
        for _ in range(_ATTEMPTS if name else 0):
            wrong = self._edited(name)
            if wrong.strip() and normal_form(wrong) != normal_form(name) and wrong not in self.vocabulary.names:
                return wrong
        return None

    def _edited(self, name: str) -> str:
        at = self.chance.randrange(len(name))
        match self.chance.choice(("drop", "double", "swap", "join")):
            case "drop":
                return name[:at] + name[at + 1 :]
            case "double":
                return name[: at + 1] + name[at:]
            case "swap":
                return name[:at] + name[at : at + 2][::-1] + name[at + 2 :]
            case _:
                spaces = [place for place, sign in enumerate(name) if sign == " "]
                place = self.one_of(spaces)
                return name if place is None else name[:place] + name[place + 1 :]


class _TripletMaker(_Maker):
    """Makes triplets wrong."""

    def __init__(self, query: Query, chance: random.Random, vocabulary: _Vocabulary) -> None:
        super().__init__(chance, vocabulary)
        assert isinstance(query, TripletQuery)
        self.parts = (query.head, query.relation, query.tail)

    def rules(self) -> _Rules:
        return {
            "wrong-class": self._wrong_relation,
            "misspelt-entity": self._misspelt_entity,
            "swapped-arguments": lambda: _triplet(reversed(self.parts)),
            "dropped-clause": self._dropped_part,
        }

    def _wrong_relation(self) -> str | None:
        other = self.other(self.parts[1], self.vocabulary.relations)
        if self.parts[1] == SOUGHT or other is None:
            return None
        return _triplet((self.parts[0], other, self.parts[2]))

    def _misspelt_entity(self) -> str | None:
        at = self.one_of([at for at in (0, 2) if self.parts[at] != SOUGHT])
        wrong = None if at is None else self.misspelt(self.parts[at])
        return None if wrong is None else _triplet(wrong if n == at else part for n, part in enumerate(self.parts))

    def _dropped_part(self) -> str | None:
        at = self.one_of([at for at, part in enumerate(self.parts) if part != SOUGHT])
        return None if at is None else _triplet(part for n, part in enumerate(self.parts) if n != at)


def _triplet(parts: Iterable[str]) -> str:
    return f"<{'; '.join(parts)}>"


class _SparqlMaker(_Maker):
    """Makes SPARQL wrong."""

    def __init__(self, query: Query, chance: random.Random, vocabulary: _Vocabulary) -> None:
        super().__init__(chance, vocabulary)
        self.text = query.text
        self.tokens = split_query(query.text)
        self.clauses = find_clauses(self.tokens)
        self.class_clauses = [clause for clause in self.clauses if names_class(self.tokens, clause)]
        of_classes = {clause.object for clause in self.class_clauses}
        self.entities = [
            token for at, token in enumerate(self.tokens) if token.kind == "entity" and at not in of_classes
        ]

    def rules(self) -> _Rules:
        return {
            "missing-prefix": self._missing_prefix,
            "wrong-class": self._wrong_class,
            "misspelt-entity": self._misspelt_entity,
            "swapped-arguments": self._swapped_arguments,
            "dropped-clause": self._dropped_clause,
        }

    def _replaced(self, token: Token, text: str) -> str:
        return self.text[: token.start] + text + self.text[token.end :]

    def _missing_prefix(self) -> str | None:
        entity = self.one_of(self.entities)
        return None if entity is None else self._replaced(entity, entity.name)

    def _wrong_class(self) -> str | None:
        clause = self.one_of(self.class_clauses)
        if clause is not None:
            token = self.tokens[clause.object]
            other = self.other(token.name, self.vocabulary.classes)
            if other is not None:
                return self._replaced(token, _written("entity", other))
        clause = self.one_of(self._last_clauses())
        if clause is None:
            return None
        token = self.tokens[clause.predicate]
        other = self.other(token.name, self.vocabulary.relations)
        return None if other is None else self._replaced(token, _written("relation", other))

    def _last_clauses(self) -> list[Clause]:
        """Return the clauses whose relation leads to what is asked for, or all if nothing is."""
        named = [
            clause
            for clause in self.clauses
            if clause not in self.class_clauses and self.tokens[clause.predicate].kind == "relation"
        ]
        asked = next((token.text for token in self.tokens if token.kind == "variable"), "")
        last = [c for c in named if asked in {self.tokens[c.subject].text, self.tokens[c.object].text}]
        return last or named

    def _misspelt_entity(self) -> str | None:
        entity = self.one_of(self.entities)
        wrong = None if entity is None else self.misspelt(entity.name)
        return None if entity is None or wrong is None else self._replaced(entity, _written("entity", wrong))

    def _swapped_arguments(self) -> str | None:
        clause = self.one_of([clause for clause in self.clauses if clause not in self.class_clauses])
        if clause is None:
            return None
        first, last = self.tokens[clause.subject], self.tokens[clause.object]
        between = self.text[first.end : last.start]
        return self.text[: first.start] + last.text + between + first.text + self.text[last.end :]

    def _dropped_clause(self) -> str | None:
        clause = self.one_of(self.clauses)
        if clause is None:
            return None
        if len(self.clauses) == 1:
            where = [t for t in self.tokens if t.text == "{" or (t.kind == "word" and t.text.lower() == "where")]
            return self.text[: where[0].start].strip() if where else None
        first, last = clause.subject, clause.object
        if self.tokens[last + 1].text == ".":
            last += 1
        elif self.tokens[first - 1].text == ".":
            first -= 1
        kept = (self.text[: self.tokens[first].start].rstrip(), self.text[self.tokens[last].end :].lstrip())
        return " ".join(kept)


def _written(kind: str, name: str) -> str:
    try:
        return write_name(kind, name)
    except InputError:
        return f"{kind}://"  # a name that no query can hold is wrong all the more


def _meaning(text: str) -> tuple[object, ...]:
    """Return what two queries share that differ only in white space, case of words or names, or order of clauses."""
    tokens = split_query(text)
    plain = [(token.kind, normal_form(token.name) if token.name else token.text.lower()) for token in tokens]
    clauses = find_clauses(tokens)
    of_clauses = {at for clause in clauses for at in clause}
    rest = tuple(word for at, word in enumerate(plain) if at not in of_clauses and word != ("mark", "."))
    return frozenset(tuple(plain[at] for at in clause) for clause in clauses), rest
