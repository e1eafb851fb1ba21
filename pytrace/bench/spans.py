"""Answer spans beside NumPy, as the small model found them before there was a kernel; spans are verified before time is taken."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pytrace.bench.context import Bench, Contest, require
from pytrace.bench.measurements import Row, Sweep, Work
from pytrace.kernels import Spans, top_spans

# Windows, width and spans as the small model has them: 8 windows go through it together.
WINDOWS, TOKENS, WIDTH, TOP = 8, 384, 64, 20
MAX_TOKENS, MAX_CHARACTERS = 30, 300
QUESTION_TOKENS = 24
TOLERANCE = 1e-4


class Task(NamedTuple):
    """The arrays of a call, as `top_spans` takes them."""

    starts: NDArray[np.float32]
    ends: NDArray[np.float32]
    pairs: NDArray[np.float32]
    owners: NDArray[np.int32]
    offsets: NDArray[np.int32]

    @staticmethod
    def random(random: np.random.Generator, windows: int, passage: int, *, sure: bool = False) -> Task:
        """Draw windows of a question and passages of so many tokens; `sure` has few starts far above the others."""
        shape = (windows, TOKENS)
        owners = np.full(shape, -1, np.int32)
        place = np.arange(TOKENS - QUESTION_TOKENS)
        # A separator ends each passage.
        owners[:, QUESTION_TOKENS:] = np.where(place % (passage + 1) == passage, -1, place // (passage + 1))
        begins = np.cumsum(random.integers(2, 9, shape), axis=1)
        starts = random.standard_normal(shape)
        if sure:
            starts = 6 * starts - 12
        return Task(
            starts.astype(np.float32),
            random.standard_normal(shape, dtype=np.float32),
            random.standard_normal((*shape, 2 * WIDTH), dtype=np.float32),
            owners,
            np.stack([begins, begins + 1], axis=2).astype(np.int32),
        )

    @property
    def work(self) -> Work:
        """The arrays, read once each."""
        return Work(float(sum(array.nbytes for array in self)))


def ours(task: Task) -> Spans:
    """Find the spans by the kernel."""
    return top_spans(*task, top=TOP, max_tokens=MAX_TOKENS, max_characters=MAX_CHARACTERS)


def numpy_spans(task: Task, window: int) -> list[tuple[float, int, int]]:
    """Return score, first and last token of a window's best spans, a start at a time."""
    starts, ends, pairs, owners, offsets = (array[window] for array in task)
    begin = np.where(owners >= 0, starts, -np.inf)
    found = []
    for first in np.argsort(-begin, kind="stable")[: 4 * TOP].tolist():
        if not np.isfinite(begin[first]):
            break
        inside = np.flatnonzero(owners[first:] == owners[first]) + first
        logits = ends[inside] + pairs[inside, WIDTH:] @ pairs[first, :WIDTH] / np.sqrt(WIDTH)
        logits = logits - logits.max()
        logits = logits - np.log(np.exp(logits).sum())
        characters = offsets[inside, 1] - offsets[first, 0]
        near = (inside < first + MAX_TOKENS) & (characters <= MAX_CHARACTERS)
        for place in np.argsort(-logits[near], kind="stable")[:TOP].tolist():
            score = float(begin[first] + logits[near][place]) - float(starts[0])
            found.append((score, first, int(inside[near][place])))
    return sorted(found, key=lambda span: (-span[0], span[1:]))[:TOP]


def numpy_all(task: Task) -> list[list[tuple[float, int, int]]]:
    """Find the spans of all windows with NumPy."""
    return [numpy_spans(task, window) for window in range(len(task.starts))]


def verify(task: Task, what: str) -> None:
    """End the run where a score is wrong, or a span that is not tied with the last."""
    spans = ours(task)
    for window, right in enumerate(numpy_all(task)):
        scores = np.array([span[0] for span in right])
        there = spans.first[window] >= 0
        found = spans.scores[window][there]
        same = len(found) == len(scores) and bool((np.abs(found - scores) <= TOLERANCE).all())
        require(same, f"{what}, window {window}: the scores differ from NumPy's")
        clear = [span[1:] for span in right if span[0] > scores[-1] + TOLERANCE]
        places = set(zip(spans.first[window].tolist(), spans.last[window].tolist(), strict=True))
        require(places.issuperset(clear), f"{what}, window {window}: spans are missing that NumPy finds")


def rows(bench: Bench) -> Iterator[Row]:
    """Verify, then time, windows of several passages, of one long one, and of few likely starts."""
    random = np.random.default_rng(bench.settings.seed)
    windows = 2 if bench.settings.quick else WINDOWS
    for what, passage, sure in (
        ("passages of 89 tokens", 89, False),
        ("a passage of 360 tokens", 360, False),
        ("passages of 89 tokens, few likely starts", 89, True),
    ):
        task = Task.random(random, windows, passage, sure=sure)
        case = f"{windows} windows x {TOKENS} tokens, {what}"
        verify(task, case)
        yield bench.compare(case, partial(ours, task), {"NumPy": partial(numpy_all, task)}, bar=5.0, work=task.work)


def sweeps(bench: Bench) -> Iterator[Sweep]:
    """Grow the number of windows."""
    random = np.random.default_rng(bench.settings.seed)
    sizes = [2**power for power in range(0, 5 if bench.settings.quick else 11, 2)]

    def prepare(size: int) -> Contest:
        task = Task.random(random, size, 89)
        verify(task, f"{size:,} windows")
        return Contest(partial(ours, task), {"NumPy": partial(numpy_all, task)})

    yield bench.sweep(f"windows of {TOKENS} tokens", "windows", sizes, prepare, growth=1)
