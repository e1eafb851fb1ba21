"""Cross-encoders against graphs small enough to compute by hand, and the method that ranks with one."""

from __future__ import annotations

import json
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

from pytrace.cli import program
from pytrace.engine.loading import Engine
from pytrace.errors import DeviceUnavailableError, InputError, ModelError, ModelFileError
from pytrace.methods.abilities import CAPABLE, UNABLE
from pytrace.methods.catalog import make_method
from pytrace.methods.ranking import rank_by_cross_encoder
from pytrace.models.encoders.cross_encoder import CrossEncoder, OnnxCrossEncoder
from pytrace.models.scripted import HashEncoder, ScriptedModel
from pytrace.records import Document

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed (extra cpu)")
onnx = pytest.importorskip("onnx", reason="onnx is not installed (dependency group test)")

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "red", "green", "blue", "house", "river"]
DIMENSION = 6
RANDOM = np.random.default_rng(11)
TABLE = RANDOM.normal(size=(len(WORDS), DIMENSION)).astype(np.float32)
TYPES = RANDOM.normal(size=(2, DIMENSION)).astype(np.float32)
HEADS = RANDOM.normal(size=(DIMENSION, 3)).astype(np.float32)
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
NAMED = {"id2label": {"0": "irrelevant", "1": "Relevant"}}


def write_tokenizer(path: Path, *, special: bool = True) -> None:
    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if special:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]",
            pair="[CLS] $A [SEP] $B:1 [SEP]:1",
            special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
        )
    # Settings of the export, which the model must not inherit.
    tokenizer.enable_padding(length=64)
    tokenizer.save(str(path))


def write_graph(
    path: Path,
    *,
    labels: int = 1,
    inputs: Sequence[str] = INPUTS,
    integer: int = onnx.TensorProto.INT64,
    shape: Sequence[Any] = ("batch", "sequence"),
    output: str = "logits",
    table: np.ndarray[Any, Any] = TABLE,
    quantized: bool = False,
) -> None:
    """Write a graph whose logits are a head on tanh of the masked sum of token vectors, each shifted by its type's."""
    helper = onnx.helper
    nodes = [helper.make_node("Gather", ["table", "input_ids"], ["hidden"])]
    last = "hidden"
    if "token_type_ids" in inputs:
        nodes += [
            helper.make_node("Gather", ["types", "token_type_ids"], ["typed"]),
            helper.make_node("Mul", [last, "typed"], ["shifted"]),
        ]
        last = "shifted"
    if quantized:
        nodes += [
            helper.make_node("DynamicQuantizeLinear", [last], ["q", "scale", "zero"]),
            helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["rough"]),
        ]
        last = "rough"
    nodes += [
        helper.make_node("Cast", ["attention_mask"], ["weight"], to=onnx.TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["weight", "axis2"], ["weight3"]),
        helper.make_node("Mul", [last, "weight3"], ["weighted"]),
        helper.make_node("ReduceSum", ["weighted", "axis1"], ["sum"], keepdims=0),
        helper.make_node("Tanh", ["sum"], ["squashed"]),
        helper.make_node("MatMul", ["squashed", "head"], [output]),
    ]
    graph = helper.make_graph(
        nodes,
        "classifier",
        [helper.make_tensor_value_info(name, integer, list(shape)) for name in inputs],
        [helper.make_tensor_value_info(output, onnx.TensorProto.FLOAT, ["batch", labels])],
        [
            onnx.numpy_helper.from_array(table, "table"),
            onnx.numpy_helper.from_array(TYPES, "types"),
            onnx.numpy_helper.from_array(np.ascontiguousarray(HEADS[:, :labels]), "head"),
            onnx.numpy_helper.from_array(np.array([1]), "axis1"),
            onnx.numpy_helper.from_array(np.array([2]), "axis2"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, str(path))


def make(
    place: Path, *, config: dict[str, Any] | None = None, length: int = 12, special: bool = True, **graph: Any
) -> Path:
    write_graph(place / "model.onnx", **graph)
    write_tokenizer(place / "tokenizer.json", special=special)
    (place / "tokenizer_config.json").write_text(json.dumps({"model_max_length": length}), encoding="utf-8")
    (place / "config.json").write_text(json.dumps(config or {}), encoding="utf-8")
    return place


def ids(text: str) -> list[int]:
    return [WORDS.index(word) if word in WORDS else 1 for word in text.split()]


def logits(question: str, passage: str, *, limit: int = 12, typed: bool = True) -> np.ndarray[Any, Any]:
    """Compute by hand what the graph gives for a pair, in float64."""
    first = ids(question)[: int((limit - 3) * 0.75)]
    second = ids(passage)[: limit - 3 - len(first)]
    tokens = [2, *first, 3, *second, 3]
    kinds = [0] * (len(first) + 2) + [1] * (len(second) + 1)
    vectors = TABLE[tokens].astype(np.float64)
    if typed:
        vectors = vectors * TYPES[kinds]
    return np.asarray(np.tanh(vectors.sum(axis=0)) @ HEADS)


PAIRS = [
    ("red house", "river"),
    ("red house", ""),
    ("", ""),
    ("river", "blue blue green river house"),
    ("red house", "river"),
    ("what is this", "green"),
    ("river", "red " * 40 + "blue"),
    ("", "green river " * 7),
]


@pytest.mark.parametrize("batch_tokens", [1, 20, 1000])
def test_a_single_logit_is_the_score_whatever_the_batches(tmp_path: Path, batch_tokens: int) -> None:
    encoder: CrossEncoder = OnnxCrossEncoder(make(tmp_path / "mine"), batch_tokens=batch_tokens)
    found = encoder.score(PAIRS)
    assert (found.dtype, found.shape, encoder.name) == (np.float32, (len(PAIRS),), "mine")
    np.testing.assert_allclose(found, [logits(*pair)[0] for pair in PAIRS], rtol=1e-5, atol=1e-6)


def test_of_two_logits_the_one_for_yes_less_the_other_is_the_score(tmp_path: Path) -> None:
    expected = np.array([logits(*pair)[1] - logits(*pair)[0] for pair in PAIRS])
    for names, sign in (
        ({"0": "irrelevant", "1": "Relevant"}, 1),
        ({"1": "not_relevant", "0": "RELEVANT"}, -1),
        ({"0": "false", "1": "true"}, 1),
        ({"0": "entailment", "1": "not_entailment"}, -1),
    ):
        place = make(tmp_path, labels=2, config={"id2label": names})
        found = OnnxCrossEncoder(place).score(PAIRS)
        np.testing.assert_allclose(found, sign * expected, rtol=1e-5, atol=1e-6)
    place = make(tmp_path, labels=2, config={"id2label": {"0": "LABEL_0", "1": "LABEL_1"}})
    for positive, sign in ((0, -1), (1, 1)):
        found = OnnxCrossEncoder(place, positive=positive).score(PAIRS)
        np.testing.assert_allclose(found, sign * expected, rtol=1e-5, atol=1e-6)


ENTAILMENT = {"id2label": {"0": "contradiction", "1": "entailment", "2": "neutral"}}


def test_of_several_labels_the_score_is_the_log_odds_of_the_one_for_yes(tmp_path: Path) -> None:
    encoder = OnnxCrossEncoder(make(tmp_path, labels=3, config=ENTAILMENT))
    assert encoder.labels == ("contradiction", "entailment", "neutral")
    exact = np.exp(np.array([logits(*pair)[:3] for pair in PAIRS]))
    shares = exact / exact.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(encoder.probabilities(PAIRS), shares, rtol=1e-4)
    np.testing.assert_allclose(encoder.score(PAIRS), np.log(shares[:, 1] / (1 - shares[:, 1])), rtol=1e-4, atol=1e-5)
    by_number = OnnxCrossEncoder(tmp_path, positive=2).score(PAIRS)
    np.testing.assert_allclose(by_number, np.log(shares[:, 2] / (1 - shares[:, 2])), rtol=1e-4, atol=1e-5)


def test_labels_without_a_yes_have_probabilities_and_no_score(tmp_path: Path) -> None:
    encoder = OnnxCrossEncoder(
        make(tmp_path, labels=3, config={"id2label": {"0": "sport", "1": "politics", "2": "art"}})
    )
    np.testing.assert_allclose(encoder.probabilities(PAIRS).sum(axis=1), 1, rtol=1e-6)
    with pytest.raises(
        InputError, match=r"has the labels sport, politics, art, none of which says yes to a pair; name its number"
    ):
        encoder.score(PAIRS)


def test_the_probability_of_one_label_is_the_logistic_function_of_its_logit(tmp_path: Path) -> None:
    encoder = OnnxCrossEncoder(make(tmp_path))
    expected = [[1 / (1 + np.exp(-logits(*pair)[0]))] for pair in PAIRS]
    np.testing.assert_allclose(encoder.probabilities(PAIRS), expected, rtol=1e-5)


@pytest.mark.parametrize(
    "names",
    [
        None,
        {"0": "LABEL_0", "1": "LABEL_1"},
        {"0": "yes", "1": "true"},
        {"a": "no", "b": "yes"},
        {"1": "yes"},
        ["no", "yes"],
    ],
)
def test_two_labels_of_unknown_order_are_refused(tmp_path: Path, names: object) -> None:
    place = make(tmp_path, labels=2, config={} if names is None else {"id2label": names})
    with pytest.raises(ModelFileError, match=r"does not say which of two labels says yes.*call that one 'relevant'"):
        OnnxCrossEncoder(place)


def test_a_graph_is_told_which_text_a_token_is_of_if_it_asks(tmp_path: Path) -> None:
    for integer in (onnx.TensorProto.INT64, onnx.TensorProto.INT32):
        encoder = OnnxCrossEncoder(make(tmp_path / "two", inputs=INPUTS[:2], integer=integer))
        expected = [logits(*pair, typed=False)[0] for pair in PAIRS]
        np.testing.assert_allclose(encoder.score(PAIRS), expected, rtol=1e-5, atol=1e-6)
    there, back = OnnxCrossEncoder(make(tmp_path / "three")).score([("red", "blue river"), ("blue river", "red")])
    assert there != pytest.approx(back)


def test_the_passage_is_cut_and_the_question_only_beyond_three_quarters(tmp_path: Path) -> None:
    encoder = OnnxCrossEncoder(make(tmp_path, length=11))  # 8 tokens beside the special ones
    assert encoder.max_tokens == 11
    question = "red green blue house river red"  # 6 tokens
    full, longer, other = encoder.score(
        [(question, "blue green"), (question, "blue green river red"), (question, "blue red")]
    )
    assert full == pytest.approx(longer)
    assert full != pytest.approx(other)
    # A question may fill the rest, and never leaves a passage nothing.
    beyond = f"{question} house house house house house"
    assert encoder.score([(beyond, "blue green")])[0] == pytest.approx(full)
    assert encoder.score([(beyond, "blue red")])[0] == pytest.approx(other)
    np.testing.assert_allclose(full, logits(question, "blue green", limit=11)[0], rtol=1e-5)


@pytest.mark.parametrize(
    ("config", "length", "expected"),
    [
        ({"max_position_embeddings": 9}, 12, 9),
        ({"max_position_embeddings": 40}, 12, 12),
        ({"max_position_embeddings": 514, "model_type": "xlm-roberta", "pad_token_id": 1}, 10**30, 512),
        ({"max_position_embeddings": 34, "model_type": "xlm-roberta", "pad_token_id": 1}, 10**30, 32),
        ({"max_position_embeddings": 34, "model_type": "roberta"}, 10**30, 33),
        ({"max_position_embeddings": 40, "model_type": "bert", "pad_token_id": 0}, 10**30, 40),
        ({"max_position_embeddings": -1}, 12, 12),
        ({"max_position_embeddings": "many"}, 12, 12),
    ],
)
def test_the_length_is_what_tokenizer_and_positions_allow(
    tmp_path: Path, config: dict[str, Any], length: int, expected: int
) -> None:
    assert OnnxCrossEncoder(make(tmp_path, config=config, length=length)).max_tokens == expected


def test_rows_are_filled_up_with_the_token_of_the_configuration(tmp_path: Path) -> None:
    for config, expected in (({}, 0), ({"pad_token_id": 7}, 7), ({"pad_token_id": None}, 0), ({"pad_token_id": -1}, 0)):
        encoder = OnnxCrossEncoder(make(tmp_path, config=config))
        assert encoder._files.pad_id == expected
        np.testing.assert_allclose(encoder.score(PAIRS), [logits(*pair)[0] for pair in PAIRS], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(2, 12), (1, "sequence"), ("batch", 9), (3, "sequence")])
def test_a_graph_of_fixed_shape_is_filled_up(tmp_path: Path, shape: tuple[Any, Any]) -> None:
    limit = shape[1] if isinstance(shape[1], int) else 12
    expected = [logits(*pair, limit=limit)[0] for pair in PAIRS]
    np.testing.assert_allclose(
        OnnxCrossEncoder(make(tmp_path, shape=shape)).score(PAIRS), expected, rtol=1e-5, atol=1e-6
    )


def test_a_graph_with_no_room_for_a_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="takes 3 tokens, which leaves no room"):
        OnnxCrossEncoder(make(tmp_path, shape=("batch", 3)))
    OnnxCrossEncoder(make(tmp_path, shape=("batch", 4))).score(PAIRS)


def test_dynamic_quantisation_lets_no_pair_change_another(tmp_path: Path) -> None:
    encoder = OnnxCrossEncoder(
        make(tmp_path, table=TABLE * np.arange(1, 10, dtype=np.float32)[:, None], quantized=True)
    )
    alone = np.concatenate([encoder.score([pair]) for pair in PAIRS])
    np.testing.assert_array_equal(encoder.score(PAIRS), alone)


def test_a_tokenizer_without_special_tokens_may_see_two_empty_texts(tmp_path: Path) -> None:
    found = OnnxCrossEncoder(make(tmp_path, special=False)).score([("", ""), ("red", "blue")])
    expected = [
        np.tanh(TABLE[0] * TYPES[0]) @ HEADS[:, 0],
        np.tanh(TABLE[4] * TYPES[0] + TABLE[6] * TYPES[1]) @ HEADS[:, 0],
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_equal_pairs_are_scored_once_and_none_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = OnnxCrossEncoder(make(tmp_path))
    seen: list[int] = []
    run = encoder._graph.run
    monkeypatch.setattr(encoder._graph, "run", lambda *given: seen.append(len(given[0])) or run(*given))
    encoder.score([("red", "blue")] * 5 + [("red", "\ud800"), ("red", "\ufffd")])
    assert sum(seen) == 2
    found = encoder.score([])
    assert (found.dtype, found.shape, sum(seen)) == (np.float32, (0,), 2)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> OnnxCrossEncoder:
    return OnnxCrossEncoder(make(tmp_path_factory.mktemp("small")), threads=2)


_TEXTS = st.lists(st.sampled_from([*WORDS[4:], "else", "\ud800", "\x00"]), max_size=14).map(" ".join)


@given(st.lists(st.tuples(_TEXTS, _TEXTS), max_size=20), st.integers(1, 60))
def test_scores_do_not_depend_on_their_neighbours(
    small: OnnxCrossEncoder, pairs: list[tuple[str, str]], batch_tokens: int
) -> None:
    small._batch_tokens = batch_tokens
    expected = [logits(*pair)[0] for pair in pairs]
    np.testing.assert_allclose(small.score(pairs), expected, rtol=1e-5, atol=2e-6)


def test_threads_may_share_a_cross_encoder(small: OnnxCrossEncoder) -> None:
    pairs = [(f"red {'river ' * (number % 4)}", "blue " * (number % 20)) for number in range(60)]
    expected = small.score(pairs)
    found: list[np.ndarray[Any, Any]] = []
    workers = [threading.Thread(target=lambda: found.extend(small.score(pairs) for _ in range(10))) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(found) == 30
    for one in found:
        np.testing.assert_array_equal(one, expected)


@pytest.mark.parametrize(
    ("pairs", "said"),
    [
        ([("a", "b"), ("a",)], "item 1 is \\('a',\\)"),
        (["ab"], "item 0 is 'ab'"),
        ([("a", None)], "item 0"),
        ([("a", "b", "c")], "item 0"),
    ],
)
def test_what_are_no_pairs_is_refused(small: OnnxCrossEncoder, pairs: Any, said: str) -> None:
    with pytest.raises(TypeError, match=f"pairs must be .* two strings, but {said}"):
        small.score(pairs)


@pytest.mark.parametrize("labels", [1, 2])
@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_a_score_that_is_no_number_is_an_error(tmp_path: Path, labels: int, broken: float) -> None:
    table = TABLE.copy()
    table[6] = broken
    encoder = OnnxCrossEncoder(make(tmp_path, table=table, labels=labels, config=NAMED))
    encoder.score([("red", "river")])
    if np.isnan(broken):
        with pytest.raises(ModelError, match="gives NaN or infinity for a pair"):
            encoder.score([("red", "river"), ("red", "blue")])
    else:  # tanh of infinity is 1, and a score
        assert np.isfinite(encoder.score([("red", "blue")])).all()


@pytest.mark.parametrize(
    "options", [{"threads": 0}, {"batch_tokens": 0}, {"device": "tpu"}, {"positive": 1}, {"positive": -1}]
)
def test_options_out_of_range_are_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    place = make(tmp_path)
    with pytest.raises(ValueError, match=next(iter(options))):
        OnnxCrossEncoder(place, **options)


def test_a_provider_that_is_not_there_is_refused(tmp_path: Path) -> None:
    import onnxruntime

    place = make(tmp_path)
    with pytest.raises(DeviceUnavailableError, match="NoSuchExecutionProvider"):
        OnnxCrossEncoder(place, providers=["NoSuchExecutionProvider"])
    if "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        pytest.skip("this onnxruntime has CUDA")
    with pytest.raises(DeviceUnavailableError, match="CUDAExecutionProvider"):
        OnnxCrossEncoder(place, device="cuda")


def damaged(place: Path, change: str) -> Path:
    make(place)
    match change:
        case "no graph":
            (place / "model.onnx").unlink()
        case "no tokenizer":
            (place / "tokenizer.json").unlink()
        case "broken config":
            (place / "config.json").write_text("[", encoding="utf-8")
        case "truncated graph":
            (place / "model.onnx").write_bytes((place / "model.onnx").read_bytes()[:-100])
        case "another kind of model":
            (place / "config_sentence_transformers.json").write_text(
                '{"model_type": "SparseEncoder"}', encoding="utf-8"
            )
        case "a prompt":
            (place / "config_sentence_transformers.json").write_text(
                '{"prompts": {"web": "Judge: "}, "default_prompt_name": "web"}', encoding="utf-8"
            )
        case "unknown input":
            write_graph(place / "model.onnx", inputs=(*INPUTS, "pixel_values"))
        case "an encoder":
            write_graph(place / "model.onnx")
            model = onnx.load(str(place / "model.onnx"))
            model.graph.output[0].CopyFrom(
                onnx.helper.make_tensor_value_info("weighted", onnx.TensorProto.FLOAT, ["b", "s", DIMENSION])
            )
            onnx.save(model, str(place / "model.onnx"))
    return place


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("no graph", "has no .onnx file; give the directory of a sequence classification model"),
        ("no tokenizer", "has no tokenizer.json"),
        ("broken config", "cannot be read as a model's configuration"),
        ("truncated graph", "no ONNX graph"),
        ("another kind of model", "is a SparseEncoder, no cross-encoder; use it as the encoder"),
        ("a prompt", "puts the prompt 'web' before its pairs, which is not supported"),
        ("unknown input", "'pixel_values'.*export it for sequence classification"),
        ("an encoder", "gives a vector for every token and no logits; export it for sequence classification"),
    ],
)
def test_what_is_no_cross_encoder_is_refused_with_a_remedy(tmp_path: Path, change: str, said: str) -> None:
    with pytest.raises(ModelFileError, match=said) as caught:
        OnnxCrossEncoder(damaged(tmp_path, change))
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)


def test_pairs_are_tokenised_as_the_tokenizer_itself_does(tmp_path: Path) -> None:
    for special in (True, False):
        encoder = OnnxCrossEncoder(make(tmp_path, special=special, length=64))
        tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
        tokenizer.no_padding()
        pairs = [("red", "blue river"), ("", "red"), ("green what", "")]
        wanted = [(one.ids, one.type_ids) for one in (tokenizer.encode(*pair) for pair in pairs)]
        assert encoder._files.pairs(pairs, 64) == wanted


def test_a_missing_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"has no \.onnx file"):
        OnnxCrossEncoder(tmp_path / "nowhere")


def test_the_layout_of_hub_repositories_is_found(tmp_path: Path) -> None:
    make(tmp_path)
    (tmp_path / "onnx").mkdir()
    (tmp_path / "model.onnx").rename(tmp_path / "onnx" / "model.onnx")
    for place in (tmp_path, tmp_path / "onnx" / "model.onnx"):
        encoder = OnnxCrossEncoder(place)
        assert (encoder.name, encoder.max_tokens) == (tmp_path.name, 12)


def test_the_fingerprint_changes_with_everything_that_shapes_a_score(tmp_path: Path) -> None:
    variants = [
        OnnxCrossEncoder(make(tmp_path / "a")),
        OnnxCrossEncoder(make(tmp_path / "b", table=TABLE + 1)),
        OnnxCrossEncoder(make(tmp_path / "c", length=13)),
        OnnxCrossEncoder(make(tmp_path / "d", special=False)),
        OnnxCrossEncoder(make(tmp_path / "e", labels=2), positive=0),
        OnnxCrossEncoder(tmp_path / "e", positive=1),
    ]
    prints = [encoder.fingerprint for encoder in variants]
    assert len(set(prints)) == len(prints)
    assert OnnxCrossEncoder(make(tmp_path / "f")).fingerprint == prints[0]


# The method


class Shared:
    """Scores a pair by the words that both texts have, and remembers what it was asked."""

    name = fingerprint = "shared"

    def __init__(self) -> None:
        self.calls: list[list[tuple[str, str]]] = []

    def score(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray[Any, np.dtype[np.float32]]:
        self.calls.append(list(pairs))
        return np.array([len(set(one.split()) & set(other.split())) for one, other in pairs], dtype=np.float32)


FERRY = Document("ferry", "Ferry", ("The ferry leaves at noon.", "It carries mail."))
BAKERY = Document("bakery", "Bakery", ("Bread is baked at dawn.",))
EMPTY = Document("empty", "", ())
TWIN = Document("twin", "Ferry", FERRY.sentences)


def test_whole_documents_are_ranked_by_score_with_ties_in_their_order() -> None:
    model = Shared()
    rank = rank_by_cross_encoder(model)
    found = rank(["When leaves the ferry?", "What is baked?"], [[BAKERY, TWIN, EMPTY, FERRY], [BAKERY]], 3)
    assert [[one.id for one in own] for own in found] == [["twin", "ferry", "bakery"], ["bakery"]]
    # All pairs of all questions in one call, whole documents with their titles.
    (pairs,) = model.calls
    assert pairs[1] == ("When leaves the ferry?", "Ferry. The ferry leaves at noon. It carries mail.")
    assert pairs[2] == ("When leaves the ferry?", "")
    assert len(pairs) == 5
    assert rank([], [], 3) == []
    assert rank(["Who?"], [[]], 3) == [[]]


def test_scores_of_another_shape_or_none_at_all_are_refused() -> None:
    for scores, said in (
        (np.zeros(2), r"gives scores \[2\] for 1 pairs"),
        (np.zeros((1, 1)), r"gives scores \[1, 1\] for 1 pairs"),
        (np.array([np.nan]), "gives NaN or infinity"),
    ):
        model = Shared()
        model.score = lambda _, given=scores: given  # type: ignore[method-assign, misc]
        with pytest.raises(ModelError, match=said):
            rank_by_cross_encoder(model)(["Who?"], [[FERRY]], 1)


def test_the_reader_sees_the_documents_that_the_cross_encoder_puts_first() -> None:
    reader, model = ScriptedModel(["noon"]), Shared()
    made = make_method("cross-encoder:top=1", reader, HashEncoder, CAPABLE, [], cross_encoder=lambda: model)
    first, second = made.answer(["When leaves the ferry?", "What is baked?"], [[BAKERY, FERRY], [BAKERY, FERRY]])
    assert (first.method, first.evidence.document_ids) == ("cross-encoder:top=1", ("ferry",))
    assert second.evidence.document_ids == ("bakery",)
    assert set(first.usage) == {"retrieve", "read"}
    assert len(model.calls) == 1
    assert "noon" in reader.prompts[-2]
    (none,) = made.answer(["Who?"], [[]])
    assert none.notes == ("no evidence was found; the answer is the model's own",)


def test_the_method_is_refused_without_a_cross_encoder() -> None:
    with pytest.raises(
        InputError, match="read question and passage together, but none was named; give --cross-encoder"
    ):
        make_method("cross-encoder", ScriptedModel(["x"]), HashEncoder, UNABLE, [])


def test_the_command_line_ranks_with_the_model_of_its_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = ScriptedModel(["river"])
    monkeypatch.setattr(Engine, "model", reader)
    monkeypatch.setattr(Engine, "encoder", HashEncoder())
    rows = [{"id": str(number), "title": word, "text": f"{word} {word}"} for number, word in enumerate(WORDS[4:])]
    docs = tmp_path / "docs.jsonl"
    docs.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    arguments = ["ask", "red house", "--docs", str(docs), "--method", "cross-encoder:top=1", "--json"]
    place = make(tmp_path / "model")
    result = CliRunner().invoke(program, [*arguments, "--cross-encoder", str(place)])
    assert result.exit_code == 0, result.output
    best = max(rows, key=lambda row: logits("red house", f"{row['title']}. {row['text']}")[0])
    told = json.loads(result.stdout)
    assert [one["title"] for one in told["evidence"]["sources"] if one.get("read")] == [best["title"]]
    # Without the option, and with one that names no model, one sentence says what to do.
    for more, said in (
        ([], "give --cross-encoder"),
        (["--cross-encoder", str(tmp_path / "no")], "is neither a file nor a known model"),
    ):
        result = CliRunner().invoke(program, [*arguments, *more])
        assert isinstance(result.exception, InputError)
        assert said in str(result.exception)
