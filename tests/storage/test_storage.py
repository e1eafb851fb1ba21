"""What every store on disk relies on: files whole or as before, locks that end with their process, versions, text."""

from __future__ import annotations

import errno
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from pytrace.errors import StoreError
from pytrace.storage import sqlite
from pytrace.storage.files import atomic_output, check_file, checksum, real_path, replace_file
from pytrace.storage.locks import locked, take_lock
from pytrace.storage.text import canonical, dump_json, storable, to_sql


def test_a_file_is_replaced_whole_or_stays(tmp_path: Path) -> None:
    path = tmp_path / "a"
    replace_file(path, b"first")
    with pytest.raises(TypeError), atomic_output(path) as stream:
        stream.writelines([b"half", "no bytes"])  # type: ignore[list-item]
    assert path.read_bytes() == b"first"
    with atomic_output(path) as stream:
        stream.write(b"second")
    assert path.read_bytes() == b"second"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize(("number", "status"), [(errno.ENOSPC, 1), (errno.EACCES, 2)])
def test_a_file_that_cannot_be_written_names_itself(tmp_path: Path, number: int, status: int) -> None:
    with pytest.raises(StoreError, match=r"cannot write .*a: .*; nothing was changed there") as raised:  # noqa: SIM117
        with atomic_output(tmp_path / "a"):
            raise OSError(number, os.strerror(number))
    assert raised.value.exit_code == status
    assert not list(tmp_path.iterdir())


def test_a_link_keeps_pointing_to_the_file_that_is_written(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"1")
    (tmp_path / "link").symlink_to("real")
    with atomic_output(tmp_path / "link") as stream:
        stream.write(b"2")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"2"


def test_a_file_that_changed_or_was_cut_off_is_found_by_its_checksum(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"0123456789")
    crc, size = checksum(path, 10)
    assert size == 10
    check_file(path, 10, crc, remedy="build it anew")
    for content in (b"0123456780", b"012345678"):
        path.write_bytes(content)
        with pytest.raises(StoreError, match=r"damaged: .* of 10 bytes .*; build it anew"):
            check_file(path, 10, crc, remedy="build it anew")


_HOLDER = """
import sys, time
from pathlib import Path
from pytrace.storage.locks import take_lock
lock = take_lock(Path(sys.argv[1]), "taken")
print("held", flush=True)
time.sleep(60)
"""


def test_a_lock_keeps_other_processes_out_until_its_own_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with subprocess.Popen([sys.executable, "-c", _HOLDER, str(path)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(StoreError, match="somebody writes here"):
            take_lock(path, "somebody writes here")
        with locked(path, None) as held:
            assert not held
        holder.kill()
        with locked(path, lambda: None) as held:  # waits for the process to be gone
            assert held
    take_lock(path, "somebody writes here").close()


def test_tables_are_made_once_and_other_files_are_refused(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "a")
    for _ in range(2):
        sqlite.prepare(
            connection, "CREATE TABLE IF NOT EXISTS t (x);", version=2, readable=(1,), foreign="another file"
        )
    assert sqlite.has_tables(connection)
    sqlite.prepare(connection, "CREATE TABLE u (x);", version=3, readable=(2,), make=False, foreign="another file")
    assert connection.execute("PRAGMA user_version").fetchone() == (2,)
    with pytest.raises(StoreError, match="another file"):
        sqlite.prepare(connection, "", version=7, foreign="another file")
    connection.execute("PRAGMA user_version = 0")
    with pytest.raises(StoreError, match="another file"):
        sqlite.prepare(connection, "", version=2, foreign="another file")
    connection.close()


def test_sqlite_errors_name_the_file_and_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no database, but long enough to be told from an empty file " * 20)
    connection = sqlite3.connect(tmp_path / "text")
    with (
        pytest.raises(StoreError, match=r"text is not a run store"),
        sqlite.translated("text", "run store", "delete it"),
    ):
        connection.execute("SELECT * FROM sqlite_schema")
    connection.close()
    with pytest.raises(StoreError, match=r"^x cannot be used as a run store .*, or delete it"):  # noqa: SIM117
        with sqlite.translated("x", "run store", "delete it"):
            connection.execute("SELECT 1")


def test_lone_surrogates_are_kept_and_pairs_become_characters() -> None:
    assert storable("a\ud800") == "a\\ud800"
    assert canonical("\ud83d\ude00\ud800") == "😀\ud800"
    assert (to_sql("é"), to_sql("\ud83d\ude00"), to_sql("\ud800")) == ("é", "😀", b"\xed\xa0\x80")
    assert (dump_json({"x": "é"}), dump_json(["\ud800\n"])) == ('{"x":"é"}', '["\\ud800\\n"]')


def test_a_link_to_itself_is_left_for_whoever_opens_it(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to("loop")
    assert real_path(loop) == loop
    with atomic_output(loop) as stream:
        stream.write(b"x")
    assert loop.read_bytes() == b"x"


def test_a_damaged_name_in_an_error_of_sqlite_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE answers (key PRIMARY KEY)")
        connection.execute("CREATE INDEX answers_by_key ON answers (key)")
    connection.close()
    path.write_bytes(path.read_bytes().replace(b"answers_by_key ON answers", b"answers_by_key ON \xe1nswers"))
    with (
        sqlite3.connect(path) as connection,
        pytest.raises(StoreError, match=r"^a\.db is damaged"),
        sqlite.translated("a.db", "run store", "delete it"),
    ):
        connection.execute("SELECT * FROM answers")
    connection.close()
    path.unlink()
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE answers (\n  key PRIMARY KEY\n)")
    connection.close()
    path.write_bytes(path.read_bytes().replace(b"answers (", b"answers `"))
    with sqlite3.connect(path) as connection, pytest.raises(StoreError) as told:  # noqa: SIM117
        with sqlite.translated("a.db", "run store", "delete it"):
            connection.execute("SELECT * FROM answers")
    connection.close()
    assert str(told.value).startswith("a.db is damaged (malformed database schema")
    assert "\n" not in str(told.value)


def test_rows_made_anew_keep_their_order_and_what_the_schema_puts_there_gives_way(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    old = "CREATE TABLE t (name); CREATE INDEX t_by_name ON t (name); CREATE TABLE s (name PRIMARY KEY, value)"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.executescript(f"{old}; INSERT INTO t VALUES ('b'), ('a'); INSERT INTO s VALUES ('x', 1)")
        connection.execute("PRAGMA user_version = 1")
    schema = (
        f"CREATE TABLE t (name, {sqlite.checksum('name')}); CREATE INDEX t_by_name ON t (name); "
        "CREATE TABLE s (name PRIMARY KEY, value); INSERT INTO s VALUES ('x', 0)"
    )
    with closing(sqlite.connect(str(path), isolation_level=None)) as connection:
        assert sqlite.intact(connection, "t") == "TRUE"
        assert sqlite.prepare(connection, schema, version=2, foreign="foreign", readable=(1,)) == 2
        sqlite.check(connection, "a.db", schema, kind="store", remedy="delete it")
        assert [name for (name,) in connection.execute("SELECT name FROM t ORDER BY rowid")] == ["b", "a"]
        assert connection.execute("SELECT * FROM s").fetchall() == [("x", 1)]
        assert sqlite.verify(connection, "a.db", remedy="delete it") == 2
        connection.execute("DROP INDEX t_by_name")
        with pytest.raises(StoreError, match=r"a\.db is damaged: its t_by_name are not those of a store"):
            sqlite.check(connection, "a.db", schema, kind="store", remedy="delete it")
    connection = sqlite3.connect(path)
    connection.create_function("row_checksum", -1, lambda *_: 7, deterministic=True)
    connection.execute("UPDATE t SET name = 'c' WHERE name = 'a'")
    connection.commit()
    connection.close()
    with (
        closing(sqlite.connect(str(path))) as connection,
        pytest.raises(StoreError, match="row does not fit its checksum"),
        sqlite.translated("a.db", "store", "delete it"),
    ):
        sqlite.verify(connection, "a.db", remedy="delete it")
