"""Runs many sequences through one llama.cpp context: rounds of what fits, shared beginnings decoded once."""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pytrace.errors import ContextOverflowError, ModelError
from pytrace.models.generation import Generation, Row
from pytrace.models.llama_runtime import LlamaRuntime
from pytrace.models.prefix_batch import Plan, Resident, Tokens, Work, cells_used, common_prefix, plan_round
from pytrace.records import Usage

# New tokens that one round takes in, at most: llama.cpp attends over all cells in use, also those of other sequences, so
# a prompt in a cache of 8,000 cells costs twice what it costs in an empty one.
ROUND_TOKENS = 2048


@dataclass(slots=True)
class Task:
    """A work with what to do with its logits, and its generation if it has one."""

    work: Work
    on_logits: Callable[[int, Row], None]
    generation: Generation | None = None


class Scheduler:
    """Keeps the sequences of one context: those being evaluated, and finished ones that later prompts may begin with.

    Parameters
    ----------
    runtime
        The context.
    max_parallel
        How many sequences are generated at once.
    reuse_tokens
        Cells of finished sequences to keep.
    """

    def __init__(self, runtime: LlamaRuntime, *, max_parallel: int, reuse_tokens: int) -> None:
        self._runtime = runtime
        self._max_parallel = min(max_parallel, runtime.sequences - 8)
        self._reuse_tokens = reuse_tokens
        self._residents: dict[int, Resident] = {}
        self._free = list(range(runtime.sequences))
        self._clock = 0
        self.usage = Usage()

    def run(self, tasks: list[Task]) -> None:
        """Evaluate all tasks: rounds of what fits, new sequences entering as finished ones leave."""
        self._runtime.check_open()
        started = time.perf_counter()
        self.usage += Usage(calls=len(tasks), prompt_tokens=sum(len(task.work.tokens) for task in tasks))
        waiting = deque(sorted(tasks, key=lambda task: task.work.key))
        writing: list[Task] = []
        try:
            while waiting or writing:
                entering = self._admit(waiting, len(writing), sum(_outstanding(task) for task in writing))
                if not entering and not writing:
                    longest = max(len(task.work.tokens) + task.work.room for task in waiting)
                    message = (
                        f"a sequence of {longest} tokens does not fit the cache of {self._runtime.cells} cells; "
                        "ask for a larger cache_tokens"
                    )
                    raise ContextOverflowError(message)
                self._round(entering, writing)
                active = entering + writing
                writing = self._retire(active)
                if len(writing) < len(active):
                    self._settle()
        except BaseException:
            self._reset()
            raise
        finally:
            self.usage += Usage(seconds=time.perf_counter() - started)

    def _admit(self, waiting: deque[Task], active: int, reserved: int) -> list[Task]:
        """Take tasks that fit now: sequences, cells, and for generation the limit of parallel writers."""
        entering: list[Task] = []
        if not waiting:
            return entering
        budget = self._runtime.cells - reserved
        held = cells_used(list(self._residents.values()))
        needed = 0
        previous: Tokens | None = None
        while waiting:
            task = waiting[0]
            work = task.work
            if task.generation is not None and active + len(entering) >= self._max_parallel:
                break
            fresh = len(work.tokens) - (common_prefix(previous, work.tokens) if previous is not None else 0) + work.room
            if entering and needed + fresh > ROUND_TOKENS:
                break
            while held + needed + fresh > budget or not self._free:
                if not self._evict():
                    break
                held = cells_used(list(self._residents.values()))
            if not self._free or held + needed + fresh > budget:
                break
            work.sequence = self._free.pop()
            needed += fresh
            previous = work.tokens
            entering.append(waiting.popleft())
        return entering

    def _evict(self) -> bool:
        """Forget the resident that was used least recently; false if there is none that nobody is using."""
        idle = [resident for resident in self._residents.values() if resident.used >= 0]
        if not idle:
            return False
        oldest = min(idle, key=lambda resident: resident.used)
        self._drop(oldest.sequence)
        return True

    def _drop(self, sequence: int) -> None:
        self._runtime.forget(sequence)
        self._residents.pop(sequence, None)
        self._free.append(sequence)

    def _reset(self) -> None:
        self._runtime.clear()
        self._residents.clear()
        self._free = list(range(self._runtime.sequences))

    def _round(self, entering: list[Task], writing: list[Task]) -> None:
        """Decode the prompts of those entering together with the next token of those writing."""
        entries = _Entries()
        for task in writing:
            generation = task.generation
            assert generation is not None
            position = len(task.work.tokens) + len(generation.tokens) - 1
            entries.add([generation.tokens[-1]], position, [task.work.sequence], [[(task, position)]])
        works = [task.work for task in entering]
        plan = plan_round(works, list(self._residents.values())) if works else Plan()
        for work, (source, end) in zip(works, plan.sources, strict=True):
            if source >= 0:
                self._clock += 1
                self._residents[source].used = self._clock if self._residents[source].used >= 0 else -1
                self._runtime.share(source, work.sequence, end)
        for segment in plan.segments:
            owner = works[segment.owner]
            members = [entering[index] for index in segment.members]
            first = min(member.work.first_wanted for member in members)
            wanted: list[list[tuple[Task, int]]] = [
                [(member, position) for member in members if position >= member.work.first_wanted]
                if position >= first
                else []
                for position in range(segment.start, segment.end)
            ]
            tokens = owner.tokens[segment.start : segment.end].tolist()
            entries.add(tokens, segment.start, [member.work.sequence for member in members], wanted)
        self._decode(entries)
        for task in entering:
            # In use: a resident that others may share but nobody may evict until it retires.
            self._residents[task.work.sequence] = Resident(task.work.sequence, task.work.tokens, used=-1)

    def _decode(self, entries: _Entries) -> None:
        size = self._runtime.batch
        for start in range(0, len(entries.tokens), size):
            arrays, asked = entries.chunk(start, start + size)
            while not self._runtime.decode(*arrays):
                if not self._evict():
                    message = (
                        f"the cache of {self._runtime.cells} cells is full with {len(self._residents)} sequences in use; "
                        "ask for a larger cache_tokens"
                    )
                    raise ModelError(message)
            self.usage += Usage(evaluated_tokens=len(arrays[0]), batches=1)
            for index, requests in asked:
                row = self._runtime.logits(index)
                for task, position in requests:
                    task.on_logits(position, row)

    def _retire(self, tasks: list[Task]) -> list[Task]:
        """Let finished tasks go, keeping in memory what a later prompt may begin with."""
        writing = []
        for task in tasks:
            if task.generation is not None and task.generation.finish is None:
                writing.append(task)
                continue
            work = task.work
            if task.generation is not None:
                self.usage += Usage(generated_tokens=len(task.generation.tokens))
            if self._reuse_tokens == 0 or work.keep == 0:
                self._drop(work.sequence)
                continue
            self._runtime.forget(work.sequence, work.keep)
            self._clock += 1
            self._residents[work.sequence] = Resident(work.sequence, work.tokens[: work.keep], used=self._clock)
        return writing

    def _settle(self) -> None:
        """Drop residents that are the beginning of another, and the oldest beyond what is worth keeping."""
        ordered = sorted(
            (resident for resident in self._residents.values() if resident.used >= 0), key=lambda resident: resident.key
        )
        for before, after in itertools.pairwise(ordered):
            if len(before.tokens) <= len(after.tokens) and common_prefix(before.tokens, after.tokens) == len(
                before.tokens
            ):
                after.used = max(after.used, before.used)
                self._drop(before.sequence)
        while cells_used([one for one in self._residents.values() if one.used >= 0]) > self._reuse_tokens:
            self._evict()


class _Entries:
    """The tokens of a round in the arrays that llama.cpp reads."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self._positions: list[int] = []
        self._counts: list[int] = []
        self._addresses: list[int] = []
        self._asked: list[list[tuple[Task, int]]] = []
        self._keep_alive: list[NDArray[np.int32]] = []

    def add(self, tokens: list[int], position: int, sequences: list[int], wanted: list[list[tuple[Task, int]]]) -> None:
        """Add consecutive tokens that belong to the same sequences; `wanted` has who asks for each one's logits."""
        ids = np.array(sequences, dtype=np.int32)
        self._keep_alive.append(ids)
        self.tokens += tokens
        self._positions += range(position, position + len(tokens))
        self._counts += [len(sequences)] * len(tokens)
        self._addresses += [ids.ctypes.data] * len(tokens)
        self._asked += wanted

    def chunk(
        self, start: int, end: int
    ) -> tuple[
        tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32], NDArray[np.uint64], NDArray[np.int8]],
        list[tuple[int, list[tuple[Task, int]]]],
    ]:
        """Return the arrays of entries `start` to `end`, and who asks for which entry's logits."""
        asked = [(index, requests) for index, requests in enumerate(self._asked[start:end]) if requests]
        wanted = np.zeros(len(self.tokens[start:end]), dtype=np.int8)
        wanted[[index for index, _ in asked]] = 1
        arrays = (
            np.array(self.tokens[start:end], dtype=np.int32),
            np.array(self._positions[start:end], dtype=np.int32),
            np.array(self._counts[start:end], dtype=np.int32),
            np.array(self._addresses[start:end], dtype=np.uint64),
            wanted,
        )
        return arrays, asked


def _outstanding(task: Task) -> int:
    """Cells that a writing task may still need, those of its own generated tokens included."""
    return task.generation.max_tokens if task.generation is not None else 0
