"""An index of a format before is brought up to date by the next writer, and nothing of it is encoded again."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from pytrace.errors import StoreError
from pytrace.records import Document
from pytrace.retrieval.passages import IndexWriter, PassageIndex, segment, writer
from pytrace.retrieval.passages.manifest import FORMAT, FileEntry, IndexManifest, write_manifest
from pytrace.retrieval.passages.segment import Segment
from pytrace.storage.array_file import write_arrays
from pytrace.storage.text import dump_json
from tests.retrieval.test_passage_index import (
    ENCODER,
    PLACES,
    CountingEncoder,
    build,
    contents,
    document,
    found,
    linked,
)

QUESTION = "Which mayor came from Pellisk?"


@pytest.fixture
def documents(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Document]]:
    """Let eight passages fill a segment, so that there are several."""
    monkeypatch.setattr(segment, "MOST_PASSAGES", 8)
    monkeypatch.setattr(writer, "MOST_PASSAGES", 8)
    return {name: document(name.lower(), passages=1 + number % 3) for number, name in enumerate(PLACES)}


def write_as_before(directory: Path, entry: FileEntry) -> FileEntry:
    """Write a segment anew as format 2 had it: entries packed, with their digests in them, and wide numbers."""
    now = Segment(directory, entry)
    packed = []
    for known in now.entries():
        packer = zlib.compressobj(6, zdict=segment._DICTIONARY)
        packed.append(packer.compress(dump_json(known).encode()) + packer.flush())
    arrays: dict[str, Any] = {name: now[name] for name in now.arrays.names if name not in ("ids", "digests")}
    arrays |= {name: array.astype(np.int64) for name, array in arrays.items() if name.endswith(".ends")}
    arrays["documents"] = np.frombuffer(b"".join(packed), dtype=np.uint8)
    arrays["documents.ends"] = np.cumsum([len(each) for each in packed], dtype=np.int64)
    path = directory / f"passages-9{entry.name.removeprefix('passages-')}"
    written = write_arrays(path, arrays)
    return FileEntry(name=path.name, passages=entry.passages, **msgspec.structs.asdict(written))


def turned_back(directory: Path, version: int) -> IndexManifest:
    """Turn an index into one of a format before; its graph held other arrays, which are not read any more."""
    manifest = PassageIndex(directory).manifest
    graph = write_arrays(directory / "graph-900000.arrays", {"links": np.zeros(3, dtype=np.int32)})
    before = msgspec.structs.replace(
        manifest,
        format=version,
        generation=900_000_000,
        segments=tuple(write_as_before(directory, entry) for entry in manifest.segments),
        graph=FileEntry(name="graph-900000.arrays", passages=20, **msgspec.structs.asdict(graph)),
    )
    write_manifest(directory, before)
    for path in directory.glob("*.arrays"):
        if path.name not in before.files:
            path.unlink()
    return before


@pytest.mark.parametrize("version", range(1, FORMAT))
def test_an_index_of_a_format_before_is_brought_up_to_date_without_encoding(
    tmp_path: Path, documents: dict[str, list[Document]], version: int
) -> None:
    built = build(tmp_path / "index", documents, vectors="int8")
    known = contents(built), found(built, QUESTION), linked(built), [*built.entries()]
    assert len(built.segments) > 1
    before = turned_back(tmp_path / "index", version)
    with pytest.raises(
        StoreError, match=rf"has format {version}, .* 'pytrace index sync .*index' brings it up to date"
    ):
        PassageIndex(tmp_path / "index")
    encoder = CountingEncoder()
    with IndexWriter(tmp_path / "index", encoder) as index:
        assert index.documents == len(documents)
        index.add(passage for passages in documents.values() for passage in passages)
        index.remove_unseen()
        assert index.commit() == writer.Changes(unchanged=len(documents))
    assert encoder.count == 0
    after = PassageIndex(tmp_path / "index")
    after.verify()
    assert after.manifest.format == FORMAT
    assert (contents(after), found(after, QUESTION), linked(after), [*after.entries()]) == known
    assert not {entry.name for entry in before.segments} & {path.name for path in (tmp_path / "index").iterdir()}
    # What was written so is what a build writes.
    names = {name for each in after.segments for name in each.arrays.names}
    assert names == {name for each in built.segments for name in each.arrays.names}


def test_documents_are_changed_while_an_index_is_brought_up_to_date(
    tmp_path: Path, documents: dict[str, list[Document]]
) -> None:
    build(tmp_path / "index", documents)
    turned_back(tmp_path / "index", FORMAT - 1)
    encoder = CountingEncoder()
    with IndexWriter(tmp_path / "index", encoder) as index:
        index.add([*document("pellisk", version=1), *document("new"), *documents["Low Ferry"]])
        index.remove(["ash point"])
        assert index.commit() == writer.Changes(added=1, replaced=1, unchanged=1, removed=1, encoded=2)
    held = {name: passages for name, passages in documents.items() if name not in ("Pellisk", "Ash Point")}
    clean = build(tmp_path / "clean", {**held, "Pellisk": document("pellisk", version=1), "new": document("new")})
    after = PassageIndex(tmp_path / "index")
    after.verify()
    assert contents(after) == contents(clean)
    assert found(after, QUESTION) == found(clean, QUESTION)


def test_who_is_killed_while_it_is_brought_up_to_date_leaves_it_as_it_was(
    tmp_path: Path, documents: dict[str, list[Document]], monkeypatch: pytest.MonkeyPatch
) -> None:
    known = contents(build(tmp_path / "index", documents))
    before = turned_back(tmp_path / "index", FORMAT - 1)

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(writer, "write_graph", killed)
        with IndexWriter(tmp_path / "index", ENCODER) as index, pytest.raises(KeyboardInterrupt):
            index.commit()
    with pytest.raises(StoreError, match=f"has format {before.format}"):
        PassageIndex(tmp_path / "index")
    with IndexWriter(tmp_path / "index", ENCODER) as index:
        index.commit()
    assert contents(PassageIndex(tmp_path / "index")) == known


def test_vectors_of_a_build_of_a_format_before_that_was_killed_are_found(
    tmp_path: Path, documents: dict[str, list[Document]]
) -> None:
    manifest = build(tmp_path / "index", documents).manifest
    pending = tuple(write_as_before(tmp_path / "index", entry) for entry in manifest.segments)
    begun = msgspec.structs.replace(manifest, format=FORMAT - 1, segments=(), graph=None, pending=pending)
    write_manifest(tmp_path / "index", begun)
    encoder = CountingEncoder()
    with IndexWriter(tmp_path / "index", encoder, create=True) as index:
        index.add(passage for passages in documents.values() for passage in passages)
        assert index.commit() == writer.Changes(added=len(documents))
    assert encoder.count == 0


def test_an_index_of_a_later_format_is_refused(tmp_path: Path, documents: dict[str, list[Document]]) -> None:
    manifest = build(tmp_path / "index", documents).manifest
    write_manifest(tmp_path / "index", msgspec.structs.replace(manifest, format=FORMAT + 1))
    for opened in (PassageIndex, lambda directory: IndexWriter(directory, ENCODER)):
        with pytest.raises(
            StoreError,
            match=f"has format {FORMAT + 1}, of a newer pytrace, and this one knows {FORMAT} at most; update",
        ):
            opened(tmp_path / "index")
