"""The layers behind pooling that a model keeps outside its graph: Dense, LayerNorm, Normalize of sentence-transformers."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytrace.errors import ModelFileError
from pytrace.models.encoders.safetensors_file import read_tensors

Vectors = NDArray[np.float32]
Head = Callable[[Vectors], Vectors]

WEIGHTS = "model.safetensors"
# torch.nn.LayerNorm's own, which the module never changes.
_EPSILON = np.float32(1e-5)

_erf = np.vectorize(math.erf, otypes=[np.float32])


def _sigmoid(x: Vectors) -> Vectors:
    # 1 / (1 + exp(-x)) overflows.
    return np.asarray(0.5 * (1 + np.tanh(0.5 * x)), dtype=np.float32)


# By the last part of the name in torch, such as torch.nn.modules.activation.Tanh, with its own defaults.
_ACTIVATIONS: dict[str, Head] = {
    "Identity": lambda x: x,
    "Tanh": np.tanh,
    "ReLU": lambda x: np.maximum(x, np.float32(0)),
    "GELU": lambda x: (x * 0.5 * (1 + _erf(x / math.sqrt(2)))).astype(np.float32),
    "SiLU": lambda x: x * _sigmoid(x),
    "Sigmoid": _sigmoid,
}


def normalized(vectors: Vectors) -> Vectors:
    """Return rows of length 1; a row of zeros stays one."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.asarray(np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0))


def dense(folder: Path, config: dict[str, Any], *, into: str, out: str) -> Head:
    """Read a module Dense: a linear layer with an activation, and the input added to it if it says so.

    `into` and `out` are what it has to take and give by sentence-transformers' names of them.
    """
    activation = _activation(folder, config)
    takes = config.get("module_input_name") or "sentence_embedding"
    gives = config.get("module_output_name") or takes
    if (takes, gives) != (into, out):
        raise ModelFileError(
            f"{folder / 'config.json'} has a Dense layer from {takes!r} to {gives!r} where one from {into!r} to {out!r} is due; "
            "export the whole model in one graph"
        )
    residual = bool(config.get("use_residual"))
    there = read_tensors(folder / WEIGHTS)
    weight = _matrix(folder, there, "linear.weight")
    bias = (
        _row(folder, there, "linear.bias", len(weight)) if "linear.bias" in there else np.zeros(len(weight), np.float32)
    )
    projected = _matrix(folder, there, "residual.weight") if "residual.weight" in there else None
    if residual and projected is None and weight.shape[0] != weight.shape[1]:
        raise ModelFileError(
            f"{folder / WEIGHTS} has no 'residual.weight', which its config.json asks for; fetch it again"
        )

    def head(x: Vectors) -> Vectors:
        if x.shape[-1] != weight.shape[1]:
            raise ModelFileError(
                f"{folder} takes vectors of {weight.shape[1]} numbers, but the graph gives {x.shape[-1]}"
            )
        y = activation(x @ weight.T + bias)
        if residual:
            y = y + (x if projected is None else x @ projected.T)
        return np.asarray(y, dtype=np.float32)

    return head


def layer_norm(folder: Path) -> Head:
    """Read a module LayerNorm."""
    there = read_tensors(folder / WEIGHTS, ["norm.weight", "norm.bias"])
    size = there["norm.weight"].size
    weight, bias = (_row(folder, there, name, size) for name in ("norm.weight", "norm.bias"))

    def head(x: Vectors) -> Vectors:
        if x.shape[-1] != size:
            raise ModelFileError(f"{folder} takes vectors of {size} numbers, but the graph gives {x.shape[-1]}")
        apart = x - x.mean(axis=-1, keepdims=True)
        return np.asarray(apart / np.sqrt((apart * apart).mean(axis=-1, keepdims=True) + _EPSILON) * weight + bias)

    return head


def _activation(folder: Path, config: dict[str, Any]) -> Head:
    name = str(config.get("activation_function") or "torch.nn.modules.activation.Tanh")
    known = _ACTIVATIONS.get(name.rpartition(".")[2]) if name.startswith("torch.") else None
    if known is None:
        raise ModelFileError(
            f"{folder / 'config.json'} asks for the activation {name!r}, which is not supported; {', '.join(_ACTIVATIONS)} of "
            "torch are"
        )
    return known


def _matrix(folder: Path, there: dict[str, NDArray[Any]], name: str) -> Vectors:
    if name not in there or there[name].ndim != 2 or not there[name].size:
        raise ModelFileError(f"{folder / WEIGHTS} has no matrix {name!r}; fetch the model again")
    return np.ascontiguousarray(there[name], dtype=np.float32)


def _row(folder: Path, there: dict[str, NDArray[Any]], name: str, size: int) -> Vectors:
    if there[name].shape != (size,):
        raise ModelFileError(
            f"{folder / WEIGHTS} has {name!r} of shape {list(there[name].shape)} where [{size}] is due; fetch the model again"
        )
    return there[name].astype(np.float32)
