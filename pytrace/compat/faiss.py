"""Exact search of faiss 1.15 on pytrace's kernels: flat indexes, `knn`, and files that faiss reads and writes.

>>> import numpy as np
>>> from pytrace.compat import faiss
>>> index = faiss.IndexFlatIP(2)
>>> index.add(np.eye(2, dtype=np.float32))
>>> index.search(np.array([[0.6, 0.8]], dtype=np.float32), 1)[1]
array([[1]])

Names, arguments, shapes and dtypes are faiss's: distances float32 (L2 squared), labels int64, -1 with the largest float where an index has
fewer vectors than are asked for. Differences, on purpose: equal distances are ordered by the lower label, always; distances do not
depend on what else is in the batch or on the number of threads, and L2 distances come from the differences themselves, so that a
vector is at 0 from itself; NaN and infinity are refused; and there are no
approximate or compressed indexes, no selectors and no other metrics: such a file or argument raises an error that says so.
"""

from __future__ import annotations

import os
import struct
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytrace import _core, kernels
from pytrace.errors import DataError
from pytrace.kernels.similarity import Metric, similarity
from pytrace.storage.files import atomic_output

__all__ = [
    "METRIC_INNER_PRODUCT",
    "METRIC_L2",
    "Index",
    "IndexFlat",
    "IndexFlatIP",
    "IndexFlatL2",
    "IndexIDMap",
    "knn",
    "normalize_L2",
    "omp_get_max_threads",
    "omp_set_num_threads",
    "read_index",
    "write_index",
]

METRIC_INNER_PRODUCT = 0
METRIC_L2 = 1

Vectors = NDArray[np.float32]
Labels = NDArray[np.int64]

_KERNEL_METRICS: dict[int, Metric] = {METRIC_INNER_PRODUCT: "ip", METRIC_L2: "l2"}
# faiss's word for a neighbour that is not there.
_WORST = {METRIC_INNER_PRODUCT: -np.finfo(np.float32).max, METRIC_L2: np.finfo(np.float32).max}
# Scores that a range search holds at once: 16 MiB.
_RANGE_SCORES = 1 << 22


def _rows(x: Any, d: int, name: str) -> Vectors:
    """Return vectors as the kernels take them; faiss, too, converts other numbers."""
    rows = np.ascontiguousarray(x, dtype=np.float32)
    if rows.ndim != 2 or rows.shape[1] != d:
        raise ValueError(f"{name} is of shape {rows.shape}; it must be (n, {d})")
    return rows


def _require_finite(rows: Vectors) -> None:
    if not np.isfinite(rows).all():
        raise ValueError("x has NaN or infinity; such a vector is near to nothing")


def _kernel_metric(metric: int) -> Metric:
    if metric not in _KERNEL_METRICS:
        raise ValueError(f"metric is {metric}; give METRIC_INNER_PRODUCT (0) or METRIC_L2 (1)")
    return _KERNEL_METRICS[metric]


def knn(
    xq: Any,
    xb: Any,
    k: int,
    metric: int = METRIC_L2,
    metric_arg: float = 0.0,  # noqa: ARG001 (of other metrics)
) -> tuple[Vectors, Labels]:
    """Find the `k` nearest of `xb` ``[n, d]`` for each of `xq` ``[m, d]``: distances and labels, each ``[m, k]``."""
    kernel_metric = _kernel_metric(metric)
    if k < 1:
        raise ValueError(f"k is {k}; give 1 or more")
    items = np.ascontiguousarray(xb, dtype=np.float32)
    queries = _rows(xq, items.shape[-1], "xq")
    scores, labels = kernels.top_k(queries, _rows(items, queries.shape[1], "xb"), k, metric=kernel_metric)
    if metric == METRIC_L2:
        np.square(scores, out=scores)
    if k > len(items):
        scores[labels < 0] = _WORST[metric]
    return scores, labels


_SHORT, _LONG = 1e-15, 1e15


def normalize_L2(x: Vectors) -> None:
    """Divide every row by its length, in place; rows of length 0 stay."""
    if not isinstance(x, np.ndarray) or x.dtype != np.float32 or x.ndim != 2:
        raise ValueError("x must be a float32 array of shape (n, d), since it is changed in place")
    lengths = np.sqrt(np.einsum("ij,ij->i", x, x))
    # Squares of a float32 lose what is very small or large; such rows, and those that are refused, are left to the kernel.
    rest = np.flatnonzero(~((lengths > _SHORT) & (lengths < _LONG)))
    exact = kernels.normalize(x[rest])
    lengths[rest] = 1
    x /= lengths[:, None]
    x[rest] = exact


def omp_set_num_threads(threads: int) -> None:
    """Set how many threads a search may use, as for all kernels."""
    _core.set_num_threads(threads)


def omp_get_max_threads() -> int:
    """Return how many threads a search may use."""
    return _core.num_threads()


class Index(ABC):
    """What all indexes have: `d`, `ntotal`, `metric_type`, `is_trained`."""

    is_trained = True
    verbose = False

    def __init__(self, d: int, metric: int) -> None:
        _kernel_metric(metric)
        if d < 1:
            raise ValueError(f"d is {d}; give the number of dimensions, 1 or more")
        self.d = d
        self.metric_type = metric

    @property
    @abstractmethod
    def ntotal(self) -> int:
        """How many vectors there are."""

    def train(self, x: Any) -> None:  # noqa: B027 (that is what it does)
        """Do nothing: flat indexes need no training."""

    def search(
        self, x: Any, k: int, *, params: None = None, D: Vectors | None = None, I: Labels | None = None
    ) -> tuple[Vectors, Labels]:
        """Find the `k` nearest vectors of each row of `x` ``[n, d]``: distances and labels, each ``[n, k]``, best first.

        `D` and `I` are filled and returned if they are given. Raises `ValueError` for other shapes, NaN, infinity and `params`.
        """
        _require_no_selector(params)
        scores, labels = self._search(_rows(x, self.d, "x"), k)
        for out, result in ((D, scores), (I, labels)):
            if out is not None:
                if out.shape != result.shape:
                    raise ValueError(f"D and I must be of shape {result.shape}, not {out.shape}")
                out[...] = result
        return (scores if D is None else D), (labels if I is None else I)

    def assign(self, x: Any, k: int, labels: Labels | None = None) -> Labels:
        """Return the labels of `search` alone."""
        return self.search(x, k, I=labels)[1]

    def range_search(self, x: Any, thresh: float, *, params: None = None) -> tuple[NDArray[np.uint64], Vectors, Labels]:
        """Find all vectors that are nearer than `thresh` (an inner product above it): ``lims [n + 1]``, distances, labels.

        Those of row i are ``[lims[i]:lims[i + 1]]``, by rising label.
        """
        _require_no_selector(params)
        return self._range_search(_rows(x, self.d, "x"), float(thresh))

    @abstractmethod
    def _search(self, x: Vectors, k: int) -> tuple[Vectors, Labels]:
        """Search with checked arguments."""

    @abstractmethod
    def _range_search(self, x: Vectors, thresh: float) -> tuple[NDArray[np.uint64], Vectors, Labels]:
        """Search a range with checked arguments."""


def _require_no_selector(params: object) -> None:
    if params is not None:
        raise ValueError("params must be None: flat indexes here have no selectors and no settings")


class IndexFlat(Index):
    """All vectors as they are, searched one and all.

    Parameters
    ----------
    d
        Dimensions of a vector.
    metric
        `METRIC_L2` or `METRIC_INNER_PRODUCT`.
    """

    def __init__(self, d: int, metric: int = METRIC_L2) -> None:
        super().__init__(d, metric)
        self._room = np.empty((0, d), dtype=np.float32)
        self._count = 0

    @property
    def ntotal(self) -> int:
        """How many vectors there are."""
        return self._count

    @property
    def _vectors(self) -> Vectors:
        return self._room[: self._count]

    def add(self, x: Any) -> None:
        """Add rows of `x` ``[n, d]``, whose labels follow on the last."""
        rows = _rows(x, self.d, "x")
        _require_finite(rows)
        needed = self._count + len(rows)
        if needed > len(self._room):
            # Half as many again, so that adding one by one costs what adding all at once does.
            room = np.empty((max(needed, len(self._room) * 3 // 2), self.d), dtype=np.float32)
            room[: self._count] = self._vectors
            self._room = room
        self._room[self._count : needed] = rows
        self._count = needed

    def _take(self, rows: Vectors) -> None:
        """Have these rows themselves, and no others."""
        _require_finite(rows)
        self._room, self._count = rows, len(rows)

    def reset(self) -> None:
        """Remove all vectors."""
        self._room, self._count = np.empty((0, self.d), dtype=np.float32), 0

    def remove_ids(self, x: Any) -> int:
        """Remove the vectors of these labels and return how many; those behind them move up."""
        keep = ~np.isin(np.arange(self._count), np.asarray(x, dtype=np.int64))
        self._room = self._vectors[keep]
        removed, self._count = self._count - len(self._room), len(self._room)
        return removed

    def reconstruct(self, key: int, x: Vectors | None = None) -> Vectors:
        """Return the vector of a label, float32 ``[d]``."""
        if not 0 <= key < self._count:
            raise ValueError(f"key is {key}; labels are 0 to {self._count - 1}")
        return self._given(self._vectors[key], x)

    def reconstruct_n(self, n0: int = 0, ni: int = -1, x: Vectors | None = None) -> Vectors:
        """Return `ni` vectors from label `n0` on (-1: all), float32 ``[ni, d]``."""
        end = self._count if ni == -1 else n0 + ni
        if not 0 <= n0 <= end <= self._count:
            raise ValueError(f"vectors {n0} to {end - 1} were asked for; labels are 0 to {self._count - 1}")
        return self._given(self._vectors[n0:end], x)

    def reconstruct_batch(self, key: Any, x: Vectors | None = None) -> Vectors:
        """Return the vectors of labels ``[n]``, float32 ``[n, d]``."""
        labels = np.asarray(key, dtype=np.int64)
        if labels.size and not (labels.min() >= 0 and labels.max() < self._count):
            raise ValueError(f"keys are {labels.min()} to {labels.max()}; labels are 0 to {self._count - 1}")
        vectors = self._vectors.take(labels, axis=0)
        return vectors if x is None else self._given(vectors, x)

    @staticmethod
    def _given(vectors: Vectors, x: Vectors | None) -> Vectors:
        if x is None:
            return vectors.copy()
        if x.shape != vectors.shape:
            raise ValueError(f"x is of shape {x.shape}; it must be {vectors.shape}")
        x[...] = vectors
        return x

    def _search(self, x: Vectors, k: int) -> tuple[Vectors, Labels]:
        return knn(x, self._vectors, k, self.metric_type)

    def _range_search(self, x: Vectors, thresh: float) -> tuple[NDArray[np.uint64], Vectors, Labels]:
        lims = np.zeros(len(x) + 1, dtype=np.uint64)
        distances: list[Vectors] = [np.empty(0, np.float32)]
        labels: list[Labels] = [np.empty(0, np.int64)]
        step = max(_RANGE_SCORES // max(self._count, 1), 1)
        for begin in range(0, len(x), step):
            scores = similarity(x[begin : begin + step], self._vectors, metric=_KERNEL_METRICS[self.metric_type])
            if self.metric_type == METRIC_L2:
                scores = np.square(scores)
            near = scores < thresh if self.metric_type == METRIC_L2 else scores > thresh
            found = np.flatnonzero(near)
            lims[begin + 1 : begin + 1 + len(scores)] = np.count_nonzero(near, axis=1)
            distances.append(scores.ravel()[found])
            labels.append((found % max(self._count, 1)).astype(np.int64, copy=False))
        return np.cumsum(lims, dtype=np.uint64), np.concatenate(distances), np.concatenate(labels)


class IndexFlatL2(IndexFlat):
    """`IndexFlat` by squared Euclidean distance."""

    def __init__(self, d: int) -> None:
        super().__init__(d, METRIC_L2)


class IndexFlatIP(IndexFlat):
    """`IndexFlat` by inner product."""

    def __init__(self, d: int) -> None:
        super().__init__(d, METRIC_INNER_PRODUCT)


class IndexIDMap(Index):
    """Labels of one's own for the vectors of an empty flat index, which it takes over."""

    def __init__(self, index: IndexFlat) -> None:
        if not isinstance(index, IndexFlat):
            raise TypeError(f"index is a {type(index).__name__}; give an IndexFlat of this module")
        if index.ntotal:
            raise ValueError(f"index has {index.ntotal} vectors without labels; give an empty one")
        super().__init__(index.d, index.metric_type)
        self.index = index
        self._labels = np.empty(0, dtype=np.int64)

    @property
    def ntotal(self) -> int:
        """How many vectors there are."""
        return self.index.ntotal

    @property
    def id_map(self) -> Labels:
        """The labels, int64 ``[ntotal]``, in the order in which they were added."""
        return self._labels

    def add(self, x: Any) -> None:  # noqa: ARG002 (faiss has it, and refuses, too)
        """Refuse: vectors need labels here."""
        raise ValueError("vectors need labels here; call add_with_ids")

    def add_with_ids(self, x: Any, ids: Any) -> None:
        """Add rows of `x` ``[n, d]`` under labels ``[n]``; a label may be given to several."""
        labels = np.array(ids, dtype=np.int64, ndmin=1)
        if labels.shape != np.shape(x)[:1]:
            raise ValueError(f"there are {len(labels)} ids for {np.shape(x)[0]} vectors; give one a vector")
        self.index.add(x)
        self._labels = np.concatenate([self._labels, labels])

    def reset(self) -> None:
        """Remove all vectors."""
        self.index.reset()
        self._labels = np.empty(0, dtype=np.int64)

    def remove_ids(self, x: Any) -> int:
        """Remove the vectors of these labels and return how many."""
        gone = np.isin(self._labels, np.asarray(x, dtype=np.int64))
        self._labels = self._labels[~gone]
        return self.index.remove_ids(np.nonzero(gone)[0])

    def _search(self, x: Vectors, k: int) -> tuple[Vectors, Labels]:
        scores, rows = self.index._search(x, k)
        return scores, self._named(rows)

    def _range_search(self, x: Vectors, thresh: float) -> tuple[NDArray[np.uint64], Vectors, Labels]:
        lims, scores, rows = self.index._range_search(x, thresh)
        return lims, scores, self._named(rows)

    def _named(self, rows: Labels) -> Labels:
        """Put labels in the place of row numbers; -1 stays."""
        if rows.size and rows.min() >= 0:
            return self._labels.take(rows)
        return np.append(self._labels, np.int64(-1)).take(rows)


# The file: four letters, the head, then the vectors (their number of floats first), or the index within and its labels.
_HEAD = struct.Struct("<iqqqBi")
_COUNT = struct.Struct("<Q")
_FOURCC = {METRIC_INNER_PRODUCT: b"IxFI", METRIC_L2: b"IxF2"}
_FLAT = {b"IxFI": METRIC_INNER_PRODUCT, b"IxF2": METRIC_L2, b"IxFl": None}
_UNUSED = 1 << 20


def write_index(index: Index, fname: str | os.PathLike[str]) -> None:
    """Write a flat index, labelled or not, in faiss's format; the file of before stays until all is written.

    Raises
    ------
    StoreError
        The file cannot be written.
    TypeError
        The index is none of this module.
    """
    content = _written(index)
    with atomic_output(Path(fname)) as stream:
        stream.writelines(content)


def _written(index: Index) -> list[bytes | memoryview]:
    if not isinstance(index, IndexFlat | IndexIDMap):
        raise TypeError(f"index is a {type(index).__name__}; only indexes of this module can be written")
    head = _HEAD.pack(index.d, index.ntotal, _UNUSED, _UNUSED, 1, index.metric_type)
    if isinstance(index, IndexIDMap):
        labels = index.id_map
        return [b"IxMp", head, *_written(index.index), _COUNT.pack(len(labels)), labels.astype("<i8").data.cast("B")]
    vectors = index._vectors
    return [_FOURCC[index.metric_type], head, _COUNT.pack(vectors.size), _bytes(vectors.astype("<f4", copy=False))]


def _bytes(vectors: NDArray[Any]) -> memoryview:
    # A view of no bytes cannot be cast.
    return memoryview(b"") if vectors.size == 0 else np.ascontiguousarray(vectors).data.cast("B")


def read_index(fname: str | os.PathLike[str]) -> IndexFlat | IndexIDMap:
    """Read a flat index, labelled or not, that faiss or `write_index` wrote.

    Raises
    ------
    DataError
        If the file is of another kind of index, damaged, or cut short.
    OSError
        If it cannot be read.
    """
    path = Path(fname)
    with path.open("rb") as stream:
        reader = _Reader(stream, path, path.stat().st_size)
        index = reader.index()
        reader.end()
        return index


class _Reader:
    """A file that is read from its beginning; what it says is compared with its size before memory is asked for."""

    def __init__(self, stream: Any, path: Path, left: int) -> None:
        self._stream, self._path, self._left = stream, path, left

    def index(self) -> IndexFlat | IndexIDMap:
        kind = self._bytes(4)
        if kind in (b"IxMp", b"IxM2"):
            return self._id_map()
        if kind not in _FLAT:
            raise self._error(
                f"holds an index of kind {kind!r}; flat ones (IxFI, IxF2, IxFl) and IndexIDMap (IxMp) are read here"
            )
        d, count, metric = self._head()
        if _FLAT[kind] not in (None, metric):
            raise self._error(f"says {kind!r} but metric {metric}, and is damaged")
        vectors = self._array(self._count(), "<f4")
        if vectors.size != count * d:
            raise self._error(
                f"says {count} vectors of {d} dimensions but holds {vectors.size} numbers, and is damaged"
            )
        index = {METRIC_INNER_PRODUCT: IndexFlatIP, METRIC_L2: IndexFlatL2}[metric](d)
        try:
            index._take(vectors.astype(np.float32, copy=False).reshape(count, d))
        except ValueError as error:
            raise self._error(f"cannot be searched: {error}") from error
        return index

    def _id_map(self) -> IndexIDMap:
        d, count, _ = self._head()
        within = self.index()
        labels = self._array(self._count(), "<i8")
        if not isinstance(within, IndexFlat) or not within.ntotal == len(labels) == count or within.d != d:
            raise self._error(
                f"says {count} labels but holds {len(labels)} for {within.ntotal} vectors, and is damaged"
            )
        index = IndexIDMap(IndexFlat(d, within.metric_type))
        index.index = within
        index._labels = labels.astype(np.int64, copy=False)
        return index

    def end(self) -> None:
        if self._left:
            raise self._error(f"has {self._left} bytes behind its index, and is damaged")

    def _head(self) -> tuple[int, int, int]:
        d, count, _, _, _, metric = _HEAD.unpack(self._bytes(_HEAD.size))
        if metric not in _KERNEL_METRICS:
            raise self._error(f"has metric {metric}; inner products (0) and L2 (1) are read here")
        if d < 1 or count < 0:
            raise self._error(f"says {count} vectors of {d} dimensions, and is damaged")
        return d, count, metric

    def _count(self) -> int:
        return int(_COUNT.unpack(self._bytes(_COUNT.size))[0])

    def _array(self, count: int, dtype: str) -> NDArray[Any]:
        size = count * np.dtype(dtype).itemsize
        self._require(size)
        array = np.empty(count, dtype)
        if size and self._stream.readinto(array.data.cast("B")) < size:
            raise self._error("changed while it was read; read it again")
        self._left -= size
        return array

    def _bytes(self, count: int) -> bytes:
        self._require(count)
        content: bytes = self._stream.read(count)
        if len(content) < count:
            raise self._error("changed while it was read; read it again")
        self._left -= count
        return content

    def _require(self, count: int) -> None:
        if count > self._left:
            raise self._error(f"ends {count - self._left} bytes before what it says it holds; write it anew")

    def _error(self, message: str) -> DataError:
        return DataError(message, path=self._path)
