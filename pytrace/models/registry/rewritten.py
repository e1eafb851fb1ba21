"""Where a language model rewritten into another weight format lies, and whether it still stands for its source.

Beside a named model, or below ``PYTRACE_HOME/rewritten`` for a file of the user's own, a directory holds at most one
rewritten file and ``record.json``: which source it was made of, and the figures that chose it (`Record`). A record may
also say that the original is best; then there is no file.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Literal

import msgspec

from pytrace.errors import ModelFileError
from pytrace.models.registry import model_files as store
from pytrace.storage.files import flush, real_path, replace_file
from pytrace.storage.foreign_json import read_json
from pytrace.storage.locks import locked

RECORD = "record.json"

State = Literal["in use", "original kept", "outdated", "missing", "wrong size", "wrong hash", "damaged record"]
# An outdated choice is of a source that has changed: it is not used, and no harm.
HARMLESS = ("in use", "original kept", "outdated")


class Original(msgspec.Struct, frozen=True):
    """A language model's own file, the directory for what it is rewritten into, and its hash where that is known."""

    path: Path
    folder: Path
    sha256: str | None = None


class Source(msgspec.Struct, frozen=True):
    """The file that was rewritten, as it was then."""

    path: str
    size: int
    modified_ns: int
    sha256: str


class Figures(msgspec.Struct, frozen=True):
    """What was measured of one format; None stands for what was not.

    Speeds are tokens a second, generation by the number of sequences at once; `seconds` is the time of the work that
    formats are compared by. `correct` of `steps` labelled choices were right, `agreement` is the share of choices equal
    to the reference's.
    """

    format: str
    size: int | None = None
    prompt: float | None = None
    generation: dict[int, float] = {}
    seconds: float | None = None
    correct: int | None = None
    steps: int | None = None
    agreement: float | None = None
    verdict: str = ""


class Record(msgspec.Struct, frozen=True):
    """A choice of weight format: of which source, made where and when, and why. No `file`: the original was best."""

    source: Source
    format: str
    reason: str
    figures: tuple[Figures, ...]
    reference: str
    scoring: str
    processor: str
    threads: int
    llama_cpp: str
    libraries: str
    date: str
    file: str | None = None
    size: int | None = None
    sha256: str | None = None


class RewrittenStatus(msgspec.Struct, frozen=True):
    """A choice of weight format as it is now: ``in use``, or why it is not."""

    source: str
    format: str
    state: State
    path: str | None
    size: int | None = None
    sha256: str | None = None
    record: Record | None = None


def folder_of_file(home: Path, path: Path) -> Path:
    """Return the directory for a file of the user's own: its name, and a hash of where it lies."""
    resolved = real_path(path)
    # Two files of one name in two folders are two models.
    return home / "rewritten" / f"{resolved.stem}-{hashlib.sha256(bytes(resolved)).hexdigest()[:12]}"


def read(folder: Path) -> Record | None:
    """Return a directory's record, or None if nothing was chosen there."""
    path = folder / RECORD
    try:
        return read_json(path, Record)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise ModelFileError(
            f"the record of a rewritten model {path} cannot be read ({error}); run 'pytrace models fastest' for that model "
            "again, with --undo to go back to the original"
        ) from error


def read_or_none(folder: Path) -> Record | None:
    """Return a directory's record; None also if it cannot be read, where it is about to be replaced."""
    try:
        return read(folder)
    except ModelFileError:
        return None


def status(original: Original, *, hashed: bool = False) -> RewrittenStatus | None:
    """Say whether the choice made for a file stands for it as it is now, and whether the chosen file is whole."""
    folder = original.folder
    try:
        record = read(folder)
    except ModelFileError:
        return RewrittenStatus(str(original.path), "?", "damaged record", str(folder / RECORD))
    if record is None:
        return None
    path = None if record.file is None else str(folder / record.file)
    state = _state(original, record, hashed=hashed)
    return RewrittenStatus(str(original.path), record.format, state, path, record.size, record.sha256, record)


def _state(original: Original, record: Record, *, hashed: bool) -> State:
    then = record.source
    # A pinned hash says more than size and time, and costs no reading; a user's own file has none, and may be gigabytes.
    same = original.sha256 == then.sha256
    if original.sha256 is None:
        try:
            now = original.path.stat()
            same = (now.st_size, now.st_mtime_ns) == (then.size, then.modified_ns)
        except OSError:
            same = False
    if not same:
        return "outdated"
    if record.file is None:
        return "original kept"
    path = original.folder / record.file
    try:
        if path.stat().st_size != record.size:
            return "wrong size"
        return "wrong hash" if hashed and store.sha256_of(path) != record.sha256 else "in use"
    except OSError:
        return "missing"


def instead_of(original: Original) -> Path:
    """Return the rewritten file if one is in use for a file, else that file."""
    read(original.folder)  # raises where the record is damaged
    choice = status(original)
    if choice is None or choice.path is None or choice.state == "outdated":
        return original.path
    if choice.state != "in use":
        what = "is not there" if choice.state == "missing" else "has the wrong size"
        raise ModelFileError(
            f"the rewritten model {choice.path} {what}; run 'pytrace models fastest' for that model again, with --undo to go "
            "back to the original"
        )
    return Path(choice.path)


def keep(folder: Path, record: Record, file: Path | None) -> None:
    """Put a choice in place: first the file under a name of its own, then the record that names it, then the rest goes."""
    # A kill in between leaves the earlier choice in force, or the new one.
    if file is not None and record.file is not None:
        flush(file)
        file.replace(folder / record.file)
        flush(folder)
    replace_file(folder / RECORD, msgspec.json.format(msgspec.json.encode(record)))
    sweep(folder, record)


def sweep(folder: Path, record: Record | None) -> None:
    """Remove what a killed rewriting left, and what no record names; call it under the directory's lock."""
    for path in folder.glob("*.gguf"):  # hidden ones too: candidates
        if record is None or path.name != record.file:
            path.unlink()


def undo(folder: Path) -> bool:
    """Forget a choice and remove its file; return whether there was one."""
    if not (folder / RECORD).exists():
        return False
    with locked(folder / ".lock", lambda: None):
        # First: a record without its file is an error, a file without one is not.
        (folder / RECORD).unlink(missing_ok=True)
        sweep(folder, None)
    return True
