"""Strings one behind the other in an array, as the core takes them, and hashes of them that may be stored."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from pytrace import _core


def joined(texts: Iterable[str | bytes]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return texts as UTF-8, and where each begins and the last ends: uint8, and int64 ``[n_texts + 1]``."""
    pieces = [text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass") for text in texts]
    offsets = np.zeros(len(pieces) + 1, dtype=np.int64)
    np.cumsum([len(piece) for piece in pieces], out=offsets[1:])
    return np.frombuffer(b"".join(pieces), dtype=np.uint8), offsets


def hash_texts(texts: Iterable[str]) -> NDArray[np.uint64]:
    """Hash texts to 64 bits, the same on every machine and in every version: BLAKE2b of their UTF-8."""
    return _core.hash_texts(*joined(texts), None)
