"""Methods that think judge claims: thoughts end in labels, vote on them, and are verified where they disagree."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pytrace.errors import InputError
from pytrace.methods.base import ClaimMethod
from pytrace.methods.cot.claim_thoughts import ClaimThinker
from pytrace.methods.cot.rationales import Thought
from pytrace.methods.cot.thinking import ChainOfThought, SelfConsistency, ThoughtSettings
from pytrace.methods.cot.verify_and_edit import VerifyAndEdit
from pytrace.models.scripted import HashEncoder, ScriptedModel
from pytrace.reader.prompts.reasoning import ClaimDemonstration
from pytrace.records import Document

CLAIM = "Isaura Venn kept bees in Accra."
DOCUMENT = Document("1", "Venn", ("Isaura Venn kept bees in Quillhaven.", "The sea is near."))
SHOWN = [ClaimDemonstration("Ink is blue.", ("Some ink is red.",), "REFUTES")]


def thinking(*thoughts: str, then: str = "", verified: str = "") -> ScriptedModel:
    """Think this, thought by thought; then say something where a rationale is concluded, and where one is verified."""
    row: Iterator[str] = iter(thoughts)

    def say(prompt: str) -> str:
        if prompt.endswith("Thoughts:"):
            return next(row)
        if prompt.endswith("So the answer is"):
            return then
        return "Where did Isaura Venn keep bees?" if prompt.endswith("Verifying question:") else verified

    return ScriptedModel(say)


def test_a_thought_about_a_claim_follows_claims_with_facts_and_ends_in_a_label() -> None:
    model = ScriptedModel(["Bees live there. So the answer is not true."])
    thinker = ClaimThinker(model, labelled=SHOWN)
    assert thinker.think([CLAIM], [[]]) == [[Thought(("Bees live there.",), "REFUTES")]]
    assert model.prompts[0].split("\n\n")[1:] == [
        "Question: Is this claim true, false or unknown? Ink is blue.\nThoughts: Some ink is red. So the answer is false.",
        f"Question: Is this claim true, false or unknown? {CLAIM}\nThoughts:",
    ]
    thinker.think([CLAIM], [["[Venn] She kept bees."]])
    assert "Context:\nSome ink is red.\n" in model.prompts[1]
    model = ScriptedModel([" unknown.", "Accra"])
    assert ClaimThinker(model).conclude([CLAIM] * 2, [[]] * 2, [["A."]] * 2) == ["NOT ENOUGH INFO", ""]


def test_one_thought_or_the_vote_of_several_is_the_label() -> None:
    method: ClaimMethod = ChainOfThought(thinking("She did. So the answer is true."), None)
    [answer] = method.judge([CLAIM], [[]])
    assert (answer.question, answer.text, answer.method) == (CLAIM, "SUPPORTS", "cot")
    assert answer.evidence.reasoning.rationale == ("She did.",)
    said = ["So the answer is false.", "So the answer is true.", "So the answer is wrong."]
    sampled = SelfConsistency(thinking(*said), None, ThoughtSettings(samples=3))
    [answer] = sampled.judge([CLAIM], [[]])
    assert (answer.text, answer.notes) == ("REFUTES", ("2 of 3 samples agreed",))


def test_where_no_thought_gives_a_label_there_is_not_enough_information() -> None:
    [answer] = ChainOfThought(thinking("She lived in Accra."), None).judge([CLAIM], [[]])
    assert (answer.text, answer.notes) == ("NOT ENOUGH INFO", ("no thought ended in true, false or unknown",))


def test_a_claim_that_thoughts_disagree_about_is_verified_in_the_documents() -> None:
    said = ["She kept bees there. So the answer is true.", "So the answer is unknown.", "So the answer is false."]
    model = thinking(*said, then=" false.", verified="Isaura Venn kept bees in Quillhaven.")
    method = VerifyAndEdit(model, HashEncoder(), ThoughtSettings(samples=3, sentences=1))
    [answer] = method.judge([CLAIM], [[DOCUMENT]])
    assert answer.text == "REFUTES"
    assert answer.evidence.reasoning.rationale == ("Isaura Venn kept bees in Quillhaven.",)
    assert answer.notes == ("1 of 3 samples agreed", "1 of 1 sentences of the rationale were edited")
    # Questions are answered as before.
    model = thinking(*["So the answer is Accra."] * 3)
    assert VerifyAndEdit(model, HashEncoder(), ThoughtSettings(samples=3)).answer(["Where?"], [[]])[0].text == "Accra"


def test_an_empty_claim_is_refused() -> None:
    with pytest.raises(InputError, match="1 of 1 is empty"):
        ChainOfThought(ScriptedModel(), None).judge([" "], [[]])
