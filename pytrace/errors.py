"""Every error that pytrace raises on purpose.

::

    PytraceError
    ├── InputError (also ValueError)       what the caller gave cannot be used; the command line exits with 2
    │   ├── DataError                      a file or a line of one: says file, line and remedy
    │   └── ModelFileError                 a model is missing, has the wrong hash or is no model
    ├── ModelError                         a model cannot do what was asked of it
    │   ├── ContextOverflowError           a prompt does not fit the context, even with no demonstrations
    │   ├── LogitsUnavailableError         a back end gives no log-probabilities
    │   ├── DeviceUnavailableError         a provider or GPU was asked for and is not there
    │   └── ServerError                    a server cannot be reached, refuses, or answers what makes no sense
    │       └── ServerTimeoutError         a server's answer was not whole when its time was over
    ├── DownloadError                      a model's source cannot be reached, or the disk is full
    ├── MissingDependencyError             an optional package is not installed; names the extra
    ├── VerificationError                  a bench found a kernel's answer to be wrong
    ├── StoreError                         a knowledge graph, run or cache on disk cannot be used
    │   └── LockedError                    another process is writing it
    ├── WorkerError                        a process that answered for this one ended before its time
    └── CancelledRequestError              a request was cancelled by whoever asked

Each message is one sentence that says what is wrong, where, with the numbers, and what to do. Kernels raise plain
``ValueError`` and ``TypeError``, as NumPy does.
"""

from __future__ import annotations


class PytraceError(Exception):
    """Base of all errors that pytrace raises on purpose."""

    exit_code = 1


class InputError(PytraceError, ValueError):
    """Something the caller gave cannot be used."""

    exit_code = 2


class DataError(InputError):
    """A data file, or a line of one, cannot be used."""

    def __init__(self, message: str, *, path: object = None, line: int | None = None) -> None:
        place = "" if path is None else f"{path}: " if line is None else f"{path}:{line}: "
        super().__init__(f"{place}{message}")
        self.path = path
        self.line = line


class ModelFileError(InputError):
    """A model file is missing, has the wrong hash, or is not a model."""


class ModelError(PytraceError):
    """A model cannot do what was asked of it."""


class ContextOverflowError(ModelError):
    """A prompt does not fit the model's context."""


class LogitsUnavailableError(ModelError):
    """The back end gives no log-probabilities."""


class DeviceUnavailableError(ModelError):
    """A provider or GPU was asked for and is not there; pytrace never falls back in silence."""


class ServerError(ModelError):
    """A server, of a language model or a knowledge base, cannot be reached, refuses, or answers what makes no sense."""

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class ServerTimeoutError(ServerError):
    """A server's answer was not whole when its time was over."""


class DownloadError(PytraceError):
    """A model could not be brought here: its source cannot be reached, or the disk is full."""


class MissingDependencyError(PytraceError):
    """An optional package is not installed."""


class VerificationError(PytraceError):
    """A kernel's answer differs from its oracle's or a peer's: what was to be timed is wrong."""


class StoreError(PytraceError):
    """A knowledge graph, run or cache on disk cannot be used."""

    exit_code = 2


class LockedError(StoreError):
    """Another process is writing it."""


class WorkerError(PytraceError):
    """A process that answered for this one ended before its time; what was in flight is lost, and nothing else."""


class CancelledRequestError(PytraceError):
    """A request was cancelled by whoever asked; its models do no more for it."""
