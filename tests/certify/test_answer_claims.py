"""What an answer says is stated as claims, and these are checked against texts."""

import pytest

from pytrace.certify.claims.answer_claims import answer_statement, check_answer, verdict
from pytrace.check_records import CheckedClaim
from pytrace.records import Answer, Chain, ChainSearch, Document, Evidence, Reasoning, Triple

FERRIES = Document(
    "1", "Brackwater Ferries", ("Brackwater Ferries was founded by Tobias Rook.", "It owns the Marigold Tern.")
)
QUESTION = "Who founded the company that owns the Marigold Tern?"


@pytest.mark.parametrize(
    ("question", "answer", "statement"),
    [
        (QUESTION, "Tobias Rook", "Tobias Rook founded the company that owns the Marigold Tern."),
        ("What is spoken on Corfu?", "Greek.", "Greek is spoken on Corfu."),
        ("Which town has a harbour?", "Quillhaven", "Quillhaven has a harbour."),
        ("Who was the founder of Brackwater?", "Tobias Rook", "Tobias Rook was the founder of Brackwater."),
        ("Who was Ada Lovelace?", "a writer", "Who was Ada Lovelace: a writer."),
        ("What film did Ada direct?", "Corfu", "What film did Ada direct: Corfu."),
        ("In which town was Ada born?", "London", "In which town was Ada born: London."),
        ("Is Corfu an island?", "Yes", "Is Corfu an island."),
        ("Is Corfu a town?", "no", ""),
        ("Who founded it?", "", ""),
        ("Who founded it?", "The documents do not say.", ""),
    ],
)
def test_a_question_and_its_answer_are_one_statement(question, answer, statement):
    assert answer_statement(question, answer) == statement


def _answer(text: str, evidence: Evidence) -> Answer:
    return Answer(QUESTION, text, "any", evidence)


def test_an_answer_without_thoughts_claims_what_it_answers():
    (right,) = check_answer(_answer("Tobias Rook", Evidence("documents", (), ())), [FERRIES])
    (wrong,) = check_answer(_answer("Ada Lovelace", Evidence("documents", (), ())), [FERRIES])
    assert (right.label, wrong.label == "supported") == ("supported", False)
    assert right.evidence[0].text in FERRIES.sentences
    assert check_answer(_answer("", Evidence("documents", (), ())), [FERRIES]) == []


def test_thoughts_and_triples_are_claims():
    thoughts = Reasoning(rationale=("Brackwater Ferries owns the Marigold Tern.", "It was founded by Ada Lovelace."))
    claims = check_answer(_answer("", Evidence("none", (), (), derivation=thoughts)), [FERRIES])
    assert [claim.text for claim in claims] == list(thoughts.rationale)
    assert [claim.label for claim in claims] == ["supported", "contradicted"]
    triples = (
        Triple("Brackwater Ferries", "owns", "Marigold Tern"),
        Triple("Brackwater Ferries", "owns", "Lady Addle"),
    )
    chains = ChainSearch((Chain(triples, (0.0, 0.0), 0.0, finished=False),))
    first, second = check_answer(_answer("", Evidence("triples", (), (), derivation=chains)), [FERRIES])
    assert (first.text, first.label) == ("Brackwater Ferries owns Marigold Tern.", "supported")
    assert second.label != "supported"


def test_the_worst_part_decides_about_a_claim():
    def part(label):
        return CheckedClaim("", label, 0, 0, (), (), 0, 0, "")

    assert verdict([part("supported"), part("not there"), part("contradicted")]) == "REFUTES"
    assert verdict([part("supported"), part("not there")]) == "NOT ENOUGH INFO"
    assert verdict([part("supported")]) == "SUPPORTS"
    assert verdict([]) == "NOT ENOUGH INFO"
