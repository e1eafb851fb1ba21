"""A double of vLLM's and of OpenAI's servers on 127.0.0.1: it answers in their documented shapes, and misbehaves on request.

Its model is arithmetic: words and punctuation are tokens, and the next token's distribution follows from the last token, so
that what should come back can be computed beside it. It is no proof that a real server behaves so.
"""

from __future__ import annotations

import json
import math
import re
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.local_server import LocalServer, served

COMPLETIONS = "/v1/completions"
WORDS = re.compile(r"<\|\w+\|>|\s?\w+|\s(?!<\|)[^\w\s]|[^\w\s]|\s")


class ArithmeticModel:
    """Tokens are words with the space before them, numbered as they are met; likelihoods follow from the numbers."""

    size = 400

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}
        self._texts: list[str] = []
        self._lock = threading.Lock()
        for text in ("<end>", *(form for letter in "ABCDEFGH" for form in (letter, f" {letter}"))):
            self.tokens(text)

    def tokens(self, text: str) -> list[int]:
        found = [text] if text == "<end>" else WORDS.findall(text)
        with self._lock:
            for one in found:
                if one not in self._ids:
                    self._ids[one] = len(self._texts)
                    self._texts.append(one)
            return [self._ids[one] for one in found]

    def text(self, token: int) -> str:
        return self._texts[token] if token < len(self._texts) else f" t{token}"

    def row(self, tokens: list[int]) -> list[float]:
        """Return the log-probability of every token after these."""
        last = tokens[-1] if tokens else 0
        logits = [3.0 * math.sin(1.0 + 1.7 * token + 0.6 * last) for token in range(self.size)]
        total = math.log(math.fsum(map(math.exp, logits)))
        return [logit - total for logit in logits]

    def top(self, row: list[float], count: int) -> list[int]:
        return sorted(range(self.size), key=lambda token: -row[token])[:count]


class Double(LocalServer):
    """The server: `trouble` is asked before each request and may answer it, `seen` keeps what came."""

    def __init__(self, kind: str, **abilities: Any) -> None:
        super().__init__(_Handler)
        self.kind = kind
        self.abilities = {
            "wanted": True, "most": 20, "echo": True, "completions": True, "logprobs": True, "template": True,
            "version": "0.20.0", **abilities,
        }  # fmt: skip
        self.model = ArithmeticModel()
        self.seen: list[tuple[str, dict[str, Any], dict[str, str]]] = []
        self.connections: set[Any] = set()
        self.trouble: Callable[[_Handler, str, int], bool] = lambda *_: False


def double(kind: str = "openai", **abilities: Any) -> AbstractContextManager[Double]:
    """Run a double of "vllm" or "openai"."""
    return served(Double(kind, **abilities))


class _Handler(BaseHTTPRequestHandler):
    # A reply's head and body would else wait for each other, 40 ms a request.
    disable_nagle_algorithm = True
    protocol_version = "HTTP/1.1"
    server: Double

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._answer({})

    def do_POST(self) -> None:
        self._answer(json.loads(self.rfile.read(int(self.headers["content-length"]))))

    def _answer(self, body: dict[str, Any]) -> None:
        server, self.body = self.server, body
        with server.lock:
            count = sum(path == self.path for path, _, _ in server.seen)
            server.seen.append((self.path, body, {name.lower(): value for name, value in self.headers.items()}))
            server.connections.add(self.client_address)
        with server.counted():
            if not server.trouble(self, self.path, count):
                self._serve(body)

    def reply(self, answer: object, status: int = 200, headers: dict[str, str] | None = None) -> None:
        """Send JSON, or bytes as they are."""
        data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(status)
        for name, value in {"content-type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def refuse(self, message: str, status: int = 400) -> None:
        """Send an error as both servers do."""
        self.reply({"error": {"message": message, "type": "BadRequestError", "code": status}}, status)

    def _serve(self, body: dict[str, Any]) -> None:
        server, can = self.server, self.server.abilities
        vllm = server.kind == "vllm"
        if self.path == "/v1/models":
            entry: dict[str, Any] = {"id": "org/double", "object": "model", "owned_by": "vllm" if vllm else "nobody"}
            if vllm:
                entry |= {"root": "org/double", "max_model_len": 120}
            self.reply({"object": "list", "data": [entry]})
        elif self.path == "/version" and vllm:
            self.reply({"version": can["version"]})
        elif self.path == "/tokenize" and vllm:
            if "messages" in body:
                self._template(body["messages"])
            else:
                tokens = server.model.tokens(body["prompt"])
                self.reply({"count": len(tokens), "max_model_len": 120, "tokens": tokens})
        elif self.path == "/detokenize" and vllm:
            self.reply({"prompt": "".join(map(server.model.text, body["tokens"]))})
        elif self.path == "/v1/completions" and can["completions"]:
            self._complete(body, vllm=vllm)
        elif self.path == "/v1/chat/completions":
            self._chat(body)
        else:
            self.refuse("Not Found", 404)

    def _template(self, messages: list[dict[str, str]]) -> None:
        if not self.server.abilities["template"]:
            return self.refuse("default chat template is no longer allowed")
        if messages[0]["role"] == "system" and self.server.abilities["template"] == "no system":
            return self.refuse("System role not supported")
        text = "".join(f"<|{one['role']}|>{one['content']}\n" for one in messages) + "<|assistant|>"
        tokens = self.server.model.tokens(text)
        return self.reply({"count": len(tokens), "max_model_len": 120, "tokens": tokens})

    def _write(self, tokens: list[int], body: dict[str, Any]) -> tuple[list[int], list[list[float]], str, str | None]:
        """Write greedily (or by the seed): the tokens, their rows, and why it ended."""
        model, written, rows = self.server.model, [], []
        said = ""
        for step in range(body["max_tokens"]):
            row = model.row([*tokens, *written])
            best = model.top(row, 30)
            token = best[(body.get("seed", 0) + step) % 30] if body.get("temperature") else best[0]
            if body.get("grammar") or body.get("structured_outputs") or body.get("guided_grammar"):
                token = model.tokens(" yes")[0] if step == 0 else 0
            if "REPEAT" in body.get("marks", "") or any(model.text(one) == " REPEAT" for one in tokens):
                token = model.tokens(" again")[0]
            written.append(token)
            rows.append(row)
            if token == 0:  # it ends the text, and is counted and told of like any other
                return written, rows, "stop", None
            said += model.text(token)
            for stop in body.get("stop") or ():
                if stop in said:
                    return written, rows, "stop", stop
        return written, rows, "length", None

    def _complete(self, body: dict[str, Any], *, vllm: bool) -> None:
        model, can = self.server.model, self.server.abilities
        if not vllm and (unknown := body.keys() - _OPENAI):
            return self.refuse(f"Unrecognized request argument supplied: {min(unknown)}")
        tokens = model.tokens(body["prompt"]) if isinstance(body["prompt"], str) else body["prompt"]
        asked = body.get("logprobs")
        if asked is not None and asked > can["most"]:
            return self.refuse(
                f"Requested sample logprobs of {asked}, which is greater than max allowed: {can['most']}"
            )
        written, rows, reason, stopped = self._write(tokens, body)

        def name(token: int) -> str:
            return f"token_id:{token}" if body.get("return_tokens_as_token_ids") else model.text(token)

        def told(ids: list[int], each: list[list[float] | None]) -> dict[str, Any]:
            tops = []
            for token, row in zip(ids, each, strict=True):
                chosen = model.top(row, asked or 0) if row else []
                if vllm and can["wanted"] and body.get("logprob_token_ids"):
                    chosen = body["logprob_token_ids"]
                tops.append({name(one): row[one] for one in [*chosen, token]} if row else None)
            offsets, at = [], 0
            for token in ids:
                offsets.append(at)
                at += len(model.text(token))
            values = [row[token] if row else None for token, row in zip(ids, each, strict=True)]
            return {
                "tokens": [name(one) for one in ids],
                "token_logprobs": values,
                "top_logprobs": tops,
                "text_offset": offsets,
            }

        text = "".join(model.text(token) for token in written if token)
        if stopped:
            text = text[: text.index(stopped)]
        ids, each = written, list(rows)
        if body.get("echo") and can["echo"]:
            before = [None, *(model.row(tokens[:end]) for end in range(1, len(tokens)))]
            ids, each, text = [*tokens, *written], [*before, *rows], "".join(map(model.text, tokens)) + text
        logprobs = told(ids, each) if asked is not None and can["logprobs"] else None
        usage = {
            "prompt_tokens": len(tokens),
            "completion_tokens": len(written),
            "total_tokens": len(tokens) + len(written),
        }
        choice: dict[str, Any] = {"index": 0, "text": text, "logprobs": logprobs, "finish_reason": reason}
        if vllm:
            choice["stop_reason"] = stopped
            if body.get("prompt_logprobs") is not None:
                choice["prompt_logprobs"] = [
                    None,
                    *(
                        {
                            str(token): {
                                "logprob": model.row(tokens[:end])[token],
                                "rank": 1,
                                "decoded_token": model.text(token),
                            }
                        }
                        for end, token in enumerate(tokens[1:], start=1)
                    ),
                ]
        if not body.get("stream"):
            return self.reply({"id": "1", "object": "text_completion", "choices": [choice], "usage": usage})
        return self._stream(choice, written, usage)

    def _stream(self, choice: dict[str, Any], written: list[int], usage: dict[str, int]) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        rest = choice["text"]
        for index, token in enumerate(written):
            size = len(self.server.model.text(token)) if token else 0
            piece, rest = rest[:size], rest[size:]
            logprobs = {key: value[index : index + 1] for key, value in (choice["logprobs"] or {}).items()}
            last = index == len(written) - 1
            event = {
                **choice,
                "text": piece,
                "logprobs": logprobs,
                "finish_reason": choice["finish_reason"] if last else None,
            }
            self.event({"choices": [event]})
            self.wfile.flush()
        if not written:
            self.event({"choices": [{**choice, "text": "", "logprobs": None}]})
        self.event({"choices": [], "usage": usage})
        self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True

    def event(self, event: object) -> None:
        """Send an event of a stream."""
        self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())

    def _chat(self, body: dict[str, Any]) -> None:
        model = self.server.model
        if unknown := body.keys() - _OPENAI:
            return self.refuse(f"Unrecognized request argument supplied: {min(unknown)}")
        tokens = model.tokens("\n".join(one["content"] for one in body["messages"]))
        written, rows, reason, stopped = self._write(tokens, body)
        text = "".join(model.text(token) for token in written if token)
        logprobs = None
        if body.get("logprobs") and self.server.abilities["logprobs"]:
            top = [
                {"token": model.text(one), "logprob": rows[0][one], "bytes": None}
                for one in model.top(rows[0], body["top_logprobs"])
            ]
            logprobs = {
                "content": [{"token": model.text(written[0]), "logprob": rows[0][written[0]], "top_logprobs": top}]
            }
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": text[: text.index(stopped)] if stopped else text},
        }
        usage = {"prompt_tokens": len(tokens), "completion_tokens": len(written)}
        return self.reply({"choices": [{**choice, "logprobs": logprobs, "finish_reason": reason}], "usage": usage})


# What OpenAI's two interfaces take of what is sent here; it refuses anything else.
_OPENAI = {
    "model", "prompt", "messages", "max_tokens", "temperature", "top_p", "seed", "stop", "logprobs", "top_logprobs", "echo",
}  # fmt: skip


def pause(seconds: float) -> None:
    """Wait, as a slow server does."""
    time.sleep(seconds)


def trouble(path: str, times: int, answer: Callable[[Any], None]) -> Callable[[Any, str, int], bool]:
    """Answer the first requests for a path in another way; the server is met first, in peace."""
    left = [times]

    def meddle(handler: Any, asked: str, _: int) -> bool:
        if asked != path or not left[0]:
            return False
        left[0] -= 1
        answer(handler)
        return True

    return meddle


def count(server: Double, path: str = COMPLETIONS) -> int:
    return sum(one == path for one, _, _ in server.seen)
