"""Rearranged weights: tried in a child process first, the verdict remembered, and never a crash or another answer here."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytrace.models import child
from pytrace.models.llama import extra_buffers as llama_buffers
from pytrace.models.llama.llama_cpp import LlamaCppModel
from pytrace.models.llama.runtime import library
from tests.gguf_files import write_random_gguf

Q4_0 = 2


def double(number: int, *, _: object = None) -> int:
    print("what a function prints is not its result")
    os.write(1, b"nor what native code prints")
    return 2 * number


def crash() -> None:
    ctypes.string_at(0)


def fail() -> None:
    raise ValueError("no luck")


def sleep() -> None:
    time.sleep(60)


def refuse_all() -> Any:
    return {"passed": [], "refused": {"CPU_REPACK": "computes wrongly with Q4_0"}}


def test_a_child_returns_what_its_function_returns() -> None:
    assert child.run(double, 21, returns=int, timeout=60) == 42


def test_a_child_that_crashes_is_told_from_one_that_fails() -> None:
    with pytest.raises(child.ChildFailedError, match=f"signal {int(signal.SIGSEGV)}") as crashed:
        child.run(crash, returns=type(None), timeout=60)
    assert crashed.value.crashed
    with pytest.raises(child.ChildFailedError, match="ValueError: no luck") as failed:
        child.run(fail, returns=type(None), timeout=60)
    assert not failed.value.crashed
    with pytest.raises(child.ChildFailedError, match=r"more than 0\.5 s") as late:
        child.run(sleep, returns=type(None), timeout=0.5)
    assert not late.value.crashed


def test_amx_is_never_left_on_the_list() -> None:
    names = llama_buffers.prepare(library())
    assert "AMX" not in names
    assert llama_buffers.prepare(library()) == names == tuple(llama_buffers._Ggml(library()).buffers())


def test_the_product_is_that_of_the_matrices() -> None:
    ggml = llama_buffers._Ggml(library())
    random = np.random.default_rng(0)
    weights = random.standard_normal((24, 512)).astype(np.float32)
    inputs = random.standard_normal((3, 512)).astype(np.float32)
    np.testing.assert_allclose(
        ggml.product(ggml.plain_buffer, 0, weights, inputs), weights @ inputs.T, rtol=1e-4, atol=1e-3
    )


class Wrong(llama_buffers._Ggml):
    """Computes in any buffer but the plain one with an error of a fourth."""

    def product(self, buffer: int, *rest: Any) -> Any:
        return super().product(self.plain_buffer, *rest) * (1.0 if buffer == self.plain_buffer else 1.25)


class NotANumber(llama_buffers._Ggml):
    def product(self, buffer: int, *rest: Any) -> Any:
        return super().product(self.plain_buffer, *rest) * (1.0 if buffer == self.plain_buffer else np.nan)


@pytest.mark.parametrize("ggml", [Wrong, NotANumber])
def test_a_buffer_that_computes_something_else_is_noticed(ggml: type[llama_buffers._Ggml]) -> None:
    another = 0  # no address is looked at
    assert llama_buffers._agrees(llama_buffers._Ggml(library()), llama_buffers._Ggml(library()).plain_buffer, Q4_0)
    assert not llama_buffers._agrees(ggml(library()), another, Q4_0)


def test_the_verdict_is_remembered_and_a_damaged_record_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTRACE_HOME", str(tmp_path / "home"))
    path = tmp_path / "home" / "llama-buffers.json"
    monkeypatch.setattr(llama_buffers, "try_buffers", refuse_all)
    assert llama_buffers._remembered("a").passed == ()
    monkeypatch.setattr(llama_buffers, "try_buffers", fail)  # not asked again
    assert "Q4_0" in llama_buffers._remembered("a").refused["CPU_REPACK"]
    for damaged in (b"", b"\xff", b'{"a": 1}', b"[]", b'{"a"'):
        path.write_bytes(damaged)
        monkeypatch.setattr(llama_buffers, "try_buffers", refuse_all)
        assert llama_buffers._remembered("a").passed == ()
        assert list(json.loads(path.read_bytes())) == ["a"]


def test_a_crash_in_the_trial_is_an_answer_and_a_failure_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTRACE_HOME", str(tmp_path))
    monkeypatch.setattr(llama_buffers, "try_buffers", crash)
    assert "signal" in llama_buffers._remembered("crash").refused["all"]
    monkeypatch.setattr(llama_buffers, "try_buffers", fail)
    assert llama_buffers._remembered("failure").passed == ()
    assert list(json.loads((tmp_path / "llama-buffers.json").read_bytes())) == ["crash"]


def test_a_home_that_cannot_be_written_to_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("PYTRACE_HOME", str(tmp_path / "file" / "home"))
    monkeypatch.setattr(llama_buffers, "try_buffers", refuse_all)
    assert llama_buffers._remembered("a").passed == ()


def test_the_key_changes_with_the_libraries_and_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    library()
    before = llama_buffers._key(("CPU_REPACK",))
    assert before == llama_buffers._key(("CPU_REPACK",)) != llama_buffers._key(("OTHER",))
    monkeypatch.setattr(llama_buffers, "processor_features", lambda: "flags : other")
    assert before != llama_buffers._key(("CPU_REPACK",))
    monkeypatch.undo()
    monkeypatch.setattr(llama_buffers, "library_files", lambda: (Path(__file__),))
    assert before != llama_buffers._key(("CPU_REPACK",))


def test_rearranged_weights_give_the_same_scores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    c = library()
    whole = write_random_gguf(tmp_path / "f32.gguf", width=128)
    parameters = c.llama_model_quantize_default_params()
    parameters.ftype = Q4_0
    quantised = tmp_path / "q4_0.gguf"
    assert c.llama_model_quantize(os.fsencode(whole), os.fsencode(quantised), ctypes.byref(parameters)) == 0
    prompts = [f"the {letter} in an" for letter in "abcdefgh"]

    def scores() -> Any:
        with LlamaCppModel(quantised, threads=1, context=64, float32_cache=True) as model:
            rows = model.score_continuations(prompts, [[" the in an the in", "xyz"]] * len(prompts))
            return np.concatenate([one.token_log_probabilities for row in rows for one in row])

    rearranged = scores()
    monkeypatch.setattr(llama_buffers, "prepare", lambda _: ())
    np.testing.assert_allclose(rearranged, scores(), atol=0.02)
