"""The manifest of a sentence index: what of its files counts, and how to tell whether they are whole."""

from __future__ import annotations

import os
import zlib
from pathlib import Path

import msgspec

from pytrace.errors import StoreError

FORMAT = 1
MANIFEST = "index.json"
VECTORS, SENTENCES, OFFSETS = "index.vectors", "index.sentences.jsonl", "index.offsets"

_CHUNK = 1 << 22


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


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What counts: `checksums` are CRC-32 of each file's first `count` rows."""

    format: int
    encoder: str
    fingerprint: str
    dimension: int
    count: int
    text_bytes: int
    checksums: dict[str, int]
    graph: GraphEntry | None = None

    def sizes(self) -> dict[str, int]:
        """Return how many bytes of each file count."""
        return {VECTORS: 4 * self.dimension * self.count, SENTENCES: self.text_bytes, OFFSETS: 8 * self.count}


def read_manifest(directory: Path) -> Manifest:
    """Read the manifest of an index.

    Raises
    ------
    StoreError
        There is none, it cannot be read, is damaged, or of another format.
    """
    path = directory / MANIFEST
    try:
        manifest = msgspec.json.decode(path.read_bytes(), type=Manifest)
    except (FileNotFoundError, NotADirectoryError):
        message = f"there is no sentence index at {directory}; check the path, or build one there"
        raise StoreError(message) from None
    except OSError as error:
        message = f"{path} cannot be read ({error.strerror}); correct the path or its permissions"
        raise StoreError(message) from None
    except (ValueError, RecursionError) as error:
        message = f"{path} is damaged or of another version ({error}); build the index anew"
        raise StoreError(message) from None
    graph = manifest.graph
    if (
        manifest.format != FORMAT
        or min(manifest.count, manifest.text_bytes) < 0
        or manifest.dimension < 1
        or set(manifest.checksums) != set(manifest.sizes())
        or (graph is not None and not (0 <= graph.twin_rows < graph.rows <= manifest.count and graph.width > 0))
    ):
        message = (
            f"{path} has format {manifest.format}, count {manifest.count}, dimension {manifest.dimension}, text of "
            f"{manifest.text_bytes} bytes and a graph of {0 if graph is None else graph.rows} rows, which no index of "
            f"format {FORMAT} can have; build it anew"
        )
        raise StoreError(message)
    return manifest


def write_manifest(directory: Path, manifest: Manifest) -> None:
    """Put a manifest in the place of the one before, in one step.

    Raises
    ------
    OSError
        It cannot be written; the one before is still there.
    """
    path = directory / MANIFEST
    new = path.with_name(f"{MANIFEST}.new")
    with new.open("wb") as stream:
        stream.write(msgspec.json.format(msgspec.json.encode(manifest), indent=2))
        stream.flush()
        os.fsync(stream.fileno())
    new.replace(path)
    flush(directory)  # so that the new name outlives a power cut


def flush(path: Path) -> None:
    """Have the system write a file or directory to the disk now."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def checksum(path: Path, most: int) -> tuple[int, int]:
    """Return the CRC-32 of a file's first `most` bytes, and how many of them there are."""
    found, left = 0, most
    with path.open("rb") as stream:
        while left and (data := stream.read(min(_CHUNK, left))):
            found, left = zlib.crc32(data, found), left - len(data)
    return found, most - left


def check_file(directory: Path, name: str, size: int, due: int) -> None:
    """Compare the first `size` bytes of a file with the checksum that the manifest gives.

    Raises
    ------
    FileNotFoundError
        It is not there.
    StoreError
        It cannot be read, is too short or has changed, or the manifest names a file that is not in the directory.
    """
    path = directory / name
    if Path(name).name != name:
        message = f"{directory / MANIFEST} names a file {name!r} outside of its directory; build the index anew"
        raise StoreError(message)
    try:
        found, there = checksum(path, size)
    except FileNotFoundError:
        raise
    except OSError as error:
        message = f"{path} cannot be read ({error.strerror}); correct its permissions"
        raise StoreError(message) from None
    if there < size or found != due:
        message = (
            f"{path} is damaged: {there:,} of {size:,} bytes are there, with checksum {found:08x} where {due:08x} is due; "
            "build the index anew"
        )
        raise StoreError(message)
