"""The evaluation store and runner: nothing lost or redone after kill -9, settings held to, costs and scores summed up."""

from __future__ import annotations

import json
import math
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pytrace.errors import ContextOverflowError, DataError, InputError, MissingDependencyError, StoreError
from pytrace.evaluation.run.run_store import RunRow, RunStore, file_settings
from pytrace.evaluation.run.runner import Batched, Progress, evaluate
from pytrace.evaluation.scores.summary import Report, score_run
from pytrace.records import (
    Coverage,
    Feature,
    FeatureCover,
    GraphCounts,
    KnowledgeQuery,
    Question,
    Reasoning,
    Triple,
    Usage,
    WrittenTriples,
)
from pytrace.results import EvidenceChain, Findings, Result, Source, Step
from pytrace.storage import sqlite
from tests.scripted_methods import read

QUESTIONS = [
    Question("q1", "Where is Ada Foah?", ("Ghana",), supporting_documents=("d1", "d2"), kind="bridge"),
    Question("q2", "Is it a town?", ("yes",), supporting_documents=("d1",), kind="comparison"),
    Question("q3", "Which region?", ("Greater Accra", "Accra Region"), supporting_documents=("d3",), kind="bridge"),
]


def answer(question: Question, text: str, documents: Sequence[str] = (), **options: Any) -> Result:
    return Result(question=question.question, answer=text, method="m", evidence=read("", *documents), **options)


def good(question: Question) -> Result:
    return answer(
        question,
        question.answers[0],
        question.supporting_documents,
        usage={"read": Usage(1, 100, 40, 5, 1, 0.5), "search": Usage(3, 300, 60, 0, 2, 0.25)},
        seconds={"read": 0.5, "search": 0.3},
        context_tokens=20,
    )


def weak(question: Question) -> Result:
    if question.id == "q2":
        raise ContextOverflowError("the prompt has 9,000 tokens and the context 2,048")
    return answer(question, "in Ghana", ("d1", "d9"), usage={"read": Usage(1, 100, 100, 3)}, context_tokens=10)


class TestReport:
    def test_hand_computed_summary(self) -> None:
        report = evaluate({"good": good, "weak": weak}, QUESTIONS)
        best, worse = report.methods
        assert (report.questions, best.n, best.failed, best.exact_match, best.f1) == (3, 3, 0, 1.0, 1.0)
        assert best.supporting_precision.mean == best.supporting_recall.mean == 1.0
        assert best.supporting_error_rate.mean == 0.0
        assert (best.calls.total, best.prompt_tokens.total, best.evaluated_tokens.median) == (12, 1200, 100)
        assert (best.generated_tokens.mean, best.evaluated_share, best.context_tokens.mean) == (5, 0.25, 20)
        assert best.evaluated_share_by_question.median == 0.25
        assert best.seconds_by_stage == pytest.approx({"read": 1.5, "search": 0.9})
        assert best.usage_by_stage["search"] == Usage(9, 900, 180, 0, 6, 0.75)
        assert best.seconds.total == pytest.approx(2.4)

        # "in Ghana" shares one word of two with "Ghana" and none with q3's answers; q2 failed.
        assert (worse.n, worse.failed, worse.exact_match) == (3, 1, 0.0)
        assert worse.f1 == pytest.approx((2 / 3) / 3)
        # q1: d1 of d1, d9 supports; q3: none does; q2 chose nothing, so has a recall but no precision.
        assert (worse.supporting_precision.mean, worse.supporting_precision.n) == (0.25, 2)
        assert (worse.supporting_error_rate.mean, worse.supporting_error_rate.n) == (0.75, 2)
        assert (worse.supporting_recall.mean, worse.supporting_recall.n) == (pytest.approx(0.5 / 3), 3)
        assert (worse.evaluated_tokens.total, worse.evaluated_tokens.n) == (200, 2)
        assert [(f.question_id, f.error) for f in worse.failures] == [
            ("q2", "ContextOverflowError: the prompt has 9,000 tokens and the context 2,048")
        ]
        assert worse.by_kind["bridge"].n == 2
        assert worse.by_kind["bridge"].f1 == pytest.approx(1 / 3)

    def test_every_two_methods_are_compared_on_the_same_questions(self) -> None:
        report = evaluate({"good": good, "weak": weak, "again": good}, QUESTIONS)
        assert [(c.first, c.second) for c in report.comparisons] == [
            ("good", "weak"),
            ("good", "again"),
            ("weak", "again"),
        ]
        first, same, _ = report.comparisons
        assert (first.exact_match.difference, first.exact_match_mcnemar.only_first) == (1.0, 3)
        assert first.exact_match_mcnemar.p_value == 0.25
        assert (same.f1.difference, same.f1.p_value) == (0.0, 1.0)

    def test_a_report_is_json_and_back_without_nan(self) -> None:
        def nothing(question: Question) -> Result:
            return answer(question, "")

        report = evaluate({"good": good, "nothing": nothing}, [Question("q", "?", ("x",))])
        encoded = msgspec.json.encode(report)
        assert b"NaN" not in encoded
        assert msgspec.json.decode(encoded, type=Report) == report
        empty = report.methods[1]
        assert (empty.supporting_precision.mean, empty.evaluated_share) == (None, None)
        assert report.comparisons[0].f1.p_value is None, "one question decides nothing"


class TestFailures:
    def test_a_failed_question_is_kept_and_not_asked_again_unless_wanted(self, tmp_path: Path) -> None:
        asked: list[str] = []

        def method(question: Question) -> Result:
            asked.append(question.id)
            return weak(question)

        for retry_failed, expected in [(False, ["q1", "q2", "q3"]), (False, []), (True, ["q2"])]:
            asked.clear()
            with RunStore(tmp_path / "run.sqlite") as store:
                store.open_run({}, resume=True)
                report = evaluate({"weak": method}, QUESTIONS, store=store, retry_failed=retry_failed)
                assert store.failed("weak") == {"q2"}
            assert asked == expected
            assert (report.methods[0].n, report.methods[0].failed) == (3, 1)

    def test_other_exceptions_end_it_with_earlier_answers_safe(self, tmp_path: Path) -> None:
        def broken(question: Question) -> Result:
            if question.id == "q3":
                raise ZeroDivisionError
            return good(question)

        store = RunStore(tmp_path / "run.sqlite")
        store.open_run({})
        with pytest.raises(ZeroDivisionError):
            evaluate({"broken": broken}, QUESTIONS, store=store)
        store.close()
        assert RunStore(tmp_path / "run.sqlite").done("broken") == {"q1", "q2"}

    def test_errors_of_the_set_up_end_it_at_once(self) -> None:
        def method(_: Question) -> Result:
            raise MissingDependencyError("onnxruntime is not installed; pip install pytrace-rag[cpu]")

        with pytest.raises(MissingDependencyError):
            evaluate({"m": method}, QUESTIONS)

    def test_one_bad_question_of_a_batch_fails_alone(self) -> None:
        batches: list[int] = []

        def together(questions: Sequence[Question]) -> list[Result]:
            batches.append(len(questions))
            return [weak(question) for question in questions]

        seen: list[Progress] = []
        report = evaluate({"m": Batched(together, size=2)}, QUESTIONS, progress=seen.append)
        assert batches == [2, 1, 1, 1]
        assert [f.question_id for f in report.methods[0].failures] == ["q2"]
        assert [(p.done, p.total, p.failed) for p in seen] == [(0, 3, 0), (2, 3, 1), (3, 3, 1)]

    def test_misuse_is_told(self) -> None:
        with pytest.raises(InputError, match="0 methods and 3 questions"):
            evaluate({}, QUESTIONS)
        with pytest.raises(InputError, match="'q1' occurs twice"):
            evaluate({"good": good}, [QUESTIONS[0], QUESTIONS[0]])
        with pytest.raises(InputError, match="no gold answer"):
            evaluate({"good": good}, [Question("q", "?", ())])
        with pytest.raises(InputError, match="the baseline 'weak' is none of the methods; choose one of good"):
            evaluate({"good": good}, QUESTIONS, baseline="weak")
        with pytest.raises(InputError, match="batch size of m is 0"):
            evaluate({"m": Batched(lambda _: [], size=0)}, QUESTIONS)
        with pytest.raises(ValueError, match="gave 0 answers to 3 questions"):
            evaluate({"m": Batched(lambda _: [])}, QUESTIONS)
        with pytest.raises(TypeError, match="gave a NoneType"):
            evaluate({"m": lambda _: None}, QUESTIONS)  # type: ignore[arg-type, return-value]


def full(details: FeatureCover | WrittenTriples | Reasoning | None) -> Result:
    step = Step(source=0, sentence="A b c.", sentence_index=0, triple=("a", "b", "c"), answer=(0, 1), probability=0.0)
    chain = EvidenceChain(steps=(step,), rank=1, score=-math.inf, ended=False)
    source = Source(id="d", document="d", title="D", text="A b c.", votes=2, relevance=0.5, characters=(3, 9))
    return Result(
        question="?",
        answer="Ghana \ud800 สิงห์ \x00",
        confidence=0.71,
        certainty="medium",
        method="m",
        evidence=Findings(
            kind="triples",
            chains=(chain,),
            sources=(source,),
            context=("<a; b; c>",),
            details=details,
            graph=GraphCounts(2, 1, 0.5),
        ),
        notes=("note",),
        usage={"s": Usage(1, 2, 3)},
        seconds={"s": 0.5},
        context_tokens=7,
    )


def overwrite(path: Path, statement: str, value: object) -> None:
    """Change a run, checksums included."""
    with sqlite.connect(str(path)) as connection:
        connection.execute(statement, (value,))
    connection.close()


class TestStore:
    @pytest.mark.parametrize(
        "details",
        [
            None,
            FeatureCover((Coverage(Feature("node", "x"), (0.5, None), (0,), (0,)),), (("d", 0), ("e", -1))),
            WrittenTriples((Triple("a", "b", "c"),)),
            Reasoning(("a thought",), (KnowledgeQuery(0, "?", "facts.ttl"),)),
        ],
    )
    def test_what_is_stored_comes_back_whole(
        self, details: FeatureCover | WrittenTriples | Reasoning | None, tmp_path: Path
    ) -> None:
        row = RunRow("m", "q \udfff", "?", ("x",), ("d",), "bridge", full(details))
        with RunStore(tmp_path / "run.sqlite") as store:
            store.open_run({"a": 1}, notes={"path": "x"})
            store.save("m", row.question_id, row)
        with RunStore(tmp_path / "run.sqlite") as store:
            assert list(store.rows("m")) == [row]
            assert (store.methods(), store.settings, store.notes) == (["m"], {"a": 1}, {"path": "x"})

    def test_stored_answers_are_scored_again_without_a_model(self, tmp_path: Path) -> None:
        with RunStore(tmp_path / "run.sqlite") as store:
            store.open_run({"data": "x"})
            report = evaluate({"good": good, "weak": weak}, QUESTIONS, store=store)
        assert score_run(RunStore(tmp_path / "run.sqlite")) == report
        assert score_run(RunStore(tmp_path / "run.sqlite"), methods=["weak"], questions=["q1"]).methods[0].n == 1

    def test_a_longer_run_goes_on_from_a_shorter_and_reports_only_what_was_asked(self, tmp_path: Path) -> None:
        seen: list[Progress] = []
        with RunStore(tmp_path / "run.sqlite") as store:
            store.open_run({}, resume=True)
            evaluate({"good": good}, QUESTIONS[:2], store=store)
            report = evaluate({"good": good}, QUESTIONS, store=store, progress=seen.append)
            assert report.methods[0].n == 3
            assert [(p.done, p.resumed) for p in seen] == [(2, 2), (3, 2)]
            assert evaluate({"good": good}, QUESTIONS[:1], store=store).questions == 1

    def test_other_settings_are_refused_and_named(self, tmp_path: Path) -> None:
        before = {"data": {"sha256": "aa", "bytes": 5}, "model": "tiny", "k": 20, "old": True, "same": [1, 2]}
        now = {"data": {"sha256": "bb", "bytes": 5}, "model": "tiny", "k": 15, "new": None, "same": [1, 2]}
        with RunStore(tmp_path / "run.sqlite") as store:
            store.open_run(before)
            evaluate({"good": good}, QUESTIONS[:1], store=store)
        with RunStore(tmp_path / "run.sqlite") as store, pytest.raises(StoreError) as caught:
            store.open_run(now, resume=True)
        message = str(caught.value)
        for part in (
            'data.sha256 was "aa" and is now "bb"',
            "k was 20 and is now 15",
            "old was true and is now absent",
            "new was absent and is now null",
        ):
            assert part in message
        assert "bytes" not in message
        assert "same" not in message
        assert caught.value.exit_code == 2
        with RunStore(tmp_path / "run.sqlite") as store:
            store.open_run(dict(reversed(before.items())), resume=True, notes={"moved": 1})
            assert store.done("good") == {"q1"}
            assert store.notes == {"moved": 1}

    def test_a_run_with_results_is_not_begun_anew_but_an_empty_one_is(self, tmp_path: Path) -> None:
        with RunStore(tmp_path / "a" / "run.sqlite") as store:
            store.open_run({"k": 1})
            store.open_run({"k": 2})
            evaluate({"good": good}, QUESTIONS[:1], store=store)
            with pytest.raises(StoreError, match="already holds a run with 1 results; resume it"):
                store.open_run({"k": 2})

    def test_one_process_writes_and_others_read(self, tmp_path: Path) -> None:
        path = tmp_path / "run.sqlite"
        with RunStore(path) as store:
            store.open_run({})
            evaluate({"good": good}, QUESTIONS[:1], store=store)
            with RunStore(path) as second:
                assert second.done("good") == {"q1"}
                with pytest.raises(StoreError, match="call open_run"):
                    second.save("good", "q2", RunRow("good", "q2", "?", ("x",)))
                with pytest.raises(StoreError, match="being written by another process"):
                    second.open_run({}, resume=True)
        with RunStore(path) as third:
            third.open_run({}, resume=True)

    def test_an_id_that_now_means_another_question_is_refused(self, tmp_path: Path) -> None:
        with RunStore(tmp_path / "run.sqlite") as store:
            store.open_run({})
            evaluate({"good": good}, QUESTIONS, store=store)
            with pytest.raises(StoreError, match="another question under the id 'q1'"):
                evaluate({"good": good}, [Question("q1", "Other?", ("x",))], store=store)

    def test_unusable_files_are_told(self, tmp_path: Path) -> None:
        (tmp_path / "text").write_text("not a database, but long enough to be told from an empty file " * 20)
        with sqlite3.connect(tmp_path / "other") as other:
            other.execute("CREATE TABLE t (x)")
        other.close()
        (tmp_path / "empty").touch()
        for name, says in {"text": "not a run store", "other": "is not a run of format 6", ".": "cannot be"}.items():
            with pytest.raises(StoreError, match=says):
                RunStore(tmp_path / name).open_run({})
        for name, says in {"none": "no run is stored", "empty": "holds no run yet", "text": "not a run store"}.items():
            with pytest.raises(StoreError, match=says):
                RunStore(tmp_path / name).done("m")
        with pytest.raises(StoreError, match="cannot be written"):
            RunStore(tmp_path / "text" / "below").open_run({})

    @pytest.mark.parametrize("column", ["settings", "notes"])
    @pytest.mark.parametrize("value", ["", "[]", "null", "3", "{", '{"a": ' * 5_000, "1" * 5_000, b"\xff", 7])
    def test_damaged_settings_are_told(self, column: str, value: object, tmp_path: Path) -> None:
        path = tmp_path / "run.sqlite"
        with RunStore(path) as store:
            store.open_run({"k": 1})
            evaluate({"good": good}, QUESTIONS[:1], store=store)
        overwrite(path, f"UPDATE run SET {column} = ?", value)
        with RunStore(path) as store, pytest.raises(StoreError, match=f"its record of {column} cannot be read") as told:
            score_run(store)
        assert "\n" not in str(told.value)
        if column == "settings":
            with RunStore(path) as store, pytest.raises(StoreError):
                store.open_run({"k": 2}, resume=True)

    @pytest.mark.parametrize("damage", [b"CREATE T\xdcBLE", b"CRE\nTE TABLE", b"CREATE TABLEX("])
    def test_a_damaged_schema_is_told_in_a_line(self, damage: bytes, tmp_path: Path) -> None:
        path = tmp_path / "run.sqlite"
        with RunStore(path) as store:
            store.open_run({})
            evaluate({"good": good}, QUESTIONS[:1], store=store)
        path.write_bytes(path.read_bytes().replace(b"CREATE TABLE", damage))
        with RunStore(path) as store, pytest.raises(StoreError, match="is damaged") as told:
            score_run(store)
        assert "\n" not in str(told.value)

    @pytest.mark.parametrize(
        "record", ["", "[]", "{}", "7", '{"result": 3}', '{"method": "m", "question_id": "q1", "question": "?", "answers": [], "result": {}}',
                   "[" * 5_000, 7, b"\xff"],
    )  # fmt: skip
    def test_damaged_results_are_told(self, record: object, tmp_path: Path) -> None:
        path = tmp_path / "run.sqlite"
        with RunStore(path) as store:
            store.open_run({})
            evaluate({"good": good}, QUESTIONS[:1], store=store)
        overwrite(path, "UPDATE result SET record = ?", record)
        with (
            RunStore(path) as store,
            pytest.raises(StoreError, match="result of good for question 'q1' cannot be read"),
        ):
            score_run(store)

    def test_what_was_changed_in_place_is_told_and_not_read(self, tmp_path: Path) -> None:
        path = tmp_path / "run.sqlite"
        with RunStore(path) as store:
            store.open_run({"a": 1})
            evaluate({"good": good}, QUESTIONS, store=store)
            assert store.verify() >= 2 * len(QUESTIONS) + 1
        content = path.read_bytes()
        for changed in (b'"result": {', QUESTIONS[0].question.encode()):
            place = content.index(changed) + len(changed) // 2
            path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
            with RunStore(path) as store, pytest.raises(StoreError, match="is damaged"):
                assert [*store.rows("good"), *store.questions()]
            with RunStore(path) as store, pytest.raises(StoreError, match="is damaged"):
                store.verify()

    @pytest.mark.parametrize("settings", [{"a": math.nan}, {"a": object()}, {"a": {1, object()}}])
    def test_settings_that_are_no_json_are_refused(self, settings: dict[str, object]) -> None:
        with pytest.raises(InputError, match="JSON values"):
            RunStore(":memory:").open_run(settings)

    def test_files_are_described_by_their_content(self, tmp_path: Path) -> None:
        (tmp_path / "a").write_bytes(b"abc")
        digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        assert file_settings(tmp_path / "a") == {"bytes": 3, "sha256": digest}
        with pytest.raises(DataError, match="cannot be read"):
            file_settings(tmp_path / "b")


WORKER = """
import sys, time
from pytrace.evaluation.run.runner import Batched, RunStore, evaluate
from pytrace.records import Question
from pytrace.results import Findings, Result

store_path, log_path, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
log = open(log_path, "a", buffering=1)

def one(method):
    def ask(question):
        log.write(f"{method} {question.id}\\n")
        time.sleep(0.004)
        evidence = Findings(kind="documents", context=("x" * 20000,))
        return Result(question=question.question, answer="yes", method=method, evidence=evidence)
    return ask

questions = [Question(f"q{i}", f"Question {i}?", ("yes",)) for i in range(count)]
with RunStore(store_path) as store:
    store.open_run({"count": count}, resume=True)
    batched = Batched(lambda batch: [one("b")(question) for question in batch], size=4)
    evaluate({"a": one("a"), "b": batched}, questions, store=store)
print("finished")
"""


def test_kill_9_at_any_time_loses_and_redoes_nothing(tmp_path: Path) -> None:
    path, log, count = tmp_path / "run.sqlite", tmp_path / "log", 60
    command = [sys.executable, "-c", WORKER, str(path), str(log), str(count)]
    log.touch()
    kills = 0
    asked_before = 0
    done_before: set[tuple[str, str]] = set()
    for more in (1, 7, 26, 33, 58, 75):
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        deadline = time.monotonic() + 60
        while len(log.read_text().splitlines()) < asked_before + more and process.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.001)
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
            kills += 1
        process.communicate()

        asked = [tuple(line.split()) for line in log.read_text().splitlines()]
        assert not done_before & set(asked[asked_before:]), "a stored answer was asked for again"
        with RunStore(path) as store:
            done = {(method, question) for method in store.methods() for question in store.done(method)}
        assert done_before <= done, "a stored answer was lost"
        # What was asked before the call in flight (one question, or a batch of four) is stored.
        assert set(asked[:-4]) <= done
        asked_before, done_before = len(asked), done
    assert kills >= 3

    finished = subprocess.run(command, capture_output=True, text=True, check=True)
    assert finished.stdout == "finished\n"
    asked = [tuple(line.split()) for line in log.read_text().splitlines()]
    assert set(asked) == {(method, f"q{i}") for method in "ab" for i in range(count)}
    assert len(asked) <= 2 * count + 4 * kills
    with RunStore(path) as store:
        for method in "ab":
            assert [r.question_id for r in store.rows(method)] == [f"q{i}" for i in range(count)]
            assert all(r.result is not None and r.result.answer == "yes" for r in store.rows(method))
        connection = sqlite3.connect(path)
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert json.loads(connection.execute("SELECT settings FROM run").fetchone()[0]) == {"count": count}
        connection.close()
