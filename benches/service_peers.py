"""What `benches.service` ranks beside: llama.cpp's server and infinity, with the encoder's own weights in float32.

Both are asked for vectors of the query and the passages, whose cosines are the ranks, as the service's own are; llama.cpp's route
for ranks takes cross-encoders alone.
"""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from benches.load import host_of
from pytrace.models.encoders.encoder_files import EncoderFiles
from tests.remote_servers import WATCH, free_port

Scores = NDArray[np.float32]
Rank = Callable[[str, Sequence[str]], Scores]
# Sequences that llama.cpp packs into one batch, and tokens that each may have; what the encoder reads has fewer.
_SLOTS, _CONTEXT = 32, 320
_LLAMA_SERVER = f"""{WATCH}
import xllamacpp
parameters = xllamacpp.CommonParams()
parameters.model.path = given["path"]
parameters.hostnames = ["127.0.0.1"]
parameters.port = given["port"]
parameters.n_parallel = given["slots"]
parameters.n_ctx = given["slots"] * given["context"]
parameters.n_batch = parameters.n_ubatch = given["batch"]
parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = given["threads"]
parameters.embedding = True
server = xllamacpp.Server(parameters)
threading.Event().wait()
"""


class Client:
    """A kept connection that is asked JSON, one request at a time."""

    def __init__(self, url: str) -> None:
        self._connection = http.client.HTTPConnection(*host_of(url), timeout=120)

    def post(self, path: str, body: object) -> Any:
        """Return the answer's JSON, which must be a success."""
        data, headers = msgspec.json.encode(body), {"content-type": "application/json"}
        try:
            self._connection.request("POST", path, data, headers)
            response = self._connection.getresponse()
        except (BrokenPipeError, http.client.RemoteDisconnected):  # it was kept for longer than the server keeps one
            self._connection.close()
            self._connection.request("POST", path, data, headers)
            response = self._connection.getresponse()
        content = response.read()
        if response.status != 200:
            raise SystemExit(f"{path} answered {response.status}: {content[:300]!r}")
        return msgspec.json.decode(content)

    def get_status(self, path: str) -> int:
        """Return the status of a path, 0 where nobody listens."""
        try:
            self._connection.request("GET", path)
            response = self._connection.getresponse()
            response.read()
        except (OSError, http.client.HTTPException):
            self._connection.close()
            return 0
        return response.status


def cosines(asked: NDArray[np.float32], vectors: NDArray[np.float32]) -> Scores:
    """Return how alike a vector is to others."""
    norms = np.linalg.norm(vectors, axis=1) * np.linalg.norm(asked)
    scores: Scores = (vectors @ asked / norms).astype(np.float32)
    return scores


@contextmanager
def llama_server(model: Path, *, threads: int) -> Iterator[Rank]:
    """Run llama.cpp's server with a GGUF file of the encoder."""
    given = {
        "path": str(model), "port": free_port(), "slots": _SLOTS, "context": _CONTEXT, "batch": 2048, "threads": threads,
    }  # fmt: skip
    command = [sys.executable, "-c", _LLAMA_SERVER, json.dumps(given)]
    with _running(command, f"http://127.0.0.1:{given['port']}", "/v1/embeddings", "model") as rank:
        yield rank


@contextmanager
def infinity(program: Path, model: Path, *, threads: int) -> Iterator[Rank]:
    """Run infinity, by the path of its program `infinity_emb`, with the encoder as sentence-transformers saves it."""
    port = free_port()
    command = [str(program), "v2", "--model-id", str(model), "--port", str(port), "--device", "cpu"]
    command += ["--engine", "torch", "--dtype", "float32", "--batch-size", "32"]
    environment = {
        "OMP_NUM_THREADS": str(threads),
        "HF_HUB_OFFLINE": "1",
        "DO_NOT_TRACK": "1",
        "INFINITY_BETTERTRANSFORMER": "false",
        "INFINITY_COMPILE": "false",
        "INFINITY_ANONYMOUS_USAGE_STATS": "0",
    }
    with _running(command, f"http://127.0.0.1:{port}", "/embeddings", str(model), environment) as rank:
        yield rank


@contextmanager
def _running(
    command: Sequence[str], url: str, path: str, model: str, environment: dict[str, str] | None = None
) -> Iterator[Rank]:
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **(environment or {})},
    )
    client = Client(url)

    def rank(query: str, texts: Sequence[str]) -> Scores:
        answer = client.post(path, {"input": [query, *texts], "model": model})
        rows = sorted(answer["data"], key=lambda row: row["index"])
        vectors = np.array([row["embedding"] for row in rows], dtype=np.float32)
        return cosines(vectors[0], vectors[1:])

    try:
        end = time.monotonic() + 180
        while client.get_status("/health") != 200:
            if process.poll() is not None or time.monotonic() > end:
                raise OSError(f"{' '.join(command)[:200]} does not come up (exit {process.poll()})")
            time.sleep(0.2)
        yield rank
    finally:
        process.terminate()
        process.wait(60)


def write_weights(directory: Path, target: Path) -> tuple[Path, Path]:
    """Write an encoder's weights in float32: as a GGUF file, and as sentence-transformers saves them."""
    from benches.bert_weights import write_both
    from pytrace.models.encoders.encoder import OnnxEncoder

    target.mkdir()
    encoder = OnnxEncoder(directory, threads=1, cache_bytes=0)
    _, transformer = write_both(directory, encoder._files.graph, target)
    saved = target / "sentence-transformers"
    transformer.save(str(saved))
    _write_older_layout(saved, transformer)
    network = transformer[0].auto_model
    path = write_gguf(target / "encoder.gguf", network, EncoderFiles(directory))
    return path, saved


def _write_older_layout(saved: Path, transformer: Any) -> None:
    """Name modules and tokenizer as sentence-transformers 4 and transformers 4 do: infinity (0.0.78) runs on no later ones."""
    dimension = transformer[0].auto_model.config.hidden_size
    modules = json.loads((saved / "modules.json").read_text(encoding="utf-8"))
    for module in modules:
        module["type"] = f"sentence_transformers.models.{module['type'].rpartition('.')[2]}"
    tokenizer = json.loads((saved / "tokenizer_config.json").read_text(encoding="utf-8"))
    for name, content in {
        "modules.json": modules,
        "1_Pooling/config.json": {"word_embedding_dimension": dimension, "pooling_mode_mean_tokens": True},
        "sentence_bert_config.json": {"max_seq_length": transformer.max_seq_length, "do_lower_case": False},
        "tokenizer_config.json": {**tokenizer, "tokenizer_class": "BertTokenizerFast"},
    }.items():
        (saved / name).write_text(json.dumps(content), encoding="utf-8")


def write_gguf(path: Path, network: Any, files: EncoderFiles) -> Path:
    """Write a BERT of transformers in float32 that pools by the mean."""
    import gguf

    config = network.config
    vocabulary: dict[str, int] = json.loads(files.tokenizer.read_text(encoding="utf-8"))["model"]["vocab"]
    pieces = sorted(vocabulary, key=lambda piece: vocabulary[piece])
    special = [piece.startswith("[") and piece.endswith("]") and len(piece) > 2 for piece in pieces]
    writer = gguf.GGUFWriter(path, "bert")
    writer.add_name("encoder")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_layer_norm_eps(config.layer_norm_eps)
    writer.add_causal_attention(False)
    writer.add_pooling_type(gguf.PoolingType.MEAN)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_vocab_size(len(pieces))
    writer.add_token_type_count(config.type_vocab_size)
    writer.add_tokenizer_model("bert")
    # llama.cpp marks what begins a word, where BERT marks what does not.
    writer.add_token_list(
        [
            piece if plain else piece[2:] if piece.startswith("##") else f"\u2581{piece}"
            for piece, plain in zip(pieces, special, strict=True)
        ]
    )
    control, normal = gguf.TokenType.CONTROL, gguf.TokenType.NORMAL
    writer.add_token_types([control if plain else normal for plain in special])
    for add, piece in (
        (writer.add_pad_token_id, "[PAD]"),
        (writer.add_unk_token_id, "[UNK]"),
        (writer.add_bos_token_id, "[CLS]"),
        (writer.add_eos_token_id, "[SEP]"),
        (writer.add_sep_token_id, "[SEP]"),
        (writer.add_mask_token_id, "[MASK]"),
    ):
        add(vocabulary[piece])
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(True)
    for name, tensor in network.state_dict().items():
        if (place := _gguf_name(name)) is not None:
            writer.add_tensor(place, np.ascontiguousarray(tensor.float().numpy()))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


_EMBEDDINGS = {
    "word_embeddings": "token_embd",
    "token_type_embeddings": "token_types",
    "position_embeddings": "position_embd",
    "LayerNorm": "token_embd_norm",
}
_LAYER = {
    "attention.self.query": "attn_q",
    "attention.self.key": "attn_k",
    "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output",
    "attention.output.LayerNorm": "attn_output_norm",
    "intermediate.dense": "ffn_up",
    "output.dense": "ffn_down",
    "output.LayerNorm": "layer_output_norm",
}


def _gguf_name(name: str) -> str | None:
    """Return what GGUF calls a tensor of transformers' BERT, None for what it does not have."""
    module, _, kind = name.rpartition(".")
    if module.startswith("embeddings."):
        found = _EMBEDDINGS.get(module.removeprefix("embeddings."))
        return None if found is None else f"{found}.{kind}"
    if module.startswith("encoder.layer."):
        _, _, number, inner = module.split(".", 3)
        return f"blk.{number}.{_LAYER[inner]}.{kind}"
    return None
