"""What open heads keep of a title that is missing: triples by rule and their chains, with titles, file names and open heads.

    python -m benches.open_heads --data PATH/multihop/advhotpot10-dev.jsonl [--limit N]
    python -m benches.open_heads --data PATH/open/2wiki [--limit N]
    python -m benches.open_heads --long PATH/long/loogle.jsonl

`--data` has questions with their documents, or a folder of `corpus.jsonl` and `questions.jsonl`, of which a question gets its gold
documents and those nearest by words, 10 together. Then each document's title is taken away: it is called "note 1", "note 2", … as
files are. Printed are the shares of heads that are the true title, or hold it or a word-for-word part of it, the shares of the
supporting documents and facts that the chains come from, and of the answers (yes and no apart) that stand in their triples.

`--long` has long texts with questions and their evidence: the share of questions all of whose evidence passages the chains of 20
passages name among their first 5 and 10, and the mean share.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from benches.passages import DEPTHS, evidence_passages, questions_of
from pytrace.documents import read_documents
from pytrace.engine import load
from pytrace.engine.corpus import Corpus
from pytrace.engine.loading import Engine
from pytrace.evaluation.data.datasets import read_questions
from pytrace.methods.abilities import UNABLE
from pytrace.methods.catalog import make_method
from pytrace.reader.answers import normalise_answer
from pytrace.records import Chain, Document, Origin, Question
from pytrace.retrieval import make_retriever
from pytrace.triples.extraction import Heads, PhraseExtractor

POOL = 10
# The tiny profile's: chains of two documents, found by the encoder and by named heads.
SETTINGS = ("unit=triple", "extraction=phrases")


def questions(path: Path, limit: int | None) -> Iterator[Question]:
    """Read questions with their documents."""
    if path.is_file():
        yield from read_questions(path, limit=limit)
        return
    documents = {document.id: document for document in read_documents(path / "corpus.jsonl", words=10_000)}
    rows = [json.loads(line) for line in (path / "questions.jsonl").read_text("utf-8").splitlines()[:limit]]
    found = make_retriever("bm25", list(documents.values()), None).retrieve([row["question"] for row in rows], POOL)
    for row, hits in zip(rows, found, strict=True):
        ids = list(dict.fromkeys([*row["gold"], *(hit.document.id for hit in hits)]))[: max(POOL, len(row["gold"]))]
        facts = tuple((id, index) for id, index in row.get("supporting_facts", ()))
        read = tuple(documents[id] for id in sorted(ids) if id in documents)
        yield Question(row["id"], row["question"], tuple(row["answers"]), read, tuple(row["gold"]), facts)


def untitled(documents: Sequence[Document]) -> list[Document]:
    """Take the titles of documents away."""
    names = [f"note {number}" for number in range(1, len(documents) + 1)]
    return [
        Document(one.id, name, one.sentences, origin=Origin(one.id, name, titled=False))
        for one, name in zip(documents, names, strict=True)
    ]


def search(asked: Question, documents: list[Document], engine: Engine, heads: Heads, *, chains: int = 1) -> list[Chain]:
    """Search chains of triples by rule."""
    settings = [*SETTINGS, f"heads={heads}", f"chains={chains}", f"width={max(8, chains)}"]
    method = make_method("trace", engine.model, lambda: engine.encoder, UNABLE, settings)
    (evidence,) = method.select([asked.question], [documents])
    return list(evidence.chains)


def short(path: Path, limit: int | None, engine: Engine) -> None:
    """Compare titles, file names and open heads on documents about one thing."""
    rows = [row for row in questions(path, limit) if row.supporting_documents]
    print(f"{path.name}, {len(rows)} questions")
    print(
        "| heads | triples | are the title | hold it or a part | documents | facts | answers |\n|---|---|---|---|---|---|---|"
    )
    conditions: tuple[tuple[str, Heads], ...] = (("title", "title"), ("file name", "title"), ("open", "open"))
    for name, heads in conditions:
        same, alike = [], []
        found: tuple[list[float], list[float], list[float]] = [], [], []
        for row in rows:
            documents = list(row.documents) if name == "title" else untitled(row.documents)
            for extraction, document in zip(
                PhraseExtractor(heads=heads).extract(documents), row.documents, strict=True
            ):
                title = re.sub(r"\([^()]*\)", "", document.title).strip().casefold()
                for head in (unit.head.casefold() for unit in extraction.units if hasattr(unit, "head")):
                    same.append(head in (title, document.title.casefold()))
                    alike.append(title in head or head in title)
            units = [unit for chain in search(row, documents, engine, heads) for unit in chain.units]
            gold, facts = set(row.supporting_documents), set(row.supporting_facts)
            found[0].append(len(gold & {unit.document_id for unit in units}) / len(gold))
            if facts:
                found[1].append(len(facts & {(unit.document_id, unit.sentence) for unit in units}) / len(facts))
            if row.answers[0].lower() not in ("yes", "no"):
                text = normalise_answer(" ".join(unit.text for unit in units))
                found[2].append(float(any(normalise_answer(answer) in text for answer in row.answers)))
        print(f"| {name} | {len(same)} | {percents([same, alike, *found])} |", flush=True)


def long(path: Path, engine: Engine) -> None:
    """Compare headings or file names with open heads on long documents."""
    shares: dict[Heads, list[list[float]]] = {"title": [], "open": []}
    with tempfile.TemporaryDirectory() as folder:
        for text, pairs in questions_of(path):
            file = Path(folder) / "text.txt"
            file.write_text(text, encoding="utf-8")
            passages = list(read_documents(file))
            for question, evidence in pairs:
                gold = evidence_passages(evidence, passages)
                nearest = Corpus(passages).nearest(question, engine)
                for heads, rows in shares.items() if gold else ():
                    chains = search(Question("", question, ()), nearest, engine, heads, chains=DEPTHS[-1])
                    ids = list(dict.fromkeys(unit.document_id for chain in chains for unit in chain.units))
                    rows.append([len(gold & set(ids[:depth])) / len(gold) for depth in DEPTHS])
    print(
        f"{path.name}, {len(shares['open'])} questions\n| heads | all among 5 | among 10 | mean share, 5 | 10 |\n|---|---|---|---|---|"
    )
    for heads, rows in shares.items():
        columns = list(zip(*rows, strict=True))
        whole = [[share == 1 for share in column] for column in columns]
        print(f"| {heads} | {percents([*whole, *columns])} |")


def percents(columns: Iterable[Sequence[float]]) -> str:
    """Return the means of columns as cells of a table."""
    return " | ".join(f"{100 * statistics.fmean(column):.1f}" if column else "-" for column in columns)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, nargs="*", default=[])
    parser.add_argument("--long", type=Path)
    parser.add_argument("--limit", type=int)
    arguments = parser.parse_args()
    models = load("tiny", threads=1)
    for each in arguments.data:
        short(each, arguments.limit, models)
    if arguments.long is not None:
        long(arguments.long, models)
