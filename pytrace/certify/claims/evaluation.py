"""How well a checker's verdicts agree with labels that people gave: of claims, or of whole responses."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from pytrace.certify.claims.checker import ClaimChecker, judge_claims
from pytrace.certify.claims.entailment import EntailmentModel
from pytrace.certify.claims.entailment_labels import LABELS, column_of
from pytrace.certify.claims.rows import documents_of_row, text_of_row
from pytrace.check_records import CheckedClaim, ClaimLabel
from pytrace.documents.json_rows import json_rows
from pytrace.documents.rows import Row, id_of, wrong_type
from pytrace.documents.text_files import Place
from pytrace.errors import DataError
from pytrace.evaluation.scores.significance import percentiles
from pytrace.records import Document

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

_RESAMPLES = 1_000
_BINS = 10


class LabelledText(msgspec.Struct, frozen=True):
    """A claim or a response, what it is checked against (None: the row does not say), and its label.

    `kind` is the row's own word for what sort of row it is, "" if it has none.
    """

    id: str
    text: str
    is_claim: bool
    documents: tuple[Document, ...] | None
    label: ClaimLabel
    kind: str


class Verdict(msgspec.Struct, frozen=True):
    """What was found of a labelled text: a response has the worst of its claims, and is supported if it claims nothing."""

    id: str
    kind: str
    label: ClaimLabel
    found: ClaimLabel
    supported: float
    contradicted: float
    claims: tuple[CheckedClaim, ...]


class Share(msgspec.Struct, frozen=True):
    """A figure with its 95 % interval (percentiles of 1,000 bootstrap resamples of the rows)."""

    value: float
    low: float
    high: float


class Agreement(msgspec.Struct, frozen=True):
    """How verdicts agree with labels; "unsupported" is contradicted or not there. What rows of one label cannot tell is None.

    Attributes
    ----------
    n
        Rows.
    balanced_accuracy
        The mean of the shares of supported and of unsupported rows that are found so: 0.5 for chance.
    auroc
        How often a supported row has the higher probability of two, one of each; 0.5 for chance.
    unsupported_f1
        F1 of finding the unsupported ones.
    brier, calibration_error
        Of the probability that a row is supported: mean squared error, and expected calibration error over ten bins.
    confusion
        Rows by label, then by what was found.
    """

    n: int
    balanced_accuracy: Share | None
    auroc: Share | None
    unsupported_f1: float
    brier: float
    calibration_error: float
    confusion: dict[str, dict[str, int]]


def read_labelled(path: Path, *, limit: int | None = None) -> Iterator[LabelledText]:
    """Read labelled claims or responses.

    A row has `label`, and `claim` or a response as `read_response_rows` has it; what it is checked against is `evidence` (sentences, or
    one text) or contexts. `title` is the evidence's.

    Raises
    ------
    DataError
        The file or a row of it cannot be read, with the line.
    """
    number = 0
    for number, (place, row) in enumerate(islice(json_rows(path), limit), 1):
        is_claim = row.get("claim") is not None
        if is_claim and not isinstance(row["claim"], str):
            raise place.error(wrong_type("claim", row["claim"], "a string"))
        text = row["claim"] if is_claim else text_of_row(row, place)
        kind = row.get("kind")
        yield LabelledText(
            id_of(row, place) or str(number),
            text,
            is_claim,
            documents_of_row(row, place),
            _label(row, place),
            kind if isinstance(kind, str) else "",
        )
    if not number:
        raise DataError("holds no row; write one JSON object a line with claim, evidence and label", path=path)


def _label(row: Row, place: Place) -> ClaimLabel:
    label = row.get("label")
    column = column_of(str(label))
    if column is None:
        raise place.error(f"label is {label!r}; give supported, contradicted or not there, or a word for one of them")
    return LABELS[column]


class Judged(NamedTuple):
    """Verdicts, and the claims a second that they took."""

    verdicts: list[Verdict]
    claims_a_second: float


def judge(
    rows: Sequence[LabelledText],
    checker: ClaimChecker,
    documents: Sequence[Document] | Callable[[LabelledText], Sequence[Document]],
    *,
    entailment: EntailmentModel | None = None,
) -> Judged:
    """Check every row, against its own documents if it has some, else against those that are given or found for it.

    Where there is a model of entailment, it decides in the end about all claims at once.
    """
    verdicts: list[Verdict] = []
    shared = () if callable(documents) else documents
    texts: Sequence[Document]
    against: list[Sequence[Document]] = []
    begun = time.perf_counter()
    if shared and not any(row.documents for row in rows):
        claims = [row.text for row in rows if row.is_claim]
        responses = [row.text for row in rows if not row.is_claim]
        of_claims = iter(checker.check_claims(claims, shared))
        of_responses = iter(checker.check_all(responses, shared))
        against = [shared] * len(rows)
        checked = [(next(of_claims),) if row.is_claim else next(of_responses).claims for row in rows]
    else:
        checked = []
        for row in rows:
            texts = row.documents or (documents(row) if callable(documents) else documents)
            against.append(texts)
            checked.append(
                tuple(checker.check_claims([row.text], texts))
                if row.is_claim
                else checker.check(row.text, texts).claims
            )
    if entailment is not None:
        theirs = [texts for texts, claims in zip(against, checked, strict=True) for _ in claims]
        judged = iter(judge_claims([claim for claims in checked for claim in claims], entailment, theirs))
        checked = [tuple(next(judged) for _ in claims) for claims in checked]
    seconds = time.perf_counter() - begun
    verdicts = [_verdict(row, claims) for row, claims in zip(rows, checked, strict=True)]
    return Judged(verdicts, sum(map(len, checked)) / max(seconds, 1e-9))


def _verdict(row: LabelledText, claims: tuple[CheckedClaim, ...]) -> Verdict:
    labels = {claim.label for claim in claims}
    found: ClaimLabel = (
        "contradicted" if "contradicted" in labels else "not there" if "not there" in labels else "supported"
    )
    supported = min((claim.supported for claim in claims), default=1.0)
    contradicted = max((claim.contradicted for claim in claims), default=0.0)
    return Verdict(row.id, row.kind, row.label, found, supported, contradicted, claims)


def agreement(verdicts: Sequence[Verdict], *, seed: int = 0) -> Agreement:
    """Compare verdicts with labels."""
    wanted = np.array([verdict.label == "supported" for verdict in verdicts], dtype=bool)
    found = np.array([verdict.found == "supported" for verdict in verdicts], dtype=bool)
    probabilities = np.array([verdict.supported for verdict in verdicts])
    confusion: dict[str, dict[str, int]] = {}
    for verdict in verdicts:
        row = confusion.setdefault(verdict.label, dict.fromkeys(("supported", "contradicted", "not there"), 0))
        row[verdict.found] += 1
    missed = int((~found).sum() + (~wanted).sum())
    return Agreement(
        len(verdicts),
        _with_interval(lambda rows: balanced_accuracy(found[rows], wanted[rows]), wanted, seed),
        _with_interval(lambda rows: auroc(probabilities[rows], wanted[rows]), wanted, seed),
        2 * int((~found & ~wanted).sum()) / missed if missed else 1.0,
        float(np.square(probabilities - wanted).mean()) if len(verdicts) else 0.0,
        calibration_error(probabilities, wanted),
        confusion,
    )


def _with_interval(figure: Callable[[NDArray[np.int64]], float], wanted: Bools, seed: int) -> Share | None:
    """Return a figure of rows, which need both labels, with its interval: each label's rows are drawn anew."""
    sides = [np.flatnonzero(wanted), np.flatnonzero(~wanted)]
    if not all(map(len, sides)):
        return None
    rng = np.random.default_rng(seed)
    draws = [figure(np.concatenate([rng.choice(side, len(side)) for side in sides])) for _ in range(_RESAMPLES)]
    return Share(figure(np.arange(len(wanted))), *percentiles(np.array(draws)))


def balanced_accuracy(found: Bools, wanted: Bools) -> float:
    """Return the mean of the shares of both sorts of rows that are found to be so; both must be there."""
    return float((found[wanted].mean() + (~found[~wanted]).mean()) / 2)


def auroc(scores: Floats, wanted: Bools) -> float:
    """Return how often a wanted row scores higher than another; ties count half, and both sorts must be there."""
    order = np.argsort(scores, kind="stable")
    _, inverse, counts = np.unique(scores[order], return_inverse=True, return_counts=True)
    ranks = np.empty(len(scores))
    ranks[order] = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    positive = int(wanted.sum())
    return float((ranks[wanted].sum() - positive * (positive + 1) / 2) / (positive * (len(scores) - positive)))


def calibration_error(probabilities: Floats, wanted: Bools) -> float:
    """Return the expected calibration error over ten bins of equal width (Guo et al. 2017, section 2)."""
    bins = np.minimum((probabilities * _BINS).astype(int), _BINS - 1)
    return float(
        sum(
            (bins == number).mean() * abs(wanted[bins == number].mean() - probabilities[bins == number].mean())
            for number in set(bins.tolist())
        )
    )
