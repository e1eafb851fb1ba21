"""The features of a question, what judges of them have in common, and demonstrations of both.

Source: "What External Knowledge is Preferred by LLMs? Characterizing and Exploring Chain of Evidence in Imperfect Context",
section 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

import msgspec

from pytrace.reader.prompts import Demonstration, require, require_text
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


class FeatureDemonstration(Demonstration, frozen=True):
    """A question with its features; every node is a part of the question."""

    # "What External Knowledge is Preferred by LLMs?", appendix G, which shows five.

    FILE = "features.jsonl"
    SHAPE = '{"question": text, "intent": text, "nodes": [text, ...], "relations": [[node, text, node], ...]}'
    question: str
    intent: str
    nodes: tuple[str, ...]
    relations: tuple[tuple[str, str, str], ...]

    @property
    def features(self) -> Features:
        """The features of the question."""
        relations = tuple(Feature("relation", text, (first, second)) for first, text, second in self.relations)
        return Features(self.intent, self.nodes, relations)

    def _validate(self) -> None:
        for node in self.nodes:
            require_text("node", node)
            require(
                node in self.question,
                f"the node {node!r} is no part of the question; copy it from there letter by letter",
            )
        for first, relation, second in self.relations:
            require_text("relation", relation)
            require(
                first != second and {first, second} <= set(self.nodes),
                f"the relation {relation!r} is not between two of the nodes; name two of {', '.join(self.nodes)}",
            )


class JudgementDemonstration(Demonstration, frozen=True):
    """A text, a feature, and whether the text holds it."""

    # Appendix H there is zero-shot; a small model must see both answers, so ours has as many of yes as of no.

    FILE = "judgements.jsonl"
    SHAPE = (
        '{"text": text, "kind": "intent", "relation" or "node", "feature": text, "nodes": [] or [node, node], '
        '"answer": "yes" or "no"}'
    )
    text: str
    kind: Literal["intent", "relation", "node"]
    feature_text: str = msgspec.field(name="feature")
    nodes: tuple[str, ...]
    answer: Literal["yes", "no"]

    @property
    def feature(self) -> Feature:
        """The feature that the text is judged for."""
        return Feature(self.kind, self.feature_text, self.nodes)

    def _validate(self) -> None:
        require(
            len(self.nodes) == (2 if self.kind == "relation" else 0),
            f"the {self.kind} {self.feature_text!r} has {len(self.nodes)} nodes; a relation has 2, anything else none",
        )
