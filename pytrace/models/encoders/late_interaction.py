"""Late interaction: a vector for every token of a question and of a passage, and how well they match, on onnxruntime.

Passages are read without the question, as encoders read them, and still each word of the question finds the word of the
passage that answers it best (`pytrace.kernels.max_sim`). ColBERT, ModernColBERT and what PyLate and sentence-transformers'
MultiVectorEncoder train are such models.
"""

from __future__ import annotations

import os
import string
import threading
from collections.abc import Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from pytrace.errors import ModelError, ModelFileError
from pytrace.kernels import max_sim, normalize
from pytrace.models.encoders import heads
from pytrace.models.encoders.cross_encoder import Scores, checked_pairs
from pytrace.models.encoders.encoder import Vectors
from pytrace.models.encoders.encoder_files import Kind, OnnxFiles, choose_prompt, read_prompts
from pytrace.models.encoders.model_directory import lower_cased, usable
from pytrace.models.encoders.modules import TOKENS, Modules
from pytrace.models.encoders.onnx_graph import Device
from pytrace.models.encoders.onnx_model import OnnxTextModel
from pytrace.models.encoders.safetensors_file import read_tensors
from pytrace.models.encoders.text_vectors import whole_text

# ColBERT's own, and those that PyLate and sentence-transformers have taken over from it.
_QUERY_LENGTH, _PASSAGE_LENGTH = 32, 180
# Settings of PyLate's that tell its models from others.
_MARKS = (
    "query_prefix", "document_prefix", "query_length", "document_length", "do_query_expansion", "attend_to_expansion_tokens",
    "skiplist_words",
)  # fmt: skip
_MASK = "MultiVectorMask"
# Passages whose token vectors are held at once: some 100 MB of 180 tokens and 128 dimensions each.
_AT_ONCE = 1024


class TokenVectors(NamedTuple):
    """The token vectors of some texts, one text behind another.

    Attributes
    ----------
    vectors
        Float32 ``[n_tokens, dimension]``, each of length 1.
    offsets
        Int64 ``[n_texts + 1]``: text i has ``vectors[offsets[i]:offsets[i + 1]]``.
    """

    vectors: Vectors
    offsets: NDArray[np.int64]


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
        self.stanford = "HF_ColBERT" in (self.config.get("architectures") or [])
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
        elif self.stanford or (self.directory / "artifact.metadata").is_file():
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
        stated = self.read("artifact.metadata", dict[str, Any]) or {}
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


class OnnxLateInteraction(OnnxTextModel[LateInteractionFiles]):
    """A late-interaction model in an ONNX file, run by onnxruntime: token vectors, and a reranker by them.

    Directories as PyLate saves them (``config_sentence_transformers.json`` with prefixes, lengths, expansion and skiplist), as
    sentence-transformers' MultiVectorEncoder does, and Stanford's (``artifact.metadata``); the graph gives the hidden vectors of
    tokens, with the layers behind them in safetensors, or has these in it. Questions are filled up with mask tokens where the
    model was trained so; passages lose the vectors of the words in the skiplist. Equal texts are encoded once.

    Parameters
    ----------
    path
        A directory, or a graph in one.
    device, providers, threads, batch_tokens, dtype
        As for `pytrace.models.encoders.encoder.OnnxEncoder`.

    Raises
    ------
    ModelFileError
        Files that are missing or broken, or that ask for what is not supported.

    Notes
    -----
    O. Khattab and M. Zaharia, "ColBERT" (SIGIR 2020), section 3.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        device: Device = "cpu",
        providers: Sequence[str] | None = None,
        threads: int | None = None,
        batch_tokens: int | None = None,
        dtype: str | None = None,
    ) -> None:
        super().__init__(
            Path(path), LateInteractionFiles, gives="token vectors", device=device, providers=providers, threads=threads,
            batch_tokens=batch_tokens, dtype=dtype,
        )  # fmt: skip
        if self._graph.pooled:
            raise ModelFileError(
                f"{self._files.graph} gives one vector a text, where late interaction needs one for every token; export it for "
                "feature extraction, with the output 'last_hidden_state'"
            )
        self._threads = threads
        self._rules = {kind: self._fitted(rules) for kind, rules in self._files.rules.items()}
        self._heads: list[heads.Head] = []
        width = self._run(self._rules["passage"], [[self._files.pad_id]])[0].shape[1]
        self._heads = self._files.read_heads(width, self._graph.output)
        self.dimension = int(self.encode([""]).vectors.shape[1])

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over the graph, its weights, the tokenizer, and everything else that shapes a vector."""
        rules = [(kind, *rules[:-1], sorted(rules.skipped)) for kind, rules in sorted(self._rules.items())]
        files = self._files.weight_files if self._heads else []
        return self._hash(
            "late interaction", rules, self._files.mean, self._graph.provider, len(self._heads), files=files
        )

    def encode(self, texts: Sequence[str], *, kind: Kind = "passage") -> TokenVectors:
        """Return the token vectors of texts, in their order; those of questions with ``kind="query"``."""
        if isinstance(texts, str | bytes):
            raise TypeError(f"texts must be a sequence of strings, not one {type(texts).__name__}; put it in a list")
        if kind not in self._rules:
            raise ValueError(f"kind must be 'query' or 'passage', not {kind!r}")
        rows: dict[str, int] = {}
        values: Sequence[object] = texts
        for index, text in enumerate(values):
            if not isinstance(text, str):
                raise TypeError(f"texts must be strings, but item {index} is of type {type(text).__name__}")
            rows.setdefault(whole_text(text), len(rows))
        found = self._encode(list(rows), self._rules[kind])
        parts = [found[rows[whole_text(text)]] for text in texts]
        offsets = np.cumsum([0, *map(len, parts)], dtype=np.int64)
        # Lengths are those of the last layer, which no text is without.
        width = parts[0].shape[1] if parts else self.dimension
        return TokenVectors(np.concatenate([np.empty((0, width), np.float32), *parts]), offsets)

    def score(self, pairs: Sequence[tuple[str, str]]) -> Scores:
        """Score pairs of a question and a passage by MaxSim: larger is better, 1 at most for each of the question's vectors.

        A passage without any vector (all of its words are in the skiplist) has the lowest score that there is.
        """
        checked = checked_pairs(pairs)
        questions = {question: number for number, question in enumerate(dict.fromkeys(pair[0] for pair in checked))}
        passages: dict[str, list[int]] = {}
        for index, (_, passage) in enumerate(checked):
            passages.setdefault(passage, []).append(index)
        queries = self.encode(list(questions), kind="query")
        lengths = np.diff(queries.offsets)
        scores = np.empty(len(checked), dtype=np.float32)
        distinct = list(passages)
        for start in range(0, len(distinct), _AT_ONCE):
            some = distinct[start : start + _AT_ONCE]
            documents = self.encode(some)
            asked = [
                (questions[checked[index][0]], row, index) for row, text in enumerate(some) for index in passages[text]
            ]
            numbers, rows, indices = np.array(sorted(asked), dtype=np.int64).T
            ends = np.searchsorted(numbers, np.arange(len(questions) + 1))
            found = max_sim(
                queries.vectors, documents.vectors, query_offsets=queries.offsets, document_offsets=documents.offsets,
                candidates=(rows, ends), threads=self._threads,
            )  # fmt: skip
            found = np.where(np.isfinite(found), found, -lengths[numbers].astype(np.float32))
            scores[indices] = found / np.maximum(lengths[numbers], 1) if self._files.mean else found
        return scores

    def _fitted(self, rules: TokenRules) -> TokenRules:
        """Cut lengths to what a graph of a fixed length takes."""
        most = self._graph.columns or rules.length
        return rules._replace(length=min(rules.length, most), expanded=min(rules.expanded, most))

    def _encode(self, texts: list[str], rules: TokenRules) -> list[Vectors]:
        tokens = self._files.token_ids(texts, rules)
        if rules.attend:
            tokens = [ids + [rules.filler] * (rules.expanded - len(ids)) for ids in tokens]
        vectors: list[Vectors] = [np.empty((0, 0), np.float32)] * len(texts)
        lengths = [max(len(ids), rules.expanded) for ids in tokens]
        for batch, results in self._in_batches(partial(self._run, rules), tokens, lengths):
            for index, result in zip(batch, results, strict=True):
                vectors[index] = result
        return vectors

    def _run(self, rules: TokenRules, tokens: list[list[int]]) -> list[Vectors]:
        """Return the vectors of each text's tokens that count."""
        # Unseen by the other tokens, those that fill a query up are padding to the graph, and have vectors all the same.
        filler = rules.filler if rules.expanded else self._files.pad_id
        output, _ = self._graph.run(tokens, filler, length=rules.expanded)
        for head in self._heads:
            output = head(output)
        if output.ndim != 3 or len(output) != len(tokens):
            raise ModelError(
                f"late-interaction model {self.name!r} gives vectors {list(output.shape)} for {len(tokens)} texts; export it again"
            )
        results = []
        for ids, own in zip(tokens, output, strict=True):
            kept = [place for place, token in enumerate(ids) if token not in rules.skipped]
            kept += range(len(ids), rules.expanded)
            if not np.isfinite(own[kept]).all():
                raise ModelError(
                    f"late-interaction model {self.name!r} gives NaN or infinity for a text; its graph or its provider is broken"
                )
            results.append(normalize(own[kept], threads=1))
        return results
