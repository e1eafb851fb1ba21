"""Documents go into an index, are replaced and removed: one writer at a time, all of it or nothing."""

from __future__ import annotations

import itertools
import os
import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from itertools import groupby
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import numpy as np
from numpy.typing import NDArray

from pytrace.errors import InputError, StoreError
from pytrace.kernels.strings import hash_texts
from pytrace.models.encoders.encoder import Encoder
from pytrace.records import Document
from pytrace.retrieval.passages.graph import Graph, write_graph
from pytrace.retrieval.passages.known_vectors import KnownVectors
from pytrace.retrieval.passages.live import LiveSegment
from pytrace.retrieval.passages.manifest import (
    FORMAT,
    MANIFEST,
    FileEntry,
    VectorType,
    read_manifest,
    write_manifest,
)
from pytrace.retrieval.passages.opening import begin_manifest, lock_index, writing
from pytrace.retrieval.passages.segment import (
    MOST_PASSAGES,
    GivenDocument,
    Segment,
    digest_of,
    document_id,
    encoded_text,
    merge_segments,
    segment_groups,
    write_segment,
)
from pytrace.storage.closing import Closing
from pytrace.storage.mapped_arrays import damage_told

# Passages that are encoded together and kept if the process is killed after them: few at first, then twice as many as long as they
# take less than so many seconds, and half as many where they take four times that.
_FIRST_BATCH, _LEAST_BATCH, _BATCH, _BATCH_SECONDS = 128, 32, 1024, 2.0
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
        self._segments: list[LiveSegment] = []
        self._pending: list[LiveSegment] = []
        # Of a build that was killed: they know vectors, and nothing else counts of them.
        self._killed: list[Segment] = []
        # What was given and not looked up yet, and what is to be written, by id.
        self._given: dict[str, list[Document]] = {}
        self._given_size = _Size()
        self._batch = min(_FIRST_BATCH, _BATCH)
        self._buffer: dict[str, GivenDocument] = {}
        try:
            self._lock = lock_index(self.directory, create=create)
            self._manifest = begin_manifest(self.directory, encoder, vectors, reading or {}, create=create)
            self._remove_orphans()
            self._segments = [LiveSegment(Segment(self.directory, entry)) for entry in self._manifest.segments]
            self._killed = [Segment(self.directory, entry) for entry in self._manifest.pending]
            self._vectors = KnownVectors([*(each.segment for each in self._segments), *self._killed])
        except BaseException:
            self.close()
            raise

    @property
    def reading(self) -> dict[str, Any]:
        """The options that the index's documents are read with."""
        return self._manifest.reading

    def also_read(self, place: str) -> None:
        """Have later syncs read documents from one more place, if they read any; it is kept by the next commit."""
        known = self.reading.get("docs", ())
        if known and place not in known:
            self._manifest = msgspec.structs.replace(self._manifest, reading={**self.reading, "docs": [*known, place]})

    @property
    def documents(self) -> int:
        """How many documents there are, those included that were added and not committed yet."""
        self._look_up()
        return len(self._buffer) + _count(held.segment.ids[held.live] for held in (*self._segments, *self._pending))

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
        if name in self._given:
            self._look_up()
        self._given[name] = passages
        self._given_size.add(passages)
        if self._given_size.is_batch(self._batch):
            self._look_up()

    def remove(self, names: Iterable[str]) -> None:
        """Remove documents by id; `InputError` if there is none of an id (`StoreError`: ids are damaged), and then nothing is removed."""
        self._look_up()
        wanted = list(dict.fromkeys(names))
        found = self._places(wanted)
        unknown = [name for name, places in zip(wanted, found, strict=True) if name not in self._buffer and not places]
        if unknown:
            # They are found by hashes of ids: a damaged one must not be taken for an id that was never there.
            for held in (*self._segments, *self._pending):
                held.segment.arrays.verify(("ids", "documents", "documents.ends"))
            more = f" and {len(unknown) - 1} others" if len(unknown) > 1 else ""
            raise InputError(
                f"there is no document {unknown[0]!r}{more} in {self.directory}; 'pytrace index show' lists what is there"
            )
        for name, places in zip(wanted, found, strict=True):
            self._buffer.pop(name, None)
            for held, document in places:
                held.live[document] = False
        self.changes.removed += len(wanted)

    def remove_unseen(self) -> None:
        """Remove the documents that this writer was not given: the index then holds just what was added by it."""
        self._look_up()
        unseen = []
        for held in (*self._segments, *self._pending):
            unseen.append(held.segment.ids[held.live & ~held.seen])
            held.live &= held.seen
        self.changes.removed += _count(unseen)

    def commit(self) -> Changes:
        """Let readers see what was added and removed, and return what that was."""
        self._look_up()
        self._write()
        changed = self._pending or self._killed or not all(held.live.all() for held in self._segments)
        # At generation 0 nothing was ever committed; that there are no documents has to be, too.
        if self._manifest.format != FORMAT or self._manifest.generation == 0 or changed:
            self._commit()
        for held in self._segments:
            held.seen[:] = False
        changes, self.changes = self.changes, Changes()
        return changes

    def _commit(self) -> None:
        with writing(self.directory), damage_told(self._verify):
            entries = self._rewritten([*self._segments, *self._pending], most=_MOST_SMALL)
            final = [Segment(self.directory, entry) for entry in entries]
            try:
                graph = self._write_graph(final) if final else None
                manifest = msgspec.structs.replace(
                    self._manifest,
                    format=FORMAT,
                    generation=max(self._manifest.generation, 1),
                    segments=tuple(entries),
                    pending=(),
                    graph=graph,
                )
                write_manifest(self.directory, manifest)
            except BaseException:
                for segment in final:
                    segment.close()
                raise
        self._manifest = manifest
        self._close_segments()
        self._segments, self._pending, self._killed = [LiveSegment(segment) for segment in final], [], []
        self._remove_orphans()
        self._vectors = KnownVectors(final)

    def _verify(self) -> None:
        for held in (*self._segments, *self._pending):
            held.segment.verify()

    def _write_graph(self, segments: Sequence[Segment]) -> FileEntry:
        path = self._new_path("graph")
        before = self._graph_before()
        if before is None:
            return write_graph(path, segments)
        with closing(before):
            return write_graph(path, segments, before)

    def _graph_before(self) -> Graph | None:
        """Open the graph that is there; None where there is none, or it is damaged, so that nothing is taken over from it."""
        if self._manifest.graph is None or self._manifest.format != FORMAT:
            return None
        try:
            graph = Graph(self.directory, self._manifest.graph, [held.segment for held in self._segments])
        except StoreError:
            return None
        try:
            graph.verify()
        except StoreError:
            graph.close()
            return None
        return graph

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
        self._look_up()
        self._write()
        ours = [*self._segments, *self._pending]
        taken, same, replaced = list[NDArray[np.uint64]](), list[NDArray[np.uint64]](), list[NDArray[np.uint64]]()
        for entry in manifest.segments:
            with closing(Segment(Path(directory), entry)) as theirs:
                theirs.verify()
            with writing(self.directory):
                path = self._new_path("passages")
                with path.open("xb") as copy, (Path(directory) / entry.name).open("rb") as stream:
                    shutil.copyfileobj(stream, copy)
                    copy.flush()
                    os.fsync(copy.fileno())
                self._wait(Segment(self.directory, msgspec.structs.replace(entry, name=path.name)))
                write_manifest(self.directory, self._manifest)
            ids = self._pending[-1].segment.ids
            unchanged, instead = _settle(self._pending[-1], ours)
            taken.append(ids)
            same.append(ids[unchanged])
            replaced.append(ids[instead])
        # A document whose passages fill several segments counts once.
        self.changes.unchanged += _count(same)
        self.changes.replaced += _count(replaced)
        self.changes.added += _count(taken) - _count([*same, *replaced])

    def close(self) -> None:
        """Forget what was not committed, except for what was encoded, and let others write."""
        self._close_segments()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _close_segments(self) -> None:
        for held in (*self._segments, *self._pending):
            held.close()
        for segment in self._killed:
            segment.close()

    def _places(self, names: Sequence[str], digests: Sequence[bytes] = ()) -> list[list[tuple[LiveSegment, int]]]:
        """Return where documents of these ids stand that stay; what has the digest besides is known by that."""
        found: list[list[tuple[LiveSegment, int]]] = [[] for _ in names]
        ids = hash_texts(names)
        for held in (*self._segments, *self._pending):
            numbers, documents = held.find(ids)
            for number, document in zip(numbers.tolist(), documents.tolist(), strict=True):
                is_same = digests and held.segment.digests[document].tobytes() == digests[number]
                if is_same or held.holds(document, names[number]):
                    found[number].append((held, document))
        return found

    def _look_up(self) -> None:
        """Compare what was given with what is there; what is new, or another, is to be written."""
        if not self._given:
            return
        given, self._given, self._given_size = self._given, {}, _Size()
        digests = [digest_of(passages) for passages in given.values()]
        for (name, passages), digest, places in zip(
            given.items(), digests, self._places([*given], digests), strict=True
        ):
            there = [held.segment.digests[document].tobytes() for held, document in places]
            if name in self._buffer:
                there.append(self._buffer[name].digest)
            if there and all(other == digest for other in there):
                self.changes.unchanged += 1
                for held, document in places:
                    held.seen[document] = True
                continue
            if there:
                self.changes.replaced += 1
            else:
                self.changes.added += 1
            self._buffer.pop(name, None)
            for held, document in places:
                held.live[document] = False
            self._buffer[name] = GivenDocument(digest, passages)
        size = _Size()
        for to_write in self._buffer.values():
            size.add(to_write.passages)
        if size.is_batch(self._batch):
            self._write()

    def _write(self) -> None:
        """Write the buffer to a segment that is pending."""
        if not self._buffer:
            return
        documents = [*self._buffer.values()]
        texts = [encoded_text(passage) for document in documents for passage in document.passages]
        contents = hash_texts(texts)
        begun = time.monotonic()
        vectors, encoded = self._vectors.encode(texts, contents, self._encoder)
        seconds = time.monotonic() - begun
        if seconds < _BATCH_SECONDS:
            self._batch = min(2 * self._batch, _BATCH)
        elif seconds > 4 * _BATCH_SECONDS:
            self._batch = max(self._batch // 2, min(_LEAST_BATCH, _BATCH))
        self.changes.encoded += encoded
        with writing(self.directory):
            for start in range(0, len(texts), MOST_PASSAGES):
                part = slice(start, start + MOST_PASSAGES)
                new = write_segment(
                    self._new_path("passages"),
                    [*_cut(documents, part)],
                    texts[part],
                    contents[part],
                    vectors[part],
                    kind=self._manifest.vectors,
                )
                self._wait(Segment(self.directory, new))
            write_manifest(self.directory, self._manifest)
            self._buffer = {}
            self._join_pending()

    def _wait(self, segment: Segment) -> None:
        """Let a segment wait for the commit."""
        self._pending.append(LiveSegment(segment, seen=True))
        self._manifest = msgspec.structs.replace(self._manifest, pending=(*self._manifest.pending, segment.entry))

    def _join_pending(self) -> None:
        """Put small pending segments together once there are many: each is an open file."""
        if sum(held.segment.passages < MOST_PASSAGES // 2 for held in self._pending) < _MOST_PENDING:
            return
        entries = self._rewritten(self._pending, most=0)
        killed = tuple(segment.entry for segment in self._killed)
        self._manifest = msgspec.structs.replace(self._manifest, pending=(*killed, *entries))
        write_manifest(self.directory, self._manifest)
        there = {held.segment.entry.name: held for held in self._pending}
        self._pending = [
            there.pop(entry.name) if entry.name in there else LiveSegment(Segment(self.directory, entry), seen=True)
            for entry in entries
        ]
        for held in there.values():
            held.close()
        self._remove_orphans()

    def _rewritten(self, segments: Sequence[LiveSegment], *, most: int) -> list[FileEntry]:
        """Return segments without the passages that go; small ones are put together where there are more than `most`."""
        parts = [(held.segment, held.rows) for held in segments if held.live.any()]
        groups = segment_groups([int(rows.sum()) for _, rows in parts], most)
        return [self._merged([parts[number] for number in group]) for group in groups]

    def _merged(self, parts: list[tuple[Segment, NDArray[np.bool_]]]) -> FileEntry:
        (segment, rows), *others = parts
        if not others and rows.all() and segment.is_current:
            return segment.entry
        # What is damaged would be written with a checksum that says it is not.
        for each, _ in parts:
            each.verify()
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


class _Size:
    """Counts passages and their characters."""

    def __init__(self) -> None:
        self._passages = self._characters = 0

    def add(self, passages: Sequence[Document]) -> None:
        """Count some more."""
        self._passages += len(passages)
        self._characters += sum(len(sentence) for passage in passages for sentence in passage.sentences)

    def is_batch(self, passages: int) -> bool:
        """Whether there are enough to be encoded together."""
        return self._passages >= passages or self._characters >= _BATCH_CHARACTERS


def _count(ids: Iterable[NDArray[np.uint64]]) -> int:
    """Count documents by the hashes of their ids; one whose passages fill several segments counts once."""
    return len(np.unique(np.concatenate([np.empty(0, np.uint64), *ids])))


def _cut(documents: Iterable[GivenDocument], part: slice) -> Iterator[GivenDocument]:
    """Return what documents have in a stretch of all their passages."""
    first = 0
    for document in documents:
        end = first + len(document.passages)
        if passages := document.passages[max(0, part.start - first) : max(0, part.stop - first)]:
            yield GivenDocument(document.digest, passages)
        first = end


def _settle(theirs: LiveSegment, ours: Sequence[LiveSegment]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Of documents that two have, let one stay: ours where they are equal, else theirs; return which of theirs are of either kind."""
    segment = theirs.segment
    same, instead = np.zeros((2, segment.documents), dtype=bool)
    for held in ours:
        numbers, documents = held.find(segment.ids)
        equal = (held.segment.digests[documents] == segment.digests[numbers]).all(axis=1)
        same[numbers[equal]] = True
        held.seen[documents[equal]] = True
        for number, document in zip(numbers[~equal].tolist(), documents[~equal].tolist(), strict=True):
            if held.holds(document, segment.entry_of(number).id):
                instead[number] = True
                held.live[document] = False
    theirs.live &= ~same
    return same, instead
