"""The selector: what its prompts show, and what its scores are made of."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrace.errors import LogitsUnavailableError
from pytrace.methods.trace.selector import (
    STOP_OPTION,
    STOP_TEXT,
    BlackBoxSelector,
    Demonstrations,
    LetterSelector,
    RankerSelector,
    Step,
    TextSelector,
    fuse,
    letter_prompt,
    text_prompt,
)
from pytrace.models.language_model import OPTION_LABELS, ContinuationScore, OptionScores, Prompt
from pytrace.models.scripted import HashEncoder, ScriptedModel
from pytrace.reader.prompts import ChainDemonstration, ChainStep
from pytrace.records import Candidate, Triple

FOUNDER = Triple("Orrin Head", "founder", "Isaura Venn", "a", 0)
BORN = Triple("Isaura Venn", "born in", "Quillhaven", "b", 1)
BUILT = Triple("Orrin Head", "built in", "1871", "a", 2)
QUESTION = "In which town was the founder of Orrin Head born?"


def step(*offered: Triple, chain: Sequence[Triple] = (), question: str = QUESTION) -> Step:
    return Step(question, tuple(chain), tuple(Candidate(one, i, 1.0 - i / 10) for i, one in enumerate(offered)))


def demonstration(name: str) -> ChainDemonstration:
    first, second, other = ((name, relation, f"{name} {relation}") for relation in ("one", "two", "three"))
    return ChainDemonstration(
        f"What of {name}?",
        "bridge",
        (first, second),
        f"answer of {name}",
        (ChainStep((other, first), 1), ChainStep((second, other), 0), ChainStep((other,), -1)),
    )


LABELLED = tuple(demonstration(name) for name in ("harps", "otters", "castles"))
SHOWN = Demonstrations(2, labelled=LABELLED)


class Told(ScriptedModel):
    """Gives scores by a function of the prompt and remembers what was asked."""

    def __init__(self, *, deterministic: bool = False) -> None:
        super().__init__()
        self.options: list[list[str]] = []
        self.continuations: list[list[str]] = []
        self._deterministic = deterministic

    @property
    def deterministic(self) -> bool:
        return self._deterministic

    def score_options(self, prompts: Sequence[Prompt | str], options: Sequence[Sequence[str]]) -> list[OptionScores]:
        self.options += [list(labels) for labels in options]
        results = []
        for prompt, labels in zip(prompts, options, strict=True):
            assert isinstance(prompt, Prompt)
            self.prompts.append(prompt.plain())
            free = 10.0 if "Question: N/A" in prompt.input else 0.0
            places = np.array([OPTION_LABELS.index(label) + 1.0 for label in labels])
            results.append(OptionScores(-(places**2) + free, 0.5))
        return results

    def score_continuations(
        self, prompts: Sequence[Prompt | str], continuations: Sequence[Sequence[str]]
    ) -> list[list[ContinuationScore]]:
        self.continuations += [list(texts) for texts in continuations]
        results = []
        for prompt, texts in zip(prompts, continuations, strict=True):
            assert isinstance(prompt, str)
            self.prompts.append(prompt)
            asked = prompt.rpartition("Question:")[2].startswith(" ")
            results.append(
                [ContinuationScore(np.full(len(text), -0.25 if asked else -0.5 + 0.01 * len(text))) for text in texts]
            )
        return results


def test_options_are_lettered_from_a_which_ends_the_chain() -> None:
    text = letter_prompt(step(FOUNDER, BUILT), (), "paper").input
    assert f"\nA. {STOP_OPTION}\nB. {FOUNDER.text}\nC. {BUILT.text}\n" in text
    model = Told()
    (logits,) = LetterSelector(model, SHOWN).select([step(FOUNDER, BUILT)])
    assert model.options == [["A", "B", "C"]]
    assert logits.tolist() == [-1.0, -4.0, -9.0]
    most = [Triple("x", "y", str(number)) for number in range(len(OPTION_LABELS) - 1)]
    assert f"\nz. {most[-1].text}\n" in letter_prompt(step(*most), (), "paper").input
    with pytest.raises(ValueError, match="53 options were asked for, but there are 52 letters"):
        letter_prompt(step(*most, FOUNDER), (), "paper")


def test_steps_without_candidates_can_only_end() -> None:
    model = ScriptedModel()
    assert [len(row) for row in LetterSelector(model, SHOWN).select([step()])] == [1]
    assert [len(row) for row in TextSelector(model, SHOWN, ranker_weight=1.0).select([step()])] == [1]
    assert [row.tolist() for row in RankerSelector().select([step()])] == [[-np.inf]]


@pytest.mark.parametrize("selector", [LetterSelector, TextSelector, BlackBoxSelector])
def test_no_steps_give_no_scores(selector: type[LetterSelector]) -> None:
    assert selector(ScriptedModel(), SHOWN).select([]) == []


def test_calibration_subtracts_the_scores_of_a_question_without_content() -> None:
    model = Told()
    plain, calibrated = (
        LetterSelector(model, SHOWN, calibrated=on).select([step(FOUNDER), step(BUILT, BORN)]) for on in (False, True)
    )
    for one, other in zip(plain, calibrated, strict=True):
        assert (one - other).tolist() == pytest.approx([10.0 + logit for logit in one])
    asked, free = model.prompts[2:4], model.prompts[4:6]
    assert [text.replace(f"Question: {QUESTION}", "Question: N/A") for text in asked] == free


def test_a_demonstration_shows_the_step_at_the_same_position() -> None:
    harps, otters, _ = LABELLED
    for position in range(5):
        chain = (FOUNDER, BORN, BUILT, FOUNDER)[:position]
        prompt = letter_prompt(step(BUILT, chain=chain), (harps, otters), "paper")
        at = min(position, 2)
        for one, (given_text, answer) in zip((harps, otters), prompt.demonstrations, strict=True):
            assert answer == ["C", "B", "A"][at]
            assert given_text.splitlines()[0] == "Chosen so far: " + (
                ", ".join(t.text for t in one.chain[:at]) or "nothing"
            )
            assert [line[3:] for line in given_text.splitlines() if line[1:3] == ". "][1:] == [
                triple.text for triple in one.steps[at].candidates
            ]


def test_every_demonstration_of_ours_answers_with_the_option_that_its_chain_takes() -> None:
    for one in ChainDemonstration.load():
        for position in range(len(one.steps)):
            (given_text, letter), *_ = letter_prompt(
                step(BUILT, chain=[BORN] * position), (one,), "paper"
            ).demonstrations
            right = next(line[3:] for line in given_text.splitlines() if line.startswith(f"{letter}. "))
            assert right == (one.chain[position].text if position < len(one.chain) else STOP_OPTION)


def test_in_the_shared_layout_chains_of_one_question_differ_only_after_the_candidates() -> None:
    chains = [(), (FOUNDER,), (BUILT,)]
    first, second, third = (
        letter_prompt(step(BORN, chain=chain), SHOWN.choose([""])[0], "shared").input for chain in chains
    )
    start = first.index("Chosen so far")
    assert first[:start] == second[:start] == third[:start]
    assert BORN.text in first[:start]
    assert second[start:] == f"Chosen so far: {FOUNDER.text}\nNext:"
    # The prompts of two chains of one length are the same up to there, demonstrations included.
    one, other = (
        letter_prompt(step(BORN, chain=chain), SHOWN.choose([""])[0], "shared").plain() for chain in chains[1:]
    )
    assert one.rpartition("Chosen so far: ")[0] == other.rpartition("Chosen so far: ")[0]
    paper = letter_prompt(step(BORN, chain=chains[1]), (), "paper").input
    assert paper.index("Chosen so far") < paper.index(BORN.text)


def candidates(**scores: float) -> tuple[Candidate, ...]:
    return tuple(Candidate(TRIPLES[name], 0, score) for name, score in scores.items())


TRIPLES = {"founder": FOUNDER, "built": BUILT, "born": BORN}


def test_in_the_shared_layout_one_list_serves_all_chains_of_a_question() -> None:
    model = Told()
    steps = [
        Step(QUESTION, (FOUNDER,), candidates(built=0.5, born=0.4)),
        Step(QUESTION, (BUILT,), candidates(founder=0.9, born=0.6)),
        Step("Another?", (), candidates(born=0.1)),
    ]
    rows = LetterSelector(model, SHOWN, layout="shared").select(steps)
    lists = [prompt.rpartition("Options:")[2].partition("Chosen so far")[0] for prompt in model.prompts]
    # All that either chain is offered, by the best similarity; and each chain is asked for its own candidates alone.
    assert lists[0] == lists[1]
    assert [line[3:] for line in lists[0].split("\n")[2:5]] == [FOUNDER.text, BORN.text, BUILT.text]
    assert lists[2].count(". <") == 1
    assert model.options == [["A", "D", "C"], ["A", "B", "C"], ["A", "B"]]
    assert [row.tolist() for row in rows] == [[-1.0, -16.0, -9.0], [-1.0, -4.0, -9.0], [-1.0, -4.0]]


def test_a_shared_list_longer_than_the_alphabet_leaves_out_what_is_least_alike() -> None:
    model = Told()
    triples = [Triple("x", "y", str(number)) for number in range(60)]
    first = tuple(Candidate(triple, 0, number / 60) for number, triple in enumerate(triples[:30]))
    second = tuple(Candidate(triple, 0, number / 60) for number, triple in enumerate(triples[30:], 30))
    rows = LetterSelector(model, SHOWN, layout="shared", calibrated=True).select(
        [Step(QUESTION, (), first), Step(QUESTION, (BORN,), second)]
    )
    left_out = len(triples) - (len(OPTION_LABELS) - 1)
    assert np.isneginf(rows[0][1:]).tolist() == [number < left_out for number in range(30)]
    assert np.isfinite(rows[1]).all()
    assert all(f" {triple.tail}>" not in model.prompts[0].rpartition("Options:")[2] for triple in triples[:left_out])


def test_what_pmi_takes_away_is_found_once_for_a_triple_after_a_chain() -> None:
    steps = [step(BORN, BUILT), Step("Another?", (), candidates(born=0.1)), step(BORN, chain=[BUILT])]
    fresh = [TextSelector(Told(), SHOWN).select([one])[0].tolist() for one in steps]
    model = Told()
    selector = TextSelector(model, SHOWN)
    assert [row.tolist() for row in selector.select(steps)] == fresh
    # Three with their questions; without, the two that begin alike are one prompt.
    assert model.continuations[3:] == [[STOP_TEXT, f" {BORN.text}", f" {BUILT.text}"], [STOP_TEXT, f" {BORN.text}"]]
    asked = len(model.prompts)
    assert [row.tolist() for row in selector.select(steps[::-1])] == fresh[::-1]
    assert len(model.prompts) == asked + len(steps)


def test_with_a_deterministic_model_nothing_is_kept_from_one_call_to_the_next() -> None:
    model = Told(deterministic=True)
    selector = TextSelector(model, SHOWN)
    selector.select([step(BORN)])
    asked = len(model.prompts)
    selector.select([step(BORN)])
    assert len(model.prompts) == 2 * asked


def test_demonstrations_are_the_first_or_the_nearest_with_the_nearest_last() -> None:
    questions = ["Who built castles?", "Do otters swim?"]
    assert Demonstrations(2, labelled=LABELLED).choose(questions) == [LABELLED[:2], LABELLED[:2]]
    adaptive = Demonstrations(2, encoder=HashEncoder(), labelled=LABELLED)
    assert [chosen[-1] for chosen in adaptive.choose(questions)] == [LABELLED[2], LABELLED[1]]
    assert adaptive.choose([]) == []
    assert Demonstrations(0, encoder=HashEncoder(), labelled=LABELLED).choose(questions) == [(), ()]
    assert Demonstrations(99, encoder=HashEncoder(), labelled=LABELLED).choose(["otters"])[0][-1] == LABELLED[1]
    assert len(Demonstrations(3).choose(["x"])[0]) == 3


def test_likelihood_scores_the_texts_after_question_and_chain() -> None:
    model = Told()
    (logits,) = TextSelector(model, SHOWN, scoring="likelihood").select([step(BORN, BUILT, chain=[FOUNDER])])
    assert model.continuations == [[STOP_TEXT, f" {BORN.text}", f" {BUILT.text}"]]
    assert logits.tolist() == [-0.25 * len(text) for text in model.continuations[0]]
    assert model.prompts == [text_prompt(QUESTION, (FOUNDER,), LABELLED[:2])]
    assert model.prompts[0].endswith(f"\n\nQuestion: {QUESTION}\nFacts: {FOUNDER.text}")


def test_pmi_is_the_likelihood_with_the_question_less_the_one_without_it() -> None:
    model = Told()
    steps = [step(BORN, BUILT, chain=[FOUNDER]), step(FOUNDER)]
    pmi = TextSelector(model, SHOWN, scoring="pmi").select(steps)
    texts = model.continuations[:2]
    assert model.continuations[2:] == texts
    for row, own in zip(pmi, texts, strict=True):
        assert row.tolist() == pytest.approx([len(text) * (-0.25 - (-0.5 + 0.01 * len(text))) for text in own])
    asked, unasked = model.prompts[:2], model.prompts[2:]
    for one, other in zip(asked, unasked, strict=True):
        before, after = one.rsplit(QUESTION, 1)
        assert other == before.rstrip() + after


def test_a_finished_demonstration_goes_on_as_an_ended_chain_is_scored() -> None:
    prompt = text_prompt(QUESTION, (), LABELLED[:1])
    chain = " ".join(triple.text for triple in LABELLED[0].chain)
    assert prompt == f"Question: What of harps?\nFacts: {chain}{STOP_TEXT} {QUESTION}\nFacts:"


def test_the_bias_of_stopping_moves_stopping_alone() -> None:
    steps = [step(BORN, BUILT)]
    (plain,), (biased,) = (TextSelector(Told(), SHOWN, stop_bias=bias).select(steps) for bias in (0.0, 1.5))
    assert (biased - plain).tolist() == pytest.approx([1.5, 0.0, 0.0])


def test_fusion_adds_scores_in_standard_deviations() -> None:
    text, similarity = np.array([-9.0, -2.0, -4.0, -9.0]), np.array([0.1, 0.9, 0.2])
    fused = fuse(text, similarity, 0.5)
    spread = np.sqrt(((text[1:] + 5) ** 2).mean())
    z = (similarity - 0.4) / np.sqrt(((similarity - 0.4) ** 2).mean())
    assert fused[1:] == pytest.approx((text[1:] + 5) / spread + 0.5 * z)
    assert fused[0] == pytest.approx((-9.0 + 5) / spread)
    assert text.tolist() == [-9.0, -2.0, -4.0, -9.0]
    model = Told()
    candidates = step(BORN, BUILT, FOUNDER)
    (with_ranker,) = TextSelector(model, SHOWN, ranker_weight=2.0).select([candidates])
    (without,) = TextSelector(model, SHOWN).select([candidates])
    assert with_ranker == pytest.approx(fuse(without, np.array([one.score for one in candidates.candidates]), 2.0))


@given(st.floats(-50, 50), st.floats(-50, 0), st.integers(1, 9), st.floats(-1, 1))
def test_candidates_that_score_the_same_are_not_told_apart_by_rounding(
    stop: float, score: float, count: int, similarity: float
) -> None:
    fused = fuse(np.array([stop, *[score] * count]), np.full(count, similarity), 1.0)
    assert fused[1:] == pytest.approx(0.0, abs=1e-9)
    assert fused[0] == pytest.approx(stop - score, abs=1e-9)


@pytest.mark.parametrize(
    ("written", "option"),
    [("B", 1), (" C.", 2), ("(B)", 1), ("c", 2), ("**B**", 1), ("B. <x", 1), ("A", 0), ("\tB:", 1)]
    + [(text, 0) for text in ("", "Z", "Because", "Both", "?", "7", "é", "Bx", "_")],
)
def test_the_black_box_selector_takes_the_letter_that_was_written_and_else_ends(written: str, option: int) -> None:
    model = ScriptedModel([written], gives_logits=False)
    (logits,) = BlackBoxSelector(model, SHOWN).select([step(BORN, BUILT)])
    assert np.exp(logits).tolist() == [float(number == option) for number in range(3)]


def test_every_lettered_option_can_be_written() -> None:
    triples = [Triple("x", "y", str(number)) for number in range(len(OPTION_LABELS) - 1)]
    for number, letter in enumerate(OPTION_LABELS):
        (logits,) = BlackBoxSelector(ScriptedModel([letter]), SHOWN).select([step(*triples)])
        assert int(logits.argmax()) == number


def test_scoring_without_log_probabilities_is_refused_with_what_to_do() -> None:
    model = ScriptedModel(gives_logits=False)
    for make in (LetterSelector, TextSelector):
        with pytest.raises(LogitsUnavailableError) as caught:
            make(model, SHOWN)
        assert str(caught.value) == (
            "scripted gives no log-probabilities; use the black-box selector (scoring='black-box')"
        )


def test_the_ranker_alone_keeps_its_order_and_never_ends_a_chain() -> None:
    (logits,) = RankerSelector().select([step(FOUNDER, BORN, BUILT)])
    assert logits.tolist() == [-np.inf, 1.0, 0.9, 0.8]
