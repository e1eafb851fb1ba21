"""An encoder's own files: where they are, and what they say about tokens, pooling, length and prompts.

The layout is that of sentence-transformers, which nearly every published encoder follows.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

import msgspec
from tokenizers import Tokenizer

from pytrace.errors import ModelFileError

Pooling = Literal["mean", "cls", "max", "lasttoken"]

_T = TypeVar("_T")

_POOLING_KEYS: dict[str, Pooling] = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_lasttoken": "lasttoken",
}
# Some tokenizer_config.json say 10^30 for "no limit".
_NO_LIMIT = 1 << 20
_DEFAULT_LENGTH = 512


class EncoderFiles:
    """The files of one encoder, read.

    Attributes
    ----------
    directory, graph, tokenizer
        The model's directory, its ``.onnx`` file and its ``tokenizer.json``.
    pooling, normalize
        How token vectors become one, and whether it is scaled to length 1; `pooling` is None if no file says so.
    has_dense
        Whether a dense layer follows pooling.
    max_tokens
        The length that texts are cut to, special tokens included.
    lower_case
        Whether texts are lower-cased before the tokenizer sees them.
    prompts
        The texts put before an input, by name.
    pad_id
        The token that fills up a row.
    """

    def __init__(self, path: Path) -> None:
        self.directory, self.graph = _locate(path)
        self.tokenizer = self.directory / "tokenizer.json"
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
        self._tokenizer = _load_tokenizer(self.tokenizer)
        self.max_tokens = self._read_length(transformer.get("max_seq_length"))
        padding = self._tokenizer.padding or {}
        known = (self._tokenizer.token_to_id(token) for token in ("[PAD]", "<pad>"))
        self.pad_id = int(padding.get("pad_id") or next((token for token in known if token is not None), 0))
        self._tokenizer.no_padding()
        own = self._read("config_sentence_transformers.json", dict[str, Any]) or {}
        prompts = own.get("prompts") or {}
        self.prompts = (
            {str(name): str(text) for name, text in prompts.items() if text} if isinstance(prompts, dict) else {}
        )
        self._default_prompt = str(own.get("default_prompt_name") or "")

    def prompt(self, kind: Literal["query", "passage"]) -> str:
        """Return what goes before a text of that kind; models call a passage ``passage`` or ``document``."""
        names = ("query",) if kind == "query" else ("passage", "document")
        return next((self.prompts[name] for name in (*names, self._default_prompt) if name in self.prompts), "")

    def token_ids(self, texts: list[str], limit: int | None = None) -> list[list[int]]:
        """Turn texts into token ids with special tokens, cut to the model's length or `limit`, whichever is less."""
        self._tokenizer.enable_truncation(max_length=min(self.max_tokens, limit or self.max_tokens))
        return [encoding.ids for encoding in self._tokenizer.encode_batch_fast(texts)]

    def _read(self, name: str, kind: type[_T]) -> _T | None:
        path = self.directory / name
        try:
            return msgspec.json.decode(path.read_bytes(), type=kind)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
            message = f"{path} cannot be read as a model's configuration ({error}); fetch the model again"
            raise ModelFileError(message) from error

    def _read_pooling(self, name: str) -> Pooling | None:
        config = self._read(name, dict[str, Any])
        if config is None:
            return None
        chosen = [key for key, value in config.items() if key.startswith("pooling_mode_") and value is True]
        if len(chosen) == 1 and chosen[0] in _POOLING_KEYS and config.get("include_prompt", True) is True:
            return _POOLING_KEYS[chosen[0]]
        message = (
            f"{self.directory / name} asks for pooling that is not supported ({', '.join(chosen) or 'none'}, include_prompt "
            f"{config.get('include_prompt', True)}); {', '.join(get_args(Pooling))} are, one at a time, prompt included"
        )
        raise ModelFileError(message)

    def _read_length(self, stated: object) -> int:
        tokenizer = self._read("tokenizer_config.json", dict[str, Any]) or {}
        truncation = self._tokenizer.truncation or {}
        for length in (stated, tokenizer.get("model_max_length"), truncation.get("max_length")):
            if isinstance(length, int | float) and 0 < length < _NO_LIMIT:
                return int(length)
        return _DEFAULT_LENGTH


def _locate(path: Path) -> tuple[Path, Path]:
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
            message = f"{path} has no .onnx file; give an encoder's directory or run 'pytrace models pull tiny'"
            raise ModelFileError(message)
        if not usual and len(found) > 1:
            message = f"{path} has {len(found)} .onnx files and none is called model.onnx; name the one to use"
            raise ModelFileError(message)
        graph = (usual or found)[0]
    if not os.access(graph, os.R_OK) or not graph.is_file():
        message = f"{graph} is not a readable file; correct the path or run 'pytrace models pull tiny'"
        raise ModelFileError(message)
    if not (directory / "tokenizer.json").is_file():
        message = f"{directory} has no tokenizer.json; put the model's own beside its graph"
        raise ModelFileError(message)
    return directory.absolute(), graph.absolute()


def _load_tokenizer(path: Path) -> Tokenizer:
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # the binding raises bare Exception
        message = f"{path} is no tokenizer ({error}); fetch the model again"
        raise ModelFileError(message) from error
