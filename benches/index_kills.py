"""Kills commands that change an index, at random moments, and compares what is left with what was acknowledged.

    python -m benches.index_kills --docs examples/docs [--kills 100 | --minutes 30] [--seed 0] [--work DIR]

A copy of the documents is changed at random, and `pytrace index build`, `sync` or `remove` is started with the tiny encoder and ended
by SIGKILL. The index must then verify, hold each document once, and hold those of before the command or those of after it, nothing
between; the same command is then run to its end, and what is found must equal what an index finds that is built anew, scores to a
thousandth.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytrace
from pytrace.errors import StoreError
from pytrace.retrieval.hops import HopSearch
from pytrace.retrieval.passages import PassageIndex

_QUESTIONS = (
    "Who founded the company that owns the Marigold Tern?",
    "Which island has the observatory whose keeper wrote the almanac?",
    "What is the ferry to Skarra Isle called?",
)
_INDEX = (str(Path(sys.executable).with_name("pytrace")), "index")
# Compared with an index that is built anew each time this many kills are done.
_COMPARED = 5
# Of passages that match equally well at the border of what is looked at, an index looks at those that it has first.
_TOLERANCE = 1e-3

State = dict[str, str]


def main() -> int:
    """Kill, check, repeat."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--docs", type=Path, required=True, help="documents that are copied, changed and indexed")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--minutes", type=float, help="kill for so long, however often")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", type=Path, help="where copies and indexes are made")
    options = parser.parse_args()
    print(f"python -m benches.index_kills {' '.join(sys.argv[1:])}", flush=True)
    engine = pytrace.load("tiny", threads=1)
    draw = random.Random(options.seed)
    ended: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(dir=options.work) as temporary:
        folder, index = Path(temporary) / "docs", Path(temporary) / "index"
        shutil.copytree(options.docs, folder)
        seconds = dict.fromkeys(("build", "sync", "remove"), 4.0)
        kills = 0
        end = time.monotonic() + 60 * (options.minutes or 0)
        while time.monotonic() < end if options.minutes else kills < options.kills:
            before = state(index)
            verb, arguments = _change(draw, folder, index, before)
            before = None if verb == "build" else before
            command = [*_INDEX, verb, *arguments, "--threads", "1"]
            started = time.perf_counter()
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            try:
                # What comes before the first write is loading, for the most part.
                process.wait(seconds[verb] * (0.4 + 0.65 * draw.random()))
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
            if process.wait() not in (0, -signal.SIGKILL):
                print(f"{' '.join(command)}: exit {process.returncode}: {process.communicate()[1]}")
                return 1
            was_killed = process.returncode != 0
            if not was_killed:
                seconds[verb] = time.perf_counter() - started
            kills += was_killed
            left = state(index)
            started = time.perf_counter()
            if was_killed and (verb == "sync" or left == before):
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
                seconds[verb] = time.perf_counter() - started
            after = state(index)
            if verb == "remove" and before is not None:
                after = {name: digest for name, digest in before.items() if name not in arguments[1:]}
            elif was_killed and verb == "build" and left is not None:
                # What is there is all that a build of the same documents comes to.
                subprocess.run([*_INDEX, "sync", str(index), "--threads", "1"], check=True, stdout=subprocess.DEVNULL)
                after = state(index)
            ended[f"{verb}: {_ending(was_killed, left, after)}"] += 1
            if left != after and not (was_killed and left == before):
                print(
                    f"after {kills} kills, in {verb}: {len(left or {})} documents, neither the {len(before or {})} before nor the {len(after or {})} after"
                )
                return 1
            if (
                was_killed
                and kills % _COMPARED == 0
                and not _equal_to_anew(engine, folder, index, Path(temporary) / "anew")
            ):
                print(f"after {kills} kills: searches differ from those of an index that is built anew")
                return 1
    for name, count in sorted(ended.items()):
        print(f"{name:<50} {count:>4}")
    print(
        f"{kills} kills, nothing lost, nothing twice, nothing between; compared with a clean build {kills // _COMPARED} times"
    )
    return 0


def state(directory: Path) -> State | None:
    """Return the documents of an index with their digests, None if there are none or it was not built to its end."""
    try:
        index = PassageIndex(directory)
    except StoreError:
        return None
    index.verify()
    entries = [*index.entries()]
    documents = {entry.id: str(entry.digest) for entry in entries}
    ids = [passage.id for passage in index.passages(range(len(index)))]
    if len(ids) != len(set(ids)) or len(documents) != len(entries):
        raise SystemExit(f"{directory} has documents twice")
    index.close()
    return documents or None


def _change(draw: random.Random, folder: Path, index: Path, there: State | None) -> tuple[str, list[str]]:
    """Change documents, or choose some to remove, and return the command that follows."""
    verb = "build" if there is None else draw.choice(("build", "sync", "sync", "remove"))
    if verb == "build":  # anew
        shutil.rmtree(index, ignore_errors=True)
        return verb, [str(index), "--docs", str(folder)]
    if verb == "remove" and there:
        return verb, [str(index), *draw.sample(sorted(there), min(3, len(there)))]
    texts = sorted(path for path in folder.rglob("*.md"))
    for path in draw.sample(texts, min(3, len(texts))):
        path.write_text(f"{path.read_text()}\n\nSeen again on day {draw.randrange(10**6)}.\n")
    new = folder / f"note-{draw.randrange(10**6)}.md"
    new.write_text(f"# Note {draw.randrange(100)}\n\nThe Marigold Tern passed by {draw.randrange(10**6)} times.\n")
    notes = sorted(folder.glob("note-*.md"))
    if len(notes) > 5:
        draw.choice(notes).unlink()
    return "sync", [str(index)]


def _ending(was_killed: bool, left: State | None, after: State | None) -> str:
    if not was_killed:
        return "came to its end first"
    if left == after:
        return "killed when all was there"
    return "killed before anything was there" if left is None else "killed, as it was before"


def _equal_to_anew(engine: pytrace.Engine, folder: Path, directory: Path, clean: Path) -> bool:
    """Bring the index up to date and compare searches with those of one that is built anew of the same documents."""
    for target in (directory, clean):
        if target is clean:
            shutil.rmtree(clean, ignore_errors=True)
        verb = ["sync", str(target)] if target is directory else ["build", str(target), "--docs", str(folder)]
        command = [*_INDEX, *verb, "--threads", "1"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    if state(directory) != state(clean):
        return False
    found = zip(_found(directory, engine, _QUESTIONS), _found(clean, engine, _QUESTIONS), strict=True)
    return all(
        one.keys() == other.keys() and all(abs(score - other[name]) < _TOLERANCE for name, score in one.items())
        for one, other in found
    )


def _found(directory: Path, engine: pytrace.Engine, questions: Sequence[str]) -> list[dict[str, float]]:
    """Return the documents of the first passages of each question, with the scores of the best."""
    index = PassageIndex.open(directory, engine.encoder)
    rankings = HopSearch(index, engine.encoder).search(questions, 10)
    found: list[dict[str, float]] = []
    for each in rankings:
        scores: dict[str, float] = {}
        for row, score in zip(each.rows, each.scores, strict=True):
            if score >= _TOLERANCE:
                scores.setdefault(index.passage(row).id, score)
        found.append(scores)
    return found


if __name__ == "__main__":
    sys.exit(main())
