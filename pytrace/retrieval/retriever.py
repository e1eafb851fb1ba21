"""What every retriever does, and the checks that all of them share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from pytrace.records import Document


class Hit(msgspec.Struct, frozen=True):
    """A document that was found and its score: larger is better, and scores of two retrievers are no one scale."""

    document: Document
    score: float


class Retriever(Protocol):
    """Anything that finds documents for questions; deterministic, so that a run can be repeated."""

    def retrieve(self, queries: Sequence[str], count: int) -> list[list[Hit]]:
        """Rank documents by each query.

        Parameters
        ----------
        queries
            Any number of texts.
        count
            At least 1.

        Returns
        -------
        list of list of Hit
            At most `count` a query, best first, ties in the corpus's order.

        Raises
        ------
        TypeError
            `queries` are no strings.
        ValueError
            `count` is below 1.
        """


def check_queries(queries: Sequence[str], count: int) -> None:
    """Refuse what is no list of texts, and counts below 1."""
    if isinstance(queries, str | bytes):
        raise TypeError(f"queries must be a sequence of strings, not one {type(queries).__name__}; put it in a list")
    given: Sequence[object] = queries
    for number, query in enumerate(given):
        if not isinstance(query, str):
            raise TypeError(f"queries must be strings, but item {number} is of type {type(query).__name__}")
    check_count("count", count)


def check_count(name: str, count: int) -> None:
    """Refuse a count below 1."""
    if count < 1:
        raise ValueError(f"{name} must be at least 1, not {count}")
