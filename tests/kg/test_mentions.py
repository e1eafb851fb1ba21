"""Every name that stands in a text is found where it stands, longest first, whatever the script, and keys become readable."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrace.kg.mention_index import Mention, MentionIndex
from pytrace.kg.names import entity_name, normal_form, relation_name, tokens, verbalise


def mentions_by_trying(names: list[str], text: str) -> list[Mention]:
    """All longest names by comparing every stretch of words with every name."""
    words = tokens(text)
    wanted: dict[tuple[str, ...], list[int]] = {}
    for entity, name in enumerate(names):
        if tokens(name) and len(tokens(name)) <= 16:
            wanted.setdefault(tuple(tokens(name)), []).append(entity)
    stretches = [
        (start, end)
        for start in range(len(words))
        for end in range(start + 1, len(words) + 1)
        if tuple(words[start:end]) in wanted
    ]
    longest = [
        (start, end)
        for start, end in stretches
        if not any(first <= start and end <= last and (first, last) != (start, end) for first, last in stretches)
    ]
    found = []
    for start, end in longest:
        place = sum(len(word) + 1 for word in words[:start])
        found.append(Mention(place, place + len(" ".join(words[start:end])), tuple(wanted[tuple(words[start:end])])))
    return sorted(found)


def test_names_are_found_as_by_trying_everything() -> None:
    draw = random.Random(4)
    some = 0
    for _ in range(200):
        words = ["a", "b", "c", "京", "é"]
        names = [" ".join(draw.choices(words, k=draw.randint(1, 4))) for _ in range(draw.randint(0, 8))]
        texts = [" ".join(draw.choices([*words, "x"], k=draw.randint(0, 9))) for _ in range(draw.randint(0, 5))]
        found = MentionIndex.of(names).find(texts)
        assert found == [mentions_by_trying(names, text) for text in texts]
        some += sum(map(len, found))
    assert some > 300


@given(st.lists(st.text(max_size=6), max_size=6), st.lists(st.text(max_size=12), max_size=4))
def test_any_text_is_searched_as_by_trying_everything(names: list[str], texts: list[str]) -> None:
    assert MentionIndex.of(names).find(texts) == [mentions_by_trying(names, text) for text in texts]


def test_a_long_key_that_is_nearly_an_iri_takes_no_quadratic_time() -> None:
    assert entity_name("a:" + "/" * 2_000_000 + " x").startswith("a:/")


def test_places_are_in_the_normal_form() -> None:
    index = MentionIndex.of(["Ada_Foah", "Foah", "ADA FOAH"])
    text = "  He left\u00a0Ada-Foah's fort; Foah!"
    [[first, second]] = index.find([text])
    form = normal_form(text)
    assert (form[first.start : first.end], first.entities) == ("ada foah", (0, 2))
    assert (form[second.start : second.end], second.entities) == ("foah", (1,))


def test_mentions_that_only_overlap_are_both_found() -> None:
    [found] = MentionIndex.of(["New York", "York Minster", "York"]).find(["New York Minster"])
    assert [one.entities for one in found] == [(0,), (1,)]


def test_a_mention_does_not_reach_from_one_text_into_the_next() -> None:
    assert MentionIndex.of(["new york"]).find(["new", "york", "", "new york"]) == [[], [], [], [Mention(0, 8, (0,))]]


def test_names_without_words_between_scripts_without_spaces_are_found() -> None:
    [found] = MentionIndex.of(["東京", "京都"]).find(["東京都に住む"])
    assert [one.entities for one in found] == [(0,), (1,)]


@pytest.mark.parametrize("names", [[], [""], ["  "], ["word " * 17]])
def test_an_index_of_nothing_that_can_be_found_finds_nothing(names: list[str]) -> None:
    index = MentionIndex.of(names)
    assert index.find([]) == []
    assert index.find(["", "word " * 40]) == [[], []]


def test_names_of_sixteen_words_are_found_and_longer_ones_are_not() -> None:
    assert MentionIndex.of(["w " * 16]).find(["w " * 16]) == [[Mention(0, 31, (0,))]]
    assert MentionIndex.of(["w " * 17]).find(["w " * 17]) == [[]]


@pytest.mark.parametrize("text", ["\ud800", "a" * 100_000, "ada " * 30_000, "\0\x1b", "é" * 50])
def test_odd_and_huge_texts_are_no_trouble(text: str) -> None:
    index = MentionIndex.of(["Ada", text])
    start = time.perf_counter()
    found = index.find([text, "ada"])
    assert time.perf_counter() - start < 5
    assert Mention(0, 3, (0,)) in found[1]


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("ernest_augustus_i_of_hanover", "ernest augustus i of hanover"),
        ("http://dbpedia.org/resource/K%C3%B6ln", "Köln"),
        ("http://dbpedia.org/resource/Rock/", "Rock"),
        ("http://rdf.freebase.com/ns/m.02g__4", "m.02g 4"),
        ("urn:x:Ada_Foah", "Ada Foah"),
        ("see http://x/y", "see http://x/y"),
        ("12:30", "12:30"),
        ("___", "___"),
        ("http://x/%FF", "\ufffd"),
    ],
)
def test_keys_of_entities_are_worded(key: str, name: str) -> None:
    assert entity_name(key) == name


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("http://dbpedia.org/ontology/birthPlace", "birth place"),
        ("http://x/isPartOfURL", "is part of url"),
        ("location.country.languages_spoken", "languages spoken"),
        ("place_of_birth", "place of birth"),
        ("was born in", "was born in"),
        ("P31", "p31"),
        ("...", "..."),
    ],
)
def test_keys_of_relations_are_worded(key: str, name: str) -> None:
    assert relation_name(key) == name


@given(st.text(max_size=30))
def test_a_normal_form_is_its_own_and_no_key_has_an_empty_name(text: str) -> None:
    form = normal_form(text)
    assert normal_form(form) == form
    assert form == " ".join(tokens(text))
    if text:
        assert entity_name(text)
        assert relation_name(text)
    assert verbalise(text, "r", "t") == f"{text} r t."
