"""Scores of one answer and of the documents chosen for it, and their mean over questions.

Nothing here is ever NaN: a score that is not defined (the precision of an empty choice, the mean of nothing) is None.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from pytrace.documents.languages import letters_apart
from pytrace.errors import InputError
from pytrace.evaluation.run.run_store import RunRow
from pytrace.reader.answers import normalise_answer

_EXACT_ONLY = frozenset({"yes", "no", "noanswer"})


class F1(NamedTuple):
    """F1 with the precision and recall that it is the harmonic mean of."""

    f1: float
    precision: float
    recall: float


class SupportScore(msgspec.Struct, frozen=True):
    """How well the chosen documents are the supporting ones; None where a value is not defined.

    `precision` and `error_rate` need a chosen document, `recall` a supporting one; `f1` needs both, and is 0 if something
    supports but nothing was chosen.
    """

    precision: float | None
    recall: float | None
    f1: float | None
    error_rate: float | None


class RowScore(msgspec.Struct, frozen=True):
    """The scores of one row, from 0 to 1; EM and F1 are None without a gold answer."""

    exact_match: float | None
    f1: float | None
    support: SupportScore


class Mean(msgspec.Struct, frozen=True):
    """Mean and median over the `n` values that are defined; None if there is none."""

    mean: float | None
    median: float | None
    n: int


def exact_match(prediction: str, answers: str | Sequence[str]) -> float:
    """Score 1 if the prediction has the normal form of one of the gold answers, else 0."""
    # Source: `exact_match_score` of HotpotQA's evaluation script (Yang et al., 2018).
    normal = normalise_answer(prediction)
    return float(any(normal == normalise_answer(answer) for answer in _gold(answers)))


def f1_score(prediction: str, answers: str | Sequence[str]) -> F1:
    """Score the words that the prediction shares with the gold answer for which F1 is best."""
    # Where the normal form of either is "yes", "no" or "noanswer", only the same form scores. As in the original, two
    # answers without a word (say, "the" and "a") have F1 0, though they match exactly.
    # Source: `f1_score` of HotpotQA's evaluation script (Yang et al., 2018). In a script without spaces each character is a word, as
    # in CMRC 2018's (Cui et al., 2019).
    return max(_f1(normalise_answer(prediction), normalise_answer(answer)) for answer in _gold(answers))


def _gold(answers: str | Sequence[str]) -> Sequence[str]:
    gold = [answers] if isinstance(answers, str) else answers
    if not gold:
        raise InputError("there is no gold answer to score against; give at least one")
    return gold


def _f1(prediction: str, answer: str) -> F1:
    nothing = F1(0.0, 0.0, 0.0)
    if prediction != answer and (prediction in _EXACT_ONLY or answer in _EXACT_ONLY):
        return nothing
    predicted, gold = letters_apart(prediction).split(), letters_apart(answer).split()
    shared = (Counter(predicted) & Counter(gold)).total()
    if not shared:
        return nothing
    precision, recall = shared / len(predicted), shared / len(gold)
    return F1(2 * precision * recall / (precision + recall), precision, recall)


def support_score(chosen: Collection[str], supporting: Collection[str]) -> SupportScore:
    """Compare the documents that a method chose with the gold supporting ones."""
    chosen_set, gold = set(chosen), set(supporting)
    # With no gold document at all nothing can be said: that a choice is wrong would be a guess.
    if not gold:
        return SupportScore(None, None, None, None)
    precision, recall, f1 = precision_recall_f1(len(chosen_set & gold), len(chosen_set), len(gold))
    return SupportScore(precision, recall, f1, None if precision is None else 1.0 - precision)


def precision_recall_f1(hits: int, chosen: int, gold: int) -> tuple[float | None, float | None, float | None]:
    """Score `hits` of so many chosen and so many gold ones; None where a score is not defined."""
    # F1 straight from the counts: the harmonic mean of two rounded shares would differ in its last digit.
    f1 = 2 * hits / (chosen + gold) if chosen or gold else None
    return hits / chosen if chosen else None, hits / gold if gold else None, f1


def score_row(row: RunRow) -> RowScore:
    """Score one row as a report's means do."""
    support = support_score(() if row.result is None else row.result.evidence.chosen, row.supporting_documents)
    if not row.answers:
        return RowScore(None, None, support)
    # A failed question counts as wrong: a method must not gain by giving up where it is hard.
    if row.result is None:
        return RowScore(0.0, 0.0, support)
    text = row.result.answer
    return RowScore(exact_match(text, row.answers), f1_score(text, row.answers).f1, support)


def ndcg(ranked: Sequence[str], grades: Mapping[str, float], *, depth: int = 10) -> float | None:
    """Return the normalised discounted cumulative gain of a ranking."""
    # A document's gain is its grade, discounted by log2(rank + 1); the sum is divided by that of the best ranking there
    # could be, which holds the documents that were not found, too.
    # Source: Järvelin and Kekäläinen, Cumulated Gain-Based Evaluation of IR Techniques (TOIS 2002), with the gains and
    # the discount of trec_eval's `ndcg_cut`, which BEIR reports (Thakur et al., NeurIPS 2021, section 3.3).
    _check_depth(depth)
    if not all(math.isfinite(grade) for grade in grades.values()):
        raise InputError("a grade is not finite; give whole numbers, 0 for irrelevant documents")
    best = sorted((grade for grade in grades.values() if grade > 0), reverse=True)
    if not best:
        return None
    gains = [max(grades.get(document, 0), 0) for document in dict.fromkeys(ranked)]
    return min(_gain(gains[:depth]) / _gain(best[:depth]), 1.0)


def _gain(grades: Sequence[float]) -> float:
    return math.fsum(grade / math.log2(rank + 1) for rank, grade in enumerate(grades, 1))


def recall_at(ranked: Sequence[str], supporting: Collection[str], depth: int) -> float | None:
    """Return the share of the supporting documents that stand among the first ones of a ranking."""
    _check_depth(depth)
    gold = set(supporting)
    return len(gold.intersection(list(dict.fromkeys(ranked))[:depth])) / len(gold) if gold else None


def _check_depth(depth: int) -> None:
    if depth < 1:
        raise InputError(f"depth is {depth}; at least 1 document of a ranking must count")


def mean_of(values: Iterable[float | None]) -> Mean:
    """Average the values that are defined."""
    defined = np.array([value for value in values if value is not None and not math.isnan(value)], dtype=np.float64)
    if not defined.size:
        return Mean(None, None, 0)
    return Mean(float(defined.mean()), float(np.median(defined)), defined.size)
