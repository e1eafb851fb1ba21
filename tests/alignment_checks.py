"""What every alignment kernel is held against, wherever it runs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pytrace.kernels.alignment import Ragged


def equality(a: list[int], b: list[int], match: float, mismatch: float) -> Callable[[int, int], float]:
    return lambda i, j: match if a[i] == b[j] else mismatch


def ragged(paths: list[list[int]]) -> Ragged:
    offsets = np.cumsum([0, *map(len, paths)])
    return Ragged(np.array([x for path in paths for x in path], dtype=np.int32), offsets)


VALUES = np.arange(6, dtype=np.int32)
GOOD = Ragged(VALUES, np.array([0, 2, 6]))

BAD_BATCHES = [
    (Ragged(VALUES, np.array([0, 7])), [0, 2], {}, "candidates' offsets ends at 7, but there are 6 values"),
    (Ragged(VALUES, np.array([0, 4, 2, 6])), [0, 1, 1, 2], {}, "candidates' offsets goes back at 2: 4 then 2"),
    (Ragged(VALUES, np.array([1, 6])), [0, 2], {}, r"candidates' offsets\[0\] is 1, not 0"),
    (Ragged(VALUES, np.array([], dtype=int)), [0], {}, "candidates' offsets is empty"),
    (Ragged(VALUES.reshape(2, 3), np.array([0, 6])), [0, 2], {}, "2 dimensions"),
    (GOOD, [0, 2], {}, "groups has 2 values, but 2 candidates need 3"),
    (GOOD, [0, 1, 3], {}, "groups ends at 3, but there are 2 values"),
    (GOOD, [0, -1, 2], {}, "groups goes back"),
    (GOOD, [[0, 1, 2]], {}, "groups have 2 dimensions"),
    (GOOD, None, {"threads": 0}, "threads must be at least 1, not 0"),
    (GOOD, None, {"score": np.zeros((6, 3))}, "symbol 3 at 3 of the second sequences is outside the 3 columns"),
    (GOOD, None, {"score": np.zeros((2, 9))}, "symbol 2 at 2 of the first sequences is outside the 2 rows"),
    (Ragged(-VALUES, GOOD.offsets), None, {"score": np.zeros((9, 9))}, "symbol -1 at 1 of the first"),
    (Ragged(VALUES.astype(np.int64) + 2**40, GOOD.offsets), None, {"score": np.zeros((9, 9))}, "fit in 32 bits"),
    (Ragged(VALUES, np.array([0, 6])), None, {}, "1 candidates and 2 references"),
]

MISTYPED_BATCHES = [
    (Ragged(VALUES.astype(float), GOOD.offsets), {}, "must be integers, not float64"),
    (Ragged(VALUES, GOOD.offsets.astype(float)), {}, "offsets must be integers, not float64"),
    ([[1], [2]], {}, "must both be Ragged"),
]
