"""A typed layer over what llama.cpp computes for a whole text: one pooled vector, or the outputs of a classification head."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pytrace import _core
from pytrace.errors import ModelError, ModelFileError
from pytrace.models.llama.runtime import LoadedModel, why

GgufPooling = Literal["mean", "cls", "lasttoken", "rank"]
Rows = NDArray[np.float32]

# llama.cpp's `llama_pooling_type`.
POOLING_NUMBERS: dict[GgufPooling, int] = {"mean": 1, "cls": 2, "lasttoken": 3, "rank": 4}
# Tokens that are evaluated together. Products of more rows are hardly faster, and every token of a batch is compared with all
# others of it, those of other texts too, which are masked afterwards.
BATCH_TOKENS = 512
_MOST_TEXTS = 256  # llama.cpp's own limit
# What one more call costs, counted in tokens.
_ONE_MORE = 32
_WORD_PIECES = 3  # LLAMA_VOCAB_TYPE_WPM
_PAIR_BYTES = 6


class PooledRuntime(LoadedModel):
    """One loaded model that gives each text one row of `width` numbers."""

    def __init__(self, path: Path, *, pooling: GgufPooling, threads: int, gpu_layers: int = 0) -> None:
        super().__init__(path, gpu_layers=gpu_layers)
        c = self._c
        if c.llama_model_has_encoder(self._model):
            raise ModelFileError(
                f"{path}: llama.cpp pools no encoder-decoder; choose another model, or its ONNX export"
            )
        self.pooling: GgufPooling = pooling
        self._threads, self._gpu_layers = threads, gpu_layers
        ranks = pooling == "rank"
        self.width = int(c.llama_model_n_cls_out(self._model) if ranks else c.llama_model_n_embd_out(self._model))
        self._room = self._needed = 0
        self._memory: Any = None
        self._make_context(BATCH_TOKENS)
        # Where there is a cache, tokens see those before them alone, unless the file says otherwise.
        architecture = self.metadata("general.architecture") or ""
        self.causal = bool(self._memory) and self.metadata(f"{architecture}.attention.causal") != "false"

    def _make_context(self, room: int) -> None:
        """Make the context anew, for texts of up to `room` tokens: what a long one takes is taken when it is there."""
        c = self._c
        parted = self._memory and self.causal
        if self._gpu_layers == 0:
            # Which token sees which, in 32 and in 16 bits; keys and values.
            self._check_memory(
                f"a text of {room:,} tokens", self._cache_bytes(room, 2) + (0 if parted else _PAIR_BYTES * room**2)
            )
        parameters = self._context_parameters(self._threads)
        parameters.embeddings = True
        parameters.pooling_type = POOLING_NUMBERS[self.pooling]
        parameters.n_ctx = room
        parameters.n_batch = parameters.n_ubatch = BATCH_TOKENS if parted else room
        parameters.n_seq_max = _MOST_TEXTS
        if self._gpu_layers == 0:
            # It rounds keys and values to 16 bits (1e-7 of a cosine), and takes half the time of what does not.
            parameters.flash_attn_type = c.LLAMA_FLASH_ATTN_TYPE_ENABLED
        context, self._context, self._room = self._context, None, 0
        if context:
            c.llama_free(context)
        _core.clear_logged_errors()
        self._context = c.llama_init_from_model(self._model, parameters)
        if not self._context:
            raise ModelError(
                f"{self._path}: llama.cpp cannot make a context of {room:,} tokens: {why()}; ask for fewer"
            )
        self._memory = c.llama_get_memory(self._context)
        self._room = room

    def check_open(self) -> None:
        """Refuse to touch native memory that is freed; a context that an interrupt took is made again."""
        if not self._model:
            raise ModelError("this model was closed; load it again")

    @cached_property
    def frame(self) -> tuple[list[int], list[int]]:
        """The special tokens before and after a text, as the file's tokenizer says."""
        body, whole = self.tokenize("a"), self.tokenize("a", framed=True)
        for start in range(len(whole) - len(body) + 1):
            if whole[start : start + len(body)] == body:
                return whole[:start], whole[start + len(body) :]
        raise ModelFileError(f"{self._path}: its tokenizer changes a text between special tokens; choose another model")

    @cached_property
    def between(self) -> list[int]:
        """The special tokens between a question and a passage, as the file's tokenizer says."""
        c, vocabulary = self._c, self._vocabulary
        _, after = self.frame
        if (
            int(c.llama_vocab_type(vocabulary)) == _WORD_PIECES
        ):  # of which files do not say that a pair's texts end like one
            return after
        separator = int(c.llama_vocab_sep(vocabulary))
        return after + ([separator] if separator >= 0 and c.llama_vocab_get_add_sep(vocabulary) else [])

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The names of the head's outputs; empty where the file names none."""
        names = [self._c.llama_model_cls_label(self._model, number) for number in range(self.width)]
        return tuple(name.decode("utf-8", "replace") for name in names if name) if all(names) else ()

    def rows(self, texts: Sequence[list[int]]) -> Iterator[tuple[list[int], Rows]]:
        """Evaluate tokenised texts, and give batch by batch, in any order, their indices and float32 [n, width]."""
        batches = _neighbours(texts) if self.causal else _longest_first(texts)
        self._needed = max((batch.tokens for batch in batches), default=0)
        for batch in batches:
            yield batch.indices, self._evaluate([texts[index] for index in batch.indices], batch)

    def _evaluate(self, texts: list[list[int]], batch: _Batch) -> Rows:
        with self._gate:
            self.check_open()
            if batch.tokens > self._room:
                self._make_context(-(-max(batch.tokens, self._needed) // BATCH_TOKENS) * BATCH_TOKENS)
            if self._memory:
                self._c.llama_memory_clear(self._memory, False)
            # Where a token sees only those before it, what texts begin with is evaluated once, and a long text in parts.
            shared = batch.shared
            starts = range(0, shared, BATCH_TOKENS)
            parts = [self._batch([texts[0][start : min(start + BATCH_TOKENS, shared)]], start) for start in starts]
            for index in range(1, len(texts) if shared else 0):
                self._c.llama_memory_seq_cp(self._memory, 0, index, 0, shared)
            rows = self._batch([text[shared:] for text in texts], shared)
        if not parts or self.pooling in {"lasttoken", "rank"}:
            return rows
        if self.pooling == "cls":
            return np.repeat(parts[0], len(texts), axis=0)
        counts = np.array([[len(text)] for text in texts], np.float32)
        total = rows * (counts - shared)
        for start, part in zip(starts, parts, strict=True):
            total += part * min(BATCH_TOKENS, shared - start)
        return np.asarray(total / counts)

    def _batch(self, texts: list[list[int]], first: int) -> Rows:
        """Evaluate texts, or the parts of them that begin at a position, in one call of llama.cpp."""
        lengths = [len(text) for text in texts]
        count = sum(lengths)
        owners = np.repeat(np.arange(len(texts), dtype=np.int32), lengths)
        done = self.decode(
            np.concatenate([np.asarray(text, np.int32) for text in texts]),
            np.concatenate([np.arange(first, first + length, dtype=np.int32) for length in lengths]),
            np.ones(count, np.int32),
            owners.ctypes.data + owners.itemsize * np.arange(count, dtype=np.uint64),
            np.ones(count, np.int8),
        )
        if not done:
            raise ModelError(f"{self._path}: llama.cpp has no room for {count} tokens; give context= a smaller number")
        rows = np.empty((len(texts), self.width), np.float32)
        for index in range(len(texts)):
            row = self._c.llama_get_embeddings_seq(self._context, index)
            if not row:
                raise ModelError(f"{self._path}: llama.cpp pools nothing for this model; choose another")
            rows[index] = np.ctypeslib.as_array(row, shape=(self.width,))
        return rows


class _Batch(NamedTuple):
    """Texts that are evaluated together, the tokens that they all begin with, and how many there are with these counted once."""

    indices: list[int]
    shared: int
    tokens: int


def _longest_first(texts: Sequence[list[int]]) -> list[_Batch]:
    """Fill batches with texts of about the same length."""
    batches: list[_Batch] = []
    for index in sorted(range(len(texts)), key=lambda index: -len(texts[index])):
        length = len(texts[index])
        last = batches[-1] if batches else None
        if last is not None and len(last.indices) < _MOST_TEXTS and last.tokens + length <= BATCH_TOKENS:
            batches[-1] = last._replace(tokens=last.tokens + length)
            last.indices.append(index)
        else:
            batches.append(_Batch([index], 0, length))
    return batches


def _neighbours(texts: Sequence[list[int]]) -> list[_Batch]:
    """Fill batches with texts that begin alike, which stand beside each other when sorted."""
    batches: list[_Batch] = []
    before: list[int] = []
    least = 0  # the shortest text of the last batch
    for index in sorted(range(len(texts)), key=lambda index: texts[index]):
        text = texts[index]
        last = batches[-1] if batches else None
        if last is not None and len(last.indices) < _MOST_TEXTS:
            least = min(least, len(text))
            # Every text has to have a token of its own.
            shared = min(last.shared if len(last.indices) > 1 else least - 1, _common(before, text), least - 1)
            count = len(last.indices)
            tokens = last.tokens + last.shared * (count - 1) + len(text) - shared * count
            if tokens - shared <= BATCH_TOKENS and tokens <= last.tokens + len(text) + _ONE_MORE:
                batches[-1] = _Batch([*last.indices, index], shared, tokens)
                before = text
                continue
        # A long text alone has its last part for itself.
        shared, least, before = (len(text) - 1) // BATCH_TOKENS * BATCH_TOKENS, len(text), text
        batches.append(_Batch([index], shared, len(text)))
    return [_worth_it(batch) for batch in batches]


def _worth_it(batch: _Batch) -> _Batch:
    """Let texts share nothing where that saves less than it costs."""
    saved = batch.shared * (len(batch.indices) - 1)
    if 0 < saved <= _ONE_MORE and batch.tokens + saved <= BATCH_TOKENS:
        return _Batch(batch.indices, 0, batch.tokens + saved)
    return batch


def _common(first: list[int], second: list[int]) -> int:
    """Count the tokens that two texts begin with alike."""
    return next(
        (n for n, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), min(len(first), len(second))
    )
