"""A folder that installs pytrace on a machine without a network: wheels, models, and a script that needs Python alone.

It is for machines like the one that makes it: the same version of Python, the same architecture, a C library that is as new.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import file_digest
from importlib import resources
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

import msgspec

from pytrace.errors import InputError, MissingDependencyError, PytraceError
from pytrace.models import registry
from pytrace.models.registry.known_models import Model
from pytrace.storage.files import flush, real_path

DISTRIBUTION = "pytrace-rag"
SMALL_MODEL = "pytrace-edge"
EXTRAS = ("cpu", "docs", "serve")
MODELS = ("tiny",)
# llama.cpp for other machines than this: AVX2 is taken for granted, as in deploy/Containerfile. With threads of its own, since OpenMP's
# library is not everywhere (Debian: libgomp1).
_PORTABLE = "-DLLAVA_BUILD=OFF -DGGML_NATIVE=OFF -DGGML_OPENMP=OFF"
_COMPILED = "llama-cpp-python"
# In a checkout: llama.cpp without its tools and server, in a third of the time.
_ALONE = Path(__file__).resolve().parents[2] / "cmake" / "llama.cmake"


class Bundle(msgspec.Struct, frozen=True):
    """What a bundle holds: ``bundle.json`` in it; sizes are bytes, `wheels` and `models` have one by name."""

    pytrace: str
    requirement: str
    python: str
    machine: str
    libc: str
    wheels: dict[str, int]
    models: dict[str, int]
    size: int


def make_bundle(
    out: Path,
    *,
    extras: Sequence[str] = EXTRAS,
    models: Sequence[str] = MODELS,
    source: str | None = None,
    native: bool = False,
    find_links: Path | None = None,
    on_stage: Callable[[str], None] = lambda _: None,
) -> Bundle:
    """Make a bundle in a folder, whole or not at all.

    Parameters
    ----------
    out
        A folder that is not there yet, or is empty.
    extras
        Of pytrace's own, such as ``cpu``.
    models
        Models and profiles by name; those that are not here are pulled.
    source
        What pip shall install: a wheel, a checkout, or a requirement; what this pytrace was installed from if not given.
    native
        Whether llama.cpp may be compiled for this processor alone.
    find_links
        A folder of wheels that are taken instead of asking a package index.
    on_stage
        Is told what is done next.

    Returns
    -------
    Bundle
        What it holds.

    Raises
    ------
    InputError
        `out` holds something, there is no such extra or model, or `source` is no pytrace.
    MissingDependencyError
        This Python has no pip, or pytrace is not installed in it.
    PytraceError
        pip cannot get or compile a package.
    """
    provided = requirements()
    if unknown := [extra for extra in extras if extra not in provided]:
        raise InputError(f"{DISTRIBUTION} has no extra {unknown[0]!r}; choose of {', '.join(provided)}")
    chosen = registry.select(list(models)) if models else ()
    with _staged(out) as stage:
        home = _made(stage / "home")
        for model in chosen:
            on_stage(f"model {model.name}")
            registry.pull(model.name)
            _copy_model(model, home)
        if (own := registry.home() / "catalog.json").exists():
            shutil.copy(own, home / own.name)
        on_stage("wheels")
        _collect_wheels(_made(stage / "wheels"), extras, source or _installed_from(), native, find_links)
        wheel = next((stage / "wheels").glob(f"{DISTRIBUTION.replace('-', '_')}-*.whl"), None)
        if wheel is None:
            raise InputError(f"{source} is not {DISTRIBUTION}, of which a wheel is due")
        for name in ("install.sh", "example"):
            with resources.as_file(resources.files(__package__) / name) as path:
                (shutil.copytree if path.is_dir() else shutil.copy)(path, stage / name)
        bundle = Bundle(
            pytrace=wheel.name.split("-")[1],
            requirement=f"{DISTRIBUTION}[{','.join(extras)}]" if extras else DISTRIBUTION,
            python=f"{sys.version_info.major}.{sys.version_info.minor}",
            machine=platform.machine(),
            libc=" ".join(platform.libc_ver()).strip(),
            wheels={path.name: path.stat().st_size for path in sorted((stage / "wheels").iterdir())},
            models={model.name: _size(home / "models" / model.name) for model in chosen},
            size=_size(stage),
        )
        (stage / "bundle.json").write_bytes(msgspec.json.format(msgspec.json.encode(bundle), indent=1) + b"\n")
        # Only the default models answer where none is named.
        asks = "cpu" in extras and {model.name for model in registry.select(list(MODELS))} <= bundle.models.keys()
        # What the script reads without any JSON, and then what is checked before anything of it is used.
        (stage / "bundle.env").write_text(
            f"BUNDLE_REQUIREMENT='{bundle.requirement}'\nBUNDLE_VERSION='{bundle.pytrace}'\nBUNDLE_PYTHON='{bundle.python}'\n"
            f"BUNDLE_MACHINE='{bundle.machine}'\nBUNDLE_LIBC='{bundle.libc}'\nBUNDLE_ASKS='{'yes' if asks else 'no'}'\n",
            "utf-8",
        )
        on_stage("checksums")
        _write_checksums(stage)
    return bundle


@contextmanager
def _staged(out: Path) -> Iterator[Path]:
    """Yield a folder beside `out` that takes its place once all is in it."""
    out = real_path(out)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{out} is there already; name a folder that is not, or is empty")
    out.parent.mkdir(parents=True, exist_ok=True)
    stage = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    try:
        yield stage
        stage.chmod(0o755)  # mkdtemp makes it for its owner alone
        for path in stage.rglob("*"):
            if path.is_file():
                flush(path)
        if out.exists():
            out.rmdir()
        stage.rename(out)
        flush(out.parent)
    except BaseException:
        shutil.rmtree(stage, ignore_errors=True)
        raise


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _copy_model(model: Model, home: Path) -> None:
    """Copy a model as it is pinned, not as it was rewritten for this processor."""
    status = registry.status(model, hashed=True)
    if bad := [file.path for file in status.files if file.state != "ok"]:
        raise InputError(f"{model.name}/{bad[0]} is damaged; run 'pytrace models pull --repair {model.name}'")
    for file in status.files:
        target = home / "models" / model.name / file.path
        _made(target.parent)
        shutil.copy(Path(status.directory) / file.path, target)


def _installed_from() -> str:
    """Return what pip knows this pytrace by: a checkout or wheel on this machine, or a release."""
    url = importlib.metadata.distribution(DISTRIBUTION).read_text("direct_url.json")
    if url:
        address = urlsplit(msgspec.json.decode(url)["url"])
        path = Path(url2pathname(address.path))
        if address.scheme == "file" and path.exists():
            return str(path)
    return f"{DISTRIBUTION}=={importlib.metadata.version(DISTRIBUTION)}"


def _collect_wheels(folder: Path, extras: Sequence[str], source: str, native: bool, find_links: Path | None) -> None:
    given = ["--no-index", "--find-links", str(real_path(find_links))] if find_links else []
    asked = (each for extra in extras for each in requirements()[extra])
    pinned = next((each for each in asked if each.startswith(_COMPILED)), None)
    if pinned is not None and not given:
        # Apart from the rest, since pip keeps what it compiled, for this processor perhaps.
        flags = f"{'-DLLAVA_BUILD=OFF' if native else _PORTABLE} {os.environ.get('CMAKE_ARGS', '')}".strip()
        if _ALONE.exists():
            flags += f" -DCMAKE_PROJECT_llama_cpp_INCLUDE={_ALONE}"
        arguments = [] if native else ["--no-cache-dir"]
        _pip("wheel", *arguments, "--no-deps", "--wheel-dir", str(folder), pinned, CMAKE_ARGS=flags)
        given = ["--find-links", str(folder)]
    path = real_path(Path(source))
    marks = f"[{','.join(extras)}]" if extras else ""
    own = f"{path}{marks}" if path.exists() else re.sub(r"^[\w.-]+", rf"\g<0>{marks}", source, count=1)
    settings = ["--config-settings=cmake.define.PYTRACE_CUDA=off"] if path.is_dir() else []
    _pip("wheel", *given, *settings, "--wheel-dir", str(folder), own, *_small_model(path), "pip")


def _small_model(checkout: Path) -> list[str]:
    """Return what pip knows the small model by: its folder in a checkout, or its release; nothing if it is not installed."""
    folder = checkout / "packaging" / "edge"
    if folder.is_dir():
        return [str(folder)]
    try:
        return [f"{SMALL_MODEL}=={importlib.metadata.version(SMALL_MODEL)}"]
    except importlib.metadata.PackageNotFoundError:
        return []


def requirements() -> dict[str, list[str]]:
    """Return what each extra asks for, without markers, as this distribution's own metadata has it.

    Raises
    ------
    MissingDependencyError
        pytrace runs from a folder, and is not installed.
    """
    try:
        stated = importlib.metadata.requires(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        raise MissingDependencyError(
            f"{DISTRIBUTION} runs from a folder and is not installed, so that its requirements are not known; install it with pip"
        ) from None
    extras: dict[str, list[str]] = {}
    for requirement in stated:
        text, _, marker = requirement.partition(";")
        if match := re.search(r"""extra == ["']([\w-]+)["']""", marker):
            extras.setdefault(match[1], []).append(text.strip())
    return extras


def _pip(*arguments: str, **environment: str) -> None:
    """Run pip, whose words go to stderr."""
    if subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True, check=False).returncode:
        raise MissingDependencyError(
            f"{sys.executable} has no pip, which collects the wheels; install it with '{sys.executable} -m ensurepip'"
        )
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, stdout=sys.stderr, env={**os.environ, **environment}, check=False)
    if done.returncode:
        raise PytraceError(f"pip could not collect the wheels (exit status {done.returncode}, its words are above)")


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _write_checksums(stage: Path) -> None:
    """Write ``SHA256SUMS`` as coreutils' sha256sum reads it."""
    lines = []
    for path in sorted(path for path in stage.rglob("*") if path.is_file()):
        with path.open("rb") as stream:
            lines.append(f"{file_digest(stream, 'sha256').hexdigest()}  {path.relative_to(stage).as_posix()}\n")
    (stage / "SHA256SUMS").write_text("".join(lines), "utf-8")
