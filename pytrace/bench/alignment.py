"""Alignment beside sequence-align, minineedle, parasail and RapidFuzz: the same sequences, scores checked first."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pytrace.bench.context import Bench, Contest, require
from pytrace.bench.measurements import Comparison, Row, Sweep, Work
from pytrace.bench.stopwatch import Call
from pytrace.kernels.alignment import Ragged, align_batch, alignment_score, edit_distance, needleman_wunsch

ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXY"
GAP = "-"
PARASAIL = ("nw_striped_16", "nw_scan_16", "nw_diag_16")

Sequence32 = NDArray[np.int32]


class Pair(NamedTuple):
    """Two sequences, as integers and as the strings that peers take."""

    a: Sequence32
    b: Sequence32
    text_a: str
    text_b: str

    @staticmethod
    def random(random: np.random.Generator, length: int) -> Pair:
        """Draw a sequence, and a copy of it with a fifth of its symbols replaced, removed or doubled."""
        a = random.integers(0, len(ALPHABET), length)
        changes = random.random(length)
        b: list[int] = []
        for symbol, change in zip(a.tolist(), changes.tolist(), strict=True):
            if change < 0.07:
                continue
            b.append(int(random.integers(0, len(ALPHABET))) if change < 0.14 else symbol)
            if change > 0.93:
                b.append(symbol)
        second = np.resize(np.array(b or [0]), length)
        texts = ["".join(ALPHABET[symbol] for symbol in symbols.tolist()) for symbols in (a, second)]
        return Pair(a.astype(np.int32), second.astype(np.int32), texts[0], texts[1])

    @property
    def lists(self) -> tuple[list[str], list[str]]:
        """The symbols as lists of strings."""
        return list(self.text_a), list(self.text_b)

    @property
    def work(self) -> Work:
        """One cell of the table for each pair of symbols."""
        return Work(0, len(self.a) * len(self.b), "cell")


def column_score(a: list[Any], b: list[Any], gap_open: int = -1) -> float:
    """Score an alignment from its columns: match 1, mismatch -1, gap -1, its first column `gap_open`; None is a gap."""
    total, before = 0, ""
    for x, y in zip(a, b, strict=True):
        kind = "up" if y is None else "left" if x is None else "pair"
        if kind == "pair":
            total += 1 if x == y else -1
        else:
            total += -1 if kind == before else gap_open
        before = kind
    return float(total)


def without_gap_symbol(aligned: tuple[list[str], list[str]]) -> tuple[list[Any], list[Any]]:
    """Turn a peer's gap symbol into None."""
    first, second = ([None if x == GAP else x for x in side] for side in aligned)
    return first, second


def table_score(pair: Pair, gap_open: int = -1) -> float:
    """Fill the whole table in NumPy, a row at a time, in the plain way (Gotoh's three tables)."""
    n = len(pair.b)
    steps = np.arange(1, n + 1)
    low = -1e9
    best = np.concatenate([[0.0], gap_open - (steps - 1.0)])
    vertical = np.full(n + 1, low)
    for i, symbol in enumerate(pair.a.tolist(), 1):
        vertical = np.maximum(best + gap_open, vertical - 1)
        diagonal = best[:-1] + np.where(pair.b == symbol, 1.0, -1.0)
        line = vertical.copy()
        line[0] = gap_open - (i - 1.0)
        line[1:] = np.maximum(line[1:], diagonal)
        # A gap to the left of length L costs gap_open - (L - 1): a running maximum after that slope is taken away.
        reach = np.maximum.accumulate(line + np.arange(n + 1))
        line[1:] = np.maximum(line[1:], reach[:-1] + gap_open + 1 - steps)
        best = line
    return float(best[-1])


def verify(pair: Pair, what: str, gap_open: int = -1) -> float:
    """Compare our score and our alignment's columns with the whole table; returns the score."""
    expected = table_score(pair, gap_open)
    score = alignment_score(pair.a, pair.b, gap_open=gap_open)
    require(score == expected, f"{what}: our score is {score} and should be {expected}")
    found = needleman_wunsch(*pair.lists, gap_open=gap_open)
    columns = column_score(found.a, found.b, gap_open)
    require(
        found.score == expected == columns,
        f"{what}: our alignment says {found.score}, its columns add up to {columns}, and it should be {expected}",
    )
    for aligned, text in ((found.a, pair.text_a), (found.b, pair.text_b)):
        require("".join(x for x in aligned if x is not None) == text, f"{what}: our alignment loses or adds symbols")
    return expected


def parasail_scores(bench: Bench, pair: Pair, expected: float, notes: list[str], gap_open: int = -1) -> dict[str, Call]:
    """Make parasail's calls for a score alone; one that scores wrongly is left out, with a note."""
    # Its striped functions do where a gap opens as cheaply as it goes on (version 1.3.4), if only for some sequences.
    parasail = bench.peers.get("parasail")
    if parasail is None:
        return {}
    matrix = parasail.matrix_create(ALPHABET, 1, -1)
    calls: dict[str, Call] = {}
    for name in PARASAIL:
        # It takes penalties as positive numbers.
        call = partial(getattr(parasail, name), pair.text_a, pair.text_b, -gap_open, 1, matrix)
        score = call().score
        if score == expected:
            calls[f"parasail {name}"] = call
        else:
            size = f"{len(pair.a):,} x {len(pair.b):,}"
            notes.append(f"parasail {name} left out at {size}: it scores {score}, and the best is {expected:g}")
    return calls


def traceback_peers(bench: Bench, pair: Pair, expected: float) -> dict[str, Call]:
    """Make the calls of peers that align lists of strings, verified."""
    calls: dict[str, Call] = {}
    a, b = pair.lists
    pairwise = bench.peers.get("sequence-align")
    if pairwise is not None:
        call = partial(pairwise.needleman_wunsch, a, b, gap=GAP)
        require(column_score(*without_gap_symbol(call())) == expected, f"sequence-align's score is not {expected}")
        calls["sequence-align"] = call
    needle = bench.peers.get("minineedle")
    if needle is not None and len(a) <= 200:  # quadratic in plain Python

        def mini() -> Any:
            alignment = needle.NeedlemanWunsch(a, b)
            alignment.align()
            return alignment

        require(mini().get_score() == expected, f"minineedle's score is not {expected}")
        calls["minineedle"] = mini
    return calls


def parasail_traceback(bench: Bench, pair: Pair) -> dict[str, Call]:
    """Make parasail's call with traceback."""
    parasail = bench.peers.get("parasail")
    if parasail is None:
        return {}
    matrix = parasail.matrix_create(ALPHABET, 1, -1)
    return {
        "parasail nw_trace_striped_16": lambda: (
            parasail.nw_trace_striped_16(pair.text_a, pair.text_b, 1, 1, matrix).traceback
        )
    }


def rows(bench: Bench) -> Iterator[Row]:
    """Verify, then time, each bar of the kernel."""
    yield from small_paths(bench)
    yield from long_sequences(bench)


def small_paths(bench: Bench) -> Iterator[Comparison]:
    """Time many pairs of 4-step paths in one call, and one pair alone."""
    random = np.random.default_rng(bench.settings.seed)
    count = 10_000 if bench.settings.quick else 100_000
    relations, steps = 40, 4
    first = random.integers(0, relations, (count, steps)).astype(np.int32)
    second = np.where(random.random((count, steps)) < 0.6, first, random.integers(0, relations, (count, steps)))
    second = second.astype(np.int32)
    offsets = np.arange(count + 1, dtype=np.int64) * steps
    candidates, references = Ragged(first.ravel(), offsets), Ragged(second.ravel(), offsets)
    names = [f"relation {number}" for number in range(relations)]
    first_names, second_names = ([[names[r] for r in path] for path in side.tolist()] for side in (first, second))
    case = f"{count:,} pairs of {steps}-step paths, best alignment"
    scores = align_batch(candidates, references, threads=bench.settings.threads).scores
    for row in range(0, count, max(1, count // 200)):
        expected = table_score(Pair(first[row], second[row], "", ""))
        require(scores[row] == expected, f"{case}: pair {row} scores {scores[row]} and should score {expected}")

    batch: dict[str, Call] = {}
    single: dict[str, Call] = {}
    a, b = first_names[0], second_names[0]
    pairwise = bench.peers.get("sequence-align")
    if pairwise is not None:

        def loop() -> list[tuple[list[str], list[str]]]:
            return [pairwise.needleman_wunsch(x, y, gap=GAP) for x, y in zip(first_names, second_names, strict=True)]

        for row, aligned in enumerate(loop()):
            theirs = column_score(*without_gap_symbol(aligned))
            require(scores[row] == theirs, f"{case}: pair {row} scores {scores[row]}, and {theirs} by sequence-align")
        batch["a loop over sequence-align"] = loop
        single["sequence-align"] = partial(pairwise.needleman_wunsch, a, b, gap=GAP)
    needle = bench.peers.get("minineedle")
    if needle is not None:

        def mini() -> Any:
            alignment = needle.NeedlemanWunsch(a, b)
            alignment.align()
            return alignment

        require(mini().get_score() == scores[0], "minineedle's score of the first pair differs")
        single["minineedle"] = mini
    found = needleman_wunsch(a, b)
    require(found.score == scores[0] == column_score(found.a, found.b), "the first pair's alignment has another score")
    cells = steps * steps
    yield bench.compare(
        case, partial(align_batch, candidates, references, threads=bench.settings.threads), batch, bar=50,
        work=Work(0, count * cells, "cell"),
    )  # fmt: skip
    yield bench.compare(
        f"one pair of {steps}-step paths (strings)",
        partial(needleman_wunsch, a, b),
        single,
        work=Work(0, cells, "cell"),
    )


def long_sequences(bench: Bench) -> Iterator[Comparison]:
    """Time 500 symbols with 500: the score alone, with traceback, with affine gaps, and the edit distance."""
    random = np.random.default_rng(bench.settings.seed)
    pair = Pair.random(random, 500)
    a, b = pair.a, pair.b
    score, affine = verify(pair, "500 x 500"), verify(pair, "500 x 500, affine gaps", gap_open=-3)
    distance = -alignment_score(a, b, match=0)
    require(
        distance == edit_distance(pair.text_a, pair.text_b) == edit_distance(a, b),
        "the edit distance is not minus the score with matches of 0",
    )
    levenshtein: dict[str, Call] = {}
    rapidfuzz = bench.peers.get("rapidfuzz")
    if rapidfuzz is not None:
        call = partial(rapidfuzz.distance.Levenshtein.distance, pair.text_a, pair.text_b)
        require(call() == distance, f"RapidFuzz's edit distance is {call()} and ours {distance:g}")
        levenshtein["rapidfuzz Levenshtein"] = call

    notes: list[str] = []
    peers = parasail_scores(bench, pair, score, notes)
    yield bench.compare(
        "500 x 500, score alone, integer symbols", partial(alignment_score, a, b), peers, bar=1 / 3,
        note="; ".join(notes), work=pair.work,
    )  # fmt: skip
    notes = []
    peers = parasail_scores(bench, pair, affine, notes, -3)
    yield bench.compare(
        "500 x 500, score alone, affine gaps", partial(alignment_score, a, b, gap_open=-3), peers,
        note="; ".join(notes), work=pair.work,
    )  # fmt: skip
    yield bench.compare(
        "500 x 500 with traceback, strings", partial(needleman_wunsch, *pair.lists),
        traceback_peers(bench, pair, score), bar=10, bar_peers=("sequence-align",), work=pair.work,
    )  # fmt: skip
    yield bench.compare(
        "500 x 500 with traceback, integer symbols", partial(needleman_wunsch, a, b),
        parasail_traceback(bench, pair), work=pair.work,
    )  # fmt: skip
    yield bench.compare(
        "500 x 500, edit distance", partial(edit_distance, pair.text_a, pair.text_b), levenshtein, work=pair.work
    )
    similarity = random.normal(size=(500, 500))
    yield bench.compare(
        "500 x 500 with traceback, matrix of similarities", partial(needleman_wunsch, a, b, score=similarity), {},
        note="no peer takes a matrix of positions", work=pair.work,
    )  # fmt: skip


def sweeps(bench: Bench) -> Iterator[Sweep]:
    """Grow the length of two paths: the score alone, and with traceback."""
    notes: list[str] = []
    sizes = [2, 4, 8, 20, 50, 100, 200, 500, 1_000, 2_000][: 6 if bench.settings.quick else 10]

    def score(size: int) -> Contest:
        pair = Pair.random(np.random.default_rng(bench.settings.seed + size), size)
        expected = verify(pair, f"{size:,} x {size:,}")
        return Contest(partial(alignment_score, pair.a, pair.b), parasail_scores(bench, pair, expected, notes))

    def traceback(size: int) -> Contest:
        pair = Pair.random(np.random.default_rng(bench.settings.seed + size), size)
        expected = verify(pair, f"{size:,} x {size:,}")
        peers = traceback_peers(bench, pair, expected) | parasail_traceback(bench, pair)
        return Contest(partial(needleman_wunsch, *pair.lists), peers)

    axis = "symbols of each path"
    yield bench.sweep("score alone, integer symbols", axis, sizes, score, growth=2, notes=notes)
    yield bench.sweep(
        "with traceback, strings", axis, sizes, traceback, growth=2,
        notes=["parasail aligns texts of one byte a symbol, the others lists of strings"],
    )  # fmt: skip
