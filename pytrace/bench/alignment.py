"""Alignment beside sequence-align, parasail and RapidFuzz: the same sequences, scores checked first; and on a card."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pytrace.bench.card import DEVICE, Card
from pytrace.bench.context import Bench, Contest, require
from pytrace.bench.measurements import Comparison, Row, Sweep, Work
from pytrace.bench.stopwatch import Call
from pytrace.kernels.alignment import (
    BatchAlignment,
    Ragged,
    align_batch,
    alignment_score,
    edit_distance,
    needleman_wunsch,
)
from pytrace.kernels.devices import to_host

ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXY"
GAP = "-"
RELATIONS, STEPS = 40, 4
# Its three ways to lay a table on vectors; which is fastest depends on the lengths.
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


def column_score(a: Sequence[Any], b: Sequence[Any], *, gap_open: int = -1, blank: str | None = None) -> float:
    """Score an alignment from its columns: match 1, mismatch -1, gap -1, a gap's first column `gap_open`."""
    total, before = 0, ""
    for x, y in zip(a, b, strict=True):
        kind = "up" if y == blank else "left" if x == blank else "pair"
        if kind == "pair":
            total += 1 if x == y else -1
        else:
            total += -1 if kind == before else gap_open
        before = kind
    return float(total)


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
    alignment = needleman_wunsch(*pair.lists, gap_open=gap_open)
    columns = column_score(alignment.a, alignment.b, gap_open=gap_open)
    sums = f"our alignment says {alignment.score}, its columns add up to {columns}, and it should be {expected}"
    require(alignment.score == expected == columns, f"{what}: {sums}")
    for aligned, text in ((alignment.a, pair.text_a), (alignment.b, pair.text_b)):
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


def sequence_align(module: Any, a: list[str], b: list[str]) -> tuple[Call, Callable[[], float]]:
    """Make sequence-align's call, and its score."""
    call = partial(module.needleman_wunsch, a, b, gap=GAP)
    return call, lambda: column_score(*call(), blank=GAP)


def traceback_peers(bench: Bench, a: list[str], b: list[str], expected: float) -> dict[str, Call]:
    """Make the calls of peers that align lists of strings, verified."""
    module = bench.peers.get("sequence-align")
    if module is None:
        return {}
    call, score = sequence_align(module, a, b)
    require(score() == expected, f"sequence-align's score is not {expected}")
    return {"sequence-align": call}


def parasail_traceback(bench: Bench, pair: Pair) -> dict[str, Call]:
    """Make parasail's call with traceback."""
    parasail = bench.peers.get("parasail")
    if parasail is None:
        return {}
    matrix = parasail.matrix_create(ALPHABET, 1, -1)
    align = partial(parasail.nw_trace_striped_16, pair.text_a, pair.text_b, 1, 1, matrix)
    return {"parasail nw_trace_striped_16": lambda: align().traceback}


class Paths(NamedTuple):
    """Many pairs of short paths, as matrices of relations [pairs, `STEPS`] and as the kernel takes them."""

    first: NDArray[np.int32]
    second: NDArray[np.int32]
    candidates: Ragged
    references: Ragged

    @staticmethod
    def random(seed: int, count: int) -> Paths:
        """Draw paths, and second ones in which three fifths of the steps and some more are the same."""
        random = np.random.default_rng(seed)
        first = random.integers(0, RELATIONS, (count, STEPS)).astype(np.int32)
        second = np.where(random.random((count, STEPS)) < 0.6, first, random.integers(0, RELATIONS, (count, STEPS)))
        second = second.astype(np.int32)
        offsets = np.arange(count + 1, dtype=np.int64) * STEPS
        return Paths(first, second, Ragged(first.ravel(), offsets), Ragged(second.ravel(), offsets))

    @property
    def case(self) -> str:
        """What is timed, in words."""
        return f"{len(self.first):,} pairs of {STEPS}-step paths, best alignment"

    @property
    def work(self) -> Work:
        """One cell of the table for each pair of steps."""
        return Work(0, len(self.first) * STEPS * STEPS, "cell")

    def verify(self, scores: NDArray[Any], what: str) -> None:
        """Compare about two hundred scores with the whole table."""
        for row in range(0, len(self.first), max(1, len(self.first) // 200)):
            expected = table_score(Pair(self.first[row], self.second[row], "", ""))
            require(scores[row] == expected, f"{what}: pair {row} scores {scores[row]} and should score {expected}")


def rows(bench: Bench) -> Iterator[Row]:
    """Verify, then time, each bar of the kernel."""
    yield from small_paths(bench)
    yield from long_sequences(bench)


def small_paths(bench: Bench) -> Iterator[Comparison]:
    """Time many pairs of short paths in one call, and one pair alone."""
    paths = Paths.random(bench.settings.seed, 10_000 if bench.settings.quick else 100_000)
    names = [f"relation {number}" for number in range(RELATIONS)]
    firsts, seconds = ([[names[r] for r in path] for path in side.tolist()] for side in (paths.first, paths.second))
    ours = partial(align_batch, paths.candidates, paths.references, threads=bench.settings.threads)
    scores = ours().scores
    paths.verify(scores, paths.case)
    loop: dict[str, Call] = {}
    module = bench.peers.get("sequence-align")
    if module is not None:
        align = partial(module.needleman_wunsch, gap=GAP)
        loop["a loop over sequence-align"] = lambda: [align(a, b) for a, b in zip(firsts, seconds, strict=True)]
    for call in loop.values():
        for row, aligned in enumerate(call()):
            score, theirs = scores[row], column_score(*aligned, blank=GAP)
            require(score == theirs, f"{paths.case}: pair {row} scores {score}, and {theirs} by sequence-align")
    a, b = firsts[0], seconds[0]
    alignment = needleman_wunsch(a, b)
    same = alignment.score == scores[0] == column_score(alignment.a, alignment.b)
    require(same, "the first pair's alignment has another score")
    yield bench.compare(paths.case, ours, loop, bar=50, work=paths.work)
    strings = partial(align_batch, firsts, seconds, threads=bench.settings.threads)
    require(np.array_equal(strings().scores, scores), f"{paths.case}: lists of strings have other scores than arrays")
    yield bench.compare(f"{paths.case}, lists of strings", strings, loop, bar=30, work=paths.work)
    # As a file is read: labels that are equal are not the same object, and each is fetched from memory.
    apart = [[["relation " + name[9:] for name in path] for path in side] for side in (firsts, seconds)]
    loop = {name: lambda: [align(a, b) for a, b in zip(*apart, strict=True)] for name in loop}
    strings = partial(align_batch, *apart, threads=bench.settings.threads)
    require(np.array_equal(strings().scores, scores), f"{paths.case}: strings apart have other scores than arrays")
    yield bench.compare(f"{paths.case}, lists of strings, each an object", strings, loop, bar=30, work=paths.work)
    yield bench.compare(
        f"one pair of {STEPS}-step paths (strings)", partial(needleman_wunsch, a, b),
        traceback_peers(bench, a, b, scores[0]), work=Work(0, STEPS * STEPS, "cell"),
    )  # fmt: skip


def long_sequences(bench: Bench) -> Iterator[Comparison]:
    """Time 500 symbols with 500: the score alone, with traceback, with affine gaps, and the edit distance."""
    random = np.random.default_rng(bench.settings.seed)
    pair = Pair.random(random, 500)
    a, b = pair.a, pair.b
    score, affine = verify(pair, "500 x 500"), verify(pair, "500 x 500, affine gaps", gap_open=-3)
    distance = -alignment_score(a, b, match=0)
    same = distance == edit_distance(pair.text_a, pair.text_b) == edit_distance(a, b)
    require(same, "the edit distance is not minus the score with matches of 0")

    def levenshtein(rapidfuzz: Any) -> dict[str, Call]:
        call = partial(rapidfuzz.distance.Levenshtein.distance, pair.text_a, pair.text_b)
        require(call() == distance, f"RapidFuzz's edit distance is {call()} and ours {distance:g}")
        return {"rapidfuzz Levenshtein": call}

    notes: dict[str, list[str]] = {"linear": [], "affine": []}
    linear = parasail_scores(bench, pair, score, notes["linear"])
    open_dearly = parasail_scores(bench, pair, affine, notes["affine"], -3)
    strings, edits = traceback_peers(bench, *pair.lists, score), bench.peers.calls("rapidfuzz", levenshtein)
    similarity = random.normal(size=(500, 500))
    traceback_bar = {"bar": 10, "bar_peers": ("sequence-align",)}
    cases: tuple[tuple[str, Call, dict[str, Call], dict[str, Any]], ...] = (
        (", score alone, integer symbols", partial(alignment_score, a, b), linear,
         {"bar": 1 / 3, "note": "; ".join(notes["linear"])}),
        (", score alone, affine gaps", partial(alignment_score, a, b, gap_open=-3), open_dearly,
         {"note": "; ".join(notes["affine"])}),
        (" with traceback, strings", partial(needleman_wunsch, *pair.lists), strings, traceback_bar),
        (" with traceback, integer symbols", partial(needleman_wunsch, a, b), parasail_traceback(bench, pair), {}),
        (", edit distance", partial(edit_distance, pair.text_a, pair.text_b), edits, {}),
        (" with traceback, matrix of similarities", partial(needleman_wunsch, a, b, score=similarity), {},
         {"note": "no peer takes a matrix of positions"}),
    )  # fmt: skip
    for case, ours, peers, options in cases:
        yield bench.compare(f"500 x 500{case}", ours, peers, work=pair.work, **options)


def card_rows(bench: Bench, card: Card) -> Iterator[Row]:
    """Verify every pair on a card beside the processor, then time them from arrays on the card and from NumPy."""
    fields = ("best", "scores", "matches", "lengths")
    paths = Paths.random(bench.settings.seed, bench.scaled(100_000, least=8))
    sides = (paths.candidates, paths.references)
    on_processor = partial(align_batch, *sides, threads=bench.settings.threads)
    expected = on_processor()

    def verify_all(result: BatchAlignment, what: str) -> None:
        for field in fields:
            same = np.array_equal(to_host(getattr(result, field)), getattr(expected, field))
            require(same, f"{what}: {field} differ from the processor's")
        paths.verify(to_host(result.scores), what)

    yield from bench.compare_on_card(
        paths.case,
        partial(align_batch, *(Ragged(card.put(side.values), side.offsets) for side in sides)),
        partial(align_batch, *sides, device=DEVICE),
        [side.values for side in sides],
        {"pytrace, processor": on_processor},
        verify=verify_all,
        arrays=lambda result: [getattr(result, field) for field in fields],
        work=paths.work,
    )


def sweeps(bench: Bench) -> Iterator[Sweep]:
    """Grow the length of two paths: the score alone, and with traceback."""
    notes: list[str] = []
    sizes = [2, 4, 8, 20, 50, 100, 200, 500, 1_000, 2_000][: 6 if bench.settings.quick else 10]

    def prepare(size: int, *, traceback: bool) -> Contest:
        pair = Pair.random(np.random.default_rng(bench.settings.seed + size), size)
        expected = verify(pair, f"{size:,} x {size:,}")
        if not traceback:
            return Contest(partial(alignment_score, pair.a, pair.b), parasail_scores(bench, pair, expected, notes))
        peers = traceback_peers(bench, *pair.lists, expected) | parasail_traceback(bench, pair)
        return Contest(partial(needleman_wunsch, *pair.lists), peers)

    remark = "parasail aligns texts of one byte a symbol, the others lists of strings"
    for title, remarks in (("score alone, integer symbols", notes), ("with traceback, strings", [remark])):
        prepared = partial(prepare, traceback=title.startswith("with"))
        yield bench.sweep(title, "symbols of each path", sizes, prepared, growth=2, notes=remarks)
