"""Encoders behind a server that speaks OpenAI's embeddings: llama-server, Text Embeddings Inference, vLLM and others."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import get_args

import msgspec
import numpy as np

from pytrace.errors import InputError, ServerError, StoreError
from pytrace.models.base_model import check_bounds
from pytrace.models.encoders.encoder import Vectors
from pytrace.models.encoders.encoder_files import Kind
from pytrace.models.encoders.heads import normalized
from pytrace.models.encoders.text_vectors import TextVectors, text_key
from pytrace.models.encoders.vector_cache import VectorCache
from pytrace.models.servers.dialects import PROBE
from pytrace.models.servers.http_client import TIMEOUT
from pytrace.models.servers.remote_model import KEY_VARIABLE
from pytrace.models.servers.remote_text_model import RemoteTextModel, check_rows, shown
from pytrace.models.servers.server_answers import Count, shaped

# Characters of one request's texts: some 16,000 tokens, where OpenAI takes 300,000 and proxies a megabyte.
_MOST_CHARACTERS = 1 << 16
# Bytes of an answer: a number takes up to 25 with its comma, more where it stands on a line of its own.
_NUMBER, _ROW, _PROBED = 64, 1 << 10, 4 << 20
# The largest number that `pytrace.models.encoders.encoder.encode` lets through.
_LARGEST = 1e15
# Two runs of one model differ by rounding, in float16 by some 10^-4.
_SAME = 0.99


class _Row(msgspec.Struct):
    """One text's vector: numbers, or the bytes of float32 in base64."""

    index: Count
    embedding: list[float] | str


class _Answer(msgspec.Struct):
    """What `/v1/embeddings` answers."""

    data: list[_Row]


class RemoteEncoder(RemoteTextModel):
    """A text encoder that a server runs.

    Texts go out in batches, many at once; equal texts are asked for once, and vectors are kept in memory and, where
    `cache_directory` names one, on disk. A batch that the server refuses is asked for in halves, so that a text that is too
    long is named.

    Parameters
    ----------
    url
        The server's address: its root, with ``/v1`` at its end, or the whole endpoint.
    model
        The model's name; it may be left out where the server has one.
    prompts
        Texts that go before those of a kind, "query" or "passage", as the model's card has them. A server's own prompts are
        not used; one that adds some by default (`--default-prompt`) adds them beside these.
    normalize
        Whether vectors are brought to length 1 here; else they are as the server gives them.
    truncate_dim
        Numbers a vector, fewer than the model has (`dimensions`): for models trained so. A server that ignores it is refused.
    truncate
        Whether a text longer than the model takes is cut: by vLLM and by Text Embeddings Inference (``--auto-truncate``), and
        for llama-server here, to about its context; elsewhere such a text is an error that names it.
    batch_texts
        The most texts in a request; fewer are sent where the server takes no more, or texts are long.
    concurrency, api_key_env, connect_timeout, timeout, attempts
        As for `RemoteModel`.
    cache_bytes
        Bytes of vectors kept in memory.
    cache_directory
        Where vectors are kept on disk, for this process and others.

    Raises
    ------
    InputError
        The address, an option or the model's name cannot be used.
    ServerError
        The server cannot be reached, refuses, or gives no vectors.
    StoreError
        The directory keeps vectors of a model with other weights under the same name, or cannot be used.
    """

    # A name and a few figures are all that most servers tell of a model, so `fingerprint` cannot prove that two runs had the
    # same weights; Text Embeddings Inference alone tells the revision. Vectors on disk are compared with a fresh one.

    endpoint = "embeddings"
    option = "--encoder-set model="

    def __init__(
        self,
        url: str,
        *,
        model: str | None = None,
        prompts: Mapping[Kind, str] | None = None,
        normalize: bool = False,
        truncate_dim: int | None = None,
        truncate: bool = True,
        batch_texts: int = 32,
        concurrency: int = 8,
        api_key_env: str = KEY_VARIABLE,
        connect_timeout: float = 10.0,
        timeout: float = TIMEOUT,
        attempts: int = 5,
        cache_bytes: int = 32 << 20,
        cache_directory: str | os.PathLike[str] | None = None,
    ) -> None:
        check_bounds(1, truncate_dim=truncate_dim)
        if unknown := set(prompts or ()) - set(get_args(Kind)):
            raise InputError(f"prompts are of kind 'query' or 'passage', not {min(unknown)!r}; correct it")
        self._prompts: dict[Kind, str] = {"query": "", "passage": "", **(prompts or {})}
        self._normalize = normalize
        self.dimension = truncate_dim or 0
        self._body: dict[str, object] = {"encoding_format": "base64"}
        if truncate_dim is not None:
            self._body["dimensions"] = truncate_dim
        super().__init__(
            url, model=model, truncate=truncate, batch_texts=batch_texts, concurrency=concurrency, api_key_env=api_key_env,
            connect_timeout=connect_timeout, timeout=timeout, attempts=attempts,
        )  # fmt: skip
        try:
            disk = None if cache_directory is None else self._opened(cache_directory)
        except BaseException:
            self.close()
            raise
        self._texts = TextVectors(self._make, dimension=self.dimension, cache_bytes=cache_bytes, disk=disk)

    @property
    def fingerprint(self) -> str:
        """A hash of all that the server says of its model, the dimension, prompts and normalisation; it cannot prove the weights."""
        return self._hash(dimension=self.dimension, prompts=self._prompts, normalize=self._normalize)

    def encode(self, texts: Sequence[str], *, kind: Kind = "passage") -> Vectors:
        """Encode texts.

        Parameters
        ----------
        texts
            Texts, which get the prompt of their kind.
        kind
            "query" or "passage".

        Returns
        -------
        ndarray
            float32 [n, dimension], one row a text, in the order of the texts.

        Raises
        ------
        ServerError
            The server cannot be reached, refuses a text, or answers what makes no sense.
        """
        return self._texts.of(texts, kind, self._prompts.__getitem__)

    async def _try(self) -> None:
        """Encode a first text, to learn the dimension and in which form vectors come."""
        path = self._endpoint and f"{self._version}{self._endpoint}"
        self._path = path or f"{self._version or '/v1'}/{self.endpoint}"
        if self.kind == "vllm" and self._truncate:
            self._body["truncate_prompt_tokens"] = -1
        if self.kind == "tei" and self._cuts and not self._truncate:
            raise InputError(
                f"the server at {self._client.origin} cuts long texts; start it with --auto-truncate false, or leave "
                "truncate=False out"
            )
        if self.kind == "llama-server" and await self._reranks():
            raise ServerError(
                f"the server at {self._client.origin} was started with --reranking, and what it gives for vectors is nothing; "
                "start one with --embeddings for an encoder"
            )
        try:
            [vector] = await self._ask([PROBE])
        except ServerError as error:
            if error.status not in {400, 422}:
                raise
            # A server that does not know base64; where it is something else, that is told now.
            del self._body["encoding_format"]
            [vector] = await self._ask([PROBE])
        if not vector.any():
            raise ServerError(
                f"{self._where(self._path)}: the vector of {PROBE!r} is all zeros; {self._model} is no encoder, or the server "
                "was not started to embed"
            )
        self.dimension = len(vector)
        self._probe = vector

    async def _reranks(self) -> bool:
        """Whether a llama-server ranks: then its embeddings are memory that nobody wrote."""
        body = {"model": self._model, "query": PROBE, "documents": [PROBE]}
        try:
            return await self._client.post("/v1/rerank", body, missing=True) is not None
        except ServerError as error:
            if error.status is None:
                raise
            return False

    def _opened(self, directory: str | os.PathLike[str]) -> VectorCache:
        """Open the vectors on disk, if they are this model's."""
        disk = VectorCache(directory, fingerprint=self.fingerprint, dimension=self.dimension)
        known, vectors = disk.get([text_key(PROBE)])
        if known.all():
            lengths = float(np.linalg.norm(vectors[0]) * np.linalg.norm(self._probe))
            cosine = float(vectors[0] @ self._probe) / lengths if lengths > 0 else 0.0
            if cosine < _SAME:
                raise StoreError(
                    f"the vector cache {disk.directory} keeps other vectors under the name {self.name} than "
                    f"{self._client.origin} gives (cosine {cosine:.3f} for {PROBE!r}): its weights were exchanged; name another "
                    "directory, or delete that one"
                )
        else:
            disk.put([text_key(PROBE)], self._probe[None])
        return disk

    def _make(self, texts: list[str]) -> Iterator[tuple[list[str], Vectors]]:
        """Encode texts, and yield each batch as soon as it is there."""
        batches = self._parts(texts, len, _MOST_CHARACTERS)

        async def encode(index: int) -> list[Vectors]:
            return await self._in_halves(batches[index], self._ask, self._described, self._shorter)

        for index, vectors in self._client.each(encode, len(batches)):
            yield batches[index], np.stack(vectors)

    def _described(self, text: str) -> str:
        # A prompt may be longer than what a message shows.
        prompt = next((each for each in self._prompts.values() if each and text.startswith(each)), "")
        return f"the text {shown(text.removeprefix(prompt))}"

    async def _ask(self, texts: Sequence[str]) -> list[Vectors]:
        where = self._where(self._path)
        largest = _PROBED if not self.dimension else _PROBED + len(texts) * (_ROW + _NUMBER * self.dimension)
        body = {"model": self._model, "input": list(texts), **self._body}
        answer = await self._client.post(self._path, body, largest=largest)
        rows = shaped(answer, where, _Answer, "is this an encoder's server?").data
        check_rows([row.index for row in rows], len(texts), where, "texts")
        vectors = [_numbers(row, where) for row in sorted(rows, key=lambda row: row.index)]
        dimension = self.dimension or len(vectors[0])
        for text, vector in zip(texts, vectors, strict=True):
            if not len(vector) == dimension > 0:
                asked = "dimensions" in self._body
                remedy = "it heeds no truncate_dim, so leave that out" if asked else "look at the server's log"
                raise ServerError(
                    f"{where}: {self._described(text)} gets a vector of {len(vector)} numbers where {dimension} are due; {remedy}"
                )
            if not (np.abs(vector) <= _LARGEST).all():  # false for NaN too
                raise ServerError(
                    f"{where}: {self._described(text)} gets a vector with NaN, infinity or numbers above {_LARGEST:.0e}; the "
                    "server's model is no encoder, or its device is broken"
                )
        return [normalized(vector) if self._normalize else vector for vector in vectors]


def _numbers(row: _Row, where: str) -> Vectors:
    """Return a row's vector."""
    if isinstance(row.embedding, str):
        try:
            return np.frombuffer(base64.b64decode(row.embedding, validate=True), dtype="<f4").astype(np.float32)
        except ValueError as error:
            raise ServerError(
                f"{where}: row {row.index} is no base64 of float32 ({error}); look at the server's log"
            ) from error
    with np.errstate(over="ignore"):  # infinity is told of with the text's name
        return np.array(row.embedding, dtype=np.float64).astype(np.float32)
