"""The rows of an index, a sentence and its vector each: what they must do, those in memory, and checks of what goes in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

import numpy as np

from pytrace.errors import InputError
from pytrace.models.encoders.encoder import Encoder, Vectors, encode
from pytrace.records import Sentence
from pytrace.retrieval.index_files import Batch, IndexFiles
from pytrace.retrieval.neighbour_graph import NeighbourGraph
from pytrace.retrieval.retriever import check_queries

# Sentences that are encoded and written together: as many as the encoder sorts by length at once.
AT_ONCE = 8192


class MemoryRows:
    """Rows in memory, in an array that doubles when it is full; they are added in two steps, as in `IndexFiles`."""

    writable = True

    def __init__(self, dimension: int) -> None:
        self._array = np.empty((0, dimension), dtype=np.float32)
        self._sentences: list[Sentence] = []
        self.count = 0

    @property
    def vectors(self) -> Vectors:
        """Their vectors, float32 [count, dimension]."""
        return self._array[: self.count]

    def sentence(self, row: int) -> Sentence:
        """Return the sentence of a row."""
        return self._sentences[row]

    def write(self, batches: Iterable[Batch]) -> Iterator[int]:
        """Write batches, and yield after each how many rows are written."""
        for sentences, vectors in batches:
            start, end = len(self._sentences), len(self._sentences) + len(sentences)
            if end > len(self._array):
                # Doubled, so that a row is copied twice on average, however many come.
                grown = np.empty((max(end, 2 * len(self._array)), self._array.shape[1]), dtype=np.float32)
                grown[:start] = self._array[:start]
                self._array = grown
            self._array[start:end] = vectors
            self._sentences += sentences
            yield end

    def written_vectors(self) -> Vectors:
        """Return the vectors of all rows that are written, committed or not."""
        return self._array[: len(self._sentences)]

    def commit(self, graph: NeighbourGraph | None) -> None:
        """Make what is written count, with the graph over it."""
        del graph
        self.count = len(self._sentences)

    def discard(self) -> None:
        """Forget what is written and not committed."""
        del self._sentences[self.count :]

    def graph(self) -> NeighbourGraph | None:
        """Return the graph that was committed, if any."""
        return None


Rows: TypeAlias = MemoryRows | IndexFiles
"""Sentences and their vectors, to which rows are added in two steps: written, then committed or discarded."""


def batches(rows: Rows) -> Iterator[Batch]:
    """Read rows and their vectors again, as many at once as are written at once."""
    vectors = rows.vectors
    for start in range(0, rows.count, AT_ONCE):
        end = min(start + AT_ONCE, rows.count)
        yield [rows.sentence(row) for row in range(start, end)], vectors[start:end]


def checked_sentence(value: object, number: int) -> Sentence:
    """Refuse what could be written and not be read again."""
    # msgspec checks types as it reads, not as a struct is made: a number as text would be found by the next reader.
    if not isinstance(value, Sentence):
        raise InputError(
            f"item {number} is of type {type(value).__name__}, not a pytrace.records.Sentence; make it one"
        )
    kinds = (type(value.document_id), type(value.index), type(value.text), type(value.title))
    if kinds != (str, int, str, str):
        names = ", ".join(kind.__name__ for kind in kinds)
        raise InputError(
            f"sentence {number} has document_id, index, text and title of types {names}, not str, int, str, str; correct them"
        )
    return value


def query_vectors(queries: Sequence[str] | Vectors, encoder: Encoder) -> Vectors:
    """Encode texts, or check vectors that are given."""
    if not isinstance(queries, np.ndarray):
        check_queries(queries, 1)
        return encode(encoder, queries, "query")
    if queries.ndim != 2 or queries.shape[1] != encoder.dimension or queries.dtype.kind not in "fiu":
        raise InputError(
            f"query vectors must be numbers [n, {encoder.dimension}], not {queries.dtype} "
            f"{list(queries.shape)}; encode the queries with {encoder.name!r}"
        )
    vectors = np.ascontiguousarray(queries, dtype=np.float32)
    # Here and not in the kernel: what the kernel refuses is then known to be what is stored.
    if broken := int((~np.isfinite(vectors)).any(axis=1).sum()):
        raise InputError(f"{broken} of {len(vectors)} query vectors hold NaN or infinity; encode the queries anew")
    return vectors
