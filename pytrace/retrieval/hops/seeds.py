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


class Named(NamedTuple):
    """Passages that a question names, by rows: how few share the name, and how rare its words are."""

    share: dict[int, float]
    rarity: dict[int, float]


class Seeds(NamedTuple):
    """The passages that a question finds: rows that rise, and how well each matches by itself, float64 ``[n]``.

    `best_words` is the BM25 score of the best passage, by which others' are divided.
    """

    rows: Rows
    scores: Floats
    named: Named
    best_words: float

    def best(self, count: int) -> Rows:
        """Return the best rows, best first; of equal ones the lower first."""
        return self.rows[np.argsort(-self.scores, kind="stable")[:count]]


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
    named = [
        _named(index, rarity, found.names[start:end], count, mask)
        for start, end in zip(found.offsets[:-1].tolist(), found.offsets[1:].tolist(), strict=True)
    ]
    rows = [
        np.unique(np.concatenate([near, by_words, [*names.share]]).astype(np.int64))
        for near, by_words, names in zip(near_rows, word_rows, named, strict=True)
    ]
    rows = [each[each >= 0] for each in rows]
    best = np.maximum(word_scores[:, 0].astype(np.float64), 1e-9)
    near, by_words = question_scores(
        index, questions, vectors, best, rows, index.vectors(np.concatenate([np.empty(0, np.int64), *rows]))
    )
    seeds = []
    for number, (own, names) in enumerate(zip(rows, named, strict=True)):
        scores = seed_scores(near[number], by_words[number], column(own, names.share))
        seeds.append(Seeds(own, scores, names, float(best[number])))
    return seeds


def question_scores(
    index: PassageIndex,
    questions: Sequence[str],
    vectors: Vectors,
    best_words: Floats,
    rows: Sequence[Rows],
    of_rows: Vectors,
) -> tuple[list[Floats], list[Floats]]:
    """Return the inner products and the BM25 scores, by the best ones, of questions with some passages each, and their vectors."""
    offsets = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    flat = np.concatenate([np.empty(0, np.int64), *rows])
    by_words = index.words.scores_of(questions, offsets, flat).astype(np.float64)
    parts = [slice(start, end) for start, end in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)]
    near = [(of_rows[part] @ vector).astype(np.float64) for part, vector in zip(parts, vectors, strict=True)]
    return near, [by_words[part] / best for part, best in zip(parts, best_words.tolist(), strict=True)]


def column(rows: Rows, values: dict[int, float]) -> Floats:
    """Return a value for each row, 0 where there is none."""
    return np.array([values.get(row, 0.0) for row in rows.tolist()])


def _named(index: PassageIndex, rarity: Rarity, names: NDArray[np.int64], most: int, mask: Mask | None) -> Named:
    graph = index.graph
    assert graph is not None
    named = Named({}, {})
    for name in dict.fromkeys(names.tolist()):
        number = np.array([name])
        carriers = graph.carriers.take(number).values
        if len(carriers) > most:
            continue
        weights = rarity.of_ids(graph.name_words.take(number).values)
        weight = float(np.sqrt((weights**2).sum()))
        for row in carriers.tolist():
            if mask is None or mask[row]:
                named.share[row] = max(named.share.get(row, 0.0), 1 / float(np.sqrt(len(carriers))))
                named.rarity[row] = max(named.rarity.get(row, 0.0), weight)
    return named
