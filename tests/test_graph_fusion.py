"""Fused graphs against NumPy, in the shapes that exporters give attention and Gelu; and what must not be fused."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytrace.models.onnx_graph import OnnxGraph

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed (extra cpu)")
onnx = pytest.importorskip("onnx", reason="onnx is not installed (extra cpu)")

WORDS, WIDTH, HEADS, INNER = 1000, 16, 4, 24
HEAD = WIDTH // HEADS
RANDOM = np.random.default_rng(5)
WEIGHTS: dict[str, np.ndarray[Any, Any]] = {
    "table": RANDOM.normal(size=(WORDS, WIDTH)),
    "g": RANDOM.normal(size=WIDTH),
    "b": RANDOM.normal(size=WIDTH),
    **{name: RANDOM.normal(size=(WIDTH, WIDTH)) * 0.4 for name in ("wq", "wk", "wv", "wo")},
    **{name: RANDOM.normal(size=WIDTH) for name in ("bq", "bk", "bv", "bo")},
    "wi": RANDOM.normal(size=(WIDTH, INNER)) * 0.4,
    "bi": RANDOM.normal(size=INNER),
    "wf": RANDOM.normal(size=(INNER, WIDTH)) * 0.4,
}
WEIGHTS = {name: value.astype(np.float32) for name, value in WEIGHTS.items()}
TOKENS = [[7, 300, 12, 999, 5, 5, 81], [41], [2, 650, 3]]

GUARDED, CLASSIC, REPLACED = "guarded", "classic", "replaced"


class Writer:
    """Writes one layer of BERT as an exporter would."""

    def __init__(self, *, attention: str, gelu: str, stored: str = "float32", twist: str = "") -> None:
        self.nodes: list[Any] = []
        self.values = dict(WEIGHTS)
        self.count = 0
        if stored == "int8":
            for name in ("wq", "wk", "wv", "wo", "wi", "wf"):
                value = self.values.pop(name)
                scale = np.abs(value).max(axis=0, keepdims=True) / 127
                self.values |= {f"{name}_q": np.round(value / scale).astype(np.int8), f"{name}_s": scale}
                self.op("Mul", self.op("Cast", f"{name}_q", to=onnx.TensorProto.FLOAT), f"{name}_s", out=name)
        embedded = self.op("Gather", "table", "input_ids")
        x = self.op("LayerNormalization", embedded, "g", "b", epsilon=1e-6)
        context = self.classic(x, twist) if attention == CLASSIC else getattr(self, attention)(x)
        y = self.op("LayerNormalization", self.op("Add", self.linear(context, "wo", "bo"), x), "g", "b", epsilon=1e-6)
        inner = self.linear(y, "wi", "bi")
        self.op("Add", self.op("MatMul", getattr(self, f"gelu_{gelu}")(inner, twist), "wf"), y, out="last_hidden_state")

    def op(self, kind: str, *inputs: str | float | np.ndarray[Any, Any], out: str = "", **attributes: Any) -> str:
        names = []
        for value in inputs:
            if isinstance(value, str):
                names.append(value)
            else:
                self.count += 1
                names.append(f"constant {self.count}")
                self.values[names[-1]] = np.asarray(value, np.float32) if isinstance(value, float) else value
        self.count += 1
        output = out or f"value {self.count}"
        self.nodes.append(onnx.helper.make_node(kind, names, [output], **attributes))
        return output

    def linear(self, x: str, weight: str, bias: str) -> str:
        product = self.op("MatMul", x, weight)
        return self.op("Add", bias, product) if weight == "wk" else self.op("Add", product, bias)

    def heads(self, x: str, weight: str, bias: str, perm: tuple[int, ...] = (0, 2, 1, 3)) -> str:
        linear = self.linear(x, weight, bias)
        shape = self.op("Shape", "input_ids")
        target = self.op("Concat", shape, np.array([-1]), np.array([HEAD]), axis=0)
        return self.op("Transpose", self.op("Reshape", linear, target), perm=perm)

    def fixed_heads(self, x: str, weight: str, bias: str, perm: tuple[int, ...] = (0, 2, 1, 3)) -> str:
        reshaped = self.op("Reshape", self.linear(x, weight, bias), np.array([0, 0, HEADS, HEAD]))
        return self.op("Transpose", reshaped, perm=perm)

    def mask(self) -> str:
        """Write the mask as [texts, 1, 1, tokens] of bool."""
        return self.op("Unsqueeze", self.op("Cast", "attention_mask", to=onnx.TensorProto.BOOL), np.array([1, 2]))

    def joined(self, mixed: str) -> str:
        return self.op("Reshape", self.op("Transpose", mixed, perm=(0, 2, 1, 3)), np.array([0, 0, WIDTH]))

    def guarded(self, x: str) -> str:
        """Write it as torch's new exporter does: both sides scaled, and rows without a token guarded."""
        root = HEAD**-0.25
        query, value = self.heads(x, "wq", "bq"), self.heads(x, "wv", "bv")
        key = self.heads(x, "wk", "bk", (0, 2, 3, 1))
        scores = self.op("MatMul", self.op("Mul", query, root), self.op("Mul", key, root))
        scores = self.op("Add", scores, self.op("Where", self.mask(), 0.0, -3.4e38))
        weights = self.op("Softmax", scores, axis=-1)
        weights = self.op("Where", self.op("IsNaN", weights), 0.0, weights)
        return self.joined(self.op("MatMul", weights, value))

    def classic(self, x: str, twist: str) -> str:
        """Write it as torch's old exporter does, with shapes that stand in the file."""
        key = self.fixed_heads(x, "wk", "bk", (0, 2, 3, 1))
        scores = self.op("MatMul", self.fixed_heads(x, "wq", "bq"), key)
        scores = self.op("Div", scores, 1.7 if twist == "scale" else math.sqrt(HEAD))
        numbers = self.op("Cast", self.mask(), to=onnx.TensorProto.FLOAT)
        scores = self.op("Add", scores, self.op("Mul", self.op("Sub", 1.0, numbers), -1e9))
        if twist == "position":
            ids = self.op("Unsqueeze", self.op("Cast", "input_ids", to=onnx.TensorProto.FLOAT), np.array([1, 2]))
            scores = self.op("Add", scores, self.op("Mul", ids, 0.001))
        if twist == "window":  # each token sees those less than 64 places away
            length = self.op("Gather", self.op("Shape", "input_ids"), np.array(1))
            places = self.op("Cast", self.op("Range", np.array(0), length, np.array(1)), to=onnx.TensorProto.FLOAT)
            apart = self.op("Abs", self.op("Sub", self.op("Unsqueeze", places, np.array([1])), places))
            scores = self.op("Add", scores, self.op("Where", self.op("Less", apart, 64.0), 0.0, -1e9))
        weights = self.op("Softmax", scores, axis=-1)
        return self.joined(self.op("MatMul", weights, self.fixed_heads(x, "wv", "bv")))

    def replaced(self, x: str) -> str:
        """Write masked scores as replaced ones."""
        key = self.fixed_heads(x, "wk", "bk", (0, 2, 3, 1))
        scores = self.op("Mul", self.op("MatMul", self.fixed_heads(x, "wq", "bq"), key), HEAD**-0.5)
        weights = self.op("Softmax", self.op("Where", self.mask(), scores, -1e9), axis=-1)
        return self.joined(self.op("MatMul", weights, self.fixed_heads(x, "wv", "bv")))

    def _one_and_erf(self, x: str, twist: str) -> str:
        erf = self.op("Erf", self.op("Div", x, 1.3 if twist == "gelu" else math.sqrt(2)))
        return self.op("Add", 1.0, erf)

    def gelu_guarded(self, x: str, twist: str) -> str:
        return self.op("Mul", x, self.op("Mul", 0.5, self._one_and_erf(x, twist)))

    def gelu_classic(self, x: str, twist: str) -> str:
        return self.op("Mul", self.op("Mul", x, self._one_and_erf(x, twist)), 0.5)

    def gelu_replaced(self, x: str, twist: str) -> str:
        return self.op("Mul", self.op("Mul", x, 0.5), self._one_and_erf(x, twist))

    def save(self, path: Path) -> Path:
        helper, types = onnx.helper, onnx.TensorProto
        graph = helper.make_graph(
            self.nodes,
            "layer",
            [helper.make_tensor_value_info(name, types.INT64, ["n", "s"]) for name in ("input_ids", "attention_mask")],
            [helper.make_tensor_value_info("last_hidden_state", types.FLOAT, ["n", "s", WIDTH])],
            [onnx.numpy_helper.from_array(value, name) for name, value in self.values.items()],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnx.checker.check_model(model)
        onnx.save(model, str(path))
        return path


def normal(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-6) * WEIGHTS["g"] + WEIGHTS["b"]


def layer(ids: list[int], *, root: float = 2.0, scale: float = math.sqrt(HEAD), tilt: float = 0) -> Any:
    """Compute the layer for one text, in float64 and without padding."""
    w = {name: value.astype(np.float64) for name, value in WEIGHTS.items()}
    x = normal(w["table"][ids])
    query, key, value = (
        (x @ w[f"w{name}"] + w[f"b{name}"]).reshape(len(ids), HEADS, HEAD).transpose(1, 0, 2) for name in "qkv"
    )
    scores = np.exp(query @ key.transpose(0, 2, 1) / scale + tilt * np.array(ids))
    mixed = (scores / scores.sum(axis=-1, keepdims=True) @ value).transpose(1, 0, 2).reshape(len(ids), WIDTH)
    y = normal(mixed @ w["wo"] + w["bo"] + x)
    inner = y @ w["wi"] + w["bi"]
    return inner / 2 * (1 + np.vectorize(math.erf)(inner / math.sqrt(root))) @ w["wf"] + y


def check(graph: OnnxGraph, tolerance: float = 2e-5, **options: float) -> None:
    found, mask = graph.run(TOKENS, 0)
    for row, ids in enumerate(TOKENS):
        np.testing.assert_allclose(found[row][mask[row]], layer(ids, **options), atol=tolerance)


STYLES = [GUARDED, CLASSIC, REPLACED]


def operators(content: bytes | None) -> set[str]:
    return {node.op_type for node in onnx.load_from_string(content or b"").graph.node}


@pytest.mark.parametrize("attention", STYLES)
@pytest.mark.parametrize("gelu", STYLES)
def test_attention_and_gelu_are_fused_however_they_are_written(tmp_path: Path, attention: str, gelu: str) -> None:
    from pytrace.models.graph_fusion import fused

    path = Writer(attention=attention, gelu=gelu).save(tmp_path / "model.onnx")
    left = operators(fused(path))
    assert {"MultiHeadAttention", "Gelu"} <= left
    assert not {"Softmax", "Erf", "Transpose", "IsNaN"} & left
    graph = OnnxGraph(path)
    assert graph.fused
    check(graph)
    plain = OnnxGraph(path, fuse=False)
    assert not plain.fused
    check(plain)


def test_weights_stored_as_int8_stay_so_in_a_fused_graph(tmp_path: Path) -> None:
    from pytrace.models.graph_fusion import fused

    path = Writer(attention=GUARDED, gelu=GUARDED, stored="int8").save(tmp_path / "model.onnx")
    content = fused(path)
    assert {"MultiHeadAttention", "Gelu"} <= operators(content)
    assert len(content or b"") < path.stat().st_size + 2000
    graph = OnnxGraph(path)
    assert graph.fused
    np.testing.assert_allclose(graph.run(TOKENS, 0)[0], OnnxGraph(path, fuse=False).run(TOKENS, 0)[0], atol=2e-5)
    check(graph, tolerance=0.5)


@pytest.mark.parametrize(
    ("twist", "options"),
    [("scale", {"scale": 1.7}), ("position", {"tilt": 0.001}), ("window", {}), ("gelu", {"root": 1.69})],
)
def test_what_a_fused_operator_would_overlook_is_left_as_it_is(
    tmp_path: Path, twist: str, options: dict[str, float]
) -> None:
    path = Writer(attention=CLASSIC, gelu=CLASSIC, twist=twist).save(tmp_path / "model.onnx")
    graph = OnnxGraph(path)
    assert graph.fused == (twist == "gelu")  # attention alone
    check(graph, **options)


@pytest.mark.parametrize("batch", [[0], [1], [2, 0], [1, 2]])
def test_fused_vectors_do_not_depend_on_their_neighbours(tmp_path: Path, batch: list[int]) -> None:
    graph = OnnxGraph(Writer(attention=CLASSIC, gelu=CLASSIC).save(tmp_path / "model.onnx"))
    together, _ = graph.run(TOKENS, 0)
    found, mask = graph.run([TOKENS[index] for index in batch], 0)
    for row, index in enumerate(batch):
        np.testing.assert_allclose(found[row][mask[row]], together[index][: mask[row].sum()], atol=1e-6)


@pytest.mark.parametrize("content", [b"", b"no graph" * 50])
def test_what_is_no_graph_is_left_to_the_loader(tmp_path: Path, content: bytes) -> None:
    from pytrace.errors import ModelFileError

    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with pytest.raises(ModelFileError, match="no ONNX graph that can be loaded"):
        OnnxGraph(path)


@pytest.mark.models
def test_minilm_is_fused(tiny_models: dict[Any, Path]) -> None:
    path = tiny_models["encoder"] / "model.onnx"
    graph, plain = OnnxGraph(path), OnnxGraph(path, fuse=False)
    assert graph.fused
    ids = [[101, *range(2000, 2000 + length), 102] for length in (3, 40, 11)]
    found, mask = graph.run(ids, 0)
    expected, _ = plain.run(ids, 0)
    np.testing.assert_allclose(found[mask], expected[mask], atol=2e-5)
