"""Damage to every store: single bits flipped, blocks zeroed, files cut off.

Each must be told when the store is opened, read or verified, in a sentence that names the file, or change nothing of what is
read. Stores are damaged, opened and read in a process of its own, by the library: a thousand flips a store when whole.
"""

from __future__ import annotations

import faulthandler
import os
import random
import signal
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from pytrace.errors import PytraceError
from tests.attack._stores import STORES
from tests.attack.frame import Attack, command

_SECONDS, _FLIPS, _SHORT = 20, 1000, 15


def attacks(workplace: Path, random: random.Random, *, short: bool) -> Iterator[Attack]:
    """Yield the attacks of this part."""
    # Each process takes a second to begin.
    for names in [[*STORES]] if short else [[name] for name in STORES]:
        count = _SHORT if short else _FLIPS
        place = workplace / names[0]
        yield Attack(
            f"{', '.join(names)}: {count} each", _Trials(tuple(names), place, random.randrange(1 << 30), count)
        )
    for name, store in STORES.items():
        if store.verify:
            yield Attack(
                f"{name}, {' '.join(store.verify)}", _Told(name, workplace / f"{name}-told" / "store", store.verify)
            )


class _Trials(NamedTuple):
    """Damage stores again and again, in a process that may die of it."""

    names: tuple[str, ...]
    place: Path
    seed: int
    count: int

    def __call__(self) -> str | None:
        self.place.mkdir(parents=True)
        program = [sys.executable, "-m", "tests.attack.flips", str(self.place), str(self.seed), str(self.count)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTRACE_HOME": str(self.place / "home")}
        done = subprocess.run([*program, *self.names], capture_output=True, text=True, env=environment, check=False)
        if done.returncode < 0:
            return f"ended by signal {-done.returncode} after {done.stdout[-300:]!r}: {done.stderr[-1000:]}"
        if self.count != _SHORT:
            print(*(line for line in done.stdout.splitlines() if " trials, " in line), sep="\n")
        return done.stdout[-500:] + done.stderr[-2000:] if done.returncode else None


class _Told(NamedTuple):
    """Damage one file of a store, and have the command that owns it tell of it."""

    name: str
    place: Path
    arguments: tuple[str, ...]

    def __call__(self) -> str | None:
        store = STORES[self.name]
        store.make(self.place)
        arguments = [each.format(self.place) for each in self.arguments]
        path = max(_files(self.place), key=lambda each: each.stat().st_size)
        content = bytearray(path.read_bytes())
        content[content.rindex(store.word) - 1 if store.word else -3] ^= 16
        path.write_bytes(content)
        return command(arguments, codes=(2,), must_say=path.name)


def _files(place: Path) -> list[Path]:
    found = (Path(folder, name) for folder, _, names in os.walk(place) for name in names)
    return sorted(path for path in found if not path.name.endswith((".lock", "-shm", "-wal")))


def _try(name: str, place: Path, seed: int, count: int) -> list[str]:
    """Damage a store so many times, and return what was neither told nor without effect."""
    from pytrace.kg import knowledge_base_files
    from pytrace.models import registry
    from pytrace.retrieval import index_files
    from pytrace.retrieval.passages import manifest
    from pytrace.storage import sqlite

    store, rng = STORES[name], random.Random(seed)
    place.mkdir(parents=True)
    store.make(place / "store")
    held = {path: path.read_bytes() for path in _files(place / "store") if path.name != "catalog.json"}
    due = store.read(place / "store")
    _restore(place / "store", held)
    assert due == store.read(place / "store"), "what is read of it must be the same each time"
    _restore(place / "store", held)
    paths = [path for path, content in held.items() if content]
    sizes = [len(held[path]) for path in paths]
    wrong, outcomes = [], Counter[str]()
    small = manifest.SMALL
    for trial in range(count):
        # Large files are not compared when they are opened, small ones are.
        manifest.SMALL = knowledge_base_files.SMALL = index_files.SMALL = small if trial % 2 else 0
        sqlite._SMALL = (4 << 20) if trial % 2 else 0
        registry._SMALL = (1 << 20) if trial % 2 else 0
        (path,) = rng.choices(paths, sizes if trial % 3 else None)
        content = bytearray(held[path])
        kind = rng.choices(("flip", "block", "cut"), (18, 1, 1))[0]
        at = rng.randrange(len(content))
        if kind == "flip":
            content[at] ^= 1 << rng.randrange(8)
        elif kind == "block":
            content[at : at + 512] = bytes(len(content[at : at + 512]))
        else:
            del content[at:]
        path.write_bytes(content)
        what = f"{kind} at byte {at:,} of {path.name}"
        print(what, flush=True)
        signal.alarm(_SECONDS)
        try:
            found = store.read(place / "store")
        except PytraceError as error:
            outcomes["told"] += 1
            said = str(error)
            if path.name not in said and str(place / "store") not in said and path.parent.name not in said:
                wrong.append(f"{what}: the file is not named in {said!r}")
            if error.exit_code != 2 or "\n" in said:
                wrong.append(f"{what}: exit status {error.exit_code}, {said!r}")
        except Exception as error:  # noqa: BLE001 - that is what is looked for
            wrong.append(f"{what}: {type(error).__name__}: {error}")
        else:
            outcomes["nothing changed" if found == due else "silent"] += 1
            if found != due:
                wrong.append(f"{what}: something else was read")
        signal.alarm(0)
        _restore(place / "store", held)
    print(f"{name}: {count} trials, {', '.join(f'{number} {what}' for what, number in sorted(outcomes.items()))}")
    return wrong


def _restore(place: Path, held: dict[Path, bytes]) -> None:
    """Make a store what it was."""
    for other in [*_files(place), *place.rglob("*-wal"), *place.rglob("*-shm")]:
        if other not in held and other.name != "catalog.json":
            other.unlink()
    for path, content in held.items():
        if not path.exists() or path.read_bytes() != content:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


if __name__ == "__main__":
    faulthandler.enable()
    warnings.simplefilter("ignore")
    place, seed, count, *names = sys.argv[1:]
    wrong = [f"{name}: {each}" for name in names for each in _try(name, Path(place, name), int(seed), int(count))]
    for sentence in wrong[:20]:
        print(sentence, file=sys.stderr)
    sys.exit(f"{len(wrong)} were not survived" if wrong else 0)
