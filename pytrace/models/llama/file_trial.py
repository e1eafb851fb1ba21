"""Whether llama.cpp can load a model file that nobody vouches for; its header and size stand for its content."""

from __future__ import annotations

import contextlib
from pathlib import Path

import numpy as np

from pytrace.models import trial
from pytrace.models.llama.gguf_header import read_header
from pytrace.models.llama.runtime import LlamaRuntime, library


def check_file(path: Path) -> None:
    """Refuse a file that would end this process when it is loaded or first used."""
    header, size = read_header(path), path.stat().st_size
    key = f"{library().__version__}-{size}-{header.sha256}"
    # No limit on memory: drivers of graphics cards reserve more addresses than any model takes.
    trial.check(path, _load, str(path), file="llama-files.json", key=key, size=size)


def _load(path: str) -> str:
    """Load a model and evaluate two tokens, as the process that called would."""
    # What is told in words is told again, better, when that process loads the file.
    with contextlib.suppress(Exception):
        _evaluate(LlamaRuntime(Path(path), cells=512, sequences=8, batch=64, threads=1))
    return ""


def _evaluate(runtime: LlamaRuntime) -> None:
    owners = np.zeros(1, np.int32)
    count = 2
    runtime.decode(
        np.arange(count, dtype=np.int32) % runtime.vocabulary_size,
        np.arange(count, dtype=np.int32),
        np.ones(count, np.int32),
        np.full(count, owners.ctypes.data, np.uint64),
        np.ones(count, np.int8),
    )
    runtime.logits(count - 1)
    for token in range(min(runtime.vocabulary_size, 100)):
        runtime.piece(token)
    runtime.tokenize("A text, 3 words. \u00e4")
