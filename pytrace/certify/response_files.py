"""Responses in files: those of any model as JSON Lines, and those that a run writes as they come."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from pytrace.certify.certificate_records import Response
from pytrace.documents.gold_fields import gold_fields
from pytrace.documents.json_rows import Place, json_rows
from pytrace.documents.rows import Row, id_of, wrong_type
from pytrace.errors import DataError, InputError, StoreError
from pytrace.storage.locks import take_lock
from pytrace.storage.text import dump_json

_RESPONSES = ("responses", "response", "reasoning_ans", "prediction", "output", "text")
_HEADER = "pytrace_responses"


def read_responses(path: str | os.PathLike[str], *, limit: int | None = None) -> Iterator[Response]:
    """Read responses of any model."""
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
    if name is None:
        raise place.error(f"the row has no response; give the model's text as one of {', '.join(_RESPONSES)}")
    texts = [row[name]] if isinstance(row[name], str) else row[name]
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
        raise place.error(wrong_type(name, row[name], "a string or a list of strings"))
    gold = gold_fields(row, place)
    identity = id_of(row, place) or str(number)
    for sample, text in enumerate(texts):
        yield Response(identity, question, text, *gold, sample=sample)


class ResponseFile:
    """The responses of a run, a line a question, kept as they come: a killed run goes on with the questions that it lacks."""

    def __init__(self, path: str | os.PathLike[str], settings: Mapping[str, Any]) -> None:
        self.path = Path(path)
        self.known: set[str] = set()
        """The ids of the questions that have their responses."""
        header = dump_json({_HEADER: 1, "settings": dict(settings)}).encode() + b"\n"
        with ExitStack() as stack:
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self._stream: IO[bytes] = stack.enter_context(
                    take_lock(
                        self.path,
                        f"{self.path} is being written by another process; wait for it, or name another directory",
                    )
                )
                self._stream.seek(0)
                self._begin(header, self._stream.read().splitlines(keepends=True))
            except OSError as error:
                raise StoreError(
                    f"{self.path} cannot be written ({error.strerror}); correct its permissions or name another directory"
                ) from None
            self._stack = stack.pop_all()

    def _begin(self, header: bytes, lines: list[bytes]) -> None:
        """Take in the lines that are there, after a look at whose they are."""
        if lines and not header.startswith(lines[0]):
            raise StoreError(
                f"{self.path} holds responses of other settings, questions or another model; name another directory, or "
                "remove the file to begin anew"
            )
        whole = [line for line in lines if line.endswith(b"\n")]
        try:
            self.known = {json.loads(line)["id"] for line in whole[1:]}
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise StoreError(f"{self.path} is damaged ({error}); remove it to begin anew") from None
        self._stream.truncate(sum(map(len, whole)))
        if not whole:
            self._write(header)

    def __enter__(self) -> Self:
        """Return the file."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the file."""
        self._stack.close()

    def add(self, responses: Sequence[Response]) -> None:
        """Keep all responses to one question."""
        if not responses:
            return
        first = responses[0]
        row = {
            "id": first.id,
            "question": first.question,
            # No file of UTF-8 holds a lone surrogate.
            "responses": [one.text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") for one in responses],
            "answers": first.answers,
            "gold_paths": [[[t.head, t.relation, t.tail] for t in path] for path in first.paths],
            "topics": first.topics,
        }
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
