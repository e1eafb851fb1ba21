"""Late-interaction models give the token vectors and scores of sentence-transformers' MultiVectorEncoder, which PyLate's and Stanford's give."""

from __future__ import annotations

import json
import string
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

for package in ("onnxruntime", "onnxscript", "sentence_transformers", "torch"):
    pytest.importorskip(package, reason=f"{package} is not installed")

import onnx
import torch
import transformers
from safetensors.numpy import load_file, save_file
from sentence_transformers import MultiVectorEncoder
from sentence_transformers.base.modules import Dense
from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask
from sentence_transformers.sentence_transformer.modules import Normalize, Transformer
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers

from pytrace.engine.encoders import load_cross_encoder
from pytrace.errors import ModelFileError
from pytrace.kernels import max_sim
from pytrace.models.encoders.late_interaction import OnnxLateInteraction
from tests import oracles
from tests.models.model_families import TEXTS, TINY, WIDTH, _shake, _wordpiece, write_graph

# torch.jit and others warn of themselves as they are imported or exported.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")

DIM = 16
VOCABULARY = 600
QUERIES = ["Who wrote 3 of them?", "", "the river " * 30, "Who wrote 3 of them?", "house, naive!"]
PREFIXES = ("[Q] ", "[D] ")


@pytest.fixture(scope="module")
def transformer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny BERT with random weights, its tokenizer, which knows the prefixes and punctuation, and its graph."""
    place = tmp_path_factory.mktemp("transformer")
    torch.manual_seed(2)
    tokenizer = _wordpiece(model_max_length=48)
    tokenizer.add_tokens([*PREFIXES, "[unused0]", "[unused1]", *string.punctuation])
    config = transformers.BertConfig(vocab_size=VOCABULARY, max_position_embeddings=48, **TINY.settings)
    config._attn_implementation = "eager"
    model = transformers.BertModel(config, add_pooling_layer=False).eval()
    _shake(model)
    model.save_pretrained(place)
    tokenizer.save_pretrained(place)
    write_graph(model, place / "onnx" / "model.onnx")
    return place


def with_bytes(source: Path, place: Path) -> Path:
    """Copy a transformer with another tokenizer, whose tokens are pieces of bytes as ModernBERT's are."""
    copied(source, place)
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    pieces = Tokenizer(models.BPE(unk_token="[UNK]"))
    pieces.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, special_tokens=special)
    pieces.train_from_iterator(TEXTS * 3, trainer)
    pieces.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=pieces, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
        mask_token="[MASK]", model_max_length=48,
    )  # fmt: skip
    tokenizer.add_tokens([*PREFIXES])
    tokenizer.save_pretrained(place)
    return place


def copied(source: Path, place: Path) -> Path:
    for file in source.rglob("*"):
        if file.is_file():
            to = place / file.relative_to(source)
            to.parent.mkdir(parents=True, exist_ok=True)
            to.write_bytes(file.read_bytes())
    return place


def write(place: Path, name: str, content: Any) -> None:
    path = place / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


def change(place: Path, name: str, **values: Any) -> None:
    write(place, name, json.loads((place / name).read_text()) | values)


def pylate(source: Path, place: Path, **settings: Any) -> Path:
    """Write a model as PyLate saves it; a setting that is None is left out."""
    copied(source, place)
    modules = [("", "sentence_transformers.models.Transformer"), ("1_Dense", "pylate.models.Dense.Dense")]
    listed = [{"idx": i, "name": str(i), "path": path, "type": kind} for i, (path, kind) in enumerate(modules)]
    write(place, "modules.json", listed)
    write(place, "sentence_bert_config.json", {"max_seq_length": 20, "do_lower_case": False})
    stated = {
        "model_type": "ColBERT", "prompts": {}, "default_prompt_name": None, "similarity_fn_name": "MaxSim",
        "query_prefix": PREFIXES[0], "document_prefix": PREFIXES[1], "query_length": 20, "document_length": 30,
        "attend_to_expansion_tokens": False, "skiplist_words": list(string.punctuation), "do_query_expansion": True,
    }  # fmt: skip
    write(place, "config_sentence_transformers.json", {k: v for k, v in (stated | settings).items() if v is not None})
    dense = {"in_features": WIDTH, "out_features": DIM, "bias": False, "use_residual": False}
    write(place, "1_Dense/config.json", dense | {"activation_function": "torch.nn.modules.linear.Identity"})
    weight = np.random.default_rng(3).standard_normal((DIM, WIDTH)).astype(np.float32)
    save_file({"linear.weight": weight}, place / "1_Dense" / "model.safetensors")
    return place


def stanford(source: Path, place: Path, **metadata: Any) -> Path:
    """Write a model as Stanford's ColBERT saves it."""
    copied(source, place)
    change(place, "config.json", architectures=["HF_ColBERT"])
    weight = np.random.default_rng(3).standard_normal((DIM, WIDTH)).astype(np.float32)
    held = {f"bert.{name}": tensor for name, tensor in load_file(place / "model.safetensors").items()}
    save_file(held | {"linear.weight": weight}, place / "model.safetensors")
    stated = {"query_token_id": "[unused0]", "doc_token_id": "[unused1]", "query_maxlen": 14, "doc_maxlen": 25}
    write(place, "artifact.metadata", stated | {"mask_punctuation": True, "attend_to_mask_tokens": False} | metadata)
    return place


def native(source: Path, place: Path, expansion: dict[str, Any] | None, tasks: list[str], **lengths: int) -> Path:
    """Save a model by sentence-transformers itself."""
    torch.manual_seed(4)
    body = Transformer(str(source), model_kwargs={"attn_implementation": "eager"}, query_expansion=expansion, **lengths)
    dense = Dense(
        WIDTH, DIM, bias=True, activation_function=torch.nn.Tanh(), module_input_name="token_embeddings",
        module_output_name="token_embeddings",
    )  # fmt: skip
    mask = MultiVectorMask([".", "?"], skiplist_tasks=tasks)
    modules = [body, dense, mask, Normalize(module_input_name="token_embeddings")]
    model = MultiVectorEncoder(modules=modules, prompts={"query": "find: ", "document": "text: "}, device="cpu")
    model.save(str(place), create_model_card=False)
    copied(source / "onnx", place / "onnx")
    return place


SAVED: dict[str, Callable[[Path, Path], Path]] = {
    "PyLate": pylate,
    "PyLate, attending": lambda s, p: pylate(s, p, attend_to_expansion_tokens=True),
    "PyLate, no expansion": lambda s, p: pylate(s, p, do_query_expansion=False),
    "PyLate, no skiplist": lambda s, p: pylate(s, p, skiplist_words=[]),
    "PyLate, own words": lambda s, p: pylate(s, p, skiplist_words=["the", "nowhere", "?"], document_length=12),
    "PyLate, prompts": lambda s, p: pylate(s, p, prompts={"query": "find ", "document": "text "}),
    "PyLate, pieces of bytes": lambda s, p: pylate(with_bytes(s, p.with_name("bytes")), p, skiplist_words=None),
    "sentence-transformers": lambda s, p: native(
        s, p, {"strategy": "fixed", "length": 18, "attend": False}, ["document"], document_length=22
    ),
    "sentence-transformers, at least so long": lambda s, p: native(
        s,
        p,
        {"strategy": "min", "length": 12, "attend": True, "token": "[PAD]"},
        ["query", "document"],
        query_length=26,
    ),
    "sentence-transformers, no expansion": lambda s, p: native(s, p, None, ["document"], query_length=9),
}


@pytest.fixture(params=SAVED)
def saved(request: pytest.FixtureRequest, transformer: Path, tmp_path: Path) -> Path:
    return SAVED[request.param](transformer, tmp_path / "model")


def test_token_vectors_and_scores_are_those_of_sentence_transformers(saved: Path) -> None:
    reference = MultiVectorEncoder(str(saved), device="cpu", model_kwargs={"attn_implementation": "eager"})
    model = load_cross_encoder(str(saved), threads=1)
    assert isinstance(model, OnnxLateInteraction)
    theirs = {"query": reference.encode_query(QUERIES), "passage": reference.encode_document(TEXTS)}
    assert model.dimension == DIM
    for kind, texts in (("query", QUERIES), ("passage", TEXTS)):
        vectors, offsets = model.encode(texts, kind=kind)  # type: ignore[arg-type]
        assert np.diff(offsets).tolist() == [len(each) for each in theirs[kind]]
        expected = np.concatenate([np.asarray(each) for each in theirs[kind]])
        np.testing.assert_allclose(vectors, expected, atol=2e-5)
    pairs = [(query, text) for query in QUERIES for text in TEXTS]
    scores = model.score(pairs)
    naive = [
        oracles.max_sim(np.asarray(query).tolist(), np.asarray(text).tolist())
        for query in theirs["query"] for text in theirs["passage"]
    ]  # fmt: skip
    np.testing.assert_allclose(scores, naive, atol=2e-4)
    their_scores = np.asarray(reference.similarity(theirs["query"], theirs["passage"]))
    np.testing.assert_allclose(scores.reshape(their_scores.shape), their_scores, atol=2e-4)


@pytest.mark.parametrize("metadata", [{}, {"attend_to_mask_tokens": True, "mask_punctuation": False}])
def test_stanfords_layout_is_pylates_with_its_metadata(
    metadata: dict[str, Any], transformer: Path, tmp_path: Path
) -> None:
    model = OnnxLateInteraction(stanford(transformer, tmp_path / "stanford", **metadata), threads=1)
    same = pylate(
        transformer, tmp_path / "pylate", query_prefix="[unused0]", document_prefix="[unused1]", query_length=14,
        document_length=25, attend_to_expansion_tokens=bool(metadata), skiplist_words=[] if metadata else None,
    )  # fmt: skip
    expected = OnnxLateInteraction(same, threads=1)
    for kind in ("query", "passage"):
        ours, theirs = (each.encode(TEXTS, kind=kind) for each in (model, expected))  # type: ignore[arg-type]
        np.testing.assert_array_equal(ours.offsets, theirs.offsets)
        np.testing.assert_allclose(ours.vectors, theirs.vectors, atol=1e-6)
    assert model.fingerprint != expected.fingerprint


def project(graph: Path, weight: Any) -> None:
    """Put the layer behind a graph and the normalisation into it, as pylate-onnx-export does."""
    model = onnx.load(graph)
    nodes, helper = model.graph, onnx.helper
    nodes.initializer.append(onnx.numpy_helper.from_array(np.ascontiguousarray(weight.T), "projection"))
    nodes.node.append(helper.make_node("MatMul", ["last_hidden_state", "projection"], ["projected"]))
    nodes.node.append(helper.make_node("LpNormalization", ["projected"], ["output"], axis=-1, p=2))
    del nodes.output[:]
    nodes.output.append(helper.make_tensor_value_info("output", onnx.TensorProto.FLOAT, ["n", "length", len(weight)]))
    onnx.save(model, graph)


def test_a_graph_with_the_projection_in_it_needs_no_layers(transformer: Path, tmp_path: Path) -> None:
    place = pylate(transformer, tmp_path / "model")
    expected = OnnxLateInteraction(place, threads=1)
    apart = [expected.encode(TEXTS), expected.encode(QUERIES, kind="query")]
    project(place / "onnx" / "model.onnx", load_file(place / "1_Dense" / "model.safetensors")["linear.weight"])
    for with_layers in (True, False):
        if not with_layers:
            settings = json.loads((place / "config_sentence_transformers.json").read_text())
            for name in ("modules.json", "config_sentence_transformers.json"):
                (place / name).unlink()
            write(place, "onnx_config.json", settings | {"embedding_dim": DIM})
        whole = OnnxLateInteraction(place, threads=1)
        for found, right in zip((whole.encode(TEXTS), whole.encode(QUERIES, kind="query")), apart, strict=True):
            np.testing.assert_array_equal(found.offsets, right.offsets)
            np.testing.assert_allclose(found.vectors, right.vectors, atol=1e-5)


def test_scores_are_by_pair_and_equal_texts_are_encoded_once(
    transformer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = OnnxLateInteraction(pylate(transformer, tmp_path / "model"), threads=1)
    monkeypatch.setattr("pytrace.models.encoders.late_interaction._AT_ONCE", 3)
    random = np.random.default_rng(0)
    pairs = [(QUERIES[random.integers(5)], TEXTS[random.integers(8)]) for _ in range(40)]
    encoded: list[str] = []
    token_ids = model._files.token_ids
    monkeypatch.setattr(
        model._files, "token_ids", lambda texts, rules: encoded.extend(texts) or token_ids(texts, rules)
    )
    scores = model.score(pairs)
    assert len(encoded) == len({pair[0] for pair in pairs}) + len({pair[1] for pair in pairs})
    for (query, text), score in zip(pairs, scores, strict=True):
        asked, held = model.encode([query], kind="query"), model.encode([text])
        alone = max_sim(asked.vectors, held.vectors, document_offsets=held.offsets)
        assert score == pytest.approx(alone[0], abs=1e-4)
    assert model.score([]).shape == (0,)
    assert model.encode([]).vectors.shape == (0, DIM)
    with pytest.raises(TypeError, match=r"pairs must be \(question, passage\) of two strings, but item 0 is 'ab'"):
        model.score(["ab"])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="texts must be a sequence of strings, not one str"):
        model.encode("one")
    with pytest.raises(ValueError, match="kind must be 'query' or 'passage', not 'title'"):
        model.encode(["one"], kind="title")  # type: ignore[arg-type]


def test_a_passage_of_skipped_words_alone_is_last(transformer: Path, tmp_path: Path) -> None:
    words = [*string.punctuation, "[CLS]", "[SEP]", *PREFIXES]
    model = OnnxLateInteraction(pylate(transformer, tmp_path / "model", skiplist_words=words), threads=1)
    none, some = np.diff(model.encode(["?!", "house"]).offsets)
    assert none == 0
    assert some > 0
    assert model.score([("house", "?!")]).tolist() == [-20.0]


def test_the_mean_of_maxima_is_taken_where_the_model_says_so(transformer: Path, tmp_path: Path) -> None:
    place = pylate(transformer, tmp_path / "model")
    pairs = [("the house", text) for text in TEXTS]
    scores = OnnxLateInteraction(place, threads=1).score(pairs)
    change(place, "config_sentence_transformers.json", similarity_fn_name="meanmaxsim")
    np.testing.assert_allclose(OnnxLateInteraction(place, threads=1).score(pairs), scores / 20, rtol=1e-5)


def drop(place: Path, name: str) -> None:
    (place / name).unlink()


CONFIG = "config_sentence_transformers.json"
BROKEN: list[tuple[Callable[[Path], Any], str]] = [
    (lambda p: write(p, CONFIG, {}), "is no late-interaction model: neither .* has query_prefix or document_prefix"),
    (lambda p: change(p, CONFIG, query_prefix="[nobody] "), r"has no token '\[nobody\] ', the query_prefix of"),
    (
        lambda p: change(p, CONFIG, query_length=2),
        "states the query_length 2, which leaves no room for a text; correct it",
    ),
    (lambda p: change(p, CONFIG, document_length="long"), "states the document_length 'long'"),
    (lambda p: change(p, CONFIG, skiplist_words="?!"), "has skiplist_words that are no list of words"),
    (lambda p: change(p, CONFIG, prompts={"classify": "c: "}), "has the prompts classify, none of which is known"),
    (
        lambda p: drop(p, "1_Dense/model.safetensors"),
        "has a Dense layer outside its graph, but .* has no model.safetensors",
    ),
    (
        lambda p: change(p, "1_Dense/config.json", in_features=9),
        "gives vectors of 32 numbers, but the layer behind it takes 9",
    ),
    (lambda p: change(p, "1_Dense/config.json", activation_function="mine.Own"), "asks for the activation 'mine.Own'"),
    (
        lambda p: drop(p, "onnx/model.onnx"),
        "has its weights in model.safetensors alone, and no .onnx file; export it with",
    ),
    (
        lambda p: write(p, "modules.json", [{"path": "", "type": "Transformer"}, {"path": "", "type": "TokenPooling"}]),
        "has the module 'TokenPooling', which is not supported behind a graph",
    ),
]


@pytest.mark.parametrize(("spoil", "message"), BROKEN)
def test_what_cannot_be_honoured_is_one_sentence(
    spoil: Callable[[Path], Any], message: str, transformer: Path, tmp_path: Path
) -> None:
    place = pylate(transformer, tmp_path / "model")
    spoil(place)
    with pytest.raises(ModelFileError, match=message):
        OnnxLateInteraction(place, threads=1)


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("1_MultiVectorMask/config.json", {"keep_only_token_ids": [5]}, "keeps the vectors of some tokens alone"),
        ("sentence_bert_config.json", {"query_expansion": {"strategy": "twice"}}, "expands queries by .*twice"),
        (
            "sentence_bert_config.json",
            {"query_expansion": {"strategy": "fixed", "length": 9, "token": "[none]"}},
            r"has no token '\[none\]', the query_expansion token of",
        ),
    ],
)
def test_settings_of_sentence_transformers_that_are_unknown_are_named(
    name: str, values: dict[str, Any], message: str, transformer: Path, tmp_path: Path
) -> None:
    place = native(transformer, tmp_path / "model", None, ["document"])
    folder = next(place.glob("*_MultiVectorMask")).name
    change(place, name.replace("1_MultiVectorMask", folder), **values)
    with pytest.raises(ModelFileError, match=message):
        OnnxLateInteraction(place, threads=1)


def test_stanfords_weights_that_are_missing_are_named(transformer: Path, tmp_path: Path) -> None:
    place = stanford(transformer, tmp_path / "model")
    drop(place, "model.safetensors")
    with pytest.raises(
        ModelFileError, match=r"gives hidden vectors of 32 numbers, and .* has no model.safetensors with"
    ):
        OnnxLateInteraction(place, threads=1)


def test_a_tokenizer_without_a_token_to_fill_up_with_is_named(transformer: Path, tmp_path: Path) -> None:
    place = pylate(transformer, tmp_path / "model")
    tokenizer = (place / "tokenizer.json").read_text().replace("[MASK]", "[HIDE]")
    (place / "tokenizer.json").write_text(tokenizer)
    with pytest.raises(ModelFileError, match="has neither a token for masks nor one for the end, with which"):
        OnnxLateInteraction(place, threads=1)


def test_a_graph_that_gives_one_vector_a_text_is_refused(tmp_path: Path) -> None:
    from tests.models.test_encoder import make

    place = make(tmp_path / "pooled", pooled=True)
    write(place, CONFIG, {"query_prefix": "", "document_prefix": "", "do_query_expansion": False})
    with pytest.raises(
        ModelFileError, match="gives one vector a text, where late interaction needs one for every token"
    ):
        OnnxLateInteraction(place, threads=1)
