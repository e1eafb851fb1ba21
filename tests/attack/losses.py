"""Stores whose making is killed at any moment, or ends because the disk is full: made again, they hold what was due."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from pytrace.errors import PytraceError
from tests.attack._stores import STORES
from tests.attack.frame import Attack

# The remains of builds are no store that is made.
_NAMES = [name for name in STORES if "begun" not in name]
_PAGE = 4096


def attacks(workplace: Path, random: random.Random, *, short: bool) -> Iterator[Attack]:
    """Yield the attacks of this part."""
    for way, count, names in (
        # A process takes a second to begin.
        [("full", 3, _NAMES), ("killed", 1, ["index", "sentences", "graph"])]
        if short
        else [(way, count, [name]) for way, count in (("full", 30), ("killed", 20)) for name in _NAMES]
    ):
        place = workplace / f"{way} {names[0]}"
        words = f"{', '.join(names)}: {way}, {count} times each"
        yield Attack(words, _Process(way, tuple(names), place, random.randrange(1 << 30), count))


class _Process(NamedTuple):
    """Try stores in a process of its own, whose end by a signal would be a finding."""

    way: str
    names: tuple[str, ...]
    place: Path
    seed: int
    count: int

    def __call__(self) -> str | None:
        arguments = [self.way, str(self.place), str(self.seed), str(self.count), *self.names]
        program = [sys.executable, "-m", "tests.attack.losses", *arguments]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTRACE_HOME": str(self.place / "home")}
        done = subprocess.run(program, capture_output=True, text=True, env=environment, check=False)
        return f"{done.returncode}: {done.stdout[-300:]}{done.stderr[-2000:]}" if done.returncode else None


def _full(name: str, place: Path, rng: random.Random, count: int) -> Iterator[str]:
    """Make a store on a disk with too little room, then with enough."""
    store, due = STORES[name], _due(name, place / "due" / "store")
    used = sum(-(-path.stat().st_size // _PAGE) + 1 for path in (place / "due" / "store").rglob("*"))
    disk = place / "disk"
    for _ in range(count):
        size = rng.randrange(2, used + 12) * _PAGE
        disk.mkdir(parents=True, exist_ok=True)
        if mounted := _mount("-t", "tmpfs", "-o", f"size={size}", "none", str(disk)):
            print(f"no disk of a size can be mounted here: {mounted}")
            return
        try:
            try:
                store.make(disk / "store")
            except PytraceError as error:
                if "\n" in str(error):
                    yield f"{size:,} bytes: {error}"
            except OSError as error:
                # Which the command line words: `tests/cli/test_cli.py`.
                if error.filename is None and not error.strerror:
                    yield f"{size:,} bytes: {error!r}"
            except Exception as error:  # noqa: BLE001 - that is what is looked for
                yield f"{size:,} bytes: {type(error).__name__}: {error}"
            _mount("-o", "remount,size=64m", str(disk))
            yield from _made_again(name, disk / "store", due, f"{size:,} bytes")
        finally:
            subprocess.run(["umount", "--lazy", str(disk)], check=True)


def _mount(*arguments: str) -> str:
    return subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False).stderr.strip()


def _killed(name: str, place: Path, rng: random.Random, count: int) -> Iterator[str]:
    """Make a store, killed after some of the time that it takes, then to its end."""
    due = _due(name, place / "due" / "store")
    begun = time.monotonic()
    STORES[name].make(place / "timed" / "store")
    takes = time.monotonic() - begun
    for trial in range(count):
        target = place / f"{trial}" / "store"
        program = [sys.executable, "-m", "tests.attack.losses", "make", str(target), "0", "0", name]
        process = subprocess.Popen(program, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        process.stdout.readline()
        after = rng.uniform(0, 1.5 * takes)
        time.sleep(after)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        yield from _made_again(name, target, due, f"killed after {after:.3f} s")
        shutil.rmtree(target)


def _due(name: str, place: Path) -> object:
    STORES[name].make(place)
    return STORES[name].read(place)


def _made_again(name: str, place: Path, due: object, what: str) -> Iterator[str]:
    try:
        STORES[name].make(place)
        if STORES[name].read(place) != due:
            yield f"{what}: something else was read"
    except Exception as error:  # noqa: BLE001 - that is what is looked for
        yield f"{what}: made again, {type(error).__name__}: {error}"


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    way, place, seed, count, *names = sys.argv[1:]
    Path(place).parent.mkdir(parents=True, exist_ok=True)
    if way == "make":
        from pytrace import kg, retrieval, triples  # noqa: F401 - before the clock begins

        print("begun", flush=True)
        STORES[names[0]].make(Path(place))
        sys.exit()
    rng = random.Random(int(seed))
    tried = {"full": _full, "killed": _killed}[way]
    wrong = [f"{name}: {each}" for name in names for each in tried(name, Path(place, name), rng, int(count))]
    for sentence in wrong[:20]:
        print(sentence, file=sys.stderr)
    sys.exit(f"{len(wrong)} were not survived" if wrong else 0)
