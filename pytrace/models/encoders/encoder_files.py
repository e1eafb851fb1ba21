"""An encoder's own files: what they say about pooling, length and prompts, beside what every model's files say.

The layout is that of sentence-transformers, which nearly every published encoder follows.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

from pytrace.errors import ModelFileError
from pytrace.models.encoders.onnx_files import OnnxFiles, first_length

Pooling = Literal["mean", "cls", "max", "lasttoken"]

_POOLING_KEYS: dict[str, Pooling] = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_lasttoken": "lasttoken",
}


class EncoderFiles(OnnxFiles):
    """The files of one encoder, read.

    Attributes
    ----------
    directory, graph, tokenizer, max_tokens, pad_id
        As `OnnxFiles` has them.
    pooling, normalize
        How token vectors become one, and whether it is scaled to length 1; `pooling` is None if no file says so.
    has_dense
        Whether a dense layer follows pooling.
    lower_case
        Whether texts are lower-cased before the tokenizer sees them.
    prompts
        The texts put before an input, by name.
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
        self.max_tokens = first_length(transformer.get("max_seq_length"), self.max_tokens)
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
