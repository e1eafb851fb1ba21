"""The files of late-interaction models in ONNX: what they say of prefixes, lengths, mask tokens, skipped words and projections."""

from __future__ import annotations

import string
import threading
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, get_args

import numpy as np

from pytrace.errors import ModelFileError
from pytrace.models.encoders import heads
from pytrace.models.encoders.encoder_files import Kind, OnnxFiles, choose_prompt, read_prompts
from pytrace.models.encoders.model_directory import lower_cased, read_config, usable
from pytrace.models.encoders.modules import TOKENS, Modules
from pytrace.models.encoders.safetensors_file import read_tensors

# ColBERT's own, and those that PyLate and sentence-transformers have taken over from it.
_QUERY_LENGTH, _PASSAGE_LENGTH = 32, 180
# Settings of PyLate's that tell its models from others.
_MARKS = (
    "query_prefix", "document_prefix", "query_length", "document_length", "do_query_expansion", "attend_to_expansion_tokens",
    "skiplist_words",
)  # fmt: skip
_MASK = "MultiVectorMask"
# Stanford's settings.
_METADATA = "artifact.metadata"


def is_late_interaction(path: Path) -> bool:
    """Say whether a directory, or that of a graph, says of itself that its model gives a vector for every token."""
    for folder in [path] if path.is_dir() else [path.parent, path.parent.parent]:
        stated = read_config(folder / "config_sentence_transformers.json", dict[str, Any]) or {}
        exported = read_config(folder / "onnx_config.json", dict[str, Any]) or {}
        config = read_config(folder / "config.json", dict[str, Any]) or {}
        named = stated.get("model_type") in {"MultiVectorEncoder", "ColBERT"} or _is_stanfords(config)
        if named or any(name in {*stated, *exported} for name in _MARKS) or (folder / _METADATA).is_file():
            return True
    return False


def _is_stanfords(config: dict[str, Any]) -> bool:
    architectures = config.get("architectures")
    return isinstance(architectures, list) and "HF_ColBERT" in architectures


class TokenRules(NamedTuple):
    """What is done with the tokens of texts of one kind."""

    prompt: str  # before the text
    prefix: int | None  # the token behind the first one
    length: int  # in tokens, special ones and the prefix included
    expanded: int = 0  # the length that shorter texts are filled up to
    filler: int = 0  # the token that they are filled up with
    attend: bool = False  # whether the other tokens see these
    skipped: frozenset[int] = frozenset()  # tokens that get no vector


class LateInteractionFiles(OnnxFiles):
    """The files of one late-interaction model, as PyLate, sentence-transformers (MultiVectorEncoder) or Stanford's ColBERT save them."""

    remedy: ClassVar[str] = (
        "give the directory of a late-interaction model in ONNX (ColBERT's or PyLate's, exported by pylate-onnx-export or optimum-cli)"
    )

    def __init__(self, path: Path, dtype: str | None = None) -> None:
        super().__init__(path, dtype)
        settings = self.read("config_sentence_transformers.json", dict[str, Any]) or {}
        if not any(name in settings for name in _MARKS):
            # Written beside graphs by pylate-onnx-export.
            settings |= self.read("onnx_config.json", dict[str, Any]) or {}
        self.stanford = _is_stanfords(self.config)
        self.modules = Modules(self.directory, self.read, gives=TOKENS, others=(_MASK,))
        mask = self.modules.settings(_MASK)
        transformer = self.read("sentence_bert_config.json", dict[str, Any]) or {}
        if transformer.get("do_lower_case") is True or settings.get("do_lower_case") is True:
            lower_cased(self._tokenizer)
        self._lock = threading.Lock()  # a tokenizer's truncation is a state of its own
        self.mean = str(settings.get("similarity_fn_name")).lower() == "meanmaxsim"
        stated = read_prompts(settings.get("prompts"))
        prompts = {kind: choose_prompt(self.directory, stated, kind, {}) for kind in get_args(Kind)}
        if mask is not None:
            self.rules = self._rules_of_modules(transformer, mask, prompts)
        elif any(name in settings for name in _MARKS):
            self.rules = self._rules_of_settings(settings, prompts)
        elif self.stanford or (self.directory / _METADATA).is_file():
            self.rules = self._rules_of_settings(self._stanford_settings(), prompts)
        else:
            raise ModelFileError(
                f"{self.directory} is no late-interaction model: neither config_sentence_transformers.json nor onnx_config.json has "
                f"{' or '.join(_MARKS[:2])}, and there is no artifact.metadata; name it as the encoder or cross-encoder that it is"
            )

    @property
    def weight_files(self) -> list[Path]:
        """The files of the layers behind the graph."""
        return [self.directory / heads.WEIGHTS] if self.stanford and not self.modules.layers else self.modules.weights

    def read_heads(self, width: int, output: str) -> list[heads.Head]:
        """Read the layers behind a graph whose `output` has vectors of so many numbers; none if they are in it."""
        if self.stanford and not self.modules.layers:
            weights = self.directory / heads.WEIGHTS
            if not weights.is_file():
                if width != self.config.get("hidden_size"):
                    return []
                raise ModelFileError(
                    f"{self.graph} gives hidden vectors of {width} numbers, and {self.directory} has no {heads.WEIGHTS} with "
                    "ColBERT's 'linear.weight'; put it beside the graph or export the whole model"
                )
            weight = np.ascontiguousarray(read_tensors(weights, ["linear.weight"])["linear.weight"], np.float32)
            if self._projected(width, weight.shape[1], weight.shape[0], output):
                return []
            return [lambda x: np.asarray(x @ weight.T, dtype=np.float32)]
        layers = [module.config for module in self.modules.layers if module.kind == "Dense"]
        if not layers or self._projected(width, layers[0].get("in_features"), layers[-1].get("out_features"), output):
            return []
        return self.modules.read_heads()

    def token_ids(self, texts: list[str], rules: TokenRules) -> list[list[int]]:
        """Turn texts into tokens, the special ones and the prefix among them, cut to the length."""
        limit = rules.length - (rules.prefix is not None)
        with self._lock, usable(self.tokenizer):
            self._tokenizer.enable_truncation(max_length=limit, direction=self._cut)
            tokens = [each.ids for each in self._tokenizer.encode_batch_fast([rules.prompt + text for text in texts])]
        if rules.prefix is not None:
            tokens = [[*ids[:1], rules.prefix, *ids[1:]] for ids in tokens]
        return [ids or [self.pad_id] for ids in tokens]

    def _projected(self, width: int, first: object, last: object, output: str) -> bool:
        """Whether the layers behind the hidden vectors are in the graph."""
        if width not in {first, last}:
            raise ModelFileError(
                f"{self.graph} gives vectors of {width} numbers, but the layer behind it takes {first} and gives {last}; export the "
                "model again"
            )
        return width == last and (first != last or output != "last_hidden_state")

    def _stanford_settings(self) -> dict[str, Any]:
        """Return what Stanford's metadata say by PyLate's names."""
        stated = self.read(_METADATA, dict[str, Any]) or {}
        return {
            "query_prefix": stated.get("query_token_id") or "[unused0]",
            "document_prefix": stated.get("doc_token_id") or "[unused1]",
            "query_length": stated.get("query_maxlen"),
            "document_length": stated.get("doc_maxlen"),
            "attend_to_expansion_tokens": stated.get("attend_to_mask_tokens"),
            "skiplist_words": [] if stated.get("mask_punctuation") is False else None,
        }

    def _rules_of_settings(self, settings: dict[str, Any], prompts: dict[Kind, str]) -> dict[Kind, TokenRules]:
        """Read PyLate's settings; what one does not say is as PyLate has it by default."""

        def prefix(name: str, default: str) -> int | None:
            token = settings.get(name)
            token = default if token is None else str(token)
            return self._token(token, name) if token else None

        query = min(self._length(settings, "query_length", _QUERY_LENGTH), self.max_tokens)
        passage = min(self._length(settings, "document_length", _PASSAGE_LENGTH), self.max_tokens)
        expands = settings.get("do_query_expansion") is not False
        words = settings.get("skiplist_words")
        return {
            "query": TokenRules(
                prompts["query"], prefix("query_prefix", "[Q] "), query, query if expands else 0,
                self._filler(None) if expands else 0, expands and settings.get("attend_to_expansion_tokens") is True,
            ),
            "passage": TokenRules(
                prompts["passage"], prefix("document_prefix", "[D] "), passage,
                skipped=self._skipped(list(string.punctuation) if words is None else words),
            ),
        }  # fmt: skip

    def _rules_of_modules(
        self, transformer: dict[str, Any], mask: dict[str, Any], prompts: dict[Kind, str]
    ) -> dict[Kind, TokenRules]:
        """Read the settings of sentence-transformers' MultiVectorEncoder."""
        if mask.get("keep_only_token_ids"):
            raise ModelFileError(
                f"{self.directory} keeps the vectors of some tokens alone (keep_only_token_ids), as models of images do; use a model "
                "of texts"
            )
        expansion = transformer.get("query_expansion") or {}
        if not isinstance(expansion, dict) or expansion.get("strategy", "fixed") not in {"fixed", "min"}:
            raise ModelFileError(
                f"{self.directory} expands queries by {str(expansion)[:80]}, which is not supported; 'fixed' and 'min' are"
            )
        lengths = {
            "query": min(self._length(transformer, "query_length", self.max_tokens), self.max_tokens),
            "passage": min(self._length(transformer, "document_length", self.max_tokens), self.max_tokens),
        }
        expanded = self._length(expansion, "length", 0) if expansion else 0
        if expansion.get("strategy") == "fixed":
            lengths["query"] = min(expanded, self.max_tokens)
        skipped, tasks = self._skipped(mask.get("skiplist_words") or []), mask.get("skiplist_tasks") or ["document"]
        return {
            "query": TokenRules(
                prompts["query"], None, lengths["query"], min(expanded, lengths["query"]),
                self._filler(expansion.get("token")) if expansion else 0, expansion.get("attend") is True,
                skipped if "query" in tasks else frozenset(),
            ),
            "passage": TokenRules(
                prompts["passage"], None, lengths["passage"], skipped=skipped if "document" in tasks else frozenset()
            ),
        }  # fmt: skip

    def _length(self, settings: dict[str, Any], name: str, default: int) -> int:
        stated = settings.get(name)
        if stated is None:
            return default
        if type(stated) is not int or stated < 3:
            raise ModelFileError(
                f"{self.directory} states the {name} {stated!r}, which leaves no room for a text; correct it"
            )
        return stated

    def _token(self, token: str, name: str) -> int:
        number = self._tokenizer.token_to_id(token)
        if number is None:
            # Stanford's prefixes are saved by PyLate with a space behind them, which is none of the token's.
            number = self._tokenizer.token_to_id(token.strip())
        if number is None:
            raise ModelFileError(
                f"{self.tokenizer} has no token {token!r}, the {name} of {self.directory}; save the tokenizer with the model again"
            )
        return int(number)

    def _filler(self, stated: object) -> int:
        """Return the token that queries are filled up with: the one stated, that for masks, or the one at the end."""
        if isinstance(stated, str):
            return self._token(stated, "query_expansion token")
        settings = self.read("tokenizer_config.json", dict[str, Any]) or {}
        names = [settings.get("mask_token"), "[MASK]", "<mask>", settings.get("eos_token")]
        for name in (name.get("content") if isinstance(name, dict) else name for name in names):
            number = self._tokenizer.token_to_id(name) if isinstance(name, str) else None
            if number is not None:
                return int(number)
        raise ModelFileError(
            f"{self.tokenizer} has neither a token for masks nor one for the end, with which {self.directory} fills queries up; "
            "save the tokenizer with the model again"
        )

    def _skipped(self, words: object) -> frozenset[int]:
        """Return the tokens of words that get no vector; a word that is no token has nothing to skip."""
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise ModelFileError(f"{self.directory} has skiplist_words that are no list of words; correct them")
        numbers = (self._tokenizer.token_to_id(word) for word in words)
        return frozenset(int(number) for number in numbers if number is not None)
