"""Trained models as files: what the engine computes of them, and bases that learn by adapters."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from pytrace.errors import InputError, ModelFileError
from pytrace.models import registry
from pytrace.models.llama.runtime import LlamaRuntime
from pytrace.training import encoding, export, network, trainer
from pytrace.training.training_settings import Length, TrainingSettings, WeightFormat
from tests.small_trainings import RECIPE, SMALL, TEXTS, Killed, equal, fresh, killer, odd_texts, weights

torch = network.train_package("torch")


@pytest.fixture(scope="module")
def words() -> encoding.ByteTokenizer:
    return encoding.train_tokenizer((one.text for one in TEXTS), size=400)


@pytest.fixture(scope="module")
def encoded(words: encoding.ByteTokenizer) -> encoding.EncodedTexts:
    return encoding.encode_texts(TEXTS, words, context=128)


def engine_logits(path: Path, tokens: list[int]) -> Any:
    runtime = LlamaRuntime(path, cells=256, sequences=1, batch=256, threads=1, float32_cache=True)
    count, sequence = len(tokens), np.zeros(1, np.int32)
    assert runtime.decode(
        np.array(tokens, np.int32), np.arange(count, dtype=np.int32), np.ones(count, np.int32),
        np.full(count, sequence.ctypes.data, np.uint64), np.ones(count, np.int8),
    )  # fmt: skip
    found = np.stack([runtime.logits(place).copy() for place in range(count)])
    runtime.close()
    return found


def torch_logits(net: Any, tokens: list[int]) -> Any:
    with torch.no_grad():
        return net(torch.tensor([tokens])).logits[0].numpy()


@pytest.fixture(scope="module")
def trained(words: encoding.ByteTokenizer, encoded: encoding.EncodedTexts) -> Any:
    net = fresh(words)
    trainer.train(net, encoded, SMALL, Length(steps=120), threads=1)
    return net


@pytest.mark.parametrize(("kind", "near"), [("f32", 1e-3), ("f16", 0.05), ("q8_0", 1.0)])
def test_the_engine_computes_what_torch_does(
    words: encoding.ByteTokenizer, trained: Any, tmp_path: Path, kind: Any, near: float
) -> None:
    path = tmp_path / "model.gguf"
    export.write_gguf(path, trained, network.tokenizer_keys(words), RECIPE, weights=kind)
    tokens = words.encode(TEXTS[4].text)
    expected, found = torch_logits(trained, tokens), engine_logits(path, tokens)
    assert expected.std() > 1
    assert np.abs(expected - found).max() < near
    assert export.read_recipe(path) == RECIPE
    assert sorted(one.name for one in tmp_path.iterdir()) == ["model.gguf", "model.gguf.sha256"]


def test_the_engine_splits_a_thousand_odd_texts_alike(
    words: encoding.ByteTokenizer, trained: Any, tmp_path: Path
) -> None:
    export.write_gguf(tmp_path / "model.gguf", trained, network.tokenizer_keys(words), RECIPE)
    runtime = LlamaRuntime(tmp_path / "model.gguf", cells=32, sequences=1, batch=32, threads=1)
    for one in odd_texts(1_000):
        assert runtime.tokenize(one) == words.encode(one), ascii(one)
    assert (runtime.eos, runtime.adds_bos, runtime.chat_template) == (words.end, False, None)


def test_shared_keys_and_odd_sizes_are_exported_too(tmp_path: Path, words: encoding.ByteTokenizer) -> None:
    transformers = network.train_package("transformers")
    torch.manual_seed(0)
    configuration = transformers.LlamaConfig(
        vocab_size=words.size, hidden_size=48, intermediate_size=40, num_hidden_layers=1, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, max_position_embeddings=64, tie_word_embeddings=False, initializer_range=0.2,
        rope_parameters={"rope_type": "default", "rope_theta": 5_000.0},
    )  # fmt: skip
    net = transformers.LlamaForCausalLM(configuration).eval()
    tokens = words.encode("who is ada?")
    kinds: tuple[WeightFormat, ...] = ("f32", "q8_0")
    for kind in kinds:
        export.write_gguf(tmp_path / "m.gguf", net, network.tokenizer_keys(words), RECIPE, weights=kind)
        assert np.abs(torch_logits(net, tokens) - engine_logits(tmp_path / "m.gguf", tokens)).max() < (
            1e-3 if kind == "f32" else 0.5
        )


def test_what_the_engine_would_compute_otherwise_is_not_exported(trained: Any, words: Any, tmp_path: Path) -> None:
    before = trained.config.rope_parameters
    trained.config.rope_parameters = {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}
    try:
        with pytest.raises(InputError, match="'linear'"):
            export.write_gguf(tmp_path / "m.gguf", trained, network.tokenizer_keys(words), RECIPE)
    finally:
        trained.config.rope_parameters = before
    assert not list(tmp_path.iterdir())


def test_a_failed_export_leaves_the_file_before(
    trained: Any, words: encoding.ByteTokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "m.gguf"
    export.write_gguf(path, trained, network.tokenizer_keys(words), RECIPE)
    before = path.read_bytes()

    def full(_: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(export, "flush", full)
    with pytest.raises(OSError, match="No space left"):
        export.write_gguf(path, trained, network.tokenizer_keys(words), msgspec.structs.replace(RECIPE, seed=9))
    assert path.read_bytes() == before
    assert sorted(one.name for one in tmp_path.iterdir()) == ["m.gguf", "m.gguf.sha256"]


def test_a_file_without_a_recipe_is_no_query_generator(random_gguf: Path, tmp_path: Path) -> None:
    (tmp_path / "text.gguf").write_text("no model")
    (tmp_path / "cut.gguf").write_bytes(random_gguf.read_bytes()[:5_000])
    for path in (random_gguf, tmp_path / "text.gguf", tmp_path / "cut.gguf", tmp_path / "missing.gguf"):
        with pytest.raises(InputError, match="query generator"):
            export.read_recipe(path)


ADAPTED = TrainingSettings(rank=4, batch=256, context=128, learning_rate=1e-2, checkpoint_steps=4)


def test_a_given_gguf_learns_by_adapters_and_is_exported_with_its_own_tokenizer(
    random_gguf: Path, tmp_path: Path
) -> None:
    base = network.open_base(str(random_gguf))
    encoded = encoding.encode_texts(TEXTS, base.tokenizer, context=128)
    before = weights(base.network)
    net = network.add_adapters(base.network, ADAPTED)
    done = trainer.train(net, encoded, ADAPTED, Length(steps=40), threads=1)
    assert done.loss < done.losses[0]
    assert done.trained < done.parameters / 2
    merged = network.merged(net)
    after = weights(merged)
    changed = {name for name in after if not torch.equal(before[name], after[name])}
    assert changed == {name for name in after if "_proj" in name}
    export.write_gguf(tmp_path / "m.gguf", merged, base.keys, RECIPE)
    tokens = base.tokenizer.encode(TEXTS[0].text)
    assert np.abs(torch_logits(merged, tokens) - engine_logits(tmp_path / "m.gguf", tokens)).max() < 1e-3
    given, written = (
        LlamaRuntime(path, cells=32, sequences=1, batch=32, threads=1) for path in (random_gguf, tmp_path / "m.gguf")
    )
    assert written.chat_template is None
    assert [written.tokenize(one) for one in odd_texts(50)] == [given.tokenize(one) for one in odd_texts(50)]
    assert (written.eos, written.bos, written.adds_bos) == (given.eos, given.bos, given.adds_bos)


def test_adapters_go_on_after_a_kill(random_gguf: Path, tmp_path: Path) -> None:
    def run(*, resume: bool, **options: Any) -> dict[str, Any]:
        base = network.open_base(str(random_gguf))
        encoded = encoding.encode_texts(TEXTS, base.tokenizer, context=128)
        net = network.add_adapters(base.network, ADAPTED)
        trainer.train(net, encoded, ADAPTED, Length(steps=9), threads=1, resume=resume, **options)
        return weights(network.merged(net))

    whole = run(resume=False)
    with pytest.raises(Killed):
        run(resume=False, directory=tmp_path, tell=killer(6))
    [(_, path)] = trainer.checkpoints(tmp_path)
    assert path.stat().st_size < random_gguf.stat().st_size  # adapters only, not the base
    assert equal(run(resume=True, directory=tmp_path), whole)


def saved_base(words: encoding.ByteTokenizer, net: Any, directory: Path) -> Path:
    net.save_pretrained(directory)
    words.save(directory / "tokenizer.json")
    return directory


def test_a_hugging_face_directory_is_a_base_too(words: encoding.ByteTokenizer, trained: Any, tmp_path: Path) -> None:
    directory = saved_base(words, trained, tmp_path / "base")
    base = network.open_base(str(directory))
    assert equal(weights(base.network), weights(trained))
    assert (base.tokenizer.end, base.tokenizer.begin, base.tokenizer.size) == (words.end, None, words.size)
    export.write_gguf(tmp_path / "m.gguf", base.network, base.keys, RECIPE)
    runtime = LlamaRuntime(tmp_path / "m.gguf", cells=32, sequences=1, batch=32, threads=1)
    for one in odd_texts(100):
        assert runtime.tokenize(one) == base.tokenizer.encode(one) == words.encode(one), ascii(one)


def test_a_base_whose_texts_the_engine_would_split_otherwise_is_refused(
    words: encoding.ByteTokenizer, trained: Any, tmp_path: Path
) -> None:
    directory = saved_base(words, trained, tmp_path / "base")
    path = directory / "tokenizer.json"
    described = msgspec.json.decode(path.read_bytes())
    for change in (
        {"pre_tokenizer": {"type": "Whitespace"}},
        {"normalizer": {"type": "Lowercase"}},
        {"pre_tokenizer": {**described["pre_tokenizer"], "add_prefix_space": True}},
    ):
        path.write_bytes(msgspec.json.encode({**described, **change}))
        with pytest.raises(InputError, match="convert the base to GGUF"):
            network.open_base(str(directory))
    path.write_bytes(b"{")
    with pytest.raises(ModelFileError, match="tokenizer cannot be read"):
        network.open_base(str(directory))
    (directory / "config.json").write_text("{}")
    with pytest.raises(ModelFileError, match=r"cannot be read|architecture"):
        network.open_base(str(directory))


def test_a_base_that_is_no_model_is_refused(tmp_path: Path, random_gguf: Path) -> None:
    (tmp_path / "cut.gguf").write_bytes(random_gguf.read_bytes()[:5_000])
    (tmp_path / "text.gguf").write_text("no model")
    for name in ("cut.gguf", "text.gguf", "missing.gguf"):
        with pytest.raises(ModelFileError):
            network.open_base(str(tmp_path / name))


SIZES = {
    "hidden_size": 64, "intermediate_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
    "max_position_embeddings": 128, "initializer_range": 0.2, "attn_implementation": "sdpa", "bos_token_id": None,
}  # fmt: skip
# Of Gemma one layer in six sees all of a text, the others as many tokens as their window has.
OTHERS: dict[str, dict[str, Any]] = {
    "mistral": {"num_hidden_layers": 2, "sliding_window": 96},
    "qwen2": {"num_hidden_layers": 2, "tie_word_embeddings": True},
    "qwen3": {"num_hidden_layers": 2, "head_dim": 128, "tie_word_embeddings": False},
    "gemma3_text": {"num_hidden_layers": 7, "head_dim": 256, "sliding_window": 12},
}


def other_base(words: encoding.ByteTokenizer, kind: str, directory: Path, **options: Any) -> Path:
    """Save a network of another architecture with random weights, its biases and norms too."""
    transformers = network.train_package("transformers")
    configuration = transformers.AutoConfig.for_model(
        kind,
        vocab_size=words.size,
        eos_token_id=words.end,
        pad_token_id=words.end,
        **{**SIZES, **OTHERS[kind], **options},
    )
    torch.manual_seed(0)
    net = transformers.AutoModelForCausalLM.from_config(configuration)
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            if "norm" in name or name.endswith("bias"):
                parameter.add_(0.3 * torch.randn_like(parameter))
    return saved_base(words, net, directory)


@pytest.mark.parametrize("kind", OTHERS)
def test_other_architectures_learn_by_adapters_and_the_engine_computes_what_torch_does(
    words: encoding.ByteTokenizer, tmp_path: Path, kind: str
) -> None:
    base = network.open_base(str(other_base(words, kind, tmp_path / "base")))
    encoded = encoding.encode_texts(TEXTS, base.tokenizer, context=128)
    before = weights(base.network)
    net = network.add_adapters(base.network, ADAPTED)
    done = trainer.train(net, encoded, ADAPTED, Length(steps=20), threads=1)
    assert done.loss < done.losses[0]
    merged = network.merged(net).eval()
    after = weights(merged)
    changed = {name for name in after if not torch.equal(before[name], after[name])}
    assert changed == {name for name in after if "_proj.weight" in name}
    path = tmp_path / "m.gguf"
    export.write_gguf(path, merged, base.keys, RECIPE)
    tokens = base.tokenizer.encode(TEXTS[0].text)
    assert len(tokens) > 24  # beyond Gemma's window
    expected = torch_logits(merged, tokens)
    assert expected.std() > 0.5
    # The engine looks Gemma's GELU up in a table of float16.
    assert np.abs(expected - engine_logits(path, tokens)).max() < (1e-2 if kind == "gemma3_text" else 1e-3)
    # What was written is a base again.
    again = network.open_base(str(path))
    assert np.abs(torch_logits(again.network.eval(), tokens) - expected).max() < 1e-3


@pytest.mark.parametrize(
    ("kind", "options", "fault"),
    [
        ("qwen2", {"use_sliding_window": True, "sliding_window": 16}, "use_sliding_window=True"),
        ("qwen3", {"attention_bias": True}, "attention_bias=True"),
        ("gemma3_text", {"query_pre_attn_scalar": 8}, "queries scaled by 8, and not by 256"),
        ("gemma3_text", {"final_logit_softcapping": 30.0}, "final_logit_softcapping=30.0"),
        ("gemma3_text", {"layer_types": ["full_attention"] * 7}, "layers \\[1, 2, 3, 4, 5, 6, 7\\] that see all"),
    ],
)
def test_variants_that_the_engine_would_compute_otherwise_are_refused(
    words: encoding.ByteTokenizer, tmp_path: Path, kind: str, options: dict[str, Any], fault: str
) -> None:
    directory = other_base(words, kind, tmp_path / "base", **options)
    with pytest.raises(InputError, match=fault):
        network.open_base(str(directory))


def test_a_file_that_transformers_does_not_read_whole_is_refused_as_a_base(
    words: encoding.ByteTokenizer, tmp_path: Path
) -> None:
    # transformers does not read the size of Qwen 2's heads from a GGUF, and makes it of the others.
    base = network.open_base(str(other_base(words, "qwen2", tmp_path / "base", head_dim=32)))
    export.write_gguf(tmp_path / "m.gguf", base.network, base.keys, RECIPE)
    with pytest.raises(ModelFileError, match="the base cannot be read"):
        network.open_base(str(tmp_path / "m.gguf"))


def test_a_gguf_with_scaled_positions_is_no_base(words: encoding.ByteTokenizer, trained: Any, tmp_path: Path) -> None:
    kinds = network.train_package("gguf").GGUFValueType
    for scaling in ("none", "linear"):
        keys = [*network.tokenizer_keys(words), network.Key("llama.rope.scaling.type", scaling, kinds.STRING)]
        export.write_gguf(tmp_path / f"{scaling}.gguf", trained, keys, RECIPE)
    assert equal(weights(network.open_base(str(tmp_path / "none.gguf")).network), weights(trained))
    with pytest.raises(InputError, match="rotary positions are scaled"):
        network.open_base(str(tmp_path / "linear.gguf"))


def test_an_architecture_that_is_not_known_is_refused_with_those_that_are(
    words: encoding.ByteTokenizer, tmp_path: Path
) -> None:
    transformers = network.train_package("transformers")
    configuration = transformers.GPT2Config(
        vocab_size=words.size, n_embd=16, n_layer=1, n_head=2, eos_token_id=words.end
    )
    directory = saved_base(words, transformers.GPT2LMHeadModel(configuration), tmp_path / "base")
    with pytest.raises(
        ModelFileError, match="architecture gpt2; give one of llama, mistral, qwen2, qwen3, gemma3_text"
    ):
        network.open_base(str(directory))


@pytest.mark.models
def test_the_real_tiny_model_learns_by_adapters(tiny_models: dict[registry.Role, Path], tmp_path: Path) -> None:
    base = network.open_base(str(tiny_models["language-model"]))
    encoded = encoding.encode_texts(TEXTS[:2], base.tokenizer, context=128)
    net = network.add_adapters(base.network, msgspec.structs.replace(ADAPTED, learning_rate=1e-3))
    done = trainer.train(net, encoded, msgspec.structs.replace(ADAPTED, learning_rate=1e-3), Length(steps=3))
    assert done.losses[-1] < done.losses[0]
    merged = network.merged(net)
    export.write_gguf(tmp_path / "m.gguf", merged, base.keys, RECIPE)
    tokens = base.tokenizer.encode(TEXTS[0].text)
    assert np.abs(torch_logits(merged, tokens) - engine_logits(tmp_path / "m.gguf", tokens)).max() < 1e-2
