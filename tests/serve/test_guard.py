"""What stands before every request, called as ASGI applications are, without a server and without models."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NamedTuple

import pytest
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from pytrace.errors import (
    CancelledRequestError,
    ContextOverflowError,
    DataError,
    InputError,
    MissingDependencyError,
    ModelFileError,
    ServerError,
    StoreError,
    WorkerError,
)
from pytrace.serve.failures import BusyError, NotFoundError
from pytrace.serve.guard import DEADLINE, ON_DISK, TELL, Guard
from pytrace.serve.settings import ServeSettings, keys_of
from pytrace.serve.telemetry import Metrics, make_log

KEY, OTHER = "k" * 24, "o" * 24
SECRET = "zanzibarquokka"
App = Callable[..., Awaitable[None]]


class Answered(NamedTuple):
    status: int
    headers: dict[str, str]
    body: Any
    log: list[dict[str, Any]]


async def answer(_: Any, receive: Any, send: Any) -> None:
    """Read the body and say how long it is."""
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        size += len(message.get("body", b""))
        more = message.get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
    await send({"type": "http.response.body", "body": json.dumps({"size": size}).encode()})


def failing(error: BaseException) -> App:
    async def app(*_: Any) -> None:
        raise error

    return app


class Client:
    """A guard, and requests to it; `pieces` of a body come one after the other, after the last one nothing, or the client's leaving."""

    def __init__(self, app: App = answer, **settings: Any) -> None:
        self.stream = io.StringIO()
        self.settings = ServeSettings(**settings)
        self.guard = Guard(app, self.settings, Metrics(), make_log(texts=self.settings.log_texts, stream=self.stream))

    async def send(
        self,
        method: str = "POST",
        path: str = "/v1/search",
        *headers: tuple[str, str],
        host: str = "localhost",
        pieces: Iterable[bytes] = (b"{}",),
        whole: bool = True,
        leaves: bool = False,
        pause: float = 0.0,
        client: str = "127.0.0.1",
    ) -> Answered:
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "headers": [(b"host", host.encode()), *((name.encode(), value.encode()) for name, value in headers)],
            "client": (client, 1),
        }
        left = list(pieces)
        sent: list[Any] = []

        async def receive() -> Any:
            if left:
                await asyncio.sleep(pause)
                piece = left.pop(0)
                return {"type": "http.request", "body": piece, "more_body": bool(left) or not whole}
            if leaves:
                return {"type": "http.disconnect"}
            return await asyncio.Event().wait()

        async def take(message: Any) -> None:
            sent.append(message)

        await self.guard(scope, receive, take)
        log = [json.loads(line) for line in self.stream.getvalue().splitlines()]
        if not sent:
            return Answered(0, {}, None, log)
        told = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        content = b"".join(message.get("body", b"") for message in sent[1:])
        return Answered(sent[0]["status"], told, json.loads(content), log)

    def ask(self, *given: Any, **options: Any) -> Answered:
        return asyncio.run(self.send(*given, **options))


def bearer(key: str) -> tuple[str, str]:
    return "authorization", f"Bearer {key}"


# ---- keys


def test_a_key_is_asked_for_and_any_of_several_is_taken() -> None:
    client = Client(keys=(KEY, OTHER))
    assert client.ask().status == 401
    assert client.ask().headers["www-authenticate"] == "Bearer"
    assert client.ask("POST", "/v1/search", bearer(KEY)).status == 200
    told = client.ask("POST", "/v1/search", ("authorization", f"bearer  {OTHER} "))
    assert told.status == 200
    assert [line["client"] for line in told.log] == ["127.0.0.1", "127.0.0.1", "key-1", "key-2"]


@pytest.mark.parametrize(
    "given",
    ["", "Bearer", "Bearer ", f"Basic {KEY}", f"Bearer {KEY}x", f"Bearer {KEY[1:]}", KEY, f"Bearer {KEY},{OTHER}", "Bearer \x7f"],
)  # fmt: skip
def test_no_other_key_is_taken_and_none_is_logged(given: str) -> None:
    client = Client(keys=(KEY, OTHER))
    told = client.ask("POST", "/v1/search", ("authorization", given))
    assert told.status == 401
    assert KEY not in client.stream.getvalue()
    assert OTHER not in client.stream.getvalue()


def test_every_key_is_compared_whichever_matches(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []

    def compare(first: bytes, second: bytes) -> bool:
        compared.append((first, second))
        return first == second

    monkeypatch.setattr("pytrace.serve.admission.hmac.compare_digest", compare)
    client = Client(keys=(KEY, OTHER))
    for key in (KEY, OTHER, "x"):
        compared.clear()
        client.ask("POST", "/v1/search", bearer(key))
        assert len(compared) == 2
        assert {len(value) for pair in compared for value in pair} == {32}  # digests, which tell no length


def test_a_key_of_other_letters_is_taken() -> None:
    key = "ключ-" * 5
    client = Client(keys=(key,))
    assert client.ask("POST", "/v1/search", bearer(key)).status == 200


@pytest.mark.parametrize("path", ["/", "/health", "/ready", "/favicon.ico", "/explorer/x.js"])
def test_what_holds_nothing_of_anybody_needs_no_key(path: str) -> None:
    assert Client(keys=(KEY,)).ask("GET", path).status == 200


@pytest.mark.parametrize(
    "path", ["/metrics", "/mcp", "/openapi.json", "/explorer", "//health", "/health/", "/v1/info", "/HEALTH"]
)
def test_all_else_needs_a_key(path: str) -> None:
    assert Client(keys=(KEY,)).ask("GET", path).status == 401


def test_an_address_that_others_reach_needs_a_key_that_cannot_be_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="can be reached from other machines"):
        ServeSettings(host="0.0.0.0")
    with pytest.raises(InputError, match="at least 16"):
        ServeSettings(host="0.0.0.0", keys=("short",))
    monkeypatch.setenv("PYTRACE_API_KEY", f" {KEY} ,, {OTHER}")
    assert keys_of() == (KEY, OTHER)
    assert KEY not in repr(ServeSettings(keys=keys_of()))


# ---- pages of other sites


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil", "", "[::2]:1", "localhost@evil"]
)
def test_a_name_that_leads_here_is_refused(host: str) -> None:
    assert Client().ask(host=host).status == 403
    assert Client().ask("GET", "/health", host=host).status == 403


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8765", "127.0.0.1:1", "[::1]:8765"])
def test_names_of_this_machine_are_not(host: str) -> None:
    assert Client().ask(host=host).status == 200


@pytest.mark.parametrize(
    "header",
    [
        ("origin", "https://evil.example"),
        ("origin", "null"),
        ("origin", "http://localhost:1"),
        ("origin", "localhost"),
        ("sec-fetch-site", "cross-site"),
    ],
)
def test_a_page_of_another_site_changes_and_asks_nothing(header: tuple[str, str]) -> None:
    for method in ("POST", "DELETE", "PUT"):
        assert Client().ask(method, "/v1/search", header).status == 403


def test_the_own_page_may_ask_and_nobody_is_told_that_others_may() -> None:
    told = Client().ask("POST", "/v1/search", ("origin", "http://localhost:8765"), host="localhost:8765")
    assert told.status == 200
    assert not [name for name in told.headers if name.startswith("access-control")]


# ---- how much and how often


def test_a_body_that_says_it_is_too_large_is_refused_before_it_is_read() -> None:
    read = False

    async def app(*_: Any) -> None:
        nonlocal read
        read = True

    told = Client(app, max_body=1000).ask("POST", "/v1/search", ("content-length", "1001"))
    assert told.status == 413
    assert "1,001 bytes" in told.body["error"]["message"]
    assert not read


@pytest.mark.parametrize(
    ("length", "status"), [("9" * 5000, 413), ("9" * 19, 413), ("-1", 400), ("٣", 400), ("1e3", 400), ("", 400)]
)
def test_lengths_that_are_none(length: str, status: int) -> None:
    assert Client().ask("POST", "/v1/search", ("content-length", length)).status == status


def test_two_lengths_of_a_body_are_refused() -> None:
    told = Client().ask("POST", "/v1/search", ("content-length", "2"), ("transfer-encoding", "chunked"))
    assert told.status == 400
    assert told.headers["connection"] == "close"


def test_a_body_that_turns_out_too_large_is_refused_as_it_comes() -> None:
    told = Client(max_body=1000).ask(pieces=[b"x" * 600] * 2, whole=False)
    assert told.status == 413


def test_bodies_hold_no_more_than_their_bound_together_and_small_ones_are_taken() -> None:
    large, small = [b"x" * 70_000], [b"x" * 1000]

    async def together(client: Client) -> list[int]:
        waiting = [asyncio.create_task(client.send(pieces=large, whole=False)) for _ in range(3)]
        await asyncio.sleep(0.05)
        more = [await client.send(pieces=small), await client.send(pieces=large)]
        for task in waiting:
            task.cancel()
        answers = [*more, *await asyncio.gather(*waiting)]
        later = await client.send(pieces=large)
        return [told.status for told in [*answers, later]]

    # Two are held, the third one is too much, and so is one of those that come then; in the end all is free again.
    assert asyncio.run(together(Client(bodies=150_000))) == [200, 429, 503, 503, 429, 200]


def test_what_goes_to_the_disk_is_not_held() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        scope[ON_DISK] = True
        await answer(scope, receive, send)

    assert Client(app, bodies=1000).ask(pieces=[b"x" * 60_000] * 5).body == {"size": 300_000}


def test_each_client_has_its_own_rate() -> None:
    client = Client(rate=2)
    statuses = [client.ask(client=address).status for address in ("1.1.1.1", "1.1.1.1", "1.1.1.1", "2.2.2.2")]
    assert statuses == [200, 200, 429, 200]
    told = client.ask(client="1.1.1.1")
    assert 1 <= int(told.headers["retry-after"]) <= 31
    assert "2 requests a minute" in told.body["error"]["message"]
    assert client.ask("GET", "/health", client="1.1.1.1").status == 200


def test_a_rate_comes_back_with_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr("pytrace.serve.admission.time.monotonic", lambda: now[0])
    client = Client(rate=60)
    assert [client.ask().status for _ in range(61)] == [200] * 60 + [429]
    now[0] += 1.01
    assert [client.ask().status for _ in range(2)] == [200, 429]


# ---- time


async def endless(*_: Any) -> None:
    await asyncio.Event().wait()


def test_a_request_ends_when_its_time_is_over() -> None:
    begun = time.monotonic()
    told = Client(endless, timeout=0.1).ask()
    assert told.status == 504
    assert time.monotonic() - begun < 2


def test_a_client_may_ask_for_less_time_and_not_for_more() -> None:
    assert Client(endless, timeout=60).ask("POST", "/", ("x-request-timeout", "0.05")).status == 504
    assert Client(endless, timeout=0.05).ask("POST", "/", ("x-request-timeout", "1000")).status == 504


@pytest.mark.parametrize("seconds", ["-1", "0", "nan", "x", "1e10", "9" * 400])
def test_times_that_are_none_are_refused(seconds: str) -> None:
    assert Client().ask("POST", "/v1/search", ("x-request-timeout", seconds)).status == 400


def test_long_work_may_put_its_deadline_off() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        scope[DEADLINE] += 10
        await asyncio.sleep(0.2)
        await answer(scope, receive, send)

    assert Client(app, timeout=0.05).ask().status == 200


def test_a_body_that_comes_too_slowly_is_refused() -> None:
    begun = time.monotonic()
    told = Client(patience=0.2).ask(pieces=[b"x"] * 1000, pause=0.01)
    assert time.monotonic() - begun < 5
    assert told.status == 408
    assert told.headers["connection"] == "close"


def test_a_client_that_left_is_worked_for_no_more() -> None:
    ended = []

    async def app(*_: Any) -> None:
        try:
            await asyncio.sleep(10)
        finally:
            ended.append(True)

    told = Client(app).ask(leaves=True)
    assert told.status == 0
    assert ended
    assert told.log[-1]["status"] == 499


def test_who_is_still_worked_for_when_the_service_ends_is_told() -> None:
    async def stop() -> Answered:
        client = Client(endless)
        task = asyncio.create_task(client.send())
        await asyncio.sleep(0.05)
        task.cancel()
        return await task

    told = asyncio.run(stop())
    assert told.status == 503
    assert "stopped" in told.body["error"]["message"]


def test_a_request_that_the_server_cancels_while_the_service_goes_on_is_of_a_client_that_left() -> None:
    async def leave() -> Answered:
        client = Client(endless)
        client.guard.stopping = lambda: False
        task = asyncio.create_task(client.send())
        await asyncio.sleep(0.05)
        task.cancel()
        return await task

    told = asyncio.run(leave())
    assert told.status == 0  # nobody is there to be answered
    assert told.log[-1]["status"] == 499


# ---- errors


@pytest.mark.parametrize(
    ("error", "status", "says"),
    [
        (InputError("a is wrong; give b"), 400, "a is wrong; give b"),
        (NotFoundError("there is no document 'x'"), 404, "no document"),
        (ContextOverflowError("the prompt has 9 tokens; ask less"), 400, "ask less"),
        (BusyError("too much waits; try again", retry_after=7), 429, "try again"),
        (MissingDependencyError("x is needed; install y"), 501, "install y"),
        (HTTPException(404), 404, "/openapi.json"),
        (HTTPException(405), 405, "/openapi.json"),
        (DataError("is no PDF; save it anew", path="/srv/index/documents/a.pdf", line=3), 400, "a.pdf:3: is no PDF"),
        (StoreError(f"/srv/index/passages.arrays of {SECRET} is damaged"), 503, "log has more"),
        (ModelFileError("/srv/models/m.gguf is missing"), 500, "log has more"),
        (ServerError(f"http://10.0.0.7:8080 answered {SECRET}"), 502, "log has more"),
        (WorkerError(f"a process with {SECRET} ended"), 500, "log has more"),
        (ValueError(SECRET), 500, "log has more"),
        (RecursionError(SECRET), 500, "log has more"),
        (MemoryError(SECRET), 500, "log has more"),
    ],
)  # fmt: skip
def test_errors_say_what_the_client_can_do_and_nothing_of_the_machine(error: Exception, status: int, says: str) -> None:
    client = Client(failing(error))
    told = client.ask("POST", "/v1/search", ("x-request-id", "mine"))
    message = told.body["error"]["message"]
    assert told.status == status
    assert says in message
    assert told.body["error"]["request_id"] == told.headers["x-request-id"] == "mine"
    assert "/srv" not in message
    assert "10.0.0.7" not in message
    assert SECRET not in message
    assert "Traceback" not in client.stream.getvalue()
    if not isinstance(error, StoreError):  # says which file; it has no text
        assert SECRET not in client.stream.getvalue()
    if "log has more" in message:
        (failed,) = [line for line in told.log if line["event"] == "failed"]
        assert failed["request"] == "mine"
        assert failed["error"]["type"] == type(error).__name__
        assert any("test_guard" in frame for frame in failed["error"]["frames"])


@pytest.mark.parametrize("error", [CancelledRequestError("gone"), ClientDisconnect()])
def test_an_error_of_a_client_that_left_is_no_fault(error: Exception) -> None:
    told = Client(failing(error)).ask()
    assert told.status == 0
    assert [line["event"] for line in told.log] == ["request"]


def test_an_error_that_repeats_what_was_sent_is_cut() -> None:
    told = Client(failing(InputError("a" * 100_000 + " is wrong; give b"))).ask()
    assert len(told.body["error"]["message"]) < 1100
    assert told.body["error"]["message"].endswith("give b")


def test_an_answer_that_breaks_off_is_not_taken_for_a_whole_one() -> None:
    async def app(_: Any, __: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise ValueError(SECRET)

    client = Client(app)
    with pytest.raises(ConnectionResetError):
        client.ask()
    assert SECRET not in client.stream.getvalue()


def test_an_error_in_the_middle_of_a_stream_is_logged_and_told_without_its_words() -> None:
    async def app(scope: Any, _: Any, send: Any) -> None:
        detail = scope[TELL](ValueError(SECRET))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": json.dumps(detail.message).encode()})

    told = Client(app).ask()
    assert "log has more" in told.body
    assert [line["event"] for line in told.log] == ["failed", "request"]


# ---- what is told


def test_every_answer_tells_browsers_what_they_may_not() -> None:
    for told in (Client().ask(), Client(failing(InputError("no; do"))).ask(), Client(keys=(KEY,)).ask()):
        assert told.headers["x-content-type-options"] == "nosniff"
        assert told.headers["x-frame-options"] == "DENY"
        assert "default-src 'none'" in told.headers["content-security-policy"]
        assert told.headers["cross-origin-resource-policy"] == "same-origin"
        assert len(told.headers["x-request-id"]) == 32


@pytest.mark.parametrize("given", ["a b", "é", "a\r\nx: y", 'a"}', "a" * 65, "", "a\n", "../a"])
def test_a_request_id_that_could_be_something_else_is_not_taken(given: str) -> None:
    told = Client().ask("POST", "/v1/search", ("x-request-id", given))
    assert told.headers["x-request-id"] != given
    assert told.log[-1]["request"] == told.headers["x-request-id"]


def test_texts_are_logged_only_where_they_are_asked_for_and_steer_no_terminal() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        scope["pytrace.text"] = f"{SECRET}\x1b[2J\x9b1m\u202e\ud800\x7f\n"
        await answer(scope, receive, send)

    quiet = Client(app)
    assert quiet.ask().log
    assert SECRET not in quiet.stream.getvalue()
    telling = Client(app, log_texts=True)
    told = telling.ask()
    assert told.log[-1]["text"].startswith(SECRET)
    assert telling.stream.getvalue().strip().isascii()
    assert telling.stream.getvalue().strip().isprintable()


def test_a_method_of_any_length_takes_no_room_in_the_log() -> None:
    client = Client()
    client.ask("A" * 20_000, "/" + "b" * 20_000)
    assert len(client.stream.getvalue()) < 1000


def test_what_libraries_say_is_logged_by_its_place_alone() -> None:
    stream = io.StringIO()
    make_log(stream=stream)
    for name in ("asyncio", "mcp.server.x", "concurrent.futures"):
        try:
            raise ValueError(SECRET)
        except ValueError:
            logging.getLogger(name).exception("it happened with %s", SECRET)
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["level"] for line in lines] == ["error"] * 3
    assert SECRET not in stream.getvalue()
    assert "test_guard.py" in lines[0]["event"]


def test_a_websocket_is_not_answered() -> None:
    sent: list[Any] = []

    async def take(message: Any) -> None:
        sent.append(message)

    asyncio.run(Client().guard({"type": "websocket", "path": "/", "headers": []}, None, take))  # type: ignore[arg-type]
    assert not sent
