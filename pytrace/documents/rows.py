"""The schemas of JSON rows: a document (BEIR, ours), or a question with its own (HotpotQA, 2WikiMultiHopQA, MuSiQue, ours)."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from pytrace.documents.sentences import clean_text, split_sentences
from pytrace.documents.text_files import Place
from pytrace.records import Document, Origin

Row = dict[str, Any]
_Value = TypeVar("_Value")

# For a title made of a text's beginning; so much of the text is cleaned for it, however long it is.
_TITLE_LENGTH, _TITLE_WINDOW = 60, 600


class Paragraph(NamedTuple):
    """A paragraph as its data set gives it: split into sentences, or whole (`text`)."""

    title: str
    sentences: list[str] | None
    text: str
    id: str
    place: Place
    supporting: bool = False
    metadata: Row | None = None


class Built(NamedTuple):
    """A document, and for each sentence of the row the index it has in the document (-1: it was empty)."""

    document: Document
    indices: list[int]


def paragraphs_of(row: Row, place: Place) -> list[Paragraph]:
    """Read the documents that a row holds, whatever its schema."""
    if "paragraphs" in row:
        return [_musique_paragraph(item, place) for item in objects(row, "paragraphs", place)]
    if "context" in row:
        return _hotpot_paragraphs(row, place)
    if "documents" in row:
        return [document_paragraph(item, place) for item in objects(row, "documents", place)]
    return [document_paragraph(row, place)]


def document_paragraph(row: Row, place: Place) -> Paragraph:
    """Read a document object: `title`, and `text` or `sentences`, and perhaps `id` and `supporting`."""
    # BEIR's rows have their id in `_id`. Where a `title` is empty, the text's beginning stands in, as triples need one.
    supporting = expect(row.get("supporting", False), bool, "supporting", "true or false", place)
    metadata = row.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    body = row.get("sentences", row.get("text"))
    if body is None:
        raise place.error(
            f'no `text`{_has(row)}; each document needs "title" and "text" (or "sentences", a list of strings)'
        )
    field = "sentences" if "sentences" in row else "text"
    id = id_of(row, place, "id", "_id")
    if isinstance(body, str) and field == "text":
        title = beginning_of(body) or id or "untitled" if _has_no_title(row) else title_of(row, place)
        return Paragraph(title, None, body, id, place, supporting, metadata)
    sentences = strings(body, field, place)
    return Paragraph(title_of(row, place), sentences, "", id, place, supporting, metadata)


def build_document(paragraph: Paragraph, *, language: str | None) -> Built | None:
    """Clean and split a paragraph; None if nothing is left of its text."""
    if paragraph.sentences is None:
        sentences = split_sentences(paragraph.text, language=language)
        indices = list(range(len(sentences)))
    else:
        sentences, indices = [], []
        for sentence in paragraph.sentences:
            cleaned = clean_text(sentence)
            indices.append(len(sentences) if cleaned else -1)
            if cleaned:
                sentences.append(cleaned)
    if not sentences:
        return None
    document = make_document(paragraph.title, sentences, source=str(paragraph.place), id=paragraph.id)
    if paragraph.metadata:
        starts = tuple(itertools.accumulate((len(sentence) + 1 for sentence in sentences[:-1]), initial=0))
        origin = Origin(
            document.id, document.title, end=len(document.text), sentences=starts, metadata=paragraph.metadata
        )
        document = msgspec.structs.replace(document, origin=origin)
    return Built(document, indices)


def make_document(title: str, sentences: Iterable[str], *, source: str, id: str = "") -> Document:
    """Make a document; without an `id`, it gets one made of its title and the hash of its content."""
    document = Document(id, title, tuple(sentences), source)
    if id:
        return document
    slug = re.sub(r"\W+", "-", title.casefold())[:40].strip("-_")
    digest = document.content_hash[:12]
    return Document(f"{slug}-{digest}" if slug else digest, title, document.sentences, source)


class Identities:
    """The document ids met so far: the same words under one id are one document, other words are an error.

    It remembers some 300 bytes for each document, whatever the document's length.
    """

    def __init__(self) -> None:
        self._seen: dict[str, tuple[bytes, str]] = {}

    def first_place(self, document: Document, place: Place) -> str | None:
        """Return where the same document was met before, or None, and then remember it."""
        # A digest instead of the words, so that memory does not grow with the length of documents.
        digest = bytes.fromhex(document.content_hash)
        known = self._seen.get(document.id)
        if known is None:
            self._seen[document.id] = (digest, document.source)
            return None
        if known[0] == digest:
            return known[1]
        raise place.error(
            f"document id {document.id!r} stands for {document.title!r} here and for other words at {known[1]}; "
            "give each document an id of its own, or leave ids out"
        )


def expect(value: object, kind: type[_Value], field: str, expected: str, place: Place) -> _Value:
    """Return the value of a field if it has the type, or raise the error that says what it should be."""
    if not isinstance(value, kind):
        raise place.error(wrong_type(field, value, expected))
    return value


def strings(value: object, field: str, place: Place) -> list[str]:
    """Check that `value` is a list of strings."""
    items: list[Any] = expect(value, list, field, "a list of strings" if field != "text" else "a string", place)
    return [expect(item, str, f"{field}[{index}]", "a string", place) for index, item in enumerate(items)]


def objects(row: Row, field: str, place: Place) -> list[Row]:
    """Check that a field is a list of objects, or columns of one length, as table-based copies of data sets have them."""
    value = row[field]
    if isinstance(value, dict):
        lengths = {len(column) if isinstance(column, list) else -1 for column in value.values()}
        if len(lengths) > 1 or -1 in lengths:
            raise place.error(f"`{field}` must hold lists of one length ({', '.join(list(value)[:5])}); correct it")
        return [dict(zip(value, items, strict=True)) for items in zip(*value.values(), strict=True)]
    items: list[Any] = expect(value, list, field, "a list of objects", place)
    return [expect(item, dict, f"{field}[{index}]", "an object", place) for index, item in enumerate(items)]


def item_lists(row: Row, field: str, parts: Sequence[Sequence[str]], place: Place) -> object:
    """Return a field whose items are lists; where a table-based copy of a data set has objects or columns, as such lists."""
    # Each of `parts` has the names that one part of an item may have there. What is neither is returned as it is.
    value = row[field]
    if not isinstance(value, dict) and not (isinstance(value, list) and value and isinstance(value[0], dict)):
        return value
    return [
        [next((item[name] for name in names if name in item), None) for names in parts]
        for item in objects(row, field, place)
    ]


def title_of(row: Row, place: Place) -> str:
    """Read the title, which triples take as their head entity; it must not be empty."""
    title = row.get("title")
    if title is None:
        raise place.error(f'no `title`{_has(row)}; add "title": the name of what the document is about')
    return _named(expect(title, str, "title", "a string", place), "title", place)


def id_of(row: Row, place: Place, *fields: str) -> str:
    """Read the id, a string or an integer, from the first of `fields` (default `id`) that is there; empty if none is."""
    for field in fields or ("id",):
        value = row.get(field)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise place.error(wrong_type(field, value, "a string or a whole number"))
        return _named(str(value), field, place)
    return ""


def _has_no_title(row: Row) -> bool:
    title = row.get("title", 0)  # a row without the field is no BEIR document: their questions are such rows
    return title is None or (isinstance(title, str) and not clean_text(title))


def beginning_of(text: str) -> str:
    """Return the first words of a text, up to some 60 characters."""
    words = clean_text(text[:_TITLE_WINDOW])
    return (
        words if len(words) <= _TITLE_LENGTH else words[: _TITLE_LENGTH + 1].rpartition(" ")[0] or words[:_TITLE_LENGTH]
    )


def wrong_type(field: str, value: object, expected: str) -> str:
    """Say that a field has a wrong type, and show how its value begins."""
    shown = ascii(value)
    return f"`{field}` must be {expected}, not {shown if len(shown) <= 40 else shown[:37] + '...'}"


def _named(value: str, field: str, place: Place) -> str:
    cleaned = clean_text(value)
    if not cleaned:
        raise place.error(f"`{field}` is empty; give it a value")
    return cleaned


def _has(row: Row) -> str:
    names = ", ".join(clean_text(name)[:20] for name in list(row)[:6])
    return f" among the fields {names}" if names else " (the object is empty)"


def _hotpot_paragraphs(row: Row, place: Place) -> list[Paragraph]:
    context = item_lists(row, "context", (("title",), ("sentences", "content")), place)
    items: list[Any] = expect(context, list, "context", "a list of [title, [sentences]]", place)
    paragraphs = []
    for index, item in enumerate(items):
        field = f"context[{index}]"
        if not isinstance(item, list) or len(item) != 2:
            raise place.error(wrong_type(field, item, "a pair [title, [sentences]]"))
        title = expect(item[0], str, f"{field}[0]", "the title, a string", place)
        sentences = strings(item[1], f"{field}[1]", place)
        paragraphs.append(Paragraph(_named(title, f"{field}[0]", place), sentences, "", "", place))
    return paragraphs


def _musique_paragraph(row: Row, place: Place) -> Paragraph:
    text = expect(row.get("paragraph_text"), str, "paragraph_text", "a string", place)
    supporting = expect(row.get("is_supporting", False), bool, "is_supporting", "true or false", place)
    return Paragraph(title_of(row, place), None, text, "", place, supporting)
