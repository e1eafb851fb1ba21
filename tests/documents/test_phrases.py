"""Content phrases, and the triples that are made of them without a model."""

from __future__ import annotations

import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pytrace.documents import content_phrases, sentence_subject
from pytrace.records import Document
from pytrace.triples.extraction import NO_RELATION, PhraseExtractor


def texts(sentence: str) -> list[str]:
    return [phrase.text for phrase in content_phrases(sentence)]


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("She was born in Oslo on 3 May 1901.", ["Oslo", "3 May 1901"]),
        ("It is a Danish trading fort.", ["Danish", "trading fort"]),
        ("He wrote for Alpha, Beta and Gamma Press.", ["Alpha, Beta and Gamma Press"]),
        ('The album "Into the Blue" was released by Polydor.', ["Into the Blue", "Polydor"]),
        ("The Ford Motor Company (FMC) hired 3,500 people.", ["Ford Motor Company (FMC)", "3,500 people"]),
        ("He lives there with his dog.", []),
        ("", []),
        ('The album " Blue " was released by Polydor.', ["Blue", "Polydor"]),
        ("It was founded by J. R. Smith Jr.", ["J. R. Smith Jr."]),
        ("It serves the University of Oslo in Norway.", ["University of Oslo in Norway"]),
    ],
)
def test_phrases_are_what_stands_between_function_words(sentence: str, expected: list[str]) -> None:
    assert texts(sentence) == expected


@given(st.text(alphabet=st.sampled_from('aA bB1,;:."“”()[]of in is '), max_size=200) | st.text(max_size=200))
@example('" 11"')
def test_every_phrase_is_a_span_and_they_stand_in_their_order(sentence: str) -> None:
    found = content_phrases(sentence)
    assert all(phrase.text and phrase.text in sentence and phrase.before in sentence for phrase in found)
    assert all(phrase.text == phrase.text.strip() for phrase in found)


@pytest.mark.parametrize("unit", ['"', "(", "([", "A, ", "A of ", '"a', "1.", "A (", "and ", "In the a ", "goes "])
def test_any_text_takes_linear_time(unit: str) -> None:
    started = time.process_time()
    content_phrases(unit * 20_000)
    sentence_subject(unit * 20_000)
    assert time.process_time() - started < 5


@pytest.mark.parametrize(
    ("sentence", "subject"),
    [
        ("Ada Foah lies on the Volta.", "Ada Foah"),
        ("The Combination at The Albany Empire is a live album.", "Combination at The Albany Empire"),
        ("Revenue rose by 4% in 2023.", "Revenue"),
        ("The company operates in 20 countries.", "company"),
        ("The sales figures in Europe were weak.", "sales figures"),
        ("The currency risk of the group arises mainly from exports.", "currency risk of the group"),
        ("Jana Kluge and Tom Weber met in Oslo.", "Jana Kluge and Tom Weber"),
        ('"Beloved" is a novel.', "Beloved"),
        ("Oslo, the capital of Norway, is large.", "Oslo"),
        ("Norden AG (NAG) covers 1,800 firms.", "Norden AG (NAG)"),
        ("However, the board approves the plan.", "board"),
        ("In 2023, revenue fell.", "revenue"),
        ("In 2023 the group sold 3 ships, and more in 2024.", "group"),
        ("During the meeting, Ms Kluge said that Berlin would close.", "Ms Kluge"),
        ("Born in Oslo, Ibsen moved to Rome.", "Ibsen"),
        ("According to Reuters, the police used gas.", "police"),
        ("Finally, the city grew.", "city"),
        ("Reading is a town.", "Reading"),
        ("It was founded in 1901.", None),
        ("Its mayor sits on the Capitol.", None),
        ("There are three factories in Poland.", None),
        ("Press the red button.", None),
        ("Owner: Jana Kluge", None),
        ("Spain.", None),
        ("...", None),
        ("", None),
    ],
)
def test_the_subject_is_the_phrase_before_the_main_verb(sentence: str, subject: str | None) -> None:
    found = sentence_subject(sentence)
    assert (None if found is None else sentence[slice(*found)]) == subject


@given(st.text(alphabet=st.sampled_from('aA bB1,;:."“”()[]of in is the s '), max_size=200) | st.text(max_size=200))
@example("_;0")
def test_a_subject_is_a_span_of_its_sentence_with_a_word_and_more_behind_it(sentence: str) -> None:
    found = sentence_subject(sentence)
    if found is not None:
        start, end = found
        assert 0 <= start < end < len(sentence)
        assert sentence[start:end] == sentence[start:end].strip()
        assert any(character.isalnum() for character in sentence[start:end])


def test_triples_have_the_title_as_head_and_point_to_their_sentence() -> None:
    document = Document(
        "d",
        "Ada Foah",
        ("Ada Foah or Ada is a coastal town in Ghana.", "The town lies on the Volta.", "In Ghana it rains."),
    )
    (extraction,) = PhraseExtractor().extract([document])
    assert [(one.head, one.relation, one.tail, one.sentence) for one in extraction.units] == [
        ("Ada Foah", "is a", "coastal town", 0),
        ("Ada Foah", "in", "Ghana", 0),
        ("Ada Foah", "The town lies on the", "Volta", 1),
    ]
    assert extraction.statistics.failure == ""
    assert all(one.support == 100 and one.document_id == "d" for one in extraction.units)


def test_a_phrase_that_no_word_stands_before_has_a_relation_of_its_own() -> None:
    (extraction,) = PhraseExtractor().extract([Document("d", "Fort", ("Early settler John Ray arrived.",))])
    assert [one.relation for one in extraction.units] == [NO_RELATION]


def test_sentences_stand_in_where_there_is_no_phrase() -> None:
    few, empty = PhraseExtractor().extract([Document("d", "T", ("he went there with them.",)), Document("e", "T", ())])
    assert [one.text for one in few.units] == ["[T] he went there with them."]
    assert "sentences stand in" in few.statistics.failure
    assert empty.units == ()
    assert empty.statistics.failure == ""


def test_documents_are_handed_over_one_by_one() -> None:
    seen = []
    PhraseExtractor().extract_each(
        iter([Document("1", "A", ("B is C.",)), Document("2", "A", ("D is E.",))]), seen.append
    )
    assert [extraction.document.id for extraction in seen] == ["1", "2"]


@pytest.mark.parametrize("part", ["“", "[", '"a', "&amp;", '\\"', "[^1]", "http://a"])
def test_what_nothing_closes_takes_time_in_proportion(part: str) -> None:
    # Beyond some thousand characters the time was that of the square: minutes, where this is a second.
    text = part * 10_000
    content_phrases(text)
    sentence_subject(text)
