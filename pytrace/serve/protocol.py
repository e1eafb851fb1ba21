"""Connections that cost the service nothing: those that send or take nothing are closed, and so are too many."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol

_FULL = (
    b"HTTP/1.1 429 Too Many Requests\r\ncontent-type: application/json\r\nretry-after: 1\r\nconnection: close\r\n"
    b"content-length: 93\r\n\r\n"
    b'{"error":{"message":"too many connections are open; try again in a second","type":"busy"}}\n  '
)


def guarded_protocol(*, patience: float, connections: int) -> type[H11Protocol]:
    """Return the protocol of a server whose clients have so many seconds to send a request's head or to take what is sent to them.

    A body has its own time, by who reads it. More connections than `connections` are refused.
    """

    class Guarded(_GuardedProtocol):
        seconds = patience
        most = connections

    return Guarded


class _GuardedProtocol(H11Protocol):
    seconds: ClassVar[float]
    most: ClassVar[int]
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.most:
            transport.write(_FULL)
            transport.close()
        else:
            self._begin()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        before = self.cycle
        super().data_received(data)
        if self.cycle is not before:  # the head of a request is whole
            self._end()
        elif self._timer is None and (before is None or before.response_complete):
            self._begin()  # the next head on a kept connection

    def pause_writing(self) -> None:
        super().pause_writing()
        self._end()
        self._begin()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._end()

    def _begin(self) -> None:
        self._timer = self.loop.call_later(self.seconds, self._cut_off)

    def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _cut_off(self, *_: Any) -> None:
        self._timer = None
        self.transport.abort()
