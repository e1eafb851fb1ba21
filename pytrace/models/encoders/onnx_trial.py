"""Whether onnxruntime and tokenizers can load a graph and a tokenizer that nobody vouches for."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

import tokenizers

from pytrace.errors import ModelFileError
from pytrace.models import registry, trial
from pytrace.models.encoders.onnx_graph import NO_MEMORY, Gives, OnnxGraph, runtime_version

# Texts of none, one and several tokens, of a word that is none, and of letters and marks that tokenizers treat each their own way.
_TEXTS = [
    "",
    "a",
    "Ada wrote 3 of them in 1843, didn't she?",
    "a" * 1000,
    "\u00c4 na\u00efve \u4e2d\u6587 \u0e01 \u05e9\u05dc \U0001f600\u0301\u202e\t\ufffd ",
]
# A graph is kept as it was read, as it is run, and rearranged for the processor; a batch of three tokens takes next to nothing.
_MEMORY, _COPIES = 2 << 30, 8


def check_model(directory: Path, parts: Sequence[Path], gives: Gives) -> None:
    """Refuse a graph (the first of a model's parts), its weights or its tokenizer (the last) that this process may not survive."""
    try:
        hashes = [registry.content_sha256(path) for path in parts]
        size = sum(path.stat().st_size for path in parts)
    except OSError as error:
        raise ModelFileError(
            f"the model in {directory} cannot be read ({error.strerror}); correct its permissions"
        ) from error
    if registry.pinned(hashes):
        return
    content = repr([gives, tokenizers.__version__, runtime_version(), hashes])
    trial.check(
        directory, _load, str(parts[0]), str(parts[-1]), gives, file="onnx-models.json",
        key=hashlib.sha256(content.encode()).hexdigest(), size=size, memory=_MEMORY + _COPIES * size,
    )  # fmt: skip


def check_tokenizer(path: Path) -> None:
    """Refuse a tokenizer that this process may not survive, of a model without a graph."""
    try:
        content = registry.content_sha256(path)
        size = path.stat().st_size
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read ({error.strerror}); correct its permissions") from error
    if registry.pinned([content]):
        return
    trial.check(
        path, _load_tokenizer, str(path), file="tokenizers.json", size=size, memory=_MEMORY + _COPIES * size,
        key=hashlib.sha256(repr([tokenizers.__version__, content]).encode()).hexdigest(),
    )  # fmt: skip


def _load_tokenizer(path: str) -> str:
    """Be the child, as `_load` is, for a tokenizer alone."""
    return _tried(_tokenize, path)


def _load(graph: str, tokenizer: str, gives: Gives) -> str:
    """Be the child: let the tokenizer and the graph do a little, and return what the process that called would not survive either."""
    return _tried(_tokenize, tokenizer) or _tried(_run, graph, gives)


def _tried(use: Callable[..., None], *arguments: str) -> str:
    try:
        use(*arguments)
    except BaseException as error:
        # Of compiled Rust code, which says so on stderr before anybody can catch it.
        if type(error).__name__ == "PanicException":
            return f"panicked: {' '.join(str(error).split())[:200]}"
        if not isinstance(error, Exception):
            raise
        if isinstance(error, MemoryError) or NO_MEMORY.search(str(error)):
            return "wanted more memory than a model of its size takes"
    return ""  # what is told in words is told again, better, when that process loads the model


def _tokenize(path: str) -> None:
    tokenizer = tokenizers.Tokenizer.from_file(path)
    tokenizer.no_padding()
    tokenizer.enable_truncation(max_length=8)
    tokenizer.encode_batch_fast(_TEXTS)
    tokenizer.no_truncation()
    first, second = tokenizer.encode_batch_fast(["red house", "b"], add_special_tokens=False)
    tokenizer.enable_truncation(max_length=8, strategy="only_second")
    tokenizer.post_process(first, second)


def _run(path: str, gives: Gives) -> None:
    graph = OnnxGraph(Path(path), gives=gives)
    texts = [[0] * min(graph.columns or 3, 3), [0]]
    graph.run(texts[: graph.rows], 0)
