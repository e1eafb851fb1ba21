"""One model's directory: whether its files are whole, and how they get there.

A file appears under its own name only when it is complete and its SHA-256 is right: it is written under another name,
checked, flushed to disk, then renamed. So a file that is there is finished and is never fetched again.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Literal

import msgspec

from pytrace.errors import DownloadError, ModelFileError
from pytrace.models.registry import downloads as sources
from pytrace.models.registry.downloads import PullProgress, Watch
from pytrace.models.registry.known_models import EncoderSettings, Model, ModelFile
from pytrace.storage.files import flush, replace_file
from pytrace.storage.foreign_json import read_json
from pytrace.storage.locks import locked

_BLOCK = 1 << 20
_RECORD = ".pulled.json"
# Bytes of a file whose size the catalog does not say: more than any single file of a model has that such machines run.
MOST = {
    "language-model": 200 * 10**9,
    "encoder": 20 * 10**9,
    "reranker": 20 * 10**9,
    "entailment": 20 * 10**9,
    "base": 20 * 10**9,
}

FileState = Literal["ok", "present", "missing", "wrong size", "wrong hash"]


class FileStatus(msgspec.Struct, frozen=True):
    """One file of a model on this machine.

    `state` is ``present`` where the size is right and the hash was not looked at, ``ok`` where it was and is right.
    `pinned` is false where the expected hash is the one recorded at the first pull instead of one in the catalog.
    """

    path: str
    state: FileState
    pinned: bool
    sha256: str | None
    size: int | None
    sources: tuple[str, ...]


class _Pin(msgspec.Struct, frozen=True):
    sha256: str
    size: int


def inspect(model: Model, folder: Path, *, hashed: bool) -> tuple[FileStatus, ...]:
    """Look at a model's files in `folder`: at their sizes, and with `hashed` at every byte."""
    record = _read_record(folder)
    files: list[FileStatus] = []
    for file in model.files:
        sha256, size = _expected(file, record)
        state, size = _state(folder / file.path, sha256, size, hashed=hashed)
        uris = tuple(source.uri for source in file.sources)
        files.append(FileStatus(file.path, state, file.sha256 is not None, sha256, size, uris))
    for path, content in _settings_files(model.settings).items():
        sha256 = hashlib.sha256(content).hexdigest()
        state, size = _state(folder / path, sha256, len(content), hashed=hashed)
        files.append(FileStatus(path, state, pinned=True, sha256=sha256, size=size, sources=("catalog",)))
    return tuple(files)


def pull(model: Model, folder: Path, progress: PullProgress, *, repair: bool, timeout: float) -> None:
    """Fetch into `folder` what a model lacks there; with `repair`, also what has the wrong hash."""
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / ".lock", lambda: progress.note(f"another process is pulling {model.name}; waiting for it")):
        for leftover in folder.glob(".work-*"):  # of a process that was killed: nobody else can hold the lock
            shutil.rmtree(leftover, ignore_errors=True)
        for file in model.files:
            sha256, size = _expected(file, _read_record(folder))
            state, _ = _state(folder / file.path, sha256, size, hashed=repair)
            if state not in {"ok", "present"}:
                _pull_file(model, file, folder, progress, timeout)
        for path, content in _settings_files(model.settings).items():
            target = folder / path
            if not target.exists() or target.read_bytes() != content:
                target.parent.mkdir(exist_ok=True)
                replace_file(target, content)


def _pull_file(model: Model, file: ModelFile, folder: Path, progress: PullProgress, timeout: float) -> None:
    target = folder / file.path
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.partial")
    _check_room(model, file, folder, partial)
    label = f"{model.name}/{file.path}"
    address = sources.parse(file.sources[0].uri)
    try:
        if len(file.sources) == 1 and address.kind == "hf":
            # Straight into `partial`, so that a large file is neither stored nor begun twice.
            with progress.file(label, file.size) as report:
                sources.hub_file(address, partial, Watch(report, timeout, file.size, MOST[model.role]))
            with partial.open("rb") as stream:
                os.fsync(stream.fileno())
                pin = _pin(stream)
        else:
            pin = _joined(model, file, folder, partial, progress, timeout)
        if file.size is None and pin.size > MOST[model.role]:
            raise sources.too_long(label, MOST[model.role])
        _accept(file, folder, label, pin)
    except BaseException as error:
        # A wrong hash must not be taken for a good start, and a full disk wants its room back; of anything else, whole
        # chunks are kept for the next pull.
        if isinstance(error, ModelFileError | OSError) or (partial.exists() and partial.stat().st_size == 0):
            partial.unlink(missing_ok=True)
        raise
    partial.replace(target)
    flush(target.parent)


def _joined(model: Model, file: ModelFile, folder: Path, partial: Path, progress: PullProgress, timeout: float) -> _Pin:
    """Append the sources to `partial`, each checked as it arrives, and go on after those that it holds already."""
    label, most = f"{model.name}/{file.path}", MOST[model.role]
    workspace = Path(tempfile.mkdtemp(prefix=".work-", dir=folder))
    several = len(file.sources) > 1
    try:
        partial.touch()
        with partial.open("rb+") as out:
            done, whole = _kept(file, out)
            for number, source in enumerate(file.sources[done:], start=done + 1):
                which = f"{label} ({number} of {len(file.sources)})" if several else label
                limit = source.size if several else file.size
                piece, length = hashlib.sha256(), 0
                with (
                    progress.file(which, source.download) as report,
                    sources.opened(source.uri, workspace, Watch(report, timeout, source.download, most)) as stream,
                ):
                    # One byte more than there may be shows a file that is too long without storing all of it.
                    for block in _blocks(stream, (most if limit is None else limit) + 1):
                        out.write(block)
                        whole.update(block)
                        piece.update(block)
                        length += len(block)
                if source.sha256 is not None and piece.hexdigest() != source.sha256:
                    _refuse(which, _Pin(piece.hexdigest(), length), source.sha256, source.size)
                out.flush()
                os.fsync(out.fileno())
            return _Pin(whole.hexdigest(), out.tell())
    finally:
        shutil.rmtree(workspace, ignore_errors=True)


def _kept(file: ModelFile, out: IO[bytes]) -> tuple[int, hashlib._Hash]:
    """Count the whole chunks that an earlier pull left in `out`, cut off what follows them, and hash what is kept."""
    done, size, whole = 0, 0, hashlib.sha256()
    for source in file.sources if len(file.sources) > 1 else ():
        if source.sha256 is None or source.size is None:
            break
        piece, both = hashlib.sha256(), whole.copy()
        for block in _blocks(out, source.size):
            piece.update(block)
            both.update(block)
        if piece.hexdigest() != source.sha256:
            break
        done, size, whole = done + 1, size + source.size, both
    out.seek(size)
    out.truncate()
    return done, whole


def _accept(file: ModelFile, folder: Path, label: str, pin: _Pin) -> None:
    """Compare with the catalog's hash, or with the one recorded at the first pull; without either, record it."""
    record = _read_record(folder)
    sha256, size = _expected(file, record)
    if sha256 is None:
        # Before the rename: a kill in between leaves a hash without its file, never a file without its hash.
        replace_file(folder / _RECORD, msgspec.json.format(msgspec.json.encode({**record, file.path: pin})))
    elif pin.sha256 != sha256:
        _refuse(label, pin, sha256, size)


def _refuse(label: str, pin: _Pin, sha256: str, size: int | None) -> None:
    expected = f"{sha256[:16]}…" + ("" if size is None else f" of {size:,} bytes")
    raise ModelFileError(
        f"{label} was refused and removed: its SHA-256 is {pin.sha256[:16]}… of {pin.size:,} bytes, not {expected}; "
        "pull again, and if it repeats the source was changed or tampered with"
    )


def _check_room(model: Model, file: ModelFile, folder: Path, partial: Path) -> None:
    one_at_a_time = max((source.download or 0) for source in file.sources)
    there = partial.stat().st_size if partial.exists() else 0
    needed = (file.size or 0) + one_at_a_time - there
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise DownloadError(
            f"there is no room for {model.name!r} in {folder} ({needed / 1e6:.0f} MB needed, {free / 1e6:.0f} MB free); "
            "free some or set PYTRACE_HOME"
        )


def _state(path: Path, sha256: str | None, size: int | None, *, hashed: bool) -> tuple[FileState, int | None]:
    try:
        actual = path.stat().st_size
    except OSError:
        return "missing", size
    if sha256 is None:  # unpinned and not put there by a pull: nothing vouches for it
        return "missing", size
    if size is not None and actual != size:
        return "wrong size", size
    if not hashed:
        return "present", actual
    try:
        with path.open("rb") as stream:
            return ("ok" if _pin(stream).sha256 == sha256 else "wrong hash"), actual
    except OSError as error:
        raise ModelFileError(
            f"the model file {path} cannot be read ({error.strerror}); correct its permissions"
        ) from error


def _expected(file: ModelFile, record: dict[str, _Pin]) -> tuple[str | None, int | None]:
    known = record.get(file.path)
    return (file.sha256, file.size) if file.sha256 is not None or known is None else (known.sha256, known.size)


def _read_record(folder: Path) -> dict[str, _Pin]:
    try:
        return read_json(folder / _RECORD, dict[str, _Pin])
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ModelFileError(
            f"the record of pulled files {folder / _RECORD} cannot be read ({error}); remove {folder} and pull again"
        ) from error


def _settings_files(settings: EncoderSettings | None) -> dict[str, bytes]:
    """Word an encoder's settings as sentence-transformers does, so that every encoder is read in one way."""
    if settings is None:
        return {}
    prefix = "sentence_transformers.models"
    modules = [("", "Transformer"), ("1_Pooling", "Pooling")] + ([("2_Normalize", "Normalize")] * settings.normalize)
    documents: dict[str, object] = {
        "modules.json": [
            {"idx": index, "name": str(index), "path": path, "type": f"{prefix}.{kind}"}
            for index, (path, kind) in enumerate(modules)
        ],
        "sentence_bert_config.json": {"max_seq_length": settings.max_tokens, "do_lower_case": False},
        "config_sentence_transformers.json": {"prompts": settings.prompts},
        "1_Pooling/config.json": {
            f"pooling_mode_{key}": settings.pooling == mode
            for key, mode in (
                ("cls_token", "cls"),
                ("mean_tokens", "mean"),
                ("max_tokens", "max"),
                ("lasttoken", "lasttoken"),
            )
        },
    }
    return {name: msgspec.json.format(msgspec.json.encode(item)) + b"\n" for name, item in documents.items()}


def _blocks(stream: IO[bytes], left: int) -> Iterator[bytes]:
    while left > 0 and (block := stream.read(min(_BLOCK, left))):
        left -= len(block)
        yield block


def _pin(stream: IO[bytes]) -> _Pin:
    digest = hashlib.file_digest(stream, "sha256")  # type: ignore[arg-type]
    return _Pin(digest.hexdigest(), stream.tell())


def sha256_of(path: Path) -> str:
    """Return a file's SHA-256."""
    with path.open("rb") as stream:
        return _pin(stream).sha256


def check_gguf(path: Path) -> Path:
    """Refuse what is no GGUF file before a native loader sees it."""
    try:
        with path.open("rb") as stream:
            magic = stream.read(4)
    except OSError as error:
        raise ModelFileError(
            f"the model file {path} cannot be read ({error.strerror}); correct its path or permissions"
        ) from error
    if magic != b"GGUF":
        raise ModelFileError(
            f"{path} is no GGUF file (it starts with {magic!r}); give a GGUF file or run 'pytrace models list'"
        )
    return path
