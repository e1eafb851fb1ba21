"""Models of entailment, of real graphs that judge by a rule, and verdicts that rest on them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrace import Document
from pytrace.certify.claims import ClaimChecker
from pytrace.certify.claims.checker import judge_claims, judge_responses
from pytrace.certify.claims.entailment import Judgements, checked_judgements, in_windows, largest
from pytrace.certify.claims.entailment_edge import EdgeEntailment
from pytrace.certify.claims.entailment_labels import column_of, columns_of
from pytrace.certify.claims.entailment_onnx import PairEntailment, TokenEntailment, open_entailment
from pytrace.certify.claims.entailment_prompts import PromptedEntailment
from pytrace.certify.claims.evaluation import judge, read_labelled
from pytrace.certify.claims.marked_claims import MARKS, mark_missing
from pytrace.cli import common, program
from pytrace.engine import load
from pytrace.engine.claims import open_checker
from pytrace.errors import LogitsUnavailableError, ModelError, ModelFileError
from pytrace.models import registry
from pytrace.models.edge.edge_model import EdgeModel, shipped_edge
from pytrace.models.language_model import OptionScores
from pytrace.models.llama.llama_cpp import LlamaCppModel
from pytrace.models.scripted import ScriptedModel
from tests.small_entailment import NLI, write_model

LAKE = Document("1", "Lake Volta", ("Lake Volta was made in 1965 .", "It lies in Ghana .", "Geese fly south ."))
TEXT = "Lake Volta lies in Ghana and was made in 1965 ."
PAIRS = [
    ("the lake lies in ghana", f"the {TEXT}"),
    ("lake volta was not made in 1965", TEXT),
    ("lake volta was built in 1965", TEXT),
]
VERDICTS = [[1, 0, 0], [0, 1, 0], [0, 0, 1]]


def probabilities(model: Any, pairs: Sequence[tuple[str, str]] = PAIRS) -> Any:
    return checked_judgements(model, pairs).probabilities


@pytest.mark.parametrize(
    ("labels", "outputs"),
    [
        (NLI, (0, 1, 2)),
        (("contradiction", "entailment", "neutral"), (1, 0, 2)),
        (("NOT ENOUGH INFO", "Refutes", "SUPPORTS"), (2, 1, 0)),
        (("not_there", "supported", "contradicted"), (2, 0, 1)),
    ],
)
def test_labels_of_inference_are_known_by_name_in_any_order(tmp_path, labels, outputs):
    model = open_entailment(write_model(tmp_path / "model", labels, outputs=outputs), threads=1)
    np.testing.assert_allclose(probabilities(model), VERDICTS, atol=1e-4)


@pytest.mark.parametrize("labels", [("unsupported", "supported"), ("LABEL_0", "LABEL_1"), None])
def test_two_labels_say_supported_or_not_there(tmp_path, labels):
    model = open_entailment(write_model(tmp_path / "model", labels, outputs=(2, 0)), threads=1)
    np.testing.assert_allclose(probabilities(model), [[1, 0, 0], [0, 0, 1], [0, 0, 1]], atol=1e-4)


def test_a_second_label_that_refutes_is_a_contradiction(tmp_path):
    model = open_entailment(write_model(tmp_path / "model", ("entailment", "contradiction"), outputs=(0, 1)), threads=1)
    np.testing.assert_allclose(probabilities(model)[:2], VERDICTS[:2], atol=1e-4)


@pytest.mark.parametrize(
    ("labels", "outputs"),
    [
        (("LABEL_0", "LABEL_1", "LABEL_2"), (0, 1, 2)),
        (("entailment", "neutral", "sparrow"), (0, 1, 2)),
        (("neutral", "contradiction"), (1, 2)),
        (("supported", "entailment", "neutral"), (0, 1, 2)),
        (("relevant",), (0,)),
        ({"0": None, "1": ["entailment"], "2": 7}, (0, 1, 2)),
        ({"a": "entailment"}, (0, 1, 2)),
        ({"0": "entailment", "1": "neutral" * 10_000, "2": "x"}, (0, 1, 2)),
        (None, (0, 1, 2)),
    ],
)
def test_labels_that_say_nothing_are_one_sentence_with_a_remedy(tmp_path, labels, outputs):
    with pytest.raises(ModelFileError, match=r"id2label\)$") as error:
        open_entailment(write_model(tmp_path / "model", labels, outputs=outputs), threads=1)
    assert len(str(error.value)) < 700


def test_tokens_give_the_stretches_that_evidence_does_not_support(tmp_path):
    model = open_entailment(write_model(tmp_path / "model", ("supported", "hallucinated"), kind="token"), threads=1)
    assert isinstance(model, TokenEntailment)
    claim = "Lake Volta was built by the blue geese in 1965"
    judged = checked_judgements(model, [(claim, TEXT), ("Lake Volta", TEXT)])
    np.testing.assert_allclose(judged.probabilities, [[0, 0, 1], [1, 0, 0]], atol=1e-4)
    assert judged.spans is not None
    assert [claim[start:end] for start, end in judged.spans[0]] == ["built by the blue geese"]
    assert judged.spans[1] == ()


def test_a_token_that_any_window_supports_is_supported(tmp_path):
    model = open_entailment(write_model(tmp_path / "model", None, kind="token", length=16), threads=1)
    text = " ".join(["geese fly south ."] * 3 + ["lake volta lies in ghana ."] + ["geese fly south ."] * 3)
    judged = checked_judgements(model, [("lake volta lies south", text), ("the river dam", text)])
    assert judged.spans is not None
    assert judged.spans[0] == ()
    assert judged.spans[1] == ((0, len("the river dam")),)


def test_the_window_that_supports_a_claim_best_counts(tmp_path):
    model = open_entailment(write_model(tmp_path / "model", length=16), threads=1)
    filler = ["Geese fly south ."] * 8
    inside = " ".join([*filler, "Lake Volta lies in Ghana .", *filler])
    rows = probabilities(model, [("lake volta lies in ghana", inside), ("the river dam", inside)])
    np.testing.assert_allclose(rows, [[1, 0, 0], [0, 0, 1]], atol=1e-4)


def test_claims_and_evidence_of_any_length_are_read(tmp_path):
    for kind in ("pair", "token"):
        model = open_entailment(
            write_model(tmp_path / kind, NLI[:1] + NLI[2:] if kind == "token" else NLI, kind=kind, length=12)
        )
        long = "geese " * 500
        rows = probabilities(model, [(long, long), ("", ""), ("geese", ""), ("", "geese"), ("x" * 5_000, "y" * 5_000)])
        assert rows.shape == (5, 3)
        assert np.abs(rows.sum(axis=1) - 1).max() < 1e-5
        assert probabilities(model, []).shape == (0, 3)


words = st.lists(st.sampled_from(["geese", "fly", "south.", "volta", "lies"]), max_size=30).map(" ".join)


@given(st.lists(st.tuples(words, words), max_size=5), st.integers(2, 20))
def test_windows_hold_all_words_in_order_and_fit(pairs, room):
    rows, parts = in_windows(pairs, lambda text: len(text.split()), room)
    assert rows.tolist() == sorted(rows.tolist())
    for number, (claim, evidence) in enumerate(pairs):
        windows = [text for row, (_, text) in zip(rows, parts, strict=True) if row == number]
        assert windows
        assert " ".join(windows).split() == evidence.split()
        most = max(room - len(claim.split()), int(0.25 * room), 1)
        assert all(len(window.split()) <= most for window in windows)


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=12))
def test_the_largest_of_windows_are_probabilities(windows):
    rows = np.array([row for row, *_ in windows])
    given_rows = np.array([[a * b, a * (1 - b), 1 - a] for _, a, b in windows], np.float32)
    found = largest(given_rows, rows, 4)
    assert ((found >= 0) & (found <= 1)).all()
    for row in set(rows.tolist()):
        assert found[row].sum() == pytest.approx(1, abs=1e-5)
        assert found[row, 0] == given_rows[rows == row, 0].max()


@pytest.mark.parametrize("kind", ["pair", "token"])
def test_a_graph_that_gives_nan_is_one_sentence(tmp_path, kind):
    labels = ("supported", "unsupported") if kind == "token" else NLI
    place = write_model(tmp_path / "model", labels, kind=kind, value=float("nan"))
    with pytest.raises(ModelError, match="NaN or infinity"):
        probabilities(open_entailment(place, threads=1))


def test_a_graph_of_another_kind_than_its_configuration_says_is_refused(tmp_path):
    for kind, other, reason in (
        ("token", "Sequence", "export it for sequence classification"),
        ("pair", "Token", "export it for token classification"),
    ):
        place = write_model(tmp_path / kind, ("supported", "unsupported"), kind=kind, outputs=(0, 2))
        config = json.loads((place / "config.json").read_text("utf-8"))
        config["architectures"] = [f"BertFor{other}Classification"]
        (place / "config.json").write_text(json.dumps(config), "utf-8")
        with pytest.raises(ModelFileError, match=reason):
            open_entailment(place, threads=1)


@pytest.mark.parametrize("content", [b"{", b"\xff\xfe", b"[]", b'{"architectures": 7, "id2label": [1]}'])
def test_a_configuration_that_is_none_is_refused(tmp_path, content):
    place = write_model(tmp_path / "model")
    (place / "config.json").write_bytes(content)
    with pytest.raises(ModelFileError, match=r"config\.json"):
        open_entailment(place, threads=1)


def test_what_is_no_model_is_refused(tmp_path):
    with pytest.raises(ModelFileError):
        open_entailment(tmp_path)
    with pytest.raises(ModelFileError):
        open_entailment(tmp_path / "none")


class Broken:
    """A model of somebody's own that gives whatever it is told to."""

    name = "broken"
    around = 0

    def __init__(self, rows: Any) -> None:
        self.rows = rows

    def judge(self, pairs: Sequence[tuple[str, str]]) -> Judgements:
        assert pairs
        return Judgements(self.rows)


@pytest.mark.parametrize("rows", [np.zeros((3, 2)), np.full((3, 3), np.nan), np.full((3, 3), 2.0), np.zeros((1, 3))])
def test_no_verdict_rests_on_what_is_no_probability(rows):
    with pytest.raises(ModelError, match="from 0 to 1"):
        checked_judgements(Broken(rows), PAIRS)


def test_the_model_decides_where_there_is_evidence(tmp_path):
    model = PairEntailment(write_model(tmp_path / "model"), threads=1)
    claims = ["Lake Volta lies in Ghana", "Lake Volta was not made in 1965", "Quartz hums"]
    # By its words "not" alone refutes; the rule of this model holds a word that the evidence lacks for not there.
    by_words = ClaimChecker().check_claims(claims, [LAKE])
    checked = ClaimChecker(entailment=model).check_claims(claims, [LAKE])
    assert [claim.label for claim in checked] == ["supported", "contradicted", "not there"]
    assert [claim.evidence for claim in checked] == [claim.evidence for claim in by_words]
    assert checked[0].supported == pytest.approx(1, abs=1e-4)
    assert checked[1].contradicted == pytest.approx(1, abs=1e-4)
    assert checked[0].reason == "judged by model, with a probability of 1.00"
    assert checked[2] == by_words[2]


def test_a_pronoun_is_judged_as_what_it_stands_for(tmp_path):
    model = PairEntailment(write_model(tmp_path / "model"), threads=1)
    river = Document("2", "", ("Lake Volta lies in Ghana and was made in 1965 .",))
    response = "Lake Volta lies in Ghana. It was made in 1965."
    checked = ClaimChecker(entailment=model).check(response, [river])
    # "It" is no word of the evidence, and the rule would miss it.
    assert [(claim.label, claim.subject) for claim in checked.claims] == [
        ("supported", ""),
        ("supported", "Lake Volta"),
    ]


def test_spans_are_places_in_the_claim_even_behind_a_pronoun(tmp_path):
    model = TokenEntailment(write_model(tmp_path / "model", None, kind="token"), threads=1)
    response = "Lake Volta lies in Ghana. It was built by blue geese in 1965."
    checked = ClaimChecker(entailment=model).check(response, [Document("2", "", (TEXT,))])
    second = checked.claims[1]
    assert [second.text[start:end] for start, end in second.missing] == ["built by blue geese"]
    assert response[second.start : second.end] == second.text


def test_all_responses_are_judged_at_once_as_each_by_itself(tmp_path):
    model = PairEntailment(write_model(tmp_path / "model"), threads=1)
    responses = ["Lake Volta lies in Ghana. It was not deep.", "", "Geese fly south."]
    by_words = [ClaimChecker().check(response, [LAKE]) for response in responses]
    together = judge_responses(by_words, model, [[LAKE]] * 3)
    assert together == [ClaimChecker(entailment=model).check(response, [LAKE]) for response in responses]
    assert judge_claims([], model, []) == []


def test_a_title_is_read_before_sentences_that_do_not_name_it(tmp_path):
    model = PairEntailment(write_model(tmp_path / "model"), threads=1)
    lake = Document("1", "Akosombo dam", ("It was built in 1965 .",))
    (checked,) = ClaimChecker(entailment=model).check_claims(["Akosombo dam was built in 1965"], [lake])
    assert checked.label == "supported"


# The small model


class Sure:
    """A model of one opinion, whose log-odds count a share."""

    name = "sure"
    around = 0

    def __init__(self, probabilities: Sequence[float], share: float) -> None:
        self.probabilities, self.share = probabilities, share

    def judge(self, pairs: Sequence[tuple[str, str]]) -> Judgements:
        return Judgements(np.tile(np.array(self.probabilities, np.float32), (len(pairs), 1)), share=self.share)


class Keeping(Sure):
    """A model that keeps what it reads, with sentences around each."""

    def __init__(self, around: int) -> None:
        super().__init__((0.9, 0.05, 0.05), 1.0)
        self.around = around
        self.read: list[str] = []

    def judge(self, pairs: Sequence[tuple[str, str]]) -> Judgements:
        self.read += [evidence for _, evidence in pairs]
        return super().judge(pairs)


@pytest.mark.parametrize(
    ("around", "wanted"),
    [(0, "[Mills] Quartz hums there."), (1, "[Mills] It is old. Quartz hums there. It has a wheel.")],
)
def test_a_model_reads_as_many_sentences_around_as_it_wants(around, wanted):
    said = ("It stands still.", "It is old.", "Quartz hums there.", "It has a wheel.", "Nobody came.")
    model = Keeping(around)
    mills = [Document("1", "Mills", said), Document("2", "", ("Geese fly.",))]
    ClaimChecker(entailment=model).check_claims(["Quartz hums"], mills)
    assert model.read == [wanted]
    # Another document of the same id has other sentences around.
    model.read.clear()
    ClaimChecker(entailment=model).check_claims(
        ["Quartz hums"], [mills[0], Document("1", "Mills", ("Geese fly.",) * 5)]
    )
    assert model.read == ["[Mills] Quartz hums there."]


def test_a_model_and_the_words_decide_together_by_their_shares():
    (words,) = ClaimChecker().check_claims(["Lake Volta lies in Togo."], [LAKE])
    found = {}
    for share in (0.01, 0.5, 1.0):
        (found[share],) = ClaimChecker(entailment=Sure((0.98, 0.01, 0.01), share)).check_claims(
            ["Lake Volta lies in Togo."], [LAKE]
        )
        assert found[share].supported + found[share].contradicted <= 1
    assert found[1.0].label == "supported"
    assert abs(found[0.01].supported - words.supported) < 0.05
    assert words.supported < found[0.5].supported < found[1.0].supported
    assert words.reason in found[0.5].reason
    (refuted,) = ClaimChecker(entailment=Sure((0.01, 0.98, 0.01), 0.5)).check_claims(["Geese fly to Togo."], [LAKE])
    (before,) = ClaimChecker().check_claims(["Geese fly to Togo."], [LAKE])
    assert refuted.contradicted > before.contradicted


def test_the_small_model_judges_each_claim_by_itself():
    directory = shipped_edge()
    assert directory is not None
    model = EdgeEntailment(EdgeModel(directory))
    text = "[Holm Abbey] Holm Abbey was restored by Ivo Brandt in 1903."
    claims = [
        "Ivo Brandt restored Holm Abbey.",
        "Holm Abbey was not restored by Ivo Brandt.",
        "A long claim about geese, herons and storks, of which that abbey's text says nothing at all, whatever one may think of it.",
    ]
    together = model.judge([(claim, text) for claim in claims]).probabilities
    alone = np.concatenate([model.judge([(claim, text)]).probabilities for claim in claims])
    np.testing.assert_array_equal(together, alone)
    assert together[:2].argmax(axis=1).tolist() == [0, 1]


def test_the_small_model_judges_other_documents_by_themselves():
    directory = shipped_edge()
    assert directory is not None
    light = Document("a", "Skarra Light", ("It was built in 1912.", "It is 41 metres tall."))
    other = Document("b", "Lights", ("Skarra Light was built in 1913.", "Skarra Light is 41 metres tall."))
    checker = ClaimChecker(entailment=EdgeEntailment(EdgeModel(directory)))
    built, tall = checker.check_claims(
        ["Skarra Light was built in 1912.", "Skarra Light is 41 metres tall."], [light, other]
    )
    assert (built.label, tall.label) == ("supported", "supported")
    assert [one.evidence.text for one in built.disagreeing] == ["Skarra Light was built in 1913."]
    assert [one.label for one in tall.others] == ["supported"]


def test_a_model_alone_disputes_nothing_that_words_do_not():
    other = Document("b", "Lakes", ("Lake Volta lies in Ghana and has geese.",))
    (words,) = ClaimChecker().check_claims(["Lake Volta lies in Ghana."], [LAKE, other])
    (claim,) = ClaimChecker(entailment=Sure((0.01, 0.98, 0.01), 0.9)).check_claims(
        ["Lake Volta lies in Ghana."], [LAKE, other]
    )
    assert [one.label for one in words.others] == ["supported"]
    assert [one.label for one in claim.others] == ["not there"]
    (alone,) = ClaimChecker(entailment=Sure((0.01, 0.98, 0.01), 1.0)).check_claims(
        ["Lake Volta lies in Ghana."], [LAKE, other]
    )
    assert [one.label for one in alone.others] == ["contradicted"]


def test_words_alone_check_where_that_is_asked_for_or_nothing_else_is_there(monkeypatch):
    engine = load()
    assert isinstance(open_checker(None, engine), EdgeEntailment)
    assert open_checker("words", engine) is None
    monkeypatch.setattr("pytrace.engine.claims.shipped_edge", lambda: None)
    assert open_checker(None, engine) is None


# A language model


class Choosing(ScriptedModel):
    """A language model whose log-probabilities of A, B and C are a function of its prompt."""

    def __init__(
        self, choose: Callable[[str], Sequence[float]], *, bounded: tuple[bool, ...] = (), **options: Any
    ) -> None:
        super().__init__(**options)
        self.choose, self.bounded = choose, bounded

    def _score_options(self, prompts: Sequence[Any], options: Sequence[Sequence[str]]) -> list[OptionScores]:
        assert all(tuple(labels) == ("A", "B", "C") for labels in options)
        with np.errstate(divide="ignore"):
            return [OptionScores(np.log(self.choose(self._take(each))), 0.1, self.bounded) for each in prompts]


def leaning(text: str) -> Sequence[float]:
    """Lean to A fourfold, and else say A of "Ghana", B of "not", and C of the rest, with 0.6 beside 0.15."""
    claim = text.rpartition("Claim:")[2]
    if "N/A" in claim:
        return [0.8, 0.1, 0.1]
    chosen = "A" if "ghana" in claim else "B" if "not" in claim else "C"
    shares = [0.6 if letter == chosen else 0.15 for letter in "ABC"]
    return [shares[0] * 4, *shares[1:]]


def test_a_language_model_is_asked_for_letters_and_its_lean_taken_off():
    rows = probabilities(PromptedEntailment(Choosing(leaning)))
    # Odds 4 to 1 of the rule, and those of the content-free claim, 8 to 1, taken off a lean of 4.
    expected = np.array([[0.3, 0.15, 0.15], [0.075, 0.6, 0.15], [0.075, 0.15, 0.6]])
    np.testing.assert_allclose(rows, expected / expected.sum(axis=1, keepdims=True), atol=1e-6)


def test_each_prompt_is_asked_once_and_holds_the_claim_behind_its_text():
    model = Choosing(leaning)
    PromptedEntailment(model).judge([*PAIRS, PAIRS[0]])
    assert len(model.prompts) == len(PAIRS) + 1
    assert model.prompts[1].endswith("Text: the " + TEXT + "\nClaim: the lake lies in ghana Answer:")


def test_the_lean_stays_where_a_server_leaves_log_probabilities_out():
    rows = probabilities(PromptedEntailment(Choosing(leaning, bounded=(False, True, True))))
    np.testing.assert_allclose(rows[0], np.array([2.4, 0.15, 0.15]) / 2.7, atol=1e-6)


@pytest.mark.parametrize("model", [Choosing(lambda _: [0, 0, 0]), Choosing(leaning, bounded=(True, True, True))])
def test_a_model_that_answers_none_of_the_letters_is_one_sentence(model):
    with pytest.raises(ModelError, match="answers none of A, B, C for the claim 'the lake"):
        PromptedEntailment(model).judge(PAIRS)


def test_a_model_without_log_probabilities_is_refused():
    with pytest.raises(LogitsUnavailableError, match="gives no log-probabilities"):
        PromptedEntailment(ScriptedModel(gives_logits=False))


def test_long_evidence_is_asked_in_windows():
    model = Choosing(leaning, context_tokens=560)
    rows = probabilities(
        PromptedEntailment(model), [("lies in ghana", " ".join(f"goose {n} flies." for n in range(100)))]
    )
    assert len(model.prompts) > 4
    assert all(model.count_tokens(prompt) <= 560 for prompt in model.prompts)
    assert rows.shape == (1, 3)


@pytest.mark.models
def test_the_tiny_model_gives_probabilities_and_the_same_ones_again():
    with closing(
        LlamaCppModel(registry.resolve("smollm2-135m", "language-model"), threads=1, deterministic=True)
    ) as model:
        judge = PromptedEntailment(model)
        first, again = probabilities(judge), probabilities(judge)
    np.testing.assert_allclose(first.sum(axis=1), 1, atol=1e-5)
    assert (first == again).all()


# What is trained to look at missing words


def test_missing_words_are_marked():
    assert mark_missing("Lake Volta lies in Togo.", "Lake Volta lies in Ghana.") == "Lake Volta lies in * Togo."
    assert mark_missing("", "") == ""
    assert mark_missing("Geese.", "") == "* Geese."


def test_a_model_that_was_trained_on_marked_claims_reads_such_and_judges_beside_the_words(tmp_path):
    place = write_model(tmp_path / "model")
    config = json.loads((place / "config.json").read_text("utf-8"))
    (place / "config.json").write_text(json.dumps({**config, MARKS: True}), "utf-8")
    model = open_entailment(place, threads=1)
    # Where a word is marked, the rule finds the mark in no evidence, too; elsewhere nothing changes.
    np.testing.assert_allclose(probabilities(model), VERDICTS, atol=1e-4)
    (words,) = ClaimChecker().check_claims(["Lake Volta lies in Ghana"], [LAKE])
    (both,) = ClaimChecker(entailment=model).check_claims(["Lake Volta lies in Ghana"], [LAKE])
    odds = math.log(words.supported / (1 - words.supported))
    assert math.log(both.supported / (1 - both.supported)) == pytest.approx(
        0.75 * odds + 0.25 * math.log(1e4), abs=0.05
    )
    assert words.reason in both.reason
    assert both.supported + both.contradicted <= 1


def test_labelled_claims_are_judged_all_at_once(tmp_path):
    path = tmp_path / "rows.jsonl"
    rows = [{"claim": claim, "evidence": text, "label": "true"} for claim, text in PAIRS]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    model = PairEntailment(write_model(tmp_path / "model"), threads=1)
    found = judge(list(read_labelled(path)), ClaimChecker(), (), entailment=model).verdicts
    assert [verdict.found for verdict in found] == ["supported", "contradicted", "not there"]


# The command


@pytest.fixture
def certify(capfd, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTRACE_DEBUG", raising=False)
    write_model(tmp_path / "nli")
    rows = [{"response": claim, "contexts": [text]} for claim, text in PAIRS]
    Path("rows.jsonl").write_text("\n".join(map(json.dumps, rows)), "utf-8")

    def call(*arguments: str) -> tuple[int, str, str]:
        capfd.readouterr()
        status = common.run(program, ["certify", "--responses", "rows.jsonl", "--threads", "1", *arguments])
        return (status, *capfd.readouterr())

    return call


def test_the_command_lets_a_model_decide(certify):
    status, out, err = certify("--checker", "nli", "--json")
    assert status == 0, err
    claims = [claim for row in json.loads(out)["responses"] for claim in row["claims"]]
    assert [claim["label"] for claim in claims] == ["supported", "contradicted", "not there"]
    assert all(claim["reason"].startswith("judged by nli") for claim in claims)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [(("--checker", "nowhere"), "nowhere"), (("--checker", "nli", "--kg", "facts.tsv"), "leave out --kg")],
)
def test_what_the_command_cannot_do_is_one_sentence(certify, arguments, reason):
    status, out, err = certify(*arguments)
    assert (status, out) == (2, "")
    assert reason in err
    assert "Traceback" not in err


@pytest.mark.parametrize("label", ["maybe", "", "2", "LABEL_1"])
def test_unknown_labels_have_no_column(label):
    assert column_of(label) is None


def test_columns_of_tokens_without_names_are_supported_first():
    assert columns_of(("LABEL_0", "LABEL_1"), "x", first_supported=True) == [0, 2]
    assert columns_of(("LABEL_0", "LABEL_1"), "x") == [2, 0]
