"""The search for settings: what it asks, what it takes for better, and what it says of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from pytrace.cli import common, program
from pytrace.errors import InputError
from pytrace.evaluation.run.run_store import RunStore
from pytrace.evaluation.run.runner import Batched
from pytrace.methods.abilities import CAPABLE, UNABLE, Abilities
from pytrace.methods.catalog import METHODS, MethodName, method_settings
from pytrace.records import Document, Question
from pytrace.results import Result
from pytrace.tuning import Choice, Trial, Tuned, default_space, parse_choice, tune
from tests.scripted_methods import read


def questions(count: int, first: int = 0) -> list[Question]:
    document = Document("d", "Ada Foah", ("It is in Ghana.",))
    return [
        Question(f"q{number}", f"Where is {number}?", ("right",), (document,), ("d",))
        for number in range(first, first + count)
    ]


class Asked:
    """Makes methods that are right at the share of questions that `worth` gives their settings; counts what they are asked."""

    def __init__(self, worth: Callable[[dict[str, str]], float]) -> None:
        self.worth = worth
        self.asked: dict[str, int] = {}

    def __call__(self, method: MethodName) -> Batched:
        share = self.worth(dict(one.split("=") for one in method.overrides))

        def answer(own: Sequence[Question]) -> list[Result]:
            self.asked[method.label] = self.asked.get(method.label, 0) + len(own)
            return [
                Result(
                    question=one.question,
                    answer="right" if (int(one.id[1:]) * 37) % 100 < 100 * share else "wrong",
                    method=method.label,
                    evidence=read("", "d"),
                    context_tokens=7,
                )
                for one in own
            ]

        return Batched(answer, 16)


def run(
    worth: Callable[[dict[str, str]], float], *choices: str, store: RunStore | None = None, **options: object
) -> tuple[Tuned, Asked, list[Trial]]:
    if store is None:
        store = RunStore(":memory:")
        store.open_run({})
    asked, told = Asked(worth), list[Trial]()
    method = MethodName("trace")
    tuned = tune(
        method,
        asked,
        [parse_choice(choice, method) for choice in choices],
        questions(100),
        abilities=UNABLE,
        store=store,
        told=told.append,
        **options,  # type: ignore[arg-type]
    )
    return tuned, asked, told


def test_the_best_of_each_choice_is_kept_and_the_next_choice_goes_on_from_it() -> None:
    def worth(settings: dict[str, str]) -> float:
        # Worth most together only: chains=3 is seen to be best after length=3 has been chosen.
        value = {"1": 0.2, "3": 0.5}.get(settings.get("length", ""), 0.3)
        return value + (0.3 if settings.get("chains") == "3" and settings.get("length") == "3" else 0)

    tuned, asked, told = run(worth, "chains=2,3", "length=1,3")
    assert tuned.method == "trace:length=3,chains=3"
    assert tuned.settings == ("length=3", "chains=3")
    assert tuned.trials == tuple(told)
    assert told[0].outcome == "start"
    assert told[0].exact_match == pytest.approx(0.3)
    assert told[0].objective == pytest.approx((0.3 + 1) / 2)
    assert (told[0].support_recall, told[0].support_error_rate, told[0].context_tokens) == (1, 0, 7)
    assert max(trial.exact_match for trial in told) == pytest.approx(0.8)
    assert len({trial.method for trial in told}) == len(told)
    assert all(count <= 100 for count in asked.asked.values())


def test_among_equals_the_earlier_wins_and_nothing_better_changes_nothing() -> None:
    tuned, _, told = run(lambda settings: 0.6 if settings.get("chains") in {"3", "4"} else 0.4, "chains=2,3,4")
    assert tuned.settings == ("chains=3",)
    assert [trial.outcome for trial in told] == ["start", "no better", "better", "no better"]
    tuned, _, _ = run(lambda _: 0.5, "chains=2,3", "length=1,3")
    assert (tuned.method, tuned.settings, tuned.held_out) == ("trace", (), None)


def test_what_is_surely_worse_is_not_asked_all_questions() -> None:
    _, asked, told = run(lambda settings: 0.1 if settings.get("chains") == "2" else 0.7, "chains=2,3")
    assert told[1].outcome == "given up"
    assert told[1].n == asked.asked["trace:chains=2"] == 24
    assert told[1].of == 100


def test_what_is_spelt_in_two_ways_is_tried_once() -> None:
    _, asked, _ = run(lambda _: 0.5, "adaptive=true,1,false,False")
    assert set(asked.asked) == {"trace", "trace:adaptive=false"}


def test_held_out_questions_judge_what_was_found_and_have_no_part_in_it() -> None:
    own = questions(40, first=500)
    tuned, asked, _ = run(lambda settings: 0.9 if settings.get("chains") == "3" else 0.2, "chains=2,3", held_out=own)
    assert tuned.held_out_questions == 40
    assert tuned.held_out is not None
    assert tuned.held_out_scores is not None
    (before, _), (after, _) = tuned.held_out_scores
    assert before == pytest.approx(0.2, abs=0.1)
    assert after == pytest.approx(0.9, abs=0.1)
    assert tuned.held_out.difference == pytest.approx((after - before) / 2)
    assert asked.asked["trace:chains=2"] == 100, "a loser is not asked them"


def test_a_search_goes_on_where_it_was(tmp_path: Path) -> None:
    def worth(settings: dict[str, str]) -> float:
        return 0.4 + int(settings.get("chains", "1")) / 20

    found = []
    for attempt in range(2):
        with RunStore(tmp_path / "run.sqlite") as store:
            store.open_run({}, resume=attempt > 0)
            tuned, asked, _ = run(worth, "chains=2,3,4", "length=1,2", store=store)
        found.append(tuned)
        assert (sum(asked.asked.values()) > 0) == (attempt == 0)
    assert found[0] == found[1]


@pytest.mark.parametrize("objective", ["em", "f1", "support"])
def test_other_objectives_look_at_other_things(objective: str) -> None:
    tuned, _, told = run(
        lambda settings: 0.9 if settings.get("chains") == "3" else 0.2, "chains=3", objective=objective
    )
    assert tuned.settings == (() if objective == "support" else ("chains=3",))
    assert told[0].objective == pytest.approx(1.0 if objective == "support" else 0.2)


def test_what_cannot_be_searched_is_refused() -> None:
    store = RunStore(":memory:")
    store.open_run({})
    method, choices = MethodName("trace"), [Choice("chains", (("chains=2",),))]
    bare = [Question("q", "Where?", ("right",))]
    for own, space, objective, reason in [
        ([], choices, "f1", "got 0, 1 and 3"),
        (bare, [], "f1", "got 1, 0 and 3"),
        (bare, choices, "f1+support", "name no supporting documents"),
        (bare, choices, "luck", "no objective 'luck'"),
    ]:
        with pytest.raises(InputError, match=reason):
            tune(method, Asked(lambda _: 1), space, own, abilities=UNABLE, store=store, objective=objective)  # type: ignore[arg-type]


@pytest.mark.parametrize("method", METHODS)
def test_every_default_space_has_settings_of_its_method_only(method: str) -> None:
    for abilities in (UNABLE, CAPABLE):
        try:
            space = default_space(method)
        except InputError as error:
            assert "--try" in str(error)  # noqa: PT017
            assert not METHODS[method].space
            continue
        for choice in space:
            assert len(choice.options) > 1
            assert len({json.dumps(method_settings_of(method, abilities, option)) for option in choice.options}) == len(
                choice.options
            )


def method_settings_of(method: str, abilities: Abilities, option: tuple[str, ...]) -> dict[str, object]:
    settings = method_settings(method, abilities, option)
    return {name: getattr(settings, name) for name in settings.__struct_fields__}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("chains", "does not say what to try"),
        ("chains=", "does not say what to try"),
        ("chains=2,,2", "chains"),
        ("strings=1", "strings=1"),
        ("chains=many", "chains"),
        ("unit=triple+extraction", "extraction"),
    ],
)
def test_choices_that_are_none_are_refused(text: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        parse_choice(text, MethodName("trace"))


def rows(path: Path, count: int) -> Path:
    documents = [["Ada Foah", ["Ada Foah is a town in Ghana."]], ["Oslo", ["Oslo is the capital of Norway."]]]
    places = [("Ada Foah", "Ghana"), ("Oslo", "Norway")]
    path.write_text(
        "\n".join(
            json.dumps(
                {
                    "_id": str(number),
                    "question": f"In which country is {places[number % 2][0]}, asked for the {number}. time?",
                    "answer": places[number % 2][1],
                    "context": documents,
                    "supporting_facts": [[places[number % 2][0], 0]],
                }
            )
            for number in range(count)
        ),
        encoding="utf-8",
    )
    return path


@pytest.mark.models
def test_the_command_finds_settings_that_eval_takes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, out = rows(tmp_path / "rows.jsonl", 8), tmp_path / "tuned"
    command = [
        "tune",
        "dense",
        "--data",
        str(data),
        "--out",
        str(out),
        "--try",
        "top=1,2",
        "--set",
        "top=2",
        "--objective",
        "support",
        "--threads",
        "1",
    ]
    assert common.run(program, [*command, "--json"]) == 0
    tuned = json.loads(capsys.readouterr().out)
    assert tuned["method"] == "dense:top=1"
    assert (tuned["questions"], tuned["held_out_questions"]) == (4, 4)
    assert tuned["trials"][1]["support_error_rate"] == 0
    kept = json.loads((out / "settings.json").read_text())
    assert kept == {"method": "dense:top=1", "llm": "tiny", "settings": ["top=1"]}
    # Resumed, nothing is asked: the same answer, and the same file.
    assert common.run(program, [*command, "--resume"]) == 0
    assert "on 4 questions that had no part in the search" in capsys.readouterr().out
    assert common.run(program, command) == 2
    assert "resume" in capsys.readouterr().err
    # What was found can be used at once.
    asked = [
        "eval",
        "dense",
        "--data",
        str(data),
        "--limit",
        "2",
        "--set",
        f"@{out / 'settings.json'}",
        "--threads",
        "1",
        "--json",
    ]
    assert common.run(program, asked) == 0
    assert json.loads(capsys.readouterr().out)["methods"][0]["supporting_error_rate"]["mean"] == 0


@pytest.mark.parametrize("content", [None, "no JSON", "{}", '{"settings": "top=1"}', b"\xff\xfe"])
def test_a_file_without_settings_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str | bytes | None
) -> None:
    path = tmp_path / "settings.json"
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert common.run(program, ["eval", "rag", "--data", "nowhere", "--set", f"@{path}"]) == 2
    told = capsys.readouterr().err
    assert str(path) in told
    assert "pytrace tune" in told


def test_too_few_questions_to_hold_some_out_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["tune", "dense", "--data", str(rows(tmp_path / "rows.jsonl", 1)), "--out", str(tmp_path / "out")]
    assert common.run(program, [*command, "--hold-out", "0.5"]) == 2
    assert "1 questions cannot be split" in capsys.readouterr().err
    assert common.run(program, ["tune", "cok", "--data", "x", "--out", str(tmp_path / "out")]) == 2
    assert "knowledge base" in capsys.readouterr().err
