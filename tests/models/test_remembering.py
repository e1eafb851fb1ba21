"""A model that remembers: asks nothing twice, and says what the model said."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from pytrace.errors import LogitsUnavailableError, StoreError
from pytrace.models.language_model import Completion, ContinuationScore, LanguageModel, Prompt
from pytrace.models.response_cache import CachedModel
from pytrace.models.scripted import ScriptedModel


def test_it_is_a_language_model_with_the_identity_of_its_own() -> None:
    inner = ScriptedModel(["a"], context_tokens=77)
    model = CachedModel(inner)
    assert isinstance(model, LanguageModel)
    assert (model.name, model.fingerprint, model.context_tokens) == (inner.name, inner.fingerprint, 77)
    assert (model.gives_logits, model.deterministic, model.count_tokens("one two")) == (True, True, 2)


def test_what_was_asked_is_not_asked_again_by_any_verb(tmp_path: Path) -> None:
    prompt = Prompt("Choose.", (("in", "out"),), "Question: Where is Ghana?\nOptions:\nA. Ghana\nB. Togo\nNext:")
    told = []
    for attempt in range(2):
        inner = ScriptedModel(lambda text: f"about {len(text)} letters")
        model = CachedModel(inner, tmp_path / "answers.sqlite")
        told.append(
            (
                [row[0].text for row in model.generate([prompt, "Where?", "Where?"], max_tokens=[9, 3, 3])],
                [row.log_probabilities.tolist() for row in model.score_options([prompt], [["A", "B"]])],
                [
                    [score.token_log_probabilities.tolist() for score in row]
                    for row in model.score_continuations(["It is in", "Or in"], [["Ghana", "", "Togo"], ["Ghana"]])
                ],
            )
        )
        asked = len(inner.prompts)
        assert (asked > 0) == (attempt == 0), "the second model is asked nothing"
        assert (model.usage == ScriptedModel().usage) == (attempt == 1)
        model.close()
    assert told[0] == told[1]


def test_equal_prompts_in_one_call_are_asked_once() -> None:
    inner = ScriptedModel(["one", "two", "three"])
    model = CachedModel(inner)
    assert [row[0].text for row in model.generate(["x", "y", "x"], max_tokens=4)] == ["one", "two", "one"]
    assert (model.asked, model.known, len(inner.prompts)) == (2, 0, 2)


@pytest.mark.parametrize(
    "changed",
    [
        {"max_tokens": 5},
        {"stop": ("z",)},
        {"n": 2},
        {"grammar": 'root ::= "a"'},
        {"temperature": 0.5},
        {"temperature": 0.5, "seed": 1},
        {"temperature": 0.5, "top_p": 0.5},
    ],
)
def test_other_parameters_are_another_question(changed: dict[str, object]) -> None:
    inner = ScriptedModel(["one", "two"])
    model = CachedModel(inner)
    model.generate(["x"], max_tokens=4)
    model.generate(["x"], max_tokens=4, temperature=0.5)
    before = len(inner.prompts)
    model.generate(["x"], **{"max_tokens": 4, **changed})  # type: ignore[arg-type]
    assert (len(inner.prompts) > before) == (changed != {"temperature": 0.5})


def test_a_seed_that_nothing_is_drawn_by_does_not_matter() -> None:
    inner = ScriptedModel(["one"])
    model = CachedModel(inner)
    model.generate(["x"], max_tokens=4, seed=1)
    model.generate(["x"], max_tokens=4, seed=2)
    assert len(inner.prompts) == 1


def test_each_prompt_is_told_as_done_once_known_or_not() -> None:
    model = CachedModel(ScriptedModel(lambda text: text))
    model.generate(["b"], max_tokens=4)
    told: dict[int, str] = {}

    def done(place: int, completions: list[Completion]) -> None:
        assert place not in told
        told[place] = completions[0].text

    model.generate(["a", "b", "a", "c"], max_tokens=4, done=done)
    assert told == {0: "a", 1: "b", 2: "a", 3: "c"}


def test_what_a_killed_call_had_finished_is_known(tmp_path: Path) -> None:
    def stop(place: int, _: list[Completion]) -> None:
        if place == 1:
            raise KeyboardInterrupt

    model = CachedModel(ScriptedModel(lambda text: text), tmp_path / "answers.sqlite")
    with pytest.raises(KeyboardInterrupt):
        model.generate(["a", "b", "c"], max_tokens=4, done=stop)
    model.close()
    inner = ScriptedModel(lambda text: text)
    CachedModel(inner, tmp_path / "answers.sqlite").generate(["a", "b", "c"], max_tokens=4)
    assert inner.prompts == ["c"]


class _Infinite(ScriptedModel):
    def score_continuations(
        self, prompts: Sequence[Prompt | str], continuations: Sequence[Sequence[str]]
    ) -> list[list[ContinuationScore]]:
        del prompts
        return [[ContinuationScore(np.array([-math.inf, -1.25])) for _ in row] for row in continuations]


def test_infinite_log_probabilities_are_remembered() -> None:
    model = CachedModel(_Infinite())
    for _ in range(2):
        ((score,),) = model.score_continuations(["a"], [["b"]])
        assert score.token_log_probabilities.tolist() == [-math.inf, -1.25]
        assert score.token_log_probabilities.dtype == np.float64
    assert (model.asked, model.known) == (1, 1)


def test_lone_surrogates_and_no_prompts_are_no_trouble() -> None:
    model = CachedModel(ScriptedModel(["x"]))
    assert model.generate(["\ud800"], max_tokens=2)[0][0].text == "x"
    assert model.generate([], max_tokens=2) == []
    assert model.score_continuations([], []) == []
    assert model.score_options([], []) == []


def test_what_the_model_refuses_is_refused() -> None:
    model = CachedModel(ScriptedModel(gives_logits=False))
    with pytest.raises(LogitsUnavailableError):
        model.score_options(["a"], [["A"]])


@pytest.mark.parametrize("content", [b"no database, but a text of some length", None])
def test_files_that_are_none_of_its_own_are_refused_and_left_alone(tmp_path: Path, content: bytes | None) -> None:
    import sqlite3

    path = tmp_path / "other.sqlite"
    if content is None:
        with sqlite3.connect(path) as connection:
            connection.execute("CREATE TABLE something (a)")
        connection.close()
    else:
        path.write_bytes(content)
    before = path.read_bytes()
    with pytest.raises(StoreError, match=r"other\.sqlite"):
        CachedModel(ScriptedModel(), path)
    assert path.read_bytes() == before
    with pytest.raises(StoreError, match="nowhere"):
        CachedModel(ScriptedModel(), tmp_path / "nowhere" / "answers.sqlite")
