"""The demo: TRACE answers three questions from the documents beside this file, on the tiny local models.

Run it with `make demo`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pytrace.cli.answer_text import print_answer
from pytrace.documents import read_documents
from pytrace.methods.catalog import method_settings, prompt_style
from pytrace.methods.trace.trace import Trace
from pytrace.models import registry
from pytrace.models.encoders.encoder import OnnxEncoder
from pytrace.models.llama.llama_cpp import LlamaCppModel

HERE = Path(__file__).parent


def main() -> int:
    """Ask the questions, print answers with chains, and say what to type next."""
    documents = list(read_documents(HERE / "docs"))
    model = LlamaCppModel(registry.resolve("tiny", "language-model"), name="tiny", style=prompt_style("tiny"))
    encoder = OnnxEncoder(registry.resolve("tiny", "encoder"))
    trace = Trace(model, encoder, method_settings("trace-doc", "tiny"), name="trace-doc")
    rows = [json.loads(line) for line in (HERE / "questions.jsonl").read_text(encoding="utf-8").splitlines()]
    print(f"{len(documents)} documents of examples/docs, {len(rows)} questions, models on this machine only\n")
    for row in rows:
        print("-" * 100)
        print(f"Question: {row['question']}")
        print_answer(trace.answer([row["question"]], [documents])[0], documents, explain=False)
        print(f"\nExpected: {row['answers'][0]}")
    used = model.usage
    print("-" * 100)
    print(
        f"{used.prompt_tokens} prompt tokens were asked for and {used.evaluated_tokens} evaluated "
        f"({used.generated_tokens} of them generated), in {used.seconds:.1f} s.\n"
    )
    print("Next, ask your own (a folder of .txt or .md files, or a .jsonl file with title and text):")
    print(
        '  .venv/bin/pytrace ask "Who founded the company that owns the Marigold Tern?" --docs examples/docs --explain'
    )
    print("  .venv/bin/pytrace kg build --docs examples/docs --out runs/tamarrow")
    print("  .venv/bin/pytrace doctor")
    return 0


if __name__ == "__main__":
    sys.exit(main())
