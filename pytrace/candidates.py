"""A question and its chain become ranked candidates: TRACE's triple ranker.

Source: TRACE, section 3.3, equation 4: the question and the triples chosen so far, in that order, are one query, and inner
products with the encoded triples rank them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain as concatenate

import numpy as np

from pytrace.kernels.similarity import top_k
from pytrace.models.encoder import Encoder
from pytrace.records import Candidate, Triple


class TripleIndex:
    """The triples of several questions with their embeddings, one matrix for all.

    Parameters
    ----------
    triples
        One list a question; a question without documents has an empty one.
    encoder
        Encodes the triples' texts; a text that several questions share is encoded once.
    """

    def __init__(self, triples: Sequence[Sequence[Triple]], encoder: Encoder) -> None:
        self.triples = [tuple(question) for question in triples]
        self.offsets = np.cumsum([0, *map(len, self.triples)], dtype=np.int64)
        self.embeddings = encoder.encode([triple.text for triple in concatenate(*self.triples)], kind="passage")

    def triple(self, question: int, position: int) -> Triple:
        """Return the triple at a position of a question's list."""
        return self.triples[question][position]


class Ranker:
    """Offers each chain the triples nearest to its question and what it has said so far.

    Parameters
    ----------
    encoder
        A bi-encoder; queries and triples are encoded by kind.
    candidates
        K, how many triples to offer. The paper tunes it in {15, 20, 25, 30}.
    """

    def __init__(self, encoder: Encoder, *, candidates: int = 20) -> None:
        if candidates < 1:
            message = f"candidates must be at least 1, not {candidates}"
            raise ValueError(message)
        self.encoder = encoder
        self.candidates = candidates

    def rank(
        self, index: TripleIndex, questions: Sequence[str], which: Sequence[int], chains: Sequence[Sequence[int]]
    ) -> list[list[Candidate]]:
        """Rank the triples of each chain's question, all chains of all questions in one call.

        Parameters
        ----------
        index
            The questions' triples.
        questions
            The questions' texts, one an entry of the index.
        which
            Which question each chain belongs to, never decreasing.
        chains
            The positions of each chain's triples in its question's list.

        Returns
        -------
        list of list of Candidate
            At most K a chain, best first, ties by position; triples of the chain are left out.
        """
        if not chains:
            return []
        queries = [
            " ".join([questions[question], *(index.triple(question, position).text for position in chain)])
            for question, chain in zip(which, chains, strict=True)
        ]
        excluded = [
            np.asarray(chain, dtype=np.int64) + index.offsets[question]
            for question, chain in zip(which, chains, strict=True)
        ]
        scores, rows = top_k(
            self.encoder.encode(queries, kind="query"),
            index.embeddings,
            self.candidates,
            offsets=index.offsets,
            query_offsets=np.searchsorted(which, np.arange(len(questions) + 1)).astype(np.int64),
            exclude=excluded,
        )
        return [
            [
                Candidate(index.triple(question, position), position, score)
                for position, score in zip((row - index.offsets[question]).tolist(), row_scores.tolist(), strict=True)
                if position >= 0
            ]
            for question, row, row_scores in zip(which, rows, scores, strict=True)
        ]
