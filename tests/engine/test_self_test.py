"""The self-test tells models that can do what methods ask of them from those that answer by habit or by chance."""

from __future__ import annotations

import itertools
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
import pytest

from pytrace.engine.model_abilities import known_models, parameters
from pytrace.engine.self_test import Cases, FactCase, cases, measure_choices, measure_triples
from pytrace.models import registry
from pytrace.models.language_model import OptionScores, Prompt
from pytrace.models.llama.llama_cpp import LlamaCppModel
from pytrace.models.request_context import current_request
from pytrace.models.scripted import ScriptedModel
from pytrace.reader.prompts import ChainDemonstration, TripleDemonstration
from pytrace.records import Triple

CHAINS = {case.question: [Triple(*row).text for row in case.chain] for case in cases().questions}
Choose = Callable[[dict[str, str], str], str]


def asked(prompt: Prompt | str) -> tuple[dict[str, str], str]:
    """Return the options of a choice by their letters, and the letter of the right one."""
    text = (prompt if isinstance(prompt, str) else prompt.plain()).rpartition("\n\n")[2]
    lines = text.splitlines()
    options = dict(line.split(". ", 1) for line in lines if line[1:3] == ". ")
    (question,) = [line.removeprefix("Question: ") for line in lines if line.startswith("Question: ")]
    missing = [triple for triple in CHAINS[question] if triple not in lines[0]]
    assert len(missing) <= 1
    return options, next((letter for letter, triple in options.items() if [triple] == missing), "A")


class Choosing(ScriptedModel):
    """Chooses a letter by a rule."""

    def __init__(self, choose: Choose, *, gives_logits: bool = True) -> None:
        super().__init__(lambda text: choose(*asked(text)), gives_logits=gives_logits)
        self._choose = choose
        self.calls = 0

    def _score_options(self, prompts: Sequence[Prompt | str], options: Sequence[Sequence[str]]) -> list[OptionScores]:
        self.calls += len(prompts)
        letters = [self._choose(*asked(prompt)) for prompt in prompts]
        return [
            OptionScores(np.where([label == letter for label in labels], 0.0, -9.0), 0.0)
            for letter, labels in zip(letters, options, strict=True)
        ]


def by_chance(seed: int) -> Choose:
    dice = random.Random(seed)
    return lambda options, _: dice.choice(list(options))


def never_ends(options: dict[str, str], right: str) -> str:
    del options
    return right if right != "A" else "B"


def verdicts(choose: Choose, **how: bool) -> tuple[bool, bool]:
    found = measure_choices(Choosing(choose, **how), presumed=False)
    return found["letters"].able, found["ends"].able


def test_the_cases_give_nothing_away() -> None:
    pairs = list(cases().pairs())
    right = Counter(answer for pair in pairs for _, answer in pair)
    assert right[-1] == sum(right.values()) - right[-1] == 24
    assert max(right[place] for place in range(5)) - min(right[place] for place in range(5)) <= 2
    for pair in pairs:
        assert len({len(step.chain) for step, _ in pair}) == 1
        assert {answer < 0 for _, answer in pair} == {True, False}
        assert all(len({one.unit for one in step.candidates}) == 5 for step, _ in pair)
        assert not any(one.unit in step.chain for step, _ in pair for one in step.candidates)
    assert not CHAINS.keys() & {row.question for row in ChainDemonstration.load()}
    assert not {row.title for row in cases().documents} & {row.title for row in TripleDemonstration.load()}
    assert all(fact.tail in row.text for row in cases().documents for fact in row.facts)


def test_a_model_that_chooses_right_has_letters_and_ends_after_a_few_steps() -> None:
    model = Choosing(lambda _, right: right)
    found = measure_choices(model, presumed=False)
    assert all(one.able and one.decided and one.right == one.of for one in found.values())
    assert model.calls < 20


@pytest.mark.parametrize("gives_logits", [True, False])
@pytest.mark.parametrize(
    ("choose", "expected"),
    [
        (lambda _, right: right, (True, True)),
        (lambda *_: "A", (False, False)),
        (lambda *_: "B", (False, False)),
        (lambda options, _: list(options)[-1], (False, False)),
        (never_ends, (True, False)),
        # It knows when a chain is complete, but not what comes next.
        (lambda _, right: "A" if right == "A" else "B", (False, False)),
    ],
    ids=["right", "always A", "always B", "always the last", "never ends", "ends alone"],
)
def test_habits_are_no_abilities(choose: Choose, expected: tuple[bool, bool], gives_logits: bool) -> None:
    assert verdicts(choose, gives_logits=gives_logits) == expected


def test_a_model_that_chooses_by_chance_is_seldom_taken_for_able() -> None:
    found = [verdicts(by_chance(seed)) for seed in range(200)]
    assert sum(letters for letters, _ in found) <= 12
    assert sum(ends for _, ends in found) <= 12


def test_a_model_that_is_right_in_three_of_four_steps_is_seldom_taken_for_unable() -> None:
    def mostly(seed: int) -> Choose:
        dice = random.Random(seed)
        return lambda options, right: right if dice.random() < 0.75 else dice.choice(list(options))

    assert sum(verdicts(mostly(seed))[0] for seed in range(100)) >= 95


class Slow(ScriptedModel):
    """Answers nothing until it is cancelled."""

    def _score_options(self, prompts: Sequence[Prompt | str], options: Sequence[Sequence[str]]) -> list[OptionScores]:
        del prompts, options
        request = current_request()
        assert request is not None
        while True:
            request.check()
            time.sleep(0.01)


@pytest.mark.parametrize("presumed", [True, False])
def test_of_a_model_that_is_too_slow_its_size_decides(presumed: bool) -> None:
    started = time.monotonic()
    found = measure_choices(Slow(), presumed=presumed, seconds=0.1)
    assert time.monotonic() - started < 5
    assert [(one.able, one.of, one.decided) for one in found.values()] == [(presumed, 0, False)] * 2


def writing(line: Callable[[FactCase, str], str]) -> Callable[[str], str]:
    """Return what writes a line for each fact of the text at the end of a prompt, behind the title that begins its answer."""

    def write(prompt: str) -> str:
        (row,) = [one for one in cases().documents if one.text in prompt.rpartition("\n\n")[2]]
        return f"\n<{row.title};".join(f" {line(fact, row.text)}>" for fact in row.facts)

    return write


@pytest.mark.parametrize(
    ("line", "able"),
    [
        (lambda fact, _: f"{fact.relation[0]}; {fact.tail}", True),
        (lambda fact, _: f"has; {fact.tail}", False),
        (lambda fact, _: f"{fact.relation[0]}; the Emperor of Cathay", False),
        (lambda fact, text: f"{fact.relation[0]}; {text}", False),
        (lambda fact, _: fact.tail, False),
    ],
    ids=["facts", "wrong relations", "invented tails", "whole texts", "no relations"],
)
def test_triples_are_sound_where_they_say_what_the_text_says(line: Callable[[FactCase, str], str], able: bool) -> None:
    verdict = measure_triples(ScriptedModel(writing(line)), presumed=not able)["triples"]
    assert (verdict.able, verdict.decided) == (able, True)


def test_a_model_that_writes_nothing_writes_no_triples() -> None:
    assert not measure_triples(ScriptedModel([""]), presumed=True)["triples"].able


@pytest.mark.models
@pytest.mark.parametrize("test", ["choices", "triples"])
def test_the_tiny_model_is_found_as_the_package_says(
    test: Literal["choices", "triples"], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Six pairs, a third of a whole verdict, take four seconds each. Even with one right letter of six the odds are four to one against
    # the presumed ability. Five are too few: rounding on another processor can change a letter.
    pairs = Cases.pairs
    monkeypatch.setattr(Cases, "pairs", lambda these: itertools.islice(pairs(these), 6))
    path = registry.resolve_original("tiny").path
    known = known_models()[registry.content_sha256(path)]
    with LlamaCppModel(path, style="plain") as model:
        assert known.parameters == model.parameters == parameters(str(path))
        measure = measure_choices if test == "choices" else measure_triples
        found = measure(model, presumed=True, seconds=600)
    assert {name: one.able for name, one in found.items()} == {name: known.verdicts[name].able for name in found}
