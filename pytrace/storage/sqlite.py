"""SQLite files: the tables of a version, whole or not at all, and SQLite's errors in words."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pytrace.errors import StoreError

# How many seconds another process may write before this one gives up.
PATIENCE = 30.0


def prepare(
    connection: sqlite3.Connection,
    schema: str,
    *,
    version: int,
    foreign: str,
    readable: Sequence[int] = (),
    make: bool = True,
) -> None:
    """Make the tables of a new file, or add those that a readable older version lacks; `foreign` refuses any other file.

    Another process may make them at the same moment: where two may, the schema's tables are made "if not exists".
    """
    # One statement sees one state of the file; two would see another process's tables beside the version before them.
    [current, tables] = connection.execute(
        "SELECT user_version, (SELECT count(*) FROM sqlite_schema) FROM pragma_user_version"
    ).fetchone()
    if current not in (0, version, *readable) or (current == 0 and tables):
        raise StoreError(foreign)
    if current < version and make:
        _turn_to_log(connection)
        connection.executescript(
            f"BEGIN IMMEDIATE; {schema.rstrip().rstrip(';')}; PRAGMA user_version = {version}; COMMIT;"
        )


def _turn_to_log(connection: sqlite3.Connection) -> None:
    """Have changes written ahead to a log; SQLite itself does not wait here while others make the same file."""
    gives_up = time.monotonic() + PATIENCE
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL").fetchone()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > gives_up:
                raise
            time.sleep(0.01)
        else:
            return


def has_tables(connection: sqlite3.Connection) -> bool:
    """Whether anything was ever made in a file."""
    return bool(connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0])


def pending_log(file: Path) -> bool:
    """Whether there are changes in the write-ahead log that are not in the file yet."""
    log = file.with_name(file.name + "-wal")
    return log.exists() and log.stat().st_size > 0


@contextmanager
def translated(name: str, kind: str, remedy: str) -> Iterator[None]:
    """Turn SQLite's errors into one sentence: what is wrong with which file of what kind, and what to do."""
    try:
        yield
    except sqlite3.Error as error:
        raise StoreError(_explain(error, name, kind, remedy)) from error


def _explain(error: sqlite3.Error, name: str, kind: str, remedy: str) -> str:
    primary = getattr(error, "sqlite_errorcode", 0) & 0xFF  # without the bits of SQLite's extended codes
    if primary == sqlite3.SQLITE_FULL:
        return f"no space left to write {name}; what was stored before is kept: free some space and resume"
    if primary == sqlite3.SQLITE_NOTADB:
        return f"{name} is not a {kind} (no SQLite file); name another place, or delete it"
    if primary == sqlite3.SQLITE_CORRUPT or "decode to UTF-8" in str(error):
        return f"{name} is damaged ({error}); {remedy}"
    if primary == sqlite3.SQLITE_IOERR:
        return f"{name} could not be read or written ({error}); what was stored before is kept: check the disk, then resume"
    if primary in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return f"{name} stayed locked for {PATIENCE:.0f} seconds by another program; end that program, then resume"
    if primary in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_CANTOPEN):
        return f"{name} cannot be opened for this ({error}); check its permissions"
    return f"{name} cannot be used as a {kind} ({error}); check the disk, or {remedy}"
