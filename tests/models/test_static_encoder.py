"""Static encoders give what model2vec and sentence-transformers give, and refuse by name what is broken."""

from __future__ import annotations

import functools
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

from pytrace.errors import InputError, ModelFileError
from pytrace.models.encoders.encoder import encode
from pytrace.models.encoders.static_encoder import StaticEncoder
from tests.models.model_families import TEXTS as FAMILY_TEXTS

model2vec = pytest.importorskip("model2vec", reason="model2vec is not installed (dependency group test)")

TEXTS = [*FAMILY_TEXTS, "\u4e2d\u6587\u0e01", "ada " * 700, "x" * 5000, " the", "The"]
DIM = 37


@functools.cache
def trained(make: Callable[[], Tokenizer]) -> str:
    """Train a tokenizer once: a second time might give another, which would be tried in a process of its own again."""
    return str(make().to_str())


def wordpiece() -> Tokenizer:
    return Tokenizer.from_str(trained(_wordpiece))


def unigram() -> Tokenizer:
    return Tokenizer.from_str(trained(_unigram))


def _wordpiece() -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer.train_from_iterator(
        FAMILY_TEXTS[:2] * 3, trainers.WordPieceTrainer(vocab_size=80, special_tokens=special)
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.enable_padding(length=40)
    return tokenizer


def _unigram() -> Tokenizer:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.train_from_iterator(
        FAMILY_TEXTS[:2] * 3, trainers.UnigramTrainer(vocab_size=70, unk_token="<unk>", special_tokens=["<s>", "<unk>"])
    )
    return tokenizer


def words() -> Tokenizer:
    """Make one without a token for what it does not know."""
    tokenizer = Tokenizer(models.WordLevel({"the": 0, "red": 1, "house": 2, "word": 3, "ada": 4}))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return tokenizer


def saved(place: Path, tokenizer: Tokenizer, **options: Any) -> Any:
    """Save a random model by model2vec, and return it."""
    random = np.random.default_rng(1)
    rows = options.pop("rows", tokenizer.get_vocab_size())
    kind = options.pop("kind", np.float32)
    vectors = random.standard_normal((rows, DIM)) * (40 if kind is np.int8 else 1)
    model = model2vec.StaticModel(vectors.astype(kind), tokenizer, **options)
    model.save_pretrained(place)
    return model


def weighted(tokenizer: Tokenizer, kind: Any = np.float32) -> dict[str, Any]:
    random = np.random.default_rng(2)
    size = tokenizer.get_vocab_size()
    return {"weights": random.random(size).astype(kind), "token_mapping": random.integers(0, 20, size), "rows": 20}


CASES: dict[str, Callable[[], tuple[Tokenizer, dict[str, Any]]]] = {
    "plain": lambda: (wordpiece(), {}),
    "normalised": lambda: (wordpiece(), {"normalize": True}),
    "cut to 7 tokens": lambda: (wordpiece(), {"max_length": 7}),
    "never cut": lambda: (wordpiece(), {"max_length": None}),
    "int8": lambda: (wordpiece(), {"kind": np.int8, "normalize": True}),
    "int8, not normalised": lambda: (wordpiece(), {"kind": np.int8}),
    "float64": lambda: (wordpiece(), {"kind": np.float64}),
    "weights": lambda: (wordpiece(), {"weights": np.random.default_rng(2).random(wordpiece().get_vocab_size())}),
    "weights and mapping": lambda: (wordpiece(), weighted(wordpiece())),
    "weights and mapping, int8": lambda: (wordpiece(), {"kind": np.int8} | weighted(wordpiece(), np.float64)),
    "unigram": lambda: (unigram(), {"normalize": True}),
    "unigram, mapping": lambda: (unigram(), weighted(unigram())),
    "no unknown token": lambda: (words(), {}),
}


_IN_FLOAT64 = {"weights", "weights and mapping, int8"}


@pytest.mark.parametrize("case", CASES)
def test_vectors_are_those_of_model2vec(case: str, tmp_path: Path) -> None:
    tokenizer, options = CASES[case]()
    saved(tmp_path, tokenizer, **options)
    reference = model2vec.StaticModel.from_pretrained(tmp_path)
    texts = [text for text in TEXTS if case != "no unknown token" or text in {"", "ada " * 700}]
    texts += ["the red house", "red"] if case == "no unknown token" else []
    expected = reference.encode(texts)
    encoder = StaticEncoder(tmp_path)
    vectors = encode(encoder, texts, "passage")
    assert vectors.dtype == np.float32
    assert not vectors[texts.index("")].any()
    # Of tables and weights in float64 it adds in float64: sums of 512 equal float32 numbers may be off by some 5e-6.
    tolerance = 1e-5 if expected.dtype == np.float64 or case in _IN_FLOAT64 else 1e-6
    np.testing.assert_allclose(vectors, expected, rtol=tolerance, atol=tolerance * np.abs(expected).max())
    np.testing.assert_array_equal(encoder.encode(texts, kind="query"), vectors)


def test_a_float16_table_gives_what_model2vec_gives_in_float32(tmp_path: Path) -> None:
    saved(tmp_path, wordpiece(), kind=np.float16, normalize=True)
    vectors = StaticEncoder(tmp_path).encode(TEXTS)
    same = model2vec.StaticModel.from_pretrained(tmp_path, quantize_to="float32")
    np.testing.assert_allclose(vectors, same.encode(TEXTS), atol=1e-6)
    # Its own are these, rounded to float16.
    np.testing.assert_allclose(vectors, model2vec.StaticModel.from_pretrained(tmp_path).encode(TEXTS), atol=1e-3)


def test_cutting_by_characters_and_by_tokens_both_happen(tmp_path: Path) -> None:
    model = saved(tmp_path, wordpiece(), max_length=4)
    encoder = StaticEncoder(tmp_path)
    assert encoder._files.most_characters == 4 * model.median_token_length
    long = "the " * 50
    np.testing.assert_array_equal(
        encoder.encode([long]), StaticEncoder(tmp_path).encode([long[: 4 * model.median_token_length]])
    )
    assert len(encoder._files.token_ids([". " * 50])[0]) == 4


@pytest.mark.parametrize("folder", ["", "0_StaticEmbedding"])
@pytest.mark.parametrize(("normalize", "compared"), [(False, "cosine"), (False, "dot"), (True, "dot")])
def test_vectors_are_those_of_sentence_transformers(
    folder: str, normalize: bool, compared: str, tmp_path: Path
) -> None:
    """Where its vectors are compared by their cosine, ours have length 1: the search here is by inner product."""
    sentence_transformers = pytest.importorskip(
        "sentence_transformers", reason="sentence-transformers is not installed"
    )
    from sentence_transformers.sentence_transformer.modules import Normalize, StaticEmbedding

    tokenizer = wordpiece()
    tokenizer.no_padding()
    table = np.random.default_rng(3).standard_normal((tokenizer.get_vocab_size(), DIM)).astype(np.float32)
    modules = [StaticEmbedding(tokenizer, embedding_weights=table), *([Normalize()] if normalize else [])]
    model = sentence_transformers.SentenceTransformer(
        modules=modules, prompts={"query": "the red ", "document": ""}, device="cpu", similarity_fn_name=compared
    )
    model.save(str(tmp_path), create_model_card=False)
    if folder and not (tmp_path / folder).is_dir():
        (tmp_path / folder).mkdir()
        for name in ("model.safetensors", "tokenizer.json"):
            (tmp_path / name).rename(tmp_path / folder / name)
        written = (tmp_path / "modules.json").read_text()
        (tmp_path / "modules.json").write_text(written.replace('"path": ""', f'"path": "{folder}"'))
    encoder = StaticEncoder(tmp_path)
    for kind, their in (("query", model.encode_query), ("passage", model.encode_document)):
        expected = their(TEXTS, normalize_embeddings=compared == "cosine")
        np.testing.assert_allclose(encoder.encode(TEXTS, kind=kind), expected, atol=1e-6)
    changed = StaticEncoder(tmp_path, prompts={"query": ""})
    assert changed.fingerprint != encoder.fingerprint
    np.testing.assert_array_equal(changed.encode(TEXTS, kind="query"), encoder.encode(TEXTS))


def test_dimensions_are_cut_before_normalising(tmp_path: Path) -> None:
    saved(tmp_path, wordpiece(), normalize=True)
    encoder = StaticEncoder(tmp_path, truncate_dim=8)
    reference = model2vec.StaticModel.from_pretrained(tmp_path, dimensionality=8)
    assert encoder.dimension == 8
    np.testing.assert_allclose(encoder.encode(TEXTS), reference.encode(TEXTS), atol=1e-6)
    with pytest.raises(
        InputError, match=r"truncate_dim is 99, but .* gives vectors of 37 numbers; choose from 1 to 37"
    ):
        StaticEncoder(tmp_path, truncate_dim=99)


def test_vectors_are_kept_on_disk_and_fingerprints_tell_models_apart(tmp_path: Path) -> None:
    saved(tmp_path / "a", wordpiece())
    saved(tmp_path / "b", wordpiece(), max_length=9)
    first = StaticEncoder(tmp_path / "a", cache_directory=tmp_path / "cache", cache_bytes=0)
    vectors = first.encode(TEXTS)
    again = StaticEncoder(tmp_path / "a", cache_directory=tmp_path / "cache", cache_bytes=0)
    again._files.token_ids = lambda _: pytest.fail("a text was tokenised again")  # type: ignore[method-assign]
    np.testing.assert_array_equal(again.encode(TEXTS), vectors)
    fingerprints = {
        first.fingerprint,
        StaticEncoder(tmp_path / "b").fingerprint,
        StaticEncoder(tmp_path / "a", normalize=True).fingerprint,
        StaticEncoder(tmp_path / "a", truncate_dim=8).fingerprint,
    }
    assert len(fingerprints) == 4


def test_neither_onnxruntime_nor_model2vec_is_imported(tmp_path: Path) -> None:
    saved(tmp_path, wordpiece())
    code = (
        "import sys\n"
        "for name in ('onnxruntime', 'onnx', 'model2vec', 'torch', 'sentence_transformers'): sys.modules[name] = None\n"
        "from pytrace.models.encoders.static_encoder import StaticEncoder\n"
        "print(StaticEncoder(sys.argv[1]).encode(['the red house', 'the']).shape)"
    )
    run = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    assert run.stdout == f"(2, {DIM})\n", run.stderr


def rewrite(place: Path, **tensors: Any) -> None:
    kept = load_file(place / "model.safetensors") | tensors
    save_file({name: array for name, array in kept.items() if array is not None}, place / "model.safetensors")


def config(place: Path, name: str = "config.json", **values: Any) -> None:
    path = place / name
    path.write_text(json.dumps(json.loads(path.read_text()) | values if path.is_file() else values))


def modules(place: Path, *kinds: str, path: str = "") -> None:
    listed = [{"idx": i, "path": path, "type": f"sentence_transformers.models.{kind}"} for i, kind in enumerate(kinds)]
    (place / "modules.json").write_text(json.dumps(listed))


BROKEN: list[tuple[Callable[[Path], Any], str]] = [
    (lambda p: (p / "model.safetensors").unlink(), "is no static encoder: .*model.safetensors is missing; give a directory"),
    (lambda p: (p / "tokenizer.json").unlink(), "is no static encoder: .*tokenizer.json is missing"),
    (lambda p: (p / "tokenizer.json").write_text("{}"), "is no tokenizer that can be used"),
    (lambda p: (p / "model.safetensors").write_bytes(b"?" * 50), "cannot be read as safetensors"),
    (lambda p: rewrite(p, embeddings=None, w=np.ones(2)), "has neither 'embeddings' .* nor 'embedding.weight' .*, but w;"),
    (lambda p: rewrite(p, embeddings=np.ones(5, np.float32)), r"has embeddings \[5\] of float32, which are no table"),
    (lambda p: rewrite(p, embeddings=np.full((80, 2), np.nan)), "has NaN or infinity in 'embeddings'"),
    (lambda p: rewrite(p, embeddings=np.ones((9, 4), np.float32)), r"has 9 embeddings for the \d+ tokens of .*, and no 'mapping'"),
    (lambda p: rewrite(p, weights=np.ones(9, np.float32)), r"has 9 weights for \d+ tokens"),
    (lambda p: rewrite(p, mapping=np.zeros(9, np.int64)), r"has 9 rows in its mapping for the \d+ tokens"),
    (lambda p: rewrite(p, mapping=np.full(90, 1000)), "maps tokens to rows -1 to 1000, but has"),
    (lambda p: config(p, max_length="many"), "has the max_length 'many', which is no number of tokens; correct it"),
    (lambda p: (p / "config.json").write_text("{"), "config.json cannot be read as a model's configuration"),
    (lambda p: modules(p, "Transformer", "Pooling"), "modules.json begins with 'Transformer', not 'StaticEmbedding'; name it as"),
    (lambda p: modules(p, "StaticEmbedding", "Dense"), "has the module 'Dense' beside StaticEmbedding, which is not supported"),
    (lambda p: modules(p, "StaticEmbedding", path="../other"), "has the path '../other', which leaves the model's folder"),
    (
        lambda p: config(p, "config_sentence_transformers.json", prompts={"classify": "class: "}),
        "has the prompts classify, none of which is known to be for search; name one for",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("spoil", "message"), BROKEN)
def test_what_is_broken_or_unknown_is_one_sentence(spoil: Callable[[Path], Any], message: str, tmp_path: Path) -> None:
    saved(tmp_path, wordpiece())
    spoil(tmp_path)
    with pytest.raises(ModelFileError, match=message) as failure:
        StaticEncoder(tmp_path)
    assert re.search(r"; \w", str(failure.value))


def test_misuse_of_arguments_is_told(tmp_path: Path) -> None:
    saved(tmp_path, wordpiece())
    encoder = StaticEncoder(tmp_path)
    with pytest.raises(TypeError, match="texts must be a sequence of strings, not one str"):
        encoder.encode("one")
    with pytest.raises(ValueError, match="kind must be 'query' or 'passage', not 'title'"):
        encoder.encode(["one"], kind="title")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="threads must be at least 1, not 0"):
        StaticEncoder(tmp_path, threads=0)
    assert encoder.encode([]).shape == (0, DIM)
