"""What models and rows call it when a text supports a claim, contradicts it, or does not say."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from pytrace.errors import ModelFileError

SUPPORTED, CONTRADICTED, NOT_THERE = range(3)
"""The columns of probabilities."""

LABELS: tuple[Literal["supported", "contradicted", "not there"], ...] = ("supported", "contradicted", "not there")
"""What they are of."""

# Letters alone, in lower case.
_NAMES = {
    SUPPORTED: "supported supports support entailment entails entailed yes true 1 correct consistent factual faithful",
    CONTRADICTED: "contradicted contradicts contradiction refuted refutes",
    NOT_THERE: "notthere neutral notenoughinfo nei partiallysupported notsupported unsupported notentailment hallucinated hallucination "
    "no false 0 incorrect inconsistent nonfactual unfaithful unrelated unverifiable unknown",
}
_COLUMNS = {name: column for column, names in _NAMES.items() for name in names.split()}
_NO_LETTER = re.compile(r"[\W_]+")
_UNNAMED = re.compile(r"(?:label_?)?[01]", re.IGNORECASE)


def column_of(label: str) -> int | None:
    """Return the column of a label, None for one that nobody knows.

    Examples
    --------
    >>> [column_of(label) for label in ("SUPPORTS", "not_entailment", "Refuted", "LABEL_1")]
    [0, 2, 1, None]
    """
    return _COLUMNS.get(_NO_LETTER.sub("", label.casefold()))


def columns_of(labels: Sequence[str], where: object, *, first_supported: bool = False) -> list[int]:
    """Return the column of each of a model's labels; two without names say no and yes, or yes and no (`first_supported`)."""
    columns = [column_of(label) for label in labels]
    if len(labels) == 2 and all(_UNNAMED.fullmatch(label) for label in labels):
        return [SUPPORTED, NOT_THERE] if first_supported else [NOT_THERE, SUPPORTED]
    known = [column for column in columns if column is not None]
    if len(known) == len(columns) and len(columns) > 1 and known.count(SUPPORTED) == 1:
        return known
    raise ModelFileError(
        f"{where} has the label{'s' * (len(labels) != 1)} {', '.join(label[:40] for label in labels[:5])}, of which not one says that a "
        "claim is supported and the others that it is not; name a model of entailment, or name its labels entailment, contradiction and "
        "neutral, or supported and unsupported, in its config.json (id2label)"
    )
