"""What every adapter does: select passages that a framework gives, or search an index, with the chains that led to each."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pytrace.errors import InputError
from pytrace.records import Chain, Document, TextUnit

if TYPE_CHECKING:
    from pytrace.engine import Engine
    from pytrace.engine.corpus import IndexedCorpus

CHAINS = "pytrace_chains"
"""The name in a passage's metadata under which its chains stand."""

TITLES = ("title", "name")
"""The names in a passage's metadata that are tried for its title, in this order."""

FILES = ("file_name", "source", "file_path")
"""Those that are tried for a file whose name is the title, if there is no title: frameworks' own readers note it there."""


class Passage(NamedTuple):
    """A text that a framework gives, by its own id, with its metadata."""

    id: str
    text: str
    metadata: dict[str, Any]


class Selected(NamedTuple):
    """A passage that was selected: its place among those given, its score from 0 to 1, and the chains that it is part of.

    A chain is JSON: ``{"log_probability": float, "steps": [{"id": str, "title": str, "text": str}, …]}``, with ids of the framework.
    """

    place: int
    score: float
    chains: list[dict[str, Any]]


@cache
def shared_engine(llm: str, encoder: str | None, threads: int | None) -> Engine:
    """Return the engine of these models, one in this process whatever asks for it."""
    from pytrace.engine import load

    return load(llm, encoder=encoder, threads=threads)


def lock_of(engine: Engine) -> threading.RLock:
    """Return what is held while an engine selects or searches: frameworks call from several threads.

    A language model alone is asked without it, since what its callers ask at once goes through together.
    """
    # With the engine itself, so that it lives as long; `setdefault` is one step to other threads.
    lock: threading.RLock = vars(engine).setdefault("_lock_of_adapters", threading.RLock())
    return lock


class PassageSelector:
    """Selects passages for questions by a method.

    Parameters
    ----------
    method, settings
        Any method, and its `name=value` settings.
    llm, encoder, threads
        As for `pytrace.load`; models are read when they are first needed, and the language model only if the method selects with it.
    engine
        An engine of one's own in place of these.
    """

    def __init__(
        self,
        method: str = "trace",
        settings: Sequence[str] = (),
        *,
        llm: str = "tiny",
        encoder: str | None = None,
        threads: int | None = None,
        engine: Engine | None = None,
    ) -> None:
        self._engine = engine or shared_engine(llm, encoder, threads)
        self._lock = lock_of(self._engine)
        self._method = self._engine.method(method, settings)

    def warm_up(self) -> None:
        """Read the encoder, so that the first question does not wait for it."""
        with self._lock:
            self._engine.encoder.encode(["warm"], kind="query")

    def select(
        self, questions: Sequence[str], passages: Sequence[Sequence[Passage]], top_n: int | None = None
    ) -> list[list[Selected]]:
        """Select for each question among its passages, all questions in one batch.

        Parameters
        ----------
        questions
            The questions.
        passages
            Those of each question.
        top_n
            How many to return a question: what the method selects first, then the others in the order given. None: only what the
            method selects.

        Returns
        -------
        list of list
            What is selected for each question, best first.

        Raises
        ------
        InputError
            A question is empty, there are not as many lists of passages as questions, or `top_n` is below 1.
        """
        if len(questions) != len(passages):
            raise InputError(
                f"there are {len(questions)} questions but {len(passages)} lists of passages; give one a question"
            )
        if top_n is not None and top_n < 1:
            raise InputError(f"top_n is {top_n}; give 1 or more, or None for what the method selects")
        asked = [i for i, some in enumerate(passages) if some]
        documents = [[_document(str(k), passage) for k, passage in enumerate(passages[i])] for i in asked]
        with self._lock:
            evidence = self._method.select([questions[i] for i in asked], documents) if asked else []
        selected: list[list[Selected]] = [[] for _ in questions]
        for i, found in zip(asked, evidence, strict=True):
            chains = [(chain, _worded(chain, passages[i])) for chain in found.chains]
            votes = Counter(found.votes)
            for rank, name in enumerate(sorted(found.document_ids, key=votes.__getitem__, reverse=True), 1):
                of_passage = [
                    worded for chain, worded in chains if any(unit.document_id == name for unit in chain.units)
                ]
                # Without votes, as where documents are ranked, the rank alone tells.
                score = votes[name] / votes.total() if votes else 1 / rank
                selected[i].append(Selected(int(name), score, of_passage))
            if top_n is not None:
                taken = {one.place for one in selected[i]}
                rest = [Selected(k, 0.0, []) for k in range(len(passages[i])) if k not in taken]
                selected[i] = [*selected[i], *rest][:top_n]
        return selected


class IndexSearch:
    """Searches an index that ``pytrace index build`` or `Corpus.build` made, across hops, without a language model.

    Parameters
    ----------
    index
        Its directory.
    top_n
        How many passages a question gets.
    llm, encoder, threads, engine
        As for `PassageSelector`; the encoder must be the one of the index.
    """

    def __init__(
        self,
        index: str,
        top_n: int = 5,
        *,
        llm: str = "tiny",
        encoder: str | None = None,
        threads: int | None = None,
        engine: Engine | None = None,
    ) -> None:
        from pytrace.engine import Corpus

        self._engine = engine or shared_engine(llm, encoder, threads)
        self._lock = lock_of(self._engine)
        self._top_n = _at_least_one(top_n)
        self._corpus: IndexedCorpus = Corpus.open(Path(index))

    def search(self, questions: Sequence[str], top_n: int | None = None) -> list[list[tuple[Document, Selected]]]:
        """Return the passages of each question, likeliest first, all questions encoded and searched together."""
        from pytrace.retrieval.hops import chain_evidence

        count = self._top_n if top_n is None else _at_least_one(top_n)
        with self._lock:
            rankings = self._corpus.rank(questions, self._engine, count)
            results = []
            for question, ranking in zip(questions, rankings, strict=True):
                documents = self._corpus.index.passages(ranking.rows)
                chains = []
                for chain in ranking.chains:
                    passages = self._corpus.index.passages(chain.rows)
                    found = chain_evidence(question, chain, passages).chains[0]
                    chains.append((set(chain.rows), _worded(found, [])))
                results.append(
                    [
                        (document, Selected(k, score, [worded for rows, worded in chains if row in rows]))
                        for k, (document, row, score) in enumerate(
                            zip(documents, ranking.rows, ranking.scores, strict=True)
                        )
                    ]
                )
        return results

    def close(self) -> None:
        """Close the index."""
        self._corpus.close()


def _at_least_one(top_n: int) -> int:
    if top_n < 1:
        raise InputError(f"top_n is {top_n}; give 1 or more")
    return top_n


def passage_metadata(document: Document) -> dict[str, Any]:
    """Return what is known of an index's passage: title, source, page, headings, characters, and its document's own metadata."""
    origin = document.origin
    found: dict[str, Any] = {"title": document.title, "source": document.source}
    if origin is not None:
        found |= origin.metadata
        found |= {"document": origin.document, "start": origin.start, "end": origin.end}
        if origin.page is not None:
            found["page"] = origin.page
        if origin.headings:
            found["headings"] = " > ".join(origin.headings)
    return found


def _document(name: str, passage: Passage) -> Document:
    from pytrace.documents import split_sentences

    return Document(name, _title(passage), tuple(split_sentences(passage.text)) or (passage.text,))


def _title(passage: Passage) -> str:
    """Return what a passage is called, which links to other passages are found by; else its beginning."""
    from pytrace.documents.rows import beginning_of

    for key in (*TITLES, *FILES):
        given = passage.metadata.get(key)
        if isinstance(given, str) and given.strip():
            # "docs/orrin-bell-foundry.md" is read as it would be said.
            return given if key in TITLES else Path(given).stem.replace("_", " ").replace("-", " ")
    return beginning_of(passage.text)


def _worded(chain: Chain, passages: Sequence[Passage]) -> dict[str, Any]:
    """Return a chain as JSON, with the framework's ids where its units name places among passages."""
    steps = []
    for unit in chain.units:
        title, text = (unit.title, unit.body) if isinstance(unit, TextUnit) else (unit.head, unit.text)
        name = passages[int(unit.document_id)].id if passages else unit.document_id
        steps.append({"id": name, "title": title, "text": text})
    return {"log_probability": chain.score, "steps": steps}
