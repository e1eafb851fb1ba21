"""The checklist of a release, as a script: each line is run, timed, and passes or fails; nothing is published.

    python tools/release.py 0.2.0 [--only NAME…] [--skip NAME…] [--list]

What takes a card, hours or another system (`make gpu-check`, `make soak`, macOS, Windows) is named at the end, since only people know
whether it was run. The exit status is 1 where a line failed. Afterwards the tag and the upload are commands that it prints.
"""

from __future__ import annotations

import argparse
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from hashlib import file_digest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
BY_HAND = (
    "make gpu-check            on a machine with a card: the CUDA kernels",
    "make soak                 two hours; its figures go into the notes of the release",
    "make sanitize-threads, make sanitize-races, make fuzz, make attack    where native sources or readers changed",
    "cibuildwheel              macOS and Windows, where someone has them",
)


class FailedError(Exception):
    """A line of the checklist does not hold."""


def tree(version: str) -> None:
    """Check that the tree is clean, and that nothing has this tag yet."""
    if changed := run("git", "status", "--porcelain", capture=True).strip():
        raise FailedError(f"the tree has changes: {changed.splitlines()[0]}")
    if run("git", "tag", "--list", f"v{version}", capture=True).strip():
        raise FailedError(f"v{version} is tagged already")


def version_number(version: str) -> None:
    """Check that the version's one place has it."""
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        raise FailedError(f"{version} is not MAJOR.MINOR.PATCH")
    stated = re.search(r'^__version__ = "(.*)"$', (ROOT / "pytrace" / "__init__.py").read_text("utf-8"), re.MULTILINE)
    if stated is None or stated[1] != version:
        raise FailedError(f"pytrace/__init__.py says {stated and stated[1]}, not {version}")


def changelog(version: str) -> None:
    """Check that the changelog has a dated section of the version, and nothing unreleased."""
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    section = re.search(
        rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL
    )
    if section is None or not re.search(r"^### ", section[1], re.MULTILINE):
        raise FailedError(f"CHANGELOG.md has no dated section of {version} with a heading in it")
    unreleased = re.search(r"^## \[Unreleased\]\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    if unreleased and unreleased[1].strip():
        raise FailedError("CHANGELOG.md has something that is unreleased")


def wheels(_: str) -> None:
    """Build wheels and source anew."""
    for path in DIST.glob("pytrace*"):
        path.unlink()
    run(sys.executable, "tools/wheels.py", "build")


def metadata(_: str) -> None:
    """Check that PyPI would take what was built."""
    run(sys.executable, "-m", "twine", "check", "--strict", *map(str, sorted(DIST.glob("pytrace*"))))


def trial(_: str) -> None:
    """Try the wheel for this machine in an environment of its own, where nothing may be compiled."""
    (wheel,) = DIST.glob(f"pytrace_rag-*_{platform.machine()}.whl")
    with tempfile.TemporaryDirectory() as folder:
        run(sys.executable, "-m", "venv", f"{folder}/venv")
        run(f"{folder}/venv/bin/pip", "install", "--quiet", "--only-binary", ":all:", f"{wheel}[onnx]")
        run(
            f"{folder}/venv/bin/python",
            str(ROOT / "tools" / "try_wheel.py"),
            "--search",
            str(ROOT / "examples" / "docs"),
            cwd=folder,
        )


def checksums(_: str) -> None:
    """Write the sums of what is published beside it."""
    files = sorted(DIST.glob("pytrace*"))
    lines = []
    for path in files:
        with path.open("rb") as stream:
            lines.append(f"{file_digest(stream, 'sha256').hexdigest()}  {path.name}\n")
    if len(files) < 3:
        raise FailedError(f"dist has {len(files)} files, where two wheels and the source are due")
    (DIST / "SHA256SUMS").write_text("".join(lines), "utf-8")


def make(target: str) -> Callable[[str], None]:
    """Return a line that runs a target of the Makefile."""

    def line(_: str) -> None:
        run("make", target)

    line.__doc__ = f"make {target}"
    return line


LINES: dict[str, Callable[[str], None]] = {
    "tree": tree,
    "version": version_number,
    "changelog": changelog,
    "lint": make("lint"),
    "test": make("test"),
    "lowest": make("test-lowest"),
    "evaluators": make("evaluators-check"),
    "demo": make("demo"),
    "docs": make("docs"),
    "sbom": make("sbom"),
    "wheels": wheels,
    "metadata": metadata,
    "trial": trial,
    "checksums": checksums,
}


def main() -> int:
    """Go through the checklist."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("version")
    parser.add_argument("--only", nargs="+", choices=LINES, default=list(LINES), metavar="NAME")
    parser.add_argument("--skip", nargs="+", choices=LINES, default=[], metavar="NAME")
    parser.add_argument("--list", action="store_true", help="print the lines, and run none")
    options = parser.parse_args()
    if options.list:
        for name, line in LINES.items():
            print(f"{name:12}{line.__doc__}")
        return 0
    failed = []
    for name, line in LINES.items():
        if name not in options.only or name in options.skip:
            print(f"not run  {name}", flush=True)
            continue
        begun = time.monotonic()
        try:
            line(options.version)
        except (FailedError, subprocess.CalledProcessError) as error:
            failed.append(name)
            print(f"FAILED   {name}: {error}", flush=True)
        else:
            print(f"passed   {name} in {time.monotonic() - begun:,.0f} s", flush=True)
    print("\nBy hand:")
    for what in BY_HAND:
        print(f"  {what}")
    if failed:
        print(f"\n{', '.join(failed)} failed: this is no release")
        return 1
    print(
        f"\nThen: git tag --sign v{options.version} && git push origin v{options.version} && twine upload dist/pytrace*"
    )
    return 0


def run(*command: str, capture: bool = False, cwd: str | Path = ROOT) -> str:
    """Run a command that must succeed; return its output if that is asked for."""
    done = subprocess.run(command, cwd=cwd, check=True, stdout=subprocess.PIPE if capture else None, text=True)
    return done.stdout or ""


if __name__ == "__main__":
    sys.exit(main())
