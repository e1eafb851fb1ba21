"""Rankings that somebody else made: a function's, or the order of the corpus itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pytrace.errors import InputError
from pytrace.records import Document
from pytrace.retrieval.retriever import Hit, check_queries


class OriginalOrderRetriever:
    """Gives the corpus in its own order, whatever is asked; the score is 1 / rank.

    Parameters
    ----------
    documents
        The corpus.

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
        what it raises is not caught.

    Raises
    ------
    InputError
        `function` cannot be called.

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
        given: object = function
        if not callable(given):
            raise InputError(
                f"{given!a} is of type {type(given).__name__} and cannot be called; give a function of (query, count)"
            )
        self._function = function

    def retrieve(self, queries: Sequence[str], count: int) -> list[list[Hit]]:
        """Ask for each query; the score is 1 / rank, and an id that the function gave before is left out."""
        check_queries(queries, count)
        return [by_rank(self._ask(query, count)) for query in queries]

    def _ask(self, query: str, count: int) -> list[Document]:
        found: object = self._function(query, count)
        if not isinstance(found, Sequence) or isinstance(found, str | bytes):
            raise InputError(
                f"the function returned {_kind(found)} for the query {_shown(query)}; let it return a list of "
                "pytrace.records.Document, an empty one where it finds nothing"
            )
        distinct: dict[str, Document] = {}
        for number, document in enumerate(found):
            if not isinstance(document, Document):
                raise InputError(
                    f"item {number} of the {len(found)} that the function returned for the query {_shown(query)} is "
                    f"{_kind(document)}; let it return a list of pytrace.records.Document"
                )
            distinct.setdefault(document.id, document)
        return list(distinct.values())[:count]


def by_rank(documents: Sequence[Document]) -> list[Hit]:
    """Make hits of documents in their order; the score is 1 / rank."""
    return [Hit(document, 1 / rank) for rank, document in enumerate(documents, 1)]


def _kind(value: object) -> str:
    return "None" if value is None else f"an object of type {type(value).__name__}"


def _shown(query: str) -> str:
    return ascii(query if len(query) <= 60 else query[:57] + "...")
