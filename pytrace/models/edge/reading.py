"""What the small model says of its windows: the likeliest answers, the label of a claim, and whether a candidate goes on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pytrace.models.edge.packing import PackedInput, Packer, padded

KINDS = ("span", "yes", "no", "none")
"""Answer kinds, in the order of the kind head."""

LABELS = ("supported", "refuted", "not_enough_info")
"""Labels of claims, in the order of the check head."""

MAX_SPAN_TOKENS = 30
MAX_SPAN_CHARACTERS = 300
PAIR_WIDTH = 64

Logits = tuple[NDArray[np.float32], ...]
"""Start and end [batch, tokens]; pair [batch, tokens, 2 * PAIR_WIDTH], a vector of each token as a start and one as an end; answer kinds
[batch, 4]; labels of claims [batch, 3]; links [batch, 2]: goes on, is enough."""

Run = Callable[[Mapping[str, NDArray[np.int64]]], Logits]
"""Runs the network on padded inputs."""


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
    batch: int = 8,
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
        Windows that go through the network together.
    """
    windows = [packer.windows(question, texts) for question, texts in zip(questions, passages, strict=True)]
    found = _run_all(run, packer, [window for mine in windows for window in mine], batch)
    readings = []
    index = 0
    for mine, texts in zip(windows, passages, strict=True):
        spans: dict[tuple[int, int, int], ReadSpan] = {}
        weights: list[float] = []
        kinds: list[NDArray[np.float32]] = []
        for window in mine:
            starts, ends, pairs, kind = found[index][:4]
            index += 1
            best = -np.inf
            for score, first, last in top_spans(window, starts, ends, pairs, top):
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
    run: Run, packer: Packer, claims: Sequence[str], evidence: Sequence[str], *, batch: int = 16
) -> NDArray[np.float32]:
    """Return the probabilities of `LABELS` for each claim and its text, float32 [claims, 3].

    A long text is read in windows; the window that says most for or against the claim decides.
    """
    windows = [packer.windows(claim, [text]) for claim, text in zip(claims, evidence, strict=True)]
    found = _run_all(run, packer, [window for mine in windows for window in mine], batch)
    labels = np.zeros((len(windows), len(LABELS)), np.float32)
    index = 0
    for number, mine in enumerate(windows):
        logits = np.array([found[index + offset][4] for offset in range(len(mine))])
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
    """
    windows = [
        packer.windows(question, [*([] if candidate is None else [candidate]), *reversed(found)])[0]
        for question, found, candidate in zip(questions, so_far, candidates, strict=True)
    ]
    found = _run_all(run, packer, windows, batch)
    logits = np.array(
        [outputs[5][int(candidate is None)] for outputs, candidate in zip(found, candidates, strict=True)], np.float32
    )
    return np.asarray(1 / (1 + np.exp(-logits)), np.float32)


def _run_all(
    run: Run, packer: Packer, windows: Sequence[PackedInput], batch: int
) -> list[tuple[NDArray[np.float32], ...]]:
    """Run windows, those of about the same length together; return the outputs of each in their order."""
    order = sorted(range(len(windows)), key=lambda index: len(windows[index].ids))
    found: dict[int, tuple[NDArray[np.float32], ...]] = {}
    for begin in range(0, len(order), batch):
        some = order[begin : begin + batch]
        outputs = run(padded([windows[index] for index in some], packer.pad_id))
        for row, index in enumerate(some):
            found[index] = tuple(output[row] for output in outputs)
    return [found[index] for index in range(len(windows))]


def top_spans(
    window: PackedInput, starts: NDArray[np.float32], ends: NDArray[np.float32], pairs: NDArray[np.float32], top: int
) -> list[tuple[float, int, int]]:
    """Return the best spans of a window: score, first and last token, within one passage.

    The score is log p(first) + log p(last | first) - log p(none), in nats: each end is scored given its start.
    """
    count = len(window.ids)
    begin = np.where(window.passages >= 0, starts[:count], -np.inf)
    none = float(starts[0])
    found = []
    for first in np.argsort(-begin, kind="stable")[: 4 * top].tolist():
        if not np.isfinite(begin[first]):
            break
        # A passage's tokens lie next to each other, but for its title where a long one was cut.
        inside = np.flatnonzero(window.passages[first:count] == window.passages[first]) + first
        logits = ends[inside] + pairs[inside, PAIR_WIDTH:] @ pairs[first, :PAIR_WIDTH] / np.sqrt(PAIR_WIDTH)
        logits = logits - logits.max()
        logits = logits - np.log(np.exp(logits).sum())
        width = window.offsets[inside, 1] - window.offsets[first, 0]
        near = (inside < first + MAX_SPAN_TOKENS) & (width <= MAX_SPAN_CHARACTERS)
        for place in np.argsort(-logits[near], kind="stable")[:top].tolist():
            found.append((float(begin[first] + logits[near][place]) - none, first, int(inside[near][place])))
    return sorted(found, key=lambda one: (-one[0], one[1:]))[:top]
