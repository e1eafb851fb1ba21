"""Exact top-k on the card beside PyTorch, CuPy and faiss."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytrace.bench.card import DEVICE
from pytrace.bench.context import Bench, require_close
from pytrace.bench.measurements import Check, Row
from pytrace.bench.similarity import DIM, SLACK, Vectors, verify, verify_ragged, work
from pytrace.bench.stopwatch import Call
from pytrace.kernels import top_k

K = 10
LEAST_SHARE = 0.7
"""Of the bandwidth of a copy on the card: what a search that reads its items once must reach."""

# 48 MiB as float16: little beside the processor's memory, and enough blocks that every thread has some to draw.
_BLOCK = 1 << 16


def card_rows(bench: Bench) -> Iterator[Row]:
    """Verify, then time, each case."""
    yield from one_query(bench)
    yield from many_queries(bench)
    yield from ragged(bench)


def halves(bench: Bench, count: int, seed: int) -> NDArray[np.float16]:
    """Draw normal numbers as float16 [count, DIM], in blocks on all threads."""
    out = np.empty((count, DIM), dtype=np.float16)
    starts = range(0, count, _BLOCK)
    seeds = np.random.SeedSequence([bench.settings.seed, seed]).spawn(len(starts))

    def fill(start: int, seed: np.random.SeedSequence) -> None:
        block = out[start : start + _BLOCK]
        block[...] = np.random.default_rng(seed).standard_normal(block.shape, dtype=np.float32)

    with ThreadPoolExecutor(bench.settings.threads) as pool:
        list(pool.map(fill, starts, seeds))
    return out


def verify_rounded(queries: Vectors, items: Vectors, indices: NDArray[Any], what: str) -> None:
    """Check a peer that scores in float16: its items' true scores are the best ones but for that rounding."""
    for row in range(0, len(queries), max(1, len(queries) // 5)):
        expected, _ = top_k(queries[row], items, K)
        true = np.sort(items[indices[row]].astype(np.float64) @ queries[row].astype(np.float64))[::-1]
        # float16 has 11 bits; both the score that was taken and the one that was left may be half a step off.
        require_close(true, expected, float(np.abs(expected).max()) * 2.0**-10 + SLACK, f"{what}: query {row}")


def torch_peer(bench: Bench, queries: Vectors, items: Vectors, asked: Any, there: Any, what: str) -> dict[str, Call]:
    """Make PyTorch's product and selection in float16, verified, if it can use the card."""
    torch = bench.peers.get("torch")
    if torch is None:
        return {}
    narrow = asked.half()
    search = bench.card.finished(lambda: torch.topk(torch.matmul(narrow, there.T), K, dim=1))
    result: Any = search()
    verify_rounded(queries, items, result[1].cpu().numpy(), f"{what}, torch")
    return {"torch": search}


def cupy_peer(bench: Bench, queries: Vectors, items: Vectors, asked: Any, there: Any, what: str) -> dict[str, Call]:
    """Make CuPy's product and selection in float16, verified, if it is installed."""
    cupy = bench.peers.get("cupy")
    if cupy is None:
        return {}
    narrow, stored = cupy.from_dlpack(asked).astype(cupy.float16), cupy.from_dlpack(there)

    def search() -> Any:
        scores = narrow @ stored.T
        best = cupy.argpartition(scores, -K, axis=1)[:, -K:]
        order = cupy.argsort(-cupy.take_along_axis(scores, best, 1), axis=1)
        indices = cupy.take_along_axis(best, order, 1)
        cupy.cuda.get_current_stream().synchronize()
        return indices

    verify_rounded(queries, items, search().get(), f"{what}, cupy")
    return {"cupy": search}


def faiss_peer(bench: Bench, queries: Vectors, items: Vectors, what: str) -> dict[str, Call]:
    """Make the exact search of faiss on the card with float16 items, verified, if its GPU build is installed."""
    faiss = bench.peers.get("faiss")
    if faiss is None:
        return {}
    config = faiss.GpuIndexFlatConfig()
    config.useFloat16 = True
    index = faiss.GpuIndexFlatIP(faiss.StandardGpuResources(), DIM, config)
    for start in range(0, len(items), _BLOCK):
        index.add(items[start : start + _BLOCK].astype(np.float32))
    search = partial(index.search, queries, K)
    verify_rounded(queries, items, search()[1], f"{what}, faiss")
    return {"faiss.GpuIndexFlatIP": search}


def one_query(bench: Bench) -> Iterator[Row]:
    """Search very many items once: nothing but reading them takes time."""
    card = bench.card
    count = bench.scaled(10_000_000, least=100)
    case = f"1 x {count:,} x {DIM} float16, top {K}"
    share = f"{case}: bandwidth, of that of a copy on the card"
    if not card.has_room(count * DIM * 2):
        note = f"not measured: the items take {count * DIM * 2 / 1e9:.3g} GB and the card has {card.memory / 1e9:.3g}"
        yield Check.of(share, None, "x", "at least", LEAST_SHARE, note=note)
        return
    bench.tell(f"{case}: drawing and copying")
    items, queries = halves(bench, count, 1), halves(bench, 1, 2).astype(np.float32)
    there, asked = card.put(items), card.put(queries)
    ours = partial(top_k, asked, there, K)
    verify(queries, items, ours(), case, on_card=True)
    peers = torch_peer(bench, queries, items, asked, there, case) | cupy_peer(bench, queries, items, asked, there, case)
    row = bench.compare(case, ours, peers, work=work(queries, items, K))
    yield row
    measured = None if row.achieved is None else row.achieved.shares.get("memory")
    rate = {"GB/s": items.nbytes / row.ours.median / 1e9}
    yield Check.of(share, measured, "x", "at least", LEAST_SHARE, extra=rate)


def many_queries(bench: Bench) -> Iterator[Row]:
    """Search many items for many queries: a product of matrices, then from NumPy."""
    card = bench.card
    n_queries, count = bench.scaled(1_000, least=3), bench.scaled(1_000_000, least=100)
    case = f"{n_queries:,} x {count:,} x {DIM} float16, top {K}"
    bench.tell(f"{case}: drawing and copying")
    items, queries = halves(bench, count, 3), halves(bench, n_queries, 4).astype(np.float32)
    there, asked = card.put(items), card.put(queries)
    ours = partial(top_k, asked, there, K)
    verify(queries, items, ours(), case, on_card=True)
    peers = torch_peer(bench, queries, items, asked, there, case) | faiss_peer(bench, queries, items, case)
    yield bench.compare(case, ours, peers, bar=1.0, bar_peers=("torch",), work=work(queries, items, K))
    from_numpy = partial(top_k, queries, items, K, device=DEVICE)
    verify(queries, items, from_numpy(), f"{case}, from NumPy", on_card=True)
    yield bench.compare_from_numpy(case, [queries, items], from_numpy, ours)


def ragged(bench: Bench) -> Iterator[Row]:
    """Give many questions their own triples in one call, beside one call on the processor."""
    card = bench.card
    count, each = bench.scaled(1_000, least=3), 100
    case = f"{count:,} questions x {each} triples x {DIM}, ragged, top {K}"
    queries = halves(bench, count, 5).astype(np.float32)
    items = halves(bench, count * each, 6)
    for kind, stored in (("float16", items), ("float32", items.astype(np.float32))):
        there, asked, offsets = card.put(stored), card.put(queries), np.arange(count + 1) * each
        ours = partial(top_k, asked, there, K, offsets=offsets)
        from_numpy = partial(top_k, queries, stored, K, offsets=offsets, device=DEVICE)
        here = partial(top_k, queries, stored, K, offsets=offsets, threads=bench.settings.threads)
        for result, how in ((ours(), "on the card"), (from_numpy(), "from NumPy")):
            verify_ragged(queries, stored, result, each, f"{case}, {kind}, {how}", on_card=True)
        peers: dict[str, Call] = {"pytrace, processor": here}
        peers |= torch_batches(bench, asked, there, count, each)
        yield bench.compare(f"{case}, {kind}", ours, peers, work=work(queries, stored, K, count * each))
        yield bench.compare_from_numpy(f"{case}, {kind}", [queries, stored], from_numpy, ours)


def torch_batches(bench: Bench, asked: Any, there: Any, count: int, each: int) -> dict[str, Call]:
    """Make PyTorch's product of a batch of matrices, which needs as many triples a question, if it can use the card."""
    torch = bench.peers.get("torch")
    if torch is None:
        return {}
    narrow, blocks = asked.to(there.dtype)[:, :, None], there.view(count, each, DIM)
    return {"torch": bench.card.finished(lambda: torch.topk(torch.bmm(blocks, narrow)[:, :, 0], K, dim=1))}
