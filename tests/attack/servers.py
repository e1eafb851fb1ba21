"""Hostile and broken servers on loopback, beside every command that talks to one."""

from __future__ import annotations

import gzip
import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from random import Random
from typing import Any

from tests.attack import _supplies
from tests.attack.frame import Attack, command
from tests.local_server import LocalServer, served
from tests.mutated_answers import KINDS, TEXT_KINDS, TOWNS, endpoint_findings, findings
from tests.server_double import double
from tests.sparql_server import sparql_server
from tests.text_model_double import serve, text_model_double

_KEY = "sk-attack-0123456789abcdef"
_ESCAPES = "\x1b]0;owned\x07\x1b[2J\u009b31m\u202egnp.exe\u2066\u0000"
_SECONDS = 15.0


def _send(head: str, body: bytes = b"") -> Callable[[Any], None]:
    def answer(handler: Any) -> None:
        handler.wfile.write(head.replace("\n", "\r\n").encode("latin-1", "replace") + b"\r\n\r\n" + body)

    return answer


def _ever(head: bytes, piece: bytes, seconds: float = 0.0) -> Callable[[Any], None]:
    """Send pieces until the other side hangs up, or long after it should have."""

    def answer(handler: Any) -> None:
        handler.wfile.write(head)
        begun = time.monotonic()
        while time.monotonic() - begun < 3 * _SECONDS:
            handler.wfile.write(piece)
            time.sleep(seconds)

    return answer


def _reset(handler: Any) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{")
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.connection.close()


def _half_closed(handler: Any) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{")
    handler.connection.shutdown(socket.SHUT_WR)
    time.sleep(1)


def _circles(handler: Any) -> None:
    _send(f"HTTP/1.1 307 Again\nlocation: {handler.path}\ncontent-length: 0")(handler)


def _repeats_key(handler: Any) -> None:
    said = handler.headers.get("authorization", "").encode()
    _send(f"HTTP/1.1 401 {said.decode()}\nx-key: {said.decode()}\ncontent-length: {len(said)}", said)(handler)


def _answers_key(handler: Any) -> None:
    said = handler.headers.get("authorization", "")
    choice = {"text": said, "message": {"content": said}, "finish_reason": "stop", "token_ids": [1]}
    answer = json.dumps({"choices": [choice], "data": [{"id": said}], "tokens": [1]})
    streamed = any(body.get("stream") for _, body, _ in getattr(handler.server, "seen", [])[-1:])
    _send("HTTP/1.1 200 OK\nconnection: close", (f"data: {answer}\n\n" if streamed else answer).encode())(handler)


_OK = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
_CHUNKED = _OK + b"transfer-encoding: chunked\r\n\r\n"
_EVENTS = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
_EVENT = b'data: {"choices": [{"text": " x"}], "content": " x"}\n\n'
MISBEHAVIOURS: dict[str, Callable[[Any], None]] = {
    "never answers": _ever(b"", b"", 0.5),
    "a byte now and then": _ever(_OK + b"content-length: 1000000\r\n\r\n", b" ", 0.1),
    "a chunk now and then": _ever(_CHUNKED, b"1\r\n \r\n", 0.1),
    "a header's byte now and then": _ever(b"HTTP/1.1 200 OK\r\nx: ", b"x", 0.1),
    "a status line without end": _ever(b"HTTP/1.1 200 ", b"x" * 1000),
    "headers without end": _ever(b"HTTP/1.1 200 OK\r\n", b"x: y\r\n" * 100),
    "hints without end": _ever(b"", b"HTTP/1.1 103 Early Hints\r\n\r\n"),
    "a body without end": _ever(_OK + b"connection: close\r\n\r\n", b'"' + b"x" * 65536),
    "chunks of a byte without end": _ever(_CHUNKED, b"1\r\nx\r\n" * 1000),
    "a chunk's extension without end": _ever(_CHUNKED + b"1;", b"x" * 1000),
    "an error's body without end": _ever(b"HTTP/1.1 500 Oh\r\nconnection: close\r\n\r\n", b"x" * 65536),
    "a stream without lines": _ever(_EVENTS + b'data: {"content": "', b"x" * 65536),
    "events without end": _ever(_EVENTS, _EVENT * 100),
    "remarks without end": _ever(_EVENTS, b": still here\n\n" * 100),
    "a bomb of gzip": _send("HTTP/1.1 200 OK\ncontent-encoding: gzip\nconnection: close", gzip.compress(bytes(10**7)) * 10),
    "elsewhere": _send("HTTP/1.1 302 Found\nlocation: http://elsewhere.invalid/\ncontent-length: 0"),
    "to a file": _send("HTTP/1.1 301 Moved\nlocation: file:///etc/passwd\ncontent-length: 0"),
    "to nowhere": _send("HTTP/1.1 301 Moved\nlocation: http://[\ncontent-length: 0"),
    "in circles": _circles,
    "too long a length": _send("HTTP/1.1 200 OK\ncontent-length: 99999\nconnection: close", b"{}"),
    "too short a length": _send("HTTP/1.1 200 OK\ncontent-length: 3", b'{"data": []}'),
    "a negative length": _send("HTTP/1.1 200 OK\ncontent-length: -5", b"{}"),
    "a length of words": _send("HTTP/1.1 200 OK\ncontent-length: many", b"{}"),
    "a huge length": _send(f"HTTP/1.1 200 OK\ncontent-length: {'9' * 300}\nconnection: close", b"{}"),
    "two lengths": _send("HTTP/1.1 200 OK\ncontent-length: 2\ncontent-length: 3", b"{}}"),
    "half closed": _half_closed,
    "reset": _reset,
    "hangs up": lambda _: None,
    "a page": _send("HTTP/1.1 200 OK\ncontent-type: text/html\nconnection: close", b"<html><script>alert(1)</script>"),
    "nothing": _send("HTTP/1.1 200 OK\ncontent-length: 0"),
    "no content": _send("HTTP/1.1 204 No Content"),
    "to wait for years": _send("HTTP/1.1 429 Busy\nretry-after: 99999999999\ncontent-length: 0"),
    "to wait for ever": _send("HTTP/1.1 503 Busy\nretry-after: inf\ncontent-length: 0"),
    "to wait for less than nothing": _send("HTTP/1.1 503 Busy\nretry-after: -99\ncontent-length: 0"),
    "to wait until words": _send("HTTP/1.1 429 Busy\nretry-after: Mon, 01 Jan 0001 00:00:00 +2359\ncontent-length: 0"),
    "the key": _repeats_key,
    "the key for an answer": _answers_key,
    "escapes": _send("HTTP/1.1 400 Bad\nconnection: close", json.dumps({"error": _ESCAPES}, ensure_ascii=False).encode()),
    "raw escapes": _send(f"HTTP/1.1 500 {_ESCAPES[:12]}\nconnection: close", _ESCAPES.encode()),
    "an event of escapes": _send("HTTP/1.1 200 OK\nconnection: close", f"error: {_ESCAPES}\n\n".encode()),
    "noise": lambda handler: handler.wfile.write(Random(0).randbytes(5000)),
    "no HTTP": lambda handler: handler.wfile.write(b"220 mail.example ESMTP ready\r\n"),
    "an odd status": _send("HTTP/1.1 999 Odd\ncontent-length: 0"),
    "deep JSON": _send("HTTP/1.1 200 OK\nconnection: close", b'{"data":' + b"[" * 100_000),
    "deep events": _send("HTTP/1.1 200 OK\nconnection: close", b'data: {"choices":' + b"[" * 100_000 + b"\n\n"),
    "a list": _send("HTTP/1.1 200 OK\ncontent-length: 9", b"[1, 2, 3]"),
    "numbers that are none": _send("HTTP/1.1 200 OK\nconnection: close", b'{"choices": [NaN, 1e999], "data": -Infinity}'),
    "broken UTF-8": _send("HTTP/1.1 200 OK\nconnection: close", b'{"data": "\xff\xfe\xed\xa0\x80"}'),
    "two answers": _send("HTTP/1.1 200 OK\ncontent-length: 2", b"{}HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"),
}  # fmt: skip

_TEXT_MODEL = """
import resource, sys, traceback
from pytrace.errors import PytraceError
from pytrace.models.servers.remote_{0} import Remote{1}
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
try:
    with Remote{1}(sys.argv[1], timeout=2.0, batch_texts=1) as model:
        model.{2}
except PytraceError:
    print(traceback.format_exc())
"""
_TEXT_MODELS = {
    "encoder": _TEXT_MODEL.format("encoder", "Encoder", "encode(['the sea', 'the sky', 'the tern'])"),
    "reranker": _TEXT_MODEL.format(
        "reranker", "Reranker", "score([('who', 'the sea'), ('who', 'the sky'), ('why', 'a tern')])"
    ),
}

_Q = "Who founded the company that owns the Marigold Tern?"
# What is asked of a server that is honest up to some request, {} for its address.
COMMANDS: dict[str, str] = {
    "ask": "ask {Q} --docs docs --method rag:reading=free --llm {url} --timeout 2 --json",
    "eval": "eval rag --data questions.jsonl --llm {url} --timeout 2 --limit 1 --out run",
    "kg build": "kg build --docs docs --out graph --llm {url} --timeout 2 --set extraction=written --set spans=false",
    "certify generate": "certify generate --kg kg.tsv --data questions.jsonl --limit 1 --prompting cot --out certified "
    "--llm {url} --timeout 2",
    "certify texts": "certify --responses questions.jsonl --docs docs --checker lm --llm {url} --timeout 2",
    "certify discriminate": "certify discriminate --kg kg.tsv --data questions.jsonl --mode zero-shot --llm {url} --timeout 2",
}


def attacks(workplace: Path, random: Random, *, short: bool) -> Iterator[Attack]:
    tried = [(words, name) for words in (*COMMANDS, "--kb", "models pull", *_TEXT_MODELS) for name in MISBEHAVIOURS]
    # What pip and the hub's client make of answers is theirs; that they end, and how, is looked at for some.
    pulled = [each for each in tried if each[0] == "models pull"]
    kept = set(random.sample(pulled, 12))
    tried = [each for each in tried if each[0] != "models pull" or each in kept]
    for words, name in random.sample(tried, 3) if short else tried:
        others = {
            "--kb": _ask_endpoint,
            "models pull": _pull,
            **{kind: partial(_use_text_model, kind) for kind in _TEXT_MODELS},
        }
        run = others.get(words, partial(_ask_model, words))
        yield Attack(f"{words}: {name}", partial(run, workplace, name, random.randrange(1 << 32)))
    seed = random.randrange(1 << 32)
    for kind in () if short else (*KINDS, *TEXT_KINDS):
        yield Attack(f"changed answers: {kind}", lambda kind=kind: "; ".join(findings(kind, 150, seed)) or None)
    if not short:
        yield Attack("changed answers: endpoint", lambda: "; ".join(endpoint_findings(150, seed)) or None)


def _place(workplace: Path) -> Path:
    folder = Path(tempfile.mkdtemp(dir=workplace))
    (folder / "docs").mkdir()
    (folder / "docs" / "tern.md").write_text(_supplies.DOCUMENTS["tern.md"], encoding="utf-8")
    (folder / "kg.tsv").write_text(_supplies.TRIPLES, encoding="utf-8")
    (folder / "questions.jsonl").write_text(json.dumps(_supplies._ROW) + "\n", encoding="utf-8")
    return folder


def _judged(folder: Path, line: list[str], env: dict[str, str]) -> str | None:
    env = {"PYTRACE_API_KEY": _KEY, "PYTRACE_DEBUG": "", **env}
    wrong = command(
        line, cwd=folder, seconds=2 * _SECONDS + 10, memory=2 << 30, env=env, must_not_say=(_KEY, "sk-attack")
    )
    kept = [path for path in folder.rglob("*") if path.is_file() and _KEY.encode() in path.read_bytes()]
    return wrong or (f"the key is kept in {kept[0].relative_to(folder)}" if kept else None)


def _worded(words: str, url: str) -> list[str]:
    return [word.format(Q=_Q, url=url) for word in words.split()]


def _misbehaving(name: str, begin: int) -> Callable[[Any, Any, Any], bool]:
    """Answer requests from some number on by a misbehaviour."""
    left = [begin]

    def trouble(handler: Any, *_: Any) -> bool:
        left[0] -= 1
        if left[0] >= 0:
            return False
        handler.close_connection = True
        MISBEHAVIOURS[name](handler)
        return True

    return trouble


def _ask_model(words: str, workplace: Path, name: str, seed: int) -> str | None:
    folder = _place(workplace)
    with double(Random(seed).choice(["vllm", "openai"])) as server:
        # While it is met, or later.
        server.trouble = _misbehaving(name, Random(seed).choice([0, 1, 2, 3, 4, 6]))
        return _judged(folder, _worded(COMMANDS[words], server.url), {})


def _ask_endpoint(workplace: Path, name: str, seed: int) -> str | None:
    folder = _place(workplace)
    with sparql_server(TOWNS) as server, double("openai") as model:
        server.trouble = _misbehaving(name, Random(seed).choice([0, 1, 2]))
        words = "ask {Q} --method cok --query-grammar none --kb-timeout 2 --threads 1 --timeout 9 --llm {url} --kb"
        return _judged(folder, [*_worded(words, model.url), server.url], {})


def _use_text_model(kind: str, workplace: Path, name: str, seed: int) -> str | None:
    """Encode or rerank with the library, in a process of its own."""
    with text_model_double("vllm") as server:
        misbehave = _misbehaving(name, Random(seed).choice([0, 1, 2, 3, 4]))
        server.trouble = lambda handler, path, number: misbehave(handler, path, number) or serve(handler, path)
        env = {**os.environ, "PYTRACE_API_KEY": _KEY, "OMP_NUM_THREADS": "1"}
        try:
            done = subprocess.run(
                [sys.executable, "-c", _TEXT_MODELS[kind], server.url], capture_output=True, text=True, check=False,
                timeout=2 * _SECONDS + 10, env=env, cwd=workplace,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return f"did not end within {2 * _SECONDS + 10:g} s"
    if done.returncode or done.stderr:
        return f"exit status {done.returncode}: {done.stderr[-300:]}"
    return f"said the key: {done.stdout[-300:]}" if "sk-attack" in done.stdout else None


class _Store(BaseHTTPRequestHandler):
    """A hub, or an index of packages: honest when it is asked for what it has, where that is wanted."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self.send_response(200)
        for name, value in {"ETag": '"x"', "X-Repo-Commit": "0" * 40, "Content-Length": "30000000"}.items():
            self.send_header(name, value)
        self.end_headers()

    def do_GET(self) -> None:
        if self.path == "/simple/whole/":
            page = b'<a href="/whole-1.0-py3-none-any.whl">whole-1.0-py3-none-any.whl</a>'
            _send(f"HTTP/1.1 200 OK\ncontent-type: text/html\ncontent-length: {len(page)}", page)(self)
            return
        self.close_connection = True
        MISBEHAVIOURS[self.server.name](self)  # type: ignore[attr-defined]


def _pull(workplace: Path, name: str, seed: int) -> str | None:
    folder = _place(workplace)
    source = Random(seed).choice(["hf:org/repo@rev#m.gguf", "pypi:whole==1.0#whole/m.gguf"])
    (folder / "home").mkdir()
    model = {
        "name": "m", "role": "language-model", "description": "a model", "license": "none",
        "files": [{"path": "m.gguf", "sources": [{"uri": source, "download": 1_000_000}]}],
    }  # fmt: skip
    (folder / "home" / "catalog.json").write_text(json.dumps({"models": [model]}), encoding="utf-8")
    server = LocalServer(_Store)
    server.name = name  # type: ignore[attr-defined]
    with served(server):
        env = {
            "PYTRACE_HOME": str(folder / "home"), "HF_ENDPOINT": server.url, "HF_HOME": str(folder), "HF_TOKEN": _KEY,
            "PIP_INDEX_URL": f"{server.url}/simple", "PIP_CONFIG_FILE": "/dev/null", "PIP_NO_CACHE_DIR": "1", "PIP_RETRIES": "0",
            "NO_PROXY": "127.0.0.1",
        }  # fmt: skip
        return _judged(folder, ["models", "pull", "m", "--timeout", "3"], env)
