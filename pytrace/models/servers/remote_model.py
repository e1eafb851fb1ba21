"""Language models behind a server: llama-server, vLLM, llama-cpp-python's, and others that speak OpenAI's completions."""

from __future__ import annotations

import asyncio
import hashlib
import threading
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Literal, TypeVar

import msgspec

from pytrace.errors import ContextOverflowError, InputError, ModelError
from pytrace.models.base_model import BaseModel, GenerationRequest, check_bounds
from pytrace.models.language_model import Completion, ContinuationScore, OptionScores, Prompt, Style
from pytrace.models.request_context import current_request
from pytrace.models.servers.completions_server import CompletionsDialect, LlamaCppPythonDialect
from pytrace.models.servers.dialects import Rendered, Sampling, ServerDialect
from pytrace.models.servers.http_client import TIMEOUT, HttpClient
from pytrace.models.servers.llama_server import LlamaServerDialect
from pytrace.models.servers.server_answers import model_of, short_name
from pytrace.models.servers.vllm_server import VllmDialect
from pytrace.records import Usage
from pytrace.storage.closing import Closing

T = TypeVar("T")

Dialect = Literal["auto", "llama-server", "vllm", "llama-cpp-python", "openai"]
KEY_VARIABLE = "PYTRACE_API_KEY"
_DIALECTS: dict[str, type[ServerDialect]] = {
    dialect.name: dialect for dialect in (LlamaServerDialect, VllmDialect, LlamaCppPythonDialect, CompletionsDialect)
}


class RemoteModel(BaseModel, Closing):
    """A language model that a server runs, with the same three verbs as one inside this process.

    The server is asked what it is and what it can do; nothing but its address is contacted, and no redirect followed.
    """

    # Tested against running servers: llama-server b11549 and llama-cpp-python 0.3.36 in every test run, vLLM 0.32.0 on
    # a CPU by hand (`tests/test_remote_vllm.py`). Other servers and other versions were tested by the shape of their
    # protocol alone, against a double.
    # What a server leaves out of its list of the likeliest tokens is bounded and flagged (`OptionScores.bounded`);
    # `outside` is then the largest that it can be.
    # A name and a few figures are all that a server tells of its model, so `fingerprint` cannot prove that two runs had
    # the same weights.
    # `timeout` is the seconds for one whole answer, with all tries and pauses.
    # `name` is the model's name as the server has it, without folders; `dialect` is what the server was found to be.
    # Usage counts prompts as tokens asked for, and as evaluated what the server says that it evaluated; where it does
    # not tell what its cache spared, all. `batches` counts requests.

    # What a server answers beside other requests is rounded otherwise, and nobody here can forbid it that.
    deterministic = False

    def __init__(
        self,
        url: str,
        *,
        model: str | None = None,
        dialect: Dialect = "auto",
        style: Style = "auto",
        context: int | None = None,
        concurrency: int = 8,
        top_tokens: int | None = None,
        api_key_env: str = KEY_VARIABLE,
        connect_timeout: float = 10.0,
        timeout: float = TIMEOUT,
        attempts: int = 5,
    ) -> None:
        check_bounds(1, context=context, concurrency=concurrency, top_tokens=top_tokens, attempts=attempts)
        check_bounds(0.001, connect_timeout=connect_timeout, timeout=timeout)
        if dialect != "auto" and dialect not in _DIALECTS:
            raise InputError(f"the dialect {dialect!r} is none of: auto, {', '.join(_DIALECTS)}")
        self._client = HttpClient(
            url, api_key_env=api_key_env, concurrency=concurrency, connect_timeout=connect_timeout,
            timeout=timeout, attempts=attempts,
        )  # fmt: skip
        try:
            self._server = self._client.run(_meet(self._client, model, dialect, top_tokens))
            self.style = self._style(style)
        except BaseException:
            self._client.close()
            raise
        lengths = [length for length in (context, self._server.context) if length]
        self.context_tokens = min(lengths, default=self._server.assumed_context)
        self.dialect = self._server.name
        self.name = short_name(self._server.model)
        self.usage = Usage()
        self._lock = threading.Lock()
        self.demonstrations_dropped = 0

    def _style(self, style: Style) -> Literal["chat", "plain"]:
        if style == "chat" and not self._server.has_chat:
            raise ModelError(f"the server's model {self._server.model} has no chat template; use style='plain'")
        if style != "auto":
            return style
        return "chat" if self._server.prefers_chat else "plain"

    @property
    def fingerprint(self) -> str:
        """A hash of all that the server says of its model, with the prompt style; it cannot prove the weights."""
        known = {"dialect": self._server.name, "model": self.name, **self._server.identity}
        digest = hashlib.sha256(msgspec.json.encode(known, order="sorted")).hexdigest()
        return f"remote-{self._server.name}-{digest[:32]}-{self.style}"

    @cached_property
    def gives_logits(self) -> bool:
        """Whether the server gives log-probabilities: asked once, by a request for one token."""
        return self._client.run(self._server.gives_logits())

    def close(self) -> None:
        """Close the connections; any later call fails."""
        self._client.close()

    def count_tokens(self, text: str) -> int:
        """Count the tokens of a text: the server is asked once a text; a plain OpenAI server gets an estimate."""
        return self._client.run(self._server.count(text))

    async def _fit(self, prompt: Prompt | str, reserve: int) -> Rendered:
        """Render a prompt so that `reserve` tokens may follow, with fewer demonstrations if need be."""
        rendered = await self._server.render(prompt, self.style)
        while rendered.count + reserve > self.context_tokens and isinstance(prompt, Prompt) and prompt.demonstrations:
            prompt = msgspec.structs.replace(prompt, demonstrations=prompt.demonstrations[1:])
            self.demonstrations_dropped += 1
            rendered = await self._server.render(prompt, self.style)
        if rendered.count + reserve > self.context_tokens:
            raise ContextOverflowError(
                f"a prompt of {rendered.count} tokens and {reserve} for the answer do not fit the {self.context_tokens} tokens "
                f"of {self.name}, even without demonstrations; split the document, or start the server with a longer context"
            )
        if not rendered.count:
            raise ModelError(
                f"an empty prompt cannot be sent to {self.name}: it begins no sequence with a token; give it a text"
            )
        return rendered

    def _generate(self, call: GenerationRequest) -> list[list[Completion]]:
        if any(call.grammars) and not self._server.writes_grammar:
            raise ModelError(
                f"the server of {self.name} takes no grammar; use llama-server or vLLM, or leave the grammar out "
                "(for triples: --set spans=false)"
            )
        # Without chance all copies are the same text, which is written once.
        copies = call.n if call.temperature > 0.0 else 1

        async def write(task: int) -> tuple[Completion, Usage]:
            index, copy = divmod(task, copies)
            limit = call.limits[index]
            prompt = await self._fit(call.prompts[index], limit)
            seed = _seed(call.seed, index, copy)
            how = Sampling(limit, call.stop, call.temperature, call.top_p, seed, call.grammars[index])
            written, usage = await self._server.write(prompt, how)
            return msgspec.structs.replace(written, text=self._client.without_key(written.text)), usage

        rows: list[list[Completion | None]] = [[None] * copies for _ in call.prompts]

        def take(task: int, completion: Completion) -> None:
            index, copy = divmod(task, copies)
            rows[index][copy] = completion
            if call.done is not None and None not in rows[index]:
                call.done(index, [text for text in rows[index] * (call.n // copies) if text is not None])

        self._each(write, len(call.prompts) * copies, take)
        return [[text for text in row * (call.n // copies) if text is not None] for row in rows]

    def _score_options(self, prompts: Sequence[Prompt | str], options: Sequence[Sequence[str]]) -> list[OptionScores]:
        async def score(index: int) -> tuple[OptionScores, Usage]:
            await self._server.require_logits()
            return await self._server.label_scores(await self._fit(prompts[index], 1), list(options[index]))

        return self._each(score, len(prompts))

    def _score_continuations(
        self, prompts: Sequence[Prompt | str], continuations: Sequence[Sequence[str]]
    ) -> list[list[ContinuationScore]]:
        pairs = [(row, text) for row, texts in enumerate(continuations) for text in texts]

        fitted: dict[int, asyncio.Task[Rendered]] = {}

        async def fit(row: int) -> Rendered:
            lengths = [await self._server.count(text) for text in continuations[row]]
            return await self._fit(prompts[row], max(1, *lengths))

        async def score(task: int) -> tuple[ContinuationScore, Usage]:
            await self._server.require_logits()
            row, text = pairs[task]
            # A prompt is fitted once for all of its texts, so that all are scored after the same words.
            if row not in fitted:
                fitted[row] = asyncio.get_running_loop().create_task(fit(row))
            scores, usage = await self._server.text_scores(await fitted[row], text)
            return ContinuationScore(scores), usage

        scored = iter(self._each(score, len(pairs)))
        return [[next(scored) for _ in texts] for texts in continuations]

    def _each(self, work: Any, count: int, take: Callable[[int, Any], None] | None = None) -> list[Any]:
        """Do pieces of work, count what they cost, and return their results in order."""
        results: list[Any] = [None] * count
        started = time.monotonic()
        try:
            for index, (result, usage) in self._client.each(work, count):
                self._spend(usage)
                results[index] = result
                if take is not None:
                    take(index, result)
        finally:
            self._spend(Usage(seconds=time.monotonic() - started))
        return results

    def _spend(self, usage: Usage) -> None:
        with self._lock:
            self.usage += usage
        if (request := current_request()) is not None:
            request.spend(usage)


async def _meet(client: HttpClient, model: str | None, dialect: Dialect, top_tokens: int | None) -> ServerDialect:
    """Find out what a server is, and which model it has."""
    listing = await client.get("/v1/models", patient=False)
    model, listed = model_of(listing, model, client, "--llm-model")
    kind = dialect if dialect != "auto" else await _recognise(client, listed.get("owned_by"))
    server = _DIALECTS[kind](client, model, top_tokens)
    await server.describe(listed)
    return server


async def _recognise(client: HttpClient, owner: object) -> str:
    if owner in ("llamacpp", "vllm"):  # what is no text may not be hashable
        return LlamaServerDialect.name if owner == "llamacpp" else VllmDialect.name
    if owner == "me":
        schema = await client.get("/openapi.json")
        info = schema.get("info") if isinstance(schema, dict) else None
        title = info.get("title") if isinstance(info, dict) else None
        if isinstance(title, str) and "llama.cpp Python" in title:
            return LlamaCppPythonDialect.name
    return CompletionsDialect.name


def _seed(seed: int, index: int, copy: int) -> int:
    """Return the seed of one completion, alike however prompts are batched; 31 bits, which every server takes."""
    digest = hashlib.blake2b(f"{seed}/{index}/{copy}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") % 2**31
