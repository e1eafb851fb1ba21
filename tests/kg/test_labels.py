"""Entities are found by any of their labels, each once by its best one, and all that share a label are there."""

from __future__ import annotations

import itertools
import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrace.errors import InputError
from pytrace.kg import fact_store as module
from pytrace.kg.entities import score
from pytrace.kg.fact_store import EntityMatch, LabelIndex
from pytrace.kg.names import normal_form

PAIRS = [
    ("Q90", "Paris"),
    ("Q830149", "Paris"),
    ("Q90", "City of Light"),
    ("Q167646", "Paris"),
    ("Q90", "paris"),
    ("Q60", "New York City"),
    ("Q60", "NYC"),
    ("Q1384", "New York"),
    ("Q64", "Berlin"),
]


@pytest.fixture(scope="module")
def index() -> LabelIndex:
    return LabelIndex.of(PAIRS)


def keys(matches: list[EntityMatch]) -> list[str]:
    return [match.key for match in matches]


def test_all_keys_of_a_label_are_found_in_the_order_in_which_they_were_given(index: LabelIndex) -> None:
    assert keys(index.find("Paris")) == ["Q90", "Q830149", "Q167646"]
    assert keys(index.find("Pariss")) == ["Q90", "Q830149", "Q167646"]
    assert keys(index.find("Paris", limit=2)) == ["Q90", "Q830149"]
    # Not in the order of the keys, where that is another.
    assert keys(LabelIndex.of([("a", "x"), ("b", "Accra"), ("a", "Accra")]).find("Accra")) == ["b", "a"]


def test_a_key_comes_once_with_the_label_most_like_the_mention(index: LabelIndex) -> None:
    assert index.find("citty of light") == [EntityMatch("Q90", "City of Light", pytest.approx(96.3, abs=0.1))]
    assert index.find("paris", limit=1) == [EntityMatch("Q90", "paris", 100.0)]
    twice = LabelIndex.of([("a", "Ada Foahs"), ("a", "Ada Foah"), ("a", "Ada Foahes")])
    assert twice.find("Ada Foah") == [EntityMatch("a", "Ada Foah", 100.0)]
    assert [(match.key, match.label) for match in index.find("new york")] == [
        ("Q1384", "New York"),
        ("Q60", "New York City"),
    ]


def test_of_labels_that_differ_in_case_the_one_written_like_the_mention_comes_first() -> None:
    index = LabelIndex.of([("pronoun", "us"), ("country", "US"), ("other", "Us")])
    assert [(match.key, match.label, match.score) for match in index.find("US")] == [
        ("country", "US", 100.0),
        ("pronoun", "us", 100.0),
        ("other", "Us", 100.0),
    ]
    assert keys(index.find("us!")) == ["pronoun", "country", "other"]


def test_a_pair_that_comes_again_changes_nothing() -> None:
    assert LabelIndex.of(PAIRS * 3).find("Paris") == LabelIndex.of(PAIRS).find("Paris")
    assert len(LabelIndex.of(PAIRS * 3).owners) == len(PAIRS)


def test_as_many_keys_are_found_as_are_asked_for_even_behind_one_with_many_labels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_LABELS", 4)
    many = [("many", f"Ada Foah {letter}") for letter in "abcdefghijklmnopqrstuvwxyz"]
    index = LabelIndex.of([*many, ("one", "Ada Foahxx"), ("two", "Ada Foahxxx")])
    assert keys(index.find("Ada Foah", limit=3)) == ["many", "one", "two"]


def test_labels_below_the_cutoff_are_not_found(index: LabelIndex) -> None:
    assert keys(index.find("Berlim", cutoff=80)) == ["Q64"]
    assert index.find("Berlim", cutoff=90) == []


@pytest.mark.parametrize(
    ("option", "value"), [("limit", 0), ("limit", -1), ("cutoff", 100.1), ("cutoff", float("nan"))]
)
def test_numbers_out_of_range_are_refused(index: LabelIndex, option: str, value: float) -> None:
    with pytest.raises(InputError, match=f"{option} is {value}"):
        index.find("Paris", **{option: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("pairs", [[], [("", "")], [("a", ""), ("b", " ")]])
def test_an_index_of_nothing_finds_nothing(pairs: list[tuple[str, str]]) -> None:
    assert LabelIndex.of(pairs).find("Paris", cutoff=0) == []


@pytest.mark.parametrize("text", ["\ud800 broken", "x" * 20_000, "word " * 5_000, "\0 null", "東京", "!!!"])
def test_any_text_can_be_a_label_and_a_key(text: str) -> None:
    index = LabelIndex.of([*PAIRS, (text, text)])
    assert index.find(text, limit=1) == [EntityMatch(text, text, 100.0)]


@given(
    pairs=st.lists(st.tuples(st.sampled_from("klmn"), st.text("abc ", max_size=5)), max_size=12),
    mention=st.text("abc ", max_size=5),
    limit=st.integers(1, 5),
)
def test_keys_come_in_order_of_scores_that_their_labels_have_and_none_of_the_very_name_is_missed(
    pairs: list[tuple[str, str]], mention: str, limit: int
) -> None:
    found = LabelIndex.of(pairs).find(mention, limit=limit, cutoff=0)
    assert len(set(keys(found))) == len(found) <= limit
    assert [match.score for match in found] == sorted((match.score for match in found), reverse=True)
    form = normal_form(mention)
    for match in found:
        assert (match.key, match.label) in pairs
        assert match.score == pytest.approx(float(score(form, [normal_form(match.label)])[0]))
    exact = {key for key, label in pairs if form and normal_form(label) == form}
    assert {match.key for match in found if match.score == 100.0} <= exact
    assert len([match for match in found if match.score == 100.0]) == min(len(exact), limit)


def test_a_hundred_thousand_labels_are_searched_in_milliseconds() -> None:
    draw = random.Random(0)
    syllables = ["".join(pair) for pair in itertools.product("bdfgklmnprstvz", "aeiou")]
    names = [" ".join("".join(draw.choices(syllables, k=3)) for _ in range(2)) for _ in range(100_000)]
    index = LabelIndex.of((f"e{number // 2}", name) for number, name in enumerate(names))
    start = time.perf_counter()
    for number in range(0, 100_000, 5_000):
        assert f"e{number // 2}" in keys(index.find(names[number][1:], limit=5))
    assert time.perf_counter() - start < 20 * 0.1  # it takes 3 ms a mention where nothing else runs
