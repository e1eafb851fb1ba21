"""Commands on a machine that gives them little: of files, memory, room on the disk, stack, places to write to, languages."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import Random

from tests.attack import _supplies
from tests.attack.frame import Attack, command

COMMANDS = (
    "index build",
    "search",
    "ask",
    "eval",
    "certify",
    "kg index",
    "kg import",
    "kg show",
    "report",
    "models list",
)
# With less, Python, NumPy and onnxruntime have words of their own before any of ours.
LIMITS = {
    "files": ("nofile", (20, 100)),
    "memory": ("as", (300 << 20, 1500 << 20)),
    "size of a file": ("fsize", (0, 200 << 10)),
    "stack": ("stack", (200 << 10, 4 << 20)),
}
SURROUNDINGS: dict[str, dict[str, str]] = {
    "a home that is no place": {"HOME": "/dev/null", "PYTRACE_HOME": "/dev/null/home"},
    "no place for what is temporary": {"TMPDIR": "/nonexistent"},
    "an old language": {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii", "PYTHONCOERCECLOCALE": "0"},
    "a narrow terminal": {"COLUMNS": "1", "TERM": "dumb"},
    "Python without assertions": {"PYTHONOPTIMIZE": "2"},
}


def attacks(workplace: Path, random: Random, *, short: bool) -> Iterator[Attack]:
    """Yield the attacks of this part."""
    supplies = _supplies.make(workplace / "supplies")
    lines = [random.choice(COMMANDS)] if short else COMMANDS
    for line in lines:
        for what, (which, (least, most)) in LIMITS.items():
            for _ in range(1 if short else 3):
                value = int(least * (most / least) ** random.random()) if least else random.randrange(most)
                yield Attack(f"{line}: {value:,} of {what}", partial(_run, supplies, line, {which: value}, {}))
        for what, environment in SURROUNDINGS.items():
            if not short:
                yield Attack(f"{line}: {what}", partial(_run, supplies, line, {}, environment))


def _run(supplies: Path, line: str, limits: dict[str, int], environment: dict[str, str]) -> str | None:
    with _supplies.copied(supplies) as folder:
        arguments = [*line.split(), *_supplies.BEGINNINGS[line]]
        return command(arguments, cwd=folder, limits=limits, env=environment, seconds=120)
