"""The knowledge graph on disk: milliseconds to store, find and read a document; goal 0.3 ms to store one.

The peer holds the same triples in pyoxigraph's own store on disk, one transaction a document, without documents,
sentences or support: what a general RDF store costs for less.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyoxigraph as ox

from pytrace.bench import bench_report as report
from pytrace.bench.context import Bench
from pytrace.bench.measurements import Comparison, Kernel, Settings
from pytrace.bench.peers import Peers
from pytrace.records import Document, Triple
from pytrace.triples.graph import Recipe, TripleStore

RECIPE = Recipe("bench")
TRIPLES, SENTENCES = 8, 5
GOAL = 0.3


def scripted(number: int) -> tuple[Document, list[Triple]]:
    """Make a document of five sentences with eight triples, whose tails are shared with other documents."""
    title = f"Title {number}"
    sentences = tuple(f"Sentence {index} of document {number}, which says a little more." for index in range(SENTENCES))
    triples = [
        Triple(
            title, f"relation {index}", f"tail {number * 7919 % 1000} {index}", f"d{number}", index % SENTENCES, 90.0
        )
        for index in range(TRIPLES)
    ]
    return Document(f"d{number}", title, sentences), triples


def run(bench: Bench) -> Iterator[Comparison]:
    """Verify that what is read is what was stored, then time each."""
    corpus = [scripted(number) for number in range(200 if bench.settings.quick else 1000)]
    count = len(corpus)
    root = Path(tempfile.mkdtemp(prefix="pytrace-bench-"))
    try:

        def store() -> None:
            directory = Path(tempfile.mkdtemp(dir=root))
            with TripleStore.open(directory, recipe=RECIPE) as graph:
                for document, triples in corpus:
                    graph.add(document, triples)
            shutil.rmtree(directory)

        def store_rdf() -> None:
            directory = Path(tempfile.mkdtemp(dir=root))
            rdf = ox.Store(str(directory / "rdf"))
            for _, triples in corpus:
                rdf.extend(_quads(triples))
            rdf.flush()
            del rdf
            shutil.rmtree(directory)

        documents = [document for document, _ in corpus]
        with TripleStore.open(root / "read", recipe=RECIPE) as graph:
            for document, triples in corpus:
                graph.add(document, triples)
            expected = [triple for _, triples in corpus for triple in triples]
            if graph.triples() != expected or graph.missing(documents) or list(graph.documents()) != documents:
                raise AssertionError("the graph does not give back what was stored")
            rdf = ox.Store()
            rdf.extend(_quads(expected))
            yield bench.compare(
                f"store {count} documents of {TRIPLES} triples",
                store,
                {"pyoxigraph Store": store_rdf},
                note="one transaction a document",
                extra=_many(root / "many", 2000 if bench.settings.quick else 20_000),
            )
            yield bench.compare(
                f"read all {len(expected)} triples",
                lambda: sum(1 for _ in graph.iterate_triples()),
                {"pyoxigraph Store": lambda: sum(1 for _ in rdf)},
                note="the peer's in memory, without provenance",
            )
            yield bench.compare(f"find that none of {count} documents is missing", lambda: graph.missing(documents), {})
    finally:
        shutil.rmtree(root)


def _quads(triples: list[Triple]) -> list[ox.Quad]:
    return [
        ox.Quad(
            ox.NamedNode(f"urn:e:{triple.head.replace(' ', '_')}"),
            ox.NamedNode(f"urn:r:{triple.relation.replace(' ', '_')}"),
            ox.NamedNode(f"urn:e:{triple.tail.replace(' ', '_')}"),
        )
        for triple in triples
    ]


def _many(directory: Path, count: int) -> dict[str, float]:
    """Store many documents once: time, memory and disk for each."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    wall = processor = 0.0
    with TripleStore.open(directory, recipe=RECIPE) as graph:
        for number in range(count):
            document, triples = scripted(number)
            start = time.perf_counter(), time.process_time()
            graph.add(document, triples)
            wall += time.perf_counter() - start[0]
            processor += time.process_time() - start[1]
        if len(graph) != count:
            raise AssertionError(f"{len(graph)} of {count} documents were stored")
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    size = sum(file.stat().st_size for file in directory.iterdir())
    return {
        f"ms a document over {count} (goal {GOAL})": wall / count * 1e3,
        "of that on the processor": processor / count * 1e3,
        "MiB of memory it took": grown / 1024,
        "bytes on disk a document": size / count,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true", help="fewer documents")
    parser.add_argument("--repetitions", type=int, default=7)
    arguments = parser.parse_args()
    settings = Settings(threads=1, repetitions=arguments.repetitions, quick=arguments.quick)
    rows = list(run(Bench(settings, Peers(()), None, lambda case: print(case, file=sys.stderr))))
    if arguments.json:
        print(msgspec.json.encode(rows).decode())
        return 0
    for table in report.tables("graph_store", Kernel(rows=rows)):
        for cells in (table.columns, *table.rows):
            print("  ".join(f"{cell:<40}" for cell in cells[:5]))
        print(*table.notes, sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
