"""How often a method asked its knowledge base, what came back, and how it did where it asked and where it did not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from pytrace.evaluation.run.run_store import Result
from pytrace.evaluation.scores.metrics import exact_match


class KnowledgeScores(msgspec.Struct, frozen=True):
    """What a method made of a knowledge base over `n` answered questions.

    `asked` counts the questions for which it was asked at all, `informed` those that got a fact; `asked_exact_match` and
    `other_exact_match` are the shares of right answers where it was asked and where not, None where no such question has an answer.
    `queries` counts queries by how they ended, `refused` those that were tried and refused on the way.
    """

    method: str
    n: int
    asked: int
    informed: int
    asked_exact_match: float | None
    other_exact_match: float | None
    queries: dict[str, int]
    refused: int


def knowledge_scores(method: str, results: Sequence[Result]) -> KnowledgeScores | None:
    """Count what a method asked."""
    # Chain of Knowledge, section 3.3: only uncertain questions are to be asked about.
    rows = [
        (
            result.answer.evidence.reasoning.queries,
            exact_match(result.answer.text, result.answers) if result.answers else None,
        )
        for result in results
        if result.answer is not None
    ]
    asked = [(queries, right) for queries, right in rows if queries]
    if not asked:
        return None
    outcomes = Counter(query.outcome for queries, _ in asked for query in queries)
    return KnowledgeScores(
        method=method,
        n=len(rows),
        asked=len(asked),
        informed=sum(any(query.facts for query in queries) for queries, _ in asked),
        asked_exact_match=_mean([right for _, right in asked]),
        other_exact_match=_mean([right for queries, right in rows if not queries]),
        queries={str(outcome): count for outcome, count in outcomes.most_common()},
        refused=sum(len(query.refused) for queries, _ in asked for query in queries),
    )


def _mean(values: Iterable[float | None]) -> float | None:
    defined = [value for value in values if value is not None]
    return sum(defined) / len(defined) if defined else None
