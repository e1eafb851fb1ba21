"""Run every bench, or the named ones: `python -m benches [NAME…] [--json]`."""

from __future__ import annotations

import importlib
import pkgutil
import sys

import benches
from benches import harness


def main() -> int:
    found = {}
    for module in pkgutil.iter_modules(benches.__path__):
        if module.name.startswith("_") or module.name == "harness":
            continue
        run = getattr(importlib.import_module(f"benches.{module.name}"), "run", None)
        if run is not None:
            found[module.name] = run
    return harness.main(found)


if __name__ == "__main__":
    sys.exit(main())
