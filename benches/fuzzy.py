"""Fuzzy scores beside RapidFuzz: first the same scores on real and random pairs, then the time.

The real pairs are the sentences and titles of the evaluation data beside the checkout (or in ``PYTRACE_DATA``); without
it, words drawn at random from a small vocabulary stand in for them, and every line says so.

    python -m benches.fuzzy --threads 2
"""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from rapidfuzz import fuzz, process

from benches import harness
from benches.harness import Comparison, Settings, compare
from pytrace.kernels import fuzzy

TOLERANCE = 1e-6
REAL_PAIRS = 1_000_000
RANDOM_PAIRS = 100_000
ALPHABETS = ("ab", "etaoin shrdlu", "aé\xa0 b", "aĀ\u2003 б中", "a😀𝔘Ā ", "a\ud800 b")
SCORERS: tuple[tuple[Callable[..., float], Callable[..., float]], ...] = (
    (fuzzy.ratio, fuzz.ratio),
    (fuzzy.partial_ratio, fuzz.partial_ratio),
    (fuzzy.token_set_ratio, fuzz.token_set_ratio),
)


def run(settings: Settings) -> Iterator[Comparison]:
    rng = random.Random(settings.seed)
    sentences, entities, note = corpus(rng)
    real = REAL_PAIRS // (10 if settings.quick else 1)
    rows = [sentences[i % len(sentences)] for i in range(real // 500)]
    columns = [entities[i % len(entities)] for i in range(500)]
    checked = verify(rows, columns, settings.threads, exact_size=real)
    checked += verify_random(rng, RANDOM_PAIRS // (10 if settings.quick else 1))
    note = f"{note}; {checked:,} scores equal first"

    some = rng.sample(sentences, min(200, len(sentences)))
    many = [entities[i % len(entities)] for i in range(1000 if settings.quick else 5000)]
    for name, bar in (("partial_ratio", 8.0), ("ratio", 1.0), ("token_set_ratio", None)):
        ours, peer = getattr(fuzzy, name), getattr(fuzz, name)
        queries = some[:20] if name == "token_set_ratio" else some
        yield compare(
            f"cdist({name}), {len(queries)} sentences x {len(many):,} entities",
            lambda ours=ours, queries=queries: fuzzy.cdist(queries, many, scorer=ours, workers=settings.threads),
            {
                "rapidfuzz cdist": lambda peer=peer, queries=queries: process.cdist(
                    queries, many, scorer=peer, workers=settings.threads
                )
            },
            settings,
            bar=bar,
            note=note,
        )
    sentence = min(sentences, key=lambda text: abs(len(text) - 109))
    twenty = rng.sample(entities, 20)
    repeated = [sentence] * 20
    yield compare(
        f"partial_ratio, one sentence of {len(sentence)} characters x 20 entities",
        lambda: fuzzy.cdist([sentence], twenty, scorer=fuzzy.partial_ratio),
        {"rapidfuzz cpdist": lambda: process.cpdist(repeated, twenty, scorer=fuzz.partial_ratio)},
        settings,
        bar=5.0,
        note=note,
    )


def corpus(rng: random.Random) -> tuple[list[str], list[str], str]:
    """Return sentences, entity names, and what they are."""
    data = Path(os.environ.get("PYTRACE_DATA") or Path(__file__).parents[2] / "shared" / "data") / "multihop"
    sentences: dict[str, None] = {}
    titles: dict[str, None] = {}
    for path in sorted(data.glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            for title, body in json.loads(line)["context"]:
                titles[title] = None
                sentences.update(dict.fromkeys(body))
    if sentences:
        return list(sentences), list(titles), f"{len(sentences):,} real sentences, {len(titles):,} real titles"
    words = ["".join(rng.choices("etaoinshrdlu", k=rng.randint(2, 9))) for _ in range(2000)]
    made = [" ".join(rng.choices(words, k=18)) for _ in range(1000)]
    return made, [" ".join(rng.choices(words, k=2)) for _ in range(600)], "random words (no evaluation data here)"


def verify(rows: list[str], columns: list[str], threads: int, *, exact_size: int) -> int:
    """Compare whole matrices; any difference ends the bench."""
    for ours, peer in SCORERS:
        mine = fuzzy.cdist(rows, columns, scorer=ours, workers=threads, dtype=np.float64)
        theirs = process.cdist(rows, columns, scorer=peer, workers=threads, dtype=np.float64)
        different = np.argwhere(np.abs(mine - theirs) > TOLERANCE)
        if mine.size < exact_size or len(different):
            place = different[0] if len(different) else None
            message = f"{ours.__name__}: {len(different)} of {mine.size} scores differ from RapidFuzz, first at {place}"
            raise SystemExit(message)
    return exact_size * len(SCORERS)


def verify_random(rng: random.Random, pairs: int) -> int:
    """Compare random Unicode pairs of all lengths and kinds in blocks of 100 x 100."""
    checked = 0
    for _ in range(max(pairs // 10_000, 1)):
        sides = []
        for _ in range(2):
            longest = rng.choice((12, 40, 80, 160))
            sides.append(
                ["".join(rng.choices(rng.choice(ALPHABETS), k=rng.randint(0, longest))) for _ in range(100)],
            )
        checked += verify(sides[0], sides[1], 1, exact_size=10_000)
    return checked


if __name__ == "__main__":
    sys.exit(harness.main({"fuzzy": run}))
