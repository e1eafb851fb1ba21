"""The files that text models in ONNX bring: graph, tokenizer, and what they say about tokens, length, pooling and prompts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar, get_args

import msgspec
from tokenizers import Tokenizer

from pytrace.errors import ModelFileError
from pytrace.storage.foreign_json import read_json

Pooling = Literal["mean", "cls", "max", "lasttoken"]

_POOLING_KEYS: dict[str, Pooling] = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_lasttoken": "lasttoken",
}

_T = TypeVar("_T")

# Some tokenizer_config.json say 10^30 for "no limit".
_NO_LIMIT = 1 << 20
_DEFAULT_LENGTH = 512


class _TokenizerConfig(msgspec.Struct):
    model_max_length: float | str | None = None  # also 10^30, which no integer of 64 bits holds


class OnnxFiles:
    """The files of one model in ONNX: its directory, graph, tokenizer, and what these say about tokens and length."""

    # What to do where there is no model at a path.
    remedy: ClassVar[str] = "give a model's directory"

    def __init__(self, path: Path) -> None:
        self.directory, self.graph = locate(path, self.remedy)
        self.tokenizer = self.directory / "tokenizer.json"
        self._tokenizer = _load_tokenizer(self.tokenizer)
        # The length that inputs are cut to, special tokens included.
        config = self._read("tokenizer_config.json", _TokenizerConfig) or _TokenizerConfig()
        truncation = self._tokenizer.truncation or {}
        self.max_tokens = _first_length(config.model_max_length, truncation.get("max_length"))
        padding = self._tokenizer.padding or {}
        known = (self._tokenizer.token_to_id(token) for token in ("[PAD]", "<pad>"))
        self.pad_id = int(padding.get("pad_id") or next((token for token in known if token is not None), 0))
        self._tokenizer.no_padding()

    def _read(self, name: str, kind: type[_T]) -> _T | None:
        """Read a JSON file of the directory; None if it is not there."""
        path = self.directory / name
        try:
            return read_json(path, kind)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise ModelFileError(
                f"{path} cannot be read as a model's configuration ({error}); fetch the model again"
            ) from error


class EncoderFiles(OnnxFiles):
    """The files of one encoder: how token vectors become one (`pooling`, None if no file says so), what follows that, prompts.

    The layout is that of sentence-transformers, which nearly every published encoder follows.
    """

    remedy: ClassVar[str] = "give an encoder's directory or run 'pytrace models pull tiny'"

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        modules = self._read("modules.json", list[dict[str, Any]]) or []
        kinds = [str(module.get("type", "")).rpartition(".")[2] for module in modules]
        self.normalize = "Normalize" in kinds
        self.has_dense = "Dense" in kinds
        folder = next(
            (str(item.get("path")) for item, kind in zip(modules, kinds, strict=True) if kind == "Pooling"), ""
        )
        self.pooling = self._read_pooling(f"{folder or '1_Pooling'}/config.json")
        transformer = self._read("sentence_bert_config.json", dict[str, Any]) or {}
        self.lower_case = transformer.get("do_lower_case") is True
        self.max_tokens = _first_length(transformer.get("max_seq_length"), self.max_tokens)
        config = self._read("config_sentence_transformers.json", dict[str, Any]) or {}
        prompts = config.get("prompts") or {}
        self.prompts = (
            {str(name): str(text) for name, text in prompts.items() if text} if isinstance(prompts, dict) else {}
        )
        self._default_prompt = str(config.get("default_prompt_name") or "")

    def prompt(self, kind: Literal["query", "passage"]) -> str:
        """Return what goes before a text of that kind; models call a passage ``passage`` or ``document``."""
        names = ("query",) if kind == "query" else ("passage", "document")
        return next((self.prompts[name] for name in (*names, self._default_prompt) if name in self.prompts), "")

    def token_ids(self, texts: list[str], limit: int | None = None) -> list[list[int]]:
        """Turn texts into token ids with special tokens, cut to the model's length or `limit`, whichever is less."""
        with _usable(self.tokenizer):
            self._tokenizer.enable_truncation(max_length=min(self.max_tokens, limit or self.max_tokens))
            return [encoding.ids for encoding in self._tokenizer.encode_batch_fast(texts)]

    def _read_pooling(self, name: str) -> Pooling | None:
        config = self._read(name, dict[str, Any])
        if config is None:
            return None
        chosen = [key for key, value in config.items() if key.startswith("pooling_mode_") and value is True]
        if len(chosen) == 1 and chosen[0] in _POOLING_KEYS and config.get("include_prompt", True) is True:
            return _POOLING_KEYS[chosen[0]]
        raise ModelFileError(
            f"{self.directory / name} asks for pooling that is not supported ({', '.join(chosen) or 'none'}, include_prompt "
            f"{config.get('include_prompt', True)}); {', '.join(get_args(Pooling))} are, one at a time, prompt included"
        )


def _first_length(*stated: object) -> int:
    """Return the first of some stated lengths that is one, or 512."""
    for length in stated:
        if isinstance(length, int | float) and 0 < length < _NO_LIMIT:
            return int(length)
    return _DEFAULT_LENGTH


def locate(path: Path, remedy: str) -> tuple[Path, Path]:
    """Return the directory of a model and its graph; `remedy` says what to do where there is none."""
    if path.is_file() or path.suffix == ".onnx":
        # Hub repositories keep graphs in onnx/, a level below the tokenizer.
        directories = (path.parent, path.parent.parent)
        directory = next((folder for folder in directories if (folder / "tokenizer.json").is_file()), path.parent)
        graph = path
    else:
        directory = path
        graphs = sorted(path.glob("*.onnx")) + sorted(path.glob("onnx/*.onnx"))
        usual = [file for file in (path / "model.onnx", path / "onnx" / "model.onnx") if file in graphs]
        if not graphs:
            raise ModelFileError(f"{path} has no .onnx file; {remedy}")
        if not usual and len(graphs) > 1:
            raise ModelFileError(
                f"{path} has {len(graphs)} .onnx files and none is called model.onnx; name the one to use"
            )
        graph = (usual or graphs)[0]
    if not os.access(graph, os.R_OK) or not graph.is_file():
        raise ModelFileError(f"{graph} is not a readable file; {remedy}")
    if not (directory / "tokenizer.json").is_file():
        raise ModelFileError(f"{directory} has no tokenizer.json; put the model's own beside its graph")
    return directory.absolute(), graph.absolute()


def _load_tokenizer(path: Path) -> Tokenizer:
    with _usable(path):
        return Tokenizer.from_file(str(path))


@contextmanager
def _usable(path: Path) -> Iterator[None]:
    """Say of a tokenizer that it fails."""
    try:
        yield
    except BaseException as error:
        # The binding raises bare Exception, and panics of compiled code, which are none.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        reason = " ".join(str(error).split())[:200]
        raise ModelFileError(f"{path} is no tokenizer that can be used ({reason}); fetch the model again") from error
