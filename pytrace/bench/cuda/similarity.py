"""Exact top-k on the card beside PyTorch, CuPy and faiss."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytrace.bench.context import Bench, require, require_close
from pytrace.bench.cuda.card import DEVICE, card_of, from_numpy
from pytrace.bench.measurements import Check, Row
from pytrace.bench.similarity import DIM, Vectors, work
from pytrace.bench.stopwatch import Call
from pytrace.kernels import top_k
from pytrace.kernels.devices import to_host

K = 10
LEAST_SHARE = 0.7
"""Of the bandwidth of a copy on the card: what a search that reads its items once must reach."""

_BLOCK = 1 << 16
# The sums of 384 products of numbers around 1 are some hundreds at most, so that float32 keeps four digits behind the point.
_SLACK = 1e-3


def rows(bench: Bench) -> Iterator[Row]:
    """Verify, then time, each case."""
    yield from one_query(bench)
    yield from many_queries(bench)
    yield from ragged(bench)


def halves(bench: Bench, count: int, seed: int) -> NDArray[np.float16]:
    """Draw normal numbers as float16 [count, DIM], in blocks on all threads."""
    out = np.empty((count, DIM), dtype=np.float16)
    starts = range(0, count, _BLOCK)
    seeds = np.random.SeedSequence([bench.settings.seed, seed]).spawn(len(starts))

    def fill(start: int, own: np.random.SeedSequence) -> None:
        block = out[start : start + _BLOCK]
        block[...] = np.random.default_rng(own).standard_normal(block.shape, dtype=np.float32)

    with ThreadPoolExecutor(bench.settings.threads) as pool:
        list(pool.map(fill, starts, seeds))
    return out


def verify(queries: Vectors, items: Vectors, found: Any, what: str) -> None:
    """Compare about five queries with the processor's kernel, and their items' scores with float64."""
    scores, indices = map(to_host, found)
    require(scores.shape == indices.shape == (len(queries), K), f"{what}: the results have shape {list(scores.shape)}")
    sample = np.arange(0, len(queries), max(1, len(queries) // 5))
    expected, _ = top_k(queries[sample], items, K)
    require_close(scores[sample], expected, _SLACK, f"{what}: scores beside the processor's")
    for row in sample.tolist():
        own = indices[row]
        require(((own >= 0) & (own < len(items))).all(), f"{what}: query {row} has a foreign index")
        require(len(np.unique(own)) == K, f"{what}: query {row} has an item twice")
        true = items[own].astype(np.float64) @ queries[row].astype(np.float64)
        require_close(scores[row], true, _SLACK, f"{what}: items of query {row}")


def verify_rounded(queries: Vectors, items: Vectors, indices: NDArray[Any], what: str) -> None:
    """Check a peer that scores in float16: its items' true scores are the best ones but for that rounding."""
    for row in range(0, len(queries), max(1, len(queries) // 5)):
        expected, _ = top_k(queries[row], items, K)
        true = np.sort(items[indices[row]].astype(np.float64) @ queries[row].astype(np.float64))[::-1]
        # float16 has 11 bits; both the score that was taken and the one that was left may be half a step off.
        require_close(true, expected, float(np.abs(expected).max()) * 2.0**-10 + _SLACK, f"{what}: query {row}")


def torch_peer(bench: Bench, queries: Vectors, items: Vectors, asked: Any, there: Any, what: str) -> dict[str, Call]:
    """Make PyTorch's product and selection in float16, verified, if it can use the card."""
    torch = bench.peers.get("torch")
    if torch is None:
        return {}
    narrow = asked.half()
    search = card_of(bench).finished(lambda: torch.topk(torch.matmul(narrow, there.T), K, dim=1))
    found: Any = search()
    verify_rounded(queries, items, found[1].cpu().numpy(), f"{what}, torch")
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
        own = cupy.take_along_axis(scores, best, 1)
        found = cupy.take_along_axis(best, cupy.argsort(-own, axis=1), 1)
        cupy.cuda.get_current_stream().synchronize()
        return found

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
    card = card_of(bench)
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
    verify(queries, items, ours(), case)
    peers = torch_peer(bench, queries, items, asked, there, case) | cupy_peer(bench, queries, items, asked, there, case)
    row = bench.compare(case, ours, peers, work=work(queries, items, K))
    yield row
    measured = None if row.achieved is None else row.achieved.shares.get("memory")
    rate = {"GB/s": items.nbytes / row.ours.median / 1e9}
    yield Check.of(share, measured, "x", "at least", LEAST_SHARE, extra=rate)


def many_queries(bench: Bench) -> Iterator[Row]:
    """Search many items for many queries: a product of matrices, then from NumPy."""
    card = card_of(bench)
    n_queries, count = bench.scaled(1_000, least=3), bench.scaled(1_000_000, least=100)
    case = f"{n_queries:,} x {count:,} x {DIM} float16, top {K}"
    bench.tell(f"{case}: drawing and copying")
    items, queries = halves(bench, count, 3), halves(bench, n_queries, 4).astype(np.float32)
    there, asked = card.put(items), card.put(queries)
    ours = partial(top_k, asked, there, K)
    verify(queries, items, ours(), case)
    peers = torch_peer(bench, queries, items, asked, there, case) | faiss_peer(bench, queries, items, case)
    yield bench.compare(case, ours, peers, bar=1.0, bar_peers=("torch",), work=work(queries, items, K))
    given = partial(top_k, queries, items, K, device=DEVICE)
    verify(queries, items, given(), f"{case}, from NumPy")
    yield from_numpy(bench, case, [queries, items], given, ours)


def ragged(bench: Bench) -> Iterator[Row]:
    """Give many questions their own triples in one call, beside one call on the processor."""
    card = card_of(bench)
    count, each = bench.scaled(1_000, least=3), 100
    case = f"{count:,} questions x {each} triples x {DIM}, ragged, top {K}"
    queries = halves(bench, count, 5).astype(np.float32)
    items = halves(bench, count * each, 6)
    for kind, stored in (("float16", items), ("float32", items.astype(np.float32))):
        there, asked, offsets = card.put(stored), card.put(queries), np.arange(count + 1) * each
        ours = partial(top_k, asked, there, K, offsets=offsets)
        given = partial(top_k, queries, stored, K, offsets=offsets, device=DEVICE)
        here = partial(top_k, queries, stored, K, offsets=offsets, threads=bench.settings.threads)
        for found, how in ((ours(), "on the card"), (given(), "from NumPy")):
            scores, indices = map(to_host, found)
            for row in range(0, count, max(1, count // 7)):
                own = slice(each * row, each * row + each)
                mine = scores[row : row + 1], indices[row : row + 1] - each * row
                verify(queries[row : row + 1], stored[own], mine, f"{case}, {kind}, {how}, question {row}")
        peers: dict[str, Call] = {"pytrace, processor": here}
        peers |= torch_batches(bench, asked, there, count, each)
        yield bench.compare(f"{case}, {kind}", ours, peers, work=work(queries, stored, K, count * each))
        yield from_numpy(bench, f"{case}, {kind}", [queries, stored], given, ours)


def torch_batches(bench: Bench, asked: Any, there: Any, count: int, each: int) -> dict[str, Call]:
    """Make PyTorch's product of a batch of matrices, which needs as many triples a question, if it can use the card."""
    torch = bench.peers.get("torch")
    if torch is None:
        return {}
    narrow, blocks = asked.to(there.dtype)[:, :, None], there.view(count, each, DIM)
    return {"torch": card_of(bench).finished(lambda: torch.topk(torch.bmm(blocks, narrow)[:, :, 0], K, dim=1))}
