"""Models of entailment in ONNX: classifiers of pairs (natural language inference, MiniCheck) and of tokens (LettuceDetect)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pytrace.certify.claims.entailment import EntailmentModel, Judgements, Spans, in_windows, largest
from pytrace.certify.claims.entailment_labels import NOT_THERE, SUPPORTED, columns_of
from pytrace.certify.claims.marked_claims import MARKS, mark_missing
from pytrace.errors import ModelFileError
from pytrace.models import registry
from pytrace.models.encoders.cross_encoder import CrossEncoderFiles, OnnxCrossEncoder
from pytrace.models.encoders.onnx_graph import Device
from pytrace.models.encoders.token_classifier import OnnxTokenClassifier

# Longer evidence is read in windows: models of entailment are trained on short texts (MiniCheck, section 4.2: chunks of 500 tokens),
# and the cost of attention grows with the square of the length.
_WINDOW = 512
# What the log-odds of a model that `pytrace train checker` made count: it has learned from fewer claims than the words have. Of
# FEVER-symmetric and WiCE, the one is best with 0.4 to 0.6 and the other with 0.25.
_BESIDE_WORDS = 0.25


def open_entailment(
    name: str | os.PathLike[str], *, device: Device = "cpu", threads: int | None = None
) -> EntailmentModel:
    """Open a model in ONNX.

    Parameters
    ----------
    name
        A name of the registry, or the path of a directory or graph: a classifier of pairs with labels like entailment, neutral and
        contradiction, or supported and not, or a classifier of tokens (``config.json``: architectures).
    device, threads
        Where it runs, on how many threads.

    Raises
    ------
    ModelFileError
        There is no such model, or its labels do not say which of them means that a claim is supported.
    """
    path = registry.resolve(name, "entailment")
    architectures = CrossEncoderFiles(path).config.get("architectures")
    if isinstance(architectures, list) and any(str(each).endswith("ForTokenClassification") for each in architectures):
        return TokenEntailment(path, device=device, threads=threads)
    return PairEntailment(path, device=device, threads=threads)


class PairEntailment:
    """A classifier of pairs, as of natural language inference, or MiniCheck's of two labels.

    It reads the evidence first and the claim second. Labels are known by their names in ``config.json`` (id2label), in any order;
    those of two that have none are taken for not supported and supported. Where evidence is longer than the model reads, it is read in
    windows, and the largest probability of any counts. What `pytrace train checker` made reads claims with their missing words marked.
    """

    # Tang et al., "MiniCheck: Efficient Fact-Checking of LLMs on Grounding Documents" (2024), section 4.2: the largest over chunks.

    def __init__(self, path: Path, *, device: Device = "cpu", threads: int | None = None) -> None:
        # Which label says yes is not left to the cross-encoder, which knows of two columns less.
        self._model = OnnxCrossEncoder(path, device=device, threads=threads, positive=0)
        self.name, self.around = self._model.name, 0
        self._columns = columns_of(self._model.labels, path)
        self._marks = CrossEncoderFiles(path).config.get(MARKS) is True

    def judge(self, pairs: Sequence[tuple[str, str]]) -> Judgements:
        """Judge pairs of a claim and its evidence, in their order."""
        rows, parts = in_windows(pairs, self._model.count_tokens, min(self._model.room, _WINDOW))
        shares = self._model.probabilities(
            [(evidence, mark_missing(claim, evidence) if self._marks else claim) for claim, evidence in parts]
        )
        probabilities = np.zeros((len(parts), 3), np.float32)
        for label, column in enumerate(self._columns):
            probabilities[:, column] += shares[:, label]
        return Judgements(largest(probabilities, rows, len(pairs)), share=_BESIDE_WORDS if self._marks else 1.0)


class TokenEntailment:
    """A classifier of tokens that finds what evidence does not support in a claim, as LettuceDetect does.

    A claim is as well supported as its least supported token. Of its two labels the one that is called hallucinated, unsupported or
    the like, or else the second, marks what is not supported.
    """

    # Kovács and Recski, "LettuceDetect: A Hallucination Detection Framework for RAG Applications" (2025), section 4.

    def __init__(self, path: Path, *, device: Device = "cpu", threads: int | None = None) -> None:
        self._model = OnnxTokenClassifier(path, device=device, threads=threads)
        self.name, self.around = self._model.name, 0
        columns = columns_of(self._model.labels, path, first_supported=True)
        if len(columns) != 2:
            raise ModelFileError(
                f"{path} gives {len(columns)} labels for a token; name a model with two, supported and not"
            )
        self._supported = columns.index(SUPPORTED)

    def judge(self, pairs: Sequence[tuple[str, str]]) -> Judgements:
        """Judge pairs of a claim and its evidence, in their order."""
        rows, parts = in_windows(pairs, self._model.count_tokens, self._model.room)
        found = self._model.classify([(evidence, claim) for claim, evidence in parts])
        probabilities = np.zeros((len(pairs), 3), np.float32)
        spans: list[Spans] = []
        first = np.searchsorted(rows, np.arange(len(pairs) + 1))
        for number, (begin, end) in enumerate(zip(first[:-1].tolist(), first[1:].tolist(), strict=True)):
            windows = found[begin:end]
            # Each token by the window that supports it best.
            read = min(len(window.places) for window in windows)
            supported = np.max([window.probabilities[:read, self._supported] for window in windows], axis=0)
            least = float(supported.min()) if read else 0.0
            probabilities[number, SUPPORTED], probabilities[number, NOT_THERE] = least, 1 - least
            spans.append(_joined(windows[0].places[:read][supported < 0.5], pairs[number][0]))
        return Judgements(probabilities, spans)


def _joined(places: NDArray[np.int64], text: str) -> Spans:
    """Join the places of neighbouring tokens, and leave out the blanks around them."""
    spans: list[tuple[int, int]] = []
    for start, end in places.tolist():
        if spans and not text[spans[-1][1] : start].strip():
            spans[-1] = (spans[-1][0], end)
        else:
            spans.append((start, end))
    cut = [(start, text[start:end]) for start, end in spans]
    return tuple(
        (start + len(part) - len(part.lstrip()), start + len(part.rstrip())) for start, part in cut if part.strip()
    )
