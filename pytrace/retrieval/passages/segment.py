"""A segment of an index: passages in one file that is written once, with all that is known of each alone."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from pytrace import _core
from pytrace.kernels.similarity import top_k
from pytrace.kernels.strings import hash_texts, joined
from pytrace.models.encoders.encoder import Vectors
from pytrace.records import Document
from pytrace.retrieval.passages.manifest import REMEDY, FileEntry, IndexFile, VectorType
from pytrace.retrieval.passages.names import passage_names
from pytrace.retrieval.passages.ragged import narrow, starts_of
from pytrace.retrieval.word_postings import BLOCK_ROWS, WordBlocks, build_words, merge_words
from pytrace.storage.array_file import ArrayPieces, write_arrays
from pytrace.storage.mapped_arrays import int8_rows
from pytrace.storage.text import dump_json

MOST_PASSAGES = BLOCK_ROWS
"""A segment has no more, so that a passage that goes costs the writing of one segment at most."""

# What records have in common, for zlib; nobody's text, which would outlive its document. Another one is another format.
_DICTIONARY = (
    b" who when where there their they had been has have is are were was on at by as it with from that which for he his she her "
    b"its also first one two after and the of in to a (born American, the United States, known as , and . The . In . He . It "
    b'"metadata":{},"titled":false,"pages":["],"origin":{"document":"","title":"","headings":[],"page":"start":,"end":,'
    b'"sentences":[0,{"id":"","title":"","sentences":["","source":"","origin":null}'
)
# Of zlib: 6, its default, takes a fifth longer for one byte in a hundred.
_LEVEL = 4
FAR = (1 << 16) - 1
"""In place of a step between two terms that 16 bits do not hold."""

_Record = TypeVar("_Record")


class DocumentEntry(msgspec.Struct, frozen=True):
    """A document as an index knows it: what filters look at, and a digest of all that is kept of it."""

    id: str
    title: str
    source: str
    metadata: dict[str, Any]
    digest: str
    passages: int


class _StoredEntry(msgspec.Struct, frozen=True, array_like=True):
    """What is stored of an entry as text; digests are an array."""

    id: str
    title: str
    source: str
    metadata: dict[str, Any]
    passages: int


class _Sentences(msgspec.Struct):
    """The text of a record, and nothing else."""

    sentences: list[str]


class GivenDocument(NamedTuple):
    """Passages of a document that stand side by side, and a digest of all that it has, 16 bytes."""

    digest: bytes
    passages: Sequence[Document]


def document_id(passage: Document) -> str:
    """Return the id of the document that a passage is of."""
    return passage.id if passage.origin is None else passage.origin.document


def encoded_text(passage: Document) -> str:
    """Return what is encoded of a passage; a title that is only the file's name says nothing of the text."""
    titled = passage.title and (passage.origin is None or passage.origin.titled)
    return f"[{passage.title}] {passage.text}" if titled else passage.text


def digest_of(passages: Sequence[Document]) -> bytes:
    """Return a digest of all that is kept of a document, by its passages."""
    digest = hashlib.blake2b(digest_size=16)
    for passage in passages:
        digest.update(dump_json(passage).encode())
    return digest.digest()


def quantised(vectors: Vectors, kind: VectorType) -> dict[str, NDArray[Any]]:
    """Return vectors as they are kept; those of int8 have a scale each, by which a row's largest value becomes 127."""
    if kind != "int8":
        return {"vectors": vectors.astype(kind)}
    rows, scales = int8_rows(vectors)
    return {"vectors": rows, "scales": scales}


def write_segment(
    path: Path,
    documents: Sequence[GivenDocument],
    texts: Sequence[str],
    contents: NDArray[np.uint64],
    vectors: Vectors,
    *,
    kind: VectorType,
) -> FileEntry:
    """Write documents.

    Parameters
    ----------
    path
        The file.
    documents
        The documents, with at most `MOST_PASSAGES` passages.
    texts, contents, vectors
        Of all passages the texts that are encoded, the hashes of these, and the vectors.
    kind
        How vectors are kept.
    """
    entries = [_stored_entry(document.passages) for document in documents]
    records = [
        _packed(_record(passage, entry))
        for document, entry in zip(documents, entries, strict=True)
        for passage in document.passages
    ]
    passages = [passage for document in documents for passage in document.passages]
    named = [(name, row, told) for row, passage in enumerate(passages) for name, told in _names(passage)]
    blocks = build_words(texts)
    sizes = [len(document.passages) for document in documents]
    arrays = {
        **quantised(vectors, kind),
        **_blob("records", records),
        **_blob("documents", [dump_json(entry).encode() for entry in entries]),
        "ids": hash_texts(entry.id for entry in entries),
        "digests": np.frombuffer(b"".join(document.digest for document in documents), dtype=np.uint8).reshape(-1, 16),
        "passages": np.repeat(np.arange(len(documents), dtype=np.int32), sizes),
        "contents": contents,
        **_blob("names", [name.encode() for name, _, _ in named]),
        "names.rows": np.array([row for _, row, _ in named], dtype=np.int32),
        "names.told": np.array([told for _, _, told in named], dtype=bool),
        **blocks,
        **_terms_by_row(WordBlocks(blocks)),
    }
    entry = write_arrays(path, arrays)
    return FileEntry(entry.bytes, entry.checksum, path.name, len(passages))


def segment_groups(sizes: Sequence[int], most: int) -> list[list[int]]:
    """Say which segments of these sizes become one, in their order: small ones, where there are more than `most` of them."""
    small = {number for number, size in enumerate(sizes) if size < MOST_PASSAGES // 2}
    joined = small if len(small) > most else set()
    groups: list[list[int]] = []
    for number, size in enumerate(sizes):
        fits = groups and sum(sizes[other] for other in groups[-1]) + size <= MOST_PASSAGES
        if fits and number in joined and groups[-1][-1] in joined:
            groups[-1].append(number)
        else:
            groups.append([number])
    return groups


def merge_segments(path: Path, parts: Sequence[tuple[Segment, NDArray[np.bool_]]]) -> FileEntry:
    """Write those passages of segments that stay, in their order, into one."""
    count = sum(int(rows.sum()) for _, rows in parts)
    owners: list[NDArray[np.int32]] = []
    name_rows: list[NDArray[np.int32]] = []
    of_documents: list[tuple[Segment, NDArray[np.bool_]]] = []
    of_names: list[tuple[Segment, NDArray[np.bool_]]] = []
    documents = passages = 0
    for segment, rows in parts:
        held = np.zeros(segment.documents, dtype=bool)
        held[segment["passages"][rows]] = True
        owners.append((np.cumsum(held) - 1 + documents).astype(np.int32)[segment["passages"][rows]])
        named = rows[segment["names.rows"]]
        name_rows.append((np.cumsum(rows) - 1 + passages).astype(np.int32)[segment["names.rows"][named]])
        of_documents.append((segment, held))
        of_names.append((segment, named))
        documents += int(held.sum())
        passages += int(rows.sum())
    blocks = merge_words([(segment.arrays, rows) for segment, rows in parts])
    vectors = parts[0][0]["vectors"]
    arrays: dict[str, NDArray[Any] | ArrayPieces] = {
        "vectors": ArrayPieces(
            vectors.dtype, (count, vectors.shape[1]), (each["vectors"][rows] for each, rows in parts)
        ),
        **_kept_blobs("records", parts),
        **_entries_of(of_documents),
        "ids": np.concatenate([segment.ids[held] for segment, held in of_documents]),
        "digests": np.concatenate([segment.digests[held] for segment, held in of_documents]),
        "passages": np.concatenate(owners),
        "contents": np.concatenate([segment["contents"][rows] for segment, rows in parts]),
        **_kept_blobs("names", of_names),
        "names.rows": np.concatenate(name_rows),
        "names.told": np.concatenate([segment["names.told"][named] for segment, named in of_names]),
        **blocks,
        **_terms_by_row(WordBlocks(blocks)),
    }
    if vectors.dtype == np.int8:
        arrays["scales"] = np.concatenate([segment["scales"][rows] for segment, rows in parts])
    entry = write_arrays(path, arrays)
    return FileEntry(entry.bytes, entry.checksum, path.name, count)


class Segment(IndexFile):
    """The passages of one file, numbered from 0.

    Parameters
    ----------
    directory, entry
        The file, as the manifest names it.
    """

    def __init__(self, directory: Path, entry: FileEntry) -> None:
        super().__init__(directory, entry)
        if any(len(self[name]) != self.passages for name in ("vectors", "passages", "contents")):
            raise self.damaged(f"it does not have the {self.passages:,} passages that {entry.name} is to have")
        if self.is_current and any(len(self[name]) != self.documents for name in ("ids", "digests")):
            raise self.damaged(f"it does not have the ids of its {self.documents:,} documents")

    @cached_property
    def blocks(self) -> WordBlocks:
        """The postings of its words."""
        return WordBlocks(self.arrays, name=str(self.arrays.path), remedy=REMEDY)

    def document(self, row: int) -> Document:
        """Read a passage."""
        passage = self._read("records", row, Document)
        entry = self.entry_of(int(self["passages"][row]))
        origin = passage.origin
        if origin is not None and not origin.metadata:
            origin = msgspec.structs.replace(origin, metadata=entry.metadata)
        return msgspec.structs.replace(passage, source=passage.source or entry.source, origin=origin)

    def entry_of(self, number: int) -> DocumentEntry:
        """Read what is known of a document as a whole."""
        if not self.is_current:
            return self._read("documents", number, DocumentEntry)
        stored = self._read("documents", number, _StoredEntry)
        digest = self["digests"][number].tobytes().hex()
        return DocumentEntry(stored.id, stored.title, stored.source, stored.metadata, digest, stored.passages)

    def texts(self, rows: NDArray[np.int64]) -> list[str]:
        """Read the texts of some passages."""
        return [" ".join(self._read("records", row, _Sentences).sentences) for row in rows.tolist()]

    def _read(self, name: str, number: int, kind: type[_Record]) -> _Record:
        content = self.blob(name, number)
        try:
            # Entries are not packed, or only in the format before.
            if not content.startswith(b"["):
                content = zlib.decompressobj(zdict=_DICTIONARY).decompress(content)
            try:
                return msgspec.json.decode(content, type=kind)
            except msgspec.DecodeError:
                # By the standard library: msgspec refuses the escapes of lone surrogates, which `dump_json` writes.
                return msgspec.convert(json.loads(content), kind)
        except (ValueError, zlib.error, RecursionError) as error:
            raise self.damaged(f"number {number} of its {name} cannot be read ({error})") from None

    def entries(self) -> Iterator[DocumentEntry]:
        """Iterate over what is known of each document."""
        return map(self.entry_of, range(self.documents))

    @property
    def documents(self) -> int:
        """How many documents there are."""
        return len(self["documents.ends"])

    @property
    def is_current(self) -> bool:
        """Whether it is of this format; one of the format before has no arrays of ids and digests."""
        return "ids" in self.arrays.names

    @cached_property
    def ids(self) -> NDArray[np.uint64]:
        """Hashes of the documents' ids."""
        return self["ids"] if self.is_current else hash_texts(entry.id for entry in self.entries())

    @cached_property
    def digests(self) -> NDArray[np.uint8]:
        """The documents' digests, ``[n_documents, 16]``."""
        if self.is_current:
            return self["digests"]
        digests = b"".join(bytes.fromhex(entry.digest) for entry in self.entries())
        return np.frombuffer(digests, dtype=np.uint8).reshape(-1, 16)

    def nearest(self, queries: Vectors, k: int, excluded: NDArray[np.int64] | None) -> tuple[Any, Any]:
        """Find the passages nearest to each query."""
        scale = self["scales"] if self["vectors"].dtype == np.int8 else None
        exclude = None if excluded is None else [excluded] * len(queries)
        return top_k(queries, self["vectors"], min(k, self.passages), scale=scale, exclude=exclude)

    def vectors_of(self, rows: NDArray[np.int64]) -> Vectors:
        """Return the vectors of some passages as float32."""
        vectors = self["vectors"][rows].astype(np.float32)
        return vectors * self["scales"][rows, None] if "scales" in self.arrays.names else vectors

    def blob(self, name: str, number: int) -> bytes:
        """Return one of the byte strings that stand one behind the other."""
        ends = self[f"{name}.ends"]
        if not 0 <= number < len(ends):
            raise self.damaged(f"there is no number {number} among its {len(ends):,} {name}")
        start, end = int(ends[number - 1]) if number else 0, int(ends[number])
        content = self[name]
        if not 0 <= start <= end <= len(content):
            raise self.damaged(f"number {number} of its {name} stands at bytes {start} to {end} of {len(content):,}")
        return content[start:end].tobytes()

    def offsets(self, name: str) -> NDArray[np.int64]:
        """Return where each of the byte strings begins that stand one behind the other, and where the last ends."""
        offsets = np.concatenate([np.zeros(1, np.int64), self[f"{name}.ends"].astype(np.int64)])
        if (np.diff(offsets) < 0).any() or offsets[-1] != len(self[name]):
            raise self.damaged(f"its {name} do not make up {len(self[name]):,} bytes")
        return offsets


def _names(passage: Document) -> list[tuple[str, bool]]:
    given, told = passage_names(passage)
    return [(name, False) for name in given] + [(name, True) for name in told]


def _stored_entry(passages: Sequence[Document]) -> _StoredEntry:
    """Describe a document by its passages."""
    first = passages[0]
    title, metadata = (first.title, {}) if first.origin is None else (first.origin.title, first.origin.metadata)
    return _StoredEntry(document_id(first), title, first.source, metadata, len(passages))


def _record(passage: Document, entry: _StoredEntry) -> bytes:
    """Return what is kept of a passage alone: source and metadata are its document's, as a rule."""
    origin = passage.origin
    if origin is not None and origin.metadata == entry.metadata:
        origin = msgspec.structs.replace(origin, metadata={})
    source = "" if passage.source == entry.source else passage.source
    return dump_json(msgspec.structs.replace(passage, source=source, origin=origin)).encode()


def _packed(record: bytes) -> bytes:
    packer = zlib.compressobj(_LEVEL, zdict=_DICTIONARY)
    return packer.compress(record) + packer.flush()


def _blob(name: str, pieces: list[bytes]) -> dict[str, NDArray[Any]]:
    content, offsets = joined(pieces)
    return {name: content, f"{name}.ends": narrow(offsets[1:])}


def _kept_blobs(name: str, kept: Sequence[tuple[Segment, NDArray[np.bool_]]]) -> dict[str, NDArray[Any]]:
    """Return those byte strings of segments that stay."""
    pieces, sizes = [np.empty(0, np.uint8)], [np.empty(0, np.int64)]
    for segment, mask in kept:
        offsets, content = segment.offsets(name), segment[name]
        borders = np.flatnonzero(np.diff(mask, prepend=False, append=False))
        pieces += [content[start:end] for start, end in offsets[borders].reshape(-1, 2).tolist()]
        sizes.append(np.diff(offsets)[mask])
    return {name: np.concatenate(pieces), f"{name}.ends": narrow(starts_of(np.concatenate(sizes))[1:])}


def _entries_of(kept: Sequence[tuple[Segment, NDArray[np.bool_]]]) -> dict[str, NDArray[Any]]:
    """Return the entries of documents that stay; those of the format before are unpacked."""
    if all(segment.is_current for segment, _ in kept):
        return _kept_blobs("documents", kept)
    entries = (segment.entry_of(number) for segment, held in kept for number in np.flatnonzero(held).tolist())
    stored = (_StoredEntry(each.id, each.title, each.source, each.metadata, each.passages) for each in entries)
    return _blob("documents", [dump_json(each).encode() for each in stored])


def _terms_by_row(blocks: WordBlocks) -> dict[str, NDArray[Any]]:
    """Turn the postings around: the terms of each row, as places in the terms of all blocks.

    They rise, and only what each adds to the one before is kept, in 16 bits; where that is too much, `FAR` first, as often as
    it goes into it.
    """
    steps, ends = [np.empty(0, dtype=np.uint16)], [np.zeros(1, dtype=np.int64)]
    first = 0
    for block in blocks:
        some, of_rows = _core.turn_postings(block.rows, block.starts, len(block.lengths), first, FAR)
        steps.append(some)
        ends.append(ends[-1][-1] + of_rows)
        first += len(block.terms)
    return {"row_terms": np.concatenate(steps), "row_terms.starts": np.concatenate(ends).astype(np.uint32)}
