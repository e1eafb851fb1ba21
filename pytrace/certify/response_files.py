"""Responses in files: those of any model as JSON Lines, and those that a run writes as they come."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from pytrace.certify.response_parsing import parse_response
from pytrace.check_records import Response, gold_row
from pytrace.documents.gold_fields import gold_fields
from pytrace.documents.json_rows import json_rows
from pytrace.documents.rows import Row, id_of, wrong_type
from pytrace.documents.text_files import Place
from pytrace.errors import DataError, InputError, StoreError
from pytrace.reader.responses import STEP_FIELDS, response_text, step_texts
from pytrace.storage.closing import Closing
from pytrace.storage.locks import take_lock
from pytrace.storage.text import dump_json

_RESPONSES = ("responses", "response", "reasoning_ans", "prediction", "output", "text")
_HEADER = "pytrace_responses"


def read_responses(path: str | os.PathLike[str], *, limit: int | None = None) -> Iterator[Response]:
    """Read responses of any model.

    A row has its `question` and the model's text under `response` (or several under `responses`), `reasoning_ans`, `prediction`, `output`
    or `text`; or its `steps` (or `reasoning_steps`, `reasoning`, `rationale`, `chain_of_thought`: a text, or a list) and `answer` apart.
    Then `answer` is the model's, and gold answers are those of `answers`, `golden_answers` or `gold_answers`.

    Raises
    ------
    DataError
        The file or a row of it cannot be read, with the line.
    InputError
        `limit` is below 1.
    """
    if limit is not None and limit < 1:
        raise InputError(f"limit is {limit}; ask for at least 1 response, or for all with None")
    return _read(Path(path), limit)


def _read(path: Path, limit: int | None) -> Iterator[Response]:
    rows = ((place, row) for place, row in json_rows(path) if _HEADER not in row)
    number = 0
    for number, (place, row) in enumerate(islice(rows, limit), 1):
        yield from _responses(row, place, number)
    if not number:
        raise DataError("holds no response; write one JSON object a line with question and response", path=path)


def _responses(row: Row, place: Place, number: int) -> Iterator[Response]:
    question = row.get("question")
    if not isinstance(question, str):
        raise place.error(wrong_type("question", question, "a string"))
    name = next((name for name in _RESPONSES if name in row), None)
    steps = next((name for name in STEP_FIELDS if row.get(name)), None)
    if name is None and (steps is None or row.get("answer") is None):
        raise place.error(
            f"the row has no response; give the model's text as one of {', '.join(_RESPONSES)}, or its steps and answer"
        )
    name = name or "answer"
    texts = [row[name]] if isinstance(row[name], str) else row[name]
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
        raise place.error(wrong_type(name, row[name], "a string or a list of strings"))
    if steps is not None:
        given = step_texts(row[steps])
        if not given or not isinstance(row[steps], str | list | dict):
            raise place.error(wrong_type(steps, row[steps], "a text, or a list of steps"))
        # Of one response, the answers of a list are one answer.
        texts = [", ".join(texts)] if name == "answer" else texts
        texts = [_with_steps(text, given) for text in texts]
    gold = gold_fields({key: value for key, value in row.items() if key != name}, place)
    identity = id_of(row, place) or str(number)
    for sample, text in enumerate(texts):
        yield Response(identity, question, text, *gold, sample=sample)


def _with_steps(text: str, steps: Sequence[str]) -> str:
    """Return a response with the steps that a row has beside it, unless it has its own."""
    parsed = parse_response(text)
    return text if parsed.form == "structured" else response_text(steps, parsed.answer or text)


class ResponseFile(Closing):
    """The responses of a run, a line a question, kept as they come: a killed run goes on with the questions that it lacks."""

    def __init__(self, path: str | os.PathLike[str], settings: Mapping[str, Any]) -> None:
        self.path = Path(path)
        self.known: set[str] = set()
        """The ids of the questions that have their responses."""
        header = dump_json({_HEADER: 1, "settings": dict(settings)}).encode() + b"\n"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._stream = take_lock(
                self.path, f"{self.path} is being written by another process; wait for it, or name another directory"
            )
            try:
                self._begin(header)
            except BaseException:
                self.close()
                raise
        except OSError as error:
            raise StoreError(
                f"{self.path} cannot be written ({error.strerror}); correct its permissions or name another directory"
            ) from None

    def _begin(self, header: bytes) -> None:
        """Take in the lines that are there, after a look at whose they are."""
        self._stream.seek(0)
        lines = self._stream.read().splitlines(keepends=True)
        # A kill may have cut the header short, so that what is there need only be its beginning.
        if lines and not header.startswith(lines[0]):
            raise StoreError(
                f"{self.path} holds responses of other settings, questions or another model; name another directory, or "
                "remove the file to begin anew"
            )
        complete = [line for line in lines if line.endswith(b"\n")]
        try:
            self.known = {json.loads(line)["id"] for line in complete[1:]}
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise StoreError(f"{self.path} is damaged ({error}); remove it to begin anew") from None
        self._stream.truncate(sum(map(len, complete)))
        if not complete:
            self._write(header)

    def close(self) -> None:
        """Close the file and let others write it; nothing is lost without it."""
        self._stream.close()

    def add(self, responses: Sequence[Response]) -> None:
        """Keep all responses to one question."""
        if not responses:
            return
        first = responses[0]
        # No file of UTF-8 holds a lone surrogate.
        texts = [one.text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") for one in responses]
        row = {"id": first.id, "question": first.question, "responses": texts, **gold_row(first)}
        try:
            self._write(dump_json(row).encode() + b"\n")
        except OSError as error:
            raise StoreError(
                f"{self.path} cannot be written ({error.strerror}); free some room and run the same command again"
            ) from None
        self.known.add(first.id)

    def _write(self, line: bytes) -> None:
        self._stream.write(line)
        self._stream.flush()
