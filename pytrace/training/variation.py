"""Examples with other names and in other writing: a query generator learns to copy names from them, and not to know them."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from pytrace.errors import InputError
from pytrace.kg.names import normal_form
from pytrace.kg.queries import Query, SparqlQuery, TripletQuery, parse_query, replace_names
from pytrace.kg.queries.notation import write_name
from pytrace.training.clauses import query_entities
from pytrace.training.invented_names import NameMaker
from pytrace.training.query_mentions import Span, find_mentions
from pytrace.training.training_records import QueryExample

# How many copies in a hundred are written in another way; most stay as the data has them.
_TITLED, _CAPITAL, _UNMARKED = 0.3, 0.4, 0.15


class _Place(NamedTuple):
    """An entity of a query, and where the question writes it."""

    name: str
    spans: tuple[Span, ...]


def vary_names(
    examples: Sequence[QueryExample],
    count: int,
    *,
    seed: int = 0,
    names: Iterable[str] = (),
    excluded: Collection[str] = (),
) -> list[QueryExample]:
    """Make copies of examples in which each entity that the question writes has another name, in question and query alike."""
    # A new name is made of the words of real names, put together anew, or of syllables, digits, initials and numerals;
    # no name stands in many copies, so that only copying helps. Classes and relations stay.
    if count < 0:
        raise InputError(f"{count} copies with other names were asked for; ask for 0 or more")
    placed = [(example, places) for example in examples if (places := _places(example))]
    if not placed:
        return []
    known = [*names, *(name for example in examples for name in query_entities(example.query))]
    maker = NameMaker(known, excluded, random.Random(seed))
    return [_varied(*placed[number % len(placed)], number // len(placed) + 1, maker) for number in range(count)]


def vary_writing(examples: Sequence[QueryExample], *, seed: int = 0) -> list[QueryExample]:
    """Write some examples as other people would."""
    # Names have capitals, in question and query alike; a question begins with one, or ends without its mark. Data sets
    # are often in lower case throughout, and a model that has seen nothing else writes nonsense after one capital.
    draw = random.Random(seed)
    return [
        _rewritten(example, *(draw.random() < share for share in (_TITLED, _CAPITAL, _UNMARKED)))
        for example in examples
    ]


def with_capitals(examples: Sequence[QueryExample]) -> list[QueryExample]:
    """Write examples as people write them: names and the beginnings of questions have capitals."""
    return [_rewritten(example, titled=True, capital=True, unmarked=False) for example in examples]


def _rewritten(example: QueryExample, titled: bool, capital: bool, unmarked: bool) -> QueryExample:
    places = _places(example)
    question, query, mentions = example.question, example.query, example.mentions
    if titled and places:
        made = {place.name: _titled(place.name) for place in places}
        question, query = _replaced(question, places, made), _renamed(query, made)
        mentions = tuple(made.get(mention, mention) for mention in mentions)
    if capital and not any(span.start == 0 for span, _ in _spans(places)):
        question = question[:1].upper() + question[1:]
    if unmarked:
        question = question.rstrip(" ?") or question
    return msgspec.structs.replace(example, question=question, query=query, mentions=mentions)


def _titled(name: str) -> str:
    return " ".join(word[:1].upper() + word[1:] for word in name.split(" "))


def _places(example: QueryExample) -> list[_Place]:
    entities = query_entities(example.query)
    return [
        _Place(*found) for found in zip(entities, find_mentions(example.question, entities), strict=True) if found[1]
    ]


def _varied(example: QueryExample, places: Sequence[_Place], number: int, maker: NameMaker) -> QueryExample:
    made: dict[str, str] = {}
    taken = set(map(normal_form, query_entities(example.query)))
    for place in places:
        name = maker.make(place.name)
        while normal_form(name) in taken:
            name = maker.make(place.name)
        taken.add(normal_form(name))
        made[place.name] = name
    return msgspec.structs.replace(
        example,
        id=f"{example.id}~{number}",
        question=_replaced(example.question, places, made),
        query=_renamed(example.query, made),
        answers=(),
        mentions=tuple(made.values()),
    )


def _replaced(question: str, places: Sequence[_Place], made: Mapping[str, str]) -> str:
    for span, name in sorted(_spans(places), reverse=True):
        question = question[: span.start] + made[name] + question[span.end :]
    return question


def _spans(places: Sequence[_Place]) -> Iterator[tuple[Span, str]]:
    for place in places:
        for span in place.spans:
            yield span, place.name


def _renamed(query: Query, made: Mapping[str, str]) -> Query:
    if isinstance(query, TripletQuery):
        renamed = TripletQuery(made.get(query.head, query.head), query.relation, made.get(query.tail, query.tail))
        return parse_query(renamed.text)
    return SparqlQuery(
        replace_names(
            query,
            entity=lambda name: write_name("entity", made.get(name, name)),
            relation=lambda name: write_name("relation", name),
        )
    )
