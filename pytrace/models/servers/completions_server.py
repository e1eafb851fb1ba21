"""Servers that speak OpenAI's completions: llama-cpp-python's, and any other with less to offer.

Run in the tests: llama-cpp-python 0.3.36. Other servers only by the shape of the protocol.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from pytrace.errors import LogitsUnavailableError, ModelError, ServerError
from pytrace.models.language_model import Completion, OptionScores, Prompt
from pytrace.models.llama.generation import LONGEST_PERIOD, REPEATED_TIMES, REPEATED_TOKENS
from pytrace.models.servers.dialects import FORCED, PROBE, Rendered, Sampling, ServerDialect, TokenizingDialect
from pytrace.models.servers.server_answers import Logprobs, finish_of, log_probability, option_scores
from pytrace.records import Usage

# A token of any language's usual text has at least about three bytes: an estimate on the safe side.
_BYTES_A_TOKEN = 3
# What a chat template puts around a message: role, separators and line breaks take four to six tokens.
_MESSAGE_TOKENS = 8
# Batches of other shapes round otherwise, a quantised model by a few tenths at worst.
_AGREEMENT = 0.5
_PIECE = re.compile(r"\s*(?:\w+|[^\w\s]|$)")


class _Text(msgspec.Struct):
    text: str


class CompletionsDialect(ServerDialect):
    """A server with OpenAI's `/v1/completions`, or with `/v1/chat/completions` alone.

    Prompts are sent as text, so control tokens in documents are the server's to guard against. Tokens are counted by an
    estimate, three bytes each, because nothing says how they are cut. Options are found in the list of the likeliest tokens
    by their spelling; texts are scored where the server echoes a prompt with its log-probabilities. A `finish` of "end" may
    have been a stop text, which these servers do not tell apart; log-probabilities of written texts are NaN.
    """

    name = "openai"
    # OpenAI's completions list five tokens at most.
    shorter_lists = (5,)

    async def describe(self, listed: Mapping[str, Any]) -> None:
        """Read the model's entry, and see which of the two interfaces is there."""
        await super().describe(listed)
        self.has_chat = True
        self._echoes: bool | None = None
        self._echo_probing = asyncio.Lock()
        try:
            body = {"prompt": PROBE, "max_tokens": 1, "temperature": 0.0}
            self.has_completions = await self.post("/v1/completions", body, missing=True) is not None
        except ServerError as error:
            if error.status != 400:
                raise
            self.has_completions = False
        # The chat interface cannot begin an answer.
        self.prefers_chat = not self.has_completions

    def _sampling(self, how: Sampling) -> dict[str, Any]:
        settings: dict[str, Any] = {
            "max_tokens": how.max_tokens,
            "temperature": how.temperature,
            "top_p": how.top_p,
            "seed": how.seed,
        }
        return settings | ({"stop": how.stop} if how.stop else {})

    async def _probe_list(self, top: int) -> bool:
        content: Any = PROBE if self.has_completions else [{"role": "user", "content": PROBE}]
        listed, _ = await self._next(Rendered(content, 1), top)
        return bool(listed)

    async def _next(self, prompt: Rendered, top: int) -> tuple[dict[str, float], Usage]:
        """Return the log-probabilities of the likeliest next tokens by their spelling."""
        if isinstance(prompt.content, str):
            choice, usage = await self.next_token(prompt, logprobs=top)
            listed = ((choice.logprobs or Logprobs()).top_logprobs or [None])[0] or {}
            where = self.where("/v1/completions")
            return {token: log_probability(value, where) for token, value in listed.items()}, usage
        choice, usage = await self.next_token(prompt, logprobs=True, top_logprobs=min(top, 20))
        known: dict[str, float] = {}
        for first in ((choice.logprobs or Logprobs()).content or ())[:1]:
            for entry in first.top_logprobs or ():
                value = log_probability(entry.logprob, self.where("/v1/chat/completions"))
                # Two tokens may be spelled alike where bytes make no character.
                known[entry.token] = float(np.logaddexp(known.get(entry.token, -math.inf), value))
        return known, usage

    async def count(self, text: str) -> int:
        """Estimate the tokens of a text."""
        return -(-len(text.encode("utf-8", "replace")) // _BYTES_A_TOKEN)

    async def render(self, prompt: Prompt | str, style: Literal["chat", "plain"]) -> Rendered:
        """Return a prompt as text, or as messages."""
        if isinstance(prompt, Prompt) and style == "chat":
            if prompt.answer_start:
                raise ModelError(
                    f"the chat interface of {self.model}'s server cannot begin the model's answer, as this prompt wants; use "
                    "style='plain'"
                )
            messages = prompt.messages()
            counts = [await self.count(message["content"]) + _MESSAGE_TOKENS for message in messages]
            return Rendered(messages, sum(counts))
        if not self.has_completions:
            raise ModelError(
                f"the server of {self.model} has a chat interface alone (/v1/chat/completions) and takes no plain text; "
                "use style='chat', and scoring='black-box' for chains"
            )
        text = prompt if isinstance(prompt, str) else prompt.plain()
        return Rendered(text, await self.count(text) + 1)

    async def write(self, prompt: Rendered, how: Sampling) -> tuple[Completion, Usage]:
        """Write one text, cut afterwards where it only repeats itself."""
        choice, usage = await self.complete(prompt, self._sampling(how), how.largest_answer)
        if isinstance(prompt.content, str):
            text = choice.text or ""
        elif choice.message is None:
            raise ServerError(f"{self.where('/v1/chat/completions')}: the answer has no message; is it a model server?")
        else:
            text = choice.message.content or ""
        finish = finish_of(choice)
        pieces = _PIECE.findall(text)
        if (end := _runs_away_at(pieces)) is not None:
            text, finish = "".join(pieces[:end]), "repetition"
        return Completion(text, usage.generated_tokens, finish, math.nan), usage

    async def label_scores(self, prompt: Rendered, labels: Sequence[str]) -> tuple[OptionScores, Usage]:
        """Score labels by the spelling of the likeliest tokens."""
        await self.require_logits()
        forms = [await self.label_spellings(label) for label in labels]
        known, usage = await self._next(prompt, self.top_tokens)
        return option_scores(known, list(known.values()), forms), usage

    async def text_scores(self, prompt: Rendered, text: str) -> tuple[NDArray[np.float64], Usage]:
        """Score a text as the end of an echoed prompt; a token across the seam counts as the text's."""
        if not text:
            return np.zeros(0), Usage()
        await self._require_echo()
        assert isinstance(prompt.content, str)
        offsets, scores, usage = await self._echoed(prompt.content + text, prompt.count)
        first = next((index for index, end in enumerate([*offsets[1:], math.inf]) if end > len(prompt.content)), 0)
        usage = msgspec.structs.replace(usage, generated_tokens=0)
        wanted = scores[first:]
        if not wanted or any(score is None for score in wanted):
            raise ServerError(
                f"the server of {self.model} tells no log-probability for the first token; begin with a prompt"
            )
        return np.array(wanted, dtype=np.float64), usage

    async def _echoed(self, text: str, count: int) -> tuple[list[int], list[float | None], Usage]:
        """Return where the tokens of an echoed text begin and their log-probabilities, without what was written after it."""
        choice, usage = await self.next_token(Rendered(text, count), logprobs=1, echo=True)
        logprobs, where = choice.logprobs or Logprobs(), self.where("/v1/completions")
        offsets = logprobs.text_offset or []
        # The first token of all has none.
        scores = [None if value is None else log_probability(value, where) for value in logprobs.token_logprobs or ()]
        if len(offsets) != len(scores):
            raise ServerError(
                f"{where}: the echoed prompt's tokens (token_logprobs) and offsets (text_offset) do not fit together"
            )
        inside = [index for index, offset in enumerate(offsets) if offset < len(text)]
        return [offsets[index] for index in inside], [scores[index] for index in inside], usage

    async def _require_echo(self) -> None:
        await self.require_logits()
        async with self._echo_probing:
            if self._echoes is None:
                self._echoes = await self._probe_echo()
        if not self._echoes:
            raise LogitsUnavailableError(
                f"{self.model} at {self.client.origin} tells no log-probabilities of given texts (echo); use "
                "scoring='letters' or scoring='black-box' (--set scoring=black-box)"
            )

    async def _probe_echo(self) -> bool:
        """Whether echoed log-probabilities are there, and agree with the list of the likeliest next tokens."""
        # llama-cpp-python's server shifts them by one token for models that begin no sequence with a token of its own.
        if not self.has_completions:
            return False
        try:
            offsets, scores, _ = await self._echoed(PROBE, 1)
            if len(offsets) < 2 or scores[-1] is None:
                return False
            listed, _ = await self._next(Rendered(PROBE[: offsets[-1]], 1), self.top_tokens)
        except ServerError as error:
            if error.status is None or error.status in {400, 404, 422, 500}:
                return False
            raise
        expected = listed.get(PROBE[offsets[-1] :])
        if expected is None:
            return scores[-1] <= min(listed.values(), default=0.0) + _AGREEMENT
        return abs(scores[-1] - expected) <= _AGREEMENT


def _runs_away_at(pieces: Sequence[str]) -> int | None:
    """Return after how many pieces a text first `runs_away`, in time linear in its length."""
    numbers: dict[str, int] = {}
    ids = np.array([numbers.setdefault(piece, len(numbers)) for piece in pieces], dtype=np.int64)
    ends = []
    for period in range(1, min(LONGEST_PERIOD, len(ids) // REPEATED_TIMES) + 1):
        alike = max(REPEATED_TIMES * period, REPEATED_TOKENS) - period
        before = np.concatenate(([0], np.cumsum(ids[period:] == ids[:-period])))
        starts = np.flatnonzero(before[alike:] - before[:-alike] == alike)
        ends += [int(start) + alike + period for start in starts[:1]]
    return min(ends, default=None)


class LlamaCppPythonDialect(TokenizingDialect, CompletionsDialect):
    """llama-cpp-python's server: OpenAI's completions with grammars, any length of list, and a tokenizer to ask.

    It works at one request at a time, tells no context length (2,048 tokens are assumed, its default), and reads control
    tokens inside of documents as such.
    """

    name = "llama-cpp-python"
    assumed_context = 2048
    default_top_tokens = 1000
    writes_grammar = True

    async def describe(self, listed: Mapping[str, Any]) -> None:
        """Learn how many tokens an empty text has: one where the model begins every sequence with a token."""
        self._begin = 0
        self._begin = len(await self._ask_tokens("", special=True))
        await super().describe(listed)

    def _sampling(self, how: Sampling) -> dict[str, Any]:
        settings = super()._sampling(how) | {"top_k": 0, "min_p": 0.0, "repeat_penalty": 1.0}
        return settings if how.grammar is None else {**settings, "grammar": how.grammar}

    async def _ask_tokens(self, text: str, *, special: bool) -> list[int]:
        del special  # this server always reads control tokens as such
        return (await self.post_for_tokens("/extras/tokenize", {"input": text}))[self._begin :]

    async def text_scores(self, prompt: Rendered, text: str) -> tuple[NDArray[np.float64], Usage]:
        """Score a text token by token, each written by force: one request a token."""
        await self.require_logits()
        if not isinstance(prompt.content, str):
            raise LogitsUnavailableError(
                f"the chat interface of {self.model}'s server scores no texts; use style='plain'"
            )
        tokens = await self.tokens(text)
        length = len(await self.tokens(prompt.content)) + self._begin
        scores = np.empty(len(tokens))
        evaluated = 0
        for index, token in enumerate(tokens):
            before = prompt.content
            if index:
                before += (await self.asked("/extras/detokenize", {"tokens": tokens[:index]}, _Text)).text
            forced = {str(token): FORCED}
            choice, usage = await self.next_token(Rendered(before, length + index), logprobs=1, logit_bias=forced)
            value = ((choice.logprobs or Logprobs()).token_logprobs or [None])[0]
            if usage.prompt_tokens != length + index:
                raise ModelError(
                    f"{text!r} cannot be scored after its prompt: the server of {self.model} takes text alone and cuts it into "
                    f"{usage.prompt_tokens} tokens where {length + index} were meant; use llama-server"
                )
            scores[index] = log_probability(value, self.where("/v1/completions"))
            evaluated += 1 if index else usage.evaluated_tokens
        return scores, Usage(1, length + max(len(tokens) - 1, 0), evaluated, 0, len(tokens)) if tokens else Usage()
