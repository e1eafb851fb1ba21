"""The demo: TRACE answers three questions from the documents beside this file, on the tiny local models.

Run it with `make demo`.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import pytrace

HERE = Path(__file__).parent


def show(answer: pytrace.Answer, corpus: pytrace.Corpus) -> None:
    """Print an answer with its chains: each step's document and sentence."""
    by_id = {document.id: document for document in corpus}
    print(f"Answer: {answer.text}")
    for number, chain in enumerate(answer.evidence.chains, 1):
        print(f"\nChain {number} (probability {math.exp(chain.score):.3f})")
        for step, triple in enumerate(chain.units, 1):
            document = by_id[triple.document_id]
            print(f'  {step}. {document.title}: "{document.sentences[triple.sentence]}"')


def main() -> int:
    """Ask the questions, print answers with chains, and say what to type next."""
    corpus = pytrace.Corpus.read(HERE / "docs")
    engine = pytrace.load()
    rows = [json.loads(line) for line in (HERE / "questions.jsonl").read_text(encoding="utf-8").splitlines()]
    print(f"{len(corpus)} documents of examples/docs, {len(rows)} questions, models on this machine only\n")
    for row in rows:
        print("-" * 100)
        print(f"Question: {row['question']}")
        show(engine.ask(row["question"], corpus, method="trace-doc"), corpus)
        print(f"\nExpected: {row['answers'][0]}")
    used = engine.model.usage
    print("-" * 100)
    print(
        f"{used.prompt_tokens} prompt tokens were asked for and {used.evaluated_tokens} evaluated "
        f"({used.generated_tokens} of them generated), in {used.seconds:.1f} s.\n"
    )
    print(
        "Next, ask your own (text, Markdown, or with the extra `docs` PDF, Word, slides and HTML; docs/documents.md):"
    )
    print(
        '  .venv/bin/pytrace ask "Who founded the company that owns the Marigold Tern?" --docs examples/docs --explain'
    )
    print("  .venv/bin/pytrace kg build --docs examples/docs --out runs/tamarrow")
    print("  .venv/bin/pytrace doctor")
    return 0


if __name__ == "__main__":
    sys.exit(main())
