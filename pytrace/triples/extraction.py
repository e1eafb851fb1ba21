"""Documents become triples: what extractors have in common, and three that need no language model.

Source: TRACE, section 3.2. A document is read by itself, with its title as the head entity, so that the work can be stored
by content and done once. Ours beyond it: texts that are not about one thing, whose facts have heads of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal, Protocol

import msgspec

from pytrace.documents import Phrase, content_phrases, sentence_subject
from pytrace.documents.languages import language_of
from pytrace.documents.phrases import LANGUAGE
from pytrace.reader.evidence import lines_of
from pytrace.records import Document, TextUnit, Triple, Unit
from pytrace.triples.graph import ExtractionStatistics, Recipe, TripleStore

Heads = Literal["auto", "title", "open"]
"""What facts have as their head: the document's title, a phrase of the text, or what suits the document."""

# How a title relates to a phrase that no words stand before.
NO_RELATION = "about"
# A phrase that holds the title and less than so many characters more is another form of it ("Rome's"), and no fact.
_LITTLE_MORE = 4


def has_open_heads(document: Document, heads: Heads) -> bool:
    """Tell whether a document's facts have heads of their own.

    By "auto" those of a passage of a longer document do, and those of a document without a title.
    """
    origin = document.origin
    if heads != "auto" or origin is None:
        return heads == "open"
    return not origin.titled or origin.document != document.id


def heads_option(heads: Heads) -> dict[str, object]:
    """Return the option of a recipe; a graph without it, as all were once, has titles as heads."""
    return {} if heads == "title" else {"heads": heads}


class Extraction(msgspec.Struct, frozen=True):
    """A document's units, and what was dropped on the way."""

    document: Document
    units: tuple[Unit, ...]
    statistics: ExtractionStatistics


class Extractor(Protocol):
    """Turns documents into triples; `recipe` names everything that the result depends on."""

    @property
    def recipe(self) -> Recipe:
        """Everything that the triples depend on: extractor, model, prompt, options."""

    def extract_each(self, documents: Iterable[Document], done: Callable[[Extraction], object]) -> None:
        """Extract the triples of any number of documents and hand each to `done` as soon as it is finished.

        Documents are taken as there is room for them, so that only those in flight are in memory. They may finish in
        another order. What `done` raises ends the work.
        """

    def extract(self, documents: Sequence[Document]) -> list[Extraction]:
        """Extract the triples of every document, in the documents' order; none is left out."""
        finished: dict[int, Extraction] = {}
        self.extract_each(documents, lambda extraction: finished.setdefault(id(extraction.document), extraction))
        return [finished[id(document)] for document in documents]


class _RuleExtractor(Extractor, Protocol):
    """Extracts one document after the other, without a language model."""

    def _extract(self, document: Document) -> Extraction: ...

    def extract_each(self, documents: Iterable[Document], done: Callable[[Extraction], object]) -> None:
        for document in documents:
            done(self._extract(document))


class SentenceExtractor(_RuleExtractor):
    """Every sentence is a unit `[title] sentence` (the paper's ablation "w. sentences")."""

    @property
    def recipe(self) -> Recipe:
        """Only a name: nothing else matters."""
        return Recipe("sentence")

    def _extract(self, document: Document) -> Extraction:
        return Extraction(document, sentence_units(document), ExtractionStatistics())


class DocumentExtractor(_RuleExtractor):
    """Every document is one unit `[title] text` (the paper's ablation "w. documents")."""

    @property
    def recipe(self) -> Recipe:
        """Only a name: nothing else matters."""
        return Recipe("document")

    def _extract(self, document: Document) -> Extraction:
        unit = TextUnit(document.title, lines_of(document), document.id)
        return Extraction(document, (unit,) if document.text.strip() else (), ExtractionStatistics())


class PhraseExtractor(_RuleExtractor):
    """Every content phrase is a tail; the words before it say how the head relates to it.

    An open head is the sentence's subject, else that of a sentence before it, else the title.
    """

    # Ours, in place of a KG generator (TRACE, section 3.2) where a model is too small or too slow to be one: nothing
    # can be invented, nothing is evaluated, and nearly every name, date and number of a text becomes a triple. For
    # English; the sentences of a document in another language stand in.

    def __init__(self, *, heads: Heads = "auto") -> None:
        self._heads = heads

    @property
    def recipe(self) -> Recipe:
        """Name and version of the rules, and which heads there are."""
        return Recipe("phrase", options={"rules": 1, **heads_option(self._heads)})

    def _extract(self, document: Document) -> Extraction:
        language = language_of(document)
        open_heads = language == LANGUAGE and has_open_heads(document, self._heads)
        name = document.title
        triples: dict[tuple[str, str], Triple] = {}
        for index, sentence in enumerate(document.sentences):
            phrases = None
            if open_heads and (subject := sentence_subject(sentence)) is not None:
                start, end = subject
                name = sentence[start:end]
                phrases = [*content_phrases(sentence[:start]), *_predicates(sentence[end:])]
            head = name.casefold()
            for phrase in content_phrases(sentence, language=language) if phrases is None else phrases:
                tail = phrase.text.casefold()
                # The head itself, or with another name of it, says nothing of it.
                if tail in head or (head in tail and (not phrase.before or len(tail) < len(head) + _LITTLE_MORE)):
                    continue
                triple = Triple(name, phrase.before or NO_RELATION, phrase.text, document.id, index, 100.0)
                triples.setdefault((head, tail), triple)
        if not triples:
            reason = (
                "no phrase was found"
                if language == LANGUAGE
                else f"phrases are known in English only, not in {language!r}"
            )
            failure = f"{reason}; the document's sentences stand in" if document.text.strip() else ""
            return Extraction(document, sentence_units(document), ExtractionStatistics(failure=failure))
        count = len(triples)
        return Extraction(document, tuple(triples.values()), ExtractionStatistics(lines=count, parsed=count))


def _predicates(text: str) -> list[Phrase]:
    """Find the phrases of what is said of a subject; a verb that the first one begins with belongs to the relation."""
    phrases = content_phrases(text)
    if phrases and not phrases[0].before:
        verb, _, tail = phrases[0].text.partition(" ")
        if tail and verb.islower():
            phrases[0] = Phrase(tail, verb)
    return phrases


def sentence_units(document: Document, indices: Iterable[int] | None = None) -> tuple[TextUnit, ...]:
    """Return a document's sentences, or those of some indices, as units."""
    chosen = range(len(document.sentences)) if indices is None else indices
    return tuple(
        TextUnit(document.title, document.sentences[index], document.id, index)
        for index in chosen
        if document.sentences[index].strip()
    )


def build_graph(
    graph: TripleStore,
    extractor: Extractor,
    documents: Iterable[Document] | None = None,
    *,
    done: Callable[[Extraction], object] | None = None,
    retry: bool = False,
) -> int:
    """Extract the documents that a graph does not have yet, and store each as soon as it is finished."""
    count = 0

    def keep(extraction: Extraction) -> None:
        nonlocal count
        graph.add(extraction.document, extraction.units, extraction.statistics)
        count += 1
        if done is not None:
            done(extraction)

    missing = graph.pending(failed=retry) if documents is None else graph.iterate_missing(documents, failed=retry)
    extractor.extract_each(missing, keep)
    return count
