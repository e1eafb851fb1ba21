"""The weights of an ONNX graph of BERT, in float32, for both sides of a comparison: a graph, and a torch model.

A graph with int8 weights multiplies each by its scale before use, so that what it computes with are float32 numbers: the
very ones that are written here, as initialisers of the graph and as the state of a ``transformers`` model.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from pytrace.errors import ModelFileError

# Of MiniLM and of every BERT up to the large ones it is 32 or 64, and no initialiser tells; the wrong one fails the bench's
# own comparison of vectors.
HEAD_DIMENSIONS = 32


def float32_graph(model: onnx.ModelProto) -> dict[str, NDArray[Any]]:
    """Replace stored weights by the float32 numbers that the graph makes of them; returns all initialisers."""
    values = {item.name: onnx.numpy_helper.to_array(item) for item in model.graph.initializer}
    kept = []
    for node in model.graph.node:
        if node.op_type in {"Cast", "Mul", "DequantizeLinear"} and all(name in values for name in node.input):
            inputs = [values[name] for name in node.input]
            values[node.output[0]] = (
                inputs[0].astype(onnx.helper.tensor_dtype_to_np_dtype(node.attribute[0].i))
                if node.op_type == "Cast"
                else inputs[0] * inputs[1]
                if node.op_type == "Mul"
                else _dequantized(node, inputs)
            )
        else:
            kept.append(node)
    del model.graph.node[:], model.graph.initializer[:]
    model.graph.node.extend(kept)
    used = {name for node in kept for name in node.input}
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(value, name) for name, value in values.items() if name in used
    )
    return values


def _dequantized(node: onnx.NodeProto, inputs: list[NDArray[Any]]) -> NDArray[np.float32]:
    axis = next((item.i for item in node.attribute if item.name == "axis"), 1)
    around = [-1 if place == axis else 1 for place in range(inputs[0].ndim)]
    scale, *zero = [value.reshape(around) if value.ndim else value for value in inputs[1:]]
    found: NDArray[np.float32] = (inputs[0].astype(np.float32) - (zero[0] if zero else 0)) * scale
    return found


def bert_state(model: onnx.ModelProto, values: dict[str, NDArray[Any]]) -> dict[str, NDArray[np.float32]]:
    """Name the weights as ``transformers.BertModel`` does: by their initialisers, or by the bias that follows a product."""
    word = next((name for name in values if name.endswith("embeddings.word_embeddings.weight")), None)
    if word is None:
        raise ModelFileError(
            "the graph has no initialiser 'embeddings.word_embeddings.weight': its weights have no names to go by"
        )
    prefix = word.removesuffix("embeddings.word_embeddings.weight")
    state = {
        name.removeprefix(prefix): value
        for name, value in values.items()
        if name.startswith(prefix) and name.endswith(("weight", "bias")) and value.dtype == np.float32
    }
    products = {node.output[0]: node.input[1] for node in model.graph.node if node.op_type == "MatMul"}
    for node in model.graph.node:
        if node.op_type == "Add":
            for product, bias in (tuple(node.input), tuple(node.input)[::-1]):
                if bias.startswith(prefix) and bias.endswith(".bias") and product in products:
                    name = bias.removeprefix(prefix).removesuffix("bias") + "weight"
                    state[name] = np.ascontiguousarray(values[products[product]].T)
    return state


def write_both(directory: Path, graph: Path, target: Path) -> tuple[Path, Any]:
    """Write a float32 graph with the files beside it, and load the same weights into sentence-transformers.

    Parameters
    ----------
    directory, graph
        The encoder's own.
    target
        An empty directory to write to.

    Returns
    -------
    Path
        The directory of the float32 graph.
    SentenceTransformer
        On the CPU, with mean pooling and normalisation, its length and tokenizer the encoder's own.
    """
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    from pytrace.models.encoders.encoder_files import EncoderFiles

    files = EncoderFiles(directory)
    if files.modules.pooling != ("mean",) or not files.normalize:
        raise ModelFileError(
            f"{directory} pools by {files.modules.pooling}, normalised: {files.normalize}; this bench wants mean and normalised"
        )
    model = onnx.load(str(graph))
    values = float32_graph(model)
    ours = target / "float32"
    shutil.copytree(directory, ours, ignore=shutil.ignore_patterns("*.onnx*"))
    onnx.save(model, str(ours / "model.onnx"))

    state = bert_state(model, values)
    vocabulary, dimension = state["embeddings.word_embeddings.weight"].shape
    config = BertConfig(
        vocab_size=vocabulary,
        hidden_size=dimension,
        num_hidden_layers=len({name.split(".")[2] for name in state if name.startswith("encoder.layer.")}),
        num_attention_heads=dimension // HEAD_DIMENSIONS,
        intermediate_size=len(state["encoder.layer.0.intermediate.dense.bias"]),
        max_position_embeddings=len(state["embeddings.position_embeddings.weight"]),
    )
    bert = BertModel(config, add_pooling_layer=False)
    bert.load_state_dict({name: torch.from_numpy(value.copy()) for name, value in state.items()}, strict=True)
    theirs = target / "torch"
    bert.save_pretrained(theirs)
    marks = {f"{name}_token": f"[{name.upper()}]" for name in ("unk", "sep", "pad", "cls", "mask")}
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(files.tokenizer), model_max_length=files.max_tokens, **marks)
    tokenizer.save_pretrained(theirs)
    transformer = Transformer(str(theirs), max_seq_length=files.max_tokens, model_kwargs={"add_pooling_layer": False})
    modules = [transformer, Pooling(dimension, "mean"), Normalize()]
    return ours, SentenceTransformer(modules=modules, device="cpu")
