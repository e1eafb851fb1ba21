"""The facts about a machine that make a figure repeatable, and the machine's own limits."""

from __future__ import annotations

import contextlib
import os
import platform
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

import pytrace
from pytrace import _core
from pytrace.bench.measurements import Limits

# More than the caches near a core hold. A shared last-level cache may hold it, as it then may hold the benches' data.
READ_BYTES = 256 * 2**20

# Where Linux tells a process what memory it has taken: VmRSS now, VmHWM at most so far.
STATUS = Path("/proc/self/status")

# Rows of the square matrices whose product shows the peak of arithmetic: 16 MiB each.
PRODUCT = 2048


def facts(threads: int) -> dict[str, object]:
    """Collect what is known about this machine, this Python and this library."""
    return {
        "processor": field(Path("/proc/cpuinfo"), "model name") or platform.processor() or platform.machine(),
        "cores": cores(),
        "memory_bytes": memory("MemTotal"),
        "caches": _caches(),
        "system": platform.system(),
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "python": platform.python_version(),
        "pytrace": pytrace.__version__,
        "instruction_set": _core.active_isa(),
        "instruction_sets": _core.available_isas(),
        "threads": threads,
    }


def cores() -> int:
    """Return how many processors this process may run on."""
    # In a container a process may run on fewer processors than the machine has.
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def load() -> list[float] | None:
    """Return the load average over 1, 5 and 15 minutes, or None where there is none."""
    try:
        return [round(value, 2) for value in os.getloadavg()]
    except (OSError, AttributeError):
        return None


def measure(threads: int) -> Limits:
    """Measure how fast this machine reads memory and multiplies and adds, with so many threads."""
    # Reading is the best of two ways to read a large array once: the largest element, found by every thread in its own
    # part, and a product of a matrix with a vector. Arithmetic is the best product of two float32 matrices by NumPy's
    # BLAS.
    numbers = np.ones(READ_BYTES // 4, dtype=np.float32)
    parts = np.array_split(numbers, threads)
    matrix, vector = numbers.reshape(-1, 1024), np.ones(1024, dtype=np.float32)
    with ThreadPoolExecutor(threads) as pool:
        by_parts = fastest(lambda: list(pool.map(np.max, parts)))
    read = min(by_parts, fastest(lambda: matrix @ vector))
    square = np.ones((PRODUCT, PRODUCT), dtype=np.float32)
    out = np.empty_like(square)
    multiply = fastest(lambda: np.matmul(square, square, out=out))
    return Limits(READ_BYTES / read, 2 * PRODUCT**3 / multiply)


def fastest(call: Callable[[], object], times: int = 5) -> float:
    """Return the seconds of the fastest of so many calls, after one that does not count."""
    call()  # pages in the arrays and wakes the threads
    best = float("inf")
    for _ in range(times):
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best


def field(path: Path, name: str) -> str | None:
    """Return the value of a line ``name: value`` of one of the kernel's files, None where there is none."""
    with contextlib.suppress(OSError):
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith(name):
                return line.partition(":")[2].strip()
    return None


def memory(name: str, path: Path = Path("/proc/meminfo")) -> int | None:
    """Return the bytes that one of the kernel's files counts in kB."""
    value = field(path, name + ":")
    return None if value is None else int(value.split()[0]) * 1024


def _caches() -> dict[str, str]:
    """Return the sizes of the first core's caches by level and kind, as the kernel words them."""
    sizes = {}
    for cache in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        with contextlib.suppress(OSError):
            level, kind, size = (
                (cache / name).read_text(encoding="ascii").strip() for name in ("level", "type", "size")
            )
            sizes[f"L{level} {kind.lower()}"] = size
    return sizes
