"""Documents become triples: the KG generator of TRACE, and two extractors that need no language model.

Source: TRACE, section 3.2 and Appendix B.1. A document is read by itself, with its title as the head entity, so that the
work can be stored by content and done once.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from pytrace.documents import split_document
from pytrace.graph import ExtractionStatistics, KnowledgeGraph, Recipe
from pytrace.kernels.fuzzy import cdist, partial_ratio
from pytrace.kernels.similarity import top_k
from pytrace.models.encoder import Encoder
from pytrace.models.language_model import Completion, LanguageModel, Prompt
from pytrace.prompts import TripleDemonstration, triple_demonstrations
from pytrace.records import Document, Triple

INSTRUCTION = (
    "Read the title and the text, and write down every fact of the text as a knowledge triple <title; relation; tail>. "
    "The tail is a phrase copied from the text; the relation says how the title relates to it."
)
# Longer documents are read in parts: extraction misses facts in long texts long before the context is full.
PART_TOKENS = 256


class Extraction(msgspec.Struct, frozen=True):
    """A document's triples, and what was dropped on the way."""

    document: Document
    triples: tuple[Triple, ...]
    statistics: ExtractionStatistics


class Extractor(Protocol):
    """Turns documents into triples; `recipe` names everything that the result depends on."""

    @property
    def recipe(self) -> Recipe:
        """Everything that the triples depend on: extractor, model, prompt, options."""
        ...

    def extract(self, documents: Sequence[Document]) -> list[Extraction]:
        """Extract the triples of every document, in the documents' order; none is left out."""
        ...


class SentenceExtractor:
    """Every sentence is a unit, without a language model (the paper's ablation "w. sentences")."""

    @property
    def recipe(self) -> Recipe:
        """Only a name: nothing else matters."""
        return Recipe("sentence")

    def extract(self, documents: Sequence[Document]) -> list[Extraction]:
        """Make one unit `[title] sentence` a sentence."""
        return [Extraction(document, sentence_units(document), ExtractionStatistics()) for document in documents]


class DocumentExtractor:
    """Every document is one unit (the paper's ablation "w. documents")."""

    @property
    def recipe(self) -> Recipe:
        """Only a name: nothing else matters."""
        return Recipe("document")

    def extract(self, documents: Sequence[Document]) -> list[Extraction]:
        """Make one unit `[title] text` a document."""
        return [
            Extraction(
                document,
                (Triple(document.title, "", document.text, document.id, -1, 100.0),) if document.text.strip() else (),
                ExtractionStatistics(),
            )
            for document in documents
        ]


def sentence_units(document: Document) -> tuple[Triple, ...]:
    """Return a document's sentences as units: the title as head, no relation, the sentence as tail."""
    return tuple(
        Triple(document.title, "", sentence, document.id, index, 100.0)
        for index, sentence in enumerate(document.sentences)
        if sentence.strip()
    )


class LanguageModelExtractor:
    """The KG generator: a language model writes `<title; relation; tail>` lines after a few labelled documents.

    Parameters
    ----------
    model
        Any language model.
    encoder
        Chooses the demonstrations nearest to each document (adaptive, the paper's way); None takes the first ones of the
        file for all documents, whose shared beginning is then evaluated once.
    demonstrations
        How many labelled documents to show.
    labelled
        The labelled documents to choose from; ours if not given.
    grounding
        Drop a triple whose tail no sentence of the document supports this well (partial ratio, 0 to 100; 0 keeps all).
    spans
        Let the model write only tails that are spans of the text, by a grammar; it then cannot make any up. Costs a check
        of the grammar at every token.
    batch
        Documents in one call of the model.

    Notes
    -----
    TRACE, section 3.2 and Appendix B.1; three demonstrations by similarity as in Appendix C.4. Grounding is ours: a small
    model makes tails up.
    """

    def __init__(
        self,
        model: LanguageModel,
        *,
        encoder: Encoder | None = None,
        demonstrations: int = 3,
        labelled: Sequence[TripleDemonstration] | None = None,
        grounding: float = 80.0,
        spans: bool = False,
        batch: int = 32,
    ) -> None:
        if demonstrations < 0:
            message = f"demonstrations must be 0 or more, not {demonstrations}"
            raise ValueError(message)
        self._model = model
        self._encoder = encoder
        self._labelled = tuple(triple_demonstrations() if labelled is None else labelled)
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
        prompt = [INSTRUCTION, *(_input(one.title, one.text) + _output(one) for one in self._labelled)]
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
            },
        )

    def extract(self, documents: Sequence[Document]) -> list[Extraction]:
        """Extract the triples of every document, in the documents' order.

        A document that is too long is read in parts; one without a sound triple is represented by its sentences, and its
        statistics say so.
        """
        results = []
        for start in range(0, len(documents), self._batch):
            results += self._extract_batch(documents[start : start + self._batch])
        return results

    def _extract_batch(self, documents: Sequence[Document]) -> list[Extraction]:
        parts: list[tuple[int, Document]] = []
        for index, document in enumerate(documents):
            if self._model.count_tokens(document.title) > self._part_tokens:
                continue  # a title stands in every line; nothing can be extracted under one that is a text by itself
            parts += [
                (index, part.document)
                for part in split_document(document, self._part_tokens, self._model.count_tokens)
                if part.document.text.strip()
            ]
        prompts = self._prompts([(documents[index].title, part.text) for index, part in parts])
        # A triple repeats the title and adds a relation: a text's facts take about three times its own tokens.
        caps = [3 * self._model.count_tokens(part.text) + 48 for _, part in parts]
        grammars = (
            [span_grammar(documents[index].title, part.sentences) for index, part in parts] if self._spans else None
        )
        completions = (
            self._model.generate(prompts, max_tokens=caps, stop=("\n\n", "Title:"), grammar=grammars) if prompts else []
        )
        outputs: list[list[Completion]] = [[] for _ in documents]
        for (index, _), completion in zip(parts, completions, strict=True):
            outputs[index].append(completion[0])
        return [self._read(document, output) for document, output in zip(documents, outputs, strict=True)]

    def _prompts(self, inputs: list[tuple[str, str]]) -> list[Prompt]:
        chosen: list[list[int]]
        if self._encoder is None or not self._demonstrations:
            chosen = [list(range(self._demonstrations)) for _ in inputs]
        else:
            if self._labelled_vectors is None:
                self._labelled_vectors = self._encoder.encode([f"{d.title}. {d.text}" for d in self._labelled])
            vectors = self._encoder.encode([f"{title}. {text}" for title, text in inputs])
            _, indices = top_k(vectors, self._labelled_vectors, self._demonstrations)
            # The nearest stands last, next to the document, and is the last to go where the context is short.
            chosen = [row[::-1].tolist() for row in indices]
        return [
            Prompt(
                INSTRUCTION,
                tuple(
                    (_input(self._labelled[i].title, self._labelled[i].text), _output(self._labelled[i])) for i in row
                ),
                _input(title, text),
                answer_start=f"<{title};",
                separator="\n",
            )
            for (title, text), row in zip(inputs, chosen, strict=True)
        ]

    def _read(self, document: Document, completions: list[Completion]) -> Extraction:
        triples: list[Triple] = []
        lines = malformed = repeated = 0
        seen: set[tuple[str, str, str]] = set()
        for completion in completions:
            parsed = parse_triples(
                f"<{document.title};{completion.text}",
                document.title,
                complete=completion.finish not in {"length", "repetition"},
            )
            lines += parsed.lines
            malformed += parsed.malformed
            for head, relation, tail in parsed.triples:
                key = (head.casefold(), relation.casefold(), tail.casefold())
                if key in seen:
                    repeated += 1
                else:
                    seen.add(key)
                    triples.append(Triple(head, relation, tail, document.id))
        located = locate(document, triples)
        grounded = [triple for triple in located if triple.support >= self._grounding]
        failure = "" if grounded else f"no sound triple in {lines} lines; the document's sentences stand in"
        statistics = ExtractionStatistics(
            lines=lines,
            parsed=len(grounded),
            dropped=malformed + len(located) - len(grounded),
            repeated=repeated,
            truncated=any(completion.finish in {"length", "repetition"} for completion in completions),
            failure=failure,
        )
        return Extraction(document, tuple(grounded) or sentence_units(document), statistics)


def build_graph(
    graph: KnowledgeGraph,
    extractor: Extractor,
    documents: Iterable[Document],
    *,
    batch: int = 16,
    done: Callable[[Extraction], object] | None = None,
    retry: bool = False,
) -> int:
    """Extract the documents that a graph does not have yet, and store each as soon as its batch is done.

    Parameters
    ----------
    graph
        An open graph of the extractor's recipe. A program killed on the way loses the batch in flight and nothing else.
    extractor
        Makes the triples.
    documents
        Any documents; those whose content is known cost nothing.
    batch
        Documents handed to the extractor at once.
    done
        Called after each document is stored, for progress.
    retry
        Extract again what failed before.

    Returns
    -------
    int
        How many documents were extracted now.
    """
    count = 0
    for group in _batched(documents, batch):
        for extraction in extractor.extract(graph.missing(group, failed=retry)):
            graph.add(extraction.document, extraction.triples, extraction.statistics)
            count += 1
            if done is not None:
                done(extraction)
    return count


def _batched(documents: Iterable[Document], size: int) -> Iterator[list[Document]]:
    iterator = iter(documents)
    while group := list(islice(iterator, max(size, 1))):
        yield group


def locate(document: Document, triples: Sequence[Triple]) -> list[Triple]:
    """Give every triple the sentence that supports its tail best (partial ratio; the relation decides ties)."""
    sentences = [(index, sentence) for index, sentence in enumerate(document.sentences) if sentence.strip()]
    if not triples or not sentences:
        return list(triples)
    texts = [text.casefold() for _, text in sentences]
    tails = cdist([triple.tail.casefold() for triple in triples], texts, scorer=partial_ratio)
    relations = cdist([triple.relation.casefold() for triple in triples], texts, scorer=partial_ratio)
    best = (tails + relations * 1e-3).argmax(axis=1)
    return [
        msgspec.structs.replace(triple, sentence=sentences[column][0], support=round(float(tails[row, column]), 1))
        for row, (triple, column) in enumerate(zip(triples, best.tolist(), strict=True))
    ]


class ParsedTriples(msgspec.Struct):
    """The (head, relation, tail) of a model's output, how many lines it had and how many could not be read."""

    triples: list[tuple[str, str, str]]
    lines: int = 0
    malformed: int = 0


_WORD = re.compile(r"\w+(?:['’.,-]\w+)*")


def span_grammar(title: str, sentences: Sequence[str]) -> str:
    r"""Return a GBNF grammar of `relation; tail>` lines for a title whose tails are spans of whole words of a sentence.

    The text that it accepts follows `<title;`. A relation is free text of at most 48 characters.

    Examples
    --------
    >>> print(span_grammar("Rome", ["In Italy."]))
    root ::= " " relation "; " tail ">" ("\\n<Rome; " relation "; " tail ">")* "\\n\\n"?
    relation ::= [a-zA-Z] [a-zA-Z0-9 ',-]{0,47}
    tail ::= w0 | w1
    w0 ::= "In" (" " w1)?
    w1 ::= "Italy"
    """
    rules: list[str] = []
    for sentence in sentences:
        words = list(_WORD.finditer(sentence))
        for position, word in enumerate(words):
            rule = f'w{len(rules)} ::= "{_escaped(word.group())}"'
            if position + 1 < len(words):
                between = sentence[word.end() : words[position + 1].start()]
                rule += f' ("{_escaped(between)}" w{len(rules) + 1})?'
            rules.append(rule)
    line = f'" " relation "; " tail ">" ("\\n<{_escaped(title)}; " relation "; " tail ">")* "\\n\\n"?'
    tails = " | ".join(f"w{number}" for number in range(len(rules))) or '""'
    return "\n".join([f"root ::= {line}", "relation ::= [a-zA-Z] [a-zA-Z0-9 ',-]{0,47}", f"tail ::= {tails}", *rules])


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")


_BULLET = re.compile(r"^\s*(?:[-*•]\s+|\d{1,3}[.)]\s+)")
_BETWEEN = re.compile(r">\s*[,;.]?\s*(?=<)")
_CLOSING = re.compile(r">[\s>,;.]*$")


def parse_triples(text: str, title: str, *, complete: bool = True) -> ParsedTriples:
    """Read `<head; relation; tail>` lines leniently.

    A missing bracket is added, several triples on a line are taken apart, a semicolon too many belongs to the tail (or to
    the title, if the title has it), and a triple of two parts gets the title as its head. What has no relation or no tail
    is malformed, and so is the last triple of a text that is not `complete` unless its bracket closes: it may be half a
    fact.

    Examples
    --------
    >>> parse_triples("<Rome; country; Italy>, <river; Tiber", "Rome").triples
    [('Rome', 'country', 'Italy'), ('Rome', 'river', 'Tiber')]
    """
    lines = [line for line in text.splitlines() if line.strip()]
    pieces = [piece for line in lines for piece in _BETWEEN.split(_BULLET.sub("", line).strip())]
    result = ParsedTriples([], lines=len(pieces))
    for number, piece in enumerate(pieces, 1):
        cut_off = number == len(pieces) and not complete and not _CLOSING.search(text)
        triple = None if cut_off else _parse_piece(piece.strip(), title)
        if triple is None:
            result.malformed += 1
        else:
            result.triples.append(triple)
    return result


def _parse_piece(piece: str, title: str) -> tuple[str, str, str] | None:
    closed = _CLOSING.sub("", piece)
    inner = closed.removeprefix("<") if closed != piece else piece.removeprefix("<").rstrip(",.")
    # The title is told by its words and not by semicolons, of which it may have some of its own.
    named, rest = inner.strip()[: len(title)], inner.strip()[len(title) :].lstrip()
    if title and named.casefold() == title.casefold() and rest.startswith(";"):
        head, parts = title, [part.strip() for part in rest[1:].split(";")]
    else:
        first, *parts = [part.strip() for part in inner.lstrip("<").split(";")]
        if len(parts) == 1:
            head, parts = title, [first, *parts]
        else:
            head = first
    if len(parts) < 2 or not (head and parts[0] and parts[1]):
        return None
    return head, parts[0], "; ".join(part for part in parts[1:] if part)


def _input(title: str, text: str) -> str:
    return f"Title: {title}\nText: {text}\nTriples:"


def _output(demonstration: TripleDemonstration) -> str:
    return "\n".join(triple.text for triple in demonstration.triples)
