"""BM25 over the words of an index: segments that lie on disk, and rows that come and go."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray

from pytrace import _core
from pytrace.retrieval.bm25 import words
from pytrace.retrieval.word_postings import WordBlock, WordBlocks, word_hashes

Live: TypeAlias = NDArray[np.bool_]
Query: TypeAlias = str | NDArray[np.uint64]
"""A text, or the hashes of its words (`word_hashes`)."""


@dataclass(frozen=True)
class _Part:
    """A block among the rows of all segments; `live` is None where all of its rows are."""

    block: WordBlock
    first: int
    live: Live | None


class _Terms(NamedTuple):
    """The words of some queries: weights one behind the other, and where each part has the postings."""

    offsets: NDArray[np.int64]
    weights: NDArray[np.float32]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]


class WordIndex:
    """Scores the rows of segments by the words that they share with queries.

    Rows are numbered through all segments, dead ones included. A dead row scores 0, and nothing else depends on it: scores are
    those of an index that was built of the live rows alone. Opening reads nothing, a query only the postings of its words.

    Parameters
    ----------
    segments
        The words of each segment, and which of its rows are live, bool ``[n_rows]`` (None: all).
    k1
        How slowly a word's repetitions cease to count; 0 or more.
    b
        How much long texts are held back, from 0 (not at all) to 1.

    Raises
    ------
    ValueError
        `k1` or `b` is out of range, or there are not as many live rows as a segment has rows.

    References
    ----------
    Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond" (2009), section 3.4, with the
    inverse document frequency of Lucene (Kamphuis et al., "Which BM25 Do You Mean?", ECIR 2020, section 2), as `Bm25Retriever`.

    Examples
    --------
    >>> from pytrace.retrieval.word_postings import WordBlocks, build_words
    >>> index = WordIndex([(WordBlocks(build_words(["Bread is baked.", "A ferry carries mail."])), None)])
    >>> scores, rows = index.top(["Which ferry?"], 2)
    >>> rows.tolist()
    [[1, -1]]
    """

    def __init__(self, segments: Sequence[tuple[WordBlocks, Live | None]], *, k1: float = 0.9, b: float = 0.4) -> None:
        if not (math.isfinite(k1) and k1 >= 0) or not 0 <= b <= 1:
            raise ValueError(f"k1 must be 0 or more and b from 0 to 1, not {k1} and {b}")
        self._segments: list[tuple[WordBlocks, Live | None]] = []
        for blocks, given in segments:
            live = None if given is None else np.asarray(given, dtype=bool)
            if live is not None and live.shape != (blocks.rows,):
                raise ValueError(f"live rows of shape {list(live.shape)} for a segment of {blocks.rows:,} rows")
            self._segments.append((blocks, live))
        self._k1 = k1
        self._b = b
        self.rows = sum(blocks.rows for blocks, _ in self._segments)
        self._norms_of_parts: dict[int, NDArray[np.float32]] = {}

    def scores(self, queries: Sequence[Query], *, threads: int | None = None) -> NDArray[np.float32]:
        """Score every row.

        Parameters
        ----------
        queries
            Any texts, or the hashes of words. A word that stands twice counts twice.
        threads
            Threads for many queries; one is scored by one.

        Returns
        -------
        ndarray
            Float32 ``[n_queries, n_rows]``; above 0 where a live row shares a word, else 0.
        """
        scores = np.zeros((len(queries), self.rows), dtype=np.float32)
        terms = self._terms(queries)
        for number, part in enumerate(self._parts):
            of_part = self._scores(number, terms, threads)
            if of_part is not None:
                if part.live is not None:
                    of_part[:, ~part.live] = 0
                scores[:, part.first : part.first + len(part.block.lengths)] = of_part
        return scores

    def top(
        self, queries: Sequence[Query], k: int, *, mask: Live | None = None, threads: int | None = None
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Find the best rows that share a word with a query.

        Parameters
        ----------
        queries
            As for `scores`.
        k
            Rows wanted a query.
        mask
            Which rows may be given, bool ``[n_rows]``; None: all that are live. Weights of words do not depend on it.
        threads
            Threads for many queries; one is scored by one.

        Returns
        -------
        tuple of ndarray
            Scores, float32, and rows, int64, both ``[n_queries, k]``, best first, ties by lower row. Where there are fewer, the rest
            is -inf and -1.
        """
        if k < 1:
            raise ValueError(f"k must be at least 1, not {k}")
        if mask is not None and (mask.shape != (self.rows,) or mask.dtype != bool):
            raise ValueError(
                f"a mask of {mask.dtype} {list(mask.shape)} for {self.rows:,} rows; it must be bool, one a row"
            )
        scores = np.full((len(queries), k), -np.inf, dtype=np.float32)
        rows = np.full((len(queries), k), -1, dtype=np.int64)
        terms = self._terms(queries)
        for number, part in enumerate(self._parts):
            allowed = part.live
            if mask is not None:
                of_part = mask[part.first : part.first + len(part.block.lengths)]
                allowed = of_part if allowed is None else of_part & allowed
            starts, ends = terms.starts[number], terms.ends[number]
            if (ends > starts).any() and (allowed is None or allowed.any()):
                scores, rows = _core.word_top(
                    part.block.rows,
                    part.block.counts,
                    self._norms_of(number),
                    starts,
                    ends,
                    terms.weights,
                    terms.offsets,
                    allowed,
                    part.first,
                    scores,
                    rows,
                    threads,
                )
        return scores, rows

    def scores_of(
        self, queries: Sequence[Query], offsets: NDArray[np.int64], rows: npt.ArrayLike, *, threads: int | None = None
    ) -> NDArray[np.float32]:
        """Score some rows of each query only, as `scores` does.

        Parameters
        ----------
        queries
            As for `scores`.
        offsets, rows
            Query `q` is for ``rows[offsets[q]:offsets[q + 1]]``; int64 ``[n_queries + 1]`` and ``[n_rows]``.
        threads
            Threads for many queries; one is scored by one.

        Returns
        -------
        ndarray
            Float32 ``[n_rows]``.
        """
        wanted = np.asarray(rows, dtype=np.int64)
        if wanted.ndim != 1 or (len(wanted) and not (wanted.min() >= 0 and wanted.max() < self.rows)):
            raise ValueError(f"rows must be one dimension of numbers from 0 to {self.rows - 1:,}")
        if len(offsets) != len(queries) + 1 or offsets[-1] != len(wanted):
            raise ValueError(f"offsets of {len(offsets) - 1:,} queries over {len(wanted):,} rows, for {len(queries):,}")
        scores = np.zeros(len(wanted), dtype=np.float32)
        terms = self._terms(queries)
        owners = np.searchsorted([part.first for part in self._parts], wanted, side="right") - 1
        for number in np.unique(owners).tolist():
            part, places = self._parts[number], np.flatnonzero(owners == number)
            local = wanted[places] - part.first
            if part.live is not None:
                places, local = places[part.live[local]], local[part.live[local]]
            scores[places] = _core.word_scores_of(
                part.block.rows,
                part.block.counts,
                terms.starts[number],
                terms.ends[number],
                terms.weights,
                terms.offsets,
                np.searchsorted(places, offsets),
                local.astype(np.uint16),
                self._norms(part.block.lengths[local]),
                threads,
            )
        return scores

    @cached_property
    def _parts(self) -> list[_Part]:
        parts, first = [], 0
        for blocks, live in self._segments:
            for number in range(len(blocks)):
                block, row = blocks[number], blocks.first_row(number)
                of_block = None if live is None else live[row : row + len(block.lengths)]
                if of_block is not None and of_block.all():
                    of_block = None
                parts.append(_Part(block, first + row, of_block))
            first += blocks.rows
        return parts

    @cached_property
    def _totals(self) -> tuple[int, float]:
        """How many rows are live, and how many words each has on average."""
        rows = words = 0
        for blocks, live in self._segments:
            rows += blocks.rows if live is None else int(np.count_nonzero(live))
            words += blocks.words if live is None else int(blocks.lengths[live].sum(dtype=np.int64))
        return rows, words / max(1, rows)

    def _norms(self, lengths: NDArray[Any]) -> NDArray[np.float32]:
        """Return what is added to a word's count, by the lengths of rows."""
        factor = self._k1 * self._b / max(self._totals[1], 1e-9)
        return lengths.astype(np.float32) * np.float32(factor) + np.float32(self._k1 * (1 - self._b))

    def _norms_of(self, number: int) -> NDArray[np.float32]:
        """Return the norms of all rows of a part; kept, since every query needs them."""
        if number not in self._norms_of_parts:
            self._norms_of_parts[number] = self._norms(self._parts[number].block.lengths)
        return self._norms_of_parts[number]

    def _terms(self, queries: Sequence[Query]) -> _Terms:
        offsets, of_queries, times = _distinct_words(queries)
        hashes, order = np.unique(of_queries, return_inverse=True)
        ranges = np.zeros((2, len(self._parts), len(hashes)), dtype=np.int64)
        frequencies = np.zeros(len(hashes), dtype=np.int64)
        for number, part in enumerate(self._parts):
            ranges[:, number] = _find(part.block, hashes)
            if part.live is None:
                frequencies += ranges[1, number] - ranges[0, number]
            else:
                frequencies += _core.live_postings(part.block.rows, part.live, *ranges[:, number])
        idf = np.log1p((self._totals[0] - frequencies + 0.5) / (frequencies + 0.5))
        idf[frequencies == 0] = 0
        return _Terms(offsets, (idf[order] * times).astype(np.float32), ranges[0][:, order], ranges[1][:, order])

    def _scores(self, number: int, terms: _Terms, threads: int | None) -> NDArray[np.float32] | None:
        """Score the rows of a part; None if no query has a word there."""
        starts, ends = terms.starts[number], terms.ends[number]
        if not (ends > starts).any():
            return None
        block = self._parts[number].block
        norms = self._norms_of(number)
        return _core.word_scores(block.rows, block.counts, norms, starts, ends, terms.weights, terms.offsets, threads)


def _distinct_words(queries: Sequence[Query]) -> tuple[NDArray[np.int64], NDArray[np.uint64], NDArray[np.int64]]:
    """Return the distinct words of each query, as offsets and hashes, and how often each stands in it."""
    texts = [query for query in queries if isinstance(query, str)]
    if len(texts) == len(queries):
        counted = [Counter(words(text)) for text in texts]
        hashes = word_hashes(word for each in counted for word in each)
        times = np.array([count for each in counted for count in each.values()], dtype=np.int64)
        return np.cumsum([0, *map(len, counted)], dtype=np.int64), hashes, times
    of_each = [word_hashes(words(query)) if isinstance(query, str) else query for query in queries]
    hashes = np.concatenate(of_each)
    owners = np.repeat(np.arange(len(queries)), [len(each) for each in of_each])
    order = np.lexsort((hashes, owners))
    hashes, owners = hashes[order], owners[order]
    firsts = np.flatnonzero((np.diff(hashes, prepend=~hashes[:1]) != 0) | (np.diff(owners, prepend=-1) != 0))
    offsets = np.searchsorted(owners[firsts], np.arange(len(queries) + 1))
    return offsets, hashes[firsts], np.diff(firsts, append=len(hashes))


def _find(block: WordBlock, hashes: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return where the postings of each word begin and end; nowhere, if no row has it."""
    if not len(block.terms):
        return np.zeros(len(hashes), dtype=np.int64), np.zeros(len(hashes), dtype=np.int64)
    at = np.minimum(np.searchsorted(block.terms, hashes), len(block.terms) - 1)
    # Damaged starts may be anything, and must not be read behind the end.
    ends = np.minimum(block.starts[at + 1].astype(np.int64), len(block.rows))
    ends[block.terms[at] != hashes] = 0
    return np.minimum(block.starts[at].astype(np.int64), ends), ends
