r"""Exact search among many vectors through short sketches of them: little memory is touched, and no answer changes.

Encoders leave most of their vectors' length in few directions. With :math:`R` the `m` strongest of them, a vector's sketch
is the pair of :math:`s = fl_{16}(R^T x)` and the length of what remains, :math:`r = x - R s`. For a query :math:`q` with
remainder :math:`p = q - R R^T q`,

.. math:: q \cdot x = (R^T q) \cdot s + (R^T q) \cdot (R^T r) + p \cdot r
               \le (R^T q) \cdot s + \|p\| \|r\| + \|R^T q\| \max_x \|R^T r\|

by Cauchy and Schwarz, whether or not the columns of :math:`R` are quite orthogonal; the last term is what rounding to half
precision costs, some 10^-4. The first two terms are one inner product of rows of m + 1 numbers, and so one call of the
kernel. The `width` vectors with the largest bounds are scored in full. If the k-th score is above the smallest of those
bounds, no vector that was left out can be among the best, nor tie with them; else that query is asked again with four
times the width, and in the end of all vectors.

Sources: Jolliffe, "Principal Component Analysis" (2nd edition), section 1.1; Higham, "Accuracy and Stability of Numerical
Algorithms" (2nd edition), section 3.1, for the rounding of inner products.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from pytrace.kernels import top_k

Vectors = NDArray[np.float32]
Halves = NDArray[np.float16]
Rows = NDArray[np.int64]

SKETCH_FROM = 50_000
"""From so many vectors on a sketch pays (see benches/knowledge_base.py)."""

# With one for the remainder a row has 128 numbers of 16 bits: four cache lines, and 256 MB for a million rows.
_DIRECTIONS = 127
# The directions are those of a sample: 16,384 rows tell 384 directions apart, and their moments take a tenth of a second.
_SAMPLE = 16_384
# Below this share of the squared lengths, nearly every bound is above the tenth best score, and all has to be scored.
_LEAST_SHARE = 0.75
# Bounds for so many at first: of the facts of the bench, 64 prove nine queries in ten for the ten best.
_FIRST_WIDTH = 64
_WIDENING = 4
# Wider than either, scoring everything costs little more than what it would save.
_MOST_SHARE = 1 / 16
_WIDEST = 4096
# Candidates of all queries that are held at once: 48 MiB with their bounds, and at any width as many queries as the kernel
# has in flight.
_CANDIDATES = 1 << 22
# Bytes of vectors that are gathered for scoring at once.
_BLOCK_BYTES = 64 << 20
_ROWS_AT_ONCE = 8192


class Sketch(msgspec.Struct, frozen=True, eq=False):
    """Short forms of vectors, in their order.

    `rows` is float16 [n, m + 1]: coordinates along `directions` (float32 [dimension, m]), then the length of the remainder,
    rounded up. `rounding` is the largest length that rounding took from the coordinates of a row, `longest` the length of
    the longest vector.
    """

    rows: Halves
    directions: Vectors
    rounding: float
    longest: float


def find_directions(vectors: Vectors) -> Vectors | None:
    """Find the directions in which vectors are long."""
    count, dimension = vectors.shape
    if count < SKETCH_FROM or dimension < 2 * _DIRECTIONS:
        return None
    sample = vectors[:: -(-count // _SAMPLE)].astype(np.float64)
    values, axes = np.linalg.eigh(sample.T @ sample)
    total = float(values.sum())
    if not 0 < total < np.inf or float(values[-_DIRECTIONS:].sum()) < _LEAST_SHARE * total:
        return None
    return np.ascontiguousarray(axes[:, : -_DIRECTIONS - 1 : -1], dtype=np.float32)


def sketch_rows(vectors: Vectors, directions: Vectors) -> tuple[Halves, float, float]:
    """Sketch some vectors."""
    rows = np.empty((len(vectors), directions.shape[1] + 1), dtype=np.float16)
    rounding = longest = 0.0
    with np.errstate(over="ignore", invalid="ignore"):  # a sketch with infinities is not used
        for start in range(0, len(vectors), _ROWS_AT_ONCE):
            part = vectors[start : start + _ROWS_AT_ONCE]
            coordinates = (part @ directions).astype(np.float16)
            remainders = part - coordinates.astype(np.float32) @ directions.T
            lengths = np.linalg.norm(remainders, axis=1)
            rounded = lengths.astype(np.float16)
            rows[start : start + len(part), :-1] = coordinates
            rows[start : start + len(part), -1] = np.where(
                rounded < lengths, np.nextafter(rounded, np.float16(np.inf)), rounded
            )
            rounding = max(rounding, float(np.linalg.norm(remainders @ directions, axis=1).max()))
            longest = max(longest, float(np.linalg.norm(part, axis=1).max()))
    return rows, rounding, longest


def make_sketch(vectors: Vectors) -> Sketch | None:
    """Sketch vectors, or return None where that would not pay."""
    directions = find_directions(vectors)
    if directions is None:
        return None
    rows, rounding, longest = sketch_rows(vectors, directions)
    return Sketch(rows, directions, rounding, longest) if np.isfinite(rows).all() else None


def search(
    queries: Vectors, vectors: Vectors, k: int, sketch: Sketch | None, *, read: Callable[[Rows], Vectors] | None = None
) -> tuple[Vectors, Rows]:
    """Find the `k` vectors with the largest inner products: what `pytrace.kernels.top_k` finds, bit for bit."""
    # Time is linear in queries times vectors times m + 1, and beyond that in the candidates that are scored in full.
    queries = np.asarray(queries, dtype=np.float32)
    width = max(_FIRST_WIDTH, 2 * k)
    most = min(int(len(vectors) * _MOST_SHARE), _WIDEST)
    if sketch is None or queries.ndim != 2 or k < 1 or width > most or queries.shape[1] != vectors.shape[1]:
        return _search_all(queries, vectors, k, read)
    scores = np.empty((len(queries), k), dtype=np.float32)
    numbers = np.empty((len(queries), k), dtype=np.int64)
    short, slack = _query_sketches(queries, sketch)
    left = np.arange(len(queries))
    while len(left) and width <= most:
        unproven = []
        for start in range(0, len(left), max(_CANDIDATES // width, 1)):
            some = left[start : start + max(_CANDIDATES // width, 1)]
            bounds, candidates = top_k(short[some], sketch.rows, width)
            scores[some], numbers[some] = _rescored(queries[some], vectors, candidates, k, read)
            # Written so that a bound that is no number proves nothing.
            proven = scores[some, -1].astype(np.float64) > bounds[:, -1].astype(np.float64) + slack[some]
            unproven.append(some[~proven])
        left = np.concatenate(unproven)
        width *= _WIDENING
    if len(left):
        scores[left], numbers[left] = _search_all(queries[left], vectors, k, read)
    return scores, numbers


def _rescored(
    queries: Vectors, vectors: Vectors, candidates: Rows, k: int, read: Callable[[Rows], Vectors] | None
) -> tuple[Vectors, Rows]:
    """Score the candidates of each query in full."""
    scores = np.empty((len(queries), k), dtype=np.float32)
    numbers = np.empty((len(queries), k), dtype=np.int64)
    width = candidates.shape[1]
    step = max(_BLOCK_BYTES // (vectors[0].nbytes * width), 1)
    for start in range(0, len(queries), step):
        some = slice(start, min(start + step, len(queries)))
        # Ascending, so that ties fall as they do among all.
        rows = np.sort(candidates[some], axis=1).ravel()
        candidate_vectors = vectors[rows] if read is None else read(rows)
        offsets = np.arange(0, len(rows) + 1, width)
        scores[some], columns = top_k(queries[some], candidate_vectors, k, offsets=offsets)
        numbers[some] = rows[columns]
    return scores, numbers


def search_int8(
    queries: Vectors, rows: NDArray[Any], k: int, *, read: Callable[[Rows], NDArray[Any]] | None = None
) -> tuple[Vectors, Rows]:
    """Find the `k` rows of int8 vectors with their scales (`pytrace.kg.knowledge_base_files.row_type`) with the largest inner products."""
    return _search_all(np.asarray(queries, dtype=np.float32), rows, k, read)


def _top_k(queries: Vectors, rows: NDArray[Any], k: int) -> tuple[Vectors, Rows]:
    if rows.dtype.names is None:
        return top_k(queries, rows, k)
    return top_k(queries, rows["vector"], k, scale=rows["scale"])


def _search_all(
    queries: Vectors, vectors: NDArray[Any], k: int, read: Callable[[Rows], NDArray[Any]] | None
) -> tuple[Vectors, Rows]:
    """Score all vectors, block by block where they are read."""
    step = max(_BLOCK_BYTES // max(vectors[:1].nbytes, 1), 1)
    if read is None or len(vectors) <= step:
        return _top_k(queries, vectors, k)
    scores, numbers = _top_k(queries, read(np.arange(step)), k)
    for start in range(step, len(vectors), step):
        more, rows = _top_k(queries, read(np.arange(start, min(start + step, len(vectors)))), k)
        both = np.concatenate([scores, more], axis=-1)
        # Stable, and of equal scores those of earlier blocks come first: ties fall as they do among all.
        order = np.argsort(-both, axis=-1, kind="stable")[..., :k]
        scores = np.take_along_axis(both, order, axis=-1)
        rows = np.where(rows < 0, -1, rows + start)
        numbers = np.take_along_axis(np.concatenate([numbers, rows], axis=-1), order, axis=-1)
    return scores, numbers


def _query_sketches(queries: Vectors, sketch: Sketch) -> tuple[Vectors, NDArray[np.float64]]:
    """Return rows whose inner products with a sketch's are bounds, and what has to be added to them."""
    coordinates = queries @ sketch.directions
    remainders = queries - coordinates @ sketch.directions.T
    short = np.concatenate([coordinates, np.linalg.norm(remainders, axis=1, keepdims=True)], axis=1)
    # Twice the bound of Higham's section 3.1 for each of the four float32 products that meet in one bound: the query's
    # coordinates, the remainders on both sides, the inner product of the sketches, and the score that it is held against.
    products = 4 * 2 * (queries.shape[1] + 2) * 2.0**-24
    lengths = np.linalg.norm(queries.astype(np.float64), axis=1)
    slack = (
        np.linalg.norm(coordinates.astype(np.float64), axis=1) * sketch.rounding + lengths * sketch.longest * products
    )
    return short, slack
