"""An index is opened for writing: by one process at a time, made if it is not there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from pytrace.errors import StoreError
from pytrace.models.encoders.encoder import Encoder
from pytrace.retrieval.passages.manifest import (
    FORMAT,
    LOCK,
    MANIFEST,
    IndexManifest,
    VectorType,
    missing,
    read_manifest,
    write_manifest,
)
from pytrace.storage.locks import take_writer_lock
from pytrace.storage.text import storable


def lock_index(directory: Path, *, create: bool) -> BinaryIO:
    """Keep other writers out until the file that is returned is closed."""
    try:
        if create:
            directory.mkdir(parents=True, exist_ok=True)
            _refuse_other_files(directory)  # before the lock is written into them
        elif not directory.is_dir():
            raise StoreError(missing(directory))
        return take_writer_lock(directory / LOCK, str(directory))
    except OSError as error:
        reason = f"({error.strerror}); correct its permissions, or name another directory"
        raise StoreError(f"{directory} cannot be written {reason}") from None


def _refuse_other_files(directory: Path) -> None:
    if (directory / MANIFEST).exists():
        return
    # The last is what a writer leaves that was killed before anything else was there.
    others = [path.name for path in directory.iterdir() if path.name not in {LOCK, f"{MANIFEST}.new"}]
    if others:
        raise StoreError(f"{directory} holds other files ({others[0]}), and no {MANIFEST}; name an empty directory")


def begin_manifest(
    directory: Path, encoder: Encoder, vectors: VectorType | None, reading: dict[str, Any], *, create: bool
) -> IndexManifest:
    """Read the manifest of an index, or write that of an empty one; `StoreError` where it was made otherwise."""
    if create and not (directory / MANIFEST).exists():
        _refuse_other_files(directory)
        name, fingerprint = storable(encoder.name), storable(encoder.fingerprint)
        manifest = IndexManifest(FORMAT, name, fingerprint, encoder.dimension, vectors or "float32", reading)
        with writing(directory):
            write_manifest(directory, manifest)
        return manifest
    manifest = read_manifest(directory, before=True)
    manifest.check_encoder(directory, encoder.name, encoder.fingerprint, encoder.dimension, what="index")
    if vectors not in (None, manifest.vectors):
        raise StoreError(
            f"{directory} keeps vectors as {manifest.vectors}, not as {vectors}; leave that out, or build another index"
        )
    return msgspec.structs.replace(manifest, reading=reading) if reading and not manifest.segments else manifest


@contextmanager
def writing(directory: Path) -> Iterator[None]:
    """Turn the system's errors into one sentence."""
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"{directory} cannot be written ({error.strerror or error}); what was committed before is still there: "
            "free some space or correct its permissions, then try again"
        ) from None
