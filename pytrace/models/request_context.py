"""On whose behalf models work: what a request has spent, and whether it is still wanted.

A request runs in one thread, or in several that each enter its context; the models that it shares with other requests
look its context up. What a thread starts does not inherit it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from pytrace.errors import CancelledRequestError
from pytrace.records import Usage


class RequestContext:
    """One request: its usage, and its cancellation from any thread.

    Models that decode several requests together charge each its part, so that the parts add up to what the model spent. Calls,
    prompt tokens and generated tokens are the request's own. A token that belongs to sequences of several requests is
    evaluated once and charged to one of them, by turns along the shared prefix, so that each pays an even part. Seconds
    are divided by the tokens charged. `batches` alone does not add up: it counts each decoder call that the request took
    part in, and others may have, too.

    A request that is cancelled may still be charged for the decoder call in progress, when that ends.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._usage = Usage()
        self._cancelled = False
        self._callbacks: list[Callable[[], object]] = []

    @property
    def usage(self) -> Usage:
        """What has been spent so far."""
        return self._usage

    def spend(self, usage: Usage) -> None:
        """Add to what has been spent."""
        with self._lock:
            self._usage += usage

    @property
    def cancelled(self) -> bool:
        """Whether the request was cancelled; that is final."""
        return self._cancelled

    def cancel(self) -> None:
        """Have every call of a model for this request end early, with `CancelledRequestError`; from any thread."""
        # Without a lock, which a signal's handler could find held by its own thread: `on_cancel` adds before it looks.
        self._cancelled = True
        for callback in tuple(self._callbacks):
            callback()

    def check(self) -> None:
        """Raise `CancelledRequestError` if the request was cancelled."""
        if self._cancelled:
            raise CancelledRequestError("the request was cancelled before it was answered; ask again if it is wanted")

    @contextmanager
    def on_cancel(self, callback: Callable[[], object]) -> Iterator[None]:
        """Inside, have a function called when the request is cancelled, or at once if it was.

        The thread that cancels calls it: perhaps twice, or just after the block has ended.
        """
        self._callbacks.append(callback)
        try:
            if self._cancelled:
                callback()
            yield
        finally:
            self._callbacks.remove(callback)


_CURRENT: ContextVar[RequestContext | None] = ContextVar("pytrace_request", default=None)


def current_request() -> RequestContext | None:
    """Return the request that this thread works for, if any."""
    return _CURRENT.get()


@contextmanager
def request_context(request: RequestContext | None) -> Iterator[None]:
    """Inside, let this thread work for a request; for none if None."""
    token = _CURRENT.set(request)
    try:
        yield
    finally:
        _CURRENT.reset(token)
