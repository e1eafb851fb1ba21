"""Encoders that nobody vouches for are tried once in a process of their own, and what would end this one is a sentence."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pytrace.errors import ModelFileError
from pytrace.models import child, registry, trial
from pytrace.models.encoders.cross_encoder import OnnxCrossEncoder
from pytrace.models.encoders.encoder import OnnxEncoder

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed (extra cpu)")
pytest.importorskip("onnx", reason="onnx is not installed (dependency group test)")
from tests.hostile_encoders import TOKENIZERS, make_hostile
from tests.models.test_encoder import make


@pytest.fixture
def trials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list to which each trial adds itself, in a home where none was made yet."""
    monkeypatch.setenv("PYTRACE_HOME", str(tmp_path / "home"))
    made: list[str] = []
    run = child.run

    def counted(*arguments: Any, **options: Any) -> Any:
        made.append(arguments[1])
        return run(*arguments, **options)

    monkeypatch.setattr(child, "run", counted)
    return made


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("a character map that claims all memory", r"was ended by signal 6 \(Aborted\)"),
        ("a merge behind its word's end", "panicked: slice index starts at 1 but ends at 0"),
        ("a constant of a terabyte", "wanted more memory than a model of its size takes"),
    ],
)
def test_what_ends_a_process_is_told_and_remembered_by_content(
    tmp_path: Path, trials: list[str], capfd: pytest.CaptureFixture[str], what: str, said: str
) -> None:
    shutil.copytree(make_hostile(tmp_path / "first", what), tmp_path / "second")
    kinds = (OnnxEncoder, OnnxCrossEncoder) if what in TOKENIZERS else (OnnxEncoder,)
    for kind in kinds:
        for name in ("first", "second"):
            with pytest.raises(
                ModelFileError, match=f"{name} is no model that can be loaded .a process that tried it {said}"
            ):
                kind(tmp_path / name)
    assert len(trials) == len(kinds)
    assert capfd.readouterr() == ("", "")


def test_a_graph_that_never_ends_is_refused_by_the_time_that_it_took(
    tmp_path: Path, trials: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = make_hostile(tmp_path / "model", "a loop without end")
    monkeypatch.setattr(trial, "_PATIENCE", 0.01)
    with pytest.raises(ModelFileError, match="took more than"):
        OnnxEncoder(place)
    monkeypatch.setattr(trial, "_PATIENCE", 100)
    monkeypatch.setattr(trial, "_SECONDS", 1)
    for _ in range(2):  # which only the processor's time is remembered of: the machine may have been busy before
        with pytest.raises(ModelFileError, match="signal 24"):
            OnnxEncoder(place)
    assert len(trials) == 2


def test_several_that_load_a_model_at_once_try_it_once(tmp_path: Path, trials: list[str]) -> None:
    place = make(tmp_path / "model")
    with ThreadPoolExecutor(3) as pool:
        assert len({encoder.fingerprint for encoder in pool.map(OnnxEncoder, [place] * 3)}) == 1
    assert len(trials) == 1


def test_a_changed_model_is_tried_again_and_one_without_a_home_each_time(
    tmp_path: Path, trials: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = make(tmp_path / "model", external="numbers")
    OnnxEncoder(place)
    weights = place / "numbers"
    weights.write_bytes(weights.read_bytes()[::-1])
    OnnxEncoder(place)
    assert len(trials) == 2
    monkeypatch.setenv("PYTRACE_HOME", str(weights / "home"))
    OnnxEncoder(place)
    assert len(trials) == 3


@pytest.mark.models
def test_what_the_catalog_pins_is_not_tried_wherever_it_lies(
    tmp_path: Path, tiny_models: dict[registry.Role, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = shutil.copytree(tiny_models["encoder"], tmp_path / "copy")
    monkeypatch.setenv("PYTRACE_HOME", str(tmp_path / "home"))
    monkeypatch.delattr(child, "run")
    OnnxEncoder(place, threads=1)
