"""An index of passages, open for reading: what was there when it was opened, whatever a writer does meanwhile."""

from __future__ import annotations

import os
import threading
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from pytrace import _core
from pytrace.documents.filters import matches, parse_filters
from pytrace.errors import StoreError
from pytrace.kernels.strings import hash_texts
from pytrace.models.encoders.encoder import Encoder, Vectors
from pytrace.records import Document, Origin
from pytrace.retrieval.passages.graph import Graph
from pytrace.retrieval.passages.manifest import FileEntry, IndexFile, read_manifest
from pytrace.retrieval.passages.ragged import Lists
from pytrace.retrieval.passages.segment import FAR, DocumentEntry, Segment
from pytrace.retrieval.word_index import WordIndex
from pytrace.storage.closing import Closing

# How often a reader follows a writer that replaces the manifest between its reading and the files'.
_OPENINGS = 5
# Filters that were asked for lately keep their passages.
_MOST_MASKS = 32

Mask = NDArray[np.bool_]


class Neighbour(NamedTuple):
    """A passage that a name links another one with: weights of the link to it and of the one back, 0 where there is none."""

    row: int
    name: str
    forth: float
    back: float


def best_of(
    scores: Sequence[NDArray[np.float32]], rows: Sequence[NDArray[np.int64]], k: int
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return the best `k` of several results for the same queries, ties by lower row; -inf and -1 where there are fewer."""
    all_scores, all_rows = np.concatenate(scores, axis=1), np.concatenate(rows, axis=1)
    # Missing ones go last whatever their row.
    order = np.lexsort((np.where(all_rows < 0, np.iinfo(np.int64).max, all_rows), -all_scores), axis=1)[:, :k]
    return np.take_along_axis(all_scores, order, axis=1), np.take_along_axis(all_rows, order, axis=1)


class PassageIndex(Closing):
    """The passages of an index, numbered from 0, with vectors, words, names and links.

    All of it stays on the disk and is mapped; opening reads nothing but the manifest. A writer may go on meanwhile: what was
    opened stays as it was, on the disk too, until it is closed.

    Parameters
    ----------
    directory
        Where `IndexWriter` made it.

    Raises
    ------
    StoreError
        There is no index, it has not been built to its end, or files are missing or damaged.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = Path(directory)
        for attempt in range(_OPENINGS):
            self.manifest = read_manifest(self.directory)
            try:
                self._open()
                return
            except StoreError:
                # A writer may have replaced the manifest and removed files since it was read.
                if attempt == _OPENINGS - 1 or read_manifest(self.directory) == self.manifest:
                    raise

    @classmethod
    def open(cls, directory: str | os.PathLike[str], encoder: Encoder | None = None) -> Self:
        """Open an index; an encoder that is not the one of its vectors is refused."""
        index = cls(directory)
        if encoder is not None:
            index.check_encoder(encoder)
        return index

    def _open(self) -> None:
        self.segments: list[Segment] = []
        self.graph: Graph | None = None
        manifest = self.manifest
        if not manifest.segments and (manifest.pending or manifest.generation == 0):
            raise StoreError(
                f"{self.directory} has not been built to its end; call 'pytrace index build' again, which goes on where it was"
            )
        try:
            if manifest.segments:
                assert manifest.graph is not None
                self.segments = [Segment(self.directory, entry) for entry in manifest.segments]
                self.graph = Graph(self.directory, manifest.graph, self.segments)
        except BaseException:
            self.close()
            raise
        self._firsts = [0, *accumulate(segment.passages for segment in self.segments)]
        self._masks: dict[tuple[str, ...], Mask] = {}
        self._masking = threading.Lock()  # a service asks from several threads

    def check_encoder(self, encoder: Encoder) -> None:
        """Refuse an encoder other than the one that the vectors are of."""
        self.manifest.check_encoder(self.directory, encoder.name, encoder.fingerprint, encoder.dimension, what="index")

    def __len__(self) -> int:
        """Count the passages."""
        return self._firsts[-1]

    @property
    def documents(self) -> int:
        """How many documents there are; one whose passages fill several segments counts once."""
        return len(np.unique(np.concatenate([np.empty(0, np.uint64), *(segment.ids for segment in self.segments)])))

    @property
    def files(self) -> list[FileEntry]:
        """The files that it consists of, besides the manifest."""
        manifest = self.manifest
        return [*manifest.segments, *(() if manifest.graph is None else (manifest.graph,))]

    def place(self, row: int) -> tuple[Segment, int]:
        """Return the segment that has a passage, and its number there."""
        number = bisect_right(self._firsts, row) - 1
        return self.segments[number], row - self._firsts[number]

    def passage(self, row: int) -> Document:
        """Read a passage."""
        segment, local = self.place(row)
        segment.check()
        return segment.document(local)

    def passages(self, rows: Sequence[int]) -> list[Document]:
        """Read passages."""
        return [self.passage(row) for row in rows]

    def entries(self) -> Iterator[DocumentEntry]:
        """Iterate over what is known of each document."""
        for segment in self.segments:
            segment.check()
            yield from segment.entries()

    def rows_of(self, document: str) -> list[int]:
        """Return the rows of a document's passages, in its order; none where there is no document of this id."""
        wanted = hash_texts([document])[0]
        rows: list[int] = []
        for segment, first in zip(self.segments, self._firsts, strict=False):
            segment.check()
            for number in np.flatnonzero(segment.ids == wanted).tolist():
                if segment.entry_of(number).id == document:
                    rows += (np.flatnonzero(segment["passages"] == number) + first).tolist()
        return rows

    def row_of(self, passage: str) -> int | None:
        """Return the row of a passage by its id; None where there is none."""
        # A passage has the id of its document, or that and its number after a "#"; an id may have such signs of its own.
        document, _, number = passage.rpartition("#")
        for name in dict.fromkeys((passage, document)):
            rows = self.rows_of(name)
            # The number is that of the row among those of the document, if passages are in order.
            first = int(number) - 1 if number.isdecimal() and len(number) < 10 else 0
            for row in rows[first : first + 1] + rows:
                if self.passage(row).id == passage:
                    return row
        return None

    def neighbours(self, row: int, count: int) -> list[Neighbour]:
        """Return the passages that one is linked with, by names, the strongest links first; at most `count`."""
        graph = self.graph
        if graph is None:
            return []
        graph.check()
        links = graph.links(np.array([row], dtype=np.int64))
        order = np.argsort(-(links.forth + links.back), kind="stable")[:count].tolist()
        return [
            Neighbour(
                int(links.rows[at]),
                graph.table.name(int(links.names[at])),
                float(links.forth[at]),
                float(links.back[at]),
            )
            for at in order
        ]

    @cached_property
    def words(self) -> WordIndex:
        """The words of all passages (BM25)."""
        return WordIndex([(segment.blocks, None) for segment in self.segments])

    def vectors(self, rows: NDArray[np.int64]) -> Vectors:
        """Return the vectors of passages, float32."""
        owners, local = self._places(rows)
        dimension = self.manifest.dimension
        if self.manifest.vectors == "int8":
            return _core.scaled_rows(self._scaled, owners, local, dimension, None)
        vectors = np.empty((len(rows), dimension), dtype=np.float32)
        for number in np.unique(owners).tolist():
            mine = owners == number
            vectors[mine] = self.segments[number].vectors_of(local[mine])
        return vectors

    def nearest(self, queries: Vectors, k: int, *, mask: Mask | None = None) -> tuple[Vectors, NDArray[np.int64]]:
        """Find the passages nearest to each query by inner product, exactly.

        Parameters
        ----------
        queries
            Float32 ``[n_queries, dimension]``.
        k
            Passages wanted a query.
        mask
            Which passages may be given, bool ``[n_passages]``; None: all.

        Returns
        -------
        scores, rows
            Float32 and int64 ``[n_queries, k]``, best first, ties by lower row; -inf and -1 where there are fewer.
        """
        scores = [np.full((len(queries), k), -np.inf, dtype=np.float32)]
        rows = [np.full((len(queries), k), -1, dtype=np.int64)]
        for segment, first in zip(self.segments, self._firsts, strict=False):
            segment.check()
            excluded = None if mask is None else np.flatnonzero(~mask[first : first + segment.passages])
            if excluded is not None and len(excluded) == segment.passages:
                continue
            near, local = segment.nearest(queries, k, excluded)
            scores.append(near)
            rows.append(np.where(local >= 0, local + first, -1))
        return best_of(scores, rows, k)

    def terms(self, rows: NDArray[np.int64]) -> Lists:
        """Return the numbers of the words of passages in the graph's count, rising, int32."""
        return Lists(*_core.terms_of_rows(self._row_terms, *self._places(rows), FAR, None))

    def _places(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the segments that have passages, and their numbers there."""
        owners = np.searchsorted(self._firsts, rows, side="right") - 1
        return owners, rows - np.array(self._firsts)[owners]

    @cached_property
    def _scaled(self) -> list[tuple[NDArray[np.int8], NDArray[np.float32]]]:
        return [(segment["vectors"], segment["scales"]) for segment in self.segments]

    @cached_property
    def _row_terms(self) -> list[tuple[NDArray[np.uint16], NDArray[np.uint32], NDArray[np.int32]]]:
        graph = self.graph
        assert graph is not None
        return [
            (segment["row_terms"], segment["row_terms.starts"], graph[f"word_ids.{number}"])
            for number, segment in enumerate(self.segments)
        ]

    def mask(self, where: Sequence[str]) -> Mask | None:
        """Return which passages match filters on metadata, all of them; None without filters."""
        key = tuple(where)
        if not key:
            return None
        mask = self._masks.get(key)
        if mask is None:
            filters = parse_filters(key)
            parts = [np.empty(0, dtype=bool)]
            for segment in self.segments:
                segment.check()
                held = [matches(_whole(entry), filters) for entry in segment.entries()]
                parts.append(np.array(held, dtype=bool)[segment["passages"]])
            mask = np.concatenate(parts)
            with self._masking:
                while len(self._masks) >= _MOST_MASKS:
                    del self._masks[next(iter(self._masks))]
                self._masks[key] = mask
        return mask

    def check(self) -> None:
        """Raise `StoreError` if a file has become shorter: reading what was mapped would kill the process."""
        for segment in self.segments:
            segment.check()
        if self.graph is not None:
            self.graph.check()

    def verify(self) -> None:
        """Compare all files with their checksums; `StoreError` names what has changed."""
        for entry in self.manifest.pending:
            with closing(IndexFile(self.directory, entry)) as pending:
                pending.verify()
        for segment in self.segments:
            segment.verify()
        if self.graph is not None:
            self.graph.verify()

    def close(self) -> None:
        """Close the files."""
        for segment in self.segments:
            segment.close()
        if self.graph is not None:
            self.graph.close()


def _whole(entry: DocumentEntry) -> Document:
    """Return a document as filters look at it."""
    return Document(entry.id, entry.title, (), entry.source, Origin(entry.id, entry.title, metadata=entry.metadata))
