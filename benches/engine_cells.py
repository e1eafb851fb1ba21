"""What llama.cpp's cells cost: idle ones at every token, flash attention on a CPU, and a beginning put aside and brought back.

    python -m benches.engine_cells [--llm tiny] [--threads 2] [--json]

The engine attends with flash attention, also on a CPU, and puts beginnings that leave their cells aside in memory; these are
the figures behind it. A reading is the best of some, for other work only ever makes one longer.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from pytrace.bench import machine
from pytrace.models import registry
from pytrace.models.llama.runtime import LlamaRuntime

BEGINNING = 448
TAIL = 384
IDLE = (0, 512, 1024, 2048)
WRITERS = (1, 8, 16)
REPEATS = 4


class Cells:
    """One context, with random tokens for prompts: what they say costs nothing."""

    def __init__(self, path: Path, *, threads: int, flash: bool) -> None:
        self.runtime = LlamaRuntime(path, cells=8192, sequences=64, batch=1024, threads=threads, flash_attention=flash)
        self.tokens = np.random.default_rng(0).integers(0, self.runtime.vocabulary_size, 1024).astype(np.int32)

    def read(self, start: int, end: int, sequences: list[int]) -> None:
        """Evaluate a text's tokens from `start` to `end` for some sequences."""
        ids = np.array(sequences, np.int32)
        self._decode(end - start, list(range(start, end)), [ids] * (end - start))

    def write(self, position: int, writers: int) -> None:
        """Evaluate one token for each of some sequences."""
        self._decode(writers, [position] * writers, [np.array([one], np.int32) for one in range(writers)], every=True)

    def _decode(self, count: int, positions: list[int], ids: list[Any], *, every: bool = False) -> None:
        wanted = np.full(count, every, np.int8)
        wanted[-1] = 1
        done = self.runtime.decode(
            self.tokens[:count],
            np.array(positions, np.int32),
            np.array([len(one) for one in ids], np.int32),
            np.array([one.ctypes.data for one in ids], np.uint64),
            wanted,
        )
        if not done:
            raise AssertionError("the cells are full")
        self.runtime.logits(count - 1)

    def begin(self, idle: int, sequences: list[int]) -> None:
        """Fill cells with texts that nobody reads, and read a beginning for some sequences."""
        self.runtime.clear()
        for number in range(idle // 512):
            self.read(0, 512, [40 + number])
        self.read(0, BEGINNING, sequences)


def least(call: Callable[[], object], before: Callable[[], object] = lambda: None, times: int = REPEATS) -> float:
    """Return the seconds of the quickest of some calls."""
    found = []
    for _ in range(times):
        before()
        start = time.perf_counter()
        call()
        found.append(time.perf_counter() - start)
    return min(found)


def speeds(cells: Cells) -> list[dict[str, Any]]:
    """Measure tokens a second: of a prompt's end behind a beginning, and of texts written side by side."""
    rows = []
    for idle in IDLE:
        cells.begin(idle, [0])
        seconds = least(
            lambda: cells.read(BEGINNING, BEGINNING + TAIL, [0]), lambda: cells.runtime.forget(0, BEGINNING)
        )
        row: dict[str, Any] = {"idle cells": idle, "prompt": TAIL / seconds}
        for writers in WRITERS:
            cells.begin(idle, list(range(writers)))
            position = iter(range(BEGINNING, BEGINNING + 64))
            row[f"{writers} written"] = writers / least(
                lambda n=writers, at=position: cells.write(next(at), n), times=12
            )
        rows.append(row)
    return rows


def aside(cells: Cells) -> dict[str, float]:
    """Verify that a beginning comes back as it was, and measure what that costs beside evaluating it."""
    runtime = cells.runtime
    cells.begin(0, [0])
    evaluated = least(lambda: cells.read(0, BEGINNING, [0]), lambda: runtime.forget(0))
    cells.read(BEGINNING, BEGINNING + 1, [0])
    expected = runtime.logits(0).copy()
    runtime.forget(0, BEGINNING)
    state = runtime.save(0)
    saved = least(lambda: runtime.save(0))
    restored = least(lambda: runtime.restore(1, state), lambda: runtime.forget(1))
    cells.read(BEGINNING, BEGINNING + 1, [1])
    if not np.array_equal(runtime.logits(0), expected):
        raise AssertionError("a beginning that was put aside gives other logits")
    return {
        "tokens": BEGINNING,
        "bytes": state.nbytes,
        "ms to evaluate": evaluated * 1e3,
        "ms to put aside": saved * 1e3,
        "ms to bring back": restored * 1e3,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llm", default="tiny")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    path = registry.resolve(arguments.llm, "language-model")
    document: dict[str, Any] = {"model": path.name, "machine": machine.facts(arguments.threads), "speeds": {}}
    for flash in (False, True):
        cells = Cells(path, threads=arguments.threads, flash=flash)
        document["speeds"]["flash attention" if flash else "plain"] = speeds(cells)
        if not flash:
            document["put aside"] = aside(cells)
        cells.runtime.close()
    if arguments.json:
        print(json.dumps(document, indent=2, default=str))
        return 0
    for name, rows in document["speeds"].items():
        for row in rows:
            print(f"{name}: " + ", ".join(f"{key} {value:.0f}" for key, value in row.items()))
    print(", ".join(f"{key} {value:.4g}" for key, value in document["put aside"].items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
