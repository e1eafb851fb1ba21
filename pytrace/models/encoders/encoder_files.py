"""The files that text models in ONNX bring: graph, tokenizer, and what they say about tokens, length, pooling and prompts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

from pytrace.errors import InputError, ModelFileError
from pytrace.models.encoders import heads
from pytrace.models.encoders.model_directory import TokenizerSettings, load_tokenizer, locate, lower_cased, usable
from pytrace.models.encoders.pooling import MODES
from pytrace.storage.foreign_json import read_json

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
# The pooling that each key of versions before 5.4 stands for.
_POOLING_KEYS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
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
        path = self.directory / name
        try:
            return read_json(path, kind)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise ModelFileError(
                f"{path} cannot be read as a model's configuration ({error}); fetch the model again"
            ) from error


class Module(NamedTuple):
    """One step of a model in the layout of sentence-transformers: what it is, where its files are, and its settings."""

    kind: str
    folder: str
    config: dict[str, Any]


class TextRules(NamedTuple):
    """What is done with texts of one kind before and after they go through the graph."""

    prompt: str
    length: int  # in tokens, the special ones included
    task: int = 0  # the number of the adapter, for graphs that have several
    skip: int = 0  # how many tokens at the beginning, the prompt's, do not count in pooling


class EncoderFiles(OnnxFiles):
    """The files of one encoder: how token vectors become one (`pooling`, none if no file says so), what follows, prompts.

    The layout is that of sentence-transformers, which nearly every published encoder follows.
    """

    remedy: ClassVar[str] = "give an encoder's directory or run 'pytrace models pull tiny'"

    def __init__(self, path: Path, dtype: str | None = None) -> None:
        super().__init__(path, dtype)
        settings = self.read("config_sentence_transformers.json", dict[str, Any]) or {}
        self.modules = self._read_modules()
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
        self.pooling, self.include_prompt = self._read_pooling()
        self.normalize = bool(self.modules) and self.modules[-1].kind == "Normalize"
        similarity = settings.get("similarity_fn_name")
        if similarity == "cosine":
            self.normalize = True
        elif similarity in {"euclidean", "manhattan"} and not (similarity == "euclidean" and self.normalize):
            raise ModelFileError(
                f"{self.directory} compares its vectors by their {similarity} distance, but the search here is by inner product; "
                "use an encoder whose similarity is 'cosine' or 'dot'"
            )
        stated = settings.get("truncate_dim")
        self.truncate_dim = stated if isinstance(stated, int) else None
        self.prompts = self._read_prompts(settings.get("prompts"))

    @property
    def head_modules(self) -> list[Module]:
        """The layers between pooling and the last normalisation."""
        after = self.modules[1:]
        if after and after[-1].kind == "Normalize":
            after = after[:-1]
        return [module for module in after if module.kind in {"Dense", "LayerNorm", "Normalize"}]

    @property
    def has_heads(self) -> bool:
        """Whether the weights of all these layers are there."""
        return all(file.is_file() for file in self.head_weights)

    @property
    def head_weights(self) -> list[Path]:
        """The files of their weights."""
        return [
            self.directory / module.folder / heads.WEIGHTS for module in self.head_modules if module.kind != "Normalize"
        ]

    def read_heads(self) -> list[heads.Head]:
        """Read the layers between pooling and the last normalisation."""
        found: list[heads.Head] = []
        for kind, folder, config in self.head_modules:
            place = self.directory / folder
            if kind != "Normalize" and not (place / heads.WEIGHTS).is_file():
                raise ModelFileError(
                    f"{self.directory} has a {kind} layer outside its graph, but {place} has no {heads.WEIGHTS}; save the model "
                    "with safetensors, or export it as a whole, so that the graph gives 'sentence_embedding'"
                )
            if kind == "Dense":
                found.append(heads.dense(place, config))
            else:
                found.append(heads.normalized if kind == "Normalize" else heads.layer_norm(place))
        return found

    def rules(self, kind: Kind, prompts: Mapping[str, str]) -> TextRules:
        """Return what is done with texts of a kind; `prompts` overrides the model's: its text, or the name of one of these."""
        if unknown := set(prompts) - set(_PROMPTS):
            raise InputError(
                f"prompts are of kind {' or '.join(map(repr, _PROMPTS))}, not {min(unknown)!r}; correct it"
            )
        prompt = self._prompt(kind, prompts)
        length = self.max_tokens
        stated = self._lengths[kind]
        if isinstance(stated, int) and stated > 0:
            length = min(length, stated)
        return TextRules(prompt, length, skip=0 if self.include_prompt else self._prompt_length(prompt))

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

    def _prompt(self, kind: Kind, prompts: Mapping[str, str]) -> str:
        if kind in prompts:
            return self.prompts.get(prompts[kind], prompts[kind])
        own = next((self.prompts[name] for name in _PROMPTS[kind] if self.prompts.get(name)), None)
        known = {name for names in _PROMPTS.values() for name in names}
        others = [name for name, text in self.prompts.items() if text and name not in known]
        if own is None and others and not any(name in self.prompts for name in known):
            raise ModelFileError(
                f"{self.directory} has the prompts {', '.join(others[:10])}, none of which is known to be for search; name one "
                f"for {kind} texts, prompts={{'{kind}': {others[0]!r}}} ({kind}_prompt={others[0]}), or '' for none"
            )
        return own or ""

    def _prompt_length(self, prompt: str) -> int:
        """Count the tokens that a prompt begins a text with."""
        if not prompt:
            return 0
        with usable(self.tokenizer):
            self._tokenizer.no_truncation()
            special = self._tokenizer.encode(prompt).special_tokens_mask
        return len(special) - (special[-1:] == [1])

    def _read_modules(self) -> list[Module]:
        modules = []
        for item in self.read("modules.json", list[dict[str, Any]]) or []:
            folder = str(item.get("path") or "")
            kind = str(item.get("type", "")).rpartition(".")[2]
            if Path(folder).is_absolute() or ".." in Path(folder).parts:
                raise ModelFileError(
                    f"{self.directory / 'modules.json'} has the path {folder!r}, which leaves the model's folder"
                )
            modules.append(
                Module(kind, folder, self.read(f"{folder}/config.json", dict[str, Any]) or {} if folder else {})
            )
        # The first stands for the graph, under whatever name.
        for kind, _, _ in modules[1:]:
            if kind not in {"Pooling", "Dense", "LayerNorm", "Normalize", "Dropout"}:
                raise ModelFileError(
                    f"{self.directory / 'modules.json'} has the module {kind!r}, which is not supported behind a graph; export the "
                    "model as a whole, so that the graph gives 'sentence_embedding', and leave modules.json out"
                )
        return modules

    def _check_model_type(self, settings: dict[str, Any]) -> None:
        kind = settings.get("model_type")
        if kind not in {None, "SentenceTransformer"}:
            remedy = {
                "CrossEncoder": "name it as the cross-encoder (--cross-encoder)",
                "MultiVectorEncoder": "name it as the cross-encoder (--cross-encoder), which ranks passages by it",
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

    def _read_pooling(self) -> tuple[tuple[str, ...], bool]:
        module = next((module for module in self.modules if module.kind == "Pooling"), None)
        folder = "1_Pooling" if module is None else module.folder
        name = f"{folder}/config.json" if folder else "config.json"
        config = self.read(name, dict[str, Any])
        if config is None:
            return (), True
        stated = config.get("pooling_mode")
        if stated is None:
            asked = [key for key, value in config.items() if key.startswith("pooling_mode_") and value is True]
            # Whatever their order in the file, vectors stand one behind the other in this one.
            stated = [mode for key, mode in _POOLING_KEYS.items() if key in asked]
            stated += [key for key in asked if key not in _POOLING_KEYS]
        modes = stated if isinstance(stated, list) else [stated]
        if not modes or not all(mode in MODES for mode in modes):
            raise ModelFileError(
                f"{self.directory / name} asks for the pooling {', '.join(map(str, modes)) or 'none'}, which is not supported; "
                f"{', '.join(MODES)} are"
            )
        return tuple(modes), config.get("include_prompt", True) is not False

    @staticmethod
    def _read_prompts(prompts: object) -> dict[str, str]:
        if not isinstance(prompts, dict):
            return {}
        return {str(name): str(text or "") for name, text in prompts.items()}


def _first_length(*stated: object) -> int:
    """Return the first of some stated lengths that is one, or 512."""
    for length in stated:
        if isinstance(length, int | float) and 0 < length < _NO_LIMIT:
            return int(length)
    return _DEFAULT_LENGTH
