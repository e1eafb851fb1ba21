"""Tiny encoders and rerankers: transformers' own models with random weights, and the same weights in GGUF files.

What transformers and tokenizers compute of them is what llama.cpp must give.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gguf
import numpy as np
import tokenizers
import torch
import transformers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from tests.gguf_files import CONTROL, vocabulary

WORDS = ["red", "house", "blue", "the", "river", "bank", "of", "in", "?", ".", ",", "who", "wrote", "it"]
NONE, MEAN, CLS, LAST, RANK = range(5)
Vector = np.ndarray[Any, np.dtype[np.float32]]


class Vocabulary(NamedTuple):
    """A tokenizer as tokenizers has it, and the keys that describe it in a GGUF."""

    tokenizer: tokenizers.Tokenizer
    size: int
    add: Callable[[gguf.GGUFWriter], None]


def word_pieces() -> Vocabulary:
    """Return BERT's: [CLS] text [SEP], lower case."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    letters = string.ascii_lowercase + string.digits
    tokens = [*special, *letters, *(f"##{letter}" for letter in letters), *(word for word in WORDS)]
    tokenizer = tokenizers.Tokenizer(models.WordPiece({token: n for n, token in enumerate(tokens)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))

    def add(writer: gguf.GGUFWriter) -> None:
        phantom = [*special, *(t[2:] if t.startswith("##") else f"\u2581{t}" for t in tokens[len(special) :])]
        _add_tokens(writer, "bert", phantom, len(special))
        for key, number in (("pad", 0), ("unk", 1), ("bos", 2), ("sep", 3), ("mask", 4)):
            getattr(writer, f"add_{key}_token_id")(number)
        writer.add_token_type_count(2)

    return Vocabulary(tokenizer, len(tokens), add)


def without_special_tokens(add: Callable[[gguf.GGUFWriter], None]) -> Callable[[gguf.GGUFWriter], None]:
    """Return what describes a tokenizer, but for the numbers of its special tokens."""

    def add_rest(writer: gguf.GGUFWriter) -> None:
        add(writer)
        for keys in writer.kv_data:
            for key in [key for key in keys if key.endswith("_token_id")]:
                del keys[key]

    return add_rest


def byte_pairs(*, bos: bool = False, thinks: bool = False) -> Vocabulary:
    """Return GPT-2's, which ModernBERT and Qwen have too, each with its own tokens around a text."""
    tokens, merges = vocabulary("yes", "no")
    thoughts = ["<think>", "</think>"] if thinks else []
    tokens += thoughts
    pairs = [(first, second) for first, _, second in (merge.partition(" ") for merge in merges)]
    tokenizer = tokenizers.Tokenizer(models.BPE({token: n for n, token in enumerate(tokens)}, pairs))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(CONTROL)
    tokenizer.add_tokens(thoughts)
    before, after = f"{tokens[0]} " * bos, f" {tokens[2]}"
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{before}$A{after}",
        pair=f"{before}$A{after} $B{after}",
        special_tokens=[(tokens[0], 0), (tokens[2], 2)],
    )

    def add(writer: gguf.GGUFWriter) -> None:
        _add_tokens(writer, "gpt2", tokens, 3, own=len(thoughts))
        writer.add_tokenizer_pre("gpt-2")
        writer.add_token_merges(merges)
        writer.add_bos_token_id(0)
        writer.add_eos_token_id(2)
        writer.add_sep_token_id(2)
        writer.add_add_bos_token(bos)
        writer.add_add_eos_token(True)
        writer.add_add_sep_token(False)

    return Vocabulary(tokenizer, len(tokens), add)


def unigrams() -> Vocabulary:
    """Return XLM-R's: <s> text </s>, and two of the latter between a pair."""
    pieces = [
        "\u2581",
        *string.ascii_letters,
        *string.digits,
        *string.punctuation,
        *(f"\u2581{word}" for word in WORDS),
    ]
    random = np.random.default_rng(5)
    scores = [0.0] * 4 + [
        round(-float(s) - (3 if len(p) == 1 else 0), 3) for s, p in zip(random.random(len(pieces)), pieces, strict=True)
    ]
    tokens = ["<s>", "<pad>", "</s>", "<unk>", *pieces]
    tokenizer = tokenizers.Tokenizer(models.Unigram(list(zip(tokens, scores, strict=True)), unk_id=3))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )

    def add(writer: gguf.GGUFWriter) -> None:
        _add_tokens(writer, "t5", tokens, 3)
        writer.add_token_scores(scores)
        writer.add_add_space_prefix(True)
        writer.add_remove_extra_whitespaces(True)
        writer.add_token_type_count(1)
        for key, number in (("bos", 0), ("pad", 1), ("eos", 2), ("sep", 2), ("unk", 3)):
            getattr(writer, f"add_{key}_token_id")(number)
        writer.add_add_bos_token(True)
        writer.add_add_eos_token(True)
        writer.add_add_sep_token(True)

    return Vocabulary(tokenizer, len(tokens), add)


def _add_tokens(writer: gguf.GGUFWriter, model: str, tokens: Sequence[str], controls: int, own: int = 0) -> None:
    writer.add_tokenizer_model(model)
    writer.add_token_list(tokens)
    types = [gguf.TokenType.CONTROL] * controls + [gguf.TokenType.NORMAL] * (len(tokens) - controls)
    types[len(types) - own :] = [gguf.TokenType.USER_DEFINED] * own
    if model == "t5":
        types[3] = gguf.TokenType.UNKNOWN
    writer.add_token_types(types)


def randomize(model: torch.nn.Module, seed: int = 0, *, norms_about: float = 1.0) -> torch.nn.Module:
    """Give a model weights that tell texts apart, biases and norms too."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = torch.randn(weight.shape, generator=generator)
            if weight.dim() > 1:
                weight.copy_(noise * (1.0 if "embed" in name else weight.shape[-1] ** -0.5))
            else:
                weight.copy_(0.1 * noise + (norms_about if name.endswith("weight") else 0.0))
    return model.eval()


class Tiny(NamedTuple):
    """A model of transformers, what its texts are made of, and how it goes into a GGUF."""

    architecture: str
    model: Any
    vocabulary: Vocabulary
    # Key and value: the method of the writer without `add_`, or the key itself, and what it takes.
    keys: Mapping[str, Any]
    # What of a weight's name is called otherwise where the package looks it up.
    renamed: Mapping[str, str] = {}
    # What is added to the weights of norms.
    shift: float = 0.0
    # Dense layers behind the pooling, without a bias.
    dense: tuple[np.ndarray[Any, Any], ...] = ()


# What a GGUF calls of this model; the package knows the names in the authors' own files alone.
_NOMIC = {
    "layers.": "blk.", "post_attention_layernorm": "attn_output_norm", "post_mlp_layernorm": "layer_output_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "self_attn.o_proj": "attn_output", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
}  # fmt: skip
SIZES = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96}
_COMMON = {"embedding_length": 64, "block_count": 2, "head_count": 4, "feed_forward_length": 96}


def bert(*, context: int = 64) -> Tiny:
    vocab = word_pieces()
    config = transformers.BertConfig(vocab_size=vocab.size, max_position_embeddings=context, **SIZES)
    model = randomize(transformers.BertModel(config, add_pooling_layer=False))
    return Tiny("bert", model, vocab, _bert_keys(context, config.layer_norm_eps))


def _bert_keys(context: int, epsilon: float) -> dict[str, Any]:
    return {**_COMMON, "context_length": context, "layer_norm_eps": epsilon, "causal_attention": False}


def nomic_bert(*, context: int = 64) -> Tiny:
    vocab = word_pieces()
    config = transformers.NomicBertConfig(vocab_size=vocab.size, max_position_embeddings=context, **SIZES)
    model = randomize(transformers.NomicBertModel(config, add_pooling_layer=False))
    keys = _bert_keys(context, config.layer_norm_eps)
    return Tiny("nomic-bert", model, vocab, {**keys, "rope_freq_base": config.rope_parameters["rope_theta"]}, _NOMIC)


def modern_bert(*, context: int = 128, labels: int = 0, pooling: str = "mean") -> Tiny:
    vocab = byte_pairs(bos=True)
    config = transformers.ModernBertConfig(
        vocab_size=vocab.size, max_position_embeddings=context, local_attention=16, global_attn_every_n_layers=2,
        pad_token_id=1, bos_token_id=0, eos_token_id=2, cls_token_id=0, sep_token_id=2, num_labels=max(labels, 1),
        classifier_pooling=pooling, attn_implementation="eager", **{**SIZES, "num_hidden_layers": 3},
    )  # fmt: skip
    kind = transformers.ModernBertForSequenceClassification if labels else transformers.ModernBertModel
    ropes = config.rope_parameters
    keys = {
        **_bert_keys(context, config.norm_eps), "block_count": 3, "sliding_window": 16, "sliding_window_pattern": 2,
        "rope_freq_base": ropes["full_attention"]["rope_theta"],
        "rope_freq_base_swa": ropes["sliding_attention"]["rope_theta"],
        "vocab_size": vocab.size,
    }  # fmt: skip
    if labels:
        keys["modern-bert.classifier.pooling_type"] = MEAN if pooling == "mean" else CLS
    renamed = {"model.": "", "classifier.": "classifier.out_proj."}
    return Tiny("modern-bert", randomize(kind(config)), vocab, keys, renamed)


def qwen3(*, context: int = 1024, head: bool = False, thinks: bool = False) -> Tiny:
    vocab = byte_pairs(thinks=thinks)
    config = transformers.Qwen3Config(
        vocab_size=vocab.size, max_position_embeddings=context, num_key_value_heads=2, head_dim=16, **SIZES,
        attn_implementation="eager",
    )  # fmt: skip
    model = randomize((transformers.Qwen3ForCausalLM if head else transformers.Qwen3Model)(config))
    keys = {
        **_COMMON, "context_length": context, "head_count_kv": 2, "layer_norm_rms_eps": config.rms_norm_eps,
        "key_length": 16, "value_length": 16, "rope_dimension_count": 16,
        "rope_freq_base": config.rope_parameters["rope_theta"],
    }  # fmt: skip
    return Tiny("qwen3", model, vocab, keys, renamed={} if head else {"": "model."})


def gemma(*, context: int = 128) -> Tiny:
    vocab = byte_pairs(bos=True)
    config = transformers.Gemma3TextConfig(
        vocab_size=vocab.size, max_position_embeddings=context, num_key_value_heads=2, head_dim=16, sliding_window=16,
        query_pre_attn_scalar=16, use_bidirectional_attention=True, attn_implementation="eager",
        layer_types=["sliding_attention", "full_attention"], **SIZES,
    )  # fmt: skip
    model = randomize(transformers.Gemma3TextModel(config), norms_about=0.0)
    ropes = config.rope_parameters
    keys = {
        **_COMMON, "context_length": context, "head_count_kv": 2, "layer_norm_rms_eps": config.rms_norm_eps,
        "key_length": 16, "value_length": 16, "sliding_window": 16, "sliding_window_pattern": 2,
        "rope_freq_base": ropes["full_attention"]["rope_theta"],
        "rope_freq_base_swa": ropes["sliding_attention"]["rope_theta"],
    }  # fmt: skip
    random = np.random.default_rng(3)
    dense = tuple(
        (random.standard_normal((rows, columns)) * columns**-0.5).astype(np.float32)
        for rows, columns in ((128, 64), (64, 128))
    )
    return Tiny("gemma-embedding", model, vocab, keys, renamed={"": "model."}, shift=1.0, dense=dense)


def xlm_roberta(*, context: int = 64, labels: int = 1) -> Tiny:
    vocab = unigrams()
    config = transformers.XLMRobertaConfig(
        vocab_size=vocab.size, max_position_embeddings=context + 2, type_vocab_size=1, pad_token_id=1, num_labels=labels,
        **SIZES,
    )  # fmt: skip
    model = randomize(transformers.XLMRobertaForSequenceClassification(config))
    return Tiny("bert", model, vocab, _bert_keys(context, config.layer_norm_eps), {"roberta.": ""})


_ARCHITECTURES = {name: number for number, name in gguf.MODEL_ARCH_NAMES.items()}


def _weights(tiny: Tiny) -> Iterator[tuple[str, Vector]]:
    """Return a model's weights under the names that they have in a GGUF."""
    names = gguf.get_tensor_name_map(_ARCHITECTURES[tiny.architecture], tiny.keys["block_count"])
    context = tiny.keys["context_length"]
    for theirs, weight in tiny.model.state_dict().items():
        if "pooler" in theirs or theirs.endswith(("position_ids", "rotary_emb.inv_freq")):
            continue
        key, data = theirs, weight.float().numpy()
        for old, new in tiny.renamed.items():
            key = key.replace(old, new, 1)
        if theirs.endswith("position_embeddings.weight"):
            data = data[-context:]  # XLM-R counts them from behind the padding token's number
        if theirs.endswith("norm.weight"):
            data = data + np.float32(tiny.shift)
        name = key if key.startswith("blk.") else names.get_name(key, try_suffixes=(".weight", ".bias"))
        assert name is not None, key
        yield name, np.ascontiguousarray(data)


def write(
    tiny: Tiny,
    path: Path,
    *,
    pooling: int | None,
    labels: Sequence[str] = (),
    tensors: Mapping[str, Vector] | None = None,
    kind: gguf.GGMLQuantizationType | None = None,
    **texts: str,
) -> Path:
    """Write a model into a GGUF file in float32, or the products' weights as `kind`; `texts` and `tensors` are further ones."""
    writer = gguf.GGUFWriter(path, tiny.architecture)
    writer.add_name("tiny")
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    for key, value in tiny.keys.items():
        if "." in key:
            writer.add_uint32(key, value)
        else:
            getattr(writer, f"add_{key}")(value)
    if pooling is not None:
        writer.add_pooling_type(gguf.PoolingType(pooling))
    if labels:
        writer.add_classifier_output_labels(labels)
    for key, text in texts.items():
        writer.add_string(key.replace("__", "."), text)
    for number, weight in enumerate(tiny.dense, start=2):
        writer.add_dense_features_dims(f"dense_{number}", weight.shape[1], weight.shape[0])
    tiny.vocabulary.add(writer)
    for name, weight in _weights(tiny):
        if kind is not None and weight.ndim == 2 and name.startswith("blk."):
            writer.add_tensor(name, gguf.quants.quantize(weight, kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, weight)
    for number, weight in enumerate(tiny.dense, start=2):
        writer.add_tensor(f"dense_{number}.weight", weight)
    for name, tensor in (tensors or {}).items():
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def vector(tiny: Tiny, text: str, pooling: int, *, limit: int = 1 << 20, length: int | None = None) -> Vector:
    """Return what transformers' model and its pooling give for a text cut to `limit` tokens, of length 1."""
    tokenizer = tiny.vocabulary.tokenizer
    tokenizer.enable_truncation(limit)
    with torch.no_grad():
        ids = torch.tensor([tokenizer.encode(text).ids])
        states = tiny.model(input_ids=ids).last_hidden_state[0].numpy()
    pooled = states.mean(axis=0) if pooling == MEAN else states[0 if pooling == CLS else -1]
    for weight in tiny.dense:
        pooled = weight @ pooled
    pooled = pooled[:length]
    return np.asarray(pooled / np.linalg.norm(pooled))


def logits(tiny: Tiny, question: str, passage: str) -> Vector:
    """Return what transformers' model for sequence classification gives for a pair, float32 [labels]."""
    tiny.vocabulary.tokenizer.no_truncation()
    with torch.no_grad():
        ids = torch.tensor([tiny.vocabulary.tokenizer.encode(question, passage).ids])
        return np.asarray(tiny.model(input_ids=ids).logits[0].numpy())
