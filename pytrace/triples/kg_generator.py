"""The KG generator: a language model writes documents' triples after a few labelled texts.

Source: TRACE, section 3.2 and Appendix B.1 (the title as every head), Appendix C.4 (demonstrations by similarity). Ours beyond it:
texts whose facts have heads of their own, and grounding, since a small model makes heads and tails up.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pytrace.documents import DocumentChunk, is_pronoun, split_document
from pytrace.errors import ContextOverflowError, InputError, ModelError
from pytrace.kernels.similarity import top_k
from pytrace.models.encoders.encoder import Encoder
from pytrace.models.language_model import Completion, LanguageModel, Prompt
from pytrace.reader.prompts import OpenTripleDemonstration, TripleDemonstration
from pytrace.records import Document, Triple, Unit
from pytrace.triples.extraction import Extraction, Extractor, Heads, has_open_heads, heads_option, sentence_units
from pytrace.triples.graph import ExtractionStatistics, Recipe
from pytrace.triples.parsing import locate, parse_triples, span_grammar

TITLE_INSTRUCTION = (
    "Read the title and the text, and write down every fact of the text as a knowledge triple <title; relation; tail>. "
    "The tail is a phrase copied from the text; the relation says how the title relates to it."
)
OPEN_INSTRUCTION = (
    "Read the text and write down every fact of it as a knowledge triple <head; relation; tail>. Head and tail are phrases "
    "copied from the text: the head is who or what the fact is about, by name and not by a pronoun, the tail what is said of it. "
    "The relation says how they belong together."
)
# A model that goes on after its triples writes the next text of the prompt's pattern.
TITLE_STOP = ("\n\n", "Title:")
OPEN_STOP = ("\n\n", "\nHeading:", "\nText:")
# Longer documents are read in parts: extraction misses facts in long texts long before the context is full.
PART_TOKENS = 256
# So many parts of a long document are named in the reason of its failure.
_PARTS_NAMED = 3

Labelled = Sequence[TripleDemonstration | OpenTripleDemonstration]


@dataclass(slots=True, eq=False)
class _Reading:
    """A document on its way through the model: what was written for each of its parts, or why nothing could be.

    `title` is what the prompt says of it: its title, or for open heads the headings above it ("" if there are none).
    """

    document: Document
    title: str
    open_heads: bool
    parts: list[DocumentChunk]
    fault: str = ""
    completions: dict[int, Completion | str] = field(default_factory=dict)


class LanguageModelExtractor(Extractor):
    """The KG generator: a language model writes `<head; relation; tail>` lines after a few labelled documents."""

    def __init__(
        self,
        model: LanguageModel,
        *,
        encoder: Encoder | None = None,
        demonstrations: int = 3,
        labelled: Labelled | None = None,
        open_labelled: Labelled | None = None,
        heads: Heads = "auto",
        grounding: float = 80.0,
        spans: bool = False,
        batch: int = 128,
    ) -> None:
        if demonstrations < 0:
            raise ValueError(f"demonstrations must be 0 or more, not {demonstrations}")
        self._model = model
        self._encoder = encoder
        self._heads = heads
        rows: dict[bool, Labelled] = {}  # by whether heads are open
        if heads != "open":
            rows[False] = TripleDemonstration.load() if labelled is None else labelled
        if heads != "title":
            rows[True] = OpenTripleDemonstration.load() if open_labelled is None else open_labelled
        self._prompts = {
            open_heads: TriplePrompts(shown, open_heads=open_heads, demonstrations=demonstrations, encoder=encoder)
            for open_heads, shown in rows.items()
        }
        self._demonstrations = min(demonstrations, max(map(len, rows.values())))
        self._grounding = grounding
        self._spans = spans
        self._batch = max(batch, 1)
        # A part, its triples (three times as long) and the instruction fit the context even without demonstrations.
        self._part_tokens = max(min(PART_TOKENS, model.context_tokens // 6), 1)
        self._stop = TITLE_STOP if heads == "title" else (*TITLE_STOP, *OPEN_STOP)

    @property
    def recipe(self) -> Recipe:
        """The model, the prompt with its demonstrations, the encoder that chooses them, and the options."""
        prompt = "\n".join(prompts.text for prompts in self._prompts.values())
        return Recipe(
            "language-model",
            model=self._model.fingerprint,
            prompt=hashlib.sha256(prompt.encode()).hexdigest(),
            options={
                "demonstrations": self._demonstrations,
                "chosen by": self._encoder.fingerprint if self._encoder is not None else "order",
                "grounding": self._grounding,
                "spans": self._spans,
                "part tokens": self._part_tokens,
                **heads_option(self._heads),
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
        open_heads = has_open_heads(document, self._heads)
        reading = _Reading(document, _headings(document) if open_heads else document.title, open_heads, [])
        title_tokens = self._model.count_tokens(reading.title)
        if title_tokens > self._part_tokens:
            # A title stands in every line; nothing can be extracted under one that is a text by itself.
            if not open_heads:
                reading.fault = f"its title has {title_tokens} tokens of at most {self._part_tokens}"
                return reading
            reading.title = ""
        try:
            parts = split_document(document, self._part_tokens, self._model.count_tokens)
        except InputError as error:
            reading.fault = str(error)
            return reading
        reading.parts = [part for part in parts if part.document.text.strip()]
        reading.fault = "" if reading.parts else "it has no words"
        return reading

    def _write(self, window: list[tuple[_Reading, int]], done: Callable[[Extraction], object]) -> None:
        """Let the model write for all pieces, and finish each document when its last piece is written."""
        parts = [(reading, reading.parts[number].document) for reading, number in window]
        made = {
            open_heads: iter(prompts.make([(of.title, part.text) for of, part in parts if of.open_heads == open_heads]))
            for open_heads, prompts in self._prompts.items()
        }
        prompts = [next(made[reading.open_heads]) for reading, _ in parts]
        # A triple repeats the title and adds a relation: a text's facts take about three times its own tokens.
        caps = [3 * self._model.count_tokens(part.text) + 48 for _, part in parts]
        grammars = self._spans and [
            span_grammar(reading.title, part.sentences, open_heads=reading.open_heads) for reading, part in parts
        ]
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
                    stop=self._stop,
                    grammar=[grammars[index] for index in group] if grammars else None,
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
            self._model.generate(["."], max_tokens=1, stop=self._stop, grammar=grammar)
        except ModelError:
            raise error from None

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
            title = "" if reading.open_heads else document.title
            output = f"<{completion.text}" if reading.open_heads else f"<{title};{completion.text}"
            parsed = parse_triples(output, title, complete=not _cut_off(completion))
            new: dict[tuple[str, str, str], Triple] = {}
            known = False
            for head, relation, tail in parsed.triples:
                if reading.open_heads and (is_pronoun(head) or is_pronoun(tail) or head == tail):
                    dropped += 1  # a fact about nothing that is named
                    continue
                key = (head.casefold(), relation.casefold(), tail.casefold())
                if key in new or key in seen:
                    repeated += 1
                    known = known or seen.get(key, False)
                else:
                    new[key] = Triple(head, relation, tail, document.id)
            heading = reading.title if reading.open_heads else None
            located = locate(part.document, list(new.values()), part.indices, heading=heading)
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


def _headings(document: Document) -> str:
    """Return the title and headings above a passage; the name of a file is neither."""
    origin = document.origin
    return "" if origin is not None and not (origin.titled or origin.headings) else document.title


class TriplePrompts:
    """An instruction and labelled texts, of which each document is shown some: the first, or by an encoder the nearest."""

    def __init__(
        self,
        labelled: Labelled,
        *,
        open_heads: bool,
        demonstrations: int,
        encoder: Encoder | None,
    ) -> None:
        self._open_heads = open_heads
        self._instruction = OPEN_INSTRUCTION if open_heads else TITLE_INSTRUCTION
        self._texts = [(shown.title or "", shown.text) for shown in labelled]
        self._shown = tuple(
            (self._input(*text), "\n".join(triple.text for triple in shown.triples))
            for text, shown in zip(self._texts, labelled, strict=True)
        )
        self._demonstrations = min(demonstrations, len(self._shown))
        self._encoder = encoder
        self._vectors: NDArray[np.float32] | None = None

    @property
    def text(self) -> str:
        """All that a prompt may show, for a recipe."""
        return "\n".join([self._instruction, *(given + output for given, output in self._shown)])

    def make(self, inputs: Sequence[tuple[str, str]]) -> list[Prompt]:
        """Make the prompts of texts with their titles, or the headings above them."""
        return [
            Prompt(
                self._instruction,
                shown,
                self._input(title, text),
                answer_start="<" if self._open_heads else f"<{title};",
                separator="\n",
            )
            for (title, text), shown in zip(inputs, self._chosen(inputs), strict=True)
        ]

    def _chosen(self, inputs: Sequence[tuple[str, str]]) -> Sequence[tuple[tuple[str, str], ...]]:
        if self._encoder is None or not self._demonstrations or not inputs:
            return [self._shown[: self._demonstrations]] * len(inputs)
        if self._vectors is None:
            self._vectors = self._encoder.encode([_joined(*text) for text in self._texts])
        _, indices = top_k(
            self._encoder.encode([_joined(*text) for text in inputs]), self._vectors, self._demonstrations
        )
        # The nearest stands last, next to the document, and is the last to go where the context is short.
        return [tuple(self._shown[index] for index in row) for row in indices[:, ::-1].tolist()]

    def _input(self, title: str, text: str) -> str:
        if not self._open_heads:
            return f"Title: {title}\nText: {text}\nTriples:"
        return f"Heading: {title}\nText: {text}\nTriples:" if title else f"Text: {text}\nTriples:"


def _joined(title: str, text: str) -> str:
    return f"{title}. {text}" if title else text
