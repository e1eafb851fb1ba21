"""What every part of the attack has in common: an attack, and a command line that is run under attack and judged."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

PYTRACE = Path(sys.executable).with_name("pytrace")

# What could change how a terminal shows the rest: control characters but tabs and newlines, and marks of direction.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_NEVER_SAID = ("Traceback (most recent call last)", "fault in pytrace", "Exception ignored", "GGML_ASSERT")


class Attack(NamedTuple):
    """One thing that is tried; `run` returns None if it was survived, and else what went wrong."""

    name: str
    run: Callable[[], str | None]


class Outcome(NamedTuple):
    """How a process ended, what it printed, the seconds that it took, and the most memory that it held (bytes)."""

    status: int
    stdout: str
    stderr: str
    seconds: float
    memory: int
    stopped: str = ""


def command(
    arguments: Sequence[str | bytes | os.PathLike[str]],
    *,
    seconds: float = 30,
    memory: int = 4 << 30,
    codes: Sequence[int] = (0, 1, 2),
    input: bytes | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    limits: Mapping[str, int] = MappingProxyType({}),
    must_say: str = "",
    must_not_say: Sequence[str] = (),
) -> str | None:
    """Run `pytrace` in a process of its own and say what is wrong with how it ended, or None.

    It must end by itself within its time and memory, by no signal, with one of the statuses; say what failed on stderr, in a
    line of pytrace's own; print neither a traceback nor characters that steer a terminal, and with ``--json`` only JSON on stdout.
    """
    outcome = execute(arguments, seconds=seconds, memory=memory, input=input, env=env, cwd=cwd, limits=limits)
    said = outcome.stdout + outcome.stderr
    if outcome.stopped:
        return outcome.stopped
    if outcome.status < 0:
        return f"ended by signal {-outcome.status} ({signal.strsignal(-outcome.status)})"
    if outcome.status not in codes:
        return f"exit status {outcome.status}, not one of {codes}: {_end(outcome.stderr)}"
    for words in (*_NEVER_SAID, *must_not_say):
        if words in said:
            return f"printed {words!r}: {_end(outcome.stderr)}"
    if found := _CONTROLS.search(said):
        return f"printed {found.group()!r} after {said[max(0, found.start() - 60) : found.start()]!r}"
    if outcome.status and not any(line.startswith("pytrace: ") for line in outcome.stderr.splitlines()):
        return f"exit status {outcome.status} without a word of why: {_end(outcome.stderr)!r}"
    if "--json" in arguments and outcome.stdout.strip():
        try:
            json.loads(outcome.stdout)
        except ValueError as error:
            return f"stdout is not JSON ({error})"
    if must_say not in said:
        return f"did not say {must_say!r}: {_end(outcome.stderr)}"
    return None


def execute(
    arguments: Sequence[str | bytes | os.PathLike[str]],
    *,
    seconds: float,
    memory: int,
    input: bytes | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    limits: Mapping[str, int] = MappingProxyType({}),
) -> Outcome:
    """Run `pytrace` and return how it ended; it is stopped, with all its processes, beyond its time or memory.

    `limits` are the machine's own, by the names that `prlimit` has for them.
    """
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(input or b"")
        given.seek(0)
        begun = time.monotonic()
        limited = ["prlimit", *(f"--{which}={most}" for which, most in limits.items())] if limits else []
        process = subprocess.Popen(
            [*limited, PYTRACE, *arguments], stdin=given, stdout=out, stderr=err, start_new_session=True, cwd=cwd,
            env={**os.environ, "OMP_NUM_THREADS": "1", **(env or {})},
        )  # fmt: skip
        held, stopped = 0, ""
        try:
            while process.poll() is None and not stopped:
                held = max(held, _memory(process.pid))
                # On a busy machine, less what it waited for a processor.
                if time.monotonic() - begun - _waited(process.pid) > seconds:
                    stopped = f"did not end within {seconds:g} s"
                elif held > memory:
                    stopped = f"took more than {memory:,} bytes of memory"
                else:
                    time.sleep(0.02)
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        out.seek(0)
        err.seek(0)
        said = [stream.read(256 << 20).decode("utf-8", "replace") for stream in (out, err)]
    return Outcome(process.returncode, said[0], said[1], time.monotonic() - begun, held, stopped)


def _memory(process: int) -> int:
    """Return the most memory that a process has held in its life."""
    try:
        found = re.search(rb"VmHWM:\s+(\d+) kB", Path(f"/proc/{process}/status").read_bytes())
    except OSError:  # it has just ended
        return 0
    return int(found[1]) * 1024 if found else 0


def _waited(process: int) -> float:
    """Return the seconds that a process's first thread could have run and had no processor."""
    try:
        return int(Path(f"/proc/{process}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0


def descendants(process: int) -> list[int]:
    """Return the processes that a process started, and those that they started."""
    parents = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    found = [process]
    for each in found:
        found += [child for child, parent in parents.items() if parent == each]
    return found[1:]


def _end(text: str) -> str:
    return text.strip()[-300:]
