"""Responses become plain text: thinking, Markdown, boxes and JSON go, and what is said stays, in its place where that counts."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrace.reader.response_places import blanked
from pytrace.reader.responses import json_response, plain_response, response_text, step_texts
from pytrace.reader.thinking import is_all_thinking, thinking_spans, without_thinking

SAID = "They speak Greek."


@pytest.mark.parametrize(
    "text",
    [
        f"<think>Italian?</think>{SAID}",
        f"<think>\nIs it <think>Italian</think>?\n</think>\n\n{SAID}",
        f"<Thinking>Italian?</Thinking> {SAID}",
        f"<reasoning>Italian?</reasoning>\n{SAID}",
        f"<scratchpad>Italian?</scratchpad>\n{SAID}<reflection>Yes.</reflection>",
        f"<seed:think>Italian?</seed:think>{SAID}",
        f"[THINK]Italian?[/THINK]{SAID}",
        f"◁think▷Italian?◁/think▷{SAID}",
        f"<|begin_of_thought|>Italian?<|end_of_thought|>{SAID}",
        f"<|START_THINKING|>Italian?<|END_THINKING|>{SAID}",
        f"<unused94>thought\nItalian?<unused95>{SAID}",
        f'<details type="reasoning" done="true"><summary>3 s</summary>Italian?</details>{SAID}',
        f"Italian? The template had opened it.</think>{SAID}",
        f"<think></think>{SAID}",
        f"{SAID}<think>It was cut off",
    ],
)
def test_thinking_is_left_out_whatever_its_tags(text: str) -> None:
    assert without_thinking(text) == SAID
    assert blanked(text).strip() == SAID
    assert len(blanked(text)) == len(text)


def test_of_the_channels_of_gpt_oss_the_final_one_is_read() -> None:
    text = f"<|channel|>analysis<|message|>Italian?<|end|><|start|>assistant<|channel|>final<|message|>{SAID}<|return|>"
    assert plain_response(text) == SAID
    assert blanked(text).strip() == SAID
    assert plain_response(f"analysisItalian?assistantfinal{SAID}") == SAID


@pytest.mark.parametrize("text", ["<think>It was cut", "<think></think>", "so on</think>  "])
def test_a_response_that_only_thinks_says_nothing(text: str) -> None:
    assert is_all_thinking(text)
    assert plain_response(text).strip() == ""
    assert not is_all_thinking("")


def test_a_response_may_speak_of_tags() -> None:
    text = "Models write `<think>` and `</think>`; 1 < 2 and analysis is hard."
    assert thinking_spans(text) == []
    assert without_thinking(text) == text


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("**Corfu** is *part* of __Greece__, ~~not~~ `Italy`.", "Corfu is part of Greece, not Italy."),
        ("frederick_v_of_denmark is 2 * 3 * 4 and a_b_", "frederick_v_of_denmark is 2 * 3 * 4 and a_b_"),
        ("Corfu [1] is in [Greece](https://g.example/x_y).[2, 3]【4†source】", "Corfu is in Greece."),
        ("# Title\nCorfu<br>Greece", "Corfu\nGreece"),
        ("**Overview**\n\nCorfu\n\n---\n\nGreece", "Corfu\n\n\n\nGreece"),
        ("```python\nprint(1)\n```\nCorfu", "Corfu"),
        ("It costs $5 and $\\text{Greek}$ is \\mathrm{it}.", "It costs $5 and $Greek$ is it."),
        ("> Corfu\n> Greece", "Corfu\nGreece"),
        ("| a | b |\n|:--|--:|\n| 1 | Corfu is in Greece |", "- Corfu is in Greece"),
        ("• Corfu\n– Greece", "- Corfu\n- Greece"),
        ("The answer is $\\boxed{\\text{a {b}}}$.", "The answer is a b."),
        ("<answer>Greek</answer>", "Answer: Greek"),
    ],
)
def test_marks_go_and_words_stay(text: str, plain: str) -> None:
    assert plain_response(text) == plain


def test_a_box_in_a_sentence_concludes_and_the_sentence_stays() -> None:
    assert plain_response("They speak \\boxed{Greek} there.") == "They speak Greek there.\nThe answer is (Greek)."
    assert plain_response("The final answer is: \\boxed{Greek}") == "The final answer is: Greek"


@pytest.mark.parametrize(
    ("text", "steps", "answer"),
    [
        ('{"steps": ["a.", "b."], "answer": "c"}', ["a.", "b."], "c"),
        (
            'Here:\n```json\n{"Reasoning": "Corfu is Greek. Rome is not.", "Final Answer": "c"}\n```',
            ["Corfu is Greek.", "Rome is not."],
            "c",
        ),
        ('{"steps": [{"step": 1, "fact": "a."}, {"step": 2, "fact": "b."}], "final_answer": 3}', ["a.", "b."], "3"),
        ('{"reasoning": "1. a. 2. b.", "answer": true}', ["a.", "b."], "yes"),
        ('{"rationale": "Step 1: a\\nStep 2: b", "answer": ["c", "d"]}', ["a", "b"], "c, d"),
        ('{"steps": [["a", "r", "b"]], "answer": null}', ["a r b"], "unknown"),
        ('{"steps": {"1": "a", "2": "b"}, "answer": "c"}', ["a", "b"], "c"),
    ],
)
def test_json_is_read_as_steps_and_an_answer(text: str, steps: list[str], answer: str) -> None:
    assert json_response(text) == (steps, answer)
    assert plain_response(text) == response_text(steps, answer)


@pytest.mark.parametrize(
    "text", ['{"a": 1}', '{"answer": "c"', "{Greek}", 'He said "{a}" to me.', "{}", '[{"answer": "c"}]x']
)
def test_other_json_is_text(text: str) -> None:
    assert json_response(text) is None or text.startswith("[")


def test_steps_that_stand_apart_are_read_in_any_shape() -> None:
    assert step_texts("Corfu is Greek. Rome is not.") == ["Corfu is Greek.", "Rome is not."]
    assert step_texts("- a\n- b") == ["a", "b"]
    assert step_texts(["1. a\n b", "", "Step 2: c"]) == ["a b", "c"]
    assert step_texts(None) == step_texts([]) == step_texts([None]) == []
    assert response_text(["a"], "b) c") == "1. a\nSo the answer is b) c."
    assert response_text(["a"], "b (c)") == "1. a\nSo the answer is (b (c))."
    assert response_text(["a"], "") == "1. a"


def test_what_is_blank_keeps_every_place() -> None:
    text = '<think>x</think># Corfu\n- **Corfu** is in *Greece* [1]\n\n| a | b |\n|---|---|\n| 1 | "Greek" |\n\n$\\boxed{Greek}$'
    plain = blanked(text)
    assert len(plain) == len(text)
    assert plain.split() == ["Corfu", "is", "in", "Greece", '"Greek"', "Greek"]
    for word in ("is in", '"Greek"'):
        assert plain.index(word) == text.index(word)
    # Each item, row and heading is a paragraph of its own.
    assert plain.index("Corfu") == text.index("Corfu** is")
    assert "\n\n" in blanked("a\n- b")


def test_of_json_the_texts_are_left_in_their_places() -> None:
    text = '{"steps": ["Corfu is \\"in\\" Greece.\\nYes", {"step": 1}], "answer": "Greek"}'
    plain = blanked(text)
    assert len(plain) == len(text)
    assert plain.split() == ["Corfu", "is", '"in', '"', "Greece.", "Yes", "Greek"]
    assert plain.index("Greek") == text.index('Greek"')


PIECES = [
    "<think>", "</think>", "**", "*", "_", "`", "```\n", "|", "\n", "# ", "- ", "1. ", "\\boxed{", "}", "$", "[1]", "](", "Greek", ". ", " ",
    '{"answer": "', '"}', "So the answer is ", "Answer:", "<answer>", "<|channel|>", "答案是", "\ud800", "\x00", "|---|",
]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), max_size=25).map("".join) | st.text(max_size=80))
def test_no_text_breaks_the_reading_and_places_hold(text: str) -> None:
    plain = blanked(text)
    assert len(plain) == len(text)
    assert all(new == old or new.isspace() for new, old in zip(plain, text, strict=True))
    assert isinstance(plain_response(text), str)
    spans = thinking_spans(text)
    assert all(0 <= start < end <= len(text) for start, end in spans)


@pytest.mark.parametrize("piece", [*PIECES, "_a ", "\n- ", "\n| a |", "# x\n", "[ ", "<details ", "$\\", "  "])
def test_a_long_response_of_one_sign_is_read_in_time_linear_in_its_length(piece: str) -> None:
    text = piece * (100_000 // len(piece))
    began = time.process_time()
    plain_response(text)
    blanked(text)
    # A second at most on a slow machine; minutes, where it is the square.
    assert time.process_time() - began < 10
