"""`pytrace serve` under load: latency at a rate, throughput by clients, ranks beside the encoder and peers, answers, memory.

    python -m benches.service [--index DIR --questions FILE…] [--only search rerank ask size] [--threads N] [--json FILE]
        [--infinity PROGRAM] [--sizes 1000 10000]

The service is a process of its own, and so is who asks it (`benches/load.py`); latency counts from when a request was due. Questions
are asked once each, with other words before and after them, so that no cache has their vectors. Answers are compared with those of
the same search in this process before anything is timed, and again as they came under full load. What is compared is measured in
turns; a ratio is the median of the turns', its interval from the least to the greatest. Without --index the passages of all corpora
in the evaluation data are indexed ($PYTRACE_DATA), or where there is none made ones, as in `benches/index_scale.py`.

`search`: median and 99th percentile at 10 requests a second (bars 30 and 80 ms), and how many times more questions a second 32
clients get than one (bar 4). `rerank`: 32 passages that nobody ranked before, by the seconds that the encoder itself takes for them
(bar 1.15), and beside llama.cpp's server and infinity with the same weights. `ask`: when the first stage of an answer comes (bar
50 ms), and how many times more answers 16 clients get than one (bar 2.5). `size`: memory and latency by passages.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

import pytrace
from benches.index_scale import VOCABULARY, make_passages, make_questions
from benches.load import Answers, Load, Sent, Share, failures, quantile, run_load
from benches.service_peers import Client, Rank, cosines, infinity, llama_server, write_weights
from benches.words import word
from pytrace.bench import machine
from pytrace.bench.peers import version
from pytrace.documents import read_documents
from pytrace.engine.corpus import IndexedCorpus
from pytrace.models import registry
from pytrace.records import Document
from pytrace.retrieval.passages import IndexWriter, PassageIndex
from tests.serve.service_process import ServiceProcess, served

PARTS = ("search", "rerank", "ask", "size")
PACKAGES = ("onnxruntime", "llama-cpp-python", "uvicorn", "starlette", "h11", "numpy", "xllamacpp")
RATE = 10.0
# Clients whose requests fill the service, those of the language model, and passages of a request to rank.
MANY, MANY_ASK, RANKED = 32, 16, 32
# What scores may differ by: an encoder's sums depend on what is encoded together.
TOLERANCE = 1e-3
# The sides of ranks that are compared to the last score.
_DIRECT, _SERVED = "the encoder itself", "/v1/rerank"
# Words before and after a question that make another text of it, and change little of what it finds.
_BEFORE = (
    "",
    "please tell me: ",
    "i wonder: ",
    "say, ",
    "well, ",
    "now: ",
    "and yet, ",
    "so, ",
    "again: ",
    "once more: ",
)
_AFTER = (
    "",
    " please",
    " thank you",
    " in short",
    " if you know",
    " if you may",
    " briefly",
    " if so",
    " then",
    " indeed",
)


class Row(msgspec.Struct, kw_only=True):
    """A figure with its interval, and its bar: `most` says that it may be no larger, rather than no smaller."""

    part: str
    figure: str
    value: float
    unit: str
    low: float | None = None
    high: float | None = None
    bar: float | None = None
    most: bool = True

    @property
    def met(self) -> bool | None:
        """Whether it keeps its bar, None where it has none."""
        return None if self.bar is None else self.value <= self.bar if self.most else self.value >= self.bar

    def line(self) -> str:
        """Return it as a line of a table."""
        interval = "" if self.low is None or self.high is None else f"{self.low:,.4g} to {self.high:,.4g}"
        sign = "≤" if self.most else "≥"
        bar = "" if self.bar is None else f"{sign} {self.bar:g}: {'met' if self.met else 'MISSED'}"
        return f"{self.part:8}{self.figure:62}{self.value:>10,.4g} {self.unit:12}{interval:24}{bar}"


class Questions:
    """Questions without end, each text of them once."""

    def __init__(self, known: Sequence[str], seed: int) -> None:
        self.known = list(known)
        random.Random(seed).shuffle(self.known)
        self._texts = self._make()

    def take(self, count: int) -> list[str]:
        """Return the next ones."""
        return list(islice(self._texts, count))

    def _make(self) -> Iterator[str]:
        number = 0
        while True:
            for before in _BEFORE:
                for after in _AFTER:
                    for question in self.known:
                        yield (
                            f"{before}{question}{after}" if number < 1 else f"{before}{question}{after} {word(number)}"
                        )
            number += 1


class Bench:
    """What all parts share: the index, its questions, the models in this process, and the rows so far."""

    def __init__(self, index: Path, questions: Questions, options: argparse.Namespace) -> None:
        self.index = index
        self.questions = questions
        self.options = options
        self.threads: int = options.threads
        self.rows: list[Row] = []
        self.engine = pytrace.load("tiny", threads=self.threads)
        self.corpus = pytrace.Corpus.open(index)

    def add(self, part: str, figure: str, value: float | Share, unit: str, **more: Any) -> None:
        """Print a row and keep it."""
        if isinstance(value, Share):
            more = {"low": value.low, "high": value.high, **more}
            value = value.value
        row = Row(part=part, figure=figure, value=value, unit=unit, **more)
        self.rows.append(row)
        print(row.line(), flush=True)

    @contextmanager
    def service(self, index: Path | None = None) -> Iterator[ServiceProcess]:
        """Serve an index."""
        with served(index or self.index, "--threads", str(self.threads), log=self.options.work / "service.log") as run:
            yield run

    def search(self, questions: Sequence[str]) -> list[tuple[str, bytes]]:
        """Return the requests of a search."""
        return [("/v1/search", msgspec.json.encode({"question": question})) for question in questions]


# ---- search


def search(bench: Bench) -> None:
    """Measure `/v1/search`."""
    options = bench.options
    with bench.service() as service:
        some = bench.questions.take(32)
        right = compare(bench, some, [service.post("/v1/search", {"question": question}) for question in some])
        print(f"search: {right} answers are those of the same search here, one at a time", flush=True)
        run_load(Load(url=service.url, requests=bench.search(bench.questions.take(200)), clients=4))
        requests = bench.search(bench.questions.take(round(RATE * options.seconds)))
        answers = require(
            run_load(
                Load(url=service.url, requests=requests, rate=RATE, poisson=options.poisson, seed=options.seed),
            )
        )
        latencies = [1000 * each.latency for each in answers.sent]
        bench.add("search", f"median at {RATE:g} a second", quantile(latencies, 0.5), "ms", bar=30)
        bench.add("search", f"99th percentile at {RATE:g} a second", quantile(latencies, 0.99), "ms", bar=80)
        late = max(each.begun - each.due for each in answers.sent)
        bench.add("search", "latest sending of a request after it was due", 1000 * late, "ms")
        checked = 0

        def round_of(clients: int) -> Answers:
            nonlocal checked
            asked = bench.questions.take(round(600 * options.turn))
            load = Load(
                url=service.url,
                requests=bench.search(asked),
                clients=clients,
                ramp=1,
                seconds=options.turn,
                contents=True,
            )
            answers = require(run_load(load))
            last = sorted(answers.sent, key=lambda each: each.end)[-16:]
            found = [json.loads(each.content) for each in last]
            checked += compare(bench, [asked[each.number] for each in last], found)
            return answers

        throughputs(bench, "search", "questions", round_of, MANY, bar=4)
        print(f"search: {checked} answers as they came under load are those of the same search here", flush=True)


def compare(bench: Bench, questions: Sequence[str], answers: Sequence[dict[str, Any]]) -> int:
    """Compare answers with what is found here, and return how many there are; `SystemExit` tells of the first that differs."""
    for question, answer in zip(questions, answers, strict=True):
        if wrong := difference(bench.corpus, bench.engine, question, answer):
            raise SystemExit(f"{question!r}: {wrong}")
    return len(questions)


def difference(corpus: IndexedCorpus, engine: pytrace.Engine, question: str, answer: dict[str, Any]) -> str:
    """Say how a result differs from what is found here, "" where it does not; equal scores may be in any order."""
    sources = answer["evidence"].get("sources", [])
    given = {source["id"]: source["relevance"] for source in sources if "relevance" in source}
    (ranking,) = corpus.rank([question], engine, len(given) or 1)
    ids = [passage.id for passage in corpus.index.passages(ranking.rows)]
    expected = dict(zip(ids, ranking.scores, strict=True))
    border = min([*expected.values(), 1.0]) + TOLERANCE
    for name in expected.keys() | given.keys():
        mine, theirs = expected.get(name), given.get(name)
        if mine is None or theirs is None:
            if max(mine or 0.0, theirs or 0.0) > border:
                return f"{name} has {theirs} where {mine} is found"
        elif abs(mine - theirs) > TOLERANCE:
            return f"{name} has {theirs} where {mine} is found"
    return ""


def throughputs(
    bench: Bench, part: str, what: str, round_of: Callable[[int], Answers], many: int, *, bar: float
) -> list[list[Sent]]:
    """Measure one client and many in turns, and return what was sent by either."""
    rates: dict[int, list[float]] = {1: [], many: []}
    sent: dict[int, list[Sent]] = {1: [], many: []}
    busy = 0.0
    for number in range(bench.options.turns):
        for clients in (1, many) if number % 2 == 0 else (many, 1):
            answers = round_of(clients)
            rates[clients].append(answers.throughput)
            sent[clients] += answers.sent
            busy = max(busy, answers.busy)
    for clients, each in rates.items():
        figure = f"{what} a second, {clients} client{'s' * (clients > 1)}"
        bench.add(part, figure, statistics.median(each), "1/s", low=min(each), high=max(each))
        latencies = [1000 * one.latency for one in sent[clients]]
        for name, share in (("median", 0.5), ("99th percentile", 0.99)):
            bench.add(part, f"{name} of {clients} client{'s' * (clients > 1)}", quantile(latencies, share), "ms")
    ratios = [more / max(one, 1e-9) for one, more in zip(rates[1], rates[many], strict=True)]
    figure = f"{many} clients by one"
    bench.add(part, figure, statistics.median(ratios), "times", low=min(ratios), high=max(ratios), bar=bar, most=False)
    bench.add(part, "share of a core that the asking took, at most", busy, "")
    return [sent[1], sent[many]]


def require(answers: Answers) -> Answers:
    """Return answers that are all successes."""
    if answers.failed:
        raise SystemExit(f"of {len(answers.sent):,} requests some failed: {failures(answers.sent)}")
    return answers


# ---- rerank


def rerank(bench: Bench) -> None:
    """Measure `/v1/rerank` beside the encoder itself and peers."""
    options = bench.options
    repetitions = options.turns * 5
    encoder = bench.engine.encoder
    passages = whole_passages(bench.corpus, encoder)
    random.Random(options.seed).shuffle(passages)
    if len(passages) < RANKED * (repetitions + 2):
        raise SystemExit(
            f"{len(passages)} passages are too few for {repetitions + 2} times {RANKED} that are new each time"
        )
    failed: list[str] = []

    def directly(query: str, texts: Sequence[str]) -> Any:
        return cosines(encoder.encode([query], kind="query")[0], encoder.encode(list(texts)))

    with ExitStack() as stack:
        service = stack.enter_context(bench.service())
        client = Client(service.url)

        def by_service(query: str, texts: Sequence[str]) -> Any:
            answer = client.post("/v1/rerank", {"query": query, "documents": list(texts)})
            scores = np.empty(len(texts), dtype=np.float32)
            for result in answer["results"]:
                scores[result["index"]] = result["relevance_score"]
            return scores

        sides: dict[str, Rank] = {_DIRECT: directly, _SERVED: by_service}
        model, saved = write_weights(Path(registry.resolve("tiny", "encoder")), options.work / "weights")
        peers: dict[str, Callable[[], AbstractContextManager[Rank]]] = {
            "llama.cpp's server": lambda: llama_server(model, threads=bench.threads)
        }
        if options.infinity:
            peers["infinity"] = lambda: infinity(options.infinity, saved, threads=bench.threads)
        for name, start in peers.items():
            try:
                sides[name] = stack.enter_context(start())
            except OSError as error:
                failed.append(f"{name}: {error}")
        seconds = time_sides(bench, sides, passages, repetitions)
    print(
        f"rerank: /v1/rerank's cosines are the encoder's within {TOLERANCE:g}, half of each peer's are, too", flush=True
    )
    for name, each in seconds.items():
        bench.add("rerank", f"{RANKED} passages, {name}", quantile([1000 * one for one in each], 0.5), "ms")
    for name in list(sides)[1:]:
        ratios = [one / own for one, own in zip(seconds[name], seconds[_DIRECT], strict=True)]
        bar = {"bar": 1.15} if name == _SERVED else {}
        bench.add("rerank", f"{name} by {_DIRECT}", quantile(ratios, 0.5), "times", **bar)
    if not options.infinity:
        failed.append("infinity: give --infinity its program; it is no package of ours")
    for line in failed:
        print(f"rerank: not measured: {line}", flush=True)


def whole_passages(corpus: IndexedCorpus, encoder: Any) -> list[str]:
    """Return the passages that the encoder reads whole: some servers cut longer ones, and some refuse them."""
    texts = [passage.text for passage in corpus.index.passages(list(range(len(corpus))))]
    tokens = encoder._tokenize(texts, encoder._rules["passage"])
    return [text for text, ids in zip(texts, tokens, strict=True) if len(ids) < encoder.max_tokens]


def time_sides(bench: Bench, sides: dict[str, Rank], passages: list[str], repetitions: int) -> dict[str, list[float]]:
    """Have all sides rank the same new passages in turn, and return the seconds of each."""
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    names = list(sides)
    for number in range(-2, repetitions):  # two that do not count
        texts = [passages.pop() for _ in range(RANKED)]
        (query,) = bench.questions.take(1)
        ranked: dict[str, Any] = {}
        for name in names[number % len(names) :] + names[: number % len(names)]:
            time.sleep(0.06)  # threads of the side before spin for a while
            begun = time.perf_counter()
            ranked[name] = sides[name](query, texts)
            taken = time.perf_counter() - begun
            if number >= 0:
                seconds[name].append(taken)
        for name, scores in ranked.items():
            apart = np.abs(np.maximum(scores, 0) - np.maximum(ranked[_DIRECT], 0))  # the service has none below 0
            # Peers split the odd text into other tokens.
            if float(apart.max() if name == _SERVED else np.median(apart)) > TOLERANCE:
                raise SystemExit(f"{name} ranks otherwise, by {apart.max():.2g} in cosine")
    return seconds


# ---- ask


def ask(bench: Bench) -> None:
    """Measure `/v1/ask`."""
    options = bench.options

    def requests(questions: Sequence[str], *, stream: bool) -> list[tuple[str, bytes]]:
        bodies = [{"question": question, "method": options.method, "stream": stream} for question in questions]
        return [("/v1/ask", msgspec.json.encode(body)) for body in bodies]

    with bench.service() as service:
        same = 0
        some = bench.questions.take(options.answers)
        for question in some:
            answer = service.post("/v1/ask", {"question": question, "method": options.method})
            expected = bench.engine.ask(question, bench.corpus, method=options.method)
            same += answer["answer"] == expected.answer
        bench.add(
            "ask", f"of {len(some)} answers, those that are the same here", same / len(some), "", bar=1, most=False
        )
        load = Load(url=service.url, requests=requests(bench.questions.take(options.answers), stream=True), clients=1)
        first = [1000 * (each.first - each.due) for each in require(run_load(load)).sent]
        bench.add("ask", "first stage of an answer, median", quantile(first, 0.5), "ms", bar=50)
        bench.add("ask", "first stage of an answer, 95th percentile", quantile(first, 0.95), "ms")

        def round_of(clients: int) -> Answers:
            # All are waited for: within a time, what each client is in the middle of would count for too much.
            asked = requests(bench.questions.take(options.per_client * max(clients, 4)), stream=True)
            return require(run_load(Load(url=service.url, requests=asked, clients=clients)))

        _, many = throughputs(bench, "ask", "answers", round_of, MANY_ASK, bar=2.5)
        first = [1000 * (each.first - each.due) for each in many]
        bench.add("ask", f"first stage, median of {MANY_ASK} clients", quantile(first, 0.5), "ms")
        bench.add("ask", "memory of the service at the end", service.memory() / 2**20, "MiB")


# ---- size


def size(bench: Bench) -> None:
    """Measure memory and latency by the passages of the index."""
    options = bench.options
    for count in options.sizes:
        directory = options.work / f"index-{count}"
        if count == len(bench.corpus):
            directory = bench.index
        else:
            build(directory, taken(bench.corpus, count), bench.engine)
        with bench.service(directory) as service:
            part = f"{count:,} passages, tiny"
            bench.add("size", f"{part}: memory at the start", service.memory() / 2**20, "MiB")
            run_load(Load(url=service.url, requests=bench.search(bench.questions.take(100)), clients=4))
            requests = bench.search(bench.questions.take(round(RATE * options.seconds)))
            answers = require(run_load(Load(url=service.url, requests=requests, rate=RATE)))
            latencies = [1000 * each.latency for each in answers.sent]
            bench.add("size", f"{part}: median at {RATE:g} a second", quantile(latencies, 0.5), "ms")
            bench.add("size", f"{part}: 99th percentile at {RATE:g} a second", quantile(latencies, 0.99), "ms")
            requests = bench.search(bench.questions.take(1000))
            require(run_load(Load(url=service.url, requests=requests, clients=MANY)))
            bench.add("size", f"{part}: memory after {MANY} clients searched", service.memory() / 2**20, "MiB")
            body = {"question": bench.questions.take(1)[0], "method": options.method}
            require(run_load(Load(url=service.url, requests=[("/v1/ask", msgspec.json.encode(body))])))
            bench.add("size", f"{part}: memory after an answer", service.memory() / 2**20, "MiB")


def taken(corpus: IndexedCorpus, count: int) -> Iterator[Document]:
    """Return so many passages of an index; where it has fewer, made ones besides."""
    rows = random.Random(0).sample(range(len(corpus)), min(count, len(corpus)))
    yield from corpus.index.passages(sorted(rows))
    if count > len(rows):
        yield from make_passages(count - len(rows), [word(rank) for rank in range(VOCABULARY)], 0)


# ---- what is asked of what


def build(directory: Path, passages: Iterator[Document], engine: pytrace.Engine) -> Path:
    """Index passages."""
    with IndexWriter(directory, engine.encoder, create=True) as writer:
        writer.add(passages)
        writer.commit()
    return directory


def open_sets() -> list[Path]:
    """Return the folders of the evaluation data that have a corpus and questions, none where there is no such data."""
    data = Path(os.environ.get("PYTRACE_DATA") or Path(__file__).parents[2] / "shared" / "data")
    return sorted(path.parent for path in (data / "open").glob("*/questions.jsonl"))


def make_index(directory: Path, engine: pytrace.Engine, count: int = 10_000) -> Path:
    """Index the corpora of the evaluation data, or passages that are made."""

    def passages() -> Iterator[Document]:
        sets = open_sets()
        for folder in sets:
            for passage in read_documents(folder / "corpus.jsonl"):
                origin = passage.origin and msgspec.structs.replace(
                    passage.origin, document=f"{folder.name}/{passage.origin.document}"
                )
                yield msgspec.structs.replace(passage, id=f"{folder.name}/{passage.id}", origin=origin)
        if not sets:
            yield from make_passages(count, [word(rank) for rank in range(VOCABULARY)], 0)

    print("indexing, which takes minutes; --index names an index that is there", file=sys.stderr, flush=True)
    return build(directory, passages(), engine)


def read_questions(paths: Sequence[Path], index: Path, seed: int) -> list[str]:
    """Read questions, of the evaluation data if none are named; without any, passages of the index are asked for."""
    paths = paths or [folder / "questions.jsonl" for folder in open_sets()]
    if paths:
        return [json.loads(line)["question"] for path in paths for line in path.open(encoding="utf-8") if line.strip()]
    opened = PassageIndex(index)
    try:
        return make_questions(opened, seed)
    finally:
        opened.close()


def main() -> int:
    """Print the figures of each part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--index", type=Path, help="an index that the tiny encoder made, of some 10,000 passages")
    parser.add_argument(
        "--questions", type=Path, nargs="+", default=[], metavar="FILE", help="rows with a question each"
    )
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--threads", type=int, default=machine.cores(), help="of the models; the service's own default")
    parser.add_argument("--seconds", type=float, default=60.0, help="of a load at a rate")
    parser.add_argument("--poisson", action="store_true", help="draw the gaps between requests at a rate")
    parser.add_argument("--turn", type=float, default=8.0, help="seconds of a turn of searching clients")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--method", default="", help="method of the questions; the default one if left out")
    parser.add_argument("--answers", type=int, default=10, help="answers that are compared, and timed one by one")
    parser.add_argument("--per-client", type=int, default=2, help="answers of each client in a turn")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 10_000], help="passages")
    parser.add_argument("--infinity", type=Path, help="the program of infinity, if it is installed somewhere")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", type=Path, help="where indexes, weights and logs are kept; a new folder by default")
    parser.add_argument("--json", type=Path, help="where the figures are written as JSON, too")
    options = parser.parse_args()
    with ExitStack() as stack:
        options.work = options.work or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pytrace-bench-")))
        options.work.mkdir(parents=True, exist_ok=True)
        index = options.index or options.work / "index"
        if not index.exists():
            make_index(index, pytrace.load("tiny", threads=options.threads))
        questions = Questions(read_questions(options.questions, index, options.seed), options.seed)
        facts = machine.facts(options.threads)
        versions = ", ".join(f"{package} {version(package)}" for package in PACKAGES)
        command = f"python -m benches.service {' '.join(sys.argv[1:])}"
        print(command, f"{facts['processor']}, {facts['cores']} cores, Python {facts['python']}, {versions}", sep="\n")
        bench = Bench(index, questions, options)
        stack.callback(bench.engine.close)
        print(
            f"{len(bench.corpus):,} passages, {len(questions.known)} questions, {options.threads} threads, seed {options.seed}, "
            f"load {machine.load()}",
            flush=True,
        )
        for part in options.only:
            {"search": search, "rerank": rerank, "ask": ask, "size": size}[part](bench)
        print(f"load at the end {machine.load()}")
        if options.json:
            document = {"command": command, "machine": facts, "load": machine.load(), "rows": bench.rows}
            options.json.write_bytes(msgspec.json.format(msgspec.json.encode(document)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
