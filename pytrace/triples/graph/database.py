"""The SQLite file under a knowledge graph: opening and checking it, one writer at a time, and errors put into words."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Literal

import msgspec

from pytrace.errors import InputError, StoreError
from pytrace.storage import sqlite
from pytrace.storage.foreign_json import decode_json
from pytrace.storage.locks import take_lock
from pytrace.storage.sqlite import checksum
from pytrace.triples.graph.graph_records import BY_HAND, Recipe

Mode = Literal["create", "resume", "read"]

FILE_NAME = "graph.db"
LOCK_NAME = "graph.lock"
APPLICATION_ID = 0x70545247  # "pTRG" in the file's header, so that no other SQLite file is taken for a graph
SCHEMA_VERSION = 2
# Version 1 lacks the checksums of rows; its files get them when they are opened to be changed.
_READABLE_VERSIONS = (1, SCHEMA_VERSION)

_REMEDY = "restore a copy, or delete the directory and build again"
_OPTIONS: dict[str, Any] = {"isolation_level": None, "check_same_thread": False}

# Columns without a type keep what they are given: text, or bytes for the rare text that UTF-8 cannot hold.
# `state` of a content: 0 waits for its extraction, 1 is extracted, 2 was edited by hand.
SCHEMA = f"""
CREATE TABLE settings (name TEXT PRIMARY KEY, value, {checksum("name", "value")}) WITHOUT ROWID;
CREATE TABLE contents (
  number INTEGER PRIMARY KEY,
  hash BLOB NOT NULL UNIQUE,
  title NOT NULL,
  sentences NOT NULL,
  state INTEGER NOT NULL DEFAULT 0,
  lines INTEGER NOT NULL DEFAULT 0,
  parsed INTEGER NOT NULL DEFAULT 0,
  dropped INTEGER NOT NULL DEFAULT 0,
  repeated INTEGER NOT NULL DEFAULT 0,
  truncated INTEGER NOT NULL DEFAULT 0,
  failure NOT NULL DEFAULT '',
  {checksum("number", "hash", "title", "sentences", "state", "lines", "parsed", "dropped", "repeated", "truncated", "failure")}
);
CREATE TABLE documents (
  number INTEGER PRIMARY KEY,
  id NOT NULL UNIQUE,
  position INTEGER NOT NULL,
  content INTEGER NOT NULL REFERENCES contents (number),
  source NOT NULL,
  {checksum("number", "id", "position", "content", "source")}
);
CREATE INDEX documents_by_position ON documents (position, number);
CREATE INDEX documents_by_content ON documents (content);
CREATE TABLE triples (
  content INTEGER NOT NULL,
  position INTEGER NOT NULL,
  head NOT NULL,
  relation NOT NULL,
  tail NOT NULL,
  sentence INTEGER NOT NULL,
  support REAL NOT NULL,
  {checksum("content", "position", "head", "relation", "tail", "sentence", "support")},
  PRIMARY KEY (content, position)
) WITHOUT ROWID;
CREATE INDEX triples_by_head ON triples (head);
CREATE INDEX triples_by_tail ON triples (tail) WHERE relation <> '';
CREATE TABLE origins (document INTEGER PRIMARY KEY, origin TEXT NOT NULL, {checksum("document", "origin")});
CREATE TRIGGER origins_go AFTER DELETE ON documents
  BEGIN DELETE FROM origins WHERE document = old.number; END;
"""


def from_sql(value: str | bytes) -> str:
    """Turn a stored value back into text: the inverse of `to_sql`."""
    if isinstance(value, str):
        return value
    try:
        return value.decode("utf-8", "surrogatepass")
    except (AttributeError, UnicodeDecodeError) as error:  # a damaged page that SQLite did not notice
        raise _damaged(error) from error


def load_json(text: str) -> object:
    """Parse JSON that `dump_json` wrote and the graph kept."""
    try:
        return decode_json(text, object, surrogates=True)
    except (ValueError, TypeError) as error:
        raise _damaged(error) from error


def _damaged(error: Exception) -> StoreError:
    return StoreError(f"the knowledge graph is damaged: a stored record cannot be read ({error}); {_REMEDY}")


class Database:
    """One connection to one graph's file, or to memory, used by one thread at a time."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        *,
        directory: Path | None,
        writable: bool,
        lock_file: BinaryIO | None = None,
    ) -> None:
        self.directory = directory
        self.location = "memory" if directory is None else str(directory / FILE_NAME)
        """Where the graph is, for messages."""
        self.writable = writable
        self._connection: sqlite3.Connection | None = connection
        self._lock_file = lock_file
        self._mutex = threading.RLock()

    @classmethod
    def in_memory(cls, recipe: Recipe) -> Database:
        """Open an empty graph that lives as long as the object."""
        connection = sqlite.connect(":memory:", **_OPTIONS)
        _set_up(connection)
        _prepare(connection, Path(":memory:"), recipe)
        return cls(connection, directory=None, writable=True)

    @classmethod
    def open(cls, directory: Path, *, recipe: Recipe | None, mode: Mode) -> Database:
        """Open or make the graph in `directory`; see `TripleStore.open`."""
        if mode == "read":
            return cls._open_to_read(directory, recipe)
        if mode not in ("create", "resume"):
            raise InputError(f"mode is {mode!r}; it can be 'create', 'resume' or 'read'")
        file = directory / FILE_NAME
        if mode == "resume" and recipe is None and not file.exists():
            raise _no_graph(directory)
        try:
            directory.mkdir(parents=True, exist_ok=True)
            lock_file = _lock(directory)
        except OSError as error:
            raise StoreError(
                f"cannot write a knowledge graph in {directory}: {error.strerror}; name a directory you can write to"
            ) from error
        with ExitStack() as on_error, translated(str(file)):
            on_error.callback(lock_file.close)
            connection = sqlite.connect(str(file), **_OPTIONS)
            on_error.callback(connection.close)
            _set_up(connection)
            make = None if mode == "resume" and recipe is None else recipe or BY_HAND
            existed = _prepare(connection, file, make, writable=True)
            database = cls(connection, directory=directory, writable=True, lock_file=lock_file)
            if not existed and make is None:
                raise _no_graph(directory)
            if mode == "create":
                database._start_over(recipe or BY_HAND)
            else:
                database._check_recipe(recipe)
            on_error.pop_all()
        return database

    @classmethod
    def _open_to_read(cls, directory: Path, recipe: Recipe | None) -> Database:
        file = directory / FILE_NAME
        if not file.is_file():
            raise _no_graph(directory)
        with translated(str(file)):
            connection = sqlite.connect_to_read(file, **_OPTIONS)
            with ExitStack() as on_error:
                on_error.callback(connection.close)
                _set_up(connection)
                if not _prepare(connection, file, None):
                    raise _no_graph(directory)
                database = cls(connection, directory=directory, writable=False)
                database._check_recipe(recipe)
                on_error.pop_all()
        return database

    def _start_over(self, recipe: Recipe) -> None:
        """Give a graph without documents another recipe; refuse one with documents."""
        with self.write() as connection:
            if connection.execute("SELECT 1 FROM contents LIMIT 1").fetchone():
                raise StoreError(
                    f"{self.directory} already holds a knowledge graph; resume it (--resume), name another directory, "
                    "or delete it first"
                )
            connection.execute("UPDATE settings SET value = ? WHERE name = 'recipe'", (recipe.to_json(),))

    def _check_recipe(self, recipe: Recipe | None) -> None:
        stored = self.recipe()
        if recipe is not None and stored.hash != recipe.hash:
            raise StoreError(
                f"the triples in {self.location} were extracted in another way ({'; '.join(stored.differences(recipe))}); "
                "name another directory (--out), use the same settings, or delete it and build again"
            )

    def recipe(self) -> Recipe:
        """Return the recipe that the graph was made with."""
        with self.read() as connection:
            row = connection.execute("SELECT value FROM settings WHERE name = 'recipe'").fetchone()
        try:
            return msgspec.convert(load_json(row[0] if row else ""), Recipe)
        except msgspec.ValidationError as error:
            raise _damaged(error) from error

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """Give the connection to one thread, with SQLite's errors put into words."""
        with self._mutex, translated(self.location):
            if self._connection is None:
                raise StoreError(f"the knowledge graph in {self.location} is closed; open it again")
            yield self._connection

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """Run one transaction: all of it is kept, or nothing."""
        if not self.writable:
            raise StoreError(f"{self.location} was opened for reading; open it with mode='resume' to change it")
        with self.read() as connection:
            # A transaction that reads before it takes the right to write is refused at once where another program writes,
            # without waiting for the timeout.
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    @contextmanager
    def snapshot(self) -> Iterator[Database]:
        """Give a view that no later write changes: a second connection inside one read transaction."""
        # In memory there is one connection, so the caller must not write meanwhile.
        if self.directory is None:
            yield self
            return
        database = Database._open_to_read(self.directory, None)
        try:
            with database.read() as connection:
                connection.execute("BEGIN")
                # A deferred transaction begins with the first read.
                connection.execute("SELECT count(*) FROM settings").fetchone()
            yield database
        finally:
            database.close()

    def verify(self) -> int:
        """Read all of the file, and return how many rows fit their checksums; `StoreError` where something has changed."""
        with self.read() as connection:
            return sqlite.verify(connection, self.location, remedy=_REMEDY)

    def close(self) -> None:
        """Close the file, then let the next writer in."""
        with self._mutex:
            connection, self._connection = self._connection, None
            try:
                if connection is not None:
                    with translated(self.location):
                        connection.close()
            finally:
                if self._lock_file is not None:
                    self._lock_file.close()
                    self._lock_file = None


def _set_up(connection: sqlite3.Connection) -> None:
    """Give a connection the settings that every one needs."""
    # synchronous=NORMAL: a killed process loses nothing that was committed. Only a power cut or a crash of the
    # operating system can, and then at most the last few documents, never half a document; a resumed build extracts
    # them again. FULL would wait for the disk after each document, which costs more than storing it.
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA cache_size = -16384")  # 16 MiB: bounds memory whatever the size of the graph
    # 32 MiB of log, not 4: a page that many documents touch (of an index) is then copied to the file once for them all.
    connection.execute("PRAGMA wal_autocheckpoint = 8192")
    connection.execute("PRAGMA secure_delete = ON")  # a removed document's words are gone from the file, too


def _prepare(connection: sqlite3.Connection, file: Path, recipe: Recipe | None, *, writable: bool = False) -> bool:
    """Check a graph's file, make an empty one a graph if there is a recipe for it, and return whether it was one before."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    existed = bool(application) or sqlite.has_tables(connection)
    if existed and application != APPLICATION_ID:
        raise StoreError(f"{file} is a database, but not a knowledge graph of pytrace; name another directory")
    # The recipe goes in with the tables: a build that is killed while it begins leaves all of it or an empty file.
    (quoted,) = connection.execute("SELECT quote(?)", (recipe.to_json() if recipe else "",)).fetchone()
    version = sqlite.prepare(
        connection,
        f"{SCHEMA}INSERT INTO settings VALUES ('recipe', {quoted}); PRAGMA application_id = {APPLICATION_ID};",
        version=SCHEMA_VERSION,
        readable=_READABLE_VERSIONS,
        foreign=f"{file} has format {version} and this version of pytrace reads format {SCHEMA_VERSION}; "
        "use the version that wrote it, or export there and import here",
        make=recipe is not None or (writable and existed),
    )
    if existed and not sqlite.pending_log(
        file
    ):  # else pages may still be in the log; SQLite reports one that is nowhere
        _check_whole(connection, file)
    if existed and version == SCHEMA_VERSION:
        sqlite.check(connection, str(file), SCHEMA, kind="knowledge graph", remedy=_REMEDY)
    return existed


def _check_whole(connection: sqlite3.Connection, file: Path) -> None:
    """Refuse a file whose header counts more pages than it has: a copy that was cut off."""
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    (page_size,) = connection.execute("PRAGMA page_size").fetchone()
    size = file.stat().st_size
    if size < pages * page_size:
        raise StoreError(f"{file} is damaged: it has {size} of {pages * page_size} bytes; {_REMEDY}")


def _no_graph(directory: Path) -> StoreError:
    if directory.is_file():
        return StoreError(f"{directory} is a file; name the directory that holds {FILE_NAME}")
    return StoreError(f"there is no knowledge graph in {directory}; build one there first (pytrace kg build)")


def _lock(directory: Path) -> BinaryIO:
    """Take the right to write, and leave the process's number for others to name."""
    path = directory / LOCK_NAME
    holder = path.read_bytes()[:20].decode(errors="replace") if path.exists() else ""
    file = take_lock(
        path,
        f"process {holder or '(unknown)'} is writing to the knowledge graph in {directory}; "
        "wait until it ends, or stop it (it can be resumed)",
    )
    # After the lock is held: the number of a writer at work must stay readable.
    file.truncate(0)
    file.write(str(os.getpid()).encode())
    file.flush()
    return file


def translated(location: str) -> AbstractContextManager[None]:
    """Turn SQLite's errors into one sentence: what is wrong with which file, and what to do."""
    return sqlite.translated(location, "knowledge graph", _REMEDY)
