"""`pytrace serve` under mixed load for a long time, with documents that come and go, clients that vanish, and a kill -9.

    python -m benches.soak --minutes 30 [--index DIR --questions FILE…] [--kills 1] [--threads N] [--seed 0] [--json FILE]

`make soak` runs it for 90 minutes, then half an hour of `benches.index_kills`.

Documents that nobody else could have written are added, replaced and removed while others search, rank and ask. Each whose addition
was answered must be found, as it is now, by a question of it; one whose removal was answered must not. Now and then changes are held,
and questions get what the same search finds in the same index in this process. Clients leave in the middle of heads, bodies and
answers. `pytrace index add`, `remove` and `verify` work on the same index meanwhile, and every third of them is killed and then called
again. In the middle of a change the service is killed and started again, and then each document must be there that was before; what
was under way may have been done or not. Memory is flat where the resident set of the last third of each life is within 5 % of that of
the second third; the first warms up. That holds for this process, too, which opens and searches the index again and again. The exit
status is 1 where anything was wrong. The index is copied first.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

import pytrace
from benches.load import Connection, encode_request, host_of
from benches.service import PACKAGES, TOLERANCE, difference, make_index, read_questions
from benches.service_peers import cosines
from benches.words import word
from pytrace.bench import machine
from pytrace.bench.peers import version as version_of
from pytrace.retrieval.passages.manifest import MANIFEST
from tests.remote_servers import free_port
from tests.serve.service_process import ServiceProcess, resident, served

FLAT = 0.05
# Documents of the soak that the index has, at least and at most.
_FEWEST, _MOST = 10, 40
# Removed documents that are still looked for, and documents whose clients vanish before they are told anything.
_GONE, _ORPHANS = 30, 3
# Questions of a comparison.
_COMPARED = 12
# Seconds after which the service would close a kept connection, and within which an answer must come.
_KEPT, _PATIENCE = 5.0, 180.0
# Seconds after which the service, which looks once a second, must serve what another process wrote.
_NOTICED = 5.0


class KilledError(Exception):
    """The service was killed while a request was under way."""


class Report(msgspec.Struct, kw_only=True):
    """What a soak came to; `growth` is that of memory in each life that was long enough to tell, `own_growth` that of who asks."""

    faults: list[str]
    counts: dict[str, int]
    growth: list[float]
    own_growth: float
    megabytes: list[float]
    files: list[int]
    seconds: float


class Sample(NamedTuple):
    """What the process has: bytes of its resident set, open files."""

    life: int
    memory: int
    files: int
    own_memory: int


class Client:
    """Asks over a kept connection, which is opened anew where it was idle for long or the service was killed."""

    def __init__(self, soak: Soak) -> None:
        self._soak = soak
        self._connection: Connection | None = None
        self._used = 0.0

    async def ask(self, method: str, path: str, body: object = None, *, accept: str = "*/*") -> tuple[int, bytes]:
        """Return status and content; `KilledError` where the service was killed meanwhile."""
        soak = self._soak
        await soak.up.wait()
        life = soak.life
        data = b"" if body is None else msgspec.json.encode(body)
        try:
            if self._connection is None or self._connection.closed or time.monotonic() - self._used > _KEPT:
                self.leave()
                self._connection = await Connection.open(*host_of(soak.url))
            request = encode_request(method, soak.url, path, data, accept=accept)
            # `wait_for` of Python 3.11 may miss that it is cancelled.
            async with asyncio.timeout(_PATIENCE):
                reply = await self._connection.ask(request)
        except (OSError, TimeoutError) as error:
            self.leave()
            if soak.life != life:
                raise KilledError from None
            raise RuntimeError(f"{method} {path} was not answered: {error!r}") from error
        self._used = time.monotonic()
        route = path.partition("?")[0]
        soak.counts[f"{method} {route}: {reply.status}"] += 1
        return reply.status, reply.content

    async def json(self, method: str, path: str, body: object = None) -> Any:
        """Return the JSON of a success; who is told that the service is busy tries again."""
        while True:
            status, content = await self.ask(method, path, body)
            if status == 200:
                return msgspec.json.decode(content)
            if status != 429:
                raise RuntimeError(f"{method} {path} answered {status}: {content[:300]!r}")
            await asyncio.sleep(1.0)

    def leave(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.abort()
            self._connection = None


class Soak:
    """A service, all who ask it, and what they know of it."""

    def __init__(
        self,
        index: Path,
        questions: Sequence[str],
        engine: pytrace.Engine,
        *,
        seconds: float,
        kills: int,
        threads: int,
        seed: int,
        log: Path,
        method: str = "",
    ) -> None:
        self.index = index
        self.questions = list(questions)
        self.engine = engine
        self.seconds, self.kills, self.threads, self.log, self.method = seconds, kills, threads, log, method
        self.draw = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self.faults: list[str] = []
        self.samples: list[Sample] = []
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.up = asyncio.Event()
        self.life = 0
        self.service: ServiceProcess | None = None
        # Documents by number: the version that is there, None where it was removed; those that are being changed are unsure.
        self.there: dict[int, int | None] = {}
        self.unsure: dict[int, set[int | None]] = {}
        self.changing: set[int] = set()
        self.touched: Counter[int] = Counter()
        self._made = 0
        self._changing = asyncio.Lock()
        self._commanding = threading.Lock()
        self._errors = 0

    async def run(self) -> Report:
        """Run until the time is over."""
        begun = time.monotonic()
        with ExitStack() as stack:
            await self._start(stack)
            workers = [
                self._again(work, pause)
                for work, pause in (
                    (self._search, 0.1),
                    (self._search, 0.1),
                    (self._change, 0.3),
                    (self._change, 0.5),
                    (self._rank, 1.0),
                    (self._ask, 1.0),
                    (self._vanish, 0.5),
                    (self._tend, min(10.0, self.seconds / 20)),
                    (self._compare, min(30.0, max(4.0, self.seconds / 30))),
                )
            ]
            tasks = [asyncio.create_task(worker) for worker in (*workers, self._sample())]
            try:
                for _ in range(self.kills):
                    await asyncio.sleep(self.seconds / (self.kills + 1))
                    await self._kill()
                    await self._start(stack)
                await asyncio.sleep(max(0.0, begun + self.seconds - time.monotonic()))
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            with self._commanding:  # a command that is under way comes to its end
                await asyncio.sleep(_NOTICED)
            await self._look_for_all()
            client = Client(self)
            await self._compare(client)
            client.leave()
            assert self.service is not None
            status = await asyncio.to_thread(self.service.stop)
            if status:
                self.fault(f"SIGTERM ended the service with {status}")
            self._read_log()
        growth, megabytes, files = self._memory()
        return Report(
            faults=self.faults,
            counts=dict(sorted(self.counts.items())),
            growth=growth,
            own_growth=_growth([sample.own_memory for sample in self.samples])[0],
            megabytes=megabytes,
            files=files,
            seconds=time.monotonic() - begun,
        )

    def fault(self, what: str) -> None:
        """Note what is wrong."""
        self.faults.append(what)
        print(f"WRONG: {what}", flush=True)

    # ---- the service's life

    async def _start(self, stack: ExitStack) -> None:
        options = ("--threads", str(self.threads), "--port", str(self.port))
        self.service = await asyncio.to_thread(stack.enter_context, served(self.index, *options, log=self.log))
        if self.unsure or self.there:
            self.up.set()
            await self._look_for_all()
        self.up.set()

    async def _kill(self) -> None:
        """Kill the service in the middle of a change."""
        end = time.monotonic() + 20
        while not self.unsure and time.monotonic() < end:
            await asyncio.sleep(0.005)
        await asyncio.sleep(self.draw.random() * 0.2)
        assert self.service is not None
        self._read_log()
        self.up.clear()
        self.life += 1
        self.counts["killed in a change" if self.unsure else "killed between changes"] += 1
        self.service.process.kill()
        await asyncio.to_thread(self.service.process.wait)

    def _read_log(self) -> None:
        assert self.service is not None
        for line in self.service.log():
            if line["level"] == "error":
                self.fault(f"the log has {json.dumps(line)[:500]}")

    async def _sample(self) -> None:
        while True:
            await asyncio.sleep(0.5)
            service = self.service
            if self.up.is_set() and service is not None and service.process.poll() is None:
                files = len(list(Path(f"/proc/{service.process.pid}/fd").iterdir()))
                self.samples.append(Sample(self.life, service.memory(), files, resident(os.getpid())))

    def _memory(self) -> tuple[list[float], list[float], list[int]]:
        """Return of each life how much memory grew, what it had at its end in MiB, and how many open files more."""
        growth, megabytes, files = [], [], []
        for life in range(self.life + 1):
            samples = [sample for sample in self.samples if sample.life == life]
            third = len(samples) // 3
            if third:
                middle, last = samples[third : 2 * third], samples[-third:]
                grown, after = _growth([sample.memory for sample in samples])
                growth.append(grown)
                megabytes.append(round(after / 2**20, 1))
                files.append(min(sample.files for sample in last) - min(sample.files for sample in middle))
        return growth, megabytes, files

    # ---- who asks

    async def _again(self, work: Callable[[Client], Awaitable[None]], pause: float) -> None:
        """Do something again and again, each time after a pause; what goes wrong is noted."""
        client = Client(self)
        try:
            while True:
                await asyncio.sleep(pause * (0.5 + self.draw.random()))
                try:
                    await work(client)
                except KilledError:
                    self.counts["requests under way at a kill"] += 1
                except (RuntimeError, OSError) as error:
                    if self.up.is_set():
                        self.fault(f"{type(error).__name__}: {error}")
                    client.leave()
        finally:
            client.leave()

    async def _search(self, client: Client) -> None:
        """Look for a document that is there, for one that is not, or ask something else."""
        known = [number for number in self.there if number not in self.unsure]
        if not known or self.draw.random() < 0.3:
            await client.json("POST", "/v1/search", {"question": self._question()})
            return
        number = self.draw.choice(known)
        version, touched = self.there[number], self.touched[number]
        found = await client.json("POST", "/v1/search", {"question": _question_of(number)})
        if self.touched[number] == touched:
            self._judge(number, {version}, found)

    def _judge(self, number: int, versions: set[int | None], found: dict[str, Any]) -> int | None:
        """Check that a document is found as it is, and return its version."""
        sources = found["evidence"].get("sources", ())
        texts = [source["text"] for source in sources if source["document"] == _id_of(number)]
        for version in versions:
            if (version is None and not texts) or any(_sign_of(number, version) in text for text in texts):
                self.counts["documents found as they are" if texts else "documents gone as they should be"] += 1
                return version
        self.fault(f"document {number} should have version {versions}, and is found as {texts}")
        return next(iter(versions))

    def _question(self) -> str:
        return f"{self.draw.choice(self.questions)} {word(self.draw.randrange(10**6))}"

    async def _change(self, client: Client) -> None:
        """Add documents, replace one, or remove one."""
        held = [number for number, version in self.there.items() if version is not None and number not in self.unsure]
        async with self._changing:
            choice = "add" if len(held) < _FEWEST else "remove" if len(held) >= _MOST else ""
            choice = choice or self.draw.choice(("add", "replace", "remove"))
            if choice == "add":
                numbers = range(self._made, self._made + self.draw.randint(1, 3))
                self._made = numbers.stop
            else:
                numbers = range(number := self.draw.choice(held), number + 1)
            versions = {number: (self.there.get(number) or 0) + 1 for number in numbers}
            for number in numbers:
                self.touched[number] += 1
                after = None if choice == "remove" else versions[number]
                self.unsure[number] = {self.there.get(number), after}
        # Two change at once: a second one finds the first's documents unsure.
        self.changing.update(numbers)
        try:
            if choice == "remove":
                await client.json("DELETE", f"/v1/documents?id={_id_of(numbers[0])}")
            else:
                rows = [_row_of(number, versions[number]) for number in numbers]
                await client.json("POST", "/v1/documents", {"documents": rows})
        finally:
            self.changing.difference_update(numbers)
        for number in numbers:
            self.touched[number] += 1
            self.there[number] = None if choice == "remove" else versions[number]
            del self.unsure[number]
        gone = [number for number, version in self.there.items() if version is None and number not in self.unsure]
        for number in gone[:-_GONE]:
            del self.there[number]

    async def _tend(self, client: Client) -> None:
        """Change or verify the index by a command, which every third time is killed and called again."""
        async with self._changing:
            held = [
                number for number, version in self.there.items() if version is not None and number not in self.unsure
            ]
            verb = self.draw.choice(("add", "add", "remove", "verify"))
            numbers: list[int] = []
            if verb == "remove" and len(held) > _FEWEST:
                numbers = self.draw.sample(held, 2)
            elif verb != "verify":
                verb = "add"
                numbers = [self._made, *self.draw.sample(held, min(1, len(held)))]
                self._made += 1
            after = {number: None if verb == "remove" else (self.there.get(number) or 0) + 1 for number in numbers}
            for number in numbers:
                self.touched[number] += 1
                self.unsure[number] = {self.there.get(number), after[number]}
        arguments = [_id_of(number) for number in numbers] if verb == "remove" else []
        if verb == "add":
            rows = [_row_of(number, after[number] or 0) for number in numbers]
            file = self.index.with_name("tended.jsonl")
            file.write_bytes(b"\n".join(map(msgspec.json.encode, rows)))
            arguments = ["--docs", str(file)]
        self.changing.update(numbers)
        try:
            await asyncio.to_thread(self._command, verb, arguments, killed=self.draw.random() < 1 / 3)
            await asyncio.sleep(_NOTICED)
            await self._settle(client, after)
        finally:
            self.changing.difference_update(numbers)

    def _command(self, verb: str, arguments: Sequence[str], *, killed: bool) -> None:
        """Run a command on the index, for a moment at first if it is to be killed, and then to its end."""
        with self._commanding:
            self._run_command(verb, arguments, killed=killed)

    def _run_command(self, verb: str, arguments: Sequence[str], *, killed: bool) -> None:
        options = [] if verb == "verify" else ["--threads", "1"]
        command = [sys.executable, "-m", "pytrace", "index", verb, str(self.index), *arguments, *options]
        again = False
        while True:
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            try:
                # What comes before the first write is loading, for the most part.
                said = process.communicate(timeout=0.5 + 2.0 * self.draw.random() if killed else 600)[1]
            except subprocess.TimeoutExpired:
                process.kill()
                said = process.communicate()[1]
                self.counts[f"index {verb}: killed"] += 1
                killed, again = False, True
                continue
            # What was killed may have been done; documents that are gone cannot be removed again.
            if process.returncode == 0 or (verb == "remove" and again and "there is no document" in said):
                self.counts[f"index {verb}: done"] += 1
                return
            if "is being written by another process" not in said:
                raise RuntimeError(f"index {verb} ended with {process.returncode}: {said.strip()}")
            time.sleep(0.2)

    async def _settle(self, client: Client, after: dict[int, int | None]) -> None:
        """Check that the service serves what a command wrote."""
        for number, version in after.items():
            while True:
                with suppress(KilledError):
                    found = await client.json("POST", "/v1/search", {"question": _question_of(number)})
                    break
            self._judge(number, {version}, found)
            self.touched[number] += 1
            self.there[number] = version
            self.unsure.pop(number, None)

    async def _rank(self, client: Client) -> None:
        """Rank texts, which the encoder in this process ranks alike."""
        query, *texts = [self._question() for _ in range(5)]
        answer = await client.json("POST", "/v1/rerank", {"query": query, "documents": texts})
        encoder = self.engine.encoder
        right = await asyncio.to_thread(
            lambda: cosines(encoder.encode([query], kind="query")[0], encoder.encode(texts))
        )
        right = np.maximum(right, 0)  # as the service has them
        scores = {result["index"]: result["relevance_score"] for result in answer["results"]}
        if max(abs(scores[place] - right[place]) for place in range(len(texts))) > TOLERANCE:
            self.fault(f"{texts} rank {scores} by {query!r}, where the encoder says {np.round(right, 4)}")

    async def _ask(self, client: Client) -> None:
        """Have a question answered by stages."""
        body = {"question": self._question(), "method": self.method, "stream": True}
        status, content = await client.ask("POST", "/v1/ask", body)
        names = [line.removeprefix(b"event: ") for line in content.splitlines() if line.startswith(b"event: ")]
        if status not in (200, 429) or (status == 200 and names != [b"search", b"evidence", b"answer"]):
            self.fault(f"/v1/ask answered {status} with {names}: {content[-500:]!r}")

    async def _vanish(self, client: Client) -> None:
        """Leave in the middle of something."""
        del client
        await self.up.wait()
        life = self.life
        kind = self.draw.choice(("head", "body", "search", "ask", "add"))
        path = {"ask": "/v1/ask", "add": "/v1/documents"}.get(kind, "/v1/search")
        body: dict[str, Any] = {"question": self._question()}
        if kind == "ask":
            body |= {"stream": True, "method": self.method}
        elif kind == "add":
            row = _row_of(self.draw.randrange(_ORPHANS), self.draw.randrange(10**6))
            body = {"documents": [{**row, "id": f"orphan-{self.draw.randrange(_ORPHANS)}"}]}
        request = encode_request("POST", self.url, path, msgspec.json.encode(body))
        cut = {"head": 20, "body": len(request) - 10}.get(kind, len(request))
        try:
            connection = await Connection.open(*host_of(self.url))
            connection.write(request[:cut])
            await asyncio.sleep(self.draw.choice((0.0, 0.01, 0.1, 1.0)))
            connection.abort()
        except OSError:
            if self.life == life and self.up.is_set():
                raise
        self.counts[f"vanished in {kind}"] += 1

    async def _compare(self, client: Client) -> None:
        """Hold changes, and compare what is found with what the same search finds in the same index here."""
        while True:
            async with self._changing:
                while self.unsure:
                    await asyncio.sleep(0.05)
                    await self.up.wait()
                before = self._written()
                if time.time() - before[1] / 1e9 < 2:  # by a client that left
                    await asyncio.sleep(2)
                known = [number for number, version in self.there.items() if version is not None]
                questions = [_question_of(number) for number in self.draw.sample(known, min(3, len(known)))]
                questions += [self._question() for _ in range(_COMPARED - len(questions))]
                answers = [await client.json("POST", "/v1/search", {"question": question}) for question in questions]
                corpus = await asyncio.to_thread(pytrace.Corpus.open, self.index)
                try:
                    if self._written() != before:
                        continue
                    for question, answer in zip(questions, answers, strict=True):
                        wrong = await asyncio.to_thread(difference, corpus, self.engine, question, answer)
                        self.counts["answers compared"] += 1
                        if wrong:
                            self.fault(f"{question!r}: {wrong}")
                    return
                finally:
                    corpus.close()

    def _written(self) -> tuple[int, int]:
        status = (self.index / MANIFEST).stat()
        return status.st_ino, status.st_mtime_ns

    async def _look_for_all(self) -> None:
        """Check each document: all that is known of it must be so, and of one whose change was broken off, before or after."""
        client = Client(self)
        for number in sorted({*self.there, *self.unsure}):
            touched = self.touched[number]
            found = await client.json("POST", "/v1/search", {"question": _question_of(number)})
            status, content = await client.ask("GET", f"/v1/documents/text?id={_id_of(number)}")
            if number in self.changing or self.touched[number] != touched:
                continue  # others change it already
            versions = self.unsure.pop(number, None) or {self.there.get(number)}
            version = self._judge(number, versions, found)
            if (status == 404) != (version is None) or _sign_of(number, version).encode() not in content:
                self.fault(
                    f"document {number} should have version {version}, and is read as {status} {content[:300]!r}"
                )
            self.there[number] = version
            self.touched[number] += 1
        client.leave()


def _growth(sizes: Sequence[int]) -> tuple[float, float]:
    """Return by how much the median of the last third of sizes exceeds that of the second, and that of the last."""
    third = len(sizes) // 3
    if not third:
        return 0.0, 0.0
    before, after = statistics.median(sizes[third : 2 * third]), statistics.median(sizes[-third:])
    return after / before - 1, after


def _name_of(number: int) -> str:
    return f"{word(200_000 + 7919 * number).title()} {word(90_000 + 104_729 * number).title()}"


def _id_of(number: int) -> str:
    return f"soak-{number}"


def _question_of(number: int) -> str:
    return f"What is the sign of {_name_of(number)}?"


def _sign_of(number: int, version: int | None) -> str:
    return "" if version is None else f"is sign {number}x{version}."


def _row_of(number: int, version: int) -> dict[str, str]:
    name = _name_of(number)
    text = f"{name} keeps a lighthouse. The sign of {name} {_sign_of(number, version)}"
    return {"id": _id_of(number), "title": name, "text": text}


def soak(index: Path, questions: Sequence[str], **options: Any) -> Report:
    """Soak a service of a copy of an index, see `Soak`."""
    with tempfile.TemporaryDirectory(prefix="pytrace-soak-") as place:
        copy = Path(place) / "index"
        shutil.copytree(index, copy)
        engine = pytrace.load("tiny", threads=1)
        try:
            log = options.pop("log", None) or Path(place) / "service.log"

            async def run() -> Report:
                return await Soak(copy, questions, engine, log=log, **options).run()

            return asyncio.run(run())
        finally:
            engine.close()


def main() -> int:
    """Soak, and say what was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--index", type=Path, help="an index that the tiny encoder made")
    parser.add_argument(
        "--questions", type=Path, nargs="+", default=[], metavar="FILE", help="rows with a question each"
    )
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--kills", type=int, default=1)
    parser.add_argument("--threads", type=int, default=machine.cores(), help="of the service; its own default")
    parser.add_argument("--method", default="", help="method of the questions; the default one if left out")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log", type=Path, help="where the service's log goes")
    parser.add_argument("--json", type=Path, help="where the report is written as JSON, too")
    options = parser.parse_args()
    facts = machine.facts(options.threads)
    versions = ", ".join(f"{package} {version_of(package)}" for package in PACKAGES)
    print(f"python -m benches.soak {' '.join(sys.argv[1:])}")
    print(f"{facts['processor']}, {facts['cores']} cores, Python {facts['python']}, {versions}, load {machine.load()}")
    with ExitStack() as stack:
        index = options.index
        if index is None:
            index = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pytrace-bench-"))) / "index"
            make_index(index, pytrace.load("tiny", threads=options.threads))
        report = soak(
            index,
            read_questions(options.questions, index, options.seed),
            seconds=60 * options.minutes,
            kills=options.kills,
            threads=options.threads,
            seed=options.seed,
            method=options.method,
            log=options.log,
        )
    for name, count in report.counts.items():
        print(f"{name:50}{count:>8,}")
    for life, (growth, size, files) in enumerate(zip(report.growth, report.megabytes, report.files, strict=True), 1):
        met = "met" if growth <= FLAT else "MISSED"
        print(
            f"life {life}: {size:,.1f} MiB at its end, {100 * growth:+.1f} % (≤ {100 * FLAT:g} %: {met}), {files:+d} open files"
        )
    own = "met" if report.own_growth <= FLAT else "MISSED"
    print(f"who asks: {100 * report.own_growth:+.1f} % (≤ {100 * FLAT:g} %: {own})")
    print(f"{report.seconds:,.0f} s, {len(report.faults)} wrong, load at the end {machine.load()}")
    if options.json:
        with suppress(OSError):
            options.json.write_bytes(msgspec.json.format(msgspec.json.encode(report)))
    return int(bool(report.faults) or any(growth > FLAT for growth in [*report.growth, report.own_growth]))


if __name__ == "__main__":
    sys.exit(main())
