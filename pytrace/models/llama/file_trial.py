"""Whether llama.cpp can load a model file that nobody vouches for; its header and size stand for its content."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Literal

import numpy as np

from pytrace.models import registry, trial
from pytrace.models.llama.gguf_header import Header, read_header
from pytrace.models.llama.pooled_runtime import GgufPooling, PooledRuntime
from pytrace.models.llama.runtime import LlamaRuntime, library


def check_file(path: Path, pooling: GgufPooling | None = None) -> Header:
    """Refuse a file that would end this process when it is loaded or first used; with `pooling`, as an encoder."""
    header, size = read_header(path), path.stat().st_size
    if registry.identify(path) is None:  # what the catalog pins needs no trial
        key = "-".join(filter(None, (library().__version__, str(size), header.sha256, pooling)))
        # No limit on memory: drivers of graphics cards reserve more addresses than any model takes.
        trial.check(path, _load, str(path), pooling or "", file="llama-files.json", key=key, size=size)
    return header


def _load(path: str, pooling: GgufPooling | Literal[""]) -> str:
    """Load a model and evaluate a little, as the process that called would."""
    # What is told in words is told again, better, when that process loads the file.
    with contextlib.suppress(Exception):
        if pooling:
            _pool(PooledRuntime(Path(path), pooling=pooling, threads=1))
        else:
            _evaluate(LlamaRuntime(Path(path), cells=512, sequences=8, batch=64, threads=1))
    return ""


def _pool(runtime: PooledRuntime) -> None:
    before, after = runtime.frame
    body = runtime.tokenize("A text, 3 words. \u00e4")
    assert runtime.between is not None
    assert runtime.labels is not None
    for _ in runtime.rows([[*before, *body, *after], [0]]):
        pass


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
