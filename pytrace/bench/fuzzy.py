"""Fuzzy scores beside RapidFuzz, and on a card: first the same scores on real and random pairs, then the time."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from pytrace.bench import sample_texts as texts
from pytrace.bench.card import DEVICE, Card
from pytrace.bench.context import Bench, Contest, require_close
from pytrace.bench.measurements import Check, Row, Sweep, Work
from pytrace.bench.stopwatch import Call
from pytrace.kernels import fuzzy

TOLERANCE = 1e-6
# On a card both sides round the same number to float32, whose steps below 100 are 7.6e-6.
CARD_TOLERANCE = 1e-5
PAIRS_A_SECOND = 1e8
REAL_PAIRS = 1_000_000
RANDOM_PAIRS = 100_000
# One, two and four bytes a character, white space beyond ASCII, and a lone surrogate: each has code of its own.
ALPHABETS = ("ab", "etaoin shrdlu", "aé\xa0 b", "aĀ\u2003 б中", "a😀𝔘Ā ", "a\ud800 b")
SCORERS = (
    "ratio", "partial_ratio", "token_set_ratio", "token_sort_ratio", "token_ratio", "partial_token_sort_ratio",
    "partial_token_set_ratio", "partial_token_ratio", "WRatio", "QRatio",
)  # fmt: skip

# RapidFuzz's default, and those that the project itself asks.
EXTRACTED = ("ratio", "partial_ratio", "token_set_ratio", "WRatio")

# (scorer, sentences, bar): a token_set_ratio takes RapidFuzz ten times as long.
MATRICES: tuple[tuple[str, int, float | None], ...] = (
    ("partial_ratio", 200, 8.0),
    ("WRatio", 200, 5.0),
    ("ratio", 200, 1.0),
    ("token_set_ratio", 20, None),
)

PAIRED_SENTENCES, PAIRED_NAMES = 30_000, 20

# (scorer, score_cutoff) of matrices in which most pairs fall below the cutoff.
CUTOFFS = (("partial_ratio", 60), ("partial_ratio", 80), ("partial_ratio", 90), ("ratio", 90), ("token_set_ratio", 80))

# RapidFuzz takes the arguments that ours do, under the same names.
PEER_FUNCTIONS = {"cdist": "cdist", "cpdist": "cpdist", "extract": "extract", "extract_one": "extractOne"}


def calls(bench: Bench, function: str, scorer: str, *texts: Any, **options: Any) -> Contest:
    """Make our call of a function with a scorer, and RapidFuzz's."""
    ours = partial(getattr(fuzzy, function), *texts, scorer=getattr(fuzzy, scorer), **options)
    module, peer = bench.peers.get("rapidfuzz"), PEER_FUNCTIONS[function]
    if module is None:
        return Contest(ours, {})
    theirs = partial(getattr(module.process, peer), *texts, scorer=getattr(module.fuzz, scorer), **options)
    return Contest(ours, {f"rapidfuzz {peer}": theirs})


def matrix(bench: Bench, scorer: str, rows: Sequence[str], columns: Sequence[str], **options: Any) -> Contest:
    """Make the calls for a whole matrix of scores."""
    return calls(bench, "cdist", scorer, rows, columns, workers=bench.settings.threads, **options)


def verify(bench: Bench, rows: Sequence[str], columns: Sequence[str], names: Sequence[str] = SCORERS) -> int:
    """Compare whole matrices in float64 with RapidFuzz's, or those of the shortest texts with plain Python's without it."""
    if bench.peers.get("rapidfuzz") is None:
        rows, columns = (sorted(side, key=len)[:6] for side in (rows, columns))
    for name in names:
        contest = matrix(bench, name, rows, columns, dtype=np.float64)
        ours = contest.ours()
        for theirs in contest.peers.values():
            require_close(ours, theirs(), TOLERANCE, f"{name}, beside RapidFuzz")
        if not contest.peers and name in PLAIN:
            plain = [[PLAIN[name](row, column) for column in columns] for row in rows]
            require_close(ours, plain, TOLERANCE, f"{name}, beside plain Python")
    return int(ours.size)


def cut(bench: Bench, name: str, cutoff: float, rows: Sequence[str], columns: Sequence[str]) -> Contest:
    """Make the calls for a matrix with a cutoff, and show that the cutoff changes nothing above it."""
    full = fuzzy.cdist(rows, columns, scorer=getattr(fuzzy, name), dtype=np.float64)
    exact = matrix(bench, name, rows, columns, score_cutoff=cutoff, dtype=np.float64)
    expected = np.where(full >= cutoff, full, 0)
    ours = exact.ours()
    require_close(ours, expected, 0, f"{name} with a cutoff, beside the whole matrix")
    # Which side of the cutoff a score equal to it falls on is RapidFuzz's rounding.
    clear = np.abs(full - cutoff) > TOLERANCE
    for theirs in exact.peers.values():
        require_close(expected[clear], theirs()[clear], TOLERANCE, f"{name} with a cutoff, beside RapidFuzz")
    return matrix(bench, name, rows, columns, score_cutoff=cutoff)


def pairwise(bench: Bench, rows: Sequence[str], columns: Sequence[str]) -> Contest:
    """Make the calls for partial_ratio pair by pair, once all scores are RapidFuzz's, or a few plain Python's without it."""
    threads = bench.settings.threads
    exact = calls(bench, "cpdist", "partial_ratio", rows, columns, workers=threads, dtype=np.float64)
    scores = exact.ours()
    for theirs in exact.peers.values():
        require_close(scores, theirs(), 0, "cpdist(partial_ratio), beside RapidFuzz")
    if not exact.peers:
        few = sorted(range(len(rows)), key=lambda i: len(rows[i]) + len(columns[i]))[:10]
        plain = [plain_partial_ratio(rows[i], columns[i]) for i in few]
        require_close(scores[few], plain, TOLERANCE, "cpdist(partial_ratio), beside plain Python")
    contest = calls(bench, "cpdist", "partial_ratio", rows, columns, workers=threads)
    loop = bench.peers.calls(
        "rapidfuzz", lambda module: {"rapidfuzz in a loop": lambda: list(map(module.fuzz.partial_ratio, rows, columns))}
    )
    return Contest(contest.ours, {**contest.peers, **loop})


def search(bench: Bench, name: str, query: str, choices: Sequence[str], limit: int) -> Contest:
    """Make the calls for the best choices (`extract_one` for a limit of 1) once they return the same."""
    single = limit == 1
    options = {} if single else {"limit": limit}
    contest = calls(bench, "extract_one" if single else "extract", name, query, choices, **options)
    scores = fuzzy.cdist([query], choices, scorer=getattr(fuzzy, name), dtype=np.float64)[0]
    expected = [(scores[i], i) for i in np.argsort(-scores, kind="stable")[:limit]]

    def best(call: Call) -> list[Any]:
        result = call()
        return [row[1:] for row in ([result] if single else result)]

    require_close(best(contest.ours), expected, 0, f"extract({name}), beside cdist")
    for theirs in contest.peers.values():
        require_close(best(contest.ours), best(theirs), TOLERANCE, f"extract({name}), beside RapidFuzz")
    return contest


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
    # Of two texts of one length either may be the shorter one.
    ways = [(short, long), (long, short)] if len(a) == len(b) else [(short, long)]
    return max(
        plain_ratio(needle, text[max(0, end - len(needle)) : end])
        for needle, text in ways
        for end in range(1, len(text) + len(needle))
    )


PLAIN: dict[str, Callable[[str, str], float]] = {"ratio": plain_ratio, "partial_ratio": plain_partial_ratio}


def nearest(strings: Sequence[str], size: int, count: int) -> list[str]:
    """Return the strings whose length is nearest to a size."""
    return sorted(strings, key=lambda text: abs(len(text) - size))[:count]


def average(strings: Sequence[str]) -> float:
    """Return the mean length of strings."""
    return float(np.mean([len(text) for text in strings]))


def verify_random(bench: Bench, chance: random.Random, pairs: int) -> int:
    """Compare random Unicode pairs of all lengths and kinds in blocks of 100 x 100; returns how many were equal."""

    def side() -> list[str]:
        # Around 64 characters a text takes a second machine word.
        longest = chance.choice((12, 40, 80, 160))
        return ["".join(chance.choices(chance.choice(ALPHABETS), k=chance.randint(0, longest))) for _ in range(100)]

    return sum(verify(bench, side(), side()) for _ in range(max(pairs // 10_000, 1)))


def repeated(strings: Sequence[str], count: int) -> list[str]:
    """Return so many strings, from the first again when they end."""
    return [strings[i % len(strings)] for i in range(count)]


def rows(bench: Bench) -> Iterator[Row]:
    """Verify, then time, each bar of the kernel."""
    share = 10 if bench.settings.quick else 1
    chance = random.Random(bench.settings.seed)
    sample = texts.read(bench.settings.data, chance)
    sentences, entities = sample.sentences, sample.entities
    has_peer = bench.peers.get("rapidfuzz") is not None
    without = "" if has_peer else "rapidfuzz is not installed: a few pairs were compared with plain Python instead"

    bench.tell("scores of real pairs")
    real = REAL_PAIRS // share
    equal = verify(bench, repeated(sentences, real // 500), repeated(entities, 500))
    case = f"real pairs whose scores equal RapidFuzz's ({', '.join(SCORERS)})"
    yield Check(case, equal if has_peer else None, "", "at least", real, without or sample.origin)
    bench.tell("scores of random Unicode pairs")
    pairs = RANDOM_PAIRS // share
    equal = verify_random(bench, chance, pairs if has_peer else 10_000)
    case = "random Unicode pairs whose scores equal RapidFuzz's"
    yield Check(case, equal if has_peer else None, "", "at least", pairs, without)

    for case, contest, pairs, bar in timed(bench, chance, sample):
        work = Work(0, pairs, "pair")
        yield bench.compare(case, contest.ours, contest.peers, bar=bar, note=sample.origin, work=work)


def timed(bench: Bench, chance: random.Random, sample: texts.Texts) -> Iterator[tuple[str, Contest, int, float | None]]:
    """Make each case that is timed: its name, its calls, the pairs that it scores, and its bar."""
    sentences, entities = sample.sentences, sample.entities
    many = repeated(entities, 1000 if bench.settings.quick else 5000)
    some = chance.sample(sentences, min(200, len(sentences)))
    for name, count, bar in MATRICES:
        queries = some[:count]
        case = f"cdist({name}), {len(queries)} sentences x {len(many):,} entities"
        yield case, matrix(bench, name, queries, many), len(queries) * len(many), bar
    sentence = min(sentences, key=lambda text: abs(len(text) - 109))
    for what, text in ((f"one sentence of {len(sentence)} characters", sentence), ("one entity", many[0])):
        verify(bench, [text], many[:100], ["ratio"])
        yield f"cdist(ratio), {what} x 100 entities", matrix(bench, "ratio", [text], many[:100]), 100, 1.0
    twenty = chance.sample(entities, min(20, len(entities)))
    verify(bench, [sentence], twenty, ["partial_ratio"])
    ours = partial(fuzzy.cdist, [sentence], twenty, scorer=fuzzy.partial_ratio)
    peers = calls(bench, "cpdist", "partial_ratio", [sentence] * len(twenty), twenty).peers
    case = f"partial_ratio, one sentence of {len(sentence)} characters x {len(twenty)} entities"
    yield case, Contest(ours, peers), len(twenty), 5.0
    # As when reasoning steps are grounded: a sentence beside the names that its triples have.
    steps, names = nearest(sentences, 80, 500), nearest(entities, 20, 500)
    count = PAIRED_SENTENCES // (10 if bench.settings.quick else 1)
    paired = [sentence for sentence in repeated(steps, count) for _ in range(PAIRED_NAMES)]
    beside = f"each beside {PAIRED_NAMES} names of {average(names):.0f}"
    case = f"cpdist(partial_ratio), {count:,} sentences of {average(steps):.0f} characters, {beside}"
    yield case, pairwise(bench, paired, [chance.choice(names) for _ in paired]), len(paired), None
    few = some[:40]
    for name, cutoff in CUTOFFS:
        case = f"cdist({name}, score_cutoff={cutoff}), {len(few)} sentences x {len(many):,} entities"
        yield case, cut(bench, name, cutoff, few, many), len(few) * len(many), None
    # A title that is among the choices ends a search for one at once; with a letter more it does not.
    title = entities[len(entities) // 2]
    for name in EXTRACTED:
        for case, query, limit in (
            ("extract of 5, a sentence", sentence, 5),
            ("extract of 5, an entity", title, 5),
            ("extract_one, a misspelt entity", f"{title[:-1]}qz", 1),
            ("extract_one, an entity", title, 1),
        ):
            contest = search(bench, name, query, many, limit)
            yield f"{case} among {len(many):,} entities ({name})", contest, len(many), None


def card_rows(bench: Bench, _: Card) -> Iterator[Row]:
    """Verify every score of the card beside the processor's, then time the matrices, from texts in the host's memory."""
    sample = texts.read(bench.settings.data, random.Random(bench.settings.seed))
    queries = repeated(sample.sentences, bench.scaled(1_000, least=4))
    choices = repeated(sample.entities, bench.scaled(20_000, least=20))
    pairs = len(queries) * len(choices)
    longer = f"{len(queries):,} sentences of {average(queries):.0f} characters"
    sizes = f"{longer} x {len(choices):,} entities of {average(choices):.0f}"
    for name in ("partial_ratio", "ratio"):
        case = f"cdist({name}), {sizes}"
        score = partial(fuzzy.cdist, queries, choices, scorer=getattr(fuzzy, name))
        on_card, on_processor = partial(score, device=DEVICE), partial(score, workers=bench.settings.threads)
        bench.tell(f"{case}: every score beside the processor's")
        require_close(on_card(), on_processor(), CARD_TOLERANCE, f"{case}: scores beside the processor's")
        row = bench.compare(
            case, on_card, {"pytrace, processor": on_processor}, note=sample.origin, work=Work(0, pairs, "pair"),
            extra={"GB of scores that come back": pairs * 4 / 1e9},
        )  # fmt: skip
        yield row
        if name == "partial_ratio":
            rate = pairs / row.ours.median
            yield Check(f"{case}: pairs a second, transfers included", rate, "", "at least", PAIRS_A_SECOND)


def sweeps(bench: Bench) -> Iterator[Sweep]:
    """Grow the number of pairs, then the needle."""
    quick = bench.settings.quick
    chance = random.Random(bench.settings.seed)
    sample = texts.read(bench.settings.data, chance)
    # Sentences grow and entities stay, as when steps are grounded: what a pair costs depends on how many entities of
    # like length there are to be scored side by side.
    shapes = {100: (1, 100), 1_000: (2, 500), 10_000: (20, 500), 100_000: (200, 500), 1_000_000: (2_000, 500)}
    sizes = list(shapes)[: 3 if quick else 5]
    # The same mixture of lengths at each size, so that pairs alone grow.
    queries, choices = repeated(sample.sentences, 2_000), repeated(sample.entities, 500)
    chance.shuffle(queries)
    chance.shuffle(choices)

    def pairs(size: int, name: str) -> Contest:
        rows, columns = (group[:count] for group, count in zip((queries, choices), shapes[size], strict=True))
        verify(bench, rows, columns, [name])
        return matrix(bench, name, rows, columns)

    for name in ("partial_ratio", "ratio"):
        yield bench.sweep(
            f"cdist({name})", "pairs", sizes, partial(pairs, name=name), growth=1, bar=True, notes=[sample.origin]
        )

    letters = "etaoin shrdlucmfwypvbgkqjxz"

    def needles(size: int) -> Contest:
        rows = ["".join(chance.choices(letters, k=size)) for _ in range(20)]
        columns = ["".join(chance.choices(letters, k=4 * size)) for _ in range(50)]
        verify(bench, rows[:5], columns[:5], ["partial_ratio"])
        return matrix(bench, "partial_ratio", rows, columns)

    yield bench.sweep(
        "cdist(partial_ratio), 20 needles x 50 texts four times as long", "characters of the needle",
        [4, 8, 16, 32] if quick else [4, 8, 16, 32, 64, 128, 256], needles, growth=2, notes=["random letters"],
    )  # fmt: skip
