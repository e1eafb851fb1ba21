"""Exact top-k over growing numbers of items, beside exact peers and approximate indexes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from pytrace.bench import machine
from pytrace.bench.context import Bench, Contest
from pytrace.bench.measurements import Sweep
from pytrace.bench.similarity import DIM, Vectors, faiss_peers, numpy_top_k, verify
from pytrace.bench.stopwatch import Call
from pytrace.kernels import top_k

K = 10
# An approximate index that would take longer to build leaves the sweep.
BUILD_SECONDS = 20.0


class Index(NamedTuple):
    """An approximate index: how to search it, and how long it took to build."""

    search: Callable[[Vectors], Vectors]
    build_seconds: float


def hnswlib_index(module: Any, items: Vectors, threads: int) -> Callable[[Vectors], Vectors]:
    """Build hnswlib's graph with its own defaults."""
    index = module.Index(space="ip", dim=items.shape[1])
    index.init_index(max_elements=len(items))
    index.set_num_threads(threads)
    index.add_items(items, num_threads=threads)
    index.set_ef(max(64, K))
    return lambda queries: index.knn_query(queries, K, num_threads=threads)[0]


def usearch_index(module: Any, items: Vectors, threads: int) -> Callable[[Vectors], Vectors]:
    """Build usearch's graph in float32 with its own defaults."""
    index = module.Index(ndim=items.shape[1], metric=module.MetricKind.IP, dtype="f32")
    index.add(np.arange(len(items)), items, threads=threads)
    return lambda queries: index.search(queries, K, threads=threads).keys.reshape(len(queries), K)


BUILDERS = {"hnswlib": hnswlib_index, "usearch": usearch_index}


def build_indexes(bench: Bench, items: Vectors, sizes: Sequence[int]) -> tuple[dict[tuple[str, int], Index], list[str]]:
    """Build each approximate index of each size, up to one that would take longer than `BUILD_SECONDS`, with a note then."""
    indexes: dict[tuple[str, int], Index] = {}
    notes = []
    for name, builder in BUILDERS.items():
        module, pace = bench.peers.get(name), 0.0
        for size in sizes if module is not None else ():
            # Insertion costs about the logarithm of the size, so that seconds an item still grow a little.
            expected = 1.3 * pace * size
            if expected > BUILD_SECONDS:
                notes.append(f"{name}'s index stops before {size:,} items: building takes about {expected:.0f} s")
                break
            bench.tell(f"building {name}'s index of {size:,} items")
            start = time.perf_counter()
            search = builder(module, items[:size], bench.settings.threads)
            seconds = time.perf_counter() - start
            pace = seconds / size
            indexes[name, size] = Index(search, seconds)
    return indexes, notes


def sweeps(bench: Bench) -> Iterator[Sweep]:
    """Grow the number of items, for one query and for 64."""
    settings = bench.settings
    random = np.random.default_rng(settings.seed)
    sizes = [10**power for power in range(2, 5 if settings.quick else 7)]
    free = machine.memory("MemAvailable")
    # The items, a peer's copy of them, and the peers' full matrix of scores with its partition.
    fitting = [size for size in sizes if free is None or size * (2 * DIM * 4 + 64 * 20) < 0.8 * free]
    items = random.standard_normal((fitting[-1], DIM), dtype=np.float32)
    # Once for all sweeps: building takes far longer than searching.
    indexes, notes = build_indexes(bench, items, fitting)
    notes.append("the vectors are random, which is where approximate indexes find least")
    if len(fitting) < len(sizes):
        notes.append(f"stops at {fitting[-1]:,} items: more do not fit into this machine's free memory")

    def prepare(size: int, queries: Vectors) -> Contest:
        part = items[:size]
        what = f"{len(queries)} x {size:,} x {DIM}, top {K}"
        exact = top_k(queries, part, K)
        verify(queries, part, exact, what)
        peers: dict[str, Call] = {"NumPy": partial(numpy_top_k, queries, part, K)}
        peers |= faiss_peers(bench, queries, part, K, what)
        extra: dict[str, float] = {}
        usearch = bench.peers.get("usearch")
        if usearch is not None:
            peers["usearch exact"] = partial(
                usearch.search, part, queries, K, usearch.MetricKind.IP, exact=True, threads=settings.threads
            )
        for name in BUILDERS:
            index = indexes.get((name, size))
            if index is not None:
                nearest = index.search(queries).tolist()
                shared = sum(len(set(a) & set(b)) for a, b in zip(nearest, exact[1].tolist(), strict=True))
                extra[f"{name} recall@{K}"] = shared / exact[1].size
                extra[f"{name} build s"] = index.build_seconds
                peers[f"{name} (approximate)"] = partial(index.search, queries)
        return Contest(partial(top_k, queries, part, K), peers, extra)

    for n_queries in (1, 64):
        queries = random.standard_normal((n_queries, DIM), dtype=np.float32)
        yield bench.sweep(
            f"top {K} of items x {DIM}, {n_queries} quer{'y' if n_queries == 1 else 'ies'}", "items", fitting,
            partial(prepare, queries=queries), growth=1, bar=True, notes=notes,
        )  # fmt: skip
