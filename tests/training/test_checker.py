"""The checker of claims: trained from a tiny BERT on labelled claims, written as a graph, and used by its directory."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from pytrace import Document
from pytrace.certify.claims import ClaimChecker
from pytrace.certify.claims.entailment_onnx import PairEntailment, open_entailment
from pytrace.certify.claims.marked_claims import mark_missing
from pytrace.cli import common, program
from pytrace.errors import DataError, InputError
from pytrace.storage.question_hashes import load_question_hashes, question_hash
from pytrace.training.bert import cross_encoder, open_base, padded_inputs
from pytrace.training.checker_data import CheckerRow, apart, groups_of, read_claims, shared_texts
from pytrace.training.checker_run import CheckerLesson, CheckerReport, batches_by_length, label_weights, train_checker
from pytrace.training.network import train_package
from pytrace.training.ranker_lessons import PairFiles
from pytrace.training.training_settings import CheckerSettings, Length
from tests.small_rankers import PEOPLE, TOWNS, tiny_encoder

torch = train_package("torch")

SETTINGS = CheckerSettings(batch=6, context=48, frozen=0, learning_rate=1e-2, judge_steps=10)


def rows() -> list[dict[str, Any]]:
    """Return three claims about each person: as the evidence has it, of another town, and of what it does not speak of."""
    made = []
    for number, (person, town) in enumerate(zip(PEOPLE, TOWNS, strict=True)):
        evidence = [f"{person} was born in {town}.", f"{person} was a baker by the river."]
        for claim, label in (
            (f"{person} was born in {town}.", "SUPPORTS"),
            (f"{person} was born in {TOWNS[number - 1]}.", "REFUTES"),
            (f"{person} was a baker.", "supported"),
            (f"{person} lies on the river.", "not_supported"),
        ):
            made.append({"claim": claim, "evidence": evidence, "label": label})
    return made


def write(path: Path, given: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in given), "utf-8")
    return path


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_encoder(tmp_path_factory.mktemp("tiny") / "base").path


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let torch trace graphs, a tenth of the work, where a test compares its own graphs alone."""
    export = torch.onnx.export

    def trace(*arguments: Any, input_names: list[str], output_names: list[str], **_: Any) -> None:
        free = {name: [0, 1] for name in input_names} | {name: [0] for name in output_names}
        names = {"input_names": input_names, "output_names": output_names}
        export(*arguments, **names, dynamic_axes=free, dynamo=False)

    monkeypatch.setattr(torch.onnx, "export", trace)


@pytest.fixture(scope="module")
def trained(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """Return a directory that the command trained into, and what it printed as JSON."""
    place = tmp_path_factory.mktemp("trained")
    data, score = write(place / "data.jsonl", rows()[:32]), write(place / "score.jsonl", rows()[32:])
    settings = [("batch", 6), ("context", 48), ("frozen", 0), ("learning_rate", 0.01), ("judge_steps", 10)]
    outcome = CliRunner().invoke(
        program,
        ["train", "checker", "--data", str(data), "--score", str(score), "--base", str(tiny), "--out", str(place / "out"),
         "--steps", "60", "--threads", "1", "--hold-out", "0.2", "--json",
         *(word for name, value in settings for word in ("--set", f"{name}={value}"))],
    )  # fmt: skip
    assert outcome.exit_code == 0, outcome.output
    return place / "out", json.loads(outcome.stdout)


def test_what_was_trained_tells_supported_claims_from_others(trained: tuple[Path, dict[str, Any]]) -> None:
    out, report = trained
    assert json.loads((out / "report.json").read_text("utf-8")) == report
    held_out, scored = report["scores"]
    assert (held_out["name"], scored["name"], scored["model"]["n"]) == ("held out", "score.jsonl", 16)
    assert scored["model"]["balanced_accuracy"]["value"] >= 0.8
    assert scored["model"]["auroc"]["value"] >= 0.8
    assert sum(report["labels"].values()) + report["held_out"] == 32
    losses = [loss for _, loss in report["judged"]]
    assert min(losses) < 0.7 * losses[0]


def test_the_model_is_one_of_inference_with_labels_that_others_know(trained: tuple[Path, dict[str, Any]]) -> None:
    model = open_entailment(trained[0] / "model", threads=1)
    assert isinstance(model, PairEntailment)
    config = json.loads((trained[0] / "model" / "config.json").read_text("utf-8"))
    assert config["id2label"] == {"0": "entailment", "1": "contradiction", "2": "neutral"}
    document = Document("1", "", ("Ada was born in Quill.",))
    checked = ClaimChecker(entailment=model).check("Ada was born in Quill. Ada was born in Brack.", [document])
    assert [claim.label == "supported" for claim in checked.claims] == [True, False]


def test_the_graph_gives_the_probabilities_of_the_network(trained: tuple[Path, dict[str, Any]]) -> None:
    transformers = train_package("transformers")
    place = trained[0] / "model"
    network = transformers.AutoModelForSequenceClassification.from_pretrained(place).eval()
    pairs = [(row["claim"], " ".join(row["evidence"])) for row in rows()[:8]]
    files = PairFiles(place)
    assert files.max_tokens == 48
    tokens = files.pairs([(evidence, mark_missing(claim, evidence)) for claim, evidence in pairs], 48)
    with torch.no_grad():
        expected = network(**padded_inputs(tokens, files.pad_id, "cpu")).logits.softmax(1).numpy()
    found = PairEntailment(place, threads=1).judge(pairs).probabilities
    np.testing.assert_allclose(found, expected, atol=0.05)  # int8 weights


def test_eval_claims_reads_what_was_trained(
    trained: tuple[Path, dict[str, Any]], capfd: pytest.CaptureFixture[str]
) -> None:
    score = trained[0].parent / "score.jsonl"
    status = common.run(
        program, ["eval-claims", str(score), "--checker", str(trained[0] / "model"), "--threads", "1", "--json"]
    )
    assert status == 0
    told = json.loads(capfd.readouterr().out)
    assert told["scores"]["score.jsonl"] == trained[1]["scores"][1]["model"]
    assert told["notices"]["score.jsonl"].startswith(
        "none of the 16 claims was used to train the weights of the claim "
    )
    data = score.with_name("data.jsonl")
    learned = load_question_hashes(trained[0] / "model" / "onnx" / "model.onnx")
    assert learned == {question_hash(row.claim) for row in read_claims(data).rows}
    command = ["eval-claims", str(data), "--checker", str(trained[0] / "model"), "--threads", "1", "--json"]
    assert common.run(program, command) == 0
    notice = json.loads(capfd.readouterr().out)["notices"]["data.jsonl"]
    assert notice.startswith(f"{len(learned)} of 32 claims were used to train the {trained[0] / 'model'}'s weights")


@pytest.mark.usefixtures("traced")
def test_training_goes_on_and_ends_with_the_same_weights(tiny: Path, tmp_path: Path) -> None:
    data = write(tmp_path / "data.jsonl", rows())
    settings = CheckerSettings(batch=6, context=48, frozen=1, checkpoint_steps=3)
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    train_checker([data], whole, settings, Length(steps=6), base=str(tiny), hold_out=0, threads=1)
    with pytest.raises(InputError, match="another --out"):
        train_checker([data], whole, settings, Length(steps=6), base=str(tiny), hold_out=0, threads=1)
    (parts / "checkpoints").mkdir(parents=True)
    kept = whole / "checkpoints" / "step-00000003.pt"
    (parts / "checkpoints" / kept.name).write_bytes(kept.read_bytes())
    train_checker([data], parts, settings, Length(steps=6), base=str(tiny), hold_out=0, threads=1, resume=True)
    graphs = [(place / "model" / "onnx" / "model.onnx").read_bytes() for place in (whole, parts)]
    assert graphs[0] == graphs[1]


DOCS = [
    {"title": "Lake Oster", "text": "Lake Oster was made in 1931 by the Holm Dam. It lies in Norland, and is deeper than Lake Penn."},
    {"title": "Ilse Marl", "text": "The engineer Ilse Marl was born in Quillhaven. She built the Holm Dam with Tarek Voss in 1929."},
    {"title": "Quillhaven", "text": "The town of Quillhaven has 9,400 people. Quillhaven is the seat of the Voss Works."},
]  # fmt: skip


@pytest.mark.usefixtures("traced")
def test_claims_made_of_documents_are_learned_first(tiny: Path, tmp_path: Path) -> None:
    data, docs = write(tmp_path / "data.jsonl", rows()), write(tmp_path / "docs.jsonl", DOCS)
    settings = CheckerSettings(batch=6, context=48, frozen=1, checkpoint_steps=2, made=30)

    def train(name: str, **options: Any) -> CheckerReport:
        return train_checker(
            [data], tmp_path / name, settings, Length(steps=4), base=str(tiny), hold_out=0, threads=1, **options
        )

    plain, whole = train("plain"), train("whole", docs=[docs])
    assert (plain.made, 10 < whole.made <= 40) == (0, True)
    assert graph(tmp_path / "plain") != graph(tmp_path / "whole")
    assert train("again", docs=[docs]).made == whole.made
    assert graph(tmp_path / "again") == graph(tmp_path / "whole")
    with pytest.raises(InputError, match="go on with --resume"):
        train("whole", docs=[docs])
    # Ended among the made claims, and behind them: both go on to the same weights.
    for folder, step in (("checkpoints-made", "step-00000002.pt"), ("checkpoints", "step-00000002.pt")):
        part = tmp_path / folder / "part"
        (part / folder).mkdir(parents=True)
        (part / folder / step).write_bytes((tmp_path / "whole" / folder / step).read_bytes())
        train(f"{folder}/part", docs=[docs], resume=True)
        assert graph(part) == graph(tmp_path / "whole")
    with pytest.raises(InputError, match="made of two or more documents"):
        train("none", docs=[write(tmp_path / "short.jsonl", DOCS[:1])])


def graph(place: Path) -> bytes:
    return (place / "model" / "onnx" / "model.onnx").read_bytes()


def test_frozen_layers_stay_and_the_loss_is_that_of_its_formula(tiny: Path) -> None:
    network = cross_encoder(open_base(tiny, threads=1).network, seed=0, labels=("a", "b", "c")).eval()
    data = [CheckerRow("Ada was born in Quill.", "Ada was born in Quill.", 0), CheckerRow("Ada lies.", "Ada lies.", 2)]
    data = [*data, data[1], data[1]]
    files = PairFiles(tiny)
    lesson = CheckerLesson(network, data, data, SETTINGS, files)
    assert lesson.weights == pytest.approx([2, 0, 2 / 3])
    with torch.no_grad():
        logits = network(**padded_inputs(lesson.tokens, files.pad_id, "cpu")).logits.log_softmax(1)
        loss, count = lesson.loss(0, 0.0)
    expected = -(2 * logits[0, 0] + 3 * (2 / 3) * logits[1, 2]) / 4
    assert loss.item() == pytest.approx(expected.item(), rel=1e-4)
    assert lesson.judge() == pytest.approx(expected.item(), rel=1e-4)
    assert count == sum(len(ids) for ids, _ in lesson.tokens)


def test_each_side_weighs_half() -> None:
    assert label_weights([0, 0, 1, 2, 2, 2, 2, 2]) == pytest.approx([2, 8 / 12, 8 / 12])


def test_batches_have_each_claim_once_a_pass_and_go_on_where_they_were() -> None:
    lengths = [number % 7 for number in range(50)]
    batches = list(itertools.islice(batches_by_length(lengths, 4, seed=3, skipped=0), 26))
    assert sorted(itertools.chain(*batches[:13])) == sorted(itertools.chain(*batches[13:])) == list(range(50))
    assert batches[:13] != batches[13:]
    for skipped in (1, 13, 20):
        again = itertools.islice(batches_by_length(lengths, 4, seed=3, skipped=skipped), 26 - skipped)
        assert list(again) == batches[skipped:]
    spread = [max(lengths[n] for n in batch) - min(lengths[n] for n in batch) for batch in batches]
    assert np.mean(spread) < 2


def test_claims_with_a_text_in_common_stay_together() -> None:
    texts = [("a", "x"), ("b", "x"), ("b", "y"), ("c", "z"), ("a", "w"), ("d", "v")]
    data = [CheckerRow(claim, evidence, 0) for claim, evidence in texts]
    groups = groups_of(data)
    assert len({groups[number] for number in (0, 1, 2, 4)}) == 1
    assert len({*groups}) == 3
    assert apart(data, held_out=0, seed=0) == [False] * 6
    for seed in range(5):
        held = apart(data, held_out=0.4, seed=seed)
        assert 1 <= sum(held) <= 2
        assert not held[0]
    assert shared_texts(data, [CheckerRow("d", "x", 1)]) == 3


def test_claims_that_share_no_word_with_their_evidence_are_left_out(tmp_path: Path) -> None:
    data = write(tmp_path / "data.jsonl", [*rows()[:2], {"claim": "Quartz hums.", "evidence": "Ada.", "label": "NEI"}])
    found = read_claims(data)
    assert (len(found.labelled), found.numbers) == (3, [0, 1])
    assert [row.label for row in found.rows] == [0, 1]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"claim": "a b", "label": "yes"}, "row 1 has no evidence"),
        ({"response": "a b", "contexts": ["a"], "label": "yes"}, "row 1 has no claim"),
        ({"claim": "a b", "evidence": "a", "label": "green"}, "label is 'green'"),
        ({"claim": 7, "evidence": "a", "label": "yes"}, "claim"),
    ],
)
def test_rows_that_cannot_be_learned_from_are_one_sentence(tmp_path: Path, row: dict[str, Any], reason: str) -> None:
    with pytest.raises(DataError, match=reason):
        read_claims(write(tmp_path / "data.jsonl", [row]))


def test_claims_of_one_label_are_refused(tiny: Path, tmp_path: Path) -> None:
    data = write(tmp_path / "data.jsonl", [row for row in rows() if row["label"] == "SUPPORTS"])
    with pytest.raises(InputError, match="12 of the 12 claims to learn from are supported"):
        train_checker([data], tmp_path / "out", SETTINGS, Length(steps=1), base=str(tiny), hold_out=0)
