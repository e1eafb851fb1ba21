"""The demo: the documents beside this file are indexed, searched and asked, on the tiny local models.

Run it with `make demo`.
"""

from __future__ import annotations

import json
import math
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

import pytrace
from pytrace.documents import ReadReport
from pytrace.retrieval.passages import IndexWriter

HERE = Path(__file__).parent
DOCUMENTS = HERE / "docs"
RULER = "-" * 100
# Of the passages that a search ranks, so many are looked at.
FIRST = 5
# The question whose chain is shown, and which is answered, too, as are those behind it: the smallest of models answers few of the rest.
QUESTION = "Who founded the foundry that cast the bell of the Lady Addle?"
ANSWERED = (
    QUESTION,
    "On which islands was the astronomer born who led the repair of the Long Eye?",
    "In which year was the treaty signed that is named after the village of the Lamp Walk?",
)


def build(directory: str, engine: pytrace.Engine) -> pytrace.Corpus:
    """Index the documents, then once more, when nothing has changed."""
    report, start = ReadReport(), perf_counter()
    corpus = pytrace.Corpus.build(directory, DOCUMENTS, engine, report=report)
    seconds = perf_counter() - start
    print(f"{report.documents} documents of examples/docs indexed, {len(corpus)} passages, in {seconds:.1f} s")
    for skipped in report.skipped:
        print(f"  passed over {skipped.source}: {skipped.reason}")
    start = perf_counter()
    with IndexWriter(directory, engine.encoder) as writer:
        writer.add(pytrace.read_documents(DOCUMENTS))
        changes = writer.commit()
    seconds = perf_counter() - start
    print(f"Once more: {changes.unchanged} unchanged, {changes.encoded} passages encoded, in {seconds:.1f} s\n")
    return corpus


def search(rows: list[dict[str, Any]], corpus: pytrace.Corpus, engine: pytrace.Engine) -> None:
    """Search for each question, and count the supporting documents among the first passages."""
    print(f"{RULER}\nSearch across documents, no language model: supporting documents among the first {FIRST} passages")
    for row in rows:
        start = perf_counter()
        passages = corpus.nearest(row["question"], engine, FIRST)
        milliseconds = 1000 * (perf_counter() - start)
        found = {passage.id if passage.origin is None else passage.origin.document for passage in passages}
        print(f"{len(found & {*row['gold']})} of {len(row['gold'])} in {milliseconds:3.0f} ms  {row['question']}")


def show(evidence: pytrace.Evidence, passages: dict[str, pytrace.Document]) -> None:
    """Print the chains of evidence: each step's title and sentence, and where it stands."""
    for number, chain in enumerate(evidence.chains, 1):
        print(f"Chain {number} (probability {math.exp(chain.score):.3f})")
        for step, unit in enumerate(chain.units, 1):
            passage = passages[unit.document_id]
            where = passage.citation(unit.sentence).removeprefix(f"{HERE}/")
            print(f'  {step}. {passage.title}: "{passage.sentences[unit.sentence]}"\n     from {where}')


def main() -> int:
    """Index, search and ask, and say what to type next."""
    engine = pytrace.load()
    rows = [json.loads(line) for line in (HERE / "questions.jsonl").read_text(encoding="utf-8").splitlines()]
    with tempfile.TemporaryDirectory() as directory:
        corpus = build(directory, engine)
        passages = {passage.id: passage for passage in corpus}
        search(rows, corpus, engine)
        print(f"\nThe best chain for: {QUESTION}")
        show(corpus.search(QUESTION, engine, chains=1)[0], passages)
        for row in (row for row in rows if row["question"] in ANSWERED):
            start = perf_counter()
            answer = engine.ask(row["question"], corpus, method="trace-doc")
            print(f"{RULER}\nQuestion: {row['question']}")
            print(f"Answer: {answer.text} ({perf_counter() - start:.1f} s)\nExpected: {row['answers'][0]}")
            for place in answer.places[:1]:
                before, words, behind = place.cut(passages[place.document_id])
                print(f'Stands in {passages[place.document_id].title}: "{before}**{words}**{behind}"')
            print()
            show(answer.evidence, passages)
    used = engine.model.usage
    print(
        f"{RULER}\n{used.prompt_tokens} prompt tokens were asked for and {used.evaluated_tokens} evaluated "
        f"({used.generated_tokens} of them generated), in {used.seconds:.1f} s; models on this machine only.\n\n"
        "Next, ask your own (docs/documents.md has the formats):\n"
        "  .venv/bin/pytrace index build runs/tamarrow.index --docs examples/docs\n"
        f'  .venv/bin/pytrace ask "{QUESTION}" --index runs/tamarrow.index --method trace-doc --explain\n'
        "  .venv/bin/pytrace kg build --docs examples/docs --out runs/tamarrow\n"
        "  .venv/bin/pytrace doctor"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
