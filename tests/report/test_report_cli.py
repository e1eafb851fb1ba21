"""`pytrace report`: pages and tables of a run that is there, without a model; tables that no spreadsheet takes for formulas."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest

from pytrace.cli import main
from pytrace.errors import StoreError
from pytrace.evaluation.run.run_store import RunStore
from pytrace.evaluation.scores.summary import Report, make_report, score_run
from pytrace.report.csv_tables import COLUMNS, csv_lines, write_csv_tables
from tests.example_runs import HOSTILE, METHODS, fill_run

FILES = ["comparisons.csv", "methods.csv", "questions.csv", "report.html"]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    with RunStore(tmp_path / "run" / "run.sqlite") as store:
        fill_run(store, 5)
    return tmp_path / "run"


def call(*arguments: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["report", *map(str, arguments)])
    assert isinstance(ended.value.code, int)
    return ended.value.code


def table(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def test_a_page_and_tables_are_written_beside_the_run(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(run) == 0
    out = capsys.readouterr().out
    assert "5 questions" in out
    assert "trace" in out
    for name in FILES:
        assert f"written: {run / name}" in out
        assert (run / name).stat().st_size > 100
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "<h1>hotpot &lt;b&gt;.jsonl</h1>" in page
    assert "Each method beside trace<" in page


def test_files_elsewhere_with_another_baseline_and_title(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(path.name for path in run.iterdir())
    assert call(run, "--out", tmp_path / "new" / "place", "--baseline", "cok", "--title", "Mine") == 0
    capsys.readouterr()
    assert sorted(path.name for path in (tmp_path / "new" / "place").iterdir()) == FILES
    assert {name for name in before if not name.startswith("run.sqlite")} == set()
    page = (tmp_path / "new" / "place" / "report.html").read_text(encoding="utf-8")
    assert "<h1>Mine</h1>" in page
    assert "Each method beside cok<" in page
    pairs = [(row["first"], row["second"]) for row in table(tmp_path / "new" / "place" / "comparisons.csv")]
    assert pairs == [(name, "cok") for name in METHODS if name != "cok"]


def test_json_is_the_report_alone(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(run, "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert [one["method"] for one in report["methods"]] == list(METHODS)
    assert report["methods"][0]["exact_match"] == 0.8
    assert (run / "report.html").exists()


def test_a_run_that_is_being_written_is_reported_and_files_are_replaced(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (run / "methods.csv").write_text("old")
    with RunStore(run / "run.sqlite") as writer:
        writer.open_run(RunStore(run / "run.sqlite").settings, resume=True)
        assert call(run) == 0
    capsys.readouterr()
    assert [row["method"] for row in table(run / "methods.csv")] == list(METHODS)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["missing"], "missing holds no run (there is no run.sqlite in it)"),
        (["run", "--baseline", "rag"], "has no method 'rag'; it has trace, trace-doc, scope-coe, cok"),
        (["empty"], "has no answers yet"),
        (["broken"], "is not a run store"),
    ],
)
def test_what_cannot_be_reported_is_told_in_a_sentence(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], says: str
) -> None:
    monkeypatch.chdir(run.parent)
    with RunStore("empty/run.sqlite") as store:
        store.open_run({})
    Path("broken").mkdir()
    Path("broken/run.sqlite").write_text("no database, but long enough to be told from an empty file " * 20)
    assert call(*arguments) in {1, 2}
    heard = capsys.readouterr()
    assert says in heard.err
    assert heard.err.count("\n") == 1
    assert heard.out == ""
    assert not (run / "report.html").exists()


def written(count: int, directory: Path) -> tuple[Report, list[Path]]:
    with RunStore(":memory:") as store:
        fill_run(store, count)
        report = score_run(store)
        return report, write_csv_tables(directory, report, store)


def test_tables_have_a_row_a_method_a_pair_and_an_answer(tmp_path: Path) -> None:
    report, (methods, comparisons, questions) = written(5, tmp_path)
    rows = table(methods)
    assert list(rows[0]) == list(COLUMNS["methods"])
    assert [float(row["exact_match"]) for row in rows] == [one.exact_match for one in report.methods]
    assert (rows[2]["failed"], rows[3]["supporting_error_rate"]) == ("1", "")
    rows = table(comparisons)
    assert list(rows[0]) == list(COLUMNS["comparisons"])
    assert len(rows) == 6
    assert float(rows[0]["f1_difference"]) == report.comparisons[0].f1.difference
    assert float(rows[0]["exact_match_p_holm"]) == report.comparisons[0].adjusted["exact_match"]
    rows = table(questions)
    assert list(rows[0]) == list(COLUMNS["questions"])
    assert len(rows) == 20
    assert (rows[1]["method"], rows[1]["question_id"], rows[1]["answer"], rows[1]["exact_match"]) == (
        "trace",
        "q1",
        "London",
        "1.0",
    )
    assert rows[1]["gold_answers"] == "London | City of London"
    assert rows[1]["chosen_documents"] == "d0 | d2"
    assert (rows[13]["answer"], rows[13]["chains"]) == ("", "")
    assert rows[13]["error"].startswith("ContextOverflowError")


def test_a_mean_of_a_table_is_that_of_its_rows(tmp_path: Path) -> None:
    report, (_, _, questions) = written(7, tmp_path)
    rows = table(questions)
    for one in report.methods:
        f1 = [float(row["f1"]) for row in rows if row["method"] == one.method]
        assert sum(f1) / len(f1) == pytest.approx(one.f1)


@pytest.mark.parametrize(
    "text",
    [
        "=1+1",
        "+1",
        "-1",
        "@SUM(A1)",
        "\t=1",
        "\r=1",
        "\n=1",
        "＝1",
        "  =1",
        "\u202e=1",
        "\ufeff=1",
        "=cmd|' /C calc'!A0",
        "a;=1",
        "a; \u202e@x",
        "a\n=1",
    ],
)
def test_a_text_that_a_spreadsheet_would_take_for_a_formula_has_an_apostrophe(text: str) -> None:
    (line,) = csv_lines([text], [])
    ((cell,),) = (
        csv.reader([line], strict=True) if "\n" not in text and "\r" not in text else [next(csv.reader([line]))]
    )
    # A spreadsheet set to another separator begins cells within it.
    begun = [part.lstrip(" \u202e\ufeff") for part in re.split("[;\t\r\n]", cell)]
    assert cell.replace("'", "") == text.replace("'", "")
    assert "'" in cell
    assert not any(part.startswith(("=", "+", "-", "@", "＝")) for part in begun)


def test_numbers_and_harmless_texts_stay_as_they_are(tmp_path: Path) -> None:
    (_, line) = csv_lines(["a"], [[-0.5, 3, None, 'Accra, "x"', "a=b", HOSTILE]])
    assert next(csv.reader([line])) == [
        "-0.5",
        "3",
        "",
        'Accra, "x"',
        "a=b",
        HOSTILE.replace("\ud800", "\ufffd").replace("\0", "\ufffd"),
    ]
    _, (_, _, questions) = written(2, tmp_path)
    assert {row["answer"] for row in table(questions) if row["method"] == "scope-coe"} == {"'=HYPERLINK(1)"}


def test_tables_of_nothing_are_heads_alone(tmp_path: Path) -> None:
    with RunStore(":memory:") as store:
        store.open_run({})
        paths = write_csv_tables(tmp_path, make_report({}), store)
    assert [path.read_text().count("\n") for path in paths] == [1, 1, 1]


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with RunStore(":memory:") as store:
        store.open_run({})
        with pytest.raises(StoreError, match="cannot write"):
            write_csv_tables(tmp_path / "none", make_report({}), store)
