"""Late interaction: a vector for every token of a question and of a passage, and how well they match, on onnxruntime.

Passages are read without the question, as encoders read them, and still each word of the question finds the word of the
passage that answers it best (`pytrace.kernels.max_sim`). ColBERT, ModernColBERT and what PyLate and sentence-transformers'
MultiVectorEncoder train are such models.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pytrace.errors import ModelError, ModelFileError
from pytrace.kernels import max_sim, normalize
from pytrace.models.encoders import heads
from pytrace.models.encoders.cross_encoder import Scores, checked_pairs
from pytrace.models.encoders.encoder import Vectors
from pytrace.models.encoders.encoder_files import Kind
from pytrace.models.encoders.late_interaction_files import LateInteractionFiles, TokenRules
from pytrace.models.encoders.onnx_graph import Device
from pytrace.models.encoders.onnx_model import OnnxTextModel
from pytrace.models.encoders.text_vectors import whole_text

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
