"""Judges: what a model is asked and how its lean is taken away, what needs no model, and when nobody can tell."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from pytrace.chain_of_evidence.discriminator import Discriminator
from pytrace.chain_of_evidence.entailment_judge import EntailmentJudge
from pytrace.chain_of_evidence.features import Features, Inquiry, Probability
from pytrace.chain_of_evidence.judges import (
    CONTENT_FREE,
    Curves,
    FusedJudge,
    Logistic,
    ModelJudge,
    TextJudge,
    sigmoid,
    without,
)
from pytrace.errors import InputError, LogitsUnavailableError
from pytrace.models.language_model import OptionScores, Prompt
from pytrace.models.scripted import HashEncoder, ScriptedModel
from pytrace.records import Feature

if TYPE_CHECKING:
    from pathlib import Path

    from pytrace.models import registry

NODE = Feature("node", "Ada Foah")
INTENT = Feature("intent", "country")
RELATION = Feature("relation", "is a town in", ("Ada Foah", "country"))
QUESTION = "In which country is Ada Foah?"
HOLDS = "[Ada Foah] Ada Foah is a town in the country Ghana."
LACKS = "[Lima] Lima has a famous fountain."


class Odds(ScriptedModel):
    """Says yes with the log-odds that a function gives for a prompt's text."""

    def __init__(self, odds: object, outside: float = 0.0, *, bounded: tuple[bool, ...] = ()) -> None:
        super().__init__()
        self.odds = odds
        self.mass = 1.0 - outside
        self.bounded = bounded
        self.batches: list[int] = []

    def score_options(self, prompts: Sequence[Prompt | str], options: Sequence[Sequence[str]]) -> list[OptionScores]:
        assert all(tuple(labels) == ("yes", "no") for labels in options)
        self.batches.append(len(prompts))
        results = []
        for prompt in prompts:
            assert isinstance(prompt, Prompt)
            self.prompts.append(prompt.input)
            p = sigmoid(self.odds(prompt.input))  # type: ignore[operator]
            with np.errstate(divide="ignore"):
                scores = np.log(np.array([p, 1 - p]) * self.mass)
            results.append(OptionScores(scores, 1 - self.mass, self.bounded))
        return results


def test_all_texts_and_features_of_all_questions_are_one_batch_with_the_text_first() -> None:
    model = Odds(lambda prompt: 2.0 if "Ghana" in prompt else -1.0)
    judge = ModelJudge(model, calibrated=False)
    inquiries = [Inquiry(QUESTION, (NODE, INTENT, RELATION), (HOLDS, LACKS)), Inquiry("Who?", (INTENT,), (HOLDS,))]
    rows = judge.judge(inquiries)
    # The intent of the second question in the same text is the first one's: it is asked once.
    assert model.batches == [6]
    assert model.prompts[0] == f"Text: {HOLDS}\nDoes the text speak of Ada Foah?"
    assert model.prompts[2] == f"Text: {HOLDS}\nDoes the text say that Ada Foah is a town in country?"
    assert rows[0][0] == pytest.approx([sigmoid(2.0)] * 3)
    assert rows[0][1] == pytest.approx([sigmoid(-1.0)] * 3)
    assert rows[1] == [[pytest.approx(sigmoid(2.0))]]


def test_calibration_takes_away_what_the_model_says_without_a_text() -> None:
    model = Odds(lambda prompt: 5.0 if CONTENT_FREE in prompt else 6.0 if "Ghana" in prompt else 4.0)
    rows = ModelJudge(model).judge([Inquiry(QUESTION, (NODE, INTENT), (HOLDS, LACKS))])[0]
    assert rows[0] == pytest.approx([sigmoid(1.0)] * 2)
    assert rows[1] == pytest.approx([sigmoid(-1.0)] * 2)
    assert model.batches == [6]  # two texts and the one without content, two features each


def test_demonstrations_are_as_many_as_asked_for() -> None:
    judge = ModelJudge(Odds(lambda _: 0.0), demonstrations=2)
    assert [answer for _, answer in judge._pairs] == ["yes", "no"]
    assert ModelJudge(Odds(lambda _: 0.0), demonstrations=0)._pairs == ()


@pytest.mark.parametrize(
    "model",
    [
        Odds(lambda _: 1.0, outside=1 - 1e-6),  # the model talks of something else
        Odds(lambda _: 1.0, outside=1.0),  # both have no probability at all
        Odds(lambda _: 1.0, bounded=(True, True)),  # a server told neither
    ],
)
def test_a_model_that_says_neither_is_undecided(model: Odds) -> None:
    assert ModelJudge(model, calibrated=False).judge([Inquiry(QUESTION, (NODE,), (HOLDS,))]) == [[[None]]]


def test_a_model_that_is_sure_gives_a_finite_number() -> None:
    rows = ModelJudge(Odds(lambda _: 1000.0)).judge([Inquiry(QUESTION, (NODE,), (HOLDS,))])
    assert rows == [[[0.5]]]  # as sure without a text
    sure = ModelJudge(Odds(lambda _: 1000.0), calibrated=False).judge([Inquiry(QUESTION, (NODE,), (HOLDS,))])
    assert sure[0][0][0] == pytest.approx(1.0)


def test_a_model_without_log_probabilities_is_refused_by_name() -> None:
    with pytest.raises(LogitsUnavailableError, match="judge='text'"):
        ModelJudge(ScriptedModel(gives_logits=False))


def test_without_a_model_nodes_are_matched_and_intent_and_relations_are_near() -> None:
    judge = TextJudge(HashEncoder())
    scores = judge.scores([Inquiry(QUESTION, (INTENT, RELATION, NODE), (HOLDS, LACKS))])[0]
    near = [[score.near for score in row if score is not None] for row in scores]
    assert near[0][2] == 100.0
    assert near[1][2] < 65
    for place in (0, 1):
        assert near[0][place] > near[1][place]
    assert all(score is not None and score.wording is None for row in scores for score in row)
    rows = judge.judge([Inquiry(QUESTION, (INTENT, RELATION, NODE), (HOLDS, LACKS))])[0]
    assert [value > 0.5 for value in rows[0] if value is not None] == [True, True, True]
    assert [value > 0.5 for value in rows[1] if value is not None] == [False, False, False]


def test_a_text_is_as_near_as_its_nearest_sentence() -> None:
    judge = TextJudge(HashEncoder())
    long = f"{LACKS} {HOLDS} {LACKS}"
    alone, among = judge.scores([Inquiry(QUESTION, (RELATION,), (HOLDS, long))])[0]
    assert among[0] is not None
    assert alone[0] is not None
    assert among[0].near == pytest.approx(alone[0].near)


NAMES = "[Ada Foah] Ada Foah is named here."


def test_what_only_names_the_nodes_is_told_from_what_holds_the_rest_by_the_wording() -> None:
    question = "In which country is the old harbour of Ada Foah?"
    intent = Feature("intent", "country of the old harbour")
    inquiry = Inquiry(question, (intent, NODE), ("The old harbour of Ada Foah is in the country Ghana.", NAMES))
    near = TextJudge(HashEncoder(dimension=4096)).scores([inquiry])[0]
    both = TextJudge(HashEncoder(dimension=4096), wording=True).scores([inquiry])[0]
    held, named = both[0][0], both[1][0]
    assert held is not None
    assert named is not None
    assert held.wording is not None
    assert named.wording is not None
    assert held.wording > 0.5
    assert named.wording < 0.3
    assert near[1][0] is not None
    assert near[1][0].near == named.near > 0.2
    # The less probable of the two counts, and a node has no wording.
    judge = TextJudge(HashEncoder(dimension=4096), wording=True)
    rows = judge.judge([inquiry])[0]
    assert rows[0][0] > 0.5 > rows[1][0]  # type: ignore[operator]
    assert [row[1] for row in rows] == [row[1] for row in TextJudge(HashEncoder(dimension=4096)).judge([inquiry])[0]]


def test_a_question_of_nothing_but_nodes_has_no_wording() -> None:
    inquiry = Inquiry("Ada Foah?", (Feature("intent", "Ada Foah"), NODE), (NAMES, "Ada Foah"))
    scores = TextJudge(HashEncoder(), wording=True).scores([inquiry])[0]
    assert all(score is not None and score.wording is None for row in scores for score in row)


@pytest.mark.parametrize(
    ("text", "nodes", "left"),
    [
        ("Ada Foah, ADA FOAH and Adafoah", ["Ada Foah", "Foah"], ", and Adafoah"),
        ("C++ (the language)", ["C++", "the language"], ""),
        ("New York City", ["York", "New York"], "City"),
        ("as it is", ["", "  "], "as it is"),
    ],
)
def test_nodes_are_taken_out_as_whole_words_longer_ones_first(text: str, nodes: list[str], left: str) -> None:
    assert without(text, nodes) == left


@pytest.mark.parametrize("text", ["", "   ", "?!", "\ud800"])
def test_a_text_without_words_holds_nothing(text: str) -> None:
    rows = TextJudge(HashEncoder()).judge([Inquiry(QUESTION, (INTENT, RELATION, NODE), (text,))])[0]
    assert all(value is not None and value < 0.5 for value in rows[0])


def test_a_feature_without_letters_cannot_be_judged() -> None:
    inquiry = Inquiry(QUESTION, (Feature("node", "?!"), Feature("relation", "…", ("-", "+"))), (HOLDS,))
    assert TextJudge(HashEncoder()).judge([inquiry]) == [[[None, None]]]


@pytest.mark.parametrize("inquiry", [Inquiry("?", (), ("a",)), Inquiry("?", (NODE,), ()), Inquiry("?", (), ())])
@pytest.mark.parametrize("judge", [ModelJudge(ScriptedModel()), TextJudge(HashEncoder())])
def test_nothing_asked_is_nothing_judged(judge: ModelJudge | TextJudge, inquiry: Inquiry) -> None:
    assert judge.judge([inquiry]) == [[[] for _ in inquiry.texts]]
    assert judge.judge([]) == []


class Says:
    def __init__(self, value: Probability) -> None:
        self.value = value

    def judge(self, inquiries: Sequence[Inquiry]) -> list[list[list[Probability]]]:
        return [[[self.value] * len(one.features) for _ in one.texts] for one in inquiries]


def test_fused_log_odds_add_up_by_weight_and_the_undecided_abstain() -> None:
    inquiry = Inquiry("?", (NODE,), ("t",))
    fused = FusedJudge([(Says(0.8), 1.0), (Says(0.8), 0.5), (Says(None), 9.0)])
    expected = 1.5 * math.log(4)
    assert fused.judge([inquiry])[0][0][0] == pytest.approx(sigmoid(expected))
    assert FusedJudge([(Says(None), 1.0)]).judge([inquiry]) == [[[None]]]
    sure = FusedJudge([(Says(1.0), 1.0), (Says(0.0), 1.0)]).judge([inquiry])[0][0][0]
    assert sure == pytest.approx(0.5)


def test_a_curve_is_one_half_at_its_middle() -> None:
    assert Logistic(0.3, 25.0).probability(0.3) == 0.5
    assert sigmoid(-1e300) == 0.0
    assert sigmoid(1e300) == 1.0


def test_knowledge_is_a_chain_of_evidence_if_it_holds_every_feature() -> None:
    features = Features("country", ("Ada Foah",), (RELATION,))
    verdicts = Discriminator(TextJudge(HashEncoder())).discriminate([(QUESTION, features, [HOLDS, LACKS])])[0]
    assert verdicts[0].complete is True
    assert verdicts[0].missing == ()
    assert verdicts[1].complete is False
    assert verdicts[1].missing == features.all


def test_an_undecided_feature_is_missing_and_no_feature_says_nothing() -> None:
    one, none = Discriminator(Says(None)).discriminate([("?", Features(nodes=("a",)), ["t"]), ("?", Features(), ["t"])])
    assert one[0].complete is False
    assert one[0].missing == (Feature("node", "a"),)
    assert none[0].complete is None
    with pytest.raises(ValueError, match="from 0 to 1"):
        Discriminator(Says(0.5), threshold=float("nan"))


class Entailing:
    """A model of entailment that finds words of the statement in the premise."""

    name = "entailing"
    fingerprint = "entailing-1"
    labels = ("Neutral", "Entailment")

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    def probabilities(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        self.asked += pairs
        words = [(set(premise.casefold().split()), set(statement.casefold().split())) for premise, statement in pairs]
        share = np.array([len(first & second) / len(second) for first, second in words], dtype=np.float32)
        return np.stack([1 - share, share], axis=1)

    def score(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        return np.array([float(len(passage)) for _, passage in pairs], dtype=np.float32)


def test_a_model_of_entailment_reads_the_text_as_its_premise() -> None:
    model = Entailing()
    inquiry = Inquiry(QUESTION, (INTENT, RELATION, NODE), (HOLDS, LACKS))
    rows = EntailmentJudge(model).judge([inquiry, inquiry])
    assert rows[0] == rows[1]
    assert set(model.asked) == {
        (text, statement) for text in (HOLDS, LACKS) for statement in (f"{QUESTION} {INTENT.text}", RELATION.statement)
    }
    assert len(model.asked) == 4
    relation = model.probabilities([(HOLDS, RELATION.statement), (LACKS, RELATION.statement)])[:, 1]
    assert [row[1] for row in rows[0]] == pytest.approx(relation.tolist())
    # Nodes are found as the judge by text finds them.
    by_text = TextJudge(HashEncoder()).judge([inquiry])[0]
    assert [row[2] for row in rows[0]] == [row[2] for row in by_text]
    assert EntailmentJudge(model).judge([Inquiry(QUESTION, (Feature("node", "?!"),), (HOLDS,))]) == [[[None]]]
    assert EntailmentJudge(model).judge([]) == []


def test_a_reranker_judges_by_the_curve_of_the_registry_and_is_refused_without_one() -> None:
    model: Any = Entailing()
    model.labels = ("score",)
    with pytest.raises(InputError, match=r"'entailing' has neither \(labels: score\); name a model of entailment"):
        EntailmentJudge(model)
    model.calibration = {"relevance": (float(len(HOLDS)), 1.0)}
    rows = EntailmentJudge(model).judge([Inquiry(QUESTION, (RELATION,), (HOLDS, HOLDS + "!"))])[0]
    assert [row[0] for row in rows] == pytest.approx([0.5, 1 / (1 + math.exp(-1))])


def test_curves_of_one_encoder_are_never_used_for_another() -> None:
    class Other(HashEncoder):
        name = "other"
        calibration: ClassVar[Any] = {}

    with pytest.raises(
        InputError, match="no calibration for the encoder 'other'; use the encoder tiny, or another judge"
    ):
        TextJudge(Other())
    TextJudge(Other(), curves=Curves.of(HashEncoder()))


@pytest.mark.models
def test_the_real_encoder_tells_the_country_from_the_fountain(tiny_models: dict[registry.Role, Path]) -> None:
    from pytrace.models.encoders.encoder import OnnxEncoder

    encoder = OnnxEncoder(tiny_models["encoder"])
    judge = TextJudge(encoder)
    rows = judge.judge([Inquiry(QUESTION, (INTENT, RELATION, NODE), (HOLDS, LACKS))])[0]
    assert all(value is not None and value > 0.5 for value in rows[0])
    assert all(value is not None and value < 0.5 for value in rows[1])
    # Cut, its inner products are others.
    with pytest.raises(InputError, match="no calibration for the encoder 'minilm-l6-int8'"):
        TextJudge(OnnxEncoder(tiny_models["encoder"], truncate_dim=128))
