"""`pytrace.compat.rapidfuzz` beside RapidFuzz: every function, at sizes from one pair to 10,000 x 10,000.

    python -m benches.rapidfuzz_speed [--seconds 0.5] [--only WRatio Levenshtein …] [--seed 0]

Sentences and the entities of their titles are those of `pytrace bench`: of the evaluation data where it is, else of random words. Both
sides get the same lists and one thread, take turns, and are timed by the fastest of the runs that fit in `--seconds`; results are
compared first. RapidFuzz's time for a matrix of which it would take more than 20 seconds is that of its first hundred rows, by as many
as there are: marked with `~`.
"""

from __future__ import annotations

import argparse
import platform
import random
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import rapidfuzz
from rapidfuzz import distance as peer_distance
from rapidfuzz import fuzz as peer_fuzz
from rapidfuzz import process as peer_process

from pytrace import _core
from pytrace.bench import sample_texts
from pytrace.bench.fuzzy import repeated
from pytrace.compat.rapidfuzz import fuzz, process

SCORERS = [name for name in fuzz.__all__ if name != "partial_ratio_alignment"]
EDITS = ["Levenshtein", "Indel", "LCSseq", "Jaro", "JaroWinkler"]
SIZES = [(1, 1), (1, 20), (5, 100), (100, 1_000), (200, 5_000), (10_000, 10_000)]
LONG = 20.0


def fastest(call: Callable[[], object], seconds: float) -> float:
    """Return the seconds of the fastest run."""
    best = float("inf")
    spent, runs = 0.0, 0
    while runs == 0 or ((spent < seconds or runs < 3) and spent < 10 * seconds):
        begun = time.perf_counter()
        call()
        took = time.perf_counter() - begun
        best, spent, runs = min(best, took), spent + took, runs + 1
    return best


def compare(ours: Callable[[], object], theirs: Callable[[], object], seconds: float) -> tuple[float, float]:
    """Time two calls in turns, four times each, so that a busy machine slows both."""
    pairs = [(fastest(ours, seconds / 4), fastest(theirs, seconds / 4)) for _ in range(4)]
    return min(pair[0] for pair in pairs), min(pair[1] for pair in pairs)


def told(seconds: float) -> str:
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


class Table:
    """Rows as they are measured."""

    def __init__(self, peer: str = "RapidFuzz") -> None:
        self.lost: list[str] = []
        print(f"| function | size | ours | {peer} | times |\n| --- | --- | --- | --- | --- |")

    def row(self, name: str, size: str, ours: float, theirs: float, mark: str = "") -> None:
        if theirs < ours:
            self.lost.append(f"{name} {size}: {theirs / ours:.2f}")
        print(f"| {name} | {size} | {told(ours)} | {mark}{told(theirs)} | {theirs / ours:.2f} |", flush=True)


def matrix(
    table: Table, name: str, size: str, ours: Any, theirs: Any, queries: list[str], choices: list[str], seconds: float
) -> None:
    """Compare and time one matrix."""
    some = queries
    begun = time.perf_counter()
    expected = peer_process.cdist(queries[:100], choices, scorer=theirs, dtype=np.float64)
    mark = ""
    if (time.perf_counter() - begun) * len(queries) / len(queries[:100]) > LONG:
        some, mark = queries[:100], "~"
    found = process.cdist(queries[:100], choices, scorer=ours, dtype=np.float64)
    np.testing.assert_allclose(found, expected, atol=0 if ours is theirs else 1e-6)
    if mark:
        own = fastest(lambda: process.cdist(queries, choices, scorer=ours), 0)
        peer = fastest(lambda: peer_process.cdist(some, choices, scorer=theirs), 0) * len(queries) / len(some)
    else:
        own, peer = compare(
            lambda: process.cdist(queries, choices, scorer=ours),
            lambda: peer_process.cdist(queries, choices, scorer=theirs),
            seconds,
        )
    table.row(name, size, own, peer, mark)


def matrices(table: Table, name: str, sentences: list[str], entities: list[str], seconds: float) -> None:
    ours, theirs = getattr(fuzz, name), getattr(peer_fuzz, name)
    for rows, columns in SIZES:
        for kind, queries in (("sentences", sentences), ("entities", entities)):
            size = f"{rows:,} {kind} x {columns:,}"
            matrix(table, f"cdist({name})", size, ours, theirs, queries[:rows], entities[-columns:], seconds)


def edits(table: Table, name: str, sentences: list[str], entities: list[str], seconds: float) -> None:
    """Time RapidFuzz's own scorers, which both sides are given, by its matrices and by ours."""
    sides = (
        ("sentences", sentences, "entities", entities),
        ("entities", entities, "entities", entities),
        ("sentences", sentences, "sentences", sentences),
    )
    for form in ("distance", "normalized_similarity"):
        scorer = getattr(getattr(peer_distance, name), form)
        for rows, columns in SIZES:
            for kind, queries, other, choices in sides:
                size = f"{rows:,} {kind} x {columns:,} {other}"
                q, c = queries[:rows], choices[-columns:]
                matrix(table, f"cdist({name}.{form})", size, scorer, scorer, q, c, seconds)


def lists(table: Table, name: str, sentences: list[str], entities: list[str], seconds: float) -> None:
    ours, theirs = getattr(fuzz, name), getattr(peer_fuzz, name)
    for kind, firsts in (("sentence", sentences), ("entity", entities)):
        pairs = list(zip(firsts[:200], entities[-200:], strict=True))
        own, peer = compare(
            lambda p=pairs: [ours(a, b) for a, b in p], lambda p=pairs: [theirs(a, b) for a, b in p], seconds
        )
        table.row(name, f"one {kind}, one entity", own / len(pairs), peer / len(pairs))
        for count in (1, 100, 10_000):
            many: Any = (firsts * 2)[:count], (entities * 2)[1 : count + 1]
            own, peer = compare(
                lambda m=many: process.cpdist(*m, scorer=ours),
                lambda m=many: peer_process.cpdist(*m, scorer=theirs),
                seconds,
            )
            table.row(f"cpdist({name})", f"{count:,} of a {kind} and an entity", own, peer)
        for function in ("extract", "extractOne"):
            for count in (1, 100, 10_000):
                one: Any = firsts[0], entities[-count:]
                f, g = getattr(process, function), getattr(peer_process, function)
                assert f(*one, scorer=ours) == g(*one, scorer=theirs)
                own, peer = compare(
                    lambda f=f, o=one: f(*o, scorer=ours), lambda g=g, o=one: g(*o, scorer=theirs), seconds
                )
                table.row(f"{function}({name})", f"a {kind} among {count:,}", own, peer)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--only", nargs="+", choices=SCORERS + EDITS, default=SCORERS + EDITS)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    sample = sample_texts.read(None, rng)
    sentences, entities = repeated(sample.sentences, 10_000), repeated(sample.entities, 10_000)
    print(
        f"RapidFuzz {rapidfuzz.__version__}, {_core.active_isa()}, Python {platform.python_version()}, one thread, "
        f"{sample.origin}, of {sum(map(len, sentences)) / 1e4:.0f} and {sum(map(len, entities)) / 1e4:.0f} characters\n"
    )
    table = Table()
    for name in options.only:
        if name in EDITS:
            edits(table, name, sentences, entities, options.seconds)
            continue
        matrices(table, name, sentences, entities, options.seconds)
        lists(table, name, sentences, entities, options.seconds)
    print(f"\nslower than RapidFuzz: {'; '.join(table.lost) or 'nothing'}")


if __name__ == "__main__":
    main()
