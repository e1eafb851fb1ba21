"""The features of a question, and what judges of them have in common.

Source: "What External Knowledge is Preferred by LLMs? Characterizing and Exploring Chain of Evidence in Imperfect Context",
section 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from pytrace.records import Feature

# None stands for "undecided": the judge could not tell, which is no number and never NaN.
Probability = float | None


class Features(msgspec.Struct, frozen=True):
    """A question's intent (empty if none was found), evidence nodes, and relations between pairs of them."""

    intent: str = ""
    nodes: tuple[str, ...] = ()
    relations: tuple[Feature, ...] = ()

    @property
    def all(self) -> tuple[Feature, ...]:
        """Every feature: the intent, the relations, the nodes."""
        intent = (Feature("intent", self.intent),) if self.intent else ()
        return (*intent, *self.relations, *(Feature("node", node) for node in self.nodes))


class Inquiry(msgspec.Struct, frozen=True):
    """What a judge is asked: whether each of some texts holds each of a question's features."""

    question: str
    features: tuple[Feature, ...]
    texts: tuple[str, ...]


class Judge(Protocol):
    """Anything that tells how probably a text holds a feature."""

    def judge(self, inquiries: Sequence[Inquiry]) -> list[list[list[Probability]]]:
        """Return, for each inquiry, one row a text with one probability a feature; all are judged in one batch."""
        ...
