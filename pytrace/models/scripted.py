"""Models without a model: deterministic stand-ins for tests, of pytrace and of programs that use it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

_WORD = re.compile(r"\w+")


class HashEncoder:
    """An encoder that counts words: texts are alike as far as they share words.

    Each word adds 1 or -1 at one place of the vector, both chosen by a hash of the word, and vectors are scaled to length
    1; a text without words gives zeros. The same on every machine and in every process.

    Parameters
    ----------
    dimension
        The length of a vector; in a small one more words share a place.

    References
    ----------
    Weinberger et al., "Feature hashing for large scale multitask learning" (ICML 2009), section 2.

    Examples
    --------
    >>> from pytrace.models.scripted import HashEncoder
    >>> question, same, other = HashEncoder().encode(["Who wrote Emma?", "who wrote emma", "a red house"])
    >>> bool(question @ same > 0.999), float(question @ other)
    (True, 0.0)
    """

    def __init__(self, *, dimension: int = 256) -> None:
        if dimension < 1:
            message = f"dimension must be at least 1, not {dimension}"
            raise ValueError(message)
        self._dimension = dimension

    @property
    def name(self) -> str:
        """What to call it in reports."""
        return "hash"

    @property
    def fingerprint(self) -> str:
        """A string that changes whenever the vectors could."""
        return f"hash-1-{self._dimension}"

    @property
    def dimension(self) -> int:
        """The length of a vector."""
        return self._dimension

    def encode(self, texts: Sequence[str], *, kind: Literal["query", "passage"] = "passage") -> NDArray[np.float32]:
        """Return float32 [n, dimension], one row a text, in the order of the texts; `kind` changes nothing."""
        del kind
        vectors = np.zeros((len(texts), self._dimension), dtype=np.float32)
        for row, text in enumerate(texts):
            for word in _WORD.findall(text.casefold()):
                digest = hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest()
                number = int.from_bytes(digest, "little")
                vectors[row, (number >> 1) % self._dimension] += 1 if number & 1 else -1
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        np.divide(vectors, lengths, out=vectors, where=lengths > 0)
        return vectors
