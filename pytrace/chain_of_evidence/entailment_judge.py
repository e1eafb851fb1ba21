"""A judge by a cross-encoder that says whether a text holds a statement."""

from __future__ import annotations

from collections.abc import Sequence

from pytrace.chain_of_evidence.features import Inquiry, Probability
from pytrace.chain_of_evidence.judges import NODE, Logistic
from pytrace.errors import InputError
from pytrace.kernels.fuzzy import cdist, partial_ratio
from pytrace.models.encoders.cross_encoder import CrossEncoder
from pytrace.records import Feature


class EntailmentJudge:
    """Judges intents and relations by a model of entailment or a calibrated reranker, nodes by fuzzy match as `TextJudge` does.

    A model that has a label for entailment is asked whether a relation's statement follows from the text, with the label's
    probability for an answer; a reranker scores the question and the statement with the text, and the registry's curve for
    it makes a probability of that.
    """

    def __init__(self, cross_encoder: CrossEncoder) -> None:
        self._model = cross_encoder
        labels = [label.casefold() for label in getattr(cross_encoder, "labels", ())]
        self._entailment = labels.index("entailment") if "entailment" in labels else None
        calibration = getattr(cross_encoder, "calibration", None) or {}
        self._curve = Logistic(*calibration["relevance"]) if "relevance" in calibration else None
        if self._entailment is None and self._curve is None:
            raise InputError(
                f"the judge by entailment needs a model with a label 'entailment' or a calibration in the registry, and "
                f"{cross_encoder.name!r} has neither (labels: {', '.join(labels) or 'none'}); name a model of entailment"
            )

    def judge(self, inquiries: Sequence[Inquiry]) -> list[list[list[Probability]]]:
        """Return the probability that each text holds each feature; None for a feature without a letter or digit."""
        pairs: dict[tuple[str, str], float] = {}
        for inquiry in inquiries:
            for feature in inquiry.features:
                if feature.kind != "node" and _says_something(feature):
                    pairs |= dict.fromkeys((self._pair(inquiry, feature, text) for text in inquiry.texts), 0.0)
        asked = list(pairs)
        pairs = dict(zip(asked, self._probabilities(asked), strict=True))
        judged = []
        for inquiry in inquiries:
            nodes = self._nodes(inquiry)
            judged.append(
                [
                    [
                        None
                        if not _says_something(feature)
                        else nodes[feature, number]
                        if feature.kind == "node"
                        else pairs[self._pair(inquiry, feature, text)]
                        for feature in inquiry.features
                    ]
                    for number, text in enumerate(inquiry.texts)
                ]
            )
        return judged

    def _pair(self, inquiry: Inquiry, feature: Feature, text: str) -> tuple[str, str]:
        """Return what the model reads: premise and hypothesis, or question and passage."""
        # An intent alone ("city") is everywhere, so its question goes with it.
        statement = f"{inquiry.question} {feature.text}" if feature.kind == "intent" else feature.statement
        return (text, statement) if self._entailment is not None else (statement, text)

    def _probabilities(self, pairs: list[tuple[str, str]]) -> list[float]:
        if not pairs:
            return []
        if self._entailment is not None:
            # Models of one score have no probabilities of labels, so that they are no part of the protocol.
            shares = self._model.probabilities(pairs)  # type: ignore[attr-defined]
            return [float(row[self._entailment]) for row in shares]
        assert self._curve is not None
        return [self._curve.probability(float(score)) for score in self._model.score(pairs)]

    def _nodes(self, inquiry: Inquiry) -> dict[tuple[Feature, int], float]:
        features = [feature for feature in inquiry.features if feature.kind == "node"]
        if not features or not inquiry.texts:
            return {}
        ratios = cdist(
            [feature.text.casefold() for feature in features],
            [text.casefold() for text in inquiry.texts],
            scorer=partial_ratio,
        )
        return {
            (feature, number): NODE.probability(float(ratios[row, number]))
            for row, feature in enumerate(features)
            for number in range(len(inquiry.texts))
        }


def _says_something(feature: Feature) -> bool:
    return any(character.isalnum() for character in feature.statement)
