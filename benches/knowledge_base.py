"""The knowledge base at 10^5 and 10^6 triples: seconds to build and open, memory while it answers, time beside `top_k`.

    python -m benches.knowledge_base --data pathquestion/2H-kb.txt
    python -m benches.knowledge_base --data pathquestion/2H-kb.txt --vectors int8 --sizes 10000000    # 10 GB of memory, 5 of disk

Triples are recombined from the heads, relations and tails of a file (TSV). The first 100,000 are encoded by a real encoder,
since how much of a vector lies in few directions decides what a sketch saves; that takes two minutes on two free cores. Of
more, entities have numbers behind their names, and a vector is that of a real triple plus three tenths of the difference of
two others, which keeps the spectrum. Queries say real triples in other words. Each base is then opened and asked by a
process of its own, whose memory is read while it answers; all answers must equal those of `top_k` on the same vectors bit for bit.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from pytrace import _core
from pytrace.bench import bench_report as report
from pytrace.bench.context import Bench, require
from pytrace.bench.measurements import Check, Comparison, Kernel, Settings
from pytrace.bench.peers import Peers
from pytrace.kernels import normalize, top_k
from pytrace.kg import KnowledgeBase, entity_name, read_source, relation_name, verbalise
from pytrace.models import registry
from pytrace.models.encoders.encoder import OnnxEncoder
from pytrace.records import Triple

NEIGHBOURS, QUERIES, REAL = 10, 3_000, 100_000
SIZES = (100_000, 1_000_000)
BATCHES = (1, 100, 3_000)
WORDINGS = (
    "{head} is linked to {tail} by {relation}.",
    "The {relation} of {head} is {tail}.",
    "{tail} is {head}'s {relation}.",
)
OPEN_SECONDS, MEGABYTES = 1.0, 700.0

Vectors = NDArray[np.float32]


class Recombined:
    """An encoder that gives, in the order in which it is asked, real vectors and then mixtures of them."""

    name = "recombined"

    def __init__(self, real: Vectors, seed: int) -> None:
        self.fingerprint = f"recombined-{len(real)}-{seed}"
        self.dimension = real.shape[1]
        self._real = real
        self._random = np.random.default_rng(seed)
        self._given = 0

    def encode(self, texts: Sequence[str], *, kind: Literal["query", "passage"] = "passage") -> Vectors:
        del kind
        start, self._given = self._given, self._given + len(texts)
        known = self._real[start : start + len(texts)]
        one, two, three = self._real[self._random.integers(0, len(self._real), (3, len(texts) - len(known)))]
        return np.concatenate([known, normalize(one + np.float32(0.3) * (two - three))])


def recombined(source: Path, seed: int) -> Iterator[Triple]:
    """Make triples without end, each once: a head, a relation that has it, and a tail that has this."""
    triples = list(read_source(source, format="tsv").triples)
    tails: dict[str, list[str]] = {}
    for triple in triples:
        tails.setdefault(triple.relation, []).append(triple.tail)
    random = np.random.default_rng(seed)
    seen: set[tuple[str, str, str]] = set()
    while True:
        triple = triples[random.integers(len(triples))]
        head = triples[random.integers(len(triples))].head
        tail = tails[triple.relation][random.integers(len(tails[triple.relation]))]
        if len(seen) >= REAL:
            head, tail = f"{head}_{random.integers(300)}", f"{tail}_{random.integers(300)}"
        if (head, triple.relation, tail) not in seen:
            seen.add((head, triple.relation, tail))
            yield Triple(head, triple.relation, tail)


def said(triple: Triple, number: int) -> str:
    """Say a triple in other words than the knowledge base does."""
    return WORDINGS[number % len(WORDINGS)].format(
        head=entity_name(triple.head), relation=relation_name(triple.relation), tail=entity_name(triple.tail)
    )


def resident() -> dict[str, float]:
    """Return this process's resident megabytes: of its own, and of files."""
    lines = Path("/proc/self/status").read_text().splitlines()
    values = {line.split(":")[0]: line.split()[1] for line in lines if line.startswith("Rss")}
    return {"own": int(values["RssAnon"]) / 1e3, "files": int(values["RssFile"]) / 1e3}


def peak() -> float:
    """Return the most megabytes that this process has had in memory."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1e3


def build(file: Path, directory: Path, encoder: Any, vectors: Any, results: Any) -> None:
    """Build a base, and tell how long that took, and how much memory."""
    start = time.perf_counter()
    KnowledgeBase.build(file, directory, encoder, vectors=vectors)
    results.put((time.perf_counter() - start, peak()))


def answer(directory: str, fingerprint: str, queries: Vectors, results: Any) -> None:
    """Open a base, ask it, and tell how long opening took, the memory before and the most while it answered."""
    encoder = Recombined(np.empty((0, queries.shape[1]), dtype=np.float32), 0)
    encoder.fingerprint = fingerprint
    before = resident()
    start = time.perf_counter()
    base = KnowledgeBase.open(directory, encoder)
    opened = time.perf_counter() - start
    own = files = 0.0
    for size in BATCHES:
        for at in range(0, min(len(queries), 50 * size), size):
            _, numbers = base.search(queries[at : at + size], NEIGHBOURS)
            for number in numbers[:, 0].tolist():
                base.with_head(base.columns.triples[number, 0])
                base.text(number)
            now = resident()
            own, files = max(own, now["own"] - before["own"]), max(files, now["files"])
    results.put((opened, own, files, peak()))


def apart(target: Any, *arguments: Any) -> Any:
    """Run in a process of its own, and return what it tells."""
    context = get_context("spawn")
    results = context.Queue()
    process = context.Process(target=target, args=(*arguments, results))
    process.start()
    told = results.get()
    process.join()
    return told


def measure(
    bench: Bench, count: int, source: Path, real: Vectors, queries: Vectors, root: Path, kind: str
) -> tuple[list[Comparison], list[Check]]:
    """Build one base, ask it in a process of its own, and hold its answers beside the exact ones."""
    bench.tell(f"build: {count:,} triples")
    directory, file = root / str(count), root / f"{count}.tsv"
    with file.open("w") as stream:
        stream.writelines(
            f"{triple.head}\t{triple.relation}\t{triple.tail}\n"
            for triple in islice(recombined(source, bench.settings.seed), count)
        )
    encoder: Any = Recombined(real, bench.settings.seed)
    built, built_in = apart(build, file, directory, encoder, kind)
    base = KnowledgeBase.open(directory, encoder)
    opened, own, files, most = apart(answer, str(directory), encoder.fingerprint, queries)
    extra = {
        "seconds to build": built,
        "MB at most while it was built": built_in,
        "seconds to open": opened,
        "MB of its own": own,
        "MB of files": files,
        "MB at most, Python included": most,
        "MB on disk": sum(path.stat().st_size for path in directory.iterdir()) / 1e6,
        "entities": float(len(base.columns.entity_keys)),
    }
    vectors = base._rows()

    def exactly(asked: Vectors) -> Any:
        if kind == "int8":
            return top_k(asked, vectors["vector"], NEIGHBOURS, scale=vectors["scale"])
        return top_k(asked, vectors, NEIGHBOURS)

    rows = []
    for size in BATCHES:
        asked = queries[:size]
        expected, found = exactly(asked), base.search(asked, NEIGHBOURS)
        same = all(np.array_equal(one, other) for one, other in zip(expected, found, strict=True))
        require(same, f"{count:,} triples: a batch of {size} does not find what top_k finds")
        rows.append(
            bench.compare(
                f"{size:,} queries of {count:,} triples",
                lambda asked=asked: base.search(asked, NEIGHBOURS),  # type: ignore[misc]
                {"top_k": lambda asked=asked: exactly(asked)},  # type: ignore[misc]
                extra=extra if size == BATCHES[0] else {},
            )
        )
    checks = [
        Check(f"seconds to open {count:,}", opened, "s", "at most", OPEN_SECONDS),
        Check(f"megabytes while answering from {count:,}", most, "MB", "at most", MEGABYTES),
    ]
    file.unlink()
    return rows, checks


def run(bench: Bench, source: Path, encoder: OnnxEncoder, sizes: Sequence[int], kind: str) -> Kernel:
    """Measure every size."""
    scale = 10 if bench.settings.quick else 1
    first = list(islice(recombined(source, bench.settings.seed), REAL // scale))
    bench.tell(f"encode {len(first):,} triples")
    real = encoder.encode(
        [verbalise(entity_name(each.head), relation_name(each.relation), entity_name(each.tail)) for each in first]
    )
    queries = encoder.encode(
        [said(triple, number) for number, triple in enumerate(first[:: len(first) // QUERIES][:QUERIES])]
    )
    kernel = Kernel(rows=[], checks=[])
    root = Path(tempfile.mkdtemp(prefix="pytrace-bench-"))
    try:
        for count in sizes:
            rows, checks = measure(bench, count // scale, source, real, queries, root, kind)
            kernel = Kernel(rows=[*kernel.rows, *rows], checks=[*kernel.checks, *checks])
    finally:
        shutil.rmtree(root)
    return kernel


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="triples to recombine, as TSV")
    parser.add_argument("--encoder", default="tiny")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="triples of each base")
    parser.add_argument("--vectors", choices=("float32", "int8"), default="float32")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true", help="a tenth of the triples")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    settings = Settings(
        threads=_core.num_threads(), repetitions=arguments.repetitions, seed=arguments.seed, quick=arguments.quick
    )
    bench = Bench(settings, Peers(()), None, lambda case: print(case, file=sys.stderr))
    kernel = run(
        bench,
        arguments.data,
        OnnxEncoder(registry.resolve(arguments.encoder, "encoder")),
        arguments.sizes,
        arguments.vectors,
    )
    if arguments.json:
        print(msgspec.json.encode(kernel).decode())
        return 0
    for table in report.tables("knowledge_base", kernel):
        for cells in (table.columns, *table.rows):
            print("  ".join(f"{cell:<40}" for cell in cells[:5]))
        print(*table.notes, sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
