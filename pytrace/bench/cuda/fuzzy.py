"""A matrix of fuzzy scores on the card beside the processor's, from texts in the host's memory."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial

from pytrace.bench import sample_texts as texts
from pytrace.bench.context import Bench, require_close
from pytrace.bench.cuda.card import DEVICE
from pytrace.bench.fuzzy import average
from pytrace.bench.measurements import Check, Row, Work
from pytrace.kernels import fuzzy

PAIRS_A_SECOND = 1e8

# Both sides round the same number to float32, whose steps below 100 are 7.6e-6.
TOLERANCE = 1e-5


def rows(bench: Bench) -> Iterator[Row]:
    """Verify every score, then time the matrices."""
    found = texts.read(bench.settings.data, random.Random(bench.settings.seed))
    n_queries, n_choices = bench.scaled(1_000, least=4), bench.scaled(20_000, least=20)
    queries = [found.sentences[i % len(found.sentences)] for i in range(n_queries)]
    choices = [found.entities[i % len(found.entities)] for i in range(n_choices)]
    pairs = n_queries * n_choices
    sizes = f"{n_queries:,} sentences of {average(queries):.0f} characters x {n_choices:,} entities of {average(choices):.0f}"
    for name, scorer in (("partial_ratio", fuzzy.partial_ratio), ("ratio", fuzzy.ratio)):
        case = f"cdist({name}), {sizes}"
        ours = partial(fuzzy.cdist, queries, choices, scorer=scorer, device=DEVICE)
        here = partial(fuzzy.cdist, queries, choices, scorer=scorer, workers=bench.settings.threads)
        bench.tell(f"{case}: every score beside the processor's")
        require_close(ours(), here(), TOLERANCE, f"{case}: scores beside the processor's")
        row = bench.compare(
            case, ours, {"pytrace, processor": here}, note=found.origin, work=Work(0, pairs, "pair"),
            extra={"GB of scores that come back": pairs * 4 / 1e9},
        )  # fmt: skip
        yield row
        if scorer is fuzzy.partial_ratio:
            rate = pairs / row.ours.median
            yield Check.of(f"{case}: pairs a second, transfers included", rate, "", "at least", PAIRS_A_SECOND)
