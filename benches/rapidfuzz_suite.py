"""RapidFuzz's own test suite, run against `pytrace.compat.rapidfuzz`.

The tests come with RapidFuzz's source distribution (MIT), which pip downloads into a temporary folder, or stand in a folder that
is named; nothing of them is kept. They compare each C++ function with a Python one of the same name. In their place of the C++
functions stand ours, and the Python ones, RapidFuzz's own definition, stay.

    python -m benches.rapidfuzz_suite [--source rapidfuzz-3.14.6.tar.gz | FOLDER] [PYTEST_ARGUMENT…]

Exit status 0 if every test passes but those of `KNOWN`, and each of these fails.
"""

from __future__ import annotations

import argparse
import importlib
import os
import subprocess
import sys
import tarfile
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path
from types import SimpleNamespace
from typing import Any

VERSION = "3.14.6"

# Tests that cannot pass, and why.
KNOWN: dict[str, str] = {}

METRICS = {
    "damerau_levenshtein": "DamerauLevenshtein", "hamming": "Hamming", "indel": "Indel", "jaro": "Jaro",
    "jaro_winkler": "JaroWinkler", "lcs_seq": "LCSseq", "levenshtein": "Levenshtein", "osa": "OSA", "postfix": "Postfix",
    "prefix": "Prefix",
}  # fmt: skip
FUNCTIONS = ("distance", "similarity", "normalized_distance", "normalized_similarity", "editops", "opcodes")


def pytest_configure() -> None:
    """Put our modules in the place of the C++ ones, as attributes of the packages that the tests import them from."""
    package: Any = importlib.import_module("rapidfuzz")
    distance: Any = importlib.import_module("rapidfuzz.distance")
    ours: Any = importlib.import_module("pytrace.compat.rapidfuzz")
    for name in ("fuzz", "process", "utils"):
        setattr(package, name, getattr(ours, name))
        setattr(package, f"{name}_cpp", getattr(ours, name))
    metrics = SimpleNamespace()
    for prefix, name in METRICS.items():
        module = getattr(ours.distance, name)
        for function in FUNCTIONS:
            if hasattr(module, function):
                setattr(metrics, f"{prefix}_{function}", getattr(module, function))
    distance.metrics_cpp = distance.metrics_cpp_avx2 = metrics
    for name in (*METRICS.values(), "Editop", "Editops", "MatchingBlock", "Opcode", "Opcodes", "ScoreAlignment"):
        setattr(distance, name, getattr(ours.distance, name))


def _download(folder: Path) -> Path:
    """Fetch the source distribution; pip looks at its metadata, for which it takes what builds it."""
    subprocess.run(
        [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", "rapidfuzz", "--dest", str(folder),
         f"rapidfuzz=={VERSION}"],
        check=True,
    )  # fmt: skip
    return next(folder.glob("*.tar.gz"))


def _run(tests: Path, arguments: list[str], report: Path) -> dict[str, str]:
    """Run the suite; return the outcome of each test, ``passed``, ``failed`` or ``skipped``, by its name."""
    repository = Path(__file__).parents[1]
    environment = {**os.environ, "PYTHONPATH": str(repository)}
    command = [sys.executable, "-m", "pytest", "-p", "benches.rapidfuzz_suite", "-p", "no:cacheprovider", "-q",
               f"--junitxml={report}", "tests", *arguments]  # fmt: skip
    done = subprocess.run(command, cwd=tests, env=environment, check=False)
    if done.returncode not in (0, 1) or not report.exists():
        sys.exit(f"pytest ended with {done.returncode}: no test was run")
    outcomes = {}
    for case in ET.parse(report).getroot().iter("testcase"):
        kinds = {child.tag for child in case}
        outcome = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
        outcomes[f"{case.get('classname')}::{case.get('name')}"] = outcome
    return outcomes


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--source", type=Path, help=f"the source distribution or its folder; else {VERSION} is downloaded"
    )
    options, arguments = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = options.source or _download(folder)
        if source.is_file():
            with tarfile.open(source) as archive:
                archive.extractall(folder / "source", filter="data")
            source = next((folder / "source").iterdir())
        outcomes = _run(source.resolve(), arguments, folder / "report.xml")
    failed = {test for test, outcome in outcomes.items() if outcome == "failed"}
    counts = {kind: sum(outcome == kind for outcome in outcomes.values()) for kind in ("passed", "failed", "skipped")}
    print(", ".join(f"{count} {kind}" for kind, count in counts.items()))
    for test in sorted(failed):
        print(f"failed: {test}: {KNOWN.get(test, 'a fault')}")
    repaired = [test for test in KNOWN if outcomes.get(test) == "passed"]
    for test in repaired:
        print(f"passes now, and need not stand in KNOWN: {test}")
    return 1 if failed - KNOWN.keys() or repaired or not counts["passed"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
