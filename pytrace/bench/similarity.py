"""Exact top-k beside faiss and NumPy."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pytrace.bench import machine
from pytrace.bench.context import Bench, require, require_close
from pytrace.bench.measurements import Check, Comparison, Row, Work
from pytrace.bench.stopwatch import Call
from pytrace.kernels import top_k
from pytrace.kernels.devices import to_host
from pytrace.models import child

# The width of the default encoder's embeddings, and of most larger ones.
DIM, WIDE_DIM = 384, 768

# (queries, items, dimensions, k, bar, peers of the bar): the few triples of a question, a corpus, the passages of a batch.
SHAPES = (
    (1, 100, DIM, 20, 2.0, ("faiss.knn", "faiss.IndexFlatIP")),
    (5, 150, DIM, 20, 3.0, ("faiss.knn", "faiss.IndexFlatIP")),
    (64, 10_000, DIM, 10, 2.0, ("NumPy", "faiss.knn", "faiss.IndexFlatIP")),
    (1, 100_000, DIM, 10, 2.0, ("NumPy", "faiss.knn", "faiss.IndexFlatIP")),
    (1_000, 100_000, DIM, 10, 1.0, ("faiss.knn", "faiss.IndexFlatIP")),
    (256, 300, WIDE_DIM, 10, 1.2, ("faiss.knn", "faiss.IndexFlatIP")),
    (256, 1_000, WIDE_DIM, 10, 1.2, ("faiss.knn", "faiss.IndexFlatIP")),
)

# The sums of 384 products of numbers around 1 are some hundreds at most: float32 keeps four digits behind the point.
SLACK = 1e-3

Vectors: TypeAlias = NDArray[Any]
Found: TypeAlias = tuple[NDArray[Any], NDArray[Any]]


def numpy_top_k(queries: Vectors, items: Vectors, k: int) -> Found:
    """Find the top k the usual way: one product, a partition, a sort of what is left."""
    scores = queries @ items.T
    chosen = np.argpartition(-scores, k - 1, axis=1)[:, :k]
    best = np.take_along_axis(scores, chosen, 1)
    order = np.argsort(-best, axis=1, kind="stable")
    return np.take_along_axis(best, order, 1), np.take_along_axis(chosen, order, 1)


def verify(queries: Vectors, items: Vectors, result: Found, what: str, *, on_card: bool = False) -> None:
    """Check about five queries against a full sort in float64, or a card's, whose items are too many, against ours."""
    scores, indices = map(to_host, result)
    require(scores.shape == indices.shape, f"{what}: the results have shapes {scores.shape} and {indices.shape}")
    for row in range(0, len(queries), max(1, len(queries) // 5)):
        query, chosen, k = queries[row], indices[row], scores.shape[1]
        best: Vectors = top_k(query, items, k)[0] if on_card else np.sort(products(items, query))[::-1][:k]
        beside = " beside the processor's" if on_card else ""
        require_close(scores[row], best, SLACK, f"{what}: scores of query {row}{beside}")
        require(((chosen >= 0) & (chosen < len(items))).all(), f"{what}: query {row} has a foreign index")
        require(len(np.unique(chosen)) == k, f"{what}: query {row} has an item twice")
        require_close(products(items[chosen], query), scores[row], SLACK, f"{what}: items of query {row}")


def verify_ragged(
    queries: Vectors, items: Vectors, result: Found, what: str, *, each: int, on_card: bool = False
) -> None:
    """Check about seven queries that see so many items each, one after the other."""
    scores, indices = map(to_host, result)
    for row in range(0, len(queries), max(1, len(queries) // 7)):
        seen = items[each * row : each * row + each]
        part = scores[row : row + 1], indices[row : row + 1] - each * row
        verify(queries[row : row + 1], seen, part, f"{what}, question {row}", on_card=on_card)


def products(items: Vectors, query: Vectors) -> NDArray[np.float64]:
    """Multiply every item with a query in float64, in blocks, so that the copy in float64 stays small."""
    blocks = (items[start : start + 50_000].astype(np.float64) for start in range(0, len(items), 50_000))
    return np.concatenate([block @ query.astype(np.float64) for block in blocks])


def work(queries: Vectors, items: Vectors, k: int, pairs: int | None = None) -> Work:
    """Return the least that a search must move and compute: every array once, and each pair a product of vectors."""
    scored = len(queries) * len(items) if pairs is None else pairs
    # A result is a float32 score and an int64 index.
    return Work(queries.nbytes + items.nbytes + len(queries) * k * 12, 2.0 * scored * queries.shape[1])


def faiss_peers(bench: Bench, queries: Vectors, items: Vectors, k: int, what: str) -> dict[str, Call]:
    """Make faiss's two exact searches, verified, if it is installed."""
    faiss = bench.peers.get("faiss")
    if faiss is None:
        return {}
    index = faiss.IndexFlatIP(items.shape[1])
    index.add(items)
    verify(queries, items, index.search(queries, k), f"{what}, faiss")
    return {
        "faiss.knn": partial(faiss.knn, queries, items, k, metric=faiss.METRIC_INNER_PRODUCT),
        "faiss.IndexFlatIP": partial(index.search, queries, k),
    }


def narrowed(items: Vectors) -> tuple[tuple[str, Vectors, float | None, Vectors], ...]:
    """Return the items as float16 and as int8: the name, what is stored, the scale, and the numbers that this stands for."""
    # Normal numbers seldom pass 127 / 32; a power of two as the step keeps the numbers exact in float32.
    half, eight = items.astype(np.float16), np.clip(np.rint(items * 32), -127, 127).astype(np.int8)
    return ("float16", half, None, half), ("int8", eight, 1 / 32, eight / np.float32(32))


def rows(bench: Bench) -> Iterator[Row]:
    """Verify, then time, each bar of the kernel: float32 items of several shapes, narrow ones, and a ragged batch."""
    random, quick = np.random.default_rng(bench.settings.seed), bench.settings.quick
    for n_queries, n_items, dim, k, bar, bar_peers in SHAPES:
        if quick and n_queries * n_items > 1_000_000:
            continue
        case = f"{n_queries:,} x {n_items:,} x {dim}, top {k}"
        queries = random.standard_normal((n_queries, dim), dtype=np.float32)
        items = random.standard_normal((n_items, dim), dtype=np.float32)
        verify(queries, items, top_k(queries, items, k), case)
        peers: dict[str, Call] = {"NumPy": partial(numpy_top_k, queries, items, k)}
        peers |= faiss_peers(bench, queries, items, k, case)
        # Without faiss no bar is claimed: NumPy alone is the weaker peer.
        yield bench.compare(
            case, partial(top_k, queries, items, k), peers, bar=bar,
            bar_peers=bar_peers if bench.peers.get("faiss") is not None else (), work=work(queries, items, k),
        )  # fmt: skip
    count = 10_000 if quick else 100_000
    items = random.standard_normal((count, DIM), dtype=np.float32)
    # From some queries on, int8 items are scanned in bytes where the processor multiplies them.
    for n_queries in (1, 64, 576):
        queries = random.standard_normal((n_queries, DIM), dtype=np.float32)
        wide = {"pytrace, float32 items": partial(top_k, queries, items, 10)}
        for kind, stored, scale, numbers in narrowed(items):
            case = f"{n_queries} x {count:,} x {DIM}, top 10, {kind} items"
            ours = partial(top_k, queries, stored, 10, scale=scale)
            verify(queries, numbers, ours(), case)
            # Half the bytes should take little more than half the time of one query; int8 pays for its conversion.
            bar_here = 1.6 if kind == "float16" and n_queries == 1 else None
            yield bench.compare(case, ours, wide, bar=bar_here, work=work(queries, stored, 10))
    yield from ragged(bench, random)
    if not quick:
        yield peak_memory(bench)


def ragged(bench: Bench, random: np.random.Generator) -> Iterator[Comparison]:
    """Give many questions their own triples in one call; the peer is called once a question."""
    count, each, k = (100 if bench.settings.quick else 1_000), 100, 10
    questions = random.standard_normal((count, DIM), dtype=np.float32)
    items = random.standard_normal((count * each, DIM), dtype=np.float32)
    case = f"{count:,} questions x {each} triples x {DIM}, ragged, top {k}"

    def loop_over(faiss: Any) -> dict[str, Call]:
        def loop() -> None:
            for row in range(count):
                seen = items[each * row : each * row + each]
                faiss.knn(questions[row : row + 1], seen, k, metric=faiss.METRIC_INNER_PRODUCT)

        return {"a loop over faiss.knn": loop}

    # No peer searches ragged batches, so it is called once a question.
    peers = bench.peers.calls("faiss", loop_over)
    for kind, stored, scale, numbers in (("float32", items, None, items), *narrowed(items)):
        ours = partial(top_k, questions, stored, k, offsets=np.arange(count + 1) * each, scale=scale)
        verify_ragged(questions, numbers, ours(), f"{case}, {kind} items", each=each)
        is_wide = kind == "float32"
        yield bench.compare(
            case if is_wide else f"{case}, {kind} items", ours, peers, bar=10.0 if is_wide else None,
            work=work(questions, stored, k, count * each),
        )  # fmt: skip
        if is_wide:
            peers = {"pytrace, float32 items": ours}


def memory_growth(n_queries: int, n_items: int, dim: int, k: int, threads: int) -> tuple[int, int]:
    """Search random vectors once; return the bytes of the inputs and those by which this process's peak grew meanwhile."""
    random = np.random.default_rng(0)
    queries = random.standard_normal((n_queries, dim), dtype=np.float32)
    items = random.standard_normal((n_items, dim), dtype=np.float32)
    try:
        # The peak so far is forgotten, so that whatever Python took while starting hides nothing of the search.
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
        before = machine.memory("VmHWM", machine.STATUS)
        top_k(queries, items, k, threads=threads)
        after = machine.memory("VmHWM", machine.STATUS)
        if before is None or after is None:
            raise OSError(f"{machine.STATUS} does not say VmHWM")
    except OSError as error:
        raise OSError(f"this system does not tell the peak of memory ({error})") from None
    return queries.nbytes + items.nbytes, after - before


def peak_memory(bench: Bench) -> Check:
    """Measure how far a large search raises a fresh process's peak of memory."""
    n_queries, n_items, k = 1_000, 100_000, 10
    case = f"peak memory of {n_queries:,} x {n_items:,} x {DIM}, top {k}, over its inputs"
    bench.tell(case)
    check = partial(Check, case, unit="x", sense="at most", bar=1.2)
    shape = (n_queries, n_items, DIM, k, bench.settings.threads)
    try:
        # In this process peers and earlier cases have raised the peak already.
        inputs, grown = child.run(memory_growth, *shape, returns=tuple[int, int], timeout=600)
    except child.ChildFailedError as error:
        return check(None, note=f"not measured: {error}")
    return check((inputs + grown) / inputs, extra={"input bytes": inputs, "bytes it grew by": grown})
