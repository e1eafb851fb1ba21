"""A load generator over HTTP/1.1: requests at a constant rate or by so many clients, in a process of its own.

Connections are kept, requests are encoded before the clock starts, and of an answer as much is parsed as is needed to find its end.
At a rate (an open loop) each request is due at its own time whatever became of those before, and latency counts from then on: an
answer that holds up others is charged for all of them. With clients (a closed loop) each sends its next request when it has its answer.

    answers = run_load(Load(url, [(path, body), …], rate=10.0))
"""

from __future__ import annotations

import asyncio
import math
import random
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

# Of the standard normal distribution: 95 % lie within.
_WITHIN = 1.96
# Open connections at most; an answer to a request that finds none free is waited for.
_CONNECTIONS = 256


class Load(msgspec.Struct, kw_only=True):
    """What is sent: requests in their order, each a path and a body, either `rate` a second or as `clients` clients come to them.

    At a rate all requests are sent; `poisson` draws the gaps between them. Clients send for `ramp` + `seconds`, or all requests if
    `seconds` is 0; what ends within `ramp` does not count as throughput. With `contents` what is answered is returned, too.
    """

    url: str
    requests: list[tuple[str, bytes]]
    rate: float = 0.0
    poisson: bool = False
    seed: int = 0
    clients: int = 1
    ramp: float = 0.0
    seconds: float = 0.0
    contents: bool = False
    accept: str = "*/*"


class Sent(msgspec.Struct, array_like=True):
    """A request's times in seconds from the start, and its answer; status 0: there was none."""

    number: int
    due: float
    begun: float
    first: float
    end: float
    status: int
    content: bytes = b""

    @property
    def latency(self) -> float:
        """Seconds from when it was due to its answer's end."""
        return self.end - self.due


class Answers(msgspec.Struct, kw_only=True):
    """What became of a load: `throughput` are successes a second, `busy` is the share of a core that the generator itself took."""

    sent: list[Sent]
    throughput: float
    busy: float

    @property
    def failed(self) -> list[Sent]:
        """Requests without a successful answer."""
        return [each for each in self.sent if each.status != 200]


class Reply(NamedTuple):
    """An answer: when its request was sent, when the first byte of its body came, and when the last."""

    status: int
    begun: float
    first: float
    end: float
    content: bytes


class Connection(asyncio.Protocol):
    """A kept connection, which has one request at a time."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.closed = False
        self._waiting: asyncio.Future[Reply] | None = None
        self._first = self._begun = 0.0
        self._begin()

    @classmethod
    async def open(cls, host: str, port: int) -> Connection:
        """Connect."""
        _, connection = await asyncio.get_running_loop().create_connection(cls, host, port)
        return connection

    async def ask(self, request: bytes) -> Reply:
        """Send a request and wait for its answer; `ConnectionError` where the connection ends before it is whole."""
        if self.closed or self.transport is None:
            raise ConnectionResetError("the connection is closed")
        self._waiting = asyncio.get_running_loop().create_future()
        self._begin()
        self._begun = time.perf_counter()
        self.transport.write(request)
        return await self._waiting

    def write(self, data: bytes) -> None:
        """Send bytes that need not be a request."""
        assert self.transport is not None
        self.transport.write(data)

    def abort(self) -> None:
        """Leave at once, whatever is on the way."""
        self.closed = True
        if self.transport is not None:
            self.transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(ConnectionResetError(f"the connection ended ({exc})"))

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if not self._status and not self._read_head():
            return
        if not self._first and self._buffer:
            self._first = time.perf_counter()
        if self._is_whole():
            self._finish()

    def _begin(self) -> None:
        self._buffer = bytearray()
        self._content = bytearray()
        self._status = 0
        self._length = -1  # of the body; -1: it comes in chunks
        self._first = self._begun = 0.0

    def _read_head(self) -> bool:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return False
        line, *fields = bytes(self._buffer[:end]).split(b"\r\n")
        del self._buffer[: end + 4]
        self._status = int(line.split(b" ", 2)[1])
        for field in fields:
            name, _, value = field.partition(b":")
            if name.lower() == b"content-length":
                self._length = int(value)
        return True

    def _is_whole(self) -> bool:
        if self._length >= 0:
            if len(self._buffer) < self._length:
                return False
            self._content = self._buffer
            return True
        while (end := self._buffer.find(b"\r\n")) >= 0:
            size = int(self._buffer[:end].split(b";")[0], 16)
            if len(self._buffer) < end + 2 + size + 2:
                return False
            self._content += self._buffer[end + 2 : end + 2 + size]
            del self._buffer[: end + 2 + size + 2]
            if not size:
                return True
        return False

    def _finish(self) -> None:
        now = time.perf_counter()
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(Reply(self._status, self._begun, self._first or now, now, bytes(self._content)))


def encode_request(method: str, url: str, path: str, body: bytes = b"", *, accept: str = "*/*") -> bytes:
    """Return a request to an address as it goes over the wire."""
    head = f"{method} {path} HTTP/1.1\r\nhost: {url.partition('//')[2]}\r\naccept: {accept}\r\n"
    if body:
        head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
    return head.encode() + b"\r\n" + body


def host_of(url: str) -> tuple[str, int]:
    """Return the host and the port of an address."""
    host, _, port = url.partition("//")[2].rstrip("/").rpartition(":")
    return host.strip("[]"), int(port)


def run_load(load: Load, *, timeout: float = 3600.0) -> Answers:
    """Send a load from a process of its own, and return what became of it."""
    command = [sys.executable, "-m", "benches.load"]
    done = subprocess.run(
        command,
        input=msgspec.msgpack.encode(load),
        stdout=subprocess.PIPE,
        check=True,
        timeout=timeout,
        cwd=Path(__file__).parents[1],
    )
    return msgspec.msgpack.decode(done.stdout, type=Answers)


class Share(NamedTuple):
    """A quantile of readings, and the interval that has the true one with 95 % (by the ranks of the readings)."""

    value: float
    low: float
    high: float


def quantile(readings: Iterable[float], share: float) -> Share:
    """Return a quantile of readings with its interval, which is free of any distribution."""
    ordered = sorted(readings)
    count = len(ordered)
    if not count:
        return Share(math.nan, math.nan, math.nan)
    spread = _WITHIN * math.sqrt(count * share * (1 - share))
    ranks = (math.ceil(count * share), math.floor(count * share - spread), math.ceil(count * share + spread) + 1)
    value, low, high = (ordered[min(max(rank, 1), count) - 1] for rank in ranks)
    return Share(value, low, high)


class _Sender:
    """Sends a load, and notes what becomes of each request."""

    def __init__(self, load: Load) -> None:
        self.load = load
        self.sent: list[Sent] = []
        self._host, self._port = host_of(load.url)
        self._requests = [encode_request("POST", load.url, *each, accept=load.accept) for each in load.requests]
        self._start = time.perf_counter() + 0.05

    async def send(self) -> Answers:
        """Send all of it."""
        load = self.load
        used = time.process_time()
        await (self._at_rate() if load.rate else self._by_clients())
        used = time.process_time() - used
        last = max((each.end for each in self.sent), default=0.0)
        until = load.ramp + load.seconds if load.seconds else last
        if load.seconds and len(self.sent) == len(load.requests) and last < until:
            raise SystemExit(f"{len(load.requests):,} requests were sent before {until:g} s were over; give more")
        counted = sum(each.status == 200 and load.ramp < each.end <= until for each in self.sent)
        throughput = counted / max(until - load.ramp, 1e-9)
        return Answers(sent=self.sent, throughput=throughput, busy=used / max(last, 1e-9))

    async def _at_rate(self) -> None:
        load = self.load
        free = [await self._open() for _ in range(4)]
        places = asyncio.Semaphore(_CONNECTIONS)
        draw = random.Random(load.seed)
        due = 0.0
        under_way: set[asyncio.Task[None]] = set()

        async def one(number: int, due: float) -> None:
            async with places:
                while free and free[-1].closed:  # the service has not kept it for so long
                    free.pop()
                connection = free.pop() if free else await self._open()
                await self._ask(number, due, connection)
                if not connection.closed:
                    free.append(connection)

        for number in range(len(self._requests)):
            pause = self._start + due - time.perf_counter()
            if pause > 0:
                await asyncio.sleep(pause)
            task = asyncio.create_task(one(number, due))
            under_way.add(task)
            task.add_done_callback(under_way.discard)
            due += draw.expovariate(load.rate) if load.poisson else 1 / load.rate
        if under_way:
            await asyncio.wait(under_way)

    async def _by_clients(self) -> None:
        load = self.load
        end = self._start + load.ramp + load.seconds if load.seconds else math.inf
        numbers = iter(range(len(self._requests)))

        async def client() -> None:
            connection = await self._open()
            while time.perf_counter() < end and (number := next(numbers, None)) is not None:
                if connection.closed:
                    connection = await self._open()
                await self._ask(number, time.perf_counter() - self._start, connection)

        await asyncio.gather(*(client() for _ in range(load.clients)))

    async def _open(self) -> Connection:
        return await Connection.open(self._host, self._port)

    async def _ask(self, number: int, due: float, connection: Connection) -> None:
        try:
            reply = await connection.ask(self._requests[number])
        except ConnectionError:
            now = time.perf_counter() - self._start
            self.sent.append(Sent(number, due, now, now, now, 0))
            return
        begun, first, end = (moment - self._start for moment in (reply.begun, reply.first, reply.end))
        content = reply.content if self.load.contents else b""
        self.sent.append(Sent(number, due, begun, first, end, reply.status, content))


async def _send(load: Load) -> Answers:
    return await _Sender(load).send()


def main() -> int:
    """Read a load from standard input, send it, and write what became of it."""
    load = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Load)
    sys.stdout.buffer.write(msgspec.msgpack.encode(asyncio.run(_send(load))))
    return 0


def failures(sent: Sequence[Sent]) -> str:
    """Say how many requests failed, by status."""
    counts: dict[int, int] = {}
    for each in sent:
        if each.status != 200:
            counts[each.status] = counts.get(each.status, 0) + 1
    return ", ".join(f"{count:,} with {status or 'no answer'}" for status, count in sorted(counts.items())) or "none"


if __name__ == "__main__":
    sys.exit(main())
