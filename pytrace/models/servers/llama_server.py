"""llama-server: the server of llama.cpp itself, which knows tokens, raw probabilities and grammars.

Run in the tests: build b11549, out of the package xllamacpp 2026.10. The parameters are those of its README.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from pytrace.errors import ServerError
from pytrace.models.language_model import Completion, OptionScores, Prompt
from pytrace.models.servers.dialects import (
    FORCED,
    Finish,
    Rendered,
    Sampling,
    TokenizingDialect,
    Writing,
    field,
    log_probability,
    marked,
    option_scores,
)
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
        props = await self.client.get(f"/props?model={quote(self.model, safe='')}") or {}
        context = props.get("default_generation_settings", {}).get("n_ctx")
        self.context = context if isinstance(context, int) and context > 0 else None
        template = props.get("chat_template")
        self.has_chat = self.prefers_chat = bool(template)
        meta = listed.get("meta") or {}
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
            answer = await self.post("/apply-template", {"messages": marked(messages)})
            self._templates[roles] = str(field(answer, "/apply-template", "prompt"))
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
            lambda events: _Writing(prompt.count, how.max_tokens).read(events),
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
            token = (await self.tokens("A"))[0]
        forced = {"n_predict": 1, "n_probs": top, "logit_bias": [[token, FORCED]]}
        answer = await self.post("/completion", {**_SETTINGS, **_GREEDY, "prompt": tokens, **forced})
        known: dict[int, float] = {}
        for entry in ((answer.get("completion_probabilities") if isinstance(answer, dict) else None) or ())[:1]:
            for listed in (*field(entry, "/completion", "top_logprobs"), entry):
                known[int(field(listed, "/completion", "id"))] = log_probability(listed.get("logprob"), "/completion")
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
            scores[index] = log_probability(known.get(token), "/completion")
            usage += spent
        # One text, however many requests.
        return scores, Usage(1, prompt.count + len(tokens) - 1, usage.evaluated_tokens, 0, usage.batches, usage.seconds)

    async def _span(self, prompt: Rendered, tokens: list[int]) -> tuple[NDArray[np.float64], Usage] | None:
        """Let the server write exactly these tokens; None if it tells the probabilities of others."""
        grammar = "root ::= " + " ".join(f"<[{token}]>" for token in tokens)
        span = {"prompt": prompt.content, "n_predict": len(tokens), "n_probs": 1, "grammar": grammar}
        answer = await self.post("/completion", {**_SETTINGS, **_GREEDY, **span})
        entries = answer.get("completion_probabilities") or []
        if [entry.get("id") for entry in entries] != tokens:
            return None
        scores = np.array([log_probability(entry.get("logprob"), "/completion") for entry in entries])
        usage = _usage(answer, prompt.count)
        return scores, Usage(
            1, prompt.count + len(tokens) - 1, usage.evaluated_tokens + len(tokens) - 1, 0, usage.batches, usage.seconds
        )


class _Writing(Writing):
    def feed(self, event: dict[str, Any]) -> bool:
        self.text.append(str(event.get("content", "")))
        for entry in event.get("completion_probabilities") or ():
            self.likely.append(log_probability(entry.get("logprob"), "/completion"))
        if event.get("stop") or "stop_type" in event:
            self.finish = _FINISHES.get(str(event.get("stop_type")), "length")
            self.count = int(event.get("tokens_predicted", len(self.tokens)))
            self.usage = _usage(event, self.prompt_tokens)
            return True
        return self.take(event.get("tokens") or ())


def _usage(answer: Any, prompt_tokens: int) -> Usage:
    timings = answer.get("timings") if isinstance(answer, dict) else None
    if not timings:
        return Usage(1, prompt_tokens, prompt_tokens, 0, 1)
    generated = int(timings.get("predicted_n", 0))
    # The last token written is never fed back.
    evaluated = int(timings.get("prompt_n", prompt_tokens)) + max(generated - 1, 0)
    return Usage(1, prompt_tokens, evaluated, generated, 1)
