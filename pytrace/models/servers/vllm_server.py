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

from pytrace.errors import ServerError
from pytrace.models.language_model import Completion, OptionScores, Prompt, without_system
from pytrace.models.servers.dialects import PROBE, Rendered, Sampling, TokenizingDialect, Writing, marked
from pytrace.models.servers.server_answers import (
    Logprobs,
    OpenAiAnswer,
    finish_of,
    log_probability,
    option_scores,
    shaped,
    usage_of,
)
from pytrace.records import Usage

# vLLM takes no longer list of wanted tokens.
_MOST_WANTED = 128
_TOKEN = re.compile(r"token_id:(\d{1,15})")
# What control tokens look like: <|im_end|>, </s>, <end_of_turn>, [INST].
_CONTROL = re.compile(r"<[^<>\s]{1,40}>|\[[A-Z_/]{2,20}\]")


class _Version(msgspec.Struct):
    version: str = ""


class _Text(msgspec.Struct):
    prompt: str


class VllmDialect(TokenizingDialect):
    """vLLM: `/v1/completions` with prompts as tokens, wanted tokens by id, and the prompt's own log-probabilities.

    A server that does not know `logprob_token_ids` lists at most `--max-logprobs` tokens (20 unless it was started
    otherwise): options beyond are bounded. Its tokenizer would read control tokens inside of documents as such: texts that
    have what looks like one, and is a single token, are cut inside of it. The log-probability of a text under a grammar is
    the one that the grammar leaves it.
    """

    name = "vllm"
    # `--max-logprobs` may be set to less than vLLM's own 20.
    shorter_lists = (5, 1)
    writes_grammar = True

    async def describe(self, listed: Mapping[str, Any]) -> None:
        """Read the version and the model's entry, and see whether there is a chat template."""
        await super().describe(listed)
        answer = await self.client.get("/version")
        version = shaped(answer or {}, self.where("/version"), _Version).version
        numbers = [int(number) for number in re.findall(r"\d{1,9}", version)[:2]]
        self._structured = not numbers or numbers >= [0, 11]
        self._wants_tokens = False
        self._single: dict[str, bool] = {}
        try:
            await self._ask_chat([{"role": "user", "content": PROBE}])
            self.has_chat = self.prefers_chat = True
        except ServerError as error:
            if error.status is None or error.status >= 500:
                raise

    async def _probe_list(self, top: int) -> bool:
        tokens = await self._tokenized(PROBE, begin=True)
        wanted = [*await self.tokens("A"), *await self.tokens("B")]
        listed, _ = await self._next(Rendered(tokens, len(tokens)), top, wanted)
        self._wants_tokens = set(wanted) <= listed.keys() and len(listed) <= len(set(wanted)) + 1
        return bool(listed)

    async def _next(self, prompt: Rendered, logprobs: int, wanted: Sequence[int]) -> tuple[dict[int, float], Usage]:
        """Return the log-probabilities of next tokens by id, none if the server gives none, and what they cost."""
        ids = {"logprob_token_ids": list(wanted)} if wanted else {}
        choice, usage = await self.next_token(prompt, logprobs=logprobs, return_tokens_as_token_ids=True, **ids)
        listed = choice.logprobs.top_logprobs if choice.logprobs is not None else None
        known = {
            int(match[1]): log_probability(value, self.where("/v1/completions"))
            for token, value in ((listed or [None])[0] or {}).items()
            if (match := _TOKEN.fullmatch(token))
        }
        return known, usage

    async def _ask_tokens(self, text: str, *, special: bool) -> list[int]:
        pieces = [text] if special else await self._plain_pieces(text)
        return [token for piece in pieces for token in await self._tokenized(piece)]

    async def _tokenized(self, text: str, *, begin: bool = False) -> list[int]:
        return await self.post_for_tokens("/tokenize", {"prompt": text, "add_special_tokens": begin})

    async def _plain_pieces(self, text: str) -> list[str]:
        """Cut a text inside of whatever looks like a control token and is a single token."""
        cuts = [0]
        for match in _CONTROL.finditer(text):
            spelled = match[0]
            if spelled not in self._single:
                self._single[spelled] = len(await self._tokenized(spelled)) == 1
            if self._single[spelled]:
                cuts.append(match.start() + 1)
        return [text[start:end] for start, end in zip(cuts, [*cuts[1:], None], strict=True)]

    async def _ask_chat(self, messages: list[dict[str, str]]) -> list[int]:
        return await self.post_for_tokens("/tokenize", {"messages": messages, "add_generation_prompt": True})

    async def render(self, prompt: Prompt | str, style: Literal["chat", "plain"]) -> Rendered:
        """Turn a prompt into tokens, by the server's own template and tokenizer."""
        if isinstance(prompt, str) or style == "plain":
            first, *rest = await self._plain_pieces(prompt if isinstance(prompt, str) else prompt.plain())
            tokens = await self._tokenized(first, begin=True)
            for piece in rest:
                tokens += await self._tokenized(piece)
            return Rendered(tokens, len(tokens))
        messages = prompt.messages()
        if any([len(await self._plain_pieces(message["content"])) > 1 for message in messages]):
            # The template's words and the messages are tokenised apart, so that these bring no control tokens in.
            template = await self.asked("/detokenize", {"tokens": await self._chat(marked(messages))}, _Text)
            tokens = await self.filled(template.prompt, messages)
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

    async def write(self, prompt: Rendered, how: Sampling) -> tuple[Completion, Usage]:
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
        return await self.client.stream(
            "/v1/completions",
            body,
            lambda events: _Writing(self.where("/v1/completions"), prompt.count, how.max_tokens).read(events),
            largest=how.largest_answer,
        )

    async def label_scores(self, prompt: Rendered, labels: Sequence[str]) -> tuple[OptionScores, Usage]:
        """Score labels by their tokens' ids, or by the list of the likeliest tokens where the server knows no better."""
        await self.require_logits()
        forms = [await self.label_tokens(label) for label in labels]
        wanted = sorted({token for form in forms for token in form}) if self._wants_tokens else []
        known: dict[int, float] = {}
        usage = Usage()
        for start in range(0, max(len(wanted), 1), _MOST_WANTED):
            some, spent = await self._next(prompt, self.top_tokens, wanted[start : start + _MOST_WANTED])
            known |= some
            usage += spent
        usage = msgspec.structs.replace(usage, calls=1, prompt_tokens=prompt.count)
        return option_scores(known, [] if wanted else list(known.values()), forms), usage

    async def text_scores(self, prompt: Rendered, text: str) -> tuple[NDArray[np.float64], Usage]:
        """Score a text as the end of a prompt whose tokens' log-probabilities come back."""
        tokens = await self.tokens(text)
        if not tokens:
            return np.zeros(0), Usage()
        assert isinstance(prompt.content, list)
        whole = Rendered([*prompt.content, *tokens], prompt.count + len(tokens))
        choice, usage = await self.next_token(whole, prompt_logprobs=0)
        rows, where = choice.prompt_logprobs or [], self.where("/v1/completions")
        if len(rows) != whole.count:
            raise ServerError(f"{where}: prompt_logprobs has another length than the prompt; is this a vLLM server?")
        scores = np.empty(len(tokens))
        for index, (token, row) in enumerate(zip(tokens, rows[prompt.count :], strict=True)):
            told = (row or {}).get(str(token))
            scores[index] = log_probability(None if told is None else told.logprob, where)
        return scores, msgspec.structs.replace(usage, generated_tokens=0)


class _Writing(Writing):
    def feed(self, event: dict[str, Any]) -> bool:
        answer = shaped(event, self.where, OpenAiAnswer)
        if answer.usage is not None:
            self.usage = usage_of(answer.usage, self.prompt_tokens)
        for choice in answer.choices:
            self.text.append(choice.text or "")
            logprobs = choice.logprobs or Logprobs()
            tokens = list(zip(logprobs.tokens or (), logprobs.token_logprobs or (), strict=False))
            self.likely += [log_probability(value, self.where) for _, value in tokens]
            if self.take(token for token, _ in tokens):
                return True
            if choice.finish_reason:
                self.finish = finish_of(choice)
        return False
