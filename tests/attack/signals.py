"""SIGINT and SIGTERM at random moments of commands that work for a while: an end in time, and nothing lost.

A command is started, ended, and started again to go on, until it comes to its end; what it made then must equal what one makes
that is left in peace.
"""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from random import Random
from typing import NamedTuple

from tests.attack.frame import PYTRACE, Attack, descendants

DOCS = Path(__file__).parents[2] / "examples" / "docs"
# What a user waits at most on a busy machine; `make test` shares the processors with other tests.
SECONDS, SECONDS_IN_TESTS = 1.0, 10.0
# A command that does not end is left to itself no longer.
PATIENCE = 600.0
_WORDS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}


class Work(NamedTuple):
    """A command line that makes something in a place of its own, how to go on with it, and what it made, to be compared."""

    name: str
    arguments: Callable[[Path], list[str]]
    result: Callable[[Path], object] = lambda _: None
    resume: tuple[str, ...] = ()
    environment: Callable[[Path], dict[str, str]] = lambda _: {}
    moments: int = 100


def attacks(workplace: Path, random: Random, *, short: bool) -> Iterator[Attack]:
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # as of what runs in the background of a shell
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for work in works(workplace, short=short):
        seed = random.random()
        for number in range(2 if short else work.moments):

            def run(work: Work = work, number: int = number, seed: float = seed) -> str | None:
                return campaign(work, workplace, seed, short=short).strike(number)

            yield Attack(f"{work.name}, moment {number}", run)
        yield Attack(
            f"{work.name}, nothing lost",
            lambda work=work, seed=seed: campaign(work, workplace, seed, short=short).finish(),
        )


def works(workplace: Path, *, short: bool) -> Iterator[Work]:
    """Yield what is attacked; the short form has no language model in it."""
    rows, facts = workplace / "rows.jsonl", workplace / "facts.tsv"
    rows.write_text(
        "".join(
            json.dumps({"id": f"{row}", "title": f"No {row}", "text": f"Number {row} follows number {row - 1}. " * 5})
            + "\n"
            for row in range(150 if short else 600)
        )
    )
    one = ("--threads", "1")
    yield Work(
        "index build",
        lambda place: ["index", "build", str(place / "index"), "--docs", str(rows), *one],
        lambda place: sound_index(place / "index"),
    )
    yield Work(
        "models pull",
        lambda _: ["models", "pull", "m"],
        lambda place: (place / "home" / "models" / "m" / "m.gguf").read_bytes()[:20],
        environment=home,
    )
    if short:
        return
    yield Work(
        "index build in processes",
        lambda place: ["index", "build", str(place / "index"), "--docs", str(rows), "--processes", "2", *one],
        lambda place: sound_index(place / "index"),
    )
    yield Work(
        "ask",
        lambda _: ["ask", "Who founded the company that owns the Marigold Tern?", "--docs", str(DOCS), *one],
    )
    few = workplace / "few"
    few.mkdir(exist_ok=True)
    for file in sorted(DOCS.glob("*.md"))[:6]:
        shutil.copy(file, few)
    yield Work(
        "kg build",
        lambda place: [
            "kg",
            "build",
            "--docs",
            str(few),
            "--out",
            str(place / "kg"),
            "--context",
            "2048",
            "--deterministic",
            *one,
        ],
        lambda place: sorted(shown("kg", "export", str(place / "kg"), "--out", "-", "--format", "tsv").splitlines()),
        resume=("--resume",),
    )
    questions = workplace / "questions.json"
    questions.write_text(json.dumps([question(number) for number in range(6)]))
    asked = ["eval", "rag", "--data", str(questions), "--context", "2048", "--deterministic", *one]
    yield Work(
        "eval",
        lambda place: [*asked, "--out", str(place / "run")],
        lambda place: scores(place / "run"),
        resume=("--resume",),
    )
    yield Work(
        "eval in processes",
        lambda place: [*asked, "--processes", "2", "--out", str(place / "run")],
        lambda place: scores(place / "run"),
        resume=("--resume",),
        moments=25,
    )
    facts.write_text("".join(f"thing {row}\tfollows\tthing {row - 1}\n" for row in range(2_000)))
    responses = workplace / "responses.jsonl"
    responses.write_text(
        "".join(
            json.dumps(
                {
                    "id": f"{row}",
                    "question": f"What does thing {row} follow?",
                    "response": f"1. thing {row} follows thing {row - 1}. So the answer is (thing {row - 1}).",
                    "answers": [f"thing {row - 1}"],
                }
            )
            + "\n"
            for row in range(1, 200)
        )
    )
    yield Work("certify", lambda _: ["certify", "--kg", str(facts), "--responses", str(responses), *one])


class Campaign:
    """One kind of work, struck again and again and begun anew where it came to its end."""

    def __init__(self, work: Work, workplace: Path, seed: float, *, short: bool) -> None:
        self._work = work
        self._random = Random(seed)
        self._seconds = SECONDS_IN_TESTS if short else SECONDS
        self._place = workplace / re.sub(r"\W", "-", work.name)
        self._begun = 0
        self._undisturbed = self._new_place("undisturbed")
        started = time.monotonic()
        process = self._start(self._undisturbed)
        process.communicate(timeout=PATIENCE)
        if process.returncode:
            raise RuntimeError(f"{work.name} ends with {process.returncode} even in peace")
        self._duration = time.monotonic() - started
        self._result = work.result(self._undisturbed)
        self._current = self._new_place("0")

    def strike(self, number: int) -> str | None:
        """Run the command, end it at a random moment, and say what was wrong with its end."""
        struck = (signal.SIGINT, signal.SIGTERM)[number % 2]
        process = self._start(self._current)
        wait_until(lambda: heeds(process.pid) or process.poll() is not None)
        # Half of the moments fall into the start, where libraries and models are loaded.
        time.sleep(self._random.uniform(0, self._duration * self._random.choice((0.3, 1.0))))
        children = descendants(process.pid)
        began = time.monotonic()
        process.send_signal(struck)
        try:
            _, errors = process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return f"did not end within {PATIENCE:g} s of {struck.name}"
        seconds = time.monotonic() - began
        if process.returncode == 0:  # it had come to its end
            self._begun += 1
            self._current = self._new_place(str(self._begun))
            return None
        said = [line for line in errors.splitlines() if not re.match("fetching |.* a second|.*pytrace: .* of ", line)]
        if process.returncode != 128 + struck:
            return f"exit status {process.returncode} after {struck.name}: {errors[-500:]!r}"
        if len(said) > 1 or (said and not said[0].startswith(f"pytrace: {_WORDS[struck]}")):
            return f"said {errors[-500:]!r}"
        if seconds > self._seconds:
            return f"took {seconds:.2f} s to end after {struck.name}"
        wait_until(lambda: not any(map(runs, children)), 2)
        if left := [child for child in children if runs(child)]:
            return f"left the processes {left} behind"
        return None

    def finish(self) -> str | None:
        """Let the command come to its end, and compare what it made."""
        process = self._start(self._current)
        _, errors = process.communicate(timeout=PATIENCE)
        if process.returncode:
            return f"cannot go on: exit status {process.returncode}, {errors[-500:]!r}"
        result = self._work.result(self._current)
        return None if result == self._result else f"made {str(result)[:200]}, not {str(self._result)[:200]}"

    def _new_place(self, name: str) -> Path:
        place = self._place / name
        place.mkdir(parents=True)
        return place

    def _start(self, place: Path) -> subprocess.Popen[str]:
        # What there is to go on with a command makes in its first moments, or not yet.
        resume = self._work.resume if any(place.iterdir()) else ()
        return subprocess.Popen(
            [PYTRACE, *self._work.arguments(place), *resume],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", **self._work.environment(place)},
        )  # fmt: skip


@cache
def campaign(work: Work, workplace: Path, seed: float, *, short: bool) -> Campaign:
    return Campaign(work, workplace, seed, short=short)


def question(number: int) -> dict[str, object]:
    return {
        "_id": f"q{number}",
        "question": f"Who founded House {number}?",
        "answer": f"Founder{number}",
        "type": "bridge",
        "context": [[f"House {number}", [f"House {number} was founded by Founder{number}."]], ["Rain", ["It is wet."]]],
        "supporting_facts": [[f"House {number}", 0]],
    }


def sound_index(index: Path) -> object:
    """Return what an index holds, once every byte of it was read."""
    held = json.loads(shown("index", "verify", str(index), "--json"))
    return {name: held[name] for name in ("documents", "passages", "names", "mentions", "encoder", "vectors")}


def scores(run: Path) -> object:
    """Return what a run found, but for what it cost."""
    shown("report", str(run))
    with (run / "questions.csv").open(newline="") as file:
        return sorted((row["question_id"], row["answer"], row["f1"]) for row in csv.DictReader(file))


def home(place: Path) -> dict[str, str]:
    """Make a home whose one model comes of a local file."""
    source, folder = place / "source.gguf", place / "home"
    if not folder.exists():
        folder.mkdir()
        with source.open("wb") as file:
            file.write(b"GGUF")
            file.truncate(300 << 20)
        model = {"name": "m", "role": "language-model", "description": "a model", "license": "none"}
        files = [{"path": "m.gguf", "sources": [{"uri": str(source)}]}]
        (folder / "catalog.json").write_text(json.dumps({"models": [{**model, "files": files}], "profiles": []}))
    return {"PYTRACE_HOME": str(folder)}


def shown(*arguments: str) -> str:
    done = subprocess.run([PYTRACE, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{arguments}: {done.stderr}")
    return done.stdout


def heeds(process: int) -> bool:
    """Whether a process catches SIGTERM: the first that pytrace does, after Python itself has come up."""
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return False
    caught = re.search(r"SigCgt:\s*([0-9a-f]+)", status)
    return caught is not None and bool(int(caught[1], 16) >> (signal.SIGTERM - 1) & 1)


def runs(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until(holds: Callable[[], bool], seconds: float = PATIENCE) -> None:
    end = time.monotonic() + seconds
    while not holds() and time.monotonic() < end:
        time.sleep(0.005)
