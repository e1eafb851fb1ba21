"""List the licences of all that comes with pytrace, and refuse those that do not go with Apache-2.0.

`--look-up` (`make licences`) asks pip for the licence of each version in uv.lock that lock/licences.json has not, and writes that file
and docs/licences.md. Without it (`make lint`, no network) both are compared with uv.lock.
"""

from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import locked

KNOWN = locked.ROOT / "lock" / "licences.json"
PAGE = locked.ROOT / "docs" / "licences.md"
CATALOG = locked.ROOT / "pytrace" / "models" / "registry" / "known_models.json"

# May be passed on beside Apache-2.0 with their notices.
ALLOWED = {
    "0BSD", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "CC0-1.0", "CNRI-Python",
    "HPND", "ISC", "MIT", "MIT-0", "MIT-CMU", "PSF-2.0", "Python-2.0", "Unlicense", "Zlib", "ZPL-2.1",
}  # fmt: skip
# Allowed for the reason that stands here, which docs/licences.md repeats.
REASONED = {
    "MPL-1.1": "covers its own files, which are used unchanged and whose source is on PyPI",
    "MPL-2.0": "covers its own files, which are used unchanged and whose source is on PyPI",
}
# Of single packages, by name: the licence that is otherwise refused, and why these may be used.
EXCEPTIONS = {
    "codespell": ("GPL-2.0-only", "a program of `make lint`; nothing imports it or is made with its code"),
}
NVIDIA = "LicenseRef-NVIDIA-Proprietary"
NVIDIA_REASON = (
    "NVIDIA's terms let anybody use it; pip fetches it from PyPI for whoever takes PyPI's torch or runs the tests, and no file of "
    "pytrace contains it"
)
# Too large to be fetched for their metadata, which says this.
LARGE = {"onnxruntime-gpu": "MIT", "triton": "MIT"}
# What the licence file says where the metadata says nothing or only "BSD".
STATED = {
    "alabaster": "BSD-3-Clause",
    "cmake": "BSD-3-Clause",
    "colorama": "BSD-3-Clause",
    "contourpy": "BSD-3-Clause",
    "cuda-toolkit": NVIDIA,
    "cycler": "BSD-3-Clause",
    "dirtyjson": "MIT OR AFL-2.1",
    "docutils": "BSD-2-Clause",  # and, for the most part, the public domain; its wheel lacks the Emacs mode, which is under the GPL
    "fastuuid": "BSD-3-Clause",
    "hnswlib": "Apache-2.0",
    "jinja2": "BSD-3-Clause",
    "justext": "BSD-2-Clause",
    "kiwisolver": "BSD-3-Clause",
    "matplotlib": "PSF-2.0",  # in its own words, which are the PSF's but for the names
    "mpmath": "BSD-3-Clause",
    "nest-asyncio": "BSD-2-Clause",
    "numba": "BSD-2-Clause",
    "parasail": "BSD-3-Clause",
    "prompt-toolkit": "BSD-3-Clause",
    "protobuf": "BSD-3-Clause",
    "pyahocorasick": "BSD-3-Clause",  # and, of some files, the public domain
    "pyelftools": "Unlicense",  # the public domain, in its own words
    "pypdfium2": "BSD-3-Clause AND Apache-2.0",
    "pytest-repeat": "MPL-2.0",
    "python-dateutil": "BSD-3-Clause AND Apache-2.0",
    "reportlab": "BSD-3-Clause",
    "scikit-network": "BSD-3-Clause",
    "scipy": "BSD-3-Clause",
    "sequence-align": "Apache-2.0",
    "sphinxcontrib-applehelp": "BSD-2-Clause",
    "sphinxcontrib-devhelp": "BSD-2-Clause",
    "sphinxcontrib-htmlhelp": "BSD-2-Clause",
    "sphinxcontrib-jsmath": "BSD-2-Clause",
    "sphinxcontrib-qthelp": "BSD-2-Clause",
    "sphinxcontrib-serializinghtml": "BSD-2-Clause",
    "sympy": "BSD-3-Clause",
}
# How metadata that names no SPDX expression words the common licences.
WORDS = [
    (r"apache.*", "Apache-2.0"),
    (r"(the )?mit( license)?( \(mit\))?", "MIT"),
    (r"isc license.*", "ISC"),
    (r"(the )?bsd.2.clause.*", "BSD-2-Clause"),
    (r"(the )?bsd.3.clause.*", "BSD-3-Clause"),
    (r"psf.*|python software foundation license", "PSF-2.0"),
    (r"mozilla public license 2\.0.*", "MPL-2.0"),
]
Known = Mapping[str, Mapping[str, str]]


def main(arguments: list[str]) -> int:
    """Look up what is missing where that is asked for; then check."""
    packages = locked.read()
    known: Known = json.loads(KNOWN.read_text(encoding="utf-8")) if KNOWN.exists() else {}
    if arguments == ["--look-up"]:
        known = look_up(packages, known)
        KNOWN.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        PAGE.write_text(page(packages, known), encoding="utf-8")
    problems = refused(packages, known)
    if not problems and PAGE.read_text(encoding="utf-8") != page(packages, known):
        problems = ["docs/licences.md is not what uv.lock and the catalog say; run `make licences`"]
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


def look_up(packages: Iterable[locked.Package], known: Known) -> Known:
    """Return the licence of each package and version: what is known, and what pip says of the rest."""
    found: dict[str, dict[str, str]] = {}
    rounds: list[dict[str, str]] = []  # pip takes one version of a package at a time
    installed = {canonical(each.metadata["Name"]): each for each in importlib.metadata.distributions()}
    for package in foreign(packages):
        name, version = package["name"], package["version"]
        stated = LARGE.get(name) or (NVIDIA if name.startswith("nvidia-") else None) or known.get(name, {}).get(version)
        if stated is None and name in installed and installed[name].version.split("+")[0] == version:
            stated = expression(name, installed[name].metadata.json)
        if stated is not None:
            found.setdefault(name, {})[version] = stated
            continue
        batch = next((batch for batch in rounds if name not in batch), None)
        if batch is None:
            rounds.append(batch := {})
        batch[name] = version
    for batch in rounds:
        for metadata in asked(batch):
            name = canonical(metadata["name"])
            found.setdefault(name, {})[metadata["version"]] = expression(name, metadata)
    return found


def asked(versions: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the metadata that pip finds of packages, which it fetches and does not install."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--dry-run",
            "--ignore-installed",
            "--ignore-requires-python",
            "--no-deps",
            "--quiet",
        ]
        wanted = [f"{name}=={version}" for name, version in versions.items()]
        subprocess.run([*command, "--report", str(report), *wanted], check=True)
        return [each["metadata"] for each in json.loads(report.read_text(encoding="utf-8"))["install"]]


def canonical(name: str) -> str:
    """Return a package's name as uv.lock has it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def expression(name: str, metadata: Mapping[str, Any]) -> str:
    """Return a package's licence as an SPDX expression, or in its own words if it is none."""
    if name in STATED:
        return STATED[name]
    if metadata.get("license_expression"):
        return str(metadata["license_expression"])
    classifiers = metadata.get("classifier", [])
    named = [each.rsplit(" :: ", 1)[1] for each in classifiers if each.startswith("License :: OSI Approved :: ")]
    stated = (metadata.get("license") or "none stated").strip().splitlines()[0]  # some have the whole text there
    for text in (stated, *named):
        if re.fullmatch(r"(MPL-2\.0|MIT|Apache-2\.0|BSD-[23]-Clause)( (AND|OR) [A-Z][A-Za-z0-9.-]+)*", text):
            return text
        for pattern, spdx in WORDS:
            if re.fullmatch(pattern, text, re.IGNORECASE):
                return spdx
    return stated


def refused(packages: Iterable[locked.Package], known: Known) -> list[str]:
    """Return what is wrong with the licences, a line a package."""
    lines = []
    for package in foreign(packages):
        name, version = package["name"], package["version"]
        licence = known.get(name, {}).get(version)
        if licence is None:
            lines.append(f"{name} {version}: its licence is not in lock/licences.json; run `make licences`")
        elif not accepted(name, licence):
            lines.append(f"{name} {version}: {licence} is not among the licences that tools/licences.py allows")
    return lines


def accepted(name: str, licence: str) -> bool:
    """Whether a licence is allowed, in itself or as this package's exception."""
    if licence == NVIDIA or (name in EXCEPTIONS and licence == EXCEPTIONS[name][0]):
        return True
    return allowed(licence)


def allowed(licence: str) -> bool:
    """Whether an SPDX expression can be met with allowed licences alone: all that are joined by AND, one of those by OR."""
    inner = re.compile(r"\(([^()]*)\)")
    while match := inner.search(licence):
        licence = licence.replace(match[0], "MIT" if allowed(match[1]) else "refused")
    return any(
        all(part.strip() in ALLOWED | REASONED.keys() for part in choice.split(" AND "))
        for choice in licence.split(" OR ")
    )


def page(packages: list[locked.Package], known: Known) -> str:
    """Return docs/licences.md."""
    project = locked.project()
    everywhere = {"always": locked.needed(packages)}
    for extra in project["project"]["optional-dependencies"]:
        everywhere[f"`{extra}`"] = locked.needed(packages, extras=[extra], base=False)
    users = comes_with(everywhere)
    groups = {f"`{name}`": locked.needed(packages, groups=[name], base=False) for name in project["dependency-groups"]}
    tools = {key: names for key, names in comes_with(groups).items() if key not in users}
    rows = ["| package | version | licence | comes with |", "|---|---|---|---|"]
    models = ["| model | licence | from |", "|---|---|---|"]
    for model in json.loads(CATALOG.read_text(encoding="utf-8"))["models"]:
        source = re.sub(r"#.*", "", model["files"][0]["sources"][0]["uri"])
        models.append(f"| `{model['name']}` | {model['license']} | `{source}` |")
    table = {
        "users": "\n".join(rows + lines(users, known)),
        "tools": "\n".join(rows + lines(tools, known)),
        "models": "\n".join(models),
        "reasons": "\n".join(
            [f"- **{name}** {reason}." for name, reason in REASONED.items()]
            + [f"- **{NVIDIA}**: {NVIDIA_REASON}."]
            + [f"- **{licence}** of {name}: {reason}." for name, (licence, reason) in EXCEPTIONS.items()]
        ),
    }
    return TEXT.format(**table)


def foreign(packages: Iterable[locked.Package]) -> list[locked.Package]:
    """Return the packages that are not pytrace."""
    return [package for package in packages if package["name"] != locked.OURS]


def comes_with(brought: Mapping[str, Iterable[locked.Package]]) -> dict[tuple[str, str], list[str]]:
    """Return for each package and version what brings it; what always comes needs no more."""
    found: dict[tuple[str, str], list[str]] = {}
    for name, packages in brought.items():
        for package in packages:
            names = found.setdefault((package["name"], package["version"]), [])
            if names != ["always"]:
                names.append(name)
    return dict(sorted(found.items()))


def lines(brought: Mapping[tuple[str, str], Iterable[str]], known: Known) -> list[str]:
    """Return the rows of a table of packages."""
    return [
        f"| {name} | {version} | {known[name][version]} | {', '.join(names)} |"
        for (name, version), names in brought.items()
    ]


TEXT = """\
# Licences

pytrace is under the Apache License 2.0. This page lists what comes with it; `make licences` writes it of `uv.lock`, which has the versions
that CI runs, and `make lint` refuses a package whose licence is not among those that `tools/licences.py` allows. No package is under
the GPL or AGPL, or only source-available, but for the exceptions at the end.

## Inside pytrace

| part | licence | where |
|---|---|---|
| [pybind11](https://github.com/pybind/pybind11) | BSD-3-Clause | its headers are compiled into `pytrace._core` and `pytrace._cuda` |
| [Cytoscape.js](https://js.cytoscape.org) | MIT | `pytrace/serve/explorer/vendor`, with its licence: the explorer draws graphs with it |
| CUDA runtime | NVIDIA's CUDA Toolkit EULA, whose attachment A lets it be passed on | in `pytrace._cuda` alone, linked statically; only builds with nvcc have that module |

llama.cpp (MIT) is inside llama-cpp-python, and PDFium (Apache-2.0, BSD-3-Clause) inside pypdfium2; pip installs both as packages of their own.

## What pip installs beside it

`always`, or with the extras that are named. Licences are SPDX expressions, as the packages' metadata or licence files state them;
wheels may contain libraries under licences of their own, which stand in the `licenses` folder of their `dist-info`.

{users}

## What only tests and tools need

With the dependency groups that are named; nobody who installs pytrace gets them.

{tools}

## Models

No model is inside pytrace. `pytrace models pull` fetches those that are named, each under its licence; those of the profile `tiny`,
which is the default, are Apache-2.0.

{models}

Gemma's terms and the Llama 3 Community License restrict use, and are accepted by whoever pulls these models; no default names them.

## Why some others are allowed

{reasons}
"""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
