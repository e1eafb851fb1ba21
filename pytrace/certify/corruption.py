"""Paths that are wrong on purpose: with a factual error, incoherent, or misguided, each with a guarantee that it is so.

Entities are compared by the normal forms of their names, so that a second entity of the same name makes no wrong path right.
A path is read from its question's entities, triple by triple, each in either direction; what is called coherent has such a
reading, and what is called incoherent has none.
"""

# Source: section 3.1 and appendix A of the paper.

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from pytrace.certify.response_parsing import answers_match
from pytrace.certify.verdicts import walk
from pytrace.certify.wording import entities_named, name_of
from pytrace.check_records import GoldQuestion, Path
from pytrace.evaluation.data.padding import shuffled_indices
from pytrace.kg import KnowledgeBase, normal_form
from pytrace.kg.text_table import text_hash
from pytrace.records import Triple

InvalidKind = Literal["factual", "incoherent", "misguided"]
"""How a path was broken: an entity replaced, its triples in another order, or taken from another question."""

Corruption = Literal["strict", "random"]
"""With a guarantee that each path is invalid, or at random as in the paper."""

# All orders of six triples; a longer path is shuffled as often.
_ORDERS = 720


class GoldPath(msgspec.Struct, frozen=True):
    """A question's gold path as the graph has it: all triples are facts and lead from the question to an answer."""

    question: GoldQuestion
    path: Path
    pairs: tuple[tuple[str, str], ...]  # normal forms of each triple's head and tail
    starts: frozenset[str]  # those of the question's entities
    ends: frozenset[str]  # those of all entities that some reading ends in
    answer: str  # the name of the end that is a gold answer


class InvalidPath(msgspec.Struct, frozen=True):
    """A path that is no valid one for its question, and what was done to get it."""

    kind: InvalidKind
    question_id: str
    path: Path  # by keys, as `gold` is
    gold: Path
    changed: tuple[int, ...]  # where the two differ, from 0
    seed: int
    replaced: tuple[str, str] | None = None  # if factual: the keys of the entity that went and of the one that came
    source: str = ""  # if misguided: the id of the question that the path is of


class Refusal(msgspec.Struct, frozen=True):
    """Why a question has no path of a kind ("valid": no gold path that holds)."""

    question_id: str
    kind: Literal["valid", "factual", "incoherent", "misguided"]
    reason: str


def read_gold(base: KnowledgeBase, question: GoldQuestion) -> GoldPath | Refusal:
    """Find the first of a question's gold paths that the graph bears out."""
    reason = "there is no gold path"
    for path in question.paths:
        gold = _read(base, question, path)
        if isinstance(gold, GoldPath):
            return gold
        reason = gold
    return Refusal(question.id, "valid", reason)


def _read(base: KnowledgeBase, question: GoldQuestion, path: Path) -> GoldPath | str:
    """Return a path as the graph has it, or why it does not."""
    if not path:
        return "a gold path is empty"
    for triple in path:
        if base.number(triple) is None:
            return f"a gold path holds {triple.text}, which is no fact of the graph"
    names = {key: name_of(base, key) for key in _entities(path)}
    pairs = tuple((_form(names[triple.head]), _form(names[triple.tail])) for triple in path)
    if question.topics:
        starts = frozenset(_form(name_of(base, topic)) for topic in question.topics)
    else:
        # The ends of the first triple that the second does not share: its head if it stands alone, both if in doubt.
        first = frozenset(pairs[0])
        starts = frozenset(pairs[0][:1]) if len(pairs) == 1 else (first - frozenset(pairs[1])) or first
    ends = readings(pairs, starts)
    if not ends:
        return "no reading of a gold path leads on from the question's entities"
    reached = [name for name in names.values() if _form(name) in ends]
    answer = next((name for name in reached if answers_match(name, question.answers)), None)
    if answer is None and question.answers:
        return f"a gold path ends in {reached[0]}, which is none of the answers"
    return GoldPath(question, path, pairs, starts, ends, answer or reached[0])


def _entities(path: Path) -> list[str]:
    return list(dict.fromkeys(key for triple in path for key in (triple.head, triple.tail)))


def readings(pairs: Sequence[tuple[str, str]], starts: frozenset[str]) -> frozenset[str]:
    """Return all entities that a path can end in, read in its order from some entities, each triple in either direction."""
    walked = walk(pairs, starts)
    return walked.ends if walked.coherent and not walked.strays else frozenset()


def replace_entity(base: KnowledgeBase, gold: GoldPath, *, seed: int) -> InvalidPath | Refusal:
    """Put another entity in the place of one of a path's, wherever that stands in it: a path with a factual error."""
    # "By randomly corrupting entities within the valid reasoning path" (section 3.1).
    draw = _random(seed, "factual", gold)
    keys = _entities(gold.path)
    draw.shuffle(keys)
    forms = {form for pair in gold.pairs for form in pair}
    partners = {key: _partners(base, gold.path, key) for key in keys}
    for key, number in _substitutes(base, gold.path, keys, draw):
        # The first check is of the entity alone, since to look for its namesakes costs more than most need.
        if _form(base.columns.entity_names[number]) in forms or _joined(base, number, partners[key]):
            continue
        new = base.columns.entity_keys[number]
        same = _namesakes(base, new)
        # Where the path joins the old entity to itself, the new one must not be joined to itself.
        loop = any(triple.head == triple.tail == key for triple in gold.path)
        if not any(_joined(base, entity, partners[key] | same if loop else partners[key]) for entity in same):
            return _invalid("factual", gold, _replaced(gold.path, key, new), seed, replaced=(key, new))
    reason = (
        "every other entity of the graph has the name of one in the path, or is joined to the path by some relation"
    )
    return Refusal(gold.question.id, "factual", reason)


def shuffle_triples(gold: GoldPath, *, seed: int) -> InvalidPath | Refusal:
    """Put a path's triples in an order in which they cannot be read from the question's entities: an incoherent path."""
    # "We shuffle the triples of valid paths" (section 3.1), which may give a coherent path again.
    if len(gold.path) < 2:
        return Refusal(gold.question.id, "incoherent", "a path of one triple has no other order")
    for order in _orders(_random(seed, "incoherent", gold), len(gold.path)):
        if not readings([gold.pairs[index] for index in order], gold.starts):
            return _invalid("incoherent", gold, tuple(gold.path[index] for index in order), seed)
    return Refusal(
        gold.question.id, "incoherent", "the path can be read from the question's entities in other orders, too"
    )


def take_other_path(gold: GoldPath, others: Sequence[GoldPath], *, seed: int) -> InvalidPath | Refusal:
    """Take the gold path of another question: a misguided path."""
    # "We randomly sample the paths starting from other questions" (section 3.1).
    for index in shuffled_indices(_random(seed, "misguided", gold), len(others)):
        other = others[index]
        if other.question.id != gold.question.id and _apart(gold, other):
            return _invalid("misguided", gold, other.path, seed, source=other.question.id)
    reason = f"each of {len(others)} gold paths holds an entity of the question or ends in one of its answers"
    return Refusal(gold.question.id, "misguided", reason)


def corrupt_at_random(
    base: KnowledgeBase, gold: GoldPath, others: Sequence[GoldPath], *, seed: int
) -> list[InvalidPath]:
    """Make a path of each kind as the paper does, without any guarantee that it is invalid.

    One entity of the path becomes any other of the graph, the triples come in any other order, and the path of any other question
    is taken. What cannot be made (a path of one triple has no other order) is left out.
    """
    # "By randomly corrupting entities", "we shuffle the triples", "we randomly sample the paths" (section 3.1).
    made = []
    draw = _random(seed, "factual", gold)
    old = draw.choice(_entities(gold.path))
    keys = base.columns.entity_keys
    new = old
    while new == old and len(keys) > 1:
        new = keys[draw.randrange(len(keys))]
    if new != old:
        path = _replaced(gold.path, old, new)
        made.append(_invalid("factual", gold, path, seed, replaced=(old, new)))
    orders = [
        order
        for order in _orders(_random(seed, "incoherent", gold), len(gold.path))
        if order != tuple(range(len(order)))
    ]
    if orders:
        made.append(_invalid("incoherent", gold, tuple(gold.path[index] for index in orders[0]), seed))
    rest = [other for other in others if other.question.id != gold.question.id]
    if rest:
        other = _random(seed, "misguided", gold).choice(rest)
        made.append(_invalid("misguided", gold, other.path, seed, source=other.question.id))
    return made


def _replaced(path: Path, old: str, new: str) -> Path:
    return tuple(
        Triple(new if triple.head == old else triple.head, triple.relation, new if triple.tail == old else triple.tail)
        for triple in path
    )


def _invalid(
    kind: InvalidKind,
    gold: GoldPath,
    path: Path,
    seed: int,
    *,
    replaced: tuple[str, str] | None = None,
    source: str = "",
) -> InvalidPath:
    pairs = enumerate(itertools.zip_longest(path, gold.path))
    changed = tuple(index for index, (new, old) in pairs if new != old)
    return InvalidPath(kind, gold.question.id, path, gold.path, changed, seed, replaced, source)


def _apart(gold: GoldPath, other: GoldPath) -> bool:
    if gold.starts & {form for pair in other.pairs for form in pair}:
        return False
    ends = readings(other.pairs, other.starts | frozenset(other.pairs[0]))
    return not ends & gold.ends and not any(answers_match(end, gold.question.answers) for end in ends)


def _form(name: str) -> str:
    return normal_form(name) or name


def _random(seed: int, kind: InvalidKind, gold: GoldPath) -> random.Random:
    """Return chance that depends on nothing but the seed, the kind and the question, so that kinds can be left out."""
    return random.Random(text_hash(f"{seed}\n{kind}\n{gold.question.id}"))


def _orders(draw: random.Random, count: int) -> Iterator[Sequence[int]]:
    if count <= 6:
        orders = list(itertools.permutations(range(count)))
        draw.shuffle(orders)
        yield from orders
        return
    for _ in range(_ORDERS):
        yield draw.sample(range(count), count)


def _substitutes(
    base: KnowledgeBase, path: Path, keys: Sequence[str], draw: random.Random
) -> Iterator[tuple[str, int]]:
    """Iterate over (old key, number of an entity) in random order, those of the same type first and in the end all."""
    alike = {key: _alike(base, path, key) for key in keys}
    everything = range(len(base.columns.entity_keys))
    # The more alike the new entity is, the less the path gives away that it was changed.
    pools: tuple[Callable[[str], Sequence[int] | NDArray[np.int32]], ...] = (
        lambda key: functools.reduce(np.intersect1d, alike[key]),
        lambda key: functools.reduce(np.union1d, alike[key]),
        lambda _: everything,
    )
    for pool in pools:
        for key in keys:
            numbers = pool(key)
            for index in shuffled_indices(draw, len(numbers)):
                yield key, int(numbers[index])


def _alike(base: KnowledgeBase, path: Path, key: str) -> list[NDArray[np.int32]]:
    """Return for each end of a relation at which an entity stands in a path all entities that stand there in the graph."""
    ends = set()
    for triple in path:
        relation = base.relation(triple.relation)
        assert relation is not None  # a gold path consists of facts
        ends |= {(relation, column) for column, end in ((0, triple.head), (2, triple.tail)) if end == key}
    triples = base.columns.triples
    return [np.unique(triples[triples[:, 1] == relation, column]) for relation, column in sorted(ends)]


def _partners(base: KnowledgeBase, path: Path, key: str) -> set[int]:
    """Return the entities that stand opposite to one in a path, without itself, and their namesakes."""
    opposite = {
        other
        for triple in path
        for other, end in ((triple.head, triple.tail), (triple.tail, triple.head))
        if end == key and other != key
    }
    return {number for other in opposite for number in _namesakes(base, other)}


def _namesakes(base: KnowledgeBase, key: str) -> set[int]:
    """Return the numbers of all entities whose names have the same words as that of an entity of the graph."""
    number = base.entity(key)
    return {*entities_named(base, name_of(base, key)), *(() if number is None else (number,))}


def _joined(base: KnowledgeBase, entity: int, others: set[int]) -> bool:
    """Say whether any triple joins an entity to one of some others, in either direction."""
    triples = base.columns.triples
    wanted = list(others)
    return bool(
        np.isin(triples[base.with_head(entity), 2], wanted).any()
        or np.isin(triples[base.with_tail(entity), 0], wanted).any()
    )
