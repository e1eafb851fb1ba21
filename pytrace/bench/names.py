"""Names in texts beside Aho-Corasick automata: every name and its place is the same before time is taken."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from pytrace.bench.context import Bench, Contest, require
from pytrace.bench.measurements import Row, Sweep, Work
from pytrace.bench.stopwatch import Call
from pytrace.kernels.names import FoundNames, NameTable

WORDS, VOCABULARY = 120, 50_000
# Names of a quarter of the rows are taken from the texts, so that some are found.
TAKEN = 4


class Task(NamedTuple):
    """A table of names, the same names sorted, and texts."""

    table: NameTable
    names: list[str]
    texts: list[str]

    @staticmethod
    def random(random: np.random.Generator, names: int, texts: int) -> Task:
        """Draw texts of words as frequent as Zipf's law has them, and names of one to four words."""
        letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
        vocabulary = ["".join(random.choice(letters, random.integers(2, 10))) for _ in range(VOCABULARY)]
        chances = 1 / np.arange(1, VOCABULARY + 1)
        words = random.choice(VOCABULARY, (texts, WORDS), p=chances / chances.sum())
        listed = set()
        for row in range(names):
            length = int(random.integers(1, 5))
            if row % TAKEN == 0:
                start = int(random.integers(WORDS - length))
                numbers = words[random.integers(texts), start : start + length + 1]
            else:
                numbers = random.integers(0, VOCABULARY, length)
            listed.add(" ".join(vocabulary[number] for number in numbers))
        lines = [" ".join(vocabulary[number] for number in line) for line in words]
        return Task(NameTable.build(sorted(listed))[0], sorted(listed), lines)

    @property
    def work(self) -> Work:
        """The texts' bytes, read once, and their words."""
        return Work(float(sum(map(len, self.texts))), float(len(self.texts) * WORDS), "word")


def ours(task: Task) -> FoundNames:
    """Look all texts up."""
    return task.table.find(task.texts)


def places(task: Task, found: FoundNames) -> list[list[tuple[str, int]]]:
    """List the names in each text with their first words."""
    matches = [
        (task.table.name(row), start) for row, start in zip(found.names.tolist(), found.starts.tolist(), strict=True)
    ]
    return [matches[begin:end] for begin, end in zip(found.offsets[:-1], found.offsets[1:], strict=True)]


def plain_places(task: Task) -> list[list[tuple[str, int]]]:
    """List the same with a set of names, trying the longest run of words first."""
    known, longest = set(task.names), max(name.count(" ") + 1 for name in task.names)
    found = []
    for text in task.texts:
        words, start, matches = text.split(" "), 0, []
        while start < len(words):
            runs = (words[start : start + length] for length in range(longest, 0, -1))
            name = next((run for run in map(" ".join, runs) if run in known), None)
            if name is not None:
                matches.append((name, start))
            start += 1 if name is None else name.count(" ") + 1
        found.append(matches)
    return found


def spaced(text: str) -> str:
    """Put a space on both sides of every word: what is found in such texts begins and ends with words."""
    return f" {text.replace(' ', '  ')} "


def verify(task: Task, what: str) -> list[list[tuple[str, int]]]:
    """Compare every name and its place with those that plain Python finds, and return them."""
    expected = plain_places(task)
    require(places(task, ours(task)) == expected, f"{what}: names differ from those that plain Python finds")
    return expected


def require_names(found: list[list[str]], expected: list[list[tuple[str, int]]], what: str) -> None:
    """Compare the names that a peer finds in each text."""
    right = [[name for name, _ in matches] for matches in expected]
    require(found == right, f"{what}: names differ from those that plain Python finds")


def pyahocorasick(task: Task, expected: list[list[tuple[str, int]]], what: str, module: Any) -> dict[str, Call]:
    """Make pyahocorasick's search for all names, its automaton built before, and pick the longest in Python."""
    # `iter_long`, which should pick them, misses some (verified with 2.3.1): it does not go back where a longer name breaks off.
    automaton = module.Automaton()
    for name in task.names:
        automaton.add_word(spaced(name), (len(spaced(name)), name))
    automaton.make_automaton()
    texts = [spaced(text) for text in task.texts]

    def longest(text: str) -> list[str]:
        taken, behind = [], 0
        for start, negated, name in sorted(
            (end + 1 - length, -length, name) for end, (length, name) in automaton.iter(text)
        ):
            if start >= behind:
                taken.append(name)
                behind = start - negated
        return taken

    def search() -> list[list[str]]:
        return [longest(text) for text in texts]

    require_names(search(), expected, f"{what}, pyahocorasick")
    return {"pyahocorasick": search}


def ahocorasick_rs(task: Task, expected: list[list[tuple[str, int]]], what: str, module: Any) -> dict[str, Call]:
    """Make the search of Rust's crate of that name, its automaton built before."""
    automaton = module.AhoCorasick([spaced(name) for name in task.names], matchkind=module.MatchKind.LeftmostLongest)
    texts = [spaced(text) for text in task.texts]

    def search() -> list[list[tuple[int, int, int]]]:
        return [automaton.find_matches_as_indexes(text) for text in texts]

    found = [[task.names[number] for number, _, _ in matches] for matches in search()]
    require_names(found, expected, f"{what}, ahocorasick-rs")
    return {"ahocorasick-rs": search}


def rows(bench: Bench) -> Iterator[Row]:
    """Verify, then time, very many names in many texts, and one short text."""
    random = np.random.default_rng(bench.settings.seed)
    sizes = (1_000, 100) if bench.settings.quick else (100_000, 10_000)
    many = Task.random(random, *sizes)
    question = " ".join(many.texts[0].split(" ")[:15])
    cases = {
        f"{sizes[0]:,} names in {sizes[1]:,} texts of {WORDS} words": (many, 4.0),
        f"{sizes[0]:,} names in a question of 15 words": (many._replace(texts=[question]), None),
    }
    for case, (task, bar) in cases.items():
        expected = verify(task, case)
        peers: dict[str, Call] = {}
        for name, make in (("pyahocorasick", pyahocorasick), ("ahocorasick-rs", ahocorasick_rs)):
            peers |= bench.peers.calls(name, partial(make, task, expected, case))
        extra = {"names found": float(sum(map(len, expected)))}
        work = task.work if len(task.texts) > 1 else None
        yield bench.compare(case, partial(ours, task), peers, bar=bar, work=work, extra=extra)


def sweeps(bench: Bench) -> Iterator[Sweep]:
    """Grow the number of texts: one pass over their words beside a table of names."""
    random = np.random.default_rng(bench.settings.seed)
    sizes = [10**power for power in range(2, 4 if bench.settings.quick else 6)]

    def prepare(size: int) -> Contest:
        task = Task.random(random, 1_000, size)
        verify(task, f"{size:,} texts")
        return Contest(partial(ours, task), {})

    yield bench.sweep("1,000 names", "texts", sizes, prepare, growth=1)
