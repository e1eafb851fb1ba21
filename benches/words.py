"""Words of an index by pytrace, SQLite's FTS5, tantivy and bm25s: building, disk, changes, opening, questions, ranks.

    pip install --group bench-words
    python -m benches.words [--passages 10000 100000 1000000] [--only pytrace tantivy] [--seed 0]

Texts have 120 words on average, of a Zipf-Mandelbrot vocabulary as skewed as English, and a name of two rare words that comes again;
questions have 8 to 12 words, five of them among the 15 most frequent. All sides get the same texts, one thread, and files. `add` and
`remove` are one passage until it is safe on the disk. `open` is until the first question could be asked, with warm files.

`top 10` is the share of the ten best passages that are pytrace's too, at the side's own k1 and b. bm25s takes any; tantivy has 1.2 and 0.75
and rounds lengths to 8 bits; FTS5 has the same two and another inverse document frequency, so it cannot agree.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import shutil
import sqlite3
import statistics
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pytrace.retrieval.bm25 import words
from pytrace.retrieval.word_index import WordIndex
from pytrace.retrieval.word_postings import WordBlocks, build_words, merge_words
from pytrace.storage.array_file import ArrayFile, write_arrays
from pytrace.storage.files import replace_file

VOCABULARY = 1_000_000
QUESTIONS = 50
REPEATS = 5
ONSETS = ["b", "c", "d", "f", "g", "h", "j", "k", "l", "m", "n", "p", "r", "s", "t", "v", "w", "br", "ch", "cr", "dr"]
ONSETS += ["fl", "gr", "pl", "sh", "st", "th", "tr"]
SYLLABLES = [onset + vowel for vowel in ("ea", "ai", "oo", "ie", "ou", "au", "io", "ee") for onset in ONSETS]


def word(rank: int) -> str:
    """Return the word of a rank; frequent ones are short."""
    syllables = []
    rank += 1
    while rank:
        rank, number = divmod(rank - 1, len(SYLLABLES))
        syllables.append(SYLLABLES[number])
    return "".join(syllables)


def make_texts(count: int, vocabulary: Sequence[str], seed: int) -> Iterator[str]:
    """Make passages."""
    draw = np.random.default_rng(seed)
    # With these two numbers the n-th word is as frequent as in paragraphs of Wikipedia, within a factor of two, to the 10,000th.
    cumulated = np.cumsum(1 / (np.arange(VOCABULARY) + 2.5) ** 1.2)
    cumulated /= cumulated[-1]
    for first in range(0, count, 10_000):
        lengths = draw.integers(76, 157, min(10_000, count - first))
        ranks = iter(np.searchsorted(cumulated, draw.random(int(lengths.sum()))).tolist())
        names = np.exp(draw.uniform(np.log(2_000), np.log(VOCABULARY), (len(lengths), 2))).astype(int).tolist()
        for length, pair in zip(lengths.tolist(), names, strict=True):
            body = " ".join([vocabulary[next(ranks)] for _ in range(length)])
            given, family = (vocabulary[rank].title() for rank in pair)
            yield f"{given} {family} {body}, {family}."


def make_questions(vocabulary: Sequence[str], seed: int) -> list[str]:
    """Make questions."""
    draw = random.Random(seed)
    return [
        " ".join(
            draw.sample(vocabulary[:15], 5)
            + [vocabulary[int(20 * 10_000 ** draw.random())] for _ in range(draw.randint(3, 7))]
        )
        for _ in range(QUESTIONS)
    ]


class Side(ABC):
    """A library: what it makes of texts in a folder, and what it finds there. `settings` are its k1 and b."""

    settings: tuple[float, float] | None = None

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @abstractmethod
    def build(self, texts: Sequence[str]) -> None: ...

    @abstractmethod
    def open(self) -> None: ...

    @abstractmethod
    def top(self, question: str) -> list[int]: ...

    def add(self, _row: int, _text: str) -> None:
        raise NotImplementedError

    def remove(self, _row: int, _text: str) -> None:
        raise NotImplementedError


class Pytrace(Side):
    """Segments of arrays; a removed row is a bit of one file."""

    settings = (0.9, 0.4)

    def build(self, texts: Sequence[str]) -> None:
        write_arrays(self.folder / "0.words", build_words(texts))

    def open(self, k1: float = 0.9, b: float = 0.4) -> None:
        segments: list[tuple[WordBlocks, Any]] = []
        for path in sorted(self.folder.glob("*.words")):
            file = ArrayFile.open(path, what="the bench", remedy="run it again")
            live = path.with_suffix(".live")
            blocks = WordBlocks(file)
            bits = np.fromfile(live, dtype=np.uint8) if live.exists() else None
            segments.append((blocks, None if bits is None else np.unpackbits(bits, count=blocks.rows).astype(bool)))
        self.index = WordIndex(segments, k1=k1, b=b)

    def top(self, question: str) -> list[int]:
        rows: list[int] = self.index.top([question], 10, threads=1)[1][0].tolist()
        return rows

    def add(self, row: int, text: str) -> None:
        write_arrays(self.folder / f"{row}.words", build_words([text]))

    def remove(self, row: int, _text: str) -> None:
        path = self.folder / "0.live"
        rows = len(ArrayFile.open(self.folder / "0.words", what="the bench", remedy="")["words.lengths"])
        bits = np.fromfile(path, dtype=np.uint8) if path.exists() else np.packbits(np.ones(rows, dtype=bool))
        bits[row >> 3] &= 0xFF ^ (0x80 >> (row & 7))
        replace_file(path, bits.tobytes())


class Fts5(Side):
    """A table without content. It needs detail=full: with less, bm25() is 0 where there is no content."""

    def build(self, texts: Sequence[str]) -> None:
        self.deletes = sqlite3.sqlite_version_info >= (3, 43)
        self._connect()
        options = "content='', contentless_delete=1" if self.deletes else "content=''"
        with self.connection:
            self.connection.execute(f"CREATE VIRTUAL TABLE passages USING fts5(text, {options})")
            self.connection.executemany("INSERT INTO passages(rowid, text) VALUES (?, ?)", enumerate(texts))
        with self.connection:
            self.connection.execute("INSERT INTO passages(passages) VALUES ('optimize')")
        self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def open(self) -> None:
        self.connection.close()
        self._connect()
        self.connection.execute("SELECT rowid FROM passages WHERE passages MATCH 'none'").fetchall()

    def top(self, question: str) -> list[int]:
        query = "SELECT rowid FROM passages WHERE passages MATCH ? ORDER BY rank LIMIT 10"
        return [row for [row] in self.connection.execute(query, [" OR ".join(dict.fromkeys(question.split()))])]

    def add(self, row: int, text: str) -> None:
        with self.connection:
            self.connection.execute("INSERT INTO passages(rowid, text) VALUES (?, ?)", (row, text))

    def remove(self, row: int, text: str) -> None:
        with self.connection:
            if self.deletes:
                self.connection.execute("DELETE FROM passages WHERE rowid = ?", (row,))
            else:  # the text must be given again
                self.connection.execute(
                    "INSERT INTO passages(passages, rowid, text) VALUES ('delete', ?, ?)", (row, text)
                )

    def _connect(self) -> None:
        self.connection = sqlite3.connect(self.folder / "words.db")
        self.connection.execute("PRAGMA journal_mode = WAL").fetchall()


class Tantivy(Side):
    """A field of counts without positions, and the row's number."""

    settings = (1.2, 0.75)

    def build(self, texts: Sequence[str]) -> None:
        import tantivy

        builder = tantivy.SchemaBuilder()
        builder.add_text_field("text", stored=False, index_option="freq")
        builder.add_integer_field("row", indexed=True, fast=True)
        self.index = tantivy.Index(builder.build(), path=str(self.folder))
        self.writer = self.index.writer(heap_size=256_000_000, num_threads=1)
        for row, text in enumerate(texts):
            self.writer.add_document(tantivy.Document(text=text, row=row))
        self.writer.commit()
        self.writer.wait_merging_threads()
        self.writer = self.index.writer(heap_size=64_000_000, num_threads=1)

    def open(self) -> None:
        import tantivy

        self.index = tantivy.Index.open(str(self.folder))
        self.searcher = self.index.searcher()

    def top(self, question: str) -> list[int]:
        # Without counting matches, so that it may pass over postings that cannot matter.
        hits = self.searcher.search(self.index.parse_query(question, ["text"]), 10, count=False).hits
        rows: list[int] = self.searcher.fast_field_values("row", [address for _, address in hits])
        return rows

    def add(self, row: int, text: str) -> None:
        import tantivy

        self.writer.add_document(tantivy.Document(text=text, row=row))
        self.writer.commit()

    def remove(self, row: int, _text: str) -> None:
        self.writer.delete_documents_by_term("row", row)
        self.writer.commit()


class Bm25s(Side):
    """Scores computed beforehand, all of them again when a passage comes or goes."""

    settings = (0.9, 0.4)

    def build(self, texts: Sequence[str]) -> None:
        import bm25s

        numbers: dict[str, int] = {}
        rows = [[numbers.setdefault(word, len(numbers)) for word in words(text)] for text in texts]
        index = bm25s.BM25(k1=0.9, b=0.4, method="lucene", backend="numpy", csc_backend="numpy")
        index.index((rows, numbers), create_empty_token=False, show_progress=False)
        index.save(self.folder)

    def open(self) -> None:
        import bm25s

        self.index = bm25s.BM25.load(self.folder, mmap=True)

    def top(self, question: str) -> list[int]:
        known = [self.index.vocab_dict[word] for word in words(question) if word in self.index.vocab_dict]
        scores = self.index.get_scores_from_ids(known)
        best = np.argpartition(scores, -10)[-10:]
        rows: list[int] = best[np.lexsort((best, -scores[best]))].tolist()
        return rows


SIDES: dict[str, type[Side]] = {"pytrace": Pytrace, "fts5": Fts5, "tantivy": Tantivy, "bm25s": Bm25s}


def seconds(call: Callable[..., object], *arguments: object) -> float:
    """Time a call."""
    started = time.perf_counter()
    call(*arguments)
    return time.perf_counter() - started


def changes(side: Side, texts: Sequence[str]) -> list[str]:
    """Time additions and removals."""
    try:
        added = [seconds(side.add, len(texts) + number, texts[number]) for number in range(REPEATS)]
        removed = [seconds(side.remove, number * 7, texts[number * 7]) for number in range(REPEATS)]
    except NotImplementedError:
        return ["all again"] * 2
    return [f"{1e3 * statistics.median(times):.1f} ms" for times in (added, removed)]


def agreement(side: Side, ours: Pytrace, questions: Sequence[str], found: Sequence[list[int]]) -> str:
    """Return which share of a side's ten best are pytrace's at the same settings."""
    if side.settings is None:
        return "-"
    ours.open(*side.settings)
    shares = [len(set(rows) & set(ours.top(question))) / 10 for question, rows in zip(questions, found, strict=True)]
    return f"{100 * statistics.mean(shares):.1f} %"


def bench(count: int, names: Sequence[str], seed: int, folder: Path) -> None:
    """Build, ask and change every side, and print a row for each."""
    vocabulary = [word(rank) for rank in range(VOCABULARY)]
    texts = list(make_texts(count, vocabulary, seed))
    size = sum(map(len, texts)) / count
    questions = make_questions(vocabulary, seed)
    print(f"\n{count:,} passages of {size:.0f} bytes\n", flush=True)
    print(
        "| | build | passages/s | bytes/passage | open | question (median) | 95 % | after changes | add | remove | top 10 |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    reference = Pytrace(folder / "reference")
    reference.folder.mkdir()
    reference.build(texts)
    for name in names:
        (folder / name).mkdir()
        side = SIDES[name](folder / name)
        try:
            built = seconds(side.build, texts)
        except ImportError as error:
            print(f"| {name} | {error} |")
            continue
        disk = sum(path.stat().st_size for path in side.folder.rglob("*")) / count
        opened = statistics.median(seconds(side.open) for _ in range(REPEATS))
        for question in questions[:5]:
            side.top(question)
        found = [side.top(question) for question in questions]
        times = sorted(1e3 * seconds(side.top, question) for question in questions)
        added, removed = changes(side, texts)
        side.open()
        side.top(questions[0])
        after = statistics.median(1e3 * seconds(side.top, question) for question in questions)
        print(
            f"| {name} | {built:.1f} s | {count / built:,.0f} | {disk:.0f} | {1e3 * opened:.1f} ms | {statistics.median(times):.2f} ms | "
            f"{times[int(0.95 * len(times))]:.2f} ms | {after:.2f} ms | {added} | {removed} | "
            f"{agreement(side, reference, questions, found)} |",
            flush=True,
        )
        del side
        shutil.rmtree(folder / name)
    blocks = reference.folder / "0.words"
    file = ArrayFile.open(blocks, what="the bench", remedy="run it again")
    halves = [file] * 2
    live = np.random.default_rng(seed).random(count) < 0.95
    merged = seconds(merge_words, [(half, live) for half in halves])
    print(f"\npytrace merges {2 * count / merged:,.0f} passages a second, of two segments with 5 % of the rows dead")
    shutil.rmtree(reference.folder)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passages", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--only", nargs="+", choices=list(SIDES), default=list(SIDES))
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    print(
        f"Python {platform.python_version()}, NumPy {np.__version__}, SQLite {sqlite3.sqlite_version}, {os.cpu_count()} cores, seed "
        f"{arguments.seed}; one thread a side"
    )
    for passages in arguments.passages:
        with tempfile.TemporaryDirectory() as name:
            bench(passages, arguments.only, arguments.seed, Path(name))
