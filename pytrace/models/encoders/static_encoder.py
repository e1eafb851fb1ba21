"""Static encoders: a table of token vectors and a tokenizer, without a network and without onnxruntime."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from pytrace.errors import InputError, ModelFileError
from pytrace.kernels import embedding_bag
from pytrace.models.encoders.encoder import Vectors
from pytrace.models.encoders.encoder_files import Kind, choose_prompt, read_prompts
from pytrace.models.encoders.model_directory import TokenizerSettings, load_tokenizer, read_config, usable
from pytrace.models.encoders.onnx_trial import check_tokenizer
from pytrace.models.encoders.safetensors_file import read_tensors
from pytrace.models.encoders.text_vectors import TextVectors
from pytrace.models.encoders.vector_cache import VectorCache

_T = TypeVar("_T")

_WEIGHTS = "model.safetensors"
_MODULE = "StaticEmbedding"
# What model2vec cuts texts to where a model does not say.
_DEFAULT_LENGTH = 512
# Texts that are tokenised together, by all of the tokenizer's threads.
_AT_ONCE = 1024


class StaticFiles:
    """The files of one static encoder, in the layout of model2vec or of sentence-transformers' module StaticEmbedding.

    `table` has the vectors, `mapping` the row of each token (-1: it does not count), `weights` a factor for each token.
    """

    def __init__(self, path: Path) -> None:
        self.directory = (path if path.is_dir() else path.parent).absolute()
        modules = self.read("modules.json", list[dict[str, Any]]) or []
        kinds = [str(module.get("type", "")).rpartition(".")[2] for module in modules]
        folder = self._folder(modules, kinds)
        self.weights_file, self.tokenizer_file = folder / _WEIGHTS, folder / "tokenizer.json"
        for file in (self.weights_file, self.tokenizer_file):
            if not _is_file(file):
                raise ModelFileError(
                    f"{self.directory} is no static encoder: {file} is missing; give a directory that model2vec or "
                    "sentence-transformers (StaticEmbedding) saved"
                )
        if others := [kind for kind in kinds if kind not in {_MODULE, "Normalize"}]:
            raise ModelFileError(
                f"{self.directory / 'modules.json'} has the module {others[0]!r} beside {_MODULE}, which is not supported; use a "
                "model without it"
            )
        check_tokenizer(self.tokenizer_file)
        self.tokenizer = load_tokenizer(self.tokenizer_file, TokenizerSettings())
        self.tokenizer.no_padding()
        stored = read_tensors(self.weights_file)
        self.weights: NDArray[np.float32] | None = None
        self.mapping: NDArray[np.int64] | None = None
        # The longest text in characters and in tokens, if there is one.
        self.most_characters: int | None = None
        self.most_tokens: int | None = None
        if "embedding.weight" in stored:
            self.table = self._table(stored["embedding.weight"])
            self.normalize = "Normalize" in kinds
            truncation = self.tokenizer.truncation or {}
            self.most_tokens = truncation.get("max_length")
        elif "embeddings" in stored:
            self.table = self._table(stored["embeddings"])
            self._read_model2vec(stored)
        else:
            raise ModelFileError(
                f"{self.weights_file} has neither 'embeddings' (model2vec) nor 'embedding.weight' (sentence-transformers), but "
                f"{', '.join(sorted(stored)[:5]) or 'no tensor at all'}; use a static encoder"
            )
        self._check_sizes()
        settings = self.read("config_sentence_transformers.json", dict[str, Any]) or {}
        self.prompts = read_prompts(settings.get("prompts"))
        if settings.get("similarity_fn_name") == "cosine":
            self.normalize = True
        stated = settings.get("truncate_dim")
        self.truncate_dim = stated if type(stated) is int else None

    def read(self, name: str, kind: type[_T]) -> _T | None:
        """Read a JSON file of the directory; None if it is not there."""
        return read_config(self.directory / name, kind)

    def token_ids(self, texts: list[str]) -> list[list[int]]:
        """Turn texts into tokens, without special ones, cut to the model's length."""
        if self.most_characters is not None:
            texts = [text[: self.most_characters] for text in texts]
        with usable(self.tokenizer_file):
            return [each.ids for each in self.tokenizer.encode_batch_fast(texts, add_special_tokens=False)]

    def _folder(self, modules: list[dict[str, Any]], kinds: list[str]) -> Path:
        if kinds and kinds[0] != _MODULE:
            raise ModelFileError(
                f"{self.directory} is no static encoder: its modules.json begins with {kinds[0] or 'nothing'!r}, not {_MODULE!r}; "
                "name it as an encoder in ONNX"
            )
        stated = str(modules[0].get("path") or "") if modules else ""
        if Path(stated).is_absolute() or ".." in Path(stated).parts:
            raise ModelFileError(
                f"{self.directory / 'modules.json'} has the path {stated!r}, which leaves the model's folder; fetch the model again"
            )
        inner = self.directory / f"0_{_MODULE}"
        return inner if not modules and _is_file(inner / _WEIGHTS) else self.directory / stated

    def _table(self, stored: NDArray[Any]) -> NDArray[Any]:
        if stored.ndim != 2 or not stored.size or stored.dtype.kind not in "fi":
            raise ModelFileError(
                f"{self.weights_file} has embeddings {list(stored.shape)} of {stored.dtype}, which are no table of numbers; fetch "
                "the model again"
            )
        # As they are where the kernel reads them; float64 would be converted with every call.
        return stored if stored.dtype in (np.float32, np.float16, np.int8) else stored.astype(np.float32)

    def _read_model2vec(self, stored: dict[str, NDArray[Any]]) -> None:
        """Read what model2vec's own loader (0.10) reads beside the vectors, and follow its rules."""
        config = self.read("config.json", dict[str, Any]) or {}
        self.normalize = config.get("normalize") is True
        length = config.get("max_length", _DEFAULT_LENGTH)
        if length is not None:
            if type(length) is not int or length < 1:
                raise ModelFileError(
                    f"{self.directory / 'config.json'} has the max_length {length!r}, which is no number of tokens; correct it"
                )
            median = int(np.median([len(token) for token in self.tokenizer.get_vocab()]))
            self.most_characters, self.most_tokens = length * median, length
            self.tokenizer.enable_truncation(length)
        else:
            self.tokenizer.no_truncation()
        size = self.tokenizer.get_vocab_size()
        if "weights" in stored:
            self.weights = np.ascontiguousarray(stored["weights"], np.float32).reshape(-1)
        if "mapping" in stored:
            self.mapping = stored["mapping"].astype(np.int64).reshape(-1)
        elif len(self.table) != size:
            raise ModelFileError(
                f"{self.weights_file} has {len(self.table)} embeddings for the {size} tokens of {self.tokenizer_file}, and no "
                "'mapping'; fetch the model again"
            )
        unknown = _unknown_token(self.tokenizer)
        if unknown is not None and 0 <= unknown < size:
            self.mapping = np.arange(size) if self.mapping is None else self.mapping.copy()
            if unknown < len(self.mapping):
                self.mapping[unknown] = -1

    def _check_sizes(self) -> None:
        """Refuse tokens that have no vector, before a text meets one."""
        known = 1 + max(self.tokenizer.get_vocab().values(), default=-1)
        size = len(self.table) if self.mapping is None else len(self.mapping)
        if size < known:
            raise ModelFileError(
                f"{self.weights_file} has {size} {'embeddings' if self.mapping is None else 'rows in its mapping'} for the {known} "
                f"tokens of {self.tokenizer_file}; fetch the model again"
            )
        if self.weights is not None and len(self.weights) != size:
            raise ModelFileError(
                f"{self.weights_file} has {len(self.weights)} weights for {size} tokens; fetch the model again"
            )
        if self.mapping is not None and not ((self.mapping >= -1) & (self.mapping < len(self.table))).all():
            raise ModelFileError(
                f"{self.weights_file} maps tokens to rows {self.mapping.min()} to {self.mapping.max()}, but has "
                f"{len(self.table)} embeddings; fetch the model again"
            )


class StaticEncoder:
    """An encoder that averages the vectors of a text's tokens, as model2vec and sentence-transformers' StaticEmbedding do.

    It needs neither a graph nor onnxruntime. Tokens are looked up and averaged by `pytrace.kernels.embedding_bag`; nearly all
    time goes to the tokenizer, which uses as many threads as ``RAYON_NUM_THREADS`` says, or all.

    Files decide whose rules hold. With ``embeddings`` in model.safetensors they are model2vec's: texts are cut to ``max_length``
    (of config.json, else 512) times the median length of a token in characters, then to that many tokens; unknown tokens do not
    count; ``weights`` and ``mapping`` are used where they are. With ``embedding.weight`` they are those of sentence-transformers:
    every token counts and nothing is cut, but for what tokenizer.json says. A text without tokens is a vector of zeros.

    Vectors are float32, and sums too, whatever the table's type is: of a float16 table model2vec gives the same rounded to
    float16, and of tables and weights in float64 sums in float64, from which these differ by some 5e-6 at most.

    Parameters
    ----------
    path
        The model's directory.
    threads
        Threads that average; default `pytrace._core.num_threads()`.
    cache_bytes, cache_directory
        Vectors of texts met before, kept in memory up to so many bytes, and on disk.
    prompts
        As for `pytrace.models.encoders.encoder.OnnxEncoder`: what stands before texts of a kind, or the name of a prompt of the
        model's.
    normalize
        Whether vectors get length 1; default what the files say.
    truncate_dim
        Keep so many first dimensions, for tables that were trained for it (Matryoshka).

    Raises
    ------
    ModelFileError
        Files that are missing, broken, or ask for what is not supported.
    InputError
        A `truncate_dim` that the model does not have.

    Notes
    -----
    S. Tulkens and T. van Dongen, "Model2Vec: Fast State-of-the-Art Static Embeddings" (2024).
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        threads: int | None = None,
        cache_bytes: int = 32 << 20,
        cache_directory: str | os.PathLike[str] | None = None,
        prompts: Mapping[str, str] | None = None,
        normalize: bool | None = None,
        truncate_dim: int | None = None,
    ) -> None:
        if threads is not None and threads < 1:
            raise ValueError(f"threads must be at least 1, not {threads}")
        files = self._files = StaticFiles(Path(path))
        self.name = files.directory.name
        self._threads = threads
        self._normalize = files.normalize if normalize is None else normalize
        self._prompts = {
            kind: choose_prompt(files.directory, files.prompts, kind, prompts or {}) for kind in get_args(Kind)
        }
        whole = files.table.shape[1]
        self._truncate_dim = files.truncate_dim if truncate_dim is None else truncate_dim
        if self._truncate_dim is not None and not 0 < self._truncate_dim <= whole:
            raise InputError(
                f"truncate_dim is {self._truncate_dim}, but {self.name!r} gives vectors of {whole} numbers; choose from 1 to {whole}"
            )
        self.dimension = self._truncate_dim or whole
        self._table = files.table[:, : self.dimension]
        disk = None
        if cache_directory is not None:
            disk = VectorCache(cache_directory, fingerprint=self.fingerprint, dimension=self.dimension)
        self._texts = TextVectors(self._batches, dimension=self.dimension, cache_bytes=cache_bytes, disk=disk)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over the table, the tokenizer, and everything else that shapes a vector."""
        files = self._files
        digest = hashlib.sha256()
        for path in (files.weights_file, files.tokenizer_file):
            with path.open("rb") as stream:
                digest.update(hashlib.file_digest(stream, "sha256").digest())
        rules = (
            self._normalize,
            files.most_characters,
            files.most_tokens,
            self.dimension,
            sorted(self._prompts.items()),
        )
        digest.update(repr(("static", *rules)).encode())
        return digest.hexdigest()

    def encode(self, texts: Sequence[str], *, kind: Kind = "passage") -> Vectors:
        """Return float32 [n, dimension], one row a text, in the order of the texts; equal texts are encoded once."""
        return self._texts.of(texts, kind, lambda _: self._prompts.get(kind, ""))

    def _batches(self, texts: list[str]) -> Iterator[tuple[list[str], Vectors]]:
        for start in range(0, len(texts), _AT_ONCE):
            batch = texts[start : start + _AT_ONCE]
            tokens = self._files.token_ids(batch)
            offsets = np.zeros(len(tokens) + 1, np.int64)
            np.cumsum([len(ids) for ids in tokens], out=offsets[1:])
            flat = np.fromiter(chain.from_iterable(tokens), np.int32, int(offsets[-1]))
            yield (
                batch,
                embedding_bag(
                    self._table, flat, offsets, weights=self._files.weights, mapping=self._files.mapping,
                    normalize=self._normalize, threads=self._threads,
                ),
            )  # fmt: skip


def is_static(path: Path) -> bool:
    """Say whether a directory holds a static encoder by what it says of itself, even if a graph of it lies beside."""
    if not path.is_dir():
        return False
    modules = read_config(path / "modules.json", list[dict[str, Any]]) or [{}]
    config = read_config(path / "config.json", dict[str, Any]) or {}
    return str(modules[0].get("type")).endswith(f".{_MODULE}") or config.get("model_type") == "model2vec"


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # of a name that is too long
        return False


def _unknown_token(tokenizer: Tokenizer) -> int | None:
    """Return the token that stands for what a tokenizer does not know, if it has one."""
    model = tokenizer.model
    if hasattr(model, "unk_token"):
        return None if model.unk_token is None else tokenizer.token_to_id(model.unk_token)
    # Of a Unigram model the binding tells only by writing all of it.
    unknown = json.loads(tokenizer.to_str())["model"].get("unk_id")
    return unknown if isinstance(unknown, int) else None
