"""Searches of concurrent requests are made together, each over its own index, and give what each gives alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the extra serve is not installed")

from pytrace.engine.corpus import Corpus, IndexedCorpus
from pytrace.engine.loading import Engine
from pytrace.errors import InputError
from pytrace.results import Request
from pytrace.retrieval.searching import Found
from pytrace.serve.shared_search import SharedSearch
from tests.serve import hashed

TOWNS = ("keta", "ada", "tema", "anloga", "akosombo", "sogakope")


class Slow(IndexedCorpus):
    """An index whose searches are counted, and of which the first one waits until it is let go."""

    def __init__(self, corpus: IndexedCorpus) -> None:
        super().__init__(corpus.index)
        self.searches: list[tuple[list[str], int, tuple[str, ...]]] = []
        self.begun, self.gate = threading.Event(), threading.Event()

    def search(
        self, questions: Sequence[str], engine: Engine, count: int = 20, *, where: Sequence[str] = ()
    ) -> list[Found]:
        self.searches.append((sorted(questions), count, tuple(where)))
        self.begun.set()
        assert self.gate.wait(10)
        return super().search(questions, engine, count, where=where)


@pytest.fixture
def engine() -> Engine:
    return hashed.engine()


@pytest.fixture
def corpus(tmp_path: Path) -> Iterator[IndexedCorpus]:
    directory = hashed.build(tmp_path / "index", [hashed.document(name) for name in TOWNS])
    corpus = Corpus.open(directory)
    yield corpus
    corpus.close()


def sources(result: Any) -> list[str]:
    return [source.id for source in result.evidence.sources]


def test_searches_that_wait_are_made_together_and_give_what_each_gives_alone(
    engine: Engine, corpus: IndexedCorpus
) -> None:
    slow = Slow(corpus)
    alone = {name: sources(engine.search(f"Where is {name}?", corpus, passages=3)) for name in TOWNS}

    def ask(name: str, where: tuple[str, ...] = ()) -> Any:
        request = Request(question=f"Where is {name}?", task="search", passages=3, where=where)
        return engine.run([request], search.over(slow))[0]

    with SharedSearch(engine) as search, ThreadPoolExecutor(8) as pool:
        first = pool.submit(ask, "keta")
        assert slow.begun.wait(10)
        others = {name: pool.submit(ask, name) for name in TOWNS[1:]}
        filtered = pool.submit(ask, "ada", ("title=Tema",))
        wrong = pool.submit(ask, "ada", ("nonsense",))
        while search._batcher.waiting < len(others) + 2:
            pass
        slow.gate.set()
        assert {name: sources(future.result(10)) for name, future in others.items()} == {
            name: alone[name] for name in others
        }
        assert sources(first.result(10)) == alone["keta"]
        assert sources(filtered.result(10)) == ["tema"]
        with pytest.raises(InputError, match="nonsense"):
            wrong.result(10)
    together = [questions for questions, _, where in slow.searches if not where]
    assert together == [["Where is keta?"], sorted(f"Where is {name}?" for name in others)]


def test_an_answer_is_composed_over_the_index_that_it_was_given(engine: Engine, corpus: IndexedCorpus) -> None:
    events: list[str] = []
    with SharedSearch(engine) as search:
        shared = search.over(corpus)
        (result,) = engine.run(
            [Request(question="Where is Tema?", method="rag", min_confidence=0.0)],
            shared,
            on_event=lambda stage, *_: events.append(stage),
        )
    assert events == ["search", "evidence", "answer"]
    assert result.answer
    assert shared.nearest("Where is Tema?", engine, 2) == corpus.nearest("Where is Tema?", engine, 2)
