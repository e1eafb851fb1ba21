"""`LocalStore`: the triples of a file or a graph on this machine, asked by queries that cannot do any harm."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any

from pytrace import processes
from pytrace.errors import InputError, PytraceError, StoreError
from pytrace.kg.entities import check_search
from pytrace.kg.fact_store import EntityMatch, FactStore, QueryLimits, Relation, check_limits, read_pairs
from pytrace.kg.sparql import GraphQuery
from pytrace.kg.sparql_store import Solutions
from pytrace.kg.sparql_tokens import tokens_of
from pytrace.kg.store_worker import Packed
from pytrace.records import Triple

# Started by hand: multiprocessing would run the caller's main module again, which need not be guarded against that.
_START = (
    "import sys; sys.path[:] = sys.argv[3:]; from pytrace import processes; processes.end_with(int(sys.argv[2])); "
    "from pytrace.kg.store_worker import serve; serve(int(sys.argv[1]))"
)
# NumPy's linear algebra would start threads, and a process with threads must not fork.
_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
# A process that was told to end does so at once; one that does not is ended.
_PATIENCE = 2.0


class LocalStore(FactStore):
    """A `FactStore` whose triples are in the memory of a process of its own.

    Each query runs in a fork of that process, which ends when it takes too much time or memory; what the query had found by
    then is kept, and neither the store nor this process notices. Make one by `open`, and close it, or use it in a
    ``with`` statement.
    """

    def __init__(
        self,
        process: StoreProcess,
        *,
        name: str,
        labels: Path | None = None,
        predicates: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(name, process.fingerprint)
        self._process = process
        self._labels = labels
        self._predicates = predicates

    @classmethod
    def open(
        cls,
        source: str | os.PathLike[str],
        *,
        format: str | None = None,
        labels: str | os.PathLike[str] | None = None,
        predicates: str | os.PathLike[str] | None = None,
    ) -> LocalStore:
        """Load the triples of a file, or of a graph."""
        path = None if labels is None else Path(labels)
        if path is not None:
            for _ in read_pairs(path, what="entity"):  # so that a fault is told now, not at the first mention
                pass
        chosen = None if predicates is None else dict(read_pairs(predicates, what="relation"))
        return cls(StoreProcess(source, format=format), name=os.fspath(source), labels=path, predicates=chosen)

    def __len__(self) -> int:
        """Count the triples, labels included."""
        return self._process.triples

    def _read_relations(self) -> tuple[Relation, ...]:
        relations = tuple(Relation(*each) for each in self._process.ask("relations"))
        if self._predicates is None:
            return relations
        counts = {relation.key: relation.count for relation in relations}
        chosen = (Relation(key, name, counts.get(key, 0)) for key, name in self._predicates.items())
        return tuple(sorted(chosen, key=lambda relation: -relation.count))

    def find_entities(
        self, mentions: Sequence[str], *, limit: int = 5, cutoff: float = 60.0
    ) -> list[list[EntityMatch]]:
        """Return for each mention the entities with a label, an alias or a key like it."""
        # The first call reads all labels: see `pytrace.kg.fact_store.LabelIndex`.
        check_search(limit=limit, cutoff=cutoff)
        index = self._label_index(self._read_labels)
        return [index.find(mention, limit=limit, cutoff=cutoff) for mention in mentions]

    def _read_labels(self) -> Iterator[tuple[str, str]]:
        pairs: list[tuple[str, str]] = []
        self._process.ask("labels", on_piece=pairs.extend)
        yield from pairs
        if self._labels is not None:
            known = {key for key, _ in pairs}
            yield from (pair for pair in read_pairs(self._labels, what="entity") if pair[0] in known)

    def around(self, keys: Sequence[str], *, limit: int = 10) -> list[tuple[Triple, ...]]:
        """Return for each entity some triples that it stands in: those that it is the head of, then others."""
        check_search(limit=limit)
        rows = self._process.ask("around", list(keys), limit)
        return [tuple(Triple(*triple) for triple in triples) for triples in rows]

    def names(self, keys: Sequence[str]) -> list[str]:
        """Return what entities are called: their first label, or their key in words; any other value as it is."""
        names: list[str] = self._process.ask("first_names", list(keys))
        return names

    def all_names(self, keys: Sequence[str]) -> list[tuple[str, ...]]:
        """Return everything that entities are called: their labels, and their keys in words."""
        names: list[tuple[str, ...]] = self._process.ask("all_names", list(keys))
        return names

    def solutions(self, queries: Sequence[GraphQuery], limits: QueryLimits) -> list[Solutions | Exception]:
        """Run queries, as many at once as there are processors."""
        check_limits(limits)
        outcomes: dict[int, Solutions | Exception] = {}
        for number, query in enumerate(queries):
            try:
                # It might be none of `rewrite`'s. Only its words are looked at: the parser below us begins to evaluate what
                # it parses, so it runs in a fork alone.
                tokens_of(query.rows)
            except InputError as error:
                outcomes[number] = error

        def take(piece: tuple[int, Packed | Exception]) -> None:
            number, outcome = piece
            outcomes[left[number]] = outcome.unpacked() if isinstance(outcome, Packed) else outcome

        while left := [number for number in range(len(queries)) if number not in outcomes]:
            try:
                self._process.ask("run", [queries[number] for number in left], limits, on_piece=take)
            except ProcessEndedError as error:
                # It may have been ended for what it ran, so that is not tried again; the rest is.
                outcomes[next(number for number in left if number not in outcomes)] = error
        return [outcomes[number] for number in range(len(queries))]

    def close(self) -> None:
        """End the store's process; any later call fails."""
        self._process.close()


class ProcessEndedError(StoreError):
    """The process that holds a store ended while it was asked; the next call starts another."""


class StoreProcess:
    """The caller's end of the process that holds a store: starts it, asks it, and starts it anew when it was ended."""

    def __init__(self, path: str | os.PathLike[str], *, format: str | None = None) -> None:
        self._path = Path(path)
        self._format = format
        self._lock = threading.Lock()
        self._closed = False
        self._link: Connection | None = None
        # Ends what runs, with this object or with this process at the latest, and says how it ended.
        self._end: Callable[[], str | None]
        with self._lock:
            self.fingerprint, self.triples = self._start()

    def close(self) -> None:
        """End the process; any later call fails."""
        self._closed = True
        self._stop()

    def ask(self, verb: str, *arguments: Any, on_piece: Callable[[Any], object] = lambda _: None) -> Any:
        """Send a request and return its result; one caller at a time."""
        with self._lock:
            if self._closed:
                raise StoreError(f"the knowledge base {self._path} is closed; open it anew")
            if self._link is None and self._start()[0] != self.fingerprint:
                self._stop()
                raise StoreError(f"{self._path} was changed while it was open; open it anew")
            return self._exchange((verb, *arguments), on_piece)

    def _start(self) -> tuple[str, int]:
        ours, theirs = Pipe()
        messages = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the process
        descriptors = [theirs.fileno(), processes.lifeline()]
        command = [sys.executable, "-c", _START, *map(str, descriptors), *sys.path]
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=messages, pass_fds=descriptors,
                env={**os.environ, **_ENVIRONMENT}, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            ours.close()
            messages.close()
            raise StoreError(
                f"no process for the knowledge base {self._path} can be started ({error.strerror}); free some memory"
            ) from error
        finally:
            theirs.close()
        self._link, self._end = ours, weakref.finalize(self, _end, process, ours, messages)
        fingerprint, triples = self._exchange((str(self._path), self._format), lambda _: None)
        return fingerprint, triples

    def _exchange(self, request: tuple[Any, ...], on_piece: Callable[[Any], object]) -> Any:
        assert self._link is not None
        last = False
        try:
            self._link.send(request)
            while not last:
                last, content = self._link.recv()
                if not last:
                    on_piece(content)
        except (EOFError, OSError) as error:
            self._link = None
            raise ProcessEndedError(
                f"the process that holds {self._path} ended ({self._end()}); see whether the memory suffices"
            ) from error
        except BaseException:
            # Whoever waited is interrupted: what the process still sends would be taken for the next answer.
            self._stop()
            raise
        if isinstance(content, PytraceError):  # there is no store, and so no process
            self._stop()
            raise content
        return content

    def _stop(self) -> None:
        self._link = None
        self._end()


def _end(process: subprocess.Popen[bytes], link: Connection, messages: IO[bytes]) -> str:
    """End a process and return how it ended, in words."""
    link.close()
    try:
        process.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    with contextlib.closing(messages):
        messages.seek(0)
        lines = messages.read()[-2_000:].decode("utf-8", "replace").strip().splitlines()
    if process.returncode < 0:
        return f"signal {-process.returncode}, {signal.strsignal(-process.returncode)}"
    return lines[-1] if lines else f"exit status {process.returncode}"
