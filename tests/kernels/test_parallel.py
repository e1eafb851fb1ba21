"""The core's own threads: the same answers and errors for any number of them, from any number of callers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

from pytrace.kernels import normalize, top_k


def test_the_lowest_row_is_reported_whatever_thread_finds_its_own_first():
    rows = np.ones((200_000, 16), dtype=np.float32)
    rows[[12_345, 12_346, 150_000, 199_999], 3] = np.nan
    for threads in (1, 2, 3, 8) * 10:
        with pytest.raises(ValueError, match=r"vectors\[12345, 3\]"):
            normalize(rows, threads=threads)


def test_many_callers_with_many_threads_each_get_their_own_answers():
    rng = np.random.default_rng(1)
    problems = []
    for _ in range(6):
        queries = rng.standard_normal((20, 48)).astype(np.float32)
        items = rng.standard_normal((8_000, 48)).astype(np.float32)
        problems.append((queries, items, top_k(queries, items, 5, threads=1)))
    wrong = []

    def search(queries, items, expected):
        for threads in (2, 5, 64):
            found = top_k(queries, items, 5, threads=threads)
            if not all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True)):
                wrong.append(threads)

    callers = [threading.Thread(target=search, args=problem) for problem in problems * 2]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert wrong == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork()")
def test_a_forked_child_searches_on():
    code = """if True:
        import os
        import numpy as np
        from pytrace.kernels import top_k
        rng = np.random.default_rng(2)
        queries = rng.standard_normal((20, 48)).astype(np.float32)
        items = rng.standard_normal((20_000, 48)).astype(np.float32)
        before = top_k(queries, items, 5, threads=4)
        child = os.fork()
        if child == 0:
            after = top_k(queries, items, 5, threads=4)
            os._exit(0 if np.array_equal(before[1], after[1]) else 3)
        raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="needs POSIX signals")
def test_signals_reach_python_and_not_the_cores_threads():
    code = """if True:
        import os, signal
        import numpy as np
        from pytrace.kernels import top_k
        rng = np.random.default_rng(3)
        queries = rng.standard_normal((20, 48)).astype(np.float32)
        items = rng.standard_normal((20_000, 48)).astype(np.float32)
        top_k(queries, items, 5, threads=4)
        seen = []
        signal.signal(signal.SIGUSR1, lambda *_: seen.append(1))
        for _ in range(50):
            os.kill(os.getpid(), signal.SIGUSR1)
            top_k(queries, items, 5, threads=4)
        raise SystemExit(0 if len(seen) == 50 else 3)
    """
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0
