"""How well a method labels claims: which label it gave to which, and the recall, precision and F1 of each."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pytrace.evaluation.data.datasets import CLAIM
from pytrace.evaluation.run.run_store import Result
from pytrace.reader.answers import normalise_answer
from pytrace.reader.claims import LABELS

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


def claim_scores(method: str, results: Sequence[Result]) -> ClaimScores | None:
    """Score the labels that a method gave to claims."""
    # The accuracy is the label accuracy of Thorne et al. (NAACL 2018), section 4; it equals the exact match.
    pairs: list[tuple[str, str]] = []
    for one in results:
        gold = _label(one.answers[0]) if one.answers else NO_LABEL
        if one.kind != CLAIM or gold == NO_LABEL:
            return None
        pairs.append((gold, NO_LABEL if one.answer is None else _label(one.answer.text)))
    if not pairs:
        return None
    labels = tuple(_label_score(label, pairs) for label in LABELS)
    defined = [one.f1 for one in labels if one.f1 is not None]
    return ClaimScores(
        method,
        len(pairs),
        accuracy=sum(gold == given for gold, given in pairs) / len(pairs),
        macro_f1=sum(defined) / len(defined),
        labels=labels,
    )


def _label(text: str) -> str:
    """Return the label that a text is, by the normal form that answers are compared in."""
    forms = {normalise_answer(label): label for label in LABELS}
    return forms.get(normalise_answer(text), NO_LABEL)


def _label_score(label: str, pairs: Sequence[tuple[str, str]]) -> LabelScore:
    own = [given for gold, given in pairs if gold == label]
    said = sum(given == label for _, given in pairs)
    right = own.count(label)
    return LabelScore(
        label,
        len(own),
        given={name: own.count(name) for name in (*LABELS, NO_LABEL) if name in own},
        precision=right / said if said else None,
        recall=right / len(own) if own else None,
        f1=2 * right / (said + len(own)) if said or own else None,
    )
