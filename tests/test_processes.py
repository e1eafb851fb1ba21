"""A process ends soon after a signal, whatever it is busy with, and children end with their parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pytrace import processes
from pytrace.errors import InputError

# Each prints a line when it is where it is to be struck.
BUSY = """
import collections, itertools, os, subprocess
from pytrace import processes
processes.end_at_once_on_signals()
processes.unwind_on_signals()
processes.last_words("all is kept")
child = subprocess.Popen(["sleep", "3600"])
# For ever, with the GIL; it says so from within, for Python would run the handler before.
said = map(os.write, [1], [b"%d\\n" % child.pid])
collections.deque(itertools.chain(said, itertools.repeat(1)), maxlen=0)
"""
ORDERLY = """
import sys, time
from pathlib import Path
from pytrace import processes
from pytrace.cli import common
processes.end_at_once_on_signals()
processes.unwind_on_signals()
try:
    print("ready", flush=True)
    time.sleep(3600)
except SystemExit:
    pass  # swallowed, as a library may
finally:
    Path(sys.argv[1]).write_text("closed")
processes.leave(0)
"""
EARLY = """
from pytrace import processes
processes.end_at_once_on_signals()
print("ready", flush=True)
while True: pass
"""
LATE = """
import atexit, time
from pytrace import processes
processes.end_at_once_on_signals()
processes.unwind_on_signals()
atexit.register(lambda: (print("ready", flush=True), time.sleep(3600)))
processes.leave(0)
"""
PARENT = """
from pytrace.models import child
child.run(__import__("time").sleep, 3600, returns=type(None), timeout=3600)
"""
SIGNALS = pytest.mark.parametrize(
    ("struck", "word"), [(signal.SIGINT, "interrupted"), (signal.SIGTERM, "terminated")], ids=["SIGINT", "SIGTERM"]
)
PATIENCE = 60.0


def start(program: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def strike(process: subprocess.Popen[str], struck: int) -> tuple[str, str]:
    """Wait for the process's word, send the signal, and return that word and what it said on stderr."""
    assert process.stdout is not None
    word = process.stdout.readline()
    process.send_signal(struck)
    _, errors = process.communicate(timeout=PATIENCE)
    return word, errors


def is_gone(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def until_gone(process: int) -> None:
    end = time.monotonic() + PATIENCE
    while not is_gone(process):
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.usefixtures("heeding_interrupts")
@SIGNALS
def test_native_code_that_holds_on_is_ended_with_its_children_and_the_last_words(struck: int, word: str) -> None:
    with start(BUSY) as process:
        child, errors = strike(process, struck)
    assert process.returncode == 128 + struck
    assert errors == f"pytrace: {word}; all is kept\n"
    until_gone(int(child))  # it was killed before, and the kernel takes it down


@pytest.mark.usefixtures("heeding_interrupts")
@SIGNALS
def test_what_is_open_is_closed_and_a_swallowed_exception_is_no_way_out(struck: int, word: str, tmp_path: Path) -> None:
    with start(ORDERLY, tmp_path / "state") as process:
        _, errors = strike(process, struck)
    assert (process.returncode, errors) == (128 + struck, f"pytrace: {word}\n")
    assert (tmp_path / "state").read_text() == "closed"


@pytest.mark.usefixtures("heeding_interrupts")
@SIGNALS
def test_the_first_moments_end_with_the_line_alone(struck: int, word: str) -> None:
    with start(EARLY) as process:
        _, errors = strike(process, struck)
    assert (process.returncode, errors) == (128 + struck, f"pytrace: {word}\n")


@pytest.mark.usefixtures("heeding_interrupts")
@SIGNALS
def test_the_last_moments_end_without_a_traceback(struck: int, word: str) -> None:
    with start(LATE) as process:
        _, errors = strike(process, struck)
    assert (process.returncode, errors) == (128 + struck, ""), word


def test_an_ignored_interrupt_stays_ignored() -> None:
    ignoring = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    with start(f"{ignoring}{ORDERLY.replace('3600', '0.5')}", os.devnull) as process:
        _, errors = strike(process, signal.SIGINT)
    assert (process.returncode, errors) == (0, "")


def test_a_child_ends_with_its_parent_even_where_that_is_killed() -> None:
    with start(PARENT) as process:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        end = time.monotonic() + PATIENCE
        while not (found := children.read_text().split()) or b"sleep" not in command_line(int(found[0])):
            assert time.monotonic() < end
            time.sleep(0.01)
        time.sleep(0.5)  # it has come to its sleep
        process.kill()
    until_gone(int(found[0]))


def command_line(process: int) -> bytes:
    return Path(f"/proc/{process}/cmdline").read_bytes()


def test_counts_that_would_stop_the_machine_are_refused() -> None:
    processes.check_count(1)
    for count in (0, 100_000):
        with pytest.raises(InputError, match=f"{count} processes"):
            processes.check_count(count)
    assert 1 <= processes.useful_threads(100_000) <= (os.cpu_count() or 1)
    assert processes.useful_threads(None) == len(os.sched_getaffinity(0))
