"""What the files of encoders say is honoured, or refused by name."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from tokenizers import Tokenizer

from pytrace.errors import InputError, ModelFileError

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed (extra cpu)")
onnx = pytest.importorskip("onnx", reason="onnx is not installed (dependency group test)")

from pytrace.models.encoders.encoder import OnnxEncoder
from tests.models.test_encoder import (
    DIMENSION,
    TABLE,
    TEXTS,
    WORDS,
    make,
    rows,
    write_graph,
    write_settings,
    write_tokenizer,
)

INT64, FLOAT, HALF = onnx.TensorProto.INT64, onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16


def write(place: Path, **files: Any) -> Path:
    """Write JSON files into a model's directory, `__` for each part of a path."""
    for name, content in files.items():
        path = place / f"{name.replace('__', '/')}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content), encoding="utf-8")
    return place


def means(*texts: str) -> Any:
    return [rows(text).mean(axis=0) for text in texts]


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"pooling_mode": "mean"}, lambda r: r.mean(axis=0)),
        ({"pooling_mode": ["cls"]}, lambda r: r[0]),
        ({"pooling_mode": ["lasttoken", "cls"]}, lambda r: np.concatenate([r[-1], r[0]])),
        ({"pooling_mode": "mean_sqrt_len_tokens"}, lambda r: r.sum(axis=0) / math.sqrt(len(r))),
        ({"pooling_mode": "weightedmean"}, lambda r: np.average(r, axis=0, weights=np.arange(1, len(r) + 1))),
        ({"pooling_mode_weightedmean_tokens": True, "pooling_mode_mean_tokens": False}, None),
        # Of several, the order of the vectors is that of the settings' history and not of the file.
        (
            {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True},
            lambda r: np.concatenate([r[0], r.mean(axis=0)]),
        ),
    ],
)
def test_every_spelling_of_pooling_is_understood(tmp_path: Path, config: dict[str, Any], expected: Any) -> None:
    expected = expected or (lambda r: np.average(r, axis=0, weights=np.arange(1, len(r) + 1)))
    encoder = OnnxEncoder(write(make(tmp_path), **{"1_Pooling__config": config}))
    np.testing.assert_allclose(encoder.encode(TEXTS), [expected(rows(text)) for text in TEXTS], rtol=1e-5, atol=1e-6)


def test_prompts_may_be_left_out_of_pooling(tmp_path: Path) -> None:
    place = make(tmp_path, settings={"prompts": {"query": "query: red "}})
    encoder = OnnxEncoder(write(place, **{"1_Pooling__config": {"pooling_mode": "mean", "include_prompt": False}}))
    # [CLS], "query:" and "red" do not count.
    expected = rows("query: red blue house")[3:].mean(axis=0)
    np.testing.assert_allclose(encoder.encode(["blue house"], kind="query")[0], expected, rtol=1e-5)
    # The same tokens as a passage count all, and the cache keeps the two apart.
    np.testing.assert_allclose(encoder.encode(["query: red blue house"]), means("query: red blue house"), rtol=1e-5)


@pytest.mark.parametrize(
    ("names", "query", "passage"),
    [
        ({"query": "query: ", "passage": "passage: "}, "query: ", "passage: "),
        ({"search_query": "query: ", "search_document": "passage: ", "clustering": "red "}, "query: ", "passage: "),
        ({"web_search_query": "query: ", "sts_query": "red "}, "query: ", ""),
        (
            {"retrieval.query": "query: ", "retrieval.passage": "passage: ", "separation": "red "},
            "query: ",
            "passage: ",
        ),
        ({"query": "query: ", "document": "", "corpus": "passage: "}, "query: ", "passage: "),
        ({"query": None, "document": "passage: "}, "", "passage: "),
    ],
)
def test_prompts_of_search_are_known_by_their_names(
    tmp_path: Path, names: dict[str, str], query: str, passage: str
) -> None:
    encoder = OnnxEncoder(make(tmp_path, settings={"prompts": names}))
    np.testing.assert_allclose(encoder.encode(["red"], kind="query"), means(f"{query}red"), rtol=1e-5)
    np.testing.assert_allclose(encoder.encode(["red"], kind="passage"), means(f"{passage}red"), rtol=1e-5)


def test_prompts_that_nobody_knows_are_named_and_can_be_chosen(tmp_path: Path) -> None:
    place = make(tmp_path, settings={"prompts": {"s2p_query": "query: ", "s2s_query": "red "}})
    said = "has the prompts s2p_query, s2s_query, none of which is known to be for search; name one for query texts"
    with pytest.raises(ModelFileError, match=said):
        OnnxEncoder(place)
    with pytest.raises(ModelFileError, match="name one for passage texts"):
        OnnxEncoder(place, prompts={"query": "s2p_query"})
    encoder = OnnxEncoder(place, prompts={"query": "s2p_query", "passage": "passage: "})
    np.testing.assert_allclose(encoder.encode(["blue"], kind="query"), means("query: blue"), rtol=1e-5)
    np.testing.assert_allclose(encoder.encode(["blue"]), means("passage: blue"), rtol=1e-5)
    with pytest.raises(InputError, match="prompts are of kind 'query' or 'passage', not 'document'"):
        OnnxEncoder(place, prompts={"document": ""})
    assert OnnxEncoder(place, prompts={"query": "", "passage": ""}).fingerprint != encoder.fingerprint


def test_the_tokens_of_a_past_are_none(tmp_path: Path) -> None:
    past = [
        ("past_key_values.0.key", FLOAT, ["batch", 2, "past", 4]),
        ("past_key_values.0.value", HALF, ["batch", "past", 2, 4]),
    ]
    encoder = OnnxEncoder(make(tmp_path, inputs=("input_ids", "attention_mask", "position_ids"), more=past))
    plain = OnnxEncoder(make(tmp_path / "plain", inputs=("input_ids", "attention_mask", "position_ids")))
    np.testing.assert_array_equal(encoder.encode(TEXTS), plain.encode(TEXTS))


def test_a_graph_with_adapters_is_told_which(tmp_path: Path) -> None:
    place = make(tmp_path, more=[("task_id", INT64, [])])
    with pytest.raises(ModelFileError, match=r"wants a 'task_id', but .*config.json does not list the tasks"):
        OnnxEncoder(place)
    write(place, config={"lora_adaptations": ["separation", "retrieval.passage", "retrieval.query"]})
    encoder = OnnxEncoder(place)
    np.testing.assert_allclose(encoder.encode(["red"], kind="query"), np.add(means("red"), 2), rtol=1e-5)
    np.testing.assert_allclose(encoder.encode(["red"], kind="passage"), np.add(means("red"), 1), rtol=1e-5)
    write(place, config={"lora_adaptations": ["text-matching"]})
    with pytest.raises(ModelFileError, match=r"lists the tasks text-matching, but no 'retrieval.query'"):
        OnnxEncoder(place)


def test_an_input_that_is_nearly_a_past_is_refused(tmp_path: Path) -> None:
    place = make(tmp_path, more=[("past_key_values.0.key", FLOAT, ["batch", "heads", "past", 4])])
    with pytest.raises(ModelFileError, match=r"wants the input 'past_key_values.0.key' \(tensor\(float\), 4 axes\)"):
        OnnxEncoder(place)


def test_outputs_are_chosen_by_what_the_files_say_or_by_name(tmp_path: Path) -> None:
    place = make(tmp_path, output="sentence_embedding", pooled=True, both=True)
    np.testing.assert_allclose(OnnxEncoder(place).encode(TEXTS), means(*TEXTS), rtol=1e-5)
    # The graph's own is the sum.
    sums = [rows(text).sum(axis=0) for text in TEXTS]
    chosen = OnnxEncoder(place, output="sentence_embedding")
    np.testing.assert_allclose(chosen.encode(TEXTS), sums, rtol=1e-5)
    assert chosen.fingerprint != OnnxEncoder(place).fingerprint
    (place / "1_Pooling" / "config.json").unlink()
    np.testing.assert_allclose(OnnxEncoder(place).encode(TEXTS), sums, rtol=1e-5)
    by_cls = OnnxEncoder(place, pooling="cls")
    np.testing.assert_allclose(by_cls.encode(TEXTS), [rows(text)[0] for text in TEXTS], rtol=1e-5)
    listed = re.escape("but sentence_embedding (2 axes), token_embeddings (3 axes); name one of these")
    with pytest.raises(ModelFileError, match=listed):
        OnnxEncoder(place, output="pooler_output")
    with pytest.raises(
        InputError, match="gives one vector a text, which leaves nothing to pool; leave pooling='cls' out"
    ):
        OnnxEncoder(place, output="sentence_embedding", pooling="cls")
    with pytest.raises(InputError, match="there is no pooling 'median'; choose among cls, max"):
        OnnxEncoder(place, pooling="median")


@pytest.mark.parametrize("normalize", [False, True])
def test_vectors_are_cut_and_normalised_again(tmp_path: Path, normalize: bool) -> None:
    place = make(tmp_path, settings={"normalize": normalize})
    encoder = OnnxEncoder(place, truncate_dim=3)
    assert encoder.dimension == 3
    cut = np.array(means(*TEXTS))[:, :3]
    expected = cut / np.linalg.norm(cut, axis=1, keepdims=True) if normalize else cut
    np.testing.assert_allclose(encoder.encode(TEXTS), expected, rtol=1e-5)
    for wrong in (0, -1, DIMENSION + 1):
        with pytest.raises(
            InputError, match=f"truncate_dim is {wrong}, but .* vectors of 5 numbers; choose from 1 to 5"
        ):
            OnnxEncoder(place, truncate_dim=wrong)


@pytest.mark.parametrize(("similarity", "length"), [("cosine", 1.0), ("dot", None)])
def test_a_model_that_compares_by_cosine_is_normalised(tmp_path: Path, similarity: str, length: float | None) -> None:
    place = write(make(tmp_path), config_sentence_transformers={"similarity_fn_name": similarity})
    lengths = np.linalg.norm(OnnxEncoder(place).encode(TEXTS), axis=1)
    np.testing.assert_allclose(lengths, length or np.linalg.norm(means(*TEXTS), axis=1), rtol=1e-5)


def with_heads(place: Path, config: dict[str, Any], weights: dict[str, Any]) -> Path:
    write_settings(make(place))
    modules = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Dense", "Dense")]
    listed = [{"path": path, "type": f"sentence_transformers.models.{kind}"} for path, kind in modules]
    write(place, modules=listed, **{"2_Dense__config": config})
    save_file(weights, place / "2_Dense" / "model.safetensors")
    return place


IDENTITY = "torch.nn.modules.linear.Identity"


@pytest.mark.parametrize(
    ("name", "function"),
    [
        (IDENTITY, lambda x: x),
        ("torch.nn.modules.activation.Tanh", np.tanh),
        ("torch.nn.modules.activation.ReLU", lambda x: np.maximum(x, 0)),
        ("torch.nn.modules.activation.GELU", lambda x: x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))),
        ("torch.nn.modules.activation.SiLU", lambda x: x / (1 + np.exp(-x))),
        ("torch.nn.modules.activation.Sigmoid", lambda x: 1 / (1 + np.exp(-x))),
    ],
)
def test_each_activation_is_what_its_name_says(tmp_path: Path, name: str, function: Any) -> None:
    weight = np.random.default_rng(3).normal(size=(3, DIMENSION)).astype(np.float32)
    encoder = OnnxEncoder(with_heads(tmp_path, {"activation_function": name}, {"linear.weight": weight}))
    np.testing.assert_allclose(
        encoder.encode(TEXTS), function(np.array(means(*TEXTS)) @ weight.T), rtol=1e-4, atol=1e-6
    )


def test_weights_of_layers_are_in_the_fingerprint(tmp_path: Path) -> None:
    config = {"activation_function": IDENTITY}
    prints = {
        OnnxEncoder(
            with_heads(tmp_path / str(number), config, {"linear.weight": np.eye(5, dtype=np.float32) * number})
        ).fingerprint
        for number in (1, 2)
    }
    assert len(prints) == 2


@pytest.mark.parametrize(
    ("config", "weights", "said"),
    [
        (
            {"activation_function": "my.Own"},
            {},
            "asks for the activation 'my.Own', which is not supported; Identity, Tanh",
        ),
        (
            {"module_input_name": "token_embeddings"},
            {},
            "Dense layer from 'token_embeddings' to 'token_embeddings' where one from",
        ),
        ({}, {"linear.bias": np.ones(2, np.float32)}, "has no matrix 'linear.weight'"),
        (
            {},
            {"linear.weight": np.ones((2, 5), np.float32), "linear.bias": np.ones(3, np.float32)},
            r"shape \[3\] where \[2\] is due",
        ),
        ({}, {"linear.weight": np.ones((2, 4), np.float32)}, "takes vectors of 4 numbers, but the graph gives 5"),
        ({"use_residual": True}, {"linear.weight": np.ones((2, 5), np.float32)}, "has no 'residual.weight'"),
    ],
)
def test_a_dense_layer_that_cannot_be_used_is_named(
    tmp_path: Path, config: dict[str, Any], weights: dict[str, Any], said: str
) -> None:
    config = {"activation_function": IDENTITY, **config}
    with pytest.raises(ModelFileError, match=said):
        OnnxEncoder(with_heads(tmp_path, config, weights or {"linear.weight": np.ones((2, 5), np.float32)}))


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (
            {"config_sentence_transformers": {"model_type": "SparseEncoder"}},
            "is a SparseEncoder, no encoder of sentences",
        ),
        ({"config_sentence_transformers": {"model_type": "CrossEncoder"}}, "name it as the cross-encoder"),
        ({"config_sentence_transformers": {"similarity_fn_name": "manhattan"}}, "by their manhattan distance"),
        ({"config_sentence_transformers": {"similarity_fn_name": "euclidean"}}, "by their euclidean distance"),
        (
            {"modules": [{"type": "a.Transformer", "path": ""}, {"type": "a.WordWeights", "path": ""}]},
            "module 'WordWeights'",
        ),
        (
            {"modules": [{"type": "a.Transformer"}, {"type": "a.Dense", "path": "../x"}]},
            "'../x', which leaves the model's",
        ),
        ({"sentence_bert_config": {"transformer_task": "text-generation"}}, 'transformer_task "text-generation"'),
        ({"sentence_bert_config": {"modality_config": {"message": {}}}}, "asks for modality_config"),
        ({"sentence_roberta_config": {"query_expansion": {"length": 32}}}, "query_expansion"),
        (
            {"1_Pooling__config": {"pooling_mode": "attention"}},
            "pooling attention, which is not supported; cls, max, mean",
        ),
        ({"1_Pooling__config": {"pooling_mode": [{}]}}, "is not supported"),
        ({"1_Pooling__config": {}}, "asks for the pooling none"),
    ],
)
def test_what_cannot_be_honoured_is_named(tmp_path: Path, files: dict[str, Any], said: str) -> None:
    place = make(tmp_path)
    (place / "sentence_bert_config.json").unlink()
    with pytest.raises(ModelFileError, match=re.escape(said)) as caught:
        OnnxEncoder(write(place, **files))
    assert "\n" not in str(caught.value)


def test_lengths_may_differ_by_kind_and_never_pass_the_positions(tmp_path: Path) -> None:
    place = write(make(tmp_path), sentence_bert_config={"max_seq_length": 8, "query_length": 4, "document_length": 6})
    encoder = OnnxEncoder(place)
    text = "red green blue house river red green blue"
    np.testing.assert_allclose(encoder.encode([text], kind="query"), means("red green"), rtol=1e-5)
    np.testing.assert_allclose(encoder.encode([text]), means("red green blue house"), rtol=1e-5)
    write(place, sentence_bert_config={"max_seq_length": 8}, config={"max_position_embeddings": 5})
    assert OnnxEncoder(place).max_tokens == 5
    write(place, config={"max_position_embeddings": 7, "model_type": "xlm-roberta", "pad_token_id": 1})
    assert OnnxEncoder(place).max_tokens == 5


def test_settings_of_the_tokenizer_are_kept(tmp_path: Path) -> None:
    place = make(tmp_path)
    text = "red green blue house river red green blue"
    write(place, tokenizer_config={"truncation_side": "left"})
    expected = rows("river red green blue")
    np.testing.assert_allclose(OnnxEncoder(place, pooling="lasttoken").encode([text])[0], expected[-1], rtol=1e-5)
    cut = TABLE[[2, *(WORDS.index(word) for word in text.split()[-6:]), 3]]
    np.testing.assert_allclose(OnnxEncoder(place).encode([text])[0], cut.mean(axis=0), rtol=1e-5)
    # What is put around a text is what the settings say, if they say it.
    write(place, tokenizer_config={"add_bos_token": False, "add_eos_token": True, "eos_token": {"content": "river"}})
    found = OnnxEncoder(place).encode(["red house"])[0]
    np.testing.assert_allclose(
        found, TABLE[[WORDS.index(word) for word in ("red", "house", "river")]].mean(axis=0), rtol=1e-5
    )


def test_dtype_chooses_among_graphs(tmp_path: Path) -> None:
    place = make(tmp_path)
    for number, name in enumerate(("onnx/model_fp16", "onnx/model_quantized", "onnx/model_q4")):
        write_graph(place / f"{name}.onnx", table=TABLE + number + 1)
    for dtype, more in (("float32", 0), ("float16", 1), ("int8", 2), ("q4", 3)):
        np.testing.assert_allclose(
            OnnxEncoder(place, dtype=dtype).encode(["red"]), np.add(means("red"), more), rtol=1e-5
        )
    with pytest.raises(ModelFileError, match=r"has no graph of dtype 'bnb4', but .*model_q4.onnx.*; choose another"):
        OnnxEncoder(place, dtype="bnb4")
    with pytest.raises(ModelFileError, match="is one graph, so dtype='int8' has nothing to choose"):
        OnnxEncoder(place / "model.onnx", dtype="int8")


def test_a_model_that_was_not_exported_is_told_how_to_be(tmp_path: Path) -> None:
    write_tokenizer(tmp_path / "tokenizer.json")
    save_file({"embeddings.weight": TABLE}, tmp_path / "model.safetensors")
    with pytest.raises(
        ModelFileError, match=r"weights in model.safetensors alone, and no .onnx file; export it with \"optimum-cli"
    ):
        OnnxEncoder(tmp_path)
    make(tmp_path / "b")
    (tmp_path / "b" / "tokenizer.json").unlink()
    with pytest.raises(ModelFileError, match=r"has no tokenizer.json; .* AutoTokenizer.from_pretrained"):
        OnnxEncoder(tmp_path / "b")


def test_a_tokenizer_without_template_may_be_given_one(tmp_path: Path) -> None:
    place = make(tmp_path, special=False)
    assert Tokenizer.from_file(str(place / "tokenizer.json")).post_processor is None
    write(place, tokenizer_config={"add_bos_token": True, "bos_token": "[CLS]", "add_eos_token": None})
    np.testing.assert_allclose(
        OnnxEncoder(place).encode(["red"])[0], TABLE[[2, WORDS.index("red")]].mean(axis=0), rtol=1e-5
    )
