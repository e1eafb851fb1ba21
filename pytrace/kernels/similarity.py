"""Exact top-k search and similarity matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, cast

import numpy as np
import numpy.typing as npt

from pytrace import _core
from pytrace.kernels import devices

Metric = Literal["ip", "cosine", "l2"]
"""Inner product, cosine, or Euclidean distance (the distance itself, not its square)."""

_ndarray = np.ndarray  # a search among a hundred items takes 2 us, of which one more look-up is 1 %


def top_k(
    queries: npt.ArrayLike,
    items: npt.ArrayLike,
    k: int,
    *,
    metric: Metric = "ip",
    offsets: npt.ArrayLike | None = None,
    query_offsets: npt.ArrayLike | None = None,
    exclude: npt.ArrayLike | Sequence[npt.ArrayLike] | tuple[npt.ArrayLike, npt.ArrayLike] | None = None,
    scale: npt.ArrayLike | None = None,
    threads: int | None = None,
    device: str | None = None,
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Find the `k` best items of every query, exactly.

    Every pair is looked at, in float32; no score matrix is ever held. Scores do not depend on `threads`, on what else is
    in the batch, or on where the arrays lie. Equal scores are ordered by lower index.

    Parameters
    ----------
    queries
        Float32 ``[n_queries, dim]``, or ``[dim]`` for one query. Other real types are converted.
    items
        Float32, float16 or int8 ``[n_items, dim]``; other real types are converted to float32. Rows may be any distance
        apart (a slice with steps, reversed, one row repeated), but must be contiguous in themselves: Fortran order,
        foreign byte order and steps within a row cost a copy.
    k
        Items wanted a query; may exceed the number there are.
    metric
        ``"ip"``: inner product, largest first. ``"cosine"``: from -1 to 1, largest first; 0 where a vector has length 0.
        ``"l2"``: Euclidean distance (not its square), smallest first, from the differences themselves, so that an item
        is at distance 0 from itself.
    offsets
        Int64. Makes the batch ragged: query i sees ``items[offsets[i]:offsets[i + 1]]`` only. Starts at 0, never goes
        back, ends at ``n_items``.
    query_offsets
        Int64, as long as `offsets`. Gives a question several queries:
        ``queries[query_offsets[g]:query_offsets[g + 1]]`` see ``items[offsets[g]:offsets[g + 1]]``.
    exclude
        Items that a query must not be given, as row numbers of `items`: an integer matrix ``[n_queries, m]``, a list
        with a vector a query, or a tuple ``(indices, offsets)`` in which query i's are
        ``indices[offsets[i]:offsets[i + 1]]``. -1 stands for none; repeats, and rows outside of what the query sees,
        change nothing.
    scale
        For int8 items: the factor that turns them into numbers, one for all or one a row, above 0 (default 1).
    threads
        Threads to use at most; default `pytrace._core.num_threads()`. Small searches run on one.
    device
        Where to compute: see `pytrace.kernels.devices`. On a card queries may be float16 or bfloat16 too, and items
        bfloat16; arrays that lie there must hold one of the types named. NumPy items larger than the card are streamed
        through it.

    Returns
    -------
    scores
        Float32 ``[n_queries, k]`` (``[k]`` for one query), best first.
    indices
        Int64, same shape: rows of `items`, also where `offsets` is given. Where a query has fewer than `k` items, the
        rest is -1 with a score of ``-inf`` (``inf`` for ``"l2"``, where larger is worse). Both are arrays on the card
        if `queries` or `items` lie there.

    Raises
    ------
    ValueError
        Dimensions that differ, NaN or infinity in the vectors or a score that overflows float32, negative `k`, offsets
        that go back or do not fit, rows to exclude that do not exist.
    TypeError
        Arrays that do not hold real numbers, offsets that are not whole.

    Notes
    -----
    Time is linear in pairs times dimensions; memory beyond the arrays is some hundred KiB a thread and, for each of up to
    1,024 queries in flight, a copy of it and up to 16 bytes times `k` a thread. From 12 queries and 512 items on, the pairs
    are scanned as a matrix product whose rounding is bounded (N. Higham, "Accuracy and Stability of Numerical Algorithms",
    2nd edition, section 3.1), and what could be among the best is scored again as it would be for one query alone.

    On a card a pair's sums have one order too, another than the processor's: scores differ by rounding between the two,
    and never with the batch, the tiles or the card.

    Examples
    --------
    >>> import numpy as np
    >>> from pytrace.kernels import top_k
    >>> items = np.array([[1, 0], [0, 1], [1, 1]], dtype=np.float32)
    >>> scores, indices = top_k(np.array([2, 1], dtype=np.float32), items, 2)
    >>> scores.tolist(), indices.tolist()
    ([3.0, 2.0], [2, 0])
    >>> top_k(items[:2], items, 2, offsets=[0, 1, 3])[1].tolist()
    [[0, -1], [1, 2]]
    """
    # NumPy's own arrays, the usual case, are known by their class: no call has to ask where they lie.
    if device is not None or type(queries) is not _ndarray or type(items) is not _ndarray:
        card = devices.card_of(device, queries, items)
        if card is not None:
            scores, indices = devices.cuda_module().top_k(
                queries, items, k, metric, offsets, query_offsets, exclude, scale, card
            )
            return devices.results(scores, queries, items), devices.results(indices, queries, items)
    return _core.top_k(queries, items, k, metric, offsets, query_offsets, exclude, scale, threads)


def similarity(
    queries: npt.ArrayLike,
    items: npt.ArrayLike,
    *,
    metric: Metric = "ip",
    scale: npt.ArrayLike | None = None,
    threads: int | None = None,
    device: str | None = None,
) -> npt.NDArray[np.float32]:
    """Score every query against every item: Float32 ``[n_queries, n_items]``, or ``[n_items]`` for one query.

    The scores are those of `top_k`, bit for bit, and so are the arguments and what is raised.

    Examples
    --------
    >>> from pytrace.kernels.similarity import similarity
    >>> similarity([[3.0, 4.0]], [[0.0, 0.0], [3.0, 0.0]], metric="l2").tolist()
    [[5.0, 4.0]]
    """
    card = devices.card_of(device, queries, items)
    if card is not None:
        scores = devices.cuda_module().similarity(queries, items, metric, scale, card)
        return cast("npt.NDArray[np.float32]", devices.results(scores, queries, items))
    return _core.similarity(queries, items, metric, scale, threads)


def normalize(
    vectors: npt.ArrayLike, *, threads: int | None = None, device: str | None = None
) -> npt.NDArray[np.float32]:
    """Divide every row by its Euclidean length.

    Lengths are computed in float64, so that neither tiny nor huge vectors lose their direction. Rows of length 0 stay 0.

    Parameters
    ----------
    vectors
        Float32 ``[n, dim]`` or ``[dim]``; other real types are converted.
    threads, device
        As in `top_k`.

    Returns
    -------
    numpy.ndarray
        A new float32 array of the same shape; on a card if `vectors` is there.

    Raises
    ------
    ValueError, TypeError
        NaN or infinity in the vectors, or an array that does not hold real numbers.

    Examples
    --------
    >>> from pytrace.kernels import normalize
    >>> normalize([[3.0, 4.0], [0.0, 0.0]]).round(2).tolist()
    [[0.6000000238418579, 0.800000011920929], [0.0, 0.0]]
    """
    card = devices.card_of(device, vectors)
    if card is not None:
        return cast("npt.NDArray[np.float32]", devices.results(devices.cuda_module().normalize(vectors, card), vectors))
    return _core.normalize(vectors, threads)
