"""The entity index beside a scan of all names: time a look-up, and how often the entity meant is among the first five.

Names are made by putting the words of a knowledge base's entity names together anew, as many to a name as the real ones
have, so that words are as common and as alike as real ones; that makes it harder than a real graph, whose names share less.
A mention is a name with one or two typos (a letter replaced, left out, put in or exchanged with the next), with its words in
another order, or with a word missing. The scan is `extract` with `ratio` over the normal forms of all names, which knows no
other order; they agree where the index finds a name that scores no less than the scan's best. Where there are typos, the index
should find the entity at most 2 % less often than the scan, and take less than 20 ms: a name of five letters may share no
trigram with what two typos make of it.

    python -m benches.entity_index --kg 2H-kb.tsv
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from pytrace import _core
from pytrace.bench.machine import facts
from pytrace.kernels.fuzzy import extract, ratio
from pytrace.kg.entities import EntityIndex
from pytrace.kg.graph_sources import read_source
from pytrace.kg.names import entity_name, normal_form

LETTERS = "abcdefghijklmnopqrstuvwxyz"
FIRST = 5
GOAL_MS, GOAL_LOSS = 20.0, 0.02


def made_names(path: Path, count: int, draw: random.Random) -> list[str]:
    """Put words of real names together anew, all names different."""
    real = sorted({entity_name(key) for triple in read_source(path).triples for key in (triple.head, triple.tail)})
    words = [word for name in real for word in name.split()]
    sizes = [len(name.split()) for name in real]
    names = dict.fromkeys(real)
    while len(names) < count:
        names[" ".join(draw.choices(words, k=draw.choice(sizes)))] = None
    return draw.sample(list(names), count)


def with_typos(name: str, count: int, draw: random.Random) -> str:
    letters = list(name)
    for _ in range(count):
        place = draw.randrange(len(letters) - 1)
        kind = draw.randrange(4)
        if kind == 0:
            letters[place] = draw.choice(LETTERS)
        elif kind == 1:
            letters.insert(place, draw.choice(LETTERS))
        elif kind == 2 and len(letters) > 3:
            del letters[place]
        else:
            letters[place : place + 2] = reversed(letters[place : place + 2])
    return "".join(letters)


def in_another_order(name: str, draw: random.Random) -> str:
    words = name.split()
    draw.shuffle(words)
    return " ".join(words)


def with_a_word_missing(name: str, draw: random.Random) -> str:
    words = name.split()
    del words[draw.randrange(len(words))]
    return " ".join(words)


def measure(
    index: EntityIndex,
    names: Sequence[str],
    forms: Sequence[str],
    kind: Callable[[str], str],
    least: int,
    draw: random.Random,
    count: int,
) -> dict[str, float]:
    """Look mentions of one kind up in the index and, fewer of them, in all names."""
    meant = draw.sample(
        [number for number, name in enumerate(names) if len(name.split()) >= least and len(name) >= 5], count
    )
    mentions = [kind(names[number]) for number in meant]
    seconds, found = [], []
    for mention in mentions:
        start = time.perf_counter()
        found.append(index.find(mention, limit=FIRST))
        seconds.append(time.perf_counter() - start)
    scanned, agreed, by_scan = [], 0, 0
    some = max(count // 3, 1)
    for number, mention, ours in list(zip(meant, mentions, found, strict=True))[:some]:
        start = time.perf_counter()
        theirs = extract(normal_form(mention), forms, scorer=ratio, limit=FIRST)
        scanned.append(time.perf_counter() - start)
        agreed += bool(ours) and ours[0][1] >= theirs[0][1] - 1e-9
        by_scan += number in [place for _, _, place in theirs]
    return {
        f"recall@{FIRST}": sum(
            number in [entity for entity, _ in ours] for number, ours in zip(meant, found, strict=True)
        )
        / count,
        f"recall@{FIRST} of the scanned": sum(
            number in [entity for entity, _ in ours] for number, ours in list(zip(meant, found, strict=True))[:some]
        )
        / some,
        f"scan's recall@{FIRST}": by_scan / some,
        "agreement": agreed / some,
        "ms": statistics.median(seconds) * 1e3,
        "slowest ms": max(seconds) * 1e3,
        "ms of a scan": statistics.median(scanned) * 1e3,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kg", type=Path, required=True, help="a knowledge graph whose names lend their words")
    parser.add_argument("--names", type=int, default=1_000_000)
    parser.add_argument("--mentions", type=int, default=300, help="of each kind; a third of them is scanned for")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    draw = random.Random(arguments.seed)
    names = made_names(arguments.kg, arguments.names, draw)
    forms = [normal_form(name) for name in names]
    start = time.perf_counter()
    index = EntityIndex.of(names)
    built = time.perf_counter() - start
    size = sum(
        array.nbytes
        for array in (
            index.forms.data,
            index.forms.ends,
            index.hashes,
            index.rows,
            index.ends,
            index.entities,
            index.sizes,
        )
    )
    kinds: dict[str, tuple[Callable[[str], str], int]] = {
        "one typo": (lambda name: with_typos(name, 1, draw), 1),
        "two typos": (lambda name: with_typos(name, 2, draw), 1),
        "another order": (lambda name: in_another_order(name, draw), 2),
        "another order and a typo": (lambda name: with_typos(in_another_order(name, draw), 1, draw), 2),
        "a word missing": (lambda name: with_a_word_missing(name, draw), 3),
    }
    results = {
        name: measure(index, names, forms, kind, least, draw, arguments.mentions)
        for name, (kind, least) in kinds.items()
    }
    told = {
        "names": len(names),
        "seconds to build": built,
        "MiB": size / 2**20,
        "threads": _core.num_threads(),
        "seed": arguments.seed,
        "command": f"python -m benches.entity_index {' '.join(sys.argv[1:])}",
        "machine": facts(_core.num_threads()),
        "kinds": results,
    }
    if arguments.json:
        print(msgspec.json.encode(told).decode())
    else:
        for key in ("command", "machine", "threads", "names", "seconds to build", "MiB"):
            print(f"{key}: {told[key]}")
        for name, row in results.items():
            print(name, *(f"{key} {value:.3g}" for key, value in row.items()), sep="  ")
    met = all(
        row["ms"] < GOAL_MS and row[f"recall@{FIRST} of the scanned"] >= row[f"scan's recall@{FIRST}"] - GOAL_LOSS
        for name, row in results.items()
        if "typo" in name
    )
    print(f"goal met: {met}", file=sys.stderr)
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
