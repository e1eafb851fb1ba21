"""Export to GGUF: the file that the engine runs, with the recipe of its training inside.

The engine turns neighbouring numbers of a Llama's head by the position, transformers the first half with the second; so the
rows of queries and keys change their order. Tensors and keys are those that llama.cpp reads: see `architectures`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from pytrace.errors import InputError
from pytrace.kg.queries.query_records import Grammar
from pytrace.kg.queries.trained import METADATA_KEY, SHA256
from pytrace.models.registry.model_files import sha256_of
from pytrace.storage.files import flush, replace_file
from pytrace.training.architectures import (
    ARCHITECTURES,
    Architecture,
    check_exportable,
    context_length,
    rotary_base,
)
from pytrace.training.network import Key, train_package
from pytrace.training.training_settings import WeightFormat

# q8_0 packs 32 weights of a row together.
_BLOCK = 32


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """How a query generator came to be: what its prompts look like, and all that decided its weights."""

    form: str
    template: int
    wrong: bool
    data: str
    seed: int
    base: str
    parameters: int
    pytrace: str
    settings: dict[str, Any]
    grammar: Grammar = "none"


def write_gguf(path: Path, network: Any, keys: Sequence[Key], recipe: Recipe, *, weights: WeightFormat = "f32") -> None:
    """Write a model as one GGUF file, in one step, and its hash beside it."""
    gguf = train_package("gguf")
    configuration = network.config
    check_exportable(configuration)
    architecture = ARCHITECTURES[configuration.model_type]
    new = path.with_name(f"{path.name}.new")
    writer = gguf.GGUFWriter(new, architecture.name)
    head = getattr(configuration, "head_dim", None) or configuration.hidden_size // configuration.num_attention_heads
    writer.add_name("pytrace query generator")
    writer.add_context_length(context_length(configuration))
    writer.add_embedding_length(configuration.hidden_size)
    writer.add_block_count(configuration.num_hidden_layers)
    writer.add_feed_forward_length(configuration.intermediate_size)
    writer.add_head_count(configuration.num_attention_heads)
    writer.add_head_count_kv(configuration.num_key_value_heads)
    writer.add_key_length(head)
    writer.add_value_length(head)
    writer.add_rope_dimension_count(head)
    writer.add_rope_freq_base(rotary_base(configuration))
    if architecture.name == "gemma3":
        writer.add_sliding_window(configuration.sliding_window)
    writer.add_layer_norm_rms_eps(configuration.rms_norm_eps)
    writer.add_vocab_size(configuration.vocab_size)
    files = gguf.LlamaFileType
    writer.add_file_type({"f32": files.ALL_F32, "f16": files.MOSTLY_F16, "q8_0": files.MOSTLY_Q8_0}[weights])
    for key in keys:
        writer.add_key_value(key.name, key.value, key.kind, key.items)
    writer.add_string(METADATA_KEY, msgspec.json.encode(recipe).decode())
    for name, tensor in _tensors(network, architecture):
        if tensor.ndim == 1 or weights == "f32":  # the engine computes norms in float32
            writer.add_tensor(name, tensor)
        elif weights == "f16" or tensor.shape[-1] % _BLOCK:
            writer.add_tensor(name, tensor.astype(np.float16))
        else:
            kind = gguf.GGMLQuantizationType.Q8_0
            writer.add_tensor(name, gguf.quants.quantize(tensor, kind), raw_dtype=kind)
    try:
        try:
            writer.write_header_to_file()
            writer.write_kv_data_to_file()
            writer.write_tensors_to_file()
        finally:
            writer.close()
        flush(new)
        sha256 = sha256_of(new)
        # A kill in between leaves a model without a hash, never one with another's.
        path.with_name(path.name + SHA256).unlink(missing_ok=True)
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    replace_file(path.with_name(path.name + SHA256), f"{sha256}  {path.name}\n".encode())


def read_recipe(path: Path) -> Recipe:
    """Return the recipe that stands in a GGUF."""
    gguf = train_package("gguf")
    try:
        field = gguf.GGUFReader(path).get_field(METADATA_KEY)
        return msgspec.json.decode(field.contents(), type=Recipe)
    except OSError as error:
        raise InputError(
            f"{path}: the query generator cannot be read ({error.strerror or error}); name a file that 'pytrace train' wrote"
        ) from error
    except Exception as error:  # a file of another kind raises whatever its reader stumbles over
        raise InputError(
            f"{path} is no query generator; name a file that 'pytrace train query-generator' wrote"
        ) from error


def _tensors(network: Any, architecture: Architecture) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Yield the weights by the names, in the order of rows and with the norms that the engine expects."""
    configuration = network.config
    weights = {name: tensor.detach().float().cpu().numpy() for name, tensor in network.state_dict().items()}
    heads = {"attn_q": configuration.num_attention_heads, "attn_k": configuration.num_key_value_heads}
    yield "token_embd.weight", weights["model.embed_tokens.weight"]
    for layer in range(configuration.num_hidden_layers):
        for name, exported in architecture.tensors.items():
            tensor = weights[f"model.layers.{layer}.{name}.weight"]
            if architecture.neighbours and exported in heads:
                tensor = _interleaved(tensor, heads[exported])
            if exported.endswith("norm"):
                tensor = tensor + architecture.norm_offset
            yield f"blk.{layer}.{exported}.weight", tensor
            # Qwen 2 alone has some; of others `check_exportable` refuses them.
            if (bias := weights.get(f"model.layers.{layer}.{name}.bias")) is not None:
                yield f"blk.{layer}.{exported}.bias", bias
    yield "output_norm.weight", weights["model.norm.weight"] + architecture.norm_offset
    if not configuration.tie_word_embeddings:
        yield "output.weight", weights["lm_head.weight"]


def _interleaved(rows: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Bring the rows that are turned together side by side, head by head."""
    width = len(rows) // heads
    return np.ascontiguousarray(rows.reshape(heads, 2, width // 2, -1).swapaxes(1, 2).reshape(rows.shape))
