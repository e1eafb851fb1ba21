"""What uv.lock says: which packages an extra or a group of pyproject.toml brings, in which versions."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
OURS = "pytrace-rag"

_TERM = re.compile(r"[a-z_]+ (?:==|!=|<=|>=|<|>|in|not in) '[^']*'")
_CHOICE = re.compile(r"extra (==|!=) '(extra|group)-\d+-pytrace-rag-([a-z0-9-]+)'")

Package = dict[str, Any]


def project() -> dict[str, Any]:
    """Return pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def version() -> str:
    """Return pytrace's version, from its one place."""
    text = (ROOT / "pytrace" / "__init__.py").read_text(encoding="utf-8")
    return re.findall(r'^__version__ = "(.+)"$', text, re.MULTILINE)[0]


def read() -> list[Package]:
    """Return the packages of uv.lock; it leaves out the version of pytrace itself."""
    packages = tomllib.loads((ROOT / "uv.lock").read_text(encoding="utf-8"))["package"]
    return [{"version": version(), **package} if package["name"] == OURS else package for package in packages]


def needed(
    packages: list[Package], *, extras: Collection[str] = (), groups: Collection[str] = (), base: bool = True
) -> list[Package]:
    """Return what some extras and groups bring, on any of the lock's Pythons and processors; `base`: what pytrace itself needs."""
    ours = next(package for package in packages if package["name"] == OURS)
    waiting = list(ours["dependencies"]) if base else []
    for name in extras:
        waiting += ours["optional-dependencies"][name]
    for name in groups:
        waiting += ours["dev-dependencies"][name]
    found: dict[tuple[str, str], Package] = {}
    seen: set[tuple[str, str, str]] = set()
    while waiting:
        dependency = waiting.pop()
        if dependency["name"] == OURS or not holds(dependency.get("marker", ""), extras, groups):
            continue
        package = of(packages, dependency)
        found[package["name"], package["version"]] = package
        for extra in ("", *dependency.get("extra", ())):
            key = (package["name"], package["version"], extra)
            if key not in seen:
                seen.add(key)
                waiting += package.get("optional-dependencies", {})[extra] if extra else package.get("dependencies", [])
    return [found[key] for key in sorted(found)]


def of(packages: list[Package], dependency: dict[str, Any]) -> Package:
    """Return the package that a dependency names; it has a version where there are several."""
    (package,) = (
        package
        for package in packages
        if package["name"] == dependency["name"] and dependency.get("version") in {None, package["version"]}
    )
    return package


def holds(marker: str, extras: Collection[str], groups: Collection[str]) -> bool:
    """Whether a marker holds for some extras and groups, on any Python and processor."""
    if not marker:
        return True

    def chosen(match: re.Match[str]) -> str:
        return str((match[3] in (extras if match[2] == "extra" else groups)) == (match[1] == "=="))

    plain = _TERM.sub("True", _CHOICE.sub(chosen, marker))
    if not re.fullmatch(r"(True|False|and|or|[() ])+", plain):
        raise ValueError(f"uv.lock has a marker of another form: {marker}")
    return bool(eval(plain))  # of these six words alone
