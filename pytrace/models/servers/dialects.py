"""What language model servers have in common, seen by `RemoteModel`; each kind of server has a module of its own.

A dialect turns prompts into what its server takes, and its answers into tokens and natural log-probabilities. It keeps no
account: `RemoteModel` checks arguments, fits prompts into the context, spreads the work and counts.
"""

from __future__ import annotations

import abc
import asyncio
import math
from collections.abc import AsyncIterator, Hashable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from pytrace.errors import InputError, LogitsUnavailableError, ModelError, ServerError
from pytrace.models.base_model import label_forms
from pytrace.models.language_model import Completion, OptionScores, Prompt
from pytrace.models.llama.generation import runs_away
from pytrace.models.servers.http_client import HttpClient
from pytrace.models.servers.server_answers import REMEDY, Choice, Finish, OpenAiAnswer, Tokens, shaped, usage_of
from pytrace.records import Usage

_T = TypeVar("_T")

KEPT_TEXTS = 20_000
# Events of a stream beyond one a token: those that begin and end it, and tell what it cost.
_MORE_EVENTS = 16
# A prompt whose only use is to see what comes back.
PROBE = "The sky is"
# Around a message's number it stands for the message in a template: a private-use character, which no template touches.
_MARK = "\ue000"
# Added to a logit it makes a token the likeliest; the log-probabilities that come back are those before it.
FORCED = 1e4


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

    @property
    def largest_answer(self) -> int:
        """Bytes that an answer may have: a token with its log-probabilities takes some 500, a chunk of padding more."""
        return 2**20 + 2**14 * self.max_tokens


class ServerDialect(abc.ABC):
    """What one kind of server speaks."""

    name: str
    # Tokens of the longest sequence where the server does not tell.
    assumed_context = 4096
    # OpenAI's own limit, in chats; vLLM's default is the same.
    default_top_tokens = 20
    # What is tried where a server refuses to list as many.
    shorter_lists: tuple[int, ...] = ()
    writes_grammar = False
    has_chat = False
    prefers_chat = False

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
        if type(length) is int and length > 0:
            self.context = length
        self.identity = {key: listed[key] for key in ("root", "max_model_len") if listed.get(key) is not None}

    async def post(
        self, path: str, body: Mapping[str, Any], *, missing: bool = False, largest: int | None = None
    ) -> Any:
        """Ask the server about its model: one of several models wants to know which is meant."""
        return await self.client.post(path, {"model": self.model, **body}, missing=missing, largest=largest)

    async def asked(self, path: str, body: Mapping[str, Any], kind: type[_T], *, largest: int | None = None) -> _T:
        """Ask the server about its model; its answer must be of a kind."""
        return shaped(await self.post(path, body, largest=largest), self.where(path), kind)

    def where(self, path: str) -> str:
        """Name a place of the server in messages."""
        return f"{self.client.origin}{path}"

    async def next_token(self, prompt: Rendered, **settings: Any) -> tuple[Choice, Usage]:
        """Have one token written by OpenAI's completions; return the answer's first choice, and what it cost."""
        return await self.complete(prompt, {"max_tokens": 1, "temperature": 0.0, **settings})

    async def complete(
        self, prompt: Rendered, settings: Mapping[str, Any], largest: int | None = None
    ) -> tuple[Choice, Usage]:
        """Ask OpenAI's completions, or its chat where the prompt is messages."""
        chat = isinstance(prompt.content, list) and isinstance(prompt.content[0], dict)
        path, name = ("/v1/chat/completions", "messages") if chat else ("/v1/completions", "prompt")
        answer = await self.asked(path, {name: prompt.content, **settings}, OpenAiAnswer, largest=largest)
        if not answer.choices:
            raise ServerError(f"{self.where(path)}: the answer has no choices; {REMEDY}")
        return answer.choices[0], usage_of(answer.usage, prompt.count)

    async def gives_logits(self) -> bool:
        """Whether the server gives log-probabilities: asked once, by a request for one token."""
        async with self._probing:
            if self._logits is None:
                self._logits = await self._probe()
        return self._logits

    async def require_logits(self) -> None:
        """Refuse to score where nothing can be scored."""
        if not await self.gives_logits():
            raise LogitsUnavailableError(
                f"{self.model} at {self.client.origin} gives no log-probabilities; use scoring='black-box' "
                "(--set scoring=black-box)"
            )

    async def _probe(self) -> bool:
        # A server may refuse to list as many tokens as are wanted, or any.
        for top in dict.fromkeys((self.top_tokens, *self.shorter_lists)):
            try:
                listed = await self._probe_list(top)
            except ServerError as error:
                if error.status not in {400, 422} and not (error.status == 500 and "logprobs" in str(error)):
                    raise
                continue
            if listed:
                self.top_tokens = top
                return True
        return False

    @abc.abstractmethod
    async def _probe_list(self, top: int) -> bool:
        """Whether so many of the likeliest tokens are listed."""

    @abc.abstractmethod
    async def count(self, text: str) -> int:
        """Count the tokens of a text."""

    @abc.abstractmethod
    async def render(self, prompt: Prompt | str, style: Literal["chat", "plain"]) -> Rendered:
        """Turn a prompt into what the server takes."""

    @abc.abstractmethod
    async def write(self, prompt: Rendered, how: Sampling) -> tuple[Completion, Usage]:
        """Write one text; its log-probability is NaN where the server does not tell it."""

    @abc.abstractmethod
    async def label_scores(self, prompt: Rendered, labels: Sequence[str]) -> tuple[OptionScores, Usage]:
        """Score labels as the next token."""

    @abc.abstractmethod
    async def text_scores(self, prompt: Rendered, text: str) -> tuple[NDArray[np.float64], Usage]:
        """Return the log-probability of every token of a text after a prompt."""

    async def label_spellings(self, label: str) -> list[str]:
        """Return the ways in which a label may be written."""
        return label_forms(label)


class TokenizingDialect(ServerDialect):
    """A server whose tokenizer can be asked."""

    def __init__(self, client: HttpClient, model: str, top_tokens: int | None) -> None:
        super().__init__(client, model, top_tokens)
        self._known: dict[tuple[str, bool], list[int]] = {}

    @abc.abstractmethod
    async def _ask_tokens(self, text: str, *, special: bool) -> list[int]: ...

    async def post_for_tokens(self, path: str, body: Mapping[str, Any]) -> list[int]:
        """Return the field `tokens` of what the server answers: all three tokenizers call it that."""
        return (await self.asked(path, body, Tokens)).tokens

    async def tokens(self, text: str, *, special: bool = False) -> list[int]:
        """Return a text's tokens, none that begin or end a sequence; control tokens in it are read as such if `special`."""
        known = self._known.get((text, special))
        if known is None:
            known = await self._ask_tokens(text, special=special) if text else []
            if len(self._known) >= KEPT_TEXTS:
                self._known.clear()
            self._known[text, special] = known
        return known

    async def count(self, text: str) -> int:
        """Count the tokens of a text."""
        return len(await self.tokens(text))

    async def label_spellings(self, label: str) -> list[str]:
        """Return the spellings of a label that are single tokens."""
        single = [form for form in await super().label_spellings(label) if await self.count(form) == 1]
        if not single:
            raise InputError(
                f"the option label {label!r} is no single token of {self.model}; use one letter or a short word"
            )
        return single

    async def label_tokens(self, label: str) -> list[int]:
        """Return the single tokens that are a label."""
        return sorted({(await self.tokens(form))[0] for form in await self.label_spellings(label)})

    async def filled(self, template: str, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """Tokenise a template made of `marked` messages: only its own words may be control tokens."""
        parts = template.split(_MARK)
        if parts[1::2] != [str(index) for index in range(len(messages))]:
            raise ModelError(f"the chat template of {self.model} leaves a message out or moves it; use style='plain'")
        tokens: list[int] = []
        for index, part in enumerate(parts):
            tokens += await (
                self.tokens(messages[int(part)]["content"]) if index % 2 else self.tokens(part, special=True)
            )
        return tokens


def marked(messages: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
    """Return messages with their numbers, marked, in place of their texts: what stands between is the template's."""
    return [{**message, "content": f"{_MARK}{index}{_MARK}"} for index, message in enumerate(messages)]


class Writing(abc.ABC):
    """The events of one text being written, which is broken off where it only repeats itself or grows too long."""

    def __init__(self, where: str, prompt_tokens: int, max_tokens: int) -> None:
        self.where = where
        self.prompt_tokens = prompt_tokens
        self.max_tokens = max_tokens
        self.events = 0
        self.text: list[str] = []
        self.tokens: list[Hashable] = []
        self.likely: list[float] = []
        self.finish: Finish | None = None
        self.count: int | None = None
        self.usage: Usage | None = None

    async def read(self, events: AsyncIterator[dict[str, Any]]) -> tuple[Completion, Usage]:
        """Read events up to the end of the text; return what was written, and what it cost."""
        async for event in events:
            if self.feed(event):
                break
            self.events += 1
            # A server that heeds no limit would write for ever.
            if max(len(self.tokens), self.events - _MORE_EVENTS) > self.max_tokens:
                self.finish = "length"
                del self.tokens[self.max_tokens :], self.likely[self.max_tokens :]
                break
        if self.finish is None:
            raise EOFError("the answer ended in the middle")
        tokens = len(self.tokens) if self.count is None else self.count
        usage = self.usage or Usage(1, self.prompt_tokens, self.prompt_tokens + tokens, tokens, 1)
        likely = self.likely
        if self.finish == "end":
            # The token that ends a sequence is no part of the text.
            tokens = max(tokens - 1, 0)
            likely = likely[:tokens]
        # A token that is no whole character may come without its probability.
        total = float(sum(likely)) if len(likely) >= tokens or self.finish == "stop" else math.nan
        return Completion("".join(self.text), tokens, self.finish, total), usage

    @abc.abstractmethod
    def feed(self, event: dict[str, Any]) -> bool:
        """Take an event; true if the rest is not wanted."""

    def take(self, tokens: Iterable[Hashable]) -> bool:
        """Add tokens; true if the text only repeats itself."""
        for token in tokens:
            self.tokens.append(token)
            if runs_away(self.tokens):
                self.finish = "repetition"
        return self.finish == "repetition"
