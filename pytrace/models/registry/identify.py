"""Which model of the catalog a file is, by its content: settings follow a model, not the word that it was named by."""

from __future__ import annotations

import hashlib
from pathlib import Path

from pytrace.models import registry
from pytrace.models.registry import model_files, rewritten


def identify(path: str | Path) -> str | None:
    """Return the catalog's name of a GGUF file."""
    path = Path(path)
    try:
        size = path.stat().st_size
        candidates = {sha256: name for name, known, sha256 in _known() if known == size}
        # Most files differ in size from all that are known, and need not be hashed.
        return candidates.get(_sha256(path)) if candidates else None
    except OSError:
        return None


def _known() -> list[tuple[str, int, str]]:
    """Return name, size and SHA-256 of every pinned language model that is one file, and of what it was rewritten into."""
    known = []
    for model in registry.catalog().models:
        file = model.files[0]
        if model.role != "language-model" or len(model.files) != 1 or file.size is None or file.sha256 is None:
            continue
        known.append((model.name, file.size, file.sha256))
        record = rewritten.read_or_none(registry.directory(model) / ".rewritten")
        if record is not None and record.size is not None and record.sha256 and record.source.sha256 == file.sha256:
            known.append((model.name, record.size, record.sha256))
    return known


def _sha256(path: Path) -> str:
    """Hash a file, or recall its hash: a hundred megabytes take a third of a second, each time that the command starts."""
    resolved = path.resolve()
    now = resolved.stat()
    # A file that was changed has another size or time, and so another key.
    key = f"{hashlib.sha256(bytes(resolved)).hexdigest()[:16]}-{now.st_size}-{now.st_mtime_ns}"
    return registry.remembered("hashes.json", key, dict[str, str], lambda: model_files.sha256_of(resolved))
