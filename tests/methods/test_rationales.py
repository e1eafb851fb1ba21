"""What models are shown before they think, what is read of their thoughts, how thoughts vote, and how they are verified."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrace.errors import ContextOverflowError
from pytrace.methods.cot.rationales import (
    ASK_INSTRUCTION,
    INSTRUCTION,
    VERIFY_INSTRUCTION,
    WITH_CONTEXT,
    Thinker,
    Thought,
    Verifier,
    majority,
    parse_thought,
)
from pytrace.models.language_model import Completion, Prompt
from pytrace.models.scripted import ScriptedModel
from pytrace.reader.prompts.reasoning import (
    RationaleDemonstration,
    VerificationDemonstration,
)

LABELLED = (
    RationaleDemonstration(("[a] A is b.",), "What is a?", ("A is b.",), "b"),
    RationaleDemonstration(("[c] C is d.", "[d] D is e."), "What is c?", ("C is d.", "D is e."), "e"),
)
VERIFIED = (
    VerificationDemonstration("What is a?", "A is b.", "What is a really?", ("[a] A is c.",), "A is c."),
    VerificationDemonstration("What is d?", "D is e.", "Is d e?", ("[d] D is e.",), "D is e."),
)


class Recorder(ScriptedModel):
    """Keeps the options of every call."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.calls: list[dict[str, Any]] = []

    def generate(self, prompts: Sequence[Prompt | str], **options: Any) -> list[list[Completion]]:
        self.calls.append({"prompts": list(prompts), **options})
        return super().generate(prompts, **options)


def test_demonstrations_think_before_they_answer_and_the_context_comes_first() -> None:
    model = ScriptedModel(["Accra is there. So the answer is Ghana."])
    (row,) = Thinker(model, labelled=LABELLED).think(["What is x?"], [["[x] X is y."]])
    assert row == [Thought(("Accra is there.",), "Ghana")]
    assert model.prompts[0].split("\n\n") == [
        WITH_CONTEXT,
        "Context:\n[a] A is b.\nQuestion: What is a?\nThoughts: A is b. So the answer is b.",
        "Context:\n[c] C is d.\n[d] D is e.\nQuestion: What is c?\nThoughts: C is d. D is e. So the answer is e.",
        "Context:\n[x] X is y.\nQuestion: What is x?\nThoughts:",
    ]


def test_questions_without_a_context_see_demonstrations_without_theirs() -> None:
    model = ScriptedModel(["Y. So the answer is y."])
    Thinker(model, labelled=LABELLED).think(["What is x?", "What is z?"], [[], ["[z] Z."]])
    assert model.prompts[0].split("\n\n") == [
        INSTRUCTION,
        "Question: What is a?\nThoughts: A is b. So the answer is b.",
        "Question: What is c?\nThoughts: C is d. D is e. So the answer is e.",
        "Question: What is x?\nThoughts:",
    ]
    assert "context" not in model.prompts[0].lower()
    assert model.prompts[1].count("Context:") == 3


@pytest.mark.parametrize("count", [0, 1, 3, 99])
def test_the_last_demonstrations_of_the_file_are_shown(count: int) -> None:
    model = ScriptedModel(["x"])
    Thinker(model, demonstrations=count).think(["Where?"], [[]])
    shown = RationaleDemonstration.load()
    assert [one.question in model.prompts[0] for one in shown] == [
        number >= len(shown) - count for number in range(len(shown))
    ]
    for make in (Thinker, Verifier):
        with pytest.raises(ValueError, match="demonstrations must be 0 or more, not -1"):
            make(model, demonstrations=-1)


def test_samples_of_all_questions_come_from_one_call_with_its_seed() -> None:
    model = Recorder(["It is. So the answer is Accra.", "So the answer is Ghana."])
    rows = Thinker(model, max_tokens=77).think(["x?", "y?"], [[], []], n=2, temperature=0.7, seed=5)
    assert rows == [[Thought(("It is.",), "Accra"), Thought((), "Ghana")]] * 2
    (call,) = model.calls
    assert (call["n"], call["temperature"], call["seed"], call["max_tokens"]) == (2, 0.7, 5, 77)
    assert Thinker(model).think([], []) == []
    assert len(model.calls) == 1
    Thinker(model).think(["x?"], [[]])
    assert (model.calls[1]["n"], model.calls[1]["temperature"]) == (1, 0.0)
    with pytest.raises(ValueError, match="n must be at least 1, not 0"):
        Thinker(model).think(["x?"], [[]], n=0)


def test_a_thought_ends_where_the_next_demonstration_would_begin() -> None:
    written = "It is there.\nSo the answer is Ghana.\n\nQuestion: And?\nThoughts: Therefore no."
    for count in (0, 2):
        model = Recorder([written])
        ((thought,),) = Thinker(model, demonstrations=count).think(["x?"], [[]])
        assert thought == Thought(("It is there.",), "Ghana")
        assert model.usage.generated_tokens == 8
        assert ("\n\n" in model.calls[0]["stop"]) == (count > 0)


def test_a_context_is_cut_to_what_fits_and_that_is_told() -> None:
    model = ScriptedModel(["So the answer is x."], context_tokens=330)
    context = [" ".join([f"[{number}]", *["word"] * 39]) for number in range(4)]
    thinker = Thinker(model, demonstrations=0, max_tokens=100)
    (fitted,) = thinker.fit(["Where?"], [context])
    assert (len(fitted.entries), fitted.left_out) == (2, 2)
    thinker.think(["Where?"], [context])
    assert [f"[{number}]" in model.prompts[0] for number in range(4)] == [True, True, False, False]
    assert model.count_tokens(model.prompts[0]) + 100 <= 330
    with pytest.raises(ContextOverflowError, match="use a model with a longer context"):
        thinker.think(["Where?"], [["word " * 400]])


@pytest.mark.parametrize(
    ("written", "sentences", "answer"),
    [
        ("Accra is there. So the answer is Ghana.", ("Accra is there.",), "Ghana"),
        ("Accra is there. Therefore, the final answer is: Ghana", ("Accra is there.",), "Ghana"),
        ("Accra is there, so the answer is Ghana.", ("Accra is there",), "Ghana"),
        ("Accra is there.\nSo the answer is\nGhana", ("Accra is there.",), "Ghana"),
        ("Accra is there. So the answer is (Ghana).", ("Accra is there.",), "Ghana"),
        ("Accra is there. So the answer is **Ghana**.", ("Accra is there.",), "Ghana"),
        ('Accra is there. So the answer is "Ghana".', ("Accra is there.",), "Ghana"),
        ("Accra is there. So the answer is Ghana. So the answer is Togo.", ("Accra is there.",), "Ghana"),
        ("Accra is there. So the answer is Ghana. That was easy.", ("Accra is there.",), "Ghana"),
        ("The answer is in the text. It says so. The answer is Ghana.", ("The answer is in the text.", "It says so."), "Ghana"),
        ("Accra is there.\nAnswer: Ghana", ("Accra is there.",), "Ghana"),
        ("It lies near Washington, D.C. So the answer is Washington, D.C.", ("It lies near Washington, D.C.",), "Washington, D.C."),
        ("So the answer is Ghana.", (), "Ghana"),
        ("Accra is there. It is large.", ("Accra is there.", "It is large."), "It is large"),
        ("Ghana", ("Ghana",), "Ghana"),
        ("Accra is there. So the answer is", ("Accra is there.",), ""),
        ("", (), ""),
        (" \n\t", (), ""),
        ("The answers are many.", ("The answers are many.",), "The answers are many"),
        ("<think>Togo? So the answer is Togo.</think>\nAccra is there. So the answer is Ghana.", ("Accra is there.",), "Ghana"),
        ("So Togo?</think>Accra is there.\n\n**Answer:** Ghana", ("Accra is there.",), "Ghana"),
        ("<think>Accra is there. So the answer is Ghana", (), ""),
        ("- **Accra** is there [1].\n- It is large.\n\nFinal answer - Ghana", ("Accra is there.", "It is large."), "Ghana"),
        ("Accra is there. $\\boxed{\\text{Ghana}}$", ("Accra is there.",), "Ghana"),
        ('```json\n{"reasoning": "Accra is there.", "answer": "Ghana"}\n```', ("Accra is there.",), "Ghana"),
    ],
)  # fmt: skip
def test_thoughts_are_read_however_they_are_written(written: str, sentences: tuple[str, ...], answer: str) -> None:
    assert parse_thought(written) == Thought(sentences, answer)


PIECES = [
    "So the answer is",
    "the answer is:",
    "(",
    ")",
    "**",
    '"',
    ".",
    "\n",
    " ",
    "a",
    "\ud800",
    "\x00",
    "Ghana",
    "answer:",
]


@given(st.lists(st.sampled_from(PIECES), max_size=20).map(" ".join) | st.text(max_size=60))
def test_no_output_breaks_the_reading_of_thoughts(text: str) -> None:
    thought = parse_thought(text)
    "\n".join([*thought.sentences, thought.answer]).encode()  # no lone surrogate comes out
    assert all(sentence.strip() for sentence in thought.sentences)
    assert thought.answer == thought.answer.strip()


def test_a_huge_output_is_read_in_linear_time() -> None:
    assert parse_thought("so the answer " * 100_000 + "is b").answer
    assert parse_thought("(" * 100_000).answer == "(" * 100_000
    assert parse_thought("So the answer is " + "(" * 1_000 + "b" + ")" * 1_000).answer == "b"


def thoughts(*answers: str) -> list[Thought]:
    return [Thought((f"{number}.",), answer) for number, answer in enumerate(answers)]


def test_a_model_that_thinks_aloud_is_not_ended_by_the_blank_lines_of_its_thinking() -> None:
    thinking = "<think>\nIs it Togo?\n\nSo the answer is Togo.\n</think>\n\nAccra is there. So the answer is Ghana."
    model = Recorder([thinking])
    ((thought,),) = Thinker(model, labelled=LABELLED).think(["x?"], [[]])
    assert thought == Thought(("Accra is there.",), "Ghana")
    assert ["\n\n" in call["stop"] for call in model.calls] == [True, False]


def test_thinking_gives_no_vote_no_question_and_no_conclusion() -> None:
    rows = Thinker(ScriptedModel(["<think>Togo.</think>Ghana", "So Togo?</think> Ghana", "<think>Togo"])).think(
        ["x?"], [[]], n=3
    )
    vote = majority(rows[0])
    assert (vote.answer, vote.count, vote.of) == ("Ghana", 2, 3)
    assert Thinker(ScriptedModel(["<think>Togo?</think> Ghana."])).conclude(["x?"], [[]], [()]) == ["Ghana"]
    assert Thinker(ScriptedModel(["<think>Hm.</think>A is b."])).continue_thoughts(["x?"], [[]], [()]) == [
        Thought(("A is b.",), "")
    ]
    verifier = Verifier(ScriptedModel(["<think>Hm.</think>What is a?"]))
    assert verifier.ask(["x?"], ["A is b."]) == ["What is a?"]


@pytest.mark.parametrize(
    ("answers", "answer", "count", "first"),
    [
        (["Accra", "The Ghana", "ghana."], "The Ghana", 2, 1),
        (["b", "a", "a", "b"], "b", 2, 0),
        (["", "", "", "a"], "a", 1, 3),
        (["", ""], "", 0, 0),
        (["?", "!", "!"], "!", 2, 1),
        (["The", "the"], "The", 1, 0),
        (["a"], "a", 1, 0),
        ([], "", 0, -1),
    ],
)
def test_thoughts_vote_on_what_they_mean_and_the_first_wins_a_tie(
    answers: list[str], answer: str, count: int, first: int
) -> None:
    vote = majority(thoughts(*answers))
    assert (vote.answer, vote.count, vote.of, vote.first) == (answer, count, len(answers), first)
    assert vote.agreement == (count / len(answers) if answers else 0.0)


def test_an_answer_is_concluded_from_a_rationale_that_is_given() -> None:
    model = Recorder(["Ghana. It is", ""])
    thinker = Thinker(model, demonstrations=1, labelled=LABELLED)
    answers = thinker.conclude(["Where?", "Who?"], [[], ["[x] Y."]], [("A is b.", "B is c."), ()])
    assert answers == ["Ghana", ""]
    assert len(model.calls) == 1
    assert model.prompts[0].endswith("\n\nQuestion: Where?\nThoughts: A is b. B is c. So the answer is")
    assert model.prompts[1].endswith("\n\nContext:\n[x] Y.\nQuestion: Who?\nThoughts: So the answer is")
    # The beginning is that of a thought, so that what was evaluated for it serves again.
    thinker.think(["Where?"], [[]])
    assert model.prompts[0].startswith(model.prompts[2])
    assert thinker.conclude([], [], []) == []


def test_a_long_rationale_takes_the_room_of_the_context() -> None:
    model = ScriptedModel(["x"], context_tokens=330)
    context = [" ".join([f"[{number}]", *["word"] * 39]) for number in range(4)]
    Thinker(model, demonstrations=0).conclude(["Where?"], [context], [["word " * 100]])
    assert [f"[{number}]" in model.prompts[0] for number in range(4)] == [True, True, False, False]
    assert model.count_tokens(model.prompts[0]) + 32 <= 330


def test_sentences_become_verifying_questions_in_one_call() -> None:
    model = Recorder(["What is x?\nmore", " ", "?!"])
    verifier = Verifier(model, labelled=VERIFIED)
    assert verifier.ask(["q1?", "q1?", "q2?"], ["X is y.", "Y is z.", "Z."]) == ["What is x?", "Y is z.", "Z."]
    assert len(model.calls) == 1
    assert model.prompts[1].split("\n\n") == [
        ASK_INSTRUCTION,
        "Question: What is a?\nSentence: A is b.\nVerifying question: What is a really?",
        "Question: What is d?\nSentence: D is e.\nVerifying question: Is d e?",
        "Question: q1?\nSentence: Y is z.\nVerifying question:",
    ]
    assert verifier.ask([], []) == []


def test_verifying_questions_are_answered_from_what_was_found_for_them() -> None:
    model = Recorder(["X is y.\nmore", "..."])
    verifier = Verifier(model, labelled=VERIFIED, demonstrations=1)
    assert verifier.answer(["What is x?", "What is z?"], [["[x] X is y."], []]) == ["X is y.", ""]
    assert len(model.calls) == 1
    assert model.prompts[0].split("\n\n") == [
        VERIFY_INSTRUCTION,
        "Context:\n[d] D is e.\nQuestion: Is d e?\nAnswer: D is e.",
        "Context:\n[x] X is y.\nQuestion: What is x?\nAnswer:",
    ]
    assert model.prompts[1].endswith("\n\nQuestion: What is z?\nAnswer:")
    assert verifier.answer([], []) == []


def test_our_own_verifications_are_shown() -> None:
    model = ScriptedModel(["x"])
    Verifier(model).ask(["q?"], ["s."])
    assert all(one.verifying_question in model.prompts[0] for one in VerificationDemonstration.load())


@pytest.mark.models
def test_the_tiny_model_thinks_repeatably_and_reaches_an_answer(tiny_models: dict[str, Path]) -> None:
    from pytrace.models.llama.llama_cpp import LlamaCppModel

    with LlamaCppModel(
        tiny_models["language-model"], name="tiny", context=2048, style="plain", deterministic=True
    ) as tiny:
        thinker = Thinker(tiny, demonstrations=1, max_tokens=24)
        asked = ["What is the capital of the country in which the Taj Mahal stands?"]
        first, second, other = (thinker.think(asked, [[]], n=3, temperature=0.7, seed=seed)[0] for seed in (1, 1, 2))
        assert first == second != other
        assert len(first) == 3
        assert len(set(first)) > 1
        assert any(thought.answer for thought in first)
        (answer,) = thinker.conclude(
            asked, [[]], [["The Taj Mahal is in India.", "The capital of India is New Delhi."]]
        )
        assert "Delhi" in answer
