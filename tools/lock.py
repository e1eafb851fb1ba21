"""Resolve what pyproject.toml asks for into uv.lock, and write of it the files that pip installs from, for `make lock`.

`python tools/lock.py [all | NAME...]` keeps the versions that uv.lock has, as far as pyproject.toml still allows them, and takes the
newest of the packages that are named, or of all. Each file in lock/ has versions, markers and hashes for
`pip install --require-hashes --no-deps`; it needs uv, of the group `release`.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

import locked

FOLDER = locked.ROOT / "lock"

# A file, what of pyproject.toml it is for, and the file installed before it, whose entries it does not repeat.
FILES = {
    "build.txt": (("--only-group", "native"), None),
    "demo.txt": (("--extra", "cpu", "--extra", "docs"), None),
    "test.txt": (("--extra", "cpu", "--extra", "docs", "--group", "test"), "demo.txt"),
    "dev.txt": (("--only-group", "dev"), None),
    "release.txt": (("--only-group", "release"), None),
}
# torch has two files, of which one is installed. PyPI's is built for CUDA and cannot be imported without NVIDIA's libraries, 3 GB;
# PyTorch's own index has one for CPUs, which needs none of them. pip would take PyPI's wherever it is allowed to, since a folder of
# wheels states no hashes beforehand.
CPU_FILE, CUDA_FILE = "torch-cpu.txt", "torch-cuda.txt"
CUDA = re.compile(r"(cuda|nvidia)-(?!cuda-(cuobjdump|nvdisasm)$)|(torch|triton)$")
# SHA-256 of files that are not on PyPI, by package and version.
ELSEWHERE = {
    # torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl of https://download.pytorch.org/whl/cpu
    ("torch", "2.13.0+cpu"): ["6746dbcbeb526eb61330b76b41ff1b4eb848951103a892eeb080dfa2b264667b"],
}
# The lowest versions that pyproject.toml allows of what it names, on the oldest Python, for `make test-lowest`: of the extras that need
# no torch, and beside them what the tests themselves use, as uv.lock has it.
LOWEST_FILE = "lowest.txt"
LOWEST_EXTRAS = ("cpu", "docs", "eval", "index", "remote", "serve", "static")
LOWEST_TOOLS = (
    "faiss-cpu",
    "gguf",
    "hypothesis",
    "onnx",
    "pytest",
    "pytest-timeout",
    "pytest-xdist",
    "rapidfuzz",
    "reportlab",
)
# Of the wheels that uv.lock names, those for the Pythons and processors that it is resolved for (tool.uv.environments), with glibc.
ABIS = {"none", "abi3", "cp311", "cp312", "cp313", "cp314"}
ENTRY = re.compile(r"^(?P<name>[a-z0-9][a-z0-9.-]*)==(?P<version>\S+)(?: ; (?P<marker>.+))?$")
HEADER = "# Written by `make lock` of uv.lock, for `pip install --require-hashes --no-deps --requirement`: {what}.\n"


def main(upgrade: list[str]) -> int:
    """Resolve, then write the files."""
    options = (
        ["--upgrade"] if upgrade == ["all"] else [word for name in upgrade for word in ("--upgrade-package", name)]
    )
    uv("lock", *options)
    packages = locked.read()
    hashes = usable_hashes(packages)
    entries = {file: exported(*options) for file, (options, _) in FILES.items()}
    texts = {}
    for file, (options, before) in FILES.items():
        rest = [entry for entry in entries[file] if before is None or entry not in entries[before]]
        cuda = [entry for entry in rest if CUDA.match(entry[0])]
        texts[file] = written(" ".join(options), [entry for entry in rest if entry not in cuda], hashes)
        if cuda:
            (version,) = {version for name, version, _ in cuda if name == "torch"}
            texts[CPU_FILE] = written("torch for CPUs", [("torch", f"{version}+cpu", "")], ELSEWHERE)
            texts[CUDA_FILE] = written("PyPI's torch, for CUDA", cuda, hashes)
    texts[LOWEST_FILE] = lowest(
        {package["name"]: package["version"] for package in packages if package["name"] in LOWEST_TOOLS}
    )
    for file, text in texts.items():
        (FOLDER / file).write_text(text, encoding="utf-8")
        print(f"lock/{file}: {text.count('==')} packages")
    return 0


def uv(*arguments: str) -> str:
    """Run uv of this environment for the project."""
    command = [str(Path(sys.executable).with_name("uv")), *arguments, "--python", sys.executable]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, cwd=locked.ROOT).stdout


def exported(*options: str) -> list[tuple[str, str, str]]:
    """Return name, version and marker of each package that some extras and groups need, and all that those need."""
    text = uv(
        "export", "--frozen", "--quiet", "--no-emit-project", "--no-hashes", "--no-annotate", "--no-header", *options
    )
    matches = [ENTRY.match(line) for line in text.splitlines()]
    return [(match["name"], match["version"], simpler(match["marker"] or "")) for match in matches if match is not None]


def simpler(marker: str) -> str:
    """Leave out of a marker what holds wherever the lock is meant for; elsewhere pip says that no hash is right."""
    marker = re.sub(
        r"(^| and )python_full_version < '3\.15'( and )?", lambda match: match[1] if match[2] else "", marker
    )
    whole = "((platform_machine == 'aarch64' and sys_platform == 'linux') or (platform_machine == 'x86_64' and sys_platform == 'linux'))"
    return "" if marker in {whole, whole[1:-1]} else marker


def lowest(tools: dict[str, str]) -> str:
    """Resolve the lowest versions of direct dependencies; of what those need, the newest that go with them."""
    with tempfile.TemporaryDirectory() as folder:
        beside, output = Path(folder) / "tools.in", Path(folder) / "pylock.toml"
        beside.write_text("".join(f"{name}=={version}\n" for name, version in tools.items()), encoding="utf-8")
        extras = [word for extra in LOWEST_EXTRAS for word in ("--extra", extra)]
        # Without wheels for this Python a version cannot be had by most people, whatever pyproject.toml allows.
        built = [word for name in ("hnswlib", "llama-cpp-python") for word in ("--no-binary", name)]
        uv(
            "pip", "compile", "pyproject.toml", str(beside), *extras, "--resolution", "lowest-direct", "--python-version", "3.11",
            "--python-platform", "x86_64-manylinux_2_28", "--only-binary", ":all:", *built, "--quiet", "--output-file", str(output),
        )  # fmt: skip
        packages = tomllib.loads(output.read_text(encoding="utf-8"))["packages"]
    entries = [(package["name"], package["version"], "") for package in packages]
    return written("the lowest versions that pyproject.toml allows, on Python 3.11", entries, usable_hashes(packages))


def usable_hashes(packages: list[locked.Package]) -> dict[tuple[str, str], list[str]]:
    """Return the SHA-256 of each package's source and of its wheels that the lock's Pythons and processors can take."""
    found: dict[tuple[str, str], list[str]] = {}
    for package in packages:
        files = [package["sdist"]] if "sdist" in package else []
        files += [wheel for wheel in package.get("wheels", []) if usable(wheel["url"])]
        found[package["name"], package["version"]] = sorted(sha256(file) for file in files)
    return found


def sha256(file: dict[str, Any]) -> str:
    """Return a file's hash, which uv.lock and pylock.toml state in two ways."""
    return str(file["hashes"]["sha256"] if "hashes" in file else file["hash"].removeprefix("sha256:"))


def usable(url: str) -> bool:
    """Whether a wheel is for one of the lock's Pythons and processors."""
    _, abi, platform = url.removesuffix(".whl").rsplit("-", 2)
    return abi in ABIS and (platform == "any" or "manylinux" in platform)


def written(what: str, entries: list[tuple[str, str, str]], hashes: dict[tuple[str, str], list[str]]) -> str:
    """Word entries with their hashes as pip reads them."""
    lines = [HEADER.format(what=what)]
    for name, version, marker in entries:
        head = f"{name}=={version}" + (f" ; {marker}" if marker else "")
        lines.append(" \\\n    ".join([head, *(f"--hash=sha256:{each}" for each in hashes[name, version])]) + "\n")
    return "".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
