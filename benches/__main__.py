"""Run every bench, or the named ones: `python -m benches [NAME…] [--json]`."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from benches import harness


def main() -> int:
    # Only modules that end in harness.main are benches; the others are scripts that need models or labelled data.
    names = [
        path.stem
        for path in sorted(Path(__file__).parent.glob("[!_]*.py"))
        if "sys.exit(harness.main(" in path.read_text(encoding="utf-8")
    ]
    return harness.main({name: importlib.import_module(f"benches.{name}").run for name in names})


if __name__ == "__main__":
    sys.exit(main())
