"""Runs many sequences through one llama.cpp context: rounds of what fits, shared prefixes decoded once.

Calls of several threads go through together: whoever comes first drives the rounds, and what the others bring enters at
the next one, so that one decode carries the scoring of one call and the generation of another. Each call is charged to the
request that it was made for, whichever thread drives, and leaves between two rounds once that is cancelled: its cells are
freed, and what other requests have in progress goes on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pytrace.errors import ContextOverflowError, ModelError
from pytrace.models.llama.evicted_prefixes import EvictedPrefixes, State
from pytrace.models.llama.generation import Generation, Row
from pytrace.models.llama.prefix_batch import Plan, Work, plan_round, sort_key
from pytrace.models.llama.prefix_trie import Node, PrefixTrie, Tokens, common_prefix
from pytrace.models.llama.runtime import LlamaRuntime
from pytrace.models.request_context import RequestContext, current_request, request_context
from pytrace.records import Usage

# Texts written at once, if nothing else is said: more of them were no faster (`python -m benches.engine --only triples
# --parallel N`).
PARALLEL = 16
# What is evicted is the whole path; for fewer new tokens than these the copy is not worth its memory.
EVICTED_TOKENS = 64
# New tokens that one round takes in, at most, unless one prompt has more: what llama.cpp computes at once. A larger round would
# only hold its cells longer, for prompts that are scored give theirs back at its end.
ROUND_TOKENS = 512


@dataclass(slots=True, eq=False)
class Job:
    """The tasks of one call: whom they are for, how many are not finished, what went wrong, and what its own caller raised.

    `counted` tells whether they were asked for, and not only evaluated for the sake of what will be.
    """

    unfinished: int = 0
    request: RequestContext | None = None
    error: BaseException | None = None
    raised: BaseException | None = None
    abandoned: bool = False
    counted: bool = True

    @property
    def over(self) -> bool:
        """Whether nobody waits for its tasks any more."""
        return self.abandoned or (self.request is not None and self.request.cancelled)


@dataclass(slots=True, eq=False, kw_only=True)
class Task(Work):
    """A sequence with what to do with its logits, its generation if it has one, and what to call when it is finished.

    `on_state` gets the keys and values of the whole sequence.
    """

    on_logits: Callable[[int, Row], None]
    generation: Generation | None = None
    on_finish: Callable[[], None] | None = None
    on_state: Callable[[State], None] | None = None
    job: Job = field(default_factory=Job)
    source: Node | None = None
    kept: Node | None = None


# Who asks for the logits of a token, and at which of its positions.
Requests = list[tuple[Task, int]]
# For whom something is done; None stands for calls outside of any request.
Payer = RequestContext | None
# What `LlamaRuntime.decode` takes: tokens, positions, how many sequences each belongs to, where these stand, what is wanted.
Arrays = tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32], NDArray[np.uint64], NDArray[np.int8]]


class Scheduler:
    """Keeps the sequences of one context: those in progress, and prefixes that later prompts may share."""

    def __init__(
        self,
        runtime: LlamaRuntime,
        *,
        max_parallel: int,
        reuse_tokens: int,
        swap_bytes: int = 0,
        deterministic: bool = False,
    ) -> None:
        self._runtime = runtime
        self._max_parallel = min(max_parallel, runtime.sequences - 8)
        self._deterministic = deterministic
        self._evicted = EvictedPrefixes(swap_bytes)
        self._trie = PrefixTrie(
            sequences=runtime.sequences, budget=reuse_tokens, forget=runtime.forget, leaving=self._swap_out
        )
        self._turn = threading.Condition()
        self._driver: int | None = None
        self._inbox: list[Task] = []
        self._waiting: list[Task] = []
        self._entering: list[Task] = []
        self._writing: list[Task] = []
        self._finished: list[Task] = []
        # Whether a job may be over that has tasks in the lists above.
        self._departing = False
        # What was evaluated for whom since this time, for which nobody has been charged yet.
        self._evaluated: dict[Payer, int] = {}
        self._charged = 0.0
        self.usage = Usage()

    def run(self, tasks: list[Task]) -> None:
        """Evaluate all tasks: rounds of what fits, new sequences entering as finished ones leave."""
        self._run(Job(len(tasks), current_request()), tasks)

    def evaluate(self, tokens: Tokens) -> State:
        """Evaluate what prompts will begin with; return its keys and values."""
        states: list[State] = []
        last = len(tokens) - 1
        task = Task(tokens, last, keep=len(tokens), on_logits=lambda *_: None, on_state=states.append)
        self._run(Job(1, current_request(), counted=False), [task])
        return states[0]

    def keep(self, tokens: Tokens, state: State) -> bool:
        """Have the keys and values of a prefix at hand for prompts that begin with it; false if there is no room for them."""
        return self._evicted.put(tokens, state)

    def _run(self, job: Job, tasks: list[Task]) -> None:
        self._runtime.check_open()
        if self._driver == threading.get_ident():
            raise ModelError(
                "the model was called from a function that it had called itself; let that function return first"
            )
        request = job.request
        for task in tasks:
            task.job = job
        if request is None:
            self._see_through(job, tasks)
        else:
            request.check()
            with request.on_cancel(self._wake):
                self._see_through(job, tasks)

    def _see_through(self, job: Job, tasks: list[Task]) -> None:
        """Wait until a job is finished, and drive the rounds whenever no other thread does."""
        if job.counted:
            prompt_tokens = sum(len(task.tokens) for task in tasks)
            self._spend(Usage(calls=len(tasks), prompt_tokens=prompt_tokens), job.request)
        if not self._deterministic:
            with self._turn:
                self._inbox += tasks
        try:
            while job.unfinished and job.error is None and job.raised is None:
                with self._turn:
                    if job.request is not None:
                        job.request.check()
                    self._runtime.check_open()
                    if self._driver is not None:
                        self._turn.wait()
                        continue
                    self._driver = threading.get_ident()
                try:
                    if self._deterministic:
                        self._reset()
                        self._inbox = tasks
                    self._drive(job)
                finally:
                    with self._turn:
                        self._driver = None
                        self._turn.notify_all()
                        self._drop()
            if job.raised is not None:
                raise job.raised
        except BaseException:
            with self._turn:
                job.abandoned = self._departing = True
                if self._driver is None:
                    self._drop()
            raise
        if job.error is not None:
            raise ModelError(
                f"a call of another thread failed while this one was decoded with it ({job.error}); ask again"
            ) from job.error

    def _wake(self) -> None:
        """Have every thread that waits look whether its request was cancelled, and the next round leave out what was."""
        with self._turn:
            self._departing = True
            self._turn.notify_all()

    def close(self) -> None:
        """Wait for the round in progress, then free the model."""
        with self._turn:
            self._turn.wait_for(lambda: self._driver is None)
            self._runtime.close()
            self._clear()  # those who wait are told that it is closed

    def _spend(self, usage: Usage, payer: Payer) -> None:
        with self._turn:
            self.usage += usage
        if payer is not None:
            payer.spend(usage)

    def _spend_time(self, job: Job) -> None:
        """Charge the time since the last call by the tokens evaluated in it; where there are none, the driver's own job."""
        now = time.perf_counter()
        seconds, self._charged = now - self._charged, now
        evaluated, self._evaluated = self._evaluated or {job.request: 1}, {}
        total = sum(evaluated.values())
        for payer, tokens in evaluated.items():
            self._spend(Usage(seconds=seconds * tokens / total), payer)

    def _drive(self, job: Job) -> None:
        """Run rounds until a job is finished or over; what others asked for in the meantime stays in progress."""
        self._charged = time.perf_counter()
        try:
            while job.unfinished:
                self._take_in()
                if job.over:  # its tasks are dropped; another thread drives on
                    break
                self._admit()
                if not self._entering and not self._writing:
                    longest = max(len(task.tokens) + task.room for task in self._waiting)
                    raise ContextOverflowError(
                        f"a sequence of {longest} tokens does not fit the cache of {self._runtime.cells} cells; "
                        "ask for a larger cache_tokens"
                    )
                self._round()
                self._retire()
                self._spend_time(job)
                self._hand_back()
        except BaseException as error:
            self._fail(error, job)
            raise
        finally:
            self._spend_time(job)

    def _take_in(self) -> None:
        """Let in what threads have brought since the last round, in an order in which neighbours share most."""
        # Of texts that begin alike the ones that may grow longest come first, so that none is left to be written alone.
        with self._turn:
            new, self._inbox = self._inbox, []
        if new:
            self._waiting = sorted([*self._waiting, *new], key=_turn_of)
        self._drop()

    def _drop(self) -> None:
        """Let go of the tasks whose job is over, and of their cells; the driver's to do, or anybody's while there is none."""
        with self._turn:
            departing, self._departing = self._departing, False
            if not departing:
                return
            self._inbox = [task for task in self._inbox if not task.job.over]
        self._waiting = [task for task in self._waiting if not task.job.over]
        writing, self._writing = self._writing, []
        for task in writing:
            if task.job.over:
                self._release(task)
                self._spend_generated(task)
            else:
                self._writing.append(task)
        if len(self._writing) < len(writing):
            self._settle()

    def _fail(self, error: BaseException, job: Job) -> None:
        """Empty the memory, of which nothing is known any more, and tell the other jobs in progress."""
        with self._turn:
            for task in (*self._inbox, *self._waiting, *self._entering, *self._writing, *self._finished):
                if task.job is not job:
                    task.job.error = error
            self._clear()
            self._reset()

    def _clear(self) -> None:
        for tasks in (self._waiting, self._entering, self._writing, self._finished):
            tasks.clear()
        self._inbox = []

    def _reset(self) -> None:
        self._runtime.clear()
        self._trie.reset()
        self._evicted.clear()

    def _admit(self) -> None:
        """Take tasks that fit now: sequences, cells, and for generation the limit of parallel writers."""
        # A writing task takes cells beside those in the trie: of its prompt's end, and of what it may still write.
        reserved = sum(len(task.tokens) - task.keep + task.room for task in self._writing)
        evaluated = cells = 0
        previous: Task | None = None
        for task in self._waiting:
            active = len(self._writing) + len(self._entering)
            if task.generation is not None and active >= self._max_parallel:
                continue  # prompts that are only scored may pass by
            self._restore(task, reserved + cells)
            source = self._trie.match(task.tokens, task.first_wanted)
            shared = common_prefix(previous.tokens, task.tokens) if previous is not None else 0
            # Cells are counted without what is taken over: the plan of a round may take over less.
            more_cells = len(task.tokens) - shared + task.room
            more_evaluated = len(task.tokens) - max(shared, source.end)
            if previous is not None and evaluated + more_evaluated > ROUND_TOKENS:
                break
            room = self._runtime.cells - reserved - cells - more_cells
            source.pins += 1
            if not self._make_room(room):
                source.pins -= 1
                if active or not self._make_room(room):
                    break
                source = self._trie.root
                source.pins += 1
            task.source = source
            task.sequence = self._trie.take()
            evaluated += more_evaluated
            cells += more_cells
            previous = task
            self._entering.append(task)
        if self._entering:
            entered = set(map(id, self._entering))
            self._waiting = [task for task in self._waiting if id(task) not in entered]

    def _swap_out(self, leaf: Node) -> None:
        """Save what a later prompt may begin with before it leaves its cells."""
        if len(leaf.tokens) >= EVICTED_TOKENS and self._evicted.budget:
            tokens = leaf.path()
            if not self._evicted.knows(tokens):
                self._evicted.put(tokens, self._runtime.save(leaf.sequence))

    def _restore(self, task: Task, cells: int) -> None:
        """Put a saved prefix into cells again if it is longer than what the trie has; `cells` are spoken for."""
        saved = self._evicted.longest(task.tokens[: task.first_wanted]) if len(self._evicted) else None
        if saved is None:
            return
        size, tokens, state = saved
        if size - self._trie.match(task.tokens, task.first_wanted).end < EVICTED_TOKENS:
            return
        fresh = len(tokens) + len(task.tokens) + task.room
        if not self._make_room(self._runtime.cells - cells - fresh):
            return
        sequence = self._trie.take()
        if self._runtime.restore(sequence, state):
            self._trie.add_copy(tokens[:size], sequence)
        else:
            self._trie.give_back(sequence)

    def _make_room(self, cells: int) -> bool:
        """Evict until the trie takes no more than so many cells and a sequence is free; nothing if that cannot be."""
        if self._trie.cells > cells and self._trie.pinned_cells() > cells:
            return False
        while self._trie.cells > cells or not self._trie.free_sequences:
            if not self._trie.evict():
                return False
        return True

    def _round(self) -> None:
        """Decode the prompts of those entering together with the next token of those writing."""
        entries = _Entries()
        for task in self._writing:
            generation = task.generation
            assert generation is not None
            position = len(task.tokens) + len(generation.tokens) - 1
            entries.add([generation.tokens[-1]], position, [task], [[(task, position)]])
        entering = sorted(self._entering, key=lambda task: task.key)
        plan = plan_round(entering, [_shared_prefix(task) for task in entering]) if entering else Plan()
        for task, (source, end) in zip(entering, plan.sources, strict=True):
            if source >= 0:
                self._runtime.share(source, task.sequence, end)
        for segment in plan.segments:
            members = [entering[index] for index in segment.members]
            first = min(member.first_wanted for member in members)
            wanted: list[Requests] = [
                [(member, position) for member in members if position >= member.first_wanted]
                if position >= first
                else []
                for position in range(segment.start, segment.end)
            ]
            tokens = entering[segment.owner].tokens[segment.start : segment.end].tolist()
            entries.add(tokens, segment.start, members, wanted)
        self._decode(entries)
        for task in entering:
            assert task.source is not None
            task.source.pins -= 1
            task.kept = self._trie.insert(task.tokens[: task.keep], task.sequence)

    def _decode(self, entries: _Entries) -> None:
        size = self._runtime.batch
        for start in range(0, len(entries.rows), size):
            arrays, asked, evaluated = entries.chunk(start, start + size)
            while not self._runtime.decode(*arrays):
                if not self._trie.evict():
                    raise ModelError(
                        f"the cache of {self._runtime.cells} cells is full with {self._trie.cells} of them in prefixes; "
                        "ask for a larger cache_tokens"
                    )
            self._spend(Usage(evaluated_tokens=len(arrays[0]), batches=1), None)
            for payer, tokens in evaluated.items():
                self._evaluated[payer] = self._evaluated.get(payer, 0) + tokens
                if payer is not None:
                    payer.spend(Usage(evaluated_tokens=tokens, batches=1))
            for index, requests in asked:
                row = self._runtime.logits(index)
                for task, position in requests:
                    task.on_logits(position, row)

    def _retire(self) -> None:
        """Let finished tasks go, keeping in memory what a later prompt may begin with."""
        active, self._writing, self._entering = [*self._writing, *self._entering], [], []
        for task in active:
            if task.generation is not None and task.generation.finish is None:
                self._writing.append(task)
            else:
                if task.on_state is not None:
                    task.on_state(self._runtime.save(task.sequence))
                self._release(task)
                self._finished.append(task)
        if not self._finished:
            return
        self._settle()
        for task in self._finished:
            self._spend_generated(task)
            if task.on_finish is not None and not task.job.over:
                try:
                    with request_context(task.job.request):
                        task.on_finish()
                except BaseException as error:  # noqa: BLE001 - its own caller's fault, to be raised in its own thread
                    task.job.raised = error
                    task.job.abandoned = self._departing = True

    def _hand_back(self) -> None:
        """Tell those who wait for the tasks that are finished."""
        if self._finished:
            with self._turn:
                for task in self._finished:
                    task.job.unfinished -= 1
                self._finished.clear()
                self._turn.notify_all()

    def _settle(self) -> None:
        """Evict what is over the budget, but not what the next task in line begins with."""
        needed = self._trie.root
        if self._waiting:
            needed = self._trie.match(self._waiting[0].tokens, self._waiting[0].first_wanted)
        needed.pins += 1
        self._trie.settle()
        needed.pins -= 1

    def _spend_generated(self, task: Task) -> None:
        if task.generation is not None:
            self._spend(Usage(generated_tokens=len(task.generation.tokens)), task.job.request)

    def _release(self, task: Task) -> None:
        assert task.kept is not None
        self._trie.release(task.kept, task.sequence)


class _Entries:
    """The tokens of a round in the arrays that llama.cpp reads."""

    def __init__(self) -> None:
        # Of each token: itself, its position, how many sequences it belongs to, where these stand, who wants its logits, whom it
        # is evaluated for.
        self.rows: list[tuple[int, int, int, int, Requests, list[Payer]]] = []
        self._keep_alive: list[NDArray[np.int32]] = []

    def add(self, tokens: list[int], start: int, members: list[Task], wanted: list[Requests]) -> None:
        """Add consecutive tokens that belong to the same sequences; `wanted` has who asks for each one's logits."""
        ids = np.array([member.sequence for member in members], dtype=np.int32)
        self._keep_alive.append(ids)
        count, address = len(members), ids.ctypes.data
        payers = list(dict.fromkeys(member.job.request for member in members))
        for position, (token, requests) in enumerate(zip(tokens, wanted, strict=True), start):
            self.rows.append((token, position, count, address, requests, payers))

    def chunk(self, start: int, end: int) -> tuple[Arrays, list[tuple[int, Requests]], dict[Payer, int]]:
        """Return the arrays of entries `start` to `end`, who asks for which entry's logits, and how many each is charged for."""
        tokens, positions, counts, addresses, wanted, shared = zip(*self.rows[start:end], strict=True)
        arrays = (
            np.array(tokens, dtype=np.int32),
            np.array(positions, dtype=np.int32),
            np.array(counts, dtype=np.int32),
            np.array(addresses, dtype=np.uint64),
            np.array([bool(requests) for requests in wanted], dtype=np.int8),
        )
        evaluated: dict[Payer, int] = {}
        for position, payers in zip(positions, shared, strict=True):
            for payer in payers:  # who takes part is known, though others may pay
                evaluated.setdefault(payer, 0)
            evaluated[payers[position % len(payers)]] += 1
        return arrays, [(index, requests) for index, requests in enumerate(wanted) if requests], evaluated


def _turn_of(task: Task) -> tuple[bytes, int, bytes]:
    return sort_key(task.tokens[: task.keep]), -task.room, task.key


def _shared_prefix(task: Task) -> tuple[int, int]:
    """Return the sequence that holds the prefix of a task's prompt, and how much of it."""
    assert task.source is not None
    return (task.source.holder(), task.source.end) if task.source.end else (-1, 0)
