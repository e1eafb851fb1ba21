"""Documents go into an index, are replaced and removed: one writer at a time, all of it or nothing."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Iterable
from contextlib import closing, suppress
from itertools import groupby
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import numpy as np
from numpy.typing import NDArray

from pytrace.errors import InputError, StoreError
from pytrace.models.encoders.encoder import Encoder
from pytrace.records import Document
from pytrace.retrieval.passages.graph import Graph, write_graph
from pytrace.retrieval.passages.known_vectors import KnownVectors
from pytrace.retrieval.passages.manifest import (
    FORMAT,
    MANIFEST,
    FileEntry,
    VectorType,
    read_manifest,
    write_manifest,
)
from pytrace.retrieval.passages.mentions import Known
from pytrace.retrieval.passages.opening import begin_manifest, lock_index, writing
from pytrace.retrieval.passages.segment import (
    MOST_PASSAGES,
    Segment,
    document_entry,
    document_id,
    merge_segments,
    segment_groups,
    write_segment,
)
from pytrace.storage.closing import Closing

# Passages that are encoded together and kept if the process is killed after them: some ten seconds of a small encoder.
_BATCH = 1024
# Smaller segments are put together when there are more of them than this, and those of a build that goes on than that.
_MOST_SMALL, _MOST_PENDING = 8, 64
# A passage that has more words than this fills a batch by itself.
_BATCH_CHARACTERS = 1 << 24


class Changes(msgspec.Struct):
    """What a writer did: documents that are new, that took the place of older ones, that were the same, and that went.

    `encoded` counts the passages that the encoder had to read.
    """

    added: int = 0
    replaced: int = 0
    unchanged: int = 0
    removed: int = 0
    encoded: int = 0


class IndexWriter(Closing):
    """Adds documents to an index, replaces and removes them.

    Nothing of it is seen by readers until `commit`, which replaces the manifest in one step. What was encoded is kept on
    the disk as it comes, so that a process that is killed, or that ends without `commit`, need not encode it again: the next
    writer that is given the same text finds its vector.

    Parameters
    ----------
    directory
        The index.
    encoder
        Encodes the passages.
    create
        Make the index if it is not there.
    vectors
        How vectors of a new index are kept: "float32" (the default), "float16" or "int8".
    reading
        The options that documents of a new index are read with, for later syncs; those of one that has none yet are replaced.

    Raises
    ------
    StoreError
        Another process writes the index, it is not there, was made with another encoder or other vectors, or its files are damaged.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        encoder: Encoder,
        *,
        create: bool = False,
        vectors: VectorType | None = None,
        reading: dict[str, Any] | None = None,
    ) -> None:
        self.directory = Path(directory)
        self.changes = Changes()
        self._encoder = encoder
        self._lock: BinaryIO | None = None
        self._segments: list[Segment] = []
        self._pending: list[Segment] = []
        self._buffer: list[Document] = []
        self._buffered: set[str] = set()
        self._characters = 0
        # Which passages of each segment stay, and the numbers of its documents, where that was asked for.
        self._names: dict[str, dict[str, list[int]]] = {}
        self._gone: dict[str, NDArray[np.bool_]] = {}
        self._seen: set[str] = set()
        try:
            self._lock = lock_index(self.directory, create=create)
            self._manifest = begin_manifest(self.directory, encoder, vectors, reading or {}, create=create)
            self._remove_orphans()
            self._segments = [Segment(self.directory, entry) for entry in self._manifest.segments]
            self._kept = [Segment(self.directory, entry) for entry in self._manifest.pending]
            self._live = {entry.id: entry.digest for segment in self._segments for entry in segment.entries()}
            self._vectors = KnownVectors([*self._segments, *self._kept])
        except BaseException:
            self.close()
            raise

    @property
    def reading(self) -> dict[str, Any]:
        """The options that the index's documents are read with."""
        return self._manifest.reading

    @property
    def documents(self) -> int:
        """How many documents there are, those included that were added and not committed yet."""
        return len(self._live)

    def add(self, documents: Iterable[Document]) -> None:
        """Add documents, or put them in the place of those with the same id.

        Parameters
        ----------
        documents
            Documents, or their passages, those of a document side by side.

        Raises
        ------
        InputError
            A document has no id or no text.
        StoreError
            The disk is full, or cannot be written; what was committed before is not touched.
        """
        for name, group in groupby(documents, document_id):
            self._add(name, list(group))

    def _add(self, name: str, passages: list[Document]) -> None:
        if not name or any(not passage.text.strip() for passage in passages):
            what = "text" if name else "id"
            raise InputError(f"document {name!r} has no {what}, and cannot be found again; leave it out")
        self._seen.add(name)
        before = self._live.get(name)
        digest = document_entry(passages).digest
        if before == digest:
            self.changes.unchanged += 1
            return
        if before is None:
            self.changes.added += 1
        else:
            self.changes.replaced += 1
            self._forget(name)
        self._live[name] = digest
        self._buffered.add(name)
        self._buffer += passages
        self._characters += sum(len(passage.text) for passage in passages)
        if len(self._buffer) >= _BATCH or self._characters >= _BATCH_CHARACTERS:
            self._flush()

    def remove(self, names: Iterable[str]) -> None:
        """Remove documents by id; `InputError` if there is none of an id, and then nothing is removed."""
        wanted = list(dict.fromkeys(names))
        if unknown := [name for name in wanted if name not in self._live]:
            more = f" and {len(unknown) - 1} others" if len(unknown) > 1 else ""
            raise InputError(
                f"there is no document {unknown[0]!r}{more} in {self.directory}; 'pytrace index show' lists what is there"
            )
        for name in wanted:
            self._forget(name)
            del self._live[name]
            self._seen.discard(name)
            self.changes.removed += 1

    def remove_unseen(self) -> None:
        """Remove the documents that this writer was not given: the index then holds just what was added by it."""
        self.remove([name for name in self._live if name not in self._seen])

    def commit(self) -> Changes:
        """Let readers see what was added and removed, and return what that was."""
        self._flush()
        changed = self._pending or self._kept or any(not rows.all() for rows in self._gone.values())
        if self._manifest.format == FORMAT and not changed:
            self._seen.clear()
            changes, self.changes = self.changes, Changes()
            return changes
        segments = [*self._segments, *self._pending]
        kept = [(segment, self._rows(segment)) for segment in segments]
        with writing(self.directory):
            entries = self._rewritten([(segment, rows) for segment, rows in kept if rows.any()], most=_MOST_SMALL)
            final = [Segment(self.directory, entry) for entry in entries]
            try:
                graph = None
                if final:
                    graph = write_graph(self._new_path("graph"), final, self._known())
                manifest = msgspec.structs.replace(
                    self._manifest, format=FORMAT, segments=tuple(entries), pending=(), graph=graph
                )
                write_manifest(self.directory, manifest)
            except BaseException:
                for segment in final:
                    segment.close()
                raise
        self._manifest = manifest
        for segment in (*segments, *self._kept):
            segment.close()
        self._segments, self._pending, self._kept, self._gone = final, [], [], {}
        self._remove_orphans()
        self._vectors = KnownVectors([*self._segments, *self._kept])
        self._seen.clear()
        changes, self.changes = self.changes, Changes()
        return changes

    def merge(self, directory: str | os.PathLike[str]) -> None:
        """Add all documents of another index, vectors and all, or put them in the place of those with the same ids.

        Parameters
        ----------
        directory
            The other index, made with the same encoder and vectors of the same type; it stays as it is. What is searched of it is
            copied, and nothing is encoded.

        Raises
        ------
        StoreError
            There is none, it was made otherwise, its files are damaged, or this one's cannot be written.
        """
        manifest = read_manifest(Path(directory))
        manifest.check_encoder(
            Path(directory), self._encoder.name, self._encoder.fingerprint, self._encoder.dimension, what="index"
        )
        if manifest.vectors != self._manifest.vectors:
            raise StoreError(
                f"{directory} keeps vectors as {manifest.vectors}, {self.directory} as {self._manifest.vectors}; build both alike"
            )
        self._flush()
        before = dict(self._live)
        for entry in manifest.segments:
            with closing(Segment(Path(directory), entry)) as theirs:
                theirs.verify()
            with writing(self.directory):
                path = self._new_path("passages")
                with path.open("xb") as copy, (Path(directory) / entry.name).open("rb") as stream:
                    shutil.copyfileobj(stream, copy)
                    copy.flush()
                    os.fsync(copy.fileno())
                self._take(Segment(self.directory, msgspec.structs.replace(entry, name=path.name)), before)
                write_manifest(self.directory, self._manifest)

    def _take(self, segment: Segment, before: dict[str, str]) -> None:
        """Let a segment's documents count, but for those that are there already, by `before`: their digests."""
        owners = segment["passages"]
        rows = self._rows(segment)
        for number, entry in enumerate(segment.entries()):
            if before.get(entry.id) == entry.digest:
                self.changes.unchanged += 1
                rows[slice(*np.searchsorted(owners, (number, number + 1)))] = False
            elif entry.id in before:
                del before[entry.id]
                self.changes.replaced += 1
                self._forget(entry.id)
            elif entry.id not in self._live:
                self.changes.added += 1
            self._live[entry.id] = entry.digest
            self._seen.add(entry.id)
        self._pending.append(segment)
        self._manifest = msgspec.structs.replace(self._manifest, pending=(*self._manifest.pending, segment.entry))

    def close(self) -> None:
        """Forget what was not committed, except for what was encoded, and let others write."""
        for segment in (*self._segments, *self._pending, *getattr(self, "_kept", ())):
            segment.close()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _flush(self) -> None:
        """Write the buffer to a segment that is pending."""
        if not self._buffer:
            return
        vectors, encoded = self._vectors.encode(self._buffer, self._encoder)
        self.changes.encoded += encoded
        with writing(self.directory):
            for start in range(0, len(self._buffer), MOST_PASSAGES):
                end = start + MOST_PASSAGES
                new = write_segment(
                    self._new_path("passages"),
                    self._buffer[start:end],
                    vectors[start:end],
                    kind=self._manifest.vectors,
                )
                self._pending.append(Segment(self.directory, new))
                pending = (*self._manifest.pending, new)
                self._manifest = msgspec.structs.replace(self._manifest, pending=pending)
            write_manifest(self.directory, self._manifest)
            self._buffer, self._buffered, self._characters = [], set(), 0
            self._join_pending()

    def _join_pending(self) -> None:
        """Put small pending segments together once there are many: each is an open file."""
        small = [segment for segment in self._pending if segment.passages < MOST_PASSAGES // 2]
        if len(small) < _MOST_PENDING:
            return
        parts = [(segment, self._rows(segment)) for segment in self._pending]
        entries = self._rewritten([(segment, rows) for segment, rows in parts if rows.any()], most=0)
        killed = tuple(segment.entry for segment in self._kept)
        self._manifest = msgspec.structs.replace(self._manifest, pending=(*killed, *entries))
        write_manifest(self.directory, self._manifest)
        there = {segment.entry.name: segment for segment in self._pending}
        self._pending = [
            there.pop(entry.name) if entry.name in there else Segment(self.directory, entry) for entry in entries
        ]
        for segment in there.values():
            segment.close()
        self._remove_orphans()

    def _forget(self, name: str) -> None:
        """Note that the passages of a document that are there go."""
        if name in self._buffered:
            self._buffer = [passage for passage in self._buffer if document_id(passage) != name]
        for segment in (*self._segments, *self._pending):
            for number in self._numbers(segment).get(name, ()):
                # A document's passages stand side by side.
                first, end = np.searchsorted(segment["passages"], (number, number + 1)).tolist()
                self._rows(segment)[first:end] = False

    def _numbers(self, segment: Segment) -> dict[str, list[int]]:
        numbers = self._names.get(segment.entry.name)
        if numbers is None:
            numbers = {}
            for number, entry in enumerate(segment.entries()):
                numbers.setdefault(entry.id, []).append(number)
            self._names[segment.entry.name] = numbers
        return numbers

    def _known(self) -> Known | None:
        """Return what the graph that is there knows of the passages that are there."""
        if self._manifest.graph is None or self._manifest.format != FORMAT:
            return None
        with closing(Graph(self.directory, self._manifest.graph, self._segments)) as graph:
            return graph.known(self._segments)

    def _rows(self, segment: Segment) -> NDArray[np.bool_]:
        """Return which passages of a segment stay."""
        return self._gone.setdefault(segment.entry.name, np.ones(segment.passages, dtype=bool))

    def _rewritten(self, parts: list[tuple[Segment, NDArray[np.bool_]]], *, most: int) -> list[FileEntry]:
        """Return segments without the passages that go; small ones are put together where there are more than `most`."""
        groups = segment_groups([int(rows.sum()) for _, rows in parts], most)
        return [self._merged([parts[number] for number in group]) for group in groups]

    def _merged(self, parts: list[tuple[Segment, NDArray[np.bool_]]]) -> FileEntry:
        if len(parts) == 1 and parts[0][1].all():
            return parts[0][0].entry
        return merge_segments(self._new_path("passages"), parts)

    def _new_path(self, kind: str) -> Path:
        self._manifest = msgspec.structs.replace(self._manifest, generation=self._manifest.generation + 1)
        return self.directory / f"{kind}-{self._manifest.generation:06}.arrays"

    def _remove_orphans(self) -> None:
        """Remove files that no manifest names: what a killed writer left, and what was replaced."""
        names = self._manifest.files
        with suppress(OSError):  # what is left lying there harms nobody
            left = (self.directory.glob(pattern) for pattern in ("*-*.arrays", ".*.partial", f"{MANIFEST}.new"))
            for path in itertools.chain.from_iterable(left):
                if path.name not in names:
                    path.unlink(missing_ok=True)
