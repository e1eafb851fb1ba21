"""What the small model says of its windows: the likeliest answers, the label of a claim, and whether a candidate goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pytrace.errors import InputError
from pytrace.kernels import Spans, top_spans
from pytrace.models.edge.packing import PackedInput, Packer, padded

KINDS = ("span", "yes", "no", "none")
"""Answer kinds, in the order of the kind head."""

LABELS = ("supported", "refuted", "not_enough_info")
"""Labels of claims, in the order of the check head."""

MAX_SPAN_TOKENS = 30
MAX_SPAN_CHARACTERS = 300
PAIR_WIDTH = 64

READ_OUTPUTS = ("start", "end", "pair", "kind")
"""What the network gives for reading: start and end [batch, tokens]; pair [batch, tokens, 2 * PAIR_WIDTH], a vector of each token as a start
and one as an end; answer kinds [batch, 4]. Others are "check", the labels of claims [batch, 3], and "link" [batch, tokens, 2]: at a separator,
whether the passage before it supports the answer, and at the first token, whether the passages are enough."""

Logits = tuple[NDArray[np.float32], ...]

Run = Callable[[Sequence[str], Mapping[str, NDArray[np.int64]]], Logits]
"""Computes some outputs of the network for padded inputs."""


class ReadSpan(NamedTuple):
    """An answer: its text, its place as passage, start and end in characters, and its score in nats above "no answer here"."""

    text: str
    passage: int
    start: int
    end: int
    score: float


class EdgeReading(NamedTuple):
    """What was read: the best spans, the best first, and the probability of each of `KINDS`."""

    spans: tuple[ReadSpan, ...]
    kinds: tuple[float, ...]


def read(
    run: Run,
    packer: Packer,
    questions: Sequence[str],
    passages: Sequence[Sequence[str]],
    *,
    top: int = 5,
    batch: int = 1,
) -> list[EdgeReading]:
    """Read each question's passages.

    Parameters
    ----------
    run, packer
        The network, and what packs its inputs.
    questions, passages
        Questions, and the passages of each, whose titles stand in brackets before them.
    top
        Spans per question.
    batch
        Windows that go through the network together. Their activations are quantized by one scale, so that with more than one a reading
        depends on the others.
    """
    windows = [packer.windows(question, texts) for question, texts in zip(questions, passages, strict=True)]
    found = _read_all(run, packer, [window for mine in windows for window in mine], batch, top)
    readings = []
    index = 0
    for mine, texts in zip(windows, passages, strict=True):
        spans: dict[tuple[int, int, int], ReadSpan] = {}
        weights: list[float] = []
        kinds: list[NDArray[np.float32]] = []
        for window in mine:
            best_spans, kind = found[index]
            index += 1
            best = -np.inf
            for score, first, last in best_spans:
                place = (int(window.passages[first]), int(window.offsets[first, 0]), int(window.offsets[last, 1]))
                best = max(best, score)
                if place not in spans or spans[place].score < score:
                    spans[place] = ReadSpan(texts[place[0]][place[1] : place[2]], *place, score)
            exp = np.exp(kind - kind.max())
            kinds.append(exp / exp.sum())
            # The window with the likeliest answer says most about its kind.
            weights.append(best if np.isfinite(best) else -50.0)
        share = np.exp(np.array(weights) - max(weights))
        together = (share[:, None] * np.array(kinds)).sum(0) / share.sum()
        ranked = tuple(sorted(spans.values(), key=lambda span: (-span.score, span[1:4]))[:top])
        readings.append(EdgeReading(ranked, tuple(map(float, together))))
    return readings


def check(
    run: Run, packer: Packer, claims: Sequence[str], evidence: Sequence[str], *, batch: int = 1
) -> NDArray[np.float32]:
    """Return the probabilities of `LABELS` for each claim and its text, float32 [claims, 3].

    A long text is read in windows; the window that says most for or against the claim decides.
    """
    windows = [packer.windows(claim, [text]) for claim, text in zip(claims, evidence, strict=True)]
    found = _run_all(run, "check", packer, [window for mine in windows for window in mine], batch)
    labels = np.zeros((len(windows), len(LABELS)), np.float32)
    index = 0
    for number, mine in enumerate(windows):
        logits = np.array(found[index : index + len(mine)])
        exp = np.exp(logits - logits.max(axis=1, keepdims=True))
        shares = exp / exp.sum(axis=1, keepdims=True)
        labels[number] = shares[int(shares[:, :2].max(axis=1).argmax())]
        index += len(mine)
    return labels


def link(
    run: Run, packer: Packer, questions: Sequence[str], so_far: Sequence[Sequence[str]], candidates: Sequence[str | None],
    *, batch: int = 16,
) -> NDArray[np.float32]:  # fmt: skip
    """Return how likely each candidate goes on from what was found, or without a candidate, how likely that is enough: float32 [n].

    The candidate comes first, then what was found, the latest first; what does not fit is left out.

    Raises
    ------
    InputError
        A candidate is empty.
    """
    for number, candidate in enumerate(candidates):
        if candidate is not None and not len(packer.tokens(candidate).ids):
            raise InputError(
                f"candidate {number} has no text; leave it out, or give None to ask whether what was found is enough"
            )
    windows = [
        packer.windows(question, [*([] if candidate is None else [candidate]), *reversed(found)])[0]
        for question, found, candidate in zip(questions, so_far, candidates, strict=True)
    ]
    outputs = _run_all(run, "link", packer, windows, batch)
    logits = np.array(
        [
            output[0, 1] if candidate is None else output[window.separators()[0], 0]
            for output, window, candidate in zip(outputs, windows, candidates, strict=True)
        ],
        np.float32,
    )
    return np.asarray(1 / (1 + np.exp(-logits)), np.float32)


def _read_all(
    run: Run, packer: Packer, windows: Sequence[PackedInput], batch: int, top: int
) -> list[tuple[list[tuple[float, int, int]], NDArray[np.float32]]]:
    """Return each window's best spans (score, first and last token) and logits of `KINDS`."""
    found: dict[int, tuple[list[tuple[float, int, int]], NDArray[np.float32]]] = {}
    for some, (starts, ends, pairs, kinds) in _batches(run, READ_OUTPUTS, packer, windows, batch):
        spans = _best_spans([windows[index] for index in some], starts, ends, pairs, top)
        for row, index in enumerate(some):
            there = spans.first[row] >= 0
            scores, firsts, lasts = (array[row][there].tolist() for array in spans)
            found[index] = (list(zip(scores, firsts, lasts, strict=True)), kinds[row])
    return [found[index] for index in range(len(windows))]


def _best_spans(
    windows: Sequence[PackedInput],
    starts: NDArray[np.float32],
    ends: NDArray[np.float32],
    pairs: NDArray[np.float32],
    top: int,
) -> Spans:
    """Return the best spans of a batch's windows, whose outputs are padded to the longest."""
    owners = np.full(starts.shape, -1, np.int32)
    offsets = np.full((*starts.shape, 2), -1, np.int32)
    for row, window in enumerate(windows):
        owners[row, : len(window.ids)] = window.passages
        offsets[row, : len(window.ids)] = window.offsets
    return top_spans(
        starts, ends, pairs, owners, offsets, top=top, max_tokens=MAX_SPAN_TOKENS, max_characters=MAX_SPAN_CHARACTERS
    )


def _run_all(
    run: Run, output: str, packer: Packer, windows: Sequence[PackedInput], batch: int
) -> list[NDArray[np.float32]]:
    """Run windows; return an output of each in their order."""
    found: dict[int, NDArray[np.float32]] = {}
    for some, (values,) in _batches(run, (output,), packer, windows, batch):
        found.update(zip(some, values, strict=True))
    return [found[index] for index in range(len(windows))]


def _batches(
    run: Run, outputs: Sequence[str], packer: Packer, windows: Sequence[PackedInput], batch: int
) -> Iterator[tuple[list[int], Logits]]:
    """Run windows, those of about the same length together; yield the indices of each batch and its outputs."""
    order = sorted(range(len(windows)), key=lambda index: len(windows[index].ids))
    for begin in range(0, len(order), batch):
        some = order[begin : begin + batch]
        yield some, run(outputs, padded([windows[index] for index in some], packer.pad_id))
