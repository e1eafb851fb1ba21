"""Cross-encoders: two texts read together become a score or the probabilities of labels, on onnxruntime.

A cross-encoder is what Hugging Face calls a model for sequence classification, exported to ONNX: monoBERT, BGE's rerankers and
the MS MARCO MiniLMs are. It sees both texts at once, so nothing of a passage can be computed before the question is there.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from pytrace.errors import InputError, ModelError, ModelFileError
from pytrace.models.encoders.encoder_files import OnnxFiles
from pytrace.models.encoders.modules import Modules
from pytrace.models.encoders.onnx_graph import EXPORTS, Device
from pytrace.models.encoders.onnx_model import OnnxTextModel
from pytrace.models.encoders.pooling import pool
from pytrace.models.encoders.text_vectors import whole_text

Scores = NDArray[np.float32]

# Pairs that are tokenised and sorted together: enough that neighbours in length are alike, few enough to hold their tokens.
_AT_ONCE = 4096
# A question is cut to this share of the room for both texts, so that a passage always keeps some.
_QUESTION_SHARE = 0.75
# What the label of two is called that says that the passage helps; letters alone, in lower case.
_POSITIVE = frozenset({"relevant", "positive", "yes", "true", "match", "entailment"})
_NO_LETTER = re.compile(r"[\W_]+")


class CrossEncoder(Protocol):
    """Anything that says how well passages answer questions."""

    @property
    def name(self) -> str:
        """What to call it in reports."""

    @property
    def fingerprint(self) -> str:
        """A string that changes whenever the scores could."""

    def score(self, pairs: Sequence[tuple[str, str]]) -> Scores:
        """Return float32 [n], one score a pair of question and passage, larger is better, in the order of the pairs."""


def checked_scores(cross_encoder: CrossEncoder, pairs: list[tuple[str, str]]) -> Scores:
    """Score pairs and check what comes back, so that nothing broken is ranked by."""
    scores = np.asarray(cross_encoder.score(pairs), dtype=np.float32)
    if scores.shape != (len(pairs),):
        raise ModelError(
            f"cross-encoder {cross_encoder.name!r} gives scores {list(scores.shape)} for {len(pairs)} pairs; re-export the model"
        )
    if not np.isfinite(scores).all():
        first = int(np.argmin(np.isfinite(scores)))
        raise ModelError(
            f"cross-encoder {cross_encoder.name!r} gives NaN or infinity for {int((~np.isfinite(scores)).sum())} of "
            f"{len(pairs)} pairs, first for the question {pairs[first][0][:60]!a}; re-export the model"
        )
    return scores


class CrossEncoderFiles(OnnxFiles):
    """The files of one cross-encoder; `max_tokens` is of question and passage together.

    `labels` has the labels' names in the order of their logits, as ``config.json`` has them; it is empty if that names none.
    """

    remedy: ClassVar[str] = (
        "give the directory of a sequence classification model in ONNX ('optimum-cli export onnx --task text-classification')"
    )

    def __init__(self, path: Path, dtype: str | None = None) -> None:
        super().__init__(path, dtype)
        self.modules = Modules(self.directory, self.read, gives="scores")
        self._check_settings(self.read("config_sentence_transformers.json", dict[str, Any]) or {})
        self.labels = _labels(self.config.get("id2label"))
        self._lock = threading.Lock()  # a tokenizer's truncation is a state of its own

    def _check_settings(self, settings: dict[str, Any]) -> None:
        kind, prompts = settings.get("model_type"), settings.get("prompts")
        if kind not in {None, "CrossEncoder"}:
            raise ModelFileError(f"{self.directory} is a {kind}, no cross-encoder; use it as the encoder (--encoder)")
        name = settings.get("default_prompt_name")
        if name and isinstance(prompts, dict) and prompts.get(name):
            raise ModelFileError(
                f"{self.directory} puts the prompt {name!r} before its pairs, which is not supported; use a model without one"
            )

    def pairs(self, pairs: Sequence[tuple[str, str]], limit: int) -> list[tuple[list[int], list[int]]]:
        """Turn pairs into token ids with special tokens, and the type of each token (0: question, 1: passage)."""
        # A tokenizer that puts nothing around texts gives no token for two empty ones, where a graph wants at least one, and
        # leaves types as they were.
        plain = self._tokenizer.post_processor is None
        return [
            (each.ids or [self.pad_id], [side or 0 for side in each.sequence_ids] if plain else each.type_ids)
            for each in self.encodings(pairs, limit)
        ]

    def encodings(self, pairs: Sequence[tuple[str, str]], limit: int) -> list[Any]:
        """Turn pairs into tokens, special ones among them, as the package tokenizers has them."""
        # A passage loses its end where both are longer than `limit`, and a question only what three quarters of that do
        # not hold.
        room = limit - self.special_tokens
        if room < 1:
            raise ModelFileError(
                f"{self.graph} takes {limit} tokens, which leaves no room for a text; export it with a longer sequence"
            )
        with self._lock:
            self._tokenizer.no_truncation()
            questions, passages = (self._tokens({pair[side] for pair in pairs}) for side in (0, 1))
            for question in questions.values():
                question.truncate(int(room * _QUESTION_SHARE))
            self._tokenizer.enable_truncation(max_length=limit, strategy="only_second")
            return [self._tokenizer.post_process(questions[first], passages[second]) for first, second in pairs]

    @property
    def special_tokens(self) -> int:
        """How many tokens a pair has beside those of its texts."""
        return int(self._tokenizer.num_special_tokens_to_add(is_pair=True))

    def places(self, texts: Sequence[str]) -> list[list[tuple[int, int]]]:
        """Return where the tokens of each text stand in it, special ones left out."""
        with self._lock:
            self._tokenizer.no_truncation()
            return [each.offsets for each in self._tokenizer.encode_batch(list(texts), add_special_tokens=False)]

    def _tokens(self, texts: set[str]) -> dict[str, Any]:
        order = list(texts)
        return dict(zip(order, self._tokenizer.encode_batch_fast(order, add_special_tokens=False), strict=True))


class OnnxCrossEncoder(OnnxTextModel[CrossEncoderFiles]):
    """A cross-encoder in an ONNX file, run by onnxruntime: a reranker, or a judge of whether one text follows from another.

    Of a pair that is longer than the model takes, the second text is cut, and the first only where it is longer than three
    quarters of what the model takes. Equal pairs are scored once, and the rest sorted by length into batches, as
    `pytrace.models.encoders.encoder.OnnxEncoder` does. Layers that a model has behind its graph (pooling, Dense, LayerNorm)
    are read from its files.

    A score is the logit of a model with one label, or of one with several the log-odds of the label that speaks for a pair
    (``relevant``, ``entailment``, …, or `positive`, its number). Only the order among scores of one question means anything;
    `probabilities` are what the model was trained to give.
    """

    # Nogueira and Cho, "Passage Re-ranking with BERT" (2019), section 3: the pair as one sequence, the passage cut.
    # TRACE, section 4.1: cross-encoders rank a question's documents.

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        device: Device = "cpu",
        providers: Sequence[str] | None = None,
        threads: int | None = None,
        batch_tokens: int | None = None,
        positive: int | None = None,
        dtype: str | None = None,
    ) -> None:
        super().__init__(
            Path(path), CrossEncoderFiles, gives="logits", device=device, providers=providers, threads=threads,
            batch_tokens=batch_tokens, dtype=dtype,
        )  # fmt: skip
        modules = self._files.modules
        if not self._graph.pooled and not modules.pooling:
            raise ModelFileError(
                f"{self._files.graph} gives a vector for every token and no logits; export it {EXPORTS['logits']}, or add the "
                "modules.json of a reranker with its layers behind it"
            )
        self._heads = [] if self._graph.pooled else modules.read_heads()
        self._limit = min(self.max_tokens, self._graph.columns or self.max_tokens)
        self.room = self._limit - self._files.special_tokens
        """How many tokens of both texts it reads."""
        self._count = int(self._logits(self._files.pairs([("", "")], self._limit)).shape[1])
        names = self._files.labels
        self.labels = names if len(names) == self._count else tuple(map(str, range(self._count)))
        """What each of a pair's probabilities is of, by the model's own names."""
        where = f"{self._files.directory / 'config.json'} (id2label)"
        self._positive = positive_label(names, self._count, positive, where)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over the graph, its weights, the tokenizer, and everything else that shapes a score."""
        modules = self._files.modules
        behind = [] if self._graph.pooled else [modules.pooling, modules.layers]
        files = [] if self._graph.pooled else modules.weights
        return self._hash("cross-encoder", self._positive, self._limit, self._graph.provider, *behind, files=files)

    def score(self, pairs: Sequence[tuple[str, str]]) -> Scores:
        """Score pairs of a question and a passage."""
        return label_score(self._all_logits(pairs), self._positive, self.name, self.labels)

    def probabilities(self, pairs: Sequence[tuple[str, str]]) -> Scores:
        """Return float32 [n, labels], the probability of each of `labels` for each pair, in the order of the pairs.

        With one label it is the logistic function of the logit, as sentence-transformers has it; with several they sum to 1.
        """
        return label_probabilities(self._all_logits(pairs))

    def count_tokens(self, text: str) -> int:
        """Count the tokens of a text, without special ones."""
        return len(self._files.places([whole_text(text)])[0])

    def _all_logits(self, pairs: Sequence[tuple[str, str]]) -> Scores:
        rows: dict[tuple[str, str], list[int]] = {}
        for index, pair in enumerate(checked_pairs(pairs)):
            rows.setdefault(pair, []).append(index)
        logits = np.empty((len(pairs), self._count), dtype=np.float32)
        distinct = list(rows)
        for start in range(0, len(distinct), _AT_ONCE):
            some = distinct[start : start + _AT_ONCE]
            tokens = self._files.pairs(some, self._limit)
            for batch, batch_logits in self._in_batches(self._checked, tokens, [len(ids) for ids, _ in tokens]):
                for index, row in zip(batch, batch_logits, strict=True):
                    logits[rows[some[index]]] = row
        return logits

    def _checked(self, tokens: list[tuple[list[int], list[int]]]) -> Scores:
        logits = self._logits(tokens)
        if logits.shape != (len(tokens), self._count):
            raise ModelError(
                f"cross-encoder {self.name!r} gives logits {list(logits.shape)} for {len(tokens)} pairs where "
                f"[{len(tokens)}, {self._count}] is due; export it again"
            )
        if not np.isfinite(logits).all():
            raise ModelError(
                f"cross-encoder {self.name!r} gives NaN or infinity for a pair; its graph or its provider is broken"
            )
        return logits

    def _logits(self, tokens: list[tuple[list[int], list[int]]]) -> Scores:
        output, mask = self._graph.run([ids for ids, _ in tokens], self._files.pad_id, [types for _, types in tokens])
        if self._graph.pooled:
            return output
        output = pool(output, mask, self._files.modules.pooling)
        for head in self._heads:
            output = head(output)
        return output


def positive_label(names: Sequence[str], count: int, given: int | None, where: str) -> int | None:
    """Return the number of the label that speaks for a pair, None if none of several does; `where` says where their names stand."""
    if given is not None:
        if not 0 <= given < count:
            raise ValueError(f"positive must be the number of a label, 0 to {count - 1}, not {given}")
        return given
    if count == 1:
        return 0
    stated = names if len(names) == count else ()
    positive = [number for number, name in enumerate(stated) if _NO_LETTER.sub("", name.casefold()) in _POSITIVE]
    if count == 2 and len(positive) != 1:
        raise ModelFileError(
            f"{where} does not say which of two labels says yes ({', '.join(names) or 'none'}); call that one 'relevant' and the "
            "other 'irrelevant' there, or give its number (positive=)"
        )
    return positive[0] if len(positive) == 1 else None


def label_score(logits: Scores, positive: int | None, name: str, labels: Sequence[str]) -> Scores:
    """Return the logit of one label, or of several the log-odds of the one that speaks for a pair."""
    if positive is None:
        raise InputError(
            f"cross-encoder {name!r} has the labels {', '.join(labels)}, none of which says yes to a pair; name its number "
            "(positive=), or use a model that was trained to rank passages"
        )
    others = [logits[:, label] for label in range(logits.shape[1]) if label != positive]
    return np.asarray(logits[:, positive] - np.logaddexp.reduce(others) if others else logits[:, 0], dtype=np.float32)


def label_probabilities(logits: Scores) -> Scores:
    """Return the logistic function of one label's logit, as sentence-transformers has it, or the softmax of several's."""
    if logits.shape[1] == 1:
        return np.asarray(np.exp(-np.logaddexp(0, -logits)), dtype=np.float32)
    return np.asarray(np.exp(logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)), dtype=np.float32)


def _labels(stated: object) -> tuple[str, ...]:
    """Return the names in ``id2label``, which maps "0", "1", … to them; none if it does not."""
    if not isinstance(stated, dict) or set(stated) != {str(number) for number in range(len(stated))}:
        return ()
    return tuple(str(stated[str(number)]) for number in range(len(stated)))


def checked_pairs(pairs: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return pairs of whole texts; what is no pair of two strings is an error."""
    checked = []
    values: Sequence[Any] = pairs
    for index, pair in enumerate(values):
        if not isinstance(pair, tuple | list) or len(pair) != 2 or not all(isinstance(text, str) for text in pair):
            raise TypeError(f"pairs must be (question, passage) of two strings, but item {index} is {pair!a:.60}")
        checked.append((whole_text(pair[0]), whole_text(pair[1])))
    return checked
