"""Models of entailment in ONNX that judge by a rule: a claim follows if all its words stand in the evidence, and is refuted by "not"."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

WORDS = (
    "lake", "volta", "lies", "in", "ghana", "was", "made", "1965", "it", "not", "deep", "blue", "geese", "fly", "south", "and", "the",
    ".", "river", "akosombo", "dam", "built",
)  # fmt: skip
_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
NLI = ("entailment", "contradiction", "neutral")


def write_model(
    place: Path,
    labels: Sequence[str] | dict[str, object] | None = NLI,
    *,
    kind: Literal["pair", "token"] = "pair",
    length: int = 64,
    outputs: Sequence[int] = (0, 1, 2),
    value: float = 1.0,
) -> Path:
    """Write a model whose logits are, in the order of `outputs`, those of supported, contradicted and not there, times `value`.

    Of tokens there are two, supported and not.
    """
    place.mkdir(parents=True, exist_ok=True)
    _write_tokenizer(place / "tokenizer.json")
    named = dict(zip(map(str, range(len(labels))), labels, strict=True)) if isinstance(labels, Sequence) else labels
    task = "Token" if kind == "token" else "Sequence"
    config = {"architectures": [f"BertFor{task}Classification"], "max_position_embeddings": length}
    (place / "config.json").write_text(
        json.dumps({**config, **({} if named is None else {"id2label": named})}), "utf-8"
    )
    (place / "tokenizer_config.json").write_text(json.dumps({"model_max_length": length}), "utf-8")
    nodes = [
        helper.make_node("Unsqueeze", ["input_ids", "axis2"], ["down"]),
        helper.make_node("Unsqueeze", ["input_ids", "axis1"], ["across"]),
        helper.make_node("Equal", ["down", "across"], ["equal"]),
        helper.make_node("Cast", ["equal"], ["same"], to=TensorProto.FLOAT),
        helper.make_node("Cast", ["token_type_ids"], ["second"], to=TensorProto.FLOAT),
        helper.make_node("Cast", ["attention_mask"], ["real"], to=TensorProto.FLOAT),
        helper.make_node("Sub", ["real", "second"], ["first"]),
        helper.make_node("Unsqueeze", ["first", "axis2"], ["first3"]),
        helper.make_node("MatMul", ["same", "first3"], ["found3"]),
        helper.make_node("Squeeze", ["found3", "axis2"], ["found"]),
        helper.make_node("Less", ["found", "half"], ["absent"]),
        helper.make_node("Cast", ["absent"], ["lacking"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["lacking", "second"], ["missing"]),
        helper.make_node("Equal", ["input_ids", "no"], ["denied"]),
        helper.make_node("Cast", ["denied"], ["negations"], to=TensorProto.FLOAT),
    ]
    constants = {
        "axis1": np.array([1]), "axis2": np.array([2]), "half": np.float32(0.5), "no": np.int64(_id("not")),
        "scale": np.float32(value),
    }  # fmt: skip
    if kind == "token":
        nodes += [
            helper.make_node("Unsqueeze", ["missing", "axis2"], ["missing3"]),
            helper.make_node("MatMul", ["missing3", "head"], ["turned"]),
            helper.make_node("Add", ["turned", "bias"], ["sum"]),
        ]
        constants |= {"head": np.array([[-20, 20]], np.float32), "bias": np.array([10, -10], np.float32)}
        shape = ["batch", "sequence", 2]
    else:
        nodes += [
            helper.make_node("ReduceSum", ["missing", "axis1"], ["misses"], keepdims=1),
            helper.make_node("ReduceSum", ["negations", "axis1"], ["nots"], keepdims=1),
            helper.make_node("Concat", ["misses", "nots"], ["both"], axis=1),
            helper.make_node("MatMul", ["both", "head"], ["turned"]),
            helper.make_node("Add", ["turned", "bias"], ["sum"]),
        ]
        head = np.array([[-20, 0, 20], [0, 200, 0]], np.float32)
        constants |= {
            "head": np.ascontiguousarray(head[:, list(outputs)]),
            "bias": np.array([10, -10, -10], np.float32)[list(outputs)],
        }
        shape = ["batch", len(outputs)]
    nodes.append(helper.make_node("Mul", ["sum", "scale"], ["logits"]))
    graph = helper.make_graph(
        nodes,
        "rule",
        [
            helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "sequence"])
            for name in ("input_ids", "attention_mask", "token_type_ids")
        ],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, str(place / "model.onnx"))
    return place


def _id(word: str) -> int:
    return len(_SPECIAL) + WORDS.index(word)


def _write_tokenizer(path: Path) -> None:
    pieces = {piece: number for number, piece in enumerate((*_SPECIAL, *WORDS))}
    tokenizer = Tokenizer(models.WordLevel(pieces, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.save(str(path))
