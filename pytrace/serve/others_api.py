"""Interfaces that exist: rerank as Jina, Cohere and Text Embeddings Inference have it, embeddings and chat as OpenAI has them."""

from __future__ import annotations

import base64
import math
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
import numpy as np
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from pytrace import results
from pytrace.engine.running import NOT_FOUND
from pytrace.errors import InputError
from pytrace.models.encoders.encoder_files import Kind
from pytrace.serve import messages
from pytrace.serve.guard import TELL
from pytrace.serve.own_api import Stages, in_turn, result_of
from pytrace.serve.routes import RouteRow, json_response, read_body
from pytrace.serve.service import Service
from pytrace.serve.shared_encoder import count_tokens

# Characters of a source in the annotations of a chat's answer.
_EXCERPT = 300


async def rerank(service: Service, request: Request) -> Response:
    """Rank documents by a query, as Jina's and Cohere's clients ask it."""
    body = await read_body(request, messages.RerankRequest)
    model = service.check_model(body.model)
    texts = [document if isinstance(document, str) else document.text for document in body.documents]
    scores = await relevance(service, body.query, texts, body.model)
    order = np.argsort(-scores, kind="stable")[: body.top_n]
    ranked = [
        messages.RerankResult(
            index=index,
            relevance_score=max(float(scores[index]), 0.0),
            document={"text": texts[index]} if body.return_documents else None,
        )
        for index in order.tolist()
    ]
    tokens = _tokens([body.query, *texts])
    answer = messages.RerankResponse(
        id=str(uuid.uuid4()),
        model=model,
        results=ranked,
        usage=messages.TokenUsage(total_tokens=tokens, prompt_tokens=tokens),
        meta={"api_version": {"version": "2"}, "billed_units": {"search_units": 1}},
    )
    return json_response(answer)


async def rerank_tei(service: Service, request: Request) -> Response:
    """Rank texts by a query, as Text Embeddings Inference does."""
    body = await read_body(request, messages.TeiRerankRequest)
    scores = await relevance(service, body.query, body.texts, None, raw=bool(body.raw_scores))
    least = -math.inf if body.raw_scores else 0.0
    return json_response(
        [
            messages.TeiRank(
                index=index,
                score=max(float(scores[index]), least),
                text=body.texts[index] if body.return_text else None,
            )
            for index in np.argsort(-scores, kind="stable").tolist()
        ]
    )


async def relevance(
    service: Service, query: str, texts: Sequence[str], model: str | None, *, raw: bool = False
) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return how well texts answer a query, float32 ``[n]``: by the cross-encoder from 0 to 1, or else the cosine of vectors.

    `raw` are the cross-encoder's scores as they are.
    """
    if not query.strip():
        raise InputError("the query is empty; ask something")
    if service.ranks_by_pairs(model):
        pieces = await in_turn(service.score_pairs(query, texts))
        scores = np.concatenate(pieces)
        return scores if raw else (1 / (1 + np.exp(-scores.astype(np.float64)))).astype(np.float32)
    (asked,) = await in_turn(service.encode([query], "query"))
    vectors = np.concatenate(await in_turn(service.encode(texts, "passage")))
    norms = np.linalg.norm(vectors, axis=1) * np.linalg.norm(asked[0]) + np.float32(1e-12)
    cosines: np.ndarray[Any, np.dtype[np.float32]] = (vectors @ asked[0] / norms).astype(np.float32)
    return cosines


def _tokens(texts: Sequence[str]) -> int:
    return sum(count_tokens(text, 1 << 30) for text in texts)


async def embeddings(service: Service, request: Request) -> Response:
    """Make vectors of texts, as OpenAI's clients ask it."""
    body = await read_body(request, messages.EmbeddingsRequest)
    service.check_model(body.model)
    texts = [body.input] if isinstance(body.input, str) else body.input
    empty = next((number for number, text in enumerate(texts) if not text.strip()), None)
    if empty is not None:
        raise InputError(f"input[{empty}] is empty; leave it out")
    dimension = service.encoder.dimension
    if body.dimensions not in (None, dimension):
        raise InputError(f"the encoder's vectors have {dimension} numbers, not {body.dimensions}; leave dimensions out")
    kind: Kind = "query" if body.input_type in {"query", "search_query"} else "passage"
    vectors = np.concatenate(await in_turn(service.encode(texts, kind)))
    tokens = _tokens(texts)
    data = [
        messages.Embedding(
            index=index,
            embedding=base64.b64encode(vector.astype("<f4").tobytes()).decode()
            if body.encoding_format == "base64"
            else vector.tolist(),
        )
        for index, vector in enumerate(vectors)
    ]
    usage = messages.TokenUsage(total_tokens=tokens, prompt_tokens=tokens)
    return json_response(messages.EmbeddingsResponse(data=data, model=service.encoder.name, usage=usage))


async def chat(service: Service, request: Request) -> Response:
    """Answer the last message of the user; its sources are in the annotations of the answer."""
    body = await read_body(request, messages.ChatRequest)
    question = _last_question(body.messages)
    request.scope["pytrace.text"] = question
    asked = results.Request(question=question, method=_method_of(service, body.model))
    name, made, id = body.model or "pytrace", int(time.time()), f"chatcmpl-{uuid.uuid4().hex}"
    if not body.stream:
        result = await result_of(service, asked)
        text = _content(result)
        message = {"role": "assistant", "content": text, "refusal": None, "annotations": _annotations(result, text)}
        choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}
        head = {"id": id, "object": "chat.completion", "created": made, "model": name}
        return json_response({**head, "choices": [choice], "usage": _usage(result)})
    stages = Stages(service, asked, request.scope[TELL])
    counted = body.stream_options is not None and body.stream_options.include_usage

    def chunk(delta: dict[str, Any] | None, finish: str | None = None, **more: Any) -> bytes:
        choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
        head = {"id": id, "object": "chat.completion.chunk", "created": made, "model": name}
        return _data({**head, "choices": choices, **more})

    async def chunks() -> AsyncIterator[bytes]:
        yield chunk({"role": "assistant", "content": ""})
        try:
            async for stage in stages.each():
                if stage is None:
                    yield b": still there\n\n"
                elif stage[0] == "answer":
                    # An answer is known as a whole, so it is one chunk.
                    text = _content(stage[1])
                    yield chunk({"content": text})
                    yield chunk({"annotations": _annotations(stage[1], text)})
                    yield chunk({}, "stop")
                    if counted:
                        yield chunk(None, usage=_usage(stage[1]))
        except Exception as error:  # noqa: BLE001  # the status of a response that has begun cannot change
            yield _data({"error": msgspec.to_builtins(stages.tell(error))})
        yield b"data: [DONE]\n\n"

    return StreamingResponse(chunks(), media_type="text/event-stream", headers={"cache-control": "no-store"})


def _data(message: dict[str, Any]) -> bytes:
    return b"data: %s\n\n" % json_response(message).body


def _method_of(service: Service, model: str | None) -> str:
    """Return the method that a chat's model names (`pytrace/METHOD`); "" for other models of the service."""
    name = model or ""
    if name.startswith("pytrace/"):
        return name.removeprefix("pytrace/")
    service.check_model(name)
    return ""


def _last_question(conversation: Sequence[messages.ChatMessage]) -> str:
    message = next((each for each in reversed(conversation) if each.role == "user"), None)
    content = None if message is None else message.content
    if isinstance(content, list):
        content = "\n".join(part.text or "" for part in content if part.type == "text")
    if content is None or not content.strip():
        raise InputError("there is no message of the user with a text; the last one is the question")
    if len(content) > 8192:
        raise InputError(
            f"the last message has {len(content):,} characters, and a question may have 8,192; ask a shorter one"
        )
    return content


def _content(result: results.Result) -> str:
    """Return the text of a chat's message: the answer, or that there is none, with the titles of the closest passages."""
    if result.answer:
        return result.answer
    reason = result.reason or NOT_FOUND
    titles = dict.fromkeys(source.title for source in result.evidence.sources if source.title)
    return f"{reason} Closest passages: {'; '.join(titles)}." if titles else reason


def _annotations(result: results.Result, text: str) -> list[dict[str, Any]]:
    """Return the steps of the first chain as citations; without a chain, the passages."""
    sources = result.evidence.sources
    chain = next(iter(result.evidence.chains), None)
    if chain is not None:
        cited = [(sources[step.source], step.sentence, step.location) for step in chain.steps if step.source >= 0]
    else:
        cited = [(source, source.text, source.location) for source in sources]
    return [
        {
            "type": "url_citation",
            "url_citation": {
                "url": f"pytrace:{source.id}",
                "title": source.title,
                "content": content[:_EXCERPT],
                "where": location,
                "start_index": 0,
                "end_index": len(text),
            },
        }
        for source, content, location in cited
    ]


def _usage(result: results.Result) -> dict[str, int]:
    """Return the computed tokens: those of prompts that were in the cache are not counted."""
    evaluated = sum(usage.evaluated_tokens for usage in result.usage.values())
    generated = sum(usage.generated_tokens for usage in result.usage.values())
    # Generated tokens are evaluated, too, except for the last one of each text.
    prompt = max(evaluated - generated, 0)
    return {"prompt_tokens": prompt, "completion_tokens": generated, "total_tokens": prompt + generated}


async def list_models(service: Service, request: Request) -> Response:
    """List the models that requests may name."""
    del request
    names = [*service.models, *(f"pytrace/{method.name}" for method in service.info().methods)]
    return json_response(messages.ModelsResponse(data=[messages.ModelInfo(id=name) for name in names]))


_RERANK: dict[str, Any] = {
    "query": "Who founded Brackwater Ferries?",
    "documents": ["Brackwater Ferries was founded by Tobias Rook.", "Geese fly south in autumn."],
    "top_n": 1,
    "return_documents": True,
}

ROWS = (
    RouteRow(
        "POST", "/v1/rerank", "Rank documents by a query (Jina's shape).", rerank, "models",
        messages.RerankRequest, messages.RerankResponse, example=_RERANK,
    ),
    RouteRow(
        "POST", "/v2/rerank", "Rank documents by a query (Cohere's shape).", rerank, "models",
        messages.RerankRequest, messages.RerankResponse, example=_RERANK,
    ),
    RouteRow(
        "POST", "/rerank", "Rank texts by a query (Text Embeddings Inference's shape).", rerank_tei, "models",
        messages.TeiRerankRequest, example={"query": _RERANK["query"], "texts": _RERANK["documents"]},
    ),
    RouteRow(
        "POST", "/v1/embeddings", "Make vectors of texts (OpenAI's shape).", embeddings, "models",
        messages.EmbeddingsRequest, messages.EmbeddingsResponse, example={"input": ["Ada Foah is a town in Ghana."]},
    ),
    RouteRow(
        "POST", "/v1/chat/completions", "Answer the last message of the user (OpenAI's shape).", chat, "models",
        messages.ChatRequest, streams=True,
        example={"model": "pytrace", "messages": [{"role": "user", "content": "Who founded Brackwater Ferries?"}]},
    ),
    RouteRow("GET", "/v1/models", "List the models that requests may name.", list_models, "models", answer=messages.ModelsResponse),
)  # fmt: skip
"""The routes of interfaces that exist."""
