"""Where an answer that was taken out of the evidence stands in the documents: which sentence, and which characters of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from pytrace.records import AnswerPlace, Document, Evidence, Triple

_MOST = 10  # places that are told of; a name may stand everywhere


def answer_places(
    spans: Iterable[tuple[int, int, int]], evidence: Evidence, documents: Sequence[Document]
) -> tuple[AnswerPlace, ...]:
    """Return the places of the documents that spans of the evidence (entry, start, end) were taken from, at most ten.

    Those of what is not in the documents, as of facts of a knowledge base, are left out.
    """
    by_id = {document.id: document for document in documents}
    read = [by_id[document_id] for document_id in evidence.document_ids if document_id in by_id]
    triples = {unit.text: unit for chain in evidence.chains for unit in chain.units if isinstance(unit, Triple)}
    found: dict[AnswerPlace, None] = {}
    for entry, start, end in spans:
        text = evidence.context[entry]
        triple = triples.get(text)
        places = (
            _of_text(text, start, end, read)
            if triple is None
            else _of_triple(text[start:end], triple, by_id.get(triple.document_id))
        )
        found.update(dict.fromkeys(places))
        if len(found) >= _MOST:
            break
    return tuple(found)[:_MOST]


def _of_text(entry: str, start: int, end: int, documents: Sequence[Document]) -> Iterator[AnswerPlace]:
    """Yield the place of a stretch of an entry in the first document that has it there; those of the entry's title come first."""
    for document in sorted(documents, key=lambda each: not entry.startswith(f"[{each.title}]")):
        for number, sentence in enumerate((document.title, *document.sentences), -1):
            first = max(0, end - len(sentence))  # where it may begin
            at = entry.find(sentence, first, start + len(sentence)) if sentence else -1
            # A sentence that begins with the title's words is not the title, which is in brackets.
            if number < 0 and at >= 0 and not (entry.startswith("[") and "]" not in entry[:at]):
                continue
            if 0 <= at <= start and end <= at + len(sentence):
                yield AnswerPlace(document.id, number, start - at, end - at)
                return


def _of_triple(text: str, triple: Triple, document: Document | None) -> Iterator[AnswerPlace]:
    """Yield where the sentence that supports a triple has a text, or the title of its document."""
    if document is None:
        return
    rows = (triple.sentence,) if triple.sentence >= 0 else range(len(document.sentences))
    for number in (*rows, -1):
        said = document.title if number < 0 else document.sentences[number]
        at = said.find(text)
        if at >= 0:
            yield AnswerPlace(document.id, number, at, at + len(text))
            return
