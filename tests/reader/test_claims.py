"""Claims are labelled by the likeliest verdict, whatever the model likes to say, and a vote is told without samples."""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrace.errors import ContextOverflowError, InputError
from pytrace.evaluation.run.run_store import RunRow
from pytrace.evaluation.scores.labels_and_queries import NO_LABEL, claim_scores
from pytrace.evaluation.scores.summary import make_report
from pytrace.methods.base import ClaimMethod
from pytrace.methods.cok.fact_checking import StandardClaims, StandardSettings
from pytrace.models import registry
from pytrace.models.language_model import ContinuationScore, OptionScores, Prompt
from pytrace.models.llama.llama_cpp import LlamaCppModel
from pytrace.models.scripted import HashEncoder, ScriptedModel
from pytrace.reader.claims import LABELS, WORDS, ClaimJudge, read_label, votes
from pytrace.reader.prompts.reasoning import ClaimDemonstration
from pytrace.results import Findings, Result

NOWHERE = [[]]

by_words = functools.partial(ClaimJudge, scoring="words")


class Verdicts(ScriptedModel):
    """Gives the three verdicts the log-probabilities that a function makes of a prompt's last block, by word or by letter."""

    def __init__(self, scores: Callable[[str], Sequence[float]], *, bounded: tuple[bool, ...] = ()) -> None:
        super().__init__()
        self._scores = scores
        self._bounded = bounded

    def _asked(self, prompt: Prompt | str) -> Sequence[float]:
        return self._scores(self._take(prompt).rpartition("\n\n")[2])

    def score_options(self, prompts: Sequence[Prompt | str], options: Sequence[Sequence[str]]) -> list[OptionScores]:
        assert [tuple(own) for own in options] == [("A", "B", "C")] * len(prompts)
        return [OptionScores(np.array(self._asked(prompt)), 0.0, self._bounded) for prompt in prompts]

    def score_continuations(
        self, prompts: Sequence[Prompt | str], continuations: Sequence[Sequence[str]]
    ) -> list[list[ContinuationScore]]:
        assert [tuple(own) for own in continuations] == [(" true", " false", " unknown")] * len(prompts)
        return [[ContinuationScore(np.array([score])) for score in self._asked(prompt)] for prompt in prompts]


def by_claim(block: str) -> Sequence[float]:
    """Like "true" most by far, but a little less where the claim says so."""
    liked = np.array([-0.1, -3.0, -4.0])
    for place, word in enumerate(("good", "bad", "odd")):
        liked[place] += 2.0 * (f"Claim: {word}" in block)
    return liked


@pytest.mark.parametrize("scoring", ["words", "letters"])
def test_the_likeliest_verdict_gives_the_label_once_the_models_liking_is_taken_away(scoring: str) -> None:
    claims = ["good", "bad", "odd"]
    judge = ClaimJudge(Verdicts(by_claim), scoring=scoring)  # type: ignore[arg-type]
    judged = judge.judge(claims, NOWHERE * 3)
    assert [one.label for one in judged] == list(LABELS)
    for place, one in enumerate(judged):
        assert one.probabilities[place] == pytest.approx(math.e**2 / (math.e**2 + 2))
        assert sum(one.probabilities) == pytest.approx(1.0)
    plain = ClaimJudge(Verdicts(by_claim), scoring=scoring, calibrated=False)  # type: ignore[arg-type]
    assert [one.label for one in plain.judge(claims, NOWHERE * 3)] == ["SUPPORTS"] * 3


def test_one_prompt_without_content_is_asked_for_each_form_that_occurs() -> None:
    model = Verdicts(by_claim)
    by_words(model).judge(["good", "bad", "odd"], [[], ["It is so."], []])
    assert [prompt.rpartition("\n\n")[2] for prompt in model.prompts] == [
        "Claim: good\nVerdict:",
        "Facts:\nIt is so.\nClaim: bad\nVerdict:",
        "Claim: odd\nVerdict:",
        "Claim: N/A\nVerdict:",
        "Facts:\nN/A\nClaim: N/A\nVerdict:",
    ]
    model.prompts.clear()
    by_words(model, calibrated=False).judge(["good", "bad"], [[], ["It is so."]])
    assert len(model.prompts) == 2


def test_facts_and_claims_are_calibrated_by_the_form_that_they_have() -> None:
    def scores(block: str) -> Sequence[float]:
        return (0.0, -2.0, -9.0) if block.startswith("Facts:") else (-2.0, 0.0, -9.0)

    judged = by_words(Verdicts(scores)).judge(["x", "x"], [[], ["y"]])
    assert [one.probabilities for one in judged] == [pytest.approx((1 / 3, 1 / 3, 1 / 3))] * 2


@pytest.mark.parametrize(("count", "shown"), [(0, 0), (3, 3), (6, 6), (9, 9), (40, 9), (-1, 0)])
def test_demonstrations_show_each_label_as_often(count: int, shown: int) -> None:
    model = Verdicts(by_claim)
    by_words(model, demonstrations=count, calibrated=False).judge(["x"], NOWHERE)
    said = Counter(line for line in model.prompts[0].splitlines() if line.startswith("Verdict: "))
    assert said == {f"Verdict: {word}": shown // 3 for word in WORDS.values() if shown}
    assert "Facts:" not in model.prompts[0], "a claim without facts is shown none"


def test_letters_are_shown_with_their_options_and_facts_with_theirs() -> None:
    labelled = [ClaimDemonstration("Ink is blue.", ("Some ink is red.",), "REFUTES")]
    model = Verdicts(by_claim)
    judge = ClaimJudge(model, scoring="letters", calibrated=False, labelled=labelled)
    judge.judge(["Tea is\nhot."], [["Tea\nboils.", " ", "It cools."]])
    assert model.prompts[0].split("\n\n")[1:] == [
        "Facts:\nSome ink is red.\nClaim: Ink is blue.\nA. true\nB. false\nC. unknown\nVerdict: B",
        "Facts:\nTea boils.\nIt cools.\nClaim: Tea is hot.\nA. true\nB. false\nC. unknown\nVerdict:",
    ]


@pytest.mark.parametrize(
    "scores", [(-math.inf,) * 3, (math.nan,) * 3, (-1.0, -1.0, -1.0)], ids=["impossible", "undefined", "alike"]
)
def test_a_model_that_cannot_tell_says_that_there_is_not_enough_information(scores: tuple[float, ...]) -> None:
    judged = by_words(Verdicts(lambda _: scores)).judge(["x"], NOWHERE)[0]
    assert (judged.label, judged.probabilities) == ("NOT ENOUGH INFO", pytest.approx((1 / 3, 1 / 3, 1 / 3)))


def test_an_impossible_verdict_has_no_probability_and_the_others_keep_theirs() -> None:
    judge = by_words(Verdicts(lambda _: (math.nan, -1.0, -math.inf)), calibrated=False)
    assert judge.judge(["x"], NOWHERE)[0].probabilities == (0.0, 1.0, 0.0)


def test_a_server_that_told_none_of_the_letters_has_told_nothing() -> None:
    told = Verdicts(lambda _: (-1.0, -9.0, -9.0), bounded=(True, True, True))
    judge = ClaimJudge(told, scoring="letters", calibrated=False)
    assert judge.judge(["x"], NOWHERE)[0].label == "NOT ENOUGH INFO"
    some = Verdicts(lambda _: (-1.0, -9.0, -9.0), bounded=(False, True, True))
    assert ClaimJudge(some, scoring="letters", calibrated=False).judge(["x"], NOWHERE)[0].label == "SUPPORTS"


def test_facts_that_do_not_fit_are_left_out_from_the_end_and_counted() -> None:
    model = ScriptedModel(context_tokens=130)
    facts = ["One two three.", f"Four {'five ' * 60}.", "Six."]
    judged = by_words(model, demonstrations=0).judge(["x"], [facts])[0]
    assert (judged.read, judged.left_out) == (3, 2)
    assert "One two three." in model.prompts[0]
    assert "five" not in model.prompts[0]


def test_nothing_costs_nothing() -> None:
    model = Verdicts(by_claim)
    assert by_words(model).judge([], []) == []
    assert model.prompts == []


def test_what_cannot_be_judged_is_refused() -> None:
    judge = by_words(Verdicts(by_claim))
    with pytest.raises(InputError, match="claim 2 of 2 is empty"):
        judge.judge(["x", " \n"], NOWHERE * 2)
    with pytest.raises(ValueError, match="2 claims but 1 lists of facts"):
        judge.judge(["x", "y"], NOWHERE)
    with pytest.raises(InputError, match="'digits'; choose 'words', 'letters' or 'text'"):
        ClaimJudge(ScriptedModel(), scoring="digits")  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"0 samples at temperature 0\.7; give at least 1"):
        ClaimJudge(ScriptedModel(), samples=0, temperature=0.7)


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("true", "SUPPORTS"),
        (" **True**.", "SUPPORTS"),
        ("SUPPORTS", "SUPPORTS"),
        ("Yes, he did.", "SUPPORTS"),
        ("The claim is not true, though it is true that he ran.", "REFUTES"),
        ("Verdict: false", "REFUTES"),
        ("No.", "REFUTES"),
        ("This is incorrect.", "REFUTES"),
        ("No evidence is given.", "NOT ENOUGH INFO"),
        ("It is neither true nor false.", "NOT ENOUGH INFO"),
        ("NOT ENOUGH INFO", "NOT ENOUGH INFO"),
        ("It cannot be determined whether it is true.", "NOT ENOUGH INFO"),
        ("He has no children.", None),
        ("A truer word", None),
        ("", None),
    ],
)
def test_a_label_is_read_however_it_is_written(text: str, label: str | None) -> None:
    assert read_label(text) == label


def test_a_model_without_log_probabilities_votes_by_what_it_writes() -> None:
    said = iter(["true", "It is false.", " True", "perhaps", "true"])
    model = ScriptedModel(lambda _: next(said), gives_logits=False)
    judge = ClaimJudge(model, samples=5, temperature=0.7, demonstrations=0)
    [judged] = judge.judge(["Tea is hot."], [["Tea boils."]])
    assert (judged.label, judged.samples) == ("SUPPORTS", 5)
    assert judged.probabilities == pytest.approx(((3 + 1 / 3) / 5, (1 + 1 / 3) / 5, (1 / 3) / 5))
    assert model.prompts[0].endswith("Facts:\nTea boils.\nClaim: Tea is hot.\nVerdict:")
    # Who can tell probabilities may be asked for words all the same; greedily one is enough.
    model = ScriptedModel(["Nobody knows."])
    [judged] = ClaimJudge(model, scoring="text", samples=5).judge(["Tea is hot."], NOWHERE)
    assert (judged.label, judged.samples, len(model.prompts)) == ("NOT ENOUGH INFO", 1, 1)
    assert ClaimJudge(model, scoring="text").judge([], []) == []


@pytest.mark.parametrize("scoring", ["words", "letters", "text"])
def test_a_real_engine_takes_any_text_or_says_that_it_does_not_fit(model: LlamaCppModel, scoring: str) -> None:
    judge = ClaimJudge(model, scoring=scoring, demonstrations=1)  # type: ignore[arg-type]
    odd = ["\ud800 half a character", "\0\x1b[2J", "ありがとう" * 3, "<|im_end|>"]
    for one in judge.judge(odd, [["\udfff"], [], [], ["x"]]):
        assert sum(one.probabilities) == pytest.approx(1.0)
    with pytest.raises(ContextOverflowError):
        judge.judge(["word " * 5000], NOWHERE)


@given(
    st.lists(st.floats(0, 1), min_size=3, max_size=3).filter(any),
    st.floats(0.01, 5),
    st.integers(1, 20),
)
def test_a_votes_share_is_that_of_the_sharpened_distribution(
    probabilities: list[float], temperature: float, samples: int
) -> None:
    vote = votes(probabilities, temperature=temperature, samples=samples)
    top = max(probabilities)
    share = 1 / sum((one / top) ** (1 / temperature) for one in probabilities)
    assert vote.share == pytest.approx(share)
    assert probabilities[LABELS.index(vote.label)] == top
    assert vote.certain == (vote.share >= math.ceil(samples / 2) / samples - 1e-12)


def test_samples_really_come_out_as_the_vote_tells() -> None:
    vote = votes((0.2, 0.5, 0.3), temperature=0.7)
    weights = np.array([0.2, 0.5, 0.3]) ** (1 / 0.7)
    drawn = np.random.default_rng(0).choice(3, size=200_000, p=weights / weights.sum())
    assert vote.label == "REFUTES"
    assert vote.share == pytest.approx((drawn == 1).mean(), abs=0.005)


def test_three_of_five_are_certain_and_less_is_not() -> None:
    assert votes((0.6, 0.2, 0.2), temperature=1.0).certain
    assert not votes((0.59, 0.21, 0.2), temperature=1.0).certain
    assert votes((0.5, 0.3, 0.2), temperature=1.0, samples=4).certain
    assert votes((0.4, 0.3, 0.3), temperature=0.0) == votes((1.0, 0.0, 0.0))
    assert votes((1e-300, 0.0, 0.0)).share == 1.0


@pytest.mark.parametrize(
    ("probabilities", "options"),
    [
        ((0.5, 0.5), {}),
        ((), {}),
        ((0.0, 0.0, 0.0), {}),
        ((math.nan, 0.5, 0.5), {}),
        ((math.inf, 0.5, 0.5), {}),
        ((-0.1, 0.5, 0.6), {}),
        ((0.5, 0.3, 0.2), {"temperature": -1.0}),
        ((0.5, 0.3, 0.2), {"temperature": math.nan}),
        ((0.5, 0.3, 0.2), {"samples": 0}),
    ],
)
def test_a_vote_over_what_is_no_distribution_is_refused(
    probabilities: tuple[float, ...], options: dict[str, float]
) -> None:
    with pytest.raises(InputError, match="give "):
        votes(probabilities, **options)  # type: ignore[arg-type]


def test_standard_prompting_judges_from_the_claim_alone_and_tells_how_sure_it_is() -> None:
    model = Verdicts(by_claim)
    method = StandardClaims(
        model, HashEncoder(), StandardSettings(claim_scoring="words"), name="standard:calibrated=true"
    )
    first, second = method.judge(["good", "bad"], [[], []])
    assert (first.text, second.text, second.method) == ("SUPPORTS", "REFUTES", "standard:calibrated=true")
    assert first.notes == ("SUPPORTS 79%, REFUTES 11%, NOT ENOUGH INFO 11%",)
    assert (first.evidence.kind, first.evidence.context, first.context_tokens) == ("none", (), 0)
    assert first.usage["judge"].prompt_tokens == second.usage["judge"].prompt_tokens > 0
    assert method.judge([], []) == []
    with pytest.raises(InputError, match="empty"):
        method.judge([" "], [[]])


def test_standard_prompting_answers_questions_too_and_is_known_to_judge() -> None:
    method = StandardClaims(ScriptedModel(["Ghana."]), HashEncoder())
    answer = method.answer(["Where is Ada Foah?"], [[]])[0]
    assert (answer.text, answer.notes, answer.evidence.kind) == ("Ghana", (), "none")
    assert isinstance(method, ClaimMethod)
    assert not isinstance(ScriptedModel(), ClaimMethod)


def row(gold: str, given: str | None, *, at: int = 0, kind: str = "claim") -> RunRow:
    judged = None if given is None else Result(question="x", answer=given, evidence=Findings(kind="none"))
    return RunRow("m", str(at), "x", (gold,), kind=kind, result=judged, error="" if judged else "ServerError: away")


def test_scores_count_which_label_was_given_to_which() -> None:
    pairs = [("SUPPORTS", "SUPPORTS"), ("SUPPORTS", "REFUTES"), ("REFUTES", "not enough info."), ("REFUTES", None)]
    scores = claim_scores("m", [row(*pair, at=at) for at, pair in enumerate(pairs)])
    assert scores is not None
    supports, refutes, unknown = scores.labels
    assert (scores.n, scores.accuracy) == (4, 0.25)
    assert (supports.precision, supports.recall, supports.f1) == (1.0, 0.5, pytest.approx(2 / 3))
    assert (refutes.precision, refutes.recall, refutes.f1) == (0.0, 0.0, 0.0)
    assert (unknown.n, unknown.precision, unknown.recall, unknown.f1) == (0, 0.0, None, 0.0)
    assert supports.given == {"SUPPORTS": 1, "REFUTES": 1}
    assert refutes.given == {"NOT ENOUGH INFO": 1, NO_LABEL: 1}
    assert scores.macro_f1 == pytest.approx(2 / 9)


def test_a_label_that_neither_occurs_nor_is_given_does_not_lower_the_mean() -> None:
    scores = claim_scores("m", [row("SUPPORTS", "SUPPORTS")])
    assert scores is not None
    assert (scores.macro_f1, scores.labels[1].f1) == (1.0, None)


def test_only_claims_with_labels_are_scored_as_such() -> None:
    assert claim_scores("m", []) is None
    assert claim_scores("m", [row("SUPPORTS", "SUPPORTS"), row("Ghana", "Ghana", at=1)]) is None
    assert claim_scores("m", [row("SUPPORTS", "SUPPORTS", kind="bridge")]) is None


def test_a_report_on_claims_has_their_scores_and_its_exact_match_is_their_accuracy() -> None:
    rows = [
        row(gold, given, at=at)
        for at, (gold, given) in enumerate([*zip(LABELS, LABELS, strict=True), ("REFUTES", "SUPPORTS")])
    ]
    report = make_report({"m": rows})
    assert report.methods[0].exact_match == report.claims[0].accuracy == 0.75
    assert make_report({"m": [row("Ghana", "Ghana", kind="")]}).claims == ()


@pytest.mark.models
@pytest.mark.parametrize("scoring", ["words", "letters"])
def test_the_tiny_model_judges_claims_with_and_without_facts(
    tiny_models: dict[registry.Role, Path], scoring: str
) -> None:
    with LlamaCppModel(tiny_models["language-model"], style="plain", context=1024) as model:
        judge = ClaimJudge(model, scoring=scoring)  # type: ignore[arg-type]
        judged = judge.judge(["The sun is cold."] * 2, [[], ["The sun is very hot."]])
    assert all(sum(one.probabilities) == pytest.approx(1.0) for one in judged)
    assert judged[0].probabilities != judged[1].probabilities
    assert (judged[0].read, judged[1].read > 0) == (0, True)
