"""The directory of a model in ONNX: which of its files is the graph, and its tokenizer."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from tokenizers import Tokenizer, normalizers, processors

from pytrace.errors import ModelFileError
from pytrace.storage.foreign_json import read_json

_T = TypeVar("_T")

# What exporters add to "model" for weights of a kind, the first that is there; any other word stands for itself.
_SUFFIXES = {
    "float32": ("", "_fp32"),
    "float16": ("_fp16", "_float16"),
    "int8": ("_int8", "_quantized", "_qint8", "_uint8", "_quint8"),
}


def locate(path: Path, remedy: str, dtype: str | None = None) -> tuple[Path, Path]:
    """Return the directory of a model and its graph, that of `dtype` if given; `remedy` says what to do where there is none."""
    if path.is_file() or path.suffix == ".onnx":
        # Hub repositories keep graphs in onnx/, a level below the tokenizer.
        directories = (path.parent, path.parent.parent)
        directory = next((folder for folder in directories if (folder / "tokenizer.json").is_file()), path.parent)
        graph = path
        if dtype is not None:
            raise ModelFileError(
                f"{path} is one graph, so dtype={dtype!r} has nothing to choose; give the directory or leave it out"
            )
    else:
        directory = path
        graph = _graph(path, remedy, dtype)
    if not os.access(graph, os.R_OK) or not graph.is_file():
        raise ModelFileError(f"{graph} is not a readable file; {remedy}")
    if not (directory / "tokenizer.json").is_file():
        raise ModelFileError(
            f"{directory} has no tokenizer.json; put the model's own beside its graph, or write one there with transformers: "
            "AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR)"
        )
    return directory.absolute(), graph.absolute()


def _graph(directory: Path, remedy: str, dtype: str | None) -> Path:
    graphs = {file.stem: file for file in (*sorted(directory.glob("onnx/*.onnx")), *sorted(directory.glob("*.onnx")))}
    if not graphs:
        weights = [name for name in ("model.safetensors", "pytorch_model.bin") if (directory / name).is_file()]
        if weights:
            raise ModelFileError(
                f"{directory} has its weights in {weights[0]} alone, and no .onnx file; export it with "
                f'"optimum-cli export onnx --model {directory} {directory}/onnx" (pip install optimum-onnx)'
            )
        raise ModelFileError(f"{directory} has no .onnx file; {remedy}")
    if dtype is not None:
        for suffix in _SUFFIXES.get(dtype, (f"_{dtype}",)):
            if f"model{suffix}" in graphs:
                return graphs[f"model{suffix}"]
        raise ModelFileError(
            f"{directory} has no graph of dtype {dtype!r}, but {', '.join(file.name for file in graphs.values())}; choose another "
            "or name a file"
        )
    if "model" in graphs:
        return graphs["model"]
    if len(graphs) > 1:
        raise ModelFileError(
            f"{directory} has {len(graphs)} .onnx files and none is called model.onnx; name the one to use or its dtype"
        )
    return next(iter(graphs.values()))


def read_config(path: Path, kind: type[_T]) -> _T | None:
    """Read a JSON file of a model; None if it is not there."""
    try:
        return read_json(path, kind)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ModelFileError(
            f"{path} cannot be read as a model's configuration ({error}); fetch the model again"
        ) from error


class TokenizerSettings(msgspec.Struct):
    """What ``tokenizer_config.json`` says beside the tokenizer."""

    model_max_length: float | str | None = None  # also 10^30, which no integer of 64 bits holds
    truncation_side: str | None = None
    add_bos_token: bool | None = None
    add_eos_token: bool | None = None
    bos_token: str | dict[str, Any] | None = None
    eos_token: str | dict[str, Any] | None = None


def load_tokenizer(path: Path, settings: TokenizerSettings) -> Tokenizer:
    """Read a tokenizer, with what its settings change of it, as transformers reads them."""
    with usable(path):
        tokenizer = Tokenizer.from_file(str(path))
        if settings.add_bos_token is not None or settings.add_eos_token is not None:
            tokenizer.post_processor = _template(tokenizer, settings)
    return tokenizer


def _template(tokenizer: Tokenizer, settings: TokenizerSettings) -> processors.TemplateProcessing:
    tokens = {}
    for end, stated, added in (
        ("bos", settings.bos_token, settings.add_bos_token),
        ("eos", settings.eos_token, settings.add_eos_token),
    ):
        token = stated.get("content") if isinstance(stated, dict) else stated
        number = tokenizer.token_to_id(token) if isinstance(token, str) else None
        if added and number is not None:
            tokens[end] = (str(token), number)
    begin, finish = ([tokens[end][0]] if end in tokens else [] for end in ("bos", "eos"))
    return processors.TemplateProcessing(
        single=[f"{token}:0" for token in (*begin, "$A", *finish)],
        pair=[f"{token}:0" for token in (*begin, "$A", *finish)] + [f"{token}:1" for token in (*begin, "$B", *finish)],
        special_tokens=list(dict.fromkeys(tokens.values())),
    )


def lower_cased(tokenizer: Tokenizer) -> None:
    """Have a tokenizer lower the case of its texts before it does anything else with them."""
    first = normalizers.Lowercase()
    tokenizer.normalizer = (
        first if tokenizer.normalizer is None else normalizers.Sequence([first, tokenizer.normalizer])
    )


@contextmanager
def usable(path: Path) -> Iterator[None]:
    """Say of a tokenizer that it fails."""
    try:
        yield
    except BaseException as error:
        # The binding raises bare Exception, and panics of compiled code, which are none.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        reason = " ".join(str(error).split())[:200]
        raise ModelFileError(f"{path} is no tokenizer that can be used ({reason}); fetch the model again") from error
