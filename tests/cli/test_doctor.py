"""What `pytrace doctor` says of CUDA: facts where there is no GPU, problems with remedies where one cannot be used."""

from __future__ import annotations

import importlib
import importlib.metadata
import re
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import msgspec
import pytest

from pytrace.cli import common, doctor, program
from pytrace.cli.features import features
from pytrace.kernels import devices

GIB = 1 << 30


@pytest.fixture(autouse=True)
def no_gpu_in_sight(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing of the machine that runs the tests decide."""
    monkeypatch.setattr(doctor, "_GPU_SIGNS", ())


def finds(monkeypatch: pytest.MonkeyPatch, *found: Any) -> None:
    monkeypatch.setattr(devices, "_module", SimpleNamespace(installation=lambda: found))


def gpu_in_sight(monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
    place.touch()
    monkeypatch.setattr(doctor, "_GPU_SIGNS", (place,))


def with_packages(monkeypatch: pytest.MonkeyPatch, **versions: str) -> None:
    real = doctor._version
    monkeypatch.setattr(doctor, "_version", lambda name: versions.get(name.replace("-", "_"), real(name)))


def of_gpus(report: doctor.Report) -> list[doctor.Problem]:
    return [problem for problem in report.problems if "GPU" in problem.what]


def without_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "_module", None)

    def missing(name: str) -> ModuleType:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(devices, "importlib", SimpleNamespace(import_module=missing))


def test_a_card_is_reported_with_what_it_is_in_text_and_json(card: str, capsys: pytest.CaptureFixture[str]) -> None:
    del card
    _, runtime, problem, listed = devices.cuda_module().installation()
    assert problem == ""
    report = doctor.examine()
    assert report.cuda.built_in
    assert report.cuda.built_with == devices.version_text(runtime)
    assert [(one.number, one.name, one.memory) for one in report.cuda.cards] == [
        (number, name, memory) for number, name, _, _, _, memory in listed
    ]
    assert report.cuda.missing == ""
    assert of_gpus(report) == []
    assert common.run(program, ["doctor", "--json"]) == 0
    assert msgspec.json.decode(capsys.readouterr().out, type=doctor.Report).cuda == report.cuda
    assert common.run(program, ["doctor"]) == 0
    assert f"{report.cuda.cards[0].name}, compute capability" in capsys.readouterr().out


def test_the_text_names_each_card_its_capability_and_its_memory(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    listed = [(0, "NVIDIA H100 80GB HBM3", 9, 0, 132, 80 * GIB), (1, "Tesla V100", 7, 0, 80, 16 * GIB)]
    finds(monkeypatch, 12080, 13000, "", listed)
    assert common.run(program, ["doctor"]) == 0
    shown = capsys.readouterr().out
    assert "built in, with CUDA 13.0; the driver serves CUDA 12.8" in shown
    assert "NVIDIA H100 80GB HBM3, compute capability 9.0, 132 multiprocessors" in shown
    assert "Tesla V100, compute capability 7.0" in shown


@pytest.mark.parametrize("found", [None, (0, 13000, "there is no CUDA driver", [])])
def test_without_a_gpu_a_missing_module_or_driver_is_a_fact_and_no_problem(
    found: tuple[Any, ...] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if found is None:
        without_module(monkeypatch)
    else:
        finds(monkeypatch, *found)
    report = doctor.examine()
    assert report.cuda.missing
    assert report.cuda.cards == []
    assert of_gpus(report) == []


def test_a_gpu_in_sight_without_the_module_is_a_problem_that_says_how_to_build_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    without_module(monkeypatch)
    gpu_in_sight(monkeypatch, tmp_path / "nvidia0")
    (problem,) = of_gpus(doctor.examine())
    assert str(tmp_path / "nvidia0") in problem.what
    assert "no CUDA module" in problem.what
    assert "PYTRACE_CUDA=on" in problem.remedy


@pytest.mark.parametrize(
    ("found", "said", "remedy"),
    [
        ((0, 13000, "there is no CUDA driver", []), "there is no CUDA driver", "install NVIDIA's driver"),
        ((11040, 13000, "the driver serves CUDA 11.4, but …", []), "serves CUDA 11.4", "install NVIDIA's driver"),
        (
            (13000, 13000, "", [(0, "GeForce GTX 1080", 6, 1, 20, 8 * GIB), (1, "Tesla V100", 7, 0, 80, 16 * GIB)]),
            "need compute capability 8.0 or more, and the newest card has 7.0",
            "Ampere",
        ),
    ],
)
def test_a_gpu_in_sight_that_cannot_be_used_is_a_problem_with_its_remedy(
    found: tuple[Any, ...], said: str, remedy: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    finds(monkeypatch, *found)
    gpu_in_sight(monkeypatch, tmp_path / "nvidia0")
    (problem,) = of_gpus(doctor.examine())
    assert said in problem.what
    assert remedy in problem.remedy


def test_one_card_that_is_new_enough_is_enough(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    listed = [(0, "Tesla V100", 7, 0, 80, 16 * GIB), (1, "NVIDIA B200", 10, 0, 148, 180 * GIB)]
    finds(monkeypatch, 13000, 13000, "", listed)
    gpu_in_sight(monkeypatch, tmp_path / "nvidia0")
    assert of_gpus(doctor.examine()) == []


def test_onnxruntime_gpu_without_any_device_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    finds(monkeypatch, 0, 13000, "there is no CUDA driver", [])
    with_packages(monkeypatch, onnxruntime_gpu="1.20.0")
    problems = [problem for problem in of_gpus(doctor.examine()) if problem.what.startswith("onnxruntime-gpu")]
    assert len(problems) == 1
    assert "there is no CUDA driver" in problems[0].what
    assert "pip uninstall onnxruntime-gpu" in problems[0].remedy


def test_a_module_that_cannot_be_loaded_or_fails_is_a_problem_and_never_a_traceback(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gpu_in_sight(monkeypatch, tmp_path / "nvidia0")
    monkeypatch.setattr(devices, "_module", None)
    real = importlib.import_module

    def broken(name: str, package: str | None = None) -> Any:
        if name == "pytrace._cuda":
            raise ImportError("libfrob.so.13: cannot open shared object file")
        return real(name, package)

    monkeypatch.setattr(importlib, "import_module", broken)
    (problem,) = of_gpus(doctor.examine())
    assert "libfrob.so.13" in problem.what
    assert "PYTRACE_CUDA=on" in problem.remedy

    def fails() -> None:
        raise RuntimeError("the driver answers nothing")

    monkeypatch.setattr(devices, "_module", SimpleNamespace(installation=fails))
    (problem,) = of_gpus(doctor.examine())
    assert "RuntimeError: the driver answers nothing" in problem.what
    assert common.run(program, ["doctor"]) == 0
    assert "Traceback" not in capsys.readouterr().err


def test_a_feature_lacks_packages_that_the_metadata_names_and_models_that_nobody_pulled() -> None:
    found = {feature.name: feature for feature in features({"onnxruntime", "python-docx"}, {"encoder"})}
    assert found["search, without a language model"].ready
    documents = found["read PDF, Word, slides, web pages, e-mail"]
    assert not documents.ready
    assert "pypdfium2" in documents.lacks
    assert "python-docx" not in documents.lacks
    assert documents.remedy == "pip install 'pytrace-rag[docs]'"
    ask = found["ask, with a model in this process"]
    assert ask.lacks.startswith("llama-cpp-python is not installed, which takes a C++ compiler")
    assert ask.lacks.endswith("; no language model is here")
    assert ask.remedy == "pip install 'pytrace-rag[cpu]' && pytrace models pull tiny"


def test_every_extra_that_the_doctor_recommends_is_one() -> None:
    recommended = {
        extra for feature in features((), ()) for extra in re.findall(r"pytrace-rag\[([\w-]+)\]", feature.remedy)
    }
    provided = importlib.metadata.metadata("pytrace-rag").get_all("Provides-Extra") or []
    assert recommended
    assert recommended <= set(provided)


def test_this_installation_can_search_and_ask(tiny_models: object) -> None:
    del tiny_models
    verdicts = {feature.name: feature.ready for feature in doctor.examine().features}
    assert verdicts["search, without a language model"]
    assert verdicts["ask, with a model in this process"]
    assert verdicts["read PDF, Word, slides, web pages, e-mail"]
    assert not verdicts["kernels on a GPU"]


def test_the_text_has_one_line_for_a_feature_and_the_command_for_what_is_lacking(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "_installed", lambda: {"onnxruntime"})
    assert common.run(program, ["doctor"]) == 0
    shown = capsys.readouterr().out
    assert "ready    certify against texts, by words\n" in shown
    assert "lacking  serve and mcp\n" in shown
    assert "do: pip install 'pytrace-rag[serve]'\n" in shown


def test_a_model_in_this_process_takes_what_runs_its_encoder_too() -> None:
    found = {feature.name: feature for feature in features({"llama-cpp-python"}, {"encoder", "language-model"})}
    ask = found["ask, with a model in this process"]
    assert (ask.ready, ask.lacks) == (False, "onnxruntime is not installed")


def test_a_pytrace_that_is_not_installed_is_not_said_to_have_its_extras(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "requires", unknown)
    found = {feature.name: feature for feature in features((), {"encoder"})}
    assert not found["serve and mcp"].ready
    assert "not known, since pytrace-rag is not installed" in found["serve and mcp"].lacks
    assert found["certify against texts, by words"].ready
