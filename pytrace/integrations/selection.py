"""What every adapter calls: `Engine.run` on the passages that a framework gives, or on an index, with the chains of each passage."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pytrace.errors import InputError
from pytrace.records import Document
from pytrace.results import EvidenceChain, Findings, Request

if TYPE_CHECKING:
    from pytrace.engine import Engine
    from pytrace.engine.corpus import IndexedCorpus

CHAINS = "pytrace_chains"
"""The name in a passage's metadata under which its chains stand."""

TITLES = ("title", "name")
"""The names in a passage's metadata that are tried for its title, in this order."""

FILES = ("file_name", "source", "file_path")
"""Those that are tried for a file whose name is the title, if there is no title: frameworks' own readers note it there."""

# A passage that is less likely than this share of the likeliest one is not selected, unless so many are wanted.
_LEAST_SHARE = 0.02
_LOADING = threading.Lock()


class Passage(NamedTuple):
    """A text that a framework gives, by its own id, with its metadata."""

    id: str
    text: str
    metadata: dict[str, Any]


class Selected(NamedTuple):
    """A passage that was selected: its place among those given, its score from 0 to 1, and the chains that it is part of.

    A chain is JSON: ``{"steps": [{"id": str, "title": str, "text": str, "link": str}, …]}``, with ids of the framework. `link` is the
    name or the words that link a step to an earlier one.
    """

    place: int
    score: float
    chains: list[dict[str, Any]]


def shared_engine(llm: str, encoder: str | None, threads: int | None) -> Engine:
    """Return the engine of these models, one in this process whatever asks for it."""
    with _LOADING:  # two threads may ask for the same at once
        return _loaded(llm, encoder, threads)


@cache
def _loaded(llm: str, encoder: str | None, threads: int | None) -> Engine:
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
        A custom engine instead of these.
    """

    def __init__(
        self,
        method: str = "hops",
        settings: Sequence[str] = (),
        *,
        llm: str = "tiny",
        encoder: str | None = None,
        threads: int | None = None,
        engine: Engine | None = None,
    ) -> None:
        from pytrace.methods.catalog import method_settings, parse_method

        self._engine = engine or shared_engine(llm, encoder, threads)
        self._lock = lock_of(self._engine)
        self._method = parse_method(method)
        self._settings = tuple(settings)
        # A wrong setting is reported here instead of by the first question.
        method_settings(self._method, self._engine.abilities, self._settings)

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
            Passages to return per question: what the method selects first, then the others in the order given. None: only what the
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
        requests = {
            number: self._request(question, given, top_n)
            for number, (question, given) in enumerate(zip(questions, passages, strict=True))
            if given
        }
        with self._lock:
            results = dict(zip(requests, self._engine.run([*requests.values()]), strict=True))
        selected: list[list[Selected]] = []
        for number, given in enumerate(passages):
            chosen = _selected(results[number].evidence, given) if given else []
            if top_n is not None:
                taken = {one.place for one in chosen}
                rest = [Selected(place, 0.0, []) for place in range(len(given)) if place not in taken]
                chosen = [*chosen, *rest][:top_n]
            elif self._method.name == "hops":
                chosen = [one for one in chosen if one.score >= _LEAST_SHARE * chosen[0].score]
            selected.append(chosen)
        return selected

    def _request(self, question: str, passages: Sequence[Passage], top_n: int | None) -> Request:
        settings = self._settings
        if self._method.name == "hops" and top_n is not None:
            # The search ranks as many passages as are wanted.
            settings = (f"passages={top_n}", *settings)
        return Request(
            question=question,
            task="search",
            method=self._method.label,
            settings=settings,
            documents=tuple(_document(str(place), passage) for place, passage in enumerate(passages)),
            passages=len(passages),
        )


class IndexSearch:
    """Searches an index that ``pytrace index build`` or `Corpus.build` made, across hops, without a language model.

    Parameters
    ----------
    index
        Its directory.
    top_n
        Passages per question.
    llm, encoder, threads, engine
        As for `PassageSelector`; the encoder must match the index.
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
        count = self._top_n if top_n is None else _at_least_one(top_n)
        requests = [Request(question=question, task="search", passages=count, chains=count) for question in questions]
        with self._lock:
            results = self._engine.run(requests, self._corpus)
            return [self._found(result.evidence) for result in results]

    def _found(self, evidence: Findings) -> list[tuple[Document, Selected]]:
        index = self._corpus.index
        found = []
        for place, source in enumerate(evidence.sources):
            row = index.row_of(source.id)
            # Other passages are only part of a chain.
            if source.relevance is not None and row is not None:
                chains = [_chain_json(chain, evidence) for chain in evidence.chains if _has(chain, place)]
                found.append((index.passage(row), Selected(place, source.relevance, chains)))
        return found

    def close(self) -> None:
        """Close the index."""
        self._corpus.close()


def _at_least_one(top_n: int) -> int:
    if top_n < 1:
        raise InputError(f"top_n is {top_n}; give 1 or more")
    return top_n


def _selected(evidence: Findings, passages: Sequence[Passage]) -> list[Selected]:
    """Return the passages of the evidence of a method, best first; its documents are called by their place among those given."""
    votes = sum(source.votes for source in evidence.sources)
    ranked = sorted(enumerate(evidence.sources), key=lambda item: -item[1].votes)
    selected = []
    for rank, (number, source) in enumerate(ranked, 1):
        # Without votes, as where documents are ranked, the score of the search counts, or else the rank.
        score = source.votes / votes if votes else 1 / rank if source.relevance is None else source.relevance
        chains = [_chain_json(chain, evidence, passages) for chain in evidence.chains if _has(chain, number)]
        selected.append(Selected(int(source.id), score, chains))
    return selected


def _has(chain: EvidenceChain, source: int) -> bool:
    return any(step.source == source for step in chain.steps)


def _chain_json(chain: EvidenceChain, evidence: Findings, passages: Sequence[Passage] = ()) -> dict[str, Any]:
    """Return a chain as JSON, with the framework's ids where documents are called by their place among passages."""
    steps = []
    for step in chain.steps:
        source = evidence.sources[step.source]
        name = passages[int(source.id)].id if passages else source.id
        steps.append({"id": name, "title": source.title, "text": step.sentence, "link": step.link})
    return {"steps": steps}


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
