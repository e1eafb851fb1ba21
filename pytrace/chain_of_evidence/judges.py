"""Judges of whether a text holds a feature: a language model by yes or no, a judge that needs none, and several fused.

Source: "What External Knowledge is Preferred by LLMs? Characterizing and Exploring Chain of Evidence in Imperfect Context",
section 3.2 and appendix H. The paper reads a verdict from generated text; here it is the log-probabilities of the two
answers, so that a verdict is a probability, and all of a question's verdicts are one batch. `TextJudge` is what does without
a large model.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from pytrace.chain_of_evidence.features import Inquiry, Judge, JudgementDemonstration, Probability
from pytrace.documents import split_sentences
from pytrace.documents.mentions import whole_words
from pytrace.errors import InputError, LogitsUnavailableError
from pytrace.kernels.fuzzy import cdist, partial_ratio
from pytrace.models.encoders.encoder import Encoder
from pytrace.models.encoders.encoder_files import Kind
from pytrace.models.language_model import LanguageModel, OptionScores, Prompt
from pytrace.records import Feature

INSTRUCTION = "Read the text and say whether it tells what is asked. Answer yes or no."
# What the same question is asked about to find how much a model likes to say yes.
CONTENT_FREE = "[N/A] N/A"

_ANSWERS = ("yes", "no")
# With less probability than this for yes and no together the model talks of something else, and its lean says nothing.
_UNDECIDED_BELOW = 1e-4


class ModelJudge:
    """Lets a language model judge, by the log-probabilities of "yes" and "no" at the next token.

    The text stands before the feature in a prompt, so that a text is evaluated once for all of its question's features.
    """

    def __init__(
        self,
        model: LanguageModel,
        *,
        calibrated: bool = True,
        demonstrations: int = 6,
        labelled: Sequence[JudgementDemonstration] | None = None,
    ) -> None:
        if not model.gives_logits:
            raise LogitsUnavailableError(
                f"{model.name} gives no log-probabilities; use the judge without a model (judge='text')"
            )
        self._model = model
        self._calibrated = calibrated
        shown = JudgementDemonstration.last(demonstrations, labelled)
        self._pairs = tuple((_question(row.text, row.feature), row.answer) for row in shown)

    def judge(self, inquiries: Sequence[Inquiry]) -> list[list[list[Probability]]]:
        """Return the probability that each text holds each feature; None where the model talks of something else."""
        # A feature of several questions is asked once of a text: the question is no part of the prompt.
        prompts: dict[tuple[str, Feature], Prompt] = {}
        for inquiry in inquiries:
            texts = (*inquiry.texts, CONTENT_FREE) if self._calibrated else inquiry.texts
            for text in texts:
                for feature in inquiry.features:
                    prompts.setdefault((text, feature), Prompt(INSTRUCTION, self._pairs, _question(text, feature)))
        scores = self._model.score_options(list(prompts.values()), [_ANSWERS] * len(prompts)) if prompts else []
        odds = {key: _log_odds(score) for key, score in zip(prompts, scores, strict=True)}

        def probability(text: str, feature: Feature) -> Probability:
            value, free = odds[text, feature], odds.get((CONTENT_FREE, feature))
            if value is None or (self._calibrated and free is None):
                return None
            return sigmoid(value - (free or 0.0))

        return [
            [[probability(text, feature) for feature in inquiry.features] for text in inquiry.texts]
            for inquiry in inquiries
        ]


def _question(text: str, feature: Feature) -> str:
    feature_question = {
        "intent": f"Does the text tell this: {feature.statement}?",
        "relation": f"Does the text say that {feature.statement}?",
        "node": f"Does the text speak of {feature.statement}?",
    }[feature.kind]
    return f"Text: {text}\n{feature_question}"


def _log_odds(score: OptionScores) -> float | None:
    """Return log p(yes) - log p(no); None if it cannot be told."""
    yes, no = (float(value) for value in score.log_probabilities)
    if all(score.bounded) and score.bounded:
        return None  # a server told neither
    if not (math.isfinite(yes) or math.isfinite(no)) or np.logaddexp(yes, no) < math.log(_UNDECIDED_BELOW):
        return None
    # One of both may be minus infinity.
    return min(max(yes - no, -100.0), 100.0)


def sigmoid(value: float) -> float:
    """Return 1 / (1 + exp(-value)), for any finite value."""
    # exp(709) is the last that a float holds.
    return 1.0 / (1.0 + math.exp(-value)) if value > -700 else 0.0


class FusedJudge:
    """Adds up the log-odds of several judges, each with its weight.

    Where one is undecided the others decide; where all are, so is this one.
    """

    def __init__(self, judges: Sequence[tuple[Judge, float]]) -> None:
        self._judges = list(judges)

    def judge(self, inquiries: Sequence[Inquiry]) -> list[list[list[Probability]]]:
        """Return the fused probabilities."""
        judged = [judge.judge(inquiries) for judge, _ in self._judges]
        fused: list[list[list[Probability]]] = []
        for answers in zip(*judged, strict=True):
            texts = zip(*answers, strict=True)
            fused.append([[self._fuse(values) for values in zip(*rows, strict=True)] for rows in texts])
        return fused

    def _fuse(self, values: Sequence[Probability]) -> Probability:
        weighted = zip(values, (weight for _, weight in self._judges), strict=True)
        odds = [weight * _logit(value) for value, weight in weighted if value is not None]
        return round(sigmoid(sum(odds)), 12) if odds else None


def _logit(probability: float) -> float:
    # A judge that is quite sure would otherwise overrule all others, whatever their weights.
    inner = min(max(probability, 1e-9), 1 - 1e-9)
    return math.log(inner) - math.log1p(-inner)


class Logistic(msgspec.Struct, frozen=True):
    """Turns a score into a probability: 1 / (1 + exp(-slope * (score - middle)))."""

    middle: float
    slope: float

    def probability(self, score: float) -> float:
        """Return the probability, one half at the middle."""
        return sigmoid(self.slope * (score - self.middle))


# Of a node's partial ratio; no encoder has a part in it.
NODE = Logistic(71.0, 0.08)


class Curves(msgspec.Struct, frozen=True):
    """What turns the scores of `TextJudge` into probabilities; those of an encoder stand in the registry of models.

    They were fitted by `benches.labelled_judgements`, which prints those of any encoder.
    """

    intent: Logistic
    intent_wording: Logistic
    relation: Logistic
    relation_wording: Logistic
    node: Logistic = NODE

    @classmethod
    def of(cls, encoder: Encoder) -> Curves:
        """Return the curves that the registry has for an encoder; those of another would say nothing of its scores."""
        known = getattr(encoder, "calibration", None) or {}
        names = ("intent", "intent_wording", "relation", "relation_wording")
        if not set(names) <= set(known):
            raise InputError(
                f"the judge by text has no calibration for the encoder {encoder.name!r}; use the encoder tiny, or another judge "
                "(judge=model), or fit curves with benches.labelled_judgements and state them in your catalog.json"
            )
        return cls(*(Logistic(*known[name]) for name in names))


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
    as a statement, as far as a sentence is near to it. Each score has a logistic curve to a probability, fitted for the encoder.

    A text that only names the nodes is near to whatever is asked of them. With `wording` the nodes are also taken out of
    both, and one sentence must be near with them and without, the less probable of the two counts: what is broken on purpose
    is then told from what is whole, but of snippets about the same things the better one less well
    (`benches.labelled_judgements` prints both).
    """

    def __init__(self, encoder: Encoder, *, wording: bool = False, curves: Curves | None = None) -> None:
        self._encoder = encoder
        self._wording = wording
        self._curves = curves or Curves.of(encoder)

    def judge(self, inquiries: Sequence[Inquiry]) -> list[list[list[Probability]]]:
        """Return the probability that each text holds each feature; None for a feature without a letter or digit."""
        return [
            [list(map(self._probability, inquiry.features, row)) for row in rows]
            for inquiry, rows in zip(inquiries, self.scores(inquiries), strict=True)
        ]

    def _probability(self, feature: Feature, score: Score | None) -> Probability:
        if score is None:
            return None
        near: Logistic = getattr(self._curves, feature.kind)
        if score.wording is None:
            return near.probability(score.near)
        wording: Logistic = getattr(self._curves, f"{feature.kind}_wording")
        pairs = score.sentences or ((0.0, 0.0),)
        return max(min(near.probability(whole), wording.probability(bare)) for whole, bare in pairs)

    def scores(self, inquiries: Sequence[Inquiry]) -> list[list[list[Score | None]]]:
        """Return the scores that the curves turn into probabilities; the encoder is called once for each kind of text."""
        parts = [_Parts(inquiry, wording=self._wording) for inquiry in inquiries]
        queries = self._encode((text for part in parts for text in part.queries()), "query")
        passages = self._encode((text for part in parts for text in part.passages()), "passage")
        return [part.scores(queries, passages) for part in parts]

    def _encode(self, texts: Iterable[str], kind: Kind) -> dict[str, NDArray[np.float32]]:
        distinct = list(dict.fromkeys(texts))
        return dict(zip(distinct, self._encoder.encode(distinct, kind=kind), strict=True)) if distinct else {}


_Vectors = dict[str, NDArray[np.float32]]


class _Parts:
    """An inquiry, split into the texts that have to be encoded for it."""

    def __init__(self, inquiry: Inquiry, *, wording: bool) -> None:
        self._inquiry = inquiry
        nodes = [
            node
            for feature in inquiry.features
            for node in ((feature.text,) if feature.kind == "node" else feature.nodes)
        ]
        # Whole sentences, and what is left of them without the nodes.
        self._sentences = [split_sentences(text, language=None) for text in inquiry.texts]
        self._bare = [
            [without(sentence, nodes) if wording else "" for sentence in sentences] for sentences in self._sentences
        ]
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
        if not self._statements:
            return []
        return [text for sentences in (*self._sentences, *self._bare) for text in sentences if text]

    def scores(self, queries: _Vectors, passages: _Vectors) -> list[list[Score | None]]:
        texts = self._inquiry.texts
        nodes = [feature.text for feature in self._inquiry.features if feature.kind == "node"]
        ratios: dict[tuple[str, int], float] = {}
        if nodes and texts:
            folded = ([node.casefold() for node in nodes], [text.casefold() for text in texts])
            table = cdist(*folded, scorer=partial_ratio)
            ratios = {(node, i): float(table[row, i]) for row, node in enumerate(nodes) for i in range(len(texts))}

        def score(feature: Feature, number: int) -> Score | None:
            if not any(character.isalnum() for character in feature.statement):
                return None
            if feature.kind == "node":
                return Score(ratios[feature.text, number])
            whole, bare = self._statements[feature]
            near = [float(queries[whole] @ passages[sentence]) for sentence in self._sentences[number]]
            if not bare:
                return _finite(Score(max(near, default=0.0)))
            wording = [float(queries[bare] @ passages[rest]) if rest else 0.0 for rest in self._bare[number]]
            pairs = tuple(zip(near, wording, strict=True))
            return _finite(Score(max(near, default=0.0), max(wording, default=0.0), pairs))

        return [[score(feature, number) for feature in self._inquiry.features] for number in range(len(texts))]


def _finite(score: Score) -> Score | None:
    # What a broken encoder gives is no score, and not one of 0.
    values = [score.near, score.wording or 0.0, *(value for pair in score.sentences for value in pair)]
    return score if all(map(math.isfinite, values)) else None


def without(text: str, nodes: Iterable[str]) -> str:
    """Return a text without some nodes, whatever their case; "" if no letter or digit is left."""
    # The longest first: a node within another would leave the other's rest behind.
    for node in sorted({node for node in nodes if node.strip()}, key=len, reverse=True):
        text = re.sub(whole_words(re.escape(node), node), "", text, flags=re.IGNORECASE)
    return " ".join(text.split()) if any(character.isalnum() for character in text) else ""
