"""A LangChain chain whose answers come with a certificate (``pip install 'pytrace-rag[cpu,docs,langchain]'``).

    python examples/langchain_certificates.py ["QUESTION"]

The example documents are searched across hops, a model reasons step by step over what is found, and each step is checked against the facts
of `examples/facts.ttl`. The tiny model reasons badly, and the certificate says so.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from langchain_core.runnables import RunnableLambda, RunnablePassthrough

import pytrace
from pytrace.integrations.langchain import PytraceRetriever

EXAMPLES = Path(__file__).parent
QUESTION = "Who founded the company that owns the Marigold Tern?"
SHOWN = """Reason in numbered steps, then answer.

Facts: Isaura Venn was born in Quillhaven. Quillhaven lies on the Tamarrow Coast.
Question: In which region was Isaura Venn born?
1. The birth place of Isaura Venn is Quillhaven.
2. The region of Quillhaven is Tamarrow Coast.
So the answer is (Tamarrow Coast).

Facts: {facts}
Question: {question}
1."""

engine = pytrace.load()
facts = pytrace.KnowledgeBase.load(EXAMPLES / "facts.ttl", engine.encoder)


def reason(given: dict[str, Any]) -> str:
    """Have the model write its steps: any language model of LangChain's would do."""
    steps = {
        step["text"]: None
        for document in given["documents"][:3]
        for chain in document.metadata["pytrace_chains"][:1]
        for step in chain["steps"]
    }
    prompt = SHOWN.format(facts=" ".join(steps), question=given["question"])
    ((completion,),) = engine.model.generate([prompt], max_tokens=80, stop=["\n\n", "Question:"])
    return f"1.{completion.text}"


def certify(given: dict[str, Any]) -> pytrace.Certificate:
    """Check each step of the response against the facts."""
    return engine.certify([pytrace.Response("1", given["question"], given["response"], ())], facts)[0]


def main(question: str) -> None:
    """Index the example documents, and ask."""
    with tempfile.TemporaryDirectory() as folder:
        index = Path(folder) / "examples.index"
        pytrace.Corpus.build(index, EXAMPLES / "docs", engine).close()
        chain = (
            {"question": RunnablePassthrough(), "documents": PytraceRetriever(index=str(index), top_n=6, engine=engine)}
            | RunnablePassthrough.assign(response=RunnableLambda(reason))
            | RunnablePassthrough.assign(certificate=RunnableLambda(certify))
        )
        result = chain.invoke(question)
    for document in result["documents"]:
        print(f"found: {document.metadata['title']}, {document.metadata['source']}")
    print(result["response"])
    certificate = result["certificate"]
    print(f"certificate: {certificate.kind}")
    for step in certificate.steps:
        print(f"  {step.reason}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else QUESTION)
