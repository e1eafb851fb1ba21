"""Encoders: texts to vectors, on onnxruntime, by each model's own rules.

Pooling, normalisation, length and prompts are read from the files that a model in the layout of sentence-transformers
brings (``modules.json``, ``1_Pooling/config.json``, ``sentence_bert_config.json``, ``config_sentence_transformers.json``);
what a graph takes and gives is read from the graph.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from pytrace.errors import InputError, ModelError, ModelFileError
from pytrace.models.encoders.encoder_files import EncoderFiles, Kind, TextRules
from pytrace.models.encoders.heads import normalized
from pytrace.models.encoders.onnx_graph import Device
from pytrace.models.encoders.onnx_model import OnnxTextModel
from pytrace.models.encoders.pooling import MODES, pool
from pytrace.models.encoders.text_vectors import TextVectors
from pytrace.models.encoders.vector_cache import VectorCache

Vectors = NDArray[np.float32]

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
        prompts: Mapping[str, str] | None = None,
        pooling: str | Sequence[str] | None = None,
        normalize: bool | None = None,
        truncate_dim: int | None = None,
        dtype: str | None = None,
        output: str | None = None,
    ) -> None:
        super().__init__(
            Path(path), EncoderFiles, gives="vectors", device=device, providers=providers, threads=threads,
            batch_tokens=batch_tokens, dtype=dtype, output=output,
        )  # fmt: skip
        self.device: Device = device
        """Where it runs, and where its vectors are searched."""
        # What the files say of the way from tokens' vectors to a text's is surer than a second output that may have gone it.
        if output is None and (pooling or self._files.modules.complete):
            self._graph.take("token vectors")
        self._output = output
        self._overruled = any(choice is not None for choice in (prompts, pooling, normalize, truncate_dim, output))
        self._pooling = self._choose_pooling(pooling)
        # A graph that gives one vector a text has all of the model in it.
        self._heads = [] if self._graph.pooled else self._files.modules.read_heads()
        self._normalize = self._files.normalize if normalize is None else normalize
        self._rules = {kind: self._files.rules(kind, prompts or {}) for kind in get_args(Kind)}
        if self._graph.has_tasks:
            self._rules = {kind: rules._replace(task=self._files.task(kind)) for kind, rules in self._rules.items()}
        self._truncate_dim: int | None = None
        rules = self._rules["passage"]
        whole = int(self._run(rules, self._tokenize([""], rules)).shape[1])
        self._truncate_dim = self._files.truncate_dim if truncate_dim is None else truncate_dim
        if self._truncate_dim is not None and not 0 < self._truncate_dim <= whole:
            raise InputError(
                f"truncate_dim is {self._truncate_dim}, but {self.name!r} gives vectors of {whole} numbers; choose from 1 to {whole}"
            )
        self.dimension = self._truncate_dim or whole
        disk = None
        if cache_directory is not None:
            disk = VectorCache(cache_directory, fingerprint=self.fingerprint, dimension=self.dimension)
        self._texts = TextVectors(
            partial(self._batches, self._rules["passage"]), dimension=self.dimension, cache_bytes=cache_bytes, disk=disk
        )

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over the graph, its weights, the tokenizer, and everything else that shapes a vector."""
        files = self._files
        pooling = self._pooling[0] if len(self._pooling) == 1 else self._pooling or None
        prompts = sorted((kind, rules.prompt) for kind, rules in self._rules.items() if rules.prompt)
        # What few models have is named only where it is there, so that the others keep the fingerprint that they had.
        heads = [] if self._graph.pooled else files.modules.layers
        lengths = [rules.length for rules in self._rules.values() if rules.length != self.max_tokens]
        tasks = [rules.task for rules in self._rules.values()] if self._graph.has_tasks else []
        skips = [rules.skip for rules in self._rules.values() if rules.skip]
        rare = {
            "truncate_dim": self._truncate_dim, "output": self._output, "heads": heads,
            "lengths": lengths, "tasks": tasks, "skips": skips,
        }  # fmt: skip
        return self._hash(
            pooling, self._normalize, self.max_tokens, files.lower_case, self._graph.provider, prompts,
            *((name, value) for name, value in rare.items() if value),
            files=[] if self._graph.pooled else files.modules.weights,
        )  # fmt: skip

    @cached_property
    def calibration(self) -> dict[str, tuple[float, float]]:
        """The registry's curves that make probabilities of its scores; none if it is used otherwise than the registry says."""
        return {} if self._overruled else super().calibration

    def encode(self, texts: Sequence[str], *, kind: Kind = "passage") -> Vectors:
        """Encode texts."""
        rules = self._rules.get(kind, self._rules["passage"])
        # Only where the kinds differ in more than their prompts are equal texts of two kinds two texts.
        alike = len({rules._replace(prompt="") for rules in self._rules.values()}) == 1
        return self._texts.of(
            texts,
            kind,
            lambda _: rules.prompt,
            make=partial(self._batches, rules),
            mark="" if alike else f"{rules[1:]} ",
        )

    def _batches(self, rules: TextRules, texts: list[str]) -> Iterator[tuple[list[str], Vectors]]:
        tokens = self._tokenize(texts, rules)
        for batch, vectors in self._in_batches(partial(self._run, rules), tokens, [len(ids) for ids in tokens]):
            yield [texts[index] for index in batch], vectors

    def _tokenize(self, texts: list[str], rules: TextRules) -> list[list[int]]:
        limit = min(rules.length, self._graph.columns or rules.length)
        # A tokenizer without special tokens gives none for an empty text; a graph wants at least one.
        return [ids or [self._files.pad_id] for ids in self._files.token_ids(texts, limit)]

    def _run(self, rules: TextRules, tokens: list[list[int]]) -> Vectors:
        vectors, mask = self._graph.run(tokens, self._files.pad_id, task=rules.task)
        if self._pooling:
            vectors = pool(vectors, mask, self._pooling, skip=rules.skip)
        for head in self._heads:
            vectors = head(vectors)
        if not np.isfinite(vectors).all():
            raise ModelError(
                f"encoder {self.name!r} gives NaN or infinity for a text; its graph or its provider is broken"
            )
        vectors = np.ascontiguousarray(vectors[:, : self._truncate_dim])
        return normalized(vectors) if self._normalize else vectors

    def _choose_pooling(self, given: str | Sequence[str] | None) -> tuple[str, ...]:
        """Return the ways to make one vector of a text's, none if its graph does it."""
        modes = (given,) if isinstance(given, str) else tuple(given or ())
        if unknown := [mode for mode in modes if mode not in MODES]:
            raise InputError(f"there is no pooling {unknown[0]!r}; choose among {', '.join(MODES)}")
        if self._graph.pooled:
            if modes:
                raise InputError(
                    f"{self._files.graph} gives one vector a text, which leaves nothing to pool; leave pooling={given!r} out"
                )
            return ()
        modes = modes or self._files.modules.pooling
        if not modes:
            raise ModelFileError(
                f"{self._files.directory} has no 1_Pooling/config.json and its graph gives a vector for every token; add "
                f"the model's modules.json and 1_Pooling/config.json, or pass pooling=, one of {', '.join(MODES)}"
            )
        return modes
