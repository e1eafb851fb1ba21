"""Tries an installed pytrace as it is, where nothing else may be there: no compiler, no tests, no network.

    python tools/try_wheel.py [--search DOCS]

Runs the example of every kernel's docstring on every instruction set that the module has and this processor knows, checks an answer
against a text by the command line, and says what that took. `--search` indexes a folder and searches it, too, which takes onnxruntime
and `pytrace models pull tiny`. The exit status is 1 where anything is not as it should be.
"""

from __future__ import annotations

import argparse
import doctest
import importlib
import json
import os
import pkgutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TEXT = "The Sable Heron was built by the Corran Yard. The Corran Yard was founded by Mara Tavarell in 1874.\n"
RESPONSES = {
    "Mara Tavarell founded the Corran Yard.": "supported",
    "The Corran Yard was founded by Mara Tavarell in 1931.": "contradicted",
}


def main() -> int:
    """Try what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--search", type=Path, metavar="DOCS", help="a folder to index and search")
    parser.add_argument("--kernels", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.kernels:
        return kernels()
    from pytrace import _core

    print(f"{_core.__file__}: {Path(_core.__file__).stat().st_size / 1e6:.1f} MB", flush=True)
    cpuinfo = Path("/proc/cpuinfo")
    flags = set(cpuinfo.read_text("utf-8").split()) if cpuinfo.exists() else set()
    if {"avx2", "fma", "bmi2"} <= flags and "avx2" not in _core.available_isas():
        sys.exit(f"this processor knows AVX2, and the module finds {_core.available_isas()} alone")
    for isa in _core.available_isas():
        command = [sys.executable, __file__, "--kernels"]
        subprocess.run(command, check=True, env={**os.environ, "PYTRACE_ISA": isa})
    with tempfile.TemporaryDirectory() as folder:
        certify(Path(folder))
        if options.search:
            search(Path(folder), options.search)
    return 0


def kernels() -> int:
    """Run the kernels' examples on the instruction set of PYTRACE_ISA."""
    import pytrace.kernels
    from pytrace import _core

    tried = 0
    for module in pkgutil.walk_packages(pytrace.kernels.__path__, "pytrace.kernels."):
        failed, run = doctest.testmod(importlib.import_module(module.name))
        if failed:
            print(f"{module.name}: {failed} of {run} examples are wrong on {_core.active_isa()}", file=sys.stderr)
            return 1
        tried += run
    if not tried:
        print("the kernels have no examples", file=sys.stderr)
        return 1
    print(f"{tried} lines of examples are right on {_core.active_isa()}", flush=True)
    return 0


def certify(folder: Path) -> None:
    """Check answers against a text."""
    (folder / "yard.txt").write_text(TEXT, "utf-8")
    rows = [{"question": "Who?", "response": response} for response in RESPONSES]
    (folder / "responses.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    arguments = ("--docs", str(folder / "yard.txt"), "--responses", str(folder / "responses.jsonl"))
    found = json.loads(pytrace("certify", *arguments, "--json"))
    verdicts = [claim["label"] for response in found["responses"] for claim in response["claims"]]
    if verdicts != list(RESPONSES.values()):
        sys.exit(f"certify says {verdicts}, not {list(RESPONSES.values())}")


def search(folder: Path, docs: Path) -> None:
    """Index a folder, and search it."""
    pytrace("index", "build", str(folder / "index"), "--docs", str(docs))
    question = "Who founded the company that owns the Marigold Tern?"
    found = json.loads(pytrace("search", question, "--index", str(folder / "index"), "--json"))
    if not found["passages"]:
        sys.exit("search found nothing")


def pytrace(*arguments: str) -> bytes:
    """Run the command line, and say how long it took."""
    begun = time.perf_counter()
    done = subprocess.run([sys.executable, "-m", "pytrace", *arguments], stdout=subprocess.PIPE, check=True)
    print(f"{time.perf_counter() - begun:5.1f} s  pytrace {arguments[0]}", flush=True)
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
