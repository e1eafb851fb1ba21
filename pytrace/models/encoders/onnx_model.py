"""What encoders and cross-encoders on onnxruntime have in common: a graph, threads for it, and texts in batches."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np

from pytrace import _core
from pytrace.models import registry
from pytrace.models.encoders.encoder_files import OnnxFiles
from pytrace.models.encoders.model_directory import locate
from pytrace.models.encoders.onnx_graph import Device, Gives, OnnxGraph, weight_files
from pytrace.models.encoders.onnx_trial import check_model

# Padded tokens a batch. On a CPU the activations of some hundred tokens of a small model still fit the second-level cache,
# and bigger batches measured slower; a GPU wants enough rows to fill its multiprocessors.
_BATCH_TOKENS = {"cpu": 512, "cuda": 16384}
# Up to this size of its files a model runs a batch on each thread, which measured faster than all threads on one batch:
# nobody waits for another between operators. A larger one would read its weights from memory once a thread, and is slow
# enough for a single text to want all threads.
_SMALL = 512 << 20
# What starting one more batch costs, counted in tokens: the operators' own overhead, and products of few rows, which run
# slower a row. On MiniLM one text of 12 tokens takes about as long as 25 more tokens in a batch of 500.
_OVERHEAD = 32
# Batches are not cut smaller than this for the sake of idle threads.
_LEAST = 64

_Files = TypeVar("_Files", bound=OnnxFiles)
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class OnnxTextModel(Generic[_Files]):
    """A graph that is run on tokenised texts in batches of about the same length."""

    def __init__(
        self,
        path: Path,
        kind: type[_Files],
        *,
        gives: Gives,
        device: Device,
        providers: Sequence[str] | None,
        threads: int | None,
        batch_tokens: int | None,
        dtype: str | None = None,
        output: str | None = None,
    ) -> None:
        if device not in _BATCH_TOKENS:
            raise ValueError(f"device must be 'cpu' or 'cuda', not {device!r}")
        for option, value in (("threads", threads), ("batch_tokens", batch_tokens)):
            if value is not None and value < 1:
                raise ValueError(f"{option} must be at least 1, not {value}")
        directory, graph = locate(path, kind.remedy, dtype)
        self._parts = (*weight_files(graph), directory / "tokenizer.json")
        check_model(directory, self._parts, gives)
        files = self._files = kind(path, dtype)
        self.name = files.directory.name
        # The length in tokens, special ones included, that inputs are cut to.
        self.max_tokens = files.max_tokens
        threads = threads or _core.num_threads()
        size = sum(file.stat().st_size for file in self._parts)
        apart = (providers is None and device == "cpu") and size <= _SMALL
        self._workers = threads if apart else 1
        self._graph = OnnxGraph(
            files.graph, gives=gives, output=output, device=device, providers=providers, threads=1 if apart else threads
        )
        self._batch_tokens = batch_tokens or _BATCH_TOKENS[device]

    @cached_property
    def calibration(self) -> dict[str, tuple[float, float]]:
        """The registry's curves that make probabilities of its scores; none if it has none for this model."""
        return registry.calibration(map(registry.content_sha256, self._parts))

    def _hash(self, *rules: object, files: Sequence[Path] = ()) -> str:
        """Return SHA-256 over the graph, its weights, the tokenizer, more files, and the rules by which they are used."""
        digest = hashlib.sha256()
        for path in (*self._parts, *files):
            with path.open("rb") as stream:
                digest.update(hashlib.file_digest(stream, "sha256").digest())
        digest.update(repr(rules).encode())
        return digest.hexdigest()

    def _in_batches(
        self, run: Callable[[list[_Item]], _Result], items: Sequence[_Item], lengths: Sequence[int]
    ) -> Iterator[tuple[list[int], _Result]]:
        """Run items of some token lengths in batches, several at once; give each batch's indices and what `run` returned."""
        batches = plan(
            [self._graph.columns or length for length in lengths],
            batch_tokens=self._batch_tokens,
            most_rows=1 if self._graph.dynamically_quantized else self._graph.rows,
            threads=self._workers,
        )
        inputs = ([items[index] for index in batch] for batch in batches)
        with _mapping(min(self._workers, len(batches))) as mapping:
            yield from zip(batches, mapping(run, inputs), strict=True)


def plan(
    lengths: Sequence[int], *, batch_tokens: int, most_rows: int | None = None, threads: int = 1
) -> list[list[int]]:
    """Sort texts into batches, each padded to its longest."""
    # A batch ends where the next text would take it over `batch_tokens`, or would bring its padding over what one more
    # batch costs. Where all texts are fewer tokens than `threads` batches hold, batches are smaller, so that no thread
    # is idle. Takes O(n log n) for n texts.
    order = np.argsort(np.asarray(lengths, dtype=np.int64), kind="stable").tolist()
    most = max(1, most_rows or len(order))
    tokens = min(batch_tokens, max(_LEAST, -(-sum(lengths) // threads)))
    batches: list[list[int]] = []
    batch: list[int] = []
    used = 0
    for index in order:
        # Sorted by length, the newest text of a batch is its longest: it sets the padded width of all.
        padded = (len(batch) + 1) * lengths[index]
        if batch and (padded > tokens or padded - used - lengths[index] > _OVERHEAD or len(batch) == most):
            batches.append(batch)
            batch, used = [], 0
        batch.append(index)
        used += lengths[index]
    if batch:
        batches.append(batch)
    return batches[::-1]


@contextmanager
def _mapping(threads: int) -> Iterator[Callable[[Callable[[_Item], _Result], Iterable[_Item]], Iterable[_Result]]]:
    """Give a `map` that keeps order and runs on so many threads; what has not begun when it is left never will."""
    if threads <= 1:
        yield map
        return
    pool = ThreadPoolExecutor(threads, thread_name_prefix="encoder")
    try:
        yield pool.map
    finally:
        pool.shutdown(cancel_futures=True)
