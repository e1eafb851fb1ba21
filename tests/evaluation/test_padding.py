"""Padding: what is added is no evidence, the same for the same seed, and told where there is not enough of it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrace.documents.mentions import holds_any
from pytrace.errors import InputError
from pytrace.evaluation.data.datasets import read_questions
from pytrace.evaluation.data.padding import pad_questions
from pytrace.reader.answers import normalise_answer
from pytrace.records import Document, Question


def document(name: str, *sentences: str) -> Document:
    return Document(f"id-{name}", name, sentences or (f"{name} is a town.",))


def question(id: str, answer: str, *documents: Document) -> Question:
    return Question(id, f"Where is {id}?", (answer,), documents, tuple(one.id for one in documents[:1]))


TOWNS = [question(f"q{number}", f"answer {number}", document(f"Town {number}")) for number in range(40)]


def test_questions_keep_their_own_documents_and_get_the_number_asked_for() -> None:
    for before, after in zip(TOWNS, pad_questions(TOWNS, 10, others=TOWNS), strict=True):
        assert len(after.documents) == len({one.id for one in after.documents}) == 10
        assert before.documents[0] in after.documents
        assert msgspec.structs.replace(after, documents=before.documents) == before


def test_the_right_documents_come_in_any_place() -> None:
    padded = pad_questions(TOWNS, 5, others=TOWNS)
    places = {after.documents.index(before.documents[0]) for before, after in zip(TOWNS, padded, strict=True)}
    assert places == set(range(5))


def test_what_a_question_gets_depends_on_the_seed_and_not_on_the_questions_beside_it() -> None:
    whole = pad_questions(TOWNS, 8, others=TOWNS, seed=3)
    assert pad_questions(TOWNS[7:9], 8, others=TOWNS, seed=3) == whole[7:9]
    assert pad_questions(TOWNS, 8, others=TOWNS, seed=4) != whole


def test_a_question_with_enough_documents_stays_as_it_is() -> None:
    rich = question("rich", "x", *(document(f"Own {number}") for number in range(4)))
    assert pad_questions([rich], 4, others=TOWNS) == [rich]
    assert pad_questions([rich], 2, others=TOWNS) == [rich]


def test_no_document_with_the_answer_or_a_title_of_the_question_is_added() -> None:
    others = [
        question("a", "x", document("Keta", "It is in the Volta Region.")),
        question("b", "x", document("ada  foah", "Another place of that name.")),
        question("c", "x", document("Accra", "It is the capital.")),
    ]
    asked = question("q", "Volta region", document("Ada Foah"))
    [padded] = pad_questions([asked], 4, others=[asked, *others])
    assert sorted(one.title for one in padded.documents) == ["Accra", "Ada Foah"]


def test_yes_and_no_may_stand_in_what_is_added() -> None:
    others = [question("a", "x", document("Keta", "No, it is not."))]
    [padded] = pad_questions([question("q", "no", document("Ada Foah"))], 2, others=others)
    assert len(padded.documents) == 2


@given(st.integers(1, 60), st.integers(0, 3))
def test_all_that_is_there_is_drawn_once(size: int, seed: int) -> None:
    [padded] = pad_questions(TOWNS[:1], size, others=TOWNS, seed=seed)
    assert len(padded.documents) == min(max(size, 1), len(TOWNS))
    assert len(set(padded.documents)) == len(padded.documents)


def test_a_number_below_one_is_refused() -> None:
    with pytest.raises(InputError, match="have 0 documents"):
        pad_questions(TOWNS, 0, others=TOWNS)


@pytest.mark.data
def test_hotpotqa_padded_to_ten_holds_no_answer_beside_its_own(shared_data: Path) -> None:
    questions = list(read_questions(shared_data / "multihop" / "advhotpot-dev.jsonl"))
    padded = pad_questions(questions, 10, others=questions)
    assert {len(one.documents) for one in padded} == {10}
    for before, after in zip(questions, padded, strict=True):
        added = [one for one in after.documents if one not in before.documents]
        answers = [answer for answer in before.answers if normalise_answer(answer) not in ("yes", "no")]
        assert len(added) == 10 - len(before.documents)
        assert not any(holds_any(f"{one.title}\n{' '.join(one.sentences)}", answers) for one in added)
