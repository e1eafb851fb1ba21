"""Search across hops: the passages that answer a question together, though the question finds but the first of them.

A question finds passages by vectors, by words and by names (seeds). From the best of these, pairs are made with what they lead
to: along links, by rare words that both have, and by vectors of question and passage together. Pairs are scored by learned
weights, and a passage by all the pairs that it is in and by those that lead on to it. Where no pair stands out, the question takes
one passage, and the seeds' order holds.

Nothing but the question is encoded, and no language model is asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from pytrace.models.encoders.encoder import Encoder, Vectors, encode
from pytrace.retrieval.hops.features import (
    FEATURES,
    AskedWords,
    Candidates,
    Floats,
    Pairs,
    Places,
    Rarity,
    Rows,
    pair_features,
)
from pytrace.retrieval.hops.seeds import column, find_seeds, question_scores, seed_scores
from pytrace.retrieval.hops.spelling import Respeller
from pytrace.retrieval.hops.weights import Scored, Weights, load_weights
from pytrace.retrieval.passages.index import Mask, PassageIndex
from pytrace.retrieval.retriever import check_queries

# Questions that are searched together.
_AT_ONCE = 64
# A passage this likely, by the likeliest, is one of those that answer together. Supporting documents are told by it as well as by
# always two (F1 within 2.1 points on questions of several hops, up to 1.8 better on those of one): `python -m benches.hops`.
_SHARE = 0.2
# More passages hardly ever answer together.
_LONGEST = 4
# What a link counts for the passage that it leads to, beside 1 for the one that it comes from.
_BACK = 0.5


class SearchSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How widely is searched."""

    # Passages by vectors, and as many by words.
    seeds: int = 60
    # Of them, the first passages of pairs.
    firsts: int = 8
    # Of them, second passages whatever the first.
    seconds: int = 20
    # Second passages by vectors of question and first passage, and as many by rare words of the first.
    led: int = 10
    # Second passages by links, the weightiest ones.
    links: int = 40
    # Words of a passage that look for others, the rarest.
    rare_words: int = 20


class Step(NamedTuple):
    """How a passage of a chain was reached: from which place in the chain, and by which name of it, "" if by none.

    A place of -1 is the question itself.
    """

    place: int = -1
    name: str = ""


class PassageChain(msgspec.Struct, frozen=True):
    """Passages that answer together, one to four in the order of the hops, how likely, and how each was reached.

    `probability` is that of the pairs within the chain, or of its only passage.
    """

    rows: tuple[int, ...]
    probability: float
    steps: tuple[Step, ...]


class PassageRanking(msgspec.Struct, frozen=True):
    """What was found for a question: rows of the index with their scores, best first, and the likeliest chains.

    `hops` is how likely the question takes two passages, from 0 to 1; `question` is how it was read, see `HopSearch.read`.
    """

    rows: tuple[int, ...]
    scores: tuple[float, ...]
    chains: tuple[PassageChain, ...]
    hops: float
    question: str = ""

    def together(self, most: int) -> tuple[int, ...]:
        """Return the passages that answer together: the first, and those that are not much less likely, at most `most`."""
        return self.rows[: _together(self.scores, most)]


class HopSearch:
    """Searches an index for passages that answer together.

    Parameters
    ----------
    index
        Where to search.
    encoder
        The encoder of its vectors; questions are encoded.
    weights
        What features count; if left out, those that were learned for the index, else those that are shipped.
    settings
        How widely is searched.

    Raises
    ------
    StoreError
        The index was made with another encoder.
    """

    def __init__(
        self,
        index: PassageIndex,
        encoder: Encoder,
        *,
        weights: Weights | None = None,
        settings: SearchSettings | None = None,
    ) -> None:
        index.check_encoder(encoder)
        self.index = index
        self.settings = settings or SearchSettings()
        self.encoder = encoder
        self._weights = weights

    @cached_property
    def weights(self) -> Weights:
        """What features count."""
        return self._weights or load_weights(self.index.directory)

    def search(self, questions: Sequence[str], k: int = 10, *, where: Sequence[str] = ()) -> list[PassageRanking]:
        """Find passages for questions.

        Parameters
        ----------
        questions
            The questions' texts.
        k
            Passages wanted a question, at least 1.
        where
            Filters that passages' documents must match.

        Returns
        -------
        list of PassageRanking
            One a question, with at most `k` passages.
        """
        check_queries(questions, k)
        read = self.read(questions)
        return [
            self._ranked(question, pairs, k)
            for question, pairs in zip(read, self.pairs(read, where=where), strict=True)
        ]

    def read(self, questions: Sequence[str]) -> list[str]:
        """Return questions as they are searched for: with names spelt as the passages spell them, where a letter is wrong."""
        return [self._respeller.read(question) for question in questions] if len(self.index) else [*questions]

    @cached_property
    def _respeller(self) -> Respeller:
        assert self.index.graph is not None
        return Respeller(self.index.graph)

    def _ranked(self, question: str, pairs: Pairs, k: int) -> PassageRanking:
        scored = self.weights.score(pairs.features, pairs.firsts, pairs.seconds, pairs.seed_scores)
        order = np.argsort(-scored.passages, kind="stable")
        together = order[: _together(scored.passages[order], _LONGEST)].tolist()
        return PassageRanking(
            tuple(pairs.rows[order[:k]].tolist()),
            tuple(scored.passages[order[:k]].tolist()),
            self._chains(pairs, scored, together, k),
            scored.hops,
            question,
        )

    def _chains(self, pairs: Pairs, scored: Scored, ranking: Sequence[int], k: int) -> tuple[PassageChain, ...]:
        """Return the likeliest chains: of one passage, of two, and if more answer together, the one of all these.

        `ranking` are the places of the passages that answer together.
        """
        alone = np.argsort(-scored.alone, kind="stable")[:k].tolist()
        chains = [
            PassageChain((int(pairs.rows[place]),), float(scored.alone[place]) * (1 - scored.hops), (Step(),))
            for place in alone
        ]
        if len(ranking) > 2:
            chains.append(self._joined(pairs, scored, ranking))
        joined = frozenset(chains[-1].rows) if len(ranking) > 2 else frozenset[int]()
        # Two passages are one chain, in the likelier order; none if the longer chain has both.
        of_both: dict[frozenset[int], PassageChain] = {}
        for place in np.argsort(-scored.pairs, kind="stable")[: 4 * k].tolist():
            first, second = int(pairs.rows[pairs.firsts[place]]), int(pairs.rows[pairs.seconds[place]])
            both = frozenset((first, second))
            if both <= joined:
                continue
            before = of_both.get(both)
            if before is None:
                before = PassageChain((first, second), 0.0, (Step(), Step(0, self._link_name(first, second))))
            probability = before.probability + float(scored.pairs[place]) * scored.hops
            of_both[both] = msgspec.structs.replace(before, probability=probability)
        chains += of_both.values()
        return tuple(sorted(chains, key=lambda chain: -chain.probability)[:k])

    def _joined(self, pairs: Pairs, scored: Scored, places: Sequence[int]) -> PassageChain:
        """Make one chain of passages: the likeliest pair first, then what the likeliest pair leads to from one of the chain."""
        within = np.flatnonzero(np.isin(pairs.firsts, places) & np.isin(pairs.seconds, places))
        within = within[np.argsort(-scored.pairs[within], kind="stable")]
        left = [*zip(pairs.firsts[within].tolist(), pairs.seconds[within].tolist(), strict=True)]
        # A passage that no pair leads to was found by the question.
        reached = {left[0][0] if left else places[0]: -1}
        while len(reached) < len(places):
            step = next(((first, second) for first, second in left if first in reached and second not in reached), None)
            first, second = step or (-1, next(place for place in places if place not in reached))
            reached[second] = first
        order = [*reached]
        rows = tuple(pairs.rows[order].tolist())
        steps = [
            Step() if first < 0 else Step(order.index(first), self._link_name(int(pairs.rows[first]), row))
            for row, first in zip(rows, reached.values(), strict=True)
        ]
        return PassageChain(rows, float(scored.pairs[within].sum()) * scored.hops, tuple(steps))

    def _link_name(self, first: int, second: int) -> str:
        """Return the name by which a passage is linked to another, "" if it is not."""
        graph = self.index.graph
        assert graph is not None
        links = graph.links(first)
        at = int(np.searchsorted(graph["links"][links], second))
        there = at < links.stop - links.start and int(graph["links"][links][at]) == second
        return graph.table.name(int(graph["links.names"][links][at])) if there else ""

    def pairs(self, questions: Sequence[str], *, where: Sequence[str] = ()) -> Iterator[Pairs]:
        """Make the pairs of each question, with their features."""
        index = self.index
        if not len(index):
            empty = np.empty(0, dtype=np.int64)
            yield from (Pairs(empty, empty, empty, np.empty((0, len(FEATURES))), np.empty(0)) for _ in questions)
            return
        index.check()
        mask = index.mask(where)
        for start in range(0, len(questions), _AT_ONCE):
            yield from self._pairs(questions[start : start + _AT_ONCE], mask)

    def _pairs(self, questions: Sequence[str], mask: Mask | None) -> Iterator[Pairs]:
        index, settings = self.index, self.settings
        vectors = encode(self.encoder, questions, "query")
        asked = self._rarity.questions(questions)
        seeds = find_seeds(index, self._rarity, questions, vectors, count=settings.seeds, mask=mask)
        heads = [each.best(settings.firsts) for each in seeds]
        targets = [
            [
                np.unique(np.concatenate([lead, each.best(settings.seconds), firsts, self._linked(first, mask)]))
                for first, lead in zip(firsts.tolist(), leads, strict=True)
            ]
            for each, firsts, leads in zip(seeds, heads, self._led(vectors, asked, heads, mask), strict=True)
        ]
        rows = [np.unique(np.concatenate([each.rows, *some])) for each, some in zip(seeds, targets, strict=True)]
        best = np.array([each.best_words for each in seeds])
        near, by_words = question_scores(index, questions, vectors, best, rows)
        offsets = np.cumsum([0, *map(len, rows)], dtype=np.int64)
        flat = np.concatenate(rows)
        candidates = Candidates(
            offsets,
            flat,
            index.vectors(flat),
            np.concatenate(near),
            np.concatenate(by_words),
            np.concatenate([column(own, each.named.share) for own, each in zip(rows, seeds, strict=True)]),
            np.concatenate([column(own, each.named.rarity) for own, each in zip(rows, seeds, strict=True)]),
        )
        scores = seed_scores(candidates.near, candidates.words, candidates.named)
        places = [_places(*each) for each in zip(rows, heads, targets, strict=True)]
        ends = np.cumsum([0, *(len(firsts) for firsts, _ in places)], dtype=np.int64)
        firsts = np.concatenate([each for each, _ in places])
        seconds = np.concatenate([each for _, each in places])
        features = pair_features(index, asked, vectors, candidates, ends, firsts, seconds)
        for number, own in enumerate(rows):
            part = slice(int(ends[number]), int(ends[number + 1]))
            of_rows = scores[int(offsets[number]) : int(offsets[number + 1])]
            yield Pairs(own, firsts[part], seconds[part], features[part], of_rows)

    def _led(self, vectors: Vectors, asked: AskedWords, heads: Sequence[Rows], mask: Mask | None) -> list[list[Rows]]:
        """Find what each first passage leads to by vectors and by rare words, for all questions in one search."""
        index, settings = self.index, self.settings
        flat = np.concatenate([np.empty(0, np.int64), *heads])
        owners = np.repeat(np.arange(len(heads)), [len(rows) for rows in heads])
        if not len(flat):
            return [[] for _ in heads]
        both = vectors[owners] + index.vectors(flat)
        both /= np.linalg.norm(both, axis=1, keepdims=True) + np.float32(1e-9)
        _, near = index.nearest(both, settings.led, mask=mask)
        _, by_words = index.words.top(self._rare_words(flat, owners, asked), settings.led, mask=mask)
        led: list[list[Rows]] = [[] for _ in heads]
        for owner, some, others in zip(owners.tolist(), near, by_words, strict=True):
            rows = np.concatenate([some, others])
            led[owner].append(rows[rows >= 0])
        return led

    def _rare_words(self, rows: Rows, owners: NDArray[np.int64], asked: AskedWords) -> list[NDArray[np.uint64]]:
        """Return of each passage the rarest words that its question does not have, by their hashes."""
        graph = self.index.graph
        assert graph is not None
        terms = self.index.terms(rows)
        passage = np.repeat(np.arange(len(rows)), np.diff(terms.offsets))
        known = len(graph["words"])
        asked_of = np.repeat(np.arange(len(asked.totals)), np.diff(asked.ids.offsets)) * known + asked.ids.values
        new = ~np.isin(owners[passage] * known + terms.values, asked_of)
        passage, ids = passage[new], terms.values[new].astype(np.int64)
        order = np.lexsort((ids, self._rarity.frequencies(ids), passage))
        starts = np.searchsorted(passage[order], np.arange(len(rows) + 1))
        hashes = graph["words"][ids[order]]
        most = self.settings.rare_words
        return [hashes[start : min(end, start + most)] for start, end in pairwise(starts.tolist())]

    @cached_property
    def _rarity(self) -> Rarity:
        assert self.index.graph is not None
        return Rarity(self.index.graph)

    def _linked(self, row: int, mask: Mask | None) -> Rows:
        """Return the passages that a passage is linked to, the weightiest links."""
        graph = self.index.graph
        assert graph is not None
        links = graph.links(row)
        rows: Rows = graph["links"][links].astype(np.int64)
        if len(rows) > self.settings.links:
            weights = graph["links.forth"][links] + np.float32(_BACK) * graph["links.back"][links]
            rows = rows[np.argsort(-weights, kind="stable")[: self.settings.links]]
        return rows if mask is None else rows[mask[rows]]


def _together(scores: Sequence[float] | Floats, most: int) -> int:
    """Count the passages that answer together, by their scores, best first."""
    return sum(score >= _SHARE * scores[0] for score in scores[:most])


def _places(rows: Rows, heads: Rows, targets: Sequence[Rows]) -> tuple[Places, Places]:
    """Return the pairs of first passages with what each leads to, as places among all rows."""
    others = [some[some != head] for head, some in zip(heads.tolist(), targets, strict=True)]
    firsts = np.repeat(np.searchsorted(rows, heads), [len(some) for some in others])
    return firsts, np.searchsorted(rows, np.concatenate([np.empty(0, np.int64), *others]))
