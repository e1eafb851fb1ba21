"""Means of embeddings beside NumPy's and PyTorch's: every vector is verified in float64 before time is taken."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pytrace.bench.context import Bench, Contest, require_close
from pytrace.bench.measurements import Row, Sweep, Work
from pytrace.bench.stopwatch import Call
from pytrace.kernels import embedding_bag

# A vocabulary and dimensions as model2vec's models have them, and tokens as frequent as Zipf's law has them.
VOCABULARY, DIM = 30_000, 256
TOLERANCE = 1e-5


class Task(NamedTuple):
    """A table, and the tokens of some texts."""

    table: NDArray[Any]
    tokens: NDArray[np.int64]
    offsets: NDArray[np.int64]

    @staticmethod
    def random(random: np.random.Generator, texts: int) -> Task:
        """Draw texts of 5 to 60 tokens."""
        offsets = np.cumsum([0, *random.integers(5, 61, texts)])
        chances = 1 / np.arange(1, VOCABULARY + 1)
        tokens = random.permutation(VOCABULARY)[random.choice(VOCABULARY, int(offsets[-1]), p=chances / chances.sum())]
        return Task(random.standard_normal((VOCABULARY, DIM), dtype=np.float32), tokens, offsets)

    @property
    def work(self) -> Work:
        """The tokens' rows, read once each, and the means, written once."""
        size = len(self.tokens) * DIM
        return Work(size * self.table.itemsize + (len(self.offsets) - 1) * DIM * 4.0, float(size), "addition")


def ours(task: Task) -> NDArray[np.float32]:
    """Average by the kernel."""
    return embedding_bag(task.table, task.tokens, task.offsets)


def plain_means(task: Task) -> NDArray[np.float64]:
    """Average in float64, a text at a time."""
    return np.array(
        [
            task.table[task.tokens[begin:end]].astype(np.float64).mean(axis=0)
            for begin, end in zip(task.offsets[:-1], task.offsets[1:], strict=True)
        ]
    )


def numpy_means(task: Task) -> NDArray[np.float32]:
    """Average with NumPy, all texts of one length together, as model2vec does."""
    lengths = np.diff(task.offsets)
    means = np.empty((len(lengths), DIM), np.float32)
    for length in np.unique(lengths):
        texts = np.flatnonzero(lengths == length)
        places = task.offsets[texts][:, None] + np.arange(length)
        means[texts] = task.table[task.tokens[places]].mean(axis=1)
    return means


def torch_means(task: Task, torch: Any) -> dict[str, Call]:
    """Make the call of PyTorch's own bags of embeddings."""
    table, tokens, offsets = (torch.from_numpy(array) for array in (task.table, task.tokens, task.offsets[:-1]))

    def average() -> Any:
        return torch.nn.functional.embedding_bag(tokens, table, offsets, mode="mean").numpy()

    return {"torch": average}


def peer_calls(bench: Bench, task: Task, what: str) -> dict[str, Call]:
    """Return the peers' calls, verified."""
    peers: dict[str, Call] = {"NumPy": partial(numpy_means, task)}
    peers |= bench.peers.calls("torch", partial(torch_means, task))
    for name, call in peers.items():
        require_close(call(), plain_means(task), TOLERANCE, f"{what}, {name}")
    return peers


def rows(bench: Bench) -> Iterator[Row]:
    """Verify, then time, a question and many passages; then tables in fewer bytes."""
    random = np.random.default_rng(bench.settings.seed)
    for texts in (1, 1_000 if bench.settings.quick else 10_000):
        task = Task.random(random, texts)
        case = f"{texts:,} text{'s' * (texts > 1)} of 5 to 60 tokens"
        require_close(ours(task), plain_means(task), TOLERANCE, case)
        yield bench.compare(case, partial(ours, task), peer_calls(bench, task, case), bar=1.0, work=task.work)
    for kind in (np.float16, np.int8):
        narrow = task._replace(table=(task.table * (20 if kind is np.int8 else 1)).astype(kind))
        what = f"{case}, {np.dtype(kind).name}"
        require_close(ours(narrow), plain_means(narrow), TOLERANCE, what)
        yield bench.compare(what, partial(ours, narrow), {"pytrace, float32": partial(ours, task)}, work=narrow.work)


def sweeps(bench: Bench) -> Iterator[Sweep]:
    """Grow the number of texts."""
    random = np.random.default_rng(bench.settings.seed)
    sizes = [10**power for power in range(4 if bench.settings.quick else 6)]

    def prepare(size: int) -> Contest:
        task = Task.random(random, size)
        require_close(ours(task), plain_means(task), TOLERANCE, f"{size:,} texts")
        return Contest(partial(ours, task), peer_calls(bench, task, f"{size:,} texts"))

    yield bench.sweep("texts of 5 to 60 tokens", "texts", sizes, prepare, growth=1)
