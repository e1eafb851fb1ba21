from __future__ import annotations

import json
import math
import random
import sys
import threading
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rapidfuzz import fuzz, process, utils

from pytrace import _core
from pytrace.kernels import fuzzy
from tests import oracles

SCORERS = {
    fuzzy.ratio: (oracles.ratio, fuzz.ratio),
    fuzzy.partial_ratio: (oracles.partial_ratio, fuzz.partial_ratio),
    fuzzy.token_set_ratio: (oracles.token_set_ratio, fuzz.token_set_ratio),
    fuzzy.token_sort_ratio: (oracles.token_sort_ratio, fuzz.token_sort_ratio),
    fuzzy.token_ratio: (oracles.token_ratio, fuzz.token_ratio),
    fuzzy.partial_token_sort_ratio: (oracles.partial_token_sort_ratio, fuzz.partial_token_sort_ratio),
    fuzzy.partial_token_set_ratio: (oracles.partial_token_set_ratio, fuzz.partial_token_set_ratio),
    fuzzy.partial_token_ratio: (oracles.partial_token_ratio, fuzz.partial_token_ratio),
    fuzzy.WRatio: (oracles.weighted_ratio, fuzz.WRatio),
    fuzzy.QRatio: (oracles.quick_ratio, fuzz.QRatio),
}
# Those with loops of their own, and the one that goes through all others: what takes long is asked of these.
OWN = [fuzzy.ratio, fuzzy.partial_ratio, fuzzy.token_set_ratio, fuzzy.WRatio]
# Those that compare words, or are made of one that does.
OF_WORDS = [scorer for scorer in SCORERS if "token" in scorer.__name__ or scorer is fuzzy.WRatio]
every_isa = pytest.mark.usefixtures("isa")
scorers = pytest.mark.parametrize("scorer", SCORERS, ids=lambda scorer: scorer.__name__)
own_scorers = pytest.mark.parametrize("scorer", OWN, ids=lambda scorer: scorer.__name__)

# Few letters make long common subsequences and many ties; the others mix strings of 1, 2 and 4 bytes a character, white
# space of all sorts, and lone surrogates.
ALPHABETS = (
    "ab",
    "abcd ",
    "etaoin shrdlu",
    "aé\xa0\x85 b",
    "aĀ\u2003 б中",
    "a😀𝔘Ā\t ",
    "a\ud800\udfff b",
    "\x00\x7f\xff\u0100\uffff\U0010ffff",
)
# Around the widths of a lane, of a register's worth of windows and of the longest needle that lanes hold.
EDGES = (0, 1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 66, 127, 128, 129, 200)


def texts(max_size: int = 40) -> st.SearchStrategy[str]:
    return st.one_of([st.text(alphabet, max_size=max_size) for alphabet in ALPHABETS])


def random_text(rng: random.Random, size: int) -> str:
    return "".join(rng.choices(rng.choice(ALPHABETS), k=size))


def paired(side: str, shared: str | None, others: list[str | None]) -> tuple[list[str | None], list[str | None]]:
    """Put one text beside each of the others, as queries or as choices."""
    return ([shared] * len(others), others) if side == "queries" else (others, [shared] * len(others))


@st.composite
def pairs(draw: st.DrawFn, max_size: int = 70) -> tuple[list[str | None], list[str | None]]:
    """Draw queries and choices in which one side has the same object for a while, then the other."""
    pool = draw(st.lists(texts(max_size) | st.none(), min_size=1, max_size=6))
    queries, choices = [], []
    for _ in range(draw(st.integers(0, 4))):
        side = draw(st.sampled_from(["queries", "choices"]))
        others = draw(st.lists(st.sampled_from(pool), max_size=7))
        firsts, seconds = paired(side, draw(st.sampled_from(pool)), others)
        queries += firsts
        choices += seconds
    return queries, choices


def many_pairs(rng: random.Random, count: int) -> tuple[list[str | None], list[str | None]]:
    """Return runs of all lengths whose texts have parts in common, so that scores of all heights are among them."""
    whole = [random_text(rng, 400) for _ in range(3)]
    queries: list[str | None] = []
    choices: list[str | None] = []
    while len(queries) < count:
        source = rng.choice(whole)
        others: list[str | None] = []
        for _ in range(rng.choice((1, 1, 2, 3, 4, 5, 20, 60))):
            begin, size = rng.randrange(300), rng.choice((3, 8, 12, 16, 20, 40, 64, 90))
            part = list(source[begin : begin + size])
            for _ in range(rng.randrange(4)):
                part[rng.randrange(len(part))] = rng.choice((" ", "x", "\xe9", "\u0141", "\U0001f600"))
            others.append(rng.choice(("".join(part), "".join(part), "".join(part), None, "", source)))
        begin = rng.randrange(200)
        shared = rng.choice((source, source[begin : begin + rng.choice(EDGES)], source * 3, None))
        firsts, seconds = paired(rng.choice(("queries", "choices")), shared, others)
        queries += firsts
        choices += seconds
    return queries, choices


def as_tuple(alignment: object) -> tuple[float, int, int, int, int] | None:
    if alignment is None:
        return None
    return (alignment.score, alignment.src_start, alignment.src_end, alignment.dest_start, alignment.dest_end)


@every_isa
@scorers
@given(a=texts(), b=texts())
def test_a_pair_scores_as_the_definition_says(scorer, a, b):
    if scorer in OF_WORDS:
        # Python splits at U+0085 and U+00A0 in any text; RapidFuzz only where a character is above U+00FF.
        a, b = (
            text if max(text, default="") > "\xff" else text.replace("\xa0", "x").replace("\x85", "y")
            for text in (a, b)
        )
    assert scorer(a, b) == pytest.approx(SCORERS[scorer][0](a, b), abs=1e-9)


@every_isa
@scorers
@given(a=texts(), b=texts(200))
def test_a_pair_scores_exactly_as_rapidfuzz(scorer, a, b):
    peer = SCORERS[scorer][1]
    assert scorer(a, b) == peer(a, b)
    assert scorer(b, a) == peer(b, a)


@every_isa
@scorers
def test_lengths_around_every_edge_score_as_rapidfuzz(scorer):
    rng = random.Random(7)
    queries = [random_text(rng, size) for size in EDGES for _ in range(3)]
    choices = [random_text(rng, size) for size in EDGES for _ in range(4)]
    ours = fuzzy.cdist(queries, choices, scorer=scorer, dtype=np.float64)
    peers = process.cdist(queries, choices, scorer=SCORERS[scorer][1], dtype=np.float64)
    np.testing.assert_allclose(ours, peers, rtol=0, atol=1e-9)
    for row, query in enumerate(queries[::5]):
        for column, choice in enumerate(choices):
            assert scorer(query, choice) == ours[row * 5, column]


@every_isa
@scorers
@given(data=st.data())
def test_cdist_is_the_pairs_whatever_the_threads(scorer, data):
    queries = data.draw(st.lists(texts(), max_size=6))
    choices = data.draw(st.lists(texts(80), max_size=6))
    expected = [[scorer(query, choice) for choice in choices] for query in queries]
    for workers in (1, 2, 5, -1):
        matrix = fuzzy.cdist(queries, choices, scorer=scorer, workers=workers, dtype=np.float64)
        assert matrix.shape == (len(queries), len(choices))
        assert matrix.tolist() == expected


@every_isa
@scorers
def test_many_tiles_and_packs_equal_rapidfuzz_with_any_threads(scorer):
    rng = random.Random(11)
    queries = [random_text(rng, rng.randrange(150)) for _ in range(150)]
    choices = [random_text(rng, rng.randrange(40)) for _ in range(170)] + [random_text(rng, 90) for _ in range(9)]
    peers = process.cdist(queries, choices, scorer=SCORERS[scorer][1])
    one = fuzzy.cdist(queries, choices, scorer=scorer)
    np.testing.assert_allclose(one, peers, rtol=0, atol=1e-5)
    assert np.array_equal(one, fuzzy.cdist(queries, choices, scorer=scorer, workers=3))
    np.testing.assert_array_equal(fuzzy.cdist(choices, queries, scorer=scorer), one.T)


@every_isa
def test_very_long_texts_score_as_rapidfuzz():
    # Past 2^15 characters together the combing of strands goes from 16 to 32 bits.
    rng = random.Random(3)
    for m, n, alphabet in ((100, 5000, "abc"), (900, 31_866, "ab😀c"), (901, 31_868, "abĀd"), (300, 300, "abcd")):
        a, b = ("".join(rng.choices(alphabet, k=size)) for size in (m, n))
        assert fuzzy.ratio(a, b) == fuzz.ratio(a, b)
        assert fuzzy.partial_ratio(a, b) == fuzz.partial_ratio(a, b)


@every_isa
def test_more_distinct_characters_than_a_table_begins_with():
    rng = random.Random(5)
    a, b = ("".join(chr(rng.randrange(0x4E00, 0x4E00 + size)) for _ in range(size)) for size in (900, 1100))
    for scorer, (_, peer) in SCORERS.items():
        assert scorer(a, b) == peer(a, b)
    needles = [a[i : i + 50] for i in range(0, 850, 50)]
    np.testing.assert_allclose(fuzzy.cdist([a, b], needles), process.cdist([a, b], needles), rtol=0, atol=1e-5)


@every_isa
@given(a=texts(90), b=texts(), cutoff=st.none() | st.floats(0, 101))
def test_alignment_is_the_window_that_rapidfuzz_reports(a, b, cutoff):
    for x, y in ((a, b), (b, a)):
        peer = as_tuple(fuzz.partial_ratio_alignment(x, y))
        ours = fuzzy.partial_ratio_alignment(x, y)
        assert ours == peer
        if cutoff is not None and abs(peer[0] - cutoff) > 1e-9:
            assert fuzzy.partial_ratio_alignment(x, y, score_cutoff=cutoff) == (peer if peer[0] >= cutoff else None)
        if len(x) and len(y):
            assert ours.score == pytest.approx(
                oracles.ratio(x[ours.src_start : ours.src_end], y[ours.dest_start : ours.dest_end])
            )


@every_isa
def test_alignment_of_long_needles_is_rapidfuzz_s():
    rng = random.Random(13)
    for m, n in ((65, 65), (65, 66), (70, 140), (129, 300)):
        a, b = ("".join(rng.choices("abc", k=size)) for size in (m, n))
        assert fuzzy.partial_ratio_alignment(a, b) == as_tuple(fuzz.partial_ratio_alignment(a, b))
        assert fuzzy.partial_ratio_alignment(b, a) == as_tuple(fuzz.partial_ratio_alignment(b, a))


@every_isa
@scorers
@given(a=texts(), b=texts(80), cutoff=st.floats(0, 101))
def test_a_cutoff_turns_lower_scores_to_zero_and_nothing_else(scorer, a, b, cutoff):
    whole = scorer(a, b)
    assert scorer(a, b, score_cutoff=whole) == whole
    assert scorer(a, b, score_cutoff=cutoff) == (whole if whole >= cutoff else 0.0)
    assert scorer(a, b, score_cutoff=math.nextafter(whole, 200)) == 0.0
    if cutoff <= 100:
        matrix = fuzzy.cdist([a], [b], scorer=scorer, score_cutoff=cutoff, dtype=np.float64)
        assert matrix[0, 0] == (whole if whole >= cutoff else 0.0)
        if abs(whole - cutoff) > 1e-9:
            peer = SCORERS[scorer][1](a, b, score_cutoff=cutoff)
            # Its WRatio of texts that share a word may be below the cutoff.
            assert scorer(a, b, score_cutoff=cutoff) == (peer if peer >= cutoff else 0.0)


def thresholds(scores: np.ndarray, rng: random.Random) -> list[float]:
    """Cutoffs that some score equals, those just above it, and others."""
    met = [float(score) for score in rng.sample(sorted(set(scores[scores > 0])), 4)]
    return [0, 1e-300, 100, *(math.nextafter(score, 101) for score in met), *met, *(rng.uniform(30, 95) for _ in met)]


@every_isa
@own_scorers
@pytest.mark.parametrize("workers", [1, 3])
def test_pruning_by_a_cutoff_changes_no_matrix(scorer, workers):
    # Texts that share parts, so that every cutoff keeps some pairs and drops some.
    rng = random.Random(19)
    whole = [random_text(rng, 400) for _ in range(3)]
    sides = []
    for count in (70, 150):
        side = [random_text(rng, size) for size in EDGES]
        for _ in range(count):
            source = rng.choice(whole)
            begin, size = rng.randrange(300), rng.choice((3, 8, 12, 16, 20, 40, 64, 90))
            part = list(source[begin : begin + size])
            for _ in range(rng.randrange(4)):
                part[rng.randrange(len(part))] = rng.choice((" ", "x", "\xe9", "\u0141", "\U0001f600"))
            side.append("".join(part))
        rng.shuffle(side)
        sides.append([*side, None, "", "\u2003", b"ab ab", "a" * 300, "a" * 64, whole[0]])
    full = fuzzy.cdist(*sides, scorer=scorer, dtype=np.float64)
    for cutoff in thresholds(full, rng):
        pruned = fuzzy.cdist(*sides, scorer=scorer, score_cutoff=cutoff, workers=workers, dtype=np.float64)
        np.testing.assert_array_equal(pruned, np.where(full >= cutoff, full, 0))
        rounded = fuzzy.cdist(*sides, scorer=scorer, score_cutoff=cutoff, score_multiplier=2, dtype="u1")
        np.testing.assert_array_equal(rounded, np.floor(pruned * 2 + 0.5))


@every_isa
@own_scorers
@given(given_=pairs(30))
def test_cpdist_scores_each_pair_as_the_definition_says(scorer, given_):
    if scorer in OF_WORDS:  # See test_a_pair_scores_as_the_definition_says.
        given_ = tuple([text and text.replace("\xa0", "x").replace("\x85", "y") for text in side] for side in given_)
    oracle = SCORERS[scorer][0]
    expected = [0 if None in (a, b) else oracle(a, b) for a, b in zip(*given_, strict=True)]
    assert fuzzy.cpdist(*given_, scorer=scorer, dtype=np.float64).tolist() == pytest.approx(expected, abs=1e-9)


@every_isa
@own_scorers
@given(given_=pairs(), cutoff=st.none() | st.floats(0, 100))
def test_cpdist_is_the_pairs_whatever_the_runs_and_the_threads(scorer, given_, cutoff):
    expected = [scorer(a, b, score_cutoff=cutoff) for a, b in zip(*given_, strict=True)]
    apart = tuple([text and (text + "x")[:-1] for text in side] for side in given_)  # no object twice
    for sides in (given_, apart):
        for workers in (1, 2, 5, -1):
            scores = fuzzy.cpdist(*sides, scorer=scorer, score_cutoff=cutoff, workers=workers, dtype=np.float64)
            assert scores.shape == (len(given_[0]),)
            assert scores.tolist() == expected


@every_isa
@own_scorers
def test_cpdist_equals_rapidfuzz_to_the_last_bit(scorer):
    rng = random.Random(29)
    given_ = many_pairs(rng, 3000)
    for size in EDGES * 2:
        others = [random_text(rng, other) for other in EDGES]
        more = paired(rng.choice(("queries", "choices")), random_text(rng, size), others)
        for side, added in zip(given_, more, strict=True):
            side.extend(added)
    peers = process.cpdist(*given_, scorer=SCORERS[scorer][1], dtype=np.float64)
    assert len(set(peers.tolist())) > 100
    for workers in (1, 3):
        np.testing.assert_array_equal(fuzzy.cpdist(*given_, scorer=scorer, workers=workers, dtype=np.float64), peers)
        np.testing.assert_array_equal(
            fuzzy.cpdist(*given_, scorer=scorer, workers=workers), process.cpdist(*given_, scorer=SCORERS[scorer][1])
        )


@every_isa
@own_scorers
@pytest.mark.parametrize("workers", [1, 3])
def test_pruning_by_a_cutoff_changes_no_pair(scorer, workers):
    rng = random.Random(31)
    given_ = many_pairs(rng, 1500)
    full = fuzzy.cpdist(*given_, scorer=scorer, dtype=np.float64)
    for cutoff in thresholds(full, rng):
        pruned = fuzzy.cpdist(*given_, scorer=scorer, score_cutoff=cutoff, workers=workers, dtype=np.float64)
        np.testing.assert_array_equal(pruned, np.where(full >= cutoff, full, 0))
        rounded = fuzzy.cpdist(*given_, scorer=scorer, score_cutoff=cutoff, score_multiplier=2, dtype="u1")
        np.testing.assert_array_equal(rounded, np.floor(pruned * 2 + 0.5))


@every_isa
@own_scorers
@given(data=st.data())
def test_pruning_keeps_a_score_that_equals_the_cutoff(scorer, data):
    queries = data.draw(st.lists(texts(70), min_size=1, max_size=5))
    choices = data.draw(st.lists(texts(30), min_size=1, max_size=5))
    full = fuzzy.cdist(queries, choices, scorer=scorer, dtype=np.float64)
    for cutoff in sorted({*full.ravel(), data.draw(st.floats(0, 100))}):
        pruned = fuzzy.cdist(queries, choices, scorer=scorer, score_cutoff=cutoff, dtype=np.float64)
        np.testing.assert_array_equal(pruned, np.where(full >= cutoff, full, 0))


@every_isa
@pytest.mark.parametrize(
    ("scorer", "size"),
    [(scorer, size) for scorer in SCORERS for size in ((3, 12, 40, 64, 65, 110) if scorer in OWN[:3] else (40, 110))],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_extract_is_the_head_of_the_sorted_scores(scorer, size):
    # More choices than one thread takes alone, many of them equal.
    rng = random.Random(size)
    query = random_text(rng, size)
    some = [query[begin : begin + rng.randrange(1, 90)] + random_text(rng, rng.randrange(8)) for begin in range(size)]
    choices = [rng.choice((rng.choice(some), random_text(rng, rng.randrange(70)), None)) for _ in range(9000)]
    scores = fuzzy.cdist([query], choices, scorer=scorer, dtype=np.float64)[0]
    order = sorted((i for i, choice in enumerate(choices) if choice is not None), key=lambda i: -scores[i])
    expected = [(choices[i], scores[i], i) for i in order]
    for limit in (0, 1, 5, 700, 10_000, None):
        assert fuzzy.extract(query, choices, scorer=scorer, limit=limit) == expected[:limit]
    for cutoff in thresholds(scores, rng):
        least = [found for found in expected if found[1] >= cutoff]
        for limit in (1, 30, None):
            assert fuzzy.extract(query, choices, scorer=scorer, limit=limit, score_cutoff=cutoff) == least[:limit]
        assert fuzzy.extract_one(query, choices, scorer=scorer, score_cutoff=cutoff) == (least or [None])[0]


def test_extract_takes_choices_in_any_container():
    class Table:
        def items(self):
            yield from {"x": "Accra", "y": "Ada"}.items()

    expected = [("Ada", 100.0, 1), ("Accra", 50.0, 0)]
    for choices in (["Accra", "Ada"], ("Accra", "Ada"), iter(["Accra", "Ada"]), np.array(["Accra", "Ada"], object)):
        assert fuzzy.extract("Ada", choices, scorer=fuzzy.ratio) == expected
    keyed = [("Ada", 100.0, "y"), ("Accra", 50.0, "x")]
    assert fuzzy.extract("Ada", Table(), scorer=fuzzy.ratio) == keyed
    assert fuzzy.extract("Ada", {"x": "Accra", "y": "Ada"}, scorer=fuzzy.ratio) == keyed
    assert fuzzy.extract("Ada", Table(), scorer=fuzzy.ratio, processor=str.upper) == keyed
    text = random_text(random.Random(1), 9)
    assert fuzzy.extract(text, ["", text], scorer=fuzzy.ratio)[0][0] is text
    for wrong in ("Ada", b"Ada"):
        with pytest.raises(TypeError, match="put it in a list"):
            fuzzy.extract("Ada", wrong, scorer=fuzzy.ratio)
    with pytest.raises(TypeError, match="not iterable"):
        fuzzy.extract("Ada", 3, scorer=fuzzy.ratio)


def test_nothing_is_read_behind_the_first_perfect_choices():
    choices = ["Accra", "Ada", "Ada", *["Kumasi"] * 5000, object()]
    assert fuzzy.extract_one("Ada", choices, scorer=fuzzy.ratio) == ("Ada", 100.0, 1)
    assert fuzzy.extract("Ada", choices, scorer=fuzzy.ratio, limit=2) == [("Ada", 100.0, 1), ("Ada", 100.0, 2)]
    with pytest.raises(TypeError, match=r"choices\[5003\] is of type object"):
        fuzzy.extract("Ada", choices, scorer=fuzzy.ratio, limit=3)


@every_isa
@scorers
@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("", ""),
        ("", "a"),
        (None, "a"),
        (None, None),
        (math.nan, "a"),
        (b"ab", "ab"),
        (b"\xe9\xff", "\xe9\xff"),
        ("\ud800", "\ud800"),
        ("\ud83d\ude00", "😀"),
        ("x\xa0y", "y"),
        ("x\x85y z", "y中"),
        ("  ", "a"),
        ("a a a", "a"),
        ("b a", "a b"),
        ("\x00", "\x00\x00"),
    ],
)
def test_odd_pairs_score_as_rapidfuzz(scorer, a, b):
    peer = SCORERS[scorer][1]
    assert scorer(a, b) == peer(a, b)
    assert scorer(b, a) == peer(b, a)
    assert fuzzy.cdist([a, b], [b, a], scorer=scorer)[0, 0] == np.float32(peer(a, b))


@scorers
def test_all_white_space_splits_where_rapidfuzz_splits(scorer):
    for character in map(chr, [*range(0x100), *range(0x1600, 0x3100), 0xFEFF, 0x180E]):
        for a, b in ((f"x{character}y", "y"), (f"x{character}y\u4e2d", "y\u4e2d")):
            assert scorer(a, b) == SCORERS[scorer][1](a, b), hex(ord(character))


@scorers
@pytest.mark.parametrize("dtype", [None, "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"])
@pytest.mark.parametrize("multiplier", [1, 1.25, 100])
def test_dtype_and_multiplier_store_what_rapidfuzz_stores(scorer, dtype, multiplier):
    multiplier = min(multiplier, 1.25) if dtype in ("i1", "u1") else multiplier
    queries, choices = ["abcde fgh", "Ada Foah", ""], ["abxde", "Foah Ada", "", None, "abc" * 30]
    options = {"dtype": dtype, "score_multiplier": multiplier, "score_cutoff": 20}
    ours = fuzzy.cdist(queries, choices, scorer=scorer, **options)
    peers = process.cdist(queries, choices, scorer=SCORERS[scorer][1], **options)
    assert ours.dtype == peers.dtype
    np.testing.assert_allclose(ours, peers, rtol=1e-6)
    every = [query for query in queries for _ in choices], choices * len(queries)
    paired_scores = fuzzy.cpdist(*every, scorer=scorer, **options)
    assert paired_scores.dtype == ours.dtype
    np.testing.assert_array_equal(paired_scores, ours.ravel())
    np.testing.assert_array_equal(paired_scores, process.cpdist(*every, scorer=SCORERS[scorer][1], **options))


@scorers
@pytest.mark.parametrize("dtype", [None, "f8", "u1", "i8"])
def test_missing_texts_score_zero_in_every_dtype(scorer, dtype):
    # RapidFuzz leaves the rows of missing queries as the memory was, so it cannot be the judge here.
    matrix = fuzzy.cdist(["a", None, math.nan], [None, "a", math.nan, "a"], scorer=scorer, dtype=dtype)
    assert matrix.tolist() == [[0, 100, 0, 100], [0, 0, 0, 0], [0, 0, 0, 0]]
    pairs_ = ["a", None, "a", math.nan, "a", None, "a"], ["a", "a", None, "a", math.nan, None, "a"]
    assert fuzzy.cpdist(*pairs_, scorer=scorer, dtype=dtype).tolist() == [100, 0, 0, 0, 0, 0, 100]
    assert fuzzy.cpdist([], [], scorer=scorer, dtype=dtype).shape == (0,)


def test_a_processor_is_called_on_both_sides_and_never_on_missing_texts():
    queries, choices = ["ADA Foah!", "x"], ["ada foah", "ACCRA", None]
    ours = fuzzy.cdist(queries, choices, processor=utils.default_process)
    np.testing.assert_array_equal(ours, process.cdist(queries, choices, processor=utils.default_process))
    assert ours[0].tolist() == [100, pytest.approx(30.769232), 0]
    assert fuzzy.cdist([None], ["A"], processor=str.lower).tolist() == [[0]]
    assert fuzzy.cpdist(["ABC", None, "x"], iter(["abc", "A", None]), processor=str.lower).tolist() == [100, 0, 0]
    assert fuzzy.ratio("ABC", "abc", processor=str.lower) == 100
    assert fuzzy.ratio(None, "abc", processor=str.lower) == 0
    assert fuzzy.partial_ratio_alignment("ABC", "xabc", processor=str.lower) == (100.0, 0, 3, 1, 4)
    assert fuzzy.extract("ABC", ["xabc", None], scorer=fuzzy.partial_ratio, processor=str.lower) == [("xabc", 100, 0)]


@every_isa
@scorers
@given(query=texts(15), choices=st.lists(texts(15) | st.none(), max_size=12), data=st.data())
def test_extract_returns_what_rapidfuzz_returns(scorer, query, choices, data):
    peer = SCORERS[scorer][1]
    limit = data.draw(st.none() | st.integers(0, 14))
    cutoff = data.draw(st.none() | st.integers(0, 100))
    options = {"limit": limit, "score_cutoff": cutoff}
    assert fuzzy.extract(query, choices, scorer=scorer, **options) == process.extract(
        query, choices, scorer=peer, **options
    )
    mapping = {f"key {i}": choice for i, choice in enumerate(choices)}
    assert fuzzy.extract(query, mapping, scorer=scorer, **options) == process.extract(
        query, mapping, scorer=peer, **options
    )
    assert fuzzy.extract_one(query, mapping, scorer=scorer, score_cutoff=cutoff) == process.extractOne(
        query, mapping, scorer=peer, score_cutoff=cutoff
    )


def test_extract_of_nothing_is_empty():
    assert fuzzy.extract(None, ["a"], scorer=fuzzy.ratio) == []
    assert fuzzy.extract("a", [], scorer=fuzzy.ratio) == []
    assert fuzzy.extract("a", [None], scorer=fuzzy.ratio) == []
    assert fuzzy.extract_one("a", {}, scorer=fuzzy.ratio) is None
    assert fuzzy.extract_one("a", ["b"], scorer=fuzzy.ratio) == ("b", 0.0, 0)
    assert fuzzy.extract_one("a", ["b"], scorer=fuzzy.ratio, score_cutoff=1) is None


def test_a_callable_scorer_is_called_once_a_pair_with_the_cutoff():
    calls = []

    def scorer(a, b, *, score_cutoff, weight=1):
        calls.append((a, b, score_cutoff, weight))
        return 2.5 * weight

    matrix = fuzzy.cdist(["a", None], ["b", "c"], scorer=scorer, score_cutoff=1, scorer_kwargs={"weight": 3})
    assert matrix.tolist() == [[7.5, 7.5], [0, 0]]
    assert calls == [("a", "b", 1, 3), ("a", "c", 1, 3)]
    calls.clear()
    scores = fuzzy.cpdist(["a", None, "a"], ["b", "c", "d"], scorer=scorer, dtype="u1", score_multiplier=3)
    assert scores.tolist() == [8, 0, 8]
    assert calls == [("a", "b", None, 1), ("a", "d", None, 1)]
    assert fuzzy.extract("a", ["b", None, "c"], scorer=fuzz.WRatio) == process.extract("a", ["b", None, "c"])


def test_strings_may_be_freed_while_threads_compare_them():
    # The lists change under the running call, which must hold the texts it was given.
    rng = random.Random(17)
    queries = [random_text(rng, 300) for _ in range(60)]
    choices = [random_text(rng, 30) for _ in range(600)]
    expected = fuzzy.cdist(queries, choices, scorer=fuzzy.partial_ratio)
    results = []
    lists = list(queries), list(choices)
    thread = threading.Thread(target=lambda: results.append(fuzzy.cdist(*lists, scorer=fuzzy.partial_ratio, workers=2)))
    thread.start()
    time.sleep(0.002)
    for texts_ in lists:
        texts_[:] = ["x" * 1000 for _ in texts_]
    thread.join()
    assert np.array_equal(results[0], expected)
    lists = [query for query in queries for _ in range(100)], choices * 10
    expected = fuzzy.cpdist(*lists, scorer=fuzzy.partial_ratio)
    thread = threading.Thread(
        target=lambda: results.append(fuzzy.cpdist(*lists, scorer=fuzzy.partial_ratio, workers=2))
    )
    thread.start()
    time.sleep(0.002)
    del queries, choices
    for texts_ in lists:
        texts_[:] = ["x" * 1000 for _ in texts_]
    thread.join()
    assert np.array_equal(results[1], expected)


def test_a_list_may_change_while_it_is_searched():
    rng = random.Random(23)
    query = random_text(rng, 3000)
    choices = [random_text(rng, 60) for _ in range(9000)]
    expected = fuzzy.extract(query, choices, scorer=fuzzy.partial_ratio, limit=50)
    results = []
    given_ = list(choices)
    thread = threading.Thread(
        target=lambda: results.append(fuzzy.extract(query, given_, scorer=fuzzy.partial_ratio, limit=50))
    )
    thread.start()
    time.sleep(0.002)
    given_.clear()
    thread.join()
    assert results[0] == expected


@pytest.mark.parametrize("pairwise", [False, True])
def test_the_gil_is_released(pairwise):
    text = "ab" * 20_000
    turns = 0
    done = threading.Event()

    def count():
        nonlocal turns
        while not done.is_set():
            turns += 1
            time.sleep(0.0005)

    before = sys.getswitchinterval()
    thread = threading.Thread(target=count)
    thread.start()
    start = turns
    if pairwise:
        fuzzy.cpdist([text[:9000]], [text], scorer=fuzzy.partial_ratio)
    else:
        fuzzy.partial_ratio(text[:9000], text)
    during = turns - start
    done.set()
    thread.join()
    assert sys.getswitchinterval() == before
    assert during > 3


@pytest.mark.parametrize("bad", [1, ["a"], object(), bytearray(b"a"), 2.5, memoryview(b"a")])
def test_what_is_no_text_is_refused_with_its_place(bad):
    with pytest.raises(TypeError, match=r"s2 is of type .*; give str, bytes or None"):
        fuzzy.ratio("a", bad)
    with pytest.raises(TypeError, match="s1 is of type"):
        fuzzy.partial_ratio_alignment(bad, "a")
    with pytest.raises(TypeError, match=r"choices\[1\] is of type"):
        fuzzy.cdist(["a"], ["a", bad])
    with pytest.raises(TypeError, match=r"queries\[2\] is of type"):
        fuzzy.cpdist(["a", "a", bad, bad], ["a"] * 4)
    with pytest.raises(TypeError, match=r"choices\[2\] is of type"):
        fuzzy.extract("a", ["a", None, bad], scorer=fuzzy.ratio)


def test_wrong_arguments_are_refused_with_the_numbers():
    for function in (fuzzy.cdist, fuzzy.cpdist):
        with pytest.raises(ValueError, match="workers is 0"):
            function(["a"], ["a"], workers=0)
        with pytest.raises(ValueError, match="workers is -2"):
            function(["a"], ["a"], workers=-2)
        with pytest.raises(ValueError, match="score_cutoff is 101"):
            function(["a"], ["a"], score_cutoff=101)
        with pytest.raises(ValueError, match="score_cutoff is nan"):
            function(["a"], ["a"], score_cutoff=math.nan)
        with pytest.raises(TypeError, match="give float32, float64 or an integer type"):
            function(["a"], ["a"], dtype="f2")
        with pytest.raises(TypeError, match="put it in a list"):
            function(["a"], "a")
    for scorer in (fuzzy.ratio, fuzz.ratio):
        with pytest.raises(ValueError, match="there are 3 queries but 2 choices"):
            fuzzy.cpdist(["a"] * 3, ["a"] * 2, scorer=scorer)
    with pytest.raises(ValueError, match="not a number"):
        fuzzy.ratio("a", "a", score_cutoff=math.nan)
    for scorer in (fuzzy.ratio, fuzz.ratio):
        with pytest.raises(ValueError, match="limit is -1"):
            fuzzy.extract("a", ["a"], scorer=scorer, limit=-1)
        with pytest.raises(ValueError, match="score_cutoff is not a number"):
            fuzzy.extract("a", ["a"], scorer=scorer, score_cutoff=math.nan)
    for dtype in ("f2", "c8", "U3", "bool", "O"):
        with pytest.raises(TypeError, match="give float32, float64 or an integer type"):
            fuzzy.cdist(["a"], ["a"], dtype=dtype)
    with pytest.raises(TypeError, match="put it in a list"):
        fuzzy.cdist("abc", ["a"])
    with pytest.raises(TypeError):
        fuzzy.cdist(None, ["a"])
    with pytest.raises(TypeError):
        fuzzy.cdist(["a"], 3)


def test_the_core_itself_refuses_a_wrong_output_array():
    for shape, dtype in (((1, 2), "f4"), ((1,), "f4"), ((1, 1), ">f4"), ((1, 1), "f2")):
        with pytest.raises((ValueError, TypeError), match=r"out must|dtype is"):
            _core.fuzzy_cdist(("a",), ("a",), 0, 0.0, 1.0, 0.0, 1, np.empty(shape, dtype))
    with pytest.raises(ValueError, match="contiguous"):
        _core.fuzzy_cdist(("a", "b"), ("a", "b"), 0, 0.0, 1.0, 0.0, 1, np.empty((2, 4), "f4")[:, ::2])
    for shape in ((2,), (1, 1), ()):
        with pytest.raises(ValueError, match=r"out must be of shape \(1,\)"):
            _core.fuzzy_cpdist(("a",), ("a",), 0, 0.0, 1.0, 0.0, 1, np.empty(shape, "f4"))
    with pytest.raises(ValueError, match="there are 1 queries but 2 choices"):
        _core.fuzzy_cpdist(("a",), ("a", "b"), 0, 0.0, 1.0, 0.0, 1, np.empty(1, "f4"))
    with pytest.raises(ValueError, match="contiguous"):
        _core.fuzzy_cpdist(("a", "b"), ("a", "b"), 0, 0.0, 1.0, 0.0, 1, np.empty(4, "f4")[::2])
    with pytest.raises(ValueError, match="scorer is 10; it must be from 0 to 9"):
        _core.fuzzy_score(10, "a", "a", 0.0)
    frozen = np.empty((1, 1), "f4")
    frozen.flags.writeable = False
    with pytest.raises(ValueError, match="not writeable"):
        _core.fuzzy_cdist(("a",), ("a",), 0, 0.0, 1.0, 0.0, 1, frozen)


@every_isa
@pytest.mark.data
@own_scorers
def test_real_sentences_and_titles_score_as_rapidfuzz(scorer, shared_data):
    sentences, titles = {}, {}
    for path in sorted((shared_data / "multihop").glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            for title, body in json.loads(line)["context"]:
                titles[title] = None
                sentences.update(dict.fromkeys(body))
    rows, columns = list(sentences)[::7], list(titles)
    assert len(rows) > 100
    assert len(columns) > 300
    ours = fuzzy.cdist(rows, columns, scorer=scorer, workers=-1, dtype=np.float64)
    peers = process.cdist(rows, columns, scorer=SCORERS[scorer][1], workers=-1, dtype=np.float64)
    np.testing.assert_allclose(ours, peers, rtol=0, atol=1e-6)
    # Each sentence beside 20 titles.
    places = np.random.default_rng(1).integers(len(columns), size=20 * len(rows))
    given_ = [row for row in rows for _ in range(20)], [columns[place] for place in places]
    ours = fuzzy.cpdist(*given_, scorer=scorer, workers=-1, dtype=np.float64)
    np.testing.assert_array_equal(ours, process.cpdist(*given_, scorer=SCORERS[scorer][1], dtype=np.float64))


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 127, 128, 129, 200])
def test_few_texts_beside_many_score_what_each_pair_does(isa, size):
    """Texts of one byte a character are compared side by side, four with a short one and two with a longer one."""
    chance = random.Random(size)
    few = ["".join(chance.choices("ab é", k=size)) for _ in range(3)]
    few[1] = few[1].replace("a", "б")
    for count in (1, 2, 4, 5, 8, 9, 23):
        many: list[str | bytes | None] = [
            "".join(chance.choices(chance.choice(["ab é", "ab é", "aб"]), k=chance.choice([0, 1, 9, 40, 64, 130])))
            for _ in range(count)
        ]
        many[-1] = chance.choice([None, b"abab", "b"])
        for rows in (few[:1], few):
            scores = fuzzy.cdist(rows, many, scorer=fuzzy.ratio, dtype=np.float64)
            expected = [[0.0 if b is None else fuzz.ratio(a, b) for b in many] for a in rows]
            assert scores.tolist() == expected, isa
            assert fuzzy.cdist(many, rows, scorer=fuzzy.ratio, dtype=np.float64).T.tolist() == expected
            cut = fuzzy.cdist(rows, many, scorer=fuzzy.ratio, dtype=np.float64, score_cutoff=60, workers=2)
            assert cut.tolist() == [[score if score >= 60 else 0.0 for score in row] for row in expected]
