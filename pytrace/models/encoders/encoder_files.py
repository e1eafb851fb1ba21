"""The files that text models in ONNX bring: graph, tokenizer, and what they say about tokens, length, pooling and prompts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

from pytrace.errors import InputError, ModelFileError
from pytrace.models.encoders.model_directory import (
    TokenizerSettings,
    load_tokenizer,
    locate,
    lower_cased,
    read_config,
    usable,
)
from pytrace.models.encoders.modules import Modules

Kind = Literal["query", "passage"]

_T = TypeVar("_T")

# Some tokenizer_config.json say 10^30 for "no limit".
_NO_LIMIT = 1 << 20
_DEFAULT_LENGTH = 512
# These count positions from behind the padding token's number, so that they have fewer than their table has rows.
_OFFSET_POSITIONS = frozenset({"roberta", "xlm-roberta", "xlm-roberta-xl", "camembert", "mpnet", "data2vec-text"})

# As sentence-transformers has named it through its versions.
_TRANSFORMER_CONFIGS = tuple(
    f"sentence_{name}_config.json"
    for name in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
# The names that models give to the prompts of search, those of `encode_query` and `encode_document` first.
_PROMPTS: dict[Kind, tuple[str, ...]] = {
    "query": ("query", "search_query", "web_search_query", "retrieval.query"),
    "passage": ("document", "passage", "corpus", "search_document", "retrieval.passage"),
}
# The adapters of jina-embeddings-v3 among those that its config.json lists.
_TASKS: dict[Kind, str] = {"query": "retrieval.query", "passage": "retrieval.passage"}


class OnnxFiles:
    """The files of one model in ONNX: its directory, graph, tokenizer, and what these say about tokens and length."""

    # What to do where there is no model at a path.
    remedy: ClassVar[str] = "give a model's directory"

    def __init__(self, path: Path, dtype: str | None = None) -> None:
        self.directory, self.graph = locate(path, self.remedy, dtype)
        self.tokenizer = self.directory / "tokenizer.json"
        settings = self.read("tokenizer_config.json", TokenizerSettings) or TokenizerSettings()
        self._tokenizer = load_tokenizer(self.tokenizer, settings)
        self.config = self.read("config.json", dict[str, Any]) or {}
        truncation = self._tokenizer.truncation or {}
        self._cut: Literal["left", "right"] = (
            "left" if "left" in (settings.truncation_side, str(truncation.get("direction")).lower()) else "right"
        )
        padding = self._tokenizer.padding or {}
        known = (self._tokenizer.token_to_id(token) for token in ("[PAD]", "<pad>"))
        self.pad_id = int(padding.get("pad_id") or next((token for token in known if token is not None), 0))
        stated = self.config.get("pad_token_id")
        if isinstance(stated, int) and stated >= 0:
            self.pad_id = stated
        # The length that inputs are cut to, special tokens included.
        self.max_tokens = _first_length(settings.model_max_length, truncation.get("max_length"), self._positions)
        if self._positions is not None:
            self.max_tokens = min(self.max_tokens, self._positions)
        self._tokenizer.no_padding()

    @property
    def _positions(self) -> int | None:
        """How many positions the model was built for."""
        positions = self.config.get("max_position_embeddings")
        if not isinstance(positions, int):
            return None
        if self.config.get("model_type") in _OFFSET_POSITIONS:
            positions -= 1 + self.pad_id
        return positions if positions > 0 else None

    def read(self, name: str, kind: type[_T]) -> _T | None:
        """Read a JSON file of the directory; None if it is not there."""
        return read_config(self.directory / name, kind)


class TextRules(NamedTuple):
    """What is done with texts of one kind before and after they go through the graph."""

    prompt: str
    length: int  # in tokens, the special ones included
    task: int = 0  # the number of the adapter, for graphs that have several
    skip: int = 0  # how many tokens at the beginning, the prompt's, do not count in pooling


class EncoderFiles(OnnxFiles):
    """The files of one encoder: how token vectors become one and what follows (`modules`), lengths and prompts.

    The layout is that of sentence-transformers, which nearly every published encoder follows.
    """

    remedy: ClassVar[str] = "give an encoder's directory or run 'pytrace models pull tiny'"

    def __init__(self, path: Path, dtype: str | None = None) -> None:
        super().__init__(path, dtype)
        settings = self.read("config_sentence_transformers.json", dict[str, Any]) or {}
        self.modules = Modules(self.directory, self.read)
        self._check_model_type(settings)
        transformer = next((read for name in _TRANSFORMER_CONFIGS if (read := self.read(name, dict[str, Any]))), {})
        self._check_transformer(transformer)
        self.lower_case = transformer.get("do_lower_case") is True
        if self.lower_case:
            lower_cased(self._tokenizer)
        self.max_tokens = _first_length(transformer.get("max_seq_length"), self.max_tokens)
        if self._positions is not None:
            self.max_tokens = min(self.max_tokens, self._positions)
        self._lengths = {"query": transformer.get("query_length"), "passage": transformer.get("document_length")}
        self.normalize = self.modules.normalize
        similarity = settings.get("similarity_fn_name")
        if similarity == "cosine":
            self.normalize = True
        elif similarity in {"euclidean", "manhattan"} and not (similarity == "euclidean" and self.normalize):
            raise ModelFileError(
                f"{self.directory} compares its vectors by their {similarity} distance, but the search here is by inner product; "
                "use an encoder whose similarity is 'cosine' or 'dot'"
            )
        stated = settings.get("truncate_dim")
        self.truncate_dim = stated if type(stated) is int else None
        self.prompts = read_prompts(settings.get("prompts"))

    def rules(self, kind: Kind, prompts: Mapping[str, str]) -> TextRules:
        """Return what is done with texts of a kind; `prompts` overrides the model's: its text, or the name of one of these."""
        prompt = choose_prompt(self.directory, self.prompts, kind, prompts)
        length = self.max_tokens
        stated = self._lengths[kind]
        if isinstance(stated, int) and stated > 0:
            length = min(length, stated)
        return TextRules(prompt, length, skip=0 if self.modules.include_prompt else self._prompt_length(prompt))

    def task(self, kind: Kind) -> int:
        """Return the number of the adapter for texts of a kind, of a graph that has several."""
        path, tasks = self.directory / "config.json", self.config.get("lora_adaptations")
        if not isinstance(tasks, list):
            raise ModelFileError(
                f"{self.graph} wants a 'task_id', but {path} does not list the tasks ('lora_adaptations'); put the model's own "
                "config.json beside its graph"
            )
        if _TASKS[kind] not in tasks:
            raise ModelFileError(
                f"{path} lists the tasks {', '.join(map(str, tasks))}, but no {_TASKS[kind]!r}; use a model for search"
            )
        return tasks.index(_TASKS[kind])

    def token_ids(self, texts: list[str], limit: int) -> list[list[int]]:
        """Turn texts into token ids with special tokens, cut to a length."""
        with usable(self.tokenizer):
            self._tokenizer.enable_truncation(max_length=limit, direction=self._cut)
            return [encoding.ids for encoding in self._tokenizer.encode_batch_fast(texts)]

    def _prompt_length(self, prompt: str) -> int:
        """Count the tokens that a prompt begins a text with."""
        if not prompt:
            return 0
        with usable(self.tokenizer):
            self._tokenizer.no_truncation()
            special = self._tokenizer.encode(prompt).special_tokens_mask
        return len(special) - (special[-1:] == [1])

    def _check_model_type(self, settings: dict[str, Any]) -> None:
        kind = settings.get("model_type")
        if kind not in {None, "SentenceTransformer"}:
            remedy = {
                "CrossEncoder": "name it as the cross-encoder (--cross-encoder)",
                "MultiVectorEncoder": "name it as the cross-encoder (--cross-encoder), which ranks passages by it",
                "ColBERT": "name it as the cross-encoder (--cross-encoder), which ranks passages by it",
            }.get(str(kind), "use a model that gives a dense vector for a text")
            raise ModelFileError(f"{self.directory} is a {kind}, no encoder of sentences; {remedy}")

    def _check_transformer(self, config: dict[str, Any]) -> None:
        modalities = config.get("modality_config")
        asked = {
            "transformer_task": config.get("transformer_task") not in {None, "feature-extraction"},
            "modality_config": isinstance(modalities, dict) and "text" not in modalities,
            "message": isinstance(modalities, dict) and "message" in modalities,
            "query_expansion": bool(config.get("query_expansion")),
            "processing_kwargs": bool(config.get("processing_kwargs")),
        }
        if unknown := [name for name, there in asked.items() if there]:
            name = unknown[0] if unknown[0] != "message" else "modality_config"
            raise ModelFileError(
                f"{self.directory} asks for {name} {json.dumps(config[name])[:100]}, which is not supported; use a model that "
                "reads plain texts"
            )


def read_prompts(prompts: object) -> dict[str, str]:
    """Read the prompts of a config_sentence_transformers.json, by name."""
    if not isinstance(prompts, dict):
        return {}
    return {str(name): str(text or "") for name, text in prompts.items()}


def choose_prompt(directory: Path, stated: Mapping[str, str], kind: Kind, given: Mapping[str, str]) -> str:
    """Return the prompt for texts of a kind among those that a model states; `given` overrides them, by text or name."""
    if unknown := set(given) - set(_PROMPTS):
        raise InputError(f"prompts are of kind {' or '.join(map(repr, _PROMPTS))}, not {min(unknown)!r}; correct it")
    if kind in given:
        return stated.get(given[kind], given[kind])
    own = next((stated[name] for name in _PROMPTS[kind] if stated.get(name)), None)
    known = {name for names in _PROMPTS.values() for name in names}
    others = [name for name, text in stated.items() if text and name not in known]
    if own is None and others and not any(name in stated for name in known):
        raise ModelFileError(
            f"{directory} has the prompts {', '.join(others[:10])}, none of which is known to be for search; name one "
            f"for {kind} texts, prompts={{'{kind}': {others[0]!r}}} ({kind}_prompt={others[0]}), or '' for none"
        )
    return own or ""


def _first_length(*stated: object) -> int:
    """Return the first of some stated lengths that is one, or 512."""
    for length in stated:
        if isinstance(length, int | float) and 0 < length < _NO_LIMIT:
            return int(length)
    return _DEFAULT_LENGTH
