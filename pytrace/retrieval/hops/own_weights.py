"""Weights for one index, learned from questions over it whose supporting documents are known, and judged on those left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pytrace.errors import InputError
from pytrace.retrieval.hops.features import Pairs
from pytrace.retrieval.hops.learning import KnownQuestion, learn
from pytrace.retrieval.hops.search import HopSearch
from pytrace.retrieval.hops.weights import Weights, load_weights
from pytrace.retrieval.passages.segment import document_id

# Each fifth of the questions is ranked by weights from the others.
_FOLDS = 5
_DEPTHS = (2, 5, 10)
# Of one question, by all: how much it takes to move away from the shipped weights.
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
        At least ten questions, in any order. One with a single supporting document teaches when one passage is enough.
    made_by
        What is noted of how they were made.

    Returns
    -------
    OwnWeights
        They start from the shipped weights, and go the farther the more questions there are.

    Raises
    ------
    InputError
        There are fewer than ten questions, or none has two supporting documents that the search comes upon.
    MissingDependencyError
        scipy is not installed.
    """
    if len(asked) < 2 * _FOLDS:
        raise InputError(
            f"{len(asked)} questions with known supporting documents are too few to learn from; give at least {2 * _FOLDS}"
        )
    known = [
        _known(search, pairs, each.supporting)
        for each, pairs in zip(asked, search.pairs([each.text for each in asked]), strict=True)
    ]
    shipped = load_weights()
    own = []
    for fold in range(_FOLDS):
        learned = _learned([each for number, each in enumerate(known) if number % _FOLDS != fold], shipped, made_by)
        own += [_recall(each, learned) for each in known[fold::_FOLDS]]
    return OwnWeights(
        _learned(known, shipped, made_by),
        tuple(np.mean([_recall(each, shipped) for each in known], axis=0).tolist()),
        tuple(np.mean(own, axis=0).tolist()),
    )


def _known(search: HopSearch, pairs: Pairs, supporting: frozenset[str]) -> _Known:
    owners = [document_id(passage) for passage in search.index.passages(pairs.rows.tolist())]
    names = np.array(owners, dtype=object)
    right = np.array([owner in supporting for owner in owners], dtype=bool)
    other = (names[pairs.firsts] != names[pairs.seconds]).astype(bool)
    return _Known(KnownQuestion(pairs, right, right[pairs.firsts] & right[pairs.seconds] & other), owners, supporting)


def _learned(known: Sequence[_Known], shipped: Weights, made_by: str) -> Weights:
    several = [each.question for each in known if len(each.supporting) > 1]
    single = [each.question for each in known if len(each.supporting) == 1]
    return learn(several, single, penalty=_PENALTY / max(1, len(several)), towards=shipped, made_by=made_by)


def _recall(known: _Known, weights: Weights) -> list[float]:
    pairs = known.question.pairs
    scored = weights.score(pairs.features, pairs.firsts, pairs.seconds, pairs.seed_scores)
    order = np.argsort(-scored.passages, kind="stable").tolist()
    ranking = list(dict.fromkeys(known.owners[place] for place in order))
    return [len(known.supporting & {*ranking[:depth]}) / len(known.supporting) for depth in _DEPTHS]
