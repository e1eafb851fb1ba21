"""What a model that checks claims is shown: claims of each label, with the facts that settle them or do not.

==================  ========================  =================================================
file                loaded by                 shows
==================  ========================  =================================================
``claims.jsonl``    `claim_demonstrations`    facts, a claim, and what they make of the claim
==================  ========================  =================================================
"""

from __future__ import annotations

import os
from typing import Literal, get_args

import msgspec

from pytrace.reader.prompts import load_demonstrations, require_text

ClaimLabel = Literal["SUPPORTS", "REFUTES", "NOT ENOUGH INFO"]
LABELS: tuple[ClaimLabel, ...] = get_args(ClaimLabel)
"""The labels of FEVER, in the order in which probabilities stand."""


class ClaimDemonstration(msgspec.Struct, frozen=True):
    """A claim, sentences that say something about it, and its label."""

    claim: str
    facts: tuple[str, ...]
    label: ClaimLabel


def claim_demonstrations(*, path: str | os.PathLike[str] | None = None) -> tuple[ClaimDemonstration, ...]:
    """Labelled claims, in ours as many of each label, one after the other."""
    # The labels are those of Thorne et al., "FEVER: a Large-scale Dataset for Fact Extraction and VERification" (NAACL
    # 2018).
    return load_demonstrations(path, _ClaimRow, _claim, _CLAIM_SHAPE, shipped="claims.jsonl")


class _ClaimRow(msgspec.Struct, forbid_unknown_fields=True):
    claim: str
    facts: list[str]
    label: ClaimLabel


_CLAIM_SHAPE = '{"claim": text, "facts": [text, ...], "label": "SUPPORTS", "REFUTES" or "NOT ENOUGH INFO"}'


def _claim(row: _ClaimRow) -> ClaimDemonstration:
    require_text("claim", row.claim)
    if not row.facts:
        raise ValueError(f"the claim {row.claim[:80]!r} has no fact; give at least one sentence")
    for name, text in (("claim", row.claim), *(("fact", fact) for fact in row.facts)):
        require_text(name, text)
        if "\n" in text or "\r" in text:
            raise ValueError(f"the {name} {text[:80]!r} has a line break; write it on one line")
    return ClaimDemonstration(row.claim, tuple(row.facts), row.label)
