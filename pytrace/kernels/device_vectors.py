"""Vectors that are searched again and again, kept where they are searched.

What is encoded once and searched by every question that follows (a corpus, the relations of a graph, the triples of the
questions in flight) is copied to a card once, and queries and results alone travel from then on. What is searched a single
time stays on the processor: copying it would take as long as searching it.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pytrace.errors import DeviceUnavailableError
from pytrace.kernels.devices import card_of, to_device, to_host
from pytrace.kernels.similarity import Metric, top_k


class DeviceVectors:
    """Vectors to search with `top_k`, on the processor or on a card.

    Parameters
    ----------
    vectors
        Float32 or int8 ``[n, dim]``, not to be changed any more. On the processor they are used where they are, mapped files
        included.
    device
        ``"cpu"``, or ``"cuda"`` or ``"cuda:N"`` for a card, to which they are copied when they are first searched, and
        which has its memory back when this object goes; anything else is a `ValueError`.

    scale
        For int8 vectors: the factor that turns each row into numbers.

    Examples
    --------
    >>> kept = DeviceVectors(np.eye(3, dtype=np.float32))
    >>> kept.top_k(np.array([[0.5, 2, 1]], dtype=np.float32), 2)[1].tolist()
    [[1, 2]]
    """

    def __init__(
        self,
        vectors: npt.NDArray[Any],
        device: str = "cpu",
        *,
        scale: npt.NDArray[np.float32] | None = None,
    ) -> None:
        self.vectors = vectors
        """The vectors in the processor's memory."""
        self.scale = scale
        """Their factors, where they are int8."""
        self.device = device
        """Where they are searched."""
        # Copied when first searched and not before: a corpus that is only read must take no memory of the card.
        self._items: Any = vectors if card_of(device) is None else None
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Count the vectors."""
        return len(self.vectors)

    def top_k(
        self,
        queries: npt.NDArray[np.float32],
        k: int,
        *,
        metric: Metric = "ip",
        offsets: npt.ArrayLike | None = None,
        query_offsets: npt.ArrayLike | None = None,
        exclude: Sequence[npt.ArrayLike] | None = None,
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
        """Find the `k` best of the vectors for every query: `pytrace.kernels.top_k`, with these vectors as its items.

        Scores and indices are NumPy's arrays, wherever the search ran. Raises `DeviceUnavailableError` also where the card has
        no room for the vectors.
        """
        scores, indices = top_k(
            queries,
            self._placed(),
            k,
            metric=metric,
            offsets=offsets,
            query_offsets=query_offsets,
            exclude=exclude,
            scale=self.scale,
        )
        return to_host(scores), to_host(indices)

    def _placed(self) -> Any:
        """Return the vectors where they are searched."""
        # Two threads that search first would copy the vectors twice.
        with self._lock:
            if self._items is None:
                try:
                    self._items = to_device(self.vectors, self.device)
                except MemoryError as error:
                    raise DeviceUnavailableError(
                        f"{len(self.vectors):,} vectors of {self.vectors.shape[1]:,} numbers are to be kept on the card, but "
                        f"{error}; or use device 'cpu'"
                    ) from None
            return self._items
