"""What stands before every request: it is let in or refused, may take its time and no more, and nobody waits for one who left."""

from __future__ import annotations

import asyncio
import logging
import re
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import PurePath
from typing import Any, NamedTuple

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pytrace.errors import (
    CancelledRequestError,
    ContextOverflowError,
    DataError,
    InputError,
    LogitsUnavailableError,
    MissingDependencyError,
    ModelFileError,
    ServerError,
    StoreError,
)
from pytrace.serve.admission import Admission, Refusal
from pytrace.serve.failures import BusyError, NotFoundError
from pytrace.serve.messages import ErrorDetail, ErrorResponse
from pytrace.serve.settings import ServeSettings
from pytrace.serve.telemetry import Metrics

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}\Z")
# A body may be sent as slowly as a bad line does.
_LEAST_RATE = 16 << 10
# Messages of a body that wait for their reader.
_AHEAD = 4
# Characters of an error's message.
_LONGEST_MESSAGE = 1000
# What a browser is told of every answer. Cytoscape sets styles by the object model, which needs no permission.
_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (
        b"content-security-policy",
        b"; ".join(
            (
                b"default-src 'none'",
                b"script-src 'self'",
                b"style-src 'self'",
                b"img-src 'self' blob: data:",
                b"connect-src 'self'",
                b"base-uri 'none'",
                b"form-action 'none'",
                b"frame-ancestors 'none'",
            )
        ),
    ),
]
_CLIENT_CLOSED = 499  # as nginx has it; nobody sees it but the log

ROUTE = "pytrace.route"
"""In a request's scope: the route that it took."""
REQUEST = "pytrace.request"
"""In a request's scope: its id."""
DEADLINE = "pytrace.deadline"
"""In a request's scope: the event loop's time by which it must be done, which a route of long work may put off."""
TELL = "pytrace.tell"
"""In a request's scope: a function that says to the client what an error is, for one that comes when an answer has begun."""
ON_DISK = "pytrace.on_disk"
"""In a request's scope: true where its body is written to a file as it comes, so that no memory is held by it."""


# What is the request's fault, in a sentence.
_ASKED_WRONGLY = (
    InputError,
    msgspec.ValidationError,
    msgspec.DecodeError,
    LogitsUnavailableError,
    ContextOverflowError,
)


class _Failure(NamedTuple):
    status: int
    message: str
    kind: str
    headers: dict[str, str]


class Guard:
    """An ASGI application around another one.

    Parameters
    ----------
    app
        Takes requests that were let in. Its exceptions become answers: those of pytrace with their sentence, all others without.
    settings, metrics, log
        Of the service.
    stopping
        Whether the service is being stopped, which a request that the server cancels is told.
    """

    def __init__(
        self,
        app: ASGIApp,
        settings: ServeSettings,
        metrics: Metrics,
        log: logging.Logger,
        *,
        stopping: Callable[[], bool] = lambda: True,
    ) -> None:
        self.stopping = stopping
        self._app = app
        self._settings = settings
        self._metrics = metrics
        self._log = log
        self._admission = Admission(settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take a request."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return  # a websocket is refused by closing its connection
        await _Exchange(self, scope, receive, send).run()


class _Exchange:
    """One request and its answer."""

    def __init__(self, guard: Guard, scope: Scope, receive: Receive, send: Send) -> None:
        self._guard = guard
        self._settings = guard._settings
        self._scope = scope
        self._receive, self._send = receive, send
        self._headers = {key.decode("latin-1"): value.decode("latin-1") for key, value in scope["headers"]}
        given = self._headers.get("x-request-id", "")
        self.id = given if _REQUEST_ID.match(given) else uuid.uuid4().hex
        self._begun = time.monotonic()
        self._status = 0
        self._sent = self._received = self._held = 0
        self._whole = False
        self._answered = False
        self._body: asyncio.Queue[Message] = asyncio.Queue(_AHEAD)
        self._gone = asyncio.Event()
        self._refusal: Refusal | None = None
        scope[REQUEST] = self.id
        scope[ROUTE] = "other"
        scope[TELL] = self._tell
        scope["app"] = self  # then Starlette's routes raise what is no answer of theirs

    async def run(self) -> None:
        guard = self._guard
        client = ""
        guard._metrics.under_way.inc()
        try:
            client = guard._admission.admit(self._scope, self._headers)
            await self._within_time()
        except Exception as error:  # noqa: BLE001  # all become answers
            await self._answer(self._failure(error))
        except asyncio.CancelledError:
            # By a server that is being stopped, whose patience has ended; or by one that noticed first that the client left.
            if guard.stopping():
                stopped = "the service is being stopped; ask again in a while"
                await self._answer(_Failure(503, stopped, "stopping", {"retry-after": "5"}))
            else:
                self._status = _CLIENT_CLOSED
        finally:
            guard._metrics.under_way.dec()
            guard._admission.release(self._held)
            self._finish(client)

    async def _within_time(self) -> None:
        """Let the application answer, until it has, the client leaves, or the time is over."""
        loop = asyncio.get_running_loop()
        self._scope[DEADLINE] = loop.time() + self._allowed()
        work = loop.create_task(self._call())
        pump = loop.create_task(self._pump(work))
        try:
            while not work.done():
                left = self._scope[DEADLINE] - loop.time()
                if left <= 0:
                    work.cancel()
                    await asyncio.wait({work})
                    raise Refusal(
                        504,
                        "the request took longer than it may; ask less at once, or raise --request-timeout",
                        "timeout",
                    )
                await asyncio.wait({work}, timeout=left)
            if self._refusal is not None:
                raise self._refusal
            if work.cancelled():
                raise CancelledRequestError("the client left")
            work.result()
        finally:
            pump.cancel()
            if not work.done():
                work.cancel()
            with suppress(asyncio.CancelledError):
                await pump

    async def _call(self) -> None:
        await self._guard._app(self._scope, self._next_message, self._send_on)

    def _allowed(self) -> float:
        """Return the seconds that the request may take: the service's, or fewer where the client says so."""
        given = self._headers.get("x-request-timeout", "")
        try:
            seconds = float(given) if given else self._settings.timeout
        except ValueError:
            seconds = -1.0
        if not 0 < seconds <= 1e9:
            raise Refusal(
                400, f"the x-request-timeout {given[:40]!a} is no number of seconds; send one", "invalid_request"
            )
        return min(seconds, self._settings.timeout)

    async def _pump(self, work: asyncio.Task[None]) -> None:
        """Read the body as it is taken, and notice when the client leaves."""
        reading, waited = True, 0.0  # of the client alone, not of who takes what has come
        while True:
            if reading:
                begun = time.monotonic()
                due = self._settings.patience + self._received / _LEAST_RATE
                try:
                    async with asyncio.timeout(max(due - waited, 0.0)):
                        message = await self._receive()
                    waited += time.monotonic() - begun
                except TimeoutError:
                    self._refusal = Refusal(
                        408, "the body came too slowly; send it at once", "timeout", {"connection": "close"}
                    )
                    work.cancel()
                    return
            else:
                message = await self._receive()
            if message["type"] == "http.disconnect":
                if not self._answered:  # the server says so after an answer, too, whether or not the client is there
                    self._gone.set()
                    work.cancel()
                return
            if not reading:
                continue
            size = len(message.get("body", b""))
            self._received += size
            try:
                if self._received > self._settings.max_body:
                    raise self._guard._admission.too_large(f"more than {self._settings.max_body:,} bytes")
                if not self._scope.get(ON_DISK):
                    self._guard._admission.hold(size, self._held)
                    self._held += size
            except Refusal as refusal:
                self._refusal = refusal
                work.cancel()
                return
            await self._body.put(message)
            reading = bool(message.get("more_body"))

    async def _next_message(self) -> Message:
        """Return the next message of the body; once it is whole, the client's leaving."""
        if not self._whole:
            message = await self._body.get()
            self._whole = not message.get("more_body")
            return message
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send_on(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            given = {name.lower() for name, _ in message.get("headers", ())}
            more = [(name, value) for name, value in _HEADERS if name not in given]
            message = {
                **message,
                "headers": [*message.get("headers", ()), *more, (b"x-request-id", self.id.encode())],
            }
        else:
            self._sent += len(message.get("body", b""))
            self._answered = not message.get("more_body", False)
        await self._send(message)

    def _tell(self, error: Exception) -> ErrorDetail:
        """Say to the client what an error is, in a message of an answer that has begun."""
        return self._detail(self._failure(error))

    def _detail(self, failure: _Failure) -> ErrorDetail:
        message = failure.message
        if len(message) > _LONGEST_MESSAGE:  # it repeats what was sent
            message = f"{message[: _LONGEST_MESSAGE // 2]} … {message[-_LONGEST_MESSAGE // 2 :]}"
        return ErrorDetail(message=message, type=failure.kind, request_id=self.id)

    def _failure(self, error: Exception) -> _Failure:
        """Say what an error is to the client: nothing of it that was not written for somebody to read from elsewhere."""
        if isinstance(error, CancelledRequestError) or self._gone.is_set():
            return _Failure(_CLIENT_CLOSED, "the client left", "cancelled", {})
        if isinstance(error, Refusal):
            return _Failure(error.status, str(error), error.kind, error.headers)
        if isinstance(error, BusyError):
            return _Failure(429, str(error), "busy", {"retry-after": str(error.retry_after)})
        if isinstance(error, HTTPException):
            known = {
                404: f"there is nothing at {self._scope['path'][:100]!a}; /openapi.json lists what there is",
                405: f"{self._scope['method'][:20]!a} is not what {self._scope['path'][:100]!a} is for; see /openapi.json",
            }
            message = known.get(error.status_code, error.detail)
            return _Failure(error.status_code, message, "invalid_request", dict(error.headers or {}))
        if isinstance(error, NotFoundError):
            return _Failure(404, str(error), "not_found", {})
        if isinstance(error, ClientDisconnect):
            return _Failure(_CLIENT_CLOSED, "the client left", "cancelled", {})
        if isinstance(error, MissingDependencyError):
            return _Failure(501, str(error), "not_installed", {})
        if isinstance(error, _ASKED_WRONGLY) and not isinstance(error, ModelFileError):
            message = str(error)
            if isinstance(error, DataError) and error.path is not None:
                # Where files lie on this machine is nobody's business.
                message = message.replace(str(error.path), PurePath(str(error.path)).name)
            return _Failure(400, message, "invalid_request", {})
        self._log_error(error)
        more = f"its log has more under the request {self.id}"
        if isinstance(error, ServerError):
            return _Failure(502, f"the server of a model that this service asks has failed; {more}", "model_server", {})
        if isinstance(error, StoreError):
            return _Failure(503, f"the service's files cannot be used as they are; {more}", "storage", {})
        return _Failure(500, f"the service failed; {more}", "internal", {})

    def _log_error(self, error: Exception) -> None:
        fields = {"request": self.id}
        if isinstance(error, StoreError | ModelFileError):  # says which file, and has no text of a request
            fields["why"] = str(error)
        self._guard._log.error("failed", exc_info=error, extra={"fields": fields})

    async def _answer(self, failure: _Failure) -> None:
        """Send an error as an answer, if none was begun; one that was is broken off."""
        started, self._status = self._status, failure.status
        if started or failure.status == _CLIENT_CLOSED:
            if started and failure.status != _CLIENT_CLOSED:
                # The client must not take half an answer for a whole one: without an end the connection is closed.
                raise ConnectionResetError(failure.message)
            return
        body = msgspec.json.encode(ErrorResponse(error=self._detail(failure)))
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        headers += [(name.encode(), value.encode("latin-1")) for name, value in failure.headers.items()]
        with suppress(OSError):
            await self._send_on({"type": "http.response.start", "status": failure.status, "headers": headers})
            await self._send_on({"type": "http.response.body", "body": body})

    def _finish(self, client: str) -> None:
        seconds = time.monotonic() - self._begun
        route = self._scope[ROUTE]
        self._guard._metrics.observe_request(route, self._status, seconds)
        if route in {"/health", "/ready", "/metrics"} and self._status == 200:
            return  # asked every few seconds
        fields: dict[str, Any] = {
            "request": self.id,
            "method": self._scope["method"][:20],
            "route": route,
            "status": self._status,
            "ms": round(seconds * 1000, 1),
            "received": self._received,
            "sent": self._sent,
            "client": client or str((self._scope.get("client") or ("",))[0]),
        }
        if self._settings.log_texts and "pytrace.text" in self._scope:
            fields["text"] = self._scope["pytrace.text"]
        self._guard._log.info("request", extra={"fields": fields})
