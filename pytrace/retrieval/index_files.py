"""The files of a sentence index: rows are appended beyond the recorded count, and count only once it is replaced.

A directory holds ``index.vectors`` (float32 rows and nothing else, so that they can be mapped as they are),
``index.sentences.jsonl`` (one sentence a line), ``index.offsets`` (int64, where each line ends, so that one sentence is
read without the others), ``index.json`` (the manifest: how many rows there are, of which encoder, with checksums), and
for a large index a graph of neighbours and the list of equal rows beside it, whose names the manifest gives.

What is new is written and flushed to the disk behind what the manifest records, or under a name of its own, and then the
manifest is replaced in one step. So a process that is killed, a full disk or a power cut leaves the state before; the next
writer cuts off what lies behind it. A writer holds a lock for as long as it is open, which the system gives back however
the process ends. Readers take none: files only grow, and a reader keeps to the count that it opened.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import msgspec
import numpy as np

from pytrace.errors import StoreError
from pytrace.models.encoders.encoder import Encoder, Vectors
from pytrace.records import Sentence
from pytrace.retrieval.neighbour_graph import NeighbourGraph
from pytrace.storage.files import SMALL, check_file, checksum, flush
from pytrace.storage.foreign_json import decode_json
from pytrace.storage.locks import take_lock
from pytrace.storage.mapped_arrays import MappedFile, VectorsManifest, load_manifest, save_manifest
from pytrace.storage.text import storable

FORMAT = 2
# Format 1 has no checksum of the manifest itself.
_FORMATS = (1, FORMAT)
MANIFEST = "index.json"
VECTORS, SENTENCES, OFFSETS = "index.vectors", "index.sentences.jsonl", "index.offsets"
REMEDY = "delete the index and build it again"
_LOCK = "index.lock"
# How often a reader follows a writer that replaces the graph between the manifest's reading and the graph's.
_OPENINGS = 5

Batch = tuple[list[Sentence], Vectors]


class GraphEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the manifest says of the graph: its two files with sizes and checksums, and how it is to be searched."""

    file: str
    bytes: int
    checksum: int
    twins: str
    twin_rows: int
    twins_checksum: int
    rows: int
    width: int
    recall: float


class Manifest(VectorsManifest, frozen=True, forbid_unknown_fields=True):
    """What counts: `checksums` are CRC-32 of each file's first `count` rows."""

    count: int
    text_bytes: int
    checksums: dict[str, int]
    graph: GraphEntry | None = None

    def sizes(self) -> dict[str, int]:
        """Return how many bytes of each file count."""
        return {VECTORS: 4 * self.dimension * self.count, SENTENCES: self.text_bytes, OFFSETS: 8 * self.count}


class IndexFiles:
    """The rows of a sentence index in a directory."""

    def __init__(
        self, directory: str | os.PathLike[str], encoder: Encoder | None, *, writable: bool, create: bool = False
    ) -> None:
        self.directory = Path(directory)
        self._encoder = encoder  # None: any, for who only verifies
        self._lock: IO[bytes] | None = None
        self._mapped: dict[str, MappedFile] = {}
        self.writable = writable
        self._pending: Manifest | None = None
        try:
            if create:
                try:
                    self.directory.mkdir(parents=True, exist_ok=True)
                except OSError as error:
                    raise StoreError(
                        f"{self.directory} cannot be made ({error.strerror}); name another directory"
                    ) from None
            if writable:
                self._take_lock()
            if create:
                self._begin()
            self._open(self._read_manifest())
        except BaseException:
            self.close()
            raise

    @property
    def count(self) -> int:
        """How many sentences there are."""
        return self.manifest.count

    @property
    def vectors(self) -> Vectors:
        """The vectors, mapped read-only; `StoreError` where the file has become shorter, which would kill the process."""
        for file in self._mapped.values():
            file.check()
        return self._vectors

    def sentence(self, row: int) -> Sentence:
        """Read one sentence."""
        start = int(self._ends[row - 1]) if row else 0
        end = int(self._ends[row])
        path = self.directory / SENTENCES
        try:
            # A damaged offset must not make it read gigabytes.
            size = end - start if 0 <= start < end <= self.manifest.text_bytes else 0
            line = self._mapped[SENTENCES].read(start, size)
            return decode_json(line, Sentence, surrogates=True)
        except (ValueError, OSError) as error:
            raise StoreError(
                f"{path}: the line of sentence {row} of {self.count}, bytes {start} to {end}, cannot be read ({error}); "
                "the file is damaged: delete the index and build it again"
            ) from None

    def graph(self) -> NeighbourGraph | None:
        """Load the graph, or return None where there is none yet."""
        for attempt in range(_OPENINGS):
            entry = self.manifest.graph
            try:
                return None if entry is None else self._load_graph(entry)
            except FileNotFoundError as error:
                # A writer may have put another in its place since the manifest was read.
                manifest = self._read_manifest()
                if manifest == self.manifest or attempt == _OPENINGS - 1:
                    raise StoreError(f"{error.filename} is missing, and {MANIFEST} names it; {REMEDY}") from None
                self._open(manifest)
        raise AssertionError

    def write(self, batches: Iterable[Batch]) -> Iterator[int]:
        """Write rows behind those that count, and yield how many there are after each batch."""
        sizes, sums = self.manifest.sizes(), dict(self.manifest.checksums)
        count, text_bytes = self.manifest.count, self.manifest.text_bytes
        # A writer that was killed may have left rows that no manifest counts: what is appended must stand right behind those
        # that one does.
        with self._writing():
            for name, size in sizes.items():
                if not self.manifest.count:
                    (self.directory / name).touch()  # a writer may have been killed before they were there
                os.truncate(self.directory / name, size)
        for sentences, vectors in batches:
            lines = [_line(sentence) for sentence in sentences]
            ends = text_bytes + np.cumsum([len(line) for line in lines], dtype="<i8")
            data = {VECTORS: vectors.astype("<f4").tobytes(), SENTENCES: b"".join(lines), OFFSETS: ends.tobytes()}
            with self._writing():
                for name, content in data.items():
                    with (self.directory / name).open("ab") as stream:
                        stream.write(content)
                    sums[name] = zlib.crc32(content, sums[name])
            count, text_bytes = count + len(lines), text_bytes + len(data[SENTENCES])
            self._pending = msgspec.structs.replace(
                self.manifest, count=count, text_bytes=text_bytes, checksums=sums.copy()
            )
            yield count

    def written_vectors(self) -> Vectors:
        """Return all vectors, mapped, those included that do not count yet."""
        pending = self._pending or self.manifest
        return self._map(VECTORS, pending).array("<f4", (pending.count, pending.dimension))

    def commit(self, graph: NeighbourGraph | None) -> None:
        """Let what was written count, with a graph that has grown, if it has."""
        manifest = self._pending or self.manifest
        # Flushed before the manifest that counts them, or a power cut could leave it with rows that are not there.
        with self._writing():
            for name in manifest.sizes():
                flush(self.directory / name)
            if graph is not None:
                manifest = msgspec.structs.replace(manifest, graph=self._save_graph(graph))
            manifest = msgspec.structs.replace(manifest, format=FORMAT)
            save_manifest(self.directory / MANIFEST, manifest)
        self._pending = None
        self._open(manifest)
        with suppress(OSError):  # what is left lying there harms nobody
            self._remove_graphs()

    def discard(self) -> None:
        """Forget what was written and does not count, and give its room back."""
        self._pending = None
        with suppress(OSError):  # it does not count anyway, and the next writer tries again
            for name, size in self.manifest.sizes().items():
                os.truncate(self.directory / name, size)
            self._remove_graphs()

    def verify(self) -> None:
        """Read all files and compare their checksums."""
        for name, file in self._mapped.items():
            file.verify(self.manifest.checksums[name])
        if self.manifest.graph is not None:
            self._check_graph(self.manifest.graph)

    def close(self) -> None:
        """Close the files and let others write."""
        for file in self._mapped.values():
            file.close()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _take_lock(self) -> None:
        if not self.directory.is_dir():
            raise StoreError(f"there is no sentence index at {self.directory}; check the path, or build one there")
        try:
            self._lock = take_lock(
                self.directory / _LOCK,
                f"{self.directory} is being written by another process; wait for it, or open it with mode='read'",
            )
        except OSError as error:
            raise StoreError(
                f"{self.directory} cannot be written ({error.strerror}); correct its permissions, or open it with "
                "mode='read'"
            ) from None

    def _begin(self) -> None:
        """Write an empty manifest first, so that files that lie here without one are known to be somebody else's."""
        names, encoder = (VECTORS, SENTENCES, OFFSETS), self._encoder
        assert encoder is not None
        if (self.directory / MANIFEST).exists():
            held = read_manifest(self.directory)
            if held.count:
                raise StoreError(
                    f"{self.directory} already holds an index of {held.count:,} sentences; open it with mode='write' to "
                    "extend it, or name another directory"
                )
        elif foreign := next((name for name in names if (self.directory / name).exists()), None):
            raise StoreError(f"{self.directory / foreign} is there, but no {MANIFEST}; name another directory")
        identity = storable(encoder.name), storable(encoder.fingerprint), encoder.dimension
        with self._writing():
            save_manifest(self.directory / MANIFEST, Manifest(FORMAT, *identity, 0, 0, dict.fromkeys(names, 0)))
            for name in names:
                (self.directory / name).touch()

    def _read_manifest(self) -> Manifest:
        manifest, encoder = read_manifest(self.directory), self._encoder
        if encoder is not None:
            manifest.check_encoder(self.directory, encoder.name, encoder.fingerprint, encoder.dimension, what="index")
        return manifest

    def _open(self, manifest: Manifest) -> None:
        """Map what counts by a manifest."""
        self._mapped = {name: self._map(name, manifest) for name in manifest.sizes()} if manifest.count else {}
        self.manifest = manifest
        self._vectors: Vectors = np.empty((0, manifest.dimension), dtype=np.float32)
        if manifest.count:
            for name, file in self._mapped.items():
                file.verify(manifest.checksums[name], most=SMALL)
            self._vectors = self._mapped[VECTORS].array("<f4", (manifest.count, manifest.dimension))
            self._ends = self._mapped[OFFSETS].array("<i8", (manifest.count,))
            if int(self._ends[-1]) != manifest.text_bytes:
                raise StoreError(
                    f"{self.directory / OFFSETS} ends with {int(self._ends[-1])} where {manifest.text_bytes} is due; the "
                    f"file is damaged: {REMEDY}"
                )

    def _map(self, name: str, manifest: Manifest) -> MappedFile:
        size = manifest.sizes()[name]
        due = f"{manifest.count:,} sentences take {size:,}"
        return MappedFile(self.directory / name, size, what="the index", remedy=REMEDY, due=due, grows=True)

    def _check_graph(self, entry: GraphEntry) -> None:
        twins_bytes = 16 * entry.twin_rows
        for name, size, due in (
            (entry.file, entry.bytes, entry.checksum),
            (entry.twins, twins_bytes, entry.twins_checksum),
        ):
            # A manifest that came from elsewhere must not have files outside of its directory read.
            if Path(name).name != name:
                raise StoreError(
                    f"{self.directory / MANIFEST} names a file {name!r} outside of its directory; {REMEDY}"
                )
            check_file(self.directory / name, size, due, remedy=REMEDY)

    def _load_graph(self, entry: GraphEntry) -> NeighbourGraph:
        self._check_graph(entry)
        twins_bytes = 16 * entry.twin_rows
        twins = np.frombuffer((self.directory / entry.twins).read_bytes()[:twins_bytes], dtype="<i8")
        path = self.directory / entry.file
        try:
            return NeighbourGraph.load(
                path,
                self.manifest.dimension,
                rows=entry.rows,
                width=entry.width,
                recall=entry.recall,
                twins=twins.astype(np.int64).reshape(-1, 2),
            )
        except RuntimeError as error:
            raise StoreError(f"{path} holds no graph of {entry.rows:,} vectors ({error}); {REMEDY}") from None

    def _save_graph(self, graph: NeighbourGraph) -> GraphEntry:
        # More rows than the last one has: never the name of a file that counts.
        paths = [self.directory / f"index-{graph.rows}.{kind}" for kind in ("graph", "twins")]
        graph.save(paths[0])
        paths[1].write_bytes(graph.twins.astype("<i8").tobytes())
        sizes = [path.stat().st_size for path in paths]
        sums = []
        for path, size in zip(paths, sizes, strict=True):
            flush(path)
            sums.append(checksum(path, size)[0])
        return GraphEntry(
            file=paths[0].name,
            bytes=sizes[0],
            checksum=sums[0],
            twins=paths[1].name,
            twin_rows=len(graph.twins),
            twins_checksum=sums[1],
            rows=graph.rows,
            width=graph.width,
            recall=graph.recall,
        )

    def _remove_graphs(self) -> None:
        """Remove graphs that the manifest does not name: former ones, and what a killed writer left."""
        entry = self.manifest.graph
        kept = set() if entry is None else {entry.file, entry.twins}
        for path in [*self.directory.glob("index-*.graph"), *self.directory.glob("index-*.twins")]:
            if path.name not in kept:
                path.unlink(missing_ok=True)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            # The first manifest of a new index is written before there is one.
            held = self.manifest.count if hasattr(self, "manifest") else 0
            raise StoreError(
                f"{self.directory} cannot be written ({error.strerror or error}); what it held before, "
                f"{held:,} sentences, is unharmed: free some room or correct its permissions, and try again"
            ) from None


def read_manifest(directory: Path) -> Manifest:
    """Read the manifest of an index."""
    path = directory / MANIFEST
    missing = f"there is no sentence index at {directory}; check the path, or build one there"
    manifest = load_manifest(path, Manifest, newest=FORMAT, missing=missing, remedy=REMEDY, unchecked=(1,))
    graph = manifest.graph
    if (
        manifest.format not in _FORMATS
        or min(manifest.count, manifest.text_bytes) < 0
        or manifest.dimension < 1
        or set(manifest.checksums) != set(manifest.sizes())
        or (graph is not None and not (0 <= graph.twin_rows < graph.rows <= manifest.count and graph.width > 0))
    ):
        raise StoreError(
            f"{path} has format {manifest.format}, count {manifest.count}, dimension {manifest.dimension}, text of "
            f"{manifest.text_bytes} bytes and a graph of {0 if graph is None else graph.rows} rows, which no index of "
            f"format {FORMAT} can have; build it anew"
        )
    return manifest


def _line(sentence: Sentence) -> bytes:
    row = msgspec.to_builtins(sentence)
    try:
        return json.dumps(row, ensure_ascii=False).encode() + b"\n"
    except UnicodeEncodeError:  # lone surrogates have no UTF-8, but JSON has an escape for them
        return json.dumps(row).encode() + b"\n"
