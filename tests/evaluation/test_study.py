"""How answers to perturbed questions are matched, counted and tested, and what the tables and curves show."""

from __future__ import annotations

import itertools
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from scipy import stats

from pytrace.errors import InputError, LogitsUnavailableError, MissingDependencyError
from pytrace.evaluation.run.run_store import RunRow, RunStore
from pytrace.evaluation.run.runner import evaluate
from pytrace.evaluation.scores.matching import FuzzyMatcher, ModelMatcher, Pair
from pytrace.evaluation.scores.study import Study, draw_curves, study_rows, study_tables
from pytrace.evaluation.scores.summary import make_report
from pytrace.models.language_model import OptionScores, Prompt
from pytrace.models.scripted import ScriptedModel
from pytrace.records import Perturbation, Question
from pytrace.results import Findings, Result

NOTHING = Findings(kind="documents")
NUMBERS = itertools.count()


def result(
    kind: str, noise: str, ratio: float, given: str | None, *, hops: int = 2, wrong: str = "Peru", right: str = "Ghana"
) -> RunRow:
    done = Perturbation(
        "q", kind, noise, ratio, ratio, 0, hops=hops, wrong_answer="" if noise == "irrelevant" else wrong  # type: ignore[arg-type]
    )  # fmt: skip
    found = None if given is None else Result(question="Where?", answer=given, evidence=NOTHING)
    return RunRow("rag", f"q{next(NUMBERS)}", "Where?", (right,), result=found, perturbation=done)


def results(kind: str, noise: str, ratio: float, right: int, wrong: int, neither: int = 0) -> list[RunRow]:
    given = ["Ghana"] * right + ["in Peru"] * wrong + ["Chad"] * neither
    return [result(kind, noise, ratio, one) for one in given]


def study(rows: Sequence[RunRow]) -> Study:
    found = study_rows("rag", rows)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("given", "answer", "same"),
    [
        ("the Greater-Accra region.", "Greater Accra Region", True),
        ("It lies in Ghana, I think", "Ghana", True),
        ("Ghana", "Ghana (country)", False),
        ("York", "New York", False),
        ("Ada Foa", "Ada Foah", True),
        ("Barack Hussein Obama", "Barack Obama", True),
        ("1785", "1784", False),
        ("September 29, 1785", "September 29, 1784", False),
        ("it was 29 September 1784", "September 29, 1784", True),
        ("19,134", "39,134", False),
        ("no", "Norway", False),
        ("Norway", "no", False),
        ("No, they were not.", "no", True),
        ("yes and no", "no", False),
        ("There is no such town", "no", False),
        ("", "Ghana", False),
        ("!?", "Ghana", False),
        ("Ghana", "", False),
        ("\ud800", "Ghana", False),
        ("oar", "ear", False),
    ],
)
def test_answers_are_matched_by_their_words(given: str, answer: str, same: bool) -> None:
    assert FuzzyMatcher().match([Pair("?", given, (answer,))]) == [same]


def test_one_of_several_answers_is_enough_and_none_is_not() -> None:
    pairs = [Pair("?", "Accra", ("Ghana", "Accra")), Pair("?", "Accra", ("Ghana",)), Pair("?", "Accra", ())]
    assert FuzzyMatcher().match(pairs) == [True, False, False]
    assert FuzzyMatcher(threshold=100).match([Pair("?", "Ada Foa", ("Ada Foah",))]) == [False]
    with pytest.raises(InputError, match="threshold is 101"):
        FuzzyMatcher(threshold=101)
    with pytest.raises(InputError, match="threshold is nan"):
        FuzzyMatcher(threshold=math.nan)


class YesIf(ScriptedModel):
    """Says yes where a text stands in the prompt's last block."""

    def __init__(self, *texts: str, scores: tuple[float, float] = (-0.1, -3.0)) -> None:
        super().__init__()
        self.texts = texts
        self.scores = scores
        self.calls = 0

    def score_options(self, prompts: Sequence[Prompt | str], options: Sequence[Sequence[str]]) -> list[OptionScores]:
        assert all(tuple(one) == ("yes", "no") for one in options)
        self.calls += 1
        found = []
        for prompt in prompts:
            assert isinstance(prompt, Prompt)
            self.prompts.append(prompt.input)
            yes = any(text in prompt.input for text in self.texts)
            found.append(OptionScores(np.array(self.scores if yes else self.scores[::-1]), 0.0))
        return found


def test_a_model_matches_by_yes_and_no_in_one_call_and_is_not_asked_what_is_equal() -> None:
    model = YesIf("First answer: United States\nSecond answer: America")
    pairs = [
        Pair("Where?", "America", ("the States", "United States")),
        Pair("Where?", "Canada", ("United States",)),
        Pair("Where?", "united states.", ("United States",)),
        Pair("Where?", "  ", ("United States",)),
        Pair("Where?", "America", ()),
    ]
    assert ModelMatcher(model).match(pairs) == [True, False, True, False, False]
    assert (model.calls, len(model.prompts)) == (1, 3)
    assert model.prompts[0].startswith("Question: Where?\n")
    assert ModelMatcher(YesIf()).match([]) == []


def test_a_tie_or_nothing_told_is_no_match() -> None:
    pair = Pair("Where?", "America", ("United States",))
    assert ModelMatcher(YesIf("", scores=(-1.0, -1.0))).match([pair]) == [False]
    assert ModelMatcher(YesIf("", scores=(-math.inf, -math.inf))).match([pair]) == [False]
    assert ModelMatcher(YesIf("", scores=(math.nan, math.nan))).match([pair]) == [False]
    with pytest.raises(LogitsUnavailableError, match="FuzzyMatcher"):
        ModelMatcher(ScriptedModel(gives_logits=False))


def test_accuracy_and_following_rate_are_shares_of_all_rows() -> None:
    rows = [*results("coe", "misinformation", 0.5, 3, 1), result("coe", "misinformation", 0.5, None)]
    (cell,) = study(rows).cells
    assert (cell.n, cell.failed, cell.accuracy, cell.following, cell.p_value) == (5, 1, 0.6, 0.2, None)
    (cell,) = study(results("coe", "irrelevant", 0.5, 1, 1)).cells
    assert (cell.accuracy, cell.following) == (0.5, None)


def test_every_kind_is_tested_against_whole_chains_of_the_same_noise_and_ratio() -> None:
    rows = [
        *results("coe", "irrelevant", 0.0, 18, 2),
        *results("senp", "irrelevant", 0.0, 5, 15),
        *results("wordp", "irrelevant", 0.0, 17, 3),
        *results("coe", "irrelevant", 0.5, 1, 1),
        *results("senp", "swapped", 0.0, 1, 1),
    ]
    cells = {(one.kind, one.noise, one.ratio): one for one in study(rows).cells}
    expected = stats.mannwhitneyu([1] * 5 + [0] * 15, [1] * 18 + [0] * 2, alternative="two-sided").pvalue
    assert cells["senp", "irrelevant", 0.0].p_value == pytest.approx(expected)
    assert expected < 0.001
    assert (cells["wordp", "irrelevant", 0.0].p_value or 0) > 0.5
    assert cells["coe", "irrelevant", 0.0].p_value is None
    assert cells["senp", "swapped", 0.0].p_value is None  # there is no whole chain beside it


def test_swapped_chains_are_tested_by_the_wrong_answer() -> None:
    rows = [*results("coe", "swapped", 0.0, 0, 20), *results("senp", "swapped", 0.0, 0, 4, 16)]
    cells = study(rows).cells
    assert [cell.accuracy for cell in cells] == [0.0, 0.0]
    assert cells[1].p_value is not None
    assert cells[1].p_value < 0.001


def test_a_test_of_nothing_but_equal_scores_is_none_and_never_nan() -> None:
    rows = [*results("coe", "irrelevant", 0.0, 3, 0), *results("senp", "irrelevant", 0.0, 3, 0)]
    assert [cell.p_value for cell in study(rows).cells] == [None, None]
    assert b"NaN" not in msgspec.json.encode(study(rows))


def test_hops_are_counted_apart_and_three_stands_for_more() -> None:
    rows = [
        result("coe", "irrelevant", 0.0, given, hops=hops)
        for given, hops in (("Ghana", 1), ("x", 2), ("Ghana", 3), ("x", 5))
    ]
    split = {one.hops: (one.n, one.share) for one in study(rows).hops}
    assert split == {1: (1, 1.0), 2: (1, 0.0), 3: (2, 0.5)}
    assert study([result("coe", "irrelevant", 0.0, "x", hops=0)]).hops[0].hops == 1


def test_without_perturbed_questions_there_is_no_study() -> None:
    plain = RunRow("rag", "q", "Where?", ("Ghana",), result=Result(question="Where?", answer="Ghana", evidence=NOTHING))
    assert study_rows("rag", [plain]) is None
    assert study_rows("rag", []) is None
    mixed = study([plain, result("coe", "irrelevant", 0.0, "Ghana")])
    assert mixed.cells[0].n == 1


def test_another_matcher_decides() -> None:
    class Everything:
        def match(self, pairs: Sequence[Pair]) -> list[bool]:
            return [True] * len(pairs)

    found = study_rows("rag", results("coe", "irrelevant", 0.0, 0, 1, 1), matcher=Everything())
    assert found is not None
    # Where there is no wrong answer nothing can follow it, whatever a matcher says.
    assert (found.cells[0].accuracy, found.cells[0].following) == (1.0, None)


def test_a_missing_scipy_names_the_extra_and_only_where_there_is_something_to_test(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "scipy.stats", None)
    assert study(results("coe", "irrelevant", 0.0, 1, 1)).cells
    with pytest.raises(MissingDependencyError, match=r"pytrace-rag\[eval\]"):
        study([*results("coe", "irrelevant", 0.0, 1, 1), *results("senp", "irrelevant", 0.0, 1, 1)])


WHOLE = [
    *results("coe", "irrelevant", 0.0, 18, 2),
    *results("senp", "irrelevant", 0.0, 5, 15),
    *results("coe", "irrelevant", 0.5, 15, 5),
    *results("coe", "swapped", 0.5, 1, 3),
    *results("coe", "misinformation", 0.5, 1, 3),
]


def test_tables_have_a_row_a_ratio_and_a_star_where_a_kind_differs() -> None:
    irrelevant, swapped, misinformation = study_tables(study(WHOLE))
    assert irrelevant.columns == ("RATIO", "CoE", "SenP", "ROWS")
    assert irrelevant.rows == (("0", "90.0", "25.0*", "40"), ("0.5", "75.0", "-", "20"))
    assert "ACC" in irrelevant.title
    assert "FR" in swapped.title
    assert swapped.rows == (("0.5", "75.0", "4"),)
    assert misinformation.rows == (("0.5", "25.0", "4"),)


def test_hops_have_a_table_where_there_are_several() -> None:
    rows = [result("coe", "irrelevant", 0.25, "Ghana", hops=hops) for hops in (1, 2, 2, 4)]
    tables = study_tables(study([*rows, result("senp", "irrelevant", 0.25, "x")]))
    assert tables[1].columns == ("RATIO", "1 HOP (ROWS)", "2 HOPS (ROWS)", "3+ HOPS (ROWS)")
    assert tables[1].rows == (("0.25", "100.0 (1)", "100.0 (2)", "100.0 (1)"),)
    assert study_tables(Study("rag", (), ())) == []


def test_curves_are_drawn_as_png_and_svg(tmp_path: Path) -> None:
    one = msgspec.structs.replace(study(WHOLE), method="../trace doc")
    paths = draw_curves(one, tmp_path / "plots")
    assert {path.name for path in paths} == {
        f"trace-doc-{noise}.{kind}" for noise in ("irrelevant", "swapped", "misinformation") for kind in ("png", "svg")
    }
    assert {path.parent for path in paths} == {tmp_path / "plots"}
    for path in paths:
        assert path.read_bytes().startswith(b"\x89PNG" if path.suffix == ".png" else b"<?xml")
    assert draw_curves(Study("rag", (), ()), tmp_path) == []


def test_a_missing_matplotlib_names_the_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingDependencyError, match=r"pytrace-rag\[eval\]"):
        draw_curves(study(WHOLE), tmp_path)


def test_an_evaluation_carries_what_was_done_to_a_question_and_reports_the_study(tmp_path: Path) -> None:
    done = Perturbation("q", "senp", "misinformation", 0.5, 0.49, 3, wrong_answer="Peru", injected={"d": "model"})
    asked = [
        Question("q1", "Where?", ("Ghana",), perturbation=done),
        Question("q2", "Where now?", ("Ghana",), perturbation=msgspec.structs.replace(done, kind="coe")),
    ]
    guesses: dict[str, Any] = {"guess": lambda asked: Result(question=asked.question, answer="Peru", evidence=NOTHING)}
    with RunStore(tmp_path / "run.sqlite") as store:
        store.open_run({})
        report = evaluate(guesses, asked, store=store)
        assert [row.perturbation for row in store.rows("guess")] == [one.perturbation for one in asked]
    (found,) = report.studies
    assert found.method == "guess"
    assert [(cell.kind, cell.accuracy, cell.following) for cell in found.cells] == [
        ("coe", 0.0, 1.0),
        ("senp", 0.0, 1.0),
    ]
    json.loads(msgspec.json.encode(report))
    plain = [msgspec.structs.replace(one, perturbation=None) for one in asked]
    assert evaluate(guesses, plain).studies == ()


def test_a_report_takes_a_matcher_for_its_studies() -> None:
    class Nothing:
        def match(self, pairs: Sequence[Pair]) -> list[bool]:
            return [False] * len(pairs)

    rows = {"rag": results("coe", "irrelevant", 0.0, 2, 0)}
    assert make_report(rows).studies[0].cells[0].accuracy == 1.0
    assert make_report(rows, matcher=Nothing()).studies[0].cells[0].accuracy == 0.0


@pytest.mark.models
def test_the_tiny_model_matches_answers(tiny_models: dict[str, Path]) -> None:
    from pytrace.models.llama.llama_cpp import LlamaCppModel

    tiny = LlamaCppModel(tiny_models["language-model"], name="tiny", context=1024)
    pairs = [Pair("Where is Accra?", given, ("Ghana",)) for given in ("ghana", "", "Peru")]
    first, second, third = ModelMatcher(tiny).match(pairs)
    assert (first, second) == (True, False)
    assert isinstance(third, bool)
