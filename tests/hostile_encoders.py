"""Encoders whose graph or tokenizer would end, hold up or fill the process that loads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper

from tests.models.test_encoder import TABLE, make


def _big(*nodes: Any, **values: int | list[int]) -> dict[str, Any]:
    return {"nodes": list(nodes), "values": {name: np.array(value) for name, value in values.items()}}


def _twice(at: int) -> list[Any]:
    """Return functions that each call the next one twice."""
    ends = at == 40
    body = [helper.make_node("Identity", ["x"], ["y"])]
    if not ends:
        body = [helper.make_node(f"F{at + 1}", [x], [y], domain="own") for x, y in (("x", "m"), ("m", "y"))]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    return [helper.make_function("own", f"F{at}", ["x"], ["y"], body, opsets), *([] if ends else _twice(at + 1))]


def _counting() -> Any:
    value = helper.make_tensor_value_info
    return helper.make_graph(
        [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Add", ["n", "n"], ["more"])],
        "body",
        [value("i", 7, []), value("go", 9, []), value("n", 7, [])],
        [value("on", 9, []), value("more", 7, [])],
    )


# What makes the tensor "big" beside what the encoder computes.
GRAPHS: dict[str, dict[str, Any]] = {
    "a constant of a terabyte": _big(helper.make_node("ConstantOfShape", ["n"], ["big"]), n=[1 << 20, 1 << 18]),
    "a one-hot vector of a terabyte": _big(
        helper.make_node("OneHot", ["input_ids", "n", "ends"], ["big"]), n=[1 << 38], ends=[0, 1]
    ),
    "token vectors repeated without end": _big(helper.make_node("Expand", ["hidden", "n"], ["big"]), n=[1 << 30, 1, 1, 1]),
    "a constant that doubles when it is folded": _big(
        *(helper.make_node("Concat", [f"n{k}" if k else "n"] * 2, [f"n{k + 1}"], axis=0) for k in range(32)),
        helper.make_node("Identity", ["n32"], ["big"]),
        n=list(range(64)),
    ),
    "vectors that double": _big(
        *(helper.make_node("Concat", [f"h{k}" if k else "hidden"] * 2, [f"h{k + 1}"], axis=2) for k in range(40)),
        helper.make_node("Identity", ["h40"], ["big"]),
    ),
    "a loop without end": _big(
        helper.make_node("Loop", ["n", "", "one"], ["big"], body=_counting()), n=1 << 62, one=1
    ),
    "functions that call two each": {
        **_big(helper.make_node("F0", ["hidden"], ["big"], domain="own")),
        "functions": _twice(0),
    },
}  # fmt: skip


def _replace(pattern: str, content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"String": pattern}, "content": content}


_BPE = {
    "type": "BPE",
    "dropout": None,
    "unk_token": None,
    "end_of_word_suffix": None,
    "fuse_unk": False,
    "byte_fallback": False,
}
# Members of tokenizer.json, with how the process that reads them ends.
TOKENIZERS: dict[str, dict[str, Any]] = {
    "a character map that claims all memory": {
        "normalizer": {"type": "Precompiled", "precompiled_charsmap": "/////w=="}
    },
    "a character map cut off": {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "BAAAAP////8A"}},
    "a merge behind its word's end": {
        "model": {**_BPE, "continuing_subword_prefix": "##", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]]}
    },
    "pieces of no length": {"pre_tokenizer": {"type": "FixedLength", "length": 0}},
    "text that doubles": {"normalizer": {"type": "Sequence", "normalizers": [_replace("a", "aa")] * 40}},
}


def make_hostile(place: Path, what: str) -> Path:
    """Write an encoder with one of the graphs or tokenizers above."""
    make(place)
    if what in TOKENIZERS:
        path = place / "tokenizer.json"
        path.write_text(
            json.dumps({**json.loads(path.read_text(encoding="utf-8")), **TOKENIZERS[what]}), encoding="utf-8"
        )
        return place
    odd = GRAPHS[what]
    names = ("input_ids", "attention_mask")
    graph = helper.make_graph(
        [
            helper.make_node("Gather", ["table", "input_ids"], ["hidden"]),
            *odd["nodes"],
            helper.make_node("Cast", ["big"], ["float"], to=onnx.TensorProto.FLOAT),
            helper.make_node("ReduceMax", ["float"], ["most"], keepdims=0),
            helper.make_node("Add", ["hidden", "most"], ["last_hidden_state"]),
        ],
        "hostile",
        [helper.make_tensor_value_info(name, onnx.TensorProto.INT64, ["batch", "sequence"]) for name in names],
        [helper.make_tensor_value_info("last_hidden_state", onnx.TensorProto.FLOAT, ["batch", "sequence", 5])],
        [onnx.numpy_helper.from_array(value, name) for name, value in {"table": TABLE, **odd["values"]}.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8, functions=odd.get("functions", []))
    (place / "model.onnx").write_bytes(model.SerializeToString())
    return place
