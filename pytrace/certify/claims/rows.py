"""Responses with their contexts in files, as they are: pytrace's own rows, and those of RAGAS and DeepEval."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import msgspec

from pytrace.documents.json_rows import json_rows
from pytrace.documents.rows import Row, id_of, wrong_type
from pytrace.documents.sentences import split_sentences
from pytrace.documents.text_files import Place
from pytrace.errors import DataError
from pytrace.reader.responses import STEP_FIELDS, step_texts
from pytrace.records import Document

_TEXTS = ("response", "actual_output", "answer", "prediction", "output", "text")
# Of these, a row may have its steps apart.
_ANSWERS = frozenset({"answer", "prediction", "output"})
_CONTEXTS = ("retrieved_contexts", "retrieval_context", "contexts", "context")


class ResponseRow(msgspec.Struct, frozen=True):
    """A response to check; `documents` are its contexts, None where the row has none."""

    id: str
    text: str
    documents: tuple[Document, ...] | None


def read_response_rows(path: Path, *, limit: int | None = None) -> Iterator[ResponseRow]:
    """Read responses and their contexts.

    A row has its text under `response`, `actual_output` (DeepEval), `answer`, `prediction`, `output` or `text`, and may have a list of
    texts under `retrieved_contexts` (RAGAS), `retrieval_context` (DeepEval), `contexts` or `context`. Steps that stand apart, as `steps`,
    `reasoning_steps`, `reasoning`, `rationale` or `chain_of_thought` beside an `answer`, `prediction` or `output`, are claimed, too.

    Raises
    ------
    DataError
        The file or a row of it cannot be read, with the line.
    """
    number = 0
    for number, (place, row) in enumerate(islice(json_rows(path), limit), 1):
        yield _row(row, place, number)
    if not number:
        raise DataError("holds no response; write one JSON object a line with response and contexts", path=path)


def _row(row: Row, place: Place, number: int) -> ResponseRow:
    return ResponseRow(id_of(row, place) or str(number), text_of_row(row, place), documents_of_row(row, place))


def text_of_row(row: Row, place: Place) -> str:
    """Return a row's response, behind its steps where these stand apart."""
    name = next((name for name in _TEXTS if row.get(name) is not None), None)
    if name is None:
        raise place.error(f"the row has no response; give it as one of {', '.join(_TEXTS)}")
    text = row[name]
    if not isinstance(text, str):
        raise place.error(wrong_type(name, text, "a string"))
    steps = next((row[field] for field in STEP_FIELDS if row.get(field)), None)
    if steps is None or name not in _ANSWERS:
        return text
    return "\n\n".join([*step_texts(steps), text])


def documents_of_row(row: Row, place: Place) -> tuple[Document, ...] | None:
    """Return a row's contexts, each a document, or its `evidence`, sentences of one document; None where it has neither."""
    given = next((name for name in (*_CONTEXTS, "evidence") if row.get(name) is not None), None)
    if given is None:
        return None
    texts = [row[given]] if isinstance(row[given], str) else row[given]
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise place.error(wrong_type(given, row[given], "a list of strings"))
    if given == "evidence":
        title = row["title"] if isinstance(row.get("title"), str) else ""
        sentences = tuple(split_sentences(texts[0]) if isinstance(row[given], str) else texts)
        return (Document("evidence", title, sentences, f"{place}, evidence"),)
    return tuple(
        Document(str(k), "", tuple(split_sentences(text)), f"{place}, {given}[{k}]") for k, text in enumerate(texts)
    )
