"""The architectures that learn by adapters, and how llama.cpp calls and lays out their tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from pytrace.errors import InputError

# By what transformers calls them within a block.
_LLAMA = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_HEAD_NORMS = {"self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"}
_GEMMA_NORMS = {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
# llama.cpp has these two in its code: one layer in six sees all of a text, and the others turn by this base.
_GEMMA_PERIOD, _GEMMA_LOCAL_BASE = 6, 10_000.0


class Architecture(NamedTuple):
    """An architecture as llama.cpp knows it."""

    name: str
    tensors: Mapping[str, str]
    # Whether the engine turns neighbouring numbers of a head, where transformers turns the first half with the second.
    neighbours: bool = False
    # What the engine's norms are multiplied by, less what transformers keeps of it.
    norm_offset: float = 0.0


ARCHITECTURES: dict[str, Architecture] = {
    "llama": Architecture("llama", _LLAMA, neighbours=True),
    "mistral": Architecture("llama", _LLAMA, neighbours=True),
    "qwen2": Architecture("qwen2", _LLAMA),
    "qwen3": Architecture("qwen3", {**_LLAMA, **_HEAD_NORMS}),
    "gemma3_text": Architecture("gemma3", {**_LLAMA, **_HEAD_NORMS, **_GEMMA_NORMS}, norm_offset=1.0),
}
"""By the model type that transformers knows them by."""


def rotary_base(configuration: Any) -> float:
    """Return the base of the rotary positions, of layers that see all of a text."""
    return float(_rotary(configuration)["rope_theta"])


def context_length(configuration: Any) -> int:
    """Return how long a text may be; Mistral's window, which the engine does not have, ends no sooner than that."""
    window = getattr(configuration, "sliding_window", None) if configuration.model_type == "mistral" else None
    longest: int = configuration.max_position_embeddings
    return longest if window is None else min(longest, window)


def check_exportable(configuration: Any) -> None:
    """Refuse a network that the engine would compute otherwise."""
    faults = []
    if (kind := _rotary(configuration).get("rope_type", "default")) != "default":
        faults.append(f"rotary positions of type {kind!r}")
    faults += [f"{name}=True" for name in ("attention_bias", "mlp_bias") if getattr(configuration, name, False)]
    if configuration.model_type.startswith("qwen") and configuration.use_sliding_window:
        faults.append("use_sliding_window=True")
    if configuration.model_type == "gemma3_text":
        local = configuration.rope_parameters["sliding_attention"]["rope_theta"]
        full = [number for number, each in enumerate(configuration.layer_types, 1) if each == "full_attention"]
        if full != list(range(_GEMMA_PERIOD, len(configuration.layer_types) + 1, _GEMMA_PERIOD)):
            faults.append(f"layers {full} that see all of a text, where each {_GEMMA_PERIOD}th should")
        if local != _GEMMA_LOCAL_BASE:
            faults.append(f"a rotary base of {local:g} in its window, where it should be {_GEMMA_LOCAL_BASE:g}")
        if configuration.query_pre_attn_scalar != configuration.head_dim:
            faults.append(
                f"queries scaled by {configuration.query_pre_attn_scalar}, and not by {configuration.head_dim}"
            )
        faults += [
            f"{name}={getattr(configuration, name)}"
            for name in ("attn_logit_softcapping", "final_logit_softcapping")
            if getattr(configuration, name) is not None
        ]
    if faults:
        raise InputError(
            f"the base has {', '.join(faults)}, which its architecture {configuration.model_type} is not exported with; "
            "choose another base"
        )


def _rotary(configuration: Any) -> dict[str, Any]:
    parameters: dict[str, Any] = configuration.rope_parameters
    chosen: dict[str, Any] = parameters.get("full_attention", parameters)
    return chosen
