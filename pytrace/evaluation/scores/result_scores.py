"""How one result scores by itself: what a report's means are of, for pages and tables with a line a question."""

from __future__ import annotations

import msgspec

from pytrace.evaluation.run.run_store import Result
from pytrace.evaluation.scores.metrics import SupportScore, exact_match, f1_score, support_score


class ResultScore(msgspec.Struct, frozen=True):
    """The scores of an answer and of the documents that it rests on, from 0 to 1.

    A failed question has EM and F1 0 and chose nothing; without a gold answer EM and F1 are None.
    """

    exact_match: float | None
    f1: float | None
    support: SupportScore


def score_result(result: Result) -> ResultScore:
    """Score one result as `pytrace.evaluation.scores.summary` does."""
    chosen = () if result.answer is None else result.answer.evidence.document_ids
    support = support_score(chosen, result.supporting_documents)
    if not result.answers:
        return ResultScore(None, None, support)
    if result.answer is None:
        return ResultScore(0.0, 0.0, support)
    text = result.answer.text
    return ResultScore(exact_match(text, result.answers), f1_score(text, result.answers).f1, support)
