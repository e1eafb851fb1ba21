"""The process that holds a store: it has no thread, so that it may fork for every query, and answers one caller.

A request is a verb and what it needs; the answer is any number of pieces, then a result or a failure. Where the caller goes
away, the process ends, and what it runs with it.
"""

from __future__ import annotations

import gc
import marshal
import os
import selectors
import signal
import socket
from collections import deque
from itertools import islice
from pathlib import Path
from typing import Any

from pytrace.errors import DataError, InputError, PytraceError
from pytrace.kg.fact_store import QueryLimits
from pytrace.kg.lookups import Lookups
from pytrace.kg.query_fork import Ended, QueryFork
from pytrace.kg.sparql import GraphQuery
from pytrace.kg.sparql_store import KnowledgeStore
from pytrace.kg.store_loading import load_store

PIECE, RESULT, FAILURE = "piece", "result", "failure"
# Labels that are sent at once: some 500 KB.
_AT_ONCE = 10_000
_LENGTH = 8


class Link:
    """Sends and takes messages of plain values over a socket: 8 bytes of length, then what marshal makes of it.

    Both ends run the same Python, and marshal takes any text, lone surrogates too.
    """

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection

    def send(self, message: tuple[Any, ...]) -> None:
        """Send a message."""
        data = marshal.dumps(message)
        self.connection.sendall(len(data).to_bytes(_LENGTH, "little") + data)

    def receive(self) -> tuple[Any, ...]:
        """Wait for a message."""
        size = int.from_bytes(self._read(_LENGTH), "little")
        message: tuple[Any, ...] = marshal.loads(self._read(size))
        return message

    def _read(self, size: int) -> bytearray:
        data = bytearray(size)
        with memoryview(data) as view:
            at = 0
            while at < size:
                try:
                    taken = self.connection.recv_into(view[at:])
                except ConnectionError:
                    taken = 0
                if not taken:
                    raise EOFError
                at += taken
        return data


def serve(number: int) -> None:
    """Hold a store and answer over the socket with a file descriptor, until the other end closes it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    link = Link(socket.socket(fileno=number))
    try:
        _, path, format_ = link.receive()
        try:
            store, fingerprint = load_store(Path(path), format=format_)
        except PytraceError as error:
            link.send(_failure(error))
            return
        # What is there now is never garbage; to look for some would only write into memory that forks share.
        gc.collect()
        gc.freeze()
        link.send((RESULT, (fingerprint, len(store))))
        lookups = Lookups(store.store)
        while True:
            verb, *arguments = link.receive()
            link.send((RESULT, _answer(link, store, lookups, verb, arguments)))
    except (EOFError, OSError):  # the caller is gone
        return


def _failure(error: PytraceError) -> tuple[Any, ...]:
    kind = "input" if isinstance(error, InputError) else "store"
    path, line = (error.path, error.line) if isinstance(error, DataError) else (None, None)
    return FAILURE, kind, str(error), None if path is None else str(path), line


def _answer(link: Link, store: KnowledgeStore, lookups: Lookups, verb: str, arguments: list[Any]) -> Any:
    if verb == "run":
        queries = [GraphQuery("", rows, tuple(map(tuple, patterns)), (), (), ()) for rows, patterns in arguments[0]]
        rows, seconds, megabytes = arguments[1]
        _run(link, store, queries, QueryLimits(rows=rows, seconds=seconds, megabytes=megabytes))
        return None
    if verb == "labels":
        labels = lookups.labels()
        while piece := list(islice(labels, _AT_ONCE)):
            link.send((PIECE, piece))
        return None
    return getattr(lookups, verb)(*arguments)


def _run(link: Link, store: KnowledgeStore, queries: list[GraphQuery], limits: QueryLimits) -> None:
    """Run queries in as many forks as there are processors, and send each result with the query's number."""
    waiting = deque(enumerate(queries))
    at_once = len(os.sched_getaffinity(0))
    caller = link.connection.fileno()
    running: dict[int, tuple[list[tuple[int, GraphQuery]], QueryFork]] = {}
    with selectors.DefaultSelector() as selector:
        selector.register(caller, selectors.EVENT_READ)
        try:
            while waiting or running:
                while waiting and len(running) < at_once:
                    share = -(-len(waiting) // (at_once - len(running)))
                    taken = [waiting.popleft() for _ in range(share)]
                    try:
                        fork = QueryFork(store, [query for _, query in taken], limits, not_shared=caller)
                    except OSError as error:
                        ended = Ended([], fault="crash", reason=f"none could be started: {error.strerror}")
                        for number, _ in taken:
                            link.send((PIECE, (number, tuple(ended))))
                        continue
                    running[fork.output] = taken, fork
                    selector.register(fork.output, selectors.EVENT_READ)
                for key, _ in selector.select():
                    if key.fd == caller:  # it sends nothing while it waits, so it is gone
                        raise EOFError
                    taken, fork = running[key.fd]
                    if fork.read():
                        continue
                    selector.unregister(key.fd)
                    del running[key.fd]
                    results = fork.ended()
                    for (number, _), ended in zip(taken, results, strict=False):
                        link.send((PIECE, (number, tuple(ended))))
                    waiting.extendleft(reversed(taken[len(results) :]))
        finally:
            for _, fork in running.values():
                fork.kill()
                fork.ended()
