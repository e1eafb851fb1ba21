"""The in-process engine: llama.cpp driven so that many prompts share one decode and every common prefix is paid once."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from pytrace.errors import ContextOverflowError, ModelError
from pytrace.models import registry
from pytrace.models.base_model import BaseModel, GenerationRequest, check_bounds, label_forms
from pytrace.models.language_model import (
    Completion,
    ContinuationScore,
    OptionScores,
    Prompt,
    Style,
)
from pytrace.models.llama.chat_template import compile_template
from pytrace.models.llama.file_trial import check_file
from pytrace.models.llama.generation import Generation, Row, log_normalizer
from pytrace.models.llama.prefix_batch import sort_key
from pytrace.models.llama.prefix_trie import Tokens, common_prefix
from pytrace.models.llama.prompt_cache import PromptCache
from pytrace.models.llama.runtime import LlamaRuntime
from pytrace.models.llama.scheduler import EVICTED_TOKENS, PARALLEL, Scheduler, Task
from pytrace.models.registry.model_files import check_gguf, sha256_of
from pytrace.processes import useful_threads
from pytrace.records import Usage
from pytrace.storage.closing import Closing


class LlamaCppModel(BaseModel, Closing):
    """A GGUF model run inside this process by llama.cpp.

    Prompts of one call are evaluated together; prefixes that they share with each other, or with prompts of earlier
    calls that are still in memory, are evaluated once; what lasting prompts begin with is kept in `prompt_cache`, a directory,
    for later processes. Results equal those of prompts evaluated alone up to rounding.
    """

    gives_logits = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        name: str | None = None,
        context: int | None = None,
        cache_tokens: int | None = None,
        max_parallel: int = PARALLEL,
        batch: int = 1024,
        threads: int | None = None,
        gpu_layers: int = 0,
        style: Style = "auto",
        reuse_tokens: int = 128,
        swap_bytes: int = 256 << 20,
        flash_attention: bool | None = None,
        float32_cache: bool = False,
        deterministic: bool = False,
        prompt_cache: Path | None = None,
    ) -> None:
        check_bounds(
            1, context=context, cache_tokens=cache_tokens, max_parallel=max_parallel, batch=batch, threads=threads
        )
        check_bounds(0, reuse_tokens=reuse_tokens)
        if swap_bytes < 0:
            raise ValueError(f"swap_bytes must be at least 0, not {swap_bytes}")
        self._path = check_gguf(Path(path))
        known = registry.identify(self._path) is not None  # what the catalog pins needs no trial
        if not known:
            check_file(self._path)
        self.name = name or self._path.stem
        wanted_context = context or 8192
        self._runtime = LlamaRuntime(
            self._path,
            cells=max(cache_tokens or 2 * wanted_context, wanted_context),
            sequences=256,
            batch=batch,
            threads=useful_threads(threads),
            gpu_layers=gpu_layers,
            float32_cache=float32_cache,
            flash_attention=flash_attention,
        )
        self.parameters = self._runtime.parameters
        self.context_tokens = min(wanted_context, self._runtime.trained_context, self._runtime.cells)
        self.deterministic = deterministic
        self._scheduler = Scheduler(
            self._runtime,
            max_parallel=max_parallel,
            reuse_tokens=reuse_tokens,
            swap_bytes=swap_bytes,
            deterministic=deterministic,
        )
        template = self._runtime.chat_template
        if style == "chat" and template is None:
            raise ModelError(f"{self.name} has no chat template; use style='plain'")
        self.style: Literal["chat", "plain"] = "plain" if style == "plain" or template is None else "chat"
        self._template = None
        if self.style == "chat" and template is not None:
            texts = {"bos_token": self._runtime.bos, "eos_token": self._runtime.eos}
            self._template = compile_template(
                template,
                {key: self._runtime.token_text(token) for key, token in texts.items()},
                trusted=known,
            )
        self._prompt_cache: PromptCache | None = None
        if prompt_cache is not None and not deterministic:  # numbers must not depend on what was asked before
            self._prompt_cache = PromptCache(
                prompt_cache,
                registry.content_sha256(self._path),
                *self._runtime.build,
                gpu_layers,
                float32_cache,
                flash_attention,
            )
        self._at_hand: set[tuple[str, tuple[tuple[str, str], ...]]] = set()
        self._token_cache: dict[str, Tokens] = {}
        self._bos: Tokens = np.array([self._runtime.bos] if self._runtime.adds_bos else [], dtype=np.int32)
        self.demonstrations_dropped = 0

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the model file, with the prompt style."""
        return f"{sha256_of(self._path)}-{self.style}"

    @property
    def usage(self) -> Usage:
        """What has been spent since the model was loaded."""
        return self._scheduler.usage

    def close(self) -> None:
        """Free the model; any later call fails."""
        self._scheduler.close()

    def metadata(self, key: str) -> str | None:
        """Return what the model's file says under a key, such as "general.name"; None if it says nothing."""
        return self._runtime.metadata(key)

    def count_tokens(self, text: str) -> int:
        """Count the tokens of a text, control tokens taken as plain text."""
        return len(self._tokenize(text))

    def tokenize(self, text: str, *, special: bool = False) -> list[int]:
        """Turn a text into tokens; control tokens are recognised in it only if `special`."""
        return self._runtime.tokenize(text, special=special)

    def _tokenize(self, text: str) -> Tokens:
        self._runtime.check_open()
        known = self._token_cache.get(text)
        if known is None:
            if len(self._token_cache) > 20_000:
                self._token_cache.clear()
            known = self._token_cache[text] = np.array(self._runtime.tokenize(text), dtype=np.int32)
        return known

    def render(self, prompt: Prompt | str) -> Tokens:
        """Turn a prompt into tokens as the model will see it."""
        # Only the template's own words may be control tokens: a document that contains `<|im_end|>` stays plain text.
        if isinstance(prompt, str) or self.style == "plain":
            text = prompt if isinstance(prompt, str) else prompt.plain()
            return np.concatenate([self._bos, self._tokenize(text)])
        messages = prompt.messages()
        contents = [message["content"] for message in messages]
        assert self._template is not None
        marked = [{**message, "content": f"\x00{index}\x00"} for index, message in enumerate(messages)]
        parts = self._template(marked).split("\x00")
        if sorted(set(parts[1::2])) != sorted(map(str, range(len(contents)))):
            raise ModelError(f"the chat template of {self.name} leaves a message out; use style='plain'")
        if prompt.answer_start:
            parts += [str(len(contents)), ""]
            contents.append(prompt.answer_start)
        tokens: list[Tokens] = []
        for index, part in enumerate(parts):
            if index % 2:
                tokens.append(self._tokenize(contents[int(part)]))
            elif part:
                tokens.append(np.array(self._runtime.tokenize(part, special=True), dtype=np.int32))
        if not len(tokens[0]) or tokens[0][0] != self._runtime.bos:
            tokens.insert(0, self._bos)
        return np.concatenate(tokens)

    def _fit(self, prompt: Prompt | str, reserve: int) -> Tokens:
        """Render a prompt so that `reserve` tokens may follow, with fewer demonstrations if need be."""
        tokens = self.render(prompt)
        while len(tokens) + reserve > self.context_tokens and isinstance(prompt, Prompt) and prompt.demonstrations:
            prompt = msgspec.structs.replace(prompt, demonstrations=prompt.demonstrations[1:])
            self.demonstrations_dropped += 1
            tokens = self.render(prompt)
        if len(tokens) + reserve > self.context_tokens:
            raise ContextOverflowError(
                f"a prompt of {len(tokens)} tokens and {reserve} for the answer do not fit the {self.context_tokens} tokens "
                f"of {self.name}, even without demonstrations; split the document or use a model with a longer context"
            )
        if not len(tokens):
            tokens = np.array([max(self._runtime.bos, self._runtime.eos, 0)], dtype=np.int32)
        return tokens

    def _have_at_hand(self, prompts: Sequence[Prompt | str]) -> None:
        """See that what lasting prompts begin with is in memory: from the prompt cache, or evaluated and kept there."""
        if self._prompt_cache is None:
            return
        for prompt in prompts:
            if isinstance(prompt, str) or not prompt.lasting:
                continue
            key = (prompt.instruction, prompt.demonstrations)
            if key in self._at_hand:
                continue
            # What is the same in two prompts that have nothing else in common.
            first, second = (self.render(msgspec.structs.replace(prompt, input=text)) for text in ("a", "1"))
            tokens = first[: common_prefix(first, second)]
            if EVICTED_TOKENS <= len(tokens) < self.context_tokens:
                state = self._prompt_cache.load(tokens)
                if state is not None:
                    self._scheduler.keep(tokens, state)
                elif self._scheduler.keep(tokens, state := self._scheduler.evaluate(tokens)):
                    self._prompt_cache.save(tokens, state)  # else no process of these settings could use it
            self._at_hand.add(key)

    def _generate(self, call: GenerationRequest) -> list[list[Completion]]:
        self._have_at_hand(call.prompts)
        compiled = {text: self._runtime.grammar(text) for text in set(call.grammars) if text is not None}
        stops = tuple(text.encode("utf-8", "surrogatepass") for text in call.stop)
        fitted = [self._fit(prompt, limit) for prompt, limit in zip(call.prompts, call.limits, strict=True)]
        kept = _shared_with_neighbours(fitted)
        groups: list[list[Generation]] = []
        tasks: list[Task] = []
        for index, (tokens, limit, rules) in enumerate(zip(fitted, call.limits, call.grammars, strict=True)):
            group = [
                Generation(
                    limit, stops, call.temperature, call.top_p, np.random.default_rng([call.seed, index, copy]),
                    compiled[rules].clone() if rules is not None else None,
                )
                for copy in range(call.n)
            ]  # fmt: skip
            groups.append(group)
            unfinished = iter(range(call.n - 1, -1, -1))

            def finish(i: int = index, of: list[Generation] = group, left: Iterator[int] = unfinished) -> None:
                if next(left) == 0 and call.done is not None:
                    call.done(i, [member.completion() for member in of])

            for generation in group:

                def write(_: int, row: Row, to: Generation = generation) -> None:
                    to.advance(row, self._runtime)

                first, keep = len(tokens) - 1, kept[index]
                tasks.append(Task(tokens, first, limit, keep, on_logits=write, generation=generation, on_finish=finish))
        self._scheduler.run(tasks)
        return [[generation.completion() for generation in group] for group in groups]

    def _score_options(self, prompts: Sequence[Prompt | str], options: Sequence[Sequence[str]]) -> list[OptionScores]:
        self._have_at_hand(prompts)
        fitted = [self._fit(prompt, 1) for prompt in prompts]
        return self.score_tokens(fitted, [[self._label_tokens(label) for label in labels] for labels in options])

    def score_tokens(self, prompts: Sequence[Tokens], options: Sequence[Sequence[Sequence[int]]]) -> list[OptionScores]:
        """Score options as the next token of tokenised prompts; an option is the tokens that it may be."""
        results: list[OptionScores | None] = [None] * len(prompts)
        tasks = []
        kept = _shared_with_neighbours(prompts)
        for index, (tokens, keep, forms) in enumerate(zip(prompts, kept, options, strict=True)):

            def finish(_: int, row: Row, i: int = index, token_forms: Sequence[Sequence[int]] = forms) -> None:
                total = log_normalizer(row)
                scores = np.array(
                    [np.logaddexp.reduce(row[tokens].astype(np.float64) - total) for tokens in token_forms],
                    dtype=np.float64,
                )
                results[i] = OptionScores(scores, max(0.0, 1.0 - float(np.exp(scores).sum())))

            tasks.append(Task(tokens, len(tokens) - 1, keep=keep, on_logits=finish))
        self._scheduler.run(tasks)
        return [result for result in results if result is not None]

    def _score_continuations(
        self, prompts: Sequence[Prompt | str], continuations: Sequence[Sequence[str]]
    ) -> list[list[ContinuationScore]]:
        self._have_at_hand(prompts)
        results: list[list[ContinuationScore]] = []
        tasks = []
        for prompt, texts in zip(prompts, continuations, strict=True):
            endings = [self._tokenize(text) for text in texts]
            prefix = self._fit(prompt, max((len(ending) for ending in endings), default=1))
            results.append([])
            for ending in endings:
                scores = np.zeros(len(ending), dtype=np.float64)
                results[-1].append(ContinuationScore(scores))
                if len(ending):
                    first = len(prefix) - 1

                    def record(
                        position: int, row: Row, at: int = first, out: NDArray[np.float64] = scores, of: Tokens = ending
                    ) -> None:
                        out[position - at] = float(row[of[position - at]]) - log_normalizer(row)

                    whole = np.concatenate([prefix, ending[:-1]])
                    tasks.append(Task(whole, first, keep=len(prefix), on_logits=record))
        self._scheduler.run(tasks)
        return results

    def _label_tokens(self, label: str) -> list[int]:
        forms = [self._tokenize(form) for form in label_forms(label)]
        tokens = sorted({int(form[0]) for form in forms if len(form) == 1})
        if not tokens:
            raise ValueError(
                f"the option label {label!r} is no single token of {self.name}; use one letter or a short word"
            )
        return tokens


def _shared_with_neighbours(prompts: Sequence[Tokens]) -> list[int]:
    """Return how much of each prompt is worth keeping once it is answered: what it shares with another one."""
    # The rest is seldom the beginning of a later prompt. A prompt that comes alone may have been asked for the sake of
    # a later one, so it is kept whole.
    if len(prompts) < 2:
        return [len(tokens) for tokens in prompts]
    order = sorted(range(len(prompts)), key=lambda index: sort_key(prompts[index]))
    kept = [0] * len(prompts)
    for before, after in itertools.pairwise(order):
        shared = common_prefix(prompts[before], prompts[after])
        kept[before], kept[after] = max(kept[before], shared), max(kept[after], shared)
    return kept
