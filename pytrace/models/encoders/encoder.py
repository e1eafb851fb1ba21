"""Encoders: texts to vectors, on onnxruntime, by each model's own rules.

Pooling, normalisation, length and prompts are read from the files that a model in the layout of sentence-transformers
brings (``modules.json``, ``1_Pooling/config.json``, ``sentence_bert_config.json``, ``config_sentence_transformers.json``);
what a graph takes and gives is read from the graph.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from pytrace.errors import ModelError, ModelFileError
from pytrace.models.encoders.encoder_files import EncoderFiles, Pooling
from pytrace.models.encoders.onnx_graph import Device
from pytrace.models.encoders.onnx_model import OnnxTextModel, whole_text
from pytrace.models.encoders.vector_cache import VectorCache

Kind = Literal["query", "passage"]
Vectors = NDArray[np.float32]

# Texts that are tokenised and sorted together: enough that neighbours in length are alike, few enough to hold their tokens.
_AT_ONCE = 8192
# Squared differences of numbers up to this, over any dimension below 10^8, still fit float32.
_LARGEST = 1e15


class Encoder(Protocol):
    """Anything that turns texts into vectors whose inner product says how alike they are."""

    @property
    def name(self) -> str:
        """What to call it in reports."""

    @property
    def fingerprint(self) -> str:
        """A string that changes whenever the vectors could: the key of every cache of them."""

    @property
    def dimension(self) -> int:
        """The length of a vector."""

    def encode(self, texts: Sequence[str], *, kind: Kind = "passage") -> Vectors:
        """Return float32 [n, dimension], one row a text, in the order of the texts."""


def device_of(encoder: Encoder) -> str:
    """Return where an encoder's vectors are kept and searched: its attribute `device`, or ``"cpu"`` if it has none."""
    return str(getattr(encoder, "device", "cpu"))


def encode(encoder: Encoder, texts: Sequence[str], kind: Kind) -> Vectors:
    """Encode texts and check what comes back, so that nothing broken is stored or ranked."""
    vectors = np.asarray(encoder.encode(texts, kind=kind), dtype=np.float32)
    if vectors.shape != (len(texts), encoder.dimension):
        raise ModelError(
            f"encoder {encoder.name!r} gives vectors {list(vectors.shape)} for {len(texts)} texts where "
            f"[{len(texts)}, {encoder.dimension}] is due; re-export the encoder"
        )
    good = (np.abs(vectors) <= _LARGEST).all(axis=1)  # false for NaN too
    if not good.all():
        row = int(np.argmin(good))
        raise ModelError(
            f"encoder {encoder.name!r} gives NaN, infinity or numbers above {_LARGEST:.0e} for {int((~good).sum())} of "
            f"{len(texts)} texts, first for number {row}, {texts[row][:60]!a}; re-export the encoder or leave the text out"
        )
    return vectors


class OnnxEncoder(OnnxTextModel[EncoderFiles]):
    """A text encoder in an ONNX file, run by onnxruntime.

    Texts are cut to the model's length, equal texts encoded once, and the rest sorted by length into batches of about
    `batch_tokens` tokens, padding included; rows come back in the order of the texts. On a CPU, models of up to 512 MiB
    run one batch on each thread, larger ones all threads on one batch.

    A text's vector does not depend on the texts beside it. Padding is masked, and masked positions weigh exactly nothing;
    on the shipped encoder (int8 weights, float32 arithmetic) vectors were bit for bit the same alone and in batches of
    any make-up. The exception is a graph with dynamically quantised activations (``DynamicQuantizeLinear``), whose scale
    is taken over the whole batch: such a graph is fed one text at a time, without padding.
    """

    # Reimers and Gurevych, "Sentence-BERT" (EMNLP 2019), section 3: the pooling strategies.

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        device: Device = "cpu",
        providers: Sequence[str] | None = None,
        threads: int | None = None,
        batch_tokens: int | None = None,
        cache_bytes: int = 32 << 20,
        cache_directory: str | os.PathLike[str] | None = None,
        pooling: Pooling | None = None,
        normalize: bool | None = None,
    ) -> None:
        super().__init__(
            Path(path), EncoderFiles, gives="vectors", device=device, providers=providers, threads=threads,
            batch_tokens=batch_tokens,
        )  # fmt: skip
        self.device: Device = device
        """Where it runs, and where its vectors are searched."""
        self._pooling = None if self._graph.pooled else pooling or self._files.pooling
        if not self._graph.pooled and self._files.has_dense:
            raise ModelFileError(
                f"{self._files.directory} has a dense layer after pooling, which its graph does not contain; export the "
                "whole model, so that the graph gives 'sentence_embedding'"
            )
        if not self._graph.pooled and self._pooling is None:
            raise ModelFileError(
                f"{self._files.directory} has no 1_Pooling/config.json and its graph gives a vector for every token; add "
                "the model's modules.json and 1_Pooling/config.json, or pass pooling='mean', 'cls', 'max' or 'lasttoken'"
            )
        self._normalize = self._files.normalize if normalize is None else normalize
        self._cache: OrderedDict[bytes, Vectors] = OrderedDict()
        self._cache_bytes = cache_bytes
        self._lock = threading.Lock()
        self.dimension = int(self._run(self._tokenize([""])).shape[1])
        self._disk: VectorCache | None = None
        if cache_directory is not None:
            self._disk = VectorCache(cache_directory, fingerprint=self.fingerprint, dimension=self.dimension)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over the graph, its weights, the tokenizer, and everything else that shapes a vector."""
        files = self._files
        prompts = sorted(files.prompts.items())
        return self._hash(
            self._pooling, self._normalize, self.max_tokens, files.lower_case, self._graph.provider, prompts
        )

    def encode(self, texts: Sequence[str], *, kind: Kind = "passage") -> Vectors:
        """Encode texts."""
        if isinstance(texts, str | bytes):
            raise TypeError(f"texts must be a sequence of strings, not one {type(texts).__name__}; put it in a list")
        if kind not in {"query", "passage"}:
            raise ValueError(f"kind must be 'query' or 'passage', not {kind!r}")
        prompt = self._files.prompt(kind)
        rows: dict[str, list[int]] = {}
        values: Sequence[object] = texts
        for index, text in enumerate(values):
            if not isinstance(text, str):
                raise TypeError(f"texts must be strings, but item {index} is of type {type(text).__name__}")
            rows.setdefault(prompt + whole_text(text), []).append(index)
        result = np.empty((len(texts), self.dimension), dtype=np.float32)
        unknown: list[str] = []
        for text, indices in rows.items():
            if (vector := self._recall(text)) is None:
                unknown.append(text)
            else:
                result[indices] = vector
        for start in range(0, len(unknown), _AT_ONCE):
            for batch, vectors in self._vectors(unknown[start : start + _AT_ONCE]):
                for text, vector in zip(batch, vectors, strict=True):
                    result[rows[text]] = vector
                    self._remember(text, vector)
        return result

    def _vectors(self, texts: list[str]) -> Iterator[tuple[list[str], Vectors]]:
        """Read the vectors that are on disk, make those that are not, and put these there batch by batch."""
        if self._disk is None:
            yield from self._batches(texts)
            return
        there, vectors = self._disk.get([_key(text) for text in texts])
        yield [text for text, known in zip(texts, there, strict=True) if known], vectors
        for batch, vectors in self._batches([text for text, known in zip(texts, there, strict=True) if not known]):
            self._disk.put([_key(text) for text in batch], vectors)
            yield batch, vectors

    def _batches(self, texts: list[str]) -> Iterator[tuple[list[str], Vectors]]:
        tokens = self._tokenize(texts)
        for batch, vectors in self._in_batches(self._run, tokens, [len(ids) for ids in tokens]):
            yield [texts[index] for index in batch], vectors

    def _tokenize(self, texts: list[str]) -> list[list[int]]:
        if self._files.lower_case:
            texts = [text.lower() for text in texts]
        # A tokenizer without special tokens gives none for an empty text; a graph wants at least one.
        return [ids or [self._files.pad_id] for ids in self._files.token_ids(texts, self._graph.columns)]

    def _run(self, tokens: list[list[int]]) -> Vectors:
        output, mask = self._graph.run(tokens, self._files.pad_id)
        vectors = output if self._pooling is None else _pool(output, mask, self._pooling)
        if not np.isfinite(vectors).all():
            raise ModelError(
                f"encoder {self.name!r} gives NaN or infinity for a text; its graph or its provider is broken"
            )
        if self._normalize:
            lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
            vectors = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
        return vectors

    def _recall(self, text: str) -> Vectors | None:
        key = _key(text)
        with self._lock:
            vector = self._cache.get(key)
            if vector is not None:
                self._cache.move_to_end(key)
            return vector

    def _remember(self, text: str, vector: Vectors) -> None:
        with self._lock:
            self._cache[_key(text)] = vector.copy()  # a view would keep its whole batch alive
            while len(self._cache) * vector.nbytes > self._cache_bytes:
                self._cache.popitem(last=False)


def _pool(hidden: Vectors, mask: NDArray[np.bool_], pooling: Pooling) -> Vectors:
    """Make one vector of each row's token vectors [n, length, dimension]; padding has no say."""
    if pooling == "cls":
        return np.ascontiguousarray(hidden[:, 0])
    if pooling == "lasttoken":
        last = mask.shape[1] - 1 - np.argmax(mask[:, ::-1], axis=1)
        return np.ascontiguousarray(hidden[np.arange(len(hidden)), last])
    if pooling == "max":
        return np.asarray(np.where(mask[..., None], hidden, np.float32(-np.inf)).max(axis=1), dtype=np.float32)
    # Added up token after token, the sum does not change with the amount of padding, to the last bit.
    kept = np.where(mask[..., None], hidden, np.float32(0))
    total = np.add.reduce(kept, axis=1)
    return np.asarray(total / mask.sum(axis=1, keepdims=True, dtype=np.float32), dtype=np.float32)


def _key(text: str) -> bytes:
    # A digest, so that long passages are not kept alive by the cache.
    return hashlib.blake2b(text.encode(), digest_size=16).digest()
