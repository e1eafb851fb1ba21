"""Whether a piece of knowledge is a chain of evidence: it is if every feature of the question is present in it.

Source: "What External Knowledge is Preferred by LLMs? Characterizing and Exploring Chain of Evidence in Imperfect Context",
section 3.2.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pytrace.chain_of_evidence.features import Features, Inquiry, Judge, Probability
from pytrace.records import Feature


class Verdict(msgspec.Struct, frozen=True):
    """Whether a text is a chain of evidence, and what each feature's probability is (None: undecided).

    `missing` are the features that are not present; an undecided one counts as missing. Without any feature nothing can be
    said and `complete` is None.
    """

    complete: bool | None
    features: tuple[Feature, ...]
    probabilities: tuple[Probability, ...]
    missing: tuple[Feature, ...]


class Discriminator:
    """Tells chains of evidence from other knowledge."""

    def __init__(self, judge: Judge, *, threshold: float = 0.5) -> None:
        if not 0 <= threshold <= 1:
            raise ValueError(f"threshold is {threshold}; a probability lies from 0 to 1")
        self._judge = judge
        self.threshold = threshold

    def discriminate(self, knowledge: Sequence[tuple[str, Features, Sequence[str]]]) -> list[list[Verdict]]:
        """Judge (question, its features, texts) in one batch; each text is a whole piece of knowledge."""
        inquiries = [Inquiry(question, features.all, tuple(texts)) for question, features, texts in knowledge]
        judged = self._judge.judge(inquiries)
        return [
            [self._verdict(inquiry.features, row) for row in rows]
            for inquiry, rows in zip(inquiries, judged, strict=True)
        ]

    def _verdict(self, features: tuple[Feature, ...], row: Sequence[Probability]) -> Verdict:
        # Section 3.2: all features must be present, and what is undecided is not known to be.
        missing = tuple(
            feature for feature, value in zip(features, row, strict=True) if value is None or value < self.threshold
        )
        return Verdict(not missing if features else None, features, tuple(row), missing)
