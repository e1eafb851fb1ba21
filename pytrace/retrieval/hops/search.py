"""Search across hops: the passages that answer a question together, though the question finds but the first of them.

A question finds passages by vectors, by words and by names (seeds). From the best of these, pairs are made with what they lead
to: along links, by rare words that both have, and by vectors of question and passage together. Pairs are scored by learned
weights, and a passage by all the pairs that it is in and by those that lead on to it. Where no pair stands out, the question takes
one passage, and the seeds' order holds.

Nothing but the question is encoded, and no language model is asked.
"""

from __future__ import annotations

from collections import defaultdict
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
    Rarity,
    Rows,
    pair_features,
)
from pytrace.retrieval.hops.seeds import Seeds, column, find_seeds, question_scores, seed_scores
from pytrace.retrieval.hops.spelling import Respeller
from pytrace.retrieval.hops.weights import Scored, Weights, load_weights
from pytrace.retrieval.passages.index import Mask, PassageIndex
from pytrace.retrieval.passages.ragged import Lists, grouped, paired, places_among, starts_of
from pytrace.retrieval.retriever import check_queries
from pytrace.storage.mapped_arrays import damage_told

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

    `hops` is how likely the question takes two passages, from 0 to 1; `question` is how it was read, see `HopSearch.read`; `seeds`
    are the rows that it finds by itself, best first, with how well each matches.
    """

    rows: tuple[int, ...]
    scores: tuple[float, ...]
    chains: tuple[PassageChain, ...]
    hops: float
    question: str = ""
    seeds: tuple[tuple[int, float], ...] = ()

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
        with damage_told(self.index.verify):
            read = self.read(questions)
            return [
                self._ranked(question, pairs, k)
                for question, pairs in zip(read, self.pairs(read, where=where), strict=True)
            ]

    def read(self, questions: Sequence[str]) -> list[str]:
        """Return questions as they are searched for: with names spelt as the passages spell them, where a letter is wrong."""
        if not len(self.index):
            return [*questions]
        with damage_told(self.index.verify):
            return [self._respeller.read(question) for question in questions]

    @cached_property
    def _respeller(self) -> Respeller:
        assert self.index.graph is not None
        return Respeller(self.index.graph)

    def _ranked(self, question: str, pairs: Pairs, k: int) -> PassageRanking:
        scored = self.weights.score(pairs.features, pairs.firsts, pairs.seconds, pairs.seed_scores)
        order = np.argsort(-scored.passages, kind="stable")
        together = order[: _together(scored.passages[order], _LONGEST)].tolist()
        first = np.argsort(-pairs.seed_scores, kind="stable")[: min(k, self.settings.firsts)]
        return PassageRanking(
            tuple(pairs.rows[order[:k]].tolist()),
            tuple(scored.passages[order[:k]].tolist()),
            self._chains(pairs, scored, together, k),
            scored.hops,
            question,
            tuple(zip(pairs.rows[first].tolist(), pairs.seed_scores[first].tolist(), strict=True)),
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
        of_both: dict[frozenset[int], tuple[int, int]] = {}
        probabilities: defaultdict[frozenset[int], float] = defaultdict(float)
        for place in np.argsort(-scored.pairs, kind="stable")[: 4 * k].tolist():
            first, second = int(pairs.rows[pairs.firsts[place]]), int(pairs.rows[pairs.seconds[place]])
            both = frozenset((first, second))
            if both <= joined:
                continue
            of_both.setdefault(both, (first, second))
            probabilities[both] += float(scored.pairs[place]) * scored.hops
        chains += [PassageChain(rows, probabilities[both], (Step(), Step(0))) for both, rows in of_both.items()]
        return tuple(map(self._named, sorted(chains, key=lambda chain: -chain.probability)[:k]))

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
        steps = [Step() if first < 0 else Step(order.index(first)) for first in reached.values()]
        rows = tuple(pairs.rows[order].tolist())
        return PassageChain(rows, float(scored.pairs[within].sum()) * scored.hops, tuple(steps))

    def _named(self, chain: PassageChain) -> PassageChain:
        """Return a chain with the names that led on in it."""
        graph = self.index.graph
        assert graph is not None
        steps = [
            step if step.place < 0 else Step(step.place, graph.link_name(chain.rows[step.place], row))
            for step, row in zip(chain.steps, chain.rows, strict=True)
        ]
        return msgspec.structs.replace(chain, steps=tuple(steps))

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
        heads = Lists.of([each.best(settings.firsts) for each in seeds])
        targets, links = self._targets(vectors, asked, seeds, heads, mask)
        # The question of each pair, and of each question all passages: of its pairs, and its seeds.
        question = heads.owners[targets.owners]
        of_seeds = Lists.of([each.rows for each in seeds])
        rows = grouped(
            np.concatenate([of_seeds.owners, question]),
            np.concatenate([of_seeds.values, targets.values]),
            len(questions),
        )
        of_rows = index.vectors(rows.values)
        best = np.array([each.best_words for each in seeds])
        near, by_words = question_scores(index, questions, vectors, best, rows, of_rows)
        named = Lists.of([each.named.rows for each in seeds])
        candidates = Candidates(
            rows.offsets,
            rows.values,
            of_rows,
            near,
            by_words,
            column(rows, named, [each.named.share for each in seeds]),
            column(rows, named, [each.named.rarity for each in seeds]),
        )
        scores = seed_scores(candidates.near, candidates.words, candidates.named)
        places = paired(rows.owners, rows.values)
        firsts = np.searchsorted(places, paired(heads.owners, heads.values))[targets.owners] - rows.offsets[question]
        seconds = np.searchsorted(places, paired(question, targets.values)) - rows.offsets[question]
        ends = starts_of(np.bincount(question, minlength=len(questions)))
        features = pair_features(index, asked, vectors, candidates, ends, firsts, seconds, links)
        for number in range(len(questions)):
            part = slice(int(ends[number]), int(ends[number + 1]))
            own = slice(int(rows.offsets[number]), int(rows.offsets[number + 1]))
            yield Pairs(rows.values[own], firsts[part], seconds[part], features[part], scores[own])

    def _targets(
        self, vectors: Vectors, asked: AskedWords, seeds: Sequence[Seeds], heads: Lists, mask: Mask | None
    ) -> tuple[Lists, NDArray[np.float32]]:
        """Return the second passages of each first, and what the links between them weigh, float32 ``[2, n_pairs]``."""
        graph = self.index.graph
        assert graph is not None
        links = graph.links(heads.values)
        of_links = Lists(links.offsets, links.rows.astype(np.int64))
        # The weightiest, of equal ones the lower.
        weights = links.forth + np.float32(_BACK) * links.back
        order = np.lexsort((-weights, of_links.owners))
        order = order[np.arange(len(order)) - links.offsets[of_links.owners] < self.settings.links]
        if mask is not None:
            order = order[mask[of_links.values[order]]]
        led = self._led(vectors, asked, heads, mask)
        best = Lists.of([each.best(self.settings.seconds) for each in seeds]).take(heads.owners)
        others = heads.take(heads.owners)
        number = np.concatenate([of_links.owners[order], np.nonzero(led >= 0)[0], best.owners, others.owners])
        row = np.concatenate([of_links.values[order], led[led >= 0], best.values, others.values])
        other = row != heads.values[number]
        targets = grouped(number[other], row[other], len(heads.values))
        places = places_among(paired(of_links.owners, of_links.values), paired(targets.owners, targets.values))
        of_pairs = np.zeros((2, len(places)), dtype=np.float32)
        of_pairs[0, places >= 0] = links.forth[places[places >= 0]]
        of_pairs[1, places >= 0] = links.back[places[places >= 0]]
        return targets, of_pairs

    def _led(self, vectors: Vectors, asked: AskedWords, heads: Lists, mask: Mask | None) -> NDArray[np.int64]:
        """Find what each first passage leads to by vectors and by rare words, a row each, -1 where there is no more."""
        index, settings = self.index, self.settings
        if not len(heads.values):
            return np.empty((0, 2 * settings.led), dtype=np.int64)
        both = vectors[heads.owners] + index.vectors(heads.values)
        both /= np.linalg.norm(both, axis=1, keepdims=True) + np.float32(1e-9)
        _, near = index.nearest(both, settings.led, mask=mask)
        _, by_words = index.words.top(self._rare_words(heads.values, heads.owners, asked), settings.led, mask=mask)
        return np.concatenate([near, by_words], axis=1)

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


def _together(scores: Sequence[float] | Floats, most: int) -> int:
    """Count the passages that answer together, by their scores, best first."""
    return sum(score >= _SHARE * scores[0] for score in scores[:most])
