"""RAGAS: a metric for ``evaluate``, and for its experiments, that checks claims by their words, without a judge.

>>> metric = Faithfulness()
>>> result = metric.score(
...     response="Ada Foah is in Ghana. It was founded in 1783.",
...     retrieved_contexts=["Ada Foah is a town in Ghana."],
... )
>>> result.value
0.5
>>> print(result.reason)  # doctest: +ELLIPSIS
1 of 2 claims is supported by the contexts:
  not there (support 0...): It was founded in 1783.
      ...
"""

from __future__ import annotations

from collections.abc import Sequence

from langchain_core.callbacks import Callbacks
from ragas import RunConfig, SingleTurnSample
from ragas.callbacks import ChainType, new_group
from ragas.metrics.base import MetricType, SingleTurnMetric
from ragas.metrics.collections.base import BaseMetric
from ragas.metrics.result import MetricResult

from pytrace.certify.claims import ClaimChecker
from pytrace.integrations.claim_texts import faithfulness


class Faithfulness(SingleTurnMetric, BaseMetric):  # type: ignore[misc]  # the package is not there when types are checked
    """The share of claims in ``response`` that ``retrieved_contexts`` support, from 0 to 1.

    It is a metric of both kinds that RAGAS has: ``ragas.evaluate`` takes it for single-turn samples, and `score`, `ascore`,
    ``batch_score`` and ``abatch_score`` are those of ``ragas.metrics.collections``. It takes a millisecond a claim or less:
    no language model is asked, nothing is sent anywhere. What it sees and what it does not is said at
    `pytrace.certify.claims.ClaimChecker`. A response that claims nothing scores 0, where theirs is NaN; so does an
    empty list of contexts.

    Parameters
    ----------
    name
        What results call it; RAGAS's own is "faithfulness".
    """

    def __init__(self, name: str = "pytrace_faithfulness") -> None:
        BaseMetric.__init__(self, name=name, allowed_values=(0.0, 1.0))
        self.required_columns = {MetricType.SINGLE_TURN: {"response", "retrieved_contexts"}}
        self._checker = ClaimChecker()

    def init(self, run_config: RunConfig) -> None:
        """Do nothing: there is no model to set up."""

    async def ascore(
        self,
        response: str | None = None,
        retrieved_contexts: Sequence[str] | None = None,
        user_input: str | None = None,  # noqa: ARG002 (RAGAS's own takes it, too)
    ) -> MetricResult:
        """Score a response; the result's ``reason`` tells the claims that are not supported, with the nearest evidence.

        Raises
        ------
        ValueError
            The response is missing or empty, or the contexts are missing, as of RAGAS's own metrics.
        """
        for field, missing in (("response", not response), ("retrieved_contexts", retrieved_contexts is None)):
            if missing:
                raise ValueError(f"{field} is missing. Please add {field} to the test sample.")
        assert response is not None
        assert retrieved_contexts is not None
        score, reason = faithfulness(self._checker, response, retrieved_contexts)
        return MetricResult(value=score, reason=reason)

    async def _single_turn_ascore(self, sample: SingleTurnSample, callbacks: Callbacks) -> float:
        result = await self.ascore(sample.response, sample.retrieved_contexts)
        # A score is a number here; the reason goes where RAGAS keeps what a metric did: result.traces[row][name]["claims"]["output"].
        run, _ = new_group(
            "claims", inputs={"data": sample.response}, callbacks=callbacks, metadata={"type": ChainType.RAGAS_PROMPT}
        )
        run.on_chain_end({"output": result.reason})
        return float(result.value)
