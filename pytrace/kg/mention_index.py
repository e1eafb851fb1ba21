"""Where texts name entities word for word: all names of a graph are looked up at every place of all texts at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from pytrace.kg.names import tokens
from pytrace.kg.text_table import text_hash

# A longer name is a sentence that nobody repeats word for word.
_LONGEST = 16
# Odd, so that multiplication loses no bit; the fractional part of the golden ratio.
_MIX = np.uint64(0x9E3779B97F4A7C15)


class Mention(NamedTuple):
    """A place in a text's normal form that is some entities' name: ``form[start:end]``, and their numbers."""

    start: int
    end: int
    entities: tuple[int, ...]


class MentionIndex(msgspec.Struct, frozen=True, eq=False):
    """The names of entities by a hash of their words: `hashes` uint64 [n] ascending, `entities` int32 [n] beside them.

    `beginnings` uint64 [m] ascending are the hashes of the first words of names, one or more but not all, so that a place at
    which no name begins is soon passed over.
    Entities with the same normal form share a hash; two forms share one of 64 bits only by an accident of 1 in 10^7 for
    10^6 names.
    """

    hashes: NDArray[np.uint64]
    entities: NDArray[np.int32]
    beginnings: NDArray[np.uint64]
    longest: int

    @classmethod
    def of(cls, names: Iterable[str], aliases: Iterable[tuple[str, int]] = ()) -> MentionIndex:
        """Index names, of which entity i has the i-th, and other names of entities, by their numbers."""
        words = [tokens(name) for name in names]
        numbers = np.arange(len(words), dtype=np.int32)
        others = {(tuple(tokens(alias)), entity) for alias, entity in aliases}
        further = [(row, entity) for row, entity in sorted(others) if list(row) != words[entity]]
        words += [list(row) for row, _ in further]
        numbers = np.append(numbers, np.array([entity for _, entity in further], dtype=np.int32))
        sizes = np.fromiter(map(len, words), dtype=np.int64, count=len(words))
        values, starts = _hashed(words)
        hashes = np.zeros(len(words), dtype=np.uint64)
        begun: list[NDArray[np.uint64]] = []
        usable = np.flatnonzero((sizes > 0) & (sizes <= _LONGEST))
        longest = int(sizes[usable].max(initial=0))
        for size in range(longest):
            there = usable[sizes[usable] > size]
            hashes[there] = (hashes[there] ^ values[starts[there] + size]) * _MIX
            begun.append(np.unique(hashes[there[sizes[there] > size + 1]]))
        order = usable[np.argsort(hashes[usable], kind="stable")]
        beginnings = np.unique(np.concatenate(begun)) if begun else np.empty(0, dtype=np.uint64)
        return cls(hashes[order], numbers[order], beginnings, longest)

    def find(self, texts: Sequence[str]) -> list[list[Mention]]:
        """Find the names in each text, by start in its normal form, without those that lie within a longer one."""
        words = [tokens(text) for text in texts]
        values, starts = _hashed(words)
        mentions: list[list[Mention]] = [[] for _ in texts]
        if not len(values) or not len(self.hashes):
            return mentions
        counts = np.diff(np.append(starts, len(values)))
        last = np.repeat(starts + counts, counts)  # of each word's text
        rolling = np.zeros(len(values), dtype=np.uint64)
        covered = np.zeros(len(values), dtype=np.int64)
        hits: list[tuple[NDArray[np.int64], int, NDArray[np.int64]]] = []
        starts_at = np.arange(len(values))
        for size in range(1, self.longest + 1):
            starts_at = starts_at[starts_at + size <= last[starts_at]]
            rolling[starts_at] = (rolling[starts_at] ^ values[starts_at + size - 1]) * _MIX
            rows, there = _look_up(self.hashes, rolling[starts_at])
            if there.any():
                hits.append((starts_at[there], size, rows[there]))
                covered[starts_at[there]] = size
            starts_at = starts_at[_look_up(self.beginnings, rolling[starts_at])[1]]
        # A mention lies within another if one that starts no later ends no earlier. What reaches farthest before a word may
        # be of another text, but then it ends before this one begins.
        reach = np.concatenate([[0], np.maximum.accumulate(np.arange(len(values)) + covered)[:-1]])
        offsets = _character_offsets(words)
        lengths = np.fromiter((len(word) for row in words for word in row), dtype=np.int64, count=len(values))
        texts_of = np.repeat(np.arange(len(texts)), counts)
        shared: dict[int, tuple[int, ...]] = {}  # the entities of a name that many have, by its first row
        for at, size, rows in hits:
            kept = (covered[at] == size) & (reach[at] < at + size)
            starts_at, lower = at[kept], rows[kept]
            upper = np.searchsorted(self.hashes, self.hashes[lower], side="right")
            final = starts_at + size - 1
            columns = (
                texts_of[starts_at],
                offsets[starts_at],
                offsets[final] + lengths[final],
                lower,
                upper,
                self.entities[lower],
            )
            for text, start, end, first, after, entity in zip(*(column.tolist() for column in columns), strict=True):
                entities: tuple[int, ...] = (entity,)
                if after > first + 1:
                    if first not in shared:
                        shared[first] = tuple(self.entities[first:after].tolist())
                    entities = shared[first]
                mentions[text].append(Mention(start, end, entities))
        for row_of in mentions:
            row_of.sort()
        return mentions


def _look_up(table: NDArray[np.uint64], hashes: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return where each hash stands, or would stand, in an ascending table, and whether it does."""
    rows = np.searchsorted(table, hashes)
    if not len(table):
        return rows, np.zeros(len(hashes), dtype=np.bool_)
    return rows, table[np.minimum(rows, len(table) - 1)] == hashes


def _hashed(words: Sequence[Sequence[str]]) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Return the hash of every word, and where each text's words start."""
    known = {word: text_hash(word) for word in set().union(*words)}
    sizes = np.fromiter(map(len, words), dtype=np.int64, count=len(words))
    starts = np.cumsum(sizes) - sizes
    values = np.fromiter((known[word] for row in words for word in row), dtype=np.uint64, count=int(sizes.sum()))
    return values, starts


def _character_offsets(words: Sequence[Sequence[str]]) -> NDArray[np.int64]:
    """Return where each word starts in its text's normal form."""
    sizes = np.fromiter((len(word) + 1 for row in words for word in row), dtype=np.int64)
    before = np.cumsum(sizes) - sizes
    counts = np.fromiter(map(len, words), dtype=np.int64, count=len(words))
    firsts = np.cumsum(counts) - counts
    shift = np.repeat(before[np.minimum(firsts, max(len(before) - 1, 0))], counts) if len(before) else before
    offsets: NDArray[np.int64] = before - shift
    return offsets
