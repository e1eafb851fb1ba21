"""Answers of model servers in their shapes, one value of one of them changed at random: what comes of it is a result or a `PytraceError`.

llama-server's and llama-cpp-python's shapes are those of running ones (`tests/models/test_remote.py` runs them).
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyoxigraph as ox

from pytrace.errors import PytraceError, ServerError
from pytrace.kg.endpoint import SparqlEndpoint
from pytrace.kg.fact_store import QueryLimits
from pytrace.kg.sparql import rewrite
from pytrace.models.language_model import Prompt
from pytrace.models.servers.remote_encoder import RemoteEncoder
from pytrace.models.servers.remote_model import RemoteModel
from pytrace.models.servers.remote_reranker import RemoteReranker
from tests.server_double import Double, double
from tests.sparql_server import sparql_server
from tests.text_model_double import serve, text_model_double

KINDS = ("vllm", "openai", "chat", "llama-server", "llama-cpp-python")
# Encoders and rerankers, by what their servers speak.
TEXT_KINDS = (
    "encoder tei", "encoder vllm", "encoder openai", "encoder llama-server", "reranker tei", "reranker vllm", "reranker cohere",
    "reranker llama-server",
)  # fmt: skip
_REMOVED = object()
# Of every type, and what is too large, too deep, of no size or no number.
VALUES: tuple[Any, ...] = (
    _REMOVED, None, True, False, 0, -1, 7, 2**31, 2**63, 10**400, 0.5, -0.0, 1e308, -1e308, float("nan"), float("inf"), "", "x",
    "\ud800", "\x1b[2J\u202e", "x" * 10_000, "9" * 5_000, [], [[]], [None], [-1], ["x"], {}, {"x": 1}, [{}], [0] * 5_000,
)  # fmt: skip


def deep(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


def mutated(answer: Any, draw: random.Random) -> tuple[Any, str]:
    """Return an answer with one value changed, and which."""
    answer = copy.deepcopy(answer)
    places: list[tuple[Any, Any, str]] = []

    def walk(value: Any, path: str) -> None:
        items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for key, each in list(items):
            places.append((value, key, f"{path}.{key}"))
            walk(each, f"{path}.{key}")

    walk(answer, "$")
    value = draw.choice((*VALUES, deep(90), deep(900)))
    shown = "removed" if value is _REMOVED else repr(value)[:40]
    # The whole answer now and then.
    if not places or draw.random() < 0.05:
        return (None if value is _REMOVED else value), f"$ is {shown}"
    holder, key, path = draw.choice(places)
    if value is not _REMOVED:
        holder[key] = value
    else:
        del holder[key]
    return answer, f"{path} is {shown}"


class Mutations:
    """A server of one kind whose answers are counted, and one of them changed."""

    def __init__(self, server: Double, kind: str) -> None:
        self.server = server
        self.kind = kind
        self.number = 0
        self.changed = -1
        self.draw = random.Random(0)
        self.told = ""
        server.trouble = self.trouble

    def trouble(self, handler: Any, path: str, _: int) -> bool:
        reply, event = type(handler).reply, type(handler).event
        handler.reply = lambda answer, status=200, headers=None: reply(
            handler, self.change(path, answer, status), status, headers
        )
        handler.event = lambda answer: event(handler, self.change(path, answer, 200))
        return _EXTRAS.get(self.kind, serve if self.kind in TEXT_KINDS else lambda *_: False)(handler, path)

    def change(self, path: str, answer: Any, status: int) -> Any:
        if status != 200 or isinstance(answer, bytes):
            return answer
        with self.server.lock:
            self.number += 1
            if self.number != self.changed:
                return answer
            answer, what = mutated(answer, self.draw)
            self.told = f"{path}: {what}"
            return answer


def use_model(url: str, kind: str) -> None:
    """Use a model in all ways, and look at what comes back."""
    with RemoteModel(url, concurrency=1, attempts=1, timeout=20.0) as model:
        prompt: Prompt | str = Prompt("Choose.", (), "Which <|x|>?") if kind == "chat" else "The sky"
        [[text]] = model.generate([prompt], max_tokens=3)
        assert isinstance(text.text, str)
        assert text.tokens >= 0
        if model.gives_logits:
            [scores] = model.score_options([prompt], [["A", "B"]])
            assert not (scores.log_probabilities > 0).any()
        if model.gives_logits and kind != "chat":
            [[score]] = model.score_continuations([prompt], [[" is"]])
            assert not (score.token_log_probabilities > 0).any()
        assert model.count_tokens("four words and more") >= 0
        assert model.usage.prompt_tokens >= 0
        assert model.fingerprint


def use_text_model(url: str, kind: str) -> None:
    """Encode or rerank, and look at what comes back."""
    what, _, server = kind.partition(" ")
    given: dict[str, Any] = {"concurrency": 1, "attempts": 1, "timeout": 20.0, "batch_texts": 2}
    if server in {"openai", "cohere"}:
        given["model"] = "double"
    long = "word " * 20 if server == "llama-server" else "the sky"  # is cut
    if what == "encoder":
        with RemoteEncoder(url, **given) as encoder:
            assert np.isfinite(encoder.encode(["four words and more", long, "the sea"])).all()
            assert encoder.fingerprint
    else:
        with RemoteReranker(url, **given) as reranker:
            assert np.isfinite(reranker.score([("who?", long), ("who?", "the sea"), ("why?", "the sea")])).all()
            assert reranker.fingerprint


def findings(kind: str, trials: int, seed: int) -> Iterator[str]:
    """Yield what went wrong with single values changed."""
    use = use_text_model if kind in TEXT_KINDS else use_model
    if kind in TEXT_KINDS:
        running = text_model_double(kind.partition(" ")[2], base64="tei" in kind, ranks="reranker" in kind)
    else:
        running = double("vllm" if kind == "vllm" else "openai", completions=kind != "chat")
    with running as server:
        mutations = Mutations(server, kind)
        use(server.url, kind)
        answers = mutations.number
        for trial in range(trials):
            mutations.draw = random.Random(f"{kind} {seed} {trial}")
            mutations.number, mutations.changed = 0, mutations.draw.randrange(answers) + 1
            mutations.told = ""
            try:
                use(server.url, kind)
            except ServerError as error:
                said = str(error)
                if server.url not in said and "double" not in said:
                    yield f"{mutations.told}: {said!r} does not name the server"
                if "\n" in said or len(said) > 1_000:
                    yield f"{mutations.told}: {said!r} is no sentence"
            except PytraceError:
                pass
            except Exception as error:  # noqa: BLE001 - any other is what is looked for
                yield f"{mutations.told}: {type(error).__name__}: {str(error)[:200]}"


TOWNS = """
@prefix t: <http://towns.example/> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
t:ghana t:capital t:accra ; rdfs:label "Ghana"@en . t:accra t:people 8 ; rdfs:label "Accra" .
"""


def ask_endpoint(url: str) -> None:
    """Ask an endpoint in all ways, and look at what comes back."""
    with SparqlEndpoint(url, timeout=20.0) as store:
        key = "http://towns.example/ghana"
        for relation in store.relations():
            assert relation.count >= 0
        [name] = store.names([key])
        assert isinstance(name, str)
        assert all(0 <= match.score <= 100 for match in store.find_entities(["Ghana"])[0])
        store.around([key])
        query = rewrite(f"SELECT ?x {{ {{ <{key}> <http://towns.example/capital> ?x }} UNION {{ <{key}> ?p ?x }} }}")
        for outcome in store.solutions([query], QueryLimits(seconds=20.0)):
            if isinstance(outcome, Exception):
                raise outcome


def endpoint_findings(trials: int, seed: int) -> Iterator[str]:
    """Yield what went wrong with single values of an endpoint's answers changed."""
    with sparql_server(TOWNS) as server:
        ask_endpoint(server.url)
        answers = len(server.seen)
        for trial in range(trials):
            draw = random.Random(f"endpoint {seed} {trial}")
            changed, told = len(server.seen) + draw.randrange(answers) + 1, [""]

            def trouble(handler: Any, query: str, changed: int = changed, told: list[str] = told) -> bool:
                if len(server.seen) != changed:
                    return False
                found = server.store.query(query).serialize(format=ox.QueryResultsFormat.JSON)
                answer, told[0] = mutated(json.loads(found or b""), draw)  # noqa: B023 - it is used up within the trial
                handler.reply(json.dumps(answer).encode())
                return True

            server.trouble = trouble
            try:
                ask_endpoint(server.url)
            except ServerError as error:
                said = str(error)
                if server.url not in said or "\n" in said or len(said) > 1_000:
                    yield f"{told[0]}: {said!r} is no sentence that names the server"
            except PytraceError:
                pass
            except Exception as error:  # noqa: BLE001 - any other is what is looked for
                yield f"{told[0]}: {type(error).__name__}: {str(error)[:200]}"


def _llama_server(handler: Any, path: str) -> bool:
    body, model = handler.server.seen[-1][1], handler.server.model
    if path == "/v1/models":
        meta = {"n_params": 10, "size": 20, "n_vocab": model.size, "n_ctx_train": 512, "ftype": "F32"}
        handler.reply({"data": [{"id": "org/double", "owned_by": "llamacpp", "meta": meta}]})
    elif path.startswith("/props"):
        handler.reply({"default_generation_settings": {"n_ctx": 512}, "chat_template": "{{ messages }}"})
    elif path == "/tokenize":
        handler.reply({"tokens": model.tokens(body["content"]) if body["content"] else [0]})
    elif path == "/apply-template":
        handler.reply({"prompt": "".join(f"<|{one['role']}|>{one['content']}" for one in body["messages"])})
    elif path == "/completion":
        _llama_completion(handler, body)
    else:
        return False
    return True


def _llama_completion(handler: Any, body: dict[str, Any]) -> None:
    model, tokens = handler.server.model, list(body["prompt"])
    forced = [
        int(token)
        for token in json.dumps(body.get("grammar", "")).split("<[")
        if token[:1].isdigit()
        for token in [token.split("]")[0]]
    ]
    forced = forced or [token for token, _ in body.get("logit_bias", ())]
    written, entries = [], []
    for step in range(body["n_predict"]):
        row = model.row([*tokens, *written])
        best = model.top(row, body["n_probs"])
        token = forced[step] if step < len(forced) else best[0]
        listed = [{"id": each, "token": model.text(each), "logprob": row[each]} for each in best[:20]]
        written.append(token)
        entries.append({"id": token, "token": model.text(token), "logprob": row[token], "top_logprobs": listed})
    end = {
        "stop": True, "stop_type": "limit", "tokens_predicted": len(written),
        "timings": {"prompt_n": len(tokens), "predicted_n": len(written)},
    }  # fmt: skip
    if not body.get("stream"):
        text = "".join(map(model.text, written))
        handler.reply({"content": text, "tokens": written, "completion_probabilities": entries, **end})
        return
    handler.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
    handler.close_connection = True
    for token, entry in zip(written, entries, strict=True):
        handler.event(
            {"content": model.text(token), "tokens": [token], "stop": False, "completion_probabilities": [entry]}
        )
    handler.event({"content": "", "tokens": [], **end})


def _llama_cpp_python(handler: Any, path: str) -> bool:
    body, model = handler.server.seen[-1][1], handler.server.model
    if path == "/v1/models":
        handler.reply({"object": "list", "data": [{"id": "org/double", "owned_by": "me", "permissions": []}]})
    elif path == "/openapi.json":
        handler.reply({"openapi": "3.1.0", "info": {"title": "🦙 llama.cpp Python API", "version": "0.3.36"}})
    elif path == "/extras/tokenize":
        handler.reply({"tokens": model.tokens(body["input"])})
    elif path == "/extras/detokenize":
        handler.reply({"text": "".join(map(model.text, body["tokens"]))})
    else:
        for name in ("top_k", "min_p", "repeat_penalty", "logit_bias"):  # what OpenAI does not know
            body.pop(name, None)
        return False
    return True


_EXTRAS: dict[str, Callable[[Any, str], bool]] = {"llama-server": _llama_server, "llama-cpp-python": _llama_cpp_python}
