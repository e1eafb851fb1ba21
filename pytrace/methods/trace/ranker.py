"""A question and its chain become ranked candidates: TRACE's triple ranker.

Source: TRACE, section 3.3, equation 4: the question and the triples chosen so far, in that order, are one query, and inner
products with the encoded triples rank them. Ours beyond it: a triple whose head the query names may count for more, as the
edges of a knowledge graph do; of open heads less so where several documents have the head, and not where it is no name. And a
cross-encoder may read the nearest ones once more, each with its query.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from itertools import chain as concatenate
from itertools import groupby

import msgspec
import numpy as np
from numpy.typing import NDArray

from pytrace.documents.languages import letters_apart
from pytrace.documents.passages import TITLE_SEPARATOR
from pytrace.kernels.device_vectors import DeviceVectors
from pytrace.kernels.fuzzy import cdist, partial_ratio
from pytrace.models.encoders.cross_encoder import CrossEncoder, checked_scores
from pytrace.models.encoders.encoder import Encoder, device_of
from pytrace.records import Candidate, Triple, Unit

# A name found less surely than this (partial ratio, 0 to 1) is not found at all.
NAMED = 0.9
# A cross-encoder reads so many times the candidates that are offered.
READ_ANEW = 4
_IN_BRACKETS = re.compile(r"\([^()]*\)")
_NO_WORD = re.compile(r"[\W_]+")


def chain_query(question: str, chain: Sequence[str]) -> str:
    """Return what is searched for behind a chain: the question and the texts chosen so far."""
    return " ".join([question, *chain])


class TripleIndex:
    """The triples of several questions with their embeddings, one matrix for all."""

    def __init__(self, triples: Sequence[Sequence[Unit]], encoder: Encoder) -> None:
        self.triples = [tuple(question) for question in triples]
        self.offsets = np.cumsum([0, *map(len, self.triples)], dtype=np.int64)
        self._encoder = encoder
        self._heads: dict[int, tuple[list[str], NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]] = {}

    @cached_property
    def embeddings(self) -> NDArray[np.float32]:
        """The triples' vectors, float32 [n_triples of all questions, dimension]."""
        return self._encoder.encode([triple.text for triple in concatenate(*self.triples)], kind="passage")

    @cached_property
    def kept(self) -> DeviceVectors:
        """The same vectors, kept where the encoder's device is: each step of each chain searches them."""
        return DeviceVectors(self.embeddings, device_of(self._encoder))

    def unit(self, question: int, position: int) -> Unit:
        """Return the unit at a position of a question's list."""
        return self.triples[question][position]

    def named(self, question: int, texts: Sequence[str]) -> NDArray[np.float32]:
        """Say how surely texts name the heads of a question's triples."""
        if question not in self._heads:
            subjects, rarity = _subjects(self.triples[question])
            # A passage is about what its document is about, and about each heading above it.
            heads = [
                [_words(_IN_BRACKETS.sub(" ", name)) for name in subject.split(TITLE_SEPARATOR)] for subject in subjects
            ]
            distinct = list(dict.fromkeys(concatenate(*heads)))
            position = {head: number for number, head in enumerate(distinct)}
            positions = np.array([position[head] for head in concatenate(*heads)], dtype=np.int64)
            sizes = np.array([len(names) for names in heads], dtype=np.int64)
            self._heads[question] = distinct, positions, np.cumsum(sizes) - sizes, rarity
        distinct, positions, starts, rarity = self._heads[question]
        if not distinct or not texts:
            return np.zeros((len(texts), len(starts)), dtype=np.float32)
        ratios = cdist([_words(text) for text in texts], distinct, scorer=partial_ratio) / 100
        # A text shorter than a head is found within the head, which does not name it.
        longer = np.array([[len(_words(text)) >= len(head) > 2 for head in distinct] for text in texts])
        sure = np.where(longer, np.clip((ratios - NAMED) / (1 - NAMED), 0, 1), 0)
        by_triple: NDArray[np.float32] = np.maximum.reduceat(sure[:, positions], starts, axis=1).astype(np.float32)
        return by_triple * rarity


class Ranker:
    """Offers each chain the triples nearest to its question and what it has said so far."""

    def __init__(
        self,
        encoder: Encoder | None,
        *,
        cross_encoder: CrossEncoder | None = None,
        candidates: int = 20,
        link_weight: float = 0.0,
        new_documents: bool = False,
    ) -> None:
        if candidates < 1:
            raise ValueError(f"candidates must be at least 1, not {candidates}")
        self.encoder = encoder
        if not link_weight >= 0:
            raise ValueError(f"link_weight must be 0 or more, not {link_weight}")
        self.candidates = candidates
        self.cross_encoder = cross_encoder
        self.link_weight = link_weight
        self.new_documents = new_documents

    def rank(
        self, index: TripleIndex, questions: Sequence[str], which: Sequence[int], chains: Sequence[Sequence[int]]
    ) -> list[list[Candidate]]:
        """Rank the triples of each chain's question, all chains of all questions in one call."""
        if not chains:
            return []
        taken = [self._taken(index, question, chain) for question, chain in zip(which, chains, strict=True)]
        if self.encoder is None:
            return [self._all(index, question, gone) for question, gone in zip(which, map(set, taken), strict=True)]
        queries = [
            chain_query(questions[question], [index.unit(question, position).text for position in chain])
            for question, chain in zip(which, chains, strict=True)
        ]
        if self.cross_encoder is None:
            return self._nearest(index, questions, which, taken, queries, self.candidates)
        nearest = self._nearest(index, questions, which, taken, queries, READ_ANEW * self.candidates)
        return self._read_anew(self.cross_encoder, queries, nearest)

    def _nearest(
        self,
        index: TripleIndex,
        questions: Sequence[str],
        which: Sequence[int],
        taken: Sequence[Sequence[int]],
        queries: Sequence[str],
        count: int,
    ) -> list[list[Candidate]]:
        """Return the candidates nearest to each query by vectors."""
        assert self.encoder is not None
        vectors = self.encoder.encode(queries, kind="query")
        if self.link_weight:
            return self._linked(index, which, taken, queries, vectors, count)
        scores, rows = index.kept.top_k(
            vectors,
            count,
            offsets=index.offsets,
            query_offsets=np.searchsorted(which, np.arange(len(questions) + 1)).astype(np.int64),
            exclude=[
                np.asarray(gone, dtype=np.int64) + index.offsets[question]
                for question, gone in zip(which, taken, strict=True)
            ],
        )
        return [
            [
                Candidate(index.unit(question, position), position, score)
                for position, score in zip((row - index.offsets[question]).tolist(), row_scores.tolist(), strict=True)
                if position >= 0
            ]
            for question, row, row_scores in zip(which, rows, scores, strict=True)
        ]

    def _read_anew(
        self, cross_encoder: CrossEncoder, queries: Sequence[str], nearest: Sequence[list[Candidate]]
    ) -> list[list[Candidate]]:
        """Return the best of some candidates by a cross-encoder, best first, with its scores."""
        pairs = [(query, item.unit.text) for query, items in zip(queries, nearest, strict=True) for item in items]
        scores = iter(checked_scores(cross_encoder, pairs).tolist())
        ranked = []
        for items in nearest:
            scored = [msgspec.structs.replace(item, score=score) for item, score in zip(items, scores, strict=False)]
            ranked.append(sorted(scored, key=lambda item: -item.score)[: self.candidates])
        return ranked

    def _all(self, index: TripleIndex, question: int, gone: set[int]) -> list[Candidate]:
        triples = enumerate(index.triples[question])
        return [Candidate(triple, position, 0.0) for position, triple in triples if position not in gone]

    def _taken(self, index: TripleIndex, question: int, chain: Sequence[int]) -> Sequence[int]:
        """Return the positions that a chain is not offered (again)."""
        if not self.new_documents or not chain:
            return chain
        documents = {index.unit(question, position).document_id for position in chain}
        return [position for position, triple in enumerate(index.triples[question]) if triple.document_id in documents]

    def _linked(
        self,
        index: TripleIndex,
        which: Sequence[int],
        taken: Sequence[Sequence[int]],
        queries: Sequence[str],
        vectors: NDArray[np.float32],
        count: int,
    ) -> list[list[Candidate]]:
        """Rank by similarity and by whether the query names a triple's head; every triple of a question must be scored."""
        ranked: list[list[Candidate]] = []
        # The chains of a question follow each other.
        for question, rows in groupby(range(len(which)), key=lambda row: which[row]):
            group = list(rows)
            first, last = group[0], group[-1] + 1
            passages = index.embeddings[index.offsets[question] : index.offsets[question + 1]]
            scores = vectors[first:last] @ passages.T
            scores += np.float32(self.link_weight) * index.named(question, queries[first:last])
            for row, gone in zip(scores, map(set, taken[first:last]), strict=True):
                order = [position for position in np.argsort(-row, kind="stable").tolist() if position not in gone]
                ranked.append(
                    [
                        Candidate(index.unit(question, position), position, float(row[position]))
                        for position in order[:count]
                    ]
                )
        return ranked


def _subjects(units: Sequence[Unit]) -> tuple[list[str], NDArray[np.float32]]:
    """Return what a text may name of each unit, and what its naming is worth.

    Of a document whose triples have heads of their own, a head is worth one over the number of documents with it, for one that
    many have tells none of them apart; a head in lower case ("the town") is told of in any text, and is named by none.
    """
    heads: dict[str, set[str]] = {}
    documents: dict[str, set[str]] = {}
    for unit in units:
        if isinstance(unit, Triple):
            heads.setdefault(unit.document_id, set()).add(unit.head)
            documents.setdefault(unit.head, set()).add(unit.document_id)
    subjects, worth = [], []
    for unit in units:
        opened = isinstance(unit, Triple) and len(heads[unit.document_id]) > 1
        subject = unit.head if isinstance(unit, Triple) else unit.title
        subjects.append("" if opened and subject.islower() else subject)
        worth.append(1 / len(documents[subject]) if opened else 1.0)
    return subjects, np.array(worth, dtype=np.float32)


def _words(text: str) -> str:
    """Return a text's words between single spaces, one before the first and one behind the last."""
    return f" {_NO_WORD.sub(' ', letters_apart(text.casefold())).strip()} "
