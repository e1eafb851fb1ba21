"""Exact top-k beside faiss and NumPy: `python -m benches.similarity [--json]`."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from benches import harness
from pytrace.kernels import top_k

DIM = 384
"""The width of the default encoder's embeddings."""

# (queries, items, k, bar): few triples a question, then a corpus.
SHAPES = ((1, 100, 20, 2.0), (5, 150, 20, 3.0), (64, 10_000, 10, 2.0), (1, 100_000, 10, 2.0), (1_000, 100_000, 10, 1.0))


def numpy_top_k(queries: NDArray[np.float32], items: NDArray[np.float32], k: int) -> tuple[NDArray, NDArray]:
    """Find the top k the usual way: one product, a partition, a sort of what is left."""
    scores = queries @ items.T
    found = np.argpartition(-scores, k - 1, axis=1)[:, :k]
    best = np.take_along_axis(scores, found, 1)
    order = np.argsort(-best, axis=1, kind="stable")
    return np.take_along_axis(best, order, 1), np.take_along_axis(found, order, 1)


def verify(queries: NDArray, items: NDArray, found: tuple[NDArray, NDArray], slack: float = 1e-3) -> None:
    """Check some queries against a full sort in float64."""
    for row in range(0, len(queries), max(1, len(queries) // 5)):
        true = items.astype(np.float64) @ queries[row].astype(np.float64)
        k = found[0].shape[1]
        np.testing.assert_allclose(found[0][row], np.sort(true)[::-1][:k], atol=slack)
        np.testing.assert_allclose(true[found[1][row]], found[0][row], atol=slack)


def run(settings: harness.Settings) -> Iterator[harness.Comparison]:
    rng = np.random.default_rng(settings.seed)
    try:
        import faiss
    except ImportError:
        faiss = None
    for n_queries, n_items, k, bar in SHAPES:
        if settings.quick and n_queries * n_items > 1_000_000:
            continue
        queries = rng.standard_normal((n_queries, DIM), dtype=np.float32)
        items = rng.standard_normal((n_items, DIM), dtype=np.float32)
        verify(queries, items, top_k(queries, items, k))
        peers: dict[str, harness.Call] = {"NumPy": lambda q=queries, x=items, k=k: numpy_top_k(q, x, k)}
        if faiss is not None:
            index = faiss.IndexFlatIP(DIM)
            index.add(items)
            verify(queries, items, index.search(queries, k))
            peers["faiss.knn"] = lambda q=queries, x=items, k=k: faiss.knn(q, x, k, metric=faiss.METRIC_INNER_PRODUCT)
            peers["faiss.IndexFlatIP"] = lambda q=queries, index=index, k=k: index.search(q, k)
        yield harness.compare(
            f"{n_queries:,} x {n_items:,} x {DIM}, top {k}",
            lambda q=queries, x=items, k=k: top_k(q, x, k),
            peers,
            settings,
            bar=bar,
        )

    items = rng.standard_normal((100_000, DIM), dtype=np.float32)
    query = rng.standard_normal((1, DIM), dtype=np.float32)
    half = items.astype(np.float16)
    eight = np.clip(np.rint(items * 32), -127, 127).astype(np.int8)
    verify(query, half, top_k(query, half, 10))
    verify(query, eight / 32, top_k(query, eight, 10, scale=1 / 32))
    yield harness.compare(
        f"1 x 100,000 x {DIM}, float16 items",
        lambda: top_k(query, half, 10),
        {"pytrace, float32 items": lambda: top_k(query, items, 10)},
        settings,
        bar=1.6,
    )
    yield harness.compare(
        f"1 x 100,000 x {DIM}, int8 items",
        lambda: top_k(query, eight, 10, scale=1 / 32),
        {"pytrace, float32 items": lambda: top_k(query, items, 10)},
        settings,
    )

    questions = rng.standard_normal((1_000, DIM), dtype=np.float32)
    offsets = np.arange(1_001) * 100
    scores, indices = top_k(questions, items, 10, offsets=offsets)
    for row in (0, 500, 999):
        verify(
            questions[row : row + 1], items[100 * row : 100 * row + 100], (scores[[row]], indices[[row]] - 100 * row)
        )
    if faiss is not None:

        def loop() -> None:
            for row in range(1_000):
                faiss.knn(
                    questions[row : row + 1],
                    items[100 * row : 100 * row + 100],
                    10,
                    metric=faiss.METRIC_INNER_PRODUCT,
                )

        yield harness.compare(
            f"1,000 questions x 100 triples x {DIM}, ragged, top 10",
            lambda: top_k(questions, items, 10, offsets=offsets),
            {"a loop over faiss.knn": loop},
            settings,
            bar=10.0,
        )


if __name__ == "__main__":
    sys.exit(harness.main({"similarity": run}))
