"""An entity is found by its name with typos, other order or other case, and what is found is the best of all names."""

from __future__ import annotations

import random
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrace.errors import InputError
from pytrace.kernels.fuzzy import ratio
from pytrace.kg.entities import EntityIndex, score
from pytrace.kg.names import normal_form

NAMES = [
    "Frederica of Mecklenburg-Strelitz",
    "Ernest Augustus I of Hanover",
    "Ernest Augustus II of Hanover",
    "United Kingdom",
    "united_kingdom",
    "Königsberg",
    "Москва",
    "東京都",
    "京都",
    "!!!",
    "",
]


@pytest.fixture(scope="module")
def index() -> EntityIndex:
    return EntityIndex.of(NAMES)


def best(index: EntityIndex, name: str) -> str:
    return NAMES[index.find(name)[0][0]]


def test_all_entities_of_the_same_normal_form_come_first(index: EntityIndex) -> None:
    assert index.find("UNITED  kingdom", limit=2) == [(3, 100.0), (4, 100.0)]
    assert index.find("united kingdom", limit=1) == [(3, 100.0)]
    assert [score for _, score in EntityIndex.of(["a b", "b a", "a b"]).find("a b")] == [100.0, 100.0, 95.0]


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("Frederika of Meklenburg Strelitz", NAMES[0]),
        ("Mecklenburg-Strelitz, Frederica of", NAMES[0]),
        ("Ernest Augstus of Hanover", NAMES[1]),
        ("Ernest Augustus II of Hanovr", NAMES[2]),
        ("Konigsberg", "Königsberg"),
        ("Моcква", "Москва"),  # its third letter is a Latin one
        ("東京", "東京都"),
    ],
)
def test_names_are_found_in_spite_of_typos_order_and_missing_words(index: EntityIndex, said: str, meant: str) -> None:
    assert best(index, said) == meant


def test_a_name_with_no_character_that_counts_finds_its_like(index: EntityIndex) -> None:
    assert index.find("!!!") == [(9, 100.0)]
    assert index.find("???") == []


@pytest.mark.parametrize("name", ["", "   ", "\u200b\t\n"])
def test_nothing_finds_nothing(index: EntityIndex, name: str) -> None:
    assert [entity for entity, _ in index.find(name)] in ([], [9])
    assert index.find("") == []


@pytest.mark.parametrize("names", [[], [""], ["", " "]])
def test_an_index_of_nothing_finds_nothing(names: list[str]) -> None:
    assert EntityIndex.of(names).find("Accra", cutoff=0) == []


@pytest.mark.parametrize("name", ["\ud800 broken", "x" * 100_000, "word " * 20_000, "\0 null", "a\u0301" * 300])
def test_odd_and_huge_names_are_indexed_and_found(name: str) -> None:
    index = EntityIndex.of(["Accra", name])
    start = time.perf_counter()
    assert index.find(name)[0] == (1, 100.0)
    assert index.find(name + "x", cutoff=80)[0][0] == 1
    assert time.perf_counter() - start < 5


def test_arguments_that_cannot_be_are_an_error(index: EntityIndex) -> None:
    with pytest.raises(InputError, match="limit is 0"):
        index.find("Accra", limit=0)
    for cutoff in (-1.0, 101.0, float("nan")):
        with pytest.raises(InputError, match="give a score from 0 to 100"):
            index.find("Accra", cutoff=cutoff)


def test_nothing_below_the_cutoff_is_found(index: EntityIndex) -> None:
    found = index.find("Ernest of Hanover", cutoff=0, limit=20)
    assert {score < 90 for _, score in found} == {True}
    for cutoff in (60.0, 75.0):
        assert index.find("Ernest of Hanover", cutoff=cutoff) == [one for one in found if one[1] >= cutoff][:5]


def test_a_part_of_a_name_scores_less_than_the_name_with_a_typo() -> None:
    index = EntityIndex.of(["of Hanover", "Hanover", "Ernest Augustus I of Hanover"])
    assert index.find("Ernets Augustus I of Hanover")[0][0] == 2


def test_scores_are_those_of_the_kernel() -> None:
    forms = ["ernest of hanover", "hanover ernest of", "ernst", ""]
    got = score("hanover of ernest", forms)
    for form, one in zip(forms, got, strict=True):
        in_order = ratio("hanover of ernest", form)
        assert one == pytest.approx(max(in_order, 0.95 * ratio("ernest hanover of", " ".join(sorted(form.split())))))
    assert got[0] == got[1] == 95


@given(st.lists(st.text(max_size=12), max_size=12), st.text(max_size=12))
def test_what_is_found_is_scored_ordered_and_there(names: list[str], name: str) -> None:
    index = EntityIndex.of(names)
    found = index.find(name, limit=3, cutoff=50)
    assert found == sorted(found, key=lambda one: (-one[1], one[0]))
    assert len({entity for entity, _ in found}) == len(found) <= 3
    form = normal_form(name)
    same = [entity for entity, other in enumerate(names) if form and normal_form(other) == form]
    assert [entity for entity, each in found if each == 100] == same[:3]
    assert all(50 <= each <= 100 for _, each in found)
    for entity, each in found:
        assert each == 100 or each == pytest.approx(score(form, [normal_form(names[entity])])[0])


def test_names_with_a_typo_are_found_as_a_scan_of_all_names_finds_them() -> None:
    draw = random.Random(5)
    words = ["".join(draw.choices("abcdefghijklmnoprstuvy", k=draw.randint(3, 9))) for _ in range(400)]
    names = list(dict.fromkeys(" ".join(draw.choices(words, k=draw.randint(1, 4))) for _ in range(5_000)))
    index = EntityIndex.of(names)
    agreed = 0
    for name in draw.sample(names, 100):
        place = draw.randrange(len(name))
        said = name[:place] + draw.choice("qwxz") + name[place + 1 :]
        scores = score(normal_form(said), names)
        [(_, found)] = index.find(said, limit=1, cutoff=0)
        agreed += found == pytest.approx(float(np.max(scores)))
    assert agreed >= 98
