"""Used as a library, the engine lets Ctrl-C through as Python users expect, and goes on afterwards."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import numpy as np
import pytest

from pytrace.models.llama.runtime import LlamaRuntime
from tests.gguf_files import write_random_gguf

TOKENS = 6_000


def interrupt_in(seconds: float) -> None:
    threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT)).start()


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # an interrupt between `open` and its `with`
@pytest.mark.usefixtures("heeding_interrupts")
def test_no_interrupt_of_a_load_is_lost(tmp_path: Path) -> None:
    path = write_random_gguf(tmp_path / "m.gguf", width=256)
    loaded: list[LlamaRuntime] = []  # so that none is destroyed while interrupts come

    def load() -> None:
        loaded.append(LlamaRuntime(path, cells=64, sequences=1, batch=64, threads=1))
        loaded[-1].close()

    def load_for_ever(delay: float) -> None:
        interrupt_in(delay)
        while True:
            load()

    load()  # with what is imported at the first
    for delay in (0.01, 0.05, 0.1, 0.2):
        with pytest.raises(KeyboardInterrupt):
            load_for_ever(delay)


@pytest.mark.usefixtures("heeding_interrupts")
def test_an_interrupt_ends_an_evaluation_in_the_middle_and_the_model_goes_on(tmp_path: Path) -> None:
    path = write_random_gguf(tmp_path / "m.gguf", width=256, context=TOKENS)
    runtime = LlamaRuntime(path, cells=TOKENS, sequences=1, batch=TOKENS, threads=1)

    def decode(count: int) -> None:
        owners = np.zeros(1, np.int32)
        runtime.decode(
            np.full(count, 5, np.int32),
            np.arange(count, dtype=np.int32),
            np.ones(count, np.int32),
            np.full(count, owners.ctypes.data, np.uint64),
            np.array([0] * (count - 1) + [1], np.int8),
        )

    interrupt_in(0.5)
    with pytest.raises(KeyboardInterrupt):
        decode(TOKENS)
    assert runtime._c.llama_memory_seq_pos_max(runtime._memory, 0) < TOKENS - 1, "it was evaluated to its end"
    runtime.clear()
    decode(3)
    assert np.isfinite(runtime.logits(2)).all()
    runtime.close()
