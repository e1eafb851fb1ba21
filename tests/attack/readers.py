"""Every reader of foreign text and bytes, given what is broken at random: it reads, or says in a line why not.

`python -m tests.attack.readers --seconds 60 [TARGET…]` tries each so long; what ends its process is kept in a file.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import io
import json
import os
import random
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import zipfile
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from pytrace.errors import PytraceError
from tests.attack._reader_targets import TARGETS, Target
from tests.attack.frame import Attack

# Of one trial; none of these small files takes one.
_SECONDS = 20
_MEMORY = 3 << 30
_NUMBERS = (b"0", b"-1", b"99999999999999999999", b"4294967295", b"1e999", b"NaN", b"-0", b"1" * 5_000)
_PIECES = (
    b"\xff\xfe", b"\xed\xa0\x80", b"\xc3", b"\\ud800", b"\0", b"\n", b"\r\n", b"\xef\xbb\xbf", b"\xe2\x80\xa8", b'"', b"'", b"\\", b"{}",
    b"null", b"true", b"[]", b'""', b"<<(", b"\t", b";", b"\x1b[2J", "\u202e".encode(), b"%", b"&amp;", b"---\n", b"+++\n", b"```",
)  # fmt: skip
_OPENING = {
    b"[": b"]",
    b"{": b"}",
    b"(": b")",
    b'{"a":': b"}",
    b"<<( ": b" )>>",
    b"<a>": b"</a>",
    b"> ": b"",
    b"[ <a:a> ": b" ]",
}


def mutated(seeds: list[bytes], chance: random.Random) -> bytes:
    """Change a seed in one to six places: bytes flipped, cut out, doubled, put elsewhere or in from another, nested or repeated."""
    content = bytearray(chance.choice(seeds))
    if content.startswith(b"PK") and chance.randrange(4):
        return _with_entry_mutated(content, chance)
    for _ in range(chance.choice((1, 1, 1, 2, 6))):
        start = chance.randrange(len(content) + 1)
        length = min(chance.choice((1, 2, 8, 64, 1024)), len(content) - start)
        kind = chance.randrange(11)
        if kind == 0 and start < len(content):
            content[start] ^= 1 << chance.randrange(8)
        elif kind == 1:
            content[start : start + length] = chance.randbytes(length)
        elif kind == 2:
            del content[start : start + length]
        elif kind == 3:
            content[start:start] = content[start : start + length] * chance.choice((1, 2, 100))
        elif kind == 4:
            target = chance.randrange(len(content) + 1)
            content[target : target + length] = content[start : start + length]
        elif kind == 5:
            other = chance.choice(seeds)
            at = chance.randrange(len(other) + 1)
            content[start : start + length] = other[at : at + chance.choice((1, 8, 64, 4096))]
        elif kind == 6:
            opening = chance.choice(list(_OPENING))
            depth = chance.choice((2, 50, 200, 20_000))
            content[start:start] = opening * depth + _OPENING[opening] * chance.choice((0, depth))
        elif kind == 7:
            content[start:start] = chance.choice((bytes([chance.randrange(256)]), *_PIECES)) * chance.choice(
                (100, 30_000)
            )
        elif kind == 8:
            numbers = list(re.finditer(rb"\d+", content))
            begin, end = chance.choice(numbers).span() if numbers else (start, start)
            content[begin:end] = chance.choice(_NUMBERS)
        elif kind == 9:
            # What stands between two signs, such as a field's value, becomes something else.
            values = list(re.finditer(rb"(?<=[:,\[\t])[^:,\[\]{}\t\n]+", content))
            begin, end = chance.choice(values).span() if values else (start, start)
            content[begin:end] = chance.choice((*_NUMBERS, *_PIECES))
        else:
            content[start:start] = chance.choice(_PIECES)
    if not chance.randrange(10):
        del content[chance.randrange(len(content) + 1) :]
    return bytes(content)


def _with_entry_mutated(archive: bytes, chance: random.Random) -> bytes:
    """Change what one entry of a ZIP archive holds, so that it still unpacks."""
    written = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as before, zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as after:
        # The large ones hold the text.
        sizes = {entry.filename: entry.file_size + 1 for entry in before.infolist()}
        chosen = chance.choices([*sizes], [*sizes.values()])[0]
        for name in sizes:
            entry = before.read(name)
            after.writestr(name, mutated([entry], chance) if name == chosen else entry)
    return written.getvalue()


def _trial(target: Target, path: Path, *, well: bool) -> str | None:
    """Read a file; say what is wrong with how that ended, or None."""
    try:
        target.read(path)
    except PytraceError as error:
        if well:
            return f"what it reads well is refused: {error}"
        return None if "\n" not in str(error) and str(error) else f"an error of several lines: {str(error)!r:.300}"
    except BaseException as error:  # noqa: BLE001 - a panic of compiled code is no `Exception`
        places = traceback.extract_tb(error.__traceback__)
        inner = next((place for place in reversed(places) if "pytrace/" in place.filename), places[-1])
        return f"{type(error).__name__}: {str(error)!r:.200} at {Path(inner.filename).name}:{inner.lineno}"
    return None


def _serve(folder: Path) -> None:
    """Try what is asked for, until nothing more is: the process in which a reader may do what it likes."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY + (2 << 30), _MEMORY + (2 << 30)))  # beside what is only mapped
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what readers print is none of ours
    for line in sys.stdin:
        name, seed, trials, seconds = json.loads(line)
        target = TARGETS[name]
        place = folder / name.replace(" ", "-")
        seeds = target.seeds(place)
        begun, number = time.monotonic(), 0
        wrong: Counter[str] = Counter()
        while number < trials and time.monotonic() - begun < seconds:
            path = target.place(place, f"{number}")
            path.write_bytes(mutated(seeds, random.Random(f"{name} {seed} {number}")) if number else seeds[0])
            signal.alarm(_SECONDS)
            said = _trial(target, path, well=number == 0)
            signal.alarm(0)
            if said:
                said = re.sub(r"\d+", "0", said)  # sizes and places are of one trial each
                if not wrong[said]:
                    path.rename(folder / f"{place.name}-{seed}-{number}")
                wrong[said] += 1
            path.unlink(missing_ok=True)
            number += 1
        answers.write(json.dumps([number, wrong]) + "\n")
        answers.flush()


class Readers:
    """The process in which targets are tried, started when it is needed and anew where a target ended it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[str] | None = None

    def attack(self, name: str, *, seed: int, trials: int, seconds: float) -> str | None:
        """Try a target; say what went wrong, or None."""
        if self._process is None:
            with (self._folder / "stderr").open("ab") as told:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "tests.attack.readers", "--serve", str(self._folder)],
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=told, text=True,
                    env={**os.environ, "OMP_NUM_THREADS": "1", "RUST_BACKTRACE": "0"},
                )  # fmt: skip
        sent, answers = self._process.stdin, self._process.stdout
        assert sent is not None
        assert answers is not None
        with contextlib.suppress(BrokenPipeError):
            sent.write(json.dumps([name, seed, trials, seconds]) + "\n")
            sent.flush()
        line = answers.readline()
        if not line:
            code = self.close()
            left = sorted(self._folder.glob(f"{name.replace(' ', '-')}/**/*"), key=lambda path: path.stat().st_mtime)
            kept = f"; see {left[-1]}" if left else ""
            return f"ended its process ({signal.strsignal(-code) if code < 0 else code}){kept}"
        number, wrong = json.loads(line)
        self.tried = number
        return "; ".join(f"{said} ({count} of {number})" for said, count in wrong.items()) or None

    tried = 0

    def close(self) -> int:
        """End the process, and return its exit status."""
        if self._process is None:
            return 0
        process, self._process = self._process, None
        with contextlib.suppress(BrokenPipeError), process:  # closes the pipes, and waits
            pass
        return process.wait()


def attacks(workplace: Path, random: random.Random, *, short: bool) -> Iterator[Attack]:
    readers = Readers(workplace)
    atexit.register(readers.close)  # attacks are run when all are known
    seed = random.randrange(1 << 30)
    trials, seconds = (3, 2.0) if short else (1 << 30, 5.0)
    for name in TARGETS:
        yield Attack(name, partial(readers.attack, name, seed=seed, trials=trials, seconds=seconds))


def main(arguments: Any = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.attack.readers", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(TARGETS)}; all")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.serve is not None:
        _serve(chosen.serve)
        return 0
    folder = Path(tempfile.mkdtemp(prefix="readers-"))
    readers, fallen = Readers(folder), 0
    for name in chosen.targets or TARGETS:
        wrong = readers.attack(name, seed=chosen.seed, trials=1 << 30, seconds=chosen.seconds)
        fallen += bool(wrong)
        print(f"{name}: {wrong or f'survived {readers.tried:,} trials'}", flush=True)
    readers.close()
    if fallen:
        print(f"what made them fall is in {folder}")
    return 1 if fallen else 0


if __name__ == "__main__":
    sys.exit(main())
