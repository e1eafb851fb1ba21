from __future__ import annotations

import random
import threading

import numpy as np
import pytest
import rapidfuzz.distance
from hypothesis import given
from hypothesis import strategies as st
from rapidfuzz import process

from pytrace import _core
from pytrace.kernels import edit_distances
from pytrace.kernels.edit_distances import FORMS, METRICS, cdist, is_whole
from tests import oracles

PEERS = dict(zip(METRICS, ("Levenshtein", "Indel", "LCSseq", "Jaro", "JaroWinkler"), strict=True))
every_isa = pytest.mark.usefixtures("isa")
metrics = pytest.mark.parametrize("metric", METRICS)
forms = pytest.mark.parametrize("form", FORMS)

# Of 1, 2 and 4 bytes a character, of few letters and of many.
ALPHABETS = (
    "ab",
    "abcd ",
    "etaoin shrdlu",
    "aéĀ б中",
    "a😀𝔘Ā\t ",
    "a\ud800\udfff b",
    "\x00\x7f\xff\u0100\uffff\U0010ffff",
)
# Around the widths of lanes and words, and where windows of Jaro begin to have a width.
EDGES = (0, 1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 66, 127, 128, 129, 192, 193, 255, 256, 257, 300)


def peer(metric: str, form: str):
    return getattr(getattr(rapidfuzz.distance, PEERS[metric]), form)


def random_text(rng: random.Random, size: int) -> str:
    return "".join(rng.choices(rng.choice(ALPHABETS), k=size))


def some_texts(seed: int, each: int = 2) -> list[str]:
    rng = random.Random(seed)
    texts = [random_text(rng, size) for size in EDGES for _ in range(each)]
    # Like ones, so that there are scores of all heights: a tenth of the letters are changed, dropped or doubled.
    for text in rng.choices(texts, k=20):
        letters = [rng.choice(("", "x", c, c * 2)) if rng.random() < 0.1 else c for c in text]
        texts.append("".join(letters))
    return texts


def jaro(a: str, b: str) -> float:
    """By the definition: each character takes the first free one like it within the window."""
    if not a and not b:
        return 1.0
    window = max(max(len(a), len(b)) // 2 - 1, 0)
    free = [True] * len(b)
    left = []
    for i, character in enumerate(a):
        for j in range(max(i - window, 0), min(i + window + 1, len(b))):
            if free[j] and b[j] == character:
                free[j] = False
                left.append(character)
                break
    if not left:
        return 0.0
    right = [character for character, unused in zip(b, free, strict=True) if not unused]
    moved = sum(x != y for x, y in zip(left, right, strict=True)) // 2
    common = len(left)
    return (common / len(a) + common / len(b) + (common - moved) / common) / 3


def oracle(metric: str, form: str, a: str, b: str, prefix_weight: float = 0.1) -> float:
    if metric.startswith("jaro"):
        similarity = jaro(a, b)
        if metric == "jaro_winkler" and similarity > 0.7:
            same = 0
            while same < min(len(a), len(b), 4) and a[same] == b[same]:
                same += 1
            similarity = min(similarity + same * prefix_weight * (1 - similarity), 1.0)
        return similarity if form.endswith("similarity") else 1 - similarity
    most = len(a) + len(b) if metric == "indel" else max(len(a), len(b))
    if metric == "levenshtein":
        distance = oracles.levenshtein(a, b)
    else:
        distance = most - oracles.lcs_length(a, b) * (2 if metric == "indel" else 1)
    return {
        "distance": distance,
        "similarity": most - distance,
        "normalized_distance": distance / most if most else 0.0,
        "normalized_similarity": 1 - (distance / most if most else 0.0),
    }[form]


@every_isa
@metrics
@forms
@given(data=st.data())
def test_pairs_are_what_the_definition_says(metric, form, data):
    text = st.one_of([st.text(alphabet, max_size=24) for alphabet in ALPHABETS])
    queries, choices = data.draw(st.lists(text, max_size=4)), data.draw(st.lists(text, max_size=7))
    matrix = cdist(queries, choices, metric=metric, form=form, dtype=np.float64)
    expected = [[oracle(metric, form, a, b) for b in choices] for a in queries]
    np.testing.assert_allclose(matrix, np.reshape(expected, matrix.shape), rtol=0, atol=1e-12)


@every_isa
@metrics
@forms
def test_lengths_around_every_edge_are_rapidfuzz_s_to_the_last_bit(metric, form):
    queries, choices = some_texts(1), some_texts(2)
    scorer = peer(metric, form)
    expected = process.cdist(queries, choices, scorer=scorer, dtype=np.float64)
    np.testing.assert_array_equal(cdist(queries, choices, metric=metric, form=form, dtype=np.float64), expected)
    # Few texts on one side go other ways than many: alone, four, and some of each size.
    for begin, end in ((0, 1), (10, 14), (25, 28), (33, 36), (40, 42), (50, 53), (5, 50)):
        rows = cdist(queries[begin:end], choices, metric=metric, form=form, dtype=np.float64)
        np.testing.assert_array_equal(rows, expected[begin:end])
        columns = cdist(queries, choices[begin:end], metric=metric, form=form, dtype=np.float64)
        np.testing.assert_array_equal(columns, expected[:, begin:end])


@metrics
@forms
def test_default_types_are_rapidfuzz_s(metric, form):
    queries, choices = some_texts(3, 1), some_texts(4, 1)
    matrix = cdist(queries, choices, metric=metric, form=form)
    expected = process.cdist(queries, choices, scorer=peer(metric, form))
    assert matrix.dtype == expected.dtype
    np.testing.assert_array_equal(matrix, expected)


@metrics
@forms
@pytest.mark.parametrize(
    "dtype",
    [np.float32, np.float64, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64],
)
def test_every_type_and_multiplier_stores_what_rapidfuzz_stores(metric, form, dtype):
    queries, choices = some_texts(5, 1), some_texts(6, 1)
    multipliers = (1, 3, 1000) if is_whole(metric, form) else (1, 100, -2.5, 1e4)
    for multiplier in multipliers:
        if multiplier < 0 and np.dtype(dtype).kind == "u":
            continue  # what C makes of a negative number there is undefined
        options = {"score_multiplier": multiplier, "dtype": dtype}
        np.testing.assert_array_equal(
            cdist(queries, choices, metric=metric, form=form, **options),
            process.cdist(queries, choices, scorer=peer(metric, form), **options),
        )


@every_isa
@metrics
@forms
def test_a_cutoff_cuts_what_rapidfuzz_cuts(metric, form):
    queries, choices = some_texts(7), some_texts(8, 1)
    if is_whole(metric, form):
        cutoffs = [0, 1, 2, 3, 5, 8, 16, 40, 63, 64, 120, 2**31 - 2, 2**31 - 1, 2**31, 2**40]
    else:
        cutoffs = [0.0, 0.0625, 0.25, 0.5, 0.75, 0.875, 1.0]  # that are the same in single precision
    plain = cdist(queries, choices, metric=metric, form=form, dtype=np.float64)
    for cutoff in cutoffs:
        cut = cdist(queries, choices, metric=metric, form=form, score_cutoff=cutoff, dtype=np.float64)
        if form.endswith("similarity"):
            expected = np.where(plain >= cutoff, plain, 0)
        else:
            expected = np.where(plain <= cutoff, plain, cutoff + 1 if is_whole(metric, form) else 1)
        np.testing.assert_array_equal(cut, expected)
        theirs = process.cdist(queries, choices, scorer=peer(metric, form), score_cutoff=cutoff, dtype=np.float64)
        np.testing.assert_array_equal(cut, theirs)


@metrics
def test_any_number_of_threads_gives_the_same(metric):
    rng = random.Random(9)
    queries = [random_text(rng, rng.randrange(150)) for _ in range(300)]
    choices = [random_text(rng, rng.randrange(90)) for _ in range(400)]
    one = cdist(queries, choices, metric=metric)
    for workers in (2, 3, -1):
        np.testing.assert_array_equal(cdist(queries, choices, metric=metric, workers=workers), one)
    np.testing.assert_array_equal(one, process.cdist(queries, choices, scorer=peer(metric, "distance")))
    np.testing.assert_array_equal(cdist(choices, queries, metric=metric), one.T)


@every_isa
@metrics
def test_long_texts_are_rapidfuzz_s(metric):
    rng = random.Random(10)
    sizes = (5, 64, 100, 1000, 1024, 1025, 2047, 2048, 2049, 4095, 4096, 4097, 5000)
    alphabets = ("ab", "etaoin shrdlu", "".join(map(chr, range(0x4E00, 0x5200))))
    texts = ["".join(rng.choices(rng.choice(alphabets), k=size)) for size in sizes]
    texts += [text[7:] + text[:3] for text in texts]
    texts += ["", "a"]
    expected = process.cdist(texts, list(texts), scorer=peer(metric, "similarity"), dtype=np.float64)
    ours = cdist(texts, list(texts), metric=metric, form="similarity", dtype=np.float64, workers=2)
    np.testing.assert_array_equal(ours, expected)
    for begin in range(0, len(texts), 3):
        few = texts[begin : begin + 3]
        ours = cdist(few, texts, metric=metric, form="similarity", dtype=np.float64)
        np.testing.assert_array_equal(ours, expected[begin : begin + 3])


@metrics
@forms
def test_missing_texts_are_as_far_away_as_can_be(metric, form):
    queries, choices = ["abc", None, "", float("nan")], ["abx", float("nan"), ""]
    if is_whole(metric, form):
        with pytest.raises(ValueError, match=r"queries\[1\] is missing"):
            cdist(queries, choices, metric=metric, form=form)
        with pytest.raises(ValueError, match=r"choices\[1\] is missing"):
            cdist(["a"], choices, metric=metric, form=form)
        return
    matrix = cdist(queries, choices, metric=metric, form=form, score_multiplier=3)
    worst = 0 if form.endswith("similarity") else 3
    assert (matrix[[1, 3]] == worst).all()
    assert (matrix[:, 1] == worst).all()
    # RapidFuzz does not write the rows of missing queries.
    theirs = process.cdist(["abc", ""], choices, scorer=peer(metric, form), score_multiplier=3)
    np.testing.assert_array_equal(matrix[[0, 2]], theirs)


@pytest.mark.parametrize("weight", [0, 0.05, 0.2, 0.25, 0.3, 1])
def test_the_weight_of_a_prefix_is_rapidfuzz_s(weight):
    queries, choices = some_texts(11), some_texts(11)[::-1]
    for form in FORMS:
        scorer = rapidfuzz.distance.JaroWinkler
        expected = process.cdist(
            queries, choices, scorer=getattr(scorer, form), scorer_kwargs={"prefix_weight": weight}, dtype=np.float64
        )
        ours = cdist(queries, choices, metric="jaro_winkler", form=form, prefix_weight=weight, dtype=np.float64)
        np.testing.assert_array_equal(ours, expected)


@metrics
def test_bytes_processors_and_no_texts(metric):
    assert cdist([b"ab\xff"], ["ab\xff"], metric=metric)[0, 0] == 0
    assert cdist(["ADA"], ["ada"], metric=metric, processor=str.lower)[0, 0] == 0
    assert cdist([], ["a"], metric=metric).shape == (0, 1)
    assert cdist(["a"], [], metric=metric).shape == (1, 0)
    assert cdist(iter("ab"), (text for text in "abc"), metric=metric).shape == (2, 3)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"metric": "hamming"}, ValueError, "metric is 'hamming'"),
        ({"form": "ratio"}, ValueError, "form 'ratio'"),
        ({"workers": 0}, ValueError, "workers is 0"),
        ({"workers": -2}, ValueError, "workers is -2"),
        ({"score_cutoff": -1}, ValueError, "score_cutoff is -1"),
        ({"score_cutoff": float("nan")}, ValueError, "score_cutoff is nan"),
        ({"score_cutoff": 1.5, "metric": "jaro"}, ValueError, "score_cutoff is 1.5"),
        ({"score_multiplier": -1}, ValueError, "multiplier is -1"),
        ({"score_multiplier": float("inf")}, ValueError, "multiplier is inf"),
        ({"score_multiplier": float("nan")}, ValueError, "multiplier is nan"),
        ({"prefix_weight": 1.5}, ValueError, "prefix_weight is 1.5"),
        ({"dtype": np.float16}, TypeError, "dtype is float16"),
        ({"dtype": "U3"}, TypeError, "dtype is"),
    ],
)
def test_wrong_arguments_are_refused_in_plain_words(options, error, words):
    with pytest.raises(error, match=words):
        cdist(["a"], ["b"], **options)


def test_what_is_no_text_is_refused():
    with pytest.raises(TypeError, match="one text was given"):
        cdist("ab", ["a"])
    with pytest.raises(TypeError, match=r"choices\[1\] is of type int"):
        cdist(["a"], ["a", 3])
    with pytest.raises(TypeError, match=r"queries\[0\] is of type list"):
        cdist([["a"]], ["a"])


def test_the_core_refuses_hostile_arguments():
    out = np.zeros((1, 1), np.float32)
    good = [("a",), ("b",), 0, 0, None, 1.0, 0.0, 1, 0.1, out]
    frozen = out.copy()
    frozen.flags.writeable = False
    bad = [
        (0, ["a"]), (1, None), (2, 5), (2, -1), (2, "x"), (3, 4), (3, 2**70), (4, "x"), (4, float("nan")), (5, None),
        (5, 2.0**40), (6, "x"), (7, 0), (7, -3), (8, "x"), (9, None), (9, np.zeros((2, 1))), (9, np.zeros(1)),
        (9, np.zeros((1, 1), np.complex64)), (9, np.zeros((1, 1), ">f4")), (9, frozen),
        (9, np.zeros((2, 2), np.float32)[:1, ::2].T),
    ]  # fmt: skip
    _core.edit_cdist(*good)
    assert out[0, 0] == 1
    for index, value in bad[:-1]:
        arguments = list(good)
        arguments[index] = value
        with pytest.raises((TypeError, ValueError, OverflowError)):
            _core.edit_cdist(*arguments)
    with pytest.raises(TypeError, match="takes 10 arguments"):
        _core.edit_cdist(*good[:-1])


@pytest.mark.parametrize("function", [_core.edit_matrix, _core.fuzzy_matrix, _core.fuzzy_vector])
def test_new_arrays_of_the_core_refuse_hostile_arguments(function):
    good = [["a"], ("b",), 0, 0 if function is _core.edit_matrix else 1.0, 1]
    assert function(*good).size == 1
    assert function([], iter(()), *good[2:]).size == 0
    endless = type("Endless", (list,), {"__iter__": lambda _: 1 / 0})
    for index, value in [
        (0, "a"), (0, b"a"), (0, None), (0, [3]), (0, [["a"]]), (0, endless()), (1, 5), (1, ["a", object()]), (2, 10),
        (2, -1), (2, "x"), (2, 2**70), (3, "x"), (3, None), (4, 0), (4, -1), (4, 1.5),
    ]:  # fmt: skip
        arguments = list(good)
        arguments[index] = value
        with pytest.raises((TypeError, ValueError, OverflowError, ZeroDivisionError)):
            function(*arguments)
    with pytest.raises(TypeError, match="takes 5 arguments"):
        function(*good[:-1])


def test_other_threads_run_meanwhile_and_lists_may_change():
    texts = ["".join(random.Random(i).choices("etaoin shrdlu", k=120)) for i in range(600)]
    expected = cdist(texts, list(texts))
    ticks = 0
    done = threading.Event()
    own = list(texts)

    def tick():
        nonlocal ticks
        while not done.wait(0.0005):
            ticks += 1
            own[ticks % 600] = "x" * (ticks % 200)  # the call goes on with the texts that it was given

    thread = threading.Thread(target=tick)
    thread.start()
    try:
        for metric in METRICS:
            edit_distances.cdist(own, own, metric=metric)
    finally:
        done.set()
        thread.join()
    assert ticks > 3
    np.testing.assert_array_equal(cdist(texts, texts), expected)
