"""Whether grounded steps hang together and lead to the answer: a walk over the graph, triple by triple."""

# Source: section 3.2.2 and Algorithm 2 of the paper.

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Generic, TypeVar

import msgspec

Entity = TypeVar("Entity", int, str)
"""An entity's number, or its name where entities of one name are one."""


class Walk(msgspec.Struct, Generic[Entity], frozen=True):
    """A walk along triples: for each whether it goes on from the last, where the walk can end, and what is wrong.

    `strays` is true if topics were given and no triple touches one; then the walk starts where it likes. `starts` are the entities from
    which further chains begin, and those that the first began from if there are any: such a walk compares its chains.
    """

    follows: tuple[bool, ...]
    ends: frozenset[Entity]
    strays: bool
    starts: frozenset[Entity] = frozenset()

    @property
    def coherent(self) -> bool:
        """Whether every triple goes on from the last."""
        return all(self.follows)


def walk(
    triples: Sequence[tuple[Entity, Entity] | None],
    topics: Collection[Entity] = (),
    *,
    compared: Collection[Entity] = (),
) -> Walk[Entity]:
    """Walk along triples, each by its head and tail, in their order and each in either direction.

    Where `compared` are entities that the question compares, a further chain may begin at each at which none began; then the walk ends
    where any of its chains does.
    """
    # The premise of each triple must be what the last one concluded, and that of the first an entity of the question. A
    # graph states a fact in one direction (x, child, y) and a step may say it in the other ("y is a child of x"), so
    # either end of a triple may be its premise, and the other is what it concludes. A triple with the ends of the one
    # before may say the same again or lead back: both are read. After a triple that does not follow, the walk goes on
    # from either of its ends, so that one gap is told once.
    # Algorithm 2 compares each head with the tail before; the authors' program reads triples in either direction, and
    # the first one from either end. That makes a path of two triples coherent when it is told backwards, from the
    # answer to the question, so the question's entities count here.
    starts = set(topics)
    strays = bool(starts) and not any(starts & set(ends) for ends in triples if ends is not None)
    follows = []
    reached: set[Entity] = set() if strays else starts
    anywhere = not reached
    last: tuple[Entity, Entity] | None = None
    begun: set[Entity] = set()  # of `compared`, where chains began
    begins: set[Entity] = set()
    ended: set[Entity] = set()  # the ends of the chains before this one
    for ends in triples:
        if ends is None:
            follows.append(True)
            reached, anywhere, last = set(), True, None
            continue
        head, tail = ends
        if last is None:
            begun = {head, tail} & set(compared)
        if last is not None and {head, tail} == set(last) and follows[-1]:
            follows.append(True)
            reached = reached | {head, tail}
            continue
        onward = {tail} if anywhere or head in reached else set()
        if anywhere or tail in reached:
            onward.add(head)
        fresh = {head, tail} & set(compared) - begun
        if not onward and fresh and last is not None and begun:
            ended |= reached
            begins |= begun | fresh
            begun |= fresh
            onward = {end for end, other in ((tail, head), (head, tail)) if other in fresh}
        follows.append(bool(onward))
        reached = onward or {head, tail}
        anywhere = False
        last = (head, tail)
    return Walk(tuple(follows), frozenset(reached | ended if triples else ()), strays, frozenset(begins))
