"""The example documents are read whole, refer to each other, and hold what their questions need."""

from __future__ import annotations

import functools
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from pytrace.documents import ReadReport, read_documents

for library in ("docx", "pptx", "pypdfium2", "trafilatura"):
    pytest.importorskip(library, reason=f"{library} reads some of the examples; it comes with the extra docs")

EXAMPLES = Path(__file__).parents[2] / "examples"


class Example(msgspec.Struct, forbid_unknown_fields=True):
    question: str
    answers: list[str]
    supporting: list[str]
    gold: list[str]


@functools.cache
def example_documents() -> dict[str, tuple[str, str]]:
    """Return the id and text of each document by its title."""
    report = ReadReport()
    documents: dict[str, tuple[str, str]] = {}
    for passage in read_documents(EXAMPLES / "docs", report=report):
        origin = passage.origin
        title, id = (passage.title, passage.id) if origin is None else (origin.title, origin.document)
        known, text = documents.get(title, (id, ""))
        assert known == id, f"two documents have the title {title}"
        documents[title] = (id, f"{text} {passage.text}".strip())
    assert not report.skipped
    assert not report.warnings
    assert report.documents == len(documents)
    return documents


def examples() -> list[Example]:
    lines = (EXAMPLES / "questions.jsonl").read_text(encoding="utf-8").splitlines()
    return [msgspec.json.decode(line, type=Example) for line in lines]


def names_in(title: str) -> set[str]:
    """Return the titles of documents that stand in a document or are its own."""
    return {name for name in example_documents() if name in f"{title} {example_documents()[title][1]}"}


def test_the_example_documents_are_short_and_refer_to_each_other() -> None:
    assert len(example_documents()) == 67
    for title, (_, text) in example_documents().items():
        assert 40 <= len(text.split()) <= 250, title
        assert names_in(title) - {title}, title


@pytest.mark.parametrize("example", examples(), ids=lambda example: example.supporting[0])
def test_each_example_question_needs_documents_that_lead_to_its_answer(example: Example) -> None:
    documents = example_documents()
    assert example.gold == [documents[title][0] for title in example.supporting], "the texts have changed; so do ids"
    assert len(example.supporting) >= 2
    for first, second in pairwise(example.supporting):
        assert names_in(first) & names_in(second), f"{first} and {second} name nothing in common"
    answer = example.answers[0]
    assert answer in documents[example.supporting[-1]][1]
    assert answer not in documents[example.supporting[0]][1], "the first document alone must not hold the answer"
