"""One index that several Ray actors search, on this machine or on all machines of a cluster, each a share of its segments."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytrace.errors import InputError, StoreError, WorkerError
from pytrace.models.encoders.encoder import Vectors
from pytrace.retrieval.passages.index import Mask, PassageIndex, best_of
from pytrace.retrieval.word_index import Live, Query, WordIndex

Found = tuple[NDArray[np.float32], NDArray[np.int64]]


class SpreadIndex(PassageIndex):
    """An index whose vectors and words are searched by Ray actors; what is found is what `PassageIndex` finds.

    What grows with the index, the look at all vectors and postings, is theirs; names, links and the passages that come into question
    are read here.

    Parameters
    ----------
    directory
        Of the index; all machines must see it there, or a copy.
    processes
        Actors, at most one a segment of 65,536 passages.
    threads
        Threads of each.
    address
        A Ray cluster, such as ``auto``; None: one on this machine, unless this process has one already.

    Raises
    ------
    InputError, MissingDependencyError
        There is no Ray there; Ray is not installed.
    StoreError
        As for `PassageIndex`; or an actor sees another index there.
    WorkerError
        Ray cannot go on.
    """

    def __init__(
        self, directory: str | os.PathLike[str], *, processes: int, threads: int = 1, address: str | None = None
    ) -> None:
        if processes < 1 or threads < 1:
            raise InputError(f"{processes} processes of {threads} threads were asked for; at least 1 of each is needed")
        super().__init__(directory)
        self._ray: Any = None
        self._cluster = ExitStack()
        try:
            self._start(processes, threads, address)
        except BaseException:
            self.close()
            raise

    def _start(self, processes: int, threads: int, address: str | None) -> None:
        from pytrace.evaluation.run.ray_cluster import import_ray, ray_cluster

        self._ray = import_ray()
        # The borders between segments that come nearest to equal shares.
        ends = np.array(self._firsts)
        wanted = np.linspace(0, len(self), processes + 1)[1:-1]
        inner = ends[[int(np.abs(ends - each).argmin()) for each in wanted]]
        borders = np.unique([0, *inner.tolist(), len(self)]).tolist()
        self._shares = [slice(first, last) for first, last in pairwise(borders)]
        wanted_processors = max(1, len(self._shares)) * threads
        self._cluster.enter_context(ray_cluster(wanted_processors, address))
        there = int(self._ray.cluster_resources().get("CPU", 0))
        if there < wanted_processors:
            raise InputError(
                f"Ray has {there} processors, and {len(self._shares)} actors of {threads} threads need {wanted_processors}; ask for fewer"
            )
        actor = self._ray.remote(_Share).options(num_cpus=threads)
        path = str(self.directory.resolve())
        self._actors = [actor.remote() for _ in self._shares]
        self._gathered(
            [
                actor.open.remote(path, self.manifest.checksum, share, threads)
                for actor, share in zip(self._actors, self._shares, strict=True)
            ]
        )

    def nearest(self, queries: Vectors, k: int, *, mask: Mask | None = None) -> Found:
        """Find the passages nearest to each query, as `PassageIndex.nearest` does."""
        return self.gather("nearest", np.asarray(queries, dtype=np.float32), k, mask)

    @cached_property
    def words(self) -> WordIndex:
        """The words of all passages (BM25)."""
        return _SpreadWords(self)

    def gather(self, what: str, queries: Any, k: int, mask: Mask | None) -> Found:
        """Let all actors search, and return the best of what they find."""
        asked = self._ray.put(queries)
        parts = self._gathered(
            [
                getattr(actor, what).remote(asked, k, None if mask is None else mask[share])
                for actor, share in zip(self._actors, self._shares, strict=True)
            ]
        )
        nothing = np.full((len(queries), k), -np.inf, dtype=np.float32), np.full((len(queries), k), -1, dtype=np.int64)
        scores, rows = zip(nothing, *parts, strict=True)
        return best_of(scores, rows, k)

    def close(self) -> None:
        """Close the index, end the actors, and Ray, if it was started for them."""
        for actor in getattr(self, "_actors", ()):
            self._ray.kill(actor)
        self._actors = []
        if hasattr(self, "_cluster"):
            self._cluster.close()
        super().close()

    def _gathered(self, asked: list[Any]) -> list[Any]:
        try:
            found: list[Any] = self._ray.get(asked)
        except self._ray.exceptions.RayTaskError as error:
            cause = error.cause
            raise cause if isinstance(cause, StoreError) else WorkerError(f"a search by Ray failed: {cause}") from error
        except self._ray.exceptions.RayError as error:
            message = (str(error).strip().splitlines() or ["no message"])[0]
            raise WorkerError(
                f"Ray cannot go on ({type(error).__name__}: {message}); open the index anew, with fewer processes if memory is short"
            ) from error
        return found


class _SpreadWords(WordIndex):
    """The words of a spread index: its actors look for the best rows, and rows that are known are scored here."""

    def __init__(self, index: SpreadIndex) -> None:
        super().__init__([(segment.blocks, None) for segment in index.segments])
        self._index = index

    def top(self, queries: Sequence[Query], k: int, *, mask: Live | None = None, threads: int | None = None) -> Found:
        """Find the best rows that share a word with a query, as `WordIndex.top` does, with the threads of the actors."""
        del threads
        return self._index.gather("top", list(queries), k, mask)


class _Share:
    """Searches some of the segments, in a process of its own; weights of words are those of the whole index."""

    def open(self, directory: str, checksum: str, share: slice, threads: int) -> None:
        """Open the index; here, since what is raised where an actor is made comes through as the actor's death."""
        from pytrace import _core

        _core.set_num_threads(threads)
        self._index = PassageIndex(Path(directory))
        self._share = share
        if self._index.manifest.checksum != checksum:
            raise StoreError(f"{directory} has changed since it was opened; open it anew")

    def nearest(self, queries: Vectors, k: int, mask: Mask | None) -> Found:
        """Find the passages of the share that are nearest to each query."""
        return self._index.nearest(queries, k, mask=self._mask(mask))

    def top(self, queries: list[Query], k: int, mask: Mask | None) -> Found:
        """Find the rows of the share that share most words with each query."""
        return self._index.words.top(queries, k, mask=self._mask(mask))

    def _mask(self, mask: Mask | None) -> Mask:
        whole = np.zeros(len(self._index), dtype=bool)
        whole[self._share] = True if mask is None else mask
        return whole
