"""One search for all concurrent requests: questions that wait at the same time are searched together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from pytrace.engine.corpus import MAX_DOCUMENTS, IndexedCorpus
from pytrace.engine.loading import Engine
from pytrace.errors import PytraceError
from pytrace.retrieval.hops import PassageRanking
from pytrace.retrieval.searching import Found
from pytrace.serve.batcher import Batcher
from pytrace.storage.closing import Closing

# Questions that are searched together.
_BATCH_SIZE = 32


class _Query(NamedTuple):
    corpus: IndexedCorpus
    where: tuple[str, ...]
    passages: int
    question: str


class SharedSearch(Closing):
    """Searches across hops for all threads, in batches.

    Parameters
    ----------
    engine
        Engine that embeds the questions.
    observe
        Is called with the number of questions and the seconds of each batch.
    """

    def __init__(self, engine: Engine, *, observe: Callable[[int, float], object] | None = None) -> None:
        self._engine = engine
        self._batcher: Batcher[_Query, Found] = Batcher(
            self._search,
            size=lambda _: 1,
            budget=_BATCH_SIZE,
            name="questions to search for",
            observe=observe,
        )

    def over(self, corpus: IndexedCorpus) -> IndexedCorpus:
        """Return a corpus whose `search` shares batches; it must be used while the given one is open."""
        return _SharedCorpus(corpus, self._batcher)

    def close(self) -> None:
        """Search for the questions that wait, and end the thread."""
        self._batcher.close()

    def _search(self, batch: list[_Query]) -> list[Found | Exception]:
        alike: dict[tuple[IndexedCorpus, tuple[str, ...], int], list[int]] = {}
        for number, query in enumerate(batch):
            alike.setdefault((query.corpus, query.where, query.passages), []).append(number)
        results: dict[int, Found | Exception] = {}
        for (corpus, where, count), numbers in alike.items():
            questions = [batch[number].question for number in numbers]
            try:
                found: Sequence[Found | Exception] = corpus.search(questions, self._engine, count, where=where)
            except PytraceError as error:
                found = [error] * len(numbers)
            results.update(zip(numbers, found, strict=True))
        return [results[number] for number in range(len(batch))]


class _SharedCorpus(IndexedCorpus):
    def __init__(self, corpus: IndexedCorpus, batcher: Batcher[_Query, Found]) -> None:
        super().__init__(corpus.index)
        self._corpus = corpus
        self._batcher = batcher

    def search(
        self, questions: Sequence[str], engine: Engine, count: int = MAX_DOCUMENTS, *, where: Sequence[str] = ()
    ) -> list[Found]:
        del engine
        return [self._batcher.wait(_Query(self._corpus, tuple(where), count, question)) for question in questions]

    def rank(
        self, questions: Sequence[str], engine: Engine, count: int = MAX_DOCUMENTS, *, where: Sequence[str] = ()
    ) -> list[PassageRanking]:
        return self._corpus.rank(questions, engine, count, where=where)
