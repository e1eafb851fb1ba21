"""Vectors of texts for any encoder: equal texts are encoded once, and what was encoded is kept in memory and on disk."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from pytrace.models.encoders.vector_cache import VectorCache

if TYPE_CHECKING:
    from pytrace.models.encoders.encoder import Vectors
    from pytrace.models.encoders.encoder_files import Kind

Make = Callable[[list[str]], "Iterator[tuple[list[str], Vectors]]"]
# Texts that are encoded together: enough that neighbours in length are alike, few enough to hold their tokens.
_AT_ONCE = 8192


class TextVectors:
    """One encoder's vectors: `make` encodes texts batch by batch, in any order; `disk` keeps them for other processes."""

    def __init__(
        self,
        make: Make,
        *,
        dimension: int,
        cache_bytes: int,
        disk: VectorCache | None = None,
    ) -> None:
        self._make = make
        self._dimension = dimension
        self._cache: OrderedDict[bytes, Vectors] = OrderedDict()
        self._cache_bytes = cache_bytes
        self._lock = threading.Lock()
        self.disk = disk

    def of(
        self,
        texts: Sequence[str],
        kind: Kind,
        prompt: Callable[[Kind], str],
        *,
        make: Make | None = None,
        mark: str = "",
    ) -> Vectors:
        """Return float32 [n, dimension], a row a text, each encoded with the kind's prompt before it.

        Where equal texts of two kinds have vectors of their own, each kind has a `make` and a `mark` that stands for it.
        """
        if isinstance(texts, str | bytes):
            raise TypeError(f"texts must be a sequence of strings, not one {type(texts).__name__}; put it in a list")
        if kind not in {"query", "passage"}:
            raise ValueError(f"kind must be 'query' or 'passage', not {kind!r}")
        before = prompt(kind)
        rows: dict[str, list[int]] = {}
        values: Sequence[object] = texts
        for index, text in enumerate(values):
            if not isinstance(text, str):
                raise TypeError(f"texts must be strings, but item {index} is of type {type(text).__name__}")
            rows.setdefault(before + whole_text(text), []).append(index)
        result = np.empty((len(texts), self._dimension), dtype=np.float32)
        unknown: list[str] = []
        for text, indices in rows.items():
            if (vector := self._recall(text_key(text, mark))) is None:
                unknown.append(text)
            else:
                result[indices] = vector
        for start in range(0, len(unknown), _AT_ONCE):
            for batch, vectors in self._vectors(unknown[start : start + _AT_ONCE], make or self._make, mark):
                for text, vector in zip(batch, vectors, strict=True):
                    result[rows[text]] = vector
                    self._remember(text_key(text, mark), vector)
        return result

    def _vectors(self, texts: list[str], make: Make, mark: str) -> Iterator[tuple[list[str], Vectors]]:
        """Read the vectors that are on disk, make those that are not, and put these there batch by batch."""
        if self.disk is None:
            yield from make(texts)
            return
        there, vectors = self.disk.get([text_key(text, mark) for text in texts])
        yield [text for text, known in zip(texts, there, strict=True) if known], vectors
        for batch, vectors in make([text for text, known in zip(texts, there, strict=True) if not known]):
            self.disk.put([text_key(text, mark) for text in batch], vectors)
            yield batch, vectors

    def _recall(self, key: bytes) -> Vectors | None:
        with self._lock:
            vector = self._cache.get(key)
            if vector is not None:
                self._cache.move_to_end(key)
            return vector

    def _remember(self, key: bytes, vector: Vectors) -> None:
        with self._lock:
            self._cache[key] = vector.copy()  # a view would keep its whole batch alive
            while len(self._cache) * vector.nbytes > self._cache_bytes:
                self._cache.popitem(last=False)


def text_key(text: str, mark: str = "") -> bytes:
    """Return the key of a text in caches."""
    # A digest, so that long passages are not kept alive by the cache.
    return hashlib.blake2b(f"{mark}{text}".encode(), digest_size=16).digest()


def whole_text(text: str) -> str:
    """Replace lone surrogates, which no tokenizer takes, and join those that are pairs."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
