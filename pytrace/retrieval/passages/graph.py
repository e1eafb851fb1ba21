"""What passages have in common: their words' frequencies, the names that they are known by, and the links among them.

A passage links to another if it holds a name of it. A link weighs less the more passages have the name, and the more mention it.
Names are those that authors gave (titles, headings), and those that a passage's beginning gives; a single word of the second
kind is a name only where few passages have it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytrace.kernels.names import NameTable
from pytrace.retrieval.passages.manifest import FileEntry, IndexFile
from pytrace.retrieval.passages.mentions import Known, Mentions, distinct_pairs, find_mentions
from pytrace.retrieval.passages.ragged import Lists, places_among
from pytrace.retrieval.passages.segment import Segment
from pytrace.retrieval.word_postings import word_hashes
from pytrace.storage.array_file import write_arrays

# A name of more passages leads nowhere.
_MOST_CARRIERS = 100
# A single word that only the text gives is no name where more passages have it: a share of all, and at least so many.
_COMMON_SHARE, _COMMON_LEAST = 0.003, 5


def write_graph(path: Path, segments: Sequence[Segment], known: Known | None = None) -> FileEntry:
    """Compute what the passages of segments have in common, and write it; `known` is what the graph before knew."""
    terms, frequencies, word_ids = _words(segments)
    names, rows, common = _names(segments, terms, frequencies)
    table, numbers = NameTable.build(
        [name for name, is_common in zip(names, common.tolist(), strict=True) if not is_common]
    )
    carriers = distinct_pairs(
        numbers, rows[~common]
    )  # two passages of a document may have one name, and a passage a name twice
    starts = np.searchsorted(carriers[:, 0], np.arange(len(table) + 1))
    passages = sum(segment.passages for segment in segments)
    mentions = find_mentions(segments, table, known)
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
            "carriers.starts": starts.astype(np.int64),
            "carriers": carriers[:, 1].astype(np.int32),
            **_names_by_passage(names, rows, _with_common(names, numbers, common, len(table)), passages, terms),
            "mentions.starts": np.searchsorted(mentions.passages, np.arange(passages + 1)).astype(np.int64),
            "mentions": mentions.names.astype(np.int32),
            **_links(mentions, starts, carriers[:, 1], passages),
        },
    )
    return FileEntry(entry.bytes, entry.checksum, path.name, passages)


def _words(segments: Sequence[Segment]) -> tuple[NDArray[np.uint64], NDArray[np.int32], list[NDArray[np.int32]]]:
    """Return the words of all segments, how many passages have each, and which of them each segment's terms are."""
    of_each = [segment["words.terms"] for segment in segments]
    terms = np.unique(np.concatenate([np.empty(0, np.uint64), *of_each]))
    frequencies = np.zeros(len(terms), dtype=np.int64)
    ids = []
    for segment, own in zip(segments, of_each, strict=True):
        numbers = np.searchsorted(terms, own)
        counts = np.concatenate([np.empty(0, np.int64), *(np.diff(block.starts) for block in segment.blocks)])
        np.add.at(frequencies, numbers, counts)
        ids.append(numbers.astype(np.int32))
    return terms, frequencies.astype(np.int32), ids


def _names(
    segments: Sequence[Segment], terms: NDArray[np.uint64], frequencies: NDArray[np.int32]
) -> tuple[list[str], NDArray[np.int64], NDArray[np.bool_]]:
    """Return names, the passage that each is of, and which are too common to be looked for."""
    names: list[str] = []
    rows: list[int] = []
    told: list[bool] = []
    first = 0
    for segment in segments:
        for name in segment.names():
            names.append(name.text)
            rows.append(first + name.row)
            told.append(name.told)
        first += segment.passages
    most = max(_COMMON_LEAST, _COMMON_SHARE * first)
    common = np.zeros(len(names), dtype=bool)
    single = [
        number for number, (name, is_told) in enumerate(zip(names, told, strict=True)) if is_told and " " not in name
    ]
    if single:
        at = np.searchsorted(terms, word_hashes([names[number] for number in single]))
        common[single] = frequencies[np.minimum(at, len(terms) - 1)] > most
    return names, np.array(rows, dtype=np.int64), common


def _with_common(
    names: Sequence[str], numbers: NDArray[np.int64], common: NDArray[np.bool_], count: int
) -> NDArray[np.int64]:
    """Return a number for each name: of those in the table theirs, and behind them of those that are not looked for."""
    others = sorted({names[place] for place in np.flatnonzero(common).tolist()})
    number_of = {name: count + place for place, name in enumerate(others)}
    every = np.empty(len(names), dtype=np.int64)
    every[~common] = numbers
    every[common] = [number_of[names[place]] for place in np.flatnonzero(common).tolist()]
    return every


def _names_by_passage(
    names: Sequence[str], rows: NDArray[np.int64], numbers: NDArray[np.int64], passages: int, terms: NDArray[np.uint64]
) -> dict[str, NDArray[Any]]:
    """Return the names of each passage, and the words of each name, each once: their numbers, -1 where no passage has it."""
    pairs = distinct_pairs(rows, numbers)
    distinct: list[list[str]] = [[] for _ in range(int(numbers.max(initial=-1)) + 1)]
    for name, number in zip(names, numbers.tolist(), strict=True):
        distinct[number] = distinct[number] or list(dict.fromkeys(name.split()))
    places = {word: place for place, word in enumerate({word: None for each in distinct for word in each})}
    flat = np.array([places[word] for each in distinct for word in each], dtype=np.int64)
    return {
        "passage_names.starts": np.searchsorted(pairs[:, 0], np.arange(passages + 1)).astype(np.int64),
        "passage_names": pairs[:, 1].astype(np.int32),
        "name_words.starts": np.cumsum([0, *map(len, distinct)], dtype=np.int64),
        "name_words": places_among(terms, word_hashes(places)).astype(np.int32)[flat],
    }


def _links(
    mentions: Mentions, starts: NDArray[np.int64], carriers: NDArray[np.int64], passages: int
) -> dict[str, NDArray[Any]]:
    """Link passages that mention a name to those that carry it; rows in both directions, with the weight of each."""
    holders = np.bincount(mentions.names, minlength=len(starts) - 1)
    carried = np.diff(starts)
    few = carried[mentions.names] <= _MOST_CARRIERS
    holding, held = mentions.passages[few], mentions.names[few]
    sources = np.repeat(holding, carried[held])
    names = np.repeat(held, carried[held])
    targets = Lists(starts, carriers).take(held).values
    # A passage's own name is no link, whoever else carries it.
    own = np.isin(sources * len(starts) + names, carriers * len(starts) + np.repeat(np.arange(len(carried)), carried))
    sources, names, targets = sources[~own], names[~own], targets[~own]
    weights = (1 / carried[names] / np.log2(2 + holders[names])).astype(np.float32)
    # Of several names that lead from one passage to another the weightiest counts.
    keys = sources * passages + targets
    order = np.lexsort((names, -weights, keys))
    order = order[np.diff(keys[order], prepend=-1) != 0]
    sources, names, targets, weights = sources[order], names[order], targets[order], weights[order]
    both = np.concatenate([keys[order], targets * passages + sources])
    pairs, place = np.unique(both, return_inverse=True)
    forth, back = np.zeros(len(pairs), np.float32), np.zeros(len(pairs), np.float32)
    forth[place[: len(order)]] = weights
    back[place[len(order) :]] = weights
    name_of = np.full(len(pairs), -1, dtype=np.int32)
    name_of[place[len(order) :]] = names
    name_of[place[: len(order)]] = names
    return {
        "links.starts": np.searchsorted(pairs, np.arange(passages + 1) * passages).astype(np.int64),
        "links": (pairs % max(passages, 1)).astype(np.int32),
        "links.forth": forth,
        "links.back": back,
        "links.names": name_of,
    }


class Graph(IndexFile):
    """The file that `write_graph` wrote, over segments in the same order."""

    def __init__(self, directory: Path, entry: FileEntry, segments: Sequence[Segment]) -> None:
        super().__init__(directory, entry)
        if len(self["links.starts"]) != self.passages + 1 or self.passages != sum(each.passages for each in segments):
            raise self.damaged(f"it is not of {self.passages:,} passages")

    @cached_property
    def table(self) -> NameTable:
        """The names that passages are known by."""
        parts = ("hashes", "text", "offsets", "firsts", "lengths")
        return NameTable(*(self[f"names.{part}"] for part in parts))

    def known(self, segments: Sequence[Segment]) -> Known:
        """Return what a graph that takes the place of this one need not find again; `segments` are this one's."""
        contents = np.concatenate([np.empty(0, np.uint64), *(segment["contents"] for segment in segments)])
        passages = np.repeat(np.arange(self.passages), np.diff(self["mentions.starts"]))
        return Known(contents, self.table, Mentions(passages, self["mentions"].astype(np.int64)))

    def carriers(self, name: int) -> NDArray[np.int32]:
        """Return the passages that a name is of."""
        starts = self["carriers.starts"]
        rows: NDArray[np.int32] = self["carriers"][int(starts[name]) : int(starts[name + 1])]
        return rows

    def links(self, row: int) -> slice:
        """Return where the links of a passage stand in the arrays of links."""
        starts = self["links.starts"]
        return slice(int(starts[row]), int(starts[row + 1]))

    @cached_property
    def passage_names(self) -> Lists:
        """The names of each passage."""
        return Lists(self["passage_names.starts"], self["passage_names"])

    @cached_property
    def name_words(self) -> Lists:
        """The numbers of the words of each name, each once; -1 where no passage has it."""
        return Lists(self["name_words.starts"], self["name_words"])
