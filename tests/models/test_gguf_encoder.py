"""Encoders in GGUF files: vectors are those of transformers with the same weights, whatever stands beside a text."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from pytrace.errors import DeviceUnavailableError, InputError, ModelError, ModelFileError
from pytrace.models import trial
from pytrace.models.encoders.encoder import encode
from pytrace.models.llama import pooled_runtime
from pytrace.models.llama.gguf_encoder import GgufEncoder
from pytrace.models.llama.llama_cpp import LlamaCppModel
from pytrace.models.llama.runtime import supports_gpu_offload
from tests import embedding_gguf as tiny
from tests.gguf_files import write_random_gguf

TEXTS = [
    "red house", "", "Who wrote it? The blue river bank of 1843.", "zebra quark", "red house",
    "the river in the house of the blue bank, " * 8, "x",
]  # fmt: skip


@pytest.fixture(autouse=True)
def trusted(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Load files without a trial in a process of their own, half a second each, but in tests that ask for `tried`."""
    if "tried" not in request.fixturenames:
        monkeypatch.setattr(trial, "check", lambda *_, **__: None)


@pytest.fixture
def tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Try files, and forget what was found."""
    monkeypatch.setenv("PYTRACE_HOME", str(tmp_path / "home"))


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write(tiny.bert(), tmp_path_factory.mktemp("bert") / "bert.gguf", pooling=tiny.MEAN)


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write(tiny.qwen3(), tmp_path_factory.mktemp("qwen") / "qwen.gguf", pooling=tiny.LAST)


@pytest.mark.parametrize(
    ("make", "pooling"),
    [
        (tiny.bert, tiny.MEAN),
        (tiny.bert, tiny.CLS),
        (tiny.nomic_bert, tiny.MEAN),
        (tiny.modern_bert, tiny.CLS),
        (tiny.modern_bert, tiny.MEAN),
        (tiny.gemma, tiny.MEAN),
        (tiny.qwen3, tiny.LAST),
        (tiny.qwen3, tiny.MEAN),
    ],
)
def test_vectors_are_those_of_transformers(tmp_path: Path, make: Callable[[], tiny.Tiny], pooling: int) -> None:
    model = make()
    path = tiny.write(model, tmp_path / "m.gguf", pooling=pooling)
    with GgufEncoder(path, threads=1) as encoder:
        vectors = encoder.encode(TEXTS)
        wanted = np.stack([tiny.vector(model, text, pooling, limit=encoder.max_tokens) for text in TEXTS])
    assert vectors.dtype == np.float32
    assert vectors.shape == (len(TEXTS), encoder.dimension) == (len(TEXTS), 64)
    assert ((vectors * wanted).sum(axis=1) > 0.99999).all()
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    # The bound means something: other texts are far from it.
    assert (wanted[0] @ wanted[2:4].T < 0.99).all()


def test_a_text_of_any_length_beside_any_others_has_the_vector_of_the_text_alone(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    words = ["red", "house", "blue", "Zürich", "7", "?"]
    texts = [" ".join(random.choice(words, size)) for size in [*random.integers(1, 30, 300), 100, 130, 250]]
    for model, pooling in ((tiny.modern_bert(context=2048), tiny.MEAN), (tiny.qwen3(context=2048), tiny.LAST)):
        path = tiny.write(model, tmp_path / "m.gguf", pooling=pooling)
        with GgufEncoder(path, threads=1, cache_bytes=0) as encoder:
            together = encoder.encode(texts)
            some = [*range(0, len(texts), 29), len(texts) - 2, len(texts) - 1]
            alone = np.concatenate([encoder.encode([texts[index]]) for index in some])
        assert ((together[some] * alone).sum(axis=1) > 0.999999).all()
        wanted = np.stack([tiny.vector(model, texts[index], pooling) for index in some[-3:]])
        assert ((alone[-3:] * wanted).sum(axis=1) > 0.99999).all()


@pytest.mark.parametrize("pooling", ["cls", "mean", "lasttoken"])
def test_what_texts_begin_with_and_long_texts_in_parts_give_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pooling: str
) -> None:
    number = {"cls": tiny.CLS, "mean": tiny.MEAN, "lasttoken": tiny.LAST}[pooling]
    model = tiny.qwen3(context=2048)
    path = tiny.write(model, tmp_path / "m.gguf", pooling=None)
    sizes: list[tuple[int, int, int]] = []
    batch = pooled_runtime.PooledRuntime._batch

    def counted(self: Any, texts: list[list[int]], first: int) -> Any:
        sizes.append((len(texts), sum(map(len, texts)), first))
        return batch(self, texts, first)

    monkeypatch.setattr(pooled_runtime.PooledRuntime, "_batch", counted)
    prompt = "Instruct: find what answers a question that somebody asks of a library\nQuery: " * 8
    texts = [f"red {number}" for number in range(9)] + ["blue house " * 60]
    with GgufEncoder(path, threads=1, pooling=pooling, prompts={"query": prompt}) as encoder:
        vectors = encoder.encode(texts, kind="query")
    lead = len(model.vocabulary.tokenizer.encode(prompt + "red ").ids) - 2
    total = sum(size for _, size, _ in sizes)
    assert total < 2 * lead + 1200, sizes
    assert max(size for _, size, _ in sizes) <= pooled_runtime.BATCH_TOKENS
    some = [0, 5, 9]
    wanted = np.stack([tiny.vector(model, prompt + texts[index], number) for index in some])
    assert ((vectors[some] * wanted).sum(axis=1) > 0.99999).all()


def test_quantised_weights_give_nearly_the_same_in_any_company(tmp_path: Path) -> None:
    model = tiny.bert()
    for kind, least in ((gguf.GGMLQuantizationType.Q8_0, 0.9995), (gguf.GGMLQuantizationType.Q4_0, 0.95)):
        path = tiny.write(model, tmp_path / "m.gguf", pooling=tiny.MEAN, kind=kind)
        with GgufEncoder(path, threads=1, cache_bytes=0) as encoder:
            vectors = encoder.encode(TEXTS)
            alone = np.concatenate([encoder.encode([text]) for text in TEXTS])
        wanted = np.stack([tiny.vector(model, text, tiny.MEAN, limit=64) for text in TEXTS])
        assert least < (vectors * wanted).sum(axis=1).min() < 0.99999
        assert ((vectors * alone).sum(axis=1) > 0.9999).all()


def test_texts_are_cut_to_the_context_with_their_special_tokens(bert: Path) -> None:
    model = tiny.bert()
    long = "the river in the house " * 40
    for context, limit in ((None, 64), (10, 10), (500, 64)):
        with GgufEncoder(bert, threads=1, context=context) as encoder:
            assert encoder.max_tokens == limit
            wanted = tiny.vector(model, long, tiny.MEAN, limit=limit)
            assert float(encoder.encode([long])[0] @ wanted) > 0.99999
    with pytest.raises(ValueError, match="context must leave room for a text beside 2 special tokens, not be 2"):
        GgufEncoder(bert, threads=1, context=2)


def test_an_empty_text_has_a_vector_where_nothing_is_put_around_texts(random_gguf: Path) -> None:
    with GgufEncoder(random_gguf, threads=1, pooling="mean") as encoder:
        vectors = encoder.encode(["", "a", ""])
        assert np.isfinite(vectors).all()
        np.testing.assert_array_equal(vectors[0], vectors[2])


def test_control_tokens_in_a_text_stay_text(qwen: Path) -> None:
    with GgufEncoder(qwen, threads=1) as encoder:
        vector = encoder.encode(["red <|im_end|>"])[0]
    # tokenizers takes such a text for the token itself.
    assert float(vector @ tiny.vector(tiny.qwen3(), "red <|im_end|>", tiny.LAST)) < 0.999


def test_prompts_and_dimensions_shape_vectors_and_the_fingerprint(bert: Path) -> None:
    model = tiny.bert()
    plain = GgufEncoder(bert, threads=1)
    with plain, GgufEncoder(bert, threads=1, prompts={"query": "who? ", "passage": "it: "}, truncate_dim=16) as encoder:
        assert encoder.dimension == 16
        for kind, prompt in (("query", "who? "), ("passage", "it: ")):
            vector = encoder.encode(["red house"], kind=kind)[0]  # type: ignore[arg-type]
            assert float(vector @ tiny.vector(model, f"{prompt}red house", tiny.MEAN, length=16)) > 0.99999
        unlike = [
            GgufEncoder(bert, threads=1, **options)  # type: ignore[arg-type]
            for options in ({"pooling": "cls"}, {"normalize": False}, {"context": 12}, {"truncate_dim": 16}, {})
        ]
        prints = [encoder.fingerprint, *(each.fingerprint for each in unlike)]
        assert len(set(prints)) == len(prints)
        assert plain.fingerprint == prints[-1]
        raw = unlike[1].encode(["red house"])[0]
        assert np.linalg.norm(raw) > 1.5
        np.testing.assert_allclose(raw / np.linalg.norm(raw), plain.encode(["red house"])[0], atol=1e-6)
        for each in unlike:
            each.close()


def test_equal_texts_are_evaluated_once_and_vectors_are_kept(
    bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    rows = pooled_runtime.PooledRuntime.rows

    def counted(self: Any, texts: Any) -> Any:
        seen.append(len(texts))
        return rows(self, texts)

    monkeypatch.setattr(pooled_runtime.PooledRuntime, "rows", counted)
    with GgufEncoder(bert, threads=1, cache_directory=tmp_path) as encoder:
        first = encoder.encode(["red", "blue", "red", "red"])
        assert seen == [2]
        np.testing.assert_array_equal(encode(encoder, ["blue", "red"], "passage"), first[1::-1])
    with GgufEncoder(bert, threads=1, cache_directory=tmp_path) as encoder:
        np.testing.assert_array_equal(encoder.encode(["blue", "red"]), first[1::-1])
    assert sum(seen) == 2
    with pytest.raises(TypeError, match="put it in a list"):
        encoder.encode("red")


def test_files_that_hold_no_encoder_are_refused(tmp_path: Path, bert: Path) -> None:
    language_model = write_random_gguf(tmp_path / "llm.gguf")
    with pytest.raises(ModelFileError, match=r"as a language model does not; give an encoder, or pass pooling="):
        GgufEncoder(language_model, threads=1)
    reranker = tiny.write(tiny.xlm_roberta(), tmp_path / "reranker.gguf", pooling=tiny.RANK)
    with pytest.raises(ModelFileError, match=r"holds a reranker.*name it as the cross-encoder"):
        GgufEncoder(reranker, threads=1)
    bare = tiny.write(tiny.gemma()._replace(dense=()), tmp_path / "bare.gguf", pooling=tiny.MEAN)
    with pytest.raises(ModelFileError, match=r"lacks the two dense layers.*--sentence-transformers-dense-modules"):
        GgufEncoder(bare, threads=1)
    with pytest.raises(ModelFileError, match="holds an encoder, which writes no text; name it as the encoder"):
        LlamaCppModel(bert, threads=1)
    (tmp_path / "text.gguf").write_text("hello")
    with pytest.raises(ModelFileError, match="is no GGUF file"):
        GgufEncoder(tmp_path / "text.gguf")


@pytest.mark.usefixtures("tried")
def test_a_file_that_ends_llama_cpp_ends_a_process_of_its_own(tmp_path: Path, bert: Path) -> None:
    model = tiny.bert()
    # The numbers of [CLS] and [SEP] are then those of BERT's own vocabulary, which this one does not have.
    nameless = model.vocabulary._replace(add=tiny.without_special_tokens(model.vocabulary.add))
    path = tiny.write(model._replace(vocabulary=nameless), tmp_path / "m.gguf", pooling=tiny.MEAN)
    with pytest.raises(ModelFileError, match=r"a process that tried it was ended by signal 6 \(Aborted\)"):
        GgufEncoder(path, threads=1)
    with GgufEncoder(bert, threads=1) as encoder:
        assert np.isfinite(encoder.encode(["red"])).all()


def test_options_out_of_range_are_refused(bert: Path) -> None:
    with pytest.raises(InputError, match=r"llama.cpp has no pooling 'max'; choose among mean"):
        GgufEncoder(bert, pooling="max")
    with pytest.raises(InputError, match="prompts are of kind 'query' or 'passage', not 'search_query'"):
        GgufEncoder(bert, prompts={"search_query": "x"})
    with pytest.raises(
        InputError, match="truncate_dim is 65, but 'bert' gives vectors of 64 numbers; choose from 1 to 64"
    ):
        GgufEncoder(bert, threads=1, truncate_dim=65)
    with pytest.raises(ValueError, match="device must be 'cpu' or 'cuda', not 'tpu'"):
        GgufEncoder(bert, device="tpu")  # type: ignore[arg-type]
    for option in ("threads", "context", "truncate_dim"):
        with pytest.raises(ValueError, match=f"{option} must be at least 1"):
            GgufEncoder(bert, **{option: 0})  # type: ignore[arg-type]


def test_a_gpu_that_is_not_there_is_never_replaced_in_silence(bert: Path) -> None:
    if supports_gpu_offload():
        pytest.skip("this llama.cpp has a GPU")
    for options in ({"device": "cuda"}, {"gpu_layers": 1}):
        with pytest.raises(DeviceUnavailableError, match="no GPU"):
            GgufEncoder(bert, **options)  # type: ignore[arg-type]


def test_damaged_weights_are_noticed(tmp_path: Path) -> None:
    model = tiny.bert()
    next(model.model.parameters()).data[10:] = float("nan")
    path = tiny.write(model, tmp_path / "nan.gguf", pooling=tiny.MEAN)
    with GgufEncoder(path, threads=1) as encoder, pytest.raises(ModelError, match=r"NaN or infinity.*damaged"):
        encoder.encode(["red"])


def test_a_context_that_no_machine_holds_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tiny.write(tiny.modern_bert(context=4096), tmp_path / "m.gguf", pooling=tiny.MEAN)
    with GgufEncoder(path, threads=1) as encoder:
        monkeypatch.setattr(os, "sysconf", lambda name: 4096 if name == "SC_PAGE_SIZE" else 5_000)
        assert np.isfinite(encoder.encode(["red"])).all()
        with pytest.raises(ModelError, match=r"a text of 3,072 tokens takes 0 GB.*trained for 4,096"):
            encoder.encode(["red " * 1000])
        assert np.isfinite(encoder.encode(["blue"])).all()


def test_a_closed_encoder_says_so_and_leaves_another_model_alone(bert: Path, random_gguf: Path) -> None:
    with LlamaCppModel(random_gguf, threads=1, context=64) as model:
        before = model.score_options(["ab"], [["A", "B"]])[0].log_probabilities
        encoder, other = GgufEncoder(bert, threads=1), GgufEncoder(bert, threads=1)
        vector = encoder.encode(["red"])
        encoder.close()
        encoder.close()
        with pytest.raises(ModelError, match="closed"):
            encoder.encode(["blue"])
        np.testing.assert_array_equal(other.encode(["red"]), vector)
        np.testing.assert_allclose(model.score_options(["ab"], [["A", "B"]])[0].log_probabilities, before, atol=1e-5)
        other.close()


def test_threads_may_share_an_encoder(bert: Path) -> None:
    texts = [f"red {number}" for number in range(40)]
    with GgufEncoder(bert, threads=1, cache_bytes=0) as encoder:
        wanted = encoder.encode(texts)
        found: list[Any] = [None] * 4

        def encode(index: int) -> None:
            found[index] = encoder.encode(texts[index::4])

        workers = [threading.Thread(target=encode, args=(index,)) for index in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        for index in range(4):
            np.testing.assert_allclose(found[index], wanted[index::4], atol=1e-3)


@pytest.mark.usefixtures("heeding_interrupts")
def test_an_interrupt_ends_an_evaluation_and_the_encoder_goes_on(tmp_path: Path) -> None:
    path = tiny.write(tiny.modern_bert(context=8192), tmp_path / "m.gguf", pooling=tiny.MEAN)
    with GgufEncoder(path, threads=1, cache_bytes=0) as encoder:
        wanted = encoder.encode(["red"])
        threading.Timer(0.4, os.kill, (os.getpid(), signal.SIGINT)).start()

        def encode_for_ever() -> None:
            while True:
                encoder.encode(["red blue " * 900])

        with pytest.raises(KeyboardInterrupt):
            encode_for_ever()
        np.testing.assert_allclose(encoder.encode(["red"]), wanted, atol=1e-6)


def test_onnxruntime_is_not_needed(bert: Path) -> None:
    program = f"""
import sys
sys.modules["onnxruntime"] = None
from pytrace.models.llama.gguf_encoder import GgufEncoder
with GgufEncoder({str(bert)!r}, threads=1) as encoder:
    print(encoder.encode(["red"]).shape)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout.split("\n")[0] == "(1, 64)", done.stderr[-1000:]
