"""Export of the small model: two ONNX graphs whose products are computed in int8, their word embeddings, and a tokenizer.

Weights are int8 with a scale for each output; activations are quantized again for each product. Weights use 7 bits,
since products of 8 bits overflow on x86 processors without VNNI. Word embeddings are int8 with a scale for each row.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from pytrace.models.edge.edge_model import CHECK_GRAPH, GRAPH, INPUTS, OUTPUTS, SHARED, TOKENIZER
from pytrace.storage.files import replace_file
from pytrace.training.network import train_package

_ALL_OUTPUTS = (*OUTPUTS[GRAPH], *OUTPUTS[CHECK_GRAPH])
_MIN_ROWS = 8  # smaller tables stay float32
_ATTENTION = "onnxruntime"


def export_edge(network: Any, tokenizer: Path, target: Path, *, quantize: bool = True) -> None:
    """Write graphs, embeddings and tokenizer into a folder.

    Parameters
    ----------
    network
        The trained network.
    tokenizer
        The base's `tokenizer.json`.
    target
        The folder; it is made if it is not there.
    quantize
        Store weights as int8 and multiply in int8; otherwise all stays float32.
    """
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / GRAPH
        _float_graph(network, path)
        if quantize:
            _quantize(path)
        for name, content in _parts(path).items():
            replace_file(target / name, content)
    shutil.copyfile(tokenizer, target / TOKENIZER)


def _float_graph(network: Any, path: Path) -> None:
    torch = train_package("torch")
    train_package("onnxscript")
    train_package("transformers").AttentionInterface.register(_ATTENTION, _attention)
    ids = torch.tensor([[2, 5, 6, 3], [2, 7, 3, 0]])
    free = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    config = network.config
    before, trained_with = logging.root.manager.disable, config._attn_implementation
    config._attn_implementation = _ATTENTION
    logging.disable(logging.WARNING)  # the exporter reports packages that it could use, too
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the exporter's own packages use deprecated functions
            torch.onnx.export(
                network.cpu().eval(), (ids, torch.zeros_like(ids)), str(path), input_names=list(INPUTS),
                output_names=list(_ALL_OUTPUTS), dynamic_shapes=(free,) * len(INPUTS), dynamo=True, external_data=False, verbose=False,
            )  # fmt: skip
    finally:
        logging.disable(before)
        config._attn_implementation = trained_with


def _attention(_: Any, query: Any, key: Any, value: Any, *__: Any, **___: Any) -> tuple[Any, None]:
    """Export attention as onnxruntime's operator; query, key and value are [batch, heads, tokens, width].

    PyTorch's export applies a mask and replaces NaN, which takes 45 % of the time of a 512-token input.
    """
    torch = train_package("torch")
    inputs = [part.transpose(1, 2).flatten(2) for part in (query, key, value)]
    found = torch.onnx.ops.symbolic(
        "com.microsoft::MultiHeadAttention",
        inputs,
        {"num_heads": query.shape[1]},
        dtype=query.dtype,
        shape=inputs[0].shape,
        version=1,
    )
    return found, None


def _parts(path: Path) -> dict[str, bytes]:
    """Cut a graph into what reads and what checks; tables that both have are kept once, in a file of their own."""
    onnx = train_package("onnx")
    cut = onnx.utils.Extractor(onnx.load(str(path)))
    parts = {name: cut.extract_model(list(INPUTS), list(outputs)) for name, outputs in OUTPUTS.items()}
    tables = [{item.name for item in part.graph.initializer if len(item.dims) == 2} for part in parts.values()]
    places: dict[str, tuple[int, int]] = {}
    shared = b""
    for part in parts.values():
        for item in part.graph.initializer:
            if item.name not in set.intersection(*tables):
                continue
            if item.name not in places:
                content = onnx.numpy_helper.to_array(item).tobytes()
                places[item.name] = (len(shared), len(content))
                shared += content
            item.raw_data = b""  # it must be there to be told where it is kept
            offset, length = places[item.name]
            onnx.external_data_helper.set_external_data(item, SHARED, offset, length)
            item.ClearField("raw_data")
    return {name: part.SerializeToString() for name, part in parts.items()} | {SHARED: shared}


def _quantize(path: Path) -> None:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    onnx = train_package("onnx")
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        quantize_dynamic(
            path,
            path,
            op_types_to_quantize=["MatMul"],
            per_channel=True,
            reduce_range=True,
            weight_type=QuantType.QInt8,
        )
    finally:
        logging.disable(before)
    model = onnx.load(str(path))
    _embeddings_int8(model)
    path.write_bytes(model.SerializeToString())


def _embeddings_int8(model: Any) -> None:
    """Store tables that rows are taken from as int8 with a scale for each row."""
    onnx = train_package("onnx")
    graph = model.graph
    tables: dict[str, list[Any]] = defaultdict(list)
    for node in graph.node:
        if node.op_type == "Gather":
            tables[node.input[0]].append(node)
    kept, nodes = [], []
    for item in graph.initializer:
        if (
            item.name not in tables
            or item.data_type != onnx.TensorProto.FLOAT
            or len(item.dims) != 2
            or item.dims[0] < _MIN_ROWS
        ):
            kept.append(item)
            continue
        values, name = onnx.numpy_helper.to_array(item), item.name
        largest = np.abs(values).max(axis=1, keepdims=True)
        scale = np.where(largest > 0, largest / 127, 1).astype(np.float32)
        kept += [
            onnx.numpy_helper.from_array(np.rint(values / scale).astype(np.int8), f"{name}_q"),
            onnx.numpy_helper.from_array(scale, f"{name}_scale"),
        ]
        for node in tables[item.name]:
            output, ids = node.output[0], node.input[1]
            nodes.append((node, [
                onnx.helper.make_node("Gather", [f"{name}_q", ids], [f"{output}_q"]),
                onnx.helper.make_node("Cast", [f"{output}_q"], [f"{output}_f"], to=onnx.TensorProto.FLOAT),
                onnx.helper.make_node("Gather", [f"{name}_scale", ids], [f"{output}_s"]),
                onnx.helper.make_node("Mul", [f"{output}_f", f"{output}_s"], [output]),
            ]))  # fmt: skip
    del graph.initializer[:]
    graph.initializer.extend(kept)
    instead = {id(node): made for node, made in nodes}
    every = [part for node in graph.node for part in instead.get(id(node), [node])]
    copied = [onnx.NodeProto.FromString(node.SerializeToString()) for node in every]
    del graph.node[:]
    graph.node.extend(copied)
