"""Connections that cost the service nothing: those that send or take nothing are closed, and so are too many."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import ClassVar, cast

import msgspec
from uvicorn.protocols.http.h11_impl import H11Protocol

from pytrace.serve.messages import ErrorDetail, ErrorResponse

# Bytes a second that a client takes at least, as a bad line does.
_LEAST_RATE = 4 << 10
# Seconds after which a connection that is too many must have sent its request.
_MOMENT = 0.05
_UNREADABLE = {
    400: "this is not HTTP/1.1 as it should be; send it with a client of HTTP",
    431: "the head of the request is too large; send fewer and shorter headers, and a shorter address",
    501: "the body comes in a way that is not known here; send it whole or chunked",
}


def _error(status: str, message: str, kind: str, *headers: str) -> bytes:
    body = msgspec.json.encode(ErrorResponse(error=ErrorDetail(message=message, type=kind)))
    head = [
        f"HTTP/1.1 {status}",
        "content-type: application/json",
        f"content-length: {len(body)}",
        "x-content-type-options: nosniff",
        "connection: close",
        *headers,
    ]
    return "\r\n".join([*head, "", ""]).encode() + body


_FULL = _error(
    "429 Too Many Requests", "too many connections are open; try again in a second", "busy", "retry-after: 1"
)
_BAD = {
    400: _error("400 Bad Request", _UNREADABLE[400], "invalid_request"),
    431: _error("431 Request Header Fields Too Large", _UNREADABLE[431], "too_large"),
    501: _error("501 Not Implemented", _UNREADABLE[501], "invalid_request"),
}


def guarded_protocol(*, patience: float, connections: int) -> type[H11Protocol]:
    """Return the protocol of a server whose clients have so many seconds to send a request's head or to take what is sent to them.

    A body has its own time, by who reads it. Where more than `connections` are open, the one that has been idle for longest goes,
    or the new one if none is; new ones have a moment to send their request, and so up to twice as many may be open.
    """

    class Guarded(_GuardedProtocol):
        seconds = patience
        most = connections

    return Guarded


class _GuardedProtocol(H11Protocol):
    seconds: ClassVar[float]
    most: ClassVar[int]

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._waits: dict[str, asyncio.TimerHandle] = {}  # for a head to come, and for an answer to be taken
        self._idle_since = self.loop.time()
        self._discards = False
        self._wait("head", self._cut_off)
        open_now = self._open_now()
        if len(open_now) <= self.most:
            return
        # Who only holds connections must not keep others out.
        if not any(each._idle for each in open_now if each is not self):
            transport.write(_FULL)
            transport.close()
            self._watch_taking()
        elif len(open_now) > 2 * self.most:
            self._make_room()
        else:  # of those that come at once, some have a request that is read next
            self.loop.call_later(_MOMENT, self._make_room)

    def _open_now(self) -> list[_GuardedProtocol]:
        return [each for each in cast("set[_GuardedProtocol]", self.connections) if not each.transport.is_closing()]

    def _make_room(self) -> None:
        """Close the connection that has been idle for longest, if there are still too many."""
        open_now = self._open_now()
        idle = [each for each in open_now if each._idle]
        if len(open_now) > self.most and idle:
            min(idle, key=lambda each: each._idle_since).transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        for what in [*self._waits]:
            self._end(what)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing() or self._discards:
            return
        before = self.cycle
        super().data_received(data)
        if self.cycle is not before:  # the head of a request is whole
            self._end("head")
        elif "head" not in self._waits and self._idle:
            # The next head on a kept connection, or the rest of a body that was answered before it was whole.
            self._wait("head", self._cut_off)

    def on_response_complete(self) -> None:
        self._idle_since = self.loop.time()
        super().on_response_complete()
        if self.transport.is_closing():
            self._watch_taking()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._watch_taking()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP, in the shape of all errors, unless an answer has begun."""
        del msg
        if self._idle or not self.cycle.response_started:
            hint = getattr(sys.exception(), "error_status_hint", 400)
            self.transport.write(_BAD.get(hint, _BAD[400]))
        if not self._idle:
            # Nobody is there any more for whoever works on the request.
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        # A connection that is closed while its client sends is reset, and the answer lost: what comes is thrown away for a while.
        self._discards = True
        with suppress(OSError):  # the client has left, which is not noticed while what it sent waits
            self.transport.write_eof()
        if "head" not in self._waits:
            self._wait("head", self._cut_off)

    def shutdown(self) -> None:
        if self._discards:
            self.transport.close()
        else:
            super().shutdown()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_taking()

    def resume_writing(self) -> None:
        super().resume_writing()
        if not self.transport.is_closing():
            self._end("taking")

    @property
    def _idle(self) -> bool:
        """Whether no request is under way."""
        return self.cycle is None or self.cycle.response_complete or self._discards

    def _watch_taking(self) -> None:
        """Cut off a client that does not take what is sent to it, or the rest of that when the connection is being closed."""
        self._end("taking")
        self._wait("taking", self._check_taking, self.transport.get_write_buffer_size())

    def _check_taking(self, before: int) -> None:
        left = self.transport.get_write_buffer_size()
        if before - left < self.seconds * _LEAST_RATE:
            self._cut_off()
        else:
            self._wait("taking", self._check_taking, left)

    def _wait(self, what: str, call: Callable[..., object], *given: object) -> None:
        self._waits[what] = self.loop.call_later(self.seconds, call, *given)

    def _end(self, what: str) -> None:
        if what in self._waits:
            self._waits.pop(what).cancel()

    def _cut_off(self) -> None:
        self.transport.abort()
