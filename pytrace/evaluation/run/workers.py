"""Several processes of this machine that answer the batches of an evaluation, each with models of its own.

A process is started anew and never forked, because models and the threads of native code live in this one. It makes the
methods once, says that it is ready, and is given the next batch whenever it sends the results of one; nothing is kept on
either side of the pipe but that. A process ends when this one is gone, however it went.
"""

from __future__ import annotations

import multiprocessing
import pickle
import signal
import traceback
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import TypeVar

from pytrace.errors import InputError, PytraceError, WorkerError
from pytrace.evaluation.run.run_store import RunRow
from pytrace.evaluation.run.runner import Batch, Method, answer_batch
from pytrace.processes import be_a_worker, check_count, interrupts_held

_T = TypeVar("_T")

# A process that has nothing left to do ends at once; one that does not is ended.
_PATIENCE = 10.0


class Workers:
    """An engine for `pytrace.evaluation.run.runner.evaluate`: processes of this machine."""

    def __init__(self, make: Callable[[], Mapping[str, Method]], sizes: Mapping[str, int], *, processes: int) -> None:
        check_count(processes)
        self.sizes = dict(sizes)
        self.processes = processes
        self._make = pickled(make)

    def results(self, batches: Sequence[Batch]) -> Generator[tuple[Batch, Sequence[RunRow]]]:
        """Answer batches, in the order in which processes are through with them."""
        waiting = deque(batches)
        crew: list[_Worker] = []
        finished = False
        try:
            for number in range(1, min(self.processes, len(waiting)) + 1):
                crew.append(_Worker(self._make, f"{number} of {self.processes}"))
            by_link = {worker.link: worker for worker in crew}
            while waiting or any(worker.batch is not None for worker in crew):
                failure: BaseException | None = None
                for link in wait(list(by_link)):
                    worker = by_link[link]  # type: ignore[index]
                    message, batch = worker.receive(), worker.batch
                    if isinstance(message, BaseException):
                        failure = failure or message
                        continue
                    worker.give(waiting.popleft() if waiting else None)
                    if worker.batch is None:
                        del by_link[worker.link]
                    if batch is not None:
                        yield batch, message
                if failure is not None:
                    raise failure
            finished = True
        finally:
            for worker in crew:
                worker.end(at_once=not finished)


class _Worker:
    """One process, the pipe to it, and the batch that it has."""

    def __init__(self, make: bytes, number: str) -> None:
        context = multiprocessing.get_context("spawn")
        self.link, theirs = context.Pipe()
        self.batch: Batch | None = None
        self._ready = False
        self._number = number
        process = context.Process(target=_serve, args=(theirs, make), name=f"pytrace worker {number}", daemon=True)
        try:
            with interrupts_held():
                process.start()
        except OSError as error:
            self.link.close()
            raise WorkerError(
                f"worker {number} cannot be started ({error.strerror}); use fewer processes, or free some memory"
            ) from error
        finally:
            theirs.close()  # so that the pipe ends when the process does
        self._process: BaseProcess = process

    def receive(self) -> Sequence[RunRow] | BaseException:
        """Take what the process says: that it is ready (no result), results, or what went wrong."""
        try:
            message: Sequence[RunRow] | BaseException = pickle.loads(self.link.recv_bytes())
        except (EOFError, OSError):
            return self._death()
        self._ready = True
        return message

    def give(self, batch: Batch | None) -> None:
        """Hand over the next batch, or say that there are no more; if the process is gone, `receive` will tell."""
        self.batch = batch
        if batch is None:
            self.link.close()
            return
        with suppress(OSError):
            self.link.send(batch)

    def end(self, *, at_once: bool) -> None:
        """Wait until the process has ended; kill it if it may still be at work, or does not heed."""
        self.link.close()
        if self._ready and not at_once:
            self._process.join(_PATIENCE)
        if self._process.exitcode is None:
            self._process.kill()
            self._process.join()

    def _death(self) -> WorkerError:
        self._process.join(_PATIENCE)
        code = self._process.exitcode
        how = "closed its pipe" if code is None else f"ended with status {code}"
        if code is not None and code < 0:
            how = f"was ended by signal {-code} ({signal.strsignal(-code)})"
        if code == -signal.SIGKILL:
            how += ", as happens where memory runs out"
        doing = "making the methods"
        if self.batch is not None:
            doing = f"answering {len(self.batch.questions)} questions with {self.batch.method}"
        return WorkerError(
            f"worker {self._number} (process {self._process.pid}) {how} while {doing}; the answers before are kept, so "
            "resume the run, with fewer processes or a smaller model if memory is short"
        )


def pickled(make: Callable[[], Mapping[str, Method]]) -> bytes:
    """Pickle what makes the methods."""
    try:
        return pickle.dumps(make)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise InputError(
            f"what makes the methods cannot be sent to another process ({error}); use a function at the top of a module"
        ) from error


def make_methods(make: bytes) -> Mapping[str, Method]:
    """Make the methods of what `pickled` gave."""
    methods: Mapping[str, Method] = pickle.loads(make)()
    return methods


def outcome(call: Callable[[], _T]) -> _T | Exception:
    """Return what a call gives, or what it raises, to be raised again where the run is."""
    try:
        return call()
    except Exception as error:  # noqa: BLE001 - any error of a method ends the run there, not here
        return portable(error)


def portable(error: Exception) -> Exception:
    """Return an exception that survives the way to another process: the same one if it does, else one that says the same."""
    # Any exception that is not a `PytraceError` carries the text of its traceback as a note.
    if not isinstance(error, PytraceError):
        error.add_note("".join(traceback.format_exception(error)))
    try:
        back = pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 - whatever its own pickling raises
        back = None
    if type(back) is type(error) and str(back) == str(error):
        return error
    plain = RuntimeError(f"{type(error).__name__}: {error}")
    for note in getattr(error, "__notes__", ()):
        plain.add_note(note)
    return plain


def _serve(link: Connection, make: bytes) -> None:
    """Be a worker: make the methods, then answer batches until there are no more."""
    be_a_worker()
    methods = outcome(partial(make_methods, make))
    if isinstance(methods, Exception):
        _send(link, methods)
        return
    message: object = ()  # no results: it is ready
    while _send(link, message) and not isinstance(message, Exception):
        try:
            batch = link.recv()
        except (EOFError, OSError):
            return  # there are no more, or the other end is gone
        message = outcome(partial(answer_batch, methods, batch))


def _send(link: Connection, message: object) -> bool:
    try:
        link.send_bytes(pickle.dumps(message))
    except OSError:
        return False
    return True
