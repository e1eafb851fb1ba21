"""Discriminative evaluation: what a model is shown and asked in each mode, what its words mean, and what is counted."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pytest

from pytrace.certify.discriminative import (
    DiscriminativeReport,
    JudgedPath,
    ModeReport,
    ModeRun,
    evaluate_discriminative,
    make_items,
    report_mode,
)
from pytrace.certify.validity import (
    CHECK_INSTRUCTION,
    INSTRUCTION,
    MODES,
    Mode,
    PathDiscriminator,
    PathItem,
    PathJudgement,
    PathKind,
    PathVerdict,
    parse_verdict,
)
from pytrace.check_records import GoldQuestion
from pytrace.errors import DataError, InputError, LogitsUnavailableError, StoreError
from pytrace.evaluation.scores.significance import wilson_interval
from pytrace.kg import KnowledgeBase
from pytrace.models.language_model import Completion, OptionScores, Prompt
from pytrace.models.scripted import HashEncoder, ScriptedModel
from pytrace.reader.prompts.reasoning import PathDemonstration
from pytrace.records import Triple, Usage

if TYPE_CHECKING:
    from pytrace.models import registry

FACTS = [Triple(f"town{n}", "country", f"land{n}") for n in range(4)]
FACTS += [Triple(f"land{n}", "language", f"tongue{n}") for n in range(4)]
QUESTIONS = [
    GoldQuestion(f"q{n}", f"What is spoken in town{n}?", (f"Tongue{n}",), ((FACTS[n], FACTS[4 + n]),)) for n in range(4)
]
ITEM = PathItem("1", "valid", "Where is\nCorfu?", "Greece", (Triple("Corfu", "country", "Greece"),))


@pytest.fixture(scope="module")
def base() -> KnowledgeBase:
    return KnowledgeBase.in_memory(FACTS, HashEncoder())


class Odds(ScriptedModel):
    """Says yes with the log-odds that a function gives for a prompt's text, and counts its calls."""

    def __init__(self, odds: object, *, mass: float = 0.9, bounded: tuple[bool, ...] = ()) -> None:
        super().__init__()
        self.odds = odds
        self.mass = mass
        self.bounded = bounded
        self.calls = 0
        self.options: list[tuple[str, ...]] = []

    def score_options(self, prompts: Sequence[Prompt | str], options: Sequence[Sequence[str]]) -> list[OptionScores]:
        self.calls += 1
        self.options += [tuple(some) for some in options]
        found = []
        for prompt in prompts:
            text = self._take(prompt)
            value = self.odds(text) if callable(self.odds) else float(str(self.odds))
            yes = 1 / (1 + math.exp(-value)) if math.isfinite(value) else math.nan
            found.append(OptionScores(np.log(np.array([yes, 1 - yes]) * self.mass), 1 - self.mass, self.bounded))
        return found

    def generate(self, *_: object, **__: object) -> list[list[Completion]]:
        raise AssertionError("nothing is to be generated")


# Prompts


def test_without_chain_of_thought_the_path_is_shown_step_by_step_and_yes_or_no_comes_next() -> None:
    model = Odds(2.0)
    (judged,) = PathDiscriminator(model, mode="zero-shot").judge([ITEM])
    assert model.prompts == [
        f"{INSTRUCTION}\n\nQuestion: Where is Corfu?\nAnswer: Greece\nPath:\nStep 1: Corfu -> country -> Greece\nValid:"
    ]
    assert model.options == [("Yes", "No")]
    assert (judged.verdict, judged.text) == ("yes", "")
    assert judged.probability == pytest.approx(1 / (1 + math.exp(-2)))


def test_demonstrations_stand_before_the_path_with_their_verdicts_and_in_the_thinking_mode_with_their_checks() -> None:
    shown = PathDemonstration.load()
    model = Odds(-1.0)
    PathDiscriminator(model, mode="few-shot").judge([ITEM])
    blocks = model.prompts[0].split("\n\n")
    assert blocks[0] == INSTRUCTION
    assert [block.rpartition(" ")[2] for block in blocks[1:-1]] == ["Yes" if one.valid else "No" for one in shown]
    assert all(one.check[0] not in model.prompts[0] for one in shown)
    thinking = ScriptedModel(["Verdict: No"])
    PathDiscriminator(thinking, mode="few-shot-cot", labelled=shown[:2]).judge([ITEM])
    blocks = thinking.prompts[0].split("\n\n")
    assert blocks[0] == CHECK_INSTRUCTION
    assert len(blocks) == 4
    for block, one, verdict in zip(blocks[1:], shown, ("Yes", "No"), strict=False):
        assert block.endswith(f"Check: {' '.join(one.check)} Verdict: {verdict}")
    assert blocks[-1].endswith("Step 1: Corfu -> country -> Greece\nCheck:")


@pytest.mark.parametrize("mode", MODES)
def test_all_paths_are_one_call_and_none_is_none(mode: Mode) -> None:
    calls = []

    class Counting(ScriptedModel):
        def generate(self, prompts: Sequence[Prompt | str], **options: Any) -> list[list[Completion]]:
            calls.append(len(prompts))
            return super().generate(prompts, **options)

        def score_options(
            self, prompts: Sequence[Prompt | str], options: Sequence[Sequence[str]]
        ) -> list[OptionScores]:
            calls.append(len(prompts))
            return super().score_options(prompts, options)

    judge = PathDiscriminator(Counting(["Verdict: Yes"]), mode=mode)
    assert judge.judge([]) == []
    assert calls == []
    assert len(judge.judge([ITEM] * 5)) == 5
    assert calls == [5]


def test_a_thought_is_cut_where_the_model_makes_up_the_next_question_and_kept() -> None:
    model = ScriptedModel(["It is in Greece. Verdict: Yes\n\nQuestion: And?\nCheck: Verdict: No"])
    (judged,) = PathDiscriminator(model, mode="zero-shot-cot").judge([ITEM])
    assert judged == PathJudgement("yes", None, "It is in Greece. Verdict: Yes")


# Verdicts


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("Step 1 is true. Verdict: Yes", "yes"),
        ("Step 1 is true.\nverdict is **no**.", "no"),
        ("The path is valid. YES", "yes"),
        ('At first YES, but then: the answer is "NO".', "no"),
        ("Yes, it is valid.", "yes"),
        ("Hm.\nno", "no"),
        ("There is no error, and no step is false.", "undecided"),
        ("Nobody says so. Yesterday. NOTHING. KNOW", "undecided"),
        ("The answer is Norway.", "undecided"),
        ("Verdict: Yes\nVerdict: No\nVerdict: No", "yes"),
        ("Is it Verdict: Yes or Verdict: No? Verdict: No", "no"),
        ("", "undecided"),
        ("\ud800", "undecided"),
    ],
)
def test_the_last_verdict_counts_and_a_no_in_passing_is_none(text: str, verdict: PathVerdict) -> None:
    assert parse_verdict(text) == verdict


@pytest.mark.timeout(5)
def test_long_nonsense_is_read_in_no_time() -> None:
    assert parse_verdict("verdict " * 20_000 + "is " * 20_000) == "undecided"
    for blank in (" ", "\n", "\t."):
        assert parse_verdict(f"verdict{blank * 100_000}x{blank * 100_000}") == "undecided"


@pytest.mark.parametrize(
    ("model", "verdict"),
    [
        (Odds(0.0), "undecided"),
        (Odds(math.nan), "undecided"),
        (Odds(3.0, mass=1e-6), "undecided"),
        (Odds(3.0, bounded=(True, True)), "undecided"),
        (Odds(3.0, bounded=(True, False)), "yes"),
        (Odds(-1e-3), "no"),
    ],
)
def test_a_model_that_finds_yes_and_no_alike_or_says_neither_is_undecided(model: Odds, verdict: PathVerdict) -> None:
    (judged,) = PathDiscriminator(model, mode="zero-shot").judge([ITEM])
    assert judged.verdict == verdict
    assert judged.probability is None or 0 <= judged.probability <= 1


def test_calibration_takes_away_the_lean_under_a_path_of_the_same_length_without_content() -> None:
    def odds(prompt: str) -> float:
        lean = float(prompt.count("Step 2"))
        return 1.0 + lean if "N/A" in prompt else 1.5 + 0.2 * lean

    two = msgspec.structs.replace(ITEM, steps=ITEM.steps * 2)
    model = Odds(odds)
    judged = PathDiscriminator(model, mode="zero-shot", calibrated=True).judge([ITEM, two, ITEM])
    assert model.calls == 1
    assert len(model.prompts) == 5
    assert [one.verdict for one in judged] == ["yes", "no", "yes"]
    assert judged[0].probability == pytest.approx(1 / (1 + math.exp(-0.5)))
    plain = PathDiscriminator(Odds(odds), mode="zero-shot").judge([ITEM, two, ITEM])
    assert [one.verdict for one in plain] == ["yes", "yes", "yes"]


def test_a_mode_that_needs_log_probabilities_says_which_does_not() -> None:
    blind = ScriptedModel(["Verdict: No"], gives_logits=False)
    with pytest.raises(LogitsUnavailableError, match="use few-shot-cot"):
        PathDiscriminator(blind, mode="few-shot")
    assert PathDiscriminator(blind, mode="zero-shot-cot").judge([ITEM])[0].verdict == "no"
    with pytest.raises(InputError, match="'one-shot' is no mode"):
        PathDiscriminator(blind, mode="one-shot")  # type: ignore[arg-type]


# Items


def test_every_question_gives_one_path_of_each_kind_with_its_own_question_and_answer(base: KnowledgeBase) -> None:
    made = make_items(base, QUESTIONS, seed=3)
    assert [(item.id, item.kind) for item in made.items] == [
        (question.id, kind) for question in QUESTIONS for kind in ("valid", "factual", "incoherent", "misguided")
    ]
    assert (made.questions, made.refusals) == (4, ())
    for item in made.items:
        assert item.question == QUESTIONS[int(item.id[1])].question
        assert item.answer == f"tongue{item.id[1]}"
        assert (item.made is None) == (item.kind == "valid")


def test_a_limit_leaves_the_other_questions_paths_to_be_taken(base: KnowledgeBase) -> None:
    made = make_items(base, QUESTIONS, limit=1)
    assert [item.kind for item in made.items] == ["valid", "factual", "incoherent", "misguided"]
    assert make_items(base, QUESTIONS).items[:4] == made.items


def test_of_questions_with_the_same_path_only_the_first_is_taken_if_asked_for(base: KnowledgeBase) -> None:
    again = [msgspec.structs.replace(one, id=f"{one.id}b") for one in QUESTIONS]
    mixed = [*QUESTIONS[:2], *again, *QUESTIONS[2:]]
    assert [item.id for item in make_items(base, mixed, distinct=True, limit=3).items[::4]] == ["q0", "q1", "q2b"]
    assert make_items(base, mixed).questions == 8
    without = [msgspec.structs.replace(one, paths=()) for one in QUESTIONS]
    assert make_items(base, without, distinct=True).questions == 4


def test_a_question_without_a_sound_path_is_named_and_the_others_go_on(base: KnowledgeBase) -> None:
    wrong = msgspec.structs.replace(QUESTIONS[0], id="w", paths=((FACTS[0], FACTS[5]),))
    short = msgspec.structs.replace(QUESTIONS[1], id="s", answers=(), paths=((FACTS[1],),))
    made = make_items(base, [wrong, short, *QUESTIONS[2:]])
    assert [(one.question_id, one.kind) for one in made.refusals] == [("w", "valid"), ("s", "incoherent")]
    assert {item.id for item in made.items} == {"s", "q2", "q3"}
    with pytest.raises(InputError, match="limit is 0"):
        make_items(base, QUESTIONS, limit=0)
    with pytest.raises(InputError, match="1 ids are of several questions, for instance 'q0'"):
        make_items(base, [QUESTIONS[0], QUESTIONS[0]])


# Figures


def rows(*counts: tuple[PathKind, PathVerdict, int]) -> tuple[JudgedPath, ...]:
    made = []
    for kind, verdict, count in counts:
        item = msgspec.structs.replace(ITEM, kind=kind)
        right = verdict == ("yes" if kind == "valid" else "no")
        made += [JudgedPath("few-shot", right, item, PathJudgement(verdict))] * count
    return tuple(made)


def counted(*counts: tuple[PathKind, PathVerdict, int]) -> ModeReport:
    return report_mode(ModeRun("few-shot", Usage(), rows(*counts)))


def test_accuracy_is_by_kind_and_balanced_between_valid_and_invalid() -> None:
    report = counted(
        ("valid", "yes", 3), ("valid", "no", 1), ("factual", "no", 2), ("factual", "yes", 2),
        ("incoherent", "undecided", 2), ("misguided", "no", 6),
    )  # fmt: skip
    by_kind = {one.kind: (one.paths, one.right, one.undecided, one.accuracy) for one in report.kinds}
    assert by_kind == {
        "valid": (4, 3, 0, 0.75), "factual": (4, 2, 0, 0.5), "incoherent": (2, 0, 2, 0.0), "misguided": (6, 6, 0, 1.0),
    }  # fmt: skip
    assert (report.overall.paths, report.overall.right, report.overall.undecided) == (16, 11, 2)
    assert report.balanced_accuracy == pytest.approx((3 / 4 + 8 / 12) / 2)
    assert report.yes == pytest.approx(5 / 16)


def test_kinds_without_paths_have_no_accuracy_and_no_interval() -> None:
    report = counted(("factual", "no", 1))
    assert [one.accuracy for one in report.kinds] == [None, 1.0, None, None]
    assert report.kinds[0].low is None
    assert report.balanced_accuracy is None
    nothing = counted()
    assert (nothing.yes, nothing.overall.accuracy) == (None, None)


@pytest.mark.parametrize(("right", "of"), [(0, 1), (1, 1), (0, 40), (40, 40), (7, 20), (999, 1000)])
def test_the_interval_is_wilsons_and_holds_the_share(right: int, of: int) -> None:
    from scipy.stats import binomtest

    low, high = wilson_interval(right, of)
    expected = binomtest(right, of).proportion_ci(confidence_level=0.95, method="wilson")
    assert (low, high) == (pytest.approx(expected.low, abs=1e-12), pytest.approx(expected.high, abs=1e-12))
    assert 0 <= low <= right / of <= high <= 1


# The whole


def always_right(prompt: str) -> str:
    asked = prompt.rpartition("\n\n")[2]
    number = asked.partition("town")[2][0]
    path = [line.partition(": ")[2] for line in asked.splitlines() if line.startswith("Step")]
    good = path == [f"town{number} -> country -> land{number}", f"land{number} -> language -> tongue{number}"]
    return f"Verdict: {'Yes' if good else 'No'}"


def test_a_model_that_knows_is_right_on_every_kind_and_one_that_agrees_with_all_is_no_better_than_chance(
    base: KnowledgeBase,
) -> None:
    report = evaluate_discriminative(base, QUESTIONS, ScriptedModel(always_right), modes=["zero-shot-cot"])
    assert [one.accuracy for one in report.modes[0].kinds] == [1.0] * 4
    assert (report.questions, report.paths, report.refused, len(report.rows)) == (4, 16, {}, 16)
    assert report.modes[0].yes == 0.25
    yes = evaluate_discriminative(base, QUESTIONS, Odds(5.0), modes=["few-shot", "zero-shot", "few-shot"])
    assert [one.mode for one in yes.modes] == ["few-shot", "zero-shot"]
    for mode in yes.modes:
        assert [one.accuracy for one in mode.kinds] == [1.0, 0.0, 0.0, 0.0]
        assert (mode.balanced_accuracy, mode.yes, mode.overall.accuracy) == (0.5, 1.0, 0.25)


def test_each_mode_tells_its_own_cost_and_the_report_is_json(base: KnowledgeBase) -> None:
    report = evaluate_discriminative(base, QUESTIONS, ScriptedModel(always_right))
    asked = [one.usage.prompt_tokens for one in report.modes]
    assert [one.usage.calls for one in report.modes] == [16] * 4
    assert asked[2] > asked[0] > 0  # demonstrations are words, too
    assert [one.usage.generated_tokens > 0 for one in report.modes] == [False, True, False, True]
    assert msgspec.json.decode(msgspec.json.encode(report), type=DiscriminativeReport) == report


def test_nothing_to_ask_is_an_error_that_says_why(base: KnowledgeBase) -> None:
    with pytest.raises(InputError, match="no mode is asked for"):
        evaluate_discriminative(base, QUESTIONS, ScriptedModel(), modes=[])
    with pytest.raises(InputError, match="none of 0 questions has a gold path"):
        evaluate_discriminative(base, [], ScriptedModel())
    pathless = [GoldQuestion("p", "?", ("x",))]
    with pytest.raises(InputError, match=r"none of 1 questions .* \(p: there is no gold path\)"):
        evaluate_discriminative(base, pathless, ScriptedModel())


# Rows on disk


def test_a_killed_run_keeps_its_finished_modes_and_goes_on_with_the_rest(
    base: KnowledgeBase, tmp_path: FilePath
) -> None:
    out = tmp_path / "rows.jsonl"

    class Dying(ScriptedModel):
        def score_options(self, *_: object) -> list[OptionScores]:
            raise KeyboardInterrupt

    modes: list[Mode] = ["zero-shot-cot", "few-shot", "few-shot-cot"]
    with pytest.raises(KeyboardInterrupt):
        evaluate_discriminative(base, QUESTIONS, Dying(always_right), modes=modes, out=out)
    assert len(out.read_text(encoding="utf-8").splitlines()) == 17
    finished: list[Mode] = []
    model = ScriptedModel(always_right)
    report = evaluate_discriminative(base, QUESTIONS, model, modes=modes, out=out, resume=True, done=finished.append)
    assert finished == modes
    assert len(model.prompts) == 32
    whole = evaluate_discriminative(base, QUESTIONS, ScriptedModel(always_right), modes=modes)
    assert report == whole
    lines = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert list(lines[0]["modes"]) == modes
    assert [line["mode"] for line in lines[1:]] == [mode for mode in modes for _ in range(16)]
    assert [path.name for path in tmp_path.iterdir()] == ["rows.jsonl"]
    # Asking for one mode keeps the others in the file.
    evaluate_discriminative(base, QUESTIONS, ScriptedModel(), modes=["zero-shot"], out=out, resume=True)
    assert len(out.read_text(encoding="utf-8").splitlines()) == 1 + 4 * 16


def test_a_file_that_cannot_be_written_is_found_before_the_model_works(base: KnowledgeBase, tmp_path: FilePath) -> None:
    model = ScriptedModel()
    (tmp_path / "file").write_text("", encoding="utf-8")
    for out, error in ((tmp_path, StoreError), (tmp_path / "file" / "rows.jsonl", DataError)):
        with pytest.raises(error):
            evaluate_discriminative(base, QUESTIONS, model, out=out)
    assert model.prompts == []
    evaluate_discriminative(base, QUESTIONS, model, modes=["zero-shot"], out=tmp_path / "new" / "rows.jsonl")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["rows.jsonl"]


def test_another_run_is_not_overwritten_nor_gone_on_with(base: KnowledgeBase, tmp_path: FilePath) -> None:
    out = tmp_path / "rows.jsonl"
    evaluate_discriminative(base, QUESTIONS, ScriptedModel(), modes=["zero-shot"], out=out)
    before = out.read_bytes()
    with pytest.raises(StoreError, match="is there already; resume it"):
        evaluate_discriminative(base, QUESTIONS, ScriptedModel(), modes=["zero-shot"], out=out)
    with pytest.raises(StoreError, match=r"other settings \(seed was 0 and is now 1\)"):
        evaluate_discriminative(base, QUESTIONS, ScriptedModel(), seed=1, out=out, resume=True)
    renamed = [msgspec.structs.replace(one, question="Which?") for one in QUESTIONS]
    with pytest.raises(StoreError, match="content of the paths was"):
        evaluate_discriminative(base, renamed, ScriptedModel(), out=out, resume=True)
    assert out.read_bytes() == before


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda lines: lines[:-1], "has 15 judgements of zero-shot where 16 are wanted"),
        (lambda lines: lines[1:], ":1: no line of a run"),
        (lambda lines: [*lines, lines[1].replace(b'"zero-shot"', b'"few-shot"')], ":18: a judgement of few-shot"),
        (lambda lines: [lines[0], lines[1][:50], *lines[2:]], ":2: no line of a run"),
        (lambda lines: [lines[0], b"\xff", *lines[2:]], ":2: byte 1 of the line is not UTF-8"),
        (lambda _: [], "is empty"),
        (lambda _: [b"[" * 100_000], ":1: no line of a run"),
    ],
)
def test_a_damaged_file_is_named_with_its_line(
    base: KnowledgeBase, tmp_path: FilePath, change: object, words: str
) -> None:
    out = tmp_path / "rows.jsonl"
    evaluate_discriminative(base, QUESTIONS, ScriptedModel(), modes=["zero-shot"], out=out)
    assert callable(change)
    out.write_bytes(b"".join(line + b"\n" for line in change(out.read_bytes().splitlines())))
    with pytest.raises((DataError, StoreError), match=words):
        evaluate_discriminative(base, QUESTIONS, ScriptedModel(), modes=["zero-shot"], out=out, resume=True)


def test_lone_surrogates_and_other_scripts_come_back_from_disk(tmp_path: FilePath) -> None:
    path = (Triple("\ud800x", "lies in", "東京"), Triple("東京", "river", "隅田川"))
    odd = KnowledgeBase.in_memory(path, HashEncoder())
    asked = [GoldQuestion("\ud801", "\ud802?", ("隅田川",), (path,))]
    out = tmp_path / "rows.jsonl"
    made = [
        evaluate_discriminative(odd, asked, ScriptedModel(), modes=["zero-shot"], out=out, resume=resume)
        for resume in (False, True)
    ]
    assert made[0] == made[1]
    assert made[0].rows[0].item.steps[0].head == "\ud800x"


@pytest.mark.models
def test_the_tiny_model_scores_and_thinks(tiny_models: dict[registry.Role, FilePath], base: KnowledgeBase) -> None:
    from pytrace.models.llama.llama_cpp import LlamaCppModel

    # One mode that scores and one that writes, of which the machine may be slow.
    with LlamaCppModel(tiny_models["language-model"], name="tiny", context=2048, style="plain") as tiny:
        report = evaluate_discriminative(base, QUESTIONS, tiny, limit=1, modes=["few-shot", "zero-shot-cot"])
    few, thinking = report.modes
    assert (few.overall.paths, few.usage.calls, thinking.usage.calls) == (4, 4, 4)
    assert few.overall.undecided == 0
    assert all(row.judgement.probability is not None for row in report.rows[:4])
    assert any(row.judgement.text for row in report.rows[4:])
    # The demonstrations are evaluated once for all paths.
    assert 0 < few.usage.evaluated_tokens < few.usage.prompt_tokens
    assert few.usage.generated_tokens == 0 < thinking.usage.generated_tokens
