"""`--device cuda`: kernels, encoders and language model together, and refused before anything is read if one cannot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytrace.cli import common, program
from pytrace.engine import loading
from pytrace.errors import DeviceUnavailableError
from pytrace.kernels import devices
from pytrace.models.encoders import onnx_graph
from pytrace.models.llama import runtime as llama_runtime


@pytest.mark.parametrize(
    "arguments",
    [
        ("ask", "Who?", "--docs", "nowhere"),
        ("certify", "--kg", "nowhere", "--responses", "nowhere"),
        ("eval", "trace", "--data", "nowhere"),
        ("kg", "build", "--docs", "nowhere", "--out", "nowhere"),
    ],
)
def test_a_card_asked_for_and_missing_is_one_sentence_before_anything_is_read(
    arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)

    class Module:
        @staticmethod
        def require_device(number: int) -> None:
            raise DeviceUnavailableError(
                f"Tesla V100 has compute capability 7.0; the kernels need 8.0 or more ({number})"
            )

        @staticmethod
        def installation() -> tuple[int, int, str, list[Any]]:
            return 12040, 13000, "", [(0, "Tesla V100", 7, 0, 80, 1 << 34)]

    monkeypatch.setattr(devices, "_module", Module)
    assert common.run(program, [*arguments, "--device", "cuda"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("pytrace: device 'cuda' cannot be used: Tesla V100 has compute capability 7.0;")
    assert "built with CUDA 13.0, the driver serves CUDA 12.4" in said
    assert said.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def options(llm: str = "tiny", gpu_layers: int | None = None, device: str = "cuda") -> loading.Engine:
    return loading.Engine(
        encoder_name="tiny", device=device, threads=None, vector_cache=None, llm=llm, gpu_layers=gpu_layers, context=None,
        llm_style=None, llm_model=None, api_key_env="", concurrency=1, deterministic=False, cross_encoder_name=None,
    )  # fmt: skip


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Return the list of what was asked whether it can use a card; all of it can."""
    heard: list[object] = []
    monkeypatch.setattr(devices, "require", heard.append)
    monkeypatch.setattr(onnx_graph, "require_device", lambda device: heard.append(f"onnxruntime {device}"))
    monkeypatch.setattr(llama_runtime, "require_offload", lambda layers: heard.append(f"{layers} layers"))
    return heard


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, ["cuda", "onnxruntime cuda", "-1 layers"]),
        ({"gpu_layers": 7}, ["cuda", "onnxruntime cuda", "7 layers"]),
        ({"gpu_layers": 0}, ["cuda", "onnxruntime cuda", "0 layers"]),
        ({"llm": "http://gpu-box:8000"}, ["cuda", "onnxruntime cuda"]),
        ({"device": "cpu", "gpu_layers": 7}, []),
    ],
)
def test_everything_that_will_run_on_the_card_is_asked_first(
    given: dict[str, Any], expected: list[object], asked: list[object]
) -> None:
    options(**given).check_device()
    assert asked == expected


def test_a_card_that_onnxruntime_cannot_use_is_refused_by_its_providers(card: str) -> None:
    assert card == "cuda"
    if "CUDAExecutionProvider" in pytest.importorskip("onnxruntime").get_available_providers():
        pytest.skip("this onnxruntime can use a card")
    with pytest.raises(DeviceUnavailableError, match="CUDAExecutionProvider is not in the installed onnxruntime"):
        options().check_device()


def test_a_card_that_llama_cpp_cannot_use_is_refused(card: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert card == "cuda"
    monkeypatch.setattr(onnx_graph, "require_device", lambda _: None)
    monkeypatch.setattr(llama_runtime, "supports_gpu_offload", lambda: False)
    with pytest.raises(
        DeviceUnavailableError, match=r"all layers were asked for on a GPU, but this llama\.cpp has no GPU"
    ):
        options().check_device()
    with pytest.raises(DeviceUnavailableError, match="7 layers were asked for"):
        options(gpu_layers=7).check_device()
    options(gpu_layers=0).check_device()
