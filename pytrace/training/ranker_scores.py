"""How well a ranker finds supporting passages among all of a set: recall at 2, 5 and 10 beside that of the model before.

Asked are questions alone, and hops: the question and the supporting passages chosen so far, of which each is the nearest of those
left; both rankers are given the same ones, those of the model before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from pytrace.evaluation.scores.metrics import recall_at
from pytrace.evaluation.scores.significance import bootstrap_interval, paired_bootstrap
from pytrace.kernels import top_k
from pytrace.models.encoders.cross_encoder import CrossEncoder, OnnxCrossEncoder, checked_scores
from pytrace.models.encoders.encoder import Encoder, OnnxEncoder, encode
from pytrace.training.ranker_data import QuestionSet, Searched

DEPTHS = (2, 5, 10)
# The passages that a cross-encoder reads anew: TRACE's documents are chosen from twenty.
_READ = 20

Query = Literal["question", "hop"]


class Recall(msgspec.Struct, frozen=True):
    """Mean recall, and the 95 % bootstrap interval over questions (None: there is one question)."""

    mean: float
    low: float | None
    high: float | None


class SetScores(msgspec.Struct, frozen=True):
    """Recall of supporting documents by the number of documents that count: "2", "5", "10".

    `gain` is that after less that before, with the paired bootstrap's interval. `shared` supporting passages stand among those that
    were learned from, too.
    """

    name: str
    titles: Literal["kept", "gone"]
    query: Query
    questions: int
    passages: int
    shared: int
    before: dict[str, Recall]
    after: dict[str, Recall]
    gain: dict[str, Recall]


Table = dict[Query, dict[int, NDArray[np.float64]]]
"""Recall of each question, by what is asked and depth."""


def recalls(
    given: QuestionSet,
    walks: Sequence[Sequence[tuple[str, int]]],
    searched: Searched,
    cross_encoder: CrossEncoder | None,
) -> Table:
    """Return the recall of each question; `walks` are the hops, as `Searched.walk` gives them."""
    queries: list[str] = []
    # Of each query, the question, the passages that are not asked for any more, and the documents that are sought.
    asked: list[tuple[Query, int, set[int], list[str]]] = []
    for number, (question, walk) in enumerate(zip(given.questions, walks, strict=True)):
        documents = [(rows, given.owners[rows[0]]) for rows in question.supporting]
        queries.append(question.text)
        asked.append(("question", number, set(), [owner for _, owner in documents]))
        for place, (query, _) in enumerate(walk[1:], 1):
            chosen = {row for _, row in walk[:place]}
            left = [(rows, owner) for rows, owner in documents if not chosen.intersection(rows)]
            gone = {row for rows, _ in documents for row in rows if chosen.intersection(rows)}
            queries.append(query)
            asked.append(("hop", number, gone, [owner for _, owner in left]))
    vectors = encode(searched.encoder, queries, "query")
    # A document may have several passages.
    depth = 4 * max(_READ, *DEPTHS)
    _, rows = top_k(
        vectors, searched.vectors, depth, exclude=[np.array(sorted(gone), np.int64) for _, _, gone, _ in asked]
    )
    rankings = [[row for row in some if row >= 0] for some in rows.tolist()]
    if cross_encoder is not None:
        rankings = _read_anew(cross_encoder, queries, rankings, searched.texts)
    found: dict[Query, dict[int, list[list[float]]]] = {
        query: {depth: [[] for _ in given.questions] for depth in DEPTHS} for query in ("question", "hop")
    }
    for (query, number, _, sought), ranking in zip(asked, rankings, strict=True):
        owners = list(dict.fromkeys(given.owners[row] for row in ranking))
        for depth in DEPTHS:
            if query == "question":
                found[query][depth][number].append(recall_at(owners, sought, depth) or 0.0)
            else:  # any of those left is a next one
                found[query][depth][number].append(float(bool({*sought}.intersection(owners[:depth]))))
    return {
        query: {depth: np.array([np.mean(some) for some in each if some]) for depth, each in depths.items()}
        for query, depths in found.items()
    }


def _read_anew(
    cross_encoder: CrossEncoder, queries: Sequence[str], rankings: Sequence[list[int]], texts: Sequence[str]
) -> list[list[int]]:
    pairs = [(query, texts[row]) for query, rows in zip(queries, rankings, strict=True) for row in rows[:_READ]]
    scores = checked_scores(cross_encoder, pairs)
    ranked, start = [], 0
    for rows in rankings:
        head = rows[:_READ]
        order = np.argsort(-scores[start : start + len(head)], kind="stable").tolist()
        start += len(head)
        ranked.append([head[place] for place in order] + rows[_READ:])
    return ranked


def compare(
    given: QuestionSet,
    titles: Literal["kept", "gone"],
    shared: int,
    before: Encoder,
    after: OnnxEncoder | OnnxCrossEncoder,
) -> list[SetScores]:
    """Score the model before and the trained one on a set: an encoder by itself, a cross-encoder on what the encoder before finds."""
    searched = Searched(given, before)
    walks = searched.walk()
    first = recalls(given, walks, searched, None)
    second = (
        recalls(given, walks, Searched(given, after), None)
        if isinstance(after, OnnxEncoder)
        else recalls(given, walks, searched, after)
    )
    return [
        SetScores(
            given.name,
            titles,
            query,
            len(first[query][DEPTHS[0]]),
            len(given.passages),
            shared,
            _recalls(first[query]),
            _recalls(second[query]),
            {str(depth): _gain(second[query][depth], first[query][depth]) for depth in DEPTHS},
        )
        for query in first
        if len(first[query][DEPTHS[0]])  # where one document supports each answer there is no further hop
    ]


def _recalls(depths: dict[int, NDArray[np.float64]]) -> dict[str, Recall]:
    return {
        str(depth): Recall(float(values.mean()), *(bootstrap_interval(values) or (None, None)))
        for depth, values in depths.items()
    }


def _gain(after: NDArray[np.float64], before: NDArray[np.float64]) -> Recall:
    test = paired_bootstrap(after, before)
    return Recall(float((after - before).mean()), test.low, test.high)
