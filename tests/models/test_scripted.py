"""The scripted model keeps the promises of a language model, and says what it was told to."""

from __future__ import annotations

import numpy as np
import pytest

from pytrace.errors import LogitsUnavailableError
from pytrace.models.language_model import LanguageModel, Prompt
from pytrace.models.scripted import ScriptedModel

PROMPT = Prompt(
    "Choose.", (), "Question: where is the red house\nA. the red house\nB. a blue car\nC. the house", "Answer:"
)


def test_it_is_a_language_model() -> None:
    model = ScriptedModel()
    assert isinstance(model, LanguageModel)
    assert (model.name, model.gives_logits, model.context_tokens) == ("scripted", True, 100_000)
    assert ScriptedModel(context_tokens=7).context_tokens == 7
    assert model.fingerprint == ScriptedModel(["other"]).fingerprint
    assert model.count_tokens("three small words") == 3


def test_answers_come_in_a_row_and_begin_again() -> None:
    model = ScriptedModel(["one", "two", "three"])
    rows = model.generate(["p", "q"], max_tokens=5, n=2)
    assert [[one.text for one in row] for row in rows] == [["one", "two"], ["three", "one"]]
    assert model.generate(["r"], max_tokens=5)[0][0].text == "two"


def test_one_text_is_one_answer() -> None:
    assert ScriptedModel("yes").generate(["p"], max_tokens=5)[0][0].text == "yes"
    with pytest.raises(ValueError, match="at least one answer"):
        ScriptedModel([])


def test_a_function_sees_the_plain_prompt() -> None:
    model = ScriptedModel(str.upper)
    prompt = Prompt("Do.", (("a", "b"),), "c", "d")
    assert model.generate([prompt], max_tokens=99, stop=["\n"])[0][0].text == "DO."
    assert model.prompts == [prompt.plain()] == ["Do.\n\na b\n\nc d"]


@pytest.mark.parametrize(
    ("limit", "stop", "expected"),
    [
        (9, [], ("one two three END four", 5, "end")),
        (2, [], ("one two", 2, "length")),
        (9, ["END", "three"], ("one two ", 2, "stop")),
        (9, ["", "absent"], ("one two three END four", 5, "end")),
        (1, ["END"], ("one", 1, "length")),
    ],
)
def test_answers_are_cut_at_stop_texts_and_limits(limit: int, stop: list[str], expected: tuple[str, int, str]) -> None:
    completion = ScriptedModel(["one two three END four"]).generate(["p"], max_tokens=limit, stop=stop)[0][0]
    assert (completion.text, completion.tokens, completion.finish) == expected
    assert completion.log_probability == 0.0


def test_limits_may_differ_by_prompt_and_must_match() -> None:
    model = ScriptedModel(["one two three"])
    assert [row[0].tokens for row in model.generate(["p", "q"], max_tokens=[1, 2])] == [1, 2]
    with pytest.raises(ValueError, match="2 prompts but 1 lists of token limits"):
        model.generate(["p", "q"], max_tokens=[1])
    assert model.generate([], max_tokens=3) == []


def test_options_about_the_question_are_likelier() -> None:
    scores = ScriptedModel().score_options([PROMPT], [["A", "B", "C", "D"]])[0]
    assert scores.log_probabilities.dtype == np.float64
    assert np.exp(scores.log_probabilities).sum() + scores.outside == pytest.approx(1.0)
    # A shares three words with the question, C two, B and the absent D none.
    shared = np.array([3.0, 0.0, 2.0, 0.0])
    np.testing.assert_allclose(scores.log_probabilities, shared - np.log(np.exp(shared).sum()))
    nothing = ScriptedModel().score_options([PROMPT], [[]])[0]
    assert (nothing.log_probabilities.shape, nothing.outside) == ((0,), 1.0)


def test_words_of_the_last_block_are_likelier() -> None:
    rows = ScriptedModel().score_continuations(["old words\n\nThe red house"], [["the old house", "", "Red"]])
    assert [score.token_log_probabilities.tolist() for score in rows[0]] == [[-1.0, -2.0, -1.0], [], [-1.0]]
    assert [(score.tokens, score.log_probability) for score in rows[0]] == [(3, -4.0), (0, 0.0), (1, -1.0)]


def test_without_log_probabilities_both_scoring_verbs_raise() -> None:
    model = ScriptedModel(gives_logits=False)
    assert not model.gives_logits
    with pytest.raises(LogitsUnavailableError, match="gives_logits=True"):
        model.score_options(["p"], [["A"]])
    with pytest.raises(LogitsUnavailableError, match="gives_logits=True"):
        model.score_continuations(["p"], [["A"]])
    assert model.prompts == []


def test_usage_counts_words() -> None:
    model = ScriptedModel(["a b c"])
    model.generate(["one two", "three"], max_tokens=2, n=2)
    model.score_options(["four"], [["A"]])
    usage = model.usage
    assert (usage.calls, usage.prompt_tokens, usage.evaluated_tokens, usage.generated_tokens) == (
        5,
        7,
        7,
        8,
    )  # a call a completion


def test_done_is_called_once_a_prompt_while_later_prompts_wait() -> None:
    model = ScriptedModel(["a", "b", "c"])
    seen: list[tuple[int, list[str], int]] = []
    rows = model.generate(
        ["one", "two", "three"],
        max_tokens=4,
        done=lambda index, row: seen.append((index, [one.text for one in row], len(model.prompts))),
    )
    assert seen == [(0, ["a"], 1), (1, ["b"], 2), (2, ["c"], 3)]
    assert [row[0].text for row in rows] == ["a", "b", "c"]


def test_what_done_raises_ends_the_call() -> None:
    model = ScriptedModel(["a"])

    def refuse(index: int, _: object) -> None:
        if index == 1:
            raise KeyError(index)

    with pytest.raises(KeyError):
        model.generate(["one", "two", "three"], max_tokens=4, done=refuse)
    assert len(model.prompts) == 2
