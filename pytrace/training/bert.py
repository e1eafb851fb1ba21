"""A BERT as PyTorch has it, of the weights in an ONNX graph, and its vectors and scores with gradients.

A graph with int8 weights multiplies each by its scale before use, so that what it computes with are float32 numbers: the very
ones that are taken here.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pytrace.errors import ModelFileError
from pytrace.models.encoders.encoder import OnnxEncoder
from pytrace.models.encoders.encoder_files import EncoderFiles
from pytrace.training.network import train_package

# No initializer of a graph tells how wide its attention heads are; where config.json does not either, the widths of nearly all BERTs.
_HEAD_WIDTHS = (32, 64, 16, 128)
# The network is the graph's if its vectors are.
_ALIKE = 0.9999
# Texts that go through a network together.
_AT_ONCE = 16
_PROBES = ["the red house by the river", "Ada wrote 3 of them in 1843, didn't she?", "word " * 40]

Tokens = tuple[list[int], list[int]]
"""The ids of a text or a pair of texts, and of each the number of its text."""


def float32_graph(model: Any) -> dict[str, NDArray[Any]]:
    """Replace stored weights by the float32 numbers that the graph makes of them; returns all initializers."""
    onnx = train_package("onnx")
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


def _dequantized(node: Any, inputs: list[NDArray[Any]]) -> NDArray[np.float32]:
    axis = next((item.i for item in node.attribute if item.name == "axis"), 1)
    around = [-1 if place == axis else 1 for place in range(inputs[0].ndim)]
    scale, *zero = [value.reshape(around) if value.ndim else value for value in inputs[1:]]
    found: NDArray[np.float32] = (inputs[0].astype(np.float32) - (zero[0] if zero else 0)) * scale
    return found


def bert_state(model: Any, values: dict[str, NDArray[Any]]) -> dict[str, NDArray[np.float32]]:
    """Name the weights as ``transformers.BertModel`` does: by their initializers, or by the bias that follows a product."""
    word = next((name for name in values if name.endswith("embeddings.word_embeddings.weight")), None)
    if word is None:
        raise ModelFileError(
            "the graph has no initializer 'embeddings.word_embeddings.weight', so that its weights have no names to go by; "
            "begin with a BERT that PyTorch exported"
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


def bert_network(state: dict[str, NDArray[np.float32]], *, head_width: int) -> Any:
    """Return a ``transformers.BertModel`` of named weights; those that it lacks or has too many are an error of PyTorch."""
    torch, transformers = train_package("torch"), train_package("transformers")
    vocabulary, dimension = state["embeddings.word_embeddings.weight"].shape
    config = transformers.BertConfig(
        vocab_size=vocabulary,
        hidden_size=dimension,
        num_hidden_layers=len({name.split(".")[2] for name in state if name.startswith("encoder.layer.")}),
        num_attention_heads=dimension // head_width,
        intermediate_size=len(state["encoder.layer.0.intermediate.dense.bias"]),
        max_position_embeddings=len(state["embeddings.position_embeddings.weight"]),
        type_vocab_size=len(state["embeddings.token_type_embeddings.weight"]),
    )
    network = transformers.BertModel(config, add_pooling_layer=False)
    network.load_state_dict({name: torch.from_numpy(value.copy()) for name, value in state.items()}, strict=True)
    return network.eval()


class Base(NamedTuple):
    """A model to begin with: the encoder as it is, its files, and its weights as a network."""

    encoder: OnnxEncoder
    files: EncoderFiles
    network: Any


def open_base(path: Path, *, threads: int | None = None) -> Base:
    """Open an encoder to begin with: a BERT whose vectors are means, brought to length 1."""
    encoder = OnnxEncoder(path, threads=threads)
    files = EncoderFiles(path)
    if files.modules.pooling != ("mean",) or not files.normalize or files.modules.layers:
        raise ModelFileError(
            f"{files.directory} does not give the mean of its tokens' vectors, normalised, which is what can be trained; begin "
            "with an encoder like minilm-l6-int8"
        )
    onnx = train_package("onnx")
    stated = files.config.get("num_attention_heads")
    try:
        model = onnx.load(str(files.graph))
        state = bert_state(model, float32_graph(model))
        dimension = state["embeddings.word_embeddings.weight"].shape[1]
        widths = [dimension // stated] if isinstance(stated, int) and 0 < stated <= dimension else _HEAD_WIDTHS
        for width in (width for width in widths if dimension % width == 0):
            network = bert_network(state, head_width=width)
            if _alike(network, encoder, files):
                return Base(encoder, files, network)
    except (KeyError, IndexError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ModelFileError(
            f"{files.graph} does not have the weights of a BERT ({type(error).__name__}: {reason}); begin with another encoder"
        ) from error
    raise ModelFileError(
        f"{files.graph} has weights that give other vectors than the graph itself; begin with a BERT that PyTorch exported, its "
        "config.json beside it"
    )


def _alike(network: Any, encoder: OnnxEncoder, files: EncoderFiles) -> bool:
    torch = train_package("torch")
    tokens = [(ids, [0] * len(ids)) for ids in files.token_ids(_PROBES, files.max_tokens)]
    with torch.no_grad():
        vectors = mean_vectors(network, tokens, files.pad_id).numpy()
    return bool(((vectors * encoder.encode(_PROBES)).sum(axis=1) > _ALIKE).all())


def mean_vectors(network: Any, tokens: Sequence[Tokens], pad_id: int) -> Any:
    """Return the means of tokens' vectors, brought to length 1: a tensor [texts, dimension] where the network is."""
    inputs = padded_inputs(tokens, pad_id, network.device)
    hidden = network(**inputs).last_hidden_state
    mask = inputs["attention_mask"].unsqueeze(-1).to(hidden.dtype)
    means = (hidden * mask).sum(1) / mask.sum(1)
    return train_package("torch").nn.functional.normalize(means, dim=1)


def by_length(run: Callable[[list[Tokens]], Any], tokens: Sequence[Tokens]) -> Any:
    """Run texts of about the same length together, so that little is padding; rows come back in the order of the texts."""
    torch = train_package("torch")
    order = np.argsort([len(ids) for ids, _ in tokens], kind="stable")
    parts = [
        run([tokens[index] for index in order[start : start + _AT_ONCE]]) for start in range(0, len(order), _AT_ONCE)
    ]
    return torch.cat(parts)[torch.from_numpy(np.argsort(order)).to(parts[0].device)]


def cross_encoder(encoder: Any, *, seed: int, labels: Sequence[str] = ()) -> Any:
    """Return a network that reads pairs: an encoder's weights, and a head with random ones that gives one score, or one a label."""
    torch, transformers = train_package("torch"), train_package("transformers")
    config = copy.deepcopy(encoder.config)
    config.num_labels = max(len(labels), 1)
    if labels:
        config.id2label = dict(enumerate(labels))
        config.label2id = {label: number for number, label in enumerate(labels)}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = transformers.BertForSequenceClassification(config)
    network.bert.load_state_dict(encoder.state_dict(), strict=False)  # all but the pooler, which is new
    return network


def padded_inputs(tokens: Sequence[Tokens], pad_id: int, device: Any) -> dict[str, Any]:
    """Return what a BERT takes, of texts side by side."""
    torch = train_package("torch")
    width = max(len(ids) for ids, _ in tokens)
    arrays = {
        "input_ids": np.full((len(tokens), width), pad_id, np.int64),
        "attention_mask": np.zeros((len(tokens), width), np.int64),
        "token_type_ids": np.zeros((len(tokens), width), np.int64),
    }
    for row, (ids, types) in enumerate(tokens):
        arrays["input_ids"][row, : len(ids)] = ids
        arrays["attention_mask"][row, : len(ids)] = 1
        arrays["token_type_ids"][row, : len(ids)] = types
    return {name: torch.from_numpy(array).to(device) for name, array in arrays.items()}
