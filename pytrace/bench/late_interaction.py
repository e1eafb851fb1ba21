"""MaxSim beside NumPy's and PyTorch's matrix products: every score is verified in float64 before time is taken."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pytrace.bench.context import Bench, Contest, require_close
from pytrace.bench.measurements import Row, Sweep, Work
from pytrace.bench.stopwatch import Call
from pytrace.kernels import max_sim

# ColBERT's own sizes: a question is filled up to 32 vectors, a vector has 128 dimensions.
TOKENS, DIM = 32, 128
SCALE = 1 / 127
# Sums of 32 cosines, each of 128 products in float32.
TOLERANCE = 1e-4

Floats = NDArray[np.float32]


class Task(NamedTuple):
    """Questions of `TOKENS` unit vectors, and passages of their own, equally many for each question."""

    queries: Floats
    documents: NDArray[Any]
    offsets: NDArray[np.int64]
    questions: int

    @staticmethod
    def random(random: np.random.Generator, questions: int, passages: int) -> Task:
        """Draw vectors, and passages of 40 to 300 of them."""
        offsets = np.cumsum([0, *random.integers(40, 301, questions * passages)])
        queries, documents = (unit(random, count) for count in (questions * TOKENS, int(offsets[-1])))
        return Task(queries, documents, offsets, questions)

    @property
    def passages(self) -> int:
        """How many each question has."""
        return (len(self.offsets) - 1) // self.questions

    @property
    def work(self) -> Work:
        """The vectors, read once, and the multiply-adds."""
        return Work(self.queries.nbytes + self.documents.nbytes, len(self.documents) * TOKENS * DIM, "multiply-add")

    def own(self) -> Iterator[tuple[Floats, NDArray[Any], NDArray[np.int64]]]:
        """Yield each question's vectors, those of its passages, and the passages' offsets in these."""
        for question in range(self.questions):
            ends = self.offsets[question * self.passages : (question + 1) * self.passages + 1]
            own = self.queries[question * TOKENS : (question + 1) * TOKENS]
            yield own, self.documents[ends[0] : ends[-1]], ends - ends[0]


def unit(random: np.random.Generator, count: int) -> Floats:
    """Draw vectors of length 1."""
    vectors = random.standard_normal((count, DIM), dtype=np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors


def ours(task: Task) -> Floats:
    """Score every question with its own passages, in one call."""
    count = len(task.offsets) - 1
    own = (np.arange(count), np.arange(task.questions + 1) * task.passages)
    return max_sim(
        task.queries,
        task.documents,
        query_offsets=np.arange(task.questions + 1) * TOKENS,
        document_offsets=task.offsets,
        candidates=own,
        scale=SCALE if task.documents.dtype == np.int8 else None,
    )


def plain_scores(task: Task) -> NDArray[np.float64]:
    """Score the same in float64, a pair at a time."""
    factor = SCALE if task.documents.dtype == np.int8 else 1.0
    scores = [
        (own.astype(np.float64) @ documents[begin:end].T.astype(np.float64)).max(axis=1).sum() * factor
        for own, documents, ends in task.own()
        for begin, end in itertools.pairwise(ends)
    ]
    return np.array(scores)


def numpy_scores(task: Task) -> Floats:
    """Score with a matrix product a question, and the largest of each passage's columns."""
    scores = [
        np.maximum.reduceat(documents @ own.T, ends[:-1], axis=0).sum(axis=1) for own, documents, ends in task.own()
    ]
    return np.concatenate(scores)


def torch_peer(task: Task, torch: Any) -> dict[str, Call]:
    """Make ColBERT's scoring as PyLate has it: products with all of a question's passages, padded to the longest, the largest, their sum."""
    padded = []
    for own, documents, ends in task.own():
        parts = [torch.from_numpy(documents[begin:end]) for begin, end in itertools.pairwise(ends)]
        padded.append((torch.from_numpy(own)[None], torch.nn.utils.rnn.pad_sequence(parts, batch_first=True)))

    def score() -> Any:
        products = (torch.einsum("ash,bth->abst", own, block) for own, block in padded)
        return torch.cat([each.max(dim=-1).values.sum(dim=-1)[0] for each in products]).numpy()

    return {"torch": score}


def peer_calls(bench: Bench, task: Task, what: str) -> dict[str, Call]:
    """Return the peers' calls, verified."""
    peers: dict[str, Call] = {"NumPy": partial(numpy_scores, task)}
    peers |= bench.peers.calls("torch", partial(torch_peer, task))
    for name, call in peers.items():
        require_close(call(), plain_scores(task), TOLERANCE, f"{what}, {name}")
    return peers


def verify(task: Task, what: str) -> None:
    """Compare every score with float64's."""
    require_close(ours(task), plain_scores(task), TOLERANCE, what)


def rows(bench: Bench) -> Iterator[Row]:
    """Verify, then time, one question and many, each with passages of its own; then passages in fewer bytes."""
    random = np.random.default_rng(bench.settings.seed)
    for questions, passages, bar in ((1, 100, 1.0), (64, 20 if bench.settings.quick else 100, 1.0)):
        task = Task.random(random, questions, passages)
        case = f"{questions} question{'s' * (questions > 1)} x {passages} passages of 40 to 300 vectors"
        verify(task, case)
        peers = peer_calls(bench, task, case)
        yield bench.compare(case, partial(ours, task), peers, bar=bar, work=task.work)
    for kind in (np.float16, np.int8):
        narrow = task._replace(documents=(task.documents * (127 if kind is np.int8 else 1)).astype(kind))
        what = f"{case}, {np.dtype(kind).name}"
        verify(narrow, what)
        yield bench.compare(what, partial(ours, narrow), {"pytrace, float32": partial(ours, task)}, work=narrow.work)


def sweeps(bench: Bench) -> Iterator[Sweep]:
    """Grow the number of passages of one question."""
    random = np.random.default_rng(bench.settings.seed)
    sizes = [10**power for power in range(1, 4 if bench.settings.quick else 5)]

    def prepare(size: int) -> Contest:
        task = Task.random(random, 1, size)
        verify(task, f"{size:,} passages")
        return Contest(partial(ours, task), peer_calls(bench, task, f"{size:,} passages"))

    yield bench.sweep("one question", "passages", sizes, prepare, growth=1)
