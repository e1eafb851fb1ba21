"""A given base that learns by adapters: low-rank updates of its attention and inner networks, merged before the export.

Source: Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models" (2021), section 4.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from pathlib import Path
from typing import Any, NamedTuple

from pytrace.errors import InputError, MissingDependencyError, ModelFileError
from pytrace.models import registry
from pytrace.models.llama.runtime import LlamaRuntime
from pytrace.models.registry.model_files import check_gguf
from pytrace.training.export import Key, gguf_module
from pytrace.training.network import torch_module, transformers_module
from pytrace.training.tokenizer import TextTokenizer
from pytrace.training.training_settings import TrainingSettings

_MODULES = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


class Base(NamedTuple):
    """A model to begin with: the network, its tokenizer, the keys that describe that one in a GGUF, name and SHA-256."""

    network: Any
    tokenizer: TextTokenizer
    keys: list[Key]
    name: str
    fingerprint: str


class EngineTokenizer:
    """The tokenizer inside a GGUF, asked through the engine, so that training and use see the same tokens."""

    def __init__(self, path: Path) -> None:
        self._runtime = LlamaRuntime(path, cells=32, sequences=1, batch=32, threads=1)

    @property
    def size(self) -> int:
        """How many tokens there are."""
        return self._runtime.vocabulary_size

    @property
    def end(self) -> int:
        """The token that ends a text."""
        return self._runtime.eos

    @property
    def begin(self) -> int | None:
        """The token that every text begins with, if there is one."""
        return self._runtime.bos if self._runtime.adds_bos else None

    def encode(self, text: str) -> list[int]:
        """Return a text's tokens, none of them a control token."""
        return list(self._runtime.tokenize(text))

    def close(self) -> None:
        """Free the model."""
        self._runtime.close()


class FileTokenizer:
    """The tokenizer of a Hugging Face directory: byte-level BPE in `tokenizer.json`."""

    def __init__(self, directory: Path, *, end: int, begin: int | None) -> None:
        from tokenizers import Tokenizer

        path = directory / "tokenizer.json"
        try:
            self._tokenizer = Tokenizer.from_str(path.read_text(encoding="utf-8"))
        except Exception as error:  # the tokenizers package raises plain exceptions only
            raise ModelFileError(
                f"{path}: the base's tokenizer cannot be read ({error}); give a whole Hugging Face directory, or a GGUF"
            ) from error
        # A question that spells a control token out stays plain text.
        self._tokenizer.encode_special_tokens = True
        self._end, self._begin = end, begin

    @property
    def size(self) -> int:
        """How many tokens there are."""
        return int(self._tokenizer.get_vocab_size())

    @property
    def end(self) -> int:
        """The token that ends a text."""
        return self._end

    @property
    def begin(self) -> int | None:
        """The token that every text begins with, if there is one."""
        return self._begin

    @property
    def description(self) -> dict[str, Any]:
        """The tokenizer as `tokenizer.json` has it."""
        found = json.loads(self._tokenizer.to_str())
        assert isinstance(found, dict)
        return found

    def encode(self, text: str) -> list[int]:
        """Return a text's tokens, none of them a control token."""
        plain = text.encode("utf-8", "replace").decode("utf-8")
        return list(self._tokenizer.encode(plain, add_special_tokens=False).ids)


def open_base(name: str) -> Base:
    """Open a model to begin with, its weights in float32."""
    directory = Path(name).expanduser()
    if (directory / "config.json").is_file():
        return _open_directory(directory)
    return _open_gguf(registry.resolve(name, "language-model"))


def add_adapters(network: Any, settings: TrainingSettings) -> Any:
    """Freeze a network and put low-rank adapters on its attention and its inner networks."""
    try:
        import peft
    except ImportError as error:
        raise MissingDependencyError("adapters need the package peft; pip install 'pytrace-rag[train]'") from error
    torch = torch_module()
    settled = peft.LoraConfig(
        r=settings.rank,
        lora_alpha=settings.rank_scale * settings.rank,
        lora_dropout=0.0,
        target_modules=list(_MODULES),
        task_type="CAUSAL_LM",
    )
    before = torch.random.get_rng_state()
    try:
        torch.manual_seed(settings.seed)
        with warnings.catch_warnings():
            # peft asks transformers for things by names that are to go.
            warnings.simplefilter("ignore", FutureWarning)
            return peft.get_peft_model(network, settled)
    finally:
        torch.random.set_rng_state(before)


def merged(network: Any) -> Any:
    """Return a network with its adapters added to its weights, or itself if it has none."""
    return network.merge_and_unload() if hasattr(network, "merge_and_unload") else network


def _open_gguf(path: Path) -> Base:
    gguf = gguf_module()
    check_gguf(path)
    network = _load(path.parent, path.name)
    try:
        fields = gguf.GGUFReader(path).fields
    except Exception as error:  # a damaged file raises whatever its reader stumbles over
        raise ModelFileError(f"{path}: the base cannot be read ({error}); pull it again or choose another") from error
    # The generator is given plain prompts: a chat template would promise what it cannot do.
    keys = [
        Key(field.name, field.contents(), field.types[0], field.types[1] if len(field.types) > 1 else None)
        for field in fields.values()
        if field.name.startswith("tokenizer.") and not field.name.startswith("tokenizer.chat_template")
    ]
    return Base(network, EngineTokenizer(path), keys, path.name, _hash(path))


def _open_directory(directory: Path) -> Base:
    network = _load(directory, None)
    configuration = network.config
    end = configuration.eos_token_id[0] if isinstance(configuration.eos_token_id, list) else configuration.eos_token_id
    if end is None:
        raise ModelFileError(f"{directory}: config.json names no eos_token_id, the token that ends a text; add it")
    tokenizer = FileTokenizer(directory, end=end, begin=None)
    keys = _described(directory, tokenizer, configuration.vocab_size)
    files = sorted(path for path in directory.iterdir() if path.suffix in {".safetensors", ".bin"})
    digest = hashlib.sha256("".join(_hash(path) for path in files).encode()).hexdigest()
    return Base(network, tokenizer, keys, directory.name, digest)


def _load(directory: Path, file: str | None) -> Any:
    torch, transformers = torch_module(), transformers_module()
    place = directory if file is None else directory / file
    shown = transformers.utils.logging.is_progress_bar_enabled()
    transformers.utils.logging.disable_progress_bar()
    try:
        network = transformers.AutoModelForCausalLM.from_pretrained(
            directory, gguf_file=file, dtype=torch.float32, local_files_only=True, attn_implementation="sdpa"
        )
    except Exception as error:  # what a damaged file raises differs from version to version
        said = " ".join(str(error).split())[:200]
        raise ModelFileError(
            f"{place}: the base cannot be read ({said}); give a GGUF or a Hugging Face directory of a Llama"
        ) from error
    finally:
        if shown:
            transformers.utils.logging.enable_progress_bar()
    if network.config.model_type != "llama":
        raise ModelFileError(
            f"{place}: the base is of architecture {network.config.model_type}; give one of architecture llama"
        )
    return network


def _described(directory: Path, tokenizer: FileTokenizer, size: int) -> list[Key]:
    """Return the keys of a byte-level BPE whose way to split texts the engine knows."""
    gguf = gguf_module()
    description = tokenizer.description
    model, split = description["model"], _splitting(description["pre_tokenizer"])
    if model["type"] != "BPE" or split is None or description["normalizer"] is not None:
        raise InputError(
            f"{directory}: its tokenizer ({model['type']}) is not one that splits texts as GPT-2 or SmolLM do; convert the "
            "base to GGUF with llama.cpp and give that file"
        )
    control = {token["id"] for token in description["added_tokens"] if token["special"]}
    named = {number: text for text, number in model["vocab"].items()}
    named |= {token["id"]: token["content"] for token in description["added_tokens"]}
    kinds, types = gguf.GGUFValueType, gguf.TokenType
    tokens = [named.get(number, f"[PAD{number}]") for number in range(size)]
    sorts = [
        types.CONTROL if number in control else types.NORMAL if number in named else types.UNUSED
        for number in range(size)
    ]
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in model["merges"]]
    return [
        Key("tokenizer.ggml.model", "gpt2", kinds.STRING),
        Key("tokenizer.ggml.pre", split, kinds.STRING),
        Key("tokenizer.ggml.tokens", tokens, kinds.ARRAY, kinds.STRING),
        Key("tokenizer.ggml.token_type", [int(one) for one in sorts], kinds.ARRAY, kinds.INT32),
        Key("tokenizer.ggml.merges", merges, kinds.ARRAY, kinds.STRING),
        Key("tokenizer.ggml.eos_token_id", tokenizer.end, kinds.UINT32),
        Key("tokenizer.ggml.add_bos_token", False, kinds.BOOL),
    ]


def _splitting(description: dict[str, Any] | None) -> str | None:
    """Return llama.cpp's name for a way to split texts, or None if it is not one of two."""
    if description is None:
        return None
    steps = description["pretokenizers"] if description["type"] == "Sequence" else [description]
    last = steps[-1]
    if last["type"] != "ByteLevel" or last.get("add_prefix_space") or not last.get("use_regex", True):
        return None
    if len(steps) == 1:
        return "gpt-2"
    digits = len(steps) == 2 and steps[0]["type"] == "Digits" and steps[0].get("individual_digits")
    return "smollm" if digits else None


def _hash(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
