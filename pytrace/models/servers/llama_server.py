"""llama-server: the server of llama.cpp itself, which knows tokens, raw probabilities and grammars.

Run in the tests: build b11549, out of the package xllamacpp 2026.10. The parameters are those of its README.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal
from urllib.parse import quote

import msgspec
import numpy as np
from numpy.typing import NDArray

from pytrace.errors import ModelError, ServerError
from pytrace.models.language_model import OptionScores, Prompt
from pytrace.models.llama.generation import runs_away
from pytrace.models.servers.dialects import (
    MARK,
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

_FIELDS = ["content", "tokens", "completion_probabilities", "timings", "stop_type", "tokens_predicted", "stop"]
_FINISHES: dict[str, Finish] = {"eos": "end", "word": "stop", "limit": "length"}
# Added to a logit it makes a token the likeliest; raw probabilities do not change.
_FORCED = 1e4


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
        self.has_chat = bool(template)
        meta = listed.get("meta") or {}
        self.identity = {key: meta.get(key) for key in ("n_params", "size", "n_vocab", "n_ctx_train", "ftype")}
        self.identity["chat_template"] = template
        self._templates: dict[tuple[str, ...], list[str]] = {}
        self._begin: list[int] | None = None
        self._spans = True

    async def _probe(self) -> bool:
        return bool((await self._forced([*await self._beginning(), *await self.tokens("The")], 1, None, 1))[0])

    async def _post(self, path: str, body: Mapping[str, Any]) -> Any:
        # A server of several models wants to know which.
        return await self.client.post(path, {"model": self.model, **body})

    async def _ask_tokens(self, text: str) -> list[int]:
        answer = await self._post("/tokenize", {"content": text, "add_special": False, "parse_special": False})
        return msgspec.convert(field(answer, "/tokenize", "tokens"), list[int])

    async def _beginning(self) -> list[int]:
        """Return the token that begins every sequence, if this model has one."""
        if self._begin is None:
            answer = await self._post("/tokenize", {"content": "", "add_special": True})
            # Some vocabularies would end the empty text as well.
            self._begin = msgspec.convert(field(answer, "/tokenize", "tokens"), list[int])[:1]
        return self._begin

    async def render(self, prompt: Prompt | str, style: Literal["chat", "plain"]) -> Rendered:
        """Turn a prompt into tokens; only the template's own words may be control tokens."""
        begin = await self._beginning()
        if isinstance(prompt, str) or style == "plain":
            text = prompt if isinstance(prompt, str) else prompt.plain()
            tokens = [*begin, *await self.tokens(text)]
            return Rendered(tokens, len(tokens))
        turns = [("system", prompt.instruction)] if prompt.instruction else []
        for given, output in prompt.demonstrations:
            turns += [("user", given), ("assistant", output)]
        turns.append(("user", prompt.input))
        parts = await self._template(tuple(role for role, _ in turns))
        tokens = []
        for index, part in enumerate(parts):
            if index % 2:
                tokens += await self.tokens(turns[int(part)][1])
            else:
                tokens += await self._template_tokens(part)
        if begin and tokens[:1] != begin:
            tokens = [*begin, *tokens]
        if prompt.answer_start:
            tokens += await self.tokens(prompt.answer_start)
        return Rendered(tokens, len(tokens))

    async def _template(self, roles: tuple[str, ...]) -> list[str]:
        """Return the template's words around messages of these roles: words, number of a message, words and so on."""
        known = self._templates.get(roles)
        if known is not None:
            return known
        messages = [{"role": role, "content": f"{MARK}{index}{MARK}"} for index, role in enumerate(roles)]
        answer = await self._post("/apply-template", {"messages": messages})
        parts: list[str] = str(field(answer, "/apply-template", "prompt")).split(MARK)
        if parts[1::2] != [str(index) for index in range(len(roles))]:
            raise ModelError(f"the chat template of {self.model} leaves a message out or moves it; use style='plain'")
        self._templates[roles] = parts
        return parts

    async def _template_tokens(self, text: str) -> list[int]:
        if not text:
            return []
        key = f"{MARK}{text}"
        if key not in self._known:
            answer = await self._post("/tokenize", {"content": text, "add_special": False, "parse_special": True})
            self._known[key] = msgspec.convert(field(answer, "/tokenize", "tokens"), list[int])
        return self._known[key]

    async def write(self, prompt: Rendered, how: Sampling) -> Written:
        """Write one text, broken off as soon as it only repeats itself."""
        body: dict[str, Any] = {
            "prompt": prompt.content,
            "n_predict": how.max_tokens,
            "stop": how.stop,
            # These alone, in this order: no penalties, no other cut of the distribution.
            "samplers": ["temperature", "top_p"],
            "temperature": how.temperature,
            "top_p": how.top_p,
            "seed": how.seed,
            "n_probs": 1,
            "post_sampling_probs": False,
            "cache_prompt": True,
            "return_tokens": True,
            "stream": True,
            "response_fields": _FIELDS,
        }
        if how.grammar is not None:
            body["grammar"] = how.grammar
        return (await self.client.stream("/completion", {"model": self.model, **body}, _Writing)).written(prompt.count)

    async def label_scores(self, prompt: Rendered, labels: Sequence[str]) -> tuple[OptionScores, Usage]:
        """Score labels by the list of the likeliest tokens."""
        forms = [await self.label_tokens(label) for label in labels]
        told, usage = await self._forced(prompt.content, self.top_tokens, forms[0][0] if forms else None, prompt.count)
        likeliest = {token: value for token, value in told.items() if not forms or token != forms[0][0]}
        return option_scores(told, list(likeliest.values()), forms), usage

    async def _forced(self, tokens: Any, top: int, token: int | None, count: int) -> tuple[dict[int, float], Usage]:
        """Return the raw log-probabilities of the likeliest next tokens, and of one token whatever its rank."""
        # The token is sampled by force: a token that is no whole character would come without probabilities.
        if token is None:
            token = (await self.tokens("A"))[0]
        body = {
            "prompt": tokens,
            "n_predict": 1,
            "n_probs": top,
            "post_sampling_probs": False,
            "samplers": ["temperature"],
            "temperature": 0.0,
            "logit_bias": [[token, _FORCED]],
            "cache_prompt": True,
            "return_tokens": True,
            "response_fields": _FIELDS,
        }
        answer = await self._post("/completion", body)
        told: dict[int, float] = {}
        for entry in (answer.get("completion_probabilities") if isinstance(answer, dict) else None) or ():
            for one in (*field(entry, "/completion", "top_logprobs"), entry):
                told[int(field(one, "/completion", "id"))] = log_probability(one.get("logprob"), "/completion")
            break
        return told, _usage(answer, count)

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
            told, spent = await self._forced(before, 1, token, len(before))
            if token not in told:
                told, more = await self._forced(before, 2**20, None, len(before))
                spent += more
            scores[index] = log_probability(told.get(token), "/completion")
            usage += spent
        # One text, however many requests.
        return scores, Usage(1, prompt.count + len(tokens) - 1, usage.evaluated_tokens, 0, usage.batches, usage.seconds)

    async def _span(self, prompt: Rendered, tokens: list[int]) -> tuple[NDArray[np.float64], Usage] | None:
        """Let the server write exactly these tokens; None if it tells the probabilities of others."""
        body = {
            "prompt": prompt.content,
            "n_predict": len(tokens),
            "n_probs": 1,
            "post_sampling_probs": False,
            "grammar": "root ::= " + " ".join(f"<[{token}]>" for token in tokens),
            "samplers": ["temperature"],
            "temperature": 0.0,
            "cache_prompt": True,
            "return_tokens": True,
            "response_fields": _FIELDS,
        }
        answer = await self._post("/completion", body)
        entries = answer.get("completion_probabilities") or []
        if [entry.get("id") for entry in entries] != tokens:
            return None
        scores = np.array([log_probability(entry.get("logprob"), "/completion") for entry in entries])
        usage = _usage(answer, prompt.count)
        return scores, Usage(
            1, prompt.count + len(tokens) - 1, usage.evaluated_tokens + len(tokens) - 1, 0, usage.batches, usage.seconds
        )


class _Writing:
    """The events of one text being written."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._tokens: list[int] = []
        self._probabilities: list[tuple[int, float]] = []
        self._end: dict[str, Any] | None = None
        self._repeats = False

    @property
    def complete(self) -> bool:
        return self._end is not None or self._repeats

    def feed(self, event: dict[str, Any]) -> bool:
        self._text.append(str(event.get("content", "")))
        for entry in event.get("completion_probabilities") or ():
            value = log_probability(entry.get("logprob"), "/completion")
            self._probabilities.append((int(field(entry, "/completion", "id")), value))
        if event.get("stop") or "stop_type" in event:
            self._end = event
            return True
        for token in event.get("tokens") or ():
            self._tokens.append(int(token))
            if runs_away(self._tokens):
                self._repeats = True
        return self._repeats

    def written(self, prompt_tokens: int) -> Written:
        finish: Finish = "repetition"
        tokens = len(self._tokens)
        likely = [value for _, value in self._probabilities]
        usage = Usage(1, prompt_tokens, prompt_tokens + tokens, tokens, 1)
        if self._end is not None and not self._repeats:
            finish = _FINISHES.get(str(self._end.get("stop_type")), "length")
            usage = _usage(self._end, prompt_tokens)
            tokens = int(self._end.get("tokens_predicted", tokens))
            if finish == "end":
                # The token that ends a sequence is no part of the text.
                tokens = max(tokens - 1, 0)
                likely = likely[:tokens]
        # A token that is no whole character comes without its probability.
        total = float(sum(likely)) if len(likely) >= tokens or finish == "stop" else math.nan
        return Written("".join(self._text), tokens, finish, total, usage)


def _usage(answer: Any, prompt_tokens: int) -> Usage:
    timings = answer.get("timings") if isinstance(answer, dict) else None
    if not timings:
        return Usage(1, prompt_tokens, prompt_tokens, 0, 1)
    generated = int(timings.get("predicted_n", 0))
    # The last token written is never fed back.
    evaluated = int(timings.get("prompt_n", prompt_tokens)) + max(generated - 1, 0)
    return Usage(1, prompt_tokens, evaluated, generated, 1)
