"""Many short alignments in one call on the card beside the processor's."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from pytrace.bench.alignment import Pair, table_score
from pytrace.bench.context import Bench, require
from pytrace.bench.cuda.card import DEVICE, card_of, from_numpy
from pytrace.bench.measurements import Row, Work
from pytrace.kernels.alignment import BatchAlignment, Ragged, align_batch
from pytrace.kernels.devices import to_host

RELATIONS, STEPS = 40, 4
FIELDS = ("best", "scores", "matches", "lengths")


def rows(bench: Bench) -> Iterator[Row]:
    """Verify every pair, then time them from arrays on the card and from NumPy."""
    card = card_of(bench)
    random = np.random.default_rng(bench.settings.seed)
    count = bench.scaled(100_000, least=8)
    first = random.integers(0, RELATIONS, (count, STEPS)).astype(np.int32)
    second = np.where(random.random((count, STEPS)) < 0.6, first, random.integers(0, RELATIONS, (count, STEPS)))
    second = second.astype(np.int32)
    offsets = np.arange(count + 1, dtype=np.int64) * STEPS
    case = f"{count:,} pairs of {STEPS}-step paths, best alignment"
    candidates, references = Ragged(first.ravel(), offsets), Ragged(second.ravel(), offsets)
    own, theirs = (Ragged(card.put(one.values), offsets) for one in (candidates, references))
    here = partial(align_batch, candidates, references, threads=bench.settings.threads)
    given = partial(align_batch, candidates, references, device=DEVICE)
    there = partial(align_batch, own, theirs)
    for found, how in ((there(), "on the card"), (given(), "from NumPy")):
        verify(first, second, found, here(), f"{case}, {how}")
    work = Work(0, count * STEPS * STEPS, "cell")
    yield bench.compare(case, there, {"pytrace, processor": here}, work=work)
    values = [candidates.values, references.values]
    yield from_numpy(
        bench, case, values, given, there, arrays=lambda found: [getattr(found, field) for field in FIELDS]
    )


def verify(first: Any, second: Any, found: BatchAlignment, expected: BatchAlignment, what: str) -> None:
    """Compare all that was found with the processor's, and some scores with the whole table."""
    for field in FIELDS:
        mine, theirs = to_host(getattr(found, field)), getattr(expected, field)
        require(np.array_equal(mine, theirs), f"{what}: {field} differ from the processor's")
    scores = to_host(found.scores)
    for row in range(0, len(first), max(1, len(first) // 200)):
        due = table_score(Pair(first[row], second[row], "", ""))
        require(scores[row] == due, f"{what}: pair {row} scores {scores[row]} and should score {due}")
