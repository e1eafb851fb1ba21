"""Work of many requests done together: what comes while a batch is under way makes the next one."""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import nullcontext
from typing import Generic, TypeVar

from pytrace.errors import CancelledRequestError
from pytrace.models.request_context import current_request
from pytrace.serve.failures import BusyError
from pytrace.storage.closing import Closing

Item = TypeVar("Item")
Result = TypeVar("Result")

# Of the pace, how much the last batch counts.
_LATEST = 0.2
# Seconds that are asked of a client at least and at most, before it tries again.
_SOONEST, _LATEST_RETRY = 1, 60


class Batcher(Closing, Generic[Item, Result]):
    """A thread that does what is asked of it in batches: all that waits, up to `budget` by `size`, goes together.

    There is no time to wait for others: a batch begins when the one before has ended. Whoever cancels a future that has not
    begun takes its item out of the line.

    Parameters
    ----------
    work
        Does a batch: a result an item, or the exception that it ends with. Where it raises with several items, each is done by
        itself, so that one's fault is not another's.
    size
        What an item counts, such as its tokens.
    budget
        What goes together, at most; an item that counts more goes alone.
    most_waiting
        What may wait before more is refused; by default there is no limit.
    name
        What is done, as messages and metrics name it.
    observe
        Is told the items and the seconds of each batch.
    """

    def __init__(
        self,
        work: Callable[[list[Item]], Sequence[Result | Exception]],
        *,
        size: Callable[[Item], int],
        budget: int,
        most_waiting: int = sys.maxsize,
        name: str,
        observe: Callable[[int, float], object] | None = None,
    ) -> None:
        self._work = work
        self._size = size
        self._budget = budget
        self._most_waiting = most_waiting
        self._name = name
        self._observe = observe
        self._turn = threading.Condition()
        self._line: deque[tuple[Item, int, Future[Result]]] = deque()
        self._waiting = 0
        self._pace = 0.0  # what is done a second, by size; 0 while nothing is known of it
        self._closed = False
        # One: of two each would take a part of what waits, and small batches cost each of their items more.
        self._thread = threading.Thread(target=self._run, name=f"batches of {name}", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """What waits, by size."""
        return self._waiting

    def check_room(self, size: int) -> None:
        """Refuse more work where too much waits; whoever submits several items calls it once for all of them."""
        with self._turn:
            # What is larger than all that may wait is taken where nothing waits.
            if self._waiting and self._waiting + size > self._most_waiting:
                seconds = self._waiting / self._pace if self._pace else _SOONEST
                retry = int(min(max(seconds + 0.999, _SOONEST), _LATEST_RETRY))
                raise BusyError(
                    f"the service has {self._waiting:,} of {self._name} waiting, and takes in {self._most_waiting:,}; try again in "
                    f"{retry} s",
                    retry_after=retry,
                )

    def submit(self, item: Item) -> Future[Result]:
        """Put an item at the end of the line; the future gives its result."""
        future: Future[Result] = Future()
        size = self._size(item)
        with self._turn:
            if self._closed:
                raise BusyError("the service is stopping; try another one, or again in a while", retry_after=_SOONEST)
            self._line.append((item, size, future))
            self._waiting += size
            self._turn.notify()
        return future

    def wait(self, item: Item) -> Result:
        """Put an item at the end of the line and return its result; it leaves the line if the thread's request is cancelled."""
        request = current_request()
        if request is not None:
            request.check()
        future = self.submit(item)
        try:
            with nullcontext() if request is None else request.on_cancel(future.cancel):
                return future.result()
        except CancelledError:
            raise CancelledRequestError("the request was cancelled while it waited for its turn") from None

    def close(self) -> None:
        """Do what waits, take nothing more in, and end the thread."""
        with self._turn:
            self._closed = True
            self._turn.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._turn:
                self._turn.wait_for(lambda: self._line or self._closed)
                if not self._line:
                    return
                batch, total = self._take()
            if not batch:
                continue
            begun = time.monotonic()
            self._do([item for item, _ in batch], [future for _, future in batch])
            seconds = max(time.monotonic() - begun, 1e-6)
            self._pace += (total / seconds - self._pace) * (_LATEST if self._pace else 1.0)
            if self._observe is not None:
                self._observe(len(batch), seconds)
            batch.clear()  # while this waits, nothing that a result or an error refers to is held by it

    def _take(self) -> tuple[list[tuple[Item, Future[Result]]], int]:
        """Take what goes together off the line; what was cancelled goes without being done."""
        batch: list[tuple[Item, Future[Result]]] = []
        total = 0
        while self._line and (not batch or total + self._line[0][1] <= self._budget):
            item, size, future = self._line.popleft()
            self._waiting -= size
            if future.set_running_or_notify_cancel():
                batch.append((item, future))
                total += size
        return batch, total

    def _do(self, items: list[Item], futures: list[Future[Result]]) -> None:
        try:
            results = self._work(items)
            if len(results) != len(items):
                raise RuntimeError(f"{self._name}: {len(items)} were given, and {len(results)} came back")
        except Exception as error:  # noqa: BLE001  # it is whoever's who waits for the result
            if len(items) == 1:
                futures[0].set_exception(error)
                return
            for item, future in zip(items, futures, strict=True):
                self._do([item], [future])
            return
        for future, result in zip(futures, results, strict=True):
            if isinstance(result, Exception):
                future.set_exception(result)
            else:
                future.set_result(result)
