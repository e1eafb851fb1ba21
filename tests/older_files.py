"""SQLite files as versions before wrote them."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path


def without_checksums(path: Path, version: int) -> None:
    """Make a file one of a version whose rows had no checksums."""
    connection = sqlite3.connect(path, isolation_level=None)
    others = connection.execute("SELECT type, name, sql FROM sqlite_schema WHERE type <> 'table' AND sql IS NOT NULL")
    others = others.fetchall()
    connection.execute("PRAGMA legacy_alter_table = ON")
    for kind, name, _ in others:
        connection.execute(f"DROP {kind} {name}")
    for name, sql in connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'table'").fetchall():
        connection.execute(f"ALTER TABLE {name} RENAME TO new_{name}")
        connection.execute(re.sub(r",\s*checksum INTEGER AS \(row_checksum\([^)]*\)\) STORED", "", sql))
        columns = [column for _, column, *_ in connection.execute(f"PRAGMA table_info({name})")]
        connection.execute(f"INSERT INTO {name} SELECT {', '.join(columns)} FROM new_{name}")
        connection.execute(f"DROP TABLE new_{name}")
    for _, _, sql in others:
        connection.execute(sql)
    connection.execute(f"PRAGMA user_version = {version}")
    connection.close()
