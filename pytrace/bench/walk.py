"""Personalised PageRank beside power iteration: the twenty heaviest nodes are the same on both sides before time is taken."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from pytrace.bench.context import Bench, Contest, require
from pytrace.bench.measurements import Comparison, Row, Sweep, Work
from pytrace.bench.stopwatch import Call
from pytrace.errors import VerificationError
from pytrace.kernels.walk import Ranking, personalised_pagerank

TOP, SEEDS, RESTART = 20, 8, 0.5
# Scores that differ by a smaller share are ties.
TIE = 1e-4
# What the kernel takes when it is not told, and what rustworkx has to be told.
USUAL, EXACT = 1e-6, 1e-10


class Graph(NamedTuple):
    """Links in compressed sparse rows, and the seeds of some questions, `SEEDS` each."""

    offsets: NDArray[np.int64]
    targets: NDArray[np.int32]
    weights: NDArray[np.float32]
    seeds: NDArray[np.int64]
    seed_weights: NDArray[np.float64]

    @staticmethod
    def random(random: np.random.Generator, nodes: int, questions: int) -> Graph:
        """Draw ten links a node, to targets whose in-degrees fall as a power law does."""
        links = 10 * nodes
        heads = np.sort(random.integers(0, nodes, links))
        offsets = np.searchsorted(heads, np.arange(nodes + 1)).astype(np.int64)
        popular = np.arange(1, nodes + 1) ** -0.8
        targets = random.permutation(nodes)[random.choice(nodes, links, p=popular / popular.sum())]
        weights = (random.random(links) + 0.05).astype(np.float32)
        seeds = random.integers(0, nodes, questions * SEEDS)
        return Graph(offsets, targets.astype(np.int32), weights, seeds, random.random(len(seeds)) + 0.1)

    @property
    def nodes(self) -> int:
        """How many there are."""
        return len(self.offsets) - 1

    @property
    def heads(self) -> NDArray[np.int64]:
        """The node that each link starts from."""
        return np.repeat(np.arange(self.nodes), np.diff(self.offsets))

    @property
    def questions(self) -> int:
        """How many the seeds belong to."""
        return len(self.seeds) // SEEDS

    @property
    def work(self) -> Work:
        """The links and the seeds, read once."""
        return Work(self.targets.nbytes + self.weights.nbytes + self.offsets.nbytes + self.seeds.nbytes)

    def start(self) -> NDArray[np.float64]:
        """Return where walks start: ``[nodes, questions]``, columns that add up to 1."""
        start = np.zeros((self.nodes, self.questions))
        np.add.at(start, (self.seeds, np.repeat(np.arange(self.questions), SEEDS)), self.seed_weights)
        return np.asarray(start / start.sum(axis=0))

    def moves(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return each link's head, and the share of the walks at its head that take it."""
        heads = self.heads
        totals = np.bincount(heads, self.weights, self.nodes)
        return heads, self.weights / totals[heads]


def ours(graph: Graph, tolerance: float) -> Ranking:
    """Rank by the kernel."""
    return personalised_pagerank(
        graph.offsets,
        graph.targets,
        graph.seeds,
        weights=graph.weights,
        seed_weights=graph.seed_weights,
        seed_offsets=np.arange(graph.questions + 1) * SEEDS,
        restart=RESTART,
        tolerance=tolerance,
        k=TOP,
    )


def exact_scores(graph: Graph) -> NDArray[np.float64]:
    """Score all nodes, a question at a time, by power iteration with NumPy until nothing changes in float64."""
    heads, shares = graph.moves()
    scores = np.empty((graph.nodes, graph.questions))
    for question, start in enumerate(graph.start().T):
        step = RESTART * start
        total = step.copy()
        while step.sum() > 1e-15:
            step = (1 - RESTART) * np.bincount(graph.targets, shares * step[heads], graph.nodes)
            total += step
        # Walks that came to a node without links start anew, and spread as the first did.
        scores[:, question] = total / total.sum()
    return scores


def wrong_ranks(nodes: NDArray[np.int64], exact: NDArray[np.float64]) -> int:
    """Count places whose node scores otherwise than that place's should; `nodes` is ``[questions, TOP]``, heaviest first."""
    expected = -np.sort(-exact, axis=0)[:TOP].T
    scores = np.take_along_axis(exact.T, nodes, axis=1)
    return int((np.abs(scores - expected) > TIE * expected).sum())


def top_of(scores: NDArray[Any]) -> NDArray[np.int64]:
    """Return the heaviest nodes of each question, as a peer has to pick them from the scores of all."""
    columns = scores.T
    some = np.argpartition(-columns, TOP, axis=1)[:, :TOP]
    order = np.argsort(-np.take_along_axis(columns, some, axis=1), axis=1, kind="stable")
    return np.take_along_axis(some, order, axis=1)


def coarsest(graph: Graph, exact: NDArray[np.float64], what: str) -> float:
    """Find the coarsest tolerance at which no rank is wrong; compare the scores with what they promise on the way."""
    for tolerance in (digit * 10.0**-power for power in range(6, 12) for digit in (1.0, 0.5, 0.2)):
        ranking = ours(graph, tolerance)
        require(ranking.nodes.size == graph.questions * TOP, f"{what}: {ranking.nodes.size} nodes were found")
        nodes = ranking.nodes.reshape(graph.questions, TOP)
        off = np.abs(np.take_along_axis(exact.T, nodes, axis=1) - ranking.scores.reshape(nodes.shape))
        require(
            bool((off <= ranking.left[:, None] + 1e-12).all()), f"{what}: a score is farther off than what was left"
        )
        if wrong_ranks(nodes, exact) == 0:
            return tolerance
    raise VerificationError(f"{what}: ranks are wrong at every tolerance")


def scipy_power(graph: Graph, exact: NDArray[np.float64], what: str, sparse: Any) -> dict[str, Call]:
    """Make power iteration for all questions at once, in float32 and with as few steps as leave no rank wrong.

    It starts from the seeds, so that walks which have not ended count where they are: as a sum of steps, from nothing, it would take
    twice as many.
    """
    heads, shares = graph.moves()
    shape = (graph.nodes, graph.nodes)
    back = sparse.csr_matrix((shares.astype(np.float32) * np.float32(1 - RESTART), (graph.targets, heads)), shape=shape)
    start = graph.start().astype(np.float32)
    again = np.float32(RESTART) * start

    def ranked(steps: int) -> NDArray[np.int64]:
        scores = start
        for _ in range(steps):
            scores = back @ scores
            scores += again
        return top_of(scores)

    for steps in range(1, 41):
        if wrong_ranks(ranked(steps), exact) == 0:
            return {f"scipy, {steps} steps": partial(ranked, steps)}
    raise VerificationError(f"{what}: scipy's ranks are wrong after 40 steps")


def rustworkx_pagerank(graph: Graph, exact: NDArray[np.float64], what: str, rustworkx: Any) -> dict[str, Call]:
    """Make rustworkx's PageRank of a single question, verified by its ranks."""
    network = rustworkx.PyDiGraph()
    network.add_nodes_from(range(graph.nodes))
    ends = zip(graph.heads.tolist(), graph.targets.tolist(), graph.weights.tolist(), strict=True)
    network.add_edges_from(list(ends))
    shares = dict(enumerate(graph.start()[:, 0].tolist()))

    def ranked() -> NDArray[np.int64]:
        scores = rustworkx.pagerank(network, alpha=1 - RESTART, weight_fn=float, personalization=shares, tol=EXACT)
        return top_of(np.array([scores[node] for node in range(graph.nodes)])[:, None])

    wrong = wrong_ranks(ranked(), exact)
    require(wrong == 0, f"{what}: {wrong} of rustworkx's ranks are wrong")
    return {"rustworkx": ranked}


def compared(bench: Bench, graph: Graph, *, bar: float | None, with_rustworkx: bool) -> Iterator[Comparison]:
    """Time one size, at the tolerance that leaves no rank wrong and at the usual one."""
    case = f"{graph.questions} question{'s' * (graph.questions > 1)} x {graph.nodes:,} nodes x {len(graph.targets):,} links"
    exact = exact_scores(graph)
    ranked = coarsest(graph, exact, case)
    peers = bench.peers.calls("scipy", partial(scipy_power, graph, exact, case))
    if with_rustworkx:
        peers |= bench.peers.calls("rustworkx", partial(rustworkx_pagerank, graph, exact, case))
    for tolerance, held in ((ranked, bar), (USUAL, None)):
        ranking = ours(graph, tolerance)
        nodes = ranking.nodes.reshape(graph.questions, TOP)
        best = np.argpartition(-exact.T, TOP, axis=1)[:, :TOP]
        kept = np.mean([np.isin(mine, right).mean() for mine, right in zip(nodes, best, strict=True)])
        row = bench.compare(
            f"{case}, tolerance {tolerance:g}", partial(ours, graph, tolerance), peers, bar=held, work=graph.work
        )
        extra = {
            "milliseconds a question": row.ours.median * 1e3 / graph.questions,
            "ranks wrong": float(wrong_ranks(nodes, exact)),
            "share of the top 20 found": float(kept),
            "mass left": float(ranking.left.max()),
        }
        yield msgspec.structs.replace(row, extra=extra)


def rows(bench: Bench) -> Iterator[Row]:
    """Verify, then time, a batch of questions and a single one."""
    random = np.random.default_rng(bench.settings.seed)
    nodes = 2_000 if bench.settings.quick else 100_000
    yield from compared(bench, Graph.random(random, nodes, 64), bar=10.0, with_rustworkx=False)
    yield from compared(bench, Graph.random(random, nodes, 1), bar=None, with_rustworkx=True)


def sweeps(bench: Bench) -> Iterator[Sweep]:
    """Grow the graph: what a question costs at a given tolerance hardly grows with it."""
    random = np.random.default_rng(bench.settings.seed)
    sizes = [10**power for power in range(3, 5 if bench.settings.quick else 7)]

    def prepare(size: int) -> Contest:
        graph = Graph.random(random, size, 8)
        ranking = ours(graph, USUAL)
        require(ranking.nodes.size == 8 * TOP, f"{size:,} nodes: {ranking.nodes.size} were found")
        return Contest(partial(ours, graph, USUAL), {}, {"mass left": float(ranking.left.max())})

    # Held to no slope: a question touches what its tolerance asks for, and caches do the rest.
    yield bench.sweep(f"8 questions, tolerance {USUAL:g}", "nodes", sizes, prepare, growth=0)
