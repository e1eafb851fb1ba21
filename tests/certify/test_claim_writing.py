"""A language model writes claims as single facts, and what it leaves out or adds is not believed."""

import pytest

from pytrace.certify.claims import ClaimChecker
from pytrace.certify.claims.claim_writing import ClaimWriter
from pytrace.models.scripted import ScriptedModel
from pytrace.records import Document
from pytrace.report.claims import claim_page
from pytrace.report.claims.claim_page import NamedResponse, _places

FERRIES = Document(
    "1", "Brackwater Ferries", ("Brackwater Ferries was founded in 1902 by Tobias Rook.", "It has nine ships.")
)
SENTENCE = "Brackwater Ferries was founded in 1902 by Tobias Rook, born in Holm."


def writer(text: str) -> ClaimWriter:
    return ClaimWriter(ScriptedModel(text))


def test_a_sentence_becomes_its_facts():
    facts = [
        "Brackwater Ferries was founded in 1902.",
        "Brackwater Ferries was founded by Tobias Rook.",
        "Tobias Rook was born in Holm.",
    ]
    written = " " + "\n- ".join(facts)
    assert writer(written).write([SENTENCE], [""]) == [facts]
    assert writer("1. " + "\n2. ".join(facts)).write([SENTENCE, SENTENCE], ["", ""]) == [facts, facts]
    assert writer(written).write([], []) == []


@pytest.mark.parametrize(
    "written",
    [
        "Brackwater Ferries was founded.\n- Tobias Rook was born in Holm.",  # the year is lost
        "Brackwater Ferries was founded in 1902 by Tobias Rook.\n- Tobias Rook was born rich in Holm.",  # a word is added
        "Brackwater Ferries was founded in 1902 by Tobias Rook.\n- It was not founded in Holm.",
        "Brackwater Ferries was founded in 1902 by Tobias Rook.\n- It was.",
        "\n- ".join(["Brackwater Ferries was founded in 1902 by Tobias Rook."] * 3),
        " ",
        "\n- ".join(f"Tobias Rook founded Brackwater Ferries in 1902 {'in ' * n}Holm." for n in range(20)),
    ],
)
def test_what_is_more_or_less_than_the_sentence_is_not_taken(written):
    assert writer(written).write([SENTENCE], [""]) == [[]]


def test_a_denial_stays_one():
    written = "Tobias Rook was a baker.\n- Tobias Rook was born in Holm."
    assert writer(written).write(["Tobias Rook was a baker, not born in Holm."], [""]) == [[]]


def test_facts_are_checked_in_the_place_of_their_sentence():
    response = f"**{SENTENCE}** It has nine ships."
    model = ScriptedModel(
        lambda prompt: (
            " Brackwater Ferries was founded in 1902 by Tobias Rook.\n- Tobias Rook was born in Holm."
            if "Holm" in prompt.rpartition("Sentence:")[2]
            else " It has."
        )
    )
    checked = ClaimChecker(writer=ClaimWriter(model)).check(response, [FERRIES])
    assert [(claim.text, claim.label, claim.written) for claim in checked.claims] == [
        ("Brackwater Ferries was founded in 1902 by Tobias Rook.", "supported", True),
        ("Tobias Rook was born in Holm.", checked.claims[1].label, True),
        ("It has nine ships.", "supported", False),
    ]
    assert checked.claims[1].label != "supported"
    first, second, third = checked.claims
    assert (first.start, first.end) == (second.start, second.end)
    assert "founded in 1902 by Tobias Rook, born in Holm" in response[first.start : first.end]
    assert response[third.start : third.end] == "It has nine ships."
    # On the page the sentence has the colour of the fact that is worst.
    assert _places(checked.claims) == [(0, 0), (second.start, second.end), (third.start, third.end)]
    assert claim_page([NamedResponse("1", checked)]).count("(as a model wrote it)") == 2
