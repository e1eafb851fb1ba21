"""Find names that are written in several ways among a hundred thousand, with RapidFuzz's interface on pytrace's kernels.

    python examples/deduplicate_names.py [--names 100000] [--least 90]

Names are made up, and a tenth of them are another one with a letter changed, left out or added. Each is scored beside all that are no longer
than it may be to reach the score; those that do are one group. Change the import back to `rapidfuzz` to see that it says the same.
"""

from __future__ import annotations

import argparse
import random
import time

import numpy as np

from pytrace.compat.rapidfuzz import fuzz, process, utils

SYLLABLES = [
    a + b for a in ("b", "br", "d", "g", "gl", "k", "l", "m", "n", "p", "r", "s", "st", "t", "v", "w") for b in "aeiou"
]
BLOCK = 1_000


def make_names(count: int, chance: random.Random) -> list[str]:
    """Make names of two words, a tenth of them another one misspelt."""
    names: list[str] = []
    while len(names) < count:
        words = ("".join(chance.choices(SYLLABLES, k=chance.randint(2, 4))).title() for _ in range(2))
        names.append(" ".join(words))
        if chance.random() < 0.1 and len(names) < count:
            letters = list(names[-1])
            place = chance.randrange(1, len(letters))
            letters[place : place + chance.randint(0, 1)] = chance.choice(["", "e", "h", "nn"])
            names.append("".join(letters))
    return names


def groups_of(names: list[str], least: float) -> list[list[str]]:
    """Return the groups of names of which each reaches the score with another of its group."""
    # By length: a ratio of 90 takes texts of which the shorter has at least 9/11 of the longer one's letters.
    texts = sorted({utils.default_process(name): name for name in names}, key=len)
    sizes = np.array([len(text) for text in texts])
    leaders = list(range(len(texts)))

    def leader(k: int) -> int:
        while leaders[k] != k:
            leaders[k] = leaders[leaders[k]]
            k = leaders[k]
        return k

    for begin in range(0, len(texts), BLOCK):
        block = texts[begin : begin + BLOCK]
        end = int(
            np.searchsorted(sizes, sizes[min(begin + BLOCK, len(texts)) - 1] * (200 - least) / least, side="right")
        )
        scores = process.cdist(
            block, texts[begin:end], scorer=fuzz.ratio, score_cutoff=least, dtype=np.uint8, workers=-1
        )
        for row, column in zip(*np.nonzero(scores), strict=True):
            if row < column:
                leaders[leader(begin + int(column))] = leader(begin + int(row))
    groups: dict[int, list[str]] = {}
    for k, text in enumerate(texts):
        groups.setdefault(leader(k), []).append(text)
    return [group for group in groups.values() if len(group) > 1]


def main() -> None:
    """Make names, group them, and say how long it took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--names", type=int, default=100_000)
    parser.add_argument("--least", type=float, default=90)
    options = parser.parse_args()
    names = make_names(options.names, random.Random(0))
    begun = time.perf_counter()
    groups = groups_of(names, options.least)
    print(
        f"{len(names):,} names, {len(groups):,} groups of those that score {options.least:g} or more: {time.perf_counter() - begun:.1f} s"
    )
    for group in groups[:5]:
        print("  " + " = ".join(group[:5]))


if __name__ == "__main__":
    main()
