"""The sets that `benches.hops` asks of: passages and questions, with other titles or a letter wrong, and their indexes."""

from __future__ import annotations

import json
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

import pytrace
from pytrace.documents import read_documents
from pytrace.documents.passages import WORDS
from pytrace.engine.named_passages import name_passages
from pytrace.records import Document
from pytrace.retrieval.passages import IndexWriter, PassageIndex
from pytrace.retrieval.passages.segment import document_id
from pytrace.triples.extraction import PhraseExtractor, build_graph
from pytrace.triples.graph import TripleStore

TITLES = ("kept", "three", "note")
"""What stands for titles: what they are, a passage's first three words, or a number."""

_NAME_WORD = re.compile(r"\b[A-Z][a-zA-Z]{4,}\b")


def read_set(path: Path) -> tuple[Iterator[Document], list[dict[str, Any]]]:
    """Read passages and questions: of a folder, or of claims with the sentences of their evidence (WiCE), cut into passages."""
    if path.is_dir():
        questions = [json.loads(line) for line in (path / "questions.jsonl").open(encoding="utf-8")]
        return read_documents(path / "corpus.jsonl"), questions
    passages: list[Document] = []
    questions = []
    known: dict[tuple[str, ...], dict[int, str]] = {}
    for claim in (json.loads(line) for line in path.open(encoding="utf-8")):
        key = tuple(claim["evidence"])
        if key not in known:
            known[key] = _cut(key, f"claim {claim['id']}", passages)
        supporting = min(claim["supporting_sentences"] or [[]], key=len)
        gold = sorted({known[key][number] for number in supporting if number in known[key]})
        if gold and claim["label"] != "not_supported":
            questions.append({"question": claim["claim"], "gold": gold})
    return iter(passages), questions


def _cut(sentences: Sequence[str], name: str, passages: list[Document]) -> dict[int, str]:
    """Add the passages of a web page, and return which one each sentence went to."""
    places: dict[int, str] = {}
    part: list[str] = []
    size = 0
    title = name
    for number, sentence in enumerate(sentences):
        if not sentence.strip():
            continue
        length = len(sentence.split())
        if number == 0 and "TITLE:" in sentence:
            title = sentence.partition("TITLE:")[2].strip()[:120] or name
            continue
        if part and size + length > WORDS:
            passages.append(Document(f"{name} {len(passages)}", title, tuple(part)))
            part, size = [], 0
        part.append(sentence)
        size += length
        places[number] = f"{name} {len(passages)}"
    if part:
        passages.append(Document(f"{name} {len(passages)}", title, tuple(part)))
    return places


def index_passages(passages: Iterable[Document], directory: Path, engine: pytrace.Engine) -> PassageIndex:
    with IndexWriter(directory, engine.encoder, create=True) as writer:
        writer.add(passages)
        writer.remove_unseen()
        changes = writer.commit()
    if changes.encoded:
        print(f"{directory}: {changes.encoded:,} passages encoded", file=sys.stderr, flush=True)
    return PassageIndex.open(directory, engine.encoder)


def retitled(passages: Iterable[Document], titles: str) -> Iterator[Document]:
    number = 0
    last = ""
    for passage in passages:
        if titles == "kept":
            yield passage
            continue
        number += document_id(passage) != last
        last = document_id(passage)
        title = f"note {number}" if titles == "note" else " ".join(passage.text.split()[:3])
        origin = passage.origin and msgspec.structs.replace(passage.origin, title=title)
        yield msgspec.structs.replace(passage, title=title, origin=origin)


def index_together(folders: Sequence[Path], titles: str, work: Path, engine: pytrace.Engine) -> PassageIndex:
    """Index the passages of all folders; nothing is encoded again but what has the id of another folder's."""
    directory = work / f"together-{titles}"
    if not directory.exists():
        with IndexWriter(directory, engine.encoder, create=True) as writer:
            for folder in folders:
                kept = work / f"{folder.stem}-{titles}"
                writer.merge(kept if kept.exists() else work / f"{folder.stem}-kept")
            writer.commit()

    def passages() -> Iterator[Document]:
        for folder in folders:
            replaced = titles if (work / f"{folder.stem}-{titles}").exists() else "kept"
            for passage in retitled(read_set(folder)[0], replaced):
                origin = passage.origin and msgspec.structs.replace(
                    passage.origin, document=f"{folder.stem}/{passage.origin.document}"
                )
                yield msgspec.structs.replace(passage, id=f"{folder.stem}/{passage.id}", origin=origin)

    return index_passages(passages(), directory, engine)


def index_with_heads(folder: Path, titles: str, work: Path, engine: pytrace.Engine) -> PassageIndex:
    """Index the same passages, which heads of triples are names of, too; nothing is encoded again."""
    directory = work / f"{folder.stem}-{titles}-heads"
    shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree(work / f"{folder.stem}-{titles}", directory)
    passages = [*retitled(read_set(folder)[0], titles)]
    extractor = PhraseExtractor(heads="open")
    with tempfile.TemporaryDirectory() as place:
        with TripleStore.open(place, recipe=extractor.recipe, mode="create") as graph:
            graph.sync(passages)
            build_graph(graph, extractor)
        return index_passages(name_passages(passages, Path(place)), directory, engine)


def misspelt(question: str, draw: np.random.Generator) -> str:
    """Change a letter within a word that has a capital: leave it out, double its place, put another one, or swap it with the next."""
    names = [match for match in _NAME_WORD.finditer(question) if match.start()]
    if not names:
        return question
    name = names[int(draw.integers(len(names)))]
    at = int(draw.integers(name.start() + 1, name.end() - 1))
    letter = "abcdefghijklmnopqrstuvwxyz"[int(draw.integers(26))]
    here, following = question[at : at + 2]
    wrong = [following, letter + here + following, letter + following, following + here][int(draw.integers(4))]
    return question[:at] + wrong + question[at + 2 :]
