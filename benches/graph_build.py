"""What `pytrace kg build` costs beside its model, and whether its memory grows: short documents and a scripted model.

    python -m benches.graph_build [--documents 5000] [--sizes 5000 200000] [--repetitions 5] [--json]

Each build does what the command does, in a process of its own: reader, sync, prompts and grammars, parsing and locating, store. The
time in the scripted model is measured and taken out; what is left is split by stage. First a build that is killed three
times and resumed must equal one that was left alone. `--sizes` then builds corpora of those sizes and prints resident
memory after start, after reading, halfway, at the end and at its peak. The peer writes the same triples as plain JSON
lines, flushed after each document, without reading sentences, prompts, parsing, locating, ids or a way to resume.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pytrace.bench.machine import STATUS, facts
from pytrace.bench.machine import memory as memory_of
from pytrace.errors import StoreError
from pytrace.models.language_model import Completion, Prompt
from pytrace.models.scripted import HashEncoder, ScriptedModel
from pytrace.triples.graph import TripleStore

GOAL = 0.3
STAGES = ("read", "sync", "next", "extract", "store", "rest")


def write_corpus(path: Path, count: int) -> None:
    """Write documents of three sentences and some 40 words, none of which is like another."""
    with path.open("w", encoding="utf-8") as file:
        for n in range(count):
            title = f"Station {n}"
            text = (
                f"{title} is a railway station in the town of Quill{n % 997}, on the hills above the river. "
                f"It was opened in {1800 + n % 200} by the company of Venn{n % 31} and rebuilt after the war. "
                f"Its {2 + n % 9} platforms serve the line to Harbour{n % 53}."
            )
            file.write(json.dumps({"id": f"s{n}", "title": title, "text": text}) + "\n")


def triples_of(n: int) -> list[tuple[str, str, str]]:
    facts = {"located in": f"Quill{n % 997}", "opened in": 1800 + n % 200, "opened by": f"Venn{n % 31}"}
    return [(f"Station {n}", name, str(tail)) for name, tail in {**facts, "on the line to": f"Harbour{n % 53}"}.items()]


def answer(prompt: str) -> str:
    number = int(prompt.rpartition("<Station ")[2].rstrip(";"))
    return "\n".join(f"<{'; '.join(triple)}>" for triple in triples_of(number)).partition(";")[2]


class TimedModel(ScriptedModel):
    """A scripted model that knows the time it took itself, that of its caller's `done` left out, and keeps no prompts."""

    def __init__(self, pause: float) -> None:
        super().__init__(answer)
        self.seconds = self.processor = 0.0
        self._pause = pause

    def generate(self, prompts: Any, *, done: Any = None, **options: Any) -> list[list[Completion]]:
        """Write the answers, and count the seconds that this takes."""

        def timed(index: int, row: list[Completion]) -> None:
            self._count(1)
            done(index, row)
            self._count(-1)

        self._count(-1)
        rows = super().generate(prompts, done=timed if done is not None else None, **options)
        self._count(1)
        return rows

    def _count(self, sign: int) -> None:
        self.seconds += sign * time.perf_counter()
        self.processor += sign * time.process_time()

    def _take(self, prompt: Prompt | str) -> str:
        text = super()._take(prompt)
        self.prompts.clear()
        if self._pause:
            time.sleep(self._pause)
        return text


class Clock:
    """Adds up the seconds of calls and iterations by name."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def add(self, name: str, started: float) -> None:
        """Add the seconds since `started`."""
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - started

    def call(self, owner: Any, name: str, stage: str) -> None:
        """Time every call of a function from now on."""
        inner = getattr(owner, name)

        def timed(*args: Any, **options: Any) -> Any:
            started = time.perf_counter()
            try:
                return inner(*args, **options)
            finally:
                self.add(stage, started)

        setattr(owner, name, timed)

    def iteration(self, owner: Any, name: str, stage: str) -> None:
        """Time every step of a generator from now on."""
        inner = getattr(owner, name)

        def timed(*args: Any, **options: Any) -> Iterator[Any]:
            items = iter(inner(*args, **options))
            while True:
                started = time.perf_counter()
                try:
                    item = next(items)
                except StopIteration:
                    return
                finally:
                    self.add(stage, started)
                yield item

        setattr(owner, name, timed)


def work(docs: str, out: str, count: int, pause: float) -> int:
    """Build a graph in this process, and write what it cost to stderr."""
    import pytrace.documents
    import pytrace.triples.extraction
    from pytrace.engine import Engine
    from pytrace.methods.catalog import method_settings
    from pytrace.methods.trace.triple_method import make_extractor
    from pytrace.triples.graph import GraphReader

    model = TimedModel(pause)
    engine = Engine()
    vars(engine).update(model=model, encoder=HashEncoder())
    clock = Clock()
    memory = {"start": memory_of("VmRSS", STATUS)}
    clock.iteration(pytrace.documents, "read_documents", "read")
    clock.call(TripleStore, "sync", "sync")
    clock.iteration(GraphReader, "pending", "next")
    clock.call(pytrace.triples.extraction, "build_graph", "build")
    add, stored = TripleStore.add, 0

    def sampled(*args: Any) -> None:
        nonlocal stored
        if stored == 0:
            memory["after reading"] = memory_of("VmRSS", STATUS)
        stored += 1
        if stored == count // 2:
            memory["halfway"] = memory_of("VmRSS", STATUS)
        started = time.perf_counter()
        add(*args)
        clock.add("store", started)

    TripleStore.add = sampled  # type: ignore[assignment,method-assign]
    started, processor = time.perf_counter(), time.process_time()
    # The tiny model's own settings take triples from phrases, with no model whose prompts could be timed.
    settings = method_settings("trace", engine.abilities, ("unit=triple", "extraction=written"))
    extractor = make_extractor(engine.model, engine.encoder, settings)
    with TripleStore.open(out, recipe=extractor.recipe, mode="resume") as graph:
        # By their modules, where the clock has replaced them.
        graph.sync(pytrace.documents.read_documents(docs, distinct=False))
        pytrace.triples.extraction.build_graph(graph, extractor)
        print(json.dumps({"statistics": {"triples": graph.statistics().triples}}))
    whole = time.perf_counter() - started
    processor = time.process_time() - processor - model.processor
    memory["end"], memory["peak"] = memory_of("VmRSS", STATUS), memory_of("VmHWM", STATUS)
    found = clock.seconds
    stages = {name: found.get(name, 0.0) for name in ("read", "next", "store")}
    stages["sync"] = found["sync"] - stages["read"]
    stages["extract"] = found.get("build", 0.0) - stages["next"] - stages["store"] - model.seconds
    stages["rest"] = whole - model.seconds - sum(stages.values())
    told = {"seconds": whole, "processor": processor, "model": model.seconds, "stages": stages, "memory": memory}
    print(json.dumps(told), file=sys.stderr)
    return 0


def start(docs: Path, out: Path, count: int, pause: float = 0.0) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "benches.graph_build", "--work", str(docs), str(out), str(count), str(pause)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def build(docs: Path, out: Path, count: int) -> dict[str, Any]:
    output, errors = (process := start(docs, out, count)).communicate()
    if process.returncode or json.loads(output)["statistics"]["triples"] != 4 * count:
        raise AssertionError(f"the build of {count} documents failed: {errors}")
    told: dict[str, Any] = json.loads(errors.splitlines()[-1])
    return told


def waiting(directory: Path, count: int) -> int:
    """Count what waits for extraction; all, where the build has not got so far as to know its documents."""
    with contextlib.suppress(StoreError), TripleStore.open(directory, mode="read") as graph:
        return graph.count_pending() if len(graph) else count
    return count


def verify(folder: Path) -> None:
    """Kill a build three times, resume it, and compare it with one that nobody killed."""
    count = 400
    docs = folder / "verify.jsonl"
    write_corpus(docs, count)
    killed, whole = folder / "killed", folder / "whole"
    for left in (300, 200, 100):
        process = start(docs, killed, count, pause=0.002)
        while waiting(killed, count) > left:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.communicate()
    build(docs, killed, count)
    build(docs, whole, count)
    exports = []
    for directory in (killed, whole):
        with TripleStore.open(directory, mode="read") as graph:
            graph.export(directory / "all.jsonl")
        exports.append((directory / "all.jsonl").read_bytes())
    if exports[0] != exports[1]:
        raise AssertionError("a build that was killed and resumed differs from one that was not")


def peer(docs: Path, out: Path) -> float:
    """Write the same triples as JSON lines, flushed after each document, and return the seconds."""
    started = time.perf_counter()
    with docs.open("rb") as file, out.open("w", encoding="utf-8") as target:
        for number, line in enumerate(file):
            row = json.loads(line)
            target.write(json.dumps({"id": row["id"], "title": row["title"], "triples": triples_of(number)}) + "\n")
            target.flush()
    return time.perf_counter() - started


def measure(folder: Path, count: int, repetitions: int, tell: Callable[[str], object]) -> dict[str, Any]:
    docs = folder / f"{count}.jsonl"
    write_corpus(docs, count)
    builds, peers = [], []
    for number in range(repetitions):
        tell(f"{count} documents, {number + 1} of {repetitions}")
        builds.append(build(docs, folder / f"{count}-{number}", count))
        peers.append(peer(docs, folder / "peer.jsonl"))
    ours = [(one["seconds"] - one["model"]) / count * 1e3 for one in builds]
    middle = min(range(repetitions), key=lambda place: abs(ours[place] - statistics.median(ours)))
    return {
        "documents": count,
        "ms": statistics.median(ours),
        "ms from": min(ours),
        "ms to": max(ours),
        "processor ms": statistics.median(one["processor"] / count * 1e3 for one in builds),
        "model ms": statistics.median(one["model"] / count * 1e3 for one in builds),
        "stages ms": {name: builds[middle]["stages"][name] / count * 1e3 for name in STAGES},
        "peer ms": statistics.median(peers) / count * 1e3,
        "memory MiB": {name: size / 2**20 for name, size in builds[middle]["memory"].items()},
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=5000, help="documents whose time is measured")
    parser.add_argument(
        "--sizes", type=int, nargs="*", default=[], help="further numbers of documents, built once each"
    )
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--work", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        docs, out, count, pause = arguments.work
        return work(docs, out, int(count), float(pause))

    def tell(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory(prefix="pytrace-bench-") as name:
        folder = Path(name)
        tell("verify that a resumed build equals one that was not killed")
        verify(folder)
        rows = [measure(folder, arguments.documents, arguments.repetitions, tell)]
        rows += [measure(folder, size, 1, tell) for size in arguments.sizes]
    machine = facts(int(os.environ.get("OMP_NUM_THREADS", "0")) or len(os.sched_getaffinity(0)))
    if arguments.json:
        print(json.dumps({"machine": machine, "goal ms": GOAL, "rows": rows}, indent=2))
        return 0
    print(
        f"{machine['processor']}, {machine['cores']} cores, Python {machine['python']}; a killed and resumed build is equal"
    )
    for row in rows:
        print(
            f"{row['documents']} documents: {row['ms']:.3f} ms a document ({row['ms from']:.3f} to {row['ms to']:.3f}; "
            f"{row['processor ms']:.3f} on the processor; goal {GOAL}), the scripted model's {row['model ms']:.3f} ms "
            f"left out; plain JSON lines {row['peer ms']:.3f} ms"
        )
        print("  ms by stage:", ", ".join(f"{stage} {value:.3f}" for stage, value in row["stages ms"].items()))
        print("  MiB resident:", ", ".join(f"{when} {size:.0f}" for when, size in row["memory MiB"].items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
