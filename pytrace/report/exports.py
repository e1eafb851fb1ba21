"""Answers of a run in the shapes of other evaluators: RAGAS's data sets and DeepEval's test cases, a file a method.

``EvaluationDataset.from_jsonl(FILE)`` of RAGAS reads the first; ``EvaluationDataset().add_test_cases_from_json_file(FILE, "input",
"actual_output", "expected_output", "context", "retrieval_context")`` of DeepEval the second. Questions that failed are left out: they have no
answer that could be judged.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec

from pytrace.evaluation.run.run_store import RunRow, RunStore
from pytrace.reader.evidence import document_text
from pytrace.records import Document
from pytrace.report.page_texts import clean
from pytrace.storage.files import atomic_output

Shape = Literal["ragas", "deepeval"]


def write_exports(folder: Path, store: RunStore, shape: Shape) -> list[Path]:
    """Write ``SHAPE-METHOD.jsonl`` (RAGAS) or ``.json`` (DeepEval) for each method, and return the paths.

    Files of these names are replaced, each in one step.
    """
    documents = {question.id: {each.id: each for each in question.documents} for question in store.questions()}
    lines = shape == "ragas"
    written = []
    for number, method in enumerate(store.methods()):
        # Labels have characters that no file name has, and two may become one; the number keeps them apart.
        name = f"{shape}-{number}-{re.sub(r'[^A-Za-z0-9.]+', '-', method)[:60].strip('-')}"
        path = folder / f"{name}.{'jsonl' if lines else 'json'}"
        with atomic_output(path) as stream:
            separator = b"" if lines else b"["
            for row in _answered(store.rows(method)):
                case = (_ragas if lines else _deepeval)(row, documents.get(row.question_id, {}))
                stream.write(separator + msgspec.json.encode({name: _cleaned(value) for name, value in case.items()}))
                separator = b"\n" if lines else b",\n"
            if not lines:
                stream.write(b"]" if separator != b"[" else b"[]")
            elif separator:
                stream.write(b"\n")
        written.append(path)
    return written


def _cleaned(value: str | list[str] | None) -> str | list[str] | None:
    """Return texts without what no file in UTF-8 can hold: halves of characters that some texts have."""
    return clean(value) if isinstance(value, str) else None if value is None else [clean(text) for text in value]


def _answered(rows: Iterable[RunRow]) -> Iterator[RunRow]:
    return (row for row in rows if row.result is not None)


def _ragas(row: RunRow, documents: dict[str, Document]) -> dict[str, Any]:
    assert row.result is not None
    evidence = row.result.evidence
    return {
        "user_input": row.question,
        "retrieved_contexts": list(evidence.read_texts),
        "retrieved_context_ids": list(evidence.chosen),
        "reference_contexts": _texts(row, documents),
        "reference_context_ids": list(row.supporting_documents),
        "response": row.result.answer,
        "reference": row.answers[0] if row.answers else None,
    }


def _deepeval(row: RunRow, documents: dict[str, Document]) -> dict[str, Any]:
    assert row.result is not None
    return {
        "input": row.question,
        "actual_output": row.result.answer,
        "expected_output": row.answers[0] if row.answers else None,
        "context": _texts(row, documents),
        "retrieval_context": list(row.result.evidence.read_texts),
    }


def _texts(row: RunRow, documents: dict[str, Document]) -> list[str]:
    """Return the texts of the supporting documents that the question came with."""
    return [document_text(documents[name]) for name in row.supporting_documents if name in documents]
