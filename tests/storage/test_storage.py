"""What every store on disk relies on: files whole or as before, locks that end with their process, versions, text."""

from __future__ import annotations

import errno
import os
import sqlite3
import subprocess
import sys
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
