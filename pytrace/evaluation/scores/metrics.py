"""Scores of answers and of the documents chosen for them.

Nothing here is ever NaN: a score that is not defined (the precision of an empty choice, the mean of nothing) is None.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from pytrace.errors import InputError
from pytrace.reader.answers import normalise_answer

__all__ = [
    "F1",
    "Mean",
    "SupportScore",
    "exact_match",
    "f1_score",
    "mean_of",
    "ndcg",
    "normalise_answer",
    "recall_at",
    "support_score",
]

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


class Mean(msgspec.Struct, frozen=True):
    """Mean and median over the `n` values that are defined; None if there is none."""

    mean: float | None
    median: float | None
    n: int


def exact_match(prediction: str, answers: str | Sequence[str]) -> float:
    """Score 1 if the prediction has the normal form of one of the gold answers, else 0.

    Parameters
    ----------
    prediction
        The answer to score.
    answers
        The gold answer, or several of which the best counts.

    Returns
    -------
    float
        0.0 or 1.0.

    Raises
    ------
    InputError
        There is no gold answer.

    Notes
    -----
    Source: `exact_match_score` of HotpotQA's evaluation script (Yang et al., 2018).

    Examples
    --------
    >>> exact_match("the Greater Accra region", ["Greater Accra Region", "Accra"])
    1.0
    """
    normal = normalise_answer(prediction)
    return float(any(normal == normalise_answer(answer) for answer in _gold(answers)))


def f1_score(prediction: str, answers: str | Sequence[str]) -> F1:
    """Score the words that the prediction shares with the gold answer for which F1 is best.

    Where the normal form of either is "yes", "no" or "noanswer", only the same form scores. As in the original, two
    answers without a word (say, "the" and "a") have F1 0, though they match exactly.

    Parameters
    ----------
    prediction
        The answer to score.
    answers
        The gold answer, or several.

    Returns
    -------
    F1
        F1, precision and recall, each from 0 to 1.

    Raises
    ------
    InputError
        There is no gold answer.

    Notes
    -----
    Source: `f1_score` of HotpotQA's evaluation script (Yang et al., 2018).

    Examples
    --------
    >>> f1_score("Accra city", ["Kumasi", "the Accra Region"])
    F1(f1=0.5, precision=0.5, recall=0.5)
    """
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
    predicted, gold = prediction.split(), answer.split()
    shared = (Counter(predicted) & Counter(gold)).total()
    if not shared:
        return nothing
    precision, recall = shared / len(predicted), shared / len(gold)
    return F1(2 * precision * recall / (precision + recall), precision, recall)


def support_score(chosen: Collection[str], supporting: Collection[str]) -> SupportScore:
    """Compare the documents that a method chose with the gold supporting ones.

    Parameters
    ----------
    chosen
        Ids of the documents in the evidence; repeats count once.
    supporting
        Ids of the gold supporting documents.

    Returns
    -------
    SupportScore
        Precision, recall, F1, and the error rate: the share of chosen documents that do not support.

    Notes
    -----
    With no gold document at all nothing can be said, and all four are None.

    Examples
    --------
    >>> support_score(["a", "b", "c", "d"], ["a", "e"])
    SupportScore(precision=0.25, recall=0.5, f1=0.3333333333333333, error_rate=0.75)
    """
    chosen_set, gold = set(chosen), set(supporting)
    if not gold:
        return SupportScore(None, None, None, None)
    hits = len(chosen_set & gold)
    recall = hits / len(gold)
    if not chosen_set:
        return SupportScore(None, recall, 0.0, None)
    precision = hits / len(chosen_set)
    f1 = 2 * hits / (len(chosen_set) + len(gold))
    return SupportScore(precision, recall, f1, 1.0 - precision)


def ndcg(ranked: Sequence[str], grades: Mapping[str, float], *, depth: int = 10) -> float | None:
    """Return the normalised discounted cumulative gain of a ranking.

    A document's gain is its grade, discounted by log2(rank + 1); the sum is divided by that of the best ranking there could
    be, which holds the documents that were not found, too.

    Parameters
    ----------
    ranked
        Ids of documents, best first; a repeated one counts at its first place and takes none behind it.
    grades
        How relevant each document is. What has no grade or one of 0 or less is irrelevant.
    depth
        How many documents count.

    Returns
    -------
    float or None
        From 0 to 1; None if no document is relevant.

    Raises
    ------
    InputError
        `depth` is below 1, or a grade is not finite.

    Notes
    -----
    Source: Järvelin and Kekäläinen, Cumulated Gain-Based Evaluation of IR Techniques (TOIS 2002), with the gains and the
    discount of trec_eval's `ndcg_cut`, which BEIR reports (Thakur et al., NeurIPS 2021, section 3.3).

    Examples
    --------
    >>> round(ndcg(["b", "x", "a"], {"a": 2, "b": 1}), 4)
    0.7602
    """
    _check_depth(depth)
    if not all(math.isfinite(grade) for grade in grades.values()):
        raise InputError("a grade is not finite; give whole numbers, 0 for irrelevant documents")
    best = sorted((grade for grade in grades.values() if grade > 0), reverse=True)
    if not best:
        return None
    found = [max(grades.get(one, 0), 0) for one in dict.fromkeys(ranked)]
    return min(_gain(found[:depth]) / _gain(best[:depth]), 1.0)


def _gain(grades: Sequence[float]) -> float:
    return math.fsum(grade / math.log2(rank + 1) for rank, grade in enumerate(grades, 1))


def recall_at(ranked: Sequence[str], supporting: Collection[str], depth: int) -> float | None:
    """Return the share of the supporting documents that stand among the first ones of a ranking.

    Parameters
    ----------
    ranked
        Ids of documents, best first; repeats count once.
    supporting
        Ids of the gold supporting documents.
    depth
        How many documents count.

    Returns
    -------
    float or None
        None if there is no supporting document.

    Raises
    ------
    InputError
        `depth` is below 1.

    Examples
    --------
    >>> recall_at(["a", "x", "b"], ["a", "b", "c"], 2)
    0.3333333333333333
    """
    _check_depth(depth)
    gold = set(supporting)
    return len(gold.intersection(list(dict.fromkeys(ranked))[:depth])) / len(gold) if gold else None


def _check_depth(depth: int) -> None:
    if depth < 1:
        raise InputError(f"depth is {depth}; at least 1 document of a ranking must count")


def mean_of(values: Iterable[float | None]) -> Mean:
    """Average the values that are defined.

    Parameters
    ----------
    values
        Numbers; None and NaN are left out.

    Returns
    -------
    Mean
        Mean, median and count of what is left.

    Examples
    --------
    >>> mean_of([1.0, None, 2.0, 6.0])
    Mean(mean=3.0, median=2.0, n=3)
    """
    defined = np.array([value for value in values if value is not None and not math.isnan(value)], dtype=np.float64)
    if not defined.size:
        return Mean(None, None, 0)
    return Mean(float(defined.mean()), float(np.median(defined)), defined.size)
