"""How well a method labels claims, and what it asked a knowledge base."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from pytrace.evaluation.data.datasets import CLAIM
from pytrace.evaluation.run.run_store import RunRow
from pytrace.evaluation.scores.metrics import exact_match, mean_of, precision_recall_f1
from pytrace.reader.answers import normalise_answer
from pytrace.reader.claims import LABELS
from pytrace.records import KnowledgeQuery, Reasoning
from pytrace.results import Result

NO_LABEL = "(none)"
"""What stands for an answer that is no label, and for a claim at which the method failed."""


class LabelScore(msgspec.Struct, frozen=True):
    """The `n` claims of one gold label: which label each was given, and the label's scores; None where one is not defined."""

    label: str
    n: int
    given: dict[str, int]
    precision: float | None
    recall: float | None
    f1: float | None


class ClaimScores(msgspec.Struct, frozen=True):
    """The labels of one method for `n` claims; `macro_f1` is the mean F1 of the labels that occur, as gold or as given."""

    method: str
    n: int
    accuracy: float
    macro_f1: float
    labels: tuple[LabelScore, ...]


class KnowledgeScores(msgspec.Struct, frozen=True):
    """What a method made of a knowledge base over `n` answered questions."""

    method: str
    n: int
    asked: int  # for how many questions it was asked at all
    informed: int  # how many got a fact
    asked_exact_match: float | None  # the share of right answers where it was asked; None where none has a gold answer
    other_exact_match: float | None  # and where it was not
    queries: dict[str, int]  # by how they ended
    refused: int  # queries tried and refused on the way


def claim_scores(method: str, rows: Sequence[RunRow]) -> ClaimScores | None:
    """Score the labels that a method gave to claims; None if not all results are of labelled claims."""
    # The accuracy is the label accuracy of Thorne et al. (NAACL 2018), section 4; it equals the exact match.
    pairs: list[tuple[str, str]] = []
    for row in rows:
        gold = _label(row.answers[0]) if row.answers else NO_LABEL
        if row.kind != CLAIM or gold == NO_LABEL:
            return None
        pairs.append((gold, NO_LABEL if row.result is None else _label(row.result.answer)))
    if not pairs:
        return None
    labels = []
    for label in LABELS:
        given = [answer for gold, answer in pairs if gold == label]
        counts = {name: given.count(name) for name in (*LABELS, NO_LABEL) if name in given}
        predicted = sum(answer == label for _, answer in pairs)
        scores = precision_recall_f1(given.count(label), predicted, len(given))
        labels.append(LabelScore(label, len(given), counts, *scores))
    # A label that is neither gold nor given has no F1: as 0 it would pull down the mean of a sample that lacks it.
    macro_f1 = mean_of(label.f1 for label in labels).mean or 0.0
    return ClaimScores(
        method, len(pairs), sum(gold == answer for gold, answer in pairs) / len(pairs), macro_f1, tuple(labels)
    )


def _label(text: str) -> str:
    """Return the label that a text is, by the normal form that answers are compared in."""
    forms = {normalise_answer(label): label for label in LABELS}
    return forms.get(normalise_answer(text), NO_LABEL)


def knowledge_scores(method: str, rows: Sequence[RunRow]) -> KnowledgeScores | None:
    """Count what a method asked a knowledge base; None if it asked nothing."""
    # Chain of Knowledge, section 3.3: only uncertain questions are to be asked about.
    answered = [
        (_queries(row.result), exact_match(row.result.answer, row.answers) if row.answers else None)
        for row in rows
        if row.result is not None
    ]
    asked = [(queries, right) for queries, right in answered if queries]
    if not asked:
        return None
    outcomes = Counter(query.outcome for queries, _ in asked for query in queries)
    return KnowledgeScores(
        method=method,
        n=len(answered),
        asked=len(asked),
        informed=sum(any(query.facts for query in queries) for queries, _ in asked),
        asked_exact_match=mean_of(right for _, right in asked).mean,
        other_exact_match=mean_of(right for queries, right in answered if not queries).mean,
        queries={str(outcome): count for outcome, count in outcomes.most_common()},
        refused=sum(len(query.refused) for queries, _ in asked for query in queries),
    )


def _queries(result: Result) -> tuple[KnowledgeQuery, ...]:
    details = result.evidence.details
    return details.queries if isinstance(details, Reasoning) else ()
