"""`pytrace train`: from questions to a generator that the engine runs, and the trouble on the way."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import pytest
from click.testing import CliRunner

from pytrace.cli import common, program
from pytrace.errors import InputError, ModelFileError
from pytrace.kg.queries.trained import TrainedGenerator
from pytrace.training import run
from pytrace.training.run import Source, prepare
from pytrace.training.training_settings import TrainingSettings

TINY = ("--set", "width=32", "--set", "layers=2", "--set", "heads=4", "--set", "inner=48", "--set", "vocabulary=400",
        "--set", "context=400", "--set", "variations=1", "--set", "batch=512", "--threads", "1")  # fmt: skip


Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    """Return what runs a command and gives its status, stdout and stderr."""

    def called(*arguments: str | Path) -> tuple[int, str, str]:
        capsys.readouterr()
        status = common.run(program, [str(one) for one in arguments])
        told = capsys.readouterr()
        return status, told.out, told.err

    return called


FIRST = ("ama", "kofi", "zeynep", "ilse", "goran", "mbali", "tarek", "yuki")
LAST = ("osei", "brandt", "kaya", "novak", "dube", "sato")


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return questions about the spouses of 40 people, and the triples that answer them."""
    directory = tmp_path_factory.mktemp("town")
    chance = random.Random(0)
    people = [f"{first} {last}" for first in FIRST for last in LAST][:40]
    lines, rows = [], []
    for person in people:
        spouse = chance.choice(people)
        trade = chance.choice(("baker", "smith", "judge"))
        lines += [f"{person}\tspouse\t{spouse} {person[0]}", f"{spouse} {person[0]}\tprofession\t{trade}"]
        query = f"select distinct ?x where {{ entity:/{person}/ relation:/spouse/ ?y . ?y relation:/profession/ ?x }}"
        for number, question in enumerate(
            (f"what does {person}'s wife do?", f"which profession has the wife of {person}?")
        ):
            rows.append(
                {"id": f"{person}-{number}", "question": question, "query": query, "answers": [trade], "group": person}
            )
    data, kb = directory / "questions.jsonl", directory / "town.tsv"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    kb.write_text("".join(line + "\n" for line in dict.fromkeys(lines)))
    return data, kb


def test_no_held_out_entity_is_ever_trained_on(town: tuple[Path, Path]) -> None:
    settings = TrainingSettings(variations=3)
    prepared = prepare(Source(data=(town[0],), hold_out=0.25), settings)
    held = {example.group for example in prepared.held_out}
    assert len(held) == 10
    assert len(prepared.held_out) == 20
    assert len(prepared.trained) == 60
    assert prepared.copies == 180
    assert len(prepared.texts) == 240
    for text in prepared.texts:
        assert not any(f"entity:/{name}/" in text.text or f" {name}'s" in text.text for name in held), text.text
        # The question and the correct query, and four wrong ones.
        assert [piece.learned for piece in text.pieces] == [False, True] * 5


def test_preparing_repeats_and_the_seed_matters(town: tuple[Path, Path]) -> None:
    source = Source(data=(town[0],))
    first, same, other = (prepare(source, TrainingSettings(seed=seed)) for seed in (0, 0, 1))
    assert first == same
    assert [one.id for one in first.held_out] != [one.id for one in other.held_out]


def test_without_wrong_queries_a_text_has_the_correct_one_only(town: tuple[Path, Path]) -> None:
    prepared = prepare(Source(data=(town[0],), wrong=False), TrainingSettings())
    assert {len(text.pieces) for text in prepared.texts} == {2}
    assert not any("Incorrect" in text.text for text in prepared.texts)


def test_there_must_be_something_to_learn_from(town: tuple[Path, Path]) -> None:
    with pytest.raises(InputError, match="nothing to learn from"):
        prepare(Source(), TrainingSettings())
    with pytest.raises(InputError, match="give --kb FILE"):
        prepare(Source(data=(town[0],), sample=5), TrainingSettings())


def test_examples_are_sampled_from_a_knowledge_base(town: tuple[Path, Path]) -> None:
    prepared = prepare(Source(kb=town[1], sample=30), TrainingSettings())
    assert len(prepared.trained) + len(prepared.held_out) == 30
    assert prepared.held_out


@pytest.fixture(scope="module")
def trained(town: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """Return a directory that the command trained into, and what it printed as JSON."""
    out = tmp_path_factory.mktemp("trained") / "out"
    outcome = CliRunner().invoke(
        program,
        ["train", "query-generator", "--data", str(town[0]), "--kb", str(town[1]), "--out", str(out), "--steps", "30",
         "--json", *TINY],
    )  # fmt: skip
    assert outcome.exit_code == 0, outcome.output
    return out, json.loads(outcome.stdout)


def test_training_leaves_a_generator_that_the_engine_runs_and_a_report(trained: tuple[Path, dict[str, Any]]) -> None:
    out, told = trained
    assert {path.name for path in out.iterdir()} == {
        "query-generator.gguf", "query-generator.gguf.sha256", "recipe.json", "held-out.jsonl", "report.json",
        "query-generator.questions.json", "tokenizer.json", "checkpoints",
    }  # fmt: skip
    assert json.loads((out / "report.json").read_text()) == told
    assert json.loads((out / "recipe.json").read_text()) == told["recipe"]
    assert told["recipe"]["form"] == "sparql"
    assert told["recipe"]["wrong"] is False
    # Thirty steps teach no notation, so that the grammar does at least as well.
    assert told["scores"]["overall"]["parses"]["right"] < told["held_scores"]["overall"]["parses"]["right"] == 16
    assert told["recipe"]["grammar"] == "words"
    assert told["steps"] == 30
    assert told["losses"][-1][1] < told["losses"][0][1]
    assert told["data"]["held_out"] == told["scores"]["questions"] == 16
    assert told["scores"]["overall"]["executes"]["of"] == 16
    assert list(told["scores"]["shapes"]) == ["select 2"]
    [[query]] = TrainedGenerator.load(out / "query-generator.gguf", threads=1).generate(["what does ama's wife do?"])
    assert query.written


def test_a_damaged_generator_is_not_loaded(trained: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    model = Path(shutil.copytree(trained[0], tmp_path / "copy")) / "query-generator.gguf"
    content = model.read_bytes()
    model.write_bytes(content[:-100] + bytes([content[-100] ^ 1]) + content[-99:])
    with pytest.raises(
        ModelFileError, match=r"query-generator\.gguf is damaged: its SHA-256 is not .*; train it again"
    ):
        TrainedGenerator.load(model, threads=1)


def test_a_finished_training_is_scored_again_alike(
    trained: tuple[Path, dict[str, Any]], town: tuple[Path, Path], call: Call
) -> None:
    out, told = trained
    for generator in (out, out / "query-generator.gguf"):
        status, printed, _ = call(
            "train", "evaluate", "--generator", generator, "--data", out / "held-out.jsonl", "--kb", town[1], "--json",
            "--threads", "1",
        )  # fmt: skip
        assert status == 0
        again = json.loads(printed)
        assert again["overall"] == told["held_scores"]["overall"]
        assert [row["gold"] for row in again["rows"]] == [row["gold"] for row in told["scores"]["rows"]]
    status, printed, _ = call(
        "train", "evaluate", "--generator", out, "--data", out / "held-out.jsonl", "--threads", "1"
    )
    assert status == 0
    assert "EXECUTES" in printed
    assert "select 2" in printed


def test_what_a_scored_generator_is_held_to_can_be_chosen(
    trained: tuple[Path, dict[str, Any]], town: tuple[Path, Path], call: Call
) -> None:
    out, told = trained
    arguments = ("train", "evaluate", "--generator", out, "--data", out / "held-out.jsonl", "--query-grammar")
    status, printed, said = call(*arguments, "none", "--kb", town[1], "--threads", "1", "--json")
    assert status == 0, said
    assert json.loads(printed)["overall"] == told["scores"]["overall"]
    status, _, said = call(*arguments, "words")
    assert status == 2
    assert "give --kb FILE" in said


def test_a_training_is_not_written_over_and_goes_on_only_with_its_own_data(
    trained: tuple[Path, dict[str, Any]], town: tuple[Path, Path], call: Call
) -> None:
    out, told = trained
    arguments = ("train", "query-generator", "--data", town[0], "--out", out, "--steps", "30", *TINY)
    names = ("query-generator.gguf", "held-out.jsonl", "tokenizer.json", "report.json", "recipe.json")

    def content() -> list[bytes]:
        return [(out / name).read_bytes() for name in names]

    before = content()
    status, _, said = call(*arguments)
    assert (status, "--resume" in said) == (2, True)
    for change, name in (
        (("--seed", "1"), "seed"),
        (("--wrong",), "wrong"),
        (("--set", "variations=2"), "variations"),
    ):
        status, _, said = call(*arguments, "--resume", *change)
        assert (status, name in said) == (2, True), said
        assert said.count("\n") <= 3
    assert content() == before
    status, printed, _ = call(*arguments, "--kb", town[1], "--resume", "--json")
    assert status == 0
    assert json.loads(printed) == told
    assert content()[0] == before[0]
    status, printed, _ = call(*arguments, "--kb", town[1], "--resume")
    assert status == 0
    for words in (
        "learned from",
        "30 steps",
        "held to a grammar of the knowledge base",
        "it will be used so",
        "wrong: ",
    ):
        assert words in printed


def test_a_killed_training_goes_on_to_the_same_model(
    trained: tuple[Path, dict[str, Any]], town: tuple[Path, Path], tmp_path: Path, call: Call,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    arguments = (
        "train", "query-generator", "--data", town[0], "--out", tmp_path, "--steps", "30", "--set", "checkpoint_steps=8", *TINY
    )  # fmt: skip
    whole = run.train

    def killed(*given: Any, **options: Any) -> Any:
        def tell(progress: Any) -> None:
            if progress.step == 20:
                raise KeyboardInterrupt

        return whole(*given, **{**options, "tell": tell})

    monkeypatch.setattr(run, "train", killed)
    status, _, said = call(*arguments)
    assert (status, said.splitlines()[-1]) == (130, "pytrace: interrupted")
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == [
        "lock",
        "step-00000008.pt",
        "step-00000016.pt",
    ]
    monkeypatch.setattr(run, "train", whole)
    assert call(*arguments, "--resume")[0] == 0
    name = "query-generator.gguf"
    assert weights(tmp_path / name) == weights(trained[0] / name)


def weights(path: Path) -> dict[str, bytes]:
    return {tensor.name: tensor.data.tobytes() for tensor in gguf.GGUFReader(path).tensors}


def test_a_base_learns_by_adapters(town: tuple[Path, Path], random_gguf: Path, tmp_path: Path, call: Call) -> None:
    status, printed, said = call(
        "train", "query-generator", "--data", town[0], "--out", tmp_path, "--base", random_gguf, "--lora-rank", "2",
        "--steps", "3", "--form", "sparql", "--no-wrong", "--hold-out", "0.1", "--json", *TINY,
    )  # fmt: skip
    assert status == 0, said
    told = json.loads(printed)
    assert told["trained"] < told["parameters"]
    assert told["recipe"]["base"] == "random.gguf"
    assert told["recipe"]["settings"]["rank"] == 2
    assert told["scores"]["overall"]["executes"]["share"] is None
    assert not (tmp_path / "tokenizer.json").exists()


@pytest.mark.parametrize(
    ("options", "wrong"),
    [((), False), (("--base", "tiny"), True), (("--wrong",), True), (("--base", "tiny", "--no-wrong"), False)],
)
def test_wrong_queries_are_learned_with_a_base_or_on_request(
    options: tuple[str, ...], wrong: bool, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def seen(source: Source, *_: object, **__: object) -> None:
        raise InputError(f"wrong is {source.wrong}")

    monkeypatch.setattr(run, "train_generator", seen)
    status, _, said = call("train", "query-generator", "--data", "x.jsonl", "--out", tmp_path, *options)
    assert (status, f"wrong is {wrong}" in said) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--steps", "1"), "nothing to learn from"),
        (("--data", "missing.jsonl"), "missing.jsonl"),
        (("--steps", "1", "--epochs", "1"), "length of training"),
        (("--lora-rank", "4"), "give --base too"),
        (("--base", "missing.gguf", "--data", "TOWN", "--steps", "1"), "missing.gguf"),
        (("--set", "width=30", "--set", "heads=4"), "multiple of 8"),
        (("--set", "nothing=1"), "nothing=1"),
        (("--hold-out", "1"), "hold-out"),
        (("--sample", "5"), "--kb FILE"),
        (("--data", "TOWN", "--kb", "missing.tsv", "--steps", "1", *TINY), "missing.tsv"),
    ],
)
def test_what_cannot_be_trained_is_told_in_a_sentence(
    arguments: tuple[str, ...], said: str, town: tuple[Path, Path], tmp_path: Path, call: Call
) -> None:
    given = [str(town[0]) if one == "TOWN" else one for one in arguments]
    status, printed, error = call("train", "query-generator", "--out", tmp_path / "out", *given)
    assert status == 2
    assert printed == ""
    assert said in error.splitlines()[-1]
    assert not list((tmp_path / "out").glob("*.gguf")) if (tmp_path / "out").exists() else True


def test_a_file_that_is_no_generator_is_not_scored(
    town: tuple[Path, Path], random_gguf: Path, tmp_path: Path, call: Call
) -> None:
    for generator in (random_gguf, tmp_path, tmp_path / "missing.gguf", town[0]):
        status, _, said = call("train", "evaluate", "--generator", generator, "--data", town[0])
        assert (status, "query generator" in said) == (2, True), said


@pytest.mark.data
def test_path_questions_are_split_by_the_entity_they_begin_from(shared_data: Path) -> None:
    source = Source(data=(shared_data / "pathquestion" / "PQ-2H.txt",))
    prepared = prepare(source, TrainingSettings(variations=1))
    assert len(prepared.trained) + len(prepared.held_out) == 1_908
    assert 300 < len(prepared.held_out) < 400
    assert not {example.group for example in prepared.trained} & {example.group for example in prepared.held_out}


def test_a_training_says_where_hardly_anything_can_be_held_out(tmp_path: Path, call: Call) -> None:
    """Everybody knows everybody but for two, so that nearly all questions are linked by the names that they share."""
    kb, people = tmp_path / "friends.tsv", ("Ada", "Bes", "Cem", "Dov", "Eli")
    known = [(one, other) for one in people for other in people if one != other] + [("Fay", "Gus")]
    kb.write_text("".join(f"{one}\tknows\t{other}\n" for one, other in known))
    status, _, said = call(
        "train", "query-generator", "--kb", kb, "--sample", "40", "--out", tmp_path / "out", "--steps", "2",
        "--hold-out", "0.4", *TINY,
    )  # fmt: skip
    assert status == 0, said
    assert "questions can be held out, for the others are linked" in said
