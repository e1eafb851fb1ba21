"""The index that is served: searched while it changes, and exchanged for its successor without a gap."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from pytrace.engine.corpus import Corpus, IndexedCorpus
from pytrace.engine.loading import Engine
from pytrace.errors import LockedError, PytraceError, StoreError
from pytrace.retrieval.hops.weights import OWN_WEIGHTS
from pytrace.retrieval.passages import Changes, IndexWriter, PassageIndex
from pytrace.retrieval.passages.manifest import MANIFEST
from pytrace.serve.batcher import Batcher
from pytrace.serve.failures import BusyError
from pytrace.storage.closing import Closing

# Seconds that a change waits for another process that writes the index, and between two looks.
_PATIENCE, _LOOK = 20.0, 0.1
# Seconds that a closed index may live on before it is looked for what refers to it in a circle.
_LINGER = 2.0
# Changes that are committed together, and that may wait.
_TOGETHER, _MOST_WAITING = 64, 256


class Change(NamedTuple):
    """What is done to the index by one request: `apply` is given the writer, and the index as it was committed before.

    It must change nothing where it raises, and may be called again: what cannot be committed with others is done by itself. `names`
    are the ids and files that it is about; a change of the same ones waits until this is committed.
    """

    apply: Callable[[IndexWriter, PassageIndex], object]
    names: frozenset[str]


class _Opened:
    """An index that was opened, and how many are using it; it is closed when it is retired and the last has left."""

    def __init__(self, corpus: IndexedCorpus, signature: tuple[object, ...]) -> None:
        self.corpus = corpus
        self.signature = signature
        self.users = 0
        self.retired = False


class ServedIndex(Closing):
    """The index at a directory as it is now.

    Parameters
    ----------
    directory
        Of the index.
    engine
        Whose encoder searches it.
    writable
        Whether `change` is allowed.

    Raises
    ------
    StoreError
        There is no index, or it was made with another encoder.
    """

    def __init__(self, directory: Path, engine: Engine, *, writable: bool = True) -> None:
        self.directory = directory
        self._engine = engine
        self._lock = threading.Lock()
        self._refreshing = threading.Lock()
        self._current = self._open()
        self.reloads = 0
        # Those that were closed, and when, until nothing refers to them any more.
        self._closed: list[tuple[float, weakref.ref[PassageIndex]]] = []
        self._changes: Batcher[Change, Changes] | None = None
        if writable:
            self._changes = Batcher(
                self._apply, size=lambda _: 1, budget=_TOGETHER, most_waiting=_MOST_WAITING, name="changes of the index"
            )

    @contextmanager
    def lease(self) -> Iterator[IndexedCorpus]:
        """Give the index as it is now; it stays so for whoever has it, whatever is written meanwhile."""
        with self._lock:
            opened = self._current
            opened.users += 1
        try:
            yield opened.corpus
        finally:
            with self._lock:
                opened.users -= 1
                idle = opened.retired and not opened.users
            if idle:
                self._close(opened.corpus.index)

    def refresh(self) -> bool:
        """Open the index anew if it was written or replaced; the one before stays open until its last user has left.

        Raises
        ------
        StoreError
            What is there now cannot be opened; the one before goes on being served.
        """
        with self._refreshing:
            if self._signature() == self._current.signature:
                return False
            opened = self._open()
            with self._lock:
                before, self._current = self._current, opened
                before.retired = True
                idle = not before.users
                self.reloads += 1
            if idle:
                self._close(before.corpus.index)
            return True

    def collect(self) -> None:
        """Free what still refers, in a circle, to an index that was closed: as long as it lives, its files take room on the disk.

        An error that is kept refers to the variables of all functions that it came through; Python finds such circles seldom.
        """
        with self._lock:
            self._closed = [each for each in self._closed if each[1]() is not None]
            lingers = any(time.monotonic() - closed > _LINGER for closed, _ in self._closed)
        if lingers:
            gc.collect()

    def submit(self, change: Change) -> Callable[[], Changes]:
        """Put a change in line; what is returned waits until it is committed and searched, and says what it changed.

        Changes that wait are committed together; passages that were encoded are counted for all of them.
        """
        assert self._changes is not None
        self._changes.check_room(1)
        return self._changes.submit(change).result

    def close(self) -> None:
        """Commit what waits, and close the index."""
        if self._changes is not None:
            self._changes.close()
        with self._lock:
            self._current.retired = True
            idle = not self._current.users
        if idle:
            self._close(self._current.corpus.index)

    def _close(self, index: PassageIndex) -> None:
        index.close()
        with self._lock:
            self._closed.append((time.monotonic(), weakref.ref(index)))

    def _open(self) -> _Opened:
        signature = self._signature()
        corpus = Corpus.open(self.directory)
        try:
            # What the first question needs is read and checked here, while others are answered by the index before.
            corpus.rank(["What is there?"], self._engine, 1)
        except BaseException:
            corpus.close()
            raise
        return _Opened(corpus, signature)

    def _signature(self) -> tuple[object, ...]:
        """Return what changes when the index, or the weights that it is searched with, are replaced."""
        found: list[object] = []
        for path in (self.directory / MANIFEST, self.directory / OWN_WEIGHTS):
            try:
                status = path.stat()
            except OSError:
                found.append(None)
            else:
                found.append((status.st_ino, status.st_mtime_ns, status.st_size))
        return tuple(found)

    def _apply(self, changes: list[Change]) -> Sequence[Changes | Exception]:
        try:
            writer = self._writer()
        except BusyError as error:
            return [error] * len(changes)  # each by itself would only wait as long
        results: list[Changes | Exception] = []
        # A writer that ends without a commit changes nothing.
        with writer:
            for together in _apart(changes):
                results += self._commit(writer, together)
        # What was committed is, whatever another process has made of the index since; the service looks again every second.
        with suppress(StoreError):
            self.refresh()
        return results

    def _commit(self, writer: IndexWriter, changes: list[Change]) -> list[Changes | Exception]:
        results: list[Changes | Exception] = []
        before = PassageIndex(self.directory)
        try:
            for change in changes:
                counted = _counts(writer)
                try:
                    change.apply(writer, before)
                except PytraceError as error:
                    results.append(error)
                else:
                    results.append(Changes(*(now - then for now, then in zip(_counts(writer), counted, strict=True))))
        finally:
            self._close(before)
        encoded = writer.commit().encoded
        for result in results:
            if isinstance(result, Changes):
                result.encoded = encoded
        return results

    def _writer(self) -> IndexWriter:
        """Open the index for writing, once another process that writes it has ended."""
        end = time.monotonic() + _PATIENCE
        while True:
            try:
                return IndexWriter(self.directory, self._engine.encoder)
            except LockedError as error:
                if time.monotonic() > end:
                    raise BusyError(
                        f"another process has been writing the index for {_PATIENCE:g} s; try again when it has ended",
                        retry_after=10,
                    ) from error
            time.sleep(_LOOK)


def _apart(changes: Iterable[Change]) -> Iterator[list[Change]]:
    """Cut changes where one is about what another before it is about."""
    together: list[Change] = []
    names: set[str] = set()
    for change in changes:
        if not names.isdisjoint(change.names):
            yield together
            together, names = [], set()
        together.append(change)
        names |= change.names
    yield together


def _counts(writer: IndexWriter) -> tuple[int, int, int, int]:
    """Return how many documents a writer has added, replaced, found unchanged and removed."""
    writer.remove(())  # what was added before is compared now
    return writer.changes.added, writer.changes.replaced, writer.changes.unchanged, writer.changes.removed


def check_index(directory: Path) -> None:
    """Refuse a directory that holds no index."""
    if not (directory / MANIFEST).is_file():
        raise StoreError(f"there is no index at {directory}; build one: 'pytrace index build {directory} --docs PATH'")
