"""Rerankers behind a server: Jina's and Cohere's request, which llama-server and vLLM take, or Text Embeddings Inference's."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Literal

import msgspec
import numpy as np

from pytrace.errors import InputError, ServerError
from pytrace.models.encoders.cross_encoder import Scores, checked_pairs
from pytrace.models.servers.http_client import TIMEOUT
from pytrace.models.servers.remote_model import KEY_VARIABLE
from pytrace.models.servers.remote_text_model import RemoteTextModel, check_rows, shown
from pytrace.models.servers.server_answers import Count, shaped

RerankDialect = Literal["auto", "jina", "tei"]

# Characters of one request's passages. Cohere charges by the query with up to 100 documents, so that they go out together.
_MOST_CHARACTERS = 1 << 18
# Bytes of an answer: a row takes some 60, more where it repeats its document, each letter escaped.
_ANSWER, _ROW, _ESCAPED = 1 << 16, 1 << 10, 12
_LARGEST = float(np.finfo(np.float32).max)
_PROBE = ("Is the sky blue?", "The sky is blue.")


class _Row(msgspec.Struct):
    """One passage's score, by the name that Jina, Cohere, vLLM and llama-server give it, or Text Embeddings Inference's."""

    index: Count
    relevance_score: float | None = None
    score: float | None = None


class RemoteReranker(RemoteTextModel):
    """A cross-encoder that a server runs.

    Pairs are grouped by question, each question's passages scored together, several questions at once, equal pairs once. A
    request that the server refuses is sent in halves, so that a passage that is too long is named.

    Parameters
    ----------
    url
        The server's address: its root, with ``/v1`` or ``/v2`` at its end, or the whole endpoint. Where it is no whole
        endpoint, ``/v1/rerank``, ``/rerank`` and ``/v2/rerank`` are tried.
    model
        The model's name; it may be left out where the server has one.
    dialect
        How the server is asked: "jina" (query, documents, top_n), which Cohere, vLLM and llama-server take too, "tei" (query,
        texts) for Text Embeddings Inference, or "auto", which finds out by one request.
    truncate
        Whether a pair longer than the model takes is cut: by vLLM and Text Embeddings Inference (Cohere always does), and the
        passage for llama-server here, to about its context; elsewhere such a pair is an error that names the passage.
    batch_texts
        The most passages in a request; fewer are sent where the server takes no more, or passages are long.
    concurrency, api_key_env, connect_timeout, timeout, attempts
        As for `RemoteModel`.

    Raises
    ------
    InputError
        The address, an option or the model's name cannot be used.
    ServerError
        The server cannot be reached, refuses, or does not rerank.
    """

    # Scores are as the server gives them: logits of llama-server and of Text Embeddings Inference (raw_scores), numbers
    # from 0 to 1 of vLLM, Jina and Cohere. Only the order among scores of one question means anything.

    endpoint = "rerank"
    option = "--cross-encoder-set model="

    def __init__(
        self,
        url: str,
        *,
        model: str | None = None,
        dialect: RerankDialect = "auto",
        truncate: bool = True,
        batch_texts: int = 100,
        concurrency: int = 8,
        api_key_env: str = KEY_VARIABLE,
        connect_timeout: float = 10.0,
        timeout: float = TIMEOUT,
        attempts: int = 5,
    ) -> None:
        if dialect not in {"auto", "jina", "tei"}:
            raise InputError(f"the dialect {dialect!r} is none of: auto, jina, tei")
        self.dialect: RerankDialect = dialect
        super().__init__(
            url, model=model, truncate=truncate, batch_texts=batch_texts, concurrency=concurrency, api_key_env=api_key_env,
            connect_timeout=connect_timeout, timeout=timeout, attempts=attempts,
        )  # fmt: skip

    @property
    def fingerprint(self) -> str:
        """A hash of all that the server says of its model, and how it is asked; it cannot prove the weights."""
        return self._hash(dialect=self.dialect)

    def score(self, pairs: Sequence[tuple[str, str]]) -> Scores:
        """Score pairs of a question and a passage.

        Parameters
        ----------
        pairs
            Questions with a passage each.

        Returns
        -------
        ndarray
            float32 [n], one score a pair, larger is better, in the order of the pairs.

        Raises
        ------
        ServerError
            The server cannot be reached, refuses a pair, or answers what makes no sense.
        """
        rows: dict[str, dict[str, list[int]]] = {}
        for index, (question, passage) in enumerate(checked_pairs(pairs)):
            rows.setdefault(question, {}).setdefault(passage, []).append(index)
        parts = [
            (question, passages)
            for question, known in rows.items()
            for passages in self._parts(list(known), len, _MOST_CHARACTERS)
        ]

        async def ask(number: int) -> list[float]:
            question, passages = parts[number]

            async def rank(some: Sequence[str]) -> list[float]:
                return await self._ask(question, some)

            def described(passage: str) -> str:
                return f"the passage {shown(passage)} with the question {shown(question)}"

            async def cut(passage: str) -> str | None:
                return await self._shorter(passage, question)

            return await self._in_halves(passages, rank, described, cut)

        scores = np.empty(len(pairs), dtype=np.float32)
        for number, found in self._client.each(ask, len(parts)):
            question, passages = parts[number]
            for passage, score in zip(passages, found, strict=True):
                scores[rows[question][passage]] = score
        return scores

    async def _try(self) -> None:
        """Rerank a first passage, to learn where the server does that, and how it is asked."""
        dialects: tuple[RerankDialect, ...] = ("jina", "tei") if self.dialect == "auto" else (self.dialect,)
        if self.kind == "tei":
            dialects = ("tei",)
        usual = ("/rerank",) if dialects == ("tei",) else ("/v1/rerank", "/rerank", "/v2/rerank")
        paths = sorted(usual, key=lambda path: not path.startswith(self._version or "/v1"))
        if self._endpoint:
            paths = [f"{self._version}{self._endpoint}"]
        refusals: list[ServerError] = []
        for self._path, self.dialect in itertools.product(paths, dialects):
            try:
                await self._ask(_PROBE[0], _PROBE[1:])
            except ServerError as error:
                if error.status not in {400, 404, 405, 422}:
                    raise
                refusals.append(error)
            else:
                return
        for refusal in refusals:
            if refusal.status in {400, 422}:  # which says more than that nothing is there
                raise refusal
        raise ServerError(
            f"{self._client.origin} does not rerank at {', '.join(paths)} ({refusals[0]}); give the whole address of its reranking"
        ) from refusals[0]

    async def _ask(self, question: str, passages: Sequence[str]) -> list[float]:
        where = self._where(self._path)
        body: dict[str, Any] = {"query": question}
        if self.dialect == "tei":
            body |= {"texts": list(passages), "raw_scores": True, "truncate": self._truncate}
        else:
            body |= {"model": self._model, "documents": list(passages), "top_n": len(passages)}
            if self.kind == "vllm" and self._truncate:
                body["truncate_prompt_tokens"] = -1
        largest = _ANSWER + _ROW * len(passages) + _ESCAPED * sum(map(len, passages))
        answer = await self._client.post(self._path, body, largest=largest)
        if isinstance(answer, dict):
            answer = answer.get("results")
        rows = shaped(answer, where, list[_Row], "is this a reranker's server?")
        check_rows([row.index for row in rows], len(passages), where, "passages")
        return [self._score(row, where) for row in sorted(rows, key=lambda row: row.index)]

    def _score(self, row: _Row, where: str) -> float:
        score = row.score if row.relevance_score is None else row.relevance_score
        if score is None or not abs(score) <= _LARGEST:  # false for NaN too
            raise ServerError(
                f"{where}: row {row.index} has {score} for its score (relevance_score or score), which wants a number of "
                "float32; the server's model or device is broken"
            )
        return score
