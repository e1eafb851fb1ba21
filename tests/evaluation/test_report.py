"""What a report makes of results: intervals, comparisons with a baseline, questions without answers, and the printed tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
import pytest

from pytrace.cli.report import print_report
from pytrace.engine.findings import answer_result
from pytrace.errors import InputError
from pytrace.evaluation.run.run_store import RunRow, RunStore
from pytrace.evaluation.run.runner import evaluate
from pytrace.evaluation.scores.metrics import Mean
from pytrace.evaluation.scores.significance import bootstrap_interval, paired_bootstrap
from pytrace.evaluation.scores.summary import Report, make_report, score_run
from pytrace.records import Answer, Chain, ChainSearch, Document, Evidence, GraphCounts, Question, Triple
from pytrace.results import Result

DOCUMENTS = tuple(Document(id, id.upper(), (f"The {id} is one.", f"The {id} is two.")) for id in "abcd")
GRADED = Question(
    "graded",
    "Which?",
    (),
    DOCUMENTS,
    supporting_documents=("a", "b", "lost"),
    grades=(("a", 2), ("b", 1), ("lost", 1)),
)
ANSWERED = Question("answered", "Where?", ("Ghana",), DOCUMENTS[:3], ("a",), (("a", 1),))


def chose(*ids: str, text: str = "Ghana", tokens: int = 10, **evidence: Any) -> Callable[[Question], Result]:
    def method(question: Question) -> Result:
        found = Evidence("documents", tuple(f"[{id}] The {id} is two." for id in ids), ids, **evidence)
        answer = Answer(question.question, text, "m", found, context_tokens=tokens)
        return answer_result(answer, {document.id: document for document in DOCUMENTS})

    return method


def rows(right: Sequence[int], **evidence: Any) -> list[RunRow]:
    return [
        RunRow("m", str(at), "?", ("yes",), result=chose(text="yes" if one else "no", **evidence)(ANSWERED))
        for at, one in enumerate(right)
    ]


def printed(report: Report, capsys: pytest.CaptureFixture[str]) -> list[str]:
    print_report(report)
    return capsys.readouterr().out.splitlines()


class TestQuestionsWithoutAnswers:
    def test_em_and_f1_are_of_those_with_answers_alone(self) -> None:
        report = evaluate({"m": chose("a", "b")}, [GRADED, ANSWERED])
        assert (report.methods[0].exact_match, report.methods[0].f1, report.methods[0].n) == (1.0, 1.0, 2)
        alone = evaluate({"m": chose("a", "b")}, [GRADED]).methods[0]
        assert (alone.exact_match, alone.f1, alone.exact_match_interval, alone.f1_interval) == (None,) * 4
        assert alone.supporting_recall.mean == pytest.approx(2 / 3)

    def test_a_kind_without_answers_has_no_score(self) -> None:
        report = evaluate({"m": chose("a")}, [msgspec.structs.replace(GRADED, kind="claimless")])
        assert (report.methods[0].by_kind["claimless"].n, report.methods[0].by_kind["claimless"].f1) == (1, None)

    def test_something_must_be_known_of_a_question(self) -> None:
        with pytest.raises(InputError, match="no gold answer and no supporting document"):
            evaluate({"m": chose("a")}, [Question("q", "?", ())])

    def test_methods_are_compared_by_their_evidence(self) -> None:
        report = evaluate({"m": chose("a", "b", tokens=30), "one": chose("c", tokens=10)}, [GRADED])
        [pair] = report.comparisons
        assert (pair.exact_match.n, pair.f1.difference, pair.exact_match_mcnemar.p_value) == (0, None, None)
        assert pair.supporting_recall.difference == pytest.approx(2 / 3)
        assert (pair.supporting_error_rate.difference, pair.context_tokens.difference) == (-1.0, 20.0)
        assert pair.ndcg.difference == report.methods[0].ranking.ndcg.mean  # type: ignore[union-attr]


class TestRankings:
    def test_ranking_and_pool_by_hand(self) -> None:
        report = evaluate({"m": chose("b", "c", "a")}, [GRADED, ANSWERED])
        ranking, pool = report.methods[0].ranking, report.pool
        assert ranking is not None
        assert pool is not None
        best = 2 + 1 / np.log2(3) + 1 / 2
        assert ranking.ndcg.mean == pytest.approx(((1 + 2 / 2) / best + 1 / 2) / 2)
        assert [ranking.recall[depth].mean for depth in ("1", "3", "100")] == pytest.approx([1 / 6, 5 / 6, 5 / 6])
        assert (ranking.documents.mean, ranking.graded) == (3.0, True)
        assert (pool.relevant, pool.held, pool.documents) == (4, 3, Mean(3.5, 3.5, 2))
        assert pool.recall.mean == pytest.approx((2 / 3 + 1) / 2)
        # No choice among what is given does better.
        everything = evaluate({"m": chose("a", "b", "c", "d")}, [GRADED, ANSWERED]).methods[0]
        assert everything.supporting_recall.mean == pytest.approx(pool.recall.mean)

    def test_without_gold_documents_there_is_neither(self) -> None:
        report = evaluate({"m": chose("a")}, [Question("q", "?", ("x",), DOCUMENTS)])
        assert (report.pool, report.methods[0].ranking) == (None, None)

    def test_a_failed_question_chose_nothing(self) -> None:
        failed = RunRow("m", "graded", "Which?", (), GRADED.supporting_documents, error="too long")
        [one] = make_report({"m": [failed]}, gold=[GRADED]).methods
        assert one.ranking is not None
        assert (one.ranking.ndcg.mean, one.ranking.documents.mean, one.ranking.recall["5"].mean) == (0.0, 0.0, 0.0)


class TestIntervals:
    def test_each_score_has_its_interval(self) -> None:
        scores = [1, 0, 0, 1, 1, 0, 1, 1]
        [one] = make_report({"m": rows(scores)}).methods
        assert one.exact_match_interval == bootstrap_interval(scores) == one.f1_interval
        seeded = make_report({"m": rows(scores)}, seed=1).methods[0]
        assert seeded.f1_interval == bootstrap_interval(scores, seed=1)
        assert make_report({"m": rows([1])}).methods[0].f1_interval is None

    def test_sentences_of_the_context_are_counted(self) -> None:
        [one] = evaluate({"m": chose("a")}, [ANSWERED, GRADED]).methods
        assert one.supporting_sentences == Mean(1.0, 1.0, 1)
        [missed] = evaluate({"m": chose("b")}, [ANSWERED]).methods
        assert missed.supporting_sentences.mean == 0.0


RESULTS = {"weak": rows([0] * 12), "middle": rows([1, 0] * 6), "good": rows([1] * 12)}


class TestBaseline:
    def test_all_others_are_compared_with_it(self) -> None:
        report = make_report(RESULTS, baseline="middle")
        assert report.baseline == "middle"
        assert [(one.first, one.second) for one in report.comparisons] == [("weak", "middle"), ("good", "middle")]
        assert [one.exact_match.difference for one in report.comparisons] == [-0.5, 0.5]
        assert report.comparisons[1].exact_match == paired_bootstrap([1] * 12, [1, 0] * 6)
        assert report.comparisons[1].exact_match_mcnemar.p_value == pytest.approx(2 / 2**6)

    def test_p_values_are_adjusted_for_the_number_of_comparisons(self) -> None:
        two = make_report(RESULTS, baseline="weak").comparisons
        raw = [one.exact_match_mcnemar.p_value for one in two]
        assert raw == pytest.approx([2 / 2**6, 2 / 2**12])
        assert [one.adjusted["exact_match_mcnemar"] for one in two] == pytest.approx([2 / 2**6, 2 * 2 / 2**12])
        assert two[0].adjusted["ndcg"] is None, "there is no gold document"
        every = make_report(RESULTS).comparisons
        assert [(one.first, one.second) for one in every] == [("weak", "middle"), ("weak", "good"), ("middle", "good")]
        assert every[1].adjusted["exact_match_mcnemar"] == pytest.approx(3 * 2 / 2**12)
        [one] = make_report({name: RESULTS[name] for name in ("weak", "good")}).comparisons
        assert one.adjusted == {}, "a single comparison needs no adjustment"

    def test_an_unknown_baseline_is_told_with_the_methods(self) -> None:
        with pytest.raises(
            InputError, match=r"the baseline 'rag' is none of the methods; choose one of weak, middle, good"
        ):
            make_report(RESULTS, baseline="rag")

    def test_a_stored_run_is_reported_as_it_was(self) -> None:
        store = RunStore(":memory:")
        store.open_run({})
        methods = {"m": chose("a", "b"), "other": chose("c", text="Togo")}
        report = evaluate(methods, [GRADED, ANSWERED], store=store, baseline="other")
        assert score_run(store, baseline="other") == report
        assert report.pool is not None
        assert msgspec.json.decode(msgspec.json.encode(report), type=Report) == report
        assert score_run(store, questions=["answered"]).pool.relevant == 1  # type: ignore[union-attr]


class TestText:
    def test_scores_have_intervals_and_what_is_not_defined_a_dash(self, capsys: pytest.CaptureFixture[str]) -> None:
        low, high = bootstrap_interval([1, 0, 0, 1]) or (0, 0)
        lines = printed(make_report({"m": rows([1, 0, 0, 1])}), capsys)
        assert lines[0] == "4 questions"
        assert lines[2].split()[:3] == ["m", "50.0", f"({100 * low:.1f}–{100 * high:.1f})"]
        assert not any("differences" in line for line in lines), "one method differs from none"
        lines = printed(evaluate({"m": chose("a")}, [GRADED]), capsys)
        assert next(line for line in lines if line.startswith("m ")).split()[:3] == ["m", "-", "-"]

    def test_the_pools_ceiling_and_the_ranking_are_told(self, capsys: pytest.CaptureFixture[str]) -> None:
        lines = printed(evaluate({"m": chose("a", "b")}, [GRADED]), capsys)
        assert lines[1] == (
            "methods are given 2 of the 3 supporting documents (66.7 %), 4.0 documents a question on average; "
            "the support recall can be 66.7 at most"
        )
        heads = next(line for line in lines if "NDCG@10" in line)
        assert heads.split() == [
            "METHOD", "CHOSEN", "NDCG@10", "RECALL@1", "RECALL@3", "RECALL@5", "RECALL@10", "RECALL@100"
        ]  # fmt: skip
        gain = 100 * (2 + 1 / np.log2(3)) / (2 + 1 / np.log2(3) + 1 / 2)
        assert lines[lines.index(heads) + 1].split() == ["m", "2.0", f"{gain:.1f}", "33.3", *["66.7"] * 4]

    def test_other_methods_are_printed_beside_the_baseline(self, capsys: pytest.CaptureFixture[str]) -> None:
        lines = printed(make_report(RESULTS, baseline="middle"), capsys)
        start = next(at for at, line in enumerate(lines) if line.startswith("differences"))
        assert lines[start + 1].split() == "METHODS EM P MCNEMAR P F1 P CONTEXT P".split()  # noqa: SIM905
        assert [line.split()[:3] for line in lines[start + 2 :]] == [["weak", "-", "middle"], ["good", "-", "middle"]]
        assert "+50.0 (+25.0 to +75.0)" in lines[start + 3]
        assert "0.0312 (0.0625)" in lines[start + 3], "McNemar's p-value, and Holm's of two"
        lines = printed(make_report(RESULTS), capsys)
        assert [line.split()[2] for line in lines[-2:]] == ["middle", "good"], "the first method's pairs"

    def test_chains_have_a_table_where_there_are_some(self, capsys: pytest.CaptureFixture[str]) -> None:
        one = Chain((Triple("Ada", "is", "Ghana", "a", 1),), (-0.5,), -0.5, False)
        question = msgspec.structs.replace(
            ANSWERED, triples=(Triple("Ada", "country", "Ghana"), Triple("Ho", "country", "Togo"))
        )
        method = chose("a", derivation=ChainSearch((one,), GraphCounts(8, 5, 0.0893)))
        lines = printed(evaluate({"m": method, "none": chose("b")}, [question]), capsys)
        heads = next(at for at, line in enumerate(lines) if "DENSITY %" in line)
        assert lines[heads + 1].split() == ["m", "3.0", "66.7", "8.0", "5.0", "8.93", "1.0", "1.0", "1.0", "0.0"]
        assert lines[heads + 2] == "", "a method without chains has no line"
        assert lines[heads + 5].split() == ["m", "50.0", "50.0", "1", "100.0", "100.0", "100.0", "1"]
