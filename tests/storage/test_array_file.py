"""Files of named arrays: what is written is read, whatever was damaged is told, and a file is whole or not there."""

from __future__ import annotations

import os
import shutil
import signal
import struct
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from pytrace.errors import StoreError
from pytrace.storage import array_file
from pytrace.storage.array_file import ArrayFile, ArrayFileEntry, ArrayPieces, write_arrays

TYPES = [
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
]
SMALL = {"rows": np.arange(6, dtype=np.uint16).reshape(2, 3), "none": np.empty(0, dtype=np.float32), "x": np.ones(1)}


def opened(path: Path, entry: ArrayFileEntry | None = None) -> ArrayFile:
    return ArrayFile.open(path, what="the test", remedy="write it anew", entry=entry)


def names(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir()]


def same(file: ArrayFile, arrays: dict[str, NDArray[Any]]) -> None:
    assert file.names == tuple(arrays)
    for name, array in arrays.items():
        assert file[name].dtype == array.dtype.newbyteorder("<")
        assert file[name].shape == array.shape
        assert file[name].tobytes() == array.astype(array.dtype.newbyteorder("<")).tobytes()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_arrays(tmp_path / "a", SMALL)
    return tmp_path / "a"


def test_arrays_of_every_type_and_shape_are_read_as_they_were_written(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    arrays: dict[str, NDArray[Any]] = {name: draw.integers(0, 2, (5, 7)).astype(name) for name in TYPES}
    arrays |= {
        "no rows": np.empty((0, 384), dtype=np.int8),
        "no columns": np.empty((9, 0)),
        "one number": np.array(7, dtype=np.int64),
        "big-endian": np.arange(5, dtype=">i4"),
        "every other": np.arange(100)[::2],
        "columns first": np.asfortranarray(np.arange(12).reshape(3, 4)),
        "with \n ü": np.arange(2),
    }
    entry = write_arrays(tmp_path / "a", arrays)
    assert entry.bytes == (tmp_path / "a").stat().st_size
    with opened(tmp_path / "a", entry) as file:
        file.verify()
    same(file, arrays)  # closed or not
    for array in map(file.__getitem__, file.names):
        assert not array.flags.writeable
        assert not array.size or array.ctypes.data % 64 == 0
    with pytest.raises(StoreError, match=r"a holds no array 'z', only 'bool', 'int8', .*; write it anew"):
        file["z"]


def test_no_arrays_are_a_file_too(tmp_path: Path) -> None:
    file = opened(tmp_path / "a", write_arrays(tmp_path / "a", {}))
    file.verify()
    assert file.names == ()


def test_large_arrays_are_written_a_chunk_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(array_file, "_CHUNK", 1_000)
    arrays: dict[str, NDArray[Any]] = {
        "long": np.arange(5_000),
        "wide": np.arange(3_000.0).reshape(3, 1_000),
        "turned": np.arange(4_000).reshape(40, 100).T,
    }
    assert (
        max(len(data) for data in array_file._bytes_of(arrays["long"], array_file._describe("", arrays["long"])))
        == 1_000
    )
    write_arrays(tmp_path / "a", arrays)
    file = opened(tmp_path / "a")
    file.verify()
    same(file, arrays)


def test_pieces_make_up_an_array(tmp_path: Path) -> None:
    rows = np.arange(30.0).reshape(10, 3)
    pieces = (rows[start : start + 4] for start in range(0, 10, 4))
    write_arrays(tmp_path / "a", {"before": rows, "rows": ArrayPieces("float32", (10, 3), pieces), "after": rows[:1]})
    file = opened(tmp_path / "a")
    file.verify()
    same(file, {"before": rows, "rows": rows.astype(np.float32), "after": rows[:1]})


@pytest.mark.parametrize("rows", [[2, 7], [4, 4, 3], [], [10]])
def test_pieces_of_another_shape_are_refused_and_nothing_is_left(path: Path, rows: list[int]) -> None:
    before = path.read_bytes()
    pieces = [np.zeros((count, 2 if count == 10 else 3)) for count in rows]
    with pytest.raises(ValueError, match=r"array 'rows' of shape \[10, 3\]"):
        write_arrays(path, {"rows": ArrayPieces(np.float64, (10, 3), pieces)})
    assert path.read_bytes() == before
    assert names(path.parent) == ["a"]


@pytest.mark.parametrize("array", [np.array([object()]), np.array(["text"]), np.ones(2, complex), np.ones(2, "i4,f4")])
def test_other_types_are_refused(tmp_path: Path, array: NDArray[Any]) -> None:
    with pytest.raises(TypeError, match=r"array 'x' holds .*; only booleans and numbers"):
        write_arrays(tmp_path / "a", {"x": array})
    assert not names(tmp_path)


def test_a_file_that_is_cut_off_anywhere_is_refused(path: Path) -> None:
    content = path.read_bytes()
    for size in range(len(content)):
        path.write_bytes(content[:size])
        with pytest.raises(StoreError, match="write it anew"):
            opened(path)
        with pytest.raises(StoreError, match=f"a has {size} bytes where {len(content)} are due; the file was cut off"):
            opened(path, ArrayFileEntry(len(content), 0))


def test_a_file_that_is_cut_off_after_it_was_opened_is_told(path: Path) -> None:
    file = opened(path)
    os.truncate(path, path.stat().st_size - 1)
    for read in (file.check, file.verify):
        with pytest.raises(StoreError, match="the file was cut off: write it anew"):
            read()


def test_every_flipped_byte_is_found(path: Path) -> None:
    content = path.read_bytes()
    found_by_opening = 0
    for at in range(len(content)):
        path.write_bytes(content[:at] + bytes([content[at] ^ (1 + at % 255)]) + content[at + 1 :])
        try:
            file = opened(path)
        except StoreError:
            found_by_opening += 1
            continue
        with pytest.raises(StoreError, match=r"a is damaged in array '(rows|x)' \(checksum .*; write it anew"):
            file.verify()
    assert found_by_opening == len(content) - 2 * 64  # all of the header


def test_what_changed_since_it_was_opened_is_named(path: Path) -> None:
    file, content = opened(path), bytearray(path.read_bytes())
    content[-64], content[8] = 7, 7
    with path.open("r+b") as stream:
        stream.write(content)
    with pytest.raises(StoreError, match=r"a is damaged in the header, array 'x' \(checksum"):
        file.verify()


def test_another_file_in_its_place_is_refused(path: Path) -> None:
    entry = write_arrays(path, {"x": np.zeros(3)})
    write_arrays(path, {"x": np.ones(3)})
    with pytest.raises(StoreError, match=r"a is damaged or no file of arrays \(its checksum is"):
        opened(path, entry)


def header(content: bytes, *, version: int = 1, body: int = 64) -> bytes:
    content += b" " * (-(20 + len(content)) % 64)
    prefix = struct.pack("<8sII", b"pytarray", version, len(content))
    return prefix + struct.pack("<I", zlib.crc32(prefix + content)) + content + bytes(body)


def rows(**changes: object) -> dict[str, object]:
    return {"name": "x", "dtype": "float32", "shape": [4], "crc32": "0" * 8} | changes


@pytest.mark.parametrize(
    "arrays",
    [
        [rows(shape=[-1])],
        [rows(shape=[2**61, 0])],
        [rows(shape=[2**40, 2**40])],
        [rows(shape=[2**80])],
        [rows(shape=[4.5])],
        [rows(shape=[17])],
        [rows(shape=[1] * 9)],
        [rows(shape=[0])],
        [rows(), rows(name="y")],
        [rows(shape=[0]), rows()],
        [rows(dtype="object")],
        [rows(dtype=">f4")],
        [rows(dtype="S4")],
        [rows(dtype="complex64")],
        [rows(crc32=0)],
        [rows(offset=0)],
        {"x": rows()},
        None,
    ],
    ids=str,
)
def test_a_header_that_no_file_can_have_is_refused(path: Path, arrays: object) -> None:
    path.write_bytes(header(msgspec.json.encode([rows()])))
    opened(path)  # what the cases below differ from
    path.write_bytes(header(msgspec.json.encode(arrays)))
    with pytest.raises(StoreError, match=r"a is damaged or no file of arrays \(.*\); write it anew"):
        opened(path)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0" * 500,
        b"pytarray",
        header(b"[" * 100_000),
        header(b'[{"name":' * 50_000),
        header(b"\xff\xfe"),
        header(b"[]"),
        header(b"[]", version=2, body=0),
        header(b"[]", body=0)[:12] + b"\xff" * 4 + header(b"[]", body=0)[16:],
        header(b'[{"name":"x","name":"y"}]'),
    ],
    ids=range(10),
)
def test_a_file_that_is_something_else_is_refused(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(StoreError, match=r"a is damaged or no file of arrays \(.*\); write it anew"):
        opened(path)


def test_a_file_that_is_missing_or_a_directory_is_one_sentence(tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path):
        for entry in (None, ArrayFileEntry(100, 0)):
            with pytest.raises(
                StoreError, match=r"cannot be read \(.*and the test needs it; write it anew|has .* bytes"
            ):
                opened(path, entry)


def test_whoever_has_a_file_open_keeps_it_when_it_is_replaced_or_deleted(path: Path) -> None:
    file = opened(path)
    write_arrays(path, {"rows": np.zeros(9)})
    path.unlink()
    file.verify()
    same(file, SMALL)


def test_a_directory_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"cannot write .*a: No such file or directory; nothing was changed there"):
        write_arrays(tmp_path / "none" / "a", SMALL)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = shutil.which("mount")
    if (
        mount is None
        or subprocess.run(
            [mount, "-t", "tmpfs", "-o", "size=256k", "tmpfs", disk], capture_output=True, check=False
        ).returncode
    ):
        pytest.skip("only root may mount a small disk")
    yield disk
    subprocess.run(["umount", disk], check=True)


def test_a_full_disk_is_one_sentence_and_leaves_the_file_before(small_disk: Path) -> None:
    path = small_disk / "a"
    entry = write_arrays(path, SMALL)
    with pytest.raises(
        StoreError, match=r"cannot write .*a: No space left on device; nothing was changed there"
    ) as raised:
        write_arrays(path, {"large": np.zeros(1 << 20)})
    assert raised.value.exit_code == 1
    assert names(small_disk) == ["a"]
    same(opened(path, entry), SMALL)


LIMITED = """
import resource, sys
from pathlib import Path
import numpy as np
from pytrace.errors import StoreError
from pytrace.storage.array_file import write_arrays
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    write_arrays(Path(sys.argv[1]), {"large": np.zeros(1 << 20)})
except StoreError as error:
    print(error)
"""

KILLED = """
import sys, time
from pathlib import Path
import numpy as np
from pytrace.storage.array_file import ArrayPieces, write_arrays
def pieces():
    yield np.zeros(1 << 20)
    print("half", flush=True)
    time.sleep(60)
write_arrays(Path(sys.argv[1]), {"large": ArrayPieces(float, (2 << 20,), pieces())})
"""


def test_a_file_that_may_not_grow_is_one_sentence_and_leaves_the_file_before(path: Path) -> None:
    ran = subprocess.run([sys.executable, "-c", LIMITED, path], capture_output=True, text=True, check=True)
    assert ran.stdout == f"cannot write {path}: File too large; nothing was changed there\n"
    assert names(path.parent) == ["a"]
    same(opened(path), SMALL)


def test_a_writer_that_is_killed_leaves_the_file_before(path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", KILLED, path], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"half\n"
        writer.send_signal(signal.SIGKILL)
    assert [name for name in names(path.parent) if name.endswith(".partial")], "it was killed while it wrote"
    same(opened(path), SMALL)
