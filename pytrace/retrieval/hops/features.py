"""What tells whether two passages answer a question together: a row of numbers for each pair.

The first passage of a pair is one that the question finds; the second is one that the first leads to, by a link, by rare words
that they share, or because it is near to question and first passage together. Words weigh by rarity alone, so that no list of
words and no language is known here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pytrace.models.encoders.encoder import Vectors
from pytrace.retrieval.bm25 import words
from pytrace.retrieval.passages.index import PassageIndex
from pytrace.retrieval.word_postings import word_hashes

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]
Words = NDArray[np.int64]

PASSAGE_FEATURES = ("near", "words", "covered", "named", "name_rarity", "title", "walk")
PAIR_FEATURES = (
    "near_both",
    "near_each_other",
    "link",
    "link_back",
    "rarest_shared",
    "rarest_in_name",
    "shared",
    "adds",
    "adds_of_rest",
    "both_named",
    "names_it",
    "name_weight",
    "named_by_it",
)
FEATURES = (
    *PAIR_FEATURES,
    *(f"second_{name}" for name in PASSAGE_FEATURES if name != "covered"),
    *(f"first_{name}" for name in PASSAGE_FEATURES),
)
"""The columns of `pair_features`."""

# So that features are numbers of one size: no word's rarity is above 20, whatever the corpus.
_SCALE = 10.0
_LEAST_WALK = 1e-6
_TINY = 1e-9


class QuestionWords(NamedTuple):
    """A question's words: their numbers in the graph (those that a passage has), and the weight of all of them."""

    ids: Words
    total: float


class Rarity:
    """The weights of words by how many passages have them."""

    def __init__(self, index: PassageIndex) -> None:
        assert index.graph is not None
        self._graph = index.graph
        self._count = len(index)

    def of_frequencies(self, frequencies: NDArray[np.int64]) -> Floats:
        """Return the inverse document frequency (Lucene's) of words that so many passages have."""
        weights: Floats = np.log(1 + (self._count - frequencies + 0.5) / (frequencies + 0.5))
        return weights

    def of_ids(self, ids: Words) -> Floats:
        """Return that of words by their number."""
        return self.of_frequencies(self._graph["frequencies"][ids].astype(np.int64))

    def look_up(self, distinct: Sequence[str]) -> tuple[Words, Floats]:
        """Return the numbers of words (-1: no passage has it) and their weights."""
        hashes = word_hashes(distinct)
        known = self._graph["words"]
        at = np.minimum(np.searchsorted(known, hashes), max(len(known) - 1, 0))
        there = known[at] == hashes if len(known) else np.zeros(len(hashes), dtype=bool)
        ids = np.where(there, at, -1)
        frequencies = np.where(there, self._graph["frequencies"][at] if len(known) else 0, 0)
        return ids, self.of_frequencies(frequencies.astype(np.int64))

    def question(self, question: str) -> QuestionWords:
        """Look up a question's words."""
        ids, weights = self.look_up(list(dict.fromkeys(words(question))))
        return QuestionWords(np.unique(ids[ids >= 0]), float((weights**2).sum()) + _TINY)


class Candidates(NamedTuple):
    """Passages that may be in a pair, by rows that rise, with what the question says of each.

    `vectors` float32 ``[n, dimension]``; the rest float64 ``[n]``: inner product with the question, BM25 by the best one's,
    how few passages share the name that the question has (0: none), the rarity of that name's words, and the walk's mass.
    """

    rows: Rows
    vectors: Vectors
    near: Floats
    words: Floats
    named: Floats
    name_rarity: Floats
    walk: Floats


class PairTable:
    """The pairs' features of one question.

    Parameters
    ----------
    index
        The index.
    rarity
        Its words' weights.
    question, vector
        The question's words and vector.
    candidates
        All passages of all pairs.
    """

    def __init__(
        self, index: PassageIndex, rarity: Rarity, question: QuestionWords, vector: Vectors, candidates: Candidates
    ) -> None:
        self._index = index
        self._candidates = candidates
        self._vector = vector
        terms = [index.terms(row) for row in candidates.rows.tolist()]
        sizes = [len(each) for each in terms]
        self._ids, places = np.unique(np.concatenate([np.empty(0, np.int32), *terms]), return_inverse=True)
        self._has = np.zeros((len(terms), len(self._ids)), dtype=bool)
        self._has[np.repeat(np.arange(len(terms)), sizes), places] = True
        self._weights = rarity.of_ids(self._ids)
        self._asked = np.isin(self._ids, question.ids)
        self._total = question.total
        self._names(rarity)
        squares = self._weights**2
        asked = np.flatnonzero(self._asked)
        self._squares = squares
        self._covered = self._has[:, asked] @ squares[asked] / self._total
        self._titles = self._best_name(self._name_has[:, asked] @ squares[asked] / self._name_totals)
        walk = np.log(candidates.walk + _LEAST_WALK) / _SCALE
        self._of_each = np.stack(
            [
                candidates.near,
                candidates.words,
                self._covered,
                candidates.named,
                candidates.name_rarity / _SCALE,
                self._titles,
                walk,
            ],
            axis=1,
        )

    def _names(self, rarity: Rarity) -> None:
        """Note which words each name of each candidate has."""
        owners: list[int] = []
        names: list[list[str]] = []
        for number, row in enumerate(self._candidates.rows.tolist()):
            for name in self._index.names_of(row):
                owners.append(number)
                names.append(name.split())
        distinct = list(dict.fromkeys(word for name in names for word in name))
        numbers = {word: number for number, word in enumerate(distinct)}
        ids, weights = rarity.look_up(distinct)
        places = np.searchsorted(self._ids, ids)
        held = (places < len(self._ids)) & (self._ids[np.minimum(places, len(self._ids) - 1)] == ids)
        self._owners = np.array(owners, dtype=np.int64)
        self._name_has = np.zeros((len(names), len(self._ids)), dtype=bool)
        self._name_totals = np.full(len(names), _TINY)
        for number, parts in enumerate(names):
            mine = np.array([numbers[word] for word in dict.fromkeys(parts)])
            self._name_totals[number] += (weights[mine] ** 2).sum()
            self._name_has[number, places[mine[held[mine]]]] = True

    def _best_name(self, of_names: Floats) -> Floats:
        """Return for each candidate the most that one of its names has."""
        best = np.zeros(len(self._candidates.rows))
        np.maximum.at(best, self._owners, of_names)
        return best

    def pairs(self, first: int, seconds: NDArray[np.int64]) -> Floats:
        """Return the features of a passage and of each that it may lead to, float64 ``[n, len(FEATURES)]``.

        Parameters
        ----------
        first, seconds
            Places among the candidates.
        """
        graph = self._index.graph
        assert graph is not None
        candidates, weights, squares = self._candidates, self._weights, self._squares
        new = np.flatnonzero(self._has[first] & ~self._asked)
        rest = np.flatnonzero(self._asked & ~self._has[first])
        shared = self._has[np.ix_(seconds, new)]
        adds = self._has[np.ix_(seconds, rest)] @ squares[rest]
        left = max(self._total * (1 - self._covered[first]), _TINY)
        of_names = self._name_has[:, new]
        named = of_names @ squares[new]
        own_names = np.flatnonzero(self._owners == first)
        forth, back = self._links(int(candidates.rows[first]), candidates.rows[seconds])
        vectors = candidates.vectors[seconds]
        both = self._vector + candidates.vectors[first]
        both /= np.linalg.norm(both) + _TINY
        mine = self._of_each[first]
        theirs = self._of_each[seconds]
        columns = [
            vectors @ both,
            vectors @ candidates.vectors[first],
            forth,
            back,
            (shared * weights[new]).max(axis=1, initial=0) / _SCALE,
            self._best_name((of_names * weights[new]).max(axis=1, initial=0))[seconds] / _SCALE,
            shared @ squares[new] / (squares[new].sum() + _TINY),
            adds / self._total,
            adds / left,
            theirs[:, PASSAGE_FEATURES.index("named")] * mine[PASSAGE_FEATURES.index("named")],
            self._best_name(named / self._name_totals)[seconds],
            np.sqrt(self._best_name(named)[seconds]) / _SCALE,
            (
                (self._has[seconds] @ (self._name_has[own_names] * squares).T / self._name_totals[own_names]).max(
                    axis=1, initial=0
                )
            ),
        ]
        kept = [place for place, name in enumerate(PASSAGE_FEATURES) if name != "covered"]
        features: Floats = np.concatenate(
            [np.stack(columns, axis=1), theirs[:, kept], np.broadcast_to(mine, (len(seconds), len(mine)))], axis=1
        )
        return features

    def _links(self, first: int, seconds: Rows) -> tuple[Floats, Floats]:
        """Return the weights of the links from a passage to others, and from these back."""
        graph = self._index.graph
        assert graph is not None
        links = graph.links(first)
        targets = graph["links"][links]
        at = np.searchsorted(targets, seconds)
        at = np.minimum(at, max(len(targets) - 1, 0))
        there = targets[at] == seconds if len(targets) else np.zeros(len(seconds), dtype=bool)
        forth = np.where(there, graph["links.forth"][links][at] if len(targets) else 0, 0)
        back = np.where(there, graph["links.back"][links][at] if len(targets) else 0, 0)
        return forth.astype(np.float64), back.astype(np.float64)
