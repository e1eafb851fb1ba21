"""What type an answer has, and that a wrong answer could stand where the right one stood."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrace.models.scripted import ScriptedModel
from pytrace.perturb.answer_types import Swap, classify, same_type, swap_all, variants
from pytrace.reader.answers import normalise_answer


def swap(text: str, rng: random.Random, **options: Any) -> Swap | None:
    return swap_all([text], [rng], **options)[0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("yes", "yes-no"), ("No.", "yes-no"),
        ("1784", "year"), ("1980s", "year"), ("c. 1500", "year"), ("since 2007", "year"),
        ("September 29, 1784", "date"), ("29 September 1784", "date"), ("1784-09-29", "date"), ("September 1784", "date"),
        ("29th of May 1901", "date"), ("Sept 3", "date"), ("05/06/1990", "date"),
        ("39,134", "number"), ("-3.5", "number"), ("2nd", "number"), ("45 %", "number"), ("$1.5 million", "number"),
        ("35 miles", "number"), ("twenty-three", "number"), ("the third", "number"), ("517 km", "number"),
        ("1984–1990", "number"), ("11th century", "number"),
        ("Warsaw", "place"), ("Kaunas, Lithuania", "place"), ("Lake Titicaca", "place"), ("the Greater Accra Region", "place"),
        ("Trinidad and Tobago", "place"),
        ("Ukrainian", "nationality"),
        ("Laura Ellen Kirk", "person"), ("J. R. R. Tolkien", "person"), ("Sir Isaac Newton", "person"),
        ("Walker Oakes Jr.", "person"),
        ("Columbia Records", "name"), ("The Phantom Hour", "name"), ("SMLE", "name"), ("12 Angry Men", "name"),
        ("20th Century Fox", "name"),
        ("alcohol", "phrase"), ("pale lager", "phrase"), ("one of the judges", "phrase"), ("", "phrase"),
        ("Ouse and Foss", "list"), ("red, green and blue", "list"), ("Punjabi/Pashtun", "list"),
    ],
)  # fmt: skip
def test_rules_tell_the_type(text: str, expected: str) -> None:
    assert classify(text) == expected


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("September 29, 1784", "May 2, 1901", True),
        ("September 29, 1784", "29 September 1784", False),
        ("September 29, 1784", "Sept 29, 1784", False),
        ("May 2nd, 1901", "May 2, 1901", False),
        ("2 May 1901", "May 1901", False),
        ("39,134", "20,871", True),
        ("39,134", "39134", False),
        ("39,134", "9,134", False),
        ("3.14", "2.7", False),
        ("35 miles", "48 miles", True),
        ("35 miles", "48 km", False),
        ("2nd", "3rd", True),
        ("2nd", "3", False),
        ("$45", "€45", False),
        ("1784", "1931", True),
        ("1780s", "1931", False),
        ("yes", "no", True),
        ("yes", "No", False),
        ("Ghana", "Peru", True),
        ("the Greater Accra Region", "the Upper Volta Region", True),
        ("the Greater Accra Region", "the Upper Volta District", False),
        ("Laura Kirk", "Laura Ellen Kirk", True),
        ("Laura Kirk", "Sir Laura Kirk", False),
        ("Kirk", "A Very Long Name Of Something", False),
        ("Ouse and Foss", "Ouse, Foss", False),
        ("Ouse and Foss", "Nith and Annan", True),
        ("an organ", "a flute", True),
        ("an organ", "the flute", False),
    ],
)
def test_form_is_part_of_the_check(first: str, second: str, same: bool) -> None:
    assert same_type(first, second) is same
    assert same_type(second, first) is same


VALUES = [
    "yes", "No", "1784", "1980s", "c. 1500", "September 29, 1784", "29th of May 1901", "1784-09-29", "September 1784",
    "May 5", "9 Feb 2001", "05/06/1990", "39,134", "1,000,000", "-3.5", "0.07", "007", "2nd", "11th", "21st", "45 %",
    "$1.5 million", "35 miles", "twenty-three", "two hundred", "the third", "1984–1990", "10 to 20 people", "12th century",
    "February 29, 2000", "December 31, 2024",
]  # fmt: skip


@pytest.mark.parametrize("text", VALUES)
def test_a_value_is_computed_in_the_same_format(text: str) -> None:
    for seed in range(40):
        found = swap(text, random.Random(seed))
        assert found is not None
        assert (found.by, found.type) == ("rule", classify(text))
        assert same_type(text, found.text), found.text
        right, wrong = normalise_answer(text), normalise_answer(found.text)
        assert right not in wrong
        assert wrong not in right
        assert re.sub(r"[0-9]", "#", text) == re.sub(r"[0-9]", "#", found.text) or re.search("[A-Za-z]", text)


def test_an_ordinal_gets_its_own_ending_and_a_range_stays_one() -> None:
    endings = set()
    for seed in range(60):
        found = swap("21st", random.Random(seed))
        assert found is not None
        number, ending = int(found.text[:2]), found.text[2:]
        tens, ones = divmod(number, 10)
        expected = "th" if tens == 1 or not 1 <= ones <= 3 else ["st", "2nd"[1:], "rd"][ones - 1]
        assert ending == expected
        endings.add(ending)
        years = swap("1984–1990", random.Random(seed))
        assert years is not None
        first, last = map(int, years.text.split("–"))
        assert 1000 <= first <= last <= 2025
    assert len(endings) > 1


NAMES = [
    "Warsaw", "Kaunas, Lithuania", "Ghana", "Ohio", "the Netherlands", "Lake Titicaca", "the Greater Accra Region",
    "Province of Canterbury", "Laura Ellen Kirk", "J. R. R. Tolkien", "Sir Isaac Newton", "Walker Oakes Jr.", "Ukrainian",
    "Columbia Records", "University of Ghana", "The Phantom Hour", "SMLE", "Ouse and Foss", "in the village of Aldenham",
]  # fmt: skip


@pytest.mark.parametrize("text", NAMES)
def test_names_need_no_pool_and_no_model(text: str) -> None:
    for seed in range(20):
        found = swap(text, random.Random(seed))
        assert found is not None
        assert found.by == "names"
        assert same_type(text, found.text), found.text
        assert normalise_answer(text) != normalise_answer(found.text)


def test_a_kind_of_place_or_organisation_stays() -> None:
    for text, kept in (
        ("Lake Titicaca", "Lake "),
        ("Columbia Records", " Records"),
        ("University of Ghana", "University of "),
    ):
        found = swap(text, random.Random(3))
        assert found is not None
        assert kept in found.text


def test_the_pool_comes_before_our_names_and_the_likest_first() -> None:
    pool = ["Ghana", "Lima", "Peru", "Ada Foah Fort", "2001", "the Peru"]
    assert {swap("Ghana", random.Random(seed), pool=pool).text for seed in range(20)} == {"Peru"}  # type: ignore[union-attr]
    assert {swap("Warsaw", random.Random(seed), pool=pool).text for seed in range(20)} == {"Lima"}  # type: ignore[union-attr]
    # What contains the right answer, or is contained in it, would be half right.
    for right, others in (("New York", ["New York City"]), ("Silver Lantern", ["Lantern", "Old Silver Lantern"])):
        held = swap(right, random.Random(0), pool=others)
        assert held is not None
        assert held.by == "names"


def test_a_phrase_comes_from_the_model_if_its_proposal_fits() -> None:
    model = ScriptedModel(["Dark ale.\nPhrase: more", "dark ale"])
    found = swap("pale lager", random.Random(0), pool=["loud music"], model=model)
    assert found is not None
    assert (found.text, found.type, found.by) == ("dark ale", "phrase", "model")
    assert model.prompts[0].endswith("Phrase: pale lager\nAnother:")


@pytest.mark.parametrize(
    "written", ["pale lager", "a very pale lager of some sort", "1784", "", "pale lager beer", "\ud800"]
)
def test_a_proposal_that_does_not_fit_is_refused_after_a_bounded_number_of_tries(written: str) -> None:
    model = ScriptedModel([written])
    found = swap("pale lager", random.Random(0), pool=["loud music", "1784"], model=model)
    assert found is not None
    assert (found.text, found.by) == ("loud music", "pool")
    assert len(model.prompts) == 2 * 4
    assert swap("pale lager", random.Random(0), model=model) is None


def test_all_phrases_are_asked_in_one_call_and_each_once() -> None:
    model = ScriptedModel(lambda prompt: "dark ale" if "pale lager\nAnother:" in prompt[-40:] else "loud song")
    rngs = [random.Random(0) for _ in range(4)]
    found = swap_all(["pale lager", "soft music", "1784", "pale lager"], rngs, model=model)
    assert [one.text if one else "" for one in found][:2] == ["dark ale", "loud song"]
    assert found[3] == found[0]
    assert len(model.prompts) == 2 * 4


def test_the_same_seed_gives_the_same_swap_and_another_seed_another() -> None:
    texts = {swap("39,134", random.Random(seed)).text for seed in range(10)}  # type: ignore[union-attr]
    assert len(texts) > 5
    assert swap("39,134", random.Random(5)) == swap("39,134", random.Random(5))


def test_a_right_answer_is_known_in_its_other_formats() -> None:
    assert variants("May 2, 1901", "July 7, 1911") == [
        ("May 2, 1901", "July 7, 1911"), ("2 May 1901", "7 July 1911"), ("1901-05-02", "1911-07-07"),
    ]  # fmt: skip
    assert variants("39,134", "20,871") == [("39,134", "20,871"), ("39134", "20871")]
    assert variants("1784", "1931") == [("1784", "1931")]
    assert variants("Ada Foah", "Lima") == [("Ada Foah", "Lima")]


@given(st.text(max_size=60))
def test_no_text_breaks_the_rules(text: str) -> None:
    assert same_type(text, text)
    found = swap(text, random.Random(0), pool=[text, "Accra", "some phrase", "1784"])
    if found is not None:
        assert same_type(text, found.text)
        assert normalise_answer(text) not in normalise_answer(found.text)


def test_a_huge_text_is_a_phrase_at_once() -> None:
    huge = "1784, " * 200_000
    assert classify(huge) == "phrase"
    assert swap(huge, random.Random(0)) is None
    assert swap("\ud800 \udfff", random.Random(0)) is None


@pytest.mark.models
def test_the_tiny_model_writes_another_phrase_or_none(tiny_models: dict[str, object]) -> None:
    from pytrace.models.llama.llama_cpp import LlamaCppModel

    tiny = LlamaCppModel(tiny_models["language-model"], name="tiny", context=1024)  # type: ignore[arg-type]
    for text in ("pale lager", "alcohol"):
        found = swap(text, random.Random(0), model=tiny)
        if found is not None:
            assert found.by == "model"
            assert same_type(text, found.text)
            assert found.text.casefold() != text
