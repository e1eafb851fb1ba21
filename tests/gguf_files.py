"""Tiny GGUF models with random weights, so that the native engine runs in unit tests without a pulled model."""

from __future__ import annotations

import string
from collections.abc import Mapping
from pathlib import Path

import gguf
import numpy as np

CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
WORDS = [" the", " in", " an", "ing", " Ha", "é"]
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def byte_letters() -> list[str]:
    """Return the letter that GPT-2's byte-level BPE writes for every byte."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    shifted = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(shifted)) for byte in range(256)]


def vocabulary(*more: str) -> tuple[list[str], list[str]]:
    """Return the tokens (control tokens, bytes, letters after a space, some words and `more`) and the merges that make them."""
    letters = byte_letters()
    tokens = [*CONTROL, *letters]
    merges: list[str] = []
    for word in [*(f" {letter}" for letter in string.ascii_letters), *WORDS, *more]:
        spelled = [letters[byte] for byte in word.encode("utf-8")]
        whole = spelled[0]
        for letter in spelled[1:]:
            if whole + letter not in tokens:
                merges.append(f"{whole} {letter}")
                tokens.append(whole + letter)
            whole += letter
    return tokens, merges


def write_random_gguf(
    path: Path,
    *,
    seed: int = 0,
    context: int = 512,
    layers: int = 2,
    width: int = 64,
    template: str | None = CHAT_TEMPLATE,
    add_bos: bool = False,
    embedding_scale: float = 1.0,
    texts: Mapping[str, str] | None = None,
) -> Path:
    """Write a Llama architecture in float32 with random weights, byte-level BPE, a chat template and texts under keys."""
    tokens, merges = vocabulary()
    heads, hidden = 4, 2 * width
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("random")
    writer.add_context_length(context)
    writer.add_embedding_length(width)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(hidden)
    writer.add_head_count(heads)
    writer.add_head_count_kv(heads // 2)
    writer.add_rope_dimension_count(width // heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    control, normal = gguf.TokenType.CONTROL, gguf.TokenType.NORMAL
    writer.add_token_types([control] * len(CONTROL) + [normal] * (len(tokens) - len(CONTROL)))
    writer.add_token_merges(merges)
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(add_bos)
    if template is not None:
        writer.add_chat_template(template)
    for key, value in (texts or {}).items():
        writer.add_string(key, value)
    random = np.random.default_rng(seed)

    def add(name: str, rows: int, columns: int, scale: float) -> None:
        writer.add_tensor(name, (scale * random.standard_normal((rows, columns))).astype(np.float32))

    add("token_embd.weight", len(tokens), width, embedding_scale)
    for layer in range(layers):
        block = f"blk.{layer}"
        writer.add_tensor(f"{block}.attn_norm.weight", np.ones(width, np.float32))
        writer.add_tensor(f"{block}.ffn_norm.weight", np.ones(width, np.float32))
        add(f"{block}.attn_q.weight", width, width, width**-0.5)
        add(f"{block}.attn_k.weight", width // 2, width, width**-0.5)
        add(f"{block}.attn_v.weight", width // 2, width, width**-0.5)
        add(f"{block}.attn_output.weight", width, width, width**-0.5)
        add(f"{block}.ffn_gate.weight", hidden, width, width**-0.5)
        add(f"{block}.ffn_up.weight", hidden, width, width**-0.5)
        add(f"{block}.ffn_down.weight", width, hidden, hidden**-0.5)
    writer.add_tensor("output_norm.weight", np.ones(width, np.float32))
    # Logits with a standard deviation of 2: the likeliest token stands clear of rounding.
    add("output.weight", len(tokens), width, 2 * width**-0.5)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
