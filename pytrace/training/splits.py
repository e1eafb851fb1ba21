"""Hold examples out that ask about entities never seen in training, and write them as questions to be asked later."""

from __future__ import annotations

import os
import random
from collections.abc import Hashable, Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from pytrace.errors import InputError
from pytrace.kg.names import normal_form
from pytrace.kg.queries import write_query
from pytrace.storage.files import atomic_output
from pytrace.storage.text import storable
from pytrace.training.clauses import query_entities
from pytrace.training.training_records import QueryExample


def split_by_group(
    examples: Sequence[QueryExample], *, held_out: float, seed: int = 0
) -> tuple[list[QueryExample], list[QueryExample]]:
    """Split examples into training and held-out ones that share neither a group nor an entity."""
    # Examples that share either, directly or through others, stay together; such sets go to the held-out side in random
    # order, each where it still fits. So that side has at most the share asked for, and less where one set is large.
    if not 0 <= held_out < 1:  # NaN is in no range
        raise InputError(f"the share to hold out is {held_out}; choose it from 0 to below 1")
    if not examples:
        return [], []
    room = round(held_out * len(examples))
    sets = _tied(examples)
    order = list(range(len(sets)))
    random.Random(seed).shuffle(order)
    kept_out: set[int] = set()
    for number in order:
        if len(kept_out) + len(sets[number]) <= room:
            kept_out.update(sets[number])
    if held_out and not kept_out:
        smallest = min(map(len, sets))
        raise InputError(
            f"of {len(examples):,} examples {room:,} are to be held out, but the fewest that share no entity or group with others "
            f"are {smallest:,}; give more examples or another share"
        )
    sides: tuple[list[QueryExample], list[QueryExample]] = ([], [])
    for at, example in enumerate(examples):
        sides[at in kept_out].append(example)
    return sides


def write_questions(path: str | os.PathLike[str], examples: Iterable[QueryExample]) -> None:
    """Write examples as rows of one's own, in one step, so that `read_examples` and `pytrace eval` read them."""
    with atomic_output(Path(path)) as stream:
        for example in examples:
            row: dict[str, object] = {"id": storable(example.id), "question": storable(example.question)}
            if example.answers:
                row["answers"] = [storable(answer) for answer in example.answers]
            row["query"] = storable(write_query(example.query))
            row["group"] = storable(example.group)
            stream.write(msgspec.json.encode(row) + b"\n")


def _tied(examples: Sequence[QueryExample]) -> list[list[int]]:
    """Return the examples' numbers in sets that share nothing, by union-find over groups and entities."""
    parent = list(range(len(examples)))

    def root(at: int) -> int:
        while parent[at] != at:
            parent[at] = parent[parent[at]]
            at = parent[at]
        return at

    first: dict[Hashable, int] = {}
    for at, example in enumerate(examples):
        for key in _ties(example):
            parent[root(at)] = root(first.setdefault(key, at))
    sets: dict[int, list[int]] = {}
    for at in range(len(examples)):
        sets.setdefault(root(at), []).append(at)
    return list(sets.values())


def _ties(example: QueryExample) -> Iterator[Hashable]:
    yield "group", example.group
    for name in query_entities(example.query):
        yield "entity", normal_form(name)
