"""What decides how symbols score beside each other: a matrix, or a C function that the kernel calls without Python."""

from __future__ import annotations

import ctypes
from _ctypes import CFuncPtr
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pytrace.kernels import devices

Score: TypeAlias = ArrayLike | Any
"""A matrix, or a compiled function with a C address: `numba.cfunc` makes them, and so does ctypes."""


def score_arguments(score: Score) -> tuple[NDArray[np.float64] | None, int]:
    """Tell a matrix from a C function and return (matrix, 0) or (None, address)."""
    if devices.on_card(score):
        return cast("NDArray[np.float64]", score), 0
    # numba.cfunc keeps its ctypes function, with its types, under this name; so does a NumPy array, as something else.
    foreign = score if isinstance(score, CFuncPtr) else getattr(score, "ctypes", None)
    if isinstance(foreign, CFuncPtr):
        if foreign.restype is not ctypes.c_double or tuple(foreign.argtypes or ()) != (ctypes.c_int32,) * 2:
            raise TypeError("a score function must take two int32 and return a double; set its argtypes and restype so")
        address = ctypes.cast(foreign, ctypes.c_void_p).value or 0
    elif hasattr(score, "address"):
        address = score.address
    elif callable(score):
        raise TypeError(
            "score must be a matrix or a compiled C function (numba.cfunc, ctypes), not a Python function; "
            "compute a matrix with it first"
        )
    else:
        matrix = np.asarray(score)
        if matrix.dtype.kind not in "biuf":
            raise TypeError(f"score must be an array of numbers, not of {matrix.dtype}")
        return np.ascontiguousarray(matrix, dtype=np.float64), 0
    if not isinstance(address, int) or address <= 0:
        raise ValueError(f"the score function's address is {address!r}, which is no function")
    return None, address
