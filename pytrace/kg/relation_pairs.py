"""Which relations of a graph are symmetric, and which are each other's inverses, as its own triples show."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pytrace.kg.columns import Columns

# A graph states few of its facts twice: of PathQuestion's spouses 9 % stand in both directions, of its children 7 % also as
# parents, and of any other two relations none. Two couples may be an accident of some relation such as "influenced".
_LEAST_SHARE, _LEAST_PAIRS = 0.05, 4


class RelationPairs(NamedTuple):
    """Numbers of relations: those that hold both ways round, and for some those that say the same from the other end."""

    symmetric: frozenset[int]
    inverses: dict[int, frozenset[int]]


def relation_pairs(columns: Columns) -> RelationPairs:
    """Find the relations whose triples stand in a graph the other way round, too.

    A relation is the inverse of another (or of itself: symmetric) if at least 4 pairs of entities, and at least 5 % of the
    rarer one's, are joined by one in one direction and by the other in the other. Time is that of sorting the triples.
    """
    triples = columns.triples
    heads, relations, tails = (triples[:, column].astype(np.int64) for column in range(3))
    count = len(columns.entity_keys)
    apart = heads != tails
    # A pair of entities is one number; what stands in both directions has its number on both sides.
    forth, back = (heads * count + tails)[apart], (tails * count + heads)[apart]
    among = relations[apart]
    sizes = np.bincount(among, minlength=len(columns.relation_keys))
    order = np.argsort(forth, kind="stable")
    lower, upper = (np.searchsorted(forth[order], back, side=side) for side in ("left", "right"))
    met: dict[tuple[int, int], int] = {}
    for row in np.flatnonzero(upper > lower).tolist():
        for other in among[order[lower[row] : upper[row]]].tolist():
            pair = (int(among[row]), other)
            met[pair] = met.get(pair, 0) + 1
    inverse: dict[int, set[int]] = {}
    for (first, second), pairs in met.items():
        if pairs >= max(_LEAST_PAIRS, _LEAST_SHARE * _smaller(sizes, first, second)):
            inverse.setdefault(first, set()).add(second)
    symmetric = frozenset(relation for relation, others in inverse.items() if relation in others)
    return RelationPairs(symmetric, {relation: frozenset(others) for relation, others in inverse.items()})


def _smaller(sizes: NDArray[np.int64], first: int, second: int) -> int:
    return int(min(sizes[first], sizes[second]))
