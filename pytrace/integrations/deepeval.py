"""DeepEval: a metric for ``assert_test`` and ``evaluate`` that checks claims by their words, without a judge.

>>> from deepeval.test_case import LLMTestCase
>>> metric = FaithfulnessMetric(threshold=0.8)
>>> metric.measure(
...     LLMTestCase(
...         input="Where is Ada Foah?",
...         actual_output="Ada Foah is in Ghana. It was founded in 1783.",
...         retrieval_context=["Ada Foah is a town in Ghana."],
...     )
... )
0.5
>>> metric.is_successful()
False
>>> print(metric.reason)  # doctest: +ELLIPSIS
1 of 2 claims is supported by the contexts:
  not there (support 0...): It was founded in 1783.
      ...
"""

from __future__ import annotations

from deepeval.metrics import BaseMetric
from deepeval.metrics.utils import check_llm_test_case_params, construct_verbose_logs
from deepeval.test_case import LLMTestCase, RetrievedContextData, SingleTurnParams

from pytrace.certify.claims import ClaimChecker
from pytrace.documents.sentences import split_sentences
from pytrace.integrations.claim_texts import faithfulness
from pytrace.records import Document


class FaithfulnessMetric(BaseMetric):  # type: ignore[misc]  # the package is not there when types are checked
    """The share of claims in ``actual_output`` that ``retrieval_context`` supports, from 0 to 1.

    It stands where DeepEval's metric of this name does, and takes a millisecond a claim or less: no language model is
    asked, nothing is sent anywhere. What it sees and what it does not is said at `pytrace.certify.claims.ClaimChecker`.
    An output that claims nothing scores 0, where theirs scores 1; so does an empty list of contexts.

    Parameters
    ----------
    threshold
        The least score that succeeds, from 0 to 1; with None it only scores.
    include_reason
        Whether `reason` tells the claims that are not supported, each with the nearest evidence.
    async_mode
        As theirs; both ways do the same here.
    strict_mode
        Whether one claim that is not supported makes the score 0 (the threshold is 1 then).
    verbose_mode
        Whether the claims are printed as they are measured.
    flaky
        Whether a failure is only a warning, as theirs.
    """

    _required_params = (SingleTurnParams.ACTUAL_OUTPUT, SingleTurnParams.RETRIEVAL_CONTEXT)
    evaluation_model = "pytrace, by words"  # DeepEval prints it

    # What is given keeps its name as an attribute: DeepEval makes a copy a test case of those.
    def __init__(
        self,
        threshold: float | None = 0.5,
        *,
        include_reason: bool = True,
        async_mode: bool = True,
        strict_mode: bool = False,
        verbose_mode: bool = False,
        flaky: bool = False,
    ) -> None:
        self.threshold = 1 if strict_mode else threshold
        self.include_reason = include_reason
        self.async_mode = async_mode
        self.strict_mode = strict_mode
        self.verbose_mode = verbose_mode
        self.flaky = flaky
        self._checker = ClaimChecker()

    def measure(self, test_case: LLMTestCase, _show_indicator: bool = True, _in_component: bool = False) -> float:
        """Score a test case, and leave `score`, `reason` and `success` on the metric.

        Raises DeepEval's ``MissingTestCaseParamsError`` where the output or the contexts are missing, or the output is empty.
        """
        # Not `metric_progress_indicator`, as in their metrics: it reports each call to DeepEval's makers.
        self.error = self.score = self.reason = self.success = None
        check_llm_test_case_params(test_case, list(self._required_params), None, None, self, None, test_case.multimodal)
        score, reason = faithfulness(
            self._checker,
            test_case.actual_output,
            [_document(number, context) for number, context in enumerate(test_case.retrieval_context)],
        )
        self.score = 0.0 if self.strict_mode and score < 1 else score
        self.reason = reason if self.include_reason else None
        self.success = self.is_successful()
        self.verbose_logs = construct_verbose_logs(self, steps=[reason, f"Score: {self.score}"])
        return self.score

    async def a_measure(
        self, test_case: LLMTestCase, _show_indicator: bool = True, _in_component: bool = False
    ) -> float:
        """Score a test case, as `measure` does."""
        return self.measure(test_case, _show_indicator=_show_indicator, _in_component=_in_component)

    @property
    def __name__(self) -> str:
        """What reports call it; DeepEval's own is "Faithfulness"."""
        return "Faithfulness (pytrace)"


def _document(number: int, context: str | RetrievedContextData) -> str | Document:
    if isinstance(context, str):
        return context
    return Document(str(number), "", tuple(split_sentences(context.context)), context.source)
