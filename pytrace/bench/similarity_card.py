"""Exact top-k on the card beside PyTorch, CuPy and faiss."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pytrace.bench.card import DEVICE
from pytrace.bench.context import Bench, require_close
from pytrace.bench.measurements import Check, Row, Work
from pytrace.bench.similarity import DIM, SLACK, Vectors, verify, verify_ragged, work
from pytrace.bench.stopwatch import Call
from pytrace.kernels import top_k

K = 10
# Of the bandwidth of a copy on the card: what a search that reads its items once must reach.
LEAST_SHARE = 0.7

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


class Search(NamedTuple):
    """Queries and float16 items, in the host's memory and as copies on the card."""

    queries: Vectors
    items: Vectors
    card_queries: Any
    card_items: Any

    @staticmethod
    def draw(bench: Bench, n_queries: int, count: int, seed: int) -> Search:
        """Draw normal numbers and copy them to the card."""
        items, queries = halves(bench, count, seed), halves(bench, n_queries, seed + 1).astype(np.float32)
        return Search(queries, items, bench.card.put(queries), bench.card.put(items))

    @property
    def work(self) -> Work:
        """What a search must move and compute."""
        return work(self.queries, self.items, K)


def verify_rounded(search: Search, indices: NDArray[Any], what: str) -> None:
    """Check a peer that scores in float16: its items' true scores are the best ones but for that rounding."""
    queries, items = search.queries, search.items
    for row in range(0, len(queries), max(1, len(queries) // 5)):
        expected, _ = top_k(queries[row], items, K)
        true = np.sort(items[indices[row]].astype(np.float64) @ queries[row].astype(np.float64))[::-1]
        # float16 has 11 bits; both the score that was taken and the one that was left may be half a step off.
        require_close(true, expected, float(np.abs(expected).max()) * 2.0**-10 + SLACK, f"{what}: query {row}")


def torch_peer(bench: Bench, search: Search, what: str) -> dict[str, Call]:
    """Make PyTorch's product and selection in float16, verified, if it can use the card."""

    def make(torch: Any) -> dict[str, Call]:
        narrow = search.card_queries.half()
        call = bench.card.finished(lambda: torch.topk(torch.matmul(narrow, search.card_items.T), K, dim=1))
        verify_rounded(search, call()[1].cpu().numpy(), f"{what}, torch")
        return {"torch": call}

    return bench.peers.calls("torch", make)


def cupy_peer(bench: Bench, search: Search, what: str) -> dict[str, Call]:
    """Make CuPy's product and selection in float16, verified, if it is installed."""

    def make(cupy: Any) -> dict[str, Call]:
        narrow = cupy.from_dlpack(search.card_queries).astype(cupy.float16)
        stored = cupy.from_dlpack(search.card_items)

        def call() -> Any:
            scores = narrow @ stored.T
            best = cupy.argpartition(scores, -K, axis=1)[:, -K:]
            order = cupy.argsort(-cupy.take_along_axis(scores, best, 1), axis=1)
            indices = cupy.take_along_axis(best, order, 1)
            cupy.cuda.get_current_stream().synchronize()
            return indices

        verify_rounded(search, call().get(), f"{what}, cupy")
        return {"cupy": call}

    return bench.peers.calls("cupy", make)


def faiss_peer(bench: Bench, search: Search, what: str) -> dict[str, Call]:
    """Make the exact search of faiss on the card with float16 items, verified, if its GPU build is installed."""

    def make(faiss: Any) -> dict[str, Call]:
        config = faiss.GpuIndexFlatConfig()
        config.useFloat16 = True
        index = faiss.GpuIndexFlatIP(faiss.StandardGpuResources(), DIM, config)
        # It takes float32 alone; a copy of all the items would need twice their memory.
        for start in range(0, len(search.items), _BLOCK):
            index.add(search.items[start : start + _BLOCK].astype(np.float32))
        call = partial(index.search, search.queries, K)
        verify_rounded(search, call()[1], f"{what}, faiss")
        return {"faiss.GpuIndexFlatIP": call}

    return bench.peers.calls("faiss", make)


def one_query(bench: Bench) -> Iterator[Row]:
    """Search very many items once: nothing but reading them takes time."""
    count = bench.scaled(10_000_000, least=100)
    size, memory = count * DIM * 2, bench.card.memory
    case = f"1 x {count:,} x {DIM} float16, top {K}"
    share = f"{case}: bandwidth, of that of a copy on the card"
    if not bench.card.has_room(size):
        note = f"not measured: the items take {size / 1e9:.3g} GB and the card has {memory / 1e9:.3g}"
        yield Check.of(share, None, "x", "at least", LEAST_SHARE, note=note)
        return
    bench.tell(f"{case}: drawing and copying")
    search = Search.draw(bench, 1, count, 1)
    ours = partial(top_k, search.card_queries, search.card_items, K)
    verify(search.queries, search.items, ours(), case, on_card=True)
    peers = torch_peer(bench, search, case) | cupy_peer(bench, search, case)
    row = bench.compare(case, ours, peers, work=search.work)
    yield row
    measured = None if row.achieved is None else row.achieved.shares.get("memory")
    rate = {"GB/s": size / row.ours.median / 1e9}
    yield Check.of(share, measured, "x", "at least", LEAST_SHARE, extra=rate)


def many_queries(bench: Bench) -> Iterator[Row]:
    """Search many items for many queries: a product of matrices, then from NumPy."""
    n_queries, count = bench.scaled(1_000, least=3), bench.scaled(1_000_000, least=100)
    case = f"{n_queries:,} x {count:,} x {DIM} float16, top {K}"
    bench.tell(f"{case}: drawing and copying")
    search = Search.draw(bench, n_queries, count, 3)
    ours = partial(top_k, search.card_queries, search.card_items, K)
    from_numpy = partial(top_k, search.queries, search.items, K, device=DEVICE)
    verify(search.queries, search.items, ours(), case, on_card=True)
    peers = torch_peer(bench, search, case) | faiss_peer(bench, search, case)
    yield bench.compare(case, ours, peers, bar=1.0, bar_peers=("torch",), work=search.work)
    verify(search.queries, search.items, from_numpy(), f"{case}, from NumPy", on_card=True)
    yield bench.compare_from_numpy(case, [search.queries, search.items], from_numpy, ours)


def ragged(bench: Bench) -> Iterator[Row]:
    """Give many questions their own triples in one call, beside one call on the processor."""
    card = bench.card
    count, each = bench.scaled(1_000, least=3), 100
    case = f"{count:,} questions x {each} triples x {DIM}, ragged, top {K}"
    queries = halves(bench, count, 5).astype(np.float32)
    items = halves(bench, count * each, 6)
    for kind, stored in (("float16", items), ("float32", items.astype(np.float32))):
        card_items, card_queries, offsets = card.put(stored), card.put(queries), np.arange(count + 1) * each
        ours = partial(top_k, card_queries, card_items, K, offsets=offsets)
        from_numpy = partial(top_k, queries, stored, K, offsets=offsets, device=DEVICE)
        on_processor = partial(top_k, queries, stored, K, offsets=offsets, threads=bench.settings.threads)
        for result, how in ((ours(), "on the card"), (from_numpy(), "from NumPy")):
            verify_ragged(queries, stored, result, each, f"{case}, {kind}, {how}", on_card=True)
        peers: dict[str, Call] = {"pytrace, processor": on_processor}
        peers |= torch_batches(bench, card_queries, card_items, count, each)
        yield bench.compare(f"{case}, {kind}", ours, peers, work=work(queries, stored, K, count * each))
        yield bench.compare_from_numpy(f"{case}, {kind}", [queries, stored], from_numpy, ours)


def torch_batches(bench: Bench, queries: Any, items: Any, count: int, each: int) -> dict[str, Call]:
    """Make PyTorch's product of a batch of matrices, which needs as many triples a question, if it can use the card."""

    def make(torch: Any) -> dict[str, Call]:
        narrow, blocks = queries.to(items.dtype)[:, :, None], items.view(count, each, DIM)
        return {"torch": bench.card.finished(lambda: torch.topk(torch.bmm(blocks, narrow)[:, :, 0], K, dim=1))}

    return bench.peers.calls("torch", make)
