"""The store of an evaluation: every answer is on disk as soon as it is there, and a killed run goes on where it was."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import sqlite3
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import msgspec

from pytrace.errors import DataError, InputError, StoreError
from pytrace.records import Answer, Perturbation

_SCHEMA_VERSION = 1
_SCHEMA = """
CREATE TABLE IF NOT EXISTS run (
    key TEXT PRIMARY KEY, settings TEXT NOT NULL, notes TEXT NOT NULL, started TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS result (
    run TEXT NOT NULL REFERENCES run, method TEXT NOT NULL, question TEXT NOT NULL, record TEXT NOT NULL,
    PRIMARY KEY (run, method, question));
"""
_SHOWN_DIFFERENCES = 5


class Result(msgspec.Struct, frozen=True):
    """What a method made of a question, with the gold it is scored against; `error` says why there is no answer.

    `perturbation` says what had been done to the question's documents on purpose.
    """

    method: str
    question_id: str
    question: str
    answers: tuple[str, ...]
    supporting_documents: tuple[str, ...] = ()
    kind: str = ""
    answer: Answer | None = None
    error: str = ""
    perturbation: Perturbation | None = None


class RunStore:
    """One evaluation run on disk: an SQLite file in WAL mode, one committed row for each method and question.

    A process that is killed at any time leaves a sound file that lacks at most the question it was working on. While a
    run is open for writing no other process can write it; reading it is always possible.

    Parameters
    ----------
    path
        The file; it and its folder are made by `open_run`. ":memory:" keeps the run in memory.

    Examples
    --------
    >>> with RunStore(":memory:") as store:
    ...     store.open_run({"model": "tiny"})
    ...     store.save("rag", "q1", Result("rag", "q1", "Where?", ("Ghana",), error="the prompt is too long"))
    ...     sorted(store.done("rag"))
    ['q1']
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = str(path)
        self._run: str | None = None
        self._connection: sqlite3.Connection | None = None
        self._lock: IO[bytes] | None = None
        self._writable = False

    def __enter__(self) -> Self:
        """Return the store itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the store."""
        self.close()

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
        """Begin a run, or go on with the one that is there.

        Parameters
        ----------
        settings
            All that an answer depends on, as JSON values: the data's hash, versions, model hashes, options. Leave out
            what may change between two parts of a run: which methods, how many questions, where files lie.
        resume
            Go on with the run that the file holds, if it holds one; it must have the same settings.
        notes
            What is worth recording but may differ on resuming: paths, the machine.

        Raises
        ------
        StoreError
            The file holds another run (says which settings differ), or a run with results and `resume` is false, or
            another process has it open, or it is no run store, or cannot be written.
        InputError
            The settings are no JSON values.
        """
        encoded, encoded_notes = _canonical(settings), _canonical(notes or {})
        key = hashlib.sha256(encoded.encode()).hexdigest()
        self.close()
        try:
            self._take_lock()
            with self._guard():
                connection = self._connect()
                held = connection.execute("SELECT key, settings FROM run").fetchone()
                if held is not None:
                    self._check_held(held, key, settings, resume=resume)
                with connection:
                    if held is not None and held[0] != key:
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
        return self._recorded("settings")

    @property
    def notes(self) -> dict[str, Any]:
        """The notes that were given when the run was last opened."""
        return self._recorded("notes")

    def methods(self) -> list[str]:
        """List the methods that have results, in the order of their first one."""
        query = "SELECT method FROM result WHERE run = ? GROUP BY method ORDER BY min(rowid)"
        return [row[0] for row in self._rows(query)]

    def done(self, method: str) -> frozenset[str]:
        """Return the ids of the questions that a method is through with, the failed ones included."""
        return frozenset(
            row[0] for row in self._rows("SELECT question FROM result WHERE run = ? AND method = ?", method)
        )

    def failed(self, method: str) -> frozenset[str]:
        """Return the ids of the questions that a method failed at."""
        return frozenset(result.question_id for result in self.rows(method) if result.answer is None)

    def save(self, method: str, question_id: str, result: Result) -> None:
        """Write a result; once this returns, neither a kill nor a power cut can lose it.

        Raises
        ------
        StoreError
            No run is open, or the file cannot be written.
        """
        if not self._writable:
            message = f"no run is open in {self.path}; call open_run before saving"
            raise StoreError(message)
        record = json.dumps(msgspec.to_builtins(result))  # the standard library's: it keeps infinities as they are
        with self._guard():
            connection = self._connect()
            with connection:
                connection.execute(
                    "INSERT OR REPLACE INTO result VALUES (?, ?, ?, ?)",
                    (self._run, _storable(method), _storable(question_id), record),
                )

    def rows(self, method: str) -> Iterator[Result]:
        """Read a method's results in the order in which they were written.

        Raises
        ------
        StoreError
            There is no run, or a row of it cannot be read.
        """
        query = "SELECT question, record FROM result WHERE run = ? AND method = ? ORDER BY rowid"
        for question_id, record in self._rows(query, method):
            try:
                yield msgspec.convert(json.loads(record), Result)
            except ValueError as error:
                message = (
                    f"{self.path}: the result of {method} for question {question_id!r} cannot be read ({error}); it was "
                    "written by another version: evaluate into another file"
                )
                raise StoreError(message) from None

    def _take_lock(self) -> None:
        if self.path == ":memory:":
            return
        path = Path(self.path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._lock = path.with_name(path.name + ".lock").open("ab")
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            message = f"{self.path} is being written by another process; wait for it, or evaluate into another file"
            raise StoreError(message) from None
        except (OSError, ValueError) as error:
            message = f"{self.path} cannot be written ({error}); choose another place"
            raise StoreError(message) from None

    def _connect(self) -> sqlite3.Connection:
        if self._connection is None:
            if self._lock is None and self.path != ":memory:" and not Path(self.path).is_file():
                message = f"no run is stored at {self.path}; check the path"
                raise StoreError(message)
            connection = sqlite3.connect(self.path, timeout=30, isolation_level="IMMEDIATE")
            self._connection = connection
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            if version not in (0, _SCHEMA_VERSION) or (version == 0 and _has_tables(connection)):
                message = f"{self.path} was not written by this version of the run store; choose another file"
                raise StoreError(message)
            if version == 0 and (self._lock is not None or self.path == ":memory:"):
                connection.execute("PRAGMA journal_mode = WAL")
                connection.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version = {_SCHEMA_VERSION}; COMMIT;")
            connection.execute("PRAGMA synchronous = FULL")
        return self._connection

    def _check_held(self, held: tuple[str, str], key: str, settings: Mapping[str, Any], *, resume: bool) -> None:
        connection = self._connect()
        count = connection.execute("SELECT count(*) FROM result").fetchone()[0]
        if not count:
            return  # begun and killed before its first result: nothing to protect
        if not resume:
            message = f"{self.path} already holds a run with {count} results; resume it, or evaluate into another file"
            raise StoreError(message)
        if held[0] != key:
            differences = _differences(json.loads(held[1]), json.loads(_canonical(settings)))
            shown = "; ".join(differences[:_SHOWN_DIFFERENCES])
            more = len(differences) - _SHOWN_DIFFERENCES
            message = (
                f"{self.path} holds a run with other settings: {shown}{f'; and {more} more' if more > 0 else ''}; "
                "set them back to resume it, or evaluate into another file"
            )
            raise StoreError(message)

    def _recorded(self, column: str) -> dict[str, Any]:
        query = "SELECT settings, notes FROM run WHERE key = ?"
        settings, notes = next(self._rows(query))
        found: dict[str, Any] = json.loads(settings if column == "settings" else notes)
        return found

    def _rows(self, query: str, *values: str) -> Iterator[tuple[Any, ...]]:
        with self._guard():
            connection = self._connect()
            if self._run is None:
                held = connection.execute("SELECT key FROM run").fetchone() if _has_tables(connection) else None
                if held is None:
                    message = f"{self.path} holds no run yet"
                    raise StoreError(message)
                self._run = held[0]
            rows = connection.execute(query, (self._run, *map(_storable, values))).fetchall()
        yield from rows

    @contextlib.contextmanager
    def _guard(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            message = (
                f"{self.path} cannot be used as a run store ({error}); check the disk, or evaluate into another file"
            )
            raise StoreError(message) from None


def file_settings(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Describe a file for the settings of a run by its content: size in bytes and SHA-256.

    Raises
    ------
    DataError
        The file cannot be read.
    """
    try:
        with Path(path).open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
            return {"bytes": stream.tell(), "sha256": digest}
    except OSError as error:
        message = f"cannot be read: {error.strerror or error}; check the path"
        raise DataError(message, path=path) from None


def _canonical(settings: Mapping[str, Any]) -> str:
    try:
        return json.dumps(msgspec.to_builtins(dict(settings), str_keys=True), sort_keys=True, allow_nan=False)
    except (TypeError, ValueError, NotImplementedError) as error:
        message = (
            f"the settings of a run must be JSON values ({error}); turn them into numbers, strings, lists or objects"
        )
        raise InputError(message) from None


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


def _has_tables(connection: sqlite3.Connection) -> bool:
    return bool(connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])


def _storable(text: str) -> str:
    """Make a string that SQLite takes: it has no place for lone surrogates."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
