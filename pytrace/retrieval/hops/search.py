"""Search across hops: the passages that answer a question together, though the question finds but the first of them.

A question finds passages by vectors, by words and by names (seeds). From the best of these, pairs are made with what they lead
to: along links, by rare words that both have, and by vectors of question and passage together. A walk from the seeds
(personalised PageRank) says how near each passage is by links alone. Pairs are scored by learned weights, and a passage by all
the pairs that it is in. Where no pair stands out, the question takes one passage, and the seeds' order holds.

Nothing but the question is encoded, and no language model is asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from pytrace.kernels.walk import personalised_pagerank
from pytrace.models.encoders.encoder import Encoder, Vectors, encode
from pytrace.retrieval.bm25 import words
from pytrace.retrieval.hops.features import Candidates, Floats, PairTable, Rarity, Rows
from pytrace.retrieval.hops.seeds import Seeds, find_seeds, seed_scores
from pytrace.retrieval.hops.weights import Scored, Weights, load_weights
from pytrace.retrieval.passages.index import Mask, PassageIndex
from pytrace.retrieval.retriever import check_queries

# How much likelier a walk starts at better seeds.
_WALK_SHARPNESS = 8


class SearchSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How widely is searched."""

    # Passages by vectors, and as many by words.
    seeds: int = 60
    # Of them, where walks start.
    walk_seeds: int = 30
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
    # A walk starts anew with this probability at each step, and leaves what is below the tolerance.
    restart: float = 0.6
    tolerance: float = 1e-5


class PassageChain(msgspec.Struct, frozen=True):
    """Passages that answer together, one or two, and how likely; `name` is the name that led from the first to the second."""

    rows: tuple[int, ...]
    probability: float
    name: str = ""


class PassageRanking(msgspec.Struct, frozen=True):
    """What was found for a question: rows of the index with their scores, best first, and the likeliest chains.

    `hops` is how likely the question takes two passages, from 0 to 1.
    """

    rows: tuple[int, ...]
    scores: tuple[float, ...]
    chains: tuple[PassageChain, ...]
    hops: float


class Pairs(NamedTuple):
    """A question's pairs: places of both passages among `rows`, features, and of all rows the seeds' scores and the walk's mass."""

    rows: Rows
    firsts: NDArray[np.int64]
    seconds: NDArray[np.int64]
    features: Floats
    seed_scores: Floats
    walk: Floats


class HopSearch:
    """Searches an index for passages that answer together.

    Parameters
    ----------
    index
        Where to search.
    encoder
        The encoder of its vectors; questions are encoded.
    weights
        What features count; those that are shipped if left out.
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
        self._encoder = encoder
        self._weights = weights

    @cached_property
    def weights(self) -> Weights:
        """What features count."""
        return self._weights or load_weights()

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
        return [self._ranked(pairs, k) for pairs in self.pairs(questions, where=where)]

    def _ranked(self, pairs: Pairs, k: int) -> PassageRanking:
        scored = self.weights.score(pairs.features, pairs.firsts, pairs.seconds, pairs.seed_scores)
        order = np.argsort(-scored.passages, kind="stable")[:k]
        return PassageRanking(
            tuple(pairs.rows[order].tolist()),
            tuple(scored.passages[order].tolist()),
            self._chains(pairs, scored, k),
            scored.hops,
        )

    def _chains(self, pairs: Pairs, scored: Scored, k: int) -> tuple[PassageChain, ...]:
        """Return the likeliest chains, of one passage or of two."""
        alone = np.argsort(-scored.alone, kind="stable")[:k].tolist()
        chains = [
            PassageChain((int(pairs.rows[place]),), float(scored.alone[place]) * (1 - scored.hops)) for place in alone
        ]
        # Two passages are one chain, in the likelier order.
        of_both: dict[frozenset[int], PassageChain] = {}
        for place in np.argsort(-scored.pairs, kind="stable")[: 4 * k].tolist():
            first, second = int(pairs.rows[pairs.firsts[place]]), int(pairs.rows[pairs.seconds[place]])
            probability = float(scored.pairs[place]) * scored.hops
            before = of_both.get(frozenset((first, second)))
            if before is None:
                before = PassageChain((first, second), 0.0, self._link_name(first, second))
            of_both[frozenset((first, second))] = msgspec.structs.replace(
                before, probability=before.probability + probability
            )
        chains += of_both.values()
        return tuple(sorted(chains, key=lambda chain: -chain.probability)[:k])

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
        index, settings = self.index, self.settings
        if not len(index):
            empty = np.empty(0, dtype=np.int64)
            yield from (Pairs(empty, empty, empty, np.empty((0, 0)), np.empty(0), np.empty(0)) for _ in questions)
            return
        index.check()
        mask = index.mask(where)
        vectors = encode(self._encoder, questions, "query")
        all_seeds = find_seeds(index, self._rarity, questions, vectors, count=settings.seeds, mask=mask)
        firsts = [seeds.best(settings.firsts) for seeds in all_seeds]
        led = self._led(questions, vectors, firsts, mask)
        walks = self._walks(all_seeds)
        for question, vector, seeds, heads, leads, walk in zip(
            questions, vectors, all_seeds, firsts, led, walks, strict=True
        ):
            yield self._pairs_of(question, vector, seeds, heads, leads, walk, mask)

    def _led(
        self, questions: Sequence[str], vectors: Vectors, firsts: Sequence[Rows], mask: Mask | None
    ) -> list[list[Rows]]:
        """Find what each first passage leads to by vectors and by rare words, for all questions in one search."""
        index, settings = self.index, self.settings
        flat = np.concatenate([np.empty(0, np.int64), *firsts])
        owners = np.repeat(np.arange(len(questions)), [len(rows) for rows in firsts])
        if not len(flat):
            return [[] for _ in questions]
        both = vectors[owners] + index.vectors(flat)
        both /= np.linalg.norm(both, axis=1, keepdims=True) + np.float32(1e-9)
        _, near = index.nearest(both, settings.led, mask=mask)
        asked = [frozenset(words(question)) for question in questions]
        rare = [self._rare_words(row, asked[owner]) for row, owner in zip(flat.tolist(), owners.tolist(), strict=True)]
        _, by_words = index.words.top(rare, settings.led, mask=mask)
        led: list[list[Rows]] = [[] for _ in questions]
        for owner, some, others in zip(owners.tolist(), near, by_words, strict=True):
            rows = np.concatenate([some, others])
            led[owner].append(rows[rows >= 0])
        return led

    def _rare_words(self, row: int, asked: frozenset[str]) -> str:
        """Return the rarest words of a passage that the question does not have."""
        new = sorted(set(words(self.index.passage(row).text)) - asked)
        _, weights = self._rarity.look_up(new)
        return " ".join(
            new[number] for number in np.argsort(-weights, kind="stable")[: self.settings.rare_words].tolist()
        )

    @cached_property
    def _rarity(self) -> Rarity:
        return Rarity(self.index)

    def _walks(self, all_seeds: Sequence[Seeds]) -> list[dict[int, float]]:
        """Walk from the seeds of each question, and return the mass of the passages that were reached."""
        graph, settings = self.index.graph, self.settings
        assert graph is not None
        starts, weights = [], []
        for seeds in all_seeds:
            best = seeds.order(settings.walk_seeds)
            scores = seed_scores(seeds.near, seeds.words, seeds.named)[best]
            starts.append(seeds.rows[best])
            weights.append(np.exp(_WALK_SHARPNESS * (scores - scores.max(initial=0))))
        ranking = personalised_pagerank(
            graph["links.starts"],
            graph["links"],
            np.concatenate(starts),
            weights=graph["links.weights"],
            seed_weights=np.concatenate(weights),
            seed_offsets=np.cumsum([0, *map(len, starts)]),
            restart=settings.restart,
            tolerance=settings.tolerance,
            k=4 * settings.seeds,
        )
        return [
            dict(zip(ranking.nodes[start:end].tolist(), ranking.scores[start:end].tolist(), strict=True))
            for start, end in zip(ranking.offsets[:-1].tolist(), ranking.offsets[1:].tolist(), strict=True)
        ]

    def _pairs_of(
        self,
        question: str,
        vector: Vectors,
        seeds: Seeds,
        heads: Rows,
        leads: list[Rows],
        walk: dict[int, float],
        mask: Mask | None,
    ) -> Pairs:
        settings = self.settings
        best = seeds.best(settings.seconds)
        targets = [
            np.unique(np.concatenate([lead, best, heads, self._linked(head, mask)]))
            for head, lead in zip(heads.tolist(), leads, strict=True)
        ]
        rows = np.unique(np.concatenate([seeds.rows, *targets]))
        candidates = self._candidates(question, vector, seeds, rows, walk)
        table = PairTable(self.index, self._rarity, self._rarity.question(question), vector, candidates)
        firsts: list[NDArray[np.int64]] = []
        seconds: list[NDArray[np.int64]] = []
        features: list[Floats] = []
        for head, others in zip(heads.tolist(), targets, strict=True):
            place = int(np.searchsorted(rows, head))
            places = np.searchsorted(rows, others[others != head])
            if len(places):
                firsts.append(np.full(len(places), place))
                seconds.append(places)
                features.append(table.pairs(place, places))
        scores = seed_scores(candidates.near, candidates.words, candidates.named)
        if not features:
            none = np.empty(0, dtype=np.int64)
            return Pairs(rows, none, none, np.empty((0, 0)), scores, candidates.walk)
        return Pairs(
            rows,
            np.concatenate(firsts),
            np.concatenate(seconds),
            np.concatenate(features),
            scores,
            candidates.walk,
        )

    def _linked(self, row: int, mask: Mask | None) -> Rows:
        """Return the passages that a passage is linked to, the weightiest links."""
        graph = self.index.graph
        assert graph is not None
        links = graph.links(row)
        order = np.argsort(-graph["links.weights"][links], kind="stable")[: self.settings.links]
        rows = graph["links"][links][order].astype(np.int64)
        return rows if mask is None else rows[mask[rows]]

    def _candidates(
        self, question: str, vector: Vectors, seeds: Seeds, rows: Rows, walk: dict[int, float]
    ) -> Candidates:
        vectors = self.index.vectors(rows)
        at = np.minimum(np.searchsorted(seeds.rows, rows), len(seeds.rows) - 1)
        known = seeds.rows[at] == rows
        by_words = np.where(known, seeds.words[at], 0)
        new = np.flatnonzero(~known)
        by_words[new] = self.index.words.scores_of([question], rows[new])[0] / seeds.best_words
        return Candidates(
            rows,
            vectors,
            (vectors @ vector).astype(np.float64),
            by_words,
            np.where(known, seeds.named[at], 0),
            np.where(known, seeds.name_rarity[at], 0),
            np.array([walk.get(row, 0.0) for row in rows.tolist()]),
        )
