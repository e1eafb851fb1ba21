"""Models that say whether a text supports a claim, contradicts it, or does not say: what they take and give."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from pytrace.documents.sentences import split_sentences
from pytrace.errors import ModelError

Probabilities = NDArray[np.float32]
Spans = tuple[tuple[int, int], ...]

# However long a claim is, so much of the room is for its evidence.
_EVIDENCE_SHARE = 0.25


class Judgements(NamedTuple):
    """What a model says of n claims.

    `probabilities` is float32 ``[n, 3]``: supported, contradicted, not there. `spans` are the stretches of each claim that its
    evidence does not support, ``claim[start:end]``, or None if the model judges claims as a whole. `share` is what its log-odds count, from
    0 to 1, and those of the verdict by words the rest: a model that overlooks what words tell decides together with them.
    """

    probabilities: Probabilities
    spans: list[Spans] | None = None
    share: float = 1.0


class EntailmentModel(Protocol):
    """Anything that says of claims what a text says of them."""

    @property
    def name(self) -> str:
        """What to call it in reasons."""

    @property
    def around(self) -> int:
        """How many sentences before and after each chosen one it reads, too."""

    def judge(self, pairs: Sequence[tuple[str, str]]) -> Judgements:
        """Judge pairs of a claim and its evidence, in their order."""


def in_windows(
    pairs: Sequence[tuple[str, str]], count: Callable[[str], int], room: int
) -> tuple[NDArray[np.int64], list[tuple[str, str]]]:
    """Cut evidence so that it and its claim have at most `room` tokens; returns the number of each part's pair, and the parts."""
    rows: list[int] = []
    parts: list[tuple[str, str]] = []
    for number, (claim, evidence) in enumerate(pairs):
        least = max(int(_EVIDENCE_SHARE * room), 1)
        windows = _windows(evidence, count, max(room - count(claim), least))
        rows += [number] * len(windows)
        parts += [(claim, window) for window in windows]
    return np.array(rows, np.int64), parts


def _windows(text: str, count: Callable[[str], int], room: int) -> list[str]:
    """Halve a text until each part has at most so many tokens, between sentences if there are several, else between words."""
    if count(text) <= room:
        return [text]
    parts = split_sentences(text)
    if len(parts) < 2:
        parts = text.split()
    if len(parts) < 2:
        return [text]  # one endless word, of which the model reads the beginning
    middle = len(parts) // 2
    return [window for part in (parts[:middle], parts[middle:]) for window in _windows(" ".join(part), count, room)]


def largest(probabilities: Probabilities, rows: NDArray[np.int64], count: int) -> Probabilities:
    """Return float32 ``[count, 3]`` of windows' probabilities: the largest of supported, and of contradicted in what is left."""
    found = np.zeros((count, 3), np.float32)
    np.maximum.at(found, rows, probabilities)
    found[:, 1] = np.minimum(found[:, 1], 1 - found[:, 0])
    found[:, 2] = np.maximum(1 - found[:, 0] - found[:, 1], 0)
    return found


def checked_judgements(model: EntailmentModel, pairs: Sequence[tuple[str, str]]) -> Judgements:
    """Judge pairs and check what comes back, so that no verdict rests on something broken."""
    if not pairs:
        return Judgements(np.zeros((0, 3), np.float32))
    found = model.judge(pairs)
    probabilities = np.asarray(found.probabilities, np.float32)
    if probabilities.shape != (len(pairs), 3) or not ((probabilities >= 0) & (probabilities <= 1)).all():
        raise ModelError(
            f"{model.name!r} gives probabilities {list(probabilities.shape)} for {len(pairs)} claims, or such as are none, where "
            f"[{len(pairs)}, 3] from 0 to 1 are due; use another model"
        )
    return found._replace(probabilities=probabilities)
