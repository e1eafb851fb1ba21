"""What a question finds by itself: passages by vectors, by words and by the names that it has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pytrace.models.encoders.encoder import Vectors
from pytrace.retrieval.hops.features import Floats, Rarity, Rows
from pytrace.retrieval.passages.index import Mask, PassageIndex
from pytrace.retrieval.passages.names import normal_form

# How much words and names count beside vectors: found on other questions, where half or twice as much moved little.
_WORDS, _NAMED = 0.3, 0.35


class Seeds(NamedTuple):
    """The passages that a question finds, by rows that rise, and of each what `Candidates` say; float64 ``[n]``.

    `best_words` is the BM25 score of the best passage, by which `words` are divided.
    """

    rows: Rows
    near: Floats
    words: Floats
    named: Floats
    name_rarity: Floats
    best_words: float

    def best(self, count: int) -> Rows:
        """Return the best rows, best first; of equal ones the lower first."""
        return self.rows[self.order(count)]

    def order(self, count: int) -> NDArray[np.int64]:
        """Return the places of the best rows."""
        return np.argsort(-seed_scores(self.near, self.words, self.named), kind="stable")[:count]


def seed_scores(near: Floats, words: Floats, named: Floats) -> Floats:
    """Return how well passages match a question by themselves."""
    scores: Floats = near + _WORDS * words + _NAMED * (named > 0)
    return scores


def find_seeds(
    index: PassageIndex,
    rarity: Rarity,
    questions: Sequence[str],
    vectors: Vectors,
    *,
    count: int,
    mask: Mask | None = None,
) -> list[Seeds]:
    """Find the seeds of questions.

    Parameters
    ----------
    index, rarity
        Where to search, and the weights of its words.
    questions, vectors
        The questions and their vectors.
    count
        Passages by vectors, and as many by words; a name that more have names none of them.
    mask
        Which passages may be found.
    """
    assert index.graph is not None
    _, near_rows = index.nearest(vectors, count, mask=mask)
    word_scores, word_rows = index.words.top(questions, count, mask=mask)
    found = index.graph.table.find([normal_form(question) for question in questions])
    seeds = []
    for number, question in enumerate(questions):
        names = found.names[found.offsets[number] : found.offsets[number + 1]]
        named, name_rarity = _named(index, rarity, names, count, mask)
        rows = np.unique(np.concatenate([near_rows[number], word_rows[number], [*named]]).astype(np.int64))
        rows = rows[rows >= 0]
        best = max(float(word_scores[number, 0]), 1e-9)
        near = (index.vectors(rows) @ vectors[number]).astype(np.float64)
        by_words = index.words.scores_of([question], rows)[0].astype(np.float64) / best
        seeds.append(Seeds(rows, near, by_words, _column(rows, named), _column(rows, name_rarity), best))
    return seeds


def _named(
    index: PassageIndex, rarity: Rarity, names: NDArray[np.int64], most: int, mask: Mask | None
) -> tuple[dict[int, float], dict[int, float]]:
    """Return the passages that a question names: how few share the name, and how rare its words are."""
    graph = index.graph
    assert graph is not None
    named: dict[int, float] = {}
    name_rarity: dict[int, float] = {}
    for name in dict.fromkeys(names.tolist()):
        carriers = graph.carriers(name)
        if len(carriers) > most:
            continue
        _, weights = rarity.look_up(graph.table.name(name).split())
        for row in carriers.tolist():
            if mask is None or mask[row]:
                named[row] = max(named.get(row, 0.0), 1 / float(np.sqrt(len(carriers))))
                name_rarity[row] = max(name_rarity.get(row, 0.0), float(np.sqrt((weights**2).sum())))
    return named, name_rarity


def _column(rows: Rows, values: dict[int, float]) -> Floats:
    return np.array([values.get(row, 0.0) for row in rows.tolist()])
