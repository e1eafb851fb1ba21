"""The sentence index beside an exact search: recall@10, and the time to build, open and search; goal recall 0.99.

Vectors of 384 dimensions and length 1, as a small encoder gives them: in clusters, as texts about the same things lie, and
at random, which no graph searches well (there the index should find out that it has to look at everything). Below 50,000 the
index is exact, and its answers must equal those of a plain search; above, recall counts a neighbour as found if it is no
farther than the exact tenth. Nearly all of the two minutes on two free cores goes into building the two graphs.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
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
from pytrace.kernels import top_k
from pytrace.records import Sentence
from pytrace.retrieval import SentenceIndex
from pytrace.retrieval.sentence_index import EXACT_BELOW

DIMENSION, NEIGHBOURS, QUERIES = 384, 10, 200
SIZES = (49_000, 100_000)
SHAPES = ("clusters", "random")
GOAL = 0.99

Vectors = NDArray[np.float32]


class Table:
    """An encoder that gives the n-th of some vectors for the text n, so that nothing but the index is measured."""

    name = "table"

    def __init__(self, vectors: Vectors) -> None:
        self.fingerprint = f"table-{vectors.shape}"
        self.dimension = vectors.shape[1]
        self._vectors = vectors

    def encode(self, texts: Sequence[str], *, kind: Literal["query", "passage"] = "passage") -> Vectors:
        del kind
        return self._vectors[[int(text) for text in texts]]


def vectors(shape: str, count: int, seed: int) -> Vectors:
    """Make vectors of length 1; clusters hold a hundred each and are as wide as they lie apart."""
    random = np.random.default_rng(seed)
    made = random.standard_normal((count, DIMENSION), dtype=np.float32)
    if shape == "clusters":
        centres = random.standard_normal((max(count // 100, 1), DIMENSION), dtype=np.float32)
        made = centres[random.integers(0, len(centres), count)] + made
    return made / np.linalg.norm(made, axis=1, keepdims=True)


def measure(bench: Bench, shape: str, count: int, exact_below: int, root: Path) -> tuple[Comparison, Check]:
    """Build, open and search one index, and hold its answers beside the exact ones."""
    everything = vectors(shape, count + QUERIES, bench.settings.seed)
    items, queries = everything[:count], everything[count:]
    encoder: Any = Table(items)
    directory = root / f"{shape}-{count}"
    case = f"{count:,} in {shape}" if shape == "clusters" else f"{count:,} at {shape}"
    bench.tell(f"build: {case}")
    start = time.perf_counter()
    sentences = (Sentence("d", number, str(number)) for number in range(count))
    SentenceIndex.build(directory, sentences, encoder, exact_below=exact_below).close()
    built = time.perf_counter() - start
    start = time.perf_counter()
    index = SentenceIndex.open(directory, encoder, exact_below=exact_below)
    opened = time.perf_counter() - start
    with index:
        distances, rows = top_k(queries, items, NEIGHBOURS, metric="l2")
        found = index.search(queries, NEIGHBOURS)
        if count < exact_below:
            same = [[hit.index for hit in hits] for hits in found] == rows.tolist()
            require(same, f"{case}: the exact index does not find what top_k finds")
        for hits in found:
            require(
                len({hit.index for hit in hits}) == NEIGHBOURS, f"{case}: a query has repeated or missing neighbours"
            )
            for hit in hits:
                require(hit.sentence.text == str(hit.index), f"{case}: sentence {hit.index} is another one")
        recall = float(
            np.mean([[hit.distance <= row[-1] for hit in hits] for hits, row in zip(found, distances, strict=True)])
        )
        comparison = bench.compare(
            f"search for {QUERIES} queries in {case}",
            lambda: index.search(queries, NEIGHBOURS),
            {
                "top_k, all queries": lambda: top_k(queries, items, NEIGHBOURS, metric="l2"),
                "top_k, one by one": lambda: [top_k(query, items, NEIGHBOURS, metric="l2") for query in queries],
            },
            note="the index also reads the sentences",
            extra={
                f"recall@{NEIGHBOURS}": recall,
                "seconds to build": built,
                "seconds to open": opened,
                "MiB on disk": sum(path.stat().st_size for path in directory.iterdir()) / 2**20,
            },
        )
        single = bench.compare(
            f"search for one query in {case}",
            lambda: index.search(queries[:1], NEIGHBOURS),
            {"top_k": lambda: top_k(queries[0], items, NEIGHBOURS, metric="l2")},
        )
    shutil.rmtree(directory)
    extra = comparison.extra | {
        "ms for one query": single.ours.median * 1e3,
        "ms exact": single.peers["top_k"].median * 1e3,
    }
    return (
        msgspec.structs.replace(comparison, extra=extra),
        Check(f"recall@{NEIGHBOURS}, {case}", recall, "share", "at least", GOAL),
    )


def run(bench: Bench, shapes: Sequence[str]) -> Iterator[tuple[Comparison, Check]]:
    """Measure every shape and size."""
    scale = 10 if bench.settings.quick else 1
    root = Path(tempfile.mkdtemp(prefix="pytrace-bench-"))
    try:
        for count in SIZES:
            for shape in shapes:
                yield measure(bench, shape, count // scale, EXACT_BELOW // scale, root)
    finally:
        shutil.rmtree(root)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true", help="a tenth of the vectors and of the border")
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=SHAPES)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    settings = Settings(
        threads=_core.num_threads(), repetitions=arguments.repetitions, seed=arguments.seed, quick=arguments.quick
    )
    bench = Bench(settings, Peers(()), None, lambda case: print(case, file=sys.stderr))
    results = list(run(bench, arguments.shapes))
    kernel = Kernel(rows=[row for row, _ in results], checks=[check for _, check in results])
    if arguments.json:
        print(msgspec.json.encode(kernel).decode())
        return 0
    for table in report.tables("sentence_index", kernel):
        for cells in (table.columns, *table.rows):
            print("  ".join(f"{cell:<40}" for cell in cells[:5]))
        print(*table.notes, sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
