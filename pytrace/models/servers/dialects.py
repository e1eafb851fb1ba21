"""What language model servers have in common, seen by `RemoteModel`; each kind of server has a module of its own.

A dialect turns prompts into what its server takes, and its answers into tokens and natural log-probabilities. It keeps no
account: `RemoteModel` checks arguments, fits prompts into the context, spreads the work and counts.
"""

from __future__ import annotations

import abc
import asyncio
import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from pytrace.errors import LogitsUnavailableError, ModelError, ServerError
from pytrace.models.language_model import OptionScores, Prompt
from pytrace.models.llama.generation import runs_away
from pytrace.models.servers.http_client import HttpClient
from pytrace.records import Usage

Finish = Literal["end", "stop", "length", "repetition"]

# The logarithm of float32's smallest number: a probability that underflowed is at most that.
UNDERFLOW = -103.28
KEPT_TEXTS = 20_000
# A prompt whose only use is to see what comes back.
PROBE = "The sky is"
# Around a message's number it stands for the message in a template: a private-use character, which no template touches.
MARK = "\ue000"


class Rendered(msgspec.Struct, frozen=True):
    """A prompt as its server takes it (tokens, text or messages) and its length in tokens."""

    content: list[int] | str | list[dict[str, str]]
    count: int


class Sampling(msgspec.Struct, frozen=True):
    """How one text is to be written."""

    max_tokens: int
    stop: tuple[str, ...] = ()
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0
    grammar: str | None = None


class Written(msgspec.Struct, frozen=True):
    """A written text: its tokens, why it ended, its log-probability (NaN where the server does not tell), its cost."""

    text: str
    tokens: int
    finish: Finish
    log_probability: float
    usage: Usage


class ServerDialect(abc.ABC):
    """What one kind of server speaks."""

    name: str
    # Tokens of the longest sequence where the server does not tell.
    assumed_context = 4096
    default_top_tokens = 20
    writes_grammar = False
    has_chat = False

    def __init__(self, client: HttpClient, model: str, top_tokens: int | None) -> None:
        self.client = client
        self.model = model
        self.context: int | None = None
        self.identity: dict[str, Any] = {}
        self.top_tokens = top_tokens or self.default_top_tokens
        self._logits: bool | None = None
        self._probing = asyncio.Lock()

    async def describe(self, listed: Mapping[str, Any]) -> None:
        """Learn what the server says of itself; `listed` is the model's entry in its list of models."""
        length = listed.get("max_model_len") or listed.get("context_length")
        if isinstance(length, int) and length > 0:
            self.context = length
        self.identity = {key: listed[key] for key in ("root", "max_model_len") if listed.get(key) is not None}

    async def gives_logits(self) -> bool:
        """Whether the server gives log-probabilities: asked once, by a request for one token."""
        async with self._probing:
            if self._logits is None:
                self._logits = await self._probe()
        return self._logits

    async def require_logits(self) -> None:
        """Refuse to score where nothing can be scored."""
        if not await self.gives_logits():
            raise LogitsUnavailableError(no_logits(self.model, self.client.origin))

    @abc.abstractmethod
    async def _probe(self) -> bool: ...

    @abc.abstractmethod
    async def count(self, text: str) -> int:
        """Count the tokens of a text."""

    @abc.abstractmethod
    async def render(self, prompt: Prompt | str, style: Literal["chat", "plain"]) -> Rendered:
        """Turn a prompt into what the server takes."""

    @abc.abstractmethod
    async def write(self, prompt: Rendered, how: Sampling) -> Written:
        """Write one text."""

    @abc.abstractmethod
    async def label_scores(self, prompt: Rendered, labels: Sequence[str]) -> tuple[OptionScores, Usage]:
        """Score labels as the next token."""

    @abc.abstractmethod
    async def text_scores(self, prompt: Rendered, text: str) -> tuple[NDArray[np.float64], Usage]:
        """Return the log-probability of every token of a text after a prompt."""


class TokenizingDialect(ServerDialect):
    """A server whose tokenizer can be asked, and which takes tokens for a prompt."""

    def __init__(self, client: HttpClient, model: str, top_tokens: int | None) -> None:
        super().__init__(client, model, top_tokens)
        self._known: dict[str, list[int]] = {}

    @abc.abstractmethod
    async def _ask_tokens(self, text: str) -> list[int]: ...

    async def tokens(self, text: str) -> list[int]:
        """Return a text's tokens by itself, without any that begin or end a sequence; remembered."""
        known = self._known.get(text)
        if known is None:
            known = await self._ask_tokens(text) if text else []
            if len(self._known) >= KEPT_TEXTS:
                self._known.clear()
            self._known[text] = known
        return known

    async def count(self, text: str) -> int:
        """Count the tokens of a text."""
        return len(await self.tokens(text))

    async def label_tokens(self, label: str) -> list[int]:
        """Return the tokens that are a label: itself, and with a space before it, where these are single tokens."""
        spelled = [await self.tokens(form) for form in label_forms(label)]
        single = sorted({tokens[0] for tokens in spelled if len(tokens) == 1})
        if not single:
            raise ValueError(
                f"the option label {label!r} is no single token of {self.model}; use one letter or a short word"
            )
        return single


def label_forms(label: str) -> list[str]:
    """Return the ways in which a label may be spelled."""
    if not label.strip():
        raise ValueError(f"the option label {label!r} is empty; use one letter or a short word")
    return list(dict.fromkeys((label, f" {label.strip()}", label.strip())))


def no_logits(model: str, origin: str) -> str:
    """Say that a server gives no log-probabilities, and what to do."""
    return f"{model} at {origin} gives no log-probabilities; use scoring='black-box' (--set scoring=black-box)"


def option_scores(
    told: Mapping[Any, float], listed: Sequence[float], labels: Sequence[Sequence[Hashable]]
) -> OptionScores:
    """Sum the forms of labels; what the server left out is bounded and flagged."""
    # A form that is not among the told ones is less likely than the least likely one listed, and no likelier than all
    # the probability that is left.
    left = max(1.0 - math.fsum(math.exp(value) for value in told.values()), 0.0)
    # Probabilities come rounded to float32: what is left of 1 is not known closer than that.
    left = max(left, 1e-6)
    least = math.exp(min(listed)) if listed else 1.0
    scores = np.empty(len(labels), dtype=np.float64)
    exact = np.zeros(len(labels), dtype=np.float64)
    bounded = []
    with np.errstate(divide="ignore"):
        for index, forms in enumerate(labels):
            exact[index] = math.fsum(math.exp(told[form]) for form in forms if form in told)
            missing = sum(form not in told for form in forms)
            scores[index] = np.log(min(1.0, exact[index] + min(missing * least, left)) if missing else exact[index])
            if not missing and exact[index] == 0.0:
                scores[index] = max((told[form] for form in forms), default=-math.inf)
            bounded.append(missing > 0)
    outside = max(0.0, 1.0 - float(exact.sum()))
    return OptionScores(scores, outside, tuple(bounded) if any(bounded) else ())


def log_probability(value: object, where: str) -> float:
    """Return a log-probability that a server told."""
    if isinstance(value, int | float) and value <= 1e-3:
        # llama-server writes float32's lowest number, about -3.4e38, for what underflowed.
        return UNDERFLOW if value < -1e30 else min(float(value), 0.0)
    raise ServerError(
        f"{where} answers {value!r} for a log-probability; its model may be damaged, or it is no model server"
    )


def field(answer: Any, where: str, *path: str | int) -> Any:
    """Return what stands at a path of an answer."""
    value = answer
    for key in path:
        try:
            value = value[key]
        except (KeyError, IndexError, TypeError) as error:
            shown = ".".join(map(str, path))
            raise ServerError(
                f"{where}: the answer has no {shown}; is this the kind of server it is taken for (dialect)?"
            ) from error
    return value


def cut_runaway(pieces: list[str]) -> int | None:
    """Return how many pieces of a text stand before it is clear that it only repeats itself; None if it does not."""
    return next((end for end in range(24, len(pieces) + 1) if runs_away(pieces[:end])), None)


def unanswerable(model: str) -> ModelError:
    """Say that an answer cannot be begun for the model."""
    message = f"the chat interface of {model}'s server cannot begin the model's answer, as this prompt wants; use style='plain'"
    return ModelError(message)
