"""llama-server: the server of llama.cpp itself, which knows tokens, raw probabilities and grammars.

Run in the tests: build b11549, out of the package xllamacpp 2026.10. The parameters are those of its README.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal
from urllib.parse import quote

import msgspec
import numpy as np
from numpy.typing import NDArray

from pytrace.errors import ServerError
from pytrace.models.language_model import Completion, OptionScores, Prompt
from pytrace.models.servers.dialects import FORCED, Rendered, Sampling, TokenizingDialect, Writing, marked
from pytrace.models.servers.http_client import HttpClient
from pytrace.models.servers.server_answers import Count, Finish, log_probability, option_scores, shaped
from pytrace.records import Usage

_FIELDS = ["content", "tokens", "completion_probabilities", "timings", "stop_type", "tokens_predicted", "stop"]
_FINISHES: dict[str, Finish] = {"eos": "end", "word": "stop", "limit": "length"}
# What every request of `/completion` says: raw probabilities, and tokens beside their texts.
_SETTINGS = {
    "post_sampling_probs": False,
    "cache_prompt": True,
    "return_tokens": True,
    "response_fields": _FIELDS,
}
_GREEDY = {"samplers": ["temperature"], "temperature": 0.0}


class _Settings(msgspec.Struct):
    n_ctx: int | None = None


class Props(msgspec.Struct):
    """What `/props` tells of a model."""

    default_generation_settings: _Settings | None = None
    chat_template: str | None = None

    @property
    def context(self) -> int | None:
        """Tokens of the longest sequence."""
        context = (self.default_generation_settings or _Settings()).n_ctx or 0
        return context if context > 0 else None


async def read_props(client: HttpClient, model: str) -> Props:
    """Ask for `/props`."""
    answer = await client.get(f"/props?model={quote(model, safe='')}")
    return shaped(answer or {}, f"{client.origin}/props", Props)


class _Template(msgspec.Struct):
    prompt: str


class _Listed(msgspec.Struct):
    id: Count
    logprob: object = None


class _Written(_Listed):
    """A token that was written, with others that were likely."""

    top_logprobs: list[_Listed] = []


class _Timings(msgspec.Struct):
    prompt_n: Count | None = None
    predicted_n: Count | None = None


class _Answer(msgspec.Struct):
    """What `/completion` answers, or an event of it."""

    content: str = ""
    tokens: list[Count] | None = None
    completion_probabilities: list[_Written] | None = None
    timings: _Timings | None = None
    stop: bool = False
    stop_type: str | None = None
    tokens_predicted: Count | None = None


class LlamaServerDialect(TokenizingDialect):
    """llama-server's own interface: `/completion` with raw probabilities, `/tokenize`, `/apply-template`, `/props`.

    Prompts are sent as tokens, so that control tokens inside of documents stay plain text. Texts are scored in one request
    each, by a grammar that allows nothing but their tokens, and token by token where that cannot be; a token of either
    costs the server one step.
    """

    name = "llama-server"
    default_top_tokens = 1000
    writes_grammar = True

    async def describe(self, listed: Mapping[str, Any]) -> None:
        """Read `/props` and the model's entry."""
        props = await read_props(self.client, self.model)
        self.context = props.context
        template = props.chat_template
        self.has_chat = self.prefers_chat = bool(template)
        meta = listed.get("meta")
        meta = meta if isinstance(meta, dict) else {}
        self.identity = {key: meta.get(key) for key in ("n_params", "size", "n_vocab", "n_ctx_train", "ftype")}
        self.identity["chat_template"] = template
        self._templates: dict[tuple[str, ...], str] = {}
        self._begin: list[int] | None = None
        self._spans = True

    async def _probe_list(self, top: int) -> bool:
        del top  # llama-server lists any number
        return bool((await self._forced([*await self._beginning(), *await self.tokens("The")], 1, None, 1))[0])

    async def _ask_tokens(self, text: str, *, special: bool) -> list[int]:
        body = {"content": text, "add_special": False, "parse_special": special}
        return await self.post_for_tokens("/tokenize", body)

    async def _beginning(self) -> list[int]:
        """Return the token that begins every sequence, if this model has one."""
        if self._begin is None:
            # Some vocabularies would end the empty text as well.
            self._begin = (await self.post_for_tokens("/tokenize", {"content": "", "add_special": True}))[:1]
        return self._begin

    async def render(self, prompt: Prompt | str, style: Literal["chat", "plain"]) -> Rendered:
        """Turn a prompt into tokens; only the template's own words may be control tokens."""
        begin = await self._beginning()
        if isinstance(prompt, str) or style == "plain":
            text = prompt if isinstance(prompt, str) else prompt.plain()
            tokens = [*begin, *await self.tokens(text)]
            return Rendered(tokens, len(tokens))
        messages = prompt.messages()
        roles = tuple(message["role"] for message in messages)
        if roles not in self._templates:
            answer = await self.asked("/apply-template", {"messages": marked(messages)}, _Template)
            self._templates[roles] = answer.prompt
        tokens = await self.filled(self._templates[roles], messages)
        if begin and tokens[:1] != begin:
            tokens = [*begin, *tokens]
        if prompt.answer_start:
            tokens += await self.tokens(prompt.answer_start)
        return Rendered(tokens, len(tokens))

    async def write(self, prompt: Rendered, how: Sampling) -> tuple[Completion, Usage]:
        """Write one text, broken off as soon as it only repeats itself."""
        body: dict[str, Any] = {
            **_SETTINGS,
            "model": self.model,
            "prompt": prompt.content,
            "n_predict": how.max_tokens,
            "stop": how.stop,
            # These alone, in this order: no penalties, no other cut of the distribution.
            "samplers": ["temperature", "top_p"],
            "temperature": how.temperature,
            "top_p": how.top_p,
            "seed": how.seed,
            "n_probs": 1,
            "stream": True,
        }
        if how.grammar is not None:
            body["grammar"] = how.grammar
        return await self.client.stream(
            "/completion",
            body,
            lambda events: _Writing(self.where("/completion"), prompt.count, how.max_tokens).read(events),
            largest=how.largest_answer,
        )

    async def label_scores(self, prompt: Rendered, labels: Sequence[str]) -> tuple[OptionScores, Usage]:
        """Score labels by the list of the likeliest tokens."""
        forms = [await self.label_tokens(label) for label in labels]
        forced = forms[0][0] if forms else None
        known, usage = await self._forced(prompt.content, self.top_tokens, forced, prompt.count)
        # The forced token is listed whatever its rank, so that it bounds nothing.
        listed = [value for token, value in known.items() if token != forced]
        return option_scores(known, listed, forms), usage

    async def _forced(self, tokens: Any, top: int, token: int | None, count: int) -> tuple[dict[int, float], Usage]:
        """Return the raw log-probabilities of the likeliest next tokens, and of one token whatever its rank."""
        # The token is sampled by force: a token that is no whole character would come without probabilities.
        if token is None:
            some = await self.tokens("A")
            if not some:
                raise ServerError(f"{self.where('/tokenize')}: the answer has no tokens for 'A'; is its model damaged?")
            token = some[0]
        forced = {"n_predict": 1, "n_probs": top, "logit_bias": [[token, FORCED]]}
        answer = await self.asked("/completion", {**_SETTINGS, **_GREEDY, "prompt": tokens, **forced}, _Answer)
        known: dict[int, float] = {}
        for entry in (answer.completion_probabilities or [])[:1]:
            for each in (*entry.top_logprobs, entry):
                if each.id is None:
                    raise ServerError(
                        f"{self.where('/completion')}: a token of the answer has no id; is this a llama-server?"
                    )
                known[each.id] = log_probability(each.logprob, self.where("/completion"))
        return known, _usage(answer, count)

    async def text_scores(self, prompt: Rendered, text: str) -> tuple[NDArray[np.float64], Usage]:
        """Score a text's tokens in one request, or one by one."""
        tokens = await self.tokens(text)
        if not tokens:
            return np.zeros(0), Usage()
        assert isinstance(prompt.content, list)
        if self._spans:
            try:
                scored = await self._span(prompt, tokens)
            except ServerError as error:
                # 400: a grammar of tokens is not known yet. 500: the server lost its way in a character of several tokens.
                if error.status not in {400, 500}:
                    raise
                self._spans = error.status != 400
                scored = None
            if scored is not None:
                return scored
        scores = np.empty(len(tokens))
        usage = Usage()
        for index, token in enumerate(tokens):
            before = [*prompt.content, *tokens[:index]]
            known, spent = await self._forced(before, 1, token, len(before))
            if token not in known:
                known, more = await self._forced(before, 2**20, None, len(before))
                spent += more
            scores[index] = log_probability(known.get(token), self.where("/completion"))
            usage += spent
        # One text, however many requests.
        return scores, Usage(1, prompt.count + len(tokens) - 1, usage.evaluated_tokens, 0, usage.batches, usage.seconds)

    async def _span(self, prompt: Rendered, tokens: list[int]) -> tuple[NDArray[np.float64], Usage] | None:
        """Let the server write exactly these tokens; None if it tells the probabilities of others."""
        grammar = "root ::= " + " ".join(f"<[{token}]>" for token in tokens)
        span = {"prompt": prompt.content, "n_predict": len(tokens), "n_probs": 1, "grammar": grammar}
        answer = await self.asked("/completion", {**_SETTINGS, **_GREEDY, **span}, _Answer)
        entries = answer.completion_probabilities or []
        if [entry.id for entry in entries] != tokens:
            return None
        scores = np.array([log_probability(entry.logprob, self.where("/completion")) for entry in entries])
        usage = _usage(answer, prompt.count)
        return scores, Usage(
            1, prompt.count + len(tokens) - 1, usage.evaluated_tokens + len(tokens) - 1, 0, usage.batches, usage.seconds
        )


class _Writing(Writing):
    def feed(self, event: dict[str, Any]) -> bool:
        answer = shaped(event, self.where, _Answer)
        self.text.append(answer.content)
        for entry in answer.completion_probabilities or ():
            self.likely.append(log_probability(entry.logprob, self.where))
        if answer.stop or answer.stop_type is not None:
            self.finish = _FINISHES.get(answer.stop_type or "", "length")
            self.count = len(self.tokens) if answer.tokens_predicted is None else answer.tokens_predicted
            self.usage = _usage(answer, self.prompt_tokens)
            return True
        return self.take(answer.tokens or ())


def _usage(answer: _Answer, prompt_tokens: int) -> Usage:
    timings = answer.timings
    if timings is None:
        return Usage(1, prompt_tokens, prompt_tokens, 0, 1)
    generated = timings.predicted_n or 0
    # The last token written is never fed back.
    evaluated = (prompt_tokens if timings.prompt_n is None else timings.prompt_n) + max(generated - 1, 0)
    return Usage(1, prompt_tokens, evaluated, generated, 1)
