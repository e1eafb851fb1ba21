"""What is trained: a small Llama from scratch, or a given model that learns by adapters, merged before the export.

Source: Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models" (2021), section 4.
"""

from __future__ import annotations

import hashlib
import importlib
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pytrace.errors import DeviceUnavailableError, InputError, MissingDependencyError, ModelFileError
from pytrace.models import registry
from pytrace.models.llama.runtime import LlamaRuntime
from pytrace.models.registry.model_files import check_gguf, sha256_of
from pytrace.training.architectures import ARCHITECTURES, check_exportable
from pytrace.training.encoding import ByteTokenizer, TextTokenizer, TrainingText, train_tokenizer
from pytrace.training.training_settings import TrainingSettings

_NEEDS = {
    "torch": "training needs PyTorch and transformers",
    "transformers": "training needs PyTorch and transformers",
    "gguf": "writing GGUF needs the package gguf",
    "peft": "adapters need the package peft",
    "onnx": "rankers are read from ONNX graphs and written as such, which needs onnx and onnxscript",
    "safetensors.torch": "training needs PyTorch and transformers",
    "onnxscript": "rankers are read from ONNX graphs and written as such, which needs onnx and onnxscript",
}
_MOST_PARAMETERS = 15_000_000
_ROTARY_BASE = 10_000.0
# All weights but embeddings and norms, by the names that Llama, Mistral, Qwen and Gemma share.
_MODULES = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def train_package(
    name: Literal["torch", "transformers", "gguf", "peft", "onnx", "onnxscript", "safetensors.torch"],
) -> Any:
    """Return a package that only training needs, so that it is an extra and imported late."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingDependencyError(f"{_NEEDS[name]}; pip install 'pytrace-rag[train]'") from error


class Key(NamedTuple):
    """A key of a GGUF: its value, its type, and for a list the type of its items."""

    name: str
    value: Any
    kind: Any
    items: Any = None


class Base(NamedTuple):
    """A model to begin with: the network, its tokenizer, the keys that describe that one in a GGUF, name and SHA-256."""

    network: Any
    tokenizer: TextTokenizer
    keys: list[Key]
    name: str
    fingerprint: str


def check_device(name: str) -> str:
    """Return the name of a device that is there."""
    if name not in {"cpu", "cuda"}:
        raise InputError(f"{name!r} is no device to train on; choose cpu or cuda")
    if name == "cuda" and not train_package("torch").cuda.is_available():
        raise DeviceUnavailableError(
            "--device cuda was asked for and PyTorch finds no GPU; install its CUDA build, or leave --device out"
        )
    return name


def new_base(texts: Sequence[TrainingText], settings: TrainingSettings) -> Base:
    """Return a model from scratch, with a tokenizer learned from the texts."""
    tokenizer = train_tokenizer((text.text for text in texts), size=settings.vocabulary)
    network = new_network(settings, size=tokenizer.size, end=tokenizer.end)
    return Base(network, tokenizer, tokenizer_keys(tokenizer), "", "")


def new_network(settings: TrainingSettings, *, size: int, end: int) -> Any:
    """Return a Llama with random weights in float32, the same for the same seed."""
    torch, transformers = train_package("torch"), train_package("transformers")
    inside = settings.layers * (4 * settings.width**2 + 3 * settings.width * settings.inner + 2 * settings.width)
    count = size * settings.width + inside + settings.width
    if count > _MOST_PARAMETERS:
        raise InputError(
            f"the model would have {count:,} parameters, more than {_MOST_PARAMETERS:,}; make width, layers, inner or "
            "vocabulary smaller"
        )
    configuration = transformers.LlamaConfig(
        vocab_size=size,
        hidden_size=settings.width,
        intermediate_size=settings.inner,
        num_hidden_layers=settings.layers,
        num_attention_heads=settings.heads,
        num_key_value_heads=settings.heads,
        max_position_embeddings=settings.context,
        rope_parameters={"rope_type": "default", "rope_theta": _ROTARY_BASE},
        rms_norm_eps=1e-5,
        # Attention begins far from even, so that heads which repeat tokens form in half the steps of the usual 0.02.
        initializer_range=settings.width**-0.5,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=end,
        pad_token_id=None,
        attn_implementation="sdpa",
    )
    # Whoever calls has random numbers of their own.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        return transformers.LlamaForCausalLM(configuration)


def parameter_count(network: Any) -> int:
    """Return how many numbers a network has, shared ones once."""
    return sum(parameter.numel() for parameter in network.parameters())


def add_adapters(network: Any, settings: TrainingSettings) -> Any:
    """Freeze a network and put low-rank adapters on its attention and its inner networks."""
    peft, torch = train_package("peft"), train_package("torch")
    configuration = peft.LoraConfig(
        r=settings.rank,
        lora_alpha=settings.rank_scale * settings.rank,
        lora_dropout=0.0,
        target_modules=_MODULES,
        task_type="CAUSAL_LM",
    )
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        torch.manual_seed(settings.seed)
        # peft asks transformers for things by names that are to go.
        warnings.simplefilter("ignore", FutureWarning)
        return peft.get_peft_model(network, configuration)


def merged(network: Any) -> Any:
    """Return a network with its adapters added to its weights, or itself if it has none."""
    return network.merge_and_unload() if hasattr(network, "merge_and_unload") else network


def open_base(name: str) -> Base:
    """Open a model to begin with, its weights in float32."""
    directory = Path(name).expanduser()
    if (directory / "config.json").is_file():
        return _open_directory(directory)
    return _open_gguf(registry.resolve(name, "language-model"))


def _open_gguf(path: Path) -> Base:
    gguf = train_package("gguf")
    check_gguf(path)
    network = _load(path.parent, path.name)
    try:
        reader = gguf.GGUFReader(path)
        fields, tensors = reader.fields, {tensor.name for tensor in reader.tensors}
        scaling = [field.contents() for name, field in fields.items() if name.endswith(".rope.scaling.type")]
    except Exception as error:  # a damaged file raises whatever its reader stumbles over
        raise ModelFileError(f"{path}: the base cannot be read ({error}); pull it again or choose another") from error
    # transformers passes over both, and would compute another model.
    if set(scaling) - {"none"} or "rope_freqs.weight" in tensors:
        raise InputError(f"{path}: its rotary positions are scaled, as no base may have them; choose another base")
    # The generator is given plain prompts: a chat template would promise what it cannot do.
    keys = [
        Key(field.name, field.contents(), field.types[0], field.types[1] if len(field.types) > 1 else None)
        for field in fields.values()
        if field.name.startswith("tokenizer.") and not field.name.startswith("tokenizer.chat_template")
    ]
    # The engine encodes, so that training and use see the same tokens.
    runtime = LlamaRuntime(path, cells=32, sequences=1, batch=32, threads=1)
    tokenizer = TextTokenizer(runtime.tokenize, end=runtime.eos, begin=runtime.bos if runtime.adds_bos else None)
    return Base(network, tokenizer, keys, path.name, sha256_of(path))


def _open_directory(directory: Path) -> Base:
    from tokenizers import Tokenizer

    network = _load(directory, None)
    end = network.config.eos_token_id
    end = end[0] if isinstance(end, list) else end
    if end is None:
        raise ModelFileError(f"{directory}: config.json names no eos_token_id, the token that ends a text; add it")
    path = directory / "tokenizer.json"
    try:
        words = Tokenizer.from_str(path.read_text(encoding="utf-8"))
    except Exception as error:  # the tokenizers package raises plain exceptions only
        raise ModelFileError(
            f"{path}: the base's tokenizer cannot be read ({error}); give a whole Hugging Face directory, or a GGUF"
        ) from error
    # A question that spells a control token out stays plain text.
    words.encode_special_tokens = True
    tokenizer = ByteTokenizer(words, end=end)
    keys = _directory_keys(directory, tokenizer, network.config.vocab_size)
    files = sorted(path for path in directory.iterdir() if path.suffix in {".safetensors", ".bin"})
    digest = hashlib.sha256("".join(map(sha256_of, files)).encode()).hexdigest()
    return Base(network, tokenizer, keys, directory.name, digest)


def _load(directory: Path, file: str | None) -> Any:
    torch, transformers = train_package("torch"), train_package("transformers")
    path = directory if file is None else directory / file
    shown = transformers.utils.logging.is_progress_bar_enabled()
    transformers.utils.logging.disable_progress_bar()
    try:
        network = transformers.AutoModelForCausalLM.from_pretrained(
            directory, gguf_file=file, dtype=torch.float32, local_files_only=True, attn_implementation="sdpa"
        )
    except Exception as error:  # what a damaged file raises differs from version to version
        reason = " ".join(str(error).split())[:200]
        raise ModelFileError(
            f"{path}: the base cannot be read ({reason}); give a GGUF or a Hugging Face directory of a language model"
        ) from error
    finally:
        if shown:
            transformers.utils.logging.enable_progress_bar()
    if network.config.model_type not in ARCHITECTURES:
        raise ModelFileError(
            f"{path}: the base is of architecture {network.config.model_type}; give one of {', '.join(ARCHITECTURES)}"
        )
    check_exportable(network.config)  # before it has learned for hours
    return network


def tokenizer_keys(tokenizer: ByteTokenizer) -> list[Key]:
    """Return the keys by which the engine splits and encodes texts as a tokenizer from scratch does."""
    return _bpe_keys(tokenizer, dict(enumerate(tokenizer.tokens)), {tokenizer.end}, tokenizer.size, "gpt-2")


def _directory_keys(directory: Path, tokenizer: ByteTokenizer, size: int) -> list[Key]:
    """Return the keys of a byte-level BPE whose way to split texts the engine knows."""
    description = tokenizer.description
    model, split = description["model"], _splitting(description["pre_tokenizer"])
    if model["type"] != "BPE" or split is None or description["normalizer"] is not None:
        raise InputError(
            f"{directory}: its tokenizer ({model['type']}) is not one that splits texts as GPT-2 or SmolLM do; convert the "
            "base to GGUF with llama.cpp and give that file"
        )
    control = {token["id"] for token in description["added_tokens"] if token["special"]}
    tokens = {number: text for text, number in model["vocab"].items()}
    tokens |= {token["id"]: token["content"] for token in description["added_tokens"]}
    return _bpe_keys(tokenizer, tokens, control, size, split)


def _bpe_keys(tokenizer: ByteTokenizer, tokens: dict[int, str], control: set[int], size: int, split: str) -> list[Key]:
    # A network may have more rows than its tokenizer has tokens; llama.cpp wants an entry for each.
    gguf = train_package("gguf")
    kinds, types = gguf.GGUFValueType, gguf.TokenType
    sorts = [
        types.CONTROL if number in control else types.NORMAL if number in tokens else types.UNUSED
        for number in range(size)
    ]
    texts = [tokens.get(number, f"[PAD{number}]") for number in range(size)]
    return [
        Key("tokenizer.ggml.model", "gpt2", kinds.STRING),
        Key("tokenizer.ggml.pre", split, kinds.STRING),
        Key("tokenizer.ggml.tokens", texts, kinds.ARRAY, kinds.STRING),
        Key("tokenizer.ggml.token_type", list(map(int, sorts)), kinds.ARRAY, kinds.INT32),
        Key("tokenizer.ggml.merges", tokenizer.merges, kinds.ARRAY, kinds.STRING),
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
