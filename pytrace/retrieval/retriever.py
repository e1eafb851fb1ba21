"""What every retriever does, the checks that all share, and rankings that somebody else made: a function's, or the corpus's order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from pytrace.errors import InputError
from pytrace.records import Document


class Hit(msgspec.Struct, frozen=True):
    """A document that was found and its score: larger is better, and scores of two retrievers are no one scale."""

    document: Document
    score: float


class Retriever(Protocol):
    """Anything that finds documents for questions; deterministic, so that a run can be repeated."""

    def retrieve(self, queries: Sequence[str], count: int) -> list[list[Hit]]:
        """Return at most `count` documents for each query, best first, ties in the corpus's order.

        `TypeError` if `queries` are no strings, `ValueError` if `count` is below 1.
        """


def check_queries(queries: Sequence[str], count: int) -> None:
    """Refuse what is no list of texts, and counts below 1."""
    # A string is a sequence of strings, too: its letters would be asked for one by one, and no type checker would object.
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


class OriginalOrderRetriever:
    """Gives the corpus in its own order, whatever is asked; the score is 1 / rank.

    Examples
    --------
    >>> from pytrace.records import Document
    >>> from pytrace.retrieval import OriginalOrderRetriever
    >>> corpus = [Document("1", "Bread", ("It is baked.",)), Document("2", "Ferries", ("One ferry carries mail.",))]
    >>> [hit.document.id for hit in OriginalOrderRetriever(corpus).retrieve(["Which ferry?"], 1)[0]]
    ['1']
    """

    def __init__(self, documents: Sequence[Document]) -> None:
        self._documents = tuple(documents)

    def retrieve(self, queries: Sequence[str], count: int) -> list[list[Hit]]:
        """Return the first `count` documents for each query."""
        check_queries(queries, count)
        return [by_rank(self._documents[:count]) for _ in queries]


class CallableRetriever:
    """Asks a function for documents: a web search, or a store of one's own.

    Parameters
    ----------
    function
        Takes a query and how many documents are wanted, and returns documents, best first. It is called once a query;
        what it raises is not caught. `InputError` if it cannot be called.

    Examples
    --------
    >>> from pytrace.records import Document
    >>> from pytrace.retrieval import CallableRetriever
    >>> def search(query: str, count: int) -> list[Document]:
    ...     return [Document(f"{query} {rank}", query, ("text",)) for rank in range(count)]
    >>> [hit.document.id for hit in CallableRetriever(search).retrieve(["ferries"], 2)[0]]
    ['ferries 0', 'ferries 1']
    """

    def __init__(self, function: Callable[[str, int], Sequence[Document]]) -> None:
        if not callable(function):
            raise InputError(
                f"{function!a} is of type {type(function).__name__} and cannot be called; give a function of (query, count)"
            )
        self._function = function

    def retrieve(self, queries: Sequence[str], count: int) -> list[list[Hit]]:
        """Ask for each query; the score is 1 / rank, and an id that the function gave before is left out."""
        check_queries(queries, count)
        return [by_rank(self._ask(query, count)) for query in queries]

    def _ask(self, query: str, count: int) -> list[Document]:
        answer: object = self._function(query, count)
        if not isinstance(answer, Sequence) or isinstance(answer, str | bytes):
            raise InputError(
                f"the function returned {_kind(answer)} for the query {_shown(query)}; let it return a list of "
                "pytrace.records.Document, an empty one where it finds nothing"
            )
        distinct: dict[str, Document] = {}
        for number, document in enumerate(answer):
            if not isinstance(document, Document):
                raise InputError(
                    f"item {number} of the {len(answer)} that the function returned for the query {_shown(query)} is "
                    f"{_kind(document)}; let it return a list of pytrace.records.Document"
                )
            # Fusion and evaluation meet documents by their ids, so a repeat would count twice.
            distinct.setdefault(document.id, document)
        return list(distinct.values())[:count]


def by_rank(documents: Sequence[Document]) -> list[Hit]:
    """Make hits of documents in their order; the score is 1 / rank."""
    return [Hit(document, 1 / rank) for rank, document in enumerate(documents, 1)]


def _kind(value: object) -> str:
    return "None" if value is None else f"an object of type {type(value).__name__}"


def _shown(query: str) -> str:
    return ascii(query if len(query) <= 60 else query[:57] + "...")
