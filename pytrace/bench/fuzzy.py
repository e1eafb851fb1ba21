"""Fuzzy scores beside RapidFuzz: first the same scores on real and random pairs, then the time."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from pytrace.bench import sample_texts as texts
from pytrace.bench.context import Bench, Contest, require_close
from pytrace.bench.measurements import Check, Row, Sweep, Work
from pytrace.bench.stopwatch import Call
from pytrace.kernels import fuzzy

TOLERANCE = 1e-6
REAL_PAIRS = 1_000_000
RANDOM_PAIRS = 100_000
ALPHABETS = ("ab", "etaoin shrdlu", "aé\xa0 b", "aĀ\u2003 б中", "a😀𝔘Ā ", "a\ud800 b")
SCORERS = ("ratio", "partial_ratio", "token_set_ratio")

# (scorer, sentences, bar): a token_set_ratio takes RapidFuzz ten times as long.
MATRICES: tuple[tuple[str, int, float | None], ...] = (
    ("partial_ratio", 200, 8.0),
    ("ratio", 200, 1.0),
    ("token_set_ratio", 20, None),
)

PAIRED_SENTENCES, PAIRED_NAMES = 30_000, 20

# (scorer, score_cutoff) of matrices in which most pairs fall below the cutoff.
CUTOFFS = (("partial_ratio", 60), ("partial_ratio", 80), ("partial_ratio", 90), ("ratio", 90), ("token_set_ratio", 80))


def scorer(module: Any, name: str) -> Callable[..., float]:
    """Return a scorer of ours or of RapidFuzz by its name."""
    found: Callable[..., float] = getattr(module, name)
    return found


def matrix(bench: Bench, name: str, rows: Sequence[str], columns: Sequence[str]) -> tuple[Call, dict[str, Call]]:
    """Make our call and the peer's for a whole matrix of scores."""
    threads = bench.settings.threads
    rapidfuzz = bench.peers.get("rapidfuzz")
    peers: dict[str, Call] = {}
    if rapidfuzz is not None:
        peers["rapidfuzz cdist"] = partial(
            rapidfuzz.process.cdist, rows, columns, scorer=scorer(rapidfuzz.fuzz, name), workers=threads
        )
    return partial(fuzzy.cdist, rows, columns, scorer=scorer(fuzzy, name), workers=threads), peers


def verify(bench: Bench, rows: Sequence[str], columns: Sequence[str], names: Sequence[str] = SCORERS) -> int:
    """Compare whole matrices in float64 with RapidFuzz's, or those of the shortest texts with plain Python's without it."""
    threads = bench.settings.threads
    rapidfuzz = bench.peers.get("rapidfuzz")
    if rapidfuzz is None:
        rows, columns = (sorted(side, key=len)[:6] for side in (rows, columns))
    for name in names:
        mine = fuzzy.cdist(rows, columns, scorer=scorer(fuzzy, name), workers=threads, dtype=np.float64)
        if rapidfuzz is not None:
            theirs = rapidfuzz.process.cdist(
                rows, columns, scorer=scorer(rapidfuzz.fuzz, name), workers=threads, dtype=np.float64
            )
            require_close(mine, theirs, TOLERANCE, f"{name}, beside RapidFuzz")
        elif name in PLAIN:
            plain = [[PLAIN[name](row, column) for column in columns] for row in rows]
            require_close(mine, plain, TOLERANCE, f"{name}, beside plain Python")
    return mine.size


def cut(bench: Bench, name: str, cutoff: float, rows: Sequence[str], columns: Sequence[str]) -> Contest:
    """Make the calls for a matrix with a cutoff, and show that the cutoff changes nothing above it."""
    threads = bench.settings.threads
    full = fuzzy.cdist(rows, columns, scorer=scorer(fuzzy, name), dtype=np.float64)
    ours = partial(fuzzy.cdist, rows, columns, scorer=scorer(fuzzy, name), workers=threads, score_cutoff=cutoff)
    expected = np.where(full >= cutoff, full, 0)
    require_close(ours(dtype=np.float64), expected, 0, f"{name} with a cutoff, beside the whole matrix")
    rapidfuzz = bench.peers.get("rapidfuzz")
    if rapidfuzz is None:
        return Contest(ours, {})
    theirs = partial(
        rapidfuzz.process.cdist,
        rows,
        columns,
        scorer=scorer(rapidfuzz.fuzz, name),
        workers=threads,
        score_cutoff=cutoff,
    )
    # Which side of the cutoff a score equal to it falls on is RapidFuzz's rounding.
    clear = np.abs(full - cutoff) > TOLERANCE
    require_close(
        expected[clear], theirs(dtype=np.float64)[clear], TOLERANCE, f"{name} with a cutoff, beside RapidFuzz"
    )
    return Contest(ours, {"rapidfuzz cdist": theirs})


def pairwise(bench: Bench, rows: Sequence[str], columns: Sequence[str]) -> Contest:
    """Make the calls for partial_ratio pair by pair, once all scores are RapidFuzz's, or a few plain Python's without it."""
    threads = bench.settings.threads
    ours = partial(fuzzy.cpdist, rows, columns, scorer=fuzzy.partial_ratio, workers=threads)
    mine = ours(dtype=np.float64)
    rapidfuzz = bench.peers.get("rapidfuzz")
    if rapidfuzz is None:
        few = sorted(range(len(rows)), key=lambda place: len(rows[place]) + len(columns[place]))[:10]
        plain = [plain_partial_ratio(rows[place], columns[place]) for place in few]
        require_close(mine[few], plain, TOLERANCE, "cpdist(partial_ratio), beside plain Python")
        return Contest(ours, {})
    one = rapidfuzz.fuzz.partial_ratio
    theirs = partial(rapidfuzz.process.cpdist, rows, columns, scorer=one, workers=threads)
    require_close(mine, theirs(dtype=np.float64), 0, "cpdist(partial_ratio), beside RapidFuzz")
    return Contest(ours, {"rapidfuzz cpdist": theirs, "rapidfuzz in a loop": lambda: list(map(one, rows, columns))})


def search(bench: Bench, name: str, query: str, choices: Sequence[str], limit: int) -> Contest:
    """Make the calls for the best choices (`extract_one` for a limit of 1) once they return the same."""
    one = limit == 1
    mine: Any = fuzzy.extract_one if one else partial(fuzzy.extract, limit=limit)
    ours: Call = partial(mine, query, choices, scorer=scorer(fuzzy, name))
    scores = fuzzy.cdist([query], choices, scorer=scorer(fuzzy, name), dtype=np.float64)[0]
    expected = [(scores[i], i) for i in np.argsort(-scores, kind="stable")[:limit]]

    def found(call: Call) -> list[Any]:
        result: Any = call()
        return [row[1:] for row in ([result] if one else result)]

    require_close(found(ours), expected, 0, f"extract({name}), beside cdist")
    rapidfuzz = bench.peers.get("rapidfuzz")
    if rapidfuzz is None:
        return Contest(ours, {})
    peer: Any = rapidfuzz.process.extractOne if one else partial(rapidfuzz.process.extract, limit=limit)
    theirs: Call = partial(peer, query, choices, scorer=scorer(rapidfuzz.fuzz, name))
    require_close(found(ours), found(theirs), TOLERANCE, f"extract({name}), beside RapidFuzz")
    return Contest(ours, {f"rapidfuzz {'extractOne' if one else 'extract'}": theirs})


def plain_ratio(a: str, b: str) -> float:
    """Score two texts by the table of their longest common subsequence."""
    if not a and not b:
        return 100.0
    above = [0] * (len(b) + 1)
    for x in a:
        line = [0]
        for j, y in enumerate(b):
            line.append(above[j] + 1 if x == y else max(above[j + 1], line[j]))
        above = line
    return 200.0 * above[-1] / (len(a) + len(b))


def plain_partial_ratio(a: str, b: str) -> float:
    """Score the shorter text with every window of the longer one, shortened ones at both ends included."""
    short, long = sorted((a, b), key=len)
    if not short:
        return 0.0 if long else 100.0
    windows = {long[max(0, end - len(short)) : end] for end in range(1, len(long) + len(short))}
    best = max(plain_ratio(short, window) for window in windows if window)
    return max(best, plain_partial_ratio_of_equals(short, long)) if len(a) == len(b) else best


def plain_partial_ratio_of_equals(a: str, b: str) -> float:
    """Score every prefix and suffix of the first text with all of the second."""
    parts = {a[:end] for end in range(1, len(a) + 1)} | {a[start:] for start in range(len(a))}
    return max(plain_ratio(b, part) for part in parts)


PLAIN: dict[str, Callable[[str, str], float]] = {"ratio": plain_ratio, "partial_ratio": plain_partial_ratio}


def nearest(strings: Sequence[str], size: int, count: int) -> list[str]:
    """Return the strings whose length is nearest to a size."""
    return sorted(strings, key=lambda text: abs(len(text) - size))[:count]


def average(strings: Sequence[str]) -> float:
    """Return the mean length of strings."""
    return float(np.mean([len(text) for text in strings]))


def verify_random(bench: Bench, chance: random.Random, pairs: int) -> int:
    """Compare random Unicode pairs of all lengths and kinds in blocks of 100 x 100; returns how many were equal."""
    equal = 0
    for _ in range(max(pairs // 10_000, 1)):
        sides = []
        for _ in range(2):
            longest = chance.choice((12, 40, 80, 160))
            sides.append(
                ["".join(chance.choices(chance.choice(ALPHABETS), k=chance.randint(0, longest))) for _ in range(100)]
            )
        equal += verify(bench, sides[0], sides[1])
    return equal


def rows(bench: Bench) -> Iterator[Row]:
    """Verify, then time, each bar of the kernel."""
    quick = bench.settings.quick
    chance = random.Random(bench.settings.seed)
    found = texts.read(bench.settings.data, chance)
    sentences, entities = found.sentences, found.entities
    here = bench.peers.get("rapidfuzz") is not None
    without = "" if here else "rapidfuzz is not installed: a few pairs were compared with plain Python instead"

    bench.tell("scores of real pairs")
    real = REAL_PAIRS // (10 if quick else 1)
    equal = verify(
        bench,
        [sentences[i % len(sentences)] for i in range(real // 500)],
        [entities[i % len(entities)] for i in range(500)],
    )
    case = f"real pairs whose scores equal RapidFuzz's ({', '.join(SCORERS)})"
    yield Check.of(case, equal if here else None, "", "at least", real, note=without or found.origin)
    bench.tell("scores of random Unicode pairs")
    pairs = RANDOM_PAIRS // (10 if quick else 1)
    equal = verify_random(bench, chance, pairs if here else 10_000)
    case = "random Unicode pairs whose scores equal RapidFuzz's"
    yield Check.of(case, equal if here else None, "", "at least", pairs, note=without)

    many = [entities[i % len(entities)] for i in range(1000 if quick else 5000)]
    some = chance.sample(sentences, min(200, len(sentences)))
    for name, count, bar in MATRICES:
        queries = some[:count]
        ours, peers = matrix(bench, name, queries, many)
        yield bench.compare(
            f"cdist({name}), {len(queries)} sentences x {len(many):,} entities", ours, peers, bar=bar,
            note=found.origin, work=Work(0, len(queries) * len(many), "pair"),
        )  # fmt: skip
    sentence = min(sentences, key=lambda text: abs(len(text) - 109))
    twenty = chance.sample(entities, min(20, len(entities)))
    rapidfuzz = bench.peers.get("rapidfuzz")
    beside: dict[str, Call] = {}
    if rapidfuzz is not None:
        beside["rapidfuzz cpdist"] = partial(
            rapidfuzz.process.cpdist, [sentence] * len(twenty), twenty, scorer=rapidfuzz.fuzz.partial_ratio
        )
    verify(bench, [sentence], twenty, ["partial_ratio"])
    yield bench.compare(
        f"partial_ratio, one sentence of {len(sentence)} characters x {len(twenty)} entities",
        partial(fuzzy.cdist, [sentence], twenty, scorer=fuzzy.partial_ratio), beside, bar=5.0,
        note=found.origin, work=Work(0, len(twenty), "pair"),
    )  # fmt: skip
    # As when reasoning steps are grounded: a sentence beside the names that its triples have.
    steps, names = nearest(sentences, 80, 500), nearest(entities, 20, 500)
    count = PAIRED_SENTENCES // (10 if quick else 1)
    pairs_of = [steps[i % len(steps)] for i in range(count) for _ in range(PAIRED_NAMES)]
    contest = pairwise(bench, pairs_of, [chance.choice(names) for _ in pairs_of])
    yield bench.compare(
        f"cpdist(partial_ratio), {count:,} sentences of {average(steps):.0f} characters, each beside {PAIRED_NAMES} names "
        f"of {average(names):.0f}",
        contest.ours, contest.peers, note=found.origin, work=Work(0, len(pairs_of), "pair"),
    )  # fmt: skip
    for name, cutoff in CUTOFFS:
        contest = cut(bench, name, cutoff, some[:40], many)
        yield bench.compare(
            f"cdist({name}, score_cutoff={cutoff}), {len(some[:40])} sentences x {len(many):,} entities",
            contest.ours, contest.peers, note=found.origin, work=Work(0, len(some[:40]) * len(many), "pair"),
        )  # fmt: skip
    # A title that is among the choices ends a search for one at once; with a letter more it does not.
    title = entities[len(entities) // 2]
    for name in SCORERS:
        for case, query, limit in (
            ("extract of 5, a sentence", sentence, 5),
            ("extract of 5, an entity", title, 5),
            ("extract_one, a misspelt entity", f"{title[:-1]}qz", 1),
            ("extract_one, an entity", title, 1),
        ):
            contest = search(bench, name, query, many, limit)
            yield bench.compare(
                f"{case} among {len(many):,} entities ({name})", contest.ours, contest.peers,
                note=found.origin, work=Work(0, len(many), "pair"),
            )  # fmt: skip


def sweeps(bench: Bench) -> Iterator[Sweep]:
    """Grow the number of pairs, then the needle."""
    quick = bench.settings.quick
    chance = random.Random(bench.settings.seed)
    found = texts.read(bench.settings.data, chance)
    # Sentences grow and entities stay, as when steps are grounded: what a pair costs depends on how many entities of
    # like length there are to be scored side by side.
    shapes = {100: (1, 100), 1_000: (2, 500), 10_000: (20, 500), 100_000: (200, 500), 1_000_000: (2_000, 500)}
    sizes = list(shapes)[: 3 if quick else 5]
    # The same mixture of lengths at each size, so that pairs alone grow.
    queries = [found.sentences[i % len(found.sentences)] for i in range(2_000)]
    choices = [found.entities[i % len(found.entities)] for i in range(500)]
    chance.shuffle(queries)
    chance.shuffle(choices)

    def pairs(size: int, name: str) -> Contest:
        rows, columns = (group[:count] for group, count in zip((queries, choices), shapes[size], strict=True))
        verify(bench, rows, columns, [name])
        return Contest(*matrix(bench, name, rows, columns))

    for name in ("partial_ratio", "ratio"):
        yield bench.sweep(
            f"cdist({name})", "pairs", sizes, partial(pairs, name=name), growth=1, bar=True, notes=[found.origin]
        )

    letters = "etaoin shrdlucmfwypvbgkqjxz"

    def needles(size: int) -> Contest:
        rows = ["".join(chance.choices(letters, k=size)) for _ in range(20)]
        columns = ["".join(chance.choices(letters, k=4 * size)) for _ in range(50)]
        verify(bench, rows[:5], columns[:5], ["partial_ratio"])
        return Contest(*matrix(bench, "partial_ratio", rows, columns))

    yield bench.sweep(
        "cdist(partial_ratio), 20 needles x 50 texts four times as long", "characters of the needle",
        [4, 8, 16, 32] if quick else [4, 8, 16, 32, 64, 128, 256], needles, growth=2, notes=["random letters"],
    )  # fmt: skip
