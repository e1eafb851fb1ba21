"""Weights that are kept beside a graph, or in place of one, in safetensors files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytrace.errors import MissingDependencyError, ModelFileError

_TYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1", "BOOL": "?",
}  # fmt: skip


def read_tensors(path: Path, names: Sequence[str] = ()) -> dict[str, NDArray[Any]]:
    """Read the tensors of a safetensors file by name: all of them, or those in `names`, which it must have.

    Each has the dtype that the file says; bfloat16, which NumPy lacks, becomes float32. A `ModelFileError` says what cannot
    be read, is missing, or holds NaN or infinity.
    """
    try:
        from safetensors import SafetensorError, deserialize
    except ImportError as error:
        raise MissingDependencyError(
            f"safetensors is needed to read {path}; install it with \"pip install 'pytrace-rag[static]'\""
        ) from error
    try:
        stored = dict(deserialize(path.read_bytes()))  # type: ignore[no-untyped-call]
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ModelFileError(f"{path} cannot be read as safetensors ({reason}); fetch the model again") from error
    if missing := [name for name in names if name not in stored]:
        raise ModelFileError(
            f"{path} has no tensor {missing[0]!r}, but {', '.join(sorted(stored)[:5]) or 'none at all'}; fetch the model again"
        )
    return {name: _array(path, name, stored[name]) for name in names or stored}


def _array(path: Path, name: str, stored: dict[str, Any]) -> NDArray[Any]:
    kind = str(stored["dtype"])
    array: NDArray[Any]
    if kind == "BF16":
        # The upper half of a float32.
        array = (np.frombuffer(stored["data"], "<u2").astype(np.uint32) << 16).view(np.float32)
    elif kind in _TYPES:
        array = np.frombuffer(stored["data"], _TYPES[kind])
    else:
        raise ModelFileError(f"{path} has {name!r} in {kind}, which is not supported; save it as float16 or float32")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise ModelFileError(f"{path} has NaN or infinity in {name!r}; fetch the model again")
    return array.reshape(stored["shape"])
