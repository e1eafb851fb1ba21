"""Documents become triples: the KG generator of TRACE, and three extractors that need no language model.

Source: TRACE, section 3.2 and Appendix B.1. A document is read by itself, with its title as the head entity, so that the
work can be stored by content and done once. Many documents are read at once, and each is finished, and stored, as soon as
the model has written about it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from pytrace.documents import DocumentChunk, content_phrases, split_document
from pytrace.documents.languages import language_of
from pytrace.documents.phrases import LANGUAGE
from pytrace.errors import ContextOverflowError, InputError, ModelError
from pytrace.kernels.similarity import top_k
from pytrace.models.encoders.encoder import Encoder
from pytrace.models.language_model import Completion, LanguageModel, Prompt
from pytrace.reader.prompts import TripleDemonstration
from pytrace.records import Document, TextUnit, Triple, Unit
from pytrace.triples.graph import ExtractionStatistics, Recipe, TripleStore
from pytrace.triples.parsing import locate, parse_triples, span_grammar

INSTRUCTION = (
    "Read the title and the text, and write down every fact of the text as a knowledge triple <title; relation; tail>. "
    "The tail is a phrase copied from the text; the relation says how the title relates to it."
)
# Longer documents are read in parts: extraction misses facts in long texts long before the context is full.
PART_TOKENS = 256
# How a title relates to a phrase that no words stand before.
NO_RELATION = "about"
# A phrase that holds the title and less than so many characters more is another form of it ("Rome's"), and no fact.
_LITTLE_MORE = 4
# A model that goes on after its triples writes the next document of the prompt's pattern.
_STOP = ("\n\n", "Title:")
# So many parts of a long document are named in the reason of its failure.
_PARTS_NAMED = 3


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
        unit = TextUnit(document.title, document.text, document.id)
        return Extraction(document, (unit,) if document.text.strip() else (), ExtractionStatistics())


class PhraseExtractor(_RuleExtractor):
    """Every content phrase is a tail; the words before it say how the title relates to it."""

    # Ours, in place of a KG generator (TRACE, section 3.2) where a model is too small or too slow to be one: nothing
    # can be invented, nothing is evaluated, and nearly every name, date and number of a text becomes a triple. For
    # English; the sentences of a document in another language stand in.

    @property
    def recipe(self) -> Recipe:
        """Name and version of the rules."""
        return Recipe("phrase", options={"rules": 1})

    def _extract(self, document: Document) -> Extraction:
        language = language_of(document)
        title = document.title.casefold()
        triples: dict[str, Triple] = {}
        for index, sentence in enumerate(document.sentences):
            for phrase in content_phrases(sentence, language=language):
                tail = phrase.text.casefold()
                # The title itself, or with another name of it, says nothing of it.
                if tail in title or (title in tail and (not phrase.before or len(tail) < len(title) + _LITTLE_MORE)):
                    continue
                relation = phrase.before or NO_RELATION
                triples.setdefault(tail, Triple(document.title, relation, phrase.text, document.id, index, 100.0))
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


def sentence_units(document: Document, indices: Iterable[int] | None = None) -> tuple[TextUnit, ...]:
    """Return a document's sentences, or those of some indices, as units."""
    chosen = range(len(document.sentences)) if indices is None else indices
    return tuple(
        TextUnit(document.title, document.sentences[index], document.id, index)
        for index in chosen
        if document.sentences[index].strip()
    )


@dataclass(slots=True, eq=False)
class _Reading:
    """A document on its way through the model: what was written for each of its parts, or why nothing could be."""

    document: Document
    parts: list[DocumentChunk]
    fault: str = ""
    completions: dict[int, Completion | str] = field(default_factory=dict)


class LanguageModelExtractor(Extractor):
    """The KG generator: a language model writes `<title; relation; tail>` lines after a few labelled documents."""

    # Three demonstrations by similarity as in Appendix C.4. Grounding is ours: a small model makes tails up.

    def __init__(
        self,
        model: LanguageModel,
        *,
        encoder: Encoder | None = None,
        demonstrations: int = 3,
        labelled: Sequence[TripleDemonstration] | None = None,
        grounding: float = 80.0,
        spans: bool = False,
        batch: int = 128,
    ) -> None:
        if demonstrations < 0:
            raise ValueError(f"demonstrations must be 0 or more, not {demonstrations}")
        self._model = model
        self._encoder = encoder
        self._labelled = tuple(TripleDemonstration.load() if labelled is None else labelled)
        self._shown = tuple(
            (_input(shown.title, shown.text), "\n".join(triple.text for triple in shown.triples))
            for shown in self._labelled
        )
        self._demonstrations = min(demonstrations, len(self._labelled))
        self._grounding = grounding
        self._spans = spans
        self._batch = max(batch, 1)
        # A part, its triples (three times as long) and the instruction fit the context even without demonstrations.
        self._part_tokens = max(min(PART_TOKENS, model.context_tokens // 6), 1)
        self._labelled_vectors: NDArray[np.float32] | None = None

    @property
    def recipe(self) -> Recipe:
        """The model, the prompt with its demonstrations, the encoder that chooses them, and the options."""
        prompt = [INSTRUCTION, *(given + output for given, output in self._shown)]
        return Recipe(
            "language-model",
            model=self._model.fingerprint,
            prompt=hashlib.sha256("\n".join(prompt).encode()).hexdigest(),
            options={
                "demonstrations": self._demonstrations,
                "chosen by": self._encoder.fingerprint if self._encoder is not None else "order",
                "grounding": self._grounding,
                "spans": self._spans,
                "part tokens": self._part_tokens,
                **({"deterministic": True} if self._model.deterministic else {}),
            },
        )

    def extract_each(self, documents: Iterable[Document], done: Callable[[Extraction], object]) -> None:
        """Extract the triples of any number of documents and hand each to `done` as soon as it is finished."""
        # A document that is too long is read in parts. The sentences of a part without a sound triple, or at which the
        # model raises `ModelError`, stand in for it, and the document's statistics say why (`failure`); the others are
        # not held up by it.
        window: list[tuple[_Reading, int]] = []
        for document in documents:
            reading = self._split(document)
            if not reading.parts:
                done(self._finish(reading))
            for number in range(len(reading.parts)):
                window.append((reading, number))
                if len(window) == self._batch:
                    self._write(window, done)
                    window.clear()
        if window:
            self._write(window, done)

    def _split(self, document: Document) -> _Reading:
        title_tokens = self._model.count_tokens(document.title)
        if title_tokens > self._part_tokens:
            # A title stands in every line; nothing can be extracted under one that is a text by itself.
            return _Reading(document, [], f"its title has {title_tokens} tokens of at most {self._part_tokens}")
        try:
            parts = split_document(document, self._part_tokens, self._model.count_tokens)
        except InputError as error:
            return _Reading(document, [], str(error))
        parts = [part for part in parts if part.document.text.strip()]
        return _Reading(document, parts, "" if parts else "it has no words")

    def _write(self, window: list[tuple[_Reading, int]], done: Callable[[Extraction], object]) -> None:
        """Let the model write for all pieces, and finish each document when its last piece is written."""
        parts = [(reading.document.title, reading.parts[number]) for reading, number in window]
        texts = [(title, part.document.text) for title, part in parts]
        prompts = self._prompts(texts)
        # A triple repeats the title and adds a relation: a text's facts take about three times its own tokens.
        caps = [3 * self._model.count_tokens(text) + 48 for _, text in texts]
        grammars = [span_grammar(title, part.document.sentences) for title, part in parts] if self._spans else None
        written = [False] * len(window)
        stopped: list[BaseException] = []

        def finish(index: int, result: Completion | str) -> None:
            reading, number = window[index]
            written[index] = True
            reading.completions[number] = result
            if len(reading.completions) == len(reading.parts):
                try:
                    done(self._finish(reading))
                except BaseException as error:
                    stopped.append(error)  # not the model's own, whatever its kind
                    raise

        groups = [list(range(len(window)))]
        while groups:
            group = groups.pop()
            try:
                rows = self._model.generate(
                    [prompts[index] for index in group],
                    max_tokens=[caps[index] for index in group],
                    stop=_STOP,
                    grammar=None if grammars is None else [grammars[index] for index in group],
                    done=lambda index, row, indices=group: finish(indices[index], row[0]),  # type: ignore[misc]
                )
            except ModelError as error:
                left = [index for index in group if not written[index]]
                if stopped or not left:
                    raise
                if not isinstance(error, ContextOverflowError):
                    self._check_that_it_works(error)
                if len(left) == 1:
                    finish(left[0], str(error))
                else:  # the one at fault is found by halving; the rest of the call is not lost
                    groups += [left[len(left) // 2 :], left[: len(left) // 2]]
            else:
                for index, row in zip(group, rows, strict=True):
                    if not written[index]:  # by a model that does not say when a prompt is finished
                        finish(index, row[0])

    def _check_that_it_works(self, error: ModelError) -> None:
        """Tell a model that fails at one document from one that fails at everything, and raise the latter's error."""
        grammar = span_grammar("A", ["B"]) if self._spans else None  # a back end may know none
        try:
            self._model.generate(["."], max_tokens=1, stop=_STOP, grammar=grammar)
        except ModelError:
            raise error from None

    def _prompts(self, inputs: list[tuple[str, str]]) -> list[Prompt]:
        if self._encoder is None or not self._demonstrations:
            chosen = [self._shown[: self._demonstrations]] * len(inputs)
        else:
            if self._labelled_vectors is None:
                self._labelled_vectors = self._encoder.encode([f"{d.title}. {d.text}" for d in self._labelled])
            vectors = self._encoder.encode([f"{title}. {text}" for title, text in inputs])
            _, indices = top_k(vectors, self._labelled_vectors, self._demonstrations)
            # The nearest stands last, next to the document, and is the last to go where the context is short.
            chosen = [tuple(self._shown[i] for i in row) for row in indices[:, ::-1].tolist()]
        return [
            Prompt(INSTRUCTION, shown, _input(title, text), answer_start=f"<{title};", separator="\n")
            for (title, text), shown in zip(inputs, chosen, strict=True)
        ]

    def _finish(self, reading: _Reading) -> Extraction:
        """Read what the model wrote about a document."""
        document = reading.document
        kept: list[Unit] = []
        failed: list[tuple[int, str]] = []
        lines = sound = dropped = repeated = 0
        seen: dict[tuple[str, str, str], bool] = {}  # whether what was said is sound
        for number, part in enumerate(reading.parts):
            completion = reading.completions[number]
            if isinstance(completion, str):
                failed.append((number, completion))
                continue
            output = f"<{document.title};{completion.text}"
            parsed = parse_triples(output, document.title, complete=not _cut_off(completion))
            new: dict[tuple[str, str, str], Triple] = {}
            known = False
            for head, relation, tail in parsed.triples:
                key = (head.casefold(), relation.casefold(), tail.casefold())
                if key in new or key in seen:
                    repeated += 1
                    known = known or seen.get(key, False)
                else:
                    new[key] = Triple(head, relation, tail, document.id)
            located = locate(part.document, list(new.values()), part.indices)
            grounded = [triple for triple in located if triple.support >= self._grounding]
            seen.update((key, triple.support >= self._grounding) for key, triple in zip(new, located, strict=True))
            lines += parsed.lines
            dropped += parsed.malformed + len(located) - len(grounded)
            sound += len(grounded)
            kept += grounded
            if not grounded and not known:
                failed.append((number, f"no sound triple in {parsed.lines} lines"))
        failure = ""
        if failed or not reading.parts:
            kept, failure = self._stand_in(reading, kept, failed)
        cut_off = any(isinstance(written, Completion) and _cut_off(written) for written in reading.completions.values())
        statistics = ExtractionStatistics(lines, sound, dropped, repeated, cut_off, failure)
        return Extraction(document, tuple(kept), statistics)

    def _stand_in(self, reading: _Reading, kept: list[Unit], failed: list[tuple[int, str]]) -> tuple[list[Unit], str]:
        """Put the sentences of failed parts in their place, and say why."""
        document = reading.document
        if not kept:
            reason = failed[0][1] if failed else reading.fault
            if len(reading.parts) > 1:
                reason = _named_parts(failed, len(reading.parts))
            return list(sentence_units(document)), f"{reason}; the document's sentences stand in"
        units = sentence_units(document, sorted({i for number, _ in failed for i in reading.parts[number].indices}))
        reason = f"{_named_parts(failed, len(reading.parts))}; their sentences stand in"
        return sorted([*kept, *units], key=lambda unit: unit.sentence), reason


def _cut_off(completion: Completion) -> bool:
    return completion.finish in {"length", "repetition"}


def _named_parts(failed: list[tuple[int, str]], parts: int) -> str:
    named = "; ".join(f"part {number + 1} of {parts}: {reason}" for number, reason in failed[:_PARTS_NAMED])
    more = len(failed) - _PARTS_NAMED
    return f"{named}; and {more} parts more" if more > 0 else named


def _input(title: str, text: str) -> str:
    return f"Title: {title}\nText: {text}\nTriples:"


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
