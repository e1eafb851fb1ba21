"""The process that holds a store: it has no thread, so that it may fork for every query, and answers one caller.

A request is a verb and what it needs; the answer is any number of pieces, each as ``(False, piece)``, and at last
``(True, result)``, where the result may be an error. Where the caller goes away, the process ends, and what it runs with it.

pyoxigraph can be stopped only between two solutions: a path without end, a sum over 10^9 rows or a text that doubles itself
ends with its process, or not at all. So a timer ends the fork when a query had its seconds, the system gives it no more memory
than its megabytes, and each solution goes into a pipe when it is found, where it stays whatever ends the fork. A fork costs some
milliseconds, more with a large store, so it runs one query after the other, until one ends it.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import os
import pickle
import resource
import selectors
import signal
import tempfile
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import pyoxigraph as ox

from pytrace import processes
from pytrace.errors import InputError, PytraceError, StoreError
from pytrace.kg.columns import Columns
from pytrace.kg.fact_store import QueryLimits
from pytrace.kg.knowledge_base_files import COLUMNS, BaseFiles, is_knowledge_base
from pytrace.kg.names import entity_name, relation_name
from pytrace.kg.sparql import GraphQuery
from pytrace.kg.sparql_store import KnowledgeStore, Solution, Solutions
from pytrace.kg.terms import LABELS, node_of
from pytrace.records import Triple
from pytrace.triples.graph.exchange import input_errors

# What one query may return: 1,000 solutions of ten triples with long names are 2 MB.
_MOST_BYTES = 64 << 20
# Rust's words before it gives up; Python raises MemoryError instead.
_NO_MEMORY = b"memory allocation of"
# Of what the process says before it ends, the last bytes are looked at.
_LAST_BYTES = 2_000


class Packed(NamedTuple):
    """What a query found, each solution as the fork pickled it, so that only the caller reads it; and what ended it early."""

    solutions: list[bytes]
    stopped: str = ""

    def unpacked(self) -> Solutions:
        """Return the solutions."""
        plain = map(pickle.loads, self.solutions)
        return Solutions(
            tuple(Solution(tuple(Triple(*triple) for triple in triples), values) for triples, values in plain),
            self.stopped,
        )


class QueryFork:
    """Queries, each with its number, that run in a fork of this process, which must have no other thread."""

    def __init__(
        self,
        store: KnowledgeStore,
        queries: Sequence[tuple[int, GraphQuery]],
        limits: QueryLimits,
        *,
        not_shared: Connection,
    ) -> None:
        self.left = deque(queries)
        self._limits = limits
        self._solutions: list[bytes] = []
        self._messages = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the fork
        self.output, inner = Pipe(duplex=False)
        try:
            self._process = os.fork()
            if not self._process:
                not_shared.close()  # or the caller would not hear that this process ended while a fork of it runs
                _be_the_fork(store, [query for _, query in queries], limits, inner, self._messages.fileno())
        except OSError:
            self.output.close()
            self._messages.close()
            raise
        finally:
            inner.close()

    def receive(self) -> tuple[int, Packed | Exception] | None:
        """Take what lies in `output`: None while a query goes on, its number and outcome at its end; EOFError after the last."""
        try:
            solution = self.output.recv_bytes()
            if solution:
                self._solutions.append(solution)
                return None
            ended = self.output.recv()
        except OSError as error:  # the fork was ended within a message
            raise EOFError from error
        number, _ = self.left.popleft()
        solutions, self._solutions = self._solutions, []
        return number, ended if isinstance(ended, InputError) else Packed(solutions, ended)

    def kill(self) -> None:
        """End the fork now."""
        os.kill(self._process, signal.SIGKILL)
        self.end()

    def end(self) -> tuple[int, Packed | Exception] | None:
        """Wait for the end, and return what became of the query that ended the fork, if one did."""
        self.output.close()
        _, status = os.waitpid(self._process, 0)
        with self._messages:
            self._messages.seek(max(self._messages.seek(0, os.SEEK_END) - _LAST_BYTES, 0))
            messages = self._messages.read()
        if status == 0 or not self.left:
            return None
        number, _ = self.left.popleft()
        signal_ = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        if signal_ == signal.SIGALRM:
            return number, Packed(self._solutions, f"more than {self._limits.seconds:g} seconds")
        if signal_ == signal.SIGABRT and _NO_MEMORY in messages:
            return number, Packed(self._solutions, _out_of_memory(self._limits))
        lines = messages.decode("utf-8", "replace").strip().splitlines()
        how = f"signal {signal_} ({signal.strsignal(signal_)})" if signal_ else f"exit status {status >> 8}"
        return number, crashed(f"{how}{': ' + lines[-1][:200] if lines else ''}")


def crashed(reason: str) -> StoreError:
    """Return what is told of a query that ended its process, or got none."""
    return StoreError(f"the SPARQL query's process ended ({reason}); make the query simpler")


def _out_of_memory(limits: QueryLimits) -> str:
    return f"more than {limits.megabytes} megabytes of memory"


def _be_the_fork(
    store: KnowledgeStore, queries: Sequence[GraphQuery], limits: QueryLimits, output: Connection, messages: int
) -> NoReturn:
    status = 1
    try:
        os.dup2(messages, 2)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        processes.limit_memory(limits.megabytes << 20)
        # Nothing more can be opened, so that no query calls another server, whatever a check before it overlooks.
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
        for query in queries:
            # 0 would be no timer at all.
            signal.setitimer(signal.ITIMER_REAL, max(limits.seconds, 1e-6))
            ended: str | InputError
            try:
                ended = _send_solutions(store, query, limits.rows, output)
            except MemoryError:
                ended = _out_of_memory(limits)
            except InputError as error:
                ended = error
            signal.setitimer(signal.ITIMER_REAL, 0)
            output.send_bytes(b"")  # no solution
            output.send(ended)
        status = 0
    except BaseException as error:  # noqa: BLE001 - whatever it is, this process must not go on as its parent would
        with contextlib.suppress(Exception):
            os.write(2, f"{type(error).__name__}: {error}".encode("utf-8", "replace"))
    finally:
        os._exit(status)


def _send_solutions(store: KnowledgeStore, query: GraphQuery, rows: int, output: Connection) -> str:
    """Send solutions as they come, and return which limit ended the query."""
    size = 0
    for number, solution in enumerate(store.each_solution(query)):
        if number == rows:
            return f"more than {rows} solutions"
        # Without our records, which take several times as long; pickle takes lone surrogates, which JSON does not.
        triples = [(triple.head, triple.relation, triple.tail) for triple in solution.triples]
        message = pickle.dumps((triples, solution.values))
        size += len(message)
        if size > _MOST_BYTES:
            return f"more than {_MOST_BYTES >> 20} megabytes of solutions"
        output.send_bytes(message)
    return ""


# Labels that are sent at once: some 500 KB.
_AT_ONCE = 10_000


def serve(descriptor: int) -> None:
    """Hold a store and answer over a connection, until the other end closes it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    caller = Connection(descriptor)
    try:
        path, format_ = caller.recv()
        try:
            store, fingerprint = load_store(Path(path), format=format_)
        except PytraceError as error:
            caller.send((True, error))
            return
        # What is there now is never garbage; to look for some would only write into memory that forks share.
        gc.collect()
        gc.freeze()
        caller.send((True, (fingerprint, len(store))))
        while True:
            verb, *arguments = caller.recv()
            caller.send((True, _answer(caller, store, verb, arguments)))
    except (EOFError, OSError):  # the caller is gone
        return


def _answer(caller: Connection, store: KnowledgeStore, verb: str, arguments: list[Any]) -> Any:
    if verb == "run":
        return _run(caller, store, *arguments)
    if verb == "labels":
        labels = store.labels()
        while piece := list(islice(labels, _AT_ONCE)):
            caller.send((False, piece))
        return None
    return getattr(store, verb)(*arguments)


def _run(caller: Connection, store: KnowledgeStore, queries: Sequence[GraphQuery], limits: QueryLimits) -> None:
    """Run queries in as many forks as there are processors, and send each outcome with the query's number."""
    waiting = deque(enumerate(queries))
    at_once = len(os.sched_getaffinity(0))
    with selectors.DefaultSelector() as running:  # multiprocessing's `wait` makes one anew for each message
        running.register(caller, selectors.EVENT_READ)
        try:
            while waiting or len(running.get_map()) > 1:
                while waiting and len(running.get_map()) <= at_once:
                    share = -(-len(waiting) // (at_once + 1 - len(running.get_map())))
                    taken = [waiting.popleft() for _ in range(share)]
                    try:
                        fork = QueryFork(store, taken, limits, not_shared=caller)
                    except OSError as error:
                        for number, _ in taken:
                            caller.send((False, (number, crashed(f"none could be started: {error.strerror}"))))
                        continue
                    running.register(fork.output, selectors.EVENT_READ, fork)
                for key, _ in running.select():
                    if key.fileobj is caller:  # it sends nothing while it waits, so it is gone
                        raise EOFError
                    fork = key.data
                    try:
                        outcome = fork.receive()
                    except EOFError:
                        running.unregister(key.fileobj)
                        outcome = fork.end()
                        waiting.extendleft(reversed(fork.left))
                    if outcome is not None:
                        caller.send((False, outcome))
        finally:
            for key in running.get_map().values():
                if key.fileobj is not caller:
                    key.data.kill()


def load_store(path: Path, *, format: str | None = None) -> tuple[KnowledgeStore, str]:
    """Load a file, a graph of `pytrace kg build` or a knowledge base of `pytrace kg index`, and hash what it holds."""
    if is_knowledge_base(path):
        if format is not None:
            raise InputError(f"{path} is a directory, which has no format {format!r}; leave out the format")
        columns = BaseFiles(path, None).columns
        return _store_of(columns, path), _hash_of_file(path / COLUMNS)
    store = KnowledgeStore.load(path, format=format)
    return store, _hash_of_triples(store.store) if path.is_dir() else _hash_of_file(path)


def _store_of(columns: Columns, path: Path) -> KnowledgeStore:
    """Take the triples of a knowledge base, and as labels the names that its keys do not tell."""
    entities = [node_of(key) for key in columns.entity_keys]
    relations = [node_of(key, relation=True) for key in columns.relation_keys]

    def labels() -> Iterator[ox.Quad]:
        worded = (
            (entities, columns.entity_keys, columns.entity_names, entity_name),
            (relations, columns.relation_keys, columns.relation_names, relation_name),
        )
        for nodes, keys, names, in_words in worded:
            for node, key, name in zip(nodes, keys, names, strict=True):
                # RDF cannot hold lone surrogates.
                if name != in_words(key) and name.encode("utf-8", "replace").decode() == name:
                    yield ox.Quad(node, LABELS[0], ox.Literal(name))

    store = ox.Store()
    with input_errors(path):
        store.bulk_extend(
            ox.Quad(entities[head], relations[relation], entities[tail])
            for head, relation, tail in columns.triples.tolist()
        )
        store.bulk_extend(labels())
    return KnowledgeStore(store)


def _hash_of_file(path: Path) -> str:
    with input_errors(path), path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _hash_of_triples(store: ox.Store) -> str:
    """Return a hash that does not depend on their order: the sum of the hashes of all."""
    total = sum(int.from_bytes(hashlib.sha256(str(quad).encode()).digest(), "little") for quad in store)
    return (total % (1 << 256)).to_bytes(32, "little").hex()
