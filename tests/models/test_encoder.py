"""The encoder against graphs small enough to compute by hand, and against the real MiniLM."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from pytrace.cli.commands import Command, click_command
from pytrace.cli.shared_options import MODELS
from pytrace.engine.loading import Engine
from pytrace.errors import DeviceUnavailableError, ModelError, ModelFileError, StoreError
from pytrace.models import registry
from pytrace.models.encoders.encoder import Encoder, OnnxEncoder
from pytrace.models.encoders.onnx_graph import OnnxGraph, weight_files
from pytrace.models.encoders.onnx_model import plan
from pytrace.models.scripted import HashEncoder

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed (extra cpu)")
onnx = pytest.importorskip("onnx", reason="onnx is not installed (dependency group test)")

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "red", "green", "blue", "house", "river", "query:", "passage:"]
DIMENSION = 5
TABLE = np.random.default_rng(7).normal(size=(len(WORDS), DIMENSION)).astype(np.float32)


def write_tokenizer(path: Path, *, special: bool = True) -> None:
    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if special:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
        )
    # As published tokenizers often have it: settings of the export, which the encoder must not inherit.
    tokenizer.enable_padding(length=128)
    tokenizer.enable_truncation(max_length=128)
    tokenizer.save(str(path))


def write_graph(
    path: Path,
    *,
    inputs: Sequence[str] = ("input_ids", "attention_mask"),
    integer: int = onnx.TensorProto.INT64,
    output: str = "last_hidden_state",
    shape: Sequence[Any] = ("batch", "sequence"),
    pooled: bool = False,
    table: np.ndarray[Any, Any] = TABLE,
    quantized: bool = False,
    weights: str = "float32",
    external: str | None = None,
    more: Sequence[tuple[str, int, Sequence[Any]]] = (),
    both: bool = False,
) -> None:
    """Write a graph that looks each token's vector up in `table`; `weights` says how that is stored and computed with.

    `more` are inputs beside the usual ones: what a scalar is and how many numbers another holds is added to every vector.
    With `both`, it gives 'token_embeddings' beside its output.
    """
    helper = onnx.helper
    given = onnx.TensorProto.FLOAT
    nodes = []
    stored = {"table": table}
    if weights == "float16":
        stored, given = {"table": table.astype(np.float16)}, onnx.TensorProto.FLOAT16
    elif weights != "float32":
        scale = np.abs(table).max(axis=1, keepdims=True) / 127
        stored = {"table_q": np.round(table / scale).astype(np.int8), "table_scale": scale}
        if weights == "int8 cast":
            nodes += [
                helper.make_node("Cast", ["table_q"], ["table_f"], to=onnx.TensorProto.FLOAT),
                helper.make_node("Mul", ["table_f", "table_scale"], ["table"]),
            ]
        else:
            stored["table_scale"] = scale[:, 0]
            nodes.append(helper.make_node("DequantizeLinear", ["table_q", "table_scale"], ["table"], axis=0))
    nodes.append(helper.make_node("Gather", ["table", "input_ids"], ["hidden"]))
    last = "hidden"
    if "position_ids" in inputs:
        nodes += [
            helper.make_node("Cast", ["position_ids"], ["position"], to=onnx.TensorProto.FLOAT),
            helper.make_node("Unsqueeze", ["position", "axis2"], ["position3"]),
            helper.make_node("Add", [last, "position3"], ["placed"]),
        ]
        last = "placed"
    for name, _, size in more:
        number = name if len(size) < 2 else f"{name}_size"
        nodes += [
            *([] if number == name else [helper.make_node("Size", [name], [number])]),
            helper.make_node("Cast", [number], [f"{name}_float"], to=onnx.TensorProto.FLOAT),
            helper.make_node("Add", [last, f"{name}_float"], [f"with_{name}"]),
        ]
        last = f"with_{name}"
    if quantized:
        nodes += [
            helper.make_node("DynamicQuantizeLinear", [last], ["q", "scale", "zero"]),
            helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["rough"]),
        ]
        last = "rough"
    if both:
        nodes.append(helper.make_node("Identity", [last], ["token_embeddings"]))
    if pooled:
        nodes += [
            helper.make_node("Cast", ["attention_mask"], ["weight"], to=onnx.TensorProto.FLOAT),
            helper.make_node("Unsqueeze", ["weight", "axis2"], ["weight3"]),
            helper.make_node("Mul", [last, "weight3"], ["weighted"]),
            helper.make_node("ReduceSum", ["weighted", "axis1"], ["sum"], keepdims=0),
        ]
        last = "sum"
    nodes.append(helper.make_node("Identity", [last], [output]))
    rank = ["batch", DIMENSION] if pooled else ["batch", "sequence", DIMENSION]
    graph = helper.make_graph(
        nodes,
        "lookup",
        [
            *(helper.make_tensor_value_info(name, integer, list(shape)) for name in inputs),
            *(helper.make_tensor_value_info(name, kind, list(size)) for name, kind, size in more),
        ],
        [
            helper.make_tensor_value_info(output, given, rank),
            *(
                [helper.make_tensor_value_info("token_embeddings", given, ["batch", "sequence", DIMENSION])]
                if both
                else []
            ),
        ],
        [
            *(onnx.numpy_helper.from_array(value, name) for name, value in stored.items()),
            onnx.numpy_helper.from_array(np.array([1]), "axis1"),
            onnx.numpy_helper.from_array(np.array([2]), "axis2"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, str(path), save_as_external_data=external is not None, location=external, size_threshold=0)


def write_settings(
    place: Path, *, pooling: str = "mean_tokens", normalize: bool = False, length: int | None = 8, **more: Any
) -> None:
    kinds = ["Transformer", "Pooling"] + ["Normalize"] * normalize + ["Dense"] * more.get("dense", False)
    modules = [
        {"path": "1_Pooling" * (kind == "Pooling"), "type": f"sentence_transformers.models.{kind}"} for kind in kinds
    ]
    (place / "1_Pooling").mkdir(exist_ok=True)
    (place / "modules.json").write_text(json.dumps(modules), encoding="utf-8")
    (place / "1_Pooling" / "config.json").write_text(json.dumps({f"pooling_mode_{pooling}": True}), encoding="utf-8")
    (place / "sentence_bert_config.json").write_text(
        json.dumps({"max_seq_length": length, "do_lower_case": more.get("lower_case", False)}), encoding="utf-8"
    )
    (place / "config_sentence_transformers.json").write_text(
        json.dumps({"prompts": more.get("prompts", {}), "default_prompt_name": more.get("default_prompt")}),
        encoding="utf-8",
    )


def make(place: Path, *, settings: dict[str, Any] | None = None, special: bool = True, **graph: Any) -> Path:
    write_graph(place / "model.onnx", **graph)
    write_tokenizer(place / "tokenizer.json", special=special)
    write_settings(place, **(settings or {}))
    return place


def tokens(text: str, *, limit: int = 8) -> list[int]:
    words = [WORDS.index(word) if word in WORDS else 1 for word in text.split()]
    return [2, *words[: limit - 2], 3]


def rows(text: str) -> np.ndarray[Any, Any]:
    return TABLE[tokens(text)].astype(np.float64)


TEXTS = ["red house", "river", "", "blue blue green river house", "red house", "what is this", "green"]


@pytest.mark.parametrize(
    ("pooling", "expected"),
    [
        ("mean_tokens", lambda text: rows(text).mean(axis=0)),
        ("cls_token", lambda text: rows(text)[0]),
        ("max_tokens", lambda text: rows(text).max(axis=0)),
        ("lasttoken", lambda text: rows(text)[-1]),
    ],
)
@pytest.mark.parametrize("batch_tokens", [1, 12, 1000])
def test_each_pooling_is_what_its_name_says(tmp_path: Path, pooling: str, expected: Any, batch_tokens: int) -> None:
    encoder = OnnxEncoder(make(tmp_path, settings={"pooling": pooling}), batch_tokens=batch_tokens)
    found = encoder.encode(TEXTS)
    assert found.dtype == np.float32
    assert found.shape == (len(TEXTS), encoder.dimension) == (len(TEXTS), DIMENSION)
    np.testing.assert_allclose(found, [expected(text) for text in TEXTS], rtol=1e-6)


def test_normalisation_is_the_models_own_and_can_be_overruled(tmp_path: Path) -> None:
    place = make(tmp_path, settings={"normalize": True})
    np.testing.assert_allclose(np.linalg.norm(OnnxEncoder(place).encode(TEXTS), axis=1), 1, rtol=1e-6)
    plain = OnnxEncoder(place, normalize=False).encode(TEXTS)
    np.testing.assert_allclose(plain, [rows(text).mean(axis=0) for text in TEXTS], rtol=1e-6)


def test_a_zero_vector_stays_zero_when_normalised(tmp_path: Path) -> None:
    place = make(tmp_path, settings={"normalize": True}, table=np.zeros_like(TABLE))
    np.testing.assert_array_equal(OnnxEncoder(place).encode(["red", "blue"]), np.zeros((2, DIMENSION)))


def test_a_pooled_graph_needs_no_pooling_configuration(tmp_path: Path) -> None:
    write_graph(tmp_path / "model.onnx", output="sentence_embedding", pooled=True)
    write_tokenizer(tmp_path / "tokenizer.json")
    found = OnnxEncoder(tmp_path).encode(TEXTS)
    np.testing.assert_allclose(found, [rows(text).sum(axis=0) for text in TEXTS], rtol=1e-5)


@pytest.mark.parametrize(
    "inputs",
    [("input_ids",), ("input_ids", "attention_mask", "token_type_ids")],
    ids="+".join,
)
@pytest.mark.parametrize("integer", [onnx.TensorProto.INT64, onnx.TensorProto.INT32])
def test_a_graph_is_fed_what_it_asks_for(tmp_path: Path, inputs: tuple[str, ...], integer: int) -> None:
    found = OnnxEncoder(make(tmp_path, inputs=inputs, integer=integer)).encode(TEXTS)
    np.testing.assert_allclose(found, [rows(text).mean(axis=0) for text in TEXTS], rtol=1e-6)


def test_positions_count_from_zero(tmp_path: Path) -> None:
    place = make(tmp_path, inputs=("input_ids", "attention_mask", "position_ids"))
    expected = [(rows(text) + np.arange(len(tokens(text)))[:, None]).mean(axis=0) for text in TEXTS]
    np.testing.assert_allclose(OnnxEncoder(place).encode(TEXTS), expected, rtol=1e-6)


@pytest.mark.parametrize("shape", [(2, 6), (1, "sequence"), ("batch", 7), (3, "sequence")])
def test_a_graph_of_fixed_shape_is_filled_up(tmp_path: Path, shape: tuple[Any, Any]) -> None:
    encoder = OnnxEncoder(make(tmp_path, shape=shape))
    limit = shape[1] if isinstance(shape[1], int) else 8
    expected = [TABLE[tokens(text, limit=limit)].mean(axis=0) for text in TEXTS]
    np.testing.assert_allclose(encoder.encode(TEXTS), expected, rtol=1e-6)


def test_a_graph_with_no_room_for_a_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="takes 1 tokens, which leaves no room for a text"):
        OnnxEncoder(make(tmp_path, shape=("batch", 1)))


def test_texts_are_cut_to_the_models_length_and_not_to_the_tokenizers(tmp_path: Path) -> None:
    long = "red " * 50
    for length in (4, 30):
        encoder = OnnxEncoder(make(tmp_path / str(length), settings={"length": length}))
        assert encoder.max_tokens == length
        expected = TABLE[tokens(long, limit=length)].mean(axis=0)
        np.testing.assert_allclose(encoder.encode([long])[0], expected, rtol=1e-6)


def test_the_length_comes_from_the_tokenizer_configuration_if_nothing_else_says(tmp_path: Path) -> None:
    place = make(tmp_path, settings={"length": None})
    assert OnnxEncoder(place).max_tokens == 128
    (place / "tokenizer_config.json").write_text('{"model_max_length": 64}', encoding="utf-8")
    assert OnnxEncoder(place).max_tokens == 64
    (place / "tokenizer_config.json").write_text('{"model_max_length": 1e30}', encoding="utf-8")
    assert OnnxEncoder(place).max_tokens == 128


def test_prompts_go_before_each_kind(tmp_path: Path) -> None:
    prompts = {"query": "query: ", "document": "passage: "}
    encoder = OnnxEncoder(make(tmp_path, settings={"prompts": prompts}))
    np.testing.assert_allclose(encoder.encode(["red"], kind="query")[0], rows("query: red").mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(encoder.encode(["red"], kind="passage")[0], rows("passage: red").mean(axis=0), rtol=1e-6)


def test_the_default_prompt_is_for_neither_kind(tmp_path: Path) -> None:
    """As in sentence-transformers, whose encode_query and encode_document leave it to encode."""
    encoder = OnnxEncoder(make(tmp_path, settings={"prompts": {"query": "query: "}, "default_prompt": "query"}))
    np.testing.assert_allclose(encoder.encode(["red"], kind="query")[0], rows("query: red").mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(encoder.encode(["red"], kind="passage")[0], rows("red").mean(axis=0), rtol=1e-6)


def test_lower_casing_is_the_models_own(tmp_path: Path) -> None:
    encoder = OnnxEncoder(make(tmp_path, settings={"lower_case": True}))
    np.testing.assert_array_equal(encoder.encode(["RED House"]), encoder.encode(["red house"]))


@pytest.mark.parametrize(("weights", "tolerance"), [("float16", 2e-3), ("int8 cast", 2e-2), ("int8 dequantised", 2e-2)])
@pytest.mark.parametrize("pooling", ["mean_tokens", "cls_token", "max_tokens", "lasttoken"])
def test_smaller_weights_give_the_same_vectors_but_for_rounding(
    tmp_path: Path, weights: str, tolerance: float, pooling: str
) -> None:
    expected = OnnxEncoder(make(tmp_path / "full", settings={"pooling": pooling})).encode(TEXTS)
    found = OnnxEncoder(make(tmp_path / "small", weights=weights, settings={"pooling": pooling})).encode(TEXTS)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, atol=tolerance)
    assert not np.array_equal(found, expected)  # or the smaller weights were never used


def test_vectors_of_a_float16_graph_are_pooled_in_float32(tmp_path: Path) -> None:
    """Two hundred vectors of 400 add up to more than float16 can hold."""
    table = np.full_like(TABLE, 400)
    encoder = OnnxEncoder(make(tmp_path, weights="float16", table=table, settings={"length": 256}))
    np.testing.assert_array_equal(encoder.encode(["red " * 200]), np.full((1, DIMENSION), 400, np.float32))


@pytest.mark.parametrize("weights", ["float32", "float16"])
@pytest.mark.parametrize("integer", [onnx.TensorProto.INT64, onnx.TensorProto.INT32])
def test_inputs_and_outputs_bound_to_a_device_are_the_same(tmp_path: Path, weights: str, integer: int) -> None:
    inputs = ("input_ids", "attention_mask", "token_type_ids", "position_ids")[: 4 if weights == "float32" else 3]
    path = make(tmp_path, inputs=inputs, integer=integer, weights=weights) / "model.onnx"
    ids = [tokens(text) for text in TEXTS]
    plain, mask = OnnxGraph(path).run(ids, 0)
    bound, bound_mask = OnnxGraph(path, bind="cpu").run(ids, 0)
    np.testing.assert_array_equal(bound, plain)
    np.testing.assert_array_equal(bound_mask, mask)
    assert bound.dtype == np.float32


def test_a_bound_graph_says_what_it_failed_on(tmp_path: Path) -> None:
    graph = OnnxGraph(make(tmp_path, table=TABLE[:5].copy()) / "model.onnx", bind="cpu")
    with pytest.raises(ModelError, match="failed on 1 texts of up to 3 tokens"):
        graph.run([[2, 9, 3]], 0)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_threads_change_no_vector(tmp_path: Path, threads: int) -> None:
    texts = [" ".join([WORDS[4 + index % 5]] * (index % 7)) + f" w{index}" for index in range(300)]
    encoder = OnnxEncoder(make(tmp_path), threads=threads, batch_tokens=32, cache_bytes=0)
    np.testing.assert_allclose(encoder.encode(texts), [rows(text).mean(axis=0) for text in texts], rtol=2e-6, atol=1e-7)


def test_an_error_on_one_thread_reaches_the_caller_and_ends_the_others(tmp_path: Path) -> None:
    encoder = OnnxEncoder(make(tmp_path, table=TABLE[:5].copy()), threads=3, batch_tokens=4, cache_bytes=0)
    with pytest.raises(ModelError, match="failed on 1 texts"):
        encoder.encode(["red", "river", *(f"red {'red ' * (index % 5)}" for index in range(50))])
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("encoder")]


@given(st.lists(st.integers(1, 60), max_size=80), st.integers(1, 200), st.none() | st.integers(1, 5), st.integers(1, 4))
def test_batches_hold_every_text_once_and_keep_their_bounds(
    lengths: list[int], batch_tokens: int, most_rows: int | None, threads: int
) -> None:
    batches = plan(lengths, batch_tokens=batch_tokens, most_rows=most_rows, threads=threads)
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    longest = [max(lengths[index] for index in batch) for batch in batches]
    assert longest == sorted(longest, reverse=True)
    for batch, width in zip(batches, longest, strict=True):
        assert len(batch) == 1 or len(batch) * width <= batch_tokens
        assert most_rows is None or len(batch) <= most_rows
        assert len(batch) * width - sum(lengths[index] for index in batch) <= 32


def test_few_texts_are_spread_over_all_threads() -> None:
    assert [len(batch) for batch in plan([20] * 16, batch_tokens=512, threads=4)] == [4, 4, 4, 4]
    assert [len(batch) for batch in plan([20] * 16, batch_tokens=512, threads=1)] == [16]
    assert len(plan([5] * 4, batch_tokens=512, threads=4)) == 1  # not worth a thread


def test_no_texts_give_no_rows(tmp_path: Path) -> None:
    found = OnnxEncoder(make(tmp_path)).encode([])
    assert found.shape == (0, DIMENSION)
    assert found.dtype == np.float32


def test_equal_texts_go_through_the_graph_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = OnnxEncoder(make(tmp_path), cache_bytes=0)
    seen: list[int] = []
    run = encoder._graph.run
    monkeypatch.setattr(encoder._graph, "run", lambda ids, pad, **task: seen.append(len(ids)) or run(ids, pad, **task))
    found = encoder.encode(["red", "blue", "red", "red"])
    assert sum(seen) == 2
    np.testing.assert_array_equal(found[0], found[2])
    encoder.encode(["red"])
    assert sum(seen) == 3


def test_the_cache_answers_again_forgets_the_oldest_and_cannot_be_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = OnnxEncoder(make(tmp_path), cache_bytes=2 * 4 * DIMENSION)
    seen: list[int] = []
    run = encoder._graph.run
    monkeypatch.setattr(encoder._graph, "run", lambda ids, pad, **task: seen.append(len(ids)) or run(ids, pad, **task))
    first = encoder.encode(["red", "blue"]).copy()
    again = encoder.encode(["blue", "red"])
    assert sum(seen) == 2
    np.testing.assert_array_equal(again, first[::-1])
    again[:] = 99
    np.testing.assert_array_equal(encoder.encode(["red"]), first[:1])
    encoder.encode(["green"])  # now red and green
    encoder.encode(["red"])
    assert sum(seen) == 3
    encoder.encode(["blue"])
    assert sum(seen) == 4


def test_the_cache_on_disk_answers_the_next_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prompts = {"query": "query: ", "document": "passage: "}
    place = make(tmp_path / "model", settings={"prompts": prompts})
    plain = OnnxEncoder(place, cache_bytes=0)
    first = OnnxEncoder(place, cache_directory=tmp_path / "cache")
    np.testing.assert_array_equal(first.encode(TEXTS), plain.encode(TEXTS))
    encoder = OnnxEncoder(place, cache_directory=tmp_path / "cache", cache_bytes=0)
    seen: list[int] = []
    run = encoder._graph.run
    monkeypatch.setattr(encoder._graph, "run", lambda ids, pad, **task: seen.append(len(ids)) or run(ids, pad, **task))
    mixed = ["green blue", *TEXTS, "red red"]
    np.testing.assert_array_equal(encoder.encode(mixed), plain.encode(mixed))
    assert sum(seen) == 2
    np.testing.assert_array_equal(encoder.encode(mixed), plain.encode(mixed))
    assert sum(seen) == 2
    # A query has a prompt of its own, and so a vector of its own.
    np.testing.assert_array_equal(encoder.encode(["red"], kind="query"), plain.encode(["red"], kind="query"))
    assert sum(seen) == 3


def test_the_cache_on_disk_never_answers_for_another_model(tmp_path: Path) -> None:
    for number, options in enumerate([{}, {"table": TABLE + 1}, {"settings": {"pooling": "cls_token"}}]):
        place = make(tmp_path / str(number), **options)
        found = OnnxEncoder(place, cache_directory=tmp_path / "cache").encode(TEXTS)
        np.testing.assert_array_equal(found, OnnxEncoder(place).encode(TEXTS))


def test_vectors_made_before_an_error_are_kept(tmp_path: Path) -> None:
    place = make(tmp_path / "model", table=TABLE[:5].copy())
    encoder = OnnxEncoder(place, batch_tokens=4, threads=1, cache_directory=tmp_path / "cache", cache_bytes=0)
    with pytest.raises(ModelError, match="failed on 1 texts"):
        encoder.encode(["red red", "river", "red red red"])
    assert encoder._texts.disk is not None
    assert len(encoder._texts.disk) == 2


@pytest.mark.parametrize("by", ["option", "variable", "nothing"])
def test_the_command_line_keeps_vectors_where_it_is_told_to(tmp_path: Path, by: str) -> None:
    class Chosen(Command):
        models: Engine = MODELS

        def run(self) -> None:
            self.models.encoder.encode(["red"])

    place = str(tmp_path / "cache")
    given = ["--encoder", str(make(tmp_path / "model"))] + ["--vector-cache", place] * (by == "option")
    result = CliRunner().invoke(
        click_command(Chosen), given, env={"PYTRACE_VECTOR_CACHE": place if by == "variable" else ""}
    )
    assert result.exit_code == 0, result.output
    assert len(list(tmp_path.glob("cache/*.vectors"))) == (by != "nothing")


def test_a_cache_directory_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("", encoding="utf-8")
    with pytest.raises(StoreError, match="name another directory"):
        OnnxEncoder(make(tmp_path / "model"), cache_directory=tmp_path / "cache")


def test_a_tokenizer_without_special_tokens_may_see_an_empty_text(tmp_path: Path) -> None:
    found = OnnxEncoder(make(tmp_path, special=False)).encode(["", "red"])
    np.testing.assert_allclose(found, TABLE[[0, 4]], rtol=1e-6)


def test_lone_surrogates_count_as_replacement_characters(tmp_path: Path) -> None:
    encoder = OnnxEncoder(make(tmp_path))
    found = encoder.encode(["red \ud800", "\udfff", "red \ufffd", "\ufffd"])
    np.testing.assert_array_equal(found[:2], found[2:])


def test_a_dynamically_quantised_graph_gives_each_text_its_own_vector(tmp_path: Path) -> None:
    table = TABLE * np.arange(1, len(WORDS) + 1, dtype=np.float32)[:, None] ** 3  # so that neighbours change the scale
    encoder = OnnxEncoder(make(tmp_path, table=table, quantized=True), cache_bytes=0)
    together = encoder.encode(TEXTS)
    alone = np.concatenate([encoder.encode([text]) for text in TEXTS])
    np.testing.assert_array_equal(together, alone)
    # And it is needed: run as one batch, the graph itself answers differently.
    encoder._graph.dynamically_quantized = False
    assert np.abs(encoder.encode(TEXTS) - alone).max() > 1e-3


@given(
    st.lists(st.lists(st.sampled_from([*WORDS[4:9], "else"]), max_size=12).map(" ".join), max_size=20),
    st.integers(1, 40),
)
def test_vectors_do_not_depend_on_their_neighbours(lookup: OnnxEncoder, texts: list[str], batch_tokens: int) -> None:
    lookup._batch_tokens = batch_tokens
    expected = np.array([rows(text).mean(axis=0) for text in texts]).reshape(len(texts), DIMENSION)
    np.testing.assert_allclose(lookup.encode(texts), expected, rtol=2e-6, atol=1e-7)


@pytest.fixture(scope="module")
def lookup(tmp_path_factory: pytest.TempPathFactory) -> OnnxEncoder:
    return OnnxEncoder(make(tmp_path_factory.mktemp("lookup")), cache_bytes=0)


@pytest.mark.parametrize(
    ("texts", "said"),
    [("red", "put it in a list"), (b"red", "put it in a list"), (["red", None], "item 1 is of type NoneType")],
)
def test_what_is_no_list_of_strings_is_refused(lookup: OnnxEncoder, texts: Any, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        lookup.encode(texts)


def test_an_unknown_kind_is_refused(lookup: OnnxEncoder) -> None:
    with pytest.raises(ValueError, match="kind must be 'query' or 'passage'"):
        lookup.encode(["red"], kind="document")  # type: ignore[arg-type]


@pytest.mark.parametrize("options", [{"threads": 0}, {"batch_tokens": 0}, {"device": "tpu"}])
def test_options_out_of_range_are_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    place = make(tmp_path)
    with pytest.raises(ValueError, match=next(iter(options))):
        OnnxEncoder(place, **options)


def test_a_provider_that_is_not_there_is_refused(tmp_path: Path) -> None:
    place = make(tmp_path)
    with pytest.raises(DeviceUnavailableError, match="NoSuchExecutionProvider is not in the installed onnxruntime"):
        OnnxEncoder(place, providers=["NoSuchExecutionProvider"])


def test_cuda_is_never_replaced_in_silence(tmp_path: Path) -> None:
    import onnxruntime

    place = make(tmp_path)
    if "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        pytest.skip("this onnxruntime has CUDA")
    with pytest.raises(DeviceUnavailableError, match="CUDAExecutionProvider"):
        OnnxEncoder(place, device="cuda")


def test_nothing_is_collected_for_telemetry(tmp_path: Path) -> None:
    place, home = make(tmp_path / "model"), tmp_path / "home"
    home.mkdir()
    code = (
        "import sys; from pytrace.models.encoders.encoder import OnnxEncoder; OnnxEncoder(sys.argv[1]).encode(['red'])"
    )
    environment = {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
    environment |= {"HOME": str(home), "XDG_CACHE_HOME": str(home), "PYTRACE_HOME": str(tmp_path / "pytrace")}
    subprocess.run([sys.executable, "-c", code, place], env=environment, check=True)
    assert not list(home.rglob("*"))


def test_nan_from_a_graph_is_an_error(tmp_path: Path) -> None:
    table = TABLE.copy()
    table[4] = np.nan
    encoder = OnnxEncoder(make(tmp_path, table=table))
    with pytest.raises(ModelError, match="NaN or infinity"):
        encoder.encode(["blue", "red"])


def test_token_ids_beyond_the_graphs_table_are_an_error(tmp_path: Path) -> None:
    encoder = OnnxEncoder(make(tmp_path, table=TABLE[:5].copy()))
    with pytest.raises(ModelError, match="failed on 1 texts"):
        encoder.encode(["river"])


def broken(place: Path, change: str) -> Path:
    make(place)
    graph = place / "model.onnx"
    match change:
        case "no graph":
            graph.unlink()
        case "two graphs":
            graph.rename(place / "a.onnx")
            write_graph(place / "b.onnx")
        case "empty graph":
            graph.write_bytes(b"")
        case "truncated graph":
            graph.write_bytes(graph.read_bytes()[:-100])
        case "no protobuf":
            graph.write_bytes(b"not a graph" * 100)
        case "no tokenizer":
            (place / "tokenizer.json").unlink()
        case "broken tokenizer":
            (place / "tokenizer.json").write_text("{}", encoding="utf-8")
        case "broken settings":
            (place / "modules.json").write_text("[", encoding="utf-8")
        case "no pooling":
            (place / "1_Pooling" / "config.json").unlink()
        case "odd pooling":
            write_settings(place, pooling="attention_tokens")
        case "dense layer":
            write_settings(place, dense=True)
        case "unknown input":
            write_graph(graph, inputs=("input_ids", "pixel_values"))
        case "unknown output":
            write_graph(graph, output="logits", shape=("batch", "sequence"))
            model = onnx.load(str(graph))
            model.graph.output.append(onnx.helper.make_tensor_value_info("hidden", onnx.TensorProto.FLOAT, None))
            onnx.save(model, str(graph))
    return place


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("no graph", "has no .onnx file"),
        ("two graphs", "has 2 .onnx files"),
        ("empty graph", "no ONNX graph"),
        ("truncated graph", "no ONNX graph"),
        ("no protobuf", "no ONNX graph"),
        ("no tokenizer", "has no tokenizer.json"),
        ("broken tokenizer", "is no tokenizer"),
        ("broken settings", "cannot be read as a model's configuration"),
        ("no pooling", "pass pooling="),
        ("odd pooling", "asks for the pooling pooling_mode_attention_tokens, which is not supported"),
        ("dense layer", "has a Dense layer outside its graph, but .* has no model.safetensors"),
        ("unknown input", "'pixel_values'"),
        ("unknown output", "none of which is known"),
    ],
)
def test_what_is_no_encoder_is_refused_with_a_remedy(tmp_path: Path, change: str, said: str) -> None:
    with pytest.raises(ModelFileError, match=said) as caught:
        OnnxEncoder(broken(tmp_path, change))
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)


def test_pooling_can_be_said_where_the_files_say_nothing(tmp_path: Path) -> None:
    encoder = OnnxEncoder(broken(tmp_path, "no pooling"), pooling="cls")
    np.testing.assert_allclose(encoder.encode(["red"])[0], rows("red")[0], rtol=1e-6)


@pytest.mark.parametrize("given_path", ["", "onnx/model.onnx"])
def test_the_layout_of_hub_repositories_is_found(tmp_path: Path, given_path: str) -> None:
    make(tmp_path)
    (tmp_path / "onnx").mkdir()
    (tmp_path / "model.onnx").rename(tmp_path / "onnx" / "model.onnx")
    encoder = OnnxEncoder(tmp_path / given_path)
    assert encoder.name == tmp_path.name
    assert encoder.max_tokens == 8


def test_a_missing_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="pytrace models pull tiny"):
        OnnxEncoder(tmp_path / "nowhere")
    with pytest.raises(ModelFileError, match="not a readable file"):
        OnnxEncoder(tmp_path / "nowhere.onnx")


def test_the_fingerprint_changes_with_everything_that_shapes_a_vector(tmp_path: Path) -> None:
    variants = [
        OnnxEncoder(make(tmp_path / "a")),
        OnnxEncoder(make(tmp_path / "b", settings={"pooling": "cls_token"})),
        OnnxEncoder(make(tmp_path / "c", settings={"normalize": True})),
        OnnxEncoder(make(tmp_path / "d", settings={"length": 9})),
        OnnxEncoder(make(tmp_path / "e", settings={"prompts": {"query": "query: "}})),
        OnnxEncoder(make(tmp_path / "f", table=TABLE + 1)),
    ]
    prints = [encoder.fingerprint for encoder in variants]
    assert len(set(prints)) == len(prints)
    assert OnnxEncoder(make(tmp_path / "g")).fingerprint == prints[0]


def test_the_fingerprint_covers_weights_in_a_file_of_their_own(tmp_path: Path) -> None:
    """Whatever that file is called; and a file that the graph does not name has no say."""
    place = make(tmp_path / "a", external="numbers.bin")
    assert (place / "numbers.bin").stat().st_size > 100
    first = OnnxEncoder(place)
    np.testing.assert_allclose(first.encode(TEXTS)[0], rows(TEXTS[0]).mean(axis=0), rtol=1e-6)
    (place / "model.onnx.md").write_text("notes", encoding="utf-8")
    assert OnnxEncoder(place).fingerprint == first.fingerprint
    graph = (place / "model.onnx").read_bytes()
    other = make(tmp_path / "b", external="numbers.bin", table=TABLE + 1)
    assert (other / "model.onnx").read_bytes() == graph
    assert OnnxEncoder(other).fingerprint != first.fingerprint


def test_hash_encoder_is_an_encoder_of_shared_words() -> None:
    encoder: Encoder = HashEncoder()
    found = encoder.encode(["Who wrote Emma?", "who WROTE emma", "a red house", "", "\ud800 red"], kind="query")
    assert found.dtype == np.float32
    assert found.shape == (5, encoder.dimension)
    assert found[0] @ found[1] == pytest.approx(1)
    assert found[0] @ found[2] == 0
    assert found[2] @ found[4] > 0
    np.testing.assert_array_equal(found[3], 0)
    assert encoder.encode([]).shape == (0, encoder.dimension)
    assert HashEncoder(dimension=8).fingerprint != encoder.fingerprint


def test_hash_encoder_is_the_same_everywhere() -> None:
    """Pinned: vectors that users' tests rest on must not change between versions or processes."""
    found = HashEncoder(dimension=64).encode(["red green blue"])[0]
    assert {int(place): round(float(found[place]), 3) for place in np.flatnonzero(found)} == {
        6: 0.577,
        9: -0.577,
        38: -0.577,
    }


@pytest.fixture(scope="module")
def minilm(tiny_models: dict[registry.Role, Path]) -> OnnxEncoder:
    return OnnxEncoder(tiny_models["encoder"], cache_bytes=0)


@pytest.mark.models
def test_minilm_is_read_from_its_own_files(minilm: OnnxEncoder) -> None:
    assert (minilm.name, minilm.dimension, minilm.max_tokens) == ("minilm-l6-int8", 384, 256)
    found = minilm.encode(
        ["Jane Austen wrote Emma.", "Emma's author is Jane Austen.", "The tram stops at the harbour."]
    )
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, rtol=1e-5)
    assert found[0] @ found[1] > 0.8
    assert found[0] @ found[2] < 0.2


@pytest.mark.models
def test_minilm_vectors_do_not_depend_on_batches(minilm: OnnxEncoder) -> None:
    texts = [f"{'word ' * (index % 17)} number {index}" for index in range(60)] + ["", "x" * 3000, "\ud800"]
    alone = np.concatenate([minilm.encode([text]) for text in texts])
    np.testing.assert_allclose(minilm.encode(texts), alone, atol=1e-5)
    np.testing.assert_allclose(minilm.encode(texts[::-1])[::-1], alone, atol=1e-5)


@pytest.mark.models
def test_minilm_sees_256_tokens_and_no_more(minilm: OnnxEncoder) -> None:
    base = "word " * 254  # and two special tokens
    found = minilm.encode([base, base + "unseen words", "word " * 250 + "seen words"])
    np.testing.assert_allclose(found[0], found[1], atol=1e-6)
    assert np.abs(found[0] - found[2]).max() > 1e-3


def test_a_tokenizer_that_panics_is_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = make(tmp_path) / "tokenizer.json"
    tokenizer = json.loads(path.read_text(encoding="utf-8"))
    tokenizer["post_processor"]["special_tokens"] = {}
    path.write_text(json.dumps(tokenizer), encoding="utf-8")
    with pytest.raises(ModelFileError, match="a process that tried it panicked: no entry found for key") as told:
        OnnxEncoder(tmp_path)
    assert "\n" not in str(told.value)
    assert capfd.readouterr() == ("", "")


def test_names_in_a_graph_that_are_no_utf8_are_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = make(tmp_path) / "model.onnx"
    path.write_bytes(path.read_bytes().replace(b"attention_mask", b"attention_\xff\xfe\xfd\xfc"))
    with pytest.raises(ModelFileError, match="is no ONNX graph that can be loaded"):
        OnnxEncoder(tmp_path)
    assert capfd.readouterr().out == ""


def test_a_graph_names_no_files_outside_its_directory(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"x")
    path = make(tmp_path / "model", external="weights") / "model.onnx"
    assert weight_files(path) == [path, path.parent / "weights"]
    for name in (b"../secret", bytes(tmp_path / "secret")):
        path.write_bytes(b"\n\x08location\x12" + bytes([len(name)]) + name)
        assert weight_files(path) == [path]
