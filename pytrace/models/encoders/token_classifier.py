"""Classifiers of tokens: of two texts read together, the probabilities of labels for each token of the second, on onnxruntime."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pytrace.errors import ModelError, ModelFileError
from pytrace.models.encoders.cross_encoder import CrossEncoderFiles, Scores, checked_pairs
from pytrace.models.encoders.onnx_graph import Device
from pytrace.models.encoders.onnx_model import OnnxTextModel

# Pairs whose tokens are held at once.
_AT_ONCE = 1024


class TokenClassifierFiles(CrossEncoderFiles):
    """The files of one classifier of tokens."""

    remedy: ClassVar[str] = (
        "give the directory of a token classification model in ONNX ('optimum-cli export onnx --task token-classification')"
    )


class ClassifiedTokens(NamedTuple):
    """The tokens of a pair's second text that were read: their places in it, int64 ``[n, 2]``, and probabilities, float32 ``[n, labels]``."""

    places: NDArray[np.int64]
    probabilities: Scores


class OnnxTokenClassifier(OnnxTextModel[TokenClassifierFiles]):
    """A classifier of tokens in an ONNX file, run by onnxruntime, such as LettuceDetect's.

    Of a pair that is longer than the model takes, the second text is cut, and the first only where it is longer than three quarters
    of what the model takes. `labels` are the model's own names in the order of its logits, their numbers if it has none.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        device: Device = "cpu",
        providers: Sequence[str] | None = None,
        threads: int | None = None,
        batch_tokens: int | None = None,
    ) -> None:
        super().__init__(
            Path(path), TokenClassifierFiles, gives="token vectors", device=device, providers=providers, threads=threads,
            batch_tokens=batch_tokens,
        )  # fmt: skip
        if self._graph.pooled:
            raise ModelFileError(
                f"{self._files.graph} gives one row for a text and none for its tokens; export it for token classification"
            )
        self._limit = min(self.max_tokens, self._graph.columns or self.max_tokens)
        self.room = self._limit - self._files.special_tokens
        """How many tokens of both texts it reads."""
        names = self._files.labels
        count = self.classify([("a", "a")])[0].probabilities.shape[1]
        self.labels = names if len(names) == count else tuple(map(str, range(count)))

    def count_tokens(self, text: str) -> int:
        """Count the tokens of a text, without special ones."""
        return len(self._files.places([text])[0])

    def classify(self, pairs: Sequence[tuple[str, str]]) -> list[ClassifiedTokens]:
        """Classify the tokens of the second text of each pair."""
        pairs = checked_pairs(pairs)
        found: list[ClassifiedTokens] = []
        for start in range(0, len(pairs), _AT_ONCE):
            found += self._classify(pairs[start : start + _AT_ONCE])
        return found

    def _classify(self, pairs: list[tuple[str, str]]) -> list[ClassifiedTokens]:
        encodings = self._files.encodings(pairs, self._limit)
        places = self._files.places([second for _, second in pairs])
        found: dict[int, ClassifiedTokens] = {}
        for batch, logits in self._in_batches(self._logits, encodings, [len(each.ids) for each in encodings]):
            for number, rows in zip(batch, logits, strict=True):
                second = [row for row, side in enumerate(encodings[number].sequence_ids) if side == 1]
                of_second = np.asarray(rows[second], dtype=np.float32)
                shares = np.exp(of_second - np.logaddexp.reduce(of_second, axis=1, keepdims=True))
                # The text's end may have been cut off.
                where = np.array(places[number][: len(second)], dtype=np.int64).reshape(-1, 2)
                found[number] = ClassifiedTokens(where, shares)
        return [found[number] for number in range(len(pairs))]

    def _logits(self, encodings: list[object]) -> Scores:
        tokens = [(each.ids or [self._files.pad_id], each.type_ids) for each in encodings]  # type: ignore[attr-defined]
        logits, mask = self._graph.run([ids for ids, _ in tokens], self._files.pad_id, [types for _, types in tokens])
        if logits.ndim != 3 or logits.shape[:2] != mask.shape:
            raise ModelError(
                f"token classifier {self.name!r} gives logits {list(logits.shape)} for {mask.shape[0]} texts of {mask.shape[1]} tokens; "
                "export it again for token classification"
            )
        if not np.isfinite(logits[mask]).all():
            raise ModelError(
                f"token classifier {self.name!r} gives NaN or infinity for a token; its graph or its provider is broken"
            )
        return logits
