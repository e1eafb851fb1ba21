"""How far one search raises the peak of memory: run as a process of its own, which nothing else has grown.

    python -m pytrace.bench.memory QUERIES ITEMS DIM K THREADS

prints the bytes of the inputs and the bytes by which the peak grew while searching.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from pytrace.bench import machine
from pytrace.kernels import top_k

STATUS = Path("/proc/self/status")


def main(n_queries: int, n_items: int, dim: int, k: int, threads: int) -> None:
    """Search random vectors once and say what that took."""
    random = np.random.default_rng(0)
    queries = random.standard_normal((n_queries, dim), dtype=np.float32)
    items = random.standard_normal((n_items, dim), dtype=np.float32)
    # The peak so far is forgotten, so that whatever Python took while starting hides nothing of the search.
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before = machine.memory("VmHWM", STATUS)
    top_k(queries, items, k, threads=threads)
    after = machine.memory("VmHWM", STATUS)
    if before is None or after is None:
        raise OSError(f"{STATUS} does not say VmHWM")
    sys.stdout.write(f"{queries.nbytes + items.nbytes} {after - before}\n")


if __name__ == "__main__":
    try:
        main(*map(int, sys.argv[1:]))
    except OSError as error:
        sys.exit(f"this system does not tell the peak of memory ({error})")
