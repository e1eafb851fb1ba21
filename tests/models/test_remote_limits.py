"""Servers that hold on, write without end or repeat what is secret, against a double on 127.0.0.1."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import json
import random
import time
import traceback
import warnings
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from pytrace.errors import InputError, ServerError, ServerTimeoutError
from pytrace.models.llama.generation import runs_away
from pytrace.models.servers import http_messages
from pytrace.models.servers.completions_server import _runs_away_at
from pytrace.models.servers.http_client import HttpClient
from pytrace.models.servers.remote_model import RemoteModel
from tests.server_double import COMPLETIONS, Double, count, pause, trouble

pytestmark = pytest.mark.usefixtures("quick")
KEY = "sk-0123456789abcdef"


def slowly(head: bytes, each: Callable[[int], bytes], seconds: float = 0.02) -> Callable[[Any], None]:
    """Send the head, then pieces for ever, with pauses between."""

    def answer(handler: Any) -> None:
        handler.close_connection = True
        handler.wfile.write(head)
        for number in range(3000):
            handler.wfile.write(each(number))
            pause(seconds)

    return answer


def events(handler: Any) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
    handler.close_connection = True


@pytest.mark.parametrize(
    ("head", "each"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n", b" "),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
        (b"HTTP/1.1 500 Oh\r\ncontent-length: 100000\r\n\r\n", b" "),
        (b"HTTP/1.1 200 OK\r\nx: ", b"x"),
        (b"", b"HTTP/1.1 103 Early Hints\r\n\r\n"),
    ],
    ids=["body", "chunks", "error's body", "header", "informational"],
)
def test_bytes_that_trickle_in_do_not_begin_the_time_out_anew(openai: Double, head: bytes, each: bytes) -> None:
    with RemoteModel(openai.url, timeout=0.7) as model:
        before = count(openai)
        openai.trouble = trouble(COMPLETIONS, 99, slowly(head, lambda _: each))
        with pytest.raises(
            ServerTimeoutError, match=r"POST http://127.*completions: no whole answer within 0\.7 s, but "
        ):
            model.generate(["The sky"], max_tokens=3)
        assert count(openai) - before == 1


def test_what_came_in_time_is_told(vllm: Double) -> None:
    event = b'data: {"choices": [{"text": "a", "logprobs": null}]}\n\n'

    def answer(handler: Any) -> None:
        events(handler)
        handler.wfile.write(event * 3)
        pause(5)

    with RemoteModel(vllm.url, timeout=0.7) as model:
        vllm.trouble = trouble(COMPLETIONS, 1, answer)
        with pytest.raises(ServerTimeoutError, match=rf"but {3 * len(event)} bytes of its body; raise --timeout"):
            model.generate(["The sky"], max_tokens=30)


def test_pauses_between_tries_count_as_well(openai: Double) -> None:
    with RemoteModel(openai.url, timeout=1.0) as model:
        openai.trouble = trouble(COMPLETIONS, 99, lambda one: one.reply({}, 503, {"retry-after": "2"}))
        with pytest.raises(ServerError, match=r"503.*asks to wait 2 s, and no more than 1 s are waited for"):
            model.generate(["The sky"], max_tokens=3)


@pytest.mark.parametrize(
    "value",
    ["-5", "nan", "soon", "", "Mon, 01 Jan 0001 00:00:00 +2359", "Mon, 99 Jan 2099 99:00:00 GMT", "١", "\x00", "0x10"],
)
def test_times_to_wait_that_make_no_sense_are_passed_over(value: str) -> None:
    assert http_messages.retry_after(value) in {0.0, 1.0, None}


@pytest.mark.parametrize("value", ["inf", "1e400", "9" * 400, "Fri, 31 Dec 9999 23:59:59 GMT"])
def test_times_to_wait_of_years_are_told_at_once(openai: Double, value: str) -> None:
    with RemoteModel(openai.url) as model:
        openai.trouble = trouble(COMPLETIONS, 99, lambda one: one.reply({}, 429, {"retry-after": value}))
        with pytest.raises(ServerError, match=r"asks to wait \S+ s, and no more than 120 s"):
            model.generate(["The sky"], max_tokens=3)


def test_a_stream_without_line_breaks_is_read_once() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b'data: {"content": "'
        for _ in range(20_000):
            yield b"x" * 1_000
        yield b'"}\n'

    async def read() -> list[int]:
        return [len(event["content"]) async for event in http_messages.events(pieces(), "here")]

    begun = time.monotonic()
    assert asyncio.run(read()) == [20_000_000]
    assert time.monotonic() - begun < 20  # it took minutes where each piece was looked through with all before it


def test_lines_may_be_cut_anywhere() -> None:
    text = b'data: {"a": 1}\r\n\r\n: remark\ndata: {"b": "\xc3\xa9"}\n\ndata: [DONE]\n\ndata: {"c": 3}\n'

    async def read(size: int) -> list[dict[str, Any]]:
        async def pieces() -> AsyncIterator[bytes]:
            for start in range(0, len(text), size):
                yield text[start : start + size]

        return [event async for event in http_messages.events(pieces(), "here")]

    for size in range(1, len(text) + 1):
        assert asyncio.run(read(size)) == [{"a": 1}, {"b": "é"}]


@pytest.mark.parametrize("logprobs", [True, False])
def test_a_server_that_heeds_no_limit_of_tokens_is_cut_off(vllm: Double, *, logprobs: bool) -> None:
    def answer(handler: Any) -> None:
        events(handler)
        for number in itertools.count():
            told = {"tokens": [f"token_id:{number}"], "token_logprobs": [-1.0]} if logprobs else None
            choice = {"text": f" {number}", "logprobs": told, "finish_reason": None}
            handler.wfile.write(b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n")

    with RemoteModel(vllm.url) as model:
        vllm.trouble = trouble(COMPLETIONS, 1, answer)
        [[row]] = model.generate(["The sky"], max_tokens=30)
        assert row.finish == "length"
        assert row.tokens <= 30
        assert len(row.text.split()) <= 60


def test_an_answer_is_no_longer_than_its_tokens_can_be(openai: Double) -> None:
    with RemoteModel(openai.url) as model:
        openai.trouble = trouble(COMPLETIONS, 1, lambda one: one.reply({"choices": [{"text": "word " * 1_000_000}]}))
        with pytest.raises(
            ServerError, match=r"completions: an answer is longer than 1,097,728 bytes, more than it can have"
        ):
            model.generate(["The sky"], max_tokens=3)


def test_a_long_text_is_looked_through_for_repetitions_once(openai: Double) -> None:
    text = " ".join(map(str, range(60_000)))
    with RemoteModel(openai.url) as model:
        openai.trouble = trouble(COMPLETIONS, 1, lambda one: one.reply({"choices": [{"text": text + " no" * 200}]}))
        [[row]] = model.generate(["The sky"], max_tokens=3)
        assert (row.text, row.finish) == (text + " no" * 24, "repetition")


@pytest.mark.parametrize("seed", range(20))
def test_where_a_text_runs_away_is_what_looking_after_each_piece_finds(seed: int) -> None:
    drawn = random.Random(seed)
    pieces = drawn.choices("abc", k=drawn.randrange(60)) + drawn.choices("abcde", k=drawn.randrange(1, 60)) * 4
    expected = next((end for end in range(len(pieces) + 1) if runs_away(pieces[:end])), None)
    assert _runs_away_at(pieces) == expected


def test_a_compressed_answer_is_not_unpacked(openai: Double) -> None:
    bomb = gzip.compress(b"x" * 10_000_000)
    with RemoteModel(openai.url) as model:
        openai.trouble = trouble(COMPLETIONS, 1, lambda one: one.reply(bomb, headers={"content-encoding": "gzip"}))
        with pytest.raises(ServerError, match=r"is compressed \('gzip'\), which was not asked for"):
            model.generate(["The sky"], max_tokens=3)


@pytest.mark.parametrize(
    "location", ["http://[", "file:///etc/passwd", "//evil.example/x", "", "x" * 5000, "http://a:b@c/"]
)
def test_redirects_are_told_whatever_they_say(openai: Double, location: str) -> None:
    with RemoteModel(openai.url) as model:
        openai.trouble = trouble(COMPLETIONS, 1, lambda one: one.reply(b"", 302, {"location": location}))
        with pytest.raises(ServerError, match=r"redirects to .{1,80}, which is not followed") as refused:
            model.generate(["The sky"], max_tokens=3)
        assert len(str(refused.value)) < 300


def test_an_error_whose_body_is_deep_is_told(openai: Double) -> None:
    with RemoteModel(openai.url) as model:
        for depth in (500, 100_000):
            openai.trouble = trouble(
                COMPLETIONS, 1, lambda one, depth=depth: one.reply(b"[" * depth + b"]" * depth, 400)
            )
            with pytest.raises(ServerError, match=r"answers 400: \[\[\["):
                model.generate(["The sky"], max_tokens=3)


def test_no_message_repeats_the_key(openai: Double, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTRACE_API_KEY", KEY)
    said = f"Bearer {KEY} is not known"
    answers: list[Callable[[Any], None]] = [
        lambda one: one.reply({"error": {"message": said}}, 401),
        lambda one: one.reply(said.encode(), 500),
        lambda one: one.reply(said.encode(), 200),
        *(lambda one, size=size: one.reply(b"x" * size + said.encode(), 500) for size in (180, 185, 190)),
        lambda one: one.reply(b"", 302, {"location": f"http://{KEY}/"}),
        lambda one: one.reply({"choices": [{"text": [said]}]}),
        lambda one: one.reply({"choices": [{"text": [said]}]}, headers={"content-encoding": KEY}),
        lambda one: one.wfile.write(f"HTTP/1.1 {KEY}\r\n\r\n".encode()),
    ]
    with RemoteModel(openai.url, attempts=1) as model:
        for answer in answers:
            openai.trouble = trouble(COMPLETIONS, 1, answer)
            with pytest.raises(ServerError) as refused:
                model.generate(["The sky"], max_tokens=3)
            assert KEY[:6] not in "".join(traceback.format_exception(refused.value))
    listing = {"data": [{"id": KEY, "owned_by": "x"}, {"id": "two", "owned_by": "x"}]}
    openai.trouble = trouble("/v1/models", 1, lambda one: one.reply(listing))
    with pytest.raises(InputError, match=r"has 2 models \(\[API key\], two\)"):
        RemoteModel(openai.url)
    openai.trouble = trouble("/v1/models", 1, lambda one: one.reply({"data": listing["data"][:1]}))
    with pytest.raises(ServerError, match="API key in a model's name"):
        RemoteModel(openai.url)


@pytest.mark.parametrize("kind", ["openai", "vllm"])
def test_no_answer_repeats_the_key(kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    server: Double = request.getfixturevalue(kind)
    pieces = [f"It is {KEY[:9]}", f"{KEY[9:]}."]

    def answer(one: Any) -> None:
        if kind == "openai":
            one.reply({"choices": [{"text": "".join(pieces), "finish_reason": "stop"}]})
            return
        events(one)
        for piece, last in zip(pieces, (False, True), strict=True):
            choice = {"text": piece, "token_ids": [1], "finish_reason": "stop" if last else None}
            one.wfile.write(b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n")

    for key, hidden in ((KEY, "It is [API key]."), ("sk", f"It is {KEY}."), ("abcdef", f"It is {KEY}.")):
        monkeypatch.setenv("PYTRACE_API_KEY", key)
        with RemoteModel(server.url, attempts=1) as model:
            server.trouble = trouble(COMPLETIONS, 1, answer)
            assert model.generate(["The sky"], max_tokens=30)[0][0].text == hidden


def test_a_key_that_leaves_this_machine_unencrypted_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUR_KEY", KEY)
    with pytest.warns(UserWarning, match=r"OUR_KEY goes to http://gpu-box:8000 unencrypted.*use https") as told:
        HttpClient("http://gpu-box:8000", api_key_env="OUR_KEY").close()
    assert KEY not in str(told[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for url in ("https://gpu-box:8000", "http://127.0.0.1:1", "http://[::1]:1", "http://localhost:1"):
            HttpClient(url, api_key_env="OUR_KEY").close()
        HttpClient("http://gpu-box:8000", api_key_env="NO_KEY").close()


def test_an_address_that_is_none_is_told_without_what_may_be_a_password() -> None:
    for url in ("http://me:secret@[::1", "ftp://me:secret@host", "http://me:secret@host:99999"):
        with pytest.raises(InputError, match="is no server's address") as refused:
            RemoteModel(url)
        assert "secret" not in str(refused.value)
