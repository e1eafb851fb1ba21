"""Arrays mapped from files: what is written is read, and a file that changed its length is told, never a crash."""

from __future__ import annotations

import os
import zlib
from pathlib import Path

import msgspec
import numpy as np
import pytest

from pytrace.errors import StoreError
from pytrace.storage.mapped_arrays import MappedFile, VectorsManifest, load_manifest, save_manifest, write_pieces

ROWS = np.arange(24, dtype=np.float32).reshape(8, 3)
ROW = np.dtype(("<f4", (3,)))


def mapped(path: Path, size: int = ROWS.nbytes, *, grows: bool = False) -> MappedFile:
    return MappedFile(path, size, what="the test", remedy="write it anew", grows=grows)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    entry = write_pieces(tmp_path / "rows", (row.tobytes() for row in ROWS))
    assert (entry.bytes, entry.checksum) == (ROWS.nbytes, zlib.crc32(ROWS.tobytes()))
    return tmp_path / "rows"


def test_arrays_rows_and_bytes_are_those_that_were_written(path: Path) -> None:
    file = mapped(path)
    array = file.array(np.float32, (8, 3))
    np.testing.assert_array_equal(array, ROWS)
    assert not array.flags.writeable
    np.testing.assert_array_equal(file.array("<f4", (2, 3), offset=12), ROWS[1:3])
    assert file.array("<f4", (0, 3)).shape == (0, 3)
    for numbers in ([3], [0, 1, 2], [5, 6, 1, 2, 2, 7]):
        np.testing.assert_array_equal(file.read_rows(np.array(numbers, dtype=np.int64), ROW), ROWS[numbers])
    assert file.read(12, 12) == ROWS[1].tobytes()
    file.verify(zlib.crc32(ROWS.tobytes()))
    with pytest.raises(StoreError, match=r"rows is damaged.*write it anew"):
        file.verify(1)


@pytest.mark.parametrize(("shape", "offset"), [((9, 3), 0), ((8, 3), 4), ((-1, 3), 0), ((1,), -4), ((2**62,), 0)])
def test_an_array_that_does_not_fit_its_file_is_refused(path: Path, shape: tuple[int, ...], offset: int) -> None:
    with pytest.raises(ValueError, match="an array of shape"):
        mapped(path).array(np.float32, shape, offset=offset)


def test_a_file_of_another_length_is_told(path: Path) -> None:
    file, growing = mapped(path), mapped(path, grows=True)
    with path.open("ab") as stream:
        stream.write(b"more")
    growing.check()
    with pytest.raises(StoreError, match="96 are due; something was added"):
        file.check()
    os.truncate(path, 95)
    for each in (file, growing):
        with pytest.raises(
            StoreError, match=r"rows has 95 bytes where 96 are due; the file was cut off: write it anew"
        ):
            each.check()
        with pytest.raises(StoreError, match="was cut off"):
            each.read_rows(np.array([7]), ROW)
    with pytest.raises(StoreError, match="was cut off"):
        mapped(path)
    path.unlink()
    with pytest.raises(StoreError, match=r"cannot be read \(No such file or directory\), and the test needs it"):
        mapped(path)


def test_a_manifest_is_read_as_written_and_knows_its_encoder(tmp_path: Path) -> None:
    path, manifest = tmp_path / "manifest.json", VectorsManifest(1, "tiny", "abc", 3)
    with pytest.raises(StoreError, match=r"^nothing here$"):
        load_manifest(path, VectorsManifest, newest=1, missing="nothing here", remedy="build anew")
    save_manifest(path, manifest)
    held = load_manifest(path, VectorsManifest, newest=1, missing="", remedy="")
    assert msgspec.structs.replace(held, checksum="") == manifest
    manifest.check_encoder(tmp_path, "renamed", "abc", 3, what="index")
    with pytest.raises(
        StoreError, match=r"encoder 'tiny' \(fingerprint abc, dimension 3\), not with 'large'.*another index"
    ):
        manifest.check_encoder(tmp_path, "large", "xyz", 3, what="index")
    for flipped in (path.read_bytes().replace(b"tiny", b"tinx"), path.read_bytes().replace(b"1,", b"0,")):
        path.write_bytes(flipped)
        with pytest.raises(StoreError, match=r"manifest\.json is damaged: its checksum is not"):
            load_manifest(path, VectorsManifest, newest=1, missing="", remedy="", unchecked=(0,))
    path.write_bytes(b'{"format": 0, "encoder": "tiny", "fingerprint": "abc", "dimension": 3}')
    assert load_manifest(path, VectorsManifest, newest=1, missing="", remedy="", unchecked=(0,)).dimension == 3
    path.write_bytes(b'{"format": 2, "of": "tomorrow"}')
    with pytest.raises(
        StoreError, match=r"has format 2, of a newer pytrace, and this one knows 1 at most; update pytrace"
    ):
        load_manifest(path, VectorsManifest, newest=1, missing="", remedy="build anew")
    path.write_bytes(b"[")
    with pytest.raises(StoreError, match=r"is damaged or of another version .*; build anew"):
        load_manifest(path, VectorsManifest, newest=1, missing="", remedy="build anew")
