"""What the small model says of its windows: the likeliest answers, the label of a claim, and whether a candidate goes on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pytrace.errors import InputError
from pytrace.kernels import top_spans
from pytrace.models.edge.packing import PackedInput, Packer

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

Run = Callable[[Sequence[str], PackedInput], Logits]
"""Computes some outputs of the network for one input; their first axis is 1."""


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
    """
    windows = [packer.windows(question, texts) for question, texts in zip(questions, passages, strict=True)]
    readings = []
    for mine, texts in zip(windows, passages, strict=True):
        spans: dict[tuple[int, int, int], ReadSpan] = {}
        weights: list[float] = []
        kinds: list[NDArray[np.float32]] = []
        for window in mine:
            best_spans, kind = _read_window(run, window, top)
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


def check(run: Run, packer: Packer, claims: Sequence[str], evidence: Sequence[str]) -> NDArray[np.float32]:
    """Return the probabilities of `LABELS` for each claim and its text, float32 [claims, 3].

    A long text is read in windows; the window that says most for or against the claim decides.
    """
    labels = np.zeros((len(claims), len(LABELS)), np.float32)
    for number, (claim, text) in enumerate(zip(claims, evidence, strict=True)):
        logits = np.concatenate([run(("check",), window)[0] for window in packer.windows(claim, [text])])
        exp = np.exp(logits - logits.max(axis=1, keepdims=True))
        shares = exp / exp.sum(axis=1, keepdims=True)
        labels[number] = shares[int(shares[:, :2].max(axis=1).argmax())]
    return labels


def link(
    run: Run, packer: Packer, questions: Sequence[str], so_far: Sequence[Sequence[str]], candidates: Sequence[str | None]
) -> NDArray[np.float32]:  # fmt: skip
    """Return how likely each candidate goes on from what was found, or without a candidate, how likely that is enough: float32 [n].

    The candidate comes first, then what was found, the latest first; what does not fit is left out.

    Raises
    ------
    InputError
        A candidate is empty.
    """
    logits = np.zeros(len(questions), np.float32)
    for number, (question, found, candidate) in enumerate(zip(questions, so_far, candidates, strict=True)):
        if candidate is not None and not len(packer.tokens(candidate).ids):
            raise InputError(
                f"candidate {number} has no text; leave it out, or give None to ask whether what was found is enough"
            )
        window = packer.windows(question, [*([] if candidate is None else [candidate]), *reversed(found)])[0]
        (values,) = run(("link",), window)
        logits[number] = values[0, 0, 1] if candidate is None else values[0, window.separators()[0], 0]
    return np.asarray(1 / (1 + np.exp(-logits)), np.float32)


def _read_window(run: Run, window: PackedInput, top: int) -> tuple[list[tuple[float, int, int]], NDArray[np.float32]]:
    """Return a window's best spans, each as score, first and last token, and its logits of `KINDS`."""
    starts, ends, pairs, kinds = run(READ_OUTPUTS, window)
    spans = top_spans(
        starts, ends, pairs, window.passages[None], window.offsets[None],
        top=top, max_tokens=MAX_SPAN_TOKENS, max_characters=MAX_SPAN_CHARACTERS,
    )  # fmt: skip
    there = spans.first[0] >= 0
    scores, firsts, lasts = (array[0][there].tolist() for array in spans)
    return list(zip(scores, firsts, lasts, strict=True)), kinds[0]
