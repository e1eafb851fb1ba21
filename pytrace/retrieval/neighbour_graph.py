"""A graph of near neighbours (HNSW): the best few among very many vectors, without looking at all of them.

hnswlib keeps the graph, with a copy of the vectors, wholly in memory; its file is read as a whole when an index is opened.
Around it stands what makes its answers those of an exact search:

- Vectors that are equal stand in the graph once. Many equal ones would link to each other alone, and the search would
  pass by all of them or never leave them.
- The search finds more than it is asked for, and the exact kernel scores what it found.
- How widely it has to search depends on the vectors. So it is measured, on a sample of the vectors themselves, each time
  that the graph has grown: the width doubles until the exact neighbours are found. Vectors without any structure would
  need one at which a graph is slower than looking at all of them; then all of them are looked at.

Source: Malkov and Yashunin, "Efficient and robust approximate nearest neighbor search using Hierarchical Navigable Small
World graphs" (TPAMI 2020), algorithms 1 to 5; `M` and `ef` are named there.
"""

from __future__ import annotations

import hashlib
import threading
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytrace import _core
from pytrace.errors import MissingDependencyError
from pytrace.kernels.similarity import top_k
from pytrace.models.encoders.encoder import Vectors

Rows = NDArray[np.int64]

# Links a node. The paper recommends 5 to 48, more for more dimensions; on clustered vectors of 384 dimensions 32 found no
# more than 16 and took twice as long to build.
_LINKS = 16
# hnswlib's own default for the paper's efConstruction.
_BUILD_WIDTH = 200
_NARROWEST = 200
_GOAL = 0.998
# A node that the search keeps in view costs as much as some twenty rows of a scan, as measured for single queries.
_SCAN_ROWS = 20
_SAMPLE, _SAMPLE_NEIGHBOURS = 200, 10
# Rows a call of hnswlib, so that an interrupt is heard; and queries whose candidates are scored together (64 queries with
# 200 candidates of 384 dimensions are 19 MiB).
_ROWS_AT_ONCE, _QUERIES_AT_ONCE = 8192, 64


class NeighbourGraph:
    """The graph over the first rows of a matrix, which is handed in again for each search."""

    def __init__(self, dimension: int) -> None:
        self._index = library().Index("l2", dimension)
        self._lock = threading.Lock()
        self.rows = 0
        """How many rows of the matrix it knows."""
        self.width = _NARROWEST
        """How many nodes a search for ten neighbours keeps in view (`ef`)."""
        self.recall = 1.0
        """The share of the exact ten nearest that it found in the last measurement."""
        self.twins: Rows = np.empty((0, 2), dtype=np.int64)
        """Rows equal to an earlier one, each as [earlier, row], sorted."""

    def grow(self, vectors: Vectors) -> None:
        """Take in the rows that it does not know yet, and measure how widely it has to search."""
        first = _first_equal(vectors)
        own = np.arange(len(vectors))
        fresh = np.flatnonzero((first == own) & (own >= self.rows))
        nodes = int((first == own).sum())
        if self.rows:
            self._index.resize_index(nodes)
        else:
            self._index.init_index(nodes, M=_LINKS, ef_construction=_BUILD_WIDTH, random_seed=1)
        for start in range(0, len(fresh), _ROWS_AT_ONCE):
            some = fresh[start : start + _ROWS_AT_ONCE]
            self._index.add_items(vectors[some], some, num_threads=_core.num_threads())
        later = np.flatnonzero(first != own)
        self.twins = np.stack([first[later], later], axis=1)[np.argsort(first[later], kind="stable")]
        self.rows = len(vectors)
        self._measure(vectors, np.flatnonzero(first == own))

    def nearest(self, queries: Vectors, vectors: Vectors, k: int) -> tuple[Vectors, Rows]:
        """Find the `k` nearest of the rows that it knows."""
        blocks = [
            self._block(queries[start : start + _QUERIES_AT_ONCE], vectors, k)
            for start in range(0, len(queries), _QUERIES_AT_ONCE)
        ]
        return np.concatenate([distances for distances, _ in blocks]), np.concatenate([rows for _, rows in blocks])

    def save(self, path: Path) -> None:
        """Write the graph to a file; the twins are for the caller to keep."""
        self._index.save_index(str(path))
        # hnswlib does not look at its stream: on a full disk it writes a part, and says nothing.
        due, there = self._index.index_file_size(), path.stat().st_size
        if there != due:
            raise OSError(f"only {there:,} of {due:,} bytes could be written")

    @classmethod
    def load(cls, path: Path, dimension: int, *, rows: int, width: int, recall: float, twins: Rows) -> NeighbourGraph:
        """Read a graph from a file, which must be known to be undamaged: hnswlib believes every link in it."""
        graph = cls(dimension)
        graph._index.load_index(str(path))
        graph.rows, graph.width, graph.recall, graph.twins = rows, width, recall, twins
        if graph._index.get_current_count() != rows - len(twins):
            raise RuntimeError(f"it has {graph._index.get_current_count()} nodes where {rows - len(twins)} are due")
        return graph

    def _block(self, queries: Vectors, vectors: Vectors, k: int) -> tuple[Vectors, Rows]:
        # As many times wider as more neighbours are wanted. Where that is a good part of all, an exact scan is faster.
        width = max(self.width * k // _SAMPLE_NEIGHBOURS, self.width)
        labels = None if width * _SCAN_ROWS > self.rows else self._search(queries, min(4 * k + 16, width), width)
        if labels is None:
            return top_k(queries, vectors[: self.rows], k, metric="l2")
        # Sorted, so that of equal distances the kernel's first is the row that was added first.
        candidates = [np.sort(self._with_twins(row, k)) for row in labels.astype(np.int64)]
        together = np.concatenate(candidates)
        distances, places = top_k(
            queries,
            vectors[together],
            k,
            metric="l2",
            offsets=np.cumsum([0, *map(len, candidates)], dtype=np.int64),
        )
        return distances, np.where(places >= 0, together[places], -1)

    def _search(self, queries: Vectors, count: int, width: int) -> NDArray[np.uint64] | None:
        """Return the labels of the nearest nodes, or None where the graph does not lead to so many."""
        count = min(count, self._index.get_current_count())
        with self._lock:  # the width is the graph's, not the call's
            self._index.set_ef(max(width, count))
            try:
                labels: NDArray[np.uint64] = self._index.knn_query(queries, k=count, num_threads=_core.num_threads())[0]
            except RuntimeError:
                return None
        return labels

    def _with_twins(self, labels: Rows, k: int) -> Rows:
        """Add the rows that are equal to those found, of each the first `k`."""
        starts, ends = (np.searchsorted(self.twins[:, 0], labels, side=side) for side in ("left", "right"))
        more = [
            self.twins[start : min(end, start + k), 1]
            for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
            if start < end
        ]
        return np.concatenate([labels, *more])

    def _measure(self, vectors: Vectors, nodes: Rows) -> None:
        """Double the width until exact neighbours are found; at the latest where the search becomes an exact scan."""
        sample = np.random.default_rng(0).choice(nodes, min(_SAMPLE, len(nodes)), replace=False)
        # Halfway to another vector: a question is not itself among the sentences.
        queries = (vectors[sample] + vectors[np.roll(sample, 1)]) / 2
        exact, _ = top_k(queries, vectors[: self.rows], _SAMPLE_NEIGHBOURS, metric="l2")
        self.width = _NARROWEST
        while True:
            distances, _ = self.nearest(queries, vectors, _SAMPLE_NEIGHBOURS)
            # Distances, not rows: where several are equal, any of them is right.
            self.recall = float((distances <= exact[:, -1:]).mean())
            if self.recall >= _GOAL:
                break
            self.width *= 2


def library() -> Any:
    """Import hnswlib."""
    try:
        import hnswlib
    except ImportError as error:
        raise MissingDependencyError(
            "hnswlib is needed to search this many sentences; install it with \"pip install 'pytrace-rag[index]'\""
        ) from error
    return hnswlib


def _first_equal(vectors: Vectors) -> Rows:
    """Return for each row the first row that is equal to it, bit for bit."""
    # By digests of 16 bytes: sorting the vectors themselves would need a copy of them all.
    words = np.empty((len(vectors), 2), dtype=np.uint64)
    for row, vector in enumerate(vectors):
        words[row] = np.frombuffer(hashlib.blake2b(vector.tobytes(), digest_size=16).digest(), dtype=np.uint64)
    order = np.lexsort((words[:, 1], words[:, 0]))  # stable, so that the first of equal ones comes first
    begins = np.ones(len(order), dtype=bool)
    begins[1:] = (words[order[1:]] != words[order[:-1]]).any(axis=1)
    first = np.empty(len(order), dtype=np.int64)
    first[order] = order[np.maximum.accumulate(np.where(begins, np.arange(len(order)), 0))]
    return first
