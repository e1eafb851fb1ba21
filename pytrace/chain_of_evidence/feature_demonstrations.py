"""Labelled questions and judgements that show a model what features are and when a text holds one.

Both stand in `pytrace/prompts` as data; a file of one's own in the same shape is checked as strictly as ours.
"""

from __future__ import annotations

import os
from typing import Literal

import msgspec

from pytrace.chain_of_evidence.features import Features
from pytrace.reader.prompts import load_demonstrations, require_text
from pytrace.records import Feature


class FeatureDemonstration(msgspec.Struct, frozen=True):
    """A question with its features; every node is a part of the question."""

    question: str
    features: Features


class JudgementDemonstration(msgspec.Struct, frozen=True):
    """A text, a feature, and whether the text holds it."""

    text: str
    feature: Feature
    answer: Literal["yes", "no"]


def feature_demonstrations(*, path: str | os.PathLike[str] | None = None) -> tuple[FeatureDemonstration, ...]:
    """Return labelled questions for the extraction of features."""
    # "What External Knowledge is Preferred by LLMs?", appendix G, which shows five.
    return load_demonstrations(path, _FeatureRow, _features, _FEATURE_SHAPE, shipped="features.jsonl")


def judgement_demonstrations(*, path: str | os.PathLike[str] | None = None) -> tuple[JudgementDemonstration, ...]:
    """Return labelled judgements, as many of yes as of no, for the judge that is a model."""
    # "What External Knowledge is Preferred by LLMs?", appendix H, is zero-shot; a small model must see both answers.
    return load_demonstrations(path, _JudgementRow, _judgement, _JUDGEMENT_SHAPE, shipped="judgements.jsonl")


class _FeatureRow(msgspec.Struct, forbid_unknown_fields=True):
    question: str
    intent: str
    nodes: list[str]
    relations: list[tuple[str, str, str]]


class _JudgementRow(msgspec.Struct, forbid_unknown_fields=True):
    text: str
    kind: Literal["intent", "relation", "node"]
    feature: str
    nodes: list[str]
    answer: Literal["yes", "no"]


_FEATURE_SHAPE = '{"question": text, "intent": text, "nodes": [text, ...], "relations": [[node, text, node], ...]}'
_JUDGEMENT_SHAPE = (
    '{"text": text, "kind": "intent", "relation" or "node", "feature": text, "nodes": [] or [node, node], '
    '"answer": "yes" or "no"}'
)


def _features(row: _FeatureRow) -> FeatureDemonstration:
    require_text("question", row.question)
    require_text("intent", row.intent)
    for node in row.nodes:
        require_text("node", node)
        if node not in row.question:
            raise ValueError(f"the node {node!r} is no part of the question; copy it from there letter by letter")
    for first, relation, second in row.relations:
        require_text("relation", relation)
        if first == second or first not in row.nodes or second not in row.nodes:
            raise ValueError(
                f"the relation {relation!r} is not between two of the nodes; name two of {', '.join(row.nodes)}"
            )
    relations = tuple(Feature("relation", relation, (first, second)) for first, relation, second in row.relations)
    return FeatureDemonstration(row.question, Features(row.intent, tuple(row.nodes), relations))


def _judgement(row: _JudgementRow) -> JudgementDemonstration:
    require_text("text", row.text)
    require_text("feature", row.feature)
    if len(row.nodes) != (2 if row.kind == "relation" else 0):
        raise ValueError(
            f"the {row.kind} {row.feature!r} has {len(row.nodes)} nodes; a relation has 2, anything else none"
        )
    return JudgementDemonstration(row.text, Feature(row.kind, row.feature, tuple(row.nodes)), row.answer)
