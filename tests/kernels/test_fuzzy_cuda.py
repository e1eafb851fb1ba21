"""Fuzzy scores on a card: the processor's own, to the last bit."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytrace.errors import DeviceUnavailableError
from pytrace.kernels import fuzzy
from tests import oracles
from tests.kernels.test_fuzzy import ALPHABETS, many_pairs, pairs, random_text, texts

ORACLES = {
    fuzzy.ratio: oracles.ratio,
    fuzzy.partial_ratio: oracles.partial_ratio,
    fuzzy.token_set_ratio: oracles.token_set_ratio,
}
scorers = pytest.mark.parametrize("scorer", ORACLES, ids=lambda scorer: scorer.__name__)
# Around the widths of the masks, and of what a warp holds.
EDGES = (0, 1, 7, 8, 16, 31, 32, 33, 63, 64, 65, 127, 128, 129, 250)


def assert_same(queries, choices, card, **options):
    """Compare a card's scores with the processor's: equal, not close."""
    options = {"dtype": np.float64, **options}
    here = fuzzy.cdist(queries, choices, **options)
    there = fuzzy.cdist(queries, choices, device=card, **options)
    assert there.dtype == here.dtype
    np.testing.assert_array_equal(there, here)
    return there


@scorers
@settings(max_examples=15)
@given(a=texts(20), b=texts(40))
def test_a_pair_scores_as_the_definition_says(card, scorer, a, b):
    if scorer is fuzzy.token_set_ratio:
        # Python splits at U+0085 and U+00A0 in any text; RapidFuzz only where a character is above U+00FF.
        a, b = (
            text if max(text, default="") > "\xff" else text.replace("\xa0", "x").replace("\x85", "y")
            for text in (a, b)
        )
    found = fuzzy.cdist([a], [b], scorer=scorer, dtype=np.float64, device=card)[0, 0]
    assert found == pytest.approx(ORACLES[scorer](a, b), abs=1e-9)


@scorers
def test_lengths_around_every_edge_score_as_on_the_processor(card, scorer):
    rng = random.Random(7)
    queries = [random_text(rng, size) for size in EDGES]
    assert_same(queries, [random_text(rng, size) for size in EDGES], card, scorer=scorer)


@scorers
@pytest.mark.parametrize("alphabet", ["ab", "abc de", ALPHABETS[-1]])
def test_equal_lengths_and_small_alphabets_score_as_on_the_processor(card, scorer, alphabet):
    rng = random.Random(17)
    both = [["".join(rng.choices(alphabet, k=size)) for size in (5, 32, 64, 70, 70, 5, 32)] for _ in range(2)]
    assert_same(*both, card, scorer=scorer)


@scorers
@settings(max_examples=10)
@given(data=st.data())
def test_any_matrix_is_the_processor_s(card, scorer, data):
    queries = data.draw(st.lists(texts() | st.none(), max_size=5))
    choices = data.draw(st.lists(texts(80) | st.none(), max_size=5))
    cutoff = data.draw(st.none() | st.floats(0, 100))
    assert_same(queries, choices, card, scorer=scorer, score_cutoff=cutoff)


@scorers
def test_texts_of_a_thousand_characters_score_as_on_the_processor(card, scorer):
    rng = random.Random(3)
    # More rows than a stripe holds (512), and more than a class's last bound (1,024).
    sizes = (1, 40, 511, 513, 1030)
    queries = ["".join(rng.choices("abc é", k=size)) for size in sizes]
    choices = ["".join(rng.choices("abc é", k=size)) for size in (3, 600, 1025)]
    if scorer is fuzzy.partial_ratio:
        queries, choices = queries[:3], choices[:2]
    assert_same(queries, choices, card, scorer=scorer)


def test_strands_beyond_shared_memory_are_combed_the_same(card):
    rng = random.Random(5)
    long = "".join(rng.choices("abcd", k=6100))
    needle = "".join(rng.choices("abcd", k=70))
    assert_same([needle], [long, "ab"], card, scorer=fuzzy.partial_ratio)


@scorers
@pytest.mark.parametrize(
    ("dtype", "multiplier"),
    [
        (np.float32, 1),
        (np.float64, 0.37),
        (np.int8, 3.7),
        (np.uint8, -2.5),
        (np.int16, 400),
        (np.uint16, 1000),
        (np.int32, 1e8),
        (np.uint32, -1),
        (np.int64, 1e17),
        (np.uint64, 1e300),
        (np.int32, float("nan")),
    ],
)
def test_every_dtype_and_multiplier_stores_what_the_processor_stores(card, scorer, dtype, multiplier):
    queries = ["new york mets", "a b", "", None, "é"]
    choices = ["new york meats", "b a c", "", None, "York é mets new"]
    for cutoff in (None, 60):
        options = {"scorer": scorer, "dtype": dtype, "score_multiplier": multiplier, "score_cutoff": cutoff}
        assert_same(queries, choices, card, **options)


@scorers
def test_a_cutoff_that_equals_a_score_keeps_it(card, scorer):
    rng = random.Random(23)
    queries = [random_text(rng, size) for size in (3, 12, 40)]
    choices = [random_text(rng, size) for size in (4, 12, 50)]
    for score in np.unique(assert_same(queries, choices, card, scorer=scorer)):
        for cutoff in (score, np.nextafter(score, 101)):
            if cutoff <= 100:
                assert_same(queries, choices, card, scorer=scorer, score_cutoff=cutoff)


@scorers
@pytest.mark.parametrize("memory", ["1", "3000", "20000"])
def test_tiles_of_any_size_give_the_same_matrix(card, scorer, memory, monkeypatch):
    rng = random.Random(29)
    queries = [random_text(rng, rng.randrange(30)) for _ in range(9)] + [None, random_text(rng, 70)]
    choices = [random_text(rng, rng.randrange(20)) for _ in range(12)] + [random_text(rng, 66), None]
    whole = assert_same(queries, choices, card, scorer=scorer)
    monkeypatch.setenv("PYTRACE_CUDA_MEMORY", memory)
    np.testing.assert_array_equal(assert_same(queries, choices, card, scorer=scorer), whole)
    paired = fuzzy.cpdist(queries, choices[: len(queries)], scorer=scorer, dtype=np.float64, device=card)
    np.testing.assert_array_equal(paired, np.diag(whole[:, : len(queries)]))


@scorers
@settings(max_examples=8)
@given(given_=pairs(40), cutoff=st.none() | st.floats(0, 100))
def test_cpdist_scores_any_pairs_as_on_the_processor(card, scorer, given_, cutoff):
    options = {"scorer": scorer, "score_cutoff": cutoff, "dtype": np.float64}
    np.testing.assert_array_equal(fuzzy.cpdist(*given_, device=card, **options), fuzzy.cpdist(*given_, **options))


@scorers
def test_cpdist_scores_texts_that_share_parts_as_on_the_processor(card, scorer):
    queries, choices = many_pairs(random.Random(31), 30)
    queries, choices = queries[:30], [choice and choice[:150] for choice in choices[:30]]
    queries = [query and query[:150] for query in queries]
    options = {"scorer": scorer, "dtype": np.float64}
    np.testing.assert_array_equal(
        fuzzy.cpdist(queries, choices, device=card, **options), fuzzy.cpdist(queries, choices, **options)
    )


@scorers
@pytest.mark.parametrize(
    ("queries", "choices"), [([], []), ([], ["a"]), (["a"], []), ([None], [None]), ([b"a\xff"], ["aÿ"])]
)
def test_nothing_missing_texts_and_bytes_are_taken(card, scorer, queries, choices):
    assert_same(queries, choices, card, scorer=scorer)


def test_what_a_card_cannot_do_is_refused_with_a_remedy(card):
    with pytest.raises(ValueError, match=r"scorer 'max' cannot run on 'cuda'; give ratio, partial_ratio"):
        fuzzy.cdist(["a"], ["b"], scorer=max, device=card)
    with pytest.raises(ValueError, match="cannot run on"):
        fuzzy.cpdist(["a"], ["b"], scorer=max, device=card)
    with pytest.raises(ValueError, match="device"):
        fuzzy.cdist(["a"], ["b"], device="gpu")
    with pytest.raises(DeviceUnavailableError):
        fuzzy.cdist(["a"], ["b"], device="cuda:77")
    with pytest.raises(TypeError, match=r"queries\[1\] is of type int"):
        fuzzy.cdist(["a", 1], ["b"], device=card)
    with pytest.raises(ValueError, match="score_cutoff"):
        fuzzy.cdist(["a"], ["b"], score_cutoff=101, device=card)
