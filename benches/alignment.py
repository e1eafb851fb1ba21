"""Alignment beside sequence-align, minineedle, parasail and RapidFuzz: the same sequences, scores checked first."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benches import harness
from pytrace.kernels.alignment import Ragged, align_batch, alignment_score, edit_distance, needleman_wunsch

ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXY"
GAP = "-"


def installed(name: str) -> ModuleType | None:
    """Return the module, or None where the peer is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def score_of(a: list[str], b: list[str]) -> float:
    """Score an alignment from its columns: match 1, mismatch -1, gap -1."""
    return float(sum(1 if x == y else -1 for x, y in zip(a, b, strict=True)))


def mutated(random: np.random.Generator, length: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return a random sequence and a copy of it with a fifth of its symbols replaced, removed or doubled."""
    a = random.integers(0, len(ALPHABET), length)
    changes = random.random(length)
    b: list[int] = []
    for symbol, change in zip(a.tolist(), changes.tolist(), strict=True):
        if change < 0.07:
            continue
        b.append(int(random.integers(0, len(ALPHABET))) if change < 0.14 else symbol)
        if change > 0.93:
            b.append(symbol)
    second = np.resize(np.array(b), length)
    return a.astype(np.int32), second.astype(np.int32)


def small_paths(settings: harness.Settings) -> Iterator[harness.Comparison]:
    """Time many pairs of 4-step paths in one call, and one pair alone."""
    random = np.random.default_rng(settings.seed)
    count = 10_000 if settings.quick else 100_000
    relations = 40
    first = random.integers(0, relations, (count, 4)).astype(np.int32)
    second = np.where(random.random((count, 4)) < 0.6, first, random.integers(0, relations, (count, 4)))
    second = second.astype(np.int32)
    offsets = np.arange(count + 1, dtype=np.int64) * 4
    candidates, references = Ragged(first.ravel(), offsets), Ragged(second.ravel(), offsets)
    names = [f"relation {r}" for r in range(relations)]
    first_names = [[names[r] for r in path] for path in first.tolist()]
    second_names = [[names[r] for r in path] for path in second.tolist()]
    scores = align_batch(candidates, references).scores

    batch: dict[str, harness.Call] = {}
    single: dict[str, harness.Call] = {}
    a, b = first_names[0], second_names[0]
    if installed("sequence_align"):
        pairwise = importlib.import_module("sequence_align.pairwise")

        def loop() -> list[tuple[list[str], list[str]]]:
            return [pairwise.needleman_wunsch(x, y, gap=GAP) for x, y in zip(first_names, second_names, strict=True)]

        for score, (x, y) in zip(scores.tolist(), loop(), strict=True):
            assert score_of(x, y) == score
        batch["sequence-align"] = loop
        single["sequence-align"] = lambda: pairwise.needleman_wunsch(a, b, gap=GAP)
    if installed("minineedle"):
        needle = importlib.import_module("minineedle.needle")

        def mini() -> Any:
            alignment = needle.NeedlemanWunsch(a, b)
            alignment.align()
            return alignment

        assert mini().get_score() == scores[0]
        single["minineedle"] = mini
    found = needleman_wunsch(a, b)
    assert (
        found.score
        == scores[0]
        == score_of([GAP if x is None else x for x in found.a], [GAP if x is None else x for x in found.b])
    )
    yield harness.compare(
        f"{count:,} pairs of 4-step paths, best alignment", lambda: align_batch(candidates, references), batch,
        settings, bar=50,
    )  # fmt: skip
    yield harness.compare("one pair of 4-step paths (strings)", lambda: needleman_wunsch(a, b), single, settings)


def long_sequences(settings: harness.Settings) -> Iterator[harness.Comparison]:
    """Time 500 symbols with 500: the score alone, with traceback, with affine gaps, and the edit distance."""
    random = np.random.default_rng(settings.seed)
    a, b = mutated(random, 500)
    text_a, text_b = ("".join(ALPHABET[s] for s in symbols.tolist()) for symbols in (a, b))
    list_a, list_b = list(text_a), list(text_b)
    found = needleman_wunsch(a, b)
    affine = needleman_wunsch(a, b, gap_open=-3)
    assert alignment_score(a, b) == found.score

    score_only: dict[str, harness.Call] = {}
    traceback: dict[str, harness.Call] = {}
    score_affine: dict[str, harness.Call] = {}
    distance: dict[str, harness.Call] = {}
    slower: dict[str, harness.Call] = {}
    if installed("sequence_align"):
        pairwise = importlib.import_module("sequence_align.pairwise")
        assert score_of(*pairwise.needleman_wunsch(list_a, list_b, gap=GAP)) == found.score
        slower["sequence-align"] = lambda: pairwise.needleman_wunsch(list_a, list_b, gap=GAP)
    parasail = installed("parasail")
    if parasail is not None:
        matrix = parasail.matrix_create(ALPHABET, 1, -1)
        assert parasail.nw_striped_16(text_a, text_b, 1, 1, matrix).score == found.score
        assert parasail.nw_striped_16(text_a, text_b, 3, 1, matrix).score == affine.score
        score_only["parasail nw_striped_16"] = lambda: parasail.nw_striped_16(text_a, text_b, 1, 1, matrix)
        score_affine["parasail nw_striped_16"] = lambda: parasail.nw_striped_16(text_a, text_b, 3, 1, matrix)
        traceback["parasail nw_trace_striped_16"] = lambda: (
            parasail.nw_trace_striped_16(text_a, text_b, 1, 1, matrix).traceback
        )
    if installed("rapidfuzz"):
        levenshtein = importlib.import_module("rapidfuzz.distance").Levenshtein
        assert levenshtein.distance(text_a, text_b) == edit_distance(text_a, text_b)
        distance["rapidfuzz Levenshtein"] = lambda: levenshtein.distance(text_a, text_b)
    assert -alignment_score(a, b, match=0) == edit_distance(text_a, text_b) == edit_distance(a, b)

    yield harness.compare(
        "500 x 500, score alone, integer symbols", lambda: alignment_score(a, b), score_only, settings, bar=1 / 3
    )
    yield harness.compare(
        "500 x 500, score alone, affine gaps", lambda: alignment_score(a, b, gap_open=-3), score_affine, settings
    )
    yield harness.compare(
        "500 x 500 with traceback, strings", lambda: needleman_wunsch(list_a, list_b), slower, settings, bar=10
    )
    yield harness.compare(
        "500 x 500 with traceback, integer symbols", lambda: needleman_wunsch(a, b), traceback, settings
    )
    yield harness.compare("500 x 500, edit distance", lambda: edit_distance(text_a, text_b), distance, settings)
    similarity = random.normal(size=(500, 500))
    yield harness.compare(
        "500 x 500 with traceback, matrix of similarities", lambda: needleman_wunsch(a, b, score=similarity), {},
        settings, note="no peer takes a matrix of positions",
    )  # fmt: skip


def run(settings: harness.Settings) -> Iterator[harness.Comparison]:
    """Verify, then time."""
    yield from small_paths(settings)
    yield from long_sequences(settings)


if __name__ == "__main__":
    sys.exit(harness.main({"alignment": run}))
