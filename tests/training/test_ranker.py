"""Rankers: trained from a tiny BERT, written as graphs with int8 weights, and read by pytrace and sentence-transformers alike."""

from __future__ import annotations

import json
import shutil
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from click.testing import CliRunner

from pytrace.cli import program
from pytrace.errors import InputError, ModelError, ModelFileError
from pytrace.models.encoders.cross_encoder import OnnxCrossEncoder
from pytrace.models.encoders.encoder import OnnxEncoder
from pytrace.models.encoders.encoder_files import EncoderFiles
from pytrace.storage.question_hashes import load_question_hashes, question_hash
from pytrace.training import ranker_export, trainer
from pytrace.training.bert import Base, cross_encoder, mean_vectors, open_base, padded_inputs
from pytrace.training.network import train_package
from pytrace.training.ranker_data import Hop, Searched, read_set
from pytrace.training.ranker_export import write_ranker
from pytrace.training.ranker_lessons import CrossEncoderLesson, EncoderLesson, PairFiles
from pytrace.training.ranker_run import train_ranker
from pytrace.training.training_settings import Length, OptimizerSettings, RankerSettings
from tests.small_rankers import Tiny, rows, tiny_encoder, write_rows
from tests.small_trainings import Killed, equal, killer, weights

torch = train_package("torch")

TEXTS = ["Ada was born in Quill.", "Quill lies on the river Aure. " * 4, "by the river", ""]
PAIRS = [("Where was Ada born?", text) for text in TEXTS[:3]]
SETTINGS = RankerSettings(batch=4, negatives=2, mined=4, learning_rate=1e-2, judge_steps=5, temperature=0.1)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    return tiny_encoder(tmp_path_factory.mktemp("tiny") / "base")


@pytest.fixture(scope="module")
def tiny(made: Tiny) -> Path:
    return made.path


@pytest.fixture
def base(tiny: Path) -> Base:
    return open_base(tiny, threads=1)


@pytest.fixture(scope="module")
def trained(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """Return a directory that the command trained a cross-encoder into, and what it printed as JSON."""
    place = tmp_path_factory.mktemp("trained")
    data, score = write_rows(place / "data.jsonl", slice(0, 9)), write_rows(place / "score.jsonl", slice(9, None))
    outcome = CliRunner().invoke(
        program,
        ["train", "ranker", "--kind", "cross-encoder", "--data", str(data), "--score", str(score), "--base", str(tiny),
         "--out", str(place / "out"), "--steps", "12", "--threads", "1", "--json", "--set", "batch=4", "--set", "mined=4",
         "--set", "judge_steps=5", "--set", "learning_rate=0.01", "--set", "checkpoint_steps=6"],
    )  # fmt: skip
    assert outcome.exit_code == 0, outcome.output
    return place / "out", json.loads(outcome.stdout)


def _lesson(base: Base, data: Path, settings: RankerSettings = SETTINGS, **options: Any) -> EncoderLesson:
    sets = [Searched(read_set(data), base.encoder)]
    hops = sets[0].hops(0, mined=settings.mined)
    return EncoderLesson(base.network, sets, hops[4:], hops[:4], settings, files=base.files, **options)


def _cosines(one: Any, other: Any) -> Any:
    one, other = np.asarray(one, np.float64), np.asarray(other, np.float64)
    return (one * other).sum(1) / np.linalg.norm(one, axis=1) / np.linalg.norm(other, axis=1)


def _tokens(files: EncoderFiles) -> list[tuple[list[int], list[int]]]:
    return [(ids, [0] * len(ids)) for ids in files.token_ids(list(TEXTS), files.max_tokens)]


def test_the_exported_graph_gives_the_vectors_of_the_network(made: Tiny, base: Base) -> None:
    tokens = _tokens(base.files)
    with torch.no_grad():
        vectors = mean_vectors(made.network, tokens, base.files.pad_id).numpy()
        inputs = {name: tensor.numpy() for name, tensor in padded_inputs(tokens, base.files.pad_id, "cpu").items()}
    [hidden] = onnxruntime.InferenceSession(made.graph.SerializeToString()).run(None, inputs)
    mask = inputs["attention_mask"][..., None]
    assert _cosines((hidden * mask).sum(1), vectors).min() > 0.99999
    # Of int8 weights.
    assert 0.999 < _cosines(base.encoder.encode(TEXTS), vectors).min() < 1
    stored = onnx.load(str(made.path / "onnx" / "model.onnx"))
    kinds = {item.name: item.data_type for item in stored.graph.initializer if np.prod(item.dims) >= 1024}
    assert set(kinds.values()) == {onnx.TensorProto.INT8}
    # The network that is read from them has the very weights that the graph computes with.
    with torch.no_grad():
        again = mean_vectors(base.network, tokens, base.files.pad_id).numpy()
    assert _cosines(base.encoder.encode(TEXTS), again).min() > 0.999999


def test_a_text_has_the_same_vector_whatever_stands_beside_it(tiny: Path, base: Base) -> None:
    assert not base.encoder._graph.dynamically_quantized
    assert base.encoder.max_tokens == 48
    alone = np.concatenate([OnnxEncoder(tiny, threads=1).encode([text]) for text in TEXTS])
    np.testing.assert_allclose(alone, base.encoder.encode(TEXTS), atol=1e-6)


def test_sentence_transformers_reads_what_is_written(tiny: Path, base: Base, trained: tuple[Path, Any]) -> None:
    from sentence_transformers import CrossEncoder, SentenceTransformer

    theirs = SentenceTransformer(str(tiny), device="cpu")
    assert theirs.max_seq_length == 48
    assert theirs.prompts["query"] == "find: "
    for kind in ("query", "passage"):
        vectors = theirs.encode_query(TEXTS) if kind == "query" else theirs.encode_document(TEXTS)
        assert _cosines(vectors, base.encoder.encode(TEXTS, kind=kind)).min() > 0.999  # type: ignore[arg-type]
    model = trained[0] / "model"
    scores = CrossEncoder(str(model), device="cpu").predict(PAIRS, activation_fn=torch.nn.Identity())
    assert np.ptp(scores) > 0.01
    assert np.ptp(scores) > 0.01
    np.testing.assert_allclose(OnnxCrossEncoder(model, threads=1).score(PAIRS), scores, atol=0.05 * np.ptp(scores))


def test_the_command_leaves_a_cross_encoder_and_a_report(trained: tuple[Path, dict[str, Any]]) -> None:
    out, told = trained
    assert {path.name for path in out.iterdir()} == {"model", "report.json", "checkpoints"}
    assert json.loads((out / "report.json").read_text()) == told
    learned = load_question_hashes(out / "model" / "onnx" / "model.onnx")
    assert learned == {question_hash(row["question"]) for row in rows(slice(0, 9))}
    assert told["recipe"]["kind"] == "cross-encoder"
    assert told["hops"] + told["held_out"] == 18
    assert [step for step, _ in told["judged"]] == [0, 5, 10, 12]
    assert told["trained"] < told["parameters"]
    assert [(row["titles"], row["query"]) for row in told["scores"]] == [
        (titles, query) for titles in ("kept", "gone") for query in ("question", "hop")
    ]
    for row in told["scores"]:
        assert (row["questions"], row["passages"]) == (3, 9)
        for depth in ("2", "5", "10"):
            gain = row["after"][depth]["mean"] - row["before"][depth]["mean"]
            assert row["gain"][depth]["mean"] == pytest.approx(gain)


def test_an_encoders_loss_is_that_of_its_formula(base: Base, tmp_path: Path) -> None:
    lesson = _lesson(base, write_rows(tmp_path / "town.jsonl"))
    hops = [*lesson.hops[:3], lesson.hops[1]]
    negatives = [hop.negatives[:2] for hop in hops]
    rows = [hop.positive for hop in hops] + [row for some in negatives for row in some]
    with torch.no_grad():
        loss = lesson._loss(hops, negatives)[0].item()
        queries = mean_vectors(base.network, _encoded(base, ["find: " + hop.query for hop in hops]), 0).numpy()
        passages = mean_vectors(base.network, _encoded(base, [lesson.sets[0].texts[row] for row in rows]), 0).numpy()
    expected, left_out = [], 0
    for number, hop in enumerate(hops):
        counted = [place for place, row in enumerate(rows) if place == number or row not in hop.supporting]
        left_out += len(rows) - len(counted)
        scores = passages[counted] @ queries[number] / 0.1
        expected.append(np.log(np.exp(scores).sum()) - passages[number] @ queries[number] / 0.1)
    assert left_out
    assert loss == pytest.approx(np.mean(expected), rel=1e-4)


def _encoded(base: Base, texts: list[str]) -> list[tuple[list[int], list[int]]]:
    return [(ids, [0] * len(ids)) for ids in base.files.token_ids(texts, 48)]


def test_a_cross_encoder_learns_the_right_passage_among_those_of_its_hop(
    tiny: Path, base: Base, tmp_path: Path
) -> None:
    network = cross_encoder(base.network, seed=0).eval()
    sets = [Searched(read_set(write_rows(tmp_path / "town.jsonl")), base.encoder)]
    hops: list[Hop] = sets[0].hops(0, mined=4)
    lesson = CrossEncoderLesson(network, sets, hops, [], SETTINGS, files=PairFiles(tiny))
    with torch.no_grad():
        loss = lesson._loss(hops[:2], [hops[0].negatives[:3], hops[1].negatives[:1]])[0].item()
        each = [
            network(**padded_inputs(lesson.files.pairs(pairs, 48), 0, "cpu")).logits[:, 0]
            for pairs in (
                [(hop.query, sets[0].texts[row]) for row in (hop.positive, *hop.negatives[:count])]
                for hop, count in zip(hops[:2], (3, 1), strict=True)
            )
        ]
    expected = [float(torch.logsumexp(scores, 0) - scores[0]) for scores in each]
    assert loss == pytest.approx(np.mean(expected), rel=1e-4)


@pytest.mark.parametrize("kind", ["encoder", "cross-encoder"])
def test_training_lowers_the_loss_and_repeats(tiny: Path, tmp_path: Path, kind: str) -> None:
    data = write_rows(tmp_path / "town.jsonl")
    found = []
    for _ in range(2):
        start = open_base(tiny, threads=1)
        sets = [Searched(read_set(data), start.encoder)]
        hops = sets[0].hops(0, mined=4)
        if kind == "encoder":
            network, lesson = start.network, EncoderLesson(start.network, sets, hops, [], SETTINGS, files=start.files)
        else:
            network = cross_encoder(start.network, seed=0)
            lesson = CrossEncoderLesson(network, sets, hops, [], SETTINGS, files=PairFiles(tiny))  # type: ignore[assignment]
        done = trainer.learn(network, lesson, SETTINGS, Length(steps=24), threads=1)
        found.append((done.losses, weights(network)))
    assert found[0][0] == found[1][0]
    assert equal(found[0][1], found[1][1])
    losses = found[0][0]
    assert np.mean(losses[-6:]) < 0.9 * np.mean(losses[:6])


def test_a_killed_training_goes_on_as_if_nothing_had_been(tiny: Path, tmp_path: Path) -> None:
    data = write_rows(tmp_path / "town.jsonl")
    settings = RankerSettings(batch=4, mined=4, judge_steps=3, checkpoint_steps=2, learning_rate=1e-3)

    def run(**options: Any) -> tuple[trainer.Training, dict[str, Any]]:
        start = open_base(tiny, threads=1)
        done = trainer.learn(
            start.network, _lesson(start, data, settings), settings, Length(steps=9), threads=1, **options
        )
        return done, weights(start.network)

    whole, there = run()
    with pytest.raises(Killed):
        run(directory=tmp_path / "checkpoints", tell=killer(5))
    resumed, same = run(directory=tmp_path / "checkpoints", resume=True)
    assert (resumed.losses, resumed.judged) == (whole.losses, whole.judged)
    assert equal(there, same)
    assert [step for step, _ in whole.judged] == [0, 3, 6, 9]


class Scripted:
    """A lesson whose loss on what is held out is known beforehand."""

    fingerprint = ""
    epoch_steps = 1
    judge_steps = 1
    patience = 2

    def __init__(self, network: Any, judged: list[float]) -> None:
        self.network, self.judged, self.seen = network, iter(judged), []  # type: ignore[var-annotated]

    def loss(self, step: int, share: float) -> tuple[Any, int]:
        del step, share
        return self.network(torch.ones(1, 2)).sum(), 1

    def judge(self) -> float:
        self.seen.append(weights(self.network))
        return next(self.judged)

    def state(self) -> dict[str, int]:
        return {}

    def restore(self, state: Any) -> None:
        del state


def test_training_ends_where_held_out_questions_get_no_better_and_the_best_weights_stay() -> None:
    network = torch.nn.Linear(2, 1)
    lesson = Scripted(network, [5.0, 3.0, 4.0, 3.0, 1.0])
    done = trainer.learn(network, lesson, OptimizerSettings(warm_up=0), Length(steps=30), threads=1)
    assert [loss for _, loss in done.judged] == [5.0, 3.0, 4.0, 3.0]
    assert done.steps == 3
    assert equal(weights(network), lesson.seen[1])
    assert not equal(lesson.seen[1], lesson.seen[3])


def test_a_model_is_written_as_a_whole_or_not_at_all(
    made: Tiny, base: Base, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "model"
    shutil.copytree(made.path, target)
    before = {path.relative_to(target): path.read_bytes() for path in target.rglob("*") if path.is_file()}

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ranker_export, "store_int8", interrupted)
    monkeypatch.setattr(ranker_export, "float_graph", lambda *_: None)
    for place in (target, tmp_path / "new"):
        with pytest.raises(KeyboardInterrupt):
            write_ranker(place, base.network, base.files, "encoder")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    (tmp_path / ".model.killed").mkdir()
    assert {path.relative_to(target): path.read_bytes() for path in target.rglob("*") if path.is_file()} == before
    monkeypatch.undo()
    monkeypatch.setattr(ranker_export, "float_graph", lambda *_: deepcopy(made.graph))
    (target / "report.txt").write_text("of the model before")
    write_ranker(target, base.network, base.files, "encoder")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    assert not (target / "report.txt").exists()
    assert OnnxEncoder(target, threads=1).dimension == 32


def test_what_cannot_be_begun_with_is_told(tiny: Path, tmp_path: Path) -> None:
    pooled = Path(shutil.copytree(tiny, tmp_path / "pooled"))
    (pooled / "1_Pooling" / "config.json").write_text('{"pooling_mode": "cls"}')
    with pytest.raises(
        ModelFileError, match=r"does not give the mean of its tokens' vectors, normalised, .* begin with"
    ):
        open_base(pooled, threads=1)
    other = Path(shutil.copytree(tiny, tmp_path / "other"))
    (other / "config.json").write_text('{"num_attention_heads": 2, "model_type": "bert"}')
    with pytest.raises(ModelFileError, match="has weights that give other vectors than the graph itself; begin"):
        open_base(other, threads=1)
    unnamed = Path(shutil.copytree(tiny, tmp_path / "unnamed"))
    model = onnx.load(str(tiny / "onnx" / "model.onnx"))
    for node in model.graph.node:
        node.input[:] = [name.replace("word_embeddings", "words") for name in node.input]
        node.output[:] = [name.replace("word_embeddings", "words") for name in node.output]
    for item in model.graph.initializer:
        item.name = item.name.replace("word_embeddings", "words")
    onnx.save(model, str(unnamed / "onnx" / "model.onnx"))
    with pytest.raises(ModelFileError, match="its weights have no names to go by; begin with a BERT"):
        open_base(unnamed, threads=1)


def test_what_cannot_be_learned_from_is_told(tiny: Path, tmp_path: Path) -> None:
    few, town = write_rows(tmp_path / "few.jsonl", slice(0, 1)), write_rows(tmp_path / "town.jsonl")

    def run(data: Path, **options: Any) -> None:
        train_ranker([data], tmp_path / "out", SETTINGS, Length(steps=1), base=str(tiny), threads=1, **options)

    with pytest.raises(InputError, match=r"all 24 hops were held out; give more data or a smaller --hold-out"):
        run(town, hold_out=0.99)
    with pytest.raises(InputError, match="stand in town too, which is learned from"):
        run(town, score=[few])
    assert not (tmp_path / "out" / "model").exists()
    alone = tmp_path / "alone.jsonl"
    alone.write_text(
        '{"question": "Who?", "answers": ["Ada"], "documents": [{"title": "A", "text": "B.", "supporting": true}]}'
    )
    with pytest.raises(InputError, match=r"all passages support an answer, .* give more passages"):
        run(alone)


def test_a_loss_that_is_no_number_ends_the_training(tiny: Path, tmp_path: Path) -> None:
    start = open_base(tiny, threads=1)
    with torch.no_grad():
        start.network.encoder.layer[0].output.dense.bias[0] = float("nan")
    lesson = _lesson(start, write_rows(tmp_path / "town.jsonl"))
    lesson.judge_steps = 0
    with pytest.raises(ModelError, match=r"the loss of step 1 is nan .* lower learning_rate"):
        trainer.learn(start.network, lesson, SETTINGS, Length(steps=2), threads=1)
