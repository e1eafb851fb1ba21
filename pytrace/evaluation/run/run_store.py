"""The store of an evaluation: every answer is on disk as soon as it is there, and a killed run goes on where it was."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Literal

import msgspec

from pytrace.errors import DataError, InputError, StoreError
from pytrace.records import Document, Perturbation, Question
from pytrace.results import Result
from pytrace.storage import sqlite
from pytrace.storage.closing import Closing
from pytrace.storage.locks import take_lock
from pytrace.storage.sqlite import checksum
from pytrace.storage.text import storable

SCHEMA_VERSION = 6
"""Version of the files. Up to version 5 rows held the method's answer instead of the result; they are not read."""

# A document stands once, under the hash of its record, however many questions have it.
_SCHEMA = f"""
CREATE TABLE run (
    key TEXT PRIMARY KEY, settings TEXT NOT NULL, notes TEXT NOT NULL, started TEXT NOT NULL,
    {checksum("key", "settings", "notes", "started")});
CREATE TABLE result (
    run TEXT NOT NULL REFERENCES run, method TEXT NOT NULL, question TEXT NOT NULL, record TEXT NOT NULL,
    {checksum("run", "method", "question", "record")}, PRIMARY KEY (run, method, question));
CREATE TABLE document (key TEXT PRIMARY KEY, record TEXT NOT NULL, {checksum("key", "record")}) WITHOUT ROWID;
CREATE TABLE question (
    run TEXT NOT NULL REFERENCES run, id TEXT NOT NULL, record TEXT NOT NULL, documents TEXT NOT NULL,
    {checksum("run", "id", "record", "documents")}, PRIMARY KEY (run, id));
"""
_REMEDY = "evaluate into another file"
_SHOWN_DIFFERENCES = 5


class RunRow(msgspec.Struct, frozen=True):
    """The result of a method for a question, with the gold it is scored against."""

    method: str
    question_id: str
    question: str
    answers: tuple[str, ...]
    supporting_documents: tuple[str, ...] = ()
    kind: str = ""
    result: Result | None = None
    error: str = ""  # why there is no result
    perturbation: Perturbation | None = None  # what had been done to the question's documents on purpose


class RunStore(Closing):
    """One evaluation run on disk: an SQLite file in WAL mode, one committed row for each method and question.

    A process that is killed at any time leaves a sound file that lacks at most the question it was working on. While a
    run is open for writing no other process can write it; reading it is always possible.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = str(path)
        self._run: str | None = None
        self._connection: sqlite3.Connection | None = None
        self._lock: IO[bytes] | None = None
        self._writable = False

    def close(self) -> None:
        """Close the file and let others write it; nothing is lost without it."""
        if self._connection is not None:
            self._connection.close()
        if self._lock is not None:
            self._lock.close()
        self._connection, self._lock, self._run, self._writable = None, None, None, False

    def open_run(
        self, settings: Mapping[str, Any], *, resume: bool = False, notes: Mapping[str, Any] | None = None
    ) -> None:
        """Begin a run, or go on with the one that is there."""
        encoded, encoded_notes = _canonical(settings), _canonical(notes or {})
        key = hashlib.sha256(encoded.encode()).hexdigest()
        self.close()
        try:
            self._take_lock()
            with self._guard():
                connection = self._connect()
                held = connection.execute("SELECT key, settings FROM run").fetchone()
                if held is not None:
                    self._check_held(held[1], encoded, resume=resume)
                with connection:
                    if held is not None and held[0] != key:
                        connection.execute("DELETE FROM question")
                        connection.execute("DELETE FROM document")
                        connection.execute("DELETE FROM run")
                    connection.execute(
                        "INSERT INTO run VALUES (?, ?, ?, ?) ON CONFLICT (key) DO UPDATE SET notes = excluded.notes",
                        (key, encoded, encoded_notes, datetime.now(UTC).isoformat(timespec="seconds")),
                    )
        except BaseException:
            self.close()
            raise
        self._run, self._writable = key, True

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that the run was begun with."""
        return self._described("settings")

    @property
    def notes(self) -> dict[str, Any]:
        """The notes that were given when the run was last opened."""
        return self._described("notes")

    @property
    def started(self) -> str:
        """When the run was begun, in ISO 8601."""
        return self._recorded("started")

    def _described(self, column: Literal["settings", "notes"]) -> dict[str, Any]:
        with self._readable(f"its record of {column}"):
            return msgspec.convert(json.loads(self._recorded(column)), dict[str, Any])

    def _recorded(self, column: Literal["settings", "notes", "started"]) -> str:
        for row in self._rows("run", f"SELECT {column} FROM run WHERE key = ?"):
            return str(row[0])
        raise StoreError(f"{self.path} holds no run yet")

    def keep_questions(self, questions: Sequence[Question]) -> None:
        """Keep questions with their documents, once for all methods, so that answers can be looked at without the data."""
        connection = self._open_for_writing("keeping questions")
        with self._guard(), connection:
            held = {row[0] for row in connection.execute("SELECT id FROM question WHERE run = ?", (self._run,))}
            for question in questions:
                if storable(question.id) in held:
                    continue
                documents = [_record(document) for document in question.documents]
                keys = [hashlib.sha256(record.encode()).hexdigest() for record in documents]
                connection.executemany(
                    "INSERT OR IGNORE INTO document VALUES (?, ?)", zip(keys, documents, strict=True)
                )
                record = _record(msgspec.structs.replace(question, documents=()))
                connection.execute(
                    "INSERT OR IGNORE INTO question VALUES (?, ?, ?, ?)",
                    (self._run, storable(question.id), record, json.dumps(keys)),
                )

    def questions(self) -> Iterator[Question]:
        """Read the questions that were asked with their documents, in the order in which they were stored."""
        for question_id, record, keys in self._questions("id, record, documents"):
            with self._readable(f"question {question_id!r}"):
                question = msgspec.convert(json.loads(record), Question)
                documents = tuple(self._document(key) for key in json.loads(keys))
            yield msgspec.structs.replace(question, documents=documents)

    def methods(self) -> list[str]:
        """List the methods that have results, in the order of their first one."""
        query = "SELECT method FROM result WHERE run = ? GROUP BY method ORDER BY min(rowid)"
        return [row[0] for row in self._rows("", query)]

    def asked(self) -> list[str]:
        """List the ids of the questions that have results, in the order of the questions, otherwise of their first result."""
        query = "SELECT question FROM result WHERE run = ? GROUP BY question ORDER BY min(rowid)"
        order = {row[0]: number for number, row in enumerate(self._questions("id"))}
        # The sort is stable: questions that were not stored stay in the order of their results.
        return sorted((row[0] for row in self._rows("", query)), key=lambda question: order.get(question, len(order)))

    def _questions(self, columns: str) -> Iterator[tuple[Any, ...]]:
        yield from self._rows("question", f"SELECT {columns} FROM question WHERE run = ?", order="rowid")

    def done(self, method: str) -> frozenset[str]:
        """Return the ids of the questions that a method is through with, the failed ones included."""
        rows = self._rows("result", "SELECT question FROM result WHERE run = ? AND method = ?", method)
        return frozenset(row[0] for row in rows)

    def failed(self, method: str) -> frozenset[str]:
        """Return the ids of the questions that a method failed at."""
        return frozenset(row.question_id for row in self.rows(method) if row.result is None)

    def save(self, method: str, question_id: str, row: RunRow) -> None:
        """Write a row; once this returns, neither a kill nor a power cut can lose it."""
        connection = self._open_for_writing("saving")
        with self._guard(), connection:
            connection.execute(
                "INSERT OR REPLACE INTO result VALUES (?, ?, ?, ?)",
                (self._run, storable(method), storable(question_id), _record(row)),
            )

    def rows(self, method: str, questions: Sequence[str] | None = None) -> Iterator[RunRow]:
        """Read a method's rows in the order in which they were written."""
        query = "SELECT question, record FROM result WHERE run = ? AND method = ?"
        if questions is not None:
            query += f" AND question IN ({', '.join('?' * len(questions))})"
        for question_id, record in self._rows("result", query, method, *(questions or ()), order="rowid"):
            with self._readable(f"the result of {method} for question {question_id!r}"):
                row = msgspec.convert(json.loads(record), RunRow)
            yield row

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[None]:
        """Have all that is read within as it is now, whatever another process writes meanwhile."""
        with self._guard():
            connection = self._connect()
            connection.execute("BEGIN DEFERRED")
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()  # from here on
        try:
            yield
        finally:
            connection.rollback()

    def verify(self) -> int:
        """Read the whole file, and return how many rows fit their checksums.

        Raises
        ------
        StoreError
            Something has changed since it was written.
        """
        with self._guard():
            return sqlite.verify(self._connect(), self.path, remedy=_REMEDY)

    def _open_for_writing(self, what: str) -> sqlite3.Connection:
        if not self._writable:
            raise StoreError(f"no run is open in {self.path}; call open_run before {what}")
        with self._guard():
            return self._connect()

    def _document(self, key: str) -> Document:
        with self._guard():
            connection = self._connect()
            condition = sqlite.intact(connection, "document")
            row = connection.execute(f"SELECT record FROM document WHERE key = ? AND {condition}", (key,)).fetchone()
        if row is None:
            raise ValueError(f"its document {key[:12]} is missing")
        return msgspec.convert(json.loads(row[0]), Document)

    @contextlib.contextmanager
    def _readable(self, what: str) -> Iterator[None]:
        try:
            yield
        # A value of SQLite may be of any type, and a record in JSON of any shape.
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            reason = " ".join(str(error).split())[:200]
            raise StoreError(
                f"{self.path}: {what} cannot be read ({reason}); it is damaged or of another version: evaluate into another file"
            ) from None

    def _take_lock(self) -> None:
        if self.path == ":memory:":
            return
        path = Path(self.path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._lock = take_lock(
                path.with_name(path.name + ".lock"),
                f"{self.path} is being written by another process; wait for it, or evaluate into another file",
            )
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise StoreError(f"{self.path} cannot be written ({reason}); choose another place") from None

    def _connect(self) -> sqlite3.Connection:
        if self._connection is None:
            if self._lock is None and self.path != ":memory:" and not Path(self.path).is_file():
                raise StoreError(f"no run is stored at {self.path}; check the path")
            writable = self._lock is not None or self.path == ":memory:"
            connection = (
                sqlite.connect(self.path, isolation_level="IMMEDIATE")
                if writable
                else sqlite.connect_to_read(Path(self.path), mode="rw", isolation_level="IMMEDIATE")
            )
            self._connection = connection
            version = sqlite.prepare(
                connection,
                _SCHEMA,
                version=SCHEMA_VERSION,
                make=writable,
                foreign=f"{self.path} is not a run of format {SCHEMA_VERSION}, which this pytrace reads; evaluate again, into another file",
            )
            if version == SCHEMA_VERSION:
                sqlite.check(connection, self.path, _SCHEMA, kind="run store", remedy=_REMEDY)
            connection.execute("PRAGMA synchronous = FULL")
        return self._connection

    def _check_held(self, held: str, settings: str, *, resume: bool) -> None:
        count = self._connect().execute("SELECT count(*) FROM result").fetchone()[0]
        if not count:
            return  # begun and killed before its first result: nothing to protect
        if not resume:
            raise StoreError(
                f"{self.path} already holds a run with {count} results; resume it, or evaluate into another file"
            )
        if held != settings:
            with self._readable("its record of settings"):
                shown = _differences(json.loads(held), json.loads(settings))
            if len(shown) > _SHOWN_DIFFERENCES:
                shown[_SHOWN_DIFFERENCES:] = [f"and {len(shown) - _SHOWN_DIFFERENCES} more"]
            raise StoreError(
                f"{self.path} holds a run with other settings: {'; '.join(shown)}; set them back to resume it, or evaluate "
                "into another file"
            )

    def _rows(self, table: str, query: str, *values: str, order: str = "") -> Iterator[tuple[Any, ...]]:
        """Read rows of the run; with the name of the `table`, those that are not as they were written are refused."""
        with self._guard():
            connection = self._connect()
            if self._run is None:
                held = connection.execute("SELECT key FROM run").fetchone() if sqlite.has_tables(connection) else None
                if held is None:
                    raise StoreError(f"{self.path} holds no run yet")
                self._run = held[0]
            if table:
                query += f" AND {sqlite.intact(connection, table)}"
            if order:
                query += f" ORDER BY {order}"
            rows = connection.execute(query, (self._run, *map(storable, values))).fetchall()
        yield from rows

    def _guard(self) -> contextlib.AbstractContextManager[None]:
        return sqlite.translated(self.path, "run store", _REMEDY)


def file_settings(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Describe a file for the settings of a run by its content: size in bytes and SHA-256."""
    try:
        with Path(path).open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
            return {"bytes": stream.tell(), "sha256": digest}
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror or error}; check the path", path=path) from None


def _record(value: msgspec.Struct) -> str:
    return json.dumps(msgspec.to_builtins(value))  # the standard library's: it keeps infinities as they are


def _canonical(settings: Mapping[str, Any]) -> str:
    try:
        return json.dumps(msgspec.to_builtins(dict(settings), str_keys=True), sort_keys=True, allow_nan=False)
    except (TypeError, ValueError, NotImplementedError) as error:
        raise InputError(
            f"the settings of a run must be JSON values ({error}); turn them into numbers, strings, lists or objects"
        ) from None


def _differences(before: object, now: object, name: str = "") -> list[str]:
    """Name the values in which two settings differ, by their path."""
    if before == now:
        return []
    if isinstance(before, dict) and isinstance(now, dict):
        return [
            difference
            for field in sorted(before.keys() | now.keys())
            for difference in _differences(
                before.get(field, _ABSENT), now.get(field, _ABSENT), f"{name}.{field}" if name else field
            )
        ]
    return [f"{name} was {_shown(before)} and is now {_shown(now)}"]


_ABSENT = object()


def _shown(value: object) -> str:
    if value is _ABSENT:
        return "absent"
    text = json.dumps(value)
    return text if len(text) <= 80 else text[:77] + "..."
