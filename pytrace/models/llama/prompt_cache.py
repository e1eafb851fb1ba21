"""What prompts begin with, evaluated once and kept on disk: the keys and values of instructions and demonstrations.

A process that starts has them from there in milliseconds instead of reading some hundred tokens again (llama.cpp's state of a
sequence). A file is named after the tokens and all that decides what llama.cpp computes of them, so another model, version or
setting never sees it; it appears whole or not at all, is compared with its checksums when it is read, and may be deleted at any
time: whatever is missing or damaged is evaluated anew, and what cannot be written costs that in the next process.
"""

from __future__ import annotations

import hashlib
import os
import time
from contextlib import suppress
from pathlib import Path

import numpy as np

from pytrace.errors import StoreError
from pytrace.models.llama.evicted_prefixes import State
from pytrace.models.llama.prefix_trie import Tokens
from pytrace.storage.array_file import ArrayFile, write_arrays

_SUFFIX = ".prefix"
# Keys and values take 23 kB (SmolLM2-135M) to 512 kB (Llama 2 7B) a token; so many bytes hold all that a few models are asked with.
MOST_BYTES = 1 << 30
_ABANDONED = 3600.0  # seconds after which nobody writes a file any more


class PromptCache:
    """The files of a directory that belong to one model, engine and setting; all of the directory is bounded together."""

    def __init__(self, directory: Path, *identity: object, most_bytes: int = MOST_BYTES) -> None:
        self._directory = directory
        self._identity = repr(identity).encode()
        self._most_bytes = most_bytes

    def load(self, tokens: Tokens) -> State | None:
        """Return the keys and values of a prefix; None if they are not there."""
        path = self._path(tokens)
        try:
            with ArrayFile.open(path, what="the prompt cache", remedy="delete it") as file:
                file.verify()
                if not np.array_equal(file["tokens"], tokens):
                    raise StoreError(f"{path} holds the state of another prompt; delete it")
                state = file["state"].copy()  # a mapped file that another process cuts short would end this one
        except StoreError:
            with suppress(OSError):
                path.unlink()
            return None
        with suppress(OSError):
            os.utime(path)  # what is used stays longest
        return state

    def save(self, tokens: Tokens, state: State) -> None:
        """Keep the keys and values of a prefix, and let go of what was not used for longest where that is too much."""
        if state.nbytes > self._most_bytes:
            return
        with suppress(StoreError, OSError):
            self._directory.mkdir(parents=True, exist_ok=True)
            self._make_room(self._most_bytes - state.nbytes)
            write_arrays(self._path(tokens), {"tokens": tokens, "state": state})

    def _make_room(self, left: int) -> None:
        """Delete the files that were not used for longest, until so many bytes are left of the others."""
        for path in self._directory.glob(".*.partial"):
            if path.stat().st_mtime < time.time() - _ABANDONED:  # whoever wrote it was killed
                path.unlink(missing_ok=True)
        for _, size, path in sorted(kept_files(self._directory), reverse=True):
            left -= size
            if left < 0:
                path.unlink(missing_ok=True)

    def _path(self, tokens: Tokens) -> Path:
        name = hashlib.sha256(self._identity + tokens.tobytes()).hexdigest()
        return self._directory / f"{name}{_SUFFIX}"


def kept_files(directory: Path) -> list[tuple[int, int, Path]]:
    """Return the files of a prompt cache: when each was last used (nanoseconds), its bytes, and where it is."""
    found = []
    for path in directory.glob(f"*{_SUFFIX}"):
        with suppress(OSError):  # another process may have deleted it
            status = path.stat()
            found.append((status.st_mtime_ns, status.st_size, path))
    return found
