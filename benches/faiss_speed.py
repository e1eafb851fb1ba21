"""`pytrace.compat.faiss` beside faiss: every function, from a thousand vectors to two hundred thousand.

    python -m benches.faiss_speed [--dimensions 384 64] [--sizes 1000 20000 200000] [--threads 1] [--seconds 0.1]
        [--only search range_search …] [--vectors FILE.npy] [--seed 0]

Both sides get the same unit vectors (random ones, or the rows of `--vectors`) and as many threads, take turns, and are timed by the fastest
of the runs that fit in `--seconds`; a row of `~` had fewer than four turns, since one takes seconds. Results are compared first: distances by
rank, and where labels differ, the distance of the label that was found, in float64, with that of its rank. Memory is that of fresh processes, on Linux.

faiss 1.15 takes BLAS where queries times dimensions are 128,000 or more, which suits many threads and is late for one (its pull requests 5022
and 5109). Searches are therefore timed with its setting (`faiss.cvar.distance_compute_blas_threshold`) as it comes and with BLAS always, and
where the faster of the two is faster than ours, the row is among those at the end.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import faiss as peer
import numpy as np
from numpy.typing import NDArray

from benches.rapidfuzz_speed import fastest, told
from pytrace import _core
from pytrace.bench import machine
from pytrace.compat import faiss
from pytrace.storage.files import flush

Vectors = NDArray[np.float32]
Labels = NDArray[np.int64]

# Of float32 sums of a thousand products; faiss's L2 from inner products and lengths loses as much.
NEAR = 1e-5
# Seconds after which a row has no further turn.
LONG = 2.0
# Queries from which on faiss's results are those by BLAS, since its usual way takes up to ten seconds.
MANY = 100
QUERIES = (1, 16, 256)
BEST = (1, 10, 100)
METRICS = {"IndexFlatIP": faiss.METRIC_INNER_PRODUCT, "IndexFlatL2": faiss.METRIC_L2}


@contextlib.contextmanager
def by_blas(wanted: bool) -> Iterator[None]:
    """Have faiss take BLAS for all that it can."""
    usual = peer.cvar.distance_compute_blas_threshold
    if wanted:
        peer.cvar.distance_compute_blas_threshold = 1
    try:
        yield
    finally:
        peer.cvar.distance_compute_blas_threshold = usual


class Table:
    """Rows as they are measured."""

    def __init__(self, seconds: float) -> None:
        self.lost: list[str] = []
        self._seconds = seconds / 4
        print(f"| function | size | ours | faiss | times | faiss by BLAS | times |\n{'| --- ' * 7}|")

    def row(
        self, name: str, size: str, ours: Callable[[], object], theirs: Callable[[], object], *, blas: bool = False
    ) -> None:
        """Time calls in turns, four times each unless they are long, so that a busy machine slows all."""
        turns: list[list[float]] = [[], [], []]
        begun = time.perf_counter()
        while len(turns[0]) < 4 and time.perf_counter() - begun < LONG:
            turns[0].append(fastest(ours, self._seconds))
            turns[1].append(fastest(theirs, self._seconds))
            if blas:
                with by_blas(True):
                    turns[2].append(fastest(theirs, self._seconds))
        own, *others = [min(turn) for turn in turns if turn]
        if min(others) < own:
            by = " (BLAS)" if others[-1] < others[0] else ""
            self.lost.append(f"{name} {size}: {min(others) / own:.2f}{by}")
        cells = " | ".join(f"{told(other)} | {other / own:.2f}" for other in others) + " | |" * (2 - len(others))
        mark = "" if len(turns[0]) == 4 else "~"
        print(f"| {name} | {size} | {mark}{told(own)} | {cells} |", flush=True)


@dataclass
class Cell:
    """Vectors of one size, what is searched for among them, and the table for which that is measured."""

    table: Table
    vectors: Vectors
    queries: Vectors

    @property
    def size(self) -> str:
        return f"{len(self.vectors):,} x {self.vectors.shape[1]}"

    @property
    def near(self) -> float:
        """Return the difference of distances that is rounding."""
        return NEAR * max(1.0, float(np.einsum("ij,ij->i", self.vectors, self.vectors).max()))

    def filled(self, library: Any, kind: str) -> Any:
        index = getattr(library, kind)(self.vectors.shape[1])
        index.add(self.vectors)
        return index

    def both(self, kind: str) -> tuple[Any, Any]:
        return self.filled(faiss, kind), self.filled(peer, kind)

    def exact(self, kind: str, rows: Labels, labels: Labels) -> NDArray[np.float64]:
        """Return the distances of pairs in float64."""
        a, b = self.queries[rows].astype(np.float64), self.vectors[labels].astype(np.float64)
        return np.asarray((a * b).sum(axis=1) if kind == "IndexFlatIP" else ((a - b) ** 2).sum(axis=1))

    def check(self, kind: str, ours: tuple[Vectors, Labels], theirs: tuple[Vectors, Labels]) -> None:
        """Compare two searches of the first queries."""
        near = self.near
        np.testing.assert_allclose(ours[0], theirs[0], rtol=0, atol=near)
        rows, ranks = np.nonzero(ours[1] != theirs[1])
        found = self.exact(kind, rows, ours[1][rows, ranks])
        np.testing.assert_allclose(found, theirs[0][rows, ranks], rtol=0, atol=near)
        assert (np.diff(np.sort(ours[1], axis=1), axis=1) > 0).all(), "a label comes twice"

    def check_range(self, kind: str, thresh: float, ours: Any, theirs: Any) -> None:
        """Compare two range searches: what one has alone is at the edge."""
        count = len(self.vectors)

        def pairs(lims: Any, _: Any, labels: Any) -> Labels:
            rows = np.repeat(np.arange(len(lims) - 1), np.diff(lims.astype(np.int64)))
            return np.asarray(rows * count + labels, dtype=np.int64)

        own, other = pairs(*ours), pairs(*theirs)
        _, first, second = np.intersect1d(own, other, assume_unique=True, return_indices=True)
        np.testing.assert_allclose(ours[1][first], theirs[1][second], rtol=0, atol=self.near)
        alone = np.setxor1d(own, other, assume_unique=True)
        edge = self.exact(kind, alone // count, alone % count)
        np.testing.assert_allclose(edge, thresh, rtol=0, atol=self.near)


def normalising(cell: Cell) -> None:
    ours, theirs = cell.vectors * np.float32(3), cell.vectors * np.float32(3)
    faiss.normalize_L2(ours)
    peer.normalize_L2(theirs)
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=NEAR)
    cell.table.row("normalize_L2", cell.size, partial(faiss.normalize_L2, ours), partial(peer.normalize_L2, theirs))


def adding(cell: Cell) -> None:
    kind = "IndexFlatIP"
    cell.table.row(f"{kind}.add", cell.size, partial(cell.filled, faiss, kind), partial(cell.filled, peer, kind))

    def in_parts(library: Any, step: int, most: int) -> None:
        index = getattr(library, kind)(cell.vectors.shape[1])
        for begin in range(0, min(len(cell.vectors), most), step):
            index.add(cell.vectors[begin : begin + step])

    parts = [(1, 1_000)] if len(cell.vectors) <= 1_000 else [(1_000, len(cell.vectors))]
    for step, most in parts:
        size = f"{min(len(cell.vectors), most):,} x {cell.vectors.shape[1]}, {step:,} a call"
        cell.table.row(f"{kind}.add", size, partial(in_parts, faiss, step, most), partial(in_parts, peer, step, most))


def searching(cell: Cell) -> None:
    for kind in METRICS:
        ours, theirs = cell.both(kind)
        for count in QUERIES:
            for k in BEST:
                q = cell.queries[:count]
                with by_blas(count >= MANY):
                    cell.check(kind, ours.search(q, k), theirs.search(q, k))
                size = f"{count} x {cell.size}, k {k}"
                cell.table.row(
                    f"{kind}.search", size, partial(ours.search, q, k), partial(theirs.search, q, k), blas=True
                )


def searching_labelled(cell: Cell) -> None:
    kind = "IndexFlatIP"
    labels = np.random.default_rng(0).permutation(len(cell.vectors)).astype(np.int64) + 10**9
    indexes: list[Any] = []
    for library in (faiss, peer):
        index = library.IndexIDMap(getattr(library, kind)(cell.vectors.shape[1]))
        index.add_with_ids(cell.vectors, labels)
        indexes.append(index)
    rows = np.argsort(labels)
    for count in QUERIES:
        q = cell.queries[:count]
        with by_blas(count >= MANY):
            found = [index.search(q, 10) for index in indexes]
        first, second = ((scores, rows[named - 10**9]) for scores, named in found)
        cell.check(kind, first, second)
        size = f"{count} x {cell.size}, k 10"
        cell.table.row(
            "IndexIDMap.search", size, partial(indexes[0].search, q, 10), partial(indexes[1].search, q, 10), blas=True
        )


def searching_arrays(cell: Cell) -> None:
    for kind, metric in METRICS.items():
        for count in QUERIES:
            given = cell.queries[:count], cell.vectors, 10, metric
            with by_blas(count >= MANY):
                cell.check(kind, faiss.knn(*given), peer.knn(*given))
            size = f"{count} x {cell.size}, k 10"
            cell.table.row(f"knn, {kind[-2:]}", size, partial(faiss.knn, *given), partial(peer.knn, *given), blas=True)


def searching_ranges(cell: Cell) -> None:
    for kind in METRICS:
        ours, theirs = cell.both(kind)
        some = theirs.search(cell.queries[:16], 100)[0]
        wide = np.median(cell.exact(kind, np.zeros(1_000, np.int64), np.arange(1_000)))
        cases = [(count, float(np.median(some[:, -1])), "some 100 each") for count in QUERIES]
        for count, thresh, found in [*cases, (16, float(wide), "half of them each")]:
            q = cell.queries[:count]
            with by_blas(count >= MANY):
                cell.check_range(kind, thresh, ours.range_search(q, thresh), theirs.range_search(q, thresh))
            cell.table.row(
                f"{kind}.range_search",
                f"{count} x {cell.size}, {found}",
                partial(ours.range_search, q, thresh),
                partial(theirs.range_search, q, thresh),
                blas=True,
            )


def reconstructing(cell: Cell) -> None:
    ours, theirs = cell.both("IndexFlatIP")
    some = np.random.default_rng(0).integers(0, len(cell.vectors), 100)
    for name, given, size in (
        ("reconstruct", (7,), "one of "),
        ("reconstruct_batch", (some,), "100 of "),
        ("reconstruct_n", (), "all of "),
    ):
        first, second = getattr(ours, name), getattr(theirs, name)
        np.testing.assert_array_equal(first(*given), second(*given))
        cell.table.row(f"IndexFlatIP.{name}", f"{size}{cell.size}", partial(first, *given), partial(second, *given))


def keeping_files(cell: Cell) -> None:
    """Time files over those of before; ours are on the disk when `write_index` returns, so faiss's are timed with a flush, too."""
    ours, theirs = cell.both("IndexFlatIP")
    with tempfile.TemporaryDirectory() as folder:
        files = str(Path(folder) / "ours"), str(Path(folder) / "theirs")

        def flushed() -> None:
            peer.write_index(theirs, files[1])
            flush(Path(files[1]))

        write = partial(faiss.write_index, ours, files[0])
        cell.table.row("write_index", cell.size, write, partial(peer.write_index, theirs, files[1]))
        cell.table.row("write_index, with fsync", cell.size, write, flushed)
        assert Path(files[0]).read_bytes() == Path(files[1]).read_bytes()
        cell.table.row("read_index", cell.size, partial(faiss.read_index, files[0]), partial(peer.read_index, files[1]))


ROOMS: dict[str, Callable[[Cell], None]] = {
    "normalize_L2": normalising,
    "add": adding,
    "search": searching,
    "IndexIDMap": searching_labelled,
    "knn": searching_arrays,
    "range_search": searching_ranges,
    "reconstruct": reconstructing,
    "files": keeping_files,
}


def taken(library_name: str, way: str, count: int, d: int, path: str) -> tuple[float, float]:
    """Return the bytes that an index of `count` random vectors holds, and those that making it took at most."""
    library: Any = {"ours": faiss, "faiss": peer}[library_name]
    rng = np.random.default_rng(0)
    step = count if way == "add" else 1_000
    block = rng.standard_normal((step, d), dtype=np.float32)
    library.IndexFlatIP(d).add(block[:1])
    if way == "read_index":
        source = library.IndexFlatIP(d)
        for _ in range(0, count, step):
            source.add(block)
        library.write_index(source, path)
        del source
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before = machine.memory("VmRSS", machine.STATUS)
    if way == "read_index":
        index = library.read_index(path)
    else:
        index = library.IndexFlatIP(d)
        for _ in range(0, count, step):
            index.add(block)
    after, most = machine.memory("VmRSS", machine.STATUS), machine.memory("VmHWM", machine.STATUS)
    if before is None or after is None or most is None:
        raise OSError(f"{machine.STATUS} does not say VmRSS and VmHWM")
    assert index.ntotal == count
    return after - before, most - before


def memory(count: int, d: int) -> None:
    print(f"\n| an index of {count:,} x {d} | ours, MiB | faiss | ours at most | faiss at most |\n{'| --- ' * 5}|")
    with tempfile.TemporaryDirectory() as folder:
        for way, name in (("add", "add, all at once"), ("parts", "add, 1,000 a call"), ("read_index", "read_index")):
            both = []
            for library in ("ours", "faiss"):
                # Each in a process of its own, for what one leaves behind the next would take.
                with multiprocessing.get_context("spawn").Pool(1) as process:
                    both.append(process.apply(taken, (library, way, count, d, str(Path(folder) / "index"))))
            mib = [f"{both[side][kind] / 2**20:.0f}" for kind in (0, 1) for side in (0, 1)]
            print(f"| {name} | {' | '.join(mib)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dimensions", type=int, nargs="+", default=[384, 64])
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 20_000, 200_000])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0.1)
    parser.add_argument("--only", nargs="+", choices=[*ROOMS, "memory"], default=[*ROOMS, "memory"])
    parser.add_argument("--vectors", type=Path, help="a matrix in NumPy's format, of which rows are taken by chance")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    peer.omp_set_num_threads(options.threads)
    faiss.omp_set_num_threads(options.threads)
    given = None if options.vectors is None else np.load(options.vectors).astype(np.float32)
    dimensions = options.dimensions if given is None else [given.shape[1]]
    most = float("inf") if given is None else len(given) - QUERIES[-1]
    sizes = [size for size in options.sizes if 1_000 <= size <= most]
    for size in sorted(set(options.sizes) - set(sizes)):
        print(f"{size:,} vectors are left out: 1,000 are needed, and {most:,} are there beside {QUERIES[-1]} queries")
    print(
        f"faiss {peer.__version__} ({peer.get_compile_options().strip()}), {_core.active_isa()}, {machine.field(Path('/proc/cpuinfo'), 'model name')}, "
        f"Python {platform.python_version()}, NumPy {np.__version__}, {options.threads} thread(s), "
        f"{options.vectors or 'random vectors'}, seed {options.seed}, load {os.getloadavg()[0]:.1f}\n"
    )
    table = Table(options.seconds)
    for d in dimensions:
        for size in sizes:
            rng = np.random.default_rng(options.seed)
            shape = size + QUERIES[-1], d
            rows = rng.standard_normal(shape, dtype=np.float32) if given is None else rng.permutation(given)[: shape[0]]
            peer.normalize_L2(rows)
            cell = Cell(table, rows[QUERIES[-1] :], rows[: QUERIES[-1]])
            for name in options.only:
                if name != "memory":
                    ROOMS[name](cell)
    if "memory" in options.only and sizes:
        memory(max(sizes) // 1_000 * 1_000, dimensions[0])
    print(f"\nslower than faiss: {'; '.join(table.lost) or 'nothing'}; load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
