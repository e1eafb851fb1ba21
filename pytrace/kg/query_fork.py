"""Queries in a fork of the process that holds the store, which the system ends when one of them reaches a limit.

pyoxigraph can be stopped only between two solutions: a path without end, a sum over 10^9 rows or a text that doubles itself
ends with its process, or not at all. So a timer ends the fork when a query had its seconds, the system gives it no more memory
than its megabytes, and what it found lies in a piece of memory that both processes see and that stays whatever ends it. A fork
costs some milliseconds, more with a large store, so it runs one query after the other, until one ends it.
"""

from __future__ import annotations

import contextlib
import marshal
import mmap
import os
import resource
import signal
import struct
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, NoReturn

from pytrace.errors import InputError
from pytrace.kg.fact_store import QueryLimits
from pytrace.kg.sparql import GraphQuery
from pytrace.kg.sparql_store import KnowledgeStore, Solution
from pytrace.records import Triple

# What one query may return: 1,000 solutions of ten triples with long names are 2 MB. A fork that has as much to hand over takes
# no further query, so that each has room for so much.
_MOST_BYTES = 64 << 20
# A number stands before what is written: how many bytes of it are complete. Each entry has its kind and its size before it.
_HEADER = 8
_ENTRY = struct.Struct("<BI")
_SOLUTION, _COMPLETE, _ROWS, _BYTES, _MEMORY, _WRONG = range(6)
# What the process says before it ends, of which the last bytes are kept.
_SAID = 2_000
# Rust's words before it gives up; Python raises MemoryError instead.
_NO_MEMORY = b"memory allocation of"


class Ended(NamedTuple):
    """What a query came to: its solutions as marshal packs them, the limit that ended it early, and what went wrong and how.

    `fault` is "input" where the query is to blame, "crash" where its process ended for no known reason, else empty.
    """

    packed: list[bytes]
    stopped: str = ""
    fault: Literal["", "input", "crash"] = ""
    reason: str = ""


class QueryFork:
    """Queries that run in a fork of this process, which must have no other thread."""

    def __init__(
        self, store: KnowledgeStore, queries: Sequence[GraphQuery], limits: QueryLimits, *, not_shared: int
    ) -> None:
        self._limits = limits
        self._said = b""
        self._shared = mmap.mmap(-1, _HEADER + 2 * (_MOST_BYTES + _ENTRY.size))
        self.output, inner = os.pipe()
        try:
            self._process = os.fork()
            if not self._process:
                os.close(not_shared)
                _be_the_fork(store, queries, limits, self._shared, inner)
        except OSError:
            os.close(self.output)
            raise
        finally:
            os.close(inner)

    def read(self) -> bool:
        """Take what the fork says on `output`, and tell whether it still runs."""
        piece = os.read(self.output, 1 << 16)
        self._said = (self._said + piece)[-_SAID:]
        return bool(piece)

    def kill(self) -> None:
        """End the fork now; `ended` is due all the same."""
        os.kill(self._process, signal.SIGKILL)

    def ended(self) -> list[Ended]:
        """Wait for the end, and return what came of the first queries; the others were not begun."""
        os.close(self.output)
        _, status = os.waitpid(self._process, 0)
        ended: list[Ended] = []
        packed: list[bytes] = []
        for kind, piece in self._entries():
            if kind == _SOLUTION:
                packed.append(piece)
                continue
            ended.append(self._told(kind, packed, piece))
            packed = []
        self._shared.close()
        return ended if status == 0 else [*ended, self._cut_off(status, packed)]

    def _entries(self) -> Iterator[tuple[int, bytes]]:
        with memoryview(self._shared) as whole, whole[:_HEADER].cast("Q") as header:
            at, end = _HEADER, _HEADER + header[0]
            while at < end:
                kind, size = _ENTRY.unpack_from(whole, at)
                at += _ENTRY.size + size
                yield kind, whole[at - size : at].tobytes()

    def _told(self, kind: int, packed: list[bytes], piece: bytes) -> Ended:
        """Return what became of a query that ended by itself."""
        if kind == _WRONG:
            return Ended([], fault="input", reason=piece.decode("utf-8", "replace"))
        stopped = {
            _ROWS: f"more than {self._limits.rows} solutions",
            _BYTES: f"more than {_MOST_BYTES >> 20} megabytes of solutions",
            _MEMORY: self._no_memory,
        }
        return Ended(packed, stopped.get(kind, ""))

    def _cut_off(self, status: int, packed: list[bytes]) -> Ended:
        """Return what became of a query that ended its process."""
        signal_ = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        if signal_ == signal.SIGALRM:
            return Ended(packed, f"more than {self._limits.seconds:g} seconds")
        if signal_ == signal.SIGABRT and _NO_MEMORY in self._said:
            return Ended(packed, self._no_memory)
        said = self._said.decode("utf-8", "replace").strip().splitlines()
        how = f"signal {signal_} ({signal.strsignal(signal_)})" if signal_ else f"exit status {status >> 8}"
        return Ended([], fault="crash", reason=f"{how}{': ' + said[-1][:200] if said else ''}")

    @property
    def _no_memory(self) -> str:
        return f"more than {self._limits.megabytes} megabytes of memory"


def unpack(packed: bytes) -> Solution:
    """Return a solution that the fork packed."""
    triples, values = marshal.loads(packed)
    return Solution(tuple(Triple(*triple) for triple in triples), values)


def _be_the_fork(
    store: KnowledgeStore, queries: Sequence[GraphQuery], limits: QueryLimits, shared: mmap.mmap, output: int
) -> NoReturn:
    status = 1
    try:
        os.dup2(output, 2)
        os.close(output)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        _limit_memory(limits.megabytes)
        _take_connections()
        log = _Log(shared)
        for query in queries:
            # 0 would be no timer at all.
            signal.setitimer(signal.ITIMER_REAL, max(limits.seconds, 1e-6))
            try:
                log.write(_run(store, query, limits.rows, log))
            except MemoryError:
                log.write(_MEMORY)
            except InputError as error:
                log.write(_WRONG, str(error).encode("utf-8", "replace"))
            signal.setitimer(signal.ITIMER_REAL, 0)
            if not log.next_query():
                break
        status = 0
    except BaseException as error:  # noqa: BLE001 - whatever it is, this process must not go on as its parent would
        with contextlib.suppress(Exception):
            os.write(2, f"{type(error).__name__}: {error}".encode("utf-8", "replace"))
    finally:
        os._exit(status)


def _limit_memory(megabytes: int) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError):  # there is no /proc
        # Where the machine itself has no memory left, this process is the one to go.
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
        used = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        most = min(used + (megabytes << 20), sys.maxsize if hard == resource.RLIM_INFINITY else hard)
        resource.setrlimit(resource.RLIMIT_AS, (most, hard))


def _take_connections() -> None:
    """Let this process open nothing more, so that no query calls another server, whatever a check before it overlooks."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))


class _Log:
    """Entries in the shared memory; one counts when all of it is there."""

    def __init__(self, shared: mmap.mmap) -> None:
        self._whole = memoryview(shared)
        self._header = self._whole[:_HEADER].cast("Q")
        self._end = self._query = _HEADER

    def next_query(self) -> bool:
        """Begin with another query, and tell whether there is room for one."""
        self._query = self._end
        return self._end - _HEADER <= _MOST_BYTES

    def fits(self, size: int) -> bool:
        """Tell whether the query may write another entry of so many bytes."""
        return self._end + _ENTRY.size + size - self._query <= _MOST_BYTES

    def write(self, kind: int, piece: bytes = b"") -> None:
        """Write an entry."""
        start = self._end + _ENTRY.size
        _ENTRY.pack_into(self._whole, self._end, kind, len(piece))
        self._whole[start : start + len(piece)] = piece
        self._end = start + len(piece)
        self._header[0] = self._end - _HEADER


def _run(store: KnowledgeStore, query: GraphQuery, rows: int, log: _Log) -> int:
    """Write solutions down as they come, and return how it ended."""
    for number, solution in enumerate(store.each_solution(query)):
        if number == rows:
            return _ROWS
        # marshal, for it is as fast as any and takes lone surrogates, which MessagePack and JSON do not.
        triples = [(triple.head, triple.relation, triple.tail) for triple in solution.triples]
        piece = marshal.dumps((triples, solution.values))
        if not log.fits(len(piece)):
            return _BYTES
        log.write(_SOLUTION, piece)
    return _COMPLETE
