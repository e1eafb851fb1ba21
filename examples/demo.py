"""The demo: index the documents next to this file, search them, and ask all example questions by the default method.

Run it with `make demo`.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from time import perf_counter

import pytrace
from pytrace.documents import ReadReport
from pytrace.evaluation.scores.metrics import exact_match
from pytrace.retrieval.passages import IndexWriter

HERE = Path(__file__).parent
DOCUMENTS = HERE / "docs"
RULER = "-" * 100
# Passages of a search in which supporting documents are counted.
FIRST = 5
QUESTION = "Who founded the foundry that cast the bell of the Lady Addle?"
TRACED = "On which islands was the astronomer born who led the repair of the Long Eye?"
UNANSWERABLE = "What is the capital of France?"


def build(directory: str, engine: pytrace.Engine) -> pytrace.Corpus:
    """Index the documents, then again, when nothing has changed."""
    report, start = ReadReport(), perf_counter()
    corpus = pytrace.Corpus.build(directory, DOCUMENTS, engine, report=report)
    seconds = perf_counter() - start
    print(f"{report.documents} documents of examples/docs indexed, {len(corpus)} passages, in {seconds:.1f} s")
    for skipped in report.skipped:
        print(f"  skipped {skipped.source}: {skipped.reason}")
    start = perf_counter()
    with IndexWriter(directory, engine.encoder) as writer:
        writer.add(pytrace.read_documents(DOCUMENTS))
        changes = writer.commit()
    seconds = perf_counter() - start
    print(f"Again: {changes.unchanged} unchanged, {changes.encoded} passages embedded, in {seconds:.1f} s\n")
    return corpus


def search(rows: Sequence[dict[str, list[str]]], corpus: pytrace.Corpus, engine: pytrace.Engine) -> None:
    """Search for every question, and count the supporting documents among the first passages."""
    found = wanted = 0
    times = []
    for row in rows:
        start = perf_counter()
        sources = engine.search(str(row["question"]), corpus, passages=FIRST).evidence.sources
        times.append(perf_counter() - start)
        found += len({source.document for source in sources} & {*row["gold"]})
        wanted += len(row["gold"])
    print(RULER)
    print(
        f"Search: {found} of {wanted} supporting documents of {len(rows)} questions are among the first {FIRST} passages; "
        f"median {1000 * median(times):.0f} ms"
    )


def ask(rows: Sequence[dict[str, list[str]]], corpus: pytrace.Corpus, engine: pytrace.Engine) -> None:
    """Ask every question by the default method, and count the right answers."""
    print(f"{RULER}\nAsk: all {len(rows)} example questions, default method, no language model")
    right = given = 0
    times = []
    for row in rows:
        start = perf_counter()
        result = engine.ask(str(row["question"]), corpus)
        times.append(perf_counter() - start)
        is_right = bool(result.answer) and exact_match(result.answer, row["answers"]) == 1
        right += is_right
        given += not result.abstained
        mark = "right" if is_right else "none " if result.abstained else "wrong"
        print(f"  {mark}  {result.answer or 'No answer found':<28} {row['question']}")
        if not is_right:
            print(f"         expected: {row['answers'][0]}")
    print(
        f"{right} of {len(rows)} right, {given - right} wrong, {len(rows) - given} not answered; median {1000 * median(times):.0f} ms"
    )


def show(result: pytrace.Result) -> None:
    """Print an answer with the steps of its first chain."""
    print(RULER)
    print(f"Question: {result.question}")
    if result.abstained:
        print(f"{result.reason} Closest passages: {', '.join(source.title for source in result.evidence.sources)}")
        return
    confidence = "unknown" if result.confidence is None else f"{result.certainty} ({100 * result.confidence:.0f} %)"
    print(f"Answer: {result.answer}\nConfidence: {confidence}")
    for number, step in enumerate(result.evidence.chains[0].steps, 1):
        source = result.evidence.sources[step.source]
        print(f"  {number}. {source.title}  {step.location.removeprefix(f'{HERE}/')}\n     {step.sentence}")


def main() -> int:
    """Index, search and ask, and say what to type next."""
    engine = pytrace.load()
    rows = [json.loads(line) for line in (HERE / "questions.jsonl").read_text(encoding="utf-8").splitlines()]
    with tempfile.TemporaryDirectory() as directory:
        corpus = build(directory, engine)
        search(rows, corpus, engine)
        ask(rows, corpus, engine)
        show(engine.ask(QUESTION, corpus))
        show(engine.ask(UNANSWERABLE, corpus))
        print(f"{RULER}\nThe same documents by TRACE, with the settings for small models (method trace):")
        show(engine.ask(TRACED, corpus, method="trace", min_confidence=0.0))
    print(
        f"{RULER}\nAll of it ran on this machine.\n\n"
        "Next, ask your own (docs/documents.md has the formats):\n"
        "  .venv/bin/pytrace index build runs/tamarrow.index --docs examples/docs\n"
        f'  .venv/bin/pytrace ask "{QUESTION}" --index runs/tamarrow.index\n'
        "  .venv/bin/pytrace doctor"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
