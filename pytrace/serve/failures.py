"""What a service refuses besides what the library does."""

from __future__ import annotations

from pytrace.errors import InputError, PytraceError


class NotFoundError(InputError):
    """What a request names is not there."""


class BusyError(PytraceError):
    """More is waiting than is taken in; `retry_after` says in how many seconds it is worth trying again."""

    def __init__(self, message: str, *, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after
