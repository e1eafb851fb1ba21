"""Questions that the answer extractor learns from: read with what a search finds for them, with their own passages, and with none that answers."""

from __future__ import annotations

import gzip
import hashlib
import json
import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytrace
from benches.hops_sets import index_passages
from pytrace.documents import read_documents
from pytrace.methods.hops import Hops, HopsSettings
from pytrace.records import Document, Evidence
from pytrace.retrieval.hops import HopSearch
from pytrace.retrieval.passages import PassageIndex
from pytrace.retrieval.searching import Found

# Data sets whose questions are searched for in one corpus of all their passages, and how many questions of each.
SEARCHED = {"hotpot": 1000, "2wiki": 1000, "musique": 1000, "squad": 300, "qed": 300, "newwiki": 200}
_SOURCES = {
    "hotpot": ("hotpot-dev",),
    "2wiki": ("2wiki", "2wiki-dev"),
    "musique": ("musique", "musique-dev"),
    "squad": ("squad2",),
    "qed": ("qed",),
    "newwiki": ("squadshifts-new_wiki",),
}
_ONE_HOP = ("squad", "qed", "newwiki")
# Questions that are read with their own passages, of each source; all of the others.
_WITH_PASSAGES = {
    "qamr": 5000,
    "squad2": 1500,
    "squadshifts-new_wiki": 1200,
    "qed": 1000,
    "policyqa": 500,
    "squadshifts-reddit": 400,
    "squadshifts-amazon_reviews": 400,
    "covid-qa": 0,
}
_MAX_CHARACTERS = 9000  # of a question's own passages
_FOREIGN = 120  # questions of each set of several hops that are asked of a corpus without their passages
_TOGETHER = 32
_TITLED = re.compile(r"\[([^\]]*)\]\s*(.*)", re.DOTALL)


Wanted = Callable[[dict[str, Any]], bool]
"""Says whether a row of the training data is wanted."""


class Example(NamedTuple):
    """A question with its answers, and the evidence that it is read from; no answers where the evidence does not have it."""

    question: str
    answers: tuple[str, ...]
    evidence: Evidence
    set: str


def training_rows(data: Path) -> list[dict[str, Any]]:
    """Read the training questions."""
    with gzip.open(data / "train" / "reading.jsonl.gz", "rt", encoding="utf-8") as stream:
        return [json.loads(line) for line in stream]


def answers_of(row: dict[str, Any]) -> tuple[str, ...]:
    if row["kind"] != "span":
        return (row["kind"],)
    return tuple(dict.fromkeys(row["passages"][passage][start:end] for passage, start, end in row["spans"]))


def write_folders(data: Path, work: Path, wanted: Wanted = lambda _: True) -> None:
    """Write a folder of passages and questions for each set, as those of open corpora are; of wanted questions alone."""
    rows = [row for row in training_rows(data) if wanted(row)]
    shuffler = random.Random(1)
    for name, sources in _SOURCES.items():
        mine = [row for row in rows if row["source"] in sources and row["kind"] != "none"]
        shuffler.shuffle(mine)
        corpus: dict[str, dict[str, str]] = {}
        questions = []
        for row in mine[: 2 * SEARCHED[name]]:
            ids = [_add(passage, corpus) for passage in (*row["passages"], *row["other_passages"])]
            gold = ids[: len(row["passages"])]
            questions.append({"question": row["question"], "answers": answers_of(row), "gold": gold})
        _write(work / name, corpus.values(), questions)
    with gzip.open(data / "train" / "passages.jsonl.gz", "rt", encoding="utf-8") as stream:
        extra = [json.loads(line) for line in stream]
    _write(work / "extra", [{key: row[key] for key in ("id", "title", "text")} for row in extra], [])


def _add(passage: str, corpus: dict[str, dict[str, str]]) -> str:
    match = _TITLED.fullmatch(passage)
    title, text = (match[1], match[2]) if match else ("", passage)
    name = hashlib.sha256(passage.encode()).hexdigest()[:12]
    if text.strip():
        corpus[name] = {"id": name, "title": title, "text": text}
    return name


def _write(folder: Path, corpus: Iterable[dict[str, str]], questions: Iterable[dict[str, Any]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "corpus.jsonl").write_text("\n".join(map(json.dumps, corpus)), "utf-8")
    (folder / "questions.jsonl").write_text("\n".join(map(json.dumps, questions)), "utf-8")


def questions_of(folder: Path, limit: int | None = None) -> list[dict[str, Any]]:
    lines = (folder / "questions.jsonl").read_text("utf-8").splitlines()
    rows = [json.loads(line) for line in lines[:limit]]
    return [{"answers": [row.get("answer")], **row} for row in rows]


def index_of(work: Path, name: str, folders: Sequence[Path], engine: pytrace.Engine) -> PassageIndex:
    """Index the passages of folders, each once; what was indexed before is not embedded again."""

    def passages() -> Iterator[Document]:
        known: set[str] = set()
        for folder in folders:
            for passage in read_documents(folder / "corpus.jsonl"):
                if passage.id not in known:
                    known.add(passage.id)
                    yield passage

    return index_passages(passages(), work / f"{name}.index", engine)


def searched(
    index: PassageIndex, rows: Sequence[dict[str, Any]], engine: pytrace.Engine, name: str, *, foreign: bool = False
) -> Iterator[Example]:
    """Yield questions with the evidence that the method `hops` reads; without answers if the corpus is foreign to them."""
    search = HopSearch(index, engine.encoder)
    found: list[Found] = []
    method = Hops(engine.model, HopsSettings(reading="span"), hops=lambda _, __: found)
    for start in range(0, len(rows), _TOGETHER):
        some = rows[start : start + _TOGETHER]
        questions = [row["question"] for row in some]
        found[:] = []
        for ranking in search.search(questions, 20):
            listed = dict.fromkeys([*ranking.rows, *(row for chain in ranking.chains for row in chain.rows)])
            found.append(Found(ranking, dict(zip(listed, index.passages(list(listed)), strict=True))))
        for row, evidence in zip(some, method.select(questions, [()] * len(some)), strict=True):
            yield Example(row["question"], () if foreign else tuple(row["answers"]), evidence, name)


def train_examples(
    data: Path, work: Path, engine: pytrace.Engine, wanted: Wanted = lambda _: True
) -> Iterator[Example]:
    """Yield all examples that are learned from: those of wanted questions, searched for among their passages and others."""
    if not (work / "extra").exists():
        write_folders(data, work, wanted)
    folders = [work / name for name in SEARCHED]
    everything = index_of(work, "train", [*folders, work / "extra"], engine)
    for name, limit in SEARCHED.items():
        yield from searched(everything, questions_of(work / name, limit), engine, name)
    yield from _with_own_passages(data, wanted)
    others = index_of(work, "one-hop", [work / name for name in _ONE_HOP], engine)
    for name in ("hotpot", "2wiki", "musique"):
        rows = questions_of(work / name)[-_FOREIGN:]
        yield from searched(others, rows, engine, f"{name}, foreign", foreign=True)
    several = index_of(work, "hotpot", [work / "hotpot"], engine)
    for name in _ONE_HOP:
        rows = questions_of(work / name)[-_FOREIGN:]
        yield from searched(several, rows, engine, f"{name}, foreign", foreign=True)


def _with_own_passages(data: Path, wanted: Wanted) -> Iterator[Example]:
    """Yield questions with their own passages and up to two others, in any order, as methods without a search have them."""
    rows = [row for row in training_rows(data) if wanted(row)]
    shuffler = random.Random(5)
    shuffler.shuffle(rows)
    counts: dict[str, int] = {}
    for row in rows:
        source = row["source"]
        counts[source] = counts.get(source, 0) + 1
        if row["kind"] == "none" or counts[source] > _WITH_PASSAGES.get(source, len(rows)):
            continue
        others = list(row["other_passages"])
        shuffler.shuffle(others)
        texts = [*row["passages"], *others[: shuffler.choice((0, 0, 1, 2))]]
        shuffler.shuffle(texts)
        if sum(map(len, texts)) <= _MAX_CHARACTERS:
            evidence = Evidence("documents", tuple(texts), tuple(map(str, range(len(texts)))))
            yield Example(row["question"], answers_of(row), evidence, f"{source}, own passages")
