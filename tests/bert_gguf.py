"""Tiny BERT models in GGUF with random weights: an encoder, or a reranker with a head, as llama.cpp's server runs them."""

from __future__ import annotations

import string
from pathlib import Path

import gguf
import numpy as np

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = ["the", "sea", "tern", "gull", "nests", "on", "cliffs", "who", "owns", "company", "founded", "where"]


def word_pieces() -> list[str]:
    """Return the tokens: special ones, words and letters that begin a word, letters within one."""
    # llama.cpp marks what begins a word by a low line block, where BERT marks what does not.
    letters = [*string.ascii_lowercase, *string.digits, *".,?!'"]
    return [*SPECIAL, *(f"\u2581{piece}" for piece in dict.fromkeys([*WORDS, *letters])), *letters]


def write_bert_gguf(path: Path, *, seed: int = 0, context: int = 64, width: int = 32, ranks: bool = False) -> Path:
    """Write a BERT of two layers in float32 that pools by the mean, or ranks pairs by a head."""
    tokens, heads, layers = word_pieces(), 4, 2
    writer = gguf.GGUFWriter(path, "bert")
    writer.add_name("tiny")
    writer.add_context_length(context)
    writer.add_embedding_length(width)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(2 * width)
    writer.add_head_count(heads)
    writer.add_layer_norm_eps(1e-12)
    writer.add_causal_attention(False)
    writer.add_pooling_type(gguf.PoolingType.RANK if ranks else gguf.PoolingType.MEAN)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_vocab_size(len(tokens))
    writer.add_token_type_count(2)
    writer.add_tokenizer_model("bert")
    writer.add_token_list(tokens)
    control, normal = gguf.TokenType.CONTROL, gguf.TokenType.NORMAL
    writer.add_token_types([control] * len(SPECIAL) + [normal] * (len(tokens) - len(SPECIAL)))
    writer.add_pad_token_id(0)
    writer.add_unk_token_id(1)
    writer.add_bos_token_id(2)
    writer.add_eos_token_id(3)
    writer.add_sep_token_id(3)
    writer.add_mask_token_id(4)
    # A pair is [CLS] question [SEP] passage [SEP].
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(True)
    writer.add_add_sep_token(False)
    random = np.random.default_rng(seed)

    def add(name: str, rows: int, columns: int, scale: float | None = None) -> None:
        weights = (scale or columns**-0.5) * random.standard_normal((rows, columns))
        writer.add_tensor(f"{name}.weight", weights.astype(np.float32))
        if scale is None:
            writer.add_tensor(f"{name}.bias", (0.1 * random.standard_normal(rows)).astype(np.float32))

    def add_norm(name: str) -> None:
        writer.add_tensor(f"{name}.weight", np.ones(width, np.float32))
        writer.add_tensor(f"{name}.bias", np.zeros(width, np.float32))

    add("token_embd", len(tokens), width, 1.0)
    add("token_types", 2, width, 0.1)
    add("position_embd", context, width, 0.3)
    add_norm("token_embd_norm")
    for layer in range(layers):
        block = f"blk.{layer}"
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            add(f"{block}.{name}", width, width)
        add(f"{block}.ffn_up", 2 * width, width)
        add(f"{block}.ffn_down", width, 2 * width)
        add_norm(f"{block}.attn_output_norm")
        add_norm(f"{block}.layer_output_norm")
    if ranks:
        add("cls", width, width)
        add("cls.output", 1, width)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
