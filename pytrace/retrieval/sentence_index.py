"""The sentences nearest to a query: exact among few, over a graph of neighbours among many, with the same answers.

Source: "KS-LLM: Knowledge Selection of Large Language Models with Evidence Document for Question Answering", section 3.2,
equation 3: Euclidean distance between the vectors of a query and of each sentence.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Literal, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from pytrace.errors import StoreError
from pytrace.kernels.device_vectors import DeviceVectors
from pytrace.kernels.similarity import top_k
from pytrace.models.encoders.encoder import Encoder, Vectors, device_of, encode
from pytrace.records import Document, Sentence
from pytrace.retrieval.index_files import Batch, IndexFiles
from pytrace.retrieval.neighbour_graph import NeighbourGraph, library
from pytrace.retrieval.retriever import check_count
from pytrace.retrieval.sentence_rows import AT_ONCE, MemoryRows, Rows, batches, checked_sentence, query_vectors
from pytrace.storage.closing import Closing

EXACT_BELOW = 50_000
# Sentences of documents that a process that is killed may lose: a few seconds of a small encoder.
_KEPT_AT_ONCE = 512


class SentenceHit(msgspec.Struct, frozen=True):
    """A sentence that was found, its Euclidean distance from the query, and its place in the index, from 0."""

    sentence: Sentence
    distance: float
    index: int


class SentenceIndex(Closing):
    """Finds the sentences nearest to a query by Euclidean distance.

    Below `exact_below` sentences every one is looked at. When there are more, they go into a graph of neighbours (HNSW),
    whose candidates the exact kernel scores again; how widely the graph is searched is measured each time that it has
    grown, so that it finds what an exact search finds (see `recall`). Sentences that are added later are looked at one by
    one until there are `exact_below` of them too, and then join the graph.

    `SentenceIndex(encoder)` is in memory. `build` and `open` keep one in a directory: vectors and sentences then stay on
    the disk and are mapped or read as they are needed, but the graph, with a copy of the vectors in it, is loaded into
    memory as a whole.

    Where the encoder's device is a card, all vectors are copied there when they are first searched, and again when there
    are more of them; every one is looked at, and the graph is only kept up for whoever searches without a card.

    Parameters
    ----------
    encoder
        Encodes sentences as passages and texts that are searched for as queries.
    exact_below
        From how many sentences on a graph is used; at least 1.

    Raises
    ------
    ValueError
        `exact_below` is below 1.

    References
    ----------
    KS-LLM, section 3.2, equation 3. Malkov and Yashunin, "Efficient and robust approximate nearest neighbor search using
    Hierarchical Navigable Small World graphs" (TPAMI 2020).

    Examples
    --------
    >>> from pytrace.models.scripted import HashEncoder
    >>> from pytrace.records import Document, Sentence
    >>> from pytrace.retrieval import SentenceIndex
    >>> index = SentenceIndex(HashEncoder())
    >>> index.extend([Sentence("1", 0, "Bread is baked at dawn."), Sentence("1", 1, "The ferry leaves at noon.")])
    2
    >>> [(hit.sentence.text, hit.index) for hit in index.search(["When leaves the ferry?"], 1)[0]]
    [('The ferry leaves at noon.', 1)]
    """

    def __init__(self, encoder: Encoder, *, exact_below: int = EXACT_BELOW) -> None:
        check_count("exact_below", exact_below)
        self._encoder = encoder
        self._exact_below = exact_below
        self._rows: Rows | None = MemoryRows(encoder.dimension)
        self._graph: NeighbourGraph | None = None
        self._on_card = device_of(encoder) != "cpu"
        self._kept: DeviceVectors | None = None
        self._keeping = threading.Lock()
        self._place = "the index in memory"

    @classmethod
    def build(
        cls,
        directory: str | os.PathLike[str],
        sentences: Iterable[Sentence],
        encoder: Encoder,
        *,
        exact_below: int = EXACT_BELOW,
    ) -> Self:
        """Make an index in a directory, which is made if it is not there, and leave it open for writing.

        It is to be closed, or used as a context manager. Raises `StoreError` where the directory holds an index already, is
        being written, or cannot be; and what `extend` raises.
        """
        index = cls(encoder, exact_below=exact_below)
        index._attach(IndexFiles(directory, encoder, writable=True, create=True))
        try:
            index.extend(sentences)
        except BaseException:
            index.close()
            raise
        return index

    @classmethod
    def open(
        cls,
        directory: str | os.PathLike[str],
        encoder: Encoder,
        *,
        mode: Literal["read", "write"] = "read",
        exact_below: int = EXACT_BELOW,
    ) -> Self:
        """Open an index that is there, without building anything; it is to be closed, or used as a context manager.

        Parameters
        ----------
        directory
            Where it is.
        encoder
            The one that it was built with, by its fingerprint.
        mode
            "write" lets it be extended, and keeps all other processes from that until it is closed. Whoever reads goes on
            seeing what there was when it was opened.
        exact_below
            As in the class.

        Raises
        ------
        StoreError
            There is no index, it was built with another encoder, a file is damaged, or another process writes it.
        MissingDependencyError
            It has a graph, and hnswlib is not installed.
        """
        # A mode of `open`, such as "w", would otherwise be taken for reading, and fail at the first sentence added.
        if mode not in {"read", "write"}:
            raise ValueError(f"mode must be 'read' or 'write', not {mode!r}")
        index = cls(encoder, exact_below=exact_below)
        index._attach(IndexFiles(directory, encoder, writable=mode == "write"))
        return index

    def __len__(self) -> int:
        """Count the sentences."""
        return self._open_rows().count

    @property
    def recall(self) -> float:
        """The share of the exact ten nearest that a search finds, as measured when the graph last grew; 1 without one."""
        return 1.0 if self._graph is None or self._on_card else self._graph.recall

    def document_ids(self) -> set[str]:
        """Return the ids of the documents that the sentences are of; reads all of them."""
        rows = self._open_rows()
        return {rows.sentence(row).document_id for row in range(rows.count)}

    def add_documents(self, documents: Iterable[Document]) -> int:
        """Add the sentences of those documents that are not in the index yet, by their ids: some hundred at a time, as `extend` does.

        Examples
        --------
        >>> from pytrace.models.scripted import HashEncoder
        >>> from pytrace.records import Document
        >>> index = SentenceIndex(HashEncoder())
        >>> town = Document("1", "Ada Foah", ("It is a town.", "It lies in Ghana."))
        >>> index.add_documents([town]), index.add_documents([town])
        (2, 0)
        """
        known = self.document_ids()
        fresh: list[Sentence] = []
        count = 0
        for document in documents:
            if document.id not in known:
                known.add(document.id)
                for number, text in enumerate(document.sentences):
                    if text.strip():  # numbers stay those of the document, blank sentences counted
                        fresh.append(Sentence(document.id, number, text, document.title))
            # Whole documents, since what is there of one is taken for all of it.
            if len(fresh) >= _KEPT_AT_ONCE:
                count += self.extend(fresh)
                fresh = []
        return count + self.extend(fresh)

    def close(self) -> None:
        """Close the files and let others write; what was added is on the disk already."""
        if isinstance(self._rows, IndexFiles):
            self._rows.close()
        self._rows = self._graph = self._kept = None

    def extend(self, sentences: Iterable[Sentence]) -> int:
        """Add sentences: all of them, or none if anything goes wrong or the process is killed.

        Parameters
        ----------
        sentences
            Any number of them; an iterator is read as they are encoded, so that they need not fit memory. Add a very long
            one in parts, each of which is kept once it is added.

        Returns
        -------
        int
            How many were added.

        Raises
        ------
        StoreError
            The index is closed or open for reading, or the disk is full.
        InputError, ModelError
            Something among the sentences is none; the encoder gives NaN or vectors of another shape.
        MissingDependencyError
            A graph is needed now, and hnswlib is not installed.
        """
        rows = self._open_rows()
        if not rows.writable:
            raise StoreError(f"{self._place} is open for reading; open it with mode='write' to extend it")
        before = rows.count
        known = 0 if self._graph is None else self._graph.rows
        grown = None
        try:
            for count in rows.write(self._encoded(sentences)):
                if count - known >= self._exact_below:
                    library()  # if it is missing, better now than after hours of encoding
            vectors = rows.written_vectors()
            if len(vectors) - known >= self._exact_below:
                grown = self._graph or NeighbourGraph(self._encoder.dimension)
                grown.grow(vectors)
            rows.commit(grown)
        except BaseException:
            rows.discard()
            if grown is not None and grown is self._graph:
                # It may know rows that do not count; without it the search is exact.
                self._graph = None
                with suppress(StoreError):
                    self._graph = rows.graph()
            raise
        self._graph = grown or self._graph
        return rows.count - before

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Write a copy of the index to another directory; `StoreError` if it holds one or cannot be written."""
        rows = self._open_rows()
        files = IndexFiles(directory, self._encoder, writable=True, create=True)
        try:
            for _ in files.write(batches(rows)):
                pass
            files.commit(self._graph)
        except BaseException:
            files.discard()
            raise
        finally:
            files.close()

    def search(self, queries: Sequence[str] | Vectors, k: int) -> list[list[SentenceHit]]:
        """Find the `k` sentences nearest to each query.

        Parameters
        ----------
        queries
            Texts, or their vectors as float32 [n, dimension].
        k
            At least 1.

        Returns
        -------
        list of list of SentenceHit
            At most `k` a query, nearest first; of equal distances the sentence that was added first.

        Raises
        ------
        TypeError, ValueError
            `queries` are neither texts nor an array, or `k` is below 1.
        InputError, ModelError
            The vectors have another dimension, or hold NaN or infinity; so do those that the encoder gives.
        StoreError
            The index is closed, or its files are damaged.
        """
        rows = self._open_rows()
        check_count("k", k)
        vectors = query_vectors(queries, self._encoder)
        if not len(vectors) or not rows.count:
            return [[] for _ in vectors]
        try:
            distances, indices = self._nearest(vectors, rows.vectors, min(k, rows.count))
        except ValueError as error:  # the queries are sound, so it is what is stored
            raise StoreError(
                f"the vectors of {self._place} cannot be searched ({error}); they are damaged: delete the index and build it again"
            ) from None
        return [
            [SentenceHit(rows.sentence(row), distance, row) for row, distance in zip(nearest, apart, strict=True)]
            for nearest, apart in zip(indices.tolist(), distances.tolist(), strict=True)
        ]

    def verify(self) -> None:
        """Compare all that is on the disk with its checksums (opening looks at sizes only); `StoreError` if a byte changed."""
        rows = self._open_rows()
        if isinstance(rows, IndexFiles):
            rows.verify()

    def _attach(self, files: IndexFiles) -> None:
        try:
            # Where all are looked at anyway, the graph would only take memory.
            self._graph = files.graph() if files.count >= self._exact_below else None
        except BaseException:
            files.close()
            raise
        self._rows, self._place = files, str(files.directory)

    def _open_rows(self) -> Rows:
        if self._rows is None:
            raise StoreError(f"{self._place} is closed; open it again")
        return self._rows

    def _encoded(self, sentences: Iterable[Sentence]) -> Iterator[Batch]:
        given: Iterator[object] = iter(sentences)
        number = 0
        while batch := list(islice(given, AT_ONCE)):
            checked = [checked_sentence(value, index) for index, value in enumerate(batch, number)]
            number += len(batch)
            yield checked, encode(self._encoder, [sentence.text for sentence in checked], "passage")

    def _nearest(self, queries: Vectors, vectors: Vectors, k: int) -> tuple[Vectors, NDArray[np.int64]]:
        if self._on_card:
            return self._kept_now(vectors).top_k(queries, k, metric="l2")
        graph = self._graph
        if graph is None:
            return top_k(queries, vectors, k, metric="l2")
        distances, rows = graph.nearest(queries, vectors, k)
        # Rows added since the graph last grew are looked at one by one, and merged by distance.
        later = vectors[graph.rows :]
        if not len(later):
            return distances, rows
        later_distances, later_rows = top_k(queries, later, k, metric="l2")
        distances = np.concatenate([distances, later_distances], axis=1)
        rows = np.concatenate([rows, np.where(later_rows >= 0, later_rows + graph.rows, -1)], axis=1)
        order = np.lexsort((rows, distances), axis=1)[:, :k]  # the last key is the first to sort by
        return np.take_along_axis(distances, order, axis=1), np.take_along_axis(rows, order, axis=1)

    def _kept_now(self, vectors: Vectors) -> DeviceVectors:
        """Return the vectors as they are on the card; rows are only ever added, so their number tells whether all are."""
        with self._keeping:
            if self._kept is None or len(self._kept) != len(vectors):
                self._kept = None  # the card's memory is free before it is asked for more
                self._kept = DeviceVectors(vectors, device_of(self._encoder))
            return self._kept
