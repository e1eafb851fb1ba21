"""What a checker learns from: labelled claims, each with the sentences that the checker without a model chooses for it."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from pytrace.certify.claims.checker import ClaimChecker, evidence_text
from pytrace.certify.claims.entailment_labels import LABELS, SUPPORTED
from pytrace.certify.claims.evaluation import LabelledText, read_labelled
from pytrace.errors import DataError, InputError
from pytrace.records import Document
from pytrace.training.made_claims import make_claims


class CheckerRow(NamedTuple):
    """A claim, its evidence as the model reads it, and the number of its label in `LABELS`."""

    claim: str
    evidence: str
    label: int


class LabelledClaims(NamedTuple):
    """The labelled claims of a file, those of them that a model is asked about, and for these the numbers of their rows."""

    name: str
    labelled: list[LabelledText]
    rows: list[CheckerRow]
    numbers: list[int]


def read_claims(path: Path) -> LabelledClaims:
    """Read labelled claims with their evidence, and choose its sentences as the checker does; without any there is nothing to read.

    Raises
    ------
    DataError
        The file or a row of it cannot be read, or a row has no claim or no evidence.
    """
    labelled = list(read_labelled(path))
    checker = ClaimChecker()
    rows, numbers = [], []
    for number, each in enumerate(labelled):
        if not each.is_claim or each.documents is None:
            raise DataError(
                f"row {number + 1} has no {'evidence' if each.is_claim else 'claim'}; a checker learns from rows with claim, evidence and "
                "label",
                path=path,
            )
        (checked,) = checker.check_claims([each.text], each.documents)
        if checked.evidence:
            rows.append(CheckerRow(each.text, evidence_text(checked.evidence), LABELS.index(each.label)))
            numbers.append(number)
    return LabelledClaims(path.name, labelled, rows, numbers)


def made_rows(documents: Sequence[Document], count: int, *, seed: int) -> list[CheckerRow]:
    """Make claims of documents, with the sentences that the checker chooses for them."""
    checker = ClaimChecker()
    rows = []
    for made in make_claims(documents, count, seed=seed):
        (checked,) = checker.check_claims([made.claim], [made.document])
        if checked.evidence:
            rows.append(CheckerRow(made.claim, evidence_text(checked.evidence), LABELS.index(made.label)))
    return rows


def apart(rows: Sequence[CheckerRow], *, held_out: float, seed: int) -> list[bool]:
    """Say of each row whether it is held out: about this share; those that have a claim or evidence in common stay together."""
    groups = groups_of(rows)
    order = sorted({*groups})
    random.Random(seed).shuffle(order)
    sizes = dict.fromkeys(order, 0)
    for group in groups:
        sizes[group] += 1
    chosen: set[int] = set()
    count = 0
    for group in order:
        if count + sizes[group] <= held_out * len(rows):
            chosen.add(group)
            count += sizes[group]
    return [group in chosen for group in groups]


def groups_of(rows: Sequence[CheckerRow]) -> list[int]:
    """Give rows numbers such that those with a claim or evidence in common, however many rows lie between, have one number."""
    parent = list(range(len(rows)))

    def root(row: int) -> int:
        while parent[row] != row:
            parent[row] = parent[parent[row]]
            row = parent[row]
        return row

    first: dict[tuple[str, str], int] = {}
    for number, row in enumerate(rows):
        for key in (("claim", row.claim), ("evidence", row.evidence)):
            parent[root(number)] = root(first.setdefault(key, number))
    return [root(row) for row in range(len(rows))]


def check_labels(rows: Sequence[CheckerRow]) -> None:
    """Refuse rows from which nothing can be learned: all supported, or none."""
    supported = sum(row.label == SUPPORTED for row in rows)
    if not 0 < supported < len(rows):
        raise InputError(
            f"{supported} of the {len(rows)} claims to learn from are supported; give supported ones and others"
        )


def shared_texts(rows: Iterable[CheckerRow], others: Sequence[CheckerRow]) -> int:
    """Count the rows whose claim or evidence stands in others, too."""
    claims, texts = {row.claim for row in others}, {row.evidence for row in others}
    return sum(row.claim in claims or row.evidence in texts for row in rows)


def rows_hash(rows: Sequence[CheckerRow]) -> str:
    """Return SHA-256 of all that rows say, in hexadecimal."""
    digest = hashlib.sha256()
    for row in rows:
        for part in (row.claim, row.evidence, LABELS[row.label]):
            data = part.encode("utf-8", "surrogatepass")
            digest.update(len(data).to_bytes(8, "little"))
            digest.update(data)
    return digest.hexdigest()
