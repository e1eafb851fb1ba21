"""Weights for one index, learned from questions over it whose supporting documents are known, and judged on those left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pytrace.errors import InputError
from pytrace.retrieval.hops.features import Pairs
from pytrace.retrieval.hops.learning import KnownQuestion, known_question, learn
from pytrace.retrieval.hops.search import HopSearch
from pytrace.retrieval.hops.weights import Weights, load_weights
from pytrace.retrieval.passages.segment import document_id

# Each fifth of the questions is ranked by weights from the others.
_FOLDS = 5
_DEPTHS = (2, 5, 10)
# What it costs to move away from the shipped weights, divided by the number of questions: the fewer, the nearer they stay. On four
# sets of 100 to 225 questions a third and three times as much moved recall at 5 by half a point at most.
_PENALTY = 1.0


class Asked(NamedTuple):
    """A question over an index: its text, and the ids of the documents that support its answer."""

    text: str
    supporting: frozenset[str]


class OwnWeights(NamedTuple):
    """Weights learned from all questions, and recall of supporting documents at 2, 5 and 10 by the shipped and by one's own.

    One's own recall is of each question by weights that never saw it.
    """

    weights: Weights
    shipped: tuple[float, ...]
    own: tuple[float, ...]


class _Known(NamedTuple):
    question: KnownQuestion
    owners: list[str]
    supporting: frozenset[str]


def learn_own(search: HopSearch, asked: Sequence[Asked], *, made_by: str = "") -> OwnWeights:
    """Learn weights for an index.

    Parameters
    ----------
    search
        Searches the index.
    asked
        Questions, in any order, at least ten of them with two supporting documents or more, from which is learned. The others judge, too.
    made_by
        What is noted of how they were made.

    Returns
    -------
    OwnWeights
        They start from the shipped weights, and go the farther the more questions there are. When one passage is enough, and how far
        pairs lead on, stays as it is shipped: some dozens of questions tell it wrongly.

    Raises
    ------
    InputError
        There are fewer than ten such questions, or the search finds the supporting documents of none.
    MissingDependencyError
        scipy is not installed.
    """
    # Those that teach first, so that each fold has as many of them.
    questions = sorted(asked, key=lambda question: len(question.supporting) < 2)
    several = sum(len(question.supporting) > 1 for question in questions)
    if several < 2 * _FOLDS:
        raise InputError(
            f"{several} of {len(asked)} questions have two supporting documents or more, too few to learn from; give at least "
            f"{2 * _FOLDS}"
        )
    texts = search.read([question.text for question in questions])
    known = [
        _known(search, pairs, question.supporting)
        for question, pairs in zip(questions, search.pairs(texts), strict=True)
    ]
    shipped = load_weights()
    unseen = []
    for fold in range(_FOLDS):
        learned = _learned([each for number, each in enumerate(known) if number % _FOLDS != fold], shipped, made_by)
        unseen += [_recall(each, learned) for each in known[fold::_FOLDS]]
    return OwnWeights(
        _learned(known, shipped, made_by),
        tuple(np.mean([_recall(each, shipped) for each in known], axis=0).tolist()),
        tuple(np.mean(unseen, axis=0).tolist()),
    )


def _known(search: HopSearch, pairs: Pairs, supporting: frozenset[str]) -> _Known:
    owners = [document_id(passage) for passage in search.index.passages(pairs.rows.tolist())]
    return _Known(known_question(pairs, owners, supporting), owners, supporting)


def _learned(known: Sequence[_Known], shipped: Weights, made_by: str) -> Weights:
    several = [each.question for each in known if len(each.supporting) > 1]
    return learn(several, penalty=_PENALTY / len(several), towards=shipped, made_by=made_by)


def _recall(known: _Known, weights: Weights) -> list[float]:
    pairs = known.question.pairs
    scored = weights.score(pairs.features, pairs.firsts, pairs.seconds, pairs.seed_scores)
    order = np.argsort(-scored.passages, kind="stable").tolist()
    ranking = list(dict.fromkeys(known.owners[place] for place in order))
    return [len(known.supporting & {*ranking[:depth]}) / len(known.supporting) for depth in _DEPTHS]
