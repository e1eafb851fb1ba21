"""What tells whether two passages answer a question together: a row of numbers for each pair.

The first passage of a pair is one that the question finds; the second is one that the first leads to, by a link, by rare words
that they share, or because it is near to question and first passage together. Words weigh by rarity alone, so that no list of
words and no language is known here. The core computes them (``csrc/pairs``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pytrace import _core
from pytrace.models.encoders.encoder import Vectors
from pytrace.retrieval.bm25 import words
from pytrace.retrieval.passages.graph import Graph
from pytrace.retrieval.passages.index import PassageIndex
from pytrace.retrieval.passages.ragged import Lists, places_among
from pytrace.retrieval.word_postings import word_hashes

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]
Places = NDArray[np.int64]

FEATURES = (
    # Of both: cosines of the second with question and first together, and with the first; weights of links; the rarest new word of
    # the first that the second has, or a name of it, and the share of all; what the second has of the question's words that the
    # first lacks, by all and by those; whether the question names both; how much of a name of the second the first has, by all
    # of the name and at all; and how much of a name of the first the second has.
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
    # Of each: cosine and BM25 with the question, whether it names it and how rare that name is, how much of a name the question
    # has; and how much of the question the first has.
    *(f"second_{name}" for name in ("near", "words", "named", "name_rarity", "title")),
    *(f"first_{name}" for name in ("near", "words", "covered", "named", "name_rarity", "title")),
)
"""The columns of `Pairs.features`."""


class Rarity:
    """The weights of words by how many passages have them: Lucene's inverse document frequency."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._count = graph.passages

    def of_ids(self, ids: NDArray[np.integer]) -> Floats:
        """Return the weights of words by their numbers in the graph; -1 is a word that no passage has."""
        frequencies = self.frequencies(ids)
        weights: Floats = np.log(1 + (self._count - frequencies + 0.5) / (frequencies + 0.5))
        return weights

    def frequencies(self, ids: NDArray[np.integer]) -> NDArray[np.int64]:
        """Return how many passages have each word."""
        known = self._graph["frequencies"]
        if not len(known):
            return np.zeros(len(ids), dtype=np.int64)
        return np.where(ids >= 0, known[np.clip(ids, 0, len(known) - 1)], 0).astype(np.int64)

    def ids(self, distinct: Sequence[str]) -> NDArray[np.int64]:
        """Return the numbers of words, in the form of `bm25.words`, in the graph; -1 of a word that no passage has."""
        return places_among(self._graph["words"], word_hashes(distinct))

    def questions(self, questions: Sequence[str]) -> AskedWords:
        """Look up the words of questions."""
        of_each = [list(dict.fromkeys(words(question))) for question in questions]
        ids = [self.ids(each) for each in of_each]
        totals = np.array([float((self.of_ids(each) ** 2).sum()) for each in ids])
        known = [np.unique(each[each >= 0]).astype(np.int32) for each in ids]
        offsets = np.cumsum([0, *map(len, known)], dtype=np.int64)
        return AskedWords(Lists(offsets, np.concatenate([np.empty(0, np.int32), *known])), totals)


class AskedWords(NamedTuple):
    """Questions' words: the numbers of those that a passage has, int32, rising, and the squared weights of all, added up."""

    ids: Lists
    totals: Floats


class Candidates(NamedTuple):
    """Passages that may be in a pair, of several questions one behind the other, with what the question says of each.

    Question `q` has ``rows[offsets[q]:offsets[q + 1]]``, which rise. `vectors` float32 ``[n, dimension]``; the rest float64
    ``[n]``: inner product with the question, BM25 by the best one's, how few passages share the name that the question has (0:
    none), and the rarity of that name's words.
    """

    offsets: NDArray[np.int64]
    rows: Rows
    vectors: Vectors
    near: Floats
    words: Floats
    named: Floats
    name_rarity: Floats


class Pairs(NamedTuple):
    """A question's pairs: places of both passages among `rows`, features, and the seeds' scores of all rows.

    `features` are float64 ``[n_pairs, len(FEATURES)]``.
    """

    rows: Rows
    firsts: Places
    seconds: Places
    features: Floats
    seed_scores: Floats


def pair_features(
    index: PassageIndex,
    asked: AskedWords,
    vectors: Vectors,
    candidates: Candidates,
    offsets: NDArray[np.int64],
    firsts: Places,
    seconds: Places,
    links: NDArray[np.float32],
) -> Floats:
    """Compute the features of the pairs of questions.

    Parameters
    ----------
    index
        The index.
    asked, vectors
        The questions' words and vectors.
    candidates
        All passages of all pairs.
    offsets, firsts, seconds
        Question `q` has pairs ``offsets[q]`` to ``offsets[q + 1]``: places among its candidates. Those of one first stand side by
        side.
    links
        What the links of each pair weigh, from the first to the second and back, float32 ``[2, n_pairs]``.

    Returns
    -------
    ndarray
        Float64 ``[n_pairs, len(FEATURES)]``.
    """
    graph = index.graph
    assert graph is not None
    words_of = index.terms(candidates.rows)
    names = graph.passage_names.take(candidates.rows)
    name_words = graph.name_words.take(names.values)
    return _core.pair_features(
        graph["frequencies"],
        len(index),
        vectors,
        asked.ids.offsets,
        asked.ids.values,
        asked.totals,
        candidates.offsets,
        candidates.vectors,
        np.stack([candidates.near, candidates.words, candidates.named, candidates.name_rarity], axis=1),
        words_of.offsets,
        words_of.values,
        names.offsets,
        name_words.offsets,
        name_words.values,
        offsets,
        firsts,
        seconds,
        links[0],
        links[1],
        None,
    )
