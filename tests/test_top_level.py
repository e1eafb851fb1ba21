"""Every file and folder at the top of the repository is one that a rule knows."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

KNOWN = {
    ".ci": "what CI runs",
    ".clang-format": "style of the C++ sources",
    ".gitignore": "what git leaves alone",
    "CHANGELOG.md": "changes by version",
    "CMakeLists.txt": "build of the core",
    "CONTRIBUTING.md": "map of the code",
    "LICENSE": "license",
    "Makefile": "commands",
    "README.md": "first page",
    "SECURITY.md": "security policy",
    "benches": "measurements",
    "bindings": "Python bindings of the core",
    "cmake": "build rules",
    "csrc": "the core",
    "deploy": "examples of deployment",
    "docs": "documentation",
    "examples": "demo and examples",
    "fuzz": "fuzzers of the core",
    "lock": "locked requirements",
    "packaging": "wheels",
    "pyproject.toml": "Python project",
    "pytrace": "the product",
    "tests": "tests",
    "tools": "scripts for maintainers",
    "uv.lock": "locked versions",
}


def tracked() -> list[str]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout, so that nothing says which files belong to the project")
    return [path for path in listed.stdout.split("\0") if path]


def test_no_unknown_file_is_at_the_top() -> None:
    unknown = {path.partition("/")[0] for path in tracked()} - KNOWN.keys()
    assert not unknown, f"{sorted(unknown)} at the top belong nowhere; move them, or name them here with their purpose"


def test_no_tracked_file_is_empty_but_markers_of_packages() -> None:
    empty = [path for path in tracked() if (ROOT / path).is_file() and not (ROOT / path).stat().st_size]
    assert all(Path(path).name in ("__init__.py", "py.typed") for path in empty), empty
