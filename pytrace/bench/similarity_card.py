"""Exact top-k on the card beside PyTorch, CuPy and faiss."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pytrace.bench.card import DEVICE, Card
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
    def draw(bench: Bench, card: Card, n_queries: int, count: int, seed: int) -> Search:
        """Draw normal numbers and copy them to the card."""
        items, queries = halves(bench, count, seed), halves(bench, n_queries, seed + 1).astype(np.float32)
        return Search(queries, items, card.put(queries), card.put(items))

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


def torch_search(torch: Any, card: Card, search: Search) -> Call:
    """Make PyTorch's product and selection in float16."""
    narrow = search.card_queries.half()
    return card.finished(lambda: torch.topk(torch.matmul(narrow, search.card_items.T), K, dim=1)[1])


def cupy_search(cupy: Any, _: Card, search: Search) -> Call:
    """Make CuPy's product and selection in float16."""
    narrow = cupy.from_dlpack(search.card_queries).astype(cupy.float16)
    stored = cupy.from_dlpack(search.card_items)

    def call() -> Any:
        scores = narrow @ stored.T
        best = cupy.argpartition(scores, -K, axis=1)[:, -K:]
        order = cupy.argsort(-cupy.take_along_axis(scores, best, 1), axis=1)
        indices = cupy.take_along_axis(best, order, 1)
        cupy.cuda.get_current_stream().synchronize()
        return indices

    return call


def faiss_search(faiss: Any, _: Card, search: Search) -> Call:
    """Make the exact search of faiss on the card with float16 items."""
    config = faiss.GpuIndexFlatConfig()
    config.useFloat16 = True
    index = faiss.GpuIndexFlatIP(faiss.StandardGpuResources(), DIM, config)
    # It takes float32 alone; a copy of all the items would need twice their memory.
    for start in range(0, len(search.items), _BLOCK):
        index.add(search.items[start : start + _BLOCK].astype(np.float32))
    return lambda: index.search(search.queries, K)[1]


# Peers by name: what their rows are called, how the call that returns indices is made, and how indices come to the host.
PEER_SEARCHES: dict[str, tuple[str, Callable[[Any, Card, Search], Call], Callable[[Any], Any]]] = {
    "torch": ("torch", torch_search, lambda indices: indices.cpu().numpy()),
    "cupy": ("cupy", cupy_search, lambda indices: indices.get()),
    "faiss": ("faiss.GpuIndexFlatIP", faiss_search, np.asarray),
}


def peer_searches(bench: Bench, card: Card, names: Sequence[str], search: Search, what: str) -> dict[str, Call]:
    """Make the calls of those of some peers that are here, verified."""
    calls: dict[str, Call] = {}
    for name in (name for name in names if bench.peers.get(name) is not None):
        title, make, to_host = PEER_SEARCHES[name]
        calls[title] = make(bench.peers.get(name), card, search)
        verify_rounded(search, to_host(calls[title]()), f"{what}, {name}")
    return calls


def one_query(bench: Bench, card: Card) -> Iterator[Row]:
    """Search very many items once: nothing but reading them takes time."""
    count = bench.scaled(10_000_000, least=100)
    size = count * DIM * 2
    case = f"1 x {count:,} x {DIM} float16, top {K}"
    check = partial(
        Check, f"{case}: bandwidth, of that of a copy on the card", unit="x", sense="at least", bar=LEAST_SHARE
    )
    if not card.has_room(size):
        note = f"not measured: the items take {size / 1e9:.3g} GB and the card has {card.memory / 1e9:.3g}"
        yield check(value=None, note=note)
        return
    bench.tell(f"{case}: drawing and copying")
    search = Search.draw(bench, card, 1, count, 1)
    ours = partial(top_k, search.card_queries, search.card_items, K)
    verify(search.queries, search.items, ours(), case, on_card=True)
    row = bench.compare(case, ours, peer_searches(bench, card, ("torch", "cupy"), search, case), work=search.work)
    yield row
    measured = None if row.achieved is None else row.achieved.shares.get("memory")
    yield check(value=measured, extra={"GB/s": size / row.ours.median / 1e9})


def many_queries(bench: Bench, card: Card) -> Iterator[Row]:
    """Search many items for many queries: a product of matrices, then from NumPy."""
    n_queries, count = bench.scaled(1_000, least=3), bench.scaled(1_000_000, least=100)
    case = f"{n_queries:,} x {count:,} x {DIM} float16, top {K}"
    bench.tell(f"{case}: drawing and copying")
    search = Search.draw(bench, card, n_queries, count, 3)
    ours = partial(top_k, search.card_queries, search.card_items, K)
    from_numpy = partial(top_k, search.queries, search.items, K, device=DEVICE)
    peers = peer_searches(bench, card, ("torch", "faiss"), search, case)
    yield from bench.compare_on_card(
        case, ours, from_numpy, [search.queries, search.items], peers, bar=1.0, bar_peers=("torch",), work=search.work,
        verify=partial(verify, search.queries, search.items, on_card=True),
    )  # fmt: skip


def ragged(bench: Bench, card: Card) -> Iterator[Row]:
    """Give many questions their own triples in one call, beside one call on the processor."""
    count, each = bench.scaled(1_000, least=3), 100
    case = f"{count:,} questions x {each} triples x {DIM}, ragged, top {K}"
    queries = halves(bench, count, 5).astype(np.float32)
    items = halves(bench, count * each, 6)
    for kind, stored in (("float16", items), ("float32", items.astype(np.float32))):
        card_items, card_queries, offsets = card.put(stored), card.put(queries), np.arange(count + 1) * each
        ours = partial(top_k, card_queries, card_items, K, offsets=offsets)
        from_numpy = partial(top_k, queries, stored, K, offsets=offsets, device=DEVICE)
        on_processor = partial(top_k, queries, stored, K, offsets=offsets, threads=bench.settings.threads)
        peers: dict[str, Call] = {"pytrace, processor": on_processor}
        peers |= bench.peers.calls("torch", partial(torch_batches, card, card_queries, card_items, count, each))
        yield from bench.compare_on_card(
            f"{case}, {kind}", ours, from_numpy, [queries, stored], peers, work=work(queries, stored, K, count * each),
            verify=partial(verify_ragged, queries, stored, each=each, on_card=True),
        )  # fmt: skip


def torch_batches(card: Card, queries: Any, items: Any, count: int, each: int, torch: Any) -> dict[str, Call]:
    """Make PyTorch's product of a batch of matrices, which needs as many triples a question."""
    narrow, blocks = queries.to(items.dtype)[:, :, None], items.view(count, each, DIM)
    return {"torch": card.finished(lambda: torch.topk(torch.bmm(blocks, narrow)[:, :, 0], K, dim=1))}


def card_rows(bench: Bench, card: Card) -> Iterator[Row]:
    """Verify, then time, each case."""
    for case in (one_query, many_queries, ragged):
        yield from case(bench, card)
