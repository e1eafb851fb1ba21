"""Which passages hold which names: looked up in their texts, or taken over from the graph before where nothing can have changed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pytrace import _core
from pytrace.kernels.names import NameTable
from pytrace.retrieval.bm25 import spaced_words
from pytrace.retrieval.passages.ragged import LOW, Lists, Lookup, paired, places_among, starts_of
from pytrace.retrieval.passages.segment import Segment

if TYPE_CHECKING:
    from pytrace.retrieval.passages.graph import Graph

# Texts that are looked through at once.
_AT_ONCE = 8192
# With more new names than this, or than a twentieth of the passages, all texts are looked through anew: it takes no longer.
_MOST_NEW = 1_000


class KnownGraph(NamedTuple):
    """The graph that is to be replaced, and the number of each of its names in the table of the new one, -1 where it is none."""

    graph: Graph
    numbers: NDArray[np.int64]

    @classmethod
    def of(cls, graph: Graph, table: NameTable) -> KnownGraph | None:
        """Look its names up; None where names share a hash, and could not be told apart by it."""
        hashes = graph.table.hashes
        if any(len(each) > 1 and (each[1:] == each[:-1]).any() for each in (table.hashes, hashes)):
            return None
        return cls(graph, places_among(table.hashes, hashes))


def find_mentions(
    segments: Sequence[Segment], table: NameTable, wanted: NDArray[np.bool_], known: KnownGraph | None = None
) -> Lists:
    """Find the names that the passages of segments hold.

    Parameters
    ----------
    segments
        The passages.
    table, wanted
        All names, and which of them are looked for.
    known
        The graph that is there, of other names and passages perhaps. Texts are looked through that are new, that held a name which
        is none any more, or that have all words of a name which is new; what was found elsewhere still holds.

    Returns
    -------
    Lists
        The names of each passage, rising.
    """
    count = sum(segment.passages for segment in segments)
    kept, anew = np.empty(0, np.int64), np.ones(count, dtype=bool)
    if known is not None:
        kept, anew = _taken_over(segments, table, wanted, *known)
    pairs = [np.empty(0, np.int64)]
    first = 0
    for segment in segments:
        rows = np.flatnonzero(anew[first : first + segment.passages])
        for start in range(0, len(rows), _AT_ONCE):
            some = rows[start : start + _AT_ONCE]
            found = table.find([spaced_words(text) for text in segment.texts(some)])
            held = wanted[found.names]
            owners = first + np.repeat(some, np.diff(found.offsets))
            pairs.append(paired(owners[held], found.names[held]))
        first += segment.passages
    # A text may hold a name several times.
    looked_up = np.sort(np.concatenate(pairs))
    looked_up = looked_up[np.diff(looked_up, prepend=-1) != 0]
    every = np.insert(kept, np.searchsorted(kept, looked_up), looked_up)
    return Lists(starts_of(np.bincount(every >> 32, minlength=count)), every & LOW)


def _taken_over(
    segments: Sequence[Segment],
    table: NameTable,
    wanted: NDArray[np.bool_],
    before: Graph,
    numbers: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the mentions that still hold, passage and name in one number each, and which texts must be looked through."""
    rows_before = _rows_before(segments, before)
    anew = np.ones(len(rows_before), dtype=bool)
    stays = (np.diff(before.carriers.offsets) > 0) & np.append(wanted, False)[numbers]
    new = wanted.copy()
    new[numbers[stays]] = False
    if new.sum() > max(_MOST_NEW, len(rows_before) // 20):
        return np.empty(0, np.int64), anew
    # A longer name that is new hides a shorter one, and one that is gone shows another: such texts are looked through, too.
    lost = np.zeros(before.passages, dtype=bool)
    places = np.flatnonzero(~stays[before.mentions.values])
    lost[np.searchsorted(before.mentions.offsets, places, side="right") - 1] = True
    anew = (rows_before < 0) | lost[rows_before]
    names = Lists(table.offsets, table.text).take(np.flatnonzero(new))
    offsets, hashes = _core.hash_words(names.values, names.offsets, None)
    for start, end in pairwise(offsets.tolist()):
        first = 0
        for segment in segments:
            anew[first + _with_all(segment, hashes[start:end])] = True
            first += segment.passages
    rows = np.flatnonzero(~anew)
    taken = before.mentions.take(rows_before[rows])
    return paired(rows[taken.owners], numbers[taken.values]), anew


def _rows_before(segments: Sequence[Segment], before: Graph) -> NDArray[np.int64]:
    """Return where passages stood before, -1 where they are new: by the segments' files, or by what they say."""
    firsts: dict[str, int] = {}
    first = 0
    for segment in before.segments:
        firsts[segment.entry.name] = first
        first += segment.passages
    there = {segment.entry.name for segment in segments}
    gone = [segment for segment in before.segments if segment.entry.name not in there]
    contents = Lookup(np.concatenate([np.empty(0, np.uint64), *(segment["contents"] for segment in gone)]))
    rows_gone = np.concatenate(
        [np.empty(0, np.int64), *(firsts[segment.entry.name] + np.arange(segment.passages) for segment in gone)]
    )
    parts = [np.empty(0, np.int64)]
    for segment in segments:
        if segment.entry.name in firsts:
            parts.append(firsts[segment.entry.name] + np.arange(segment.passages))
            continue
        rows = np.full(segment.passages, -1, dtype=np.int64)
        numbers, places = contents.find(segment["contents"])
        rows[numbers] = rows_gone[places]
        parts.append(rows)
    return np.concatenate(parts)


def _with_all(segment: Segment, hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return the passages of a segment that have all of some words."""
    found: list[NDArray[Any]] = []
    first = 0
    for block in segment.blocks:
        at = places_among(block.terms, hashes)
        if (at >= 0).all():
            sizes = block.starts[at + 1] - block.starts[at]
            rows: NDArray[Any] | None = None
            # The rarest word first, so that few rows are looked for among others.
            for place in at[np.argsort(sizes, kind="stable")].tolist():
                held = block.rows[int(block.starts[place]) : int(block.starts[place + 1])]
                rows = held if rows is None else rows[np.isin(rows, held, assume_unique=True)]
            if rows is not None:
                found.append(rows.astype(np.int64) + first)
        first += len(block.lengths)
    return np.concatenate([np.empty(0, np.int64), *found])
