"""vLLM's server: prompts as tokens, wanted tokens by id, and log-probabilities of prompts.

`tests/test_remote_vllm.py` runs a real one where there is one, which CI has not; it last passed with vLLM 0.32.0 on a CPU. What
older versions lack is tested against a double alone: `logprob_token_ids` (July 2026) and `structured_outputs` (0.11).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from pytrace.errors import ModelError, ServerError
from pytrace.models.language_model import OptionScores, Prompt
from pytrace.models.llama.generation import runs_away
from pytrace.models.servers.dialects import (
    MARK,
    PROBE,
    Finish,
    Rendered,
    Sampling,
    TokenizingDialect,
    Written,
    field,
    log_probability,
    option_scores,
)
from pytrace.records import Usage

# vLLM takes no longer list of wanted tokens.
_MOST_WANTED = 128
_TOKEN = re.compile(r"token_id:(\d+)")
# What control tokens look like: <|im_end|>, </s>, <end_of_turn>, [INST].
_CONTROL = re.compile(r"<[^<>\s]{1,40}>|\[[A-Z_/]{2,20}\]")


class VllmDialect(TokenizingDialect):
    """vLLM: `/v1/completions` with prompts as tokens, wanted tokens by id, and the prompt's own log-probabilities.

    A server that does not know `logprob_token_ids` lists at most `--max-logprobs` tokens (20 unless it was started
    otherwise): options beyond are bounded. Its tokenizer would read control tokens inside of documents as such: texts that
    have what looks like one, and is a single token, are cut inside of it. The log-probability of a text under a grammar is
    the one that the grammar leaves it.
    """

    name = "vllm"
    writes_grammar = True

    async def describe(self, listed: Mapping[str, Any]) -> None:
        """Read the version and the model's entry, and see whether there is a chat template."""
        await super().describe(listed)
        answer = await self.client.get("/version")
        version = str(answer.get("version", "")) if isinstance(answer, dict) else ""
        numbers = [int(number) for number in re.findall(r"\d+", version)[:2]]
        self._structured = not numbers or numbers >= [0, 11]
        self._wants_tokens = False
        self._single: dict[str, bool] = {}
        try:
            await self._ask_chat([{"role": "user", "content": PROBE}])
            self.has_chat = True
        except ServerError as error:
            if error.status is None or error.status >= 500:
                raise

    async def _probe(self) -> bool:
        tokens = await self._tokenized({"prompt": PROBE, "add_special_tokens": True})
        wanted = [*await self.tokens("A"), *await self.tokens("B")]
        for logprobs in dict.fromkeys((self.top_tokens, 5, 1)):
            try:
                answer = await self._next(tokens, logprobs, wanted)
            except ServerError as error:
                if error.status not in {400, 422}:
                    raise
                continue
            told = _top(answer)
            if told:
                self._wants_tokens = set(wanted) <= told.keys() and len(told) <= len(set(wanted)) + 1
                self.top_tokens = logprobs
                return True
        return False

    async def _next(self, tokens: Any, logprobs: int, wanted: Sequence[int]) -> Any:
        body = {
            "model": self.model,
            "prompt": tokens,
            "max_tokens": 1,
            "temperature": 0.0,
            "logprobs": logprobs,
            "return_tokens_as_token_ids": True,
        }
        if wanted:
            body["logprob_token_ids"] = list(wanted)
        return await self.client.post("/v1/completions", body)

    async def _ask_tokens(self, text: str) -> list[int]:
        tokens = []
        for piece in await self._plain_pieces(text):
            tokens += await self._tokenized({"prompt": piece, "add_special_tokens": False})
        return tokens

    async def _tokenized(self, body: Mapping[str, Any]) -> list[int]:
        answer = await self.client.post("/tokenize", {"model": self.model, **body})
        return msgspec.convert(field(answer, "/tokenize", "tokens"), list[int])

    async def _plain_pieces(self, text: str) -> list[str]:
        """Cut a text inside of whatever looks like a control token and is a single token."""
        cuts = [0]
        for found in _CONTROL.finditer(text):
            spelled = found[0]
            if spelled not in self._single:
                tokens = await self._tokenized({"prompt": spelled, "add_special_tokens": False})
                self._single[spelled] = len(tokens) == 1
            if self._single[spelled]:
                cuts.append(found.start() + 1)
        return [text[start:end] for start, end in zip(cuts, [*cuts[1:], None], strict=True)]

    async def _ask_chat(self, messages: list[dict[str, str]]) -> list[int]:
        return await self._tokenized({"messages": messages, "add_generation_prompt": True})

    async def render(self, prompt: Prompt | str, style: Literal["chat", "plain"]) -> Rendered:
        """Turn a prompt into tokens, by the server's own template and tokenizer."""
        if isinstance(prompt, str) or style == "plain":
            text = prompt if isinstance(prompt, str) else prompt.plain()
            first, *rest = await self._plain_pieces(text)
            tokens = await self._tokenized({"prompt": first, "add_special_tokens": True})
            for piece in rest:
                tokens += await self._tokenized({"prompt": piece, "add_special_tokens": False})
            return Rendered(tokens, len(tokens))
        messages = chat_messages(prompt)
        if any([len(await self._plain_pieces(one["content"])) > 1 for one in messages]):
            tokens = await self._guarded(messages)
        else:
            tokens = await self._chat(messages)
        if prompt.answer_start:
            tokens = tokens + await self.tokens(prompt.answer_start)
        return Rendered(tokens, len(tokens))

    async def _chat(self, messages: list[dict[str, str]]) -> list[int]:
        try:
            return await self._ask_chat(messages)
        except ServerError as error:
            if error.status != 400 or messages[0]["role"] != "system":
                raise
            return await self._ask_chat(without_system(messages))

    async def _guarded(self, messages: list[dict[str, str]]) -> list[int]:
        """Tokenise the template's words and the messages apart, so that these bring no control tokens in."""
        marked = [{**one, "content": f"{MARK}{index}{MARK}"} for index, one in enumerate(messages)]
        asked = {"model": self.model, "tokens": await self._chat(marked)}
        parts = str(field(await self.client.post("/detokenize", asked), "/detokenize", "prompt")).split(MARK)
        if parts[1::2] != [str(index) for index in range(len(messages))]:
            raise ModelError(f"the chat template of {self.model} leaves a message out or moves it; use style='plain'")
        tokens: list[int] = []
        for index, part in enumerate(parts):
            if index % 2:
                tokens += await self.tokens(messages[int(part)]["content"])
            elif part:
                tokens += await self._tokenized({"prompt": part, "add_special_tokens": False})
        return tokens

    async def write(self, prompt: Rendered, how: Sampling) -> Written:
        """Write one text, broken off as soon as it only repeats itself."""
        body: dict[str, Any] = {
            "model": self.model,
            "prompt": prompt.content,
            "max_tokens": how.max_tokens,
            "stop": how.stop,
            "temperature": how.temperature,
            "top_p": how.top_p,
            # The model's own generation settings would add cuts and penalties.
            "top_k": -1,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "seed": how.seed,
            "logprobs": 0,
            "return_tokens_as_token_ids": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if how.grammar is not None:
            if self._structured:
                body["structured_outputs"] = {"grammar": how.grammar}
            else:
                body["guided_grammar"] = how.grammar
        return (await self.client.stream("/v1/completions", body, _Writing)).written(prompt.count)

    async def label_scores(self, prompt: Rendered, labels: Sequence[str]) -> tuple[OptionScores, Usage]:
        """Score labels by their tokens' ids, or by the list of the likeliest tokens where the server knows no better."""
        await self.require_logits()
        forms = [await self.label_tokens(label) for label in labels]
        wanted = sorted({token for form in forms for token in form}) if self._wants_tokens else []
        told: dict[int, float] = {}
        usage = Usage()
        for start in range(0, max(len(wanted), 1), _MOST_WANTED):
            answer = await self._next(prompt.content, self.top_tokens, wanted[start : start + _MOST_WANTED])
            told |= _top(answer)
            usage += _usage(answer, prompt.count)
        usage = msgspec.structs.replace(usage, calls=1, prompt_tokens=prompt.count)
        return option_scores(told, [] if wanted else list(told.values()), forms), usage

    async def text_scores(self, prompt: Rendered, text: str) -> tuple[NDArray[np.float64], Usage]:
        """Score a text as the end of a prompt whose tokens' log-probabilities are told."""
        tokens = await self.tokens(text)
        if not tokens:
            return np.zeros(0), Usage()
        assert isinstance(prompt.content, list)
        body = {
            "model": self.model,
            "prompt": [*prompt.content, *tokens],
            "max_tokens": 1,
            "temperature": 0.0,
            "prompt_logprobs": 0,
        }
        answer = await self.client.post("/v1/completions", body)
        rows = field(answer, "/v1/completions", "choices", 0, "prompt_logprobs")
        if not isinstance(rows, list) or len(rows) != prompt.count + len(tokens):
            raise ServerError(
                "/v1/completions: prompt_logprobs has another length than the prompt; is this a vLLM server?"
            )
        scores = np.empty(len(tokens))
        for index, (token, row) in enumerate(zip(tokens, rows[prompt.count :], strict=True)):
            told = field(row, "/v1/completions prompt_logprobs", str(token), "logprob")
            scores[index] = log_probability(told, "/v1/completions")
        usage = msgspec.structs.replace(_usage(answer, prompt.count + len(tokens)), generated_tokens=0)
        return scores, usage


class _Writing:
    """The events of one text being written."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._tokens: list[str] = []
        self._likely: list[float] = []
        self._finish: Finish | None = None
        self._usage: dict[str, Any] | None = None

    @property
    def complete(self) -> bool:
        return self._finish is not None

    def feed(self, event: dict[str, Any]) -> bool:
        if event.get("usage"):
            self._usage = event
        for choice in event.get("choices") or ():
            self._text.append(str(choice.get("text") or ""))
            told = choice.get("logprobs") or {}
            for token, value in zip(told.get("tokens") or (), told.get("token_logprobs") or (), strict=False):
                self._tokens.append(str(token))
                self._likely.append(log_probability(value, "/v1/completions"))
                if runs_away(self._tokens):
                    self._finish = "repetition"
            if self._finish == "repetition":
                return True
            if choice.get("finish_reason"):
                self._finish = finish_of(choice)
        return False

    def written(self, prompt_tokens: int) -> Written:
        tokens = len(self._tokens)
        usage = _usage(self._usage, prompt_tokens) if self._usage else Usage(1, prompt_tokens, prompt_tokens, tokens, 1)
        if self._finish == "end":
            # The token that ends a sequence is no part of the text.
            tokens = max(tokens - 1, 0)
        return Written("".join(self._text), tokens, self._finish or "length", sum(self._likely[:tokens]), usage)


def finish_of(choice: Mapping[str, Any]) -> Finish:
    """Return why a text ended; vLLM alone tells a stop text from the model's own end (`stop_reason`)."""
    reason = choice.get("finish_reason")
    if reason == "length":
        return "length"
    if reason == "repetition":
        return "repetition"
    return "stop" if isinstance(choice.get("stop_reason"), str) else "end"


def chat_messages(prompt: Prompt) -> list[dict[str, str]]:
    """Return a prompt as messages, without the beginning of its answer."""
    messages = [{"role": "system", "content": prompt.instruction}] if prompt.instruction else []
    for given, output in prompt.demonstrations:
        messages += [{"role": "user", "content": given}, {"role": "assistant", "content": output}]
    return [*messages, {"role": "user", "content": prompt.input}]


def without_system(messages: list[dict[str, str]]) -> list[dict[str, str]]:
    """Return messages for a template that knows no system role: its words open the first user message."""
    first = {"role": "user", "content": f"{messages[0]['content']}\n\n{messages[1]['content']}"}
    return [first, *messages[2:]]


def _top(answer: Any) -> dict[int, float]:
    """Return the log-probabilities of next tokens by id; none if the answer has none."""
    logprobs = field(answer, "/v1/completions", "choices", 0).get("logprobs") or {}
    told: dict[int, float] = {}
    for token, value in ((logprobs.get("top_logprobs") or [None])[0] or {}).items():
        if found := _TOKEN.fullmatch(token):
            told[int(found[1])] = log_probability(value, "/v1/completions")
    return told


def _usage(answer: Any, prompt_tokens: int) -> Usage:
    counts = (answer.get("usage") if isinstance(answer, dict) else None) or {}
    asked = int(counts.get("prompt_tokens") or prompt_tokens)
    generated = int(counts.get("completion_tokens") or 0)
    cached = int((counts.get("prompt_tokens_details") or {}).get("cached_tokens") or 0)
    return Usage(1, asked, max(asked - cached, 0) + max(generated - 1, 0), generated, 1)
