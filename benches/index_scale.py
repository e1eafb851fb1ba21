"""Time and size of an index of passages as it grows: building, opening, disk, memory and searches across hops.

    python -m benches.index_scale [--passages 1000 10000 100000] [--vectors int8] [--threads 2] [--seed 0] [--plots DIR]

Passages have 120 words on average, of a vocabulary as skewed as English; each tells of something by name and names others, so that
ten links a passage come to be. Vectors are drawn, since encoding them would take days: what building takes is all but the encoder.
Questions name a passage and have words of what it leads to; their encoding, by the tiny encoder, is part of the time. Medians and
95th percentiles are of single questions, warm, without reading; `batch` is of 64 together. A slope is the exponent by which a figure
grows with the passages, from one size to the next: 1 in proportion, 0 not at all.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import platform
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

import pytrace
from benches.words import SYLLABLES, word
from pytrace.evaluation.scores.figure_files import new_figure, save_figure
from pytrace.records import Document
from pytrace.retrieval.hops import HopSearch
from pytrace.retrieval.passages import IndexWriter, PassageIndex

VOCABULARY = 300_000
QUESTIONS = 128
BATCH = 64
# What is drawn over the passages, and its unit.
_GROWING = {
    "median ms": "ms a question",
    "batch ms": "ms a question, 64 together",
    "build s": "s without the encoder",
    "one more": "s for one passage more",
    "open": "s",
    "disk": "bytes",
    "memory": "bytes of its own",
}
# Names in a passage's text, of other passages; near ones are likelier, so that links come in neighbourhoods.
NAMED = 5


class DrawnVectors:
    """Stands for an encoder of passages: a vector for each text by its hash; questions are encoded by the real one."""

    def __init__(self, encoder: Any) -> None:
        self._encoder = encoder
        self.name = encoder.name
        self.fingerprint = encoder.fingerprint
        self.dimension = encoder.dimension
        self.device = "cpu"
        self._draw = np.random.default_rng(1)
        self.seconds = 0.0

    def encode(self, texts: Sequence[str], *, kind: Literal["query", "passage"] = "passage") -> NDArray[np.float32]:
        """Return the vectors of texts."""
        if kind == "query":
            vectors: NDArray[np.float32] = self._encoder.encode(texts, kind="query")
            return vectors
        started = time.perf_counter()
        drawn = self._draw.standard_normal((len(texts), self.dimension), dtype=np.float32)
        drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
        self.seconds += time.perf_counter() - started
        return drawn


def name_of(number: int, vocabulary: Sequence[str]) -> str:
    """Return what a passage tells of: two rare words, the second shared with some hundred others."""
    first = vocabulary[2_000 + (number * 7919) % (VOCABULARY - 2_000)]
    second = vocabulary[2_000 + (number // 100 * 104_729) % (VOCABULARY - 2_000)]
    return f"{first.title()} {second.title()}"


def make_passages(count: int, vocabulary: Sequence[str], seed: int) -> Iterator[Document]:
    """Make passages, the same for every count as far as there are."""
    draw = np.random.default_rng(seed)
    cumulated = np.cumsum(1 / (np.arange(VOCABULARY) + 2.5) ** 1.2)
    cumulated /= cumulated[-1]
    for number in range(count):
        ranks = np.searchsorted(cumulated, draw.random(105)).tolist()
        near = np.abs(number + np.round(draw.standard_cauchy(NAMED) * 50)).astype(np.int64) % count
        others = [name_of(int(other), vocabulary) for other in near]
        name = name_of(number, vocabulary)
        body = [vocabulary[rank] for rank in ranks]
        sentences = [f"{name} is {' '.join(body[:15])}."]
        for place, other in enumerate(others, 1):
            part = body[15 * place : 15 * place + 18]
            sentences.append(f"{' '.join(part[:9])} {other} {' '.join(part[9:])}.")
        yield Document(f"p{number}", name, tuple(sentences), f"corpus.jsonl:{number + 1}")


def make_questions(index: PassageIndex, seed: int) -> list[str]:
    """Ask for what a passage leads to."""
    draw = np.random.default_rng(seed)
    questions = []
    for row in draw.integers(0, len(index), QUESTIONS).tolist():
        first = index.passage(row)
        second = index.passage(int(draw.integers(0, len(index))))
        asked = draw.choice(second.sentences[1].split(), 3).tolist()
        questions.append(f"which {' '.join(asked)} of what {first.title} is by")
    return questions


def measure(count: int, options: argparse.Namespace, results: Any) -> None:
    """Build, open and search an index; in a process of its own, so that its memory can be told."""
    engine = pytrace.load("tiny", threads=options.threads)
    encoder = DrawnVectors(engine.encoder)
    vocabulary = [word(rank) for rank in range(VOCABULARY)]
    folder = Path(tempfile.mkdtemp(dir=options.work))
    try:
        started = time.perf_counter()
        text = made = 0.0
        with IndexWriter(folder / "index", encoder, create=True, vectors=options.vectors) as writer:
            passages = make_passages(count, vocabulary, options.seed)
            while True:
                begun = time.perf_counter()
                batch = [passage for passage, _ in zip(passages, range(1_000), strict=False)]
                made += time.perf_counter() - begun
                if not batch:
                    break
                text += sum(len(passage.text.encode()) for passage in batch)
                writer.add(batch)
            added = time.perf_counter()
            writer.commit()
        committed = time.perf_counter()
        building = committed - started - made - encoder.seconds
        size = sum(path.stat().st_size for path in (folder / "index").iterdir())
        extra = Document("extra", "Extra Passage", ("Extra Passage is one more.",))
        begun = time.perf_counter()
        with IndexWriter(folder / "index", encoder) as writer:
            writer.add([extra])
            writer.commit()
        adding = time.perf_counter() - begun
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            searched = pool.apply(search, (folder / "index", options.threads, options.seed))
        results.append(
            {
                "passages": count,
                "passages a second": count / building,
                "build s": building,
                "commit": committed - added,
                "one more": adding,
                "disk": size,
                "disk by text": size / text,
                "bytes a passage": size / count,
                "memory by disk": searched["memory"] / size,
                **searched,
            }
        )
    finally:
        shutil.rmtree(folder)


def search(directory: Path, threads: int, seed: int) -> dict[str, float]:
    """Open an index and search it."""
    engine = pytrace.load("tiny", threads=threads)
    engine.encoder.encode(["warm"], kind="query")
    before = resident()
    started = time.perf_counter()
    index = PassageIndex.open(directory, engine.encoder)
    opening = time.perf_counter() - started
    finder = HopSearch(index, engine.encoder)
    questions = make_questions(index, seed)
    finder.search(questions[:8])
    times = []
    for question in questions:
        begun = time.perf_counter()
        finder.search([question])
        times.append(1000 * (time.perf_counter() - begun))
    memory = resident() - before
    assert index.graph is not None
    sample = np.random.default_rng(seed).integers(0, len(index), min(len(index), 1_000))
    begun = time.perf_counter()
    finder.search(questions[:BATCH])
    batch = (time.perf_counter() - begun) / BATCH
    return {
        "open": opening,
        "memory": memory,
        "links a passage": len(index.graph.links(sample).rows) / len(sample),
        "median ms": statistics.median(times),
        "95th ms": float(np.percentile(times, 95)),
        "batch ms": 1000 * batch,
        "batch by single": statistics.median(times) / 1000 / batch,
    }


def resident() -> int:
    """Return the bytes of memory that are this process's own, pages of mapped files not included."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return 1024 * int(fields["RssAnon"].split()[0])


def main() -> int:
    """Print a row for each size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passages", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--vectors", choices=("float32", "float16", "int8"), default="int8")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--work", type=Path, help="where indexes are made; the system's folder for passing files by default"
    )
    parser.add_argument("--plots", type=Path, help="where time and size over passages are drawn")
    options = parser.parse_args()
    print(f"python -m benches.index_scale {' '.join(sys.argv[1:])}")
    print(
        f"{platform.processor() or platform.machine()}, Python {platform.python_version()}, {len(SYLLABLES)} syllables",
        flush=True,
    )
    rows: list[dict[str, float]] = []
    for count in options.passages:
        with multiprocessing.get_context("spawn").Manager() as manager:
            results = manager.list()
            process = multiprocessing.get_context("spawn").Process(target=measure, args=(count, options, results))
            process.start()
            process.join()
            for result in results:
                rows.append(dict(result))
                print("  ".join(f"{name}: {value:,.4g}" for name, value in result.items()), flush=True)
            if process.exitcode:
                return 1
    for before, after in pairwise(rows):
        grown = math.log(after["passages"] / before["passages"])
        slopes = (f"{name} {math.log(after[name] / before[name]) / grown:.2f}" for name in _GROWING)
        print(f"slopes from {before['passages']:,.0f} to {after['passages']:,.0f}: {', '.join(slopes)}")
    if options.plots and rows:
        draw(rows, options.plots)
    return 0


def draw(rows: Sequence[dict[str, float]], directory: Path) -> None:
    """Draw what grows over the passages, on logarithmic axes."""
    figure, columns = new_figure("growth", (3.5 * len(_GROWING), 3.5), len(_GROWING), extra="bench")
    for axes, (name, unit) in zip(columns, _GROWING.items(), strict=True):
        axes.plot([row["passages"] for row in rows], [row[name] for row in rows], marker="o")
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("passages")
        axes.set_ylabel(unit)
        axes.set_title(name)
        axes.grid(visible=True, which="both", linewidth=0.3)
    save_figure(figure, directory, "index_scale", dpi=120)


if __name__ == "__main__":
    sys.exit(main())
