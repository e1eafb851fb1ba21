"""SQLite files: the tables of a version, whole or not at all, rows with checksums, and SQLite's errors in words."""

from __future__ import annotations

import sqlite3
import struct
import time
import warnings
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from pytrace.errors import StoreError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# How many seconds another process may write before this one gives up.
PATIENCE = 30.0
# What SQLite checks in some thirty milliseconds.
_SMALL = 4 << 20
_CHECKSUM = "checksum"
_MOST_REASON = 200
# Of a log that are looked at together: some megabyte.
_FRAMES = 256


def checksum(*columns: str) -> str:
    """Return the SQL of a column that holds the checksum of others, which SQLite keeps by itself: see `intact`."""
    return f"{_CHECKSUM} INTEGER AS (row_checksum({', '.join(columns)})) STORED"


def connect(name: str, **options: Any) -> sqlite3.Connection:
    """Connect to a file whose tables may have checksums."""
    if not name.startswith((":memory:", "file:")):
        _tell_broken_log(Path(name))
    connection: sqlite3.Connection = sqlite3.connect(name, timeout=PATIENCE, uri=name.startswith("file:"), **options)
    connection.create_function("row_checksum", -1, _row_checksum, deterministic=True)
    connection.create_function("fits", -1, _fits, deterministic=True)
    return connection


def connect_to_read(file: Path, *, mode: Literal["ro", "rw"] = "ro", **options: Any) -> sqlite3.Connection:
    """Connect to a file that is there, on read-only media too; with "rw" SQLite leaves nothing beside the file where it may write."""
    _tell_broken_log(file)
    uri = file.absolute().as_uri()
    connection = connect(f"{uri}?mode={mode}", **options)
    try:
        connection.execute("SELECT count(*) FROM sqlite_schema")
    except sqlite3.OperationalError as error:
        connection.close()
        # On read-only media SQLite cannot keep its shared index beside the file; without a log it needs none.
        if not error.sqlite_errorname.startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY")):
            raise
        if pending_log(file):
            raise StoreError(
                f"{file} has changes in its log, which SQLite cannot read where it cannot write; copy {file.parent} to another place"
            ) from error
        return connect(f"{uri}?mode=ro&immutable=1", **options)
    except BaseException:
        connection.close()
        raise
    return connection


def prepare(
    connection: sqlite3.Connection,
    schema: str,
    *,
    version: int,
    foreign: str,
    readable: Sequence[int] = (),
    make: bool = True,
) -> int:
    """Make the tables of a new file, or make those of a readable older version anew, and return the version that is there then.

    `foreign` refuses any other file. Another process may make them at the same moment.
    """
    # One statement sees one state of the file; two would see another process's tables beside the version before them.
    [current, tables] = connection.execute(
        "SELECT user_version, (SELECT count(*) FROM sqlite_schema) FROM pragma_user_version"
    ).fetchone()
    if current not in (0, version, *readable) or (current == 0 and tables):
        raise StoreError(f"{foreign}; if a newer pytrace wrote it, update this one" if current > version else foreign)
    if current < version and make:
        _turn_to_log(connection)
        connection.execute("BEGIN IMMEDIATE")
        try:
            [current] = connection.execute("PRAGMA user_version").fetchone()
            if current < version:
                _make_tables(connection, schema)
                connection.execute(f"PRAGMA user_version = {version}")
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        return version
    return int(current)


def _make_tables(connection: sqlite3.Connection, schema: str) -> None:
    """Make the tables, and let them have the rows of those of the same names."""
    before = [name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    for kind, name in connection.execute(
        "SELECT type, name FROM sqlite_schema WHERE type IN ('index', 'trigger') AND sql IS NOT NULL"
    ).fetchall():
        connection.execute(f'DROP {kind} "{name}"')
    for name in before:
        connection.execute(f'ALTER TABLE "{name}" RENAME TO "before {name}"')
    for statement in _statements(schema):
        connection.execute(statement)
    for name in before:
        columns = ", ".join(f'"{column}"' for column in _columns(connection, f"before {name}"))
        # In their order: a table of numbered rows keeps it. The schema may have put rows there, which those before replace.
        order = "" if "WITHOUT ROWID" in schema_of(connection, f"before {name}").upper() else " ORDER BY rowid"
        connection.execute(f'INSERT OR REPLACE INTO "{name}" ({columns}) SELECT {columns} FROM "before {name}"{order}')
        connection.execute(f'DROP TABLE "before {name}"')


def schema_of(connection: sqlite3.Connection, table: str) -> str:
    """Return the SQL that made a table, "" if there is none."""
    [sql] = connection.execute("SELECT sql FROM sqlite_schema WHERE name = ?", (table,)).fetchone() or ("",)
    return str(sql)


def _statements(script: str) -> Iterator[str]:
    statement = ""
    for part in script.split(";"):
        statement += part + ";"
        if sqlite3.complete_statement(statement):  # a trigger has semicolons within
            yield statement
            statement = ""


def _columns(connection: sqlite3.Connection, table: str) -> list[str]:
    rows = connection.execute("SELECT name FROM pragma_table_xinfo(?)", (table,))
    return [name for (name,) in rows if name != _CHECKSUM]


def check(connection: sqlite3.Connection, file: str, schema: str, *, kind: str, remedy: str) -> None:
    """Refuse a file of the current version that lacks a part of its schema, or whose pages SQLite finds damaged, where that is quick."""
    with sqlite3.connect(":memory:") as model:
        model.create_function("row_checksum", -1, _row_checksum, deterministic=True)
        for statement in _statements(schema):
            model.execute(statement)
        query = "SELECT type, name, tbl_name, sql FROM sqlite_schema WHERE sql IS NOT NULL"
        due = set(model.execute(query))
    model.close()
    if lacking := due.difference(connection.execute(query)):
        names = ", ".join(sorted(str(name) for _, name, _, _ in lacking))
        raise StoreError(f"{file} is damaged: its {names} are not those of a {kind}; {remedy}")
    [pages] = connection.execute("PRAGMA page_count").fetchone()
    [size] = connection.execute("PRAGMA page_size").fetchone()
    if pages * size <= _SMALL:
        _check_pages(connection, file, "quick_check", remedy=remedy)


def _check_pages(connection: sqlite3.Connection, file: str, pragma: str, *, remedy: str) -> None:
    [first] = connection.execute(f"PRAGMA {pragma}(1)").fetchone()
    if first != "ok":
        raise StoreError(f"{file} is damaged ({' '.join(str(first).split())}); {remedy}")


def verify(connection: sqlite3.Connection, file: str, *, remedy: str) -> int:
    """Read all of a file: its pages, and the rows that have checksums, which are counted; `StoreError` where something has changed."""
    _check_pages(connection, file, "integrity_check", remedy=remedy)
    count = 0
    for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall():
        condition = intact(connection, name)
        if condition != "TRUE":
            # Over the table itself: an index would be searched instead where it has all the columns.
            [rows] = connection.execute(f'SELECT count(*) FROM "{name}" NOT INDEXED WHERE {condition}').fetchone()
            count += rows
    return count


def intact(connection: sqlite3.Connection, table: str, alias: str = "") -> str:
    """Return an SQL condition that holds for rows as they were written, and ends the statement at one that is not.

    It is TRUE for tables without checksums, which are those of older versions.
    """
    prefix = f"{alias}." if alias else ""
    if f"{_CHECKSUM} INTEGER AS (" not in schema_of(connection, table):
        return "TRUE"
    return f"fits({', '.join(prefix + name for name in (_CHECKSUM, *_columns(connection, table)))})"


def _row_checksum(*values: object) -> int:
    return zlib.crc32(msgspec.msgpack.encode(values))


def _fits(due: object, *values: object) -> bool:
    if _row_checksum(*values) != due:
        raise ValueError  # which SQLite makes an error of its own
    return True


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


def _tell_broken_log(file: Path) -> None:
    """Warn of changes that SQLite drops in silence: it takes the first frame of a log that is not whole for the log's end."""
    log = file.with_name(file.name + "-wal")
    if _is_broken(log):
        time.sleep(0.1)  # a living writer may be about to write the rest of a frame
        if _is_broken(log):
            warnings.warn(
                f"{log} is damaged: a byte has changed, or the machine went down; the last changes of {file.name} are lost, so do again "
                "what was stored last",
                UserWarning,
                stacklevel=1,  # once, however often it is opened
            )


def _is_broken(log: Path) -> bool:
    """Whether a commit stands behind the place up to which SQLite reads a log (see "The WAL File Format" at sqlite.org)."""
    with suppress(OSError), log.open("rb") as stream:
        header = stream.read(32)
        if len(header) < 32:
            return False
        import numpy as np

        magic, _, page, _, *salts, x, y = struct.unpack(">8I", header)
        order = ">u4" if magic & 1 else "<u4"
        sums = (np.frombuffer(header[:24], order).astype(np.uint32) @ _weights(6)[:6]).tolist()
        if sums != [x, y] or page not in {1 << power for power in range(9, 17)}:
            return bool(stream.read(1))
        weights = _weights((8 + page) // 4)
        (p, q), (r, s) = weights[-2:].tolist()
        whole = True
        while chunk := stream.read((24 + page) * _FRAMES):
            frames = np.frombuffer(chunk[: len(chunk) // (24 + page) * (24 + page)], np.uint8).reshape(-1, 24 + page)
            # Its page, the file's size where it commits, salts and sums.
            heads = np.ascontiguousarray(frames[:, :24]).view(">u4")
            ours = heads[:, 2:4] == salts
            first = 0
            if whole:
                words = np.concatenate([frames[:, :8], frames[:, 24:]], axis=1).view(order).astype(np.uint32)
                added, due = (words @ weights[:-2]).tolist(), heads[:, 4:6].tolist()
                while whole and first < len(frames):
                    a, b = added[first]
                    x, y = (p * x + r * y + a) & 0xFFFFFFFF, (q * x + s * y + b) & 0xFFFFFFFF
                    whole = due[first] == [x, y] and bool(ours[first].all())
                    first += whole
            # What a rollback or an older log left has no commit of these salts.
            if (ours[first:].any(axis=1) & (heads[first:, 1] != 0)).any():
                return True
    return False


@cache
def _weights(words: int) -> NDArray[np.uint32]:
    """Return what each word adds to both sums of SQLite's checksum, modulo 2^32, and in two more rows what the sums before it add."""
    # Each pair of words makes the sums x, y into x + y + a, x + 2y + a + b: rows from the last pair to the first.
    import numpy as np

    rows, (p, q, r, s) = list[list[int]](), (1, 0, 0, 1)
    for _ in range(words // 2):
        rows += [[q, s], [p + q, r + s]]
        p, q, r, s = p + q, (p + 2 * q) & 0xFFFFFFFF, r + s, (r + 2 * s) & 0xFFFFFFFF
    rows = [*reversed(rows), [p, r], [q, s]]
    return np.array(rows, dtype=np.uint64).astype(np.uint32)


@contextmanager
def translated(name: str, kind: str, remedy: str) -> Iterator[None]:
    """Turn SQLite's errors into one sentence: what is wrong with which file of what kind, and what to do."""
    try:
        yield
    except (sqlite3.Error, UnicodeDecodeError) as error:  # the latter from names in a damaged schema
        raise StoreError(_explain(error, name, kind, remedy)) from error


def _explain(error: Exception, name: str, kind: str, remedy: str) -> str:
    said = " ".join(str(error).split())  # it quotes the file, line ends and all
    said = said if len(said) <= _MOST_REASON else f"{said[:_MOST_REASON]}…"
    primary = getattr(error, "sqlite_errorcode", 0) & 0xFF  # without the bits of SQLite's extended codes
    if primary == sqlite3.SQLITE_FULL:
        return f"no space left to write {name}; what was stored before is kept: free some space and resume"
    if primary == sqlite3.SQLITE_NOTADB:
        return f"{name} is not a {kind} (no SQLite file); name another place, or delete it"
    if "user-defined function" in said:
        return f"{name} is damaged (a row does not fit its checksum); {remedy}"
    if primary == sqlite3.SQLITE_CORRUPT or "decode" in said:
        return f"{name} is damaged ({said}); {remedy}"
    if primary == sqlite3.SQLITE_IOERR:
        return (
            f"{name} could not be read or written ({said}); what was stored before is kept: check the disk, then resume"
        )
    if primary in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return f"{name} stayed locked for {PATIENCE:.0f} seconds by another program; end that program, then resume"
    if primary in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_CANTOPEN):
        return f"{name} cannot be opened for this ({said}); check its permissions"
    return f"{name} cannot be used as a {kind} ({said}); check the disk, or {remedy}"
