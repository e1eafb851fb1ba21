"""Which passages hold which names: looked up in their texts, or taken over from the graph before where nothing can have changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pytrace.kernels.names import NameTable
from pytrace.retrieval.passages.names import normal_form
from pytrace.retrieval.passages.ragged import Lists, places_among
from pytrace.retrieval.passages.segment import Segment
from pytrace.retrieval.word_postings import word_hashes

# Texts that are looked through at once.
_AT_ONCE = 8192
# With more new names than this, or than a twentieth of the passages, all texts are looked through anew: it takes no longer.
_MOST_NEW = 1_000


class Mentions(NamedTuple):
    """Pairs of a passage and a name that it holds, rising and each once: int64 ``[n]`` both."""

    passages: NDArray[np.int64]
    names: NDArray[np.int64]


class Known(NamedTuple):
    """The mentions of a graph that is to be replaced: of its passages, by a hash of their text each, and its names."""

    contents: NDArray[np.uint64]
    table: NameTable
    mentions: Mentions


def find_mentions(segments: Sequence[Segment], table: NameTable, known: Known | None = None) -> Mentions:
    """Find the names that the passages of segments hold.

    Parameters
    ----------
    segments
        The passages.
    table
        All names.
    known
        What was found before, with other names and passages perhaps. Texts are looked through that are new, that held a name which
        is none any more, or that have all words of a name which is new; what was found elsewhere still holds.
    """
    count = sum(segment.passages for segment in segments)
    kept, anew = Mentions(np.empty(0, np.int64), np.empty(0, np.int64)), np.ones(count, dtype=bool)
    if known is not None:
        kept, anew = _taken_over(segments, table, known, count)
    passages, names = [kept.passages], [kept.names]
    first = 0
    for segment in segments:
        rows = np.flatnonzero(anew[first : first + segment.passages])
        for start in range(0, len(rows), _AT_ONCE):
            some = rows[start : start + _AT_ONCE]
            found = table.find([normal_form(segment.document(row).text) for row in some.tolist()])
            passages.append(first + np.repeat(some, np.diff(found.offsets)))
            names.append(found.names)
        first += segment.passages
    return Mentions(*distinct_pairs(np.concatenate(passages), np.concatenate(names)).T)


def distinct_pairs(left: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return pairs of numbers, rising and each once, int64 ``[n, 2]``."""
    width = int(right.max(initial=0)) + 1
    keys = np.unique(left * width + right)
    return np.stack([keys // width, keys % width], axis=1)


def _taken_over(
    segments: Sequence[Segment], table: NameTable, known: Known, count: int
) -> tuple[Mentions, NDArray[np.bool_]]:
    """Return the mentions that still hold, and which texts must be looked through."""
    anew = np.ones(count, dtype=bool)
    none = Mentions(np.empty(0, np.int64), np.empty(0, np.int64))
    # Names that share a hash could not be told apart by it.
    if any(len(hashes) > 1 and (hashes[1:] == hashes[:-1]).any() for hashes in (table.hashes, known.table.hashes)):
        return none, anew
    renamed = places_among(table.hashes, known.table.hashes)
    new = np.ones(len(table), dtype=bool)
    new[renamed[renamed >= 0]] = False
    if new.sum() > max(_MOST_NEW, count // 20):
        return none, anew
    contents = np.concatenate([np.empty(0, np.uint64), *(segment["contents"] for segment in segments)])
    order = np.argsort(known.contents, kind="stable")
    before = places_among(known.contents[order], contents)
    before[before >= 0] = order[before[before >= 0]]
    anew = before < 0
    # A longer name that is new hides a shorter one, and one that is gone shows another: such texts are looked through, too.
    lost = np.zeros(len(known.contents), dtype=bool)
    lost[known.mentions.passages[renamed[known.mentions.names] < 0]] = True
    anew[~anew] = lost[before[~anew]]
    for name in np.flatnonzero(new).tolist():
        first = 0
        hashes = word_hashes(dict.fromkeys(table.name(name).split()))
        for segment in segments:
            anew[first + _with_all(segment, hashes)] = True
            first += segment.passages
    starts = np.searchsorted(known.mentions.passages, np.arange(len(known.contents) + 1))
    rows = np.flatnonzero(~anew)
    taken = Lists(starts, known.mentions.names).take(before[rows])
    return Mentions(np.repeat(rows, np.diff(taken.offsets)), renamed[taken.values]), anew


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
