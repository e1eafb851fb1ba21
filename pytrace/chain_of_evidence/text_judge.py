"""A judge that needs no language model: nodes by fuzzy match, intent and relations by the encoder.

Source: "What External Knowledge is Preferred by LLMs? Characterizing and Exploring Chain of Evidence in Imperfect Context",
section 3.2, which asks a large model; this is what does without one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from pytrace.chain_of_evidence.features import Inquiry, Probability
from pytrace.chain_of_evidence.judges import sigmoid
from pytrace.documents import split_sentences
from pytrace.kernels.fuzzy import cdist, partial_ratio
from pytrace.models.encoders.encoder import Encoder, Kind
from pytrace.records import Feature


class Logistic(msgspec.Struct, frozen=True):
    """Turns a score into a probability: 1 / (1 + exp(-slope * (score - middle)))."""

    middle: float
    slope: float

    def probability(self, score: float) -> float:
        """Return the probability, one half at the middle."""
        return sigmoid(self.slope * (score - self.middle))


class Curves(msgspec.Struct, frozen=True):
    """What turns the scores of `TextJudge` into probabilities.

    The defaults were fitted by `benches.labelled_judgements` with all-MiniLM-L6-v2; it prints those of another encoder.
    """

    node: Logistic = Logistic(71.0, 0.08)
    intent: Logistic = Logistic(0.35, 32.0)
    intent_wording: Logistic = Logistic(0.275, 36.0)
    relation: Logistic = Logistic(0.30, 25.0)
    relation_wording: Logistic = Logistic(0.30, 18.0)


class Score(msgspec.Struct, frozen=True):
    """How near a text is to a feature: a node's partial ratio from 0 to 100, else the largest inner product with a sentence.

    `wording` is the inner product once all nodes are taken out of both; None for a node, where nothing but nodes is asked,
    and where it is not looked at. Both are the largest of any sentence; `sentences` has each one's own, of which the same must
    be near in both.
    """

    near: float
    wording: float | None = None
    sentences: tuple[tuple[float, float], ...] = ()


class TextJudge:
    """Judges by fuzzy match and by the encoder.

    A node is held as far as the text has it by partial ratio, an intent, asked together with its question, and a relation, asked
    as a statement, as far as a sentence is near to it. Each score has a logistic curve to a probability.

    A text that only names the nodes is near to whatever is asked of them. With `wording` the nodes are also taken out of
    both, and one sentence must be near with them and without, the less probable of the two counts: what is broken on purpose
    is then told from what is whole, but of snippets about the same things the better one less well
    (`benches.labelled_judgements` prints both).
    """

    def __init__(self, encoder: Encoder, *, wording: bool = False, curves: Curves | None = None) -> None:
        self._encoder = encoder
        self._wording = wording
        self._curves = curves or Curves()

    def judge(self, inquiries: Sequence[Inquiry]) -> list[list[list[Probability]]]:
        """Return the probability that each text holds each feature; None for a feature without a letter or digit."""
        return [
            [
                [
                    None if score is None else self._probability(feature, score)
                    for feature, score in zip(inquiry.features, row, strict=True)
                ]
                for row in rows
            ]
            for inquiry, rows in zip(inquiries, self.scores(inquiries), strict=True)
        ]

    def _probability(self, feature: Feature, score: Score) -> float:
        curves = self._curves
        if feature.kind == "node":
            return curves.node.probability(score.near)
        near, wording = (
            (curves.intent, curves.intent_wording)
            if feature.kind == "intent"
            else (curves.relation, curves.relation_wording)
        )
        if score.wording is None:
            return near.probability(score.near)
        pairs = score.sentences or ((0.0, 0.0),)
        return max(min(near.probability(whole), wording.probability(bare)) for whole, bare in pairs)

    def scores(self, inquiries: Sequence[Inquiry]) -> list[list[list[Score | None]]]:
        """Return the scores that the curves turn into probabilities; the encoder is called once for each kind of text."""
        asked = [_Asked(inquiry, wording=self._wording) for inquiry in inquiries]
        queries = self._encode((text for one in asked for text in one.queries()), "query")
        passages = self._encode((text for one in asked for text in one.passages()), "passage")
        return [one.scores(queries, passages) for one in asked]

    def _encode(self, texts: Iterable[str], kind: Kind) -> dict[str, NDArray[np.float32]]:
        distinct = list(dict.fromkeys(texts))
        return dict(zip(distinct, self._encoder.encode(distinct, kind=kind), strict=True)) if distinct else {}


_Vectors = dict[str, NDArray[np.float32]]


class _Asked:
    """An inquiry, split into the texts that have to be encoded for it."""

    def __init__(self, inquiry: Inquiry, *, wording: bool) -> None:
        self._inquiry = inquiry
        nodes = [node for one in inquiry.features for node in ((one.text,) if one.kind == "node" else one.nodes)]
        # Whole sentences, and what is left of them without the nodes.
        self._sentences = [[one for one in split_sentences(text) if one.strip()] for text in inquiry.texts]
        self._bare = [[without(text, nodes) if wording else "" for text in own] for own in self._sentences]
        self._statements: dict[Feature, tuple[str, str]] = {}
        for feature in inquiry.features:
            if feature.kind == "intent":
                # An intent alone ("city") is everywhere, so its question goes with it.
                whole = f"{inquiry.question} {feature.text}"
                self._statements[feature] = whole, without(whole, nodes) if wording else ""
            elif feature.kind == "relation":
                # A description alone ("of") says little; the question words the relation, too.
                bare = without(inquiry.question, feature.nodes) if wording else ""
                self._statements[feature] = feature.statement, bare

    def queries(self) -> list[str]:
        return [text for pair in self._statements.values() for text in pair if text]

    def passages(self) -> list[str]:
        return [text for own in (*self._sentences, *self._bare) for text in own if text] if self._statements else []

    def scores(self, queries: _Vectors, passages: _Vectors) -> list[list[Score | None]]:
        features, texts = self._inquiry.features, self._inquiry.texts
        nodes = [feature.text for feature in features if feature.kind == "node"]
        ratios: dict[tuple[str, int], float] = {}
        if nodes and texts:
            table = cdist([one.casefold() for one in nodes], [one.casefold() for one in texts], scorer=partial_ratio)
            ratios = {(node, at): float(table[row, at]) for row, node in enumerate(nodes) for at in range(len(texts))}

        def score(feature: Feature, at: int) -> Score | None:
            if not any(character.isalnum() for character in feature.statement):
                return None
            if feature.kind == "node":
                return Score(ratios[feature.text, at])
            whole, bare = self._statements[feature]
            near = [float(queries[whole] @ passages[one]) for one in self._sentences[at]]
            if not bare:
                return _finite(Score(max(near, default=0.0)))
            wording = [float(queries[bare] @ passages[one]) if one else 0.0 for one in self._bare[at]]
            pairs = tuple(zip(near, wording, strict=True))
            return _finite(Score(max(near, default=0.0), max(wording, default=0.0), pairs))

        return [[score(feature, at) for feature in features] for at in range(len(texts))]


def _finite(score: Score) -> Score | None:
    values = [score.near, score.wording or 0.0, *(value for pair in score.sentences for value in pair)]
    return score if all(map(math.isfinite, values)) else None


def without(text: str, nodes: Iterable[str]) -> str:
    """Return a text without some nodes, whatever their case; "" if no letter or digit is left."""
    for node in sorted({one for one in nodes if one.strip()}, key=len, reverse=True):
        text = re.sub(rf"(?<!\w){re.escape(node)}(?!\w)", "", text, flags=re.IGNORECASE)
    return " ".join(text.split()) if any(character.isalnum() for character in text) else ""
