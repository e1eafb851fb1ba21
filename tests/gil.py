"""Whether a native call lets other Python threads run."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


def leaves_others_running(call: Callable[[], object]) -> bool:
    """Run `call` in a thread and tell whether this thread got a turn in the middle half of it.

    A busy machine stretches the call and this thread's turns alike, so no count of turns is asked for.
    """
    span: list[float] = []
    done = threading.Event()

    def work() -> None:
        span.append(time.monotonic())
        call()
        span.append(time.monotonic())
        done.set()

    worker = threading.Thread(target=work)
    turns = []
    worker.start()
    while not done.wait(0.001):
        turns.append(time.monotonic())
    worker.join()
    start, end = span
    quarter = (end - start) / 4
    return any(start + quarter < turn < end - quarter for turn in turns)
