"""SQLite files that several writers make at once, and logs that killed ones leave."""

from __future__ import annotations

import shutil
import sqlite3
import struct
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from random import Random

import numpy as np
import pytest

from pytrace.storage import sqlite


def test_a_file_that_several_make_at_the_same_moment_is_made_once(tmp_path: Path) -> None:
    makers, files = 6, 40
    start = threading.Barrier(makers)

    def make(_: int) -> None:
        for number in range(files):
            start.wait(timeout=60)
            connection = sqlite3.connect(tmp_path / str(number), timeout=sqlite.PATIENCE, isolation_level=None)
            try:
                sqlite.prepare(connection, "CREATE TABLE IF NOT EXISTS rows (x)", version=3, foreign="foreign")
                connection.execute("INSERT INTO rows VALUES (1)")
            except BaseException:
                start.abort()
                raise
            finally:
                connection.close()

    with ThreadPoolExecutor(makers) as pool:
        list(pool.map(make, range(makers)))
    for number in range(files):
        connection = sqlite3.connect(tmp_path / str(number))
        assert connection.execute("SELECT count(*) FROM rows").fetchone() == (makers,)
        connection.close()


def killed(folder: Path, *, writes: int) -> Path:
    """Make a file whose writer was killed after so many commits, in the middle of another one; all of them are in its log."""
    folder.mkdir()
    with closing(sqlite.connect(str(folder / "living"), isolation_level=None)) as writer:
        writer.execute("PRAGMA journal_mode = WAL").fetchone()
        writer.execute("PRAGMA cache_size = 1")  # what was not committed is in the log, too
        writer.execute("CREATE TABLE one (number, text)")
        for number in range(writes):
            writer.execute("INSERT INTO one VALUES (?, ?)", (number, "x" * 3000))
        writer.execute("BEGIN")
        writer.executemany("INSERT INTO one VALUES (-1, ?)", [("y" * 3000,)] * 30)
        for end in ("", "-wal"):
            shutil.copy(folder / f"living{end}", folder / f"dead{end}")
        writer.execute("ROLLBACK")
    return folder / "dead"


def numbers(file: Path) -> list[int]:
    with closing(sqlite.connect(str(file))) as connection:
        return [number for (number,) in connection.execute("SELECT number FROM one")]


def test_a_log_that_lost_commits_is_told_and_a_whole_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    file = killed(tmp_path / "killed", writes=5)
    content = (log := file.with_name("dead-wal")).read_bytes()
    places, copy = Random(0), tmp_path / "copy"
    silent = 0
    for _ in range(50):
        place = places.randrange(len(content))
        copy.write_bytes(file.read_bytes())
        copy.with_name("copy-wal").write_bytes(
            content[:place] + bytes([content[place] ^ 1 << places.randrange(8)]) + content[place + 1 :]
        )
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            try:
                found = numbers(copy)
            except sqlite3.Error:
                found = []
        silent += not told
        assert told or found == [*range(5)], place
        for left in tmp_path.glob("copy*"):
            left.unlink()
    assert 0 < silent < 50  # what was never committed is no loss
    # A header that is right by its checksum, of pages that SQLite knows not.
    forged = struct.pack("<6I", 0x82067F37, 0, 0xF0FFFFFF, 0, 0, 0)
    sums = (np.frombuffer(forged, "<u4") @ sqlite._weights(6)[:6]).tolist()
    log.write_bytes(forged + struct.pack(">2I", *sums) + content[32:])
    assert sqlite._is_broken(log)
    log.write_bytes(content[:-100])
    assert numbers(file) == [*range(5)]  # without a warning, which would be an error here


def test_the_remains_of_an_older_log_are_no_damage(tmp_path: Path) -> None:
    file = tmp_path / "file"
    with closing(sqlite.connect(str(file), isolation_level=None)) as writer:
        writer.execute("PRAGMA journal_mode = WAL").fetchone()
        writer.execute("CREATE TABLE one (number, text)")
        writer.executemany("INSERT INTO one VALUES (?, ?)", [(number, "x" * 3000) for number in range(9)])
        writer.execute("PRAGMA wal_checkpoint").fetchone()
        assert numbers(file) == [*range(9)]
        writer.execute("INSERT INTO one VALUES (9, '')")  # at the log's beginning
        assert numbers(file) == [*range(10)]
