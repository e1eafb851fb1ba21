"""A transformer's graph on onnxruntime: loading it on the device asked for, feeding it tokens, taking what it gives."""

from __future__ import annotations

import mmap
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pytrace.errors import DeviceUnavailableError, MissingDependencyError, ModelError, ModelFileError
from pytrace.processes import useful_threads

Device = Literal["cpu", "cuda"]
# Vectors of texts or else of tokens, vectors of tokens or else of texts, or the logits of the labels of a classified text or else
# the vectors of tokens that they are made of.
Gives = Literal["vectors", "token vectors", "logits"]

_PROVIDERS: dict[Device, tuple[str, ...]] = {
    "cpu": ("CPUExecutionProvider",),
    # The CPU stays in the list for the few shape computations that CUDA has no kernels for.
    "cuda": ("CUDAExecutionProvider", "CPUExecutionProvider"),
}
_INTEGERS: dict[str, type[np.signedinteger[Any]]] = {"tensor(int64)": np.int64, "tensor(int32)": np.int32}
_FLOATS: dict[str, type[np.floating[Any]]] = {"tensor(float)": np.float32, "tensor(float16)": np.float16}
_INPUTS = ("input_ids", "attention_mask", "token_type_ids", "position_ids")
# What decoders keep of tokens that went before: there are none.
_PAST = "past_key_values."
# Which of a model's adapters to use.
_TASK = "task_id"
_POOLED = ("sentence_embedding", "sentence_embeddings", "embeddings", "embedding", "text_embeds", "dense_vecs"), 2
_HIDDEN = ("last_hidden_state", "token_embeddings", "hidden_states"), 3
_KNOWN: dict[Gives, tuple[tuple[tuple[str, ...], int], ...]] = {
    "vectors": (_POOLED, _HIDDEN),
    "token vectors": (_HIDDEN, _POOLED),
    "logits": ((("logits", "scores"), 2), _HIDDEN),
}
# How to export what a graph should give.
EXPORTS: dict[Gives, str] = {
    "vectors": "for feature extraction, with the output 'last_hidden_state' or 'sentence_embedding'",
    "token vectors": "for feature extraction, with the output 'last_hidden_state'",
    "logits": "for sequence classification, with the output 'logits'",
}
# Operators that quantise activations by what a batch holds: DynamicQuantizeLinear, DynamicQuantizeMatMul, …
_DYNAMIC = re.compile(rb"DynamicQuantize")
# TensorProto.external_data: the entry "location", then the length of the file's name and the name (protobuf's encoding).
_LOCATION = re.compile(rb"\n\x08location\x12([\x01-\x7f])(?=([^\x00]{1,127}))", re.DOTALL)
# onnxruntime's fused form of an addition and a layer normalisation takes 6 times as long on a CPU as the two by themselves
# (1.31, MiniLM, by its own profile: 13% of a run beside 2%): its sums are not vectorised.
_SLOW_FUSIONS = ["SkipLayerNormFusion"]
# What onnxruntime says where memory is short.
NO_MEMORY = re.compile("bad_alloc|allocate memory")
# Errors arrive as exceptions; the same on stderr would be said twice.
_SILENT = 4


class OnnxGraph:
    """A graph that takes token ids and gives a vector for every token, or one vector or row of logits (`pooled`) for a text."""

    def __init__(
        self,
        path: Path,
        *,
        gives: Gives = "vectors",
        output: str | None = None,
        device: Device = "cpu",
        providers: Sequence[str] | None = None,
        threads: int = 1,
        bind: Device | None = None,
    ) -> None:
        self.path = path
        self._gives: Gives = gives
        chosen = list(providers or _PROVIDERS[device])
        self._session = open_session(path, chosen, threads)
        self.provider = str(self._session.get_providers()[0])
        self._bind: Device | None = "cuda" if bind is None and self.provider == "CUDAExecutionProvider" else bind
        inputs = self._session.get_inputs()
        self._tasks = [(item.name, _INTEGERS[item.type], len(item.shape)) for item in inputs if self._is_task(item)]
        self._past = [(item.name, _FLOATS[item.type], item.shape) for item in inputs if _is_past(item)]
        rest = {name for name, *_ in (*self._tasks, *self._past)}
        self._inputs = {item.name: self._input_type(item) for item in inputs if item.name not in rest}
        shapes = [item.shape for item in inputs if item.name in self._inputs]
        # The batch size and length that the graph is fixed to; None where it takes any.
        self.rows = next((shape[0] for shape in shapes if isinstance(shape[0], int)), None)
        self.columns = next((shape[1] for shape in shapes if isinstance(shape[1], int)), None)
        self.output, self.pooled = self._choose_output(gives, output)
        # Activations quantised while it runs have one scale for a whole batch.
        self.dynamically_quantized = bool(_findall(path, _DYNAMIC))

    def take(self, gives: Gives) -> None:
        """Give something else from now on, where the graph has it."""
        self.output, self.pooled = self._choose_output(gives)

    def run(
        self,
        tokens: Sequence[Sequence[int]],
        pad_id: int,
        types: Sequence[Sequence[int]] | None = None,
        *,
        task: int = 0,
        length: int = 0,
    ) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Run one batch of token ids, none of them empty; `types` tells of each which text of a pair it is of.

        `task` is the number of the adapter to use, for a graph that takes one (`has_tasks`). Texts are padded to the longest, or
        to `length` if that is more.
        """
        feed, mask = self._feed(tokens, pad_id, types, length)
        for name, kind, rank in self._tasks:
            feed[name] = np.full((1,) * rank, task, dtype=kind)
        for name, floating, shape in self._past:
            # Of a batch of so many texts nothing: the one axis beside the batch's that is free is the length.
            feed[name] = np.zeros((len(mask), *(size if isinstance(size, int) else 0 for size in shape[1:])), floating)
        count = len(tokens)
        try:
            output = self._bound(feed) if self._bind else self._session.run([self.output], feed)[0]
        except Exception as error:  # onnxruntime raises classes of its own that share no base
            raise ModelError(
                f"{self.path.name} failed on {count} texts of up to {mask.shape[1]} tokens ({first_line(error)}); use "
                "smaller batches if memory is short, or fetch the model again"
            ) from error
        return np.asarray(output, dtype=np.float32)[:count], mask[:count]

    def _feed(
        self, tokens: Sequence[Sequence[int]], pad_id: int, types: Sequence[Sequence[int]] | None, least: int
    ) -> tuple[dict[str, NDArray[Any]], NDArray[np.bool_]]:
        count = len(tokens)
        longest = max(least, *(len(ids) for ids in tokens))
        length = self.columns or longest
        if length < longest:
            raise ModelFileError(
                f"{self.path} takes {length} tokens, which leaves no room for a text; export it with a longer sequence"
            )
        ids = np.full((self.rows or count, length), pad_id, dtype=np.int64)
        mask = np.zeros(ids.shape, dtype=bool)
        mask[:, 0] = True  # rows beyond the texts exist only in graphs of a fixed batch size; none may be all padding
        for row, item in enumerate(tokens):
            ids[row, : len(item)] = item
            mask[row, : len(item)] = True
        kinds = np.zeros_like(ids)
        for row, item in enumerate(types or ()):
            kinds[row, : len(item)] = item
        values = {
            "input_ids": ids,
            "attention_mask": mask,
            "token_type_ids": kinds,
            "position_ids": np.broadcast_to(np.arange(length), ids.shape),
        }
        return {name: values[name].astype(kind) for name, kind in self._inputs.items()}, mask

    def _bound(self, feed: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
        from onnxruntime import OrtValue

        binding = self._session.io_binding()
        for name, value in feed.items():
            binding.bind_ortvalue_input(name, OrtValue.ortvalue_from_numpy(value, self._bind, 0))
        binding.bind_output(self.output, self._bind, 0)
        self._session.run_with_iobinding(binding)
        output: NDArray[Any] = binding.get_outputs()[0].numpy()
        return output

    @property
    def has_tasks(self) -> bool:
        """Whether it takes the number of an adapter."""
        return bool(self._tasks)

    @staticmethod
    def _is_task(item: Any) -> bool:
        return item.name == _TASK and item.type in _INTEGERS and item.shape in ([], [1])

    def _input_type(self, item: Any) -> type[np.signedinteger[Any]]:
        if item.name in _INPUTS and item.type in _INTEGERS and len(item.shape) == 2:
            return _INTEGERS[item.type]
        raise ModelFileError(
            f"{self.path} wants the input {item.name!r} ({item.type}, {len(item.shape)} axes), which a text does not "
            f"have; export it {EXPORTS[self._gives]} and the inputs {', '.join(_INPUTS)} alone"
        )

    def _choose_output(self, gives: Gives, wanted: str | None = None) -> tuple[str, bool]:
        ranks = {item.name: len(item.shape) for item in self._session.get_outputs()}
        known = _KNOWN[gives]
        if wanted is not None:
            if ranks.get(wanted) in {rank for _, rank in known}:
                return wanted, ranks[wanted] == 2
            raise ModelFileError(
                f"{self.path} has no output {wanted!r} of {' or '.join(str(rank) for _, rank in known)} axes, but "
                f"{', '.join(f'{name} ({rank} axes)' for name, rank in ranks.items())}; name one of these"
            )
        for names, rank in known:
            for name in names:
                if ranks.get(name) == rank:
                    return name, rank == 2
        if len(ranks) == 1 and set(ranks.values()) <= {rank for _, rank in known}:
            name, rank = next(iter(ranks.items()))
            return name, rank == 2
        raise ModelFileError(
            f"{self.path} gives {', '.join(ranks) or 'nothing'}, none of which is known; export it {EXPORTS[gives]}"
            f"{', or name the one to use (output=)' if len(ranks) > 1 and gives != 'logits' else ''}"
        )


def _is_past(item: Any) -> bool:
    """Say whether an input is of tokens that went before, with one free axis for their number."""
    free = [size for size in item.shape[1:] if not isinstance(size, int)]
    return item.name.startswith(_PAST) and item.type in _FLOATS and len(item.shape) == 4 and len(free) == 1


def weight_files(path: Path) -> list[Path]:
    """Return a graph's file and those beside or below it that hold its weights, as the graph names them."""
    names = {match[1][: match[0][0]].decode("utf-8", "ignore") for match in _findall(path, _LOCATION)}
    # A graph has no business outside its directory, and onnxruntime refuses one that names files there.
    inside = (path.parent / name for name in names if not name.startswith("/") and ".." not in Path(name).parts)
    return [path, *sorted(file for file in inside if file.is_file())]


def require_device(device: Device) -> None:
    """Refuse a device that the installed onnxruntime was not built for, before a graph is loaded."""
    _runtime_with(list(_PROVIDERS[device]))


def runtime_version() -> str:
    """Return the version of onnxruntime."""
    return str(_runtime_with([]).__version__)


def _runtime_with(providers: list[str]) -> Any:
    """Import onnxruntime, which must have these providers."""
    # Importing it makes an id for this machine and collects events to send, both in ~/.cache/Microsoft (1.32).
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingDependencyError(
            "onnxruntime is needed to run an encoder; install it with \"pip install 'pytrace-rag[onnx]'\" "
            "('pytrace-rag[cuda]' for a GPU)"
        ) from error
    onnxruntime.disable_telemetry_events()
    onnxruntime.set_default_logger_severity(_SILENT)
    there = onnxruntime.get_available_providers()
    missing = [name for name in providers if name not in there]
    if missing:
        raise DeviceUnavailableError(
            f"{', '.join(missing)} is not in the installed onnxruntime, which has {', '.join(there)}; install the build that "
            "has it (for CUDA: uninstall onnxruntime, then install onnxruntime-gpu) or use device='cpu'"
        )
    return onnxruntime


def open_session(path: Path, providers: list[str], threads: int) -> Any:
    """Open a graph, its threads waiting without spinning; `ModelFileError` if it cannot be loaded."""
    onnxruntime = _runtime_with(providers)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = useful_threads(threads)
    options.inter_op_num_threads = 1
    # A plan of memory is kept for every shape met, and there are thousands of shapes.
    options.enable_mem_pattern = False
    # Threads that spin while they wait starve the kernels and llama.cpp, which take turns with them on the same cores.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = _SILENT
    try:
        disabled = _SLOW_FUSIONS if providers[0] == "CPUExecutionProvider" else None
        # A second try on the same provider would be told on stdout.
        session = onnxruntime.InferenceSession(
            str(path), options, providers=providers, disabled_optimizers=disabled, enable_fallback=len(providers) > 1
        )
        for item in (*session.get_inputs(), *session.get_outputs()):
            str((item.name, item.type, item.shape))  # may be no UTF-8
    except Exception as error:  # onnxruntime raises classes of its own that share no base
        if NO_MEMORY.search(str(error)):
            raise MemoryError(f"there is no memory for {path}") from error
        raise ModelFileError(
            f"{path} is no ONNX graph that can be loaded ({first_line(error)}); fetch the model again"
        ) from error
    used = session.get_providers()
    if used[0] != providers[0]:
        # onnxruntime drops a provider whose libraries are not there, and carries on without it.
        raise DeviceUnavailableError(
            f"{providers[0]} could not be started and {used[0]} would run instead; install the libraries it needs (for "
            "CUDA: the CUDA and cuDNN versions that onnxruntime was built for) or use device='cpu'"
        )
    return session


def _findall(path: Path, pattern: re.Pattern[bytes]) -> list[Any]:
    if path.stat().st_size == 0:  # cannot be mapped
        return []
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return pattern.findall(content)


def first_line(error: Exception) -> str:
    """Return the first line of an error's message without its final period, or the class name if the message is empty."""
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__
