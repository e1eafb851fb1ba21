"""Cross-encoders: a question and a passage read together become one score, on onnxruntime.

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

from pytrace.errors import ModelError, ModelFileError
from pytrace.models.encoders.encoder_files import OnnxFiles
from pytrace.models.encoders.onnx_graph import Device
from pytrace.models.encoders.onnx_model import OnnxTextModel
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


class CrossEncoderFiles(OnnxFiles):
    """The files of one cross-encoder; `max_tokens` is of question and passage together.

    `labels` has the labels' names in the order of their logits, as ``config.json`` has them; it is empty if that names none.
    """

    remedy: ClassVar[str] = (
        "give the directory of a sequence classification model in ONNX ('optimum-cli export onnx --task text-classification')"
    )

    def __init__(self, path: Path, dtype: str | None = None) -> None:
        super().__init__(path, dtype)
        self.labels = _labels(self.config.get("id2label"))
        self._lock = threading.Lock()  # a tokenizer's truncation is a state of its own

    def pairs(self, pairs: Sequence[tuple[str, str]], limit: int) -> list[tuple[list[int], list[int]]]:
        """Turn pairs into token ids with special tokens, and the type of each token (0: question, 1: passage)."""
        # A passage loses its end where both are longer than `limit`, and a question only what three quarters of that do
        # not hold.
        room = limit - self._tokenizer.num_special_tokens_to_add(is_pair=True)
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
            encodings = [self._tokenizer.post_process(questions[first], passages[second]) for first, second in pairs]
        # A tokenizer that puts nothing around texts gives no token for two empty ones, where a graph wants at least one, and
        # leaves types as they were.
        plain = self._tokenizer.post_processor is None
        return [
            (each.ids or [self.pad_id], [side or 0 for side in each.sequence_ids] if plain else each.type_ids)
            for each in encodings
        ]

    def _tokens(self, texts: set[str]) -> dict[str, Any]:
        order = list(texts)
        return dict(zip(order, self._tokenizer.encode_batch_fast(order, add_special_tokens=False), strict=True))


class OnnxCrossEncoder(OnnxTextModel[CrossEncoderFiles]):
    """A cross-encoder in an ONNX file, run by onnxruntime.

    Of a pair that is longer than the model takes, the passage is cut, and the question only where it is longer than three
    quarters of what the model takes. Equal pairs are scored once, and the rest sorted by length into batches, as
    `pytrace.models.encoders.encoder.OnnxEncoder` does.

    A score is the logit of a model with one label, or of one with two the logit of the label that says yes less the other's.
    It is no probability; only the order among scores of one question means anything.
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
    ) -> None:
        super().__init__(
            Path(path), CrossEncoderFiles, gives="logits", device=device, providers=providers, threads=threads,
            batch_tokens=batch_tokens,
        )  # fmt: skip
        self._limit = min(self.max_tokens, self._graph.columns or self.max_tokens)
        self._count = int(self._logits(self._files.pairs([("", "")], self._limit)).shape[1])
        if self._count not in {1, 2}:
            raise ModelFileError(
                f"{self._files.graph} gives {self._count} logits for a pair, but a cross-encoder has one label, or two; use a "
                "model that was trained to rank passages"
            )
        self._positive = self._positive_label(positive)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over the graph, its weights, the tokenizer, and everything else that shapes a score."""
        return self._hash("cross-encoder", self._positive, self._limit, self._graph.provider)

    def score(self, pairs: Sequence[tuple[str, str]]) -> Scores:
        """Score pairs of a question and a passage."""
        rows: dict[tuple[str, str], list[int]] = {}
        for index, pair in enumerate(checked_pairs(pairs)):
            rows.setdefault(pair, []).append(index)
        scores = np.empty(len(pairs), dtype=np.float32)
        distinct = list(rows)
        for start in range(0, len(distinct), _AT_ONCE):
            some = distinct[start : start + _AT_ONCE]
            tokens = self._files.pairs(some, self._limit)
            for batch, batch_scores in self._in_batches(self._scores, tokens, [len(ids) for ids, _ in tokens]):
                for index, score in zip(batch, batch_scores, strict=True):
                    scores[rows[some[index]]] = score
        return scores

    def _scores(self, tokens: list[tuple[list[int], list[int]]]) -> Scores:
        logits = self._logits(tokens)
        if logits.shape != (len(tokens), self._count):
            raise ModelError(
                f"cross-encoder {self.name!r} gives logits {list(logits.shape)} for {len(tokens)} pairs where "
                f"[{len(tokens)}, {self._count}] is due; export it again"
            )
        scores = logits[:, self._positive] - logits[:, 1 - self._positive] if self._count == 2 else logits[:, 0]
        if not np.isfinite(scores).all():
            raise ModelError(
                f"cross-encoder {self.name!r} gives NaN or infinity for a pair; its graph or its provider is broken"
            )
        return scores

    def _logits(self, tokens: list[tuple[list[int], list[int]]]) -> Scores:
        return self._graph.run([ids for ids, _ in tokens], self._files.pad_id, [types for _, types in tokens])[0]

    def _positive_label(self, given: int | None) -> int:
        """Return the number of the label whose logit speaks for a passage."""
        if given is not None:
            if not 0 <= given < self._count:
                raise ValueError(f"positive must be the number of a label, 0 to {self._count - 1}, not {given}")
            return given
        if self._count == 1:
            return 0
        names = self._files.labels
        positive = [number for number, name in enumerate(names) if _NO_LETTER.sub("", name.casefold()) in _POSITIVE]
        if len(names) != 2 or len(positive) != 1:
            raise ModelFileError(
                f"{self._files.directory / 'config.json'} does not say which of two labels says yes (id2label: "
                f"{', '.join(names) or 'none'}); call that one 'relevant' and the other 'irrelevant' there"
            )
        return positive[0]


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
