"""Export of a ranker: an ONNX graph with int8 weights and float32 arithmetic, and the files that say how to use it.

Weights are stored as int8 with a scale for each output, or for each row of a table of embeddings, and multiplied by it before
use, which runtimes do once, when they load the graph. Activations stay float32, so that a text's vector does not depend on the
texts beside it. The layout is that of sentence-transformers, with the float32 weights as safetensors beside the graph.
"""

from __future__ import annotations

import json
import logging
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from pytrace.models.encoders.encoder_files import EncoderFiles
from pytrace.storage.files import flush
from pytrace.training.network import train_package
from pytrace.training.training_settings import RankerKind

_MODULES = [
    {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
    {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"},
]
_OUTPUTS: dict[RankerKind, str] = {"encoder": "last_hidden_state", "cross-encoder": "logits"}
_INPUTS = ("input_ids", "attention_mask", "token_type_ids")
# Smaller ones stay float32: the table of the two types of texts, a row of which is added to every token.
_LEAST = 8
_SPECIAL = ("unk", "sep", "pad", "cls", "mask")


def write_ranker(target: Path, network: Any, files: EncoderFiles, kind: RankerKind) -> None:
    """Write a ranker into a directory, which has all of it or is as it was before.

    `files` are those of the model that the training began with: the tokenizer stays.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    for left in target.parent.glob(f".{target.name}.*"):  # by one that was killed
        shutil.rmtree(left)
    # Beside the target, so that renaming is all that is left to do.
    new = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        _write_weights(new, network)
        _write_settings(new, network, files, kind)
        (new / "onnx").mkdir()
        model = float_graph(network, kind)
        store_int8(model)
        (new / "onnx" / "model.onnx").write_bytes(model.SerializeToString())
        new.chmod(0o755)
        for path in (*new.rglob("*"), new):
            flush(path)
        if target.exists():
            before = new.with_name(f"{new.name}.before")
            target.rename(before)
            new.rename(target)
            shutil.rmtree(before)
        else:
            new.rename(target)
        flush(target.parent)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _write_weights(new: Path, network: Any) -> None:
    # Not by `save_pretrained`, which draws a bar.
    network.config.architectures = [type(network).__name__]
    network.config.to_json_file(new / "config.json")
    weights = {name: weight.detach().contiguous() for name, weight in network.state_dict().items()}
    train_package("safetensors.torch").save_file(weights, new / "model.safetensors", metadata={"format": "pt"})


def _write_settings(new: Path, network: Any, files: EncoderFiles, kind: RankerKind) -> None:
    tokenizer = Tokenizer.from_file(str(files.tokenizer))
    # What it was cut to and padded to elsewhere is no part of it.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.save(str(new / "tokenizer.json"))
    marks = {f"{name}_token": f"[{name.upper()}]" for name in _SPECIAL}
    _write_json(
        new / "tokenizer_config.json",
        # Without names of inputs transformers gives no types of tokens, and a passage is read as the question goes on.
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_input_names": list(_INPUTS),
            "model_max_length": files.max_tokens,
            **marks,
        },
    )
    if kind == "cross-encoder":
        _write_json(new / "config_sentence_transformers.json", {"model_type": "CrossEncoder"})
        return
    _write_json(new / "modules.json", _MODULES)
    _write_json(
        new / "1_Pooling" / "config.json",
        {"word_embedding_dimension": network.config.hidden_size, "pooling_mode_mean_tokens": True},
    )
    _write_json(
        new / "sentence_bert_config.json", {"max_seq_length": files.max_tokens, "do_lower_case": files.lower_case}
    )
    _write_json(
        new / "config_sentence_transformers.json",
        {"model_type": "SentenceTransformer", "prompts": files.prompts, "similarity_fn_name": "cosine"},
    )


def _write_json(path: Path, value: object) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def float_graph(network: Any, kind: RankerKind) -> Any:
    """Return the graph of a network in float32, as PyTorch exports it."""
    torch, onnx = train_package("torch"), train_package("onnx")
    train_package("onnxscript")
    output = _OUTPUTS[kind]

    class Outputs(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, input_ids: Any, attention_mask: Any, token_type_ids: Any) -> Any:
            return self.network(
                input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids
            )[output]  # fmt: skip

    ids = torch.tensor([[2, 5, 6, 3], [2, 7, 3, 0]])
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]])
    free = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    with tempfile.TemporaryDirectory() as place, warnings.catch_warnings(), _unlogged():
        warnings.simplefilter("ignore")  # the exporter's own packages use what is to go
        path = Path(place) / "model.onnx"
        torch.onnx.export(
            Outputs().eval(), (ids, mask, torch.zeros_like(ids)), str(path), input_names=list(_INPUTS),
            output_names=[output], dynamic_shapes=(free,) * len(_INPUTS), dynamo=True, external_data=False, verbose=False,
        )  # fmt: skip
        return onnx.load(str(path))


@contextmanager
def _unlogged() -> Iterator[None]:
    """Keep the exporter from telling which packages it could use, too."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)


def store_int8(model: Any) -> None:
    """Store the matrices of a graph, those of products and of tables that rows are taken from, as int8 with scales."""
    onnx = train_package("onnx")
    graph = model.graph
    # A product's scale goes with the output, a table's with the row; one that is used in both ways stays.
    axes: dict[str, set[int]] = {}
    for node in graph.node:
        for place, axis in {"MatMul": (1, 0), "Gather": (0, 1)}.items():
            if node.op_type == place:
                axes.setdefault(node.input[axis[0]], set()).add(axis[1])
    made, nodes = [], []
    for item in graph.initializer:
        matrix = item.data_type == onnx.TensorProto.FLOAT and len(item.dims) == 2 and min(item.dims) >= _LEAST
        if not matrix or len(axes.get(item.name, ())) != 1:
            made.append(item)
            continue
        values = onnx.numpy_helper.to_array(item)
        largest = np.abs(values).max(axis=min(axes[item.name]), keepdims=True)
        scale = np.where(largest > 0, largest / 127, 1).astype(np.float32)
        name = item.name
        made += [
            onnx.numpy_helper.from_array(np.rint(values / scale).astype(np.int8), f"{name}_q"),
            onnx.numpy_helper.from_array(scale, f"{name}_scale"),
        ]
        nodes += [
            onnx.helper.make_node("Cast", [f"{name}_q"], [f"{name}_f"], to=onnx.TensorProto.FLOAT),
            onnx.helper.make_node("Mul", [f"{name}_f", f"{name}_scale"], [name]),
        ]
    nodes += graph.node
    del graph.initializer[:], graph.node[:]
    graph.initializer.extend(made)
    graph.node.extend(nodes)
