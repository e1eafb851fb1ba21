"""Trouble on the wire, and many requests at once, against a double on 127.0.0.1 (`tests/server_double.py`)."""

from __future__ import annotations

import math
import signal
import socket
import struct
import subprocess
import sys
import threading
from typing import Any

import pytest

from pytrace.errors import InputError, MissingDependencyError, ServerError
from pytrace.models.servers import http_client
from pytrace.models.servers.remote_model import RemoteModel
from tests.server_double import COMPLETIONS, Double, count, double, pause, trouble

LABELS = [["A", "B", "C"]]
pytestmark = pytest.mark.usefixtures("quick")


def cut(handler: Any) -> None:
    """Begin an answer and reset the connection."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{")
    handler.wfile.flush()
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.connection.close()
    handler.close_connection = True


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_a_busy_server_is_asked_again(openai: Double, status: int) -> None:
    with RemoteModel(openai.url) as model:
        before = count(openai)
        openai.trouble = trouble(COMPLETIONS, 2, lambda handler: handler.refuse("busy", status))
        assert model.generate(["The sky"], max_tokens=3)[0][0].tokens == 3
        assert count(openai) - before == 3


def test_the_time_that_a_server_asks_to_wait_is_waited_and_too_long_a_time_is_told(
    openai: Double, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []
    sleep = http_client.asyncio.sleep

    async def note(seconds: float) -> None:
        waited.append(seconds)
        await sleep(0)

    monkeypatch.setattr(http_client.asyncio, "sleep", note)
    with RemoteModel(openai.url) as model:
        openai.trouble = trouble(COMPLETIONS, 1, lambda one: one.reply({}, 429, {"retry-after": "7"}))
        model.generate(["The sky"], max_tokens=3)
        assert waited == [7.0]
        openai.trouble = trouble(COMPLETIONS, 1, lambda one: one.reply({}, 503, {"retry-after": "soon"}))
        model.generate(["The sky"], max_tokens=3)
        assert 0 < waited[-1] <= 0.01
        openai.trouble = trouble(COMPLETIONS, 9, lambda one: one.reply({}, 429, {"retry-after": "3600"}))
        with pytest.raises(ServerError, match="asks to wait 3600 s"):
            model.generate(["The sky"], max_tokens=3)


def test_tries_are_counted_and_the_last_failure_is_told(openai: Double) -> None:
    with RemoteModel(openai.url, attempts=3) as model:
        before = count(openai)
        openai.trouble = trouble(COMPLETIONS, 99, lambda one: one.refuse("no slot is free", 503))
        with pytest.raises(ServerError, match=r"POST http://127.*completions.*503: no slot is free.*tried 3 times"):
            model.generate(["The sky"], max_tokens=3)
        assert count(openai) - before == 3


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422, 500, 501])
def test_what_will_be_refused_again_is_asked_once(openai: Double, status: int) -> None:
    with RemoteModel(openai.url) as model:
        before = count(openai)
        openai.trouble = trouble(COMPLETIONS, 99, lambda one: one.refuse("x" * 5000, status))
        with pytest.raises(ServerError, match=f"answers {status}: x") as refused:
            model.generate(["The sky"], max_tokens=3)
        assert count(openai) - before == 1
        assert refused.value.status == status
        assert len(str(refused.value)) < 500


def test_a_cut_connection_is_tried_again(openai: Double, vllm: Double) -> None:
    for server in (openai, vllm):
        with RemoteModel(server.url) as model:
            quiet = model.generate(["The sky"], max_tokens=4)
            server.trouble = trouble(COMPLETIONS, 2, cut)
            assert str(model.generate(["The sky"], max_tokens=4)) == str(quiet)
            server.trouble = trouble(COMPLETIONS, 99, cut)
            with pytest.raises(ServerError, match=r"the connection broke.*tried 5 times"):
                model.generate(["The sky"], max_tokens=4)


def test_a_stream_that_ends_in_the_middle_is_not_taken_for_a_text(vllm: Double) -> None:
    def half(handler: Any) -> None:
        handler.send_response(200)
        handler.send_header("content-type", "text/event-stream")
        handler.send_header("connection", "close")
        handler.end_headers()
        handler.wfile.write(b'data: {"choices": [{"text": " half", "logprobs": null, "finish_reason": null}]}\n\n')
        handler.close_connection = True

    with RemoteModel(vllm.url) as model:
        quiet = model.generate(["The sky"], max_tokens=4)
        vllm.trouble = trouble(COMPLETIONS, 1, half)
        assert model.generate(["The sky"], max_tokens=4) == quiet
        vllm.trouble = trouble(COMPLETIONS, 99, half)
        with pytest.raises(ServerError, match="ended in the middle"):
            model.generate(["The sky"], max_tokens=4)


def test_an_error_inside_a_stream_is_told(vllm: Double) -> None:
    def fail(handler: Any) -> None:
        handler.reply(b'data: {"error": {"message": "the engine died", "code": 500}}\n\n')

    with RemoteModel(vllm.url) as model:
        vllm.trouble = trouble(COMPLETIONS, 1, fail)
        with pytest.raises(ServerError, match="the engine died"):
            model.generate(["The sky"], max_tokens=4)


def test_a_silent_server_is_given_up(openai: Double) -> None:
    release = threading.Event()
    with RemoteModel(openai.url, timeout=0.5) as model:
        openai.trouble = trouble(COMPLETIONS, 99, lambda _: release.wait(30))
        with pytest.raises(
            ServerError, match=r"POST http://127.*no whole answer within 0\.5 s, but nothing; raise --timeout"
        ):
            model.generate(["The sky"], max_tokens=4)
        release.set()


def test_nobody_listening_is_told_at_once() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    with pytest.raises(ServerError, match=f"no server answers at http://127.0.0.1:{port}.*start it") as refused:
        RemoteModel(f"http://127.0.0.1:{port}")
    assert "tried" not in str(refused.value)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{broken", "no JSON"),
        (b"<html>hello</html>", "is this a model server"),
        (b"[" * 100_000, "no JSON"),
        (b'{"choices": []}', "no choices"),
        (b'{"choices": [{"text": 7}]}', r"got `int` - at `\$\.choices\[0\]\.text`"),
        (b"[]", "Expected `object`, got `array`"),
        (b"", "no JSON"),
        (b'{"choices": [{"text": "a", "logprobs": NaN}]}', "no JSON"),
    ],
)
def test_answers_that_make_no_sense_are_told(openai: Double, body: bytes, message: str) -> None:
    with RemoteModel(openai.url) as model:
        openai.trouble = trouble(COMPLETIONS, 1, lambda one: one.reply(body))
        with pytest.raises(ServerError, match=message):
            model.generate(["The sky"], max_tokens=4)


@pytest.mark.parametrize("value", ["null", "1.5", '"high"', "[1]", "true"])
def test_a_log_probability_that_is_none_is_told(openai: Double, value: str) -> None:
    answer = b'{"choices": [{"text": "a", "logprobs": {"top_logprobs": [{"A": -1.0, "B": %s}]}}]}' % value.encode()
    with RemoteModel(openai.url) as model:
        assert model.gives_logits
        openai.trouble = trouble(COMPLETIONS, 1, lambda one: one.reply(answer))
        with pytest.raises(ServerError, match="for a log-probability"):
            model.score_options(["The sky"], LABELS)


def test_an_endless_answer_is_not_read_to_its_end(openai: Double, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "LARGEST_ANSWER", 100_000)
    with RemoteModel(openai.url) as model:
        openai.trouble = trouble(COMPLETIONS, 1, lambda one: one.reply(b'"' + b"x" * 5_000_000 + b'"'))
        with pytest.raises(ServerError, match="longer than 100,000 bytes"):
            model.generate(["The sky"], max_tokens=4)


def test_no_redirect_is_followed_and_no_other_host_gets_the_key(
    openai: Double, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTRACE_API_KEY", "sesame-42")
    with double("openai") as other, RemoteModel(openai.url) as model:
        assert openai.seen[0][2]["authorization"] == "Bearer sesame-42"
        to = {"location": f"{other.url}{COMPLETIONS}?key=abc"}
        openai.trouble = trouble(COMPLETIONS, 1, lambda one: one.reply(b"", 307, to))
        with pytest.raises(ServerError, match=r"redirects to 127\.0\.0\.1, which is not followed") as refused:
            model.generate(["The sky"], max_tokens=4)
        assert "abc" not in str(refused.value)
        assert other.seen == []


def test_proxies_of_the_environment_do_not_stand_before_this_machine(
    openai: Double, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with RemoteModel(openai.url) as model:
        assert model.generate(["The sky"], max_tokens=2)[0][0].tokens == 2
    proxy = http_client._proxy(http_client.urlsplit("http://models.example:8000"))
    assert proxy == "http://127.0.0.1:9"


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://name:secret@127.0.0.1:8080", "carries a name, a password"),
        ("http://127.0.0.1:8080/?api_key=secret", "carries a name, a password"),
        ("http://", "is no server's address"),
        ("http://127.0.0.1:99999", "is no server's address"),
        ("http://[::1", "is no server's address"),
        ("ftp://127.0.0.1", "is no server's address"),
        ("", "is no server's address"),
    ],
)
def test_addresses_that_cannot_be_used_are_refused_without_their_secrets(url: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as refused:
        RemoteModel(url)
    assert "secret" not in str(refused.value)


def test_options_out_of_range_are_refused() -> None:
    for wrong in ({"concurrency": 0}, {"context": 0}, {"top_tokens": 0}, {"attempts": 0}, {"timeout": math.nan}):
        with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be at least"):
            RemoteModel("http://127.0.0.1:1", **wrong)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="'ollama' is none of: auto, llama-server"):
        RemoteModel("http://127.0.0.1:1", dialect="ollama")  # type: ignore[arg-type]


def test_a_missing_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httpx2", None)
    with pytest.raises(MissingDependencyError, match=r"pytrace-rag\[remote\]"):
        RemoteModel("http://127.0.0.1:1")


def test_requests_go_out_together_over_kept_connections_and_come_back_in_order(openai: Double) -> None:
    prompts = [f"word{number} the sky" for number in range(40)]
    with RemoteModel(openai.url, concurrency=1) as model:
        alone = [row[0].text for row in model.generate(prompts, max_tokens=3)]
    assert openai.busiest == 1
    assert len(openai.connections) == 1
    openai.connections.clear()
    barrier = threading.Barrier(5)

    def together(handler: Any, path: str, number: int) -> bool:
        # Nobody is answered before five ask at once; later requests come in another order than they were sent in.
        if path == COMPLETIONS and number < before + 5:
            barrier.wait(timeout=30)
        pause(0.002 * (hash(str(handler.client_address)) % 5))
        return False

    with RemoteModel(openai.url, concurrency=5) as model:
        before = count(openai)
        openai.trouble = together
        assert [row[0].text for row in model.generate(prompts, max_tokens=3)] == alone
    assert openai.busiest == 5
    assert len(openai.connections) <= 6


def test_the_first_failure_ends_all(openai: Double) -> None:
    with RemoteModel(openai.url, concurrency=2) as model:
        before = count(openai)
        openai.trouble = trouble(COMPLETIONS, 1, lambda one: one.refuse("never", 400))
        with pytest.raises(ServerError, match="never"):
            model.generate(["The sky"] * 200, max_tokens=2)
        assert count(openai) - before < 20
        assert model.generate(["The sky"], max_tokens=2)[0][0].tokens == 2


def test_several_threads_may_use_one_model(openai: Double) -> None:
    with RemoteModel(openai.url, concurrency=3) as model:
        expected = [row[0].text for row in model.generate([f"w{number} x" for number in range(8)], max_tokens=3)]
        results: dict[int, list[str]] = {}

        def ask(name: int) -> None:
            rows = model.generate([f"w{number} x" for number in range(8)], max_tokens=3)
            results[name] = [row[0].text for row in rows]

        before = model.usage
        threads = [threading.Thread(target=ask, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert list(results.values()) == [expected] * 4
        assert (model.usage - before).calls == 32
    assert openai.busiest <= 3


@pytest.mark.usefixtures("heeding_interrupts")
def test_an_interrupt_stops_at_once_and_hangs_up(openai: Double) -> None:
    asked, left = threading.Event(), threading.Event()

    def hang(handler: Any) -> None:
        asked.set()
        handler.connection.settimeout(60)
        if handler.connection.recv(1) == b"":  # what is read when the other side hangs up
            left.set()
        handler.close_connection = True

    with RemoteModel(openai.url, concurrency=1) as model:
        openai.trouble = trouble(COMPLETIONS, 1, hang)

        def interrupt() -> None:
            asked.wait(30)
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

        threading.Thread(target=interrupt).start()
        with pytest.raises(KeyboardInterrupt):
            model.generate(["The sky"] * 3, max_tokens=4)
        assert left.wait(30)
        assert model.generate(["The sky"], max_tokens=2)[0][0].tokens == 2


def test_a_program_ends_though_its_model_was_not_closed_and_waits(openai: Double) -> None:
    program = f"""
import threading, time
from pytrace.models.servers.remote_model import RemoteModel
model = RemoteModel({openai.url!r})
threading.Thread(target=lambda: model.generate(["HANG"], max_tokens=2), daemon=True).start()
time.sleep(0.5)
print("end")
"""
    release = threading.Event()

    def hang(_: Any, path: str, number: int) -> bool:
        if path == COMPLETIONS and number > 0:
            release.wait(60)
        return False

    openai.trouble = hang
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=50, check=False)
    release.set()
    assert (done.stdout, done.returncode) == ("end\n", 0)
