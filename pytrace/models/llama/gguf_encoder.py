"""Encoders in GGUF files, run by llama.cpp: the runtime of the language model suffices for search too."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pytrace.errors import InputError, ModelError, ModelFileError
from pytrace.models.base_model import check_bounds
from pytrace.models.encoders.heads import normalized
from pytrace.models.encoders.text_vectors import TextVectors
from pytrace.models.encoders.vector_cache import VectorCache
from pytrace.models.llama.file_trial import check_file
from pytrace.models.llama.gguf_header import Header, read_header
from pytrace.models.llama.pooled_runtime import POOLING_NUMBERS, GgufPooling, PooledRuntime, Rows
from pytrace.models.registry.model_files import check_gguf, sha256_of
from pytrace.processes import useful_threads
from pytrace.storage.closing import Closing

if TYPE_CHECKING:
    from pytrace.models.encoders.encoder_files import Kind
    from pytrace.models.encoders.onnx_graph import Device

_POOLINGS = {number: name for name, number in POOLING_NUMBERS.items()}
_KINDS = ("query", "passage")


class GgufEncoder(Closing):
    """A text encoder in a GGUF file, run inside this process by llama.cpp.

    Texts are cut to the model's length with their special tokens kept, equal texts encoded once, and the rest sorted by
    length and evaluated together, up to 512 tokens of up to 256 texts at a time; rows come back in the order of the texts. A
    text's vector equals that of the text alone up to rounding: keys and values are rounded to 16 bits, and products of many rows
    summed in another order than those of few, which is about 1e-7 of a cosine.

    Parameters
    ----------
    path
        The file.
    name
        What to call it in reports; the file's name without its suffix if not given.
    pooling
        How the tokens' vectors become one: ``"mean"``, ``"cls"`` or ``"lasttoken"``; what the file says if not given.
    normalize
        Whether vectors get the length 1; they do if not given. A GGUF file does not say, and models are compared by cosine.
    prompts
        What goes before a text, under ``"query"`` and ``"passage"``. GGUF files carry none: they stand in a model's description.
    truncate_dim
        Keep so many numbers of every vector, of a model that was trained for it (Kusupati et al., "Matryoshka Representation
        Learning", NeurIPS 2022, section 3), and normalise what is left.
    context
        The length in tokens, special ones included, that texts are cut to; what the model was trained for if not given.
    threads
        Threads; all processors if not given.
    device
        ``"cpu"`` or ``"cuda"``, where vectors are searched too.
    gpu_layers
        Layers on a GPU, -1 for all; if not given, all of them on ``"cuda"`` and none on ``"cpu"``.
    cache_bytes
        Bytes of vectors that are kept in memory.
    cache_directory
        Where vectors are kept on disk, if they are.

    Raises
    ------
    ModelFileError
        The file cannot be loaded, or holds no encoder.
    InputError
        There is no such pooling, kind of prompt, or number of dimensions.
    ValueError
        A number is out of range.

    Examples
    --------
    >>> encoder = GgufEncoder("nomic-embed-text-v1.5.Q8_0.gguf",
    ...     prompts={"query": "search_query: ", "passage": "search_document: "})  # doctest: +SKIP
    >>> encoder.encode(["Who wrote it?"], kind="query").shape  # doctest: +SKIP
    (1, 768)
    """

    # Reimers and Gurevych, "Sentence-BERT" (EMNLP 2019), section 3: the pooling strategies.

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        name: str | None = None,
        pooling: str | None = None,
        normalize: bool | None = None,
        prompts: Mapping[str, str] | None = None,
        truncate_dim: int | None = None,
        context: int | None = None,
        threads: int | None = None,
        device: Device = "cpu",
        gpu_layers: int | None = None,
        cache_bytes: int = 32 << 20,
        cache_directory: str | os.PathLike[str] | None = None,
    ) -> None:
        check_bounds(1, context=context, threads=threads, truncate_dim=truncate_dim)
        layers = layers_on_gpu(device, gpu_layers)
        self._prompts = dict(prompts or {})
        if unknown := self._prompts.keys() - set(_KINDS):
            raise InputError(f"prompts are of kind {' or '.join(map(repr, _KINDS))}, not {min(unknown)!r}; correct it")
        self._path = check_gguf(Path(path))
        self.name = name or self._path.stem
        self.device: Device = device
        """Where it runs, and where its vectors are searched."""
        pooled = _pooling(self._path, read_header(self._path), pooling)
        check_file(self._path, pooled)
        self._runtime = PooledRuntime(self._path, pooling=pooled, threads=useful_threads(threads), gpu_layers=layers)
        self._normalize = normalize is not False
        self.max_tokens = text_length(self._runtime, context)
        """The length in tokens, special ones included, that texts are cut to."""
        whole = self._runtime.width
        if truncate_dim is not None and truncate_dim > whole:
            raise InputError(
                f"truncate_dim is {truncate_dim}, but {self.name!r} gives vectors of {whole} numbers; choose from 1 to {whole}"
            )
        self.dimension = truncate_dim or whole
        disk = None
        if cache_directory is not None:
            disk = VectorCache(cache_directory, fingerprint=self.fingerprint, dimension=self.dimension)
        self._texts = TextVectors(self._batches, dimension=self.dimension, cache_bytes=cache_bytes, disk=disk)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the file and of everything else that shapes a vector."""
        rules = (
            self._runtime.pooling, self._normalize, sorted(self._prompts.items()), self.dimension, self.max_tokens
        )  # fmt: skip
        return hashlib.sha256(f"{sha256_of(self._path)} {rules!r}".encode()).hexdigest()

    def close(self) -> None:
        """Free the model; any later call that must evaluate a text fails."""
        self._runtime.close()

    def encode(self, texts: Sequence[str], *, kind: Kind = "passage") -> Rows:
        """Encode texts."""
        return self._texts.of(texts, kind, lambda kind: self._prompts.get(kind, ""))

    def _batches(self, texts: list[str]) -> Iterator[tuple[list[str], Rows]]:
        before, after = self._runtime.frame
        room = self.max_tokens - len(before) - len(after)
        # A model evaluates no text of no token.
        tokens = [
            [*before, *self._runtime.tokenize(text)[:room], *after] or [max(self._runtime.eos, 0)] for text in texts
        ]
        for indices, rows in self._runtime.rows(tokens):
            yield [texts[index] for index in indices], self._finished(rows)

    def _finished(self, rows: Rows) -> Rows:
        if not np.isfinite(rows).all():
            raise ModelError(f"encoder {self.name!r} gives NaN or infinity for a text; its weights are damaged")
        rows = np.ascontiguousarray(rows[:, : self.dimension])
        return normalized(rows) if self._normalize else rows


def layers_on_gpu(device: Device, gpu_layers: int | None) -> int:
    """Return how many layers go to the GPU; -1 stands for all."""
    if device not in {"cpu", "cuda"}:
        raise ValueError(f"device must be 'cpu' or 'cuda', not {device!r}")
    return gpu_layers if gpu_layers is not None else -1 if device == "cuda" else 0


def text_length(runtime: PooledRuntime, context: int | None, *, around: int = 0) -> int:
    """Return how many tokens a text may have, special ones included; `around` of these are besides those of every text."""
    length = min(context or runtime.trained_context, runtime.trained_context)
    around += sum(map(len, runtime.frame))
    if length <= around:
        raise ValueError(f"context must leave room for a text beside {around} special tokens, not be {length}")
    return length


def has_head(header: Header) -> bool:
    """Whether a file holds what makes scores of texts."""
    # A first layer alone may be left of what a model was trained with; of JinaBERT it is the only one, to one number.
    return "cls.output.weight" in header.tensors or header.tensors.get("cls.weight", ())[1:] == (1,)


def stated_pooling(header: Header) -> GgufPooling | None:
    """Return how a file says that the tokens' vectors become one; None if it says nothing, or that they stay as they are."""
    number = header.values.get(f"{header.values['general.architecture']}.pooling_type", 0)
    return _POOLINGS.get(number)


def _pooling(path: Path, header: Header, given: str | None) -> GgufPooling:
    """Return how tokens' vectors become one, or refuse a file whose vectors would not be those of its model."""
    chosen = next((name for name in POOLING_NUMBERS if name == given and name != "rank"), None)
    if given is not None and chosen is None:
        raise InputError(f"llama.cpp has no pooling {given!r}; choose among mean, cls, lasttoken")
    stated = stated_pooling(header)
    if stated == "rank" or has_head(header):
        raise ModelFileError(
            f"{path} holds a reranker, which scores pairs of texts; name it as the cross-encoder instead"
        )
    pooling = chosen or stated
    if pooling is None:
        raise ModelFileError(
            f"{path} does not say how its tokens' vectors become one, as a language model does not; give an encoder, or "
            "pass pooling='mean', 'cls' or 'lasttoken' if the model's description names it"
        )
    if header.values["general.architecture"] == "gemma-embedding" and "dense_2.weight" not in header.tensors:
        raise ModelFileError(
            f"{path} lacks the two dense layers that follow this model's pooling; convert it again with "
            "--sentence-transformers-dense-modules, or choose a file that has them"
        )
    return pooling
