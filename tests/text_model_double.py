"""Doubles of servers of encoders and rerankers, by their public documents and sources, as far as these say how they answer.

A text's vector and a passage's score follow from their words, so that what should come back can be computed beside it. What
running servers answer, `tests/models/test_remote_encoder.py` sees of llama-server's and llama-cpp-python's.
"""

from __future__ import annotations

import base64
import hashlib
import json
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from tests.local_server import served
from tests.server_double import Double

DIMENSION = 8
# Words that the model takes, and texts that Text Embeddings Inference and OpenAI take at once.
LIMIT, AT_ONCE = 12, {"tei": 4, "openai": 2048}
LLAMA_MODEL = "double.gguf"
# The kinds, each with what it is asked for first.
ENCODERS, RERANKERS = ("tei", "vllm", "openai"), ("tei", "vllm", "cohere", "jina")
_OPENAI = {"model", "input", "encoding_format", "dimensions"}


def vector_of(text: str, dimension: int = DIMENSION) -> Any:
    """Return a text's vector of length 1; the model sees its first words alone."""
    seed = int.from_bytes(hashlib.blake2b(" ".join(text.split()[:LIMIT]).encode(), digest_size=8).digest(), "little")
    vector = np.random.default_rng(seed).standard_normal(DIMENSION)[:dimension].astype(np.float32)
    return vector / np.linalg.norm(vector)


def score_of(question: str, passage: str) -> float:
    """Return how well a passage answers a question, a logit."""
    return float(np.float32(4 * vector_of(question) @ vector_of(passage)))


def text_model_double(kind: str, **abilities: Any) -> AbstractContextManager[Double]:
    """Run a double of a kind; `abilities` may change what it can do."""
    can = {"base64": True, "auto_truncate": True, "dimensions": True, "sha": "1f2e", "paths": None, "ranks": False}
    server = Double(kind, **can | abilities)
    server.trouble = lambda handler, path, _: serve(handler, path)
    return served(server)


def serve(handler: Any, path: str) -> bool:
    """Answer a request as a kind of server does."""
    server, body = handler.server, handler.body
    paths = (
        server.abilities["paths"]
        or {
            "tei": ("/info", "/v1/embeddings", "/embeddings", "/rerank"),
            "vllm": ("/v1/models", "/v1/embeddings", "/rerank", "/v1/rerank", "/v2/rerank"),
            "llama-server": ("/v1/models", f"/props?model={LLAMA_MODEL}", "/tokenize", "/v1/embeddings", "/v1/rerank"),
            "openai": ("/v1/models", "/v1/embeddings"),
            "cohere": ("/v1/models", "/v1/rerank", "/v2/rerank"),
            "jina": ("/v1/models", "/v1/embeddings", "/v1/rerank"),
        }[server.kind]
    )
    if path not in paths:
        handler.refuse("Not Found", 404)
    elif path == "/v1/rerank" and server.kind == "llama-server" and not server.abilities["ranks"]:
        handler.refuse("This server does not support reranking. Start it with `--reranking`", 501)
    elif path.startswith("/props"):
        handler.reply({"default_generation_settings": {"n_ctx": LIMIT}, "chat_template": ""})
    elif path == "/tokenize":
        handler.reply({"tokens": [*range(len(body["content"].split()))]})
    elif path == "/info":
        handler.reply(_info(server))
    elif path == "/v1/models":
        handler.reply(_models(server.kind))
    elif path.endswith("embeddings"):
        _embed(handler, body)
    else:
        _rerank(handler, body)
    return True


def refuse(handler: Any, message: str, status: int) -> None:
    """Refuse in a kind's own shape of errors."""
    kind = handler.server.kind
    if kind == "tei":
        handler.reply({"error": message, "error_type": "Validation"}, status)
    elif kind == "cohere":
        handler.reply({"message": message}, status)
    elif kind == "jina":
        handler.reply({"detail": message}, status)
    else:
        handler.refuse(message, status)


def _info(server: Double) -> dict[str, Any]:
    return {
        "model_id": "org/double", "model_sha": server.abilities["sha"], "model_dtype": "float16",
        "served_model_name": "org/double", "model_type": {"embedding": {"pooling": "cls"}}, "max_concurrent_requests": 512,
        "max_input_length": LIMIT, "max_batch_tokens": 16384, "max_batch_requests": None, "max_client_batch_size": AT_ONCE["tei"],
        "auto_truncate": server.abilities["auto_truncate"], "tokenization_workers": 4, "version": "1.9.3", "sha": "0d124dc",
        "docker_label": None,
    }  # fmt: skip


def _models(kind: str) -> dict[str, Any]:
    if kind == "cohere":
        return {"models": [{"name": "double", "endpoints": ["rerank"], "context_length": 4096}]}
    if kind == "llama-server":
        meta = {"n_ctx": LIMIT, "n_embd": DIMENSION, "n_params": 10, "size": 20, "n_vocab": 30, "ftype": "all F32"}
        return {
            "object": "list",
            "data": [{"id": LLAMA_MODEL, "object": "model", "owned_by": "llamacpp", "meta": meta}],
        }
    if kind == "vllm":
        entry = {
            "id": "org/double",
            "object": "model",
            "owned_by": "vllm",
            "root": "org/double",
            "max_model_len": LIMIT,
        }
        return {"object": "list", "data": [entry]}
    entries = [{"id": name, "object": "model", "owned_by": kind} for name in ("double", "other")]
    return {"object": "list", "data": entries}


def _embed(handler: Any, body: dict[str, Any]) -> None:
    kind, can = handler.server.kind, handler.server.abilities
    texts = body["input"]
    wanted = body.get("dimensions")
    if kind == "openai" and (unknown := body.keys() - _OPENAI):
        return refuse(handler, f"Unrecognized request argument supplied: {min(unknown)}", 400)
    if len(texts) > AT_ONCE.get(kind, len(texts)):
        return refuse(handler, f"batch size {len(texts)} > maximum allowed batch size {AT_ONCE[kind]}", 422)
    if kind == "openai" and "" in texts:
        return refuse(handler, "Invalid 'input': input cannot be an empty string.", 400)
    if body.get("encoding_format") == "base64" and can["base64"] is False:
        return refuse(handler, "encoding_format base64 is not supported", 400)
    if wanted and can["dimensions"] is False:
        return refuse(handler, 'Model "org/double" does not support matryoshka representation', 400)
    longest = max(len(text.split()) for text in texts)
    cuts = can["auto_truncate"] if kind == "tei" else body.get("truncate_prompt_tokens") == -1
    if longest > LIMIT and not cuts:
        return refuse(
            handler, f"`inputs` must have less than {LIMIT} tokens. Given: {longest}", 422 if kind == "tei" else 400
        )
    rows = []
    for index, text in enumerate(texts):
        vector = vector_of(text, wanted or DIMENSION)
        encoded = body.get("encoding_format") == "base64" and can["base64"] is True
        embedding = base64.b64encode(vector.tobytes()).decode() if encoded else vector.tolist()
        rows.append({"object": "embedding", "embedding": embedding, "index": index})
    return handler.reply(
        {"object": "list", "data": rows, "model": "double", "usage": {"prompt_tokens": 9, "total_tokens": 9}}
    )


def _rerank(handler: Any, body: dict[str, Any]) -> None:
    kind = handler.server.kind
    field = "texts" if kind == "tei" else "documents"
    if field not in body:
        message = f"Failed to deserialize the JSON body into the target type: missing field `{field}`"
        return handler.reply(message.encode(), 422) if kind == "tei" else refuse(handler, message, 422)
    texts = body[field]
    if kind == "tei" and len(texts) > AT_ONCE["tei"]:
        return refuse(handler, f"batch size {len(texts)} > maximum allowed batch size {AT_ONCE['tei']}", 422)
    longest = max(len(text.split()) for text in texts)
    cuts = {"tei": body.get("truncate") is True, "vllm": body.get("truncate_prompt_tokens") == -1}.get(
        kind, kind != "llama-server"
    )
    if longest > LIMIT and not cuts:
        return refuse(handler, f"`inputs` must have less than {LIMIT} tokens. Given: {longest}", 422)
    scores = [score_of(body["query"], text) for text in texts]
    order = sorted(range(len(texts)), key=lambda index: -scores[index])
    if kind == "tei":
        squashed = scores if body["raw_scores"] else [_sigmoid(score) for score in scores]
        return handler.reply([{"index": index, "score": squashed[index]} for index in order])
    results: list[dict[str, Any]] = [{"index": index, "relevance_score": _sigmoid(scores[index])} for index in order]
    if kind in {"jina", "vllm"}:
        results = [{**row, "document": {"text": texts[row["index"]]}} for row in results]
    return handler.reply({"id": "1", "model": "double", "results": results[: body.get("top_n") or None]})


def _sigmoid(score: float) -> float:
    return float(1 / (1 + np.exp(-score)))


def asked(server: Double, path: str) -> list[dict[str, Any]]:
    """Return the bodies that came for a path."""
    return [json.loads(json.dumps(body)) for each, body, _ in server.seen if each == path]
