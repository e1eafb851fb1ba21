"""What passages have in common: their words' frequencies, the names that they are known by, and who holds whose name.

A passage links to another if it holds a name of it. A link weighs less the more passages have the name, and the more mention it.
Links are not kept: those of a passage follow from the names that it holds and has, and from who has and who holds each of them.

Names are those that authors gave (titles, headings), and those that a passage's beginning gives; a single word of the second
kind is a name only where few passages have it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pytrace import _core
from pytrace.kernels.names import FoundNames, NameTable
from pytrace.retrieval.passages.manifest import FileEntry, IndexFile
from pytrace.retrieval.passages.mentions import KnownGraph, find_mentions
from pytrace.retrieval.passages.ragged import Lists, grouped, narrow, paired, places_among, starts_of
from pytrace.retrieval.passages.segment import Segment
from pytrace.storage.array_file import write_arrays

# A name of more passages leads nowhere.
_MOST_CARRIERS = 100
# A single word that only the text gives is no name where more passages have it: a share of all, and at least so many.
_COMMON_SHARE, _COMMON_LEAST = 0.003, 5
_SPACE = ord(" ")


class Links(NamedTuple):
    """The links of some passages: those of number `i` stand from ``offsets[i]`` to ``offsets[i + 1]``.

    `rows` are the passages at the other end, int32, rising within each list; `forth` and `back`, float32, are the weights of the link to
    it and of the one back, 0 where there is none; `names`, int32, are the names that make them, that of the link forth if there is one.
    """

    offsets: NDArray[np.int64]
    rows: NDArray[np.int32]
    forth: NDArray[np.float32]
    back: NDArray[np.float32]
    names: NDArray[np.int32]


class _Ends(NamedTuple):
    """Where links from passages end: pairs of a passage's place and a row as one number each, rising, with weights and names."""

    pairs: NDArray[np.int64]
    weights: NDArray[np.float32]
    names: NDArray[np.int32]


def write_graph(path: Path, segments: Sequence[Segment], before: Graph | None = None) -> FileEntry:
    """Compute what the passages of segments have in common, and write it; `before` is the graph that is there, and what it knows."""
    passages = sum(segment.passages for segment in segments)
    terms, frequencies, word_ids = _words(segments)
    texts = [(segment["names"], segment.offsets("names")) for segment in segments]
    ends = np.cumsum([0, *(len(text) for text, _ in texts)])
    table, names = NameTable.of(
        np.concatenate([np.empty(0, np.uint8), *(text for text, _ in texts)]),
        np.concatenate(
            [np.zeros(1, np.int64), *(offsets[1:] + end for (_, offsets), end in zip(texts, ends, strict=False))]
        ),
    )
    known = None if before is None else KnownGraph.of(before, table)
    words = _name_words(table, terms, known)
    firsts = np.cumsum([0, *(segment.passages for segment in segments)])
    rows = np.concatenate(
        [
            np.empty(0, np.int64),
            *(segment["names.rows"] + first for segment, first in zip(segments, firsts, strict=False)),
        ]
    )
    told = np.concatenate([np.empty(0, bool), *(segment["names.told"] for segment in segments)])
    common = told & _is_common(table, words, frequencies, max(_COMMON_LEAST, _COMMON_SHARE * passages))[names]
    carriers = grouped(names[~common], rows[~common], len(table))
    mentions = find_mentions(segments, table, np.diff(carriers.offsets) > 0, known)
    entry = write_arrays(
        path,
        {
            "words": terms,
            "frequencies": frequencies,
            **{f"word_ids.{number}": ids for number, ids in enumerate(word_ids)},
            "names.hashes": table.hashes,
            "names.text": table.text,
            "names.offsets": table.offsets,
            "names.firsts": table.firsts,
            "names.lengths": table.lengths,
            **_stored("name_words", words),
            **_stored("carriers", carriers),
            **_stored("passage_names", Lists(starts_of(np.bincount(rows, minlength=passages)), names)),
            **_stored("mentions", mentions),
            **_stored("holders", grouped(mentions.values, mentions.owners, len(table))),
        },
    )
    return FileEntry(entry.bytes, entry.checksum, path.name, passages)


def _words(segments: Sequence[Segment]) -> tuple[NDArray[np.uint64], NDArray[np.int32], list[NDArray[np.int32]]]:
    """Return the words of all segments, how many passages have each, and which of them each segment's terms are."""
    of_each = [segment["words.terms"] for segment in segments]
    terms = np.sort(np.concatenate([np.empty(0, np.uint64), *of_each]))
    terms = terms[np.diff(terms, prepend=~terms[:1]) != 0]
    frequencies = np.zeros(len(terms), dtype=np.int64)
    ids = []
    for segment, own in zip(segments, of_each, strict=True):
        numbers = np.searchsorted(terms, own)
        counts = np.concatenate([np.empty(0, np.int64), *(np.diff(block.starts) for block in segment.blocks)])
        np.add.at(frequencies, numbers, counts)
        ids.append(numbers.astype(np.int32))
    return terms, frequencies.astype(np.int32), ids


def _name_words(table: NameTable, terms: NDArray[np.uint64], known: KnownGraph | None) -> Lists:
    """Return the words of each name, each once: their numbers, -1 where no passage has it."""
    before = Lists(np.zeros(1, np.int64), np.empty(0, np.int64))
    # Of each name the list that has its words: of the graph before, or behind those of what is new.
    numbers = np.full(len(table), -1)
    if known is not None:
        before = known.graph.name_words
        now = np.append(places_among(terms, known.graph["words"]), -1)
        # What no passage had may be there now.
        complete = np.logical_and.reduceat(before.values >= 0, before.offsets[:-1]) & (known.numbers >= 0)
        numbers[known.numbers[complete]] = np.flatnonzero(complete)
        before = Lists(before.offsets, now[before.values])
    new = np.flatnonzero(numbers < 0)
    names = Lists(table.offsets, table.text).take(new)
    offsets, hashes = _core.hash_words(names.values, names.offsets, None)
    numbers[new] = len(before.offsets) - 1 + np.arange(len(new))
    return Lists(
        np.concatenate([before.offsets[:-1].astype(np.int64), len(before.values) + offsets]),
        np.concatenate([before.values, places_among(terms, hashes)]),
    ).take(numbers)


def _is_common(table: NameTable, words: Lists, frequencies: NDArray[np.int32], most: float) -> NDArray[np.bool_]:
    """Tell which names are a single word that more than `most` passages have."""
    if not len(table):
        return np.zeros(0, dtype=bool)
    single = ~np.logical_or.reduceat(table.text == _SPACE, table.offsets[:-1])
    word = words.values[words.offsets[:-1]]
    of_word = np.where(word >= 0, np.append(frequencies, 0)[word], 0)
    common: NDArray[np.bool_] = single & (of_word > most)
    return common


def _stored(name: str, lists: Lists) -> dict[str, NDArray[Any]]:
    return {f"{name}.starts": narrow(lists.offsets), name: lists.values.astype(np.int32)}


class Graph(IndexFile):
    """The file that `write_graph` wrote, over segments in the same order."""

    def __init__(self, directory: Path, entry: FileEntry, segments: Sequence[Segment]) -> None:
        super().__init__(directory, entry)
        self.segments = segments
        if len(self["mentions.starts"]) != self.passages + 1 or self.passages != sum(
            each.passages for each in segments
        ):
            raise self.damaged(f"it is not of {self.passages:,} passages")

    @cached_property
    def table(self) -> NameTable:
        """The names of passages, those included that nothing is found by."""
        parts = ("hashes", "text", "offsets", "firsts", "lengths")
        return NameTable(*(self[f"names.{part}"] for part in parts))

    @cached_property
    def carriers(self) -> Lists:
        """The passages that each name leads to; none, where it is too common."""
        return self._lists("carriers")

    @cached_property
    def mentions(self) -> Lists:
        """The names that each passage holds."""
        return self._lists("mentions")

    @cached_property
    def holders(self) -> Lists:
        """The passages that hold each name."""
        return self._lists("holders")

    @cached_property
    def passage_names(self) -> Lists:
        """The names of each passage."""
        return self._lists("passage_names")

    @cached_property
    def name_words(self) -> Lists:
        """The numbers of the words of each name, each once; -1 where no passage has it."""
        return self._lists("name_words")

    def _lists(self, name: str) -> Lists:
        return Lists(self[f"{name}.starts"], self[name])

    def links(self, rows: NDArray[np.int64]) -> Links:
        """Return the links of passages, to others and back; of several names between two passages the weightiest counts."""
        owners, names, owned = self._leading(rows, self.mentions)
        forth = self._ends(owners[~owned], names[~owned], self.carriers)
        owners, names, owned = self._leading(rows, self.passage_names)
        back = self._ends(owners[owned], names[owned], self.holders, but=self.carriers)
        pairs, places = np.unique(np.concatenate([forth.pairs, back.pairs]), return_inverse=True)
        there, here = np.split(places, [len(forth.pairs)])
        weights, named = np.zeros((2, len(pairs)), dtype=np.float32), np.empty(len(pairs), dtype=np.int32)
        weights[0, there], weights[1, here] = forth.weights, back.weights
        named[here], named[there] = back.names, forth.names
        offsets = np.searchsorted(pairs, np.arange(len(rows) + 1) << 32)
        return Links(offsets, pairs.astype(np.int32), weights[0], weights[1], named)

    def find(self, texts: Sequence[str]) -> FoundNames:
        """Find the names in texts, which are in normal form, that lead to passages."""
        found = self.table.find(texts)
        leads = self.carriers.sizes(found.names) > 0
        offsets = starts_of(leads)[found.offsets]
        return FoundNames(offsets, found.names[leads], found.starts[leads], found.ends[leads])

    def link_name(self, first: int, second: int) -> str:
        """Return the name by which a passage is linked to another, or else that one to it; "" if neither is."""
        for source, target in ((first, second), (second, first)):
            held = {*self._list(self.mentions, source)}
            between = []
            for name in held.intersection(self._list(self.passage_names, target)):
                carriers = self._list(self.carriers, name)
                if len(carriers) <= _MOST_CARRIERS and target in carriers and source not in carriers:
                    between.append(name)
            if between:
                names = np.sort(between)
                return self.table.name(int(names[np.argmax(self._weights(names))]))
        return ""

    def _leading(
        self, rows: NDArray[np.int64], lists: Lists
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
        """Return the names in the lists of passages that lead somewhere: numbers in `rows`, names, and whether it is of the passage.

        The weightiest names come first, and of equal ones the lower.
        """
        found = lists.take(rows)
        owners, names = found.owners, found.values.astype(np.int64)
        few = self.carriers.sizes(names) <= _MOST_CARRIERS
        owners, names = owners[few], names[few]
        order = np.lexsort((names, -self._weights(names)))
        owners, names = owners[order], names[order]
        carriers = self.carriers.take(names)
        number = carriers.owners
        owned = np.zeros(len(names), dtype=bool)
        owned[number[carriers.values == rows[owners][number]]] = True
        return owners, names, owned

    def _ends(
        self, owners: NDArray[np.int64], names: NDArray[np.int64], lists: Lists, *, but: Lists | None = None
    ) -> _Ends:
        """Return where names lead from passages, by lists of passages without those in others, each once, by its first name."""
        found = lists.take(names)
        number, rows = found.owners, found.values
        if but is not None:
            others = but.take(names)
            kept = places_among(paired(others.owners, others.values), paired(number, rows)) < 0
            number, rows = number[kept], rows[kept]
        pairs, first = np.unique(paired(owners[number], rows), return_index=True)
        return _Ends(pairs, self._weights(names)[number[first]], names[number[first]].astype(np.int32))

    def _weights(self, names: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return what a link by each name weighs; no name that nobody carries makes one."""
        carried = np.maximum(self.carriers.sizes(names), 1)
        weights: NDArray[np.float32] = (1 / carried / np.log2(2 + self.holders.sizes(names))).astype(np.float32)
        return weights

    def _list(self, lists: Lists, number: int) -> list[int]:
        values: list[int] = lists.values[int(lists.offsets[number]) : int(lists.offsets[number + 1])].tolist()
        return values
