"""Named models on this machine: which there are, where they lie, how they get here, and whether they are intact.

A model is a directory below ``PYTRACE_HOME/models``, in which only finished, checked files bear their names (`store`).
So `resolve` need not hash gigabytes and never touches the network. Several processes may pull at once: each model has a
lock, and whoever comes second finds the work done.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from pytrace.errors import DownloadError, InputError, ModelFileError
from pytrace.models.registry import downloads as sources
from pytrace.models.registry import model_files as store
from pytrace.models.registry import rewritten
from pytrace.models.registry.downloads import PullProgress
from pytrace.models.registry.known_models import BUILT_IN, Catalog, Model, Role, load
from pytrace.storage.files import real_path, replace_file
from pytrace.storage.foreign_json import read_json
from pytrace.storage.locks import locked

T = TypeVar("T")

_HASHES = "hashes.json"
# Smaller files are hashed, in a millisecond, whenever they are loaded.
_SMALL = 1 << 20
# Files that a message names.
_NAMED = 4


class ModelStatus(msgspec.Struct, frozen=True):
    """A named model on this machine; `state` is ``pulled`` only if every file is there in its full size.

    `rewritten` is the choice of a weight format that was made for it, if one was.
    """

    name: str
    role: Role
    description: str
    license: str
    profiles: tuple[str, ...]
    state: Literal["pulled", "partial", "missing", "damaged"]
    pinned: bool
    size: int | None
    directory: str
    files: tuple[store.FileStatus, ...]
    rewritten: rewritten.RewrittenStatus | None = None


def home() -> Path:
    """Return the directory that holds pytrace's models: ``PYTRACE_HOME``, or ``pytrace`` in the user's cache directory."""
    chosen = os.environ.get("PYTRACE_HOME")
    try:
        if chosen:
            return Path(chosen).expanduser().absolute()
        cache = os.environ.get("XDG_CACHE_HOME", "")
        # The XDG specification: a relative path is invalid and must be ignored.
        return (Path(cache) if cache.startswith("/") else Path.home() / ".cache") / "pytrace"
    except RuntimeError as error:
        raise InputError("the user has no home directory; set PYTRACE_HOME to a directory for models") from error


def prompt_cache() -> Path:
    """Return the directory that keeps what prompts begin with, evaluated (`pytrace.models.llama.prompt_cache`)."""
    return home() / "prompts"


def remembered(file: str, key: str, kind: type[dict[str, T]], make: Callable[[], T]) -> T:
    """Return what a JSON file in `home` has for a key; what it lacks, or a damaged file had, is made anew and kept there."""
    if key in (known := _known(file, kind)):
        return known[key]
    with contextlib.ExitStack() as stack:
        # A home that cannot be written to costs the making in every process, and nothing else.
        with contextlib.suppress(OSError):
            home().mkdir(parents=True, exist_ok=True)
            stack.enter_context(locked(home() / f".{file}.lock", lambda: None))
        known = _known(file, kind)  # whoever waited finds it made
        if key not in known:
            known[key] = make()
            with contextlib.suppress(OSError):
                _keep(file, known)
        return known[key]


def recall(file: str, key: str, kind: type[dict[str, T]]) -> T | None:
    """Return what a JSON file in `home` has for a key, or None."""
    return _known(file, kind).get(key)


def _known(file: str, kind: type[dict[str, T]]) -> dict[str, T]:
    try:
        return read_json(home() / file, kind)
    except (OSError, ValueError):
        return {}


def _keep(file: str, known: dict[str, T]) -> None:
    path = home() / file
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, msgspec.json.format(msgspec.json.encode(known)))


def catalog() -> Catalog:
    """Return the models and profiles that can be asked for by name: the built-in ones and the user's own."""
    return load(home())


def directory(model: Model) -> Path:
    """Return the directory of a model, whether or not it was pulled."""
    return home() / "models" / model.name


def select(names: tuple[str, ...] | list[str]) -> tuple[Model, ...]:
    """Return the models that names of models and profiles stand for, each once, in order."""
    known = catalog()
    chosen: dict[str, Model] = {}
    for name in names:
        profile = known.profile(name)
        for member in (name,) if profile is None else profile.models:
            model = known.model(member)
            if model is None:
                raise ModelFileError(
                    f"there is no model or profile named {name!r}; the names are {', '.join(known.names)}"
                )
            chosen[model.name] = model
    return tuple(chosen.values())


def status(model: Model, *, hashed: bool = False, known: Catalog | None = None) -> ModelStatus:
    """Look at a model's files: at their sizes, and with `hashed` at every byte."""
    folder = directory(model)
    files = store.inspect(model, folder, hashed=hashed)
    for file in files:
        if file.state == "wrong hash":
            # What was found right before, and is of the same size and time, is not right.
            with contextlib.suppress(OSError):
                _keep(_HASHES, {**_known(_HASHES, dict[str, str]), _hash_key(folder / file.path): ""})
    states = {file.state for file in files}
    if states <= {"ok", "present"}:
        state: Literal["pulled", "partial", "missing", "damaged"] = "pulled"
    elif states & {"wrong size", "wrong hash"}:
        state = "damaged"
    else:
        state = "missing" if states == {"missing"} else "partial"
    sizes = [file.size for file in files]
    # A size is the model's only where that of every file is known: in the catalog, or from the first pull.
    return ModelStatus(
        name=model.name,
        role=model.role,
        description=model.description,
        license=model.license,
        profiles=tuple(item.name for item in (known or catalog()).profiles if model.name in item.models),
        state=state,
        pinned=model.pinned,
        size=None if None in sizes else sum(size for size in sizes if size is not None),
        directory=str(folder),
        files=files,
        rewritten=rewritten.status(_original(model, files), hashed=hashed) if model.role == "language-model" else None,
    )


def rewritten_files(*, hashed: bool = False) -> tuple[rewritten.RewrittenStatus, ...]:
    """Return the choices of a weight format for files that are not known by name."""
    choices = []
    for path in sorted((home() / "rewritten").glob(f"*/{rewritten.RECORD}")):
        record = rewritten.read_or_none(path.parent)
        source = path.parent if record is None else Path(record.source.path)
        item = rewritten.status(rewritten.Original(source, path.parent), hashed=hashed)
        choices += [] if item is None else [item]
    return tuple(choices)


def _original(model: Model, files: tuple[store.FileStatus, ...]) -> rewritten.Original:
    folder = directory(model)
    return rewritten.Original(folder / files[0].path, folder / ".rewritten", files[0].sha256)


def resolve(name_or_path: str | os.PathLike[str], role: Role) -> Path:
    """Return what to load for a name or a path; never touches the network."""
    name = os.fspath(name_or_path)
    if role != "language-model":
        model = _named(name, role)
        if model is not None:
            _require_pulled(model, name)
            return directory(model)
        return _existing(Path(name).expanduser())
    original = resolve_original(name)
    path = rewritten.instead_of(original)
    record = rewritten.read_or_none(original.folder)
    if path != original.path and record is not None and record.sha256 is not None:
        check_content(path, record.sha256, "run 'pytrace models fastest' for that model again")
    return store.check_gguf(path)


def resolve_original(name_or_path: str | os.PathLike[str]) -> rewritten.Original:
    """Return a language model's own file for a name or a path, whether or not another is in use for it."""
    name = os.fspath(name_or_path)
    model = _named(name, "language-model")
    if model is not None:
        original = _original(model, _require_pulled(model, name))
        store.check_gguf(original.path)
        return original
    path = _existing(Path(name).expanduser())
    if path.is_dir():
        inside = sorted(path.glob("*.gguf"))
        if not inside:
            raise ModelFileError(
                f"the folder {str(path)!r} has no GGUF file; name a model's file, or a folder with one"
            )
        if len(inside) > 1:
            names = ", ".join(file.name for file in inside[:_NAMED])
            raise ModelFileError(
                f"the folder {str(path)!r} has {len(inside)} GGUF files ({names}); name the file to use"
            )
        path = inside[0]
    return rewritten.Original(store.check_gguf(path), rewritten.folder_of_file(home(), path))


def folder_of_rewritten(name_or_path: str | os.PathLike[str]) -> Path:
    """Return the directory for what a language model is rewritten into, whether or not the model is still there."""
    name = os.fspath(name_or_path)
    model = _named(name, "language-model")
    path = Path(name).expanduser()
    if model is None and path.is_dir():
        return resolve_original(path).folder
    return rewritten.folder_of_file(home(), path) if model is None else directory(model) / ".rewritten"


def _named(name: str, role: Role) -> Model | None:
    """Return the model that a name stands for in a role, or None if it is no name."""
    known = catalog()
    profile = known.profile(name)
    model = known.model(name)
    if profile is not None:
        member = profile.model(role)
        if member is None:
            raise ModelFileError(
                f"profile {name!r} has no {role.replace('-', ' ')}; {profile.notes or 'name one yourself'}"
            )
        model = known.model(member)
    if model is not None and model.role != role:
        others = ", ".join(item.name for item in known.models if item.role == role)
        raise ModelFileError(
            f"the model {name!r} is for the role {model.role}, not {role}; known ones for that are {others or 'none'}"
        )
    return model


def _require_pulled(model: Model, name: str) -> tuple[store.FileStatus, ...]:
    files = store.inspect(model, directory(model), hashed=False)
    lacking = ", ".join(f"{file.path} is {file.state}" for file in files if file.state != "present")
    if lacking:
        raise ModelFileError(
            f"model {model.name!r} is not here ({lacking}); fetch it with 'pytrace models pull {name}'"
        )
    for file in files:
        if file.sha256 is not None:
            path = directory(model) / file.path
            check_content(path, file.sha256, f"fetch it anew with 'pytrace models pull --repair {name}'")
    return files


def check_content(path: Path, sha256: str, remedy: str) -> None:
    """Refuse a file that has another hash; a large one's is found out once, until its size or time changes."""
    try:
        if path.stat().st_size <= _SMALL:
            right = store.sha256_of(path) == sha256
        elif _hash_key(path) in _known(_HASHES, dict[str, str]) or os.access(home(), os.W_OK):
            # What is remembered may itself be damaged.
            right = _sha256(path) == sha256 or store.sha256_of(path) == sha256
        else:
            return  # it would be found out anew by every process: that is what 'models verify' is for
    except OSError as error:
        raise ModelFileError(
            f"the model file {path} cannot be read ({error.strerror}); correct its permissions"
        ) from error
    if not right:
        raise ModelFileError(f"the model file {path} is damaged: its SHA-256 is not {sha256[:16]}…; {remedy}")


def _existing(path: Path) -> Path:
    if not path.exists():
        raise ModelFileError(
            f"{str(path)!r} is neither a file nor a known model; the names are {', '.join(catalog().names)}"
        )
    return path


def pull(
    name: str, *, progress: PullProgress | None = None, repair: bool = False, timeout: float = sources.TIMEOUT
) -> tuple[ModelStatus, ...]:
    """Bring a model's or a profile's files here, given up if no megabyte comes in `timeout` seconds; what is here is left alone."""
    known = catalog()
    profile = known.profile(name)
    shown = progress or PullProgress()
    models = select([name])
    for model in models:
        try:
            store.pull(model, directory(model), shown, repair=repair, timeout=timeout)
            for file in status(model, known=known).files:  # now, and not when it is first loaded
                if file.sha256 is not None and file.state == "present":
                    _sha256(directory(model) / file.path)
        except OSError as error:
            folder = directory(model)
            full = sources.is_no_room(error)
            trouble = f"there is no room for {model.name!r}" if full else f"{model.name!r} cannot be stored"
            remedy = "free some or set PYTRACE_HOME" if full else "set PYTRACE_HOME to another directory"
            raise DownloadError(f"{trouble} in {folder} ({error.strerror}); {remedy}") from error
    if profile is not None and profile.notes:
        shown.note(profile.notes)
    return tuple(status(model, known=known) for model in models)


def identify(path: str | Path) -> str | None:
    """Return the catalog's name of a GGUF file, told by its content: settings follow a model, not what it was called."""
    path = Path(path)
    try:
        size = path.stat().st_size
        candidates = {sha256: name for name, known, sha256 in _known_hashes() if known == size}
        # Most files differ in size from all that are known, and need not be hashed.
        return candidates.get(_sha256(path)) if candidates else None
    except OSError:
        return None


def content_sha256(path: Path) -> str:
    """Return a file's hash; a large one's is found out once, until its size or time changes."""
    return store.sha256_of(path) if path.stat().st_size <= _SMALL else _sha256(path)


def pinned(sha256: Iterable[str]) -> bool:
    """Return whether the built-in catalog pins every one of some files, told by their hashes."""
    return {file.sha256 for model in BUILT_IN.models for file in model.files}.issuperset(sha256)


def calibration(sha256: Iterable[str]) -> dict[str, tuple[float, float]]:
    """Return the catalog's curves for a model, told by its files' hashes; none for one that it does not know."""
    there = set(sha256)
    for model in catalog().models:
        if model.calibration and model.pinned and there == {file.sha256 for file in model.files}:
            return model.calibration
    return {}


def _known_hashes() -> list[tuple[str, int, str]]:
    """Return name, size and SHA-256 of every pinned language model that is one file, and of what it was rewritten into."""
    known = []
    for model in catalog().models:
        file = model.files[0]
        if model.role != "language-model" or len(model.files) != 1 or file.size is None or file.sha256 is None:
            continue
        known.append((model.name, file.size, file.sha256))
        record = rewritten.read_or_none(directory(model) / ".rewritten")
        if record is not None and record.size is not None and record.sha256 and record.source.sha256 == file.sha256:
            known.append((model.name, record.size, record.sha256))
    return known


def _sha256(path: Path) -> str:
    """Hash a file, or recall its hash: a hundred megabytes take a third of a second, each time that the command starts."""
    return remembered(_HASHES, _hash_key(path), dict[str, str], lambda: store.sha256_of(path))


def _hash_key(path: Path) -> str:
    """Return the key of a file's hash; one that was changed has another size or time, and so another key."""
    resolved = real_path(path)
    now = resolved.stat()
    return f"{hashlib.sha256(bytes(resolved)).hexdigest()[:16]}-{now.st_size}-{now.st_mtime_ns}"
