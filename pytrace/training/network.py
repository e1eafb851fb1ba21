"""The network of a query generator: a small Llama from scratch, in float32."""

from __future__ import annotations

from typing import Any

from pytrace.errors import DeviceUnavailableError, InputError, MissingDependencyError
from pytrace.training.training_settings import TrainingSettings

_MOST_PARAMETERS = 15_000_000
_ROTARY_BASE = 10_000.0


def torch_module() -> Any:
    """Return PyTorch."""
    try:
        import torch
    except ImportError as error:
        raise MissingDependencyError(
            "training needs PyTorch and transformers; pip install 'pytrace-rag[train]'"
        ) from error
    return torch


def transformers_module() -> Any:
    """Return transformers."""
    try:
        import transformers
    except ImportError as error:
        raise MissingDependencyError(
            "training needs PyTorch and transformers; pip install 'pytrace-rag[train]'"
        ) from error
    return transformers


def check_device(name: str) -> str:
    """Return the name of a device that is there."""
    if name not in {"cpu", "cuda"}:
        raise InputError(f"{name!r} is no device to train on; choose cpu or cuda")
    if name == "cuda" and not torch_module().cuda.is_available():
        raise DeviceUnavailableError(
            "--device cuda was asked for and PyTorch finds no GPU; install its CUDA build, or leave --device out"
        )
    return name


def new_network(settings: TrainingSettings, *, size: int, end: int) -> Any:
    """Return a Llama with random weights, the same for the same seed."""
    torch, transformers = torch_module(), transformers_module()
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
    before = torch.random.get_rng_state()
    try:
        torch.manual_seed(settings.seed)
        return transformers.LlamaForCausalLM(configuration)
    finally:
        # Whoever calls has random numbers of their own.
        torch.random.set_rng_state(before)


def parameter_count(network: Any) -> int:
    """Return how many numbers a network has, shared ones once."""
    return sum(parameter.numel() for parameter in network.parameters())
