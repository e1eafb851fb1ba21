"""The words of texts as arrays for a file: postings in blocks of rows, built from texts and merged without them."""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pytrace import _core
from pytrace.errors import StoreError
from pytrace.kernels.strings import hash_texts, joined
from pytrace.retrieval.bm25 import spaced_words


class Arrays(Protocol):
    """Arrays by name: a dict of them, or an `ArrayFile`."""

    def __getitem__(self, name: str, /) -> NDArray[Any]:
        """Return one."""


# So that a row within its block takes two bytes, and a block's scores (256 KiB) stay in the second-level cache.
BLOCK_ROWS = 1 << 16
# A block ends sooner where its texts are long: its words are sorted in memory, at 20 bytes each.
_BLOCK_WORDS = 1 << 23
# Of a block, or what stands before it: its first row, term and posting, and all words.
_TABLE = "words.blocks"
_ARRAYS = ("words.terms", "words.starts", "words.rows", "words.counts", "words.lengths")


@dataclass(frozen=True)
class WordBlock:
    """The postings of some successive rows, by term.

    `terms` are the words' hashes, uint64 ``[n_terms]``, rising. The postings of term `t` stand from `starts[t]` to
    `starts[t + 1]`, uint32 ``[n_terms + 1]``: `rows`, uint16, rising, counted from the block's first, and `counts`, how often the
    word stands in each. `lengths` are the numbers of words of all rows. Counts and lengths are as wide as they need to be.
    """

    terms: NDArray[np.uint64]
    starts: NDArray[np.uint32]
    rows: NDArray[np.uint16]
    counts: NDArray[np.unsignedinteger[Any]]
    lengths: NDArray[np.unsignedinteger[Any]]


class WordBlocks(Sequence[WordBlock]):
    """The blocks in the arrays of a segment, which stay where they are, mapped or not.

    Parameters
    ----------
    arrays
        What `build_words` or `merge_words` returned, or a file of it.
    name
        What holds them, for errors.
    remedy
        What to do where they do not hold together, for errors.

    Raises
    ------
    StoreError
        The arrays do not hold together. Only what costs no reading of them is checked.
    """

    def __init__(
        self, arrays: Arrays, *, name: str = "the words", remedy: str = "delete the index and build it again"
    ) -> None:
        self._arrays = [arrays[each] for each in _ARRAYS]
        table = arrays[_TABLE]
        kinds = [(np.uint64,), (np.uint32,), (np.uint16,), *2 * [(np.uint8, np.uint16, np.uint32)]]
        if (
            table.dtype != np.int64
            or table.ndim != 2
            or table.shape[1] != 4
            or any(each.ndim != 1 or each.dtype not in kind for each, kind in zip(self._arrays, kinds, strict=True))
        ):
            shapes = ", ".join(f"{each.dtype} {list(each.shape)}" for each in (table, *self._arrays))
            raise StoreError(f"{name} has words in arrays of another kind ({shapes}); {remedy}")
        terms, starts, rows, counts, lengths = map(len, self._arrays)
        self._table: list[list[int]] = table.tolist()
        if (
            not len(table)
            or any(self._table[0])
            or (table < 0).any()  # differences of such may be beyond what 64 bits hold
            or (np.diff(table, axis=0) < 0).any()
            or (np.diff(table[:, 0]) > BLOCK_ROWS).any()
            or self._table[-1][:3] != [lengths, terms, rows]
            or len(table) - 1 + terms != starts
            or counts != rows
        ):
            raise StoreError(
                f"{name} has {terms:,} terms, {starts:,} starts, {rows:,} rows, {counts:,} counts and {lengths:,} lengths of "
                f"words, which do not go with its table of {len(table):,} blocks; {remedy}"
            )

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return self._table[-1][0]

    @property
    def words(self) -> int:
        """How many words the texts have."""
        return self._table[-1][3]

    @property
    def lengths(self) -> NDArray[np.unsignedinteger[Any]]:
        """How many words each row has."""
        return self._arrays[4]

    @property
    def counts(self) -> NDArray[np.unsignedinteger[Any]]:
        """How often the word of each posting stands in its row."""
        return self._arrays[3]

    def first_row(self, number: int) -> int:
        """Return the first row of a block."""
        return self._table[number][0]

    def __len__(self) -> int:
        """Return how many blocks there are."""
        return len(self._table) - 1

    def __getitem__(self, number: Any) -> Any:
        """Return a block, as views."""
        (row, term, posting, _), (end_row, end_term, end_posting, _) = self._table[number], self._table[number + 1]
        terms, starts, rows, counts, lengths = self._arrays
        return WordBlock(
            terms[term:end_term],
            starts[term + number : end_term + number + 1],
            rows[posting:end_posting],
            counts[posting:end_posting],
            lengths[row:end_row],
        )


def build_words(texts: Iterable[str]) -> dict[str, NDArray[Any]]:
    """Count the words of texts, a row each.

    Words are those of `bm25.words`. Of a word only a hash of 64 bits is kept, so that terms are numbers of one size which are
    searched where they lie: two of a million words share one with a chance of 3 in 10^8, and would then count as one word.

    Parameters
    ----------
    texts
        The texts; read once. Beside the result, memory is bounded: some 300 MB whatever their number.

    Returns
    -------
    dict
        The arrays of a segment, for `write_arrays`: about 280 bytes a text of 120 words.
    """
    return _stack(_built(texts), np.dtype(np.uint8), np.dtype(np.uint8), None)


def merge_words(
    segments: Iterable[tuple[Arrays, NDArray[np.bool_] | None]], *, spool: Path | None = None
) -> dict[str, NDArray[Any]]:
    """Put the live rows of segments one behind the other into one, as if it were built of their texts.

    Parameters
    ----------
    segments
        The arrays of each, and which of its rows are live, bool ``[n_rows]`` (None: all).
    spool
        A directory for files without a name that hold the result until it is written; None: memory holds it.

    Raises
    ------
    StoreError
        Arrays do not hold together, or the directory is full.
    """
    given = [(WordBlocks(arrays), live) for arrays, live in segments]
    counts = np.result_type(np.uint8, *(blocks.counts.dtype for blocks, _ in given))
    lengths = np.result_type(np.uint8, *(blocks.lengths.dtype for blocks, _ in given))
    live_blocks = (
        (block, None if live is None else live[first : first + len(block.lengths)])
        for blocks, live in given
        for block, first in ((blocks[number], blocks.first_row(number)) for number in range(len(blocks)))
    )
    try:
        return _stack(_merged(live_blocks), counts, lengths, spool)
    except OSError as error:
        raise StoreError(f"{spool} cannot hold the merged words ({error.strerror}); free some room there") from None


def word_hashes(distinct: Iterable[str]) -> NDArray[np.uint64]:
    """Hash words to 64 bits, the same on every machine and in every version."""
    return hash_texts(distinct)


def _built(texts: Iterable[str]) -> Iterator[WordBlock]:
    some: list[bytes] = []
    words = 0
    for text in texts:
        some.append(spaced_words(text))
        words += some[-1].count(b" ") + 1
        if len(some) == BLOCK_ROWS or words >= _BLOCK_WORDS:
            yield _inverted(some)
            some, words = [], 0
    if some:
        yield _inverted(some)


def _inverted(texts: Sequence[bytes]) -> WordBlock:
    ids, lengths, distinct, offsets = _core.number_words(*joined(texts))
    terms, ranks = np.unique(_core.hash_texts(distinct, offsets, None), return_inverse=True)
    # One number a word, of its term and its row: sorted, equal ones are a posting.
    keys = ranks.astype(np.uint64)[ids]
    keys <<= np.uint64(16)
    keys |= np.repeat(np.arange(len(lengths), dtype=np.uint16), lengths)
    keys.sort()
    firsts = np.flatnonzero(np.diff(keys, prepend=keys[:1] + np.uint64(1)))
    counts = np.diff(firsts, append=len(keys))
    keys = keys[firsts]
    starts = np.searchsorted(keys, np.arange(len(terms) + 1, dtype=np.uint64) << np.uint64(16))
    return WordBlock(
        terms, starts.astype(np.uint32), keys.astype(np.uint16), _narrow(counts, np.uint8), _narrow(lengths, np.uint8)
    )


def _merged(blocks: Iterable[tuple[WordBlock, NDArray[np.bool_] | None]]) -> Iterator[WordBlock]:
    parts: list[WordBlock] = []
    room, postings = BLOCK_ROWS, 0
    for block, live in blocks:
        kept = np.arange(len(block.lengths)) if live is None else np.flatnonzero(live)
        while len(kept):
            parts.append(_selected(block, kept[:room]))
            kept = kept[room:]
            room, postings = room - len(parts[-1].lengths), postings + len(parts[-1].rows)
            if not room or postings >= _BLOCK_WORDS:
                yield _joined(parts)
                parts, room, postings = [], BLOCK_ROWS, 0
    if parts:
        yield _joined(parts)


def _selected(block: WordBlock, kept: NDArray[np.intp]) -> WordBlock:
    """Keep some rows, and number them anew."""
    if len(kept) == len(block.lengths):
        return block
    is_kept = np.zeros(BLOCK_ROWS, dtype=bool)
    is_kept[kept] = True
    renumbered = (np.cumsum(is_kept) - 1).astype(np.uint16)
    chosen = np.flatnonzero(is_kept[block.rows])
    starts = np.searchsorted(chosen, block.starts)
    some = np.flatnonzero(np.diff(starts))
    return WordBlock(
        block.terms[some],
        starts[np.append(some, len(starts) - 1)].astype(np.uint32),
        renumbered[block.rows[chosen]],
        block.counts[chosen],
        block.lengths[kept],
    )


def _joined(parts: Sequence[WordBlock]) -> WordBlock:
    """Put blocks one behind the other: each term's postings are those of the first, then those of the next."""
    if len(parts) == 1:
        return parts[0]
    terms, inverse = np.unique(np.concatenate([part.terms for part in parts]), return_inverse=True)
    sizes = [np.diff(part.starts).astype(np.int64) for part in parts]
    numbers = np.split(inverse, np.cumsum([len(part.terms) for part in parts])[:-1])
    starts = np.zeros(len(terms) + 1, dtype=np.int64)
    for number, size in zip(numbers, sizes, strict=True):
        starts[1:][number] += size
    np.cumsum(starts, out=starts)
    rows = np.empty(starts[-1], dtype=np.uint16)
    counts = np.empty(starts[-1], dtype=np.result_type(*(part.counts for part in parts)))
    ends, first = starts[:-1].copy(), 0
    for part, number, size in zip(parts, numbers, sizes, strict=True):
        targets = np.repeat(ends[number] - part.starts[:-1], size) + np.arange(len(part.rows))
        rows[targets] = part.rows + np.uint16(first)
        counts[targets] = part.counts
        ends[number] += size
        first += len(part.lengths)
    return WordBlock(terms, starts.astype(np.uint32), rows, counts, np.concatenate([part.lengths for part in parts]))


def _narrow(values: NDArray[Any], least: Any) -> NDArray[np.unsignedinteger[Any]]:
    kind = np.result_type(least, np.min_scalar_type(int(values.max(initial=0))))
    narrow: NDArray[np.unsignedinteger[Any]] = values.astype(kind)
    return narrow


def _stack(
    blocks: Iterable[WordBlock], counts: np.dtype[Any], lengths: np.dtype[Any], spool: Path | None
) -> dict[str, NDArray[Any]]:
    kinds: list[np.dtype[Any]] = [np.dtype(np.uint64), np.dtype(np.uint32), np.dtype(np.uint16), counts, lengths]
    grown = [_Growing(kind, spool) for kind in kinds]
    table = [(0, 0, 0, 0)]
    for block in blocks:
        row, term, posting, count = table[-1]
        table.append(
            (
                row + len(block.lengths),
                term + len(block.terms),
                posting + len(block.rows),
                count + int(block.lengths.sum(dtype=np.int64)),
            )
        )
        parts: tuple[NDArray[Any], ...] = (block.terms, block.starts, block.rows, block.counts, block.lengths)
        for one, part in zip(grown, parts, strict=True):
            one.add(part)
    arrays = {_TABLE: np.array(table, dtype=np.int64)}
    return arrays | {name: one.array() for name, one in zip(_ARRAYS, grown, strict=True)}


class _Growing:
    """An array that grows in memory, or in a file that nobody else sees."""

    def __init__(self, kind: np.dtype[Any], spool: Path | None) -> None:
        self._kind = kind
        self._parts: list[NDArray[Any]] = []
        self._file = None if spool is None else tempfile.TemporaryFile(dir=spool)  # noqa: SIM115

    def add(self, part: NDArray[Any]) -> None:
        if self._file is None:
            self._parts.append(part)
        else:
            self._file.write(part.astype(self._kind, copy=False).data)

    def array(self) -> NDArray[Any]:
        if self._file is None:
            return np.concatenate([np.empty(0, dtype=self._kind), *self._parts])
        with self._file as file:
            if not file.tell():
                return np.empty(0, dtype=self._kind)
            file.flush()
            return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), dtype=self._kind)
