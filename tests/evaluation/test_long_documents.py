"""Questions with long documents: passages, with gold sentences and documents named by those that hold them."""

from __future__ import annotations

import pytest

from pytrace.errors import InputError
from pytrace.evaluation.data.long_documents import cut_question
from pytrace.records import Document, Question

LONG = Document(
    "long",
    "Ships",
    (
        "The Tern sails on Monday.",
        "The Gull, which is old, and was built in the north, rests.",
        "It rains.",
        "All is well.",
    ),
)
SHORT = Document("short", "Boats", ("Boats float.", "They are small."))


def question(**changes: object) -> Question:
    return Question("q", "When?", ("Monday",), (LONG, SHORT), **changes)  # type: ignore[arg-type]


def test_gold_sentences_are_those_of_the_passages() -> None:
    asked = question(supporting_documents=("long", "short"), supporting_facts=(("long", 1), ("long", 3), ("short", 1)))
    cut = cut_question(asked, 6)
    assert [(document.id, document.text) for document in cut.documents] == [
        ("long#1", "The Tern sails on Monday."),
        ("long#2", "The Gull, which is old,"),
        ("long#3", "and was built in the north,"),
        ("long#4", "rests. It rains. All is well."),
        ("short", "Boats float. They are small."),
    ]
    assert cut.supporting_facts == (("long#2", 0), ("long#3", 0), ("long#4", 0), ("long#4", 2), ("short", 1))
    assert cut.supporting_documents == ("long#2", "long#3", "long#4", "short")


def test_without_gold_sentences_the_passages_with_an_answer_support() -> None:
    asked = question(supporting_documents=("long",))
    assert cut_question(asked, 6).supporting_documents == ("long#1",)
    unanswered = Question("q", "When?", ("Sunday",), (LONG,), ("long", "not there"), (("not there", 0),))
    cut = cut_question(unanswered, 6)
    assert cut.supporting_documents == ("long#1", "long#2", "long#3", "long#4", "not there")
    assert cut.supporting_facts == (("not there", 0),)


def test_short_documents_stay_as_they_are() -> None:
    asked = question(supporting_documents=("long",), supporting_facts=(("long", 1),))
    assert cut_question(asked, 100) == asked
    with pytest.raises(InputError, match="the data grade documents as a whole"):
        cut_question(question(grades=(("long", 2),)), 6)
