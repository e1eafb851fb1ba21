"""DeepEval and RAGAS themselves, as `make evaluators-check` installs them, run our metrics and read what we export."""

from __future__ import annotations

import asyncio
import doctest
import importlib
import json
import math
import os
import socket
import warnings
from importlib.util import find_spec

import pytest

from pytrace.evaluation.run.run_store import RunRow, RunStore
from pytrace.records import Document, Question
from pytrace.report.exports import write_exports
from pytrace.results import Findings, Result, Source

MISSING = [name for name in ("deepeval", "ragas") if find_spec(name) is None]
if MISSING:
    pytest.skip(
        f"{' and '.join(MISSING)} not installed, since they want older packages than the other tests; "
        "`make evaluators-check` has an environment of their own",
        allow_module_level=True,
    )

os.environ["DEEPEVAL_TELEMETRY_OPT_OUT"] = "1"  # before they are imported
os.environ["RAGAS_DO_NOT_TRACK"] = "true"

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # theirs: langchain-community says that it is at its end
    import deepeval
    import ragas
    from deepeval.dataset import EvaluationDataset as CaseDataset
    from deepeval.errors import MissingTestCaseParamsError
    from deepeval.evaluate import AsyncConfig, CacheConfig, DisplayConfig, ErrorConfig
    from deepeval.metrics import BaseMetric
    from deepeval.test_case import ConversationalTestCase, LLMTestCase, MLLMImage, RetrievedContextData, Turn
    from ragas import Dataset, EvaluationDataset, SingleTurnSample, experiment
    from ragas.metrics.base import SingleTurnMetric
    from ragas.metrics.collections.base import BaseMetric as CollectionsMetric

    from pytrace.integrations.deepeval import FaithfulnessMetric
    from pytrace.integrations.ragas import Faithfulness

pytestmark = pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning",  # event loops that both leave open
    "ignore:a?evaluate.. is deprecated:DeprecationWarning",  # RAGAS's two, which it tells to be written as experiments
)

LAKE = "Lake Volta was made in 1965 by the Akosombo Dam. It lies in Ghana."
TRUE = "Lake Volta lies in Ghana."
FALSE = "The Akosombo Dam was made in 1971."
QUIET = DisplayConfig(show_indicator=False, print_results=False, inspect_after_run=False)


@pytest.fixture(autouse=True)
def offline(monkeypatch, tmp_path):
    """Run where nothing is kept, and fail if anything is sent: an attempt may be swallowed by who made it."""
    attempts = []

    def refuse(_socket, address, *_rest):
        attempts.append(address)
        raise OSError("the tests have no network")

    for name in ("OPENAI_API_KEY", "CONFIDENT_API_KEY", "LANGSMITH_TRACING", "LANGCHAIN_TRACING_V2"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket.socket, "connect_ex", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, *_rest, **_options: refuse(None, host))
    monkeypatch.chdir(tmp_path)  # DeepEval keeps runs in the current folder
    yield
    assert attempts == []


def case(output: str | None = TRUE, contexts: list | None = None, **rest) -> LLMTestCase:
    return LLMTestCase(
        input="Where?", actual_output=output, retrieval_context=[LAKE] if contexts is None else contexts, **rest
    )


@pytest.mark.parametrize("name", ["deepeval", "ragas"])
def test_the_module_s_example_is_true(name):
    tried = doctest.testmod(importlib.import_module(f"pytrace.integrations.{name}"))
    assert tried.attempted > 2
    assert tried.failed == 0


class TestDeepEval:
    def test_a_test_case_is_measured_with_score_reason_and_success(self):
        metric = FaithfulnessMetric(threshold=0.6)
        assert isinstance(metric, BaseMetric)
        assert metric.measure(case()) == metric.score == 1.0
        assert (metric.success, metric.is_successful()) == (True, True)
        assert metric.reason == "1 of 1 claims is supported by the contexts"
        assert metric.measure(case(f"{TRUE} {FALSE}")) == 0.5
        assert (metric.success, metric.is_successful()) == (False, False)
        assert metric.reason.startswith("1 of 2 claims is supported by the contexts:\n  contradicted (")
        assert FALSE in metric.reason
        assert "nearest: Lake Volta was made in 1965 by the Akosombo Dam. (context 0)" in metric.reason
        assert TRUE not in metric.reason
        assert (metric.model, metric.evaluation_cost, metric.__name__) == (None, None, "Faithfulness (pytrace)")

    def test_modes_do_what_theirs_do(self, capsys):
        half = case(f"{TRUE} {FALSE}")
        strict = FaithfulnessMetric(threshold=0.2, strict_mode=True)
        assert (strict.threshold, strict.measure(half), strict.success) == (1, 0.0, False)
        assert strict.measure(case()) == 1.0
        without = FaithfulnessMetric(include_reason=False)
        assert (without.measure(half), without.reason, without.success) == (0.5, None, True)
        only_scored = FaithfulnessMetric(threshold=None)
        assert (only_scored.measure(half), only_scored.success) == (0.5, None)
        assert capsys.readouterr().out == ""
        FaithfulnessMetric(verbose_mode=True).measure(half)
        assert FALSE in capsys.readouterr().out

    def test_several_are_measured_at_once(self):
        async def measured() -> list[float]:
            cases = [case(), case(FALSE), case(f"{TRUE} {FALSE}")]
            return await asyncio.gather(*(FaithfulnessMetric().a_measure(each) for each in cases))

        assert asyncio.run(measured()) == [1.0, 0.0, 0.5]

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            (LLMTestCase(input="Where?", retrieval_context=[LAKE]), "'actual_output' cannot be None"),
            (LLMTestCase(input="Where?", actual_output=TRUE), "'retrieval_context' cannot be None"),
            (LLMTestCase(input="Where?"), "'actual_output' and 'retrieval_context' cannot be None"),
            (case(""), "'actual_output' cannot be empty"),
        ],
    )
    def test_what_is_missing_raises_their_error(self, given, message):
        metric = FaithfulnessMetric()
        with pytest.raises(MissingTestCaseParamsError, match=message):
            metric.measure(given)
        assert metric.error is not None
        assert metric.measure(case()) == 1.0
        assert (metric.error, metric.success) == (None, True)

    def test_other_cases_raise_their_error(self):
        with pytest.raises(ValueError, match="not of type 'LLMTestCase'"):
            FaithfulnessMetric().measure(ConversationalTestCase(turns=[Turn(role="user", content="Where?")]))
        image = MLLMImage(dataBase64="AAAA", mimeType="image/png")
        with pytest.raises(ValueError, match="multimodal"):
            FaithfulnessMetric().measure(case(f"{TRUE} {image}"))

    def test_what_shows_nothing_scores_0(self):
        metric = FaithfulnessMetric()
        assert metric.measure(case("It is.")) == 0.0
        assert metric.reason == "the response claims nothing: it has no name, number or other content word"
        for contexts in ([], [""], [" \n"]):
            assert metric.measure(case(TRUE, contexts)) == 0.0
            assert metric.reason.startswith(
                "0 of 1 claims are supported by the contexts, which hold no text:\n  not there"
            )

    def test_contexts_may_have_sources_which_the_reason_names(self):
        metric = FaithfulnessMetric()
        given = [RetrievedContextData(context=LAKE, source="lakes.md"), "Geese fly south."]
        assert metric.measure(case(f"{TRUE} {FALSE}", given)) == 0.5
        assert "(lakes.md)" in metric.reason

    @pytest.mark.parametrize("run_async", [True, False])
    def test_evaluate_takes_many_cases(self, run_async):
        outputs = [TRUE, FALSE, f"{TRUE} {FALSE}", "It is."] * 5
        result = deepeval.evaluate(
            [case(output, name=str(number)) for number, output in enumerate(outputs)],
            [FaithfulnessMetric(threshold=0.5), FaithfulnessMetric(strict_mode=True)],
            async_config=AsyncConfig(run_async=run_async),
            display_config=QUIET,
            cache_config=CacheConfig(write_cache=False),
        )
        found = {
            int(each.name): [(data.score, data.success) for data in each.metrics_data] for each in result.test_results
        }
        expected = [[(1.0, True)] * 2, [(0.0, False)] * 2, [(0.5, True), (0.0, False)], [(0.0, False)] * 2] * 5
        assert [found[number] for number in range(len(outputs))] == expected
        (data, _) = next(each for each in result.test_results if each.name == "1").metrics_data
        assert (data.name, data.threshold, data.error) == ("Faithfulness (pytrace)", 0.5, None)
        assert FALSE in data.reason

    def test_evaluate_skips_or_keeps_errors_as_it_is_told(self):
        given = [LLMTestCase(input="Where?", actual_output=TRUE, name="0"), case(name="1")]

        def evaluated(**errors: bool) -> dict:
            result = deepeval.evaluate(
                given,
                [FaithfulnessMetric()],
                display_config=QUIET,
                cache_config=CacheConfig(write_cache=False),
                error_config=ErrorConfig(**errors),
            )
            return {each.name: each for each in result.test_results}

        with pytest.raises(MissingTestCaseParamsError):
            evaluated()
        kept = evaluated(ignore_errors=True)
        assert "'retrieval_context' cannot be None" in kept["0"].metrics_data[0].error
        assert (kept["0"].success, kept["1"].success) == (False, True)
        assert evaluated(skip_on_missing_params=True)["1"].success

    @pytest.mark.parametrize("run_async", [True, False])
    def test_assert_test_passes_or_tells_the_claim(self, run_async):
        deepeval.assert_test(case(), [FaithfulnessMetric(threshold=1)], run_async=run_async)
        with pytest.raises(AssertionError) as raised:
            deepeval.assert_test(case(f"{TRUE} {FALSE}"), [FaithfulnessMetric(threshold=1)], run_async=run_async)
        assert "Faithfulness (pytrace) (score: 0.5, threshold: 1" in str(raised.value)
        assert FALSE in str(raised.value)


class TestRagas:
    def test_it_is_a_metric_of_both_kinds(self):
        metric = Faithfulness()
        assert isinstance(metric, SingleTurnMetric)
        assert isinstance(metric, CollectionsMetric)
        assert metric.required_columns == {"SINGLE_TURN": {"response", "retrieved_contexts"}}
        assert (metric.name, Faithfulness(name="words").name) == ("pytrace_faithfulness", "words")
        assert metric.validate_result_value(0.5) is None

    def test_evaluate_takes_a_data_set_and_keeps_the_reasons(self):
        outputs = [TRUE, FALSE, f"{TRUE} {FALSE}"] * 20
        rows = [{"user_input": "Where?", "response": each, "retrieved_contexts": [LAKE]} for each in outputs]
        result = ragas.evaluate(EvaluationDataset.from_list(rows), metrics=[Faithfulness()], show_progress=False)
        assert result["pytrace_faithfulness"] == [1.0, 0.0, 0.5] * 20
        assert result.to_pandas()["pytrace_faithfulness"].mean() == pytest.approx(0.5)
        assert "0.5" in str(result)
        reason = result.traces[2]["pytrace_faithfulness"]["claims"]["output"]
        assert reason.startswith("1 of 2 claims is supported by the contexts:\n  contradicted (")
        assert FALSE in reason
        assert "nearest: Lake Volta was made in 1965 by the Akosombo Dam." in reason

    def test_aevaluate_does_too(self):
        rows = [{"response": each, "retrieved_contexts": [LAKE]} for each in (TRUE, FALSE)]
        data = EvaluationDataset.from_list(rows)
        result = asyncio.run(ragas.aevaluate(data, metrics=[Faithfulness()], show_progress=False))
        assert result["pytrace_faithfulness"] == [1.0, 0.0]

    def test_a_sample_is_scored_alone(self):
        sample = SingleTurnSample(response=f"{TRUE} {FALSE}", retrieved_contexts=[LAKE, "Geese fly south."])
        assert Faithfulness().single_turn_score(sample) == 0.5
        assert asyncio.run(Faithfulness().single_turn_ascore(sample)) == 0.5

    def test_the_newer_calls_return_results_with_reasons(self):
        metric = Faithfulness()
        inputs = [{"response": each, "retrieved_contexts": [LAKE]} for each in (TRUE, FALSE, f"{TRUE} {FALSE}")]
        alone = metric.score(user_input="Where?", **inputs[2])
        assert alone.value == asyncio.run(metric.ascore(**inputs[2])).value == 0.5
        assert FALSE in alone.reason
        assert [each.value for each in metric.batch_score(inputs)] == [1.0, 0.0, 0.5]
        assert [each.value for each in asyncio.run(metric.abatch_score(inputs))] == [1.0, 0.0, 0.5]

    def test_an_experiment_takes_it(self):
        data = Dataset("lakes", "inmemory", data=[{"response": each, "contexts": [LAKE]} for each in (TRUE, FALSE)])

        @experiment(backend="inmemory")
        async def checked(row: dict) -> dict:
            result = await Faithfulness().ascore(row["response"], row["contexts"])
            return {**row, "score": result.value, "reason": result.reason}

        assert {row["response"]: row["score"] for row in asyncio.run(checked.arun(data))} == {TRUE: 1.0, FALSE: 0.0}

    @pytest.mark.parametrize(
        ("given", "field"),
        [
            ({"retrieved_contexts": [LAKE]}, "response"),
            ({"response": "", "retrieved_contexts": [LAKE]}, "response"),
            ({"response": TRUE}, "retrieved_contexts"),
        ],
    )
    def test_what_is_missing_raises_as_in_theirs(self, given, field):
        with pytest.raises(ValueError, match=f"^{field} is missing. Please add {field} to the test sample.$"):
            Faithfulness().score(**given)
        with pytest.raises(ValueError, match=f"^{field} is missing"):
            Faithfulness().single_turn_score(SingleTurnSample(**given))

    def test_evaluate_refuses_a_missing_column_and_has_nan_for_a_missing_field(self):
        without = EvaluationDataset.from_list([{"response": TRUE}])
        with pytest.raises(ValueError, match=r"requires the following additional columns \['retrieved_contexts'\]"):
            ragas.evaluate(without, metrics=[Faithfulness()], show_progress=False)
        data = EvaluationDataset.from_list([{"response": TRUE, "retrieved_contexts": [LAKE]}, {"response": TRUE}])
        first, second = ragas.evaluate(data, metrics=[Faithfulness()], show_progress=False)["pytrace_faithfulness"]
        assert first == 1.0
        assert math.isnan(second)
        with pytest.raises(ValueError, match="retrieved_contexts is missing"):
            ragas.evaluate(data, metrics=[Faithfulness()], show_progress=False, raise_exceptions=True)

    def test_what_shows_nothing_scores_0(self):
        assert Faithfulness().score(response="It is.", retrieved_contexts=[LAKE]).value == 0.0
        for contexts in ([], [""]):
            result = Faithfulness().score(response=TRUE, retrieved_contexts=contexts)
            assert result.value == 0.0
            assert "which hold no text" in result.reason


class TestExports:
    """What `pytrace report --export` writes, read by the packages."""

    @pytest.fixture
    def store(self, tmp_path):
        ada = Document("a", "Ada", ("Ada Foah is a town in Ghana.",))
        questions = [
            Question("1", "Where?", ("Ghana", "the Republic"), (ada,), ("a", "gone")),
            Question("2", "Why?", (), ()),
        ]
        source = Source(id="a", document="a", title="Ada", text="Ada Foah is a town in Ghana.", read=True)
        results = [
            Result(
                question="Where?",
                answer="Ada Foah lies in Ghana.",
                evidence=Findings(kind="documents", sources=(source,)),
            ),
            Result(
                question="Why?",
                answer="A line\u2028and \ud800 \U0001f986 another.",
                evidence=Findings(kind="documents"),
            ),
        ]
        with RunStore(tmp_path / "run.sqlite") as store:
            store.open_run({"data": "x"})
            store.keep_questions(questions)
            for question, result in zip(questions, results, strict=True):
                row = RunRow(
                    "trace",
                    question.id,
                    question.question,
                    question.answers,
                    question.supporting_documents,
                    result=result,
                )
                store.save("trace", question.id, row)
            store.save("failed", "1", RunRow("failed", "1", "Where?", (), error="no"))
            yield store

    def test_ragas_reads_its_rows_and_scores_them(self, store, tmp_path):
        path, _ = write_exports(tmp_path, store, "ragas")
        data = EvaluationDataset.from_jsonl(path)
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n")[:-1]]
        assert data == EvaluationDataset.from_list(rows)
        first, second = data
        assert isinstance(first, SingleTurnSample)
        # Each field of a row is one of the sample's: what it does not know it would drop without a word.
        assert [each.model_dump(include=rows[0].keys()) for each in data] == rows
        assert (first.retrieved_context_ids, first.reference) == (["a"], "Ghana")
        assert (second.response.count("\u2028"), second.reference, second.retrieved_contexts) == (1, None, [])
        result = ragas.evaluate(data, metrics=[Faithfulness()], show_progress=False)
        assert result["pytrace_faithfulness"] == [1.0, 0.0]

    def test_ragas_reads_a_file_without_rows(self, store, tmp_path):
        _, failed = write_exports(tmp_path, store, "ragas")
        assert len(EvaluationDataset.from_jsonl(failed)) == 0

    def test_deepeval_reads_its_cases_and_scores_them(self, store, tmp_path):
        path, failed = write_exports(tmp_path, store, "deepeval")
        keys = ("input", "actual_output", "expected_output", "context", "retrieval_context")
        data = CaseDataset()
        data.add_test_cases_from_json_file(str(failed), *keys)
        assert data.test_cases == []
        data.add_test_cases_from_json_file(str(path), *keys)
        assert [each.model_dump(include=set(keys)) for each in data.test_cases] == json.loads(path.read_bytes())
        assert data.test_cases[0].expected_output == "Ghana"
        result = deepeval.evaluate(
            data.test_cases, [FaithfulnessMetric()], display_config=QUIET, cache_config=CacheConfig(write_cache=False)
        )
        assert [each.metrics_data[0].score for each in result.test_results] == [1.0, 0.0]
