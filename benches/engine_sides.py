"""The two ways in which the engine's peers run the same algorithms: whole prompts one by one, and llama-cpp-python's class."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path

import llama_cpp
import numpy as np
from numpy.typing import NDArray

from pytrace.models.language_model import Completion, ContinuationScore, OptionScores, Prompt
from pytrace.models.llama import extra_buffers as llama_buffers
from pytrace.models.llama.generation import Generation, log_normalizer
from pytrace.models.llama.llama_cpp import LlamaCppModel
from pytrace.records import Usage

Prompts = Sequence[Prompt | str]


class OneByOne(ABC):
    """What both peers share: every verb goes through its prompts one at a time; only log-probabilities and texts matter."""

    gives_logits = True
    deterministic = False

    def __init__(self, path: Path, name: str, *, context: int, threads: int, flash: bool = False) -> None:
        self.name = name
        self.context_tokens = context
        # Renders prompts and knows the vocabulary; in `Alone` it is also what evaluates.
        self.inner = LlamaCppModel(
            path,
            style="plain",
            context=context,
            threads=threads,
            max_parallel=1,
            reuse_tokens=0,
            swap_bytes=0,
            batch=1024,
            flash_attention=flash,
        )
        self.runtime = self.inner._runtime

    @property
    def fingerprint(self) -> str:
        return self.inner.fingerprint

    @property
    def usage(self) -> Usage:
        return self.inner.usage

    def count_tokens(self, text: str) -> int:
        return self.inner.count_tokens(text)

    def generate(
        self,
        prompts: Prompts,
        *,
        max_tokens: int | Sequence[int],
        stop: Sequence[str] = (),
        temperature: float = 0.0,
        top_p: float = 1.0,
        n: int = 1,
        seed: int = 0,
        grammar: str | Sequence[str] | None = None,
        done: Callable[[int, list[Completion]], None] | None = None,
    ) -> list[list[Completion]]:
        if temperature or n > 1:
            raise ValueError("the peers are compared on greedy texts alone")
        del top_p, seed
        limits = [max_tokens] * len(prompts) if isinstance(max_tokens, int) else list(max_tokens)
        grammars = [grammar] * len(prompts) if grammar is None or isinstance(grammar, str) else list(grammar)
        results = []
        for index, (prompt, limit, rules) in enumerate(zip(prompts, limits, grammars, strict=True)):
            results.append([self.write(prompt, limit, stop, rules)])
            if done is not None:
                done(index, results[-1])
        return results

    def score_options(self, prompts: Prompts, options: Sequence[Sequence[str]]) -> list[OptionScores]:
        return [self.choose(prompt, labels) for prompt, labels in zip(prompts, options, strict=True)]

    def score_continuations(
        self, prompts: Prompts, continuations: Sequence[Sequence[str]]
    ) -> list[list[ContinuationScore]]:
        return [
            [self.continued(prompt, text) for text in texts]
            for prompt, texts in zip(prompts, continuations, strict=True)
        ]

    @abstractmethod
    def write(self, prompt: Prompt | str, limit: int, stop: Sequence[str], grammar: str | None) -> Completion:
        """Write one text greedily."""

    @abstractmethod
    def choose(self, prompt: Prompt | str, labels: Sequence[str]) -> OptionScores:
        """Score option labels as the next token."""

    @abstractmethod
    def continued(self, prompt: Prompt | str, text: str) -> ContinuationScore:
        """Score one text as what follows."""


class Alone(OneByOne):
    """Side A: every prompt evaluated alone and whole, with logits only where they are wanted."""

    def write(self, prompt: Prompt | str, limit: int, stop: Sequence[str], grammar: str | None) -> Completion:
        return self.inner.generate([prompt], max_tokens=limit, stop=stop, grammar=grammar)[0][0]

    def choose(self, prompt: Prompt | str, labels: Sequence[str]) -> OptionScores:
        return self.inner.score_options([prompt], [labels])[0]

    def continued(self, prompt: Prompt | str, text: str) -> ContinuationScore:
        return self.inner.score_continuations([prompt], [[text]])[0][0]


class HighLevel(OneByOne):
    """Side B: llama-cpp-python's high-level class, whose own longest-prefix match stays on.

    Scores of whole texts need the logits of several positions, which it gives only with `logits_all`; a second instance
    over the same weights has it, so that the first need not compute logits that nobody reads.
    """

    def __init__(self, path: Path, name: str, *, context: int, threads: int, flash: bool = False) -> None:
        super().__init__(path, name, context=context, threads=threads, flash=flash)
        llama_buffers.prepare(llama_cpp)
        options = {
            "n_threads": threads,
            "n_threads_batch": threads,
            "n_batch": 1024,
            "flash_attn": flash,
            "verbose": False,
        }
        self._writer = llama_cpp.Llama(str(path), n_ctx=context, **options)
        self._scorer = llama_cpp.Llama(str(path), n_ctx=1024, logits_all=True, **options)
        self._spent = Usage()

    @property
    def usage(self) -> Usage:
        return self._spent

    def write(self, prompt: Prompt | str, limit: int, stop: Sequence[str], grammar: str | None) -> Completion:
        tokens = self.inner.render(prompt).tolist()
        rules = None if grammar is None else llama_cpp.LlamaGrammar.from_string(grammar, verbose=False)
        random = np.random.default_rng(0)
        generation = Generation(limit, tuple(text.encode() for text in stop), 0.0, 1.0, random, None)
        known = self._shared(self._writer, tokens)
        for token in self._writer.generate(tokens, temp=0.0, repeat_penalty=1.0, grammar=rules):
            if self.runtime.ends(token):
                generation.finish = "end"
            else:
                generation.take(token, 0.0, self.runtime)
            if generation.finish is not None:
                break
        self._count(tokens, known, len(generation.tokens))
        return generation.completion()

    def choose(self, prompt: Prompt | str, labels: Sequence[str]) -> OptionScores:
        tokens = self.inner.render(prompt).tolist()
        known = self._shared(self._writer, tokens)
        next(self._writer.generate(tokens, temp=0.0, repeat_penalty=1.0))
        self._count(tokens, known, 0)
        row = self._row(self._writer)
        total = log_normalizer(row)
        forms = [self.inner._label_tokens(label) for label in labels]
        scores = np.array([np.logaddexp.reduce(row[some].astype(np.float64) - total) for some in forms])
        return OptionScores(scores, max(0.0, 1.0 - float(np.exp(scores).sum())))

    def continued(self, prompt: Prompt | str, text: str) -> ContinuationScore:
        beginning = self.inner.render(prompt).tolist()
        ending = self.inner._tokenize(text).tolist()
        tokens = [*beginning, *ending[:-1]]
        # `generate` would sample; this is its prefix match, one token short of the first logits that are wanted.
        known = min(self._shared(self._scorer, tokens), len(beginning) - 1)
        self._scorer.n_tokens = known
        self._scorer.eval(tokens[known:])
        self._count(tokens, known, 0)
        rows = self._scorer.scores[len(beginning) - 1 : len(tokens)]
        return ContinuationScore(
            np.array([float(row[token]) - log_normalizer(row) for row, token in zip(rows, ending, strict=True)])
        )

    @staticmethod
    def _shared(model: llama_cpp.Llama, tokens: list[int]) -> int:
        known = model._input_ids[: len(tokens)]
        differ = np.flatnonzero(known != tokens[: len(known)])
        return min(int(differ[0]) if len(differ) else len(known), len(tokens) - 1)

    @staticmethod
    def _row(model: llama_cpp.Llama) -> NDArray[np.float32]:
        return np.ctypeslib.as_array(model._ctx.get_logits_ith(-1), shape=(model._n_vocab,))

    def _count(self, tokens: list[int], known: int, written: int) -> None:
        evaluated = len(tokens) - known + max(written - 1, 0)
        self._spent += Usage(
            calls=1, prompt_tokens=len(tokens), evaluated_tokens=evaluated, generated_tokens=written, batches=1
        )
