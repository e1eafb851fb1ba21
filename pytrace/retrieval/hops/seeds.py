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
from pytrace.retrieval.passages.ragged import Lists, grouped, paired, places_among

# How much words and names count beside vectors: found on other questions, where half or twice as much moved little.
_WORDS, _NAMED = 0.3, 0.35


class Named(NamedTuple):
    """Passages that a question names: how few share the name, and how rare its words are, float64 ``[n]`` both."""

    rows: Rows
    share: Floats
    rarity: Floats


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
    found = index.graph.find([normal_form(question) for question in questions])
    named = [
        _named(index, rarity, found.names[start:end], count, mask)
        for start, end in zip(found.offsets[:-1].tolist(), found.offsets[1:].tolist(), strict=True)
    ]
    by_name = Lists.of([each.rows for each in named])
    both = np.concatenate([near_rows, word_rows], axis=1)
    found_rows = np.concatenate([both[both >= 0], by_name.values])
    owners = np.concatenate([np.nonzero(both >= 0)[0], by_name.owners])
    rows = grouped(owners, found_rows, len(questions))
    best = np.maximum(word_scores[:, 0].astype(np.float64), 1e-9)
    near, by_words = question_scores(index, questions, vectors, best, rows, index.vectors(rows.values))
    scores = seed_scores(near, by_words, column(rows, by_name, [each.share for each in named]))
    return [
        Seeds(rows.values[start:end], scores[start:end], names, of_best)
        for start, end, names, of_best in zip(
            rows.offsets[:-1].tolist(), rows.offsets[1:].tolist(), named, best.tolist(), strict=True
        )
    ]


def question_scores(
    index: PassageIndex,
    questions: Sequence[str],
    vectors: Vectors,
    best_words: Floats,
    rows: Lists,
    of_rows: Vectors,
) -> tuple[Floats, Floats]:
    """Return the inner products and the BM25 scores, by the best ones, of questions with some passages each, and their vectors."""
    by_words = index.words.scores_of(questions, rows.offsets, rows.values).astype(np.float64)
    near = np.empty(len(of_rows))
    for start, end, vector in zip(rows.offsets[:-1].tolist(), rows.offsets[1:].tolist(), vectors, strict=True):
        near[start:end] = of_rows[start:end] @ vector
    return near, by_words / best_words[rows.owners]


def column(rows: Lists, some: Lists, values: Sequence[Floats]) -> Floats:
    """Return a value for each row of each list: those of `some` have `values`, the others 0."""
    places = places_among(paired(rows.owners, rows.values), paired(some.owners, some.values))
    filled = np.zeros(len(rows.values))
    filled[places] = np.concatenate([np.empty(0), *values])
    return filled


def _named(index: PassageIndex, rarity: Rarity, names: NDArray[np.int64], most: int, mask: Mask | None) -> Named:
    graph = index.graph
    assert graph is not None
    share: dict[int, float] = {}
    rarest: dict[int, float] = {}
    for name in dict.fromkeys(names.tolist()):
        number = np.array([name])
        carriers = graph.carriers.take(number).values
        if len(carriers) > most:
            continue
        weights = rarity.of_ids(graph.name_words.take(number).values)
        weight = float(np.sqrt((weights**2).sum()))
        for row in carriers.tolist():
            if mask is None or mask[row]:
                share[row] = max(share.get(row, 0.0), 1 / float(np.sqrt(len(carriers))))
                rarest[row] = max(rarest.get(row, 0.0), weight)
    return Named(np.array([*share], dtype=np.int64), np.array([*share.values()]), np.array([*rarest.values()]))
