"""The process that holds a store: it has no thread, so that it may fork for every query, and answers one caller.

A request is a verb and what it needs; the answer is any number of pieces, each as ``(False, piece)``, and at last
``(True, result)``, where the result may be an error. Where the caller goes away, the process ends, and what it runs with it.
"""

from __future__ import annotations

import gc
import hashlib
import os
import selectors
import signal
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pyoxigraph as ox

from pytrace.errors import InputError, PytraceError
from pytrace.kg.columns import Columns
from pytrace.kg.fact_store import QueryLimits
from pytrace.kg.knowledge_base_files import COLUMNS, BaseFiles, is_knowledge_base
from pytrace.kg.names import entity_name, relation_name
from pytrace.kg.query_fork import QueryFork, crashed
from pytrace.kg.sparql import GraphQuery
from pytrace.kg.sparql_store import KnowledgeStore
from pytrace.kg.terms import LABELS, node_of
from pytrace.triples.graph.exchange import input_errors

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
