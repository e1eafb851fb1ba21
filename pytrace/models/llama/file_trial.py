"""Whether llama.cpp can load a model file that nobody vouches for, tried once in a process of its own.

A header may say what makes native code end the process, and no check of ours knows all that. What was found is remembered by the
header and the size, so that a file is tried once, wherever it lies and whatever it is called.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pytrace.errors import ModelFileError
from pytrace.models import registry
from pytrace.models.llama import child
from pytrace.models.llama.gguf_header import read_header
from pytrace.models.llama.runtime import LlamaRuntime, library

# Of a trial, besides the time to read the file from a slow disk.
_SECONDS, _BYTES_A_SECOND = 120.0, 10e6


def check_file(path: Path) -> None:
    """Refuse a file that would end this process when it is loaded or first used."""
    header, size = read_header(path), path.stat().st_size

    def trial() -> str:
        try:
            child.run(_load, str(path), returns=type(None), timeout=_SECONDS + size / _BYTES_A_SECOND)
        except child.ChildFailedError as error:
            # What is told in words is told again, better, when this process loads the file.
            return str(error) if error.crashed else ""
        return ""

    key = f"{library().__version__}-{size}-{header.sha256}"
    if ending := registry.remembered("llama-files.json", key, dict[str, str], trial):
        raise ModelFileError(f"{path}: llama.cpp crashes when it loads this model ({ending}); choose another")


def _load(path: str) -> None:
    """Load a model and evaluate two tokens, as the process that called would."""
    runtime = LlamaRuntime(Path(path), cells=512, sequences=8, batch=64, threads=1)
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
