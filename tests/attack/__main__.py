"""Run the attack, or the parts that are named, and count who survives: ``make attack``.

Everything is made by a seed, runs on this machine alone and ends by itself.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.attack.frame import Attack, descendants

PARTS = sorted(
    path.stem
    for path in Path(__file__).parent.glob("*.py")
    if path.stem != "frame" and not path.stem.startswith(("_", "test_"))
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.attack", description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], metavar="PART", help=f"of {', '.join(PARTS)}; all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--short", action="store_true", help="what `make test` runs")
    parser.add_argument("--only", default="", metavar="WORDS", help="attacks whose names contain these words")
    arguments = parser.parse_args()
    survived, fallen = 0, list[str]()
    for part in arguments.parts or PARTS:
        begun, before = time.monotonic(), survived + len(fallen)
        with tempfile.TemporaryDirectory(prefix=f"attack-{part}-") as workplace:
            tried = attacks(part, Path(workplace), arguments.seed, short=arguments.short)
            for number, attack in enumerate(tried):
                if arguments.only not in attack.name:
                    continue
                if sys.stderr.isatty():
                    print(f"\r{part}: {number} of {len(tried)}", end="\r", file=sys.stderr)
                if wrong := attack.run():
                    fallen.append(f"{part}: {attack.name}: {wrong}")
                    print(fallen[-1], flush=True)
                else:
                    survived += 1
        count = survived + len(fallen) - before
        print(f"{part}: {count} attacks in {time.monotonic() - begun:.0f} s", flush=True)
    print(f"{survived} of {survived + len(fallen)} survived")
    return 1 if fallen else 0


def attacks(part: str, workplace: Path, seed: int, *, short: bool) -> list[Attack]:
    """Return the attacks of a part, made by a seed."""
    module = importlib.import_module(f"tests.attack.{part}")
    return list(module.attacks(workplace, random.Random(f"{part} {seed}"), short=short))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        sys.exit(main())
    finally:
        # What is attacked runs in sessions of its own, where Ctrl-C does not come.
        for process in descendants(os.getpid()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
