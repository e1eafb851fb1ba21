"""KS-LLM: triples written from the question select the sentences of an evidence document that the answer is read from.

Source: "KS-LLM: Knowledge Selection of Large Language Models with Evidence Document for Question Answering". A question
becomes triples (section 3.1), the sentences nearest to them are its evidence (3.2), and both together are read (3.3). What
the paper compares it with in Table 1 leaves out one part or another, and is a variant of the same code.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Callable, Sequence
from typing import Literal, get_args

import msgspec

from pytrace.documents import split_sentences
from pytrace.errors import InputError
from pytrace.methods.base import (
    READER_CHOICE,
    Count,
    Documents,
    Method,
    MethodRow,
    Parts,
    Positive,
    Replacement,
    Selected,
    Stages,
    choice,
    register,
)
from pytrace.methods.cot.rationales import Thinker
from pytrace.methods.cot.thinking import NO_CONTEXT
from pytrace.models.encoders.encoder import Encoder
from pytrace.models.language_model import LanguageModel, Prompt
from pytrace.reader.answers import Reading
from pytrace.reader.evidence import document_text
from pytrace.reader.readers import ReaderSettings, make_reader
from pytrace.records import Document, Evidence, TextUnit, Unit, WrittenTriples
from pytrace.retrieval import SentenceIndex
from pytrace.retrieval.nearest_sentences import nearest_sentences
from pytrace.triples.extraction import sentence_units
from pytrace.triples.from_questions import QuestionTriples, TripleConstructor

Variant = Literal["standard", "standard-doc", "cot-doc", "ks-q", "ks-t", "ks-s", "ks-llm"]
VARIANTS: tuple[Variant, ...] = get_args(Variant)
_WITH_TRIPLES = {"ks-t", "ks-s", "ks-llm"}
_WITH_DOCUMENT = {"standard-doc", "cot-doc"}
_WITH_SENTENCES = {"ks-q", "ks-s", "ks-llm"}

WRITE_INSTRUCTION = (
    "Write a short passage of an encyclopedia that tells the facts from which the question can be answered. Write plain "
    "sentences, and do not repeat the question."
)
GENERATED = "generated"
_TITLE = "Background"


class KsSettings(ReaderSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Every choice of the method; the defaults are the paper's where it names one."""

    # k, the sentences that are selected (section 4.4).
    sentences: Positive = 2
    # Put a document's title before each of its sentences before they are embedded; the paper embeds bare sentences.
    titles: bool = False
    # The longest evidence document that is read whole ("standard-doc", "cot-doc"), and the longest that is generated.
    document_tokens: Positive = 300
    # Let the model write an evidence document for a question that has none (section 4.1).
    generate_documents: bool = True
    # At most so many triples a question.
    triples: Positive = 5
    # Labelled questions shown before triples are written.
    triple_demonstrations: Count = 3
    # The longest text that the model writes on the way: the triples of a question, or a thought.
    generated_tokens: Positive = 160
    # Labelled rationales shown before a thought of "cot-doc"; the paper's is zero-shot (section 4.2).
    rationale_demonstrations: Count = 0


class KnowledgeSelection(Method):
    """Answers questions with KS-LLM, or with one of the methods that its paper compares it with."""

    def __init__(
        self,
        model: LanguageModel,
        encoder: Encoder,
        settings: KsSettings | None = None,
        *,
        variant: Variant = "ks-llm",
        name: str = "",
        index: SentenceIndex | None = None,
    ) -> None:
        if variant not in VARIANTS:
            raise InputError(f"there is no variant {variant!r} of KS-LLM; choose one of {', '.join(VARIANTS)}")
        if index is not None and variant not in _WITH_SENTENCES:
            raise InputError(
                f"{variant} selects no sentences and has no use for an index; leave it out, or use one of {', '.join(sorted(_WITH_SENTENCES))}"
            )
        if index is not None and settings is not None and settings.titles:
            raise InputError(
                "an index holds sentences as they are, so titles=true cannot be had with one; leave out either"
            )
        self._index = index
        self.settings = settings or KsSettings()
        self.variant = variant
        self.name = name or variant
        self._model = model
        self._encoder = encoder
        self._constructor = TripleConstructor(
            model,
            demonstrations=self.settings.triple_demonstrations,
            most=self.settings.triples,
            max_tokens=self.settings.generated_tokens,
        )
        self._reader = make_reader(model, self.settings)
        self._thinker = Thinker(
            model,
            demonstrations=self.settings.rationale_demonstrations,
            max_tokens=self.settings.generated_tokens,
        )

    def _select(self, questions: Sequence[str], documents: Documents, stages: Stages) -> list[Selected]:
        """Note where no triple was sound, what was dropped, and where the evidence document was generated or cut."""
        notes: list[list[str]] = [[] for _ in questions]
        constructed = [QuestionTriples("", ())] * len(questions)
        if self.variant in _WITH_TRIPLES:
            with stages.stage("triples"):
                constructed = self._constructor.construct(questions)
            for lines, triples in zip(notes, constructed, strict=True):
                lines.extend(_triple_notes(triples, selects=self.variant in _WITH_SENTENCES))
        if self.variant in _WITH_DOCUMENT | _WITH_SENTENCES and self._index is None:
            documents = self._complete(questions, documents, notes, stages)
        if self.variant in _WITH_SENTENCES:
            with stages.stage("select"):
                evidence = self._nearest(questions, constructed, documents)
        elif self.variant in _WITH_DOCUMENT:
            evidence = [self._whole(sources, lines) for sources, lines in zip(documents, notes, strict=True)]
        elif self.variant == "ks-t":
            evidence = [
                Evidence("triples", _texts(triples.triples), (), derivation=_written(triples))
                for triples in constructed
            ]
        else:
            evidence = [NO_CONTEXT] * len(questions)
        return [Selected(seen, tuple(lines)) for seen, lines in zip(evidence, notes, strict=True)]

    def _complete(
        self,
        questions: Sequence[str],
        documents: Documents,
        notes: Sequence[list[str]],
        stages: Stages,
    ) -> list[list[Document]]:
        """Return each question's documents that have words, with one generated where there is none (section 4.1)."""
        complete = [[document for document in sources if document.text.strip()] for sources in documents]
        missing = [number for number, sources in enumerate(complete) if not sources]
        if not missing:
            return complete
        if not self.settings.generate_documents:
            for number in missing:
                notes[number].append("the question has no document")
            return complete
        with stages.stage("documents"):
            written = write_documents(
                self._model, [questions[number] for number in missing], max_tokens=self.settings.document_tokens
            )
        for number, document in zip(missing, written, strict=True):
            if document is None:
                notes[number].append("the question has no document, and the model wrote none")
            else:
                complete[number] = [document]
                notes[number].append("the question has no document; the model wrote one")
        return complete

    def _nearest(
        self,
        questions: Sequence[str],
        constructed: Sequence[QuestionTriples],
        documents: Documents,
    ) -> list[Evidence]:
        """Return the sentences nearest to each question's triples, or to the question where there is none (section 3.2)."""
        queries = [
            ", ".join(f"({triple.head}, {triple.relation}, {triple.tail})" for triple in written.triples) or question
            for written, question in zip(constructed, questions, strict=True)
        ]
        selected = self._from_documents(queries, documents) if self._index is None else self._from_index(queries)
        evidence = []
        for written, chosen in zip(constructed, selected, strict=True):
            shown = written.triples if self.variant == "ks-llm" else ()
            evidence.append(
                Evidence(
                    kind="mixed" if self.variant == "ks-llm" else "sentences",
                    context=(*_texts(shown), *_texts(chosen)),
                    document_ids=tuple(dict.fromkeys(unit.document_id for unit in chosen)),
                    derivation=_written(written),
                )
            )
        return evidence

    def _from_documents(self, queries: Sequence[str], documents: Documents) -> list[list[TextUnit]]:
        """Return the sentences of each question's own documents nearest to its query, in document order."""
        units = [[unit for document in sources for unit in sentence_units(document)] for sources in documents]
        positions = nearest_sentences(
            queries,
            [[unit.text if self.settings.titles else unit.body for unit in sentences] for sentences in units],
            self._encoder,
            self.settings.sentences,
        )
        return [[sentences[position] for position in row] for sentences, row in zip(units, positions, strict=True)]

    def _from_index(self, queries: Sequence[str]) -> list[list[TextUnit]]:
        """Return the sentences of the index nearest to each query, in the order in which they were added."""
        assert self._index is not None
        results = self._index.search(queries, self.settings.sentences)
        return [
            [
                TextUnit(sentence.title, sentence.text, sentence.document_id, sentence.index)
                for sentence in (hit.sentence for hit in sorted(hits, key=lambda hit: hit.index))
            ]
            for hits in results
        ]

    def _whole(self, documents: Sequence[Document], notes: list[str]) -> Evidence:
        """Return documents in their order, cut where they have more than the longest evidence document's tokens."""
        left = self.settings.document_tokens
        context: list[str] = []
        for document in documents:
            text = document_text(document).rstrip()
            beginning = prefix_of(text, left, self._model.count_tokens)
            if beginning:
                context.append(beginning)
            if beginning != text:
                notes.append(f"the evidence document was cut to {self.settings.document_tokens} tokens")
                break
            left -= self._model.count_tokens(text)
        return Evidence("documents", tuple(context), tuple(document.id for document in documents[: len(context)]))

    def _read(self, questions: Sequence[str], evidence: list[Evidence]) -> tuple[list[Evidence], list[Reading]]:
        """Answer the questions (section 3.3), after a thought if the variant has one."""
        if self.variant != "cot-doc":
            return evidence, self._reader.read(questions, evidence)
        thoughts = [row[0] for row in self._thinker.think(questions, [seen.context for seen in evidence])]
        return self._thinker.readings(questions, evidence, thoughts)


def write_documents(model: LanguageModel, questions: Sequence[str], *, max_tokens: int) -> list[Document | None]:
    """Let a model write an evidence document for each question, all in one call."""
    # KS-LLM, section 4.1, after Yu et al., "Generate rather than Retrieve: Large Language Models are Strong Context
    # Generators" (ICLR 2023).
    if not questions:
        return []
    prompts = [Prompt(WRITE_INSTRUCTION, (), f"Question: {question}\nPassage:") for question in questions]
    rows = model.generate(prompts, max_tokens=max_tokens, stop=("\nQuestion:", "\nPassage:"))
    written: list[Document | None] = []
    for row in rows:
        sentences = split_sentences(row[0].text)
        if row[0].finish in {"length", "repetition"} and len(sentences) > 1:
            sentences.pop()
        document = Document("", _TITLE, tuple(sentences), GENERATED)
        known = msgspec.structs.replace(document, id=f"{GENERATED}:{document.content_hash[:16]}")
        written.append(known if re.search(r"\w", document.text) else None)
    return written


def prefix_of(text: str, most: int, count_tokens: Callable[[str], int]) -> str:
    """Return as much of a text as has at most so many tokens, cut between words."""
    # KS-LLM, section 4.1 (max_token). Counts beginnings of a length that doubles and is then halved, so that little
    # more than what is returned is ever counted.
    words = [match.end() for match in re.finditer(r"\S+", text)]
    if most < 1 or not words:
        return ""
    # A text without blanks has one word: what is tried of it first is a beginning, not all of it.
    first = text[: min(words[0], 64 * most)]
    ends = words if count_tokens(first) <= most and len(first) == words[0] else list(range(1, words[0] + 1))

    def too_long(number: int) -> bool:
        return count_tokens(text[: ends[number - 1]]) > most

    tried = min(most, len(ends))
    while tried < len(ends) and not too_long(tried):
        tried = min(2 * tried, len(ends))
    fitting = bisect.bisect_left(range(1, tried + 1), True, key=too_long)
    return text[: ends[fitting - 1]] if fitting else ""


def _triple_notes(written: QuestionTriples, *, selects: bool) -> list[str]:
    """Say what came of a question's triples."""
    notes = []
    if written.dropped:
        notes.append(
            f"{written.dropped} of {written.lines} lines of triples were dropped: malformed, or about something that the "
            "question does not name"
        )
    if not written.triples:
        query = "; the question itself was the query" if selects else ""
        notes.append(f"the model wrote no sound triple about the question{query}")
    return notes


def _written(constructed: QuestionTriples) -> WrittenTriples | None:
    return WrittenTriples(constructed.triples) if constructed.triples else None


def _texts(units: Sequence[Unit]) -> tuple[str, ...]:
    return tuple(unit.text for unit in units)


def _make(parts: Parts, settings: KsSettings, name: str) -> KnowledgeSelection:
    variant = name.partition(":")[0]
    return KnowledgeSelection(parts.model, parts.encoder(), settings, variant=variant, name=name, index=parts.index)  # type: ignore[arg-type]


# Titles tell a small model whom a sentence is about; it copies triples that it is shown, and thinks at length unless it is shown how.
SMALL_MODEL = Replacement("reads", ("titles=true", "triple_demonstrations=0", "rationale_demonstrations=3"))
_SUMMARIES: dict[Variant, str] = {
    "ks-llm": "triples written from the question → the sentences nearest to them → answer from both",
    "ks-q": "the sentences nearest to the question → answer from those",
    "ks-t": "triples written from the question → answer from those",
    "ks-s": "the sentences nearest to triples written from the question → answer from those",
    "standard-doc": "answer from the evidence document, cut to a length",
    "cot-doc": "think first, with the evidence document",
}
for _variant, _summary in _SUMMARIES.items():
    register(
        MethodRow(
            _variant,
            _summary,
            KnowledgeSelection,
            KsSettings(),
            (SMALL_MODEL,),
            _make,
            needs=frozenset(),
            takes=frozenset({"sentence index"}),
            space=(
                choice("titles", "true", "false"),
                choice("sentences", 1, 2, 3, 4, 5),
                choice("triple_demonstrations", 0, 1, 3),
                choice("triples", 1, 3, 5),
                READER_CHOICE,
            )
            if _variant == "ks-llm"
            else (),
        )
    )
