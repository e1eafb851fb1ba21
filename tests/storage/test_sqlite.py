"""SQLite files that several writers make at once."""

from __future__ import annotations

import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

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
