"""`pytrace serve` under ten thousand malformed and random requests, and under clients that are slow, many, or never leave.

One service of the tiny models is attacked by all of it. It must live, answer /health within a second throughout, never answer with a
fault of its own, keep what it was asked out of its log, and be as large and as right afterwards as before.
"""

from __future__ import annotations

import atexit
import json
import re
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import quote

from tests.attack.frame import Attack, _waited
from tests.serve import hostile_requests
from tests.serve.hostile_requests import CANARY, Hostile
from tests.serve.impatient_service import CONNECTIONS, PATIENCE
from tests.serve.service_process import ServiceProcess, build_index, served

# Requests in all, and those after which memory is measured first: caches and pools are full then.
REQUESTS, WARM_UP, BATCH = 10_000, 2_000, 500
SHORT = 60
CLIENTS = 6
# Seconds that /health may take; `make test` shares the processors with other tests.
HEALTH, HEALTH_IN_TESTS = 1.0, 10.0
# What memory may grow by after the warm-up, and what a machine's allocator is given besides.
GROWTH, BYTES = 0.05, 20 << 20
_ASKED = {"question": "Who founded the company that owns the Marigold Tern?", "chains": 3, "passages": 5}
# Files of an index that small changes have left in parts.
_SEGMENTS = 60
_HEAD = "Host: localhost\r\n"


def attacks(workplace: Path, random: Random, *, short: bool) -> Iterator[Attack]:
    """Yield the attacks of this part; the last ones look at what the others left."""
    siege = Siege(workplace, health=HEALTH_IN_TESTS if short else HEALTH, timeout=5 if short else 20)
    total, batch, warm = (SHORT, SHORT, 0) if short else (REQUESTS, BATCH, WARM_UP)
    for first in range(0, total, batch):
        yield Attack(f"requests from {first:,}", partial(siege.strike, random.random(), batch, measured=first == warm))
    if not short:
        yield Attack("memory", siege.check_memory)
        for name, timed in TIMED.items():
            yield Attack(name, partial(siege.endure, timed))
    yield Attack("the search afterwards", siege.check_search)
    yield Attack("file descriptors", siege.check_files)
    yield Attack("the log", siege.check_log)
    yield Attack("its end", siege.check_end)


class Siege:
    """A service that is attacked, from its first attack to its end."""

    def __init__(self, workplace: Path, *, health: float = HEALTH, timeout: int = 20) -> None:
        self._workplace = workplace
        self._most_health = health
        self._timeout = timeout
        self._stack = ExitStack()
        self._service: ServiceProcess | None = None
        self._before: Any = None
        self._documents: set[str] = set()
        self._memory = self._files = 0
        self.statuses: Counter[int] = Counter()
        self.slowest = 0.0
        self.course: list[int] = []

    @property
    def service(self) -> ServiceProcess:
        """The service; it is started when it is first attacked."""
        if self._service is None:
            index = build_index(self._workplace / "served")
            self._service = self._stack.enter_context(
                served(
                    index,
                    "--request-timeout",
                    f"{self._timeout}",
                    "--answering",
                    "2",
                    log=self._workplace / "service.log",
                    program="tests.serve.impatient_service",
                    environment={"PYTHONPATH": str(Path(__file__).parents[2])},
                )
            )
            atexit.register(self._stack.close)
            self._documents = {each["id"] for each in self._service.get("/v1/documents?limit=1000")["documents"]}
            self._before = self._search()
            self._files = sum(not name.startswith(str(index)) for name in open_files(self._service))
            self._memory = self._service.memory()
        return self._service

    @property
    def address(self) -> tuple[str, int]:
        """Where it is asked."""
        return "127.0.0.1", int(self.service.url.rpartition(":")[2])

    def strike(self, seed: float, count: int, *, measured: bool) -> str | None:
        """Send hostile requests from several clients at once, and judge each answer."""
        self.course.append(self.service.memory() >> 20)
        if measured:
            self._memory = settled_memory(self.service)
        made = [*hostile_requests.requests(Random(seed), count)]

        def one(hostile: Hostile) -> str | None:
            try:
                replies = hostile_requests.send(self.address, hostile)
            except OSError as error:
                return f"{hostile.name}: {error}"
            self.statuses.update(reply.status for reply in replies)
            faults = [fault for reply in replies if (fault := hostile_requests.fault_of(reply))]
            return f"{hostile.name}: {faults[0]}" if faults else None

        def all_of_them() -> str | None:
            with ThreadPoolExecutor(CLIENTS) as clients:
                faults = [fault for fault in clients.map(one, made) if fault]
            return f"{len(faults)} faults, such as {'; '.join(sorted(set(faults))[:5])}" if faults else None

        return self._healthy_while(all_of_them)

    def endure(self, timed: Callable[[tuple[str, int], ServiceProcess], str | None]) -> str | None:
        """Bear an attack that takes its time."""
        costly_bodies()
        return self._healthy_while(partial(timed, self.address, self.service))

    def _healthy_while(self, attack: Callable[[], str | None]) -> str | None:
        service = self.service
        over = threading.Event()
        slow: list[str] = []

        def watch() -> None:
            while not over.wait(0.05):
                begun, waited = time.monotonic(), _waited(service.process.pid)
                try:
                    status = service.request("GET", "/health", timeout=self._most_health + 5)[0]
                except OSError as error:
                    slow.append(f"/health: {error}")
                    continue
                # On a busy machine, less what the service waited for a processor.
                took = time.monotonic() - begun - (_waited(service.process.pid) - waited)
                self.slowest = max(self.slowest, took)
                if status != 200 or took > self._most_health:
                    slow.append(f"/health answered {status} after {took:.2f} s")

        watching = threading.Thread(target=watch)
        watching.start()
        try:
            fault = attack()
        finally:
            over.set()
            watching.join()
        if service.process.poll() is not None:
            return f"the service ended with {service.process.returncode}: {service.log_path.read_text()[-500:]}"
        return fault or (f"{len(slow)} times: {slow[0]}" if slow else None)

    def check_memory(self) -> str | None:
        """Compare memory with that after the warm-up."""
        before, now = self._memory, settled_memory(self.service)
        print(
            f"memory {before >> 20:,} MB, then {now >> 20:,} MB (after each batch {self.course}); the slowest /health took "
            f"{self.slowest:.2f} s; answers by status: {dict(self.statuses)}"
        )
        most = before + max(before * GROWTH, BYTES)
        if now > most:
            return f"grew from {before:,} to {now:,} bytes"
        return None

    def check_files(self) -> str | None:
        """Compare open files with those at the beginning, once connections and what was leased are closed.

        The index may have more segments than before, each with a file or two, but none that is gone from the disk.
        """
        index = str(self._workplace / "served")
        end = time.monotonic() + 3 * PATIENCE + 10
        while True:
            names = open_files(self.service)
            others = [name for name in names if not name.startswith(index)]
            held = {name for name in names if name.startswith(index)}  # each mapped array has one of its own
            gone = [name for name in names if name.startswith(index) and name.endswith("(deleted)")]
            if len(others) <= self._files + 2 and not gone and len(held) <= _SEGMENTS:
                return None
            if time.monotonic() > end:
                return f"{self._files} files were open besides the index, then {sorted(others)}; of the index {sorted(held)}"
            time.sleep(0.2)

    def check_log(self) -> str | None:
        """Look for tracebacks and texts in the log, whose lines are JSON."""
        self.service.get("/v1/info")
        content = self.service.log_path.read_text(encoding="utf-8", errors="replace")
        if "Traceback" in content:
            return f"a traceback: {content[content.index('Traceback') - 300 :][:1200]}"
        if CANARY in content:
            return f"the text of a request: {content[content.index(CANARY) - 300 :][:600]}"
        if failed := [
            line for line in content.splitlines() if line.startswith("{") and json.loads(line)["event"] == "failed"
        ]:
            return f"{len(failed)} faults: {failed[0][:1500]}"
        if other := [line for line in content.splitlines() if not line.startswith(("{", "pytrace: "))]:
            return f"a line that is no JSON: {other[0][:300]!r}"
        return None

    def check_search(self) -> str | None:
        """Remove what was added, and search as at the beginning."""
        end, quiet = time.monotonic() + 300, 0
        while quiet < 3 and time.monotonic() < end:  # of changes whose clients have left, some may still be under way
            listed = self.service.get("/v1/documents?limit=1000")["documents"]
            added = [each["id"] for each in listed if each["id"] not in self._documents][:100]
            if added:
                self.service.request(
                    "DELETE", "/v1/documents?" + "&".join(f"id={quote(name, safe='')}" for name in added)
                )
            quiet = 0 if added else quiet + 1
            time.sleep(0 if added else 1)
        now = self._search()
        return None if now == self._before else f"found {now}, and {self._before} before"

    def check_end(self) -> str | None:
        """End it by a signal."""
        status = self.service.stop()
        self._stack.close()
        return None if status in (0, 143, -15) else f"ended with {status}"

    def _search(self) -> list[Any]:
        assert self._service is not None
        found = self._service.post("/v1/search", _ASKED)
        return [(each["id"], round(each.get("relevance", 0.0), 4)) for each in found["evidence"]["sources"]]


def open_files(service: ServiceProcess) -> list[str]:
    """Return what a service has open, a name a file descriptor."""
    names = []
    for link in Path(f"/proc/{service.process.pid}/fd").iterdir():
        with suppress(OSError):
            names.append(str(link.readlink()))
    return names


def connections(service: ServiceProcess) -> int:
    """Count the sockets that a service has open."""
    return sum(name.startswith("socket:") for name in open_files(service))


def settled_memory(service: ServiceProcess) -> int:
    """Return the least memory that a service has within some seconds, in which what was asked ends."""
    least = service.memory()
    for _ in range(20):
        time.sleep(0.1)
        least = min(least, service.memory())
    return least


# ---- attacks that take their time


def slow_head(address: tuple[str, int], service: ServiceProcess) -> str | None:
    """Send a head a byte at a time: it must be cut off."""
    del service
    return _cut_off(address, b"", b"GET /health HTTP/1.1\r\nX-Slow: " + b"a" * 10_000, every=0.05, most=PATIENCE + 3)


def slow_body(address: tuple[str, int], service: ServiceProcess) -> str | None:
    """Send a body a byte at a time: it must be refused or cut off."""
    del service
    head = f"POST /v1/search HTTP/1.1\r\n{_HEAD}Content-Length: 10000\r\n\r\n".encode()
    return _cut_off(address, head, b" " * 10_000, every=0.05, most=2 * PATIENCE + 4)


def endless_body(address: tuple[str, int], service: ServiceProcess) -> str | None:
    """Go on sending a body that was answered: it must be cut off."""
    del service
    head = f"POST /nothing HTTP/1.1\r\n{_HEAD}Transfer-Encoding: chunked\r\n\r\n".encode()
    return _cut_off(address, head, b"1\r\na\r\n" * 10_000, every=0.01, most=PATIENCE + 4, step=6)


def _cut_off(
    address: tuple[str, int], head: bytes, rest: bytes, *, every: float, most: float, step: int = 1
) -> str | None:
    begun = time.monotonic()
    with socket.create_connection(address, timeout=5) as client:
        try:
            client.sendall(head)
            for place in range(0, len(rest), step):
                client.sendall(rest[place : place + step])
                time.sleep(every)
                if (took := time.monotonic() - begun) > most:
                    return f"was not cut off within {took:.1f} s"
        except OSError:
            pass
    return None


def slow_many(address: tuple[str, int], service: ServiceProcess) -> str | None:
    """Hold as many connections as there may be, and more, each with a head that never ends; others are served all the while."""
    clients = []
    with ExitStack() as stack:
        for _ in range(3 * CONNECTIONS):
            client = stack.enter_context(socket.create_connection(address, timeout=5))
            clients.append(client)
            with suppress(OSError):
                client.sendall(b"GET / HTTP/1.1\r\n")
        for _ in range(20):
            status, _, _ = service.request("POST", "/v1/search", _ASKED, timeout=10)
            if status != 200:
                return f"a search was answered with {status}"
            time.sleep(0.05)
        time.sleep(PATIENCE + 1)
        held = connections(service)
        if held > 20:
            return f"{held} connections are open after all were to be cut off"
    return None


def takes_nothing(address: tuple[str, int], service: ServiceProcess) -> str | None:
    """Ask for much, again and again, and take none of it."""
    before = connections(service)
    body = json.dumps({"input": ["a b c"] * 500}).encode()
    with ExitStack() as stack:
        for _ in range(8):
            client = stack.enter_context(socket.socket())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
            client.settimeout(1)
            client.connect(address)
            with suppress(OSError):
                for _ in range(10):
                    client.sendall(
                        f"POST /v1/embeddings HTTP/1.1\r\n{_HEAD}Content-Length: {len(body)}\r\n\r\n".encode() + body
                    )
        end = time.monotonic() + 4 * PATIENCE + 20
        while connections(service) > before + 2:
            if time.monotonic() > end:
                return f"{connections(service) - before} connections are still held"
            time.sleep(0.2)
    return None


def dropped_streams(address: tuple[str, int], service: ServiceProcess) -> str | None:
    """Ask for answers in stages, and leave after a stage, at once, or between."""
    random = Random(0)
    body = json.dumps(
        {"question": f"Who of {CANARY} founded it?", "stream": True, "method": "cot-sc", "settings": ["samples=20"]}
    ).encode()
    for _ in range(20):
        with socket.create_connection(address, timeout=5) as client:
            client.sendall(f"POST /v1/ask HTTP/1.1\r\n{_HEAD}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            if random.random() < 0.6:
                with suppress(OSError):
                    client.settimeout(random.random())
                    client.recv(random.randrange(1, 2000))
    end = time.monotonic() + 30
    while (
        waiting := _metric(service, "pytrace_requests_under_way")
        - 1
        + _metric(service, 'pytrace_waiting{work="answers"}')
    ):
        if time.monotonic() > end:
            return f"{waiting:g} requests of clients that left are still under way"
        time.sleep(0.2)
    return None


def _metric(service: ServiceProcess, name: str) -> float:
    _, content, _ = service.request("GET", "/metrics")
    found = re.search(rf"(?m)^{re.escape(name)} (\S+)$", content.decode())
    return 0.0 if found is None else float(found[1])


def large_at_once(address: tuple[str, int], service: ServiceProcess) -> str | None:
    """Send twenty bodies of 30 MB at once, none of which ends: what is held must stay within its bound."""
    before = service.memory()
    highest = before
    with ExitStack() as stack:
        clients = []
        for _ in range(20):
            client = stack.enter_context(socket.create_connection(address, timeout=1))
            client.sendall(f"POST /v1/search HTTP/1.1\r\n{_HEAD}Content-Length: 31000000\r\n\r\n".encode())
            clients.append(client)
        piece = b" " * (1 << 20)
        for _ in range(29):
            for client in clients:
                with suppress(OSError):
                    client.sendall(piece)
            highest = max(highest, service.memory())
    if highest - before > 400 << 20:
        return f"took {highest - before:,} bytes more"
    return None


@cache
def costly_bodies() -> tuple[tuple[str, bytes], ...]:
    """Return as much as may be asked for, as bytes: making them would hold up who watches."""
    text = "The Marigold Tern is owned by Brackwater Ferries. " * 4000
    bodies: tuple[tuple[str, Any], ...] = (
        ("/v1/rerank", {"query": CANARY, "documents": [text[:190_000]] * 150}),
        ("/v1/embeddings", {"input": [text[:15_000]] * 2000}),
        ("/v1/certify", {"responses": [{"question": CANARY, "text": text[:190_000]}] * 60, "facts": [["a", "b", "c"]] * 5000}),
        ("/v1/documents", {"documents": [{"id": f"much-{n}", "text": f"{n} {CANARY}"} for n in range(3000)]}),
        ("/v1/ask", {"question": CANARY, "method": "cot-sc", "settings": ["samples=64"]}),
    )  # fmt: skip
    return tuple((path, json.dumps(body).encode()) for path, body in bodies)


def costly(address: tuple[str, int], service: ServiceProcess) -> str | None:
    """Ask for as much as may be asked for, several times over, and leave after a while."""
    del address
    bodies = costly_bodies()
    faults: list[str] = []

    def ask(path: str, body: bytes) -> None:
        try:
            status, answer, _ = service.request("POST", path, body, timeout=40, headers={"X-Request-Timeout": "10"})
        except OSError as error:
            if path != "/v1/documents":  # what was begun of a change is done, however long it takes
                faults.append(f"{path}: {error}")
            return
        if status not in {200, 400, 413, 429, 504}:
            faults.append(f"{path}: {status} {str(answer)[:200]}")

    with ThreadPoolExecutor(len(bodies)) as clients:
        for path, body in bodies:
            clients.submit(ask, path, body)
    return "; ".join(faults) or None


TIMED: dict[str, Callable[[tuple[str, int], ServiceProcess], str | None]] = {
    "a head a byte at a time": slow_head,
    "a body a byte at a time": slow_body,
    "a body without end": endless_body,
    "more connections than there may be": slow_many,
    "clients that take nothing": takes_nothing,
    "streams that are dropped": dropped_streams,
    "large bodies at once": large_at_once,
    "all that costs much": costly,
}
"""The attacks that take their time, by name."""
