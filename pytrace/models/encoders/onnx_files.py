"""The files that every text model in ONNX brings: its graph, its tokenizer, and what they say about tokens and length."""

from __future__ import annotations

import os
from pathlib import Path
from typing import ClassVar, TypeVar

import msgspec
from tokenizers import Tokenizer

from pytrace.errors import ModelFileError

_T = TypeVar("_T")

# Some tokenizer_config.json say 10^30 for "no limit".
_NO_LIMIT = 1 << 20
_DEFAULT_LENGTH = 512


class OnnxFiles:
    """The files of one model, read; each kind of model reads more of them.

    Attributes
    ----------
    directory, graph, tokenizer
        The model's directory, its ``.onnx`` file and its ``tokenizer.json``.
    max_tokens
        The length that inputs are cut to, special tokens included.
    pad_id
        The token that fills up a row.
    """

    # What to do where there is no model at a path.
    remedy: ClassVar[str] = "give a model's directory"

    def __init__(self, path: Path) -> None:
        self.directory, self.graph = _locate(path, self.remedy)
        self.tokenizer = self.directory / "tokenizer.json"
        self._tokenizer = _load_tokenizer(self.tokenizer)
        self.max_tokens = self._length()
        padding = self._tokenizer.padding or {}
        known = (self._tokenizer.token_to_id(token) for token in ("[PAD]", "<pad>"))
        self.pad_id = int(padding.get("pad_id") or next((token for token in known if token is not None), 0))
        self._tokenizer.no_padding()

    def _read(self, name: str, kind: type[_T]) -> _T | None:
        """Read a JSON file of the directory; None if it is not there."""
        path = self.directory / name
        try:
            return msgspec.json.decode(path.read_bytes(), type=kind)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ModelFileError(
                f"{path} cannot be read as a model's configuration ({error}); fetch the model again"
            ) from error

    def _length(self) -> int:
        """Return the length that the model's own files state."""
        tokenizer = self._read("tokenizer_config.json", dict[str, object]) or {}
        truncation = self._tokenizer.truncation or {}
        return first_length(tokenizer.get("model_max_length"), truncation.get("max_length"))


def first_length(*stated: object) -> int:
    """Return the first of some stated lengths that is one, or 512."""
    for length in stated:
        if isinstance(length, int | float) and 0 < length < _NO_LIMIT:
            return int(length)
    return _DEFAULT_LENGTH


def _locate(path: Path, remedy: str) -> tuple[Path, Path]:
    if path.is_file() or path.suffix == ".onnx":
        # Hub repositories keep graphs in onnx/, a level below the tokenizer.
        directories = (path.parent, path.parent.parent)
        directory = next((place for place in directories if (place / "tokenizer.json").is_file()), path.parent)
        graph = path
    else:
        directory = path
        found = sorted(path.glob("*.onnx")) + sorted(path.glob("onnx/*.onnx"))
        usual = [file for file in (path / "model.onnx", path / "onnx" / "model.onnx") if file in found]
        if not found:
            raise ModelFileError(f"{path} has no .onnx file; {remedy}")
        if not usual and len(found) > 1:
            raise ModelFileError(
                f"{path} has {len(found)} .onnx files and none is called model.onnx; name the one to use"
            )
        graph = (usual or found)[0]
    if not os.access(graph, os.R_OK) or not graph.is_file():
        raise ModelFileError(f"{graph} is not a readable file; {remedy}")
    if not (directory / "tokenizer.json").is_file():
        raise ModelFileError(f"{directory} has no tokenizer.json; put the model's own beside its graph")
    return directory.absolute(), graph.absolute()


def _load_tokenizer(path: Path) -> Tokenizer:
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # the binding raises bare Exception
        raise ModelFileError(f"{path} is no tokenizer ({error}); fetch the model again") from error
