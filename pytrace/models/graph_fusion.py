"""Rewriting a transformer's graph into onnxruntime's fused operators, where its own optimiser does not find them.

It looks for attention and Gelu as older exporters wrote them; newer ones guard the softmax against rows without a token,
build the mask by gathering, and multiply in another order. Here attention is whatever lies between three projections of
one input and a softmax between two products, and becomes one ``MultiHeadAttention`` with a mask of tokens. That may
overlook something (a relative position, a scale of the model's own), so a rewritten graph counts only once it has given
the same vectors as the one it was made from: see `OnnxGraph`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

_MICROSOFT = "com.microsoft"
# What only moves values about, or multiplies all of them by one number.
_MOVES = {"Transpose", "Reshape", "Squeeze", "Unsqueeze", "Identity"}
_SCALES = {"Mul", "Div"}
# What may stand between the scores and their softmax, or between that and the values: mask, guard, cast.
_GUARDS = {"Add", "Where", "Cast", "Identity", "Dropout", "IsNaN", "Mul", "Div"}


class _Projection(NamedTuple):
    source: str
    product: str  # before the bias
    bias: str
    head: int | None


class _Attention(NamedTuple):
    query: _Projection
    key: _Projection
    value: _Projection
    context: str  # the output that it stands for


def fused(path: Path) -> bytes | None:
    """Return a graph with its attention and Gelu fused, or None where there is none that is recognised.

    Raises
    ------
    ImportError
        onnx is not installed.
    """
    import onnx

    graph = _Graph(onnx.load(str(path)))
    return graph.model.SerializeToString() if graph.fuse_attention() + graph.fuse_gelu() else None


class _Graph:
    """A model with the look-ups that recognising patterns needs."""

    def __init__(self, model: Any) -> None:
        import onnx

        self.model = model
        self._onnx = onnx
        self._constants = {item.name: item for item in model.graph.initializer}
        for node in model.graph.node:
            if node.op_type == "Constant" and node.attribute and node.attribute[0].name == "value":
                self._constants[node.output[0]] = node.attribute[0].t
        self._known: set[str] = set(self._constants)
        for node in model.graph.node:  # sorted topologically, as every graph is
            if node.input and all(name in self._known for name in node.input):
                self._known.update(node.output)  # weights that are stored otherwise than they are used
        self._index()

    def _index(self) -> None:
        self._makers = {name: node for node in self.model.graph.node for name in node.output if name}
        self._users = defaultdict(list)
        for node in self.model.graph.node:
            for name in node.input:
                self._users[name].append(node)

    def fuse_attention(self) -> int:
        inputs = {item.name for item in self.model.graph.input}
        if "attention_mask" not in inputs:
            return 0
        found = [
            one
            for node in self.model.graph.node
            if node.op_type == "Softmax" and (one := self._attention(node)) is not None
        ]
        made: dict[str, list[Any]] = {}
        make = self._onnx.helper.make_node
        for number, one in enumerate(found):
            parts = (one.query, one.key, one.value)
            head, biases = one.query.head, [part.bias for part in parts]
            width = self._width(biases[0])
            if head is None or width is None or width % head:
                return 0
            name = f"fused_attention_{number}"
            made[one.context] = [
                make("Concat", biases, [f"{name}_bias"], axis=0),
                make(
                    "MultiHeadAttention",
                    [*(part.product for part in parts), f"{name}_bias", "fused_mask"],
                    [one.context],
                    name=name,
                    domain=_MICROSOFT,
                    num_heads=width // head,
                    mask_filter_value=-1e30,  # far below any score, so that padding weighs exactly nothing
                ),
            ]
        if made:
            mask = make("Cast", ["attention_mask"], ["fused_mask"], to=self._onnx.TensorProto.INT32)
            self._replace(made, [mask])
        return len(made)

    def fuse_gelu(self) -> int:
        made: dict[str, list[Any]] = {}
        for node in self.model.graph.node:
            if node.op_type == "Erf" and (one := self._gelu(node)) is not None:
                source, output = one
                made[output] = [self._onnx.helper.make_node("Gelu", [source], [output], domain=_MICROSOFT)]
        if made:
            self._replace(made, [])
        return len(made)

    def _attention(self, softmax: Any) -> _Attention | None:
        scores = self._back_to_product(softmax.input[0])
        if scores is None:
            return None
        query, key = (self._projection(name) for name in scores.input)
        mixed = self._on_to_product(softmax.output[0])
        if mixed is None or query is None or key is None:
            return None
        value = self._projection(mixed.input[1])
        if value is None or len({query.source, key.source, value.source}) > 1:
            return None
        context = mixed.output[0]
        while len(self._users[context]) == 1 and self._users[context][0].op_type in _MOVES:
            context = self._users[context][0].output[0]
        return _Attention(query, key, value, context)

    def _back_to_product(self, name: str) -> Any:
        """Find the product of two computed values that scores come from."""
        waiting = [name]
        while waiting:
            node = self._makers.get(waiting.pop())
            if node is None:
                continue
            if node.op_type == "MatMul" and not any(name in self._known for name in node.input):
                return node
            if node.op_type in _GUARDS:
                waiting.extend(name for name in node.input if name not in self._known)
        return None

    def _on_to_product(self, name: str) -> Any:
        """Find the product that takes the weights of a softmax as its first factor."""
        waiting = [name]
        while waiting:
            for node in self._users[waiting.pop()]:
                if node.op_type == "MatMul":
                    return node
                if node.op_type in _GUARDS:
                    waiting.extend(node.output)
        return None

    def _projection(self, name: str) -> _Projection | None:
        head: int | None = None
        while (node := self._makers.get(name)) is not None:
            computed = [one for one in node.input if one not in self._known]
            if node.op_type == "Reshape":
                head = self._last_of_shape(node.input[1]) or head
                name = node.input[0]
            elif node.op_type in _MOVES or (node.op_type in _SCALES and len(computed) == 1):
                name = computed[0]
            elif node.op_type == "Add" and len(computed) == 1:
                (bias,) = (one for one in node.input if one in self._known)
                product = self._makers.get(computed[0])
                if product is None or product.op_type != "MatMul" or product.input[1] not in self._known:
                    return None
                return _Projection(product.input[0], product.output[0], bias, head)
            else:
                return None
        return None

    def _last_of_shape(self, name: str) -> int | None:
        """Return the last number of a shape, which in a projection's is the width of a head."""
        node = self._makers.get(name)
        if name in self._constants:
            values = self._onnx.numpy_helper.to_array(self._constants[name])
            return int(values[-1]) if values.ndim == 1 and len(values) == 4 and values[-1] > 0 else None
        if node is not None and node.op_type == "Concat" and node.input[-1] in self._constants:
            last = self._onnx.numpy_helper.to_array(self._constants[node.input[-1]])
            return int(last[0]) if last.shape == (1,) and last[0] > 0 else None
        return None

    def _width(self, bias: str) -> int | None:
        stored = self._constants.get(bias)
        return int(stored.dims[0]) if stored is not None and len(stored.dims) == 1 else None

    def _gelu(self, erf: Any) -> tuple[str, str] | None:
        """Recognise x / 2 * (1 + erf(x / sqrt 2)), multiplied in any order; returns the names of x and of the result."""
        inner = self._makers.get(erf.input[0])
        if inner is None or inner.op_type not in _SCALES:
            return None
        source, number = self._with_number(inner)
        expected = math.sqrt(2) if inner.op_type == "Div" else math.sqrt(0.5)
        if source is None or number is None or not math.isclose(number, expected, rel_tol=1e-3):
            return None
        node = self._only_user(erf.output[0])
        if node is None or node.op_type != "Add" or self._with_number(node)[1] != 1:
            return None
        halved = multiplied = False
        while not (halved and multiplied):
            output = node.output[0]
            node = self._only_user(output)
            if node is None or node.op_type != "Mul":
                return None
            (other,) = [name for name in node.input if name != output] or [output]
            half = self._makers.get(other)
            if self._number(other) == 0.5 and not halved:
                halved = True
            elif other == source and not multiplied:
                multiplied = True
            elif half is not None and half.op_type == "Mul" and self._with_number(half) == (source, 0.5):
                halved = multiplied = True
            else:
                return None
        return source, node.output[0]

    def _only_user(self, name: str) -> Any:
        users = self._users[name]
        return users[0] if len(users) == 1 else None

    def _with_number(self, node: Any) -> tuple[str | None, float | None]:
        """Split an operation on a value and one number."""
        for value, other in (node.input, tuple(node.input)[::-1]):
            if (number := self._number(other)) is not None:
                return value, number
        return None, None

    def _number(self, name: str) -> float | None:
        stored = self._constants.get(name)
        if stored is None or math.prod(stored.dims) != 1:
            return None
        return float(np.asarray(self._onnx.numpy_helper.to_array(stored)).reshape(-1)[0])

    def _replace(self, made: dict[str, list[Any]], first: list[Any]) -> None:
        """Put new nodes where the outputs that they give were made, and drop what nobody uses any more."""
        nodes = list(first)
        for node in self.model.graph.node:
            new = next((made[name] for name in node.output if name in made), None)
            nodes.extend([node] if new is None else new)
        needed = {item.name for item in self.model.graph.output}
        kept = [node for node in reversed(nodes) if self._is_needed(node, needed)][::-1]
        del self.model.graph.node[:]
        self.model.graph.node.extend(kept)
        weights = [item for item in self.model.graph.initializer if item.name in needed]
        del self.model.graph.initializer[:]
        self.model.graph.initializer.extend(weights)
        if _MICROSOFT not in {item.domain for item in self.model.opset_import}:
            self.model.opset_import.append(self._onnx.helper.make_opsetid(_MICROSOFT, 1))
        self._index()

    @staticmethod
    def _is_needed(node: Any, needed: set[str]) -> bool:
        if not needed.intersection(node.output):
            return False
        needed.update(node.input)
        return True
