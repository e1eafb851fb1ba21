"""Rewriting a model: chosen by measurement, kept only if it chooses alike, whole or not there, and undone in one command."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner

from pytrace.cli import models as models_cli
from pytrace.cli.doctor import examine
from pytrace.errors import ModelError, ModelFileError
from pytrace.evaluation import format_choice
from pytrace.evaluation.format_choice import Answers, accept
from pytrace.models import child, registry
from pytrace.models.llama import weight_formats
from pytrace.models.llama.llama_cpp import LlamaCppModel
from pytrace.models.llama.weight_formats import Speed
from pytrace.models.registry import model_files as store
from pytrace.models.registry import rewritten
from tests.gguf_files import write_random_gguf

FORMATS = ("Q8_0", "F16")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a model in float32 whose context holds the labelled steps, which its vocabulary spells byte by byte."""
    return write_random_gguf(tmp_path_factory.mktemp("model") / "random.gguf", context=4096, width=32, layers=1)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PYTRACE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def own(model: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(model, tmp_path / "own.gguf"))


def speeds(monkeypatch: pytest.MonkeyPatch, **seconds: float) -> None:
    """Let formats be as fast as the test says; those that are not named are slow."""

    def measure(path: Path, *, threads: int) -> Speed:
        assert threads == 1
        name = path.stem.removeprefix(".candidate-") if path.name.startswith(".candidate-") else "original"
        unit = seconds.get(name, 9.0)
        return Speed(1e4 / unit, {1: 1e3 / unit, 8: 1e3 / unit, 16: 1e3 / unit})

    monkeypatch.setattr(weight_formats, "measure", measure)


def alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all formats choose alike, where a test is about what becomes of the choice."""

    def ask(self: format_choice._Choice, name: str) -> None:
        self._answers[name] = Answers((0, 1), 2)

    monkeypatch.setattr(format_choice._Choice, "_ask", ask)


def choose(source: Path, formats: tuple[str, ...] = FORMATS) -> rewritten.Record:
    place = registry.folder_of_rewritten(source)
    return format_choice.choose(source, place, style="plain", scoring="pmi", threads=1, formats=formats)


def crash() -> None:
    ctypes.string_at(0)


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """Let no file grow beyond `size` bytes, here and in children: what a full disk looks like."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_every_format_is_written_and_scores_alike(model: Path, tmp_path: Path) -> None:
    prompts = [f"the {letter} in an" for letter in "abcd"]
    scores = {}
    for name in ("original", *weight_formats.FORMATS):
        path = model
        if name != "original":
            path = tmp_path / f"{name}.gguf"
            weight_formats.rewrite(model, path, name, threads=1)
        with LlamaCppModel(path, threads=1, context=64) as loaded:
            rows = loaded.score_continuations(prompts, [["xyz in the"]] * 4)
            scores[name] = np.concatenate([row[0].token_log_probabilities for row in rows])
    for name, bound in (("F32", 1e-3), ("F16", 0.02), ("BF16", 0.1), ("Q8_0", 0.1), ("IQ4_NL", 1.5), ("Q4_0", 1.5)):
        assert np.abs(scores[name] - scores["original"]).mean() < bound, name
    assert weight_formats.parameters(model) == weight_formats.parameters(tmp_path / "Q8_0.gguf") > 10_000


def test_speeds_are_measured_in_a_child(random_gguf: Path) -> None:
    speed = weight_formats.measure(random_gguf, threads=1)
    assert speed.prompt > 0
    assert set(speed.generation) == {1, 8, 16}
    assert min(speed.generation.values()) > 0
    assert 0 < speed.seconds < float("inf")
    faster = Speed(2 * speed.prompt, {count: value / 2 for count, value in speed.generation.items()})
    assert faster.or_faster(speed) == Speed(2 * speed.prompt, speed.generation)


def test_a_disk_that_fills_leaves_no_file(model: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.gguf"
    with file_size_limit(20_000), pytest.raises(child.ChildFailedError, match="ModelFileError"):
        weight_formats.rewrite(model, target, "Q8_0", threads=1)
    assert not target.exists()


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "hollow.gguf"
    path.write_bytes(b"GGUF" + (3).to_bytes(4, "little") + bytes(16))
    with pytest.raises(ModelFileError, match="unknown model architecture"):
        weight_formats.parameters(path)


def test_the_fastest_format_that_chooses_alike_is_used_and_undone(
    own: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    speeds(monkeypatch, F16=1.0, Q8_0=8.9)
    record = choose(own)
    assert record.format == "F16"
    assert record.source.sha256 == store.sha256_of(own)
    assert [item.format for item in record.figures] == ["original", "Q8_0", "F16"]
    verdicts = {item.format: item.verdict for item in record.figures}
    assert verdicts == {"original": "", "Q8_0": "slower than the chosen one", "F16": "chosen"}
    original, _, chosen = record.figures
    assert original.steps == chosen.steps == 47
    assert chosen.agreement is not None
    assert chosen.agreement >= 0.95
    path = registry.resolve(own, "language-model")
    assert record.sha256 is not None
    assert path.name == f"own.F16-{record.sha256[:8]}.gguf"
    assert store.sha256_of(path) == record.sha256
    assert sorted(item.name for item in path.parent.iterdir()) == [".lock", path.name, "record.json"]
    assert path.is_relative_to(home)
    assert registry.resolve_original(own).path == own
    with LlamaCppModel(path, threads=1, context=64) as loaded, LlamaCppModel(own, threads=1, context=64) as before:
        assert loaded.fingerprint != before.fingerprint
    assert rewritten.undo(path.parent)
    assert registry.resolve(own, "language-model") == own
    assert [item.name for item in path.parent.iterdir()] == [".lock"]
    assert not rewritten.undo(path.parent)


def test_the_original_is_kept_where_nothing_is_faster(own: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    speeds(monkeypatch, F16=8.9)
    record = choose(own)
    assert (record.format, record.file) == ("original", None)
    assert "no format is at least 5% faster" in record.reason
    assert registry.resolve(own, "language-model") == own
    assert [item.state for item in registry.rewritten_files()] == ["original kept"]
    assert not list(home.rglob("*.gguf"))


def test_a_format_whose_child_crashes_is_refused_with_its_reason(
    own: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    speeds(monkeypatch, F16=1.0, Q8_0=2.0)
    real = weight_formats.measure

    def measure(path: Path, *, threads: int) -> Speed:
        if "F16" in path.name:
            child.run(crash, returns=type(None), timeout=60)
        return real(path, threads=threads)

    monkeypatch.setattr(weight_formats, "measure", measure)
    alike(monkeypatch)
    record = choose(own)
    assert record.format == "Q8_0"
    figures = {item.format: item for item in record.figures}
    assert "could not be measured: was ended by signal 11" in figures["F16"].verdict
    assert figures["F16"].seconds is None
    assert len(list(home.rglob("*.gguf"))) == 1


def test_an_original_that_cannot_be_measured_is_an_error(
    own: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(path: Path, *, threads: int) -> Speed:
        del path, threads
        child.run(crash, returns=type(None), timeout=60)
        raise AssertionError

    monkeypatch.setattr(weight_formats, "measure", measure)
    with pytest.raises(ModelError, match=r"own\.gguf itself could not be measured: was ended by signal"):
        choose(own)
    assert not list(home.rglob("*.gguf"))


def test_a_full_disk_refuses_formats_and_what_a_killed_run_left_is_swept(
    own: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = registry.folder_of_rewritten(own)
    place.mkdir(parents=True)
    (place / ".candidate-F32.gguf").write_bytes(b"half")
    (place / "own.F16-00000000.gguf").write_bytes(b"no record names it")
    speeds(monkeypatch, F16=1.0)
    with file_size_limit(20_000):
        record = choose(own)
    assert record.format == "original"
    assert all("could not be written" in item.verdict for item in record.figures[1:])
    assert not list(home.rglob("*.gguf"))
    tiny = shutil.disk_usage(home)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: tiny)
    assert all("no room on disk" in item.verdict for item in choose(own).figures[1:])


def test_another_choice_replaces_the_first(own: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alike(monkeypatch)
    speeds(monkeypatch, F16=1.0)
    choose(own)
    speeds(monkeypatch, Q8_0=1.0)
    assert choose(own).format == "Q8_0"
    assert [path.name.partition("-")[0] for path in home.rglob("*.gguf")] == ["own.Q8_0"]


def test_a_source_that_has_changed_is_used_itself(
    own: Path, model: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alike(monkeypatch)
    speeds(monkeypatch, F16=1.0)
    choose(own)
    assert registry.resolve(own, "language-model").is_relative_to(home)
    own.write_bytes(model.read_bytes() + b"\0")
    assert registry.resolve(own, "language-model") == own
    assert [item.state for item in registry.rewritten_files()] == ["outdated"]


@pytest.mark.parametrize("harm", ["record", "missing", "short", "flipped"])
def test_harm_to_the_rewritten_file_or_its_record_is_told(
    own: Path, home: Path, monkeypatch: pytest.MonkeyPatch, harm: str
) -> None:
    alike(monkeypatch)
    speeds(monkeypatch, F16=1.0)
    choose(own)
    path = registry.resolve(own, "language-model")
    if harm == "record":
        (path.parent / "record.json").write_bytes(b'{"source":')
    elif harm == "missing":
        path.unlink()
    elif harm == "short":
        path.write_bytes(path.read_bytes()[:-1])
    else:
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)
    state = {"record": "damaged record", "missing": "missing", "short": "wrong size", "flipped": "wrong hash"}[harm]
    assert [item.state for item in registry.rewritten_files(hashed=True)] == [state]
    if harm != "flipped":
        with pytest.raises(ModelFileError, match=r"pytrace models fastest.*--undo"):
            registry.resolve(own, "language-model")
    result = CliRunner().invoke(models_cli.models, ["verify"])
    assert isinstance(result.exception, ModelFileError)
    assert state in str(result.exception)
    assert "pytrace models fastest" in str(result.exception)
    assert CliRunner().invoke(models_cli.models, ["list"]).exit_code == 0
    assert rewritten.undo(registry.folder_of_rewritten(own))
    assert registry.resolve(own, "language-model") == own
    assert not list(home.rglob("own.*.gguf"))


@pytest.mark.filterwarnings("ignore:testing how well")
def test_a_named_model_is_pulled_rewritten_listed_verified_and_undone(
    model: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.mkdir()
    file = {"path": "m.gguf", "sources": [{"uri": str(model)}], "sha256": store.sha256_of(model)}
    described = {"name": "m", "role": "language-model", "description": "random", "license": "none", "files": [file]}
    (home / "catalog.json").write_text(json.dumps({"models": [described]}), encoding="utf-8")
    speeds(monkeypatch, F16=1.0)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})

    def run(*arguments: str) -> Any:
        result = CliRunner().invoke(models_cli.models, [*arguments, "--json"], catch_exceptions=False)
        assert result.exit_code == 0
        return json.loads(result.stdout)

    (item,) = run("pull", "m", "--fastest")
    assert (item["rewritten"]["format"], item["rewritten"]["state"]) == ("F16", "in use")
    monkeypatch.setattr(weight_formats, "measure", None)  # a second pull leaves the choice alone
    run("pull", "m", "--fastest")
    (place,) = run("path", "m")
    assert place["path"] == item["rewritten"]["path"]
    assert Path(place["path"]).is_relative_to(home / "models" / "m")
    assert [one["rewritten"]["state"] for one in run("verify", "m")] == ["in use"]
    listed = {one["name"]: one["rewritten"] for one in run("list")["models"]}
    assert listed["m"]["record"]["format"] == "F16"
    assert listed["minilm-l6-int8"] is None
    text = CliRunner().invoke(models_cli.models, ["list"]).stdout
    assert any(line.split()[0] == "m" and " F16 " in line for line in text.splitlines())
    report = examine()
    assert "used as F16" in report.models["m"]
    assert not any("model m " in problem.what for problem in report.problems)
    record = Path(place["path"]).parent / "record.json"
    record.write_bytes(record.read_bytes().replace(b'"llama_cpp": "', b'"llama_cpp": "0.'))
    assert any("weight format of model m was chosen" in problem.what for problem in examine().problems)
    assert run("fastest", "m", "--undo") == {"name": "m", "undone": True}
    assert run("fastest", "m", "--undo") == {"name": "m", "undone": False}
    assert Path(run("path", "m")[0]["path"]).name == "m.gguf"


@pytest.mark.filterwarnings("ignore:testing how well")
def test_the_table_shows_every_format_and_the_reason(own: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alike(monkeypatch)
    speeds(monkeypatch, F16=1.0)
    choose(own)
    record = rewritten.read(registry.folder_of_rewritten(own))
    assert record is not None
    monkeypatch.setattr(format_choice, "choose", lambda *_, **__: record)
    result = CliRunner().invoke(models_cli.models, ["fastest", str(own)])
    assert result.exit_code == 0
    assert "GEN 16" in result.stdout
    for item in record.figures:
        assert any(
            line.startswith(item.format) and line.endswith(item.verdict or "-") for line in result.stdout.splitlines()
        )
    assert record.reason in result.stdout
    encoder = CliRunner().invoke(models_cli.models, ["fastest", "minilm-l6-int8"])
    assert "is for the role encoder, not language-model" in str(encoder.exception)
    assert list(home.rglob("*.gguf"))


def answers(*choices: int, correct: int) -> Answers:
    return Answers(choices, correct)


def test_the_rule_that_accepts_a_format() -> None:
    original = answers(*[0] * 19, 1, correct=10)
    assert accept(original, original, original) == ""
    assert accept(answers(*[0] * 20, correct=9), original, original) == ""  # 95 % and one step less
    assert "8 steps right, the original 10" in accept(answers(*[0] * 20, correct=8), original, original)
    assert "90.0% of the steps, at least 95.0%" in accept(answers(*[0] * 18, 1, 0, correct=10), original, original)
    reference = answers(*[0] * 17, 1, 1, 1, correct=10)  # the original itself agrees in 90 % only
    assert accept(answers(*[0] * 15, 1, 1, 1, 1, 1, correct=10), original, reference) == ""
    assert "90.0% are asked for" in accept(answers(*[0] * 14, *[1] * 6, correct=10), original, reference)


def test_a_record_survives_its_journey_through_json(own: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    speeds(monkeypatch)
    record = choose(own, formats=("F16",))
    assert home.exists()
    assert msgspec.json.decode(msgspec.json.encode(record), type=rewritten.Record) == record


@pytest.mark.models
def test_the_real_tiny_model_scores_alike_in_half_floats(
    tiny_models: dict[registry.Role, Path], tmp_path: Path
) -> None:
    path = tmp_path / "f16.gguf"
    weight_formats.rewrite(tiny_models["language-model"], path, "F16", threads=1)
    texts = [" Paris is the capital of France.", " The capital of France is Paris."]
    scores = []
    for file in (tiny_models["language-model"], path):
        with LlamaCppModel(file, style="plain", context=256) as loaded:
            (row,) = loaded.score_continuations(["Facts:"], [texts])
            scores.append(np.concatenate([one.token_log_probabilities for one in row]))
    assert np.abs(scores[0] - scores[1]).mean() < 0.5
