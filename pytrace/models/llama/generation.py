"""One sequence being written: how its next token is chosen from logits, and when it ends."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from pytrace import _core
from pytrace.errors import ModelError
from pytrace.models.language_model import Completion

if TYPE_CHECKING:
    from pytrace.models.llama.runtime import Grammar, LlamaRuntime

Row = NDArray[np.float32]

# What has said the same three times in a row, over at least 24 tokens, will not stop by itself. 48 tokens are about the
# longest line of a triple.
REPEATED_TIMES = 3
REPEATED_TOKENS = 24
LONGEST_PERIOD = 48


def log_normalizer(row: Row) -> float:
    """Return the logarithm of the sum of exponentials, which turns logits into log-probabilities."""
    total = _core.log_sum_exp(row)
    if not math.isfinite(total):
        raise ModelError(
            f"the model's largest logit is {row.max()}; its file is damaged, pull it again or choose another"
        )
    return total


@dataclass(slots=True)
class Generation:
    """The tokens of one sequence so far, with its limits, its random stream and its place in a grammar."""

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
        """Return what was written."""
        text = self.data.decode("utf-8", "replace")
        return Completion(text, len(self.tokens), self.finish or "length", self.log_probability)

    def advance(self, row: Row, runtime: LlamaRuntime) -> None:
        """Choose the next token from its logits, float32 [vocabulary], and see whether the sequence ends there."""
        total = log_normalizer(row)
        token = self._choose(row)
        if token is None or runtime.ends(token):
            self.finish = "end"
            return
        self.take(token, float(row[token]) - total, runtime)

    def take(self, token: int, log_probability: float, runtime: LlamaRuntime) -> None:
        """Go on with a token, and see whether the sequence ends with it."""
        self.log_probability += log_probability
        self.tokens.append(token)
        piece = runtime.piece(token)
        self.data += piece
        if self.grammar is not None:
            self.grammar.accept(token)
        longest = max(map(len, self.stop), default=0)
        tail_start = max(0, len(self.data) - len(piece) - longest)
        hits = [at for text in self.stop if (at := self.data.find(text, tail_start)) >= 0]
        if hits:
            del self.data[min(hits) :]
            self.finish = "stop"
        elif len(self.tokens) >= self.max_tokens:
            self.finish = "length"
        elif runs_away(self.tokens):
            self.finish = "repetition"

    def _choose(self, row: Row) -> int | None:
        """Return the token, or None if the grammar allows none."""
        if self.temperature == 0.0:
            token = int(row.argmax())
            # Asking the grammar about one token is far cheaper than about all, and the likeliest mostly conforms.
            if self.grammar is None or np.isfinite(self.grammar.filter(np.array([token], np.int32), row[[token]])[0]):
                return token
        if self.grammar is not None:
            row = self.grammar.filter(np.arange(len(row), dtype=np.int32), row)
            if not np.isfinite(row).any():
                return None
        if self.temperature == 0.0:
            return int(row.argmax())
        with np.errstate(over="ignore"):  # at a temperature near 0 all but the likeliest may go to -inf
            probabilities = np.exp((row.astype(np.float64) - float(row.max())) / self.temperature)
        probabilities /= probabilities.sum()
        if self.top_p < 1.0:
            order = np.argsort(-probabilities, kind="stable")
            kept = int(np.searchsorted(np.cumsum(probabilities[order]), self.top_p)) + 1
            probabilities[order[kept:]] = 0.0
            probabilities /= probabilities.sum()
        return int(self.random.choice(len(probabilities), p=probabilities))


def runs_away(tokens: Sequence[object]) -> bool:
    """Whether the end of a sequence only repeats itself."""
    for period in range(1, min(LONGEST_PERIOD, len(tokens) // REPEATED_TIMES) + 1):
        size = max(REPEATED_TIMES * period, REPEATED_TOKENS)
        if size <= len(tokens) and all(tokens[-i] == tokens[-i - period] for i in range(1, size - period + 1)):
            return True
    return False
