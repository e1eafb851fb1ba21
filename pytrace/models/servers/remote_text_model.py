"""What encoders and rerankers on servers have in common: which model it is, and requests of a size that its server takes."""

from __future__ import annotations

import abc
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, ClassVar, TypeVar

import msgspec

from pytrace.errors import ServerError
from pytrace.models.base_model import check_bounds
from pytrace.models.servers.http_client import HttpClient
from pytrace.models.servers.llama_server import read_props
from pytrace.models.servers.server_answers import Tokens, model_of, shaped, short_name
from pytrace.storage.closing import Closing

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

# What a server says of a request that is too large for it; a smaller one may do. llama-server says 500 of a long text.
_TOO_MUCH = frozenset({400, 413, 422, 500})
# What servers say of the weights and of how texts are cut; all else may change without the vectors or scores.
_SAID_OF_MODEL = ("root", "max_model_len")
_SAID_BY_LLAMA_SERVER = ("n_params", "size", "n_vocab", "n_embd", "n_ctx", "ftype")
_SAID_BY_TEI = ("model_id", "model_sha", "model_dtype", "model_type", "max_input_length")
# A pair is [CLS] question [SEP] [SEP] passage [SEP] at most.
_SPECIAL_TOKENS = 4
_REMEDIES = {
    "llama-server": "split it, or start the server with an --ubatch-size that holds it",
    "tei": "split it, or start the server with --auto-truncate",
    "vllm": "split it, or pass truncate=True",
}


class RemoteTextModel(Closing):
    """A model on a server that turns texts into numbers.

    `kind` is what the server was found to be: "tei" (Text Embeddings Inference), "llama-server", "vllm", or "openai" for any
    other; `name` is the model's name as the server has it, without folders.
    """

    # The last part of the address where the whole endpoint is given, and the command line's option for the model's name.
    endpoint: ClassVar[str]
    option: ClassVar[str]

    def __init__(
        self,
        url: str,
        *,
        model: str | None,
        truncate: bool,
        batch_texts: int,
        concurrency: int,
        api_key_env: str,
        connect_timeout: float,
        timeout: float,
        attempts: int,
    ) -> None:
        check_bounds(1, batch_texts=batch_texts, concurrency=concurrency, attempts=attempts)
        check_bounds(0.001, connect_timeout=connect_timeout, timeout=timeout)
        self._truncate = truncate
        self._most = batch_texts
        base, self._version, self._endpoint = parted(url, self.endpoint)
        self._client = HttpClient(
            base, api_key_env=api_key_env, concurrency=concurrency, connect_timeout=connect_timeout, timeout=timeout,
            attempts=attempts,
        )  # fmt: skip
        try:
            self._client.run(self._meet(model))
        except BaseException:
            self._client.close()
            raise
        self.name = short_name(self._model)

    def close(self) -> None:
        """Close the connections; any later call fails."""
        self._client.close()

    async def _meet(self, model: str | None) -> None:
        """Find out what the server is, which model it has, and whether that does what it is wanted for."""
        client = self._client

        async def told(path: str) -> Any:
            try:
                return await client.get(path, patient=False)
            except ServerError as error:
                if model is None or not 400 <= (error.status or 0) < 500:
                    raise
                return None  # a gateway may keep it to itself, and let the model be used

        listing = await told("/v1/models")
        # Text Embeddings Inference has one model, and no list.
        info = await told("/info") if listing is None else None
        if isinstance(info, dict) and isinstance(info.get("model_id"), str):
            self.kind = "tei"
            served = info.get("served_model_name")
            names = [each for each in (served, info["model_id"]) if isinstance(each, str)]
            listing = {"data": [{"id": each} for each in names]}
            model_of(listing, model or names[0], client, self.option)
            self._model = names[0]
            self._identity = {key: info.get(key) for key in _SAID_BY_TEI}
            most = info.get("max_client_batch_size")
            if type(most) is int and most > 0:
                self._most = min(self._most, most)
            self._cuts = info.get("auto_truncate") is True
        else:
            self._model, entry = model_of(listing, model, client, self.option)
            owner = entry.get("owned_by")
            self.kind = "llama-server" if owner == "llamacpp" else "vllm" if owner == "vllm" else "openai"
            meta = entry.get("meta")
            figures = meta if self.kind == "llama-server" and isinstance(meta, dict) else {}
            self._identity = {key: entry[key] for key in _SAID_OF_MODEL if entry.get(key) is not None}
            self._identity |= {key: figures.get(key) for key in _SAID_BY_LLAMA_SERVER if key in figures}
            self._cuts = False
        await self._try()

    @abc.abstractmethod
    async def _try(self) -> None:
        """Ask for something small, to learn what the server gives."""

    def _hash(self, **rules: object) -> str:
        """Return SHA-256 over what the server says of its model, and the rules by which it is used."""
        known = {"server": self.kind, "endpoint": self.endpoint, "model": self.name, **self._identity, **rules}
        return hashlib.sha256(msgspec.json.encode(known, order="sorted")).hexdigest()

    def _where(self, path: str) -> str:
        return f"{self._client.origin}{path}"

    def _parts(self, items: Sequence[_Item], size: Callable[[_Item], int], most: int) -> list[list[_Item]]:
        """Part items into requests: each as many as the server takes, and together no larger than `most`, or one."""
        parts: list[list[_Item]] = []
        used = 0
        for item in items:
            length = size(item)
            if not parts or len(parts[-1]) >= self._most or used + length > most:
                parts.append([])
                used = 0
            parts[-1].append(item)
            used += length
        return parts

    async def _in_halves(
        self,
        items: Sequence[_Item],
        ask: Callable[[Sequence[_Item]], Awaitable[Sequence[_Result]]],
        described: Callable[[_Item], str],
        cut: Callable[[_Item], Awaitable[_Item | None]],
    ) -> list[_Result]:
        """Ask for items together, or in halves where that is too much for the server; one that is too much alone is cut or named."""
        refused = len(items) <= self._most
        if refused:
            try:
                return list(await ask(items))
            except ServerError as error:
                if error.status not in _TOO_MUCH:
                    raise
                if len(items) == 1:
                    if (shorter := await cut(items[0])) is not None:
                        return await self._in_halves([shorter], ask, described, cut)
                    remedy = _REMEDIES.get(self.kind, "split it")
                    message = (
                        f"{described(items[0])} is refused ({error}); if it is longer than the model takes, {remedy}"
                    )
                    raise ServerError(message, status=error.status) from error
        half = (len(items) + 1) // 2
        both = [
            *await self._in_halves(items[:half], ask, described, cut),
            *await self._in_halves(items[half:], ask, described, cut),
        ]
        if refused:  # though no single item is too much: it was their number
            self._most = min(self._most, half)
        return both

    async def _shorter(self, text: str, beside: str = "") -> str | None:
        """Cut a text to the context of a llama-server, which does not do that itself; None where it is not too long for that."""
        if self.kind != "llama-server" or not self._truncate:
            return None
        context = (await read_props(self._client, self._model)).context or 0
        room = context - _SPECIAL_TOKENS - await self._count(beside)
        whole = text
        while text and room > 0 and (count := await self._count(text)) > room:
            text = text[: len(text) * room // count]
        return text if len(text) < len(whole) else None

    async def _count(self, text: str) -> int:
        answer = await self._client.post("/tokenize", {"model": self._model, "content": text})
        return len(shaped(answer, self._where("/tokenize"), Tokens).tokens)


def parted(url: str, endpoint: str) -> tuple[str, str, str]:
    """Part an address into the server's root, the version that it names, and the endpoint if it does; either may be empty."""
    scheme, colon, rest = url.strip().partition("://")
    host, slash, path = rest.partition("/")
    path = f"{slash}{path}".rstrip("/")
    last = f"/{endpoint}" if path.endswith(f"/{endpoint}") else ""
    path = path.removesuffix(last)
    # Cohere has a second version.
    version = next((each for each in ("/v1", "/v2") if path.endswith(each)), "")
    return f"{scheme}{colon}{host}{path.removesuffix(version)}", version, last


def shown(text: str) -> str:
    """Name a text in a message: its beginning and its length."""
    return f"{text[:60]!a}{'…' if len(text) > 60 else ''} ({len(text):,} characters)"


def check_rows(indices: Sequence[int], count: int, where: str, what: str) -> None:
    """Refuse an answer that has not one row for each thing that was asked for."""
    if sorted(indices) != list(range(count)):
        given = ", ".join(map(str, indices[:8])) + (", …" if len(indices) > 8 else "")
        raise ServerError(
            f"{where}: the answer has {len(indices)} rows (index {given or 'none'}) for {count} {what}; each wants one row, "
            f"0 to {count - 1}; look at the server's log"
        )
