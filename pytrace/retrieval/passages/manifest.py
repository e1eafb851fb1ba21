"""What an index of passages counts: its segments and its graph, replaced in one step."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from msgspec import field
from numpy.typing import NDArray

from pytrace.errors import StoreError
from pytrace.storage.array_file import ArrayFile, ArrayFileEntry
from pytrace.storage.files import SMALL
from pytrace.storage.mapped_arrays import VectorsManifest, load_manifest, save_manifest

FORMAT = 3
# Of an index of these formats a writer writes segments and graph anew, and encodes nothing: 2 has the words of names, 3 has ids and
# digests in arrays, and no links.
FORMATS_BEFORE = (1, 2)
MANIFEST = "passages.json"
LOCK = "passages.lock"
REMEDY = "delete the index and build it again"

VectorType = Literal["float32", "float16", "int8"]


class FileEntry(ArrayFileEntry, frozen=True, forbid_unknown_fields=True):
    """A file of arrays in the index's directory, and how many passages it holds."""

    name: str
    passages: int = 0


class IndexFile:
    """A file of arrays of an index, mapped for reading, with the passages that it is of; a small one is compared with its checksums."""

    def __init__(self, directory: Path, entry: FileEntry) -> None:
        self.entry = entry
        self.passages = entry.passages
        self.arrays = ArrayFile.open(directory / entry.name, what="the index", remedy=REMEDY, entry=entry)
        if entry.bytes <= SMALL:
            try:
                self.verify()
            except BaseException:
                self.close()
                raise

    def __getitem__(self, name: str) -> NDArray[Any]:
        """Return one of the arrays."""
        return self.arrays[name]

    def check(self) -> None:
        """Raise `StoreError` if the file has become shorter, which would kill the process that reads it."""
        self.arrays.check()

    def verify(self) -> None:
        """Compare the file with its checksums."""
        self.arrays.verify()

    def close(self) -> None:
        """Close the file."""
        self.arrays.close()

    def damaged(self, reason: str) -> StoreError:
        """Return the error for what does not hold together."""
        return StoreError(f"{self.arrays.path} is damaged: {reason}; {REMEDY}")


class IndexManifest(VectorsManifest, frozen=True, forbid_unknown_fields=True):
    """What is searched: `segments` and the `graph` over them. `pending` are segments of a build that has not come to its end.

    `reading` are the options that documents were read with, so that a later sync reads them alike; `generation` numbers the
    files, of which none is ever written twice; at 0 nothing was committed yet.
    """

    vectors: VectorType
    reading: dict[str, Any] = field(default_factory=dict)
    generation: int = 0
    segments: tuple[FileEntry, ...] = ()
    pending: tuple[FileEntry, ...] = ()
    graph: FileEntry | None = None

    @property
    def files(self) -> set[str]:
        """The names of all files that count."""
        graph = () if self.graph is None else (self.graph.name,)
        return {entry.name for entry in (*self.segments, *self.pending)}.union(graph)


def missing(directory: Path) -> str:
    """Say that there is no index."""
    return (
        f"there is no index at {directory}; check the path, or build one: 'pytrace index build {directory} --docs PATH'"
    )


def read_manifest(directory: Path, *, before: bool = False) -> IndexManifest:
    """Read the manifest of an index; `StoreError` where there is none, or one that this version does not know.

    One of the formats before is read where `before` says so, by who brings it up to date.
    """
    manifest = load_manifest(
        directory / MANIFEST,
        IndexManifest,
        newest=FORMAT,
        missing=missing(directory),
        remedy=REMEDY,
    )
    if manifest.format != FORMAT and not (before and manifest.format in FORMATS_BEFORE):
        remedy = "build it anew"
        if manifest.format in FORMATS_BEFORE:
            remedy = f"'pytrace index sync {directory}' brings it up to date, and encodes nothing again"
        raise StoreError(f"{directory} has format {manifest.format}, and this version knows {FORMAT}; {remedy}")
    # A manifest that came from elsewhere must not have files outside of its directory read.
    if outside := next((name for name in manifest.files if Path(name).name != name), None):
        raise StoreError(f"{directory / MANIFEST} names a file {outside!r} outside of its directory; {REMEDY}")
    return manifest


def write_manifest(directory: Path, manifest: IndexManifest) -> None:
    """Put a manifest in the place of the one before."""
    save_manifest(directory / MANIFEST, manifest)
