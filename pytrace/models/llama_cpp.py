"""The in-process engine: llama.cpp driven so that many prompts share one decode and every common beginning is paid once."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pytrace.errors import ContextOverflowError, ModelError
from pytrace.models.language_model import Completion, ContinuationScore, OptionScores, Prompt
from pytrace.models.llama_runtime import Grammar, LlamaRuntime
from pytrace.models.prefix_batch import Plan, Resident, Tokens, Work, cells_used, common_prefix, plan_round
from pytrace.records import Usage

Style = Literal["auto", "chat", "plain"]
Row = NDArray[np.float32]

# A text that says the same 6 tokens four times in a row will not stop by itself.
REPEATED_TOKENS = 6
REPEATED_TIMES = 4


def log_normalizer(row: Row) -> float:
    """Return the logarithm of the sum of exponentials, which turns logits into log-probabilities."""
    highest = float(row.max())
    return highest + float(np.log(np.exp(row - np.float32(highest)).sum(dtype=np.float64)))


@dataclass(slots=True)
class _Task:
    """A work with what to do with its logits, and its generation if it has one."""

    work: Work
    on_logits: Callable[[int, Row], None]
    generation: _Generation | None = None


@dataclass(slots=True)
class _Generation:
    """One sequence being written."""

    max_tokens: int
    stop: tuple[bytes, ...]
    temperature: float
    top_p: float
    random: np.random.Generator
    grammar: Grammar | None
    tokens: list[int] = field(default_factory=list)
    data: bytearray = field(default_factory=bytearray)
    log_probability: float = 0.0
    finish: Literal["end", "stop", "length", "repetition"] | None = None

    def completion(self) -> Completion:
        text = self.data.decode("utf-8", "replace")
        return Completion(text, len(self.tokens), self.finish or "length", self.log_probability)


class LlamaCppModel:
    """A GGUF model run inside this process by llama.cpp.

    Prompts of one call are evaluated together; beginnings that they share with each other, or with prompts of earlier
    calls that are still in memory, are evaluated once. Results equal those of prompts evaluated alone up to rounding.

    Parameters
    ----------
    path
        A GGUF file.
    name
        A short name for reports; the file's name if not given.
    context
        The longest sequence in tokens; the model's trained context, at most 8192, if not given.
    cache_tokens
        Key-value cells for all sequences in memory together; at least `context`.
    max_parallel
        How many sequences are generated at once.
    batch
        Tokens a decode call.
    threads
        Threads; the processors this process may use if not given.
    gpu_layers
        Layers on a GPU (-1: all). Asked for and not there raises.
    style
        How a `Prompt` becomes text: "chat" by the model's own chat template, "plain" without, "auto" chat if there is a
        template.
    reuse
        Whether later calls use what earlier calls left in memory.
    float32_cache
        Keys and values in float32: slower, and closer to unbatched results.

    Raises
    ------
    ModelFileError
        If the file is missing or no model.
    DeviceUnavailableError
        If a GPU was asked for and none can be used.
    MissingDependencyError
        If llama-cpp-python is not installed.

    Examples
    --------
    >>> model = LlamaCppModel("SmolLM2-135M-Instruct.Q4_1.gguf")  # doctest: +SKIP
    >>> model.generate(["The capital of France is"], max_tokens=3)[0][0].text  # doctest: +SKIP
    ' Paris.'
    """

    gives_logits = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        name: str | None = None,
        context: int | None = None,
        cache_tokens: int | None = None,
        max_parallel: int = 16,
        batch: int = 1024,
        threads: int | None = None,
        gpu_layers: int = 0,
        style: Style = "auto",
        reuse: bool = True,
        float32_cache: bool = False,
    ) -> None:
        for option, value in {"context": context, "batch": batch, "max_parallel": max_parallel, "threads": threads}.items():
            if value is not None and value < 1:
                message = f"{option} must be at least 1, not {value}"
                raise ValueError(message)
        self._path = Path(path)
        self._name = name or self._path.stem
        wanted_context = context or 8192
        self._runtime = LlamaRuntime(
            self._path,
            cells=max(cache_tokens or 2 * wanted_context, wanted_context),
            sequences=256,
            batch=batch,
            threads=threads or len(os.sched_getaffinity(0)),
            gpu_layers=gpu_layers,
            float32_cache=float32_cache,
        )
        self.context_tokens = min(wanted_context, self._runtime.trained_context, self._runtime.cells)
        self._max_parallel = min(max_parallel, self._runtime.sequences - 8)
        self._reuse = reuse
        template = self._runtime.chat_template
        if style == "chat" and template is None:
            message = f"{self._name} has no chat template; use style='plain'"
            raise ModelError(message)
        self.style: Literal["chat", "plain"] = "plain" if style == "plain" or template is None else "chat"
        self._template = _compile_template(template) if template is not None else None
        self._residents: dict[int, Resident] = {}
        self._free = list(range(self._runtime.sequences))
        self._clock = 0
        self._usage = Usage()
        self._fingerprint: str | None = None
        self._lock = threading.RLock()
        self._token_cache: dict[str, Tokens] = {}
        self.demonstrations_dropped = 0

    @property
    def name(self) -> str:
        """A short name for reports."""
        return self._name

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the model file, with the prompt style."""
        if self._fingerprint is None:
            with self._path.open("rb") as file:
                self._fingerprint = f"{hashlib.file_digest(file, 'sha256').hexdigest()}-{self.style}"
        return self._fingerprint

    @property
    def usage(self) -> Usage:
        """What has been spent since the model was loaded."""
        return self._usage

    def close(self) -> None:
        """Free the model; any later call fails."""
        with self._lock:
            self._runtime.close()

    def __enter__(self) -> LlamaCppModel:
        """Use the model in a with block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Free the model."""
        self.close()

    def count_tokens(self, text: str) -> int:
        """Count the tokens of a text, control tokens taken as plain text."""
        return len(self._tokenize(text))

    # -- prompts ------------------------------------------------------------------------------------------------------

    def _tokenize(self, text: str) -> Tokens:
        known = self._token_cache.get(text)
        if known is None:
            if len(self._token_cache) > 20_000:
                self._token_cache.clear()
            known = self._token_cache[text] = np.array(self._runtime.tokenize(text), dtype=np.int32)
        return known

    def _bos(self) -> list[int]:
        return [self._runtime.bos] if self._runtime.adds_bos and self._runtime.bos >= 0 else []

    def render(self, prompt: Prompt | str) -> Tokens:
        """Turn a prompt into tokens as the model will see it.

        Only the template's own words may be control tokens: a document that contains `<|im_end|>` stays plain text.
        """
        if isinstance(prompt, str) or self.style == "plain":
            text = prompt if isinstance(prompt, str) else prompt.plain()
            return np.concatenate([np.array(self._bos(), dtype=np.int32), self._tokenize(text)])
        contents: list[str] = []
        messages: list[dict[str, str]] = []

        def say(role: str, content: str) -> None:
            messages.append({"role": role, "content": f"\x00{len(contents)}\x00"})
            contents.append(content)

        if prompt.instruction:
            say("system", prompt.instruction)
        for given, output in prompt.demonstrations:
            say("user", given)
            say("assistant", output)
        say("user", prompt.input)
        assert self._template is not None
        parts = self._template(messages).split("\x00")
        if prompt.answer_start:
            parts += [str(len(contents)), ""]
            contents.append(prompt.answer_start)
        tokens: list[Tokens] = []
        for index, part in enumerate(parts):
            if index % 2:
                tokens.append(self._tokenize(contents[int(part)]))
            elif part:
                tokens.append(np.array(self._runtime.tokenize(part, special=True), dtype=np.int32))
        return np.concatenate(tokens)

    def _fit(self, prompt: Prompt | str, reserve: int) -> Tokens:
        """Render a prompt so that `reserve` tokens may follow, with fewer demonstrations if need be."""
        tokens = self.render(prompt)
        while len(tokens) + reserve > self.context_tokens and isinstance(prompt, Prompt) and prompt.demonstrations:
            shorter = prompt.demonstrations[1:]
            prompt = Prompt(prompt.instruction, shorter, prompt.input, prompt.answer_start, prompt.separator)
            self.demonstrations_dropped += 1
            tokens = self.render(prompt)
        if len(tokens) + reserve > self.context_tokens:
            message = (
                f"a prompt of {len(tokens)} tokens and {reserve} for the answer do not fit the {self.context_tokens} tokens "
                f"of {self._name}, even without demonstrations; split the document or use a model with a longer context"
            )
            raise ContextOverflowError(message)
        if not len(tokens):
            tokens = np.array([max(self._runtime.bos, self._runtime.eos, 0)], dtype=np.int32)
        return tokens

    # -- the three verbs ----------------------------------------------------------------------------------------------

    def generate(
        self,
        prompts: Sequence[Prompt | str],
        *,
        max_tokens: int | Sequence[int],
        stop: Sequence[str] = (),
        temperature: float = 0.0,
        top_p: float = 1.0,
        n: int = 1,
        seed: int = 0,
        grammar: str | None = None,
    ) -> list[list[Completion]]:
        """Write `n` completions of every prompt, many at once.

        Parameters
        ----------
        prompts
            Prompts in parts, or texts taken as they stand.
        max_tokens
            The most tokens a completion may have: one number, or one a prompt.
        stop
            Texts that end a completion; they are not part of it.
        temperature
            0 takes the likeliest token; above 0 samples.
        top_p
            Sample from the likeliest tokens that hold this much probability.
        n
            Completions a prompt.
        seed
            Seeds the sampling; completion j of prompt i has its own stream, whatever stands beside it.
        grammar
            GBNF with start symbol `root` that every completion obeys.

        Returns
        -------
        list of list of Completion
            `n` a prompt, in the prompts' order.

        Raises
        ------
        ContextOverflowError
            If a prompt does not fit, even with no demonstrations.
        ValueError
            If an option is out of range.
        """
        limits = [max_tokens] * len(prompts) if isinstance(max_tokens, int) else list(max_tokens)
        _check_generation(len(prompts), limits, temperature, top_p, n)
        compiled = self._runtime.grammar(grammar) if grammar is not None else None
        stops = tuple(text.encode("utf-8") for text in stop if text)
        generations: list[list[_Generation]] = []
        tasks: list[_Task] = []
        for index, (prompt, limit) in enumerate(zip(prompts, limits, strict=True)):
            tokens = self._fit(prompt, limit)
            generations.append([])
            for copy in range(n):
                generation = _Generation(
                    limit, stops, temperature, top_p, np.random.default_rng([seed, index, copy]),
                    compiled.clone() if compiled is not None else None,
                )  # fmt: skip
                work = Work(tokens, len(tokens) - 1, room=limit, keep=len(tokens))
                tasks.append(_Task(work, lambda _, row, g=generation: self._choose(g, row), generation))
                generations[-1].append(generation)
        self._run(tasks)
        return [[generation.completion() for generation in group] for group in generations]

    def score_options(self, prompts: Sequence[Prompt | str], options: Sequence[Sequence[str]]) -> list[OptionScores]:
        """Score the option labels of every prompt as its next token.

        Parameters
        ----------
        prompts
            Prompts in parts, or texts taken as they stand.
        options
            The labels of each prompt. Every single-token form of a label ("A", " A") is summed.

        Returns
        -------
        list of OptionScores
            One a prompt.

        Raises
        ------
        ValueError
            If a label has no single-token form.
        """
        _check_pairs(len(prompts), len(options), "options")
        results: list[OptionScores | None] = [None] * len(prompts)
        tasks = []
        for index, (prompt, labels) in enumerate(zip(prompts, options, strict=True)):
            forms = [self._label_tokens(label) for label in labels]

            def finish(_: int, row: Row, i: int = index, token_forms: list[list[int]] = forms) -> None:
                total = log_normalizer(row)
                scores = np.array(
                    [np.logaddexp.reduce(row[tokens].astype(np.float64) - total) for tokens in token_forms],
                    dtype=np.float64,
                )
                results[i] = OptionScores(scores, max(0.0, 1.0 - float(np.exp(scores).sum())))

            tokens = self._fit(prompt, 1)
            tasks.append(_Task(Work(tokens, len(tokens) - 1, keep=len(tokens)), finish))
        self._run(tasks)
        return [result for result in results if result is not None]

    def score_continuations(
        self, prompts: Sequence[Prompt | str], continuations: Sequence[Sequence[str]]
    ) -> list[list[ContinuationScore]]:
        """Score whole texts as what follows every prompt.

        Parameters
        ----------
        prompts
            Prompts in parts, or texts taken as they stand.
        continuations
            The texts of each prompt, tokenised by themselves (begin them with a space where the prompt does not end in
            one).

        Returns
        -------
        list of list of ContinuationScore
            Token log-probabilities, in the order given; an empty text has none.
        """
        _check_pairs(len(prompts), len(continuations), "continuations")
        results: list[list[ContinuationScore]] = []
        tasks = []
        for prompt, texts in zip(prompts, continuations, strict=True):
            endings = [self._tokenize(text) for text in texts]
            beginning = self._fit(prompt, max((len(ending) for ending in endings), default=1))
            results.append([])
            for ending in endings:
                scores = np.zeros(len(ending), dtype=np.float64)
                results[-1].append(ContinuationScore(scores))
                if len(ending):
                    first = len(beginning) - 1

                    def record(
                        position: int, row: Row, at: int = first, out: NDArray[np.float64] = scores, of: Tokens = ending
                    ) -> None:
                        out[position - at] = float(row[of[position - at]]) - log_normalizer(row)

                    work = Work(np.concatenate([beginning, ending[:-1]]), first, keep=len(beginning))
                    tasks.append(_Task(work, record))
        self._run(tasks)
        return results

    def _label_tokens(self, label: str) -> list[int]:
        forms = [self._tokenize(form) for form in dict.fromkeys((label, f" {label.strip()}", label.strip()))]
        tokens = sorted({int(form[0]) for form in forms if len(form) == 1})
        if not tokens:
            message = f"the option label {label!r} is no single token of {self._name}; use one letter or a short word"
            raise ValueError(message)
        return tokens

    # -- the scheduler ------------------------------------------------------------------------------------------------

    def _run(self, tasks: list[_Task]) -> None:
        """Evaluate all tasks: rounds of what fits, new sequences entering as finished ones leave."""
        with self._lock:
            started = time.perf_counter()
            self._usage += Usage(calls=len(tasks), prompt_tokens=sum(len(task.work.tokens) for task in tasks))
            waiting = deque(sorted(tasks, key=lambda task: task.work.key))
            writing: list[_Task] = []
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
                    writing = self._retire(entering + writing)
            except BaseException:
                self._reset()
                raise
            finally:
                self._usage += Usage(seconds=time.perf_counter() - started)
            self._settle()

    def _admit(self, waiting: deque[_Task], active: int, reserved: int) -> list[_Task]:
        """Take tasks that fit now: sequences, cells, and for generation the limit of parallel writers."""
        entering: list[_Task] = []
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

    def _round(self, entering: list[_Task], writing: list[_Task]) -> None:
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
            wanted: list[list[tuple[_Task, int]]] = [
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
            self._usage += Usage(evaluated_tokens=len(arrays[0]), batches=1)
            for index, requests in asked:
                row = self._runtime.logits(index)
                for task, position in requests:
                    task.on_logits(position, row)

    def _retire(self, tasks: list[_Task]) -> list[_Task]:
        """Let finished tasks go, keeping in memory what a later prompt may begin with."""
        writing = []
        for task in tasks:
            if task.generation is not None and task.generation.finish is None:
                writing.append(task)
                continue
            work = task.work
            if task.generation is not None:
                self._usage += Usage(generated_tokens=len(task.generation.tokens))
            if not self._reuse or work.keep == 0:
                self._drop(work.sequence)
                continue
            self._runtime.forget(work.sequence, work.keep)
            self._clock += 1
            self._residents[work.sequence] = Resident(work.sequence, work.tokens[: work.keep], used=self._clock)
        return writing

    def _settle(self) -> None:
        """Drop residents that are the beginning of another: they hold no cell of their own."""
        ordered = sorted(self._residents.values(), key=lambda resident: resident.key)
        for before, after in zip(ordered, ordered[1:], strict=False):
            if len(before.tokens) <= len(after.tokens) and common_prefix(before.tokens, after.tokens) == len(before.tokens):
                after.used = max(after.used, before.used)
                self._drop(before.sequence)

    # -- sampling -----------------------------------------------------------------------------------------------------

    def _choose(self, generation: _Generation, row: Row) -> None:
        """Pick the next token of a sequence and see whether it ends there."""
        token = self._pick(generation, row)
        if self._runtime.ends(token):
            generation.finish = "end"
            return
        generation.log_probability += float(row[token]) - log_normalizer(row)
        generation.tokens.append(token)
        piece = self._runtime.piece(token)
        generation.data += piece
        if generation.grammar is not None:
            generation.grammar.accept(token)
        longest = max(map(len, generation.stop), default=0)
        tail_start = max(0, len(generation.data) - len(piece) - longest)
        hits = [at for text in generation.stop if (at := generation.data.find(text, tail_start)) >= 0]
        if hits:
            del generation.data[min(hits) :]
            generation.finish = "stop"
        elif len(generation.tokens) >= generation.max_tokens:
            generation.finish = "length"
        elif _runs_away(generation.tokens):
            generation.finish = "repetition"

    def _pick(self, generation: _Generation, row: Row) -> int:
        grammar = generation.grammar
        if generation.temperature == 0.0:
            token = int(row.argmax())
            if grammar is None or np.isfinite(grammar.filter(np.array([token], np.int32), row[[token]])[0]):
                return token
        if grammar is not None:
            row = grammar.filter(np.arange(len(row), dtype=np.int32), row)
            if not np.isfinite(row).any():
                return self._runtime.eos
        if generation.temperature == 0.0:
            return int(row.argmax())
        logits = row.astype(np.float64) / generation.temperature
        probabilities = np.exp(logits - logits.max())
        probabilities /= probabilities.sum()
        if generation.top_p < 1.0:
            order = np.argsort(-probabilities, kind="stable")
            keep = int(np.searchsorted(np.cumsum(probabilities[order]), generation.top_p)) + 1
            chosen = order[:keep]
            weights = probabilities[chosen] / probabilities[chosen].sum()
            return int(generation.random.choice(chosen, p=weights))
        return int(generation.random.choice(len(probabilities), p=probabilities))


class _Entries:
    """The tokens of a round in the arrays that llama.cpp reads."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self._positions: list[int] = []
        self._counts: list[int] = []
        self._addresses: list[int] = []
        self._asked: list[list[tuple[_Task, int]]] = []
        self._keep_alive: list[NDArray[np.int32]] = []

    def add(
        self, tokens: list[int], position: int, sequences: list[int], wanted: list[list[tuple[_Task, int]]]
    ) -> None:
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
        list[tuple[int, list[tuple[_Task, int]]]],
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


def _outstanding(task: _Task) -> int:
    """Cells that a writing task may still need, those of its own generated tokens included."""
    return task.generation.max_tokens if task.generation is not None else 0


def _runs_away(tokens: list[int]) -> bool:
    size, times = REPEATED_TOKENS, REPEATED_TIMES
    if len(tokens) < size * times:
        return False
    for period in range(1, size + 1):
        tail = tokens[-period * max(times, size * times // period) :]
        if all(tail[i] == tail[i - period] for i in range(period, len(tail))):
            return True
    return False


def _check_pairs(prompts: int, given: int, what: str) -> None:
    if prompts != given:
        message = f"there are {prompts} prompts but {given} lists of {what}"
        raise ValueError(message)


def _check_generation(prompts: int, limits: list[int], temperature: float, top_p: float, n: int) -> None:
    _check_pairs(prompts, len(limits), "token limits")
    if any(limit < 1 for limit in limits):
        message = f"max_tokens must be at least 1, not {min(limits)}"
        raise ValueError(message)
    if not 0.0 <= temperature < float("inf"):
        message = f"temperature must be 0 or above, not {temperature}"
        raise ValueError(message)
    if not 0.0 < top_p <= 1.0:
        message = f"top_p must be above 0 and at most 1, not {top_p}"
        raise ValueError(message)
    if n < 1:
        message = f"n must be at least 1, not {n}"
        raise ValueError(message)


def _compile_template(template: str) -> Callable[[list[dict[str, str]]], str]:
    """Compile a model's chat template, in the sandbox: it comes out of a file that somebody else made."""
    import jinja2
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def refuse(message: str) -> None:
        raise jinja2.TemplateError(message)

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    environment.globals["raise_exception"] = refuse
    compiled = environment.from_string(template)

    def render(messages: list[dict[str, str]]) -> str:
        arguments: dict[str, Any] = {"add_generation_prompt": True, "bos_token": "", "eos_token": ""}
        try:
            return compiled.render(messages=messages, **arguments)
        except jinja2.TemplateError:
            # Some templates know no system role: its words then open the first user message.
            if len(messages) < 2 or messages[0]["role"] != "system":
                raise
            first = {"role": "user", "content": f"{messages[0]['content']}\n\n{messages[1]['content']}"}
            return compiled.render(messages=[first, *messages[2:]], **arguments)

    return render
