"""The manifest of a sentence index: what of its files counts, and how to tell whether they are whole."""

from __future__ import annotations

from pathlib import Path

import msgspec

from pytrace.errors import StoreError
from pytrace.storage import files
from pytrace.storage.mapped_arrays import VectorsManifest, load_manifest

FORMAT = 1
MANIFEST = "index.json"
VECTORS, SENTENCES, OFFSETS = "index.vectors", "index.sentences.jsonl", "index.offsets"
REMEDY = "build the index anew"


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


def read_manifest(directory: Path) -> Manifest:
    """Read the manifest of an index."""
    path = directory / MANIFEST
    missing = f"there is no sentence index at {directory}; check the path, or build one there"
    manifest = load_manifest(path, Manifest, missing=missing, remedy=REMEDY)
    graph = manifest.graph
    if (
        manifest.format != FORMAT
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


def check_file(directory: Path, name: str, size: int, due: int) -> None:
    """Compare the first `size` bytes of a file with the checksum that the manifest gives."""
    if Path(name).name != name:
        raise StoreError(f"{directory / MANIFEST} names a file {name!r} outside of its directory; {REMEDY}")
    files.check_file(directory / name, size, due, remedy=REMEDY)
