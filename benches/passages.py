"""How fast documents are read and cut into passages, and how well the passages of long documents are found.

    python -m benches.passages speed [--pages 1000] [--files 5000]
    python -m benches.passages found --data PATH/long/loogle.jsonl

`speed` writes a PDF of so many pages and so many text files of 10 KB, and reads them with one thread; the memory is that of this process
and of the one that reads the PDF. `found` gives the share of questions all of whose evidence is among the first 5 and 10 passages of
its document, and the mean share of the evidence, by vectors, by words, by both, and by the chains of `trace`. An evidence is the
passage most like it by partial ratio, if that is 70 at least.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from pytrace.documents import read_documents
from pytrace.engine import load
from pytrace.engine.corpus import Corpus
from pytrace.kernels.fuzzy import partial_ratio
from pytrace.records import Document
from pytrace.retrieval import make_retriever

BARS = {"pages": 30.0, "files": 10.0}
DEPTHS = (5, 10)


def prose(draw: random.Random, words: int) -> str:
    """Make text that looks like sentences."""
    vocabulary = [
        f"{a}{b}" for a in ("mar", "sel", "ton", "vi", "ka", "ro") for b in ("de", "lin", "sa", "o", "ter", "n")
    ]
    text = []
    while len(text) < words:
        sentence = [draw.choice(vocabulary) for _ in range(draw.randint(8, 22))]
        text += [sentence[0].title(), *sentence[1:-1], f"{sentence[-1]}."]
    return " ".join(text)


def write_pdf(path: Path, pages: int) -> None:
    """Write pages of two columns with a header, as papers have them."""
    from reportlab.pdfgen.canvas import Canvas

    draw = random.Random(0)
    canvas = Canvas(str(path))
    for page in range(pages):
        canvas.drawString(60, 810, f"Proceedings of the coast, {page + 1}")
        canvas.setFont("Helvetica", 9)
        for column in (60, 310):
            words = iter(prose(draw, 420).split())
            for line in range(56):
                canvas.drawString(column, 780 - 13 * line, " ".join(next(words) for _ in range(7)))
        canvas.showPage()
    canvas.save()


def speed(pages: int, files: int) -> None:
    """Time both kinds of corpus."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_pdf(folder / "papers.pdf", pages)
        (folder / "texts").mkdir()
        draw = random.Random(1)
        for number in range(files):
            (folder / "texts" / f"{number}.txt").write_text(prose(draw, 1_700)[:10_240], encoding="utf-8")
        for what, path, count in (("pages", folder / "papers.pdf", pages), ("files", folder / "texts", files)):
            started = time.perf_counter()
            passages = sum(1 for _ in read_documents(path))
            seconds = time.perf_counter() - started
            own, child = (
                resource.getrusage(who).ru_maxrss / 1024 for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
            )
            print(
                f"{count:,} {what}: {passages:,} passages in {seconds:.1f} s (at most {BARS[what]:g} wanted for "
                f"{1_000 if what == 'pages' else 5_000:,}); {own:.0f} MB here, {child:.0f} MB in the reading process"
            )


def questions_of(path: Path) -> Iterator[tuple[str, list[tuple[str, list[str]]]]]:
    """Iterate over the texts of LooGLE, each with its questions and their evidence."""
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        pairs = json.loads(row["qa_pairs"]) if isinstance(row["qa_pairs"], str) else row["qa_pairs"]
        yield row["input"], [(pair["Q"], pair["S"]) for pair in pairs]


def evidence_passages(evidence: Sequence[str], passages: Sequence[Document]) -> set[str]:
    """Return the passages that hold pieces of evidence."""
    found = set()
    for text in evidence:
        score, passage = max(
            ((partial_ratio(text.casefold(), each.text.casefold()), each) for each in passages),
            key=lambda pair: pair[0],
        )
        if score >= 70:
            found.add(passage.id)
    return found


def found(path: Path) -> None:
    """Measure which passages are found."""
    engine = load("tiny")
    hits: dict[str, list[list[float]]] = {}
    asked = 0
    with tempfile.TemporaryDirectory() as name:
        for text, questions in questions_of(path):
            file = Path(name) / "text.txt"
            file.write_text(text, encoding="utf-8")
            passages = list(read_documents(file))
            corpus = Corpus(passages)
            rankers = {each: make_retriever(each, passages, engine.encoder) for each in ("dense", "bm25", "rrf")}  # type: ignore[arg-type]
            for question, evidence in questions:
                gold = evidence_passages(evidence, passages)
                if not gold:
                    continue
                asked += 1
                ranked = {
                    each: [hit.document.id for hit in ranker.retrieve([question], DEPTHS[-1])[0]]
                    for each, ranker in rankers.items()
                }
                evidence_found = engine.search(question, corpus, chains=DEPTHS[-1]).evidence
                steps = (step for chain in evidence_found.chains for step in chain.steps)
                ranked["hops"] = list(dict.fromkeys(evidence_found.sources[step.source].id for step in steps))
                for each, ids in ranked.items():
                    shares = [len(gold & set(ids[:depth])) / len(gold) for depth in DEPTHS]
                    hits.setdefault(each, []).append(shares)
    print(f"{asked} questions; all evidence among the first {DEPTHS}, mean share of the evidence")
    for each, rows in hits.items():
        whole = [100 * sum(row[at] == 1 for row in rows) / len(rows) for at in range(len(DEPTHS))]
        mean = [100 * sum(row[at] for row in rows) / len(rows) for at in range(len(DEPTHS))]
        print(f"{each:<6}", *(f"{value:5.1f}" for value in (*whole, *mean)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("speed", "found"))
    parser.add_argument("--pages", type=int, default=1_000)
    parser.add_argument("--files", type=int, default=5_000)
    parser.add_argument("--data", type=Path)
    arguments = parser.parse_args()
    if arguments.what == "speed":
        speed(arguments.pages, arguments.files)
    elif arguments.data is None:
        parser.error("found needs --data FILE")
    else:
        found(arguments.data)
