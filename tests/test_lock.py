"""What pip installs from is what pyproject.toml asks for, and nothing without a hash."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PACKAGES = tomllib.loads((ROOT / "uv.lock").read_text(encoding="utf-8"))["package"]
LOCK = [package for package in PACKAGES if package["name"] != "pytrace-rag"]
FILES = sorted(path for path in (ROOT / "lock").glob("*.txt") if path.stem != "lowest")


def asked_for() -> dict[str, list[str]]:
    groups = PROJECT["dependency-groups"]
    whole = {
        name: [
            each for entry in group for each in (groups[entry["include-group"]] if isinstance(entry, dict) else [entry])
        ]
        for name, group in groups.items()
    }
    return {"": PROJECT["project"]["dependencies"], **PROJECT["project"]["optional-dependencies"], **whole}


def entries(path: Path) -> dict[str, str]:
    """Return the version of each package of a file, once it is clear that each has hashes and nothing else stands there."""
    text = path.read_text(encoding="utf-8").replace("\\\n", " ")
    found = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            entry = re.fullmatch(r"([a-z0-9-]+)==(\S+)( ; [^#]+?)?(\s+--hash=sha256:[0-9a-f]{64})+", line)
            assert entry, f"{path.name}: {line[:80]}"
            assert entry[1] not in found
            found[entry[1]] = entry[2]
    assert found
    return found


def unmet(requirements: list[str], versions: dict[str, set[str]]) -> list[str]:
    """Return the requirements that no version of the lock satisfies."""
    parsed = [Requirement(text) for text in requirements]
    return [
        str(each)
        for each in parsed
        if canonicalize_name(each.name) != "pytrace-rag"
        and not any(each.specifier.contains(version) for version in versions.get(canonicalize_name(each.name), ()))
    ]


@pytest.mark.parametrize("name", sorted(asked_for()))
def test_the_lock_satisfies_every_requirement(name: str) -> None:
    versions: dict[str, set[str]] = {}
    for package in LOCK:
        versions.setdefault(package["name"], set()).add(package["version"])
    assert unmet(asked_for()[name], versions) == [], "run `make lock`"


@pytest.mark.parametrize(
    ("files", "names"),
    [
        (["build"], ["native"]),
        (["demo"], ["", "cpu", "docs"]),
        (["demo", "test", "torch-cpu"], ["test"]),
        (["demo", "test", "torch-cuda"], ["test"]),
        (["dev"], ["dev"]),
        (["release"], ["release"]),
        (["lowest"], ["", "cpu", "docs", "eval", "index", "remote", "serve", "static"]),
    ],
)
def test_what_pip_installs_satisfies_what_it_is_for(files: list[str], names: list[str]) -> None:
    versions: dict[str, set[str]] = {}
    for file in files:
        for name, version in entries(ROOT / "lock" / f"{file}.txt").items():
            versions.setdefault(name, set()).add(version)
    assert unmet([text for name in names for text in asked_for()[name]], versions) == [], "run `make lock`"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_version_that_pip_installs_is_in_the_lock(path: Path) -> None:
    known = {(package["name"], package["version"]) for package in LOCK}
    assert {(name, version.removesuffix("+cpu")) for name, version in entries(path).items()} <= known, "run `make lock`"


def test_the_lowest_versions_are_those_that_are_allowed() -> None:
    lowest = entries(ROOT / "lock" / "lowest.txt")
    for text in PROJECT["project"]["dependencies"]:
        (bound,) = Requirement(text).specifier
        assert bound.operator == ">="
        assert Version(lowest[canonicalize_name(Requirement(text).name)]) == Version(bound.version), "run `make lock`"


def test_the_build_backend_finds_what_it_is_built_with() -> None:
    versions = {name: {version} for name, version in entries(ROOT / "lock" / "build.txt").items()}
    assert unmet(PROJECT["build-system"]["requires"], versions) == []


def test_one_package_has_one_version_in_an_environment() -> None:
    versions: dict[str, set[str]] = {}
    for path in FILES:
        for name, version in entries(path).items():
            versions.setdefault(name, set()).add(version.removesuffix("+cpu"))
    assert {name: found for name, found in versions.items() if len(found) > 1} == {}


def test_nothing_of_nvidias_is_installed_beside_torch_for_cpus() -> None:
    assert list(entries(ROOT / "lock" / "torch-cpu.txt")) == ["torch"]
    names = {name for path in FILES if path.stem != "torch-cuda" for name in entries(path)}
    assert {name for name in names if name.startswith(("nvidia-", "triton"))} == {
        "nvidia-cuda-cuobjdump",
        "nvidia-cuda-nvdisasm",
    }
